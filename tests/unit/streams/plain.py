"""Plain: the operators of a StreamBuilder in plain Python, for the oracle of a program.

It has the methods of the builder and its streams, so a program runs on either. One batch after the
other, each stream is a list of dicts and each table a dict. It knows no tasks, attempts, stores or
record batches; an aggregate is computed from all rows of its key.

Event time: each source keeps how far it has come, and a watermark is computed from that after each
batch. Each table of windows keeps the rows of each window, and those that were late; sessions are
found by merging intervals, two at a time, until no two of them meet.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

from tests.unit.streams.plain_joins import in_order as in_order_of_all
from txtopo import Count, Max, Mean, Min, Sum
from txtopo.durations import duration
from txtopo.streams.interval_join import interval
from txtopo.streams.windows import Session, Window

Row = dict[str, Any]
Rows = list[Row]
Time = datetime.datetime
Behind = tuple[tuple[str, datetime.timedelta], ...]
"""How far rows of a stream may be behind each of its sources, by source."""
MICROSECOND = datetime.timedelta(microseconds=1)
NONE = datetime.timedelta(0)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class PlainBuilder:
    """Runs a program over batches; ``tables`` has what each state holds afterwards."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[Any, Any]] = {}
        self.batch = 0
        self._sources: dict[str, list[str]] = {}
        self._rows: dict[str, Rows] = {}
        self._ends: list[Callable[[], object]] = []
        self._clocks: dict[str, PlainClock] = {}
        self.watermarks: dict[Behind, tuple[Time | None, Time | None]] = {}
        self.versions: Mapping[str, Any] = {}

    def source(
        self,
        id: str,
        names: Sequence[str],
        *,
        event_time: str | None = None,
        delay: Any = datetime.timedelta(0),
        by: Sequence[str] = (),
        idle_after: Any = None,
        clock: Any = None,
    ) -> PlainStream:
        self._sources[id] = list(names)
        if event_time is None:
            return PlainStream(self, lambda: self._rows[id])
        length = duration("delay", delay, zero=True)
        idle = None if idle_after is None else duration("idle_after", idle_after)
        ticks = None if clock is None else duration("clock", clock)
        self._clocks[id] = PlainClock(event_time, length, as_names(by), idle, ticks)
        return PlainStream(self, lambda: self._rows[id], PlainTime(event_time, ((id, NONE),)))

    def lookup(self, id: str, source: Any, **_: Any) -> PlainLookup:
        return PlainLookup(self, id, source)

    def merge(self, *streams: PlainStream) -> PlainStream:
        def together() -> Rows:
            return [row for stream in streams for row in stream.rows()]

        times = [stream.time for stream in streams]
        first = times[0]
        if first is None or any(
            each is None or (each.column, each.offset) != (first.column, first.offset)
            for each in times
        ):
            return PlainStream(self, together)
        behind = behind_in_all([each.behind for each in times if each is not None])
        return PlainStream(self, together, replace(first, behind=behind))

    def at_the_end(self, name: str | None, compute: Callable[[], object]) -> None:
        if name is not None:
            self.tables.setdefault(name, {})
        self._ends.append(compute)

    def judge_by(self, time: PlainTime) -> None:
        """See to it that there is a watermark of an event time."""
        self.watermarks.setdefault(time.behind, (None, None))

    def run(
        self,
        batches: Sequence[Mapping[str, Sequence[Sequence[Any]]]],
        planned: Sequence[Time | None] | None = None,
        versions: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Run batches, each with the records of all sources.

        Beside them stand when each was planned, and the versions of its lookups.
        """
        for number, records in enumerate(batches):
            self.batch += 1
            now = None if planned is None else planned[number]
            self.versions = {} if versions is None else versions[number]
            for source, names in self._sources.items():
                rows = [dict(zip(names, each, strict=True)) for each in records.get(source, ())]
                self._rows[source] = rows
                if source in self._clocks:
                    self._clocks[source].see(rows, now)
            for behind, (_, before) in self.watermarks.items():
                self.watermarks[behind] = before, self._watermark(behind, before, now)
            for end in self._ends:
                end()

    def watermark(self, time: PlainTime) -> tuple[Time | None, Time | None]:
        """What the watermark of an event time was before the batch, and what it is after it."""
        return self.watermarks[time.behind]

    def _watermark(self, behind: Behind, before: Time | None, now: Time | None) -> Time | None:
        found = []
        for source, time in behind:
            clock = self._clocks[source]
            if not clock.marks and not clock.idle(clock.begun, now):
                return before
            if clock.come is not None and clock.awake(now):
                found.append(clock.come - clock.delay - time)
        reached = min(found, default=before)
        return reached if before is None or reached is None else max(before, reached)


@dataclass
class PlainClock:
    """The event time of a source: the largest one of each part."""

    column: str
    delay: datetime.timedelta
    by: tuple[str, ...]
    idle_after: datetime.timedelta | None = None
    ticks: datetime.timedelta | None = None
    marks: dict[Any, Time] = field(default_factory=dict)
    seen: dict[Any, Time | None] = field(default_factory=dict)
    begun: Time | None = None
    come: Time | None = None
    """How far the slowest part that counts has ever come."""

    def see(self, rows: Rows, now: Time | None) -> None:
        self.begun = self.begun or now
        for row in rows:
            part = tuple(row[name] for name in self.by)
            self.marks[part] = max(row[self.column], self.marks.get(part, row[self.column]))
            self.seen[part] = now
        slowest = [self.mark(part, now) for part in self.awake(now)]
        if slowest and (self.come is None or self.come < min(slowest)):
            self.come = min(slowest)

    def awake(self, now: Time | None) -> list[Any]:
        return [part for part, seen in self.seen.items() if not self.idle(seen, now)]

    def mark(self, part: Any, now: Time | None) -> Time:
        mark, seen = self.marks[part], self.seen[part]
        if self.ticks is None or now is None or seen is None or now - seen < self.ticks:
            return mark
        return max(mark, now)

    def idle(self, since: Time | None, now: Time | None) -> bool:
        if self.idle_after is None or now is None or since is None:
            return False
        return now - since >= self.idle_after


@dataclass(frozen=True)
class PlainTime:
    """The event time of a stream."""

    column: str
    behind: Behind
    offset: datetime.timedelta = datetime.timedelta(0)

    def of(self, row: Row) -> Time:
        at: Time = row[self.column] + self.offset
        return at


def behind_in_all(given: Sequence[Behind]) -> Behind:
    """How far behind each source the rows of several streams may be."""
    pairs = sorted(pair for behind in given for pair in behind)
    return tuple(dict(pairs).items())


def behind_after(behind: Behind, wait: datetime.timedelta) -> Behind:
    """How far behind each source rows may be that have waited."""
    return tuple((source, time + wait) for source, time in behind)


class PlainStream:
    """A stream: the rows of the batch that is being run."""

    def __init__(
        self, builder: PlainBuilder, compute: Callable[[], Rows], time: PlainTime | None = None
    ) -> None:
        self.builder, self._compute, self.time = builder, compute, time
        self._batch, self._found = 0, Rows()

    def rows(self) -> Rows:
        if self._batch != self.builder.batch:
            self._found, self._batch = self._compute(), self.builder.batch
        return self._found

    def _then(self, compute: Callable[[Rows], Rows], time: PlainTime | None = None) -> PlainStream:
        return PlainStream(self.builder, lambda: compute(self.rows()), time)

    def _among(self, names: Sequence[str]) -> PlainTime | None:
        return self.time if self.time is not None and self.time.column in names else None

    def map(self, function: Any, fields: str, **_: Any) -> PlainStream:
        names = names_of(fields)
        return self._then(
            lambda rows: [named(names, function(row)) for row in rows], self._among(names)
        )

    def flat_map(self, function: Any, fields: str, **_: Any) -> PlainStream:
        names = names_of(fields)
        return self._then(
            lambda rows: [named(names, v) for row in rows for v in function(row)],
            self._among(names),
        )

    def filter(self, function: Any, **_: Any) -> PlainStream:
        return self._then(lambda rows: [row for row in rows if function(row)], self.time)

    def with_columns(self, function: Any, fields: str, **_: Any) -> PlainStream:
        names = names_of(fields)
        return self._then(
            lambda rows: [row | named(names, function(row)) for row in rows], self.time
        )

    def select(self, *names: str, id: str | None = None, **renamed: str) -> PlainStream:
        columns = {name: name for name in names} | renamed
        time = self.time
        if time is not None:
            new = [new for new, old in columns.items() if old == time.column]
            time = replace(time, column=new[0]) if new else None
        return self._then(
            lambda rows: [{n: row[o] for n, o in columns.items()} for row in rows], time
        )

    def branch(self, function: Any, **_: Any) -> tuple[PlainStream, PlainStream]:
        return self.filter(function), self.filter(lambda row: not function(row))

    def group_by(self, *names: str) -> PlainGrouped:
        return PlainGrouped(self, names)

    def aggregate(self, **aggregates: Any) -> PlainStream:
        return PlainGrouped(self, ()).aggregate(**aggregates)

    def store(self, state: str, key: Any, order_by: Sequence[str] = ()) -> None:
        self.as_table(state, key, None, order_by)

    def as_table(
        self, state: str, key: Any, value: Any = None, order_by: Sequence[str] = ()
    ) -> PlainTable:
        keys, values = as_names(key), None if value is None else as_names(value)

        def apply(table: dict[Any, Any]) -> None:
            rows = in_order(self.rows(), as_names(order_by))
            for row in rows:
                if row.get("retracted"):
                    table.pop(key_of(row, keys), None)
            for row in rows:
                kept = values or [n for n in row if n not in keys and n != "retracted"]
                if not row.get("retracted"):
                    table[key_of(row, keys)] = {name: row[name] for name in kept}

        return PlainTable(self.builder, state, keys, apply)

    def query(self, table: PlainTable, on: Any, **_: Any) -> PlainStream:
        def answered(rows: Rows) -> Rows:
            held = table.held()
            names = {name for value in held.values() for name in value} | set(table.columns)
            nothing = dict.fromkeys(sorted(names))
            return [row | held.get(key_of(row, as_names(on)), nothing) for row in rows]

        return self._then(answered)

    def drop_duplicates(
        self, *names: str, within: Any, state: str, late: Any = None
    ) -> PlainStream:
        """Rows of a key are copies, or apart by *within*; so it does not matter which one is first.

        Everything is remembered for ever.
        """
        assert self.time is not None
        time, length = self.time, duration("within", within)
        self.builder.judge_by(time)
        told = None if late is False else LateTable(self.builder, late or f"{state}_late")
        passed: dict[Any, list[Time]] = {}

        def unique(rows: Rows) -> Rows:
            before, _ = self.builder.watermark(time)
            found: Rows = []
            for row in rows:
                key, at = tuple(row[name] for name in names), time.of(row)
                if before is not None and at < before:
                    if told is not None:
                        told.take(tuple(row.values()))
                    continue
                if None not in key:
                    if any(abs(at - other) < length for other in passed.get(key, [])):
                        continue
                    passed.setdefault(key, []).append(at)
                found.append(row)
            if told is not None:
                told.close()
            return found

        stream = self._then(unique, time)
        self.builder.at_the_end(None, stream.rows)
        return stream

    def join(self, other: Any, on: str, how: str = "inner", **more: Any) -> PlainStream:
        if isinstance(other, PlainLookup):

            def known(rows: Rows) -> Rows:
                found = [(row, other.rows().get(row[on])) for row in rows]
                nothing = dict.fromkeys(other.columns)
                return [
                    row | (nothing if match is None else match)
                    for row, match in found
                    if match is not None or how == "left"
                ]

            return self._then(known, self.time)
        return PlainJoin(self, other, on, how, **more).stream()

    def bolt(self, id: str, bolt: Any, **_: Any) -> PlainStream:
        return self._then(bolt.plain)


class PlainGrouped:
    """A stream that is grouped."""

    def __init__(self, stream: PlainStream, key: Sequence[str]) -> None:
        self._stream, self._key = stream, tuple(key)

    def window(self, window: Window | Session) -> PlainWindowed:
        return PlainWindowed(self._stream, self._key, window)

    def persistent_aggregate(
        self, state: str, retracted: str | None = None, **aggregates: Any
    ) -> PlainTable:
        seen: dict[Any, Rows] = {}
        gone = retracted or "retracted"

        # Each txid's values are computed again from all rows of the key so far.
        def apply(table: dict[Any, Any]) -> None:
            for row in self._stream.rows():
                key = key_of(row, self._key) if self._key else "global"
                rows = seen.setdefault(key, [])
                if row.get(gone):
                    rows.remove(row | {gone: False})
                else:
                    rows.append(row)
                table[key] = {}
            for key in [key for key, value in table.items() if not value]:
                table[key] = aggregated(aggregates, seen[key])

        return PlainTable(self._stream.builder, state, self._key or ("key",), apply)

    def max_by(
        self, state: str, by: Any, value: Any = None, *, smallest: Any = (), id: str | None = None
    ) -> PlainTable:
        """Of all rows of a key so far those stay that are largest in one column after another."""
        compared, falling, seen = as_names(by), as_names(smallest), dict[Any, Rows]()

        def apply(table: dict[Any, Any]) -> None:
            for row in self._stream.rows():
                kept = as_names(value) if value else [n for n in row if n not in self._key]
                rows = seen.setdefault(key_of(row, self._key), [])
                rows.append({name: row[name] for name in kept})
            for key, rows in seen.items():
                left = rows
                for name in (*compared, *(name for name in rows[0] if name not in compared)):
                    values = [row[name] for row in left if row[name] is not None]
                    if name in falling:
                        best = None if len(values) < len(left) else min(values)
                    else:
                        best = max(values, default=None)
                    left = [row for row in left if row[name] == best]
                table[key] = left[0]

        return PlainTable(self._stream.builder, state, self._key, apply)

    def aggregate(self, id: str | None = None, **aggregates: Any) -> PlainStream:
        def of_batch(rows: Rows) -> Rows:
            groups: dict[Any, Rows] = {}
            for row in rows:
                groups.setdefault(tuple(row[name] for name in self._key), []).append(row)
            return [
                named(self._key, key) | aggregated(aggregates, group)
                for key, group in groups.items()
            ]

        return self._stream._then(of_batch)

    def update(
        self,
        function: Any,
        fields: str,
        *,
        state: str,
        order_by: Sequence[str] = (),
        expire_after: Any = None,
    ) -> PlainStream:
        if expire_after is not None:
            return self._expiring(function, fields, order_by, duration("after", expire_after))
        names, values = names_of(fields), dict[Any, Any]()
        builder = self._stream.builder

        def emitted(rows: Rows) -> Rows:
            found: Rows = []
            for row in in_order(rows, as_names(order_by)):
                key = key_of(row, self._key)
                values[key], after = function(values.get(key), row)
                if values[key] is None:
                    del values[key]
                if after is not None:
                    found.append(named(names, after))
            builder.tables[state] = {key: {"value": value} for key, value in values.items()}
            return found

        stream = self._stream._then(emitted)
        builder.at_the_end(state, stream.rows)
        return stream

    def _expiring(
        self, function: Any, fields: str, order_by: Sequence[str], after: datetime.timedelta
    ) -> PlainStream:
        """Keep a running value of each key, which is none after a time without a row."""
        stream, time, names = self._stream, self._stream.time, names_of(fields)
        assert time is not None
        stream.builder.judge_by(time)
        values: dict[Any, tuple[Any, Time]] = {}

        def emitted(rows: Rows) -> Rows:
            before, _ = stream.builder.watermark(time)
            found: Rows = []
            for row in in_order(rows, as_names(order_by)):
                key, at = key_of(row, self._key), time.of(row)
                now = at if before is None else max(at, before)
                value, seen = values.pop(key, (None, at))
                if seen + after <= now:
                    value, seen = None, at
                value, emitted_row = function(value, row)
                if value is not None:
                    values[key] = value, max(seen, at)
                if emitted_row is not None:
                    found.append(named(names, emitted_row))
            return found

        found = stream._then(emitted, stream._among(names))
        stream.builder.at_the_end(None, found.rows)
        return found


class PlainLookup:
    """A table from outside, of which each batch has a version."""

    def __init__(self, builder: PlainBuilder, id: str, source: Any) -> None:
        self._builder, self._id, self._source = builder, id, source
        self.columns: tuple[str, ...] = source.columns

    def rows(self) -> dict[Any, Row]:
        found: dict[Any, Row] = self._source.plain(self._builder.versions.get(self._id))
        return found


class LateTable:
    """The rows that were late, by batch and number."""

    def __init__(self, builder: PlainBuilder, name: str) -> None:
        self._builder = builder
        self._table = builder.tables.setdefault(name, {})
        self._taken: list[tuple[Any, ...]] = []

    def take(self, row: tuple[Any, ...]) -> None:
        self._taken.append(row)

    def close(self) -> None:
        """Number the late rows of a batch."""
        for number, row in enumerate(sorted(self._taken, key=in_order_of_all), 1):
            self._table[self._builder.batch, number] = dict(enumerate(row))
        self._taken.clear()


class PlainJoin:
    """An interval join, which compares each row with every other one and keeps all of them."""

    def __init__(
        self,
        left: PlainStream,
        right: PlainStream,
        on: str,
        how: str,
        *,
        within: Any,
        state: str,
        late: Any = None,
    ) -> None:
        assert left.time is not None
        assert right.time is not None
        self._builder, self._sides, self._on, self._how = left.builder, (left, right), on, how
        self._lower, self._upper = interval("within", within)
        self._times = left.time, right.time
        self._time = replace(left.time, behind=behind_in_all([left.time.behind, right.time.behind]))
        self._builder.judge_by(self._time)
        self._late = None if late is False else LateTable(self._builder, late or f"{state}_late")
        self._kept: tuple[list[Row], list[Row]] = ([], [])
        self._left_alone: list[int] = []

    def stream(self) -> PlainStream:
        behind = behind_after(self._time.behind, max(self._upper, NONE))
        found = PlainStream(self._builder, self._emitted, replace(self._time, behind=behind))
        self._builder.at_the_end(None, found.rows)
        return found

    def _emitted(self) -> Rows:
        before, after = self._builder.watermark(self._time)
        old = len(self._kept[0]), len(self._kept[1])
        for number, (side, time) in enumerate(zip(self._sides, self._times, strict=True)):
            for row in side.rows():
                if before is None or time.of(row) >= before:
                    self._kept[number].append(row)
                elif self._late is not None:
                    self._late.take(self._late_row(number, row))
        if self._late is not None:
            self._late.close()
        self._left_alone += range(old[0], len(self._kept[0]))
        found: Rows = []
        for at, one in enumerate(self._kept[0]):
            for number, other in enumerate(self._kept[1]):
                apart = self._times[1].of(other) - self._times[0].of(one)
                if one[self._on] == other[self._on] and self._lower <= apart <= self._upper:
                    if at >= old[0] or number >= old[1]:
                        found.append(one | other)
                    if at in self._left_alone:
                        self._left_alone.remove(at)
        if self._how == "left" and after is not None:
            for at in list(self._left_alone):
                one = self._kept[0][at]
                if self._times[0].of(one) + self._upper < after:
                    found.append(one | dict.fromkeys(JOINED_RIGHT))
                    self._left_alone.remove(at)
        return found

    def _late_row(self, number: int, row: Row) -> tuple[Any, ...]:
        """The side, then the columns of the left row, then those of the right one but its key."""
        if number == 0:
            return ("left", *row.values(), *[None] * len(JOINED_RIGHT))
        left = [row[self._on] if name == self._on else None for name in JOINED_LEFT]
        return ("right", *left, *(row[name] for name in JOINED_RIGHT))


JOINED_LEFT, JOINED_RIGHT = ("id", "shop", "amount", "ts"), ("rid", "ramount", "rts")
"""The columns of both sides of a join in random programs; of the right one without its key."""


class PlainTable:
    """A table: what it holds after the batch that is being run, and what that changed."""

    def __init__(
        self,
        builder: PlainBuilder,
        state: str,
        keys: Sequence[str],
        apply: Callable[..., None],
        windows: PlainWindowed | None = None,
    ) -> None:
        self._builder, self._state, self._keys, self._apply = builder, state, keys, apply
        self._windows = windows
        self._batch = 0
        self._before: dict[Any, Any] = {}
        self.columns: Sequence[str] = ()
        builder.at_the_end(state, self.held)

    def held(self) -> dict[Any, Any]:
        table = self._builder.tables[self._state]
        if self._batch != self._builder.batch:
            self._before, self._batch = dict(table), self._builder.batch
            self._apply(table)
            self.columns = next((tuple(value) for value in table.values()), ())
        return table

    def final(self) -> PlainStream:
        assert self._windows is not None
        time = self._windows.time
        # A row may still touch a session that ends at the watermark.
        longer = isinstance(self._windows.window, Session)
        more = MICROSECOND if longer else datetime.timedelta(0)

        def closed() -> Rows:
            before, after = self._builder.watermark(time)
            return [
                named(self._keys, key if len(self._keys) > 1 else (key,)) | value
                for key, value in self.held().items()
                if after is not None
                and (before is None or value["window_end"] + more > before)
                and value["window_end"] + more <= after
            ]

        behind = behind_after(time.behind, more)
        ended = replace(time, column="window_end", offset=-MICROSECOND, behind=behind)
        return PlainStream(self._builder, closed, ended)

    def changes(self, *, before: bool = False, retracted: bool = False) -> PlainStream:
        def changed() -> Rows:
            rows, held = Rows(), self.held()
            for key in {**self._before, **held}:
                old, value = self._before.get(key), held.get(key)
                if value == old:
                    continue
                parts = named(self._keys, key if len(self._keys) > 1 else (key,))
                names = value or old or {}
                row = parts | (value or dict.fromkeys(names))
                if before:
                    row |= {f"before_{name}": (old or {}).get(name) for name in names}
                if retracted and old is not None:
                    rows.append(parts | old | {"retracted": True})
                if not retracted:
                    rows.append(row)
                elif value is not None:
                    rows.append(row | {"retracted": False})
            return rows

        return PlainStream(self._builder, changed)


@dataclass
class PlainSession:
    """A session with its rows, which may still grow."""

    start: Time
    end: Time
    rows: Rows

    def meets(self, other: PlainSession) -> bool:
        return self.start <= other.end and other.start <= self.end

    def with_rows_of(self, other: PlainSession) -> PlainSession:
        start, end = min(self.start, other.start), max(self.end, other.end)
        return PlainSession(start, end, self.rows + other.rows)


class PlainSessions:
    """Sessions by user; those that end before a bound are not known any more."""

    def __init__(self) -> None:
        self._by_user: dict[Any, list[PlainSession]] = {}

    def take(
        self, brought: list[tuple[Any, PlainSession]], gap: datetime.timedelta, bound: Time | None
    ) -> list[tuple[Any, PlainSession]]:
        """Take sessions of one row each; return those in none that ends at or after the bound."""
        late = []
        for user in {user for user, _ in brought}:
            new = [each for other, each in brought if other == user]
            known = self._by_user.setdefault(user, [])
            is_open = [each for each in known if bound is None or each.end >= bound]
            self._by_user[user] = [each for each in known if each not in is_open]
            for group in merged([*is_open, *new]):
                rows = [each for each in new if each.meets(group)]
                if bound is not None and group.end < bound:
                    late += [(user, each) for each in rows]
                    continue
                starts = [each.start for each in is_open if each.meets(group)]
                for each in rows:
                    least = each.start if bound is None else bound - gap
                    starts.append(max(each.start, least))
                self._by_user[user].append(PlainSession(min(starts), group.end, group.rows))
        return late

    def held(self) -> dict[Any, tuple[Time, Rows]]:
        """The table that they make."""
        return {
            (*user, each.start) if user else each.start: (each.end, each.rows)
            for user, sessions in self._by_user.items()
            for each in sessions
        }


class PlainWindowed:
    """A stream that is grouped by windows as well; it keeps all rows of all windows."""

    def __init__(self, stream: PlainStream, key: tuple[str, ...], window: Window | Session) -> None:
        assert stream.time is not None
        self._builder, self._stream, self._key, self.window = stream.builder, stream, key, window
        self.time = stream.time
        self._builder.judge_by(self.time)
        self._kept: dict[Any, Rows] = {}
        self._late: dict[Any, Rows] = {}
        self._sessions, self._late_sessions = PlainSessions(), PlainSessions()

    def persistent_aggregate(
        self, state: str, late: Any = None, keep: Any = None, **aggregates: Any
    ) -> PlainTable:
        late_table = f"{state}_late" if late is None else late
        kept_for = None if keep is None else duration("keep", keep, zero=True)

        def apply(table: dict[Any, Any]) -> None:
            before, _ = self._builder.watermark(self.time)
            expired = None if before is None or kept_for is None else before - kept_for
            if isinstance(self.window, Session):
                found = self._by_sessions(self.window.gap, before, expired)
            else:
                found = self._by_windows(self.window, before, expired)
            for name, windows in zip((state, late_table), found, strict=True):
                if name is not False:
                    held = self._builder.tables.setdefault(name, {})
                    held.clear()
                    held |= {
                        key: {"window_end": end} | aggregated(aggregates, rows)
                        for key, (end, rows) in windows.items()
                    }

        if late_table is not False:
            self._builder.tables.setdefault(late_table, {})
        keys = ("window_start", *self._key)
        if isinstance(self.window, Session):
            keys = (*self._key, "window_start")
        return PlainTable(self._builder, state, keys, apply, self)

    def _by_windows(self, window: Window, before: Time | None, expired: Time | None) -> Any:
        for row in self._stream.rows():
            user = tuple(row[name] for name in self._key)
            for start in starts_of(window, self.time.of(row)):
                end = start + window.size
                if expired is not None and end <= expired:
                    continue
                late = before is not None and end <= before
                rows = self._late if late else self._kept
                rows.setdefault((start, *user), []).append(row)
        return tuple(
            {
                key if self._key else key[0]: (key[0] + window.size, rows)
                for key, rows in found.items()
            }
            for found in (self._kept, self._late)
        )

    def _by_sessions(
        self, gap: datetime.timedelta, before: Time | None, expired: Time | None
    ) -> Any:
        brought = []
        for row in self._stream.rows():
            at, user = self.time.of(row), tuple(row[name] for name in self._key)
            brought.append((user, PlainSession(at, at + gap, [row])))
        late = self._sessions.take(brought, gap, before)
        self._late_sessions.take(late, gap, expired)
        return self._sessions.held(), self._late_sessions.held()


def starts_of(window: Window, at: Time) -> list[Time]:
    """The beginnings of all windows that a time is in, found by going back step by step."""
    start = EPOCH + window.offset + (at - EPOCH - window.offset) // window.every * window.every
    found = []
    while start + window.size > at:
        found.append(start)
        start -= window.every
    return found


def merged(sessions: list[PlainSession]) -> list[PlainSession]:
    """Merge two that meet, until no two do."""
    while True:
        for left, right in combinations(sessions, 2):
            if left.meets(right):
                others = [each for each in sessions if each is not left and each is not right]
                sessions = [*others, left.with_rows_of(right)]
                break
        else:
            return sessions


def aggregated(aggregates: dict[str, Any], rows: Rows) -> Row:
    return {name: aggregate_of(each, rows) for name, each in aggregates.items()}


def aggregate_of(aggregate: Any, rows: Rows) -> Any:
    if isinstance(aggregate, Count) and aggregate.field is None:
        return len(rows)
    values = [row[aggregate.field] for row in rows if row[aggregate.field] is not None]
    if isinstance(aggregate, Count):
        return len(values)
    if not values:
        return None
    kinds: dict[type, Callable[[list[Any]], Any]] = {
        Sum: sum,
        Min: min,
        Max: max,
        Mean: lambda found: sum(found) / len(found),
    }
    return kinds[type(aggregate)](values)


def names_of(fields: str) -> list[str]:
    return [each.split()[0] for each in fields.split(",")]


def as_names(names: Any) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def named(names: Sequence[str], values: Sequence[Any]) -> Row:
    return dict(zip(names, values, strict=True))


def key_of(row: Row, names: Sequence[str]) -> Any:
    return row[names[0]] if len(names) == 1 else tuple(row[name] for name in names)


def in_order(rows: Rows, names: Sequence[str]) -> Rows:
    def place(row: Row) -> list[Any]:
        return [(row[name] is not None, row[name] or 0) for name in names]

    return sorted(rows, key=place) if names else rows
