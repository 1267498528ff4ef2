"""Runs ``as_changes`` txid by txid on states in memory, beside a plain model of captured tables."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tests.unit.streams.txids import Txids, second
from txtopo import Fields, open_state
from txtopo.streams.captured_changes import (
    LOG,
    OPERATIONS,
    TIMELINE,
    CapturedChanges,
    CapturedTable,
)
from txtopo.streams.event_time import TimeColumn

EVENT = Fields("op string, key string, n long, at long, line string, ts timestamp")
TIME = TimeColumn("ts", {})

Event = tuple[Any, ...]
"""Operation, key, value and position of an event, then its timeline and second, if needed."""


class Captured:
    """A captured table with the columns ``key`` and ``n``.

    Attributes:
        rows: The rows that were emitted less those that were taken back, by key.
        refused: The events that were refused.
    """

    def __init__(self, **declared: Any) -> None:
        given: dict[str, Any] = {"position": ("at",), "operations": OPERATIONS, **declared}
        table = CapturedTable(EVENT, ("key",), ("n",), "op", **given)
        self.txids = txids_of(table)
        self.rows: dict[str, Any] = {}
        self.refused: list[dict[str, Any]] = []

    def run(self, *events: Event, now: float = 0) -> list[str]:
        """Run a txid; return what it emits, such as ``"-a=1"`` and ``"+a=2"``.

        Args:
            events: The events.
            now: The second at which it is planned, or of the watermark after it.
        """
        batches = {"rows": batch_of(events)} if events else {}
        self.txids.planned_time = second(now)
        emitted = []
        for row in self.txids.run(batches, second(now)):
            if "op" in row:
                self.refused.append(row)
                continue
            emitted.append(f"{'-' if row['retracted'] else '+'}{row['key']}={row['n']}")
            if row["retracted"]:
                found = self.rows.pop(row["key"])
                assert found == row["n"], "what is taken back was emitted"
            else:
                assert row["key"] not in self.rows, "a row is there once"
                self.rows[row["key"]] = row["n"]
        return emitted

    def known(self) -> dict[str, Any]:
        """Return what the state has: the position of each key."""
        return {key: row[-1] for (key,), row in self.txids.held("t").items()}


def txids_of(table: CapturedTable) -> Txids:
    """Return the txids of a captured table, whose states begin empty."""
    state = open_state("memory:", table="t")
    state = state.with_columns(table.fields.select(table.key), table.stored)
    states = {"t": state if table.expire_after is None else state.ranged("gone_since")}
    if len(table.log):
        log = open_state("memory:", table="log")
        states[LOG] = log.with_columns(Fields.of([TIMELINE]), table.log)
    txids = Txids(lambda: CapturedChanges("t", table), states)
    txids.planned_time, txids.marked = second(0), table.watermark is not None
    return txids


def batch_of(events: Iterable[Sequence[Any]], fields: Fields = EVENT) -> pa.RecordBatch:
    """Return events as they come to the operator; what an event lacks is NULL."""
    rows = [[*event, *[None] * (len(fields) - len(event))] for event in events]
    for row in rows:
        if fields == EVENT and row[5] is not None:
            row[5] = second(row[5])
    columns = zip(*rows, strict=True)
    schema = fields.arrow_schema()
    arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@dataclass
class PlainTable:
    """A captured table in plain Python: it keeps all events of the current timeline.

    Attributes:
        ordered: Whether events have positions; otherwise they count as they arrive.
        timeline: The current timeline.
        left: The timelines that were left.
        events: The events of the current timeline.
    """

    ordered: bool = True
    timeline: str | None = None
    left: set[str | None] = field(default_factory=set)
    events: list[PlainEvent] = field(default_factory=list)

    def take(
        self,
        events: Iterable[tuple[Any, str, str | None, Any, str | None]],
        now: datetime.datetime | None = None,
    ) -> None:
        """Take the events of a batch: position, operation, key, row and timeline of each."""
        for position, op, key, row, timeline in events:
            if timeline in self.left:
                continue
            if timeline != self.timeline:
                if self.timeline is not None:
                    self.left.add(self.timeline)
                self.timeline, self.events = timeline, []
            place = position if self.ordered else len(self.events)
            self.events.append(PlainEvent(place, OPERATIONS[op], key, row, now))

    def forget(self, up_to: datetime.datetime) -> None:
        """Forget the keys whose last event is a delete that was taken until then."""
        last: dict[str | None, PlainEvent] = {}
        for event in reversed(self._in_order()):
            last.setdefault(event.key, event)
        gone = {
            key
            for key, event in last.items()
            if event.op == "delete" and event.taken is not None and event.taken <= up_to
        }
        self.events = [event for event in self.events if event.key not in gone]

    def rows(self) -> dict[str | None, Any]:
        """Return the rows that the table has."""
        found: dict[str | None, Any] = {}
        for event in self._in_order():
            if event.op == "truncate":
                found.clear()
            elif event.op == "delete":
                found.pop(event.key, None)
            else:
                found[event.key] = event.row
        return found

    def _in_order(self) -> list[PlainEvent]:
        """Return the events in the order of the log; of two with one position the first."""
        found = {(event.key, event.place): event for event in reversed(self.events)}
        return sorted(found.values(), key=lambda event: event.place)


@dataclass(frozen=True)
class PlainEvent:
    """An event; *taken* is the planned time of its txid."""

    place: Any
    op: str
    key: str | None
    row: Any
    taken: datetime.datetime | None
