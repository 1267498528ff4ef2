"""Runs a committer whose rows expire txid by txid, on a state in memory, with times in seconds."""

from __future__ import annotations

import copy
import datetime
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from tests.unit.streams.txids import second, seconds
from txtopo import Fields, StreamBuilder, Topology, TransactionAttempt, open_state
from txtopo.config import Config
from txtopo.spouts import OpaqueMemoryTransactionalSpout
from txtopo.state import State
from txtopo.state.ledger import Claim, Owner
from txtopo.state.transaction import StateHandle
from txtopo.streams import DataStream
from txtopo.streams.event_time import WATERMARK
from txtopo.tuples import DEFAULT_STREAM, Origin, Tuple

ROW = Fields("id string, key string, n long, ts timestamp")
ASKED = Fields("who string")
Rows = Sequence[tuple[str | None, int | None, float]]
"""Rows of a txid: key, number and event time; ids are e1, e2 … in the order in which they come."""

_STATES: list[State] = []

Make = Callable[[DataStream, DataStream, Callable[..., Any]], object]
"""Takes the rows, a stream of questions and what opens a state, of which the first one is run."""


def program(make: Make, *, event: bool = True) -> Topology:
    """Return a program over rows, with event time or without."""
    builder = StreamBuilder("lives")
    time: dict[str, Any] = {"event_time": "ts", "max_ahead": None} if event else {}
    rows = builder.source("rows", OpaqueMemoryTransactionalSpout({0: []}, ROW, 1), **time)
    asked = builder.source("asked", OpaqueMemoryTransactionalSpout({0: []}, ASKED, 1))

    def state(name: str, **more: Any) -> State:
        # A store in memory lasts as long as the object that declares it.
        _STATES.append(open_state("memory:", table=name, **more))
        return _STATES[-1]

    make(rows, asked, state)
    return builder.build_topology()


class Lives:
    """Runs the txids of one component.

    Args:
        topology: The topology.
        id: The component.

    Attributes:
        told: What the last txid emitted, by stream.
    """

    def __init__(self, topology: Topology, id: str = "t") -> None:
        self._components = topology.graph.components
        self._component = self._components[id]
        ((self._name, state),) = self._component.states.items()
        self._table, self._backend = state.layout(), state.open()
        self._backend.create()
        self._backend.claim(Claim(Owner("lives", id, self._name), 1))
        self._before: datetime.datetime | None = None
        self._txid, self._ids, self._due = 0, 0, None
        self.told: dict[str, list[dict[str, Any]]] = {}

    def run(self, rows: Rows, now: float | None, *asked: str, attempt: int = 0) -> None:
        """Run a txid.

        Args:
            rows: Its rows.
            now: The watermark after it, or its planned time.
            asked: The keys that are asked for.
            attempt: The attempt; of a later one than 0 the txid is that of the last call.
        """
        if attempt == 0:
            self._txid += 1
            self._began = self._ids, self._before
        (self._ids, self._before) = self._began
        after = None if now is None else second(now)
        found = self._emitted(self._component, self._batch(rows), after, asked, attempt)
        self._before, self.told = after, found

    def delete(self) -> int:
        """Let the store delete what has expired, as the runtime does some time later."""
        return 0 if self._due is None else self._backend.expire(self._due, self._txid + 1)

    def held(self) -> dict[Any, Any]:
        """Return what the state holds, deleted or not, by key; times in seconds."""
        with self._backend.snapshot() as snapshot:
            return {
                (_plain(key)): _plain(row.current)
                for key, row in snapshot.items()
                if not row.deleted
            }

    def _batch(self, rows: Rows) -> pa.RecordBatch:
        first = self._ids + 1
        self._ids += len(rows)
        ids = [f"e{number}" for number in range(first, self._ids + 1)]
        columns: list[list[Any]] = [ids, [row[0] for row in rows], [row[1] for row in rows]]
        columns.append([second(row[2]) for row in rows])
        return _batch_of(ROW, columns)

    def _emitted(
        self,
        component: Any,
        rows: pa.RecordBatch,
        after: datetime.datetime | None,
        asked: Sequence[str],
        attempt: int,
    ) -> dict[str, list[dict[str, Any]]]:
        context, collected = _Context(component.id, after), _Collected()
        if component is self._component:
            context.handle = StateHandle(self._name, self._table, self._backend)
        bolt = copy.deepcopy(component.prototype)
        tagged = TransactionAttempt(self._txid, attempt, 1)
        bolt.prepare(Config(), context, collected, tagged)
        for each in component.subscriptions:
            source, stream = each.source, each.stream
            if source == "marks":
                batches = [_batch_of(WATERMARK, [[self._before], [after]])]
            elif source == "asked":
                batches = [_batch_of(ASKED, [list(asked)])]
            elif source.endswith(".partials"):
                above = _Collected()
                self._run_above(self._components[source], above, rows)
                batches = above.batches
            else:
                batches = [rows]
            for batch in batches:
                _give(bolt, source, stream, batch)
        bolt.finish_batch()
        if context.handle is not None and context.handle.writes is not None:
            writes = context.handle.writes
            self._backend.commit(tagged, writes)
            self._due = writes.expires if writes.expires is not None else self._due
        return collected.rows

    def _run_above(self, component: Any, collected: _Collected, rows: pa.RecordBatch) -> None:
        bolt = copy.deepcopy(component.prototype)
        bolt.prepare(Config(), _Context(component.id, None), collected, TransactionAttempt(1, 0, 1))
        # Each half is that of a task.
        for at, count in ((0, rows.num_rows // 2), (rows.num_rows // 2, rows.num_rows)):
            bolt.execute(rows.slice(at, count))
        bolt.finish_batch()


def _give(bolt: Any, source: str, stream: str, batch: pa.RecordBatch) -> None:
    if hasattr(bolt, "execute_from"):
        bolt.execute_from(source, stream, batch)
        return
    fields = bolt.fields if source != "marks" else WATERMARK
    for row in batch.to_pylist():
        bolt.execute(
            Tuple([row[name] for name in fields.names], Origin(None, source, stream, fields))
        )


def _batch_of(fields: Fields, columns: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    schema = fields.arrow_schema()
    arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _plain(values: Sequence[Any]) -> Any:
    plain = tuple(seconds(v) if isinstance(v, datetime.datetime) else v for v in values)
    return plain[0] if len(plain) == 1 else plain


class _Context:
    task_index, tasks = 0, 1

    def __init__(self, id: str, now: datetime.datetime | None) -> None:
        self.component_id, self.planned_time = id, now
        self.handle: StateHandle | None = None

    def state(self, name: str) -> StateHandle | None:
        return self.handle


class _Collected:
    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.batches: list[pa.RecordBatch] = []

    def emit(self, batch: pa.RecordBatch, stream: str = DEFAULT_STREAM) -> None:
        self.batches.append(batch)
        self.rows.setdefault(stream, []).extend(batch.to_pylist())
