"""A spout that breaks one rule fails the suite at that rule, and is told which one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.conformance.broken_spout_suites import BROKEN
from txtopo.testing.conformance import SpoutRule, SpoutSuite

pytestmark = pytest.mark.integration
Failures = Mapping[str, Mapping[str, str]]


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> Failures:
    """What failed with which words, by suite and test: all suites in one process of their own."""
    report = tmp_path_factory.mktemp("broken") / "report.xml"
    suites = Path(__file__).with_name("broken_spout_suites.py")
    command = [sys.executable, "-m", "pytest", str(suites), "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, f"--junitxml={report}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    found: dict[str, dict[str, str]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        suite = found.setdefault(case.attrib["classname"].rpartition(".Test")[2], {})
        for failure in case.iter("failure"):
            suite[case.attrib["name"]] = failure.text or ""
        assert not list(case.iter("error")), ElementTree.tostring(case, "unicode")
    return found


def test_a_spout_that_is_whole_passes(failures: Failures) -> None:
    assert failures["Whole"] == {}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_spout_fails_at_its_rule(failures: Failures, name: str) -> None:
    kind = BROKEN[name]

    assert kind.fails in failures[name], sorted(failures[name])
    assert kind.rule.value in failures[name][kind.fails]


def test_each_rule_is_broken_by_one() -> None:
    assert {kind.rule for kind in BROKEN.values()} == set(SpoutRule)


def test_no_test_of_one_suite_hides_one_of_another() -> None:
    tests = [
        name for suite in SpoutSuite.__mro__ for name in vars(suite) if name.startswith("test_")
    ]

    assert len(tests) == len(set(tests))
