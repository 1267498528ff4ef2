"""Run the tests of all rows of the fault matrix and write their section: ``make rows``.

The tests run in two halves at the same time, because those that run Spark or kill processes mostly
wait. ``-m "row and not slow"`` runs fewer of them. All other arguments are passed on to pytest. The
exit status is 1 if a test failed.
"""

from __future__ import annotations

import argparse
import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import pytest

from tests.faults.matrix.marks import marked_tests
from tests.faults.matrix.matrix import ROWS
from tests.faults.matrix.results import ByRow, Result, run
from tests.faults.simulated.faults_page import HEAD, PAGE
from tests.harness.report_page import table, write_section

TITLE = "The 57 rows"
INTRODUCTION = """\
What may go wrong, at which durable step, and what is expected. Each test names the rows that it
proves (`@pytest.mark.row`); `make rows` runs them all and writes this section. *Times* is the
number of cases, seeds, orders or kills that were tested."""


HALVES = ("(spark or kills)", "not spark and not kills")


def main() -> None:
    """Run the tests and write the section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-m", dest="marks", default="row", help="which tests run")
    given, handed_on = parser.parse_known_args()
    halves = [f"{given.marks} and {half}" for half in HALVES]
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        ended = list(pool.map(partial(run, handed_on), halves))
    by_row: ByRow = {}
    for _, half in ended:
        for row, tests in half.items():
            by_row.setdefault(row, {}).update(tests)
    write_section(PAGE, TITLE, lines(by_row), HEAD)
    statuses = {status for status, _ in ended} - {int(pytest.ExitCode.NO_TESTS_COLLECTED)}
    raise SystemExit(max(statuses, default=0))


def lines(by_row: Mapping[int, Mapping[str, Result]]) -> Iterator[str]:
    """Yield the section."""
    yield INTRODUCTION
    yield ""
    columns = ("row", "step", "fault", "expected", "test", "times", "result")
    yield from table(columns, _rows(by_row))


def _rows(by_row: Mapping[int, Mapping[str, Result]]) -> Iterator[tuple[object, ...]]:
    marked = marked_tests()
    for number, row in ROWS.items():
        ran = by_row.get(number, {})
        results = {**_not_run(marked.get(number, []), ran), **ran}
        said = (number, row.step, f"{row.place}: {row.fault}", row.expected)
        for at, (test, result) in enumerate(sorted(results.items())):
            yield (*(said if not at else ("",) * 4), f"`{test}`", *_outcome(result))
        if not results:
            yield (*said, "", 0, "to come")


def _not_run(marked: Sequence[str], ran: Mapping[str, Result]) -> dict[str, Result]:
    """Return the tests that did not run; the tests of a suite run where it is subclassed."""
    names = {test.rpartition("::")[2] for test in ran}
    return {test: Result() for test in marked if test.rpartition("::")[2] not in names}


def _outcome(result: Result) -> tuple[str, str]:
    if result.failed:
        return f"{result.times:,}", f"**failed**: {len(result.failed)}"
    if result.skipped:
        part = "part " if result.times else ""
        return f"{result.times:,}", f"{part}not run: {'; '.join(sorted(result.skipped))}"
    return f"{result.times:,}", "as expected" if result.times else "not run"


if __name__ == "__main__":
    main()
