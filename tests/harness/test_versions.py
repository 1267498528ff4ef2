"""The command that tries other versions: what it changes, reads, and cannot find."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from time import monotonic

import pytest

from tests.harness import versions
from tests.harness.polling import wait_until
from tests.harness.processes import ROOT
from tests.harness.report_page import write_page
from tests.harness.versions import Environments, Outcome, Setup, Suite

pytestmark = pytest.mark.slow  # make versions, which takes an hour, is what they are for
CONSTRAINTS = "# why\nnumpy==2.4.6\npsycopg-binary==3.3.9\nSQLAlchemy==2.1.9\ndelta_spark==4.4.0\n"


def test_pins_are_those_of_the_tests_but_for_what_a_setup_changes() -> None:
    changed = {"sqlalchemy": "2.0.0", "delta-spark": None}

    assert versions.pins(CONSTRAINTS, changed) == (
        "# why\nnumpy==2.4.6\npsycopg-binary==3.3.9\nSQLAlchemy==2.0.0\n"
    )


def test_a_package_that_is_not_pinned_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="pins no sqlalchmy; add a line"):
        versions.pins(CONSTRAINTS, {"sqlalchmy": "2.0.0"})


def test_what_the_setups_change_is_pinned() -> None:
    constraints = (ROOT / "constraints.txt").read_text()

    for setup in versions.setups():
        versions.pins(constraints, setup.packages)


def test_each_suite_is_run_by_a_setup_described_and_made_of_what_is_there() -> None:
    named = {suite for setup in versions.setups() for suite in setup.suites}

    assert named == set(versions.SUITES)
    for name, suite in versions.SUITES.items():
        assert f"\n* `{name}`: " in versions.HEAD
        assert suite.parts
        for part in suite.parts:
            assert (ROOT / "tests" / "unit" / part).exists(), part


@pytest.mark.parametrize(
    ("printed", "counts", "failed"),
    [
        ("..\n2 passed in 0.10s\n", {"passed": 2}, 0),
        (
            "F\nFAILED a.py::t - no\nERROR b.py\n"
            "1 failed, 3 passed, 2 skipped, 5 deselected, 1 error in 65.12s (0:01:05)\n"
            "skipped 2 tests: no Java\n",
            {"failed": 2, "passed": 3, "skipped": 2},
            2,
        ),
        ("", {}, 0),
    ],
)
def test_the_last_line_of_pytest_is_read(printed: str, counts: dict[str, int], failed: int) -> None:
    found, failures = versions.summary(printed)

    assert found == counts
    assert len(failures) == failed


def test_a_python_that_is_not_there_is_named_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))

    outcome = versions.try_setup(
        Setup("Python 3.12", ("core",), python="3.12"), Environments(tmp_path), monotonic() + 60
    )

    assert not outcome.failed
    assert outcome.row()[2] == "not run: no Python 3.12 was there"
    assert not list(tmp_path.iterdir())


def test_a_java_that_is_not_there_is_named_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "JVMS", tmp_path)
    setup = Setup("Java 99", ("spark",), python=this_python(monkeypatch), java=99)

    outcome = versions.try_setup(setup, Environments(tmp_path / "none"), monotonic() + 60)

    assert outcome.row()[2] == f"not run: no Java 99 in {tmp_path}"


def test_the_newest_java_is_the_one_with_the_highest_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "JVMS", tmp_path)
    for version in ("9.0.4", "21.0.2", "17.0.9"):
        home = tmp_path / f"java-{version}"
        home.mkdir()
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')

    assert versions.find_java(0) == (21, tmp_path / "java-21.0.2")
    assert versions.find_java(17) == (17, tmp_path / "java-17.0.9")
    assert versions.find_java(11) is None


def test_what_is_not_begun_in_time_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = Setup("now", ("core",), python=this_python(monkeypatch))

    outcome = versions.try_setup(setup, Environments(tmp_path), monotonic() - 1)

    assert outcome.row()[2] == "not run: the time was up"


def test_a_suite_that_does_not_end_in_time_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has started ends with it: pytest is interrupted, and not killed."""
    monkeypatch.setattr(versions, "ROOT", tmp_path)
    monkeypatch.setattr(versions, "GRACE_S", 0.0)
    folder = tmp_path / "tests" / "unit"
    folder.mkdir(parents=True)
    (folder / "test_long.py").write_text(LONG)
    outcome = Outcome(Setup("now", ("core",)))

    # It looks for its end only once the test has begun.
    monkeypatch.setattr(versions, "monotonic", lambda: wait_for(tmp_path / "begun", 0.0))
    versions.run_suite(outcome, Suite("", ("test_long.py",)), sys.executable, {}, 0.0)

    assert outcome.failures == ["the time was up before all tests had run"]
    assert outcome.counts == {"passed": 1}
    assert (tmp_path / "stopped").exists()
    assert not outcome.ended


LONG = """
import pathlib, signal
import pytest

@pytest.fixture
def server():
    yield pathlib.Path("begun").touch()
    pathlib.Path("stopped").touch()

def test_one():
    pass

def test_two(server):
    signal.pause()
"""


def test_an_interrupt_that_a_library_swallows_is_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(versions, "INTERRUPT_AGAIN_S", 2.0)
    command = [sys.executable, "-c", SWALLOWING]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "begun\n"

    printed, told = versions.interrupt(child)

    assert printed == "swallowed\n"
    assert "KeyboardInterrupt" in told


SWALLOWING = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    print("begun", flush=True)
    signal.pause()
except KeyboardInterrupt:
    print("swallowed", flush=True)
signal.pause()
"""


def wait_for(path: Path, result: float) -> float:
    wait_until(path.exists, lambda: f"{path.name} is there")
    return result


def test_what_did_not_come_to_its_end_gets_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tests that passed would look like all of them."""
    monkeypatch.setattr(versions, "PAGE", tmp_path / "versions.md")
    first = versions.setups()[0]
    old = Outcome(first, {"passed": 7}, minutes=2.0).row()
    write_page(versions.PAGE, versions.page_lines({first.name: old}))
    outcome = Outcome(first, {"passed": 3}, ["the time was up"], ended=False)
    monkeypatch.setattr(versions, "try_setup", lambda *_: outcome)

    assert versions.run_all([first], Environments(tmp_path), 0.0) == 1

    assert versions.rows_of(versions.PAGE.read_text()) == {first.name: old}


def test_a_row_that_is_run_again_replaces_its_own_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "PAGE", tmp_path / "versions.md")
    first, second = versions.setups()[:2]
    old = Outcome(first, {"passed": 7, "skipped": 1}, minutes=2.0).row()
    write_page(versions.PAGE, versions.page_lines({first.name: old}))
    assert versions.rows_of(versions.PAGE.read_text())[first.name] == old

    versions.run_all([second], Environments(tmp_path), monotonic() - 1)

    page = versions.PAGE.read_text()
    assert versions.rows_of(page) == {first.name: old}
    assert f"has not run them yet: {second.name}; " in page


def this_python(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the version of the interpreter that runs, which is found whatever PATH is."""
    monkeypatch.setattr(versions, "find_python", lambda _: sys.executable)
    return f"{sys.version_info[0]}.{sys.version_info[1]}"
