"""What the suites of spouts have in common: a source, what was written to it, starts of a spout."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Protocol

import pytest

from txtopo.testing.conformance.spout_driver import Batch, SpoutDriver
from txtopo.testing.conformance.spout_intake import Intake
from txtopo.testing.conformance.spout_source import SpoutSource

# More batches than this after the last record stand for a spout that never ends.
_IDLE_BATCHES_MAX = 30


class Start(Protocol):
    """Starts the spout anew: on what an earlier start stored, or from the beginning."""

    def __call__(self, after: SpoutDriver | None = None, tasks: int = 1) -> SpoutDriver:
        """Start; the one before is closed."""
        ...


class SpoutSubject:
    """A subclass gives a fixture ``source``: an empty :class:`SpoutSource` of the test's own."""

    @pytest.fixture
    def intake(self, source: SpoutSource) -> Iterator[Intake]:
        """What the source gets, and what is counted of it."""
        yield Intake(source)
        source.close()

    @pytest.fixture
    def start(self, source: SpoutSource) -> Iterator[Start]:
        """Start the spout, and stop it in the end."""
        with ExitStack() as stack:

            def started(after: SpoutDriver | None = None, tasks: int = 1) -> SpoutDriver:
                if after is not None:
                    after.close()
                driver = SpoutDriver(source.spout(), tasks, after.stored if after else None)
                stack.callback(driver.close)
                return driver

            yield started

    @pytest.fixture
    def changed(self, source: SpoutSource, start: Start) -> Start:
        """Go on after a change of the source: a spout that does not see it is started anew."""

        def seen(after: SpoutDriver | None = None, tasks: int = 1) -> SpoutDriver:
            assert after is not None
            return after if source.live else start(after, tasks)

        return seen


def next_batches(source: SpoutSource, driver: SpoutDriver, batches: int = 1) -> list[Batch]:
    """Return the next batches, of which there are none only if the spout says so again and again.

    They are not committed.
    """
    for _ in range(source.asks):
        if done := driver.next(batches):
            return done
    return []


def drained(
    source: SpoutSource, intake: Intake, driver: SpoutDriver, batches: int = 1
) -> list[Batch]:
    """Process, count and commit all that the spout has, so many batches a run."""
    found: list[Batch] = []
    idle = 0
    while done := next_batches(source, driver, batches):
        intake.take(done)
        driver.commit()
        found += done
        idle = 0 if any(batch.rows for batch in done) else idle + 1
        assert idle < _IDLE_BATCHES_MAX, "it is ready for ever, and its batches are empty"
    return found
