"""Which tests of suites fail that are there to fail, and with which words."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.harness.chance import has_slow_tests

Failures = Mapping[str, Mapping[str, str]]


def failures_of(suites: Sequence[Path], folder: Path) -> Failures:
    """Run the suites of files, all in one process of their own; the slow ones in test-all alone.

    Returns:
        What failed with which words, by suite and test.
    """
    report = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", *map(str, suites), "-q", "-p", "no:cacheprovider"]
    if not has_slow_tests():
        command += ["-m", "not slow"]
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
