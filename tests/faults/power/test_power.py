"""What would hide a fault of the measurement: wrong places, wrong verdicts, bugs tried twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.mutants.patches import Hunk, Patch, load_patches
from tests.faults.power import trials
from tests.faults.power.hits import HITS
from tests.faults.power.measured import Case, cases_for, read_measured
from tests.faults.power.meter import MARK, Meter
from tests.faults.power.only_test_all import ONLY_TEST_ALL
from tests.faults.power.plugin import TESTS
from tests.faults.power.probes import IMPORT, touched, with_probes
from tests.faults.power.report import judge_dear
from tests.faults.power.trials import Trial, append_trial, ask, read_trials
from tests.harness.shards import share

MODULE = '''\
"""A module."""
from __future__ import annotations

LIMIT = 1


class Door:
    width = 2

    def open(self, wide):
        """Open it."""
        if wide > LIMIT:
            return "wide"
        elif wide:
            return "a gap"
        return "closed"

    def shut(self):
        return "shut"


def knock(): return "knock"
'''


def called_at(line: int, call: str) -> bool:
    """Whether a call passes the probe of a line."""
    passed: list[str] = []
    text = with_probes(MODULE, {line: {"bug"}})
    assert text.startswith('"""A module."""')
    names: dict[str, object] = {"_hit": passed.append}
    exec(text.replace(IMPORT, ""), names)
    eval(call, names)
    return bool(passed)


@pytest.mark.parametrize(
    ("line", "call", "passes"),
    [
        (12, "Door().open(2)", True),
        (13, "Door().open(2)", True),
        (13, "Door().open(1)", False),
        (14, "Door().open(1)", True),
        (15, "Door().open(0)", False),
        (16, "Door().open(0)", True),
        (16, "Door().open(2)", False),
        (10, "Door().open(2)", True),
        (10, "Door().shut()", False),
        (8, "Door().shut()", True),
        (8, "knock()", False),
        (4, "knock()", True),
        (4, "Door().shut()", True),
    ],
)
def test_a_probe_is_passed_by_what_executes_its_line(line: int, call: str, passes: bool) -> None:
    assert called_at(line, call) == passes


@pytest.mark.parametrize(
    ("new", "lines"),
    [("a\nX\nc\n", [3]), ("a\nc\n", [3]), ("a\nb\nX\nc\n", [3, 4]), ("a\nb\nc\nX\n", [4])],
)
def test_lines_that_are_added_belong_to_those_around(new: str, lines: list[int]) -> None:
    assert list(touched(Hunk("code.py", "a\nb\nc\n", new), "0\na\nb\nc\nd\n")) == lines


def write_run(folder: Path, *record: dict[str, object], hits: str = "") -> None:
    folder.mkdir(parents=True)
    (folder / TESTS).write_text("".join(json.dumps(each) + "\n" for each in record))
    (folder / HITS).write_text(hits)


def record(test: str, number: int, uses: list[int], outcome: str = "passed") -> dict[str, object]:
    return {
        "id": test,
        "number": number,
        "uses": uses,
        "outcome": outcome,
        "cpu": 1.0,
        "wall": 1.0,
    }


def test_a_test_has_the_bugs_of_the_fixtures_it_shares_and_the_last_run_counts(
    tmp_path: Path,
) -> None:
    bug, other = Patch("bug", "", "x.py::named", ()), Patch("other", "", "", ())
    write_run(tmp_path / "9", record("x.py::a", 1, []), hits="1 other\n")
    write_run(
        tmp_path / "10",
        record("x.py::a", 1, []),
        record("x.py::b[1]", 3, [2]),
        record("x.py::broken", 4, [2], "failed"),
        record("x.py::named[1]", 5, []),
        record("x.py::named_too", 6, []),
        hits="2 bug\n1 bu",
    )

    cases = read_measured(tmp_path).values()

    assert [case.id for case in cases_for(bug, cases)] == ["x.py::b[1]", "x.py::named[1]"]
    assert cases_for(other, cases) == []


def test_only_what_fails_three_times_of_three_catches(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cases = [Case(f"x.py::{name}", "passed", 0.5, 0.5) for name in ("always", "twice", "never")]
    rounds = iter(({"always", "twice"}, {"always", "twice"}, {"always"}))

    def failures(copy: Path, asked: list[Case], core: int | None) -> tuple[list[Case], str]:
        names = next(rounds)
        return [case for case in asked if case.id.rpartition(":")[2] in names], ""

    monkeypatch.setattr(trials, "failures", failures)
    trial = Trial("bug")
    ask(tmp_path, cases, None, trial)

    assert list(trial.caught) == ["x.py::always"]
    assert trial.unsure == ["x.py::twice"]
    assert len(trial.asked) == 3


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.2, ["named", "b", "ca", "dear"]),
        (9.0, ["named", "b ca", "dear"]),
        (float("inf"), ["named b ca", "dear"]),
    ],
)
def test_cheap_tests_are_asked_before_dear_ones_and_the_named_ones_first(
    seconds: float, expected: list[str]
) -> None:
    prices = {"dear": 9.0, "b": 0.3, "named": 0.4, "ca": 0.9}
    bugs = frozenset(["bug"])
    cases = [Case(name, "passed", cpu, cpu, bugs) for name, cpu in prices.items()]

    found = trials.rounds(Patch("bug", "", "named", ()), cases, seconds)

    assert [" ".join(case.id for case in some) for some in found] == expected


def test_what_was_tried_is_read_again_though_the_last_line_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "build" / "trials.jsonl"
    append_trial(path, Trial("one", {"x.py::a": 2}, {"x.py::a": 1}))
    append_trial(path, Trial("two", note="killed"))
    path.write_text(path.read_text() + '{"bug": "thr')

    assert read_trials(path) == {
        "one": Trial("one", {"x.py::a": 2}, {"x.py::a": 1}),
        "two": Trial("two", note="killed"),
    }


def test_the_shards_take_each_bug_once() -> None:
    names = [f"bug {number}" for number in range(11)]

    shared = [name for number in (1, 2, 3) for name in share(names, (number, 3))]

    assert sorted(shared) == sorted(names)


def test_a_dear_test_is_needed_for_what_it_catches_alone_and_open_where_it_was_not_asked() -> None:
    bugs = [Patch(name, "", "", ()) for name in ("alone", "shared", "left", "untried", "cut")]
    bugs += [Patch(name, "", "", ()) for name in ("named", "named too")]
    names = frozenset(bug.name for bug in bugs)
    cases = [Case("x.py::dear[1]", "passed", 2.0, 2.0, names), Case("x.py::c", "passed", 0, 0)]
    found = {
        "alone": Trial("alone", {"x.py::dear": 1}, {"x.py::dear": 1}),
        "shared": Trial("shared", {"x.py::dear": 1}, {"x.py::dear": 1, "x.py::c": 1}),
        "left": Trial("left", {"x.py::c": 1}, {"x.py::c": 1}, left=["x.py::dear"]),
        "cut": Trial("cut", {"x.py::dear": 1}, note="killed"),
    }

    named = {"named": "x.py::c", "named too": "x.py::dear"}

    known = judge_dear(bugs, cases, found, named)["x.py::dear"]

    assert known.alone == {"alone"}
    assert known.catches == {"alone", "shared"}
    assert known.open == {"untried", "cut", "named too"}


@pytest.mark.integration
def test_a_child_counts_for_the_test_that_runs(tmp_path: Path) -> None:
    """In a process that has nothing of the environment of the run."""
    text = Path(trials.__file__).with_name("hits.py").read_text()
    (tmp_path / "hits.py").write_text(text.replace('FOLDER = ""', f"FOLDER = {str(tmp_path)!r}"))
    (tmp_path / "now").write_bytes((7).to_bytes(8, "little"))
    code = "import hits; hits.hit('a', 'b'); hits.hit('a', 'b')"

    subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={"PATH": os.environ["PATH"]}, check=True
    )

    assert (tmp_path / HITS).read_text() == "7 a\n7 b\n"


BURN = """
import sys, time
while time.process_time() < 0.2:
    pass
print("done", flush=True)
sys.stdin.read()
"""


@pytest.mark.integration
def test_the_time_of_a_process_counts_while_it_lives_and_after_it_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(MARK, "of this test")
    meter = Meter()
    before = meter.seconds()
    with subprocess.Popen(
        [sys.executable, "-c", BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"done\n"
        alive = meter.seconds()
        child.kill()

    assert alive - before >= 0.15
    assert meter.seconds() >= alive


def test_bugs_that_only_all_tests_catch_are_planted_and_have_a_reason() -> None:
    assert ONLY_TEST_ALL.keys() <= {patch.name for patch in load_patches()}
    assert all(why.endswith(".") for why in ONLY_TEST_ALL.values())
