"""``txtopo try`` in this process, on an ensemble in memory: exit codes, text and JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.harness.polling import LIMIT_S
from tests.harness.runs import LOCAL, started
from tests.unit.command.documents import document
from txtopo.command import trying
from txtopo.command.loading import load_transactional
from txtopo.command.program import FAILED, WRONG_CALL, run
from txtopo.ensemble import MemoryEnsemble
from txtopo.operations import Access, trial

PROGRAM = """
from txtopo import Count, Fields, PersistentAggregate, TransactionalTopologyBuilder, open_state
from txtopo.spouts import MemoryTransactionalSpout

words = MemoryTransactionalSpout({0: [["a"], ["b"], ["a"]]}, Fields("word string, n long"), 2)
builder = TransactionalTopologyBuilder("trying", "words", words)
counts = PersistentAggregate(open_state("sqlite:///words.db"), "word", Count())
builder.set_bolt("counts", counts).fields_grouping("words", "word")
topology = builder.build_topology()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of two programs, of which one has run, and one makes a b of each a."""
    running = PROGRAM.replace('["a"], ["b"], ["a"]', '["a", 1], ["b", 2], ["a", 3]')
    (tmp_path / "try_running.py").write_text(running)
    (tmp_path / "try_changed.py").write_text(running.replace('"a"', '"b"'))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name, value in (("CARRIER", "local"), ("ZOOKEEPER_HOSTS", "memory")):
        monkeypatch.setenv(f"TXTOPO_{name}", value)
    ensemble = MemoryEnsemble()
    monkeypatch.setattr(trying, "trial", partial(trial, access=Access(ensemble=ensemble)))
    with started(load_transactional("try_running.py"), LOCAL, ensemble) as one:
        one.process_all_available(LIMIT_S)
    yield tmp_path
    for name in ("try_running", "try_changed"):
        sys.modules.pop(name, None)


def test_a_difference_has_its_own_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    against = ["--against", "try_running.py"]

    assert run(["try", "try_running.py", "--from", "1", *against]) == 0
    assert capsys.readouterr().out.endswith("\nequal\n")
    assert run(["try", "try_changed.py", "--from", "1", *against]) == FAILED
    assert capsys.readouterr().out.endswith("\ndifferent: counts.counts\n")
    assert run(["try", "try_changed.py", "--from", "1", "--to", "2", *against, "--json"]) == FAILED
    found = document("try", capsys.readouterr().out)
    assert (found["from"], found["to"], found["equal"]) == (1, 2, False)
    assert found["states"]["counts.counts"]["first"][0]["key"] == {"word": "a"}


def test_a_wrong_range_is_a_wrong_call(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["try", "try_running.py", "--from", "3"]) == WRONG_CALL
    assert "there are no txids to compute; got first txid 3" in capsys.readouterr().err
    assert run(["try", "try_running.py"]) == WRONG_CALL
    assert "--from" in capsys.readouterr().err


def test_programs_with_modules_of_one_name_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else both would run with the module of the first, and so be equal."""
    for name, word in (("new", "b"), ("old", "a")):
        (folder / name).mkdir()
        program = PROGRAM.replace('["a"], ["b"], ["a"]', "*try_rows.ROWS")
        (folder / name / f"try_{name}.py").write_text(f"import try_rows\n{program}")
        (folder / name / "try_rows.py").write_text(f"ROWS = [[{word!r}, 1], ['b', 2], ['a', 3]]\n")
    command = ["try", "new/try_new.py", "--from", "1", "--against", "old/try_old.py"]

    try:
        assert run(command) == WRONG_CALL
        assert "both programs have a module 'try_rows'" in capsys.readouterr().err
        (folder / "old" / "try_rows.py").write_bytes((folder / "new" / "try_rows.py").read_bytes())
        assert run(command) == 0, "the same module may be shared"
    finally:
        for name in ("try_new", "try_old", "try_rows"):
            sys.modules.pop(name, None)
