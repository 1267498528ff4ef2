"""The harness fails when it must; a poller or a child that cannot fail would hide everything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import left_out
from tests.harness.dying import Died, dies_at, raise_died
from tests.harness.forked import ROOT
from tests.harness.polling import NeverHappenedError, retry, wait_until
from tests.harness.processes import Child
from tests.harness.report_page import write_section


def test_a_wait_returns_the_first_true_value() -> None:
    values = iter(["", "", "there"])

    assert wait_until(lambda: next(values), "it is there", pause_s=0.0) == "there"


def test_a_wait_without_an_end_fails_and_says_what_it_waited_for() -> None:
    with pytest.raises(NeverHappenedError, match=r"waited 0.01 s in vain until pigs fly"):
        wait_until(lambda: False, "pigs fly", limit_s=0.01)


def test_a_retry_ends_with_the_last_error() -> None:
    errors = iter([KeyError("first"), ValueError("not to be retried")])

    def fail() -> None:
        raise next(errors)

    with pytest.raises(ValueError, match="not to be retried"):
        retry(fail, KeyError)
    with pytest.raises(ZeroDivisionError):
        retry(lambda: 1 / 0, ZeroDivisionError, limit_s=0.01)


def test_a_point_dies_at_the_nth_passing_of_its_step() -> None:
    point = dies_at("write.after", 2, raise_died)
    point("write.after")
    point("write.before")

    with pytest.raises(Died, match=r"write\.after"):
        point("write.after")


def test_a_point_without_a_name_counts_every_step() -> None:
    point = dies_at("", 2, raise_died)
    point("plan.before")

    with pytest.raises(Died, match=r"plan\.after"):
        point("plan.after")


@pytest.mark.integration
def test_a_child_that_ends_without_the_event_fails_the_wait() -> None:
    with Child("no_such_module") as child:
        with pytest.raises(AssertionError, match=r"ended before 'ready': status 1.*no_such_module"):
            child.wait_for("ready")
        with pytest.raises(AssertionError, match="No module named"):
            child.finish()


@pytest.mark.parametrize("title", ["One", "Two"])
def test_a_command_replaces_its_own_section(tmp_path: Path, title: str) -> None:
    page = tmp_path / "docs" / "page.md"
    for each in ("One", "Two", title):
        write_section(page, each, [f"of {each}"], "# Page\n")

    assert page.read_text() == "# Page\n\n## One\n\nof One\n\n## Two\n\nof Two\n"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("not slow", True),
        ("not slow and (service or kills) and not spark", True),
        ("(service or not slow) and spark", False),
        ("not slow or spark", False),
        ("", False),
    ],
)
def test_a_run_without_slow_tests_is_known_by_its_expression(
    expression: str, expected: bool
) -> None:
    """One that is not known to leave them out takes as many examples as ``make test-all``."""
    assert left_out("slow", expression) is expected


@pytest.mark.integration
def test_a_part_of_the_tests_that_dies_fails_the_run_and_the_others_are_reported(
    tmp_path: Path,
) -> None:
    """Otherwise the tests that it had not run yet would be missed by nobody."""
    marks = "import os, pytest\n@pytest.mark.integration\n"
    (tmp_path / "test_dies.py").write_text(f"{marks}def test_a(): os._exit(0)\n")
    (tmp_path / "test_others.py").write_text("def test_b(): pass\ndef test_c(): assert 0\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = integration: has a part of its own\n")

    command = [sys.executable, "-m", "pytest", "-p", "tests.harness.parts", "-q", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "The part 'whole 0' ended with status 0; tests not run: 1\n" in done.stdout
    assert "1 failed, 1 passed" in done.stdout
