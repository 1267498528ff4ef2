"""A plug-in of pytest: what each test costs, what it came to, and which number its hits have.

``POWER_OF_TESTS`` is the folder of the run. If it has a file ``chosen.txt``, only the tests run
whose ids are in it. For each test a line of JSON is written, and another for each fixture that
tests share: its price is not in that of the test that happened to be the first.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.power.hits import NUMBER_BYTES, shared_number
from tests.faults.power.meter import MARK, Meter

CHOSEN = "chosen.txt"
TESTS = "tests.jsonl"
CORE = "POWER_OF_TESTS_CORE"
"""The variable with the core to stay on; the simulator's threads take turns."""
RUNNING = "running.txt"
"""The id of the test that runs, or that ran when the run was killed."""


class Prices:
    """Numbers and prices of tests and of shared fixtures.

    Attributes:
        shared: The numbers of each fixture that was set up for several tests, by its identity.
        apart: The seconds of shared fixtures since the present test began.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.meter = Meter()
        self.number = 0
        self.shared: dict[int, list[int]] = {}
        self.apart = 0.0
        self.outcome = "passed"
        self._now = shared_number(str(folder))
        self._file = (folder / TESTS).open("a", buffering=1)

    def next_number(self) -> int:
        """Return a number that nothing had before."""
        self.number += 1
        return self.number

    def runs(self, number: int) -> None:
        """Let hits count for *number* from now on."""
        self._now[:] = number.to_bytes(NUMBER_BYTES, "little")  # type: ignore[index]

    def write(self, **record: object) -> None:
        """Write a line."""
        self._file.write(json.dumps(record) + "\n")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        number, self.apart, self.outcome = self.next_number(), 0.0, "passed"
        self.runs(number)
        (self.folder / RUNNING).write_text(item.nodeid)
        seconds, wall = self.meter.seconds(), time.monotonic()
        try:
            return (yield)
        finally:
            self.write(
                id=item.nodeid,
                number=number,
                uses=self.uses(item),
                outcome=self.outcome,
                cpu=round(max(self.meter.seconds() - seconds - self.apart, 0.0), 3),
                wall=round(time.monotonic() - wall, 3),
            )
            self.runs(0)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        if fixturedef.scope == "function":
            return (yield)
        outer, number, apart = bytes(self._now[:NUMBER_BYTES]), self.next_number(), self.apart
        self.runs(number)
        seconds = self.meter.seconds()
        try:
            return (yield)
        finally:
            took = self.meter.seconds() - seconds
            inner = self.apart - apart
            self.apart = apart + took
            self.shared.setdefault(id(fixturedef), []).append(number)
            self.write(fixture=fixturedef.argname, number=number, cpu=round(took - inner, 3))
            self.runs(int.from_bytes(outer, "little"))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome != "passed" and self.outcome != "failed":
            self.outcome = report.outcome

    def uses(self, item: pytest.Item) -> list[int]:
        """Return the numbers of the shared fixtures of a test."""
        info = getattr(item, "_fixtureinfo", None)
        known = info.name2fixturedefs.values() if info else ()
        return sorted(n for all_ in known for each in all_ for n in self.shared.get(id(each), ()))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        path = self.folder / CHOSEN
        if path.exists():
            chosen = set(path.read_text().split("\n"))
            config.hook.pytest_deselected(items=[i for i in items if i.nodeid not in chosen])
            items[:] = [item for item in items if item.nodeid in chosen]


def pytest_configure(config: pytest.Config) -> None:
    """Begin to price."""
    if os.environ.get(CORE):
        os.sched_setaffinity(0, {int(os.environ[CORE])})
    config.pluginmanager.register(Prices(Path(os.environ[MARK])), "power")
