"""Which tests of suites fail that are there to fail, and with which words."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import pytest

Failures = Mapping[str, Mapping[str, str]]


def failures_of(suites: str, folder: Path) -> Failures:
    """Run the suites of a file of this folder, all in one process of their own.

    Returns:
        What failed with which words, by suite and test.
    """
    report, path = folder / "report.xml", Path(__file__).with_name(suites)
    command = [sys.executable, "-m", "pytest", str(path), "-q", "-p", "no:cacheprovider"]
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
