"""A source whose txids have the rows that a test says, and what a program makes of each txid."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.unit.streams.worlds import LOCAL, run
from txtopo import Config, Count, Fields, StreamBuilder, open_state
from txtopo.attempt import TransactionAttempt
from txtopo.bolts import BasicBolt
from txtopo.collector import BatchOutputCollector
from txtopo.context import TaskContext
from txtopo.metadata import Json
from txtopo.spouts import OpaqueMemoryTransactionalSpout
from txtopo.spouts.spout import (
    LastBatch,
    OpaquePartitionedTransactionalEmitter,
    PartitionedCoordinator,
)
from txtopo.streams import DataStream
from txtopo.tuples import Tuple

Rows = Sequence[Sequence[Any]]

Program = Callable[[StreamBuilder, Mapping[str, DataStream], Callable[..., Any]], DataStream]
"""Takes the builder, the streams of the sources, and a function that opens a state by name."""


class ScriptedSpout(OpaqueMemoryTransactionalSpout):
    """Has the rows of each txid."""

    def __init__(self, txids: Sequence[Rows], fields: Fields) -> None:
        self.txids = txids
        super().__init__({0: [row for rows in self.txids for row in rows]}, fields, 1)

    def coordinator(self, config: Config, context: TaskContext) -> PartitionedCoordinator:
        return ScriptedCoordinator(len(self.txids))

    def emitter(
        self, config: Config, context: TaskContext
    ) -> OpaquePartitionedTransactionalEmitter:
        return ScriptedEmitter(self.txids)


class ScriptedCoordinator(PartitionedCoordinator):
    """Has a batch for each txid of the script, with rows or without, and no more."""

    def __init__(self, txids: int) -> None:
        self._txids = txids

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        return txid <= self._txids

    def number_of_partitions(self) -> int:
        return 1


class ScriptedEmitter(OpaquePartitionedTransactionalEmitter):
    """See the spout."""

    def __init__(self, txids: Sequence[Rows]) -> None:
        self._txids = txids

    def emit_partition_batch(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        last_metadata: Json,
        *,
        rows_max: int | None = None,
    ) -> Json:
        start = sum(last_metadata) if isinstance(last_metadata, list) else 0  # type: ignore[arg-type]
        rows = self._txids[attempt.txid - 1]
        for row in rows:
            collector.emit(row)
        return [start, len(rows)]


class StampTxid(BasicBolt):
    """Each row with its txid."""

    def __init__(self, fields: Fields) -> None:
        self.output_fields = Fields.of([*fields, *Fields("batch long")])

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        collector.emit([*tuple.values, tuple.attempt.txid])


def stamped(stream: DataStream) -> DataStream:
    return stream.bolt("stamp", StampTxid(stream.fields))


def tables(url: str, *names: str) -> list[dict[Any, Any]]:
    """Return what some tables hold."""
    found = []
    for name in names:
        with open_state(url, table=name).reader() as reader:
            found.append(dict(reader.items()))
    return found


def emitted(
    program: Program,
    sources: Mapping[str, tuple[Sequence[Rows], Fields]],
    url: str,
    parallelism: int = 1,
    **time: Any,
) -> dict[int, list[tuple[Any, ...]]]:
    """Run a program, and return the rows that its stream has in each txid, in order, as texts.

    NULL is an empty text.
    """
    builder, streams = StreamBuilder("scripted"), {}
    for name, (txids, fields) in sources.items():
        spout = ScriptedSpout(txids, fields)
        streams[name] = builder.source(name, spout, parallelism, **time)
    stream = program(builder, streams, lambda name, **more: open_state(url, table=name, **more))
    names = stream.fields.names
    texts = stream.map(
        lambda row: ["" if value is None else str(value) for value in row.values],
        ", ".join(f"{name} string" for name in names),
    )
    counted = stamped(texts).group_by("batch", *names)
    counted.persistent_aggregate(open_state(url, table="emitted"), n=Count())
    run(builder.build_topology(), LOCAL)
    found: dict[int, list[tuple[Any, ...]]] = {}
    for (txid, *row), count in tables(url, "emitted")[0].items():
        found.setdefault(txid, []).extend([tuple(row)] * count)
    return {txid: sorted(rows) for txid, rows in sorted(found.items())}
