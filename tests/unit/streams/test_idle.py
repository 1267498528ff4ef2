"""A part that is silent for long does not hold the watermark back; planned time alone says so."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from tests.unit.streams.plain import PlainBuilder
from tests.unit.streams.times import at, minutes
from txtopo import Config, open_state
from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.context import EPOCH, TaskContext
from txtopo.state import StateHandle
from txtopo.streams.event_time import (
    KEY,
    MARK,
    MARKS,
    VALUE,
    WATERMARK,
    SourceTime,
    TimeColumn,
    Watermarks,
)
from txtopo.testing.conformance.driver import StateDriver
from txtopo.tuples import Origin, Stream, Tuple

MINUTE = datetime.timedelta(minutes=1)


class Committed:
    """Commits txids of ``Watermarks`` over two sources, and has what each txid emits.

    Args:
        idle_after: That of the first source; the second one has none.
        both: Whether the second source counts.
        clock: That of the first source.
    """

    def __init__(
        self, idle_after: float | None, *, both: bool = False, clock: float | None = None
    ) -> None:
        self._idle = None if idle_after is None else idle_after * MINUTE
        self._clock = None if clock is None else clock * MINUTE
        self._sources = ("left", "right") if both else ("left",)
        state = open_state("memory:", table="marks").with_columns(KEY, VALUE)
        self._driver, self._txid = StateDriver(state), 0

    def txid(
        self, planned: float, *marks: tuple[str, str, float], attempt: int = 0
    ) -> tuple[float | None, float | None]:
        """Commit a txid planned at a minute, with marks; return the watermarks before and after."""
        self._txid += 1
        return self._commit(TransactionAttempt(self._txid, attempt, 1), planned, marks)

    def again(
        self, planned: float, *marks: tuple[str, str, float], attempt: int = 1
    ) -> tuple[float | None, float | None]:
        """Commit the last txid again, in a later attempt."""
        return self._commit(TransactionAttempt(self._txid, attempt, 1), planned, marks)

    def _commit(
        self, attempt: TransactionAttempt, planned: float, marks: Sequence[tuple[str, str, float]]
    ) -> tuple[float | None, float | None]:
        stream, emitted = "counts", list[Any]()
        times = {
            f"{source}.times": SourceTime(source, "ts", MINUTE * 0, (), idle, clock=clock)
            for source, idle, clock in (("left", self._idle, self._clock), ("right", None, None))
        }
        bolt = Watermarks("marks", times, {stream: TimeColumn("ts", frozenset(self._sources))})
        table = self._driver.state.layout()
        handle = StateHandle("marks", table, self._driver.backend)
        ms = int((at(planned) - EPOCH).total_seconds() * 1000)
        context = TaskContext(
            "t", "marks", 0, 1, states=lambda name: handle, stamp=lambda: {"time": ms}
        )
        collector = BatchOutputCollector(
            "marks",
            {stream: Stream(WATERMARK)},
            lambda stream, rows, _: emitted.extend(rows),
            lambda stream, batch: None,
        )
        bolt.prepare(Config(), context, collector, attempt)
        for source, part, mark in marks:
            origin = Origin(attempt, f"{source}.times", MARKS, MARK)
            bolt.execute(Tuple((part, at(mark)), origin))
        bolt.finish_batch()
        collector.flush()
        assert handle.writes is not None
        self._driver.backend.commit(attempt, handle.writes)
        ((before, after),) = emitted
        return minutes(before), minutes(after)


def test_a_silent_part_holds_the_watermark_back_for_ever_by_default() -> None:
    world = Committed(None)
    world.txid(0, ("left", "a", 10), ("left", "b", 3))

    assert world.txid(100_000, ("left", "a", 50)) == (3, 3)


@pytest.mark.rule("txtopo.streams.event_time", "Rules", 5, 6)
def test_a_part_that_is_silent_for_long_does_not_count() -> None:
    world = Committed(5)
    world.txid(0, ("left", "a", 10), ("left", "b", 3))

    assert world.txid(4.9, ("left", "a", 20)) == (3, 3)
    assert world.txid(5, ("left", "a", 30)) == (3, 30)


def test_a_part_that_comes_back_counts_again_and_moves_nothing_back() -> None:
    world = Committed(5)
    world.txid(0, ("left", "a", 10), ("left", "b", 3))
    world.txid(5, ("left", "a", 30))

    assert world.txid(6, ("left", "b", 12)) == (30, 30)
    assert world.txid(7, ("left", "a", 50)) == (30, 30)
    assert world.txid(8, ("left", "b", 40)) == (30, 40)


def test_the_watermark_stands_while_all_are_silent() -> None:
    world = Committed(5)
    world.txid(0, ("left", "a", 10), ("left", "b", 3))

    assert world.txid(60) == (3, 3)


def test_a_source_that_never_had_a_row_counts_until_it_is_idle() -> None:
    world = Committed(5, both=True)

    assert world.txid(0, ("right", "", 10)) == (None, None)
    assert world.txid(4, ("right", "", 20)) == (None, None)
    assert world.txid(5, ("right", "", 30)) == (None, 30)


def test_a_replay_has_the_watermarks_of_the_first_attempt() -> None:
    world = Committed(5)
    world.txid(0, ("left", "a", 10), ("left", "b", 3))
    first = world.txid(5, ("left", "a", 30))

    assert world.again(5, ("left", "a", 30)) == first == (3, 30)


def test_a_row_that_an_attempt_cut_out_takes_its_watermark_back() -> None:
    world = Committed(None)
    world.txid(0, ("left", "a", 10))
    world.txid(1, ("left", "a", 30))

    assert world.again(1, ("left", "a", 20)) == (10, 20)
    assert world.txid(2) == (20, 20)


@pytest.mark.rule("txtopo.streams.event_time", "Rules", 5)
def test_with_a_clock_time_goes_on_for_a_part_without_rows() -> None:
    world = Committed(None, clock=5)
    world.txid(0, ("left", "a", -10), ("left", "b", -20))

    assert world.txid(4.9) == (-20, -20)
    assert world.txid(5) == (-20, 5)
    assert world.txid(8) == (5, 8)


def test_with_a_clock_a_part_that_has_rows_keeps_its_own_time() -> None:
    world = Committed(None, clock=5)
    world.txid(0, ("left", "a", -10), ("left", "b", -20))

    assert world.txid(5, ("left", "a", -8)) == (-20, -8)
    assert world.txid(6, ("left", "a", -7)) == (-8, -7)


@pytest.mark.parametrize("seed", range(40))
def test_random_pauses_of_parts_and_sources_are_those_of_plain_python(seed: int) -> None:
    chance = Random(seed)
    both = seed % 2 == 1
    world, plain = Committed(5, both=both), PlainBuilder()
    sources = ("left", "right") if both else ("left",)
    for source in sources:
        idle = 5 * MINUTE if source == "left" else None
        plain.source(source, ("part", "ts"), event_time="ts", by="part", idle_after=idle)
    plain.watermarks[frozenset(sources)] = None, None
    now = 0.0
    for _ in range(60):
        now += chance.choice([0, 0.5, 2, 5, 9])
        found = [
            (chance.choice(sources), chance.choice("ab"), round(now + chance.uniform(-9, 3), 3))
            for _ in range(chance.choice([0, 0, 1, 2]))
        ]
        records = {
            source: [(p, at(mark)) for s, p, mark in found if s == source] for source in sources
        }
        plain.run([records], [at(now)])

        before, after = plain.watermarks[frozenset(sources)]
        assert world.txid(now, *found) == (minutes(before), minutes(after))
