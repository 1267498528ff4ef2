"""The verbs of an operator on the command line, with a real ZooKeeper and a topology in a file."""

from __future__ import annotations

import json
import os
import re
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.servers.zookeeper import LONG_SESSION_S, ZooKeeperProcess
from tests.unit.command.documents import document
from txtopo import Config, ZooKeeper
from txtopo.command.loading import load_transactional
from txtopo.command.program import FAILED, INTERRUPTED, REFUSED, UNREACHABLE, WRONG_CALL, run
from txtopo.errors import PoisonBatchError
from txtopo.operations import show
from txtopo.operations.folder import EmbeddedFolder
from txtopo.state import open_state

PAGES = """
from txtopo import BasicBolt, Count, FailedException, Fields, PersistentAggregate
from txtopo import TransactionalTopologyBuilder, open_state
from txtopo.spouts import FilesTransactionalSpout


class Parse(BasicBolt):
    output_fields = Fields("word string")

    def execute(self, tuple, collector):
        if tuple["page"] == "?!":
            raise FailedException("no parser takes it")
        collector.emit([tuple["page"]])


spout = FilesTransactionalSpout(
    "{folder}/pages", Fields("page string"), "text", batch_files_max=1
)
builder = TransactionalTopologyBuilder("{id}", "pages", spout)
builder.set_bolt("parse", Parse()).shuffle_grouping("pages")
counts = PersistentAggregate(open_state("sqlite:///{folder}/pages.db"), "word", Count())
builder.set_bolt("counts", counts).fields_grouping("parse", "word")
topology = builder.build_topology()
"""

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Path]:
    """A file with a topology whose txid 2 always fails."""
    (tmp_path / "pages").mkdir()
    for number, page in enumerate(["cat", "?!", "dog"]):
        (tmp_path / "pages" / f"{number}.txt").write_text(page)
    name = f"pages_{uuid.uuid4().hex}"
    file = tmp_path / f"{name}.py"
    file.write_text(PAGES.format(id=name, folder=tmp_path))
    path = [*sys.path]
    yield file
    sys.path[:] = path
    sys.modules.pop(name, None)


@pytest.fixture
def hosts(zookeeper: ZooKeeperProcess) -> str:
    return zookeeper.hosts


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], hosts: str) -> Call:
    """Run a command with the ZooKeeper; return its exit code, and what it printed."""

    def called(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(["--zookeeper", hosts, *map(str, arguments)])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return called


def config(hosts: str) -> Config:
    return Config(
        carrier="local",
        zookeeper=ZooKeeper(hosts, session_timeout_s=LONG_SESSION_S),
        attempts_max=2,
        backoff_s=0.01,
    )


def run_to_poison(pages: Path, hosts: str) -> None:
    topology = load_transactional(str(pages))
    with pytest.raises(PoisonBatchError), topology.start(config=config(hosts)) as started:
        started.process_all_available(LIMIT_S)


def run_to_end(pages: Path, hosts: str) -> dict[str, int]:
    with load_transactional(str(pages)).start(config=config(hosts)) as started:
        started.process_all_available(LIMIT_S)
    with open_state(f"sqlite:///{pages.parent}/pages.db", table="counts").reader() as reader:
        return dict(reader.items())


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """A terminal as standard input; the function types at it."""
    master, slave = os.openpty()
    with os.fdopen(slave, closefd=True) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)

        def typed(text: str) -> None:
            os.write(master, text.encode())

        yield typed
    os.close(master)


def test_a_batch_is_taken_out_and_the_run_goes_on(pages: Path, hosts: str, call: Call) -> None:
    run_to_poison(pages, hosts)

    code, out, err = call("quarantine", pages, 2, "--reason", "no parser", "--yes")

    assert code == 0
    assert out.startswith(f"quarantine of topology '{pages.stem}':\n1. claim the next epoch")
    assert out.endswith("done\n")
    steps = [line for line in err.splitlines() if line.startswith("step ")]
    assert steps == [f"step {at} of {len(steps)}" for at in range(1, len(steps) + 1)]
    assert len(steps) == len(out.splitlines()) - 2
    assert run_to_end(pages, hosts) == {"cat": 1, "dog": 1}
    code, out, _ = call("quarantine", pages, 2, "--reason", "no parser")
    assert (code, out) == (0, f"quarantine of topology '{pages.stem}': nothing to do\n")


