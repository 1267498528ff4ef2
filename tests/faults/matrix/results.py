"""Count how often the tests of each row ran, and keep how they ended: a plug-in of pytest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

TIMES = "times"
"""The property by which a test says how often it tried its fault, as in ``record_property("times",
10)``. Without it a test counts once."""


@dataclass(slots=True)
class Result:
    """The results of one test function.

    Attributes:
        times: How often its fault was tried.
        failed: Which of its cases failed.
        skipped: Why cases of it did not run.
    """

    times: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: set[str] = field(default_factory=set)


ByRow = dict[int, dict[str, Result]]
"""The results by row and test."""


class ResultsOfRows:
    """A plug-in of pytest.

    Attributes:
        by_row: The results by row and test.
    """

    def __init__(self) -> None:
        self.by_row: ByRow = {}
        self._rows: dict[str, list[int]] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the rows of each case."""
        for item in items:
            rows = [row for mark in item.iter_markers("row") for row in mark.args]
            self._rows[item.nodeid] = rows

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the result of one case."""
        for row in self._rows.get(report.nodeid, ()):
            test = report.nodeid.partition("[")[0]
            result = self.by_row.setdefault(row, {}).setdefault(test, Result())
            if report.failed:
                result.failed.append(report.nodeid)
            elif report.skipped and isinstance(report.longrepr, tuple):
                result.skipped.add(report.longrepr[2].removeprefix("Skipped: "))
            elif report.when == "call":
                result.times += int(str(dict(report.user_properties).get(TIMES, 1)))


def run(handed_on: Sequence[str], marks: str) -> tuple[int, ByRow]:
    """Run the tests with these marks; return pytest's exit status and the results by row."""
    results = ResultsOfRows()
    arguments = ["-m", marks, "-q", "-p", "no:cacheprovider", *handed_on]
    return int(pytest.main(arguments, plugins=[results])), results.by_row
