"""Random programs with timers, each from a seed, for a StreamBuilder or in plain Python.

What the functions do with a row or a timer is drawn from its contents, so that a replay does the
same. The model in plain Python looks for the next timer among all timers after each call.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any
from zlib import crc32

from tests.unit.streams.plain import PlainBuilder, PlainStream, Rows, in_order, key_of, named
from tests.unit.streams.seeds import config_of
from tests.unit.streams.timed_programs import FULL, IDLE
from tests.unit.streams.worlds import (
    BEGINNING,
    NAMES,
    TIMED,
    RecuttingSpout,
    judged,
    planned_time,
    timed_sales,
    timed_topology,
)
from txtopo import Count, Fields, Sum
from txtopo.streams import tumbling
from txtopo.testing.simulation.campaign import Verdict

ROWS = 20
MINUTE, SECOND = datetime.timedelta(minutes=1), datetime.timedelta(seconds=1)
TIMERS = ("", "a", "b")


def random_timer_program(seed: int) -> Callable[..., None]:
    """Return the program of a seed; it does the same each time that it is called."""

    def program(builder: Any, source: Callable[..., Any], state: Callable[..., Any]) -> None:
        chance = Random(f"timers/{seed}")
        delay = chance.choice(["0 seconds", "2 minutes", "10 minutes"])
        silent = chance.choice([{}, {}, {}, {"idle_after": IDLE}, {"clock": IDLE}])
        by = chance.choice([(), ("shop",)])
        stream = source("sales", event_time="ts", delay=delay, by=by, **silent)
        for number in range(chance.choice([1, 1, 2])):
            stream = step(stream, chance, state, number)
            counted = stream.group_by("shop", "id", "ts")
            counted.persistent_aggregate(state(f"emitted{number}"), n=Count(), paid=Sum("amount"))
        if chance.random() < 0.4:
            windows = stream.group_by("shop").window(tumbling("5 minutes"))
            table = windows.persistent_aggregate(state("windows"), n=Count(), paid=Sum("amount"))
            table.final().store(state("closed"), key=("window_start", "shop"))

    return program


def step(stream: Any, chance: Random, state: Callable[..., Any], number: int) -> Any:
    """Return what one ``process`` of a program emits."""
    time, clock = chance.choice(["event", "event", "planned"]), None
    if time == "planned" and chance.random() < 0.3:
        clock = "2 seconds"
    functions = Drawn(f"{chance.random()}", time)
    more: dict[str, Any] = {"time": time, "clock": clock, "order_by": FULL}
    kept = state(f"kept{number}", value=Fields("total long"))
    if isinstance(stream, PlainStream):
        return plain_process(stream, "shop", functions, kept, **more)
    grouped = stream.group_by("shop")
    return grouped.process(functions.rows, TIMED, on_timer=functions.timer, state=kept, **more)


class Drawn:
    """Functions for rows and for timers that do what is drawn from a seed and what they get.

    Args:
        seed: The seed.
        time: By which time the timers fire.
    """

    def __init__(self, seed: str, time: str) -> None:
        self._seed, self._unit = seed, MINUTE if time == "event" else SECOND
        self._event = time == "event"

    def rows(self, total: int | None, rows: Any, timers: Any) -> Any:
        emitted = []
        for row in rows:
            chance = self._chance(row["id"], row["ts"])
            total = (total or 0) + (row["amount"] or 0)
            start = row["ts"] if self._event else timers.now
            if chance % 4:
                timers.set(start + self._unit * (chance // 4 % 9 - 1), TIMERS[chance // 40 % 3])
            if chance // 128 % 5 == 0:
                timers.delete(TIMERS[chance // 640 % 3])
            if chance // 2048 % 4 == 0:
                total = None
            emitted.append([row["id"], row["shop"], total, row["ts"]])
        return total, emitted if self._chance(str(total)) % 3 else (row for row in emitted)

    def timer(self, total: int, timer: Any, timers: Any) -> Any:
        chance = self._chance(timer.key, timer.name, timer.at if self._event else "")
        for name in TIMERS:
            chance //= 8
            if chance % 3 == 0:
                # At or before its own moment it fires in the next txid, so not for ever.
                later = chance // 3 % 6 - (2 if total % 3 else 0)
                timers.set(timer.at + self._unit * later, name)
            elif chance % 3 == 1:
                timers.delete(name)
        emitted = [[f"{timer.key}{timer.name}", timer.key, total, timer.at]]
        return (None if chance % 4 == 0 else total + 1), emitted

    def _chance(self, *of: Any) -> int:
        return crc32(f"{self._seed}/{of}".encode())


class TimerBuilder(PlainBuilder):
    """A builder in plain Python that knows when each batch was planned."""

    def run(self, batches: Any, planned: Any = None, versions: Any = None) -> None:
        self.planned = planned
        super().run(batches, planned, versions)


class PlainTimers:
    """The timers of all keys; ``of`` returns those of one key for a call."""

    def __init__(self) -> None:
        self.moments: dict[tuple[Any, str], Any] = {}
        self.waiting: set[tuple[Any, str]] = set()
        self.key: Any = None
        self.now: Any = None
        self.called: Any = None

    def set(self, at: Any, name: str = "") -> None:
        self.moments[self.key, name] = at
        self.waiting.discard((self.key, name))
        if self.called is not None and at <= self.called:
            self.waiting.add((self.key, name))

    def delete(self, name: str = "") -> None:
        self.moments.pop((self.key, name), None)

    def next(self, now: Any) -> Any:
        """Return the next timer that is due: its moment, key and name; None if none is."""
        due = [
            (at, *timer)
            for timer, at in self.moments.items()
            if timer not in self.waiting and now is not None and at <= now
        ]
        return min(due, default=None)


class PlainTimer:
    """A timer that fires."""

    def __init__(self, at: Any, key: Any, name: str) -> None:
        self.at, self.key, self.name = at, key, name


def plain_process(
    stream: PlainStream,
    key: str,
    functions: Drawn,
    state: str,
    *,
    time: str,
    clock: Any,
    order_by: Sequence[str],
) -> PlainStream:
    """Return what ``process`` emits."""
    names, values, timers = (*NAMES, "ts"), dict[Any, Any](), PlainTimers()
    builder = stream.builder
    assert stream.time is not None
    assert isinstance(builder, TimerBuilder)
    if time == "event":
        builder.judge_by(stream.time)

    def call(of: Any, now: Any, at: Any, function: Callable[..., Any], *given: Any) -> Rows:
        timers.key, timers.now, timers.called = of, now, at
        values[of], emitted = function(values.get(of), *given, timers)
        if values[of] is None:
            del values[of]
            for timer in [timer for timer in timers.moments if timer[0] == of]:
                del timers.moments[timer]
        return [named(names, row) for row in emitted]

    def fire(now: Any) -> Rows:
        found: Rows = []
        while (due := timers.next(now)) is not None:
            at, of, name = due
            del timers.moments[of, name]
            found += call(of, now, at, functions.timer, PlainTimer(at, of, name))
        return found

    def emitted(rows: Rows) -> Rows:
        if time == "event":
            assert stream.time is not None
            before, after = builder.watermark(stream.time)
        else:
            before = after = builder.planned[builder.batch - 1]
        timers.waiting.clear()
        of_keys: dict[Any, Rows] = {}
        for row in in_order(rows, order_by):
            of_keys.setdefault(key_of(row, (key,)), []).append(row)
        found = fire(before)
        for of, its in of_keys.items():
            found += call(of, before, None, functions.rows, its)
        found += fire(after)
        builder.tables[state] = {of: {"total": total} for of, total in values.items()}
        moments = timers.moments.items()
        builder.tables[f"{state}_timers"] = {timer: {"at": at} for timer, at in moments}
        return found

    found = stream._then(emitted, stream._among(names))
    builder.at_the_end(state, found.rows)
    builder.at_the_end(f"{state}_timers", found.rows)
    return found


def timer_tables(
    program: Callable[..., None], batches: Sequence[Sequence[Any]], stamps: Mapping[int, Any]
) -> dict[str, dict[Any, Any]]:
    """Return what each table holds after some batches, in plain Python."""
    builder = TimerBuilder()

    def source(id: str, **time: Any) -> Any:
        return builder.source(id, (*NAMES, "ts"), **time)

    program(builder, source, lambda name, **_: name)
    # A row of a clock is a time alone.
    rows = [{"sales": [row for row in batch if len(row) == len(NAMES) + 1]} for batch in batches]
    builder.run(rows, [planned_time(stamps.get(txid)) for txid in range(1, len(batches) + 1)])
    return builder.tables


def judged_timer_program(seed: int) -> Verdict:
    """Run the random program with timers of a seed under its faults, and judge it."""
    program, rows = random_timer_program(seed), timed_sales(ROWS, seed, "s", BEGINNING)
    spout = RecuttingSpout(rows, 1 + seed % 5, 1 + seed % 3, TIMED)
    topology = timed_topology(program, {"sales": spout}, 1 + seed % 3)

    def tables(batches: Sequence[Any], stamps: Mapping[int, Any]) -> dict[str, dict[Any, Any]]:
        return timer_tables(program, batches, stamps)

    return judged(topology, seed, tables, rows, config_of(seed))
