"""Runs a join without a bound in time txid by txid, as a program declares it, in memory."""

from __future__ import annotations

import copy
import datetime
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tests.unit.streams.plain_regular_joins import Change, Row
from tests.unit.streams.txids import Txids
from txtopo import Fields, StreamBuilder, open_state
from txtopo.spouts import OpaqueMemoryTransactionalSpout
from txtopo.streams import DataStream
from txtopo.streams.nodes import BoltNode

Rows = Sequence[Change]

GONE = "gone"
"""The column of the sources that marks rows as taken back."""


def put(*rows: Row) -> list[Change]:
    """Return rows that are put."""
    return [(row, False) for row in rows]


def taken_back(*rows: Row) -> list[Change]:
    """Return rows that are taken back."""
    return [(row, True) for row in rows]


class Regular:
    """A join of two streams of changes.

    Args:
        how: Which rows without a match are in the result.
        left: The fields of the left rows; the first is the key, unless *on* says otherwise.
        right: The fields of the right rows.
        on: The columns that are compared.
        more: Further arguments of ``join``.

    Attributes:
        live: The rows that were emitted and not taken back, and how often.
    """

    def __init__(
        self,
        how: str = "inner",
        left: str = "key string, l string",
        right: str = "key string, r string",
        on: Any = "key",
        **more: Any,
    ) -> None:
        builder = StreamBuilder("regular")
        streams = [changing(builder, name, each) for name, each in (("l", left), ("r", right))]
        self._fields = [stream.fields for stream in streams]
        self._components = [stream.ports[0].node.id for stream in streams]
        state = open_state("memory:", table="join")
        joined = streams[0].join(streams[1], on, how=how, state=state, **more)  # type: ignore[arg-type]
        (port,) = joined.ports
        assert isinstance(port.node, BoltNode)
        self.node, self.fields = port.node, joined.fields
        self.txids = Txids(lambda: copy.copy(self.node.bolt), dict(self.node.states))
        self.live: Counter[Row] = Counter()

    def run(
        self, left: Rows = (), right: Rows = (), watermark: datetime.datetime | None = None
    ) -> list[Change]:
        """Run a txid, and return what it emits."""
        batches = {
            name: batch_of(fields, rows)
            for name, fields, rows in zip(
                self._components, self._fields, (left, right), strict=True
            )
        }
        self.txids.planned_time = watermark
        emitted = []
        for row in self.txids.run(batches, watermark):
            *values, retracted = row.values()
            emitted.append((tuple(values), retracted))
            self.live[tuple(values)] += -1 if retracted else 1
        return emitted

    def held(self) -> dict[Any, Any]:
        """Return what the state holds, without the digests: (key, side, row) and how often."""
        return {
            (*key[:-1], row): times for key, (times, row, *_) in self.txids.held("join").items()
        }


def changing(builder: StreamBuilder, name: str, fields: str) -> DataStream:
    """Return a stream of changes, as ``changes(retracted=True)`` would be one."""
    declared = Fields(f"{fields}, {GONE} boolean")
    time = next((each.name for each in declared if each.type == "timestamp"), None)
    spout = OpaqueMemoryTransactionalSpout({0: []}, declared, 1)
    return replace(builder.source(name, spout, event_time=time), retracted=GONE)


def batch_of(fields: Fields, rows: Rows) -> pa.RecordBatch:
    """Return rows of one side."""
    columns = list(zip(*((*row, retracted) for row, retracted in rows), strict=True))
    schema = fields.arrow_schema()
    arrays = [
        pa.array(list(column), kind)
        for column, kind in zip(columns or [()] * len(schema), schema.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
