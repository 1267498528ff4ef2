"""A part that is silent for long does not hold the watermark back; planned time alone says so."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pytest

from tests.unit.streams.plain import PlainBuilder, PlainTime
from tests.unit.streams.times import at, minutes
from txtopo import Config, open_state
from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.context import EPOCH, TaskContext
from txtopo.state import StateHandle
from txtopo.state.backend import Puts
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
LEFT, BOTH = {"left": 0.0}, {"left": 0.0, "right": 0.0}


class Committed:
    """Commits txids of ``Watermarks`` over two sources, and has what each txid emits.

    Args:
        idle_after: That of the first source; the second one has none.
        behind: The sources that count, with how many minutes rows may be behind them.
        clock: That of the first source.

    Attributes:
        delay: The delay of the first source, in minutes.
        by: The columns that identify the parts of the first source.
        written: The kinds of rows that the last txid wrote.
    """

    def __init__(
        self,
        idle_after: float | None,
        *,
        behind: Mapping[str, float] = LEFT,
        clock: float | None = None,
    ) -> None:
        self._idle = None if idle_after is None else idle_after * MINUTE
        self._clock = None if clock is None else clock * MINUTE
        self._behind = {source: time * MINUTE for source, time in behind.items()}
        self.delay, self.by = 0.0, tuple[str, ...]()
        self.written: list[str] = []
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
            f"{time.source}.times": time
            for time in (
                SourceTime(
                    "left", "ts", self.delay * MINUTE, self.by, self._idle, clock=self._clock
                ),
                SourceTime("right", "ts", 0 * MINUTE),
            )
        }
        bolt = Watermarks("marks", times, {stream: TimeColumn("ts", self._behind)})
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
        assert isinstance(handle.writes, Puts)
        self.written = sorted(what for what, *_ in handle.writes.rows)
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
    world = Committed(5, behind=BOTH)

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


@pytest.mark.rule("txtopo.streams.event_time", "Rules", 8)
def test_a_part_that_begins_behind_does_not_move_its_source_back() -> None:
    """So the others decide: Flink's watermark of a source does not go back either."""
    world = Committed(None, behind=BOTH)
    world.txid(0, ("left", "a", 100), ("right", "", 20))

    assert world.txid(1, ("left", "b", 10)) == (20, 20)
    assert world.txid(2, ("right", "", 50)) == (20, 50)
    assert world.txid(3, ("right", "", 200)) == (50, 100)
    assert world.txid(4, ("left", "b", 90)) == (100, 100)
    assert world.txid(5, ("left", "b", 300)) == (100, 100)
    assert world.txid(6, ("left", "a", 130)) == (100, 130)


def test_a_part_that_begins_behind_in_an_attempt_that_is_redone_is_gone() -> None:
    world = Committed(None, behind=BOTH)
    world.txid(0, ("left", "a", 100), ("right", "", 20))
    world.txid(1, ("left", "a", 300), ("left", "b", 250), ("right", "", 240))

    assert world.again(1, ("left", "a", 110), ("right", "", 400)) == (20, 110)
    assert world.txid(2) == (110, 110)


@pytest.mark.rule("txtopo.streams.event_time", "Rules", 5)
def test_a_source_whose_parts_are_all_idle_lets_the_others_decide() -> None:
    world = Committed(5, behind=BOTH)
    world.txid(0, ("left", "a", 10), ("right", "", 20))

    assert world.txid(5, ("right", "", 30)) == (10, 30)
    assert world.txid(6, ("left", "b", 12), ("right", "", 40)) == (30, 30)
    assert world.txid(7, ("left", "b", 35)) == (30, 35)


@pytest.mark.rule("txtopo.streams.event_time", "Rules", 1, 10)
def test_rows_may_be_behind_each_source_by_a_time_of_its_own() -> None:
    world = Committed(None, behind={"left": 60, "right": 0})

    assert world.txid(0, ("left", "", 100), ("right", "", 20)) == (None, 20)
    assert world.txid(1, ("right", "", 90)) == (20, 40)
    assert world.txid(2, ("left", "", 140)) == (40, 80)


@pytest.mark.rule("txtopo.streams.event_time", "Rules", 9)
def test_the_mark_of_a_source_counts_only_for_its_measure() -> None:
    world = Committed(None, behind=BOTH)
    world.txid(0, ("left", "", 100), ("right", "", 20))

    world.by = ("shop",)
    assert world.txid(1, ("right", "", 200)) == (20, 20)
    assert world.txid(2, ("left", "a", 60)) == (20, 60)
    world.by = ()
    assert world.txid(3) == (60, 100)


@pytest.mark.rule("txtopo.streams.event_time", "Rules", 8)
def test_a_longer_delay_counts_at_once_but_moves_no_watermark_back() -> None:
    world = Committed(None, behind=BOTH)
    world.txid(0, ("left", "", 100), ("right", "", 20))

    world.delay = 70
    assert world.txid(1, ("right", "", 90)) == (20, 30)
    world.delay = 90
    assert world.txid(2, ("left", "", 110)) == (30, 30)


def test_only_what_has_moved_is_written() -> None:
    world = Committed(None, behind=BOTH)
    world.txid(0, ("left", "a", 100), ("right", "", 20))
    assert world.written == ["mark", "mark", "source", "source", "watermark"]

    world.txid(1, ("left", "b", 10))
    assert world.written == ["mark"]
    world.txid(2)
    assert world.written == []
    world.txid(3, ("right", "", 30))
    assert world.written == ["mark", "source", "watermark"]


@pytest.mark.parametrize("seed", range(40))
def test_random_pauses_of_parts_and_sources_are_those_of_plain_python(seed: int) -> None:
    chance = Random(seed)
    sources = ("left", "right") if seed % 2 == 1 else ("left",)
    behind = {source: chance.choice([0.0, 1.0, 7.0]) for source in sources}
    world, plain = Committed(5, behind=behind), PlainBuilder()
    time = PlainTime("ts", tuple((source, each * MINUTE) for source, each in behind.items()))
    for source in sources:
        idle = 5 * MINUTE if source == "left" else None
        plain.source(source, ("part", "ts"), event_time="ts", by="part", idle_after=idle)
    plain.judge_by(time)
    now = 0.0
    for _ in range(60):
        now += chance.choice([0, 0.5, 2, 5, 9])
        found = [
            (chance.choice(sources), chance.choice("abc"), round(now + chance.uniform(-9, 3), 3))
            for _ in range(chance.choice([0, 0, 1, 2]))
        ]
        records = {
            source: [(p, at(mark)) for s, p, mark in found if s == source] for source in sources
        }
        plain.run([records], [at(now)])

        before, after = plain.watermark(time)
        assert world.txid(now, *found) == (minutes(before), minutes(after))