def test_a_topology_is_forked_and_the_program_goes_on_under_the_new_id(
    pages: Path, hosts: str, call: Call
) -> None:
    run_to_poison(pages, hosts)
    two, url = f"{pages.stem}_2", f"sqlite:///{pages.parent}/two.db"

    code, out, _ = call("fork", pages, "--id", two, "--to", url, "--dry-run")
    assert code == 0
    assert f"from sqlite:///{pages.parent}/pages.db to {url}" in out
    assert not (pages.parent / "two.db").exists()
    to = f"counts.counts={url}"
    code, out, _ = call("fork", pages, "--id", two, "--to", to, "--yes", "--json")
    told = document("plan", out)
    assert (code, told["verb"], told["topology"], told["done"]) == (0, "fork", two, True)

    with open_state(url, table="counts").reader() as reader:
        assert dict(reader.items()) == {"cat": 1}
    code, out, _ = call("fork", pages, "--id", two, "--to", url)
    assert (code, out) == (0, f"fork of topology '{two}': nothing to do\n")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--at", "later", "--to", "memory:"], "--at cannot be read; got 'later'"),
        ([], "--to must name a store; got"),
        (["--to", "memory:", "--to", "counts.counts=memory:"], "COMPONENT.STATE=URL for each of"),
        (["--at", "7", "--to", "sqlite:///x.db"], "cannot fork .* at txid 7; expected one from 1"),
    ],
)
def test_a_fork_that_cannot_be_is_refused_in_a_line(
    pages: Path, hosts: str, call: Call, options: list[str], told: str
) -> None:
    run_to_poison(pages, hosts)

    code, _, err = call("fork", pages, "--id", "two", *options)

    assert code == WRONG_CALL
    assert re.search(told, err), err


def test_without_a_terminal_it_asks_for_yes_and_changes_nothing(
    pages: Path, hosts: str, call: Call
) -> None:
    run_to_poison(pages, hosts)
    before = str(show(load_transactional(str(pages)), config(hosts)))

    code, out, err = call("quarantine", pages, 2)

    assert code == WRONG_CALL
    assert "1. claim" in out
    assert "no terminal to ask for confirmation; nothing was changed; use --yes" in err
    assert str(show(load_transactional(str(pages)), config(hosts))) == before


def test_a_dry_run_prints_the_plan_only(pages: Path, hosts: str, call: Call) -> None:
    run_to_poison(pages, hosts)
    before = str(show(load_transactional(str(pages)), config(hosts)))

    code, out, _ = call("quarantine", pages, 2, "--dry-run", "--json")

    plan = document("plan", out)
    assert (code, plan["verb"], plan["done"]) == (0, "quarantine", False)
    assert plan["steps"]
    assert str(show(load_transactional(str(pages)), config(hosts))) == before


@pytest.mark.parametrize(
    ("typed", "code"), [("n\n", FAILED), ("\n", FAILED), ("\x04", INTERRUPTED)]
)
def test_no_at_the_question_changes_nothing(
    pages: Path,
    hosts: str,
    call: Call,
    terminal: Callable[[str], None],
    typed: str,
    code: int,
) -> None:
    run_to_poison(pages, hosts)
    before = str(show(load_transactional(str(pages)), config(hosts)))
    terminal(typed)

    found, _, err = call("quarantine", pages, 2)

    assert found == code
    assert "Carry out these steps? [y/N]" in err
    assert str(show(load_transactional(str(pages)), config(hosts))) == before


def test_yes_at_the_question_does_the_steps(
    pages: Path, hosts: str, call: Call, terminal: Callable[[str], None]
) -> None:
    run_to_poison(pages, hosts)
    terminal("y\n")

    code, out, _ = call("quarantine", pages, 2, "--json")

    assert code == 0
    assert document("plan", out)["done"] is True
    assert run_to_end(pages, hosts) == {"cat": 1, "dog": 1}


def test_verify_says_that_nothing_is_wrong(pages: Path, hosts: str, call: Call) -> None:
    run_to_poison(pages, hosts)

    code, out, _ = call("verify", pages)

    assert (code, out) == (0, f"topology '{pages.stem}' can continue: nothing is wrong\n")
    code, out, _ = call("verify", pages, "--json", "--no-rows")
    assert (code, document("verify", out)) == (0, {"topology": pages.stem, "findings": []})


