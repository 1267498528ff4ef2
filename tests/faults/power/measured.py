"""What was measured with nothing planted: each test's price, and the bugs that it could see."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.mutants.patches import Patch
from tests.faults.power.hits import HITS
from tests.faults.power.plugin import TESTS


@dataclass(frozen=True, slots=True)
class Case:
    """A test with its parameters.

    Attributes:
        id: Pytest's id.
        outcome: What it came to; only one that passed can catch a bug.
        cpu: Processor seconds of set-up, call and teardown, without fixtures that tests share.
        wall: Seconds that it took.
        bugs: The bugs whose lines it, or a fixture that it shares, has executed.
    """

    id: str
    outcome: str
    cpu: float
    wall: float
    bugs: frozenset[str] = frozenset()

    @property
    def function(self) -> str:
        """Its id without parameters."""
        return function_of(self.id)


def function_of(test: str) -> str:
    """Return the id of a test without its parameters."""
    return test.partition("[")[0]


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSONL file; a last line that was cut off is left out."""
    text = path.read_text() if path.exists() else ""
    yield from (json.loads(line) for line in text.split("\n")[:-1] if line)


def read_measured(folder: Path) -> dict[str, Case]:
    """Return the cases of all runs in *folder*, of several the last one."""
    runs = sorted(folder.glob("*/"), key=lambda run: int(run.name))
    return {case.id: case for run in runs for case in read_run(run)}


def read_run(run: Path) -> Iterator[Case]:
    """Yield the cases of one run."""
    bugs: dict[int, set[str]] = defaultdict(set)
    path = run / HITS
    for line in path.read_text().split("\n")[:-1] if path.exists() else ():
        number, _, bug = line.partition(" ")
        bugs[int(number)].add(bug)
    for record in read_lines(run / TESTS):
        if "id" in record:
            found = frozenset().union(*(bugs[n] for n in (record["number"], *record["uses"])))
            yield Case(record["id"], record["outcome"], record["cpu"], record["wall"], found)


def read_fixtures(folder: Path) -> dict[str, list[float]]:
    """Return the seconds of each set-up of the fixtures that tests share, by their names."""
    prices: dict[str, list[float]] = defaultdict(list)
    for run in folder.glob("*/"):
        for record in read_lines(run / TESTS):
            if "fixture" in record:
                prices[record["fixture"]].append(record["cpu"])
    return prices


def prices_of(cases: Iterable[Case]) -> dict[str, float]:
    """Return the processor seconds of each test function, all its cases together."""
    prices: dict[str, float] = defaultdict(float)
    for case in cases:
        prices[case.function] += case.cpu
    return dict(prices)


def cases_for(patch: Patch, cases: Collection[Case]) -> list[Case]:
    """Return the cases that could catch a bug.

    They pass without it, and execute one of its lines or are those that its patch names.
    """
    named = patch.test.split()
    passed = (case for case in cases if case.outcome == "passed")
    return [case for case in passed if patch.name in case.bugs or is_named(case.id, named)]


def is_named(test: str, named: Sequence[str]) -> bool:
    """Whether a test is one of *named*, or in a file or class of them."""
    return any(test == each or test.startswith((f"{each}::", f"{each}[")) for each in named)
