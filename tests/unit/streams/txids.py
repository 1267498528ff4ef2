"""Runs the committer of an operator txid by txid, on states in memory, with times in seconds."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from txtopo import Fields, TransactionAttempt, open_state
from txtopo.config import Config
from txtopo.state import State
from txtopo.state.ledger import Claim, Owner
from txtopo.state.transaction import StateHandle
from txtopo.streams.deduplication import ENTRY, DropDuplicates
from txtopo.streams.event_time import WATERMARK, TimeColumn
from txtopo.streams.interval_join import (
    BUFFERED,
    LATE_SIDE,
    LEFT,
    RIGHT,
    SIDE_AND_TIME,
    How,
    IntervalJoin,
    Joined,
    JoinedStream,
    joined_fields,
)
from txtopo.streams.late_rows import LATE, LATE_KEY, moment
from txtopo.tuples import DEFAULT_STREAM

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
INSTANT = datetime.timedelta(microseconds=1)
TIME = {"source": datetime.timedelta(0)}

LEFT_ROW, RIGHT_ROW = Fields("key string, ts timestamp"), Fields("key string, at timestamp")
ROW = Fields("key string, n long, ts timestamp")


def second(seconds: float) -> datetime.datetime:
    """Return a time this many seconds after the start."""
    return START + datetime.timedelta(seconds=seconds)


def seconds(time: datetime.datetime | None) -> float | None:
    """Return how many seconds a time is after the start."""
    return None if time is None else (time - START).total_seconds()


class Txids:
    """Runs txids of one committer.

    Args:
        make: Makes the committer.
        states: Its states by name.
    """

    def __init__(self, make: Callable[[], Any], states: dict[str, State]) -> None:
        self._make, self._states, self._txid = make, states, 0
        self._backends = {name: state.open() for name, state in states.items()}
        for name, backend in self._backends.items():
            backend.create()
            backend.claim(Claim(Owner("t", name, name), 1))
        self.expired: Any = None
        self.planned_time: datetime.datetime | None = None
        self.marked = True
        self._before: datetime.datetime | None = None

    def run(
        self, batches: Mapping[str, pa.RecordBatch], watermark: datetime.datetime | None
    ) -> list[dict[str, Any]]:
        """Run a txid after which the watermark is this one; return what it emits.

        Args:
            batches: The rows of each component.
            watermark: The watermark after the txid.
        """
        self._txid += 1
        attempt = TransactionAttempt(self._txid, 0, 1)
        states = {
            name: StateHandle(name, state.layout(), self._backends[name])
            for name, state in self._states.items()
        }
        bolt, collected = self._make(), _Collected()
        bolt.prepare(Config(), _Context(states, self.planned_time), collected, attempt)
        row = {"before": [self._before], "after": [watermark]}
        mark = pa.RecordBatch.from_pydict(row, schema=WATERMARK.arrow_schema())
        marks = {"watermark": mark} if self.marked else {}
        for component, batch in {**marks, **batches}.items():
            bolt.execute_from(component, DEFAULT_STREAM, batch)
        bolt.finish_batch()
        for name, handle in states.items():
            if handle.writes is not None:
                self._backends[name].commit(attempt, handle.writes)
                if name != LATE and handle.writes.expires is not None:
                    self.expired = handle.writes.expires
        self._before = watermark
        return collected.rows

    def held(self, name: str) -> dict[Any, tuple[Any, ...]]:
        """Return what a state holds and has not expired."""
        table = self._states[name].layout()
        with self._backends[name].snapshot() as snapshot:
            rows = {key: row.current for key, row in snapshot.items() if not row.deleted}
        if table.range_by is None or self.expired is None:
            return rows
        ranged = {key: table.column_of(key, row, table.range_by) for key, row in rows.items()}
        return {
            key: row
            for key, row in rows.items()
            if ranged[key] is None or ranged[key] > self.expired
        }


def joining(joined: Callable[[], Joined], *sides: tuple[Fields, str], late: bool) -> Txids:
    """Return the txids of a join.

    Args:
        joined: Returns what is joined; asked in each txid, so that a test may change it.
        sides: The fields of each side, and its event time.
        late: Whether late rows are kept.
    """
    key = Fields.of([*joined().key, *SIDE_AND_TIME])
    state = open_state("memory:", table="join").with_columns(key, BUFFERED).ranged("expires")
    states = {"join": state}
    if late:
        fields = Fields.of([*LATE_SIDE, *joined().fields])
        states[LATE] = open_state("memory:", table="late").with_columns(LATE_KEY, fields)
    left, right = (
        JoinedStream(((side, DEFAULT_STREAM),), fields, TimeColumn(time, TIME))
        for side, (fields, time) in zip((LEFT, RIGHT), sides, strict=True)
    )
    return Txids(lambda: IntervalJoin("join", joined(), (left, right), late=late), states)


class Join:
    """A join of ``(key, second)`` and ``(key, second)``.

    Attributes:
        late: The late rows of the last txid: (side, key, second).
    """

    def __init__(self, lower: float, upper: float, how: How = "inner") -> None:
        apart = [datetime.timedelta(seconds=each) for each in (lower, upper)]
        self.joined = joined_fields(LEFT_ROW, RIGHT_ROW, "key", apart[0], apart[1], how)
        self.txids = joining(lambda: self.joined, (LEFT_ROW, "ts"), (RIGHT_ROW, "at"), late=True)
        self._late = 0

    def run(
        self,
        left: Sequence[tuple[str | None, float]],
        right: Sequence[tuple[str | None, float]],
        watermark: datetime.datetime | None,
    ) -> list[tuple[str | None, float | None, float | None]]:
        """Run a txid; return (key, left second, right second or None) of each row."""
        batches = {LEFT: batch_of(LEFT_ROW, left), RIGHT: batch_of(RIGHT_ROW, right)}
        found = self.txids.run(batches, watermark)
        return [(row["key"], seconds(row["ts"]), seconds(row["at"])) for row in found]

    def late(self) -> list[tuple[str, str | None, float | None]]:
        """Return all late rows so far."""
        return [
            (row[0], row[1], seconds(row[2] or row[3]))
            for _, row in sorted(self.txids.held(LATE).items())
        ]

    def buffered(self, side: str) -> list[float]:
        """Return the times that are buffered of a side."""
        return sorted(seconds(time) or 0 for _, at, time in self.txids.held("join") if at == side)


def batch_of(fields: Fields, rows: Sequence[tuple[str | None, float]]) -> pa.RecordBatch:
    """Return rows of one side."""
    columns = [[key for key, _ in rows], [second(at) for _, at in rows]]
    arrays = [
        pa.array(column, kind)
        for column, kind in zip(columns, fields.arrow_schema().types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=fields.arrow_schema())


class Unique:
    """Deduplication of ``(key, number, second)`` by some columns."""

    def __init__(self, within: float, *key: str) -> None:
        names = key or ("key",)
        late = open_state("memory:", table="late").with_columns(LATE_KEY, ROW)
        seen = open_state("memory:", table="seen").with_columns(ROW.select(names), ENTRY)
        time, length = TimeColumn("ts", TIME), datetime.timedelta(seconds=within)
        self.txids = Txids(
            lambda: DropDuplicates("seen", names, time, length, ROW, late=True),
            {"seen": seen.ranged("time"), LATE: late},
        )

    def run(
        self, rows: Sequence[tuple[str | None, int, float]], watermark: datetime.datetime | None
    ) -> list[tuple[str | None, int, float | None]]:
        """Run a txid; return what it lets through."""
        columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
        columns[2] = [second(at) for at in columns[2]]
        arrays = [
            pa.array(column, kind)
            for column, kind in zip(columns, ROW.arrow_schema().types, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=ROW.arrow_schema())
        found = self.txids.run({"rows": batch} if rows else {}, watermark)
        return [(row["key"], row["n"], seconds(row["ts"])) for row in found]

    def held(self) -> dict[str, list[float | None]]:
        """Return the times that are remembered of each key."""
        return {
            key: [*map(seconds, map(moment, json.loads(earlier or "[]"))), seconds(time)]
            for (key,), (time, earlier) in self.txids.held("seen").items()
        }

    def late(self) -> list[tuple[str | None, int, float | None]]:
        """Return all late rows so far."""
        held = sorted(self.txids.held(LATE).items())
        return [(key, number, seconds(time)) for _, (key, number, time) in held]


class _Context:
    def __init__(
        self, states: dict[str, StateHandle], planned_time: datetime.datetime | None
    ) -> None:
        self.state, self.planned_time = states.__getitem__, planned_time


class _Collected:
    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def emit(self, batch: pa.RecordBatch, stream: str = "default") -> None:
        self.rows += batch.to_pylist()