def test_a_finding_exits_with_1_and_rebuild_removes_it(
    pages: Path, hosts: str, call: Call, tmp_path: Path
) -> None:
    """The nodes of the topology are deleted, as when the data of ZooKeeper is lost."""
    run_to_poison(pages, hosts)
    batch = show(load_transactional(str(pages)), config(hosts)).batches[1]
    forget_nodes(hosts, pages.stem)

    code, out, _ = call("verify", pages, "--json")
    assert code == FAILED
    findings = document("verify", out)["findings"]
    assert findings
    code, out, _ = call("verify", pages)
    assert findings[0]["remedy"] in out

    given = tmp_path / "before.json"
    given.write_text(json.dumps({"1": batch}))
    assert call("rebuild", pages, "--metadata", f"@{given}", "--yes")[0] == 0
    assert call("verify", pages)[0] == 0


def forget_nodes(hosts: str, topology_id: str) -> None:
    """Delete what ZooKeeper has of a topology."""
    from kazoo.client import KazooClient

    servers, _, chroot = hosts.partition("/")
    client = KazooClient(servers)
    client.start()
    path = f"/{chroot}/{topology_id}" if chroot else f"/txtopo/{topology_id}"
    for name in client.get_children(path):
        if name != "leader":
            client.delete(f"{path}/{name}", recursive=True)
    client.stop()
    client.close()


def test_a_lost_node_is_repaired(pages: Path, hosts: str, call: Call) -> None:
    run_to_poison(pages, hosts)

    code, out, _ = call("repair", pages, "/current", "--yes")

    assert code == 0
    assert "nothing to do" in out


def test_states_are_rewound_by_one_txid(pages: Path, hosts: str, call: Call) -> None:
    run_to_poison(pages, hosts)

    code, _, _ = call("rewind", pages, 0, "--yes")

    assert code == 0
    with open_state(f"sqlite:///{pages.parent}/pages.db", table="counts").reader() as reader:
        assert dict(reader.items()) == {}


def test_a_topology_is_forgotten(pages: Path, hosts: str, call: Call) -> None:
    run_to_poison(pages, hosts)

    assert call("forget", pages, "--state", "counts.counts", "--yes")[0] == 0
    assert call("forget", pages, "--yes")[0] == 0
    code, out, _ = call("forget", pages)

    assert code == 0
    assert "nothing to do" in out


def test_a_topology_that_runs_is_left_alone(pages: Path, hosts: str, call: Call) -> None:
    patient = replace(config(hosts), attempts_max=100, backoff_s=30)
    with load_transactional(str(pages)).start(config=patient) as started:
        wait_until(lambda: started.last_progress is not None, "txid 1 is committed")
        code, out, err = call("rewind", pages, 0, "--yes")

    assert code == REFUSED
    assert out == ""
    assert "leads" in err


@pytest.mark.slow
@pytest.mark.service("zookeeper")
def test_an_embedded_ensemble_is_found_by_its_folder(
    pages: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """While somebody hosts it and while nobody does; there is no Spark session."""
    folder = tmp_path / "ensemble"
    (folder / "data").mkdir(parents=True)
    host = EmbeddedFolder(folder)
    try:
        run_to_poison(pages, host.locate())
        assert run(["--dir", str(folder), "verify", str(pages)]) == 0
    finally:
        host.close()

    assert run(["--dir", str(folder), "quarantine", str(pages), "2", "--yes"]) == 0
    assert run(["--dir", str(tmp_path), "verify", str(pages)]) == WRONG_CALL


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["quarantine", "{pages}", "none"], "is not a valid integer"),
        (["quarantine", "{pages}", "0"], "0 is not in the range"),
        (["quarantine", "{pages}", "2", "--end", "{{"], "--end cannot be read"),
        (["quarantine", "{pages}", "2", "--end", "@nowhere"], "--end cannot be read"),
        (["rebuild", "{pages}", "--metadata", "[]"], "--metadata must map txids to positions"),
        (["repair", "{pages}", "/nodes"], "there is no node '/nodes'"),
        (["forget", "{pages}", "--state", "x.y"], "has no state 'x.y'"),
        (["verify", "nowhere.py"], "'nowhere.py' does not exist"),
        (["rewind", "{pages}", "7"], "cannot rewind to txid 7"),
    ],
)
def test_a_wrong_call_is_said(
    pages: Path, hosts: str, call: Call, arguments: list[str], said: str
) -> None:
    run_to_poison(pages, hosts)

    code, _, err = call(*(each.format(pages=pages) for each in arguments))

    assert code == WRONG_CALL
    assert said in err


def test_an_ensemble_that_is_away_is_said(pages: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--zookeeper", "127.0.0.1:1", "--set", "zookeeper.connect_timeout_s=0.5"]

    assert run([*options, "verify", str(pages)]) == UNREACHABLE
    assert run([*options, "rewind", str(pages), "0", "--yes"]) == UNREACHABLE
