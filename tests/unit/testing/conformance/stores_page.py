"""``make stores``: runs the suites of all stores and writes docs/reference/stores.md.

The guarantee table is made from the classes that were run, what they declare and how their tests
ended; the costs from ``python -m benchmarks.stores``. Nothing in either is written by hand. The
section about types is made by ``types_page.py``.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from benchmarks.stores import cost_table
from tests.harness.processes import ROOT
from tests.harness.report_page import table, write_section
from tests.unit.testing.conformance.types_page import HEAD, PAGE, TITLE, type_lines
from txtopo.testing.conformance import AggregateStateSuite, StateBackendSuite
from txtopo.testing.conformance.driver import StoreFixtures

FOLDERS = ("tests/unit/state_backends", "tests/unit/state")
# Slow too, but here, are states in an object store and those that Spark writes.
MARKS = "not slow or integration"


@dataclass(slots=True, eq=False)
class Suites:
    """A plug-in of pytest that takes note of the suites of stores and how their tests ended.

    Attributes:
        classes: The suite of each store, by name.
        outcomes: How its tests ended.
        failures: What failed, and why.
    """

    classes: dict[str, type[StoreFixtures]] = field(default_factory=dict)
    outcomes: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    failures: list[str] = field(default_factory=list)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the suites of stores alone."""
        kept = []
        for item in items:
            suite = getattr(item, "cls", None)
            if suite is not None and issubclass(suite, StateBackendSuite | AggregateStateSuite):
                self.classes.setdefault(_name(item.nodeid), suite)
                kept.append(item)
        items[:] = kept

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count how a test ended."""
        if report.when == "call" or report.outcome != "passed":
            self.outcomes[_name(report.nodeid)][report.outcome] += 1
            if report.failed:
                self.failures.append(report.nodeid)


COLUMNS = (
    "store",
    "mode",
    "kinds",
    "a deposed coordinator",
    "two owners, or two ensembles, at once",
    "a reader sees",
    "refused",
    "tests",
)


def guarantee_lines(suites: Suites) -> Iterator[str]:
    """Yield the guarantee table in Markdown."""
    return table(COLUMNS, _rows(suites))


def _rows(suites: Suites) -> Iterator[tuple[str, ...]]:
    for name, outcomes in sorted(suites.outcomes.items()):
        suite = suites.classes[name]
        narrow = [f"decimals beyond {suite.decimal_digits} digits"] * (suite.decimal_digits < 38)
        yield (
            name,
            suite.mode,
            " and ".join(sorted(suite.kinds)),
            "is refused" if suite.fenced else "**may still write**",
            "one is refused" if suite.fenced else "**both may be let in**",
            "whole txids only" if suite.atomic_reader else "**half a txid, briefly**",
            ", ".join([*narrow, *sorted(suite.refused)]) or "nothing",
            ended(outcomes),
        )


def ended(outcomes: Counter[str]) -> str:
    """Return how the tests of a store ended, without their number, which grows with the suites.

    Only tests of what a store does not declare are skipped.
    """
    if outcomes["failed"]:
        return f"**{outcomes['failed']:,} failed**"
    return "all applicable passed" if outcomes["skipped"] else "all passed"


def main() -> None:
    """Run the suites and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, default=PAGE, help="the page to write")
    parser.add_argument("--no-suites", action="store_true", help="leave the guarantees as they are")
    parser.add_argument("--no-costs", action="store_true", help="leave the costs as they are")
    parser.add_argument("--keys", type=int, default=1_000_000, help="keys in the state")
    arguments = parser.parse_args()
    page: Path = arguments.page
    status = 0
    if not arguments.no_suites:
        suites = Suites()
        folders = [str(ROOT / folder) for folder in FOLDERS]
        status = int(pytest.main(["-q", "-m", MARKS, *folders], plugins=[suites]))
        if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            raise SystemExit(status)
        write_section(page, "Guarantees", guarantee_lines(suites), HEAD)
        for failed in suites.failures:
            print(failed)
    if not arguments.no_costs:
        write_section(page, "What a commit costs", cost_table(arguments.keys), HEAD)
    write_section(page, TITLE, type_lines(), HEAD)
    raise SystemExit(status)


def _name(nodeid: str) -> str:
    """Return the store of a test: its module's name, and its class's unless that says no more."""
    path, suite, *_ = [*nodeid.split("::"), ""]
    store = Path(path).stem.removeprefix("test_").removesuffix("_log")
    own = suite.removeprefix("Test")
    return store if own == "StateBackend" else f"{store}, {own.lower()}"


if __name__ == "__main__":
    main()
