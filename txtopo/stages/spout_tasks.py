"""Spout tasks: the emitters of one slot, one batch after the other.

A partitioned emitter chains inside a run: txid t + 1 of a partition starts where t ended, in the
same task, so several batches fit into one job although nobody knew before where each would end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from txtopo.attempt import TransactionAttempt
from txtopo.context import TaskContext
from txtopo.errors import EmitError
from txtopo.metadata import BatchMetadata, Json, json_flaw, shown
from txtopo.spouts.opaque import OpaquePartitionedTransactionalEmitter
from txtopo.spouts.partitioned import PartitionedTransactionalEmitter
from txtopo.spouts.transactional import TransactionalEmitter
from txtopo.stages.emission import Channel, Emission
from txtopo.stages.pickling import loads
from txtopo.stages.program import PlannedComponent
from txtopo.topology.component import Role

if TYPE_CHECKING:
    import pyarrow as pa


class SpoutTask:
    """One task of a spout, with one emitter for the whole run.

    Args:
        channel: Where to emit.
        component: The spout.
        task: Number of the task.
        rows: What the only batch of a stream spout has in this slot.
    """

    def __init__(
        self,
        channel: Channel,
        component: PlannedComponent,
        task: int,
        rows: Iterable[pa.RecordBatch] = (),
    ) -> None:
        self._channel = channel
        self._rows = rows
        self._component = component
        self._task = task
        self._emitter: Any = None
        previous = channel.site.run.previous
        cut = previous.cut if previous is not None else None
        # As text, so that no emitter can change what another one gets.
        self._last = {int(p): json.dumps(metadata) for p, metadata in (cut or {}).items()}

    def steps(self, attempt: TransactionAttempt, metadata: BatchMetadata) -> Iterator[None]:
        """Emit this task's share of a batch; stops where the outbox may be emptied."""
        component, emission = self._component, self._emission(attempt)
        if self._emitter is None and component.role is not Role.STREAM_SPOUT:
            self._emitter = self._open()
        if component.role is Role.STREAM_SPOUT:
            for batch in self._rows:
                emission.collector.emit_batch(batch)
                yield
        elif component.role is Role.TRANSACTIONAL_SPOUT:
            emitter = cast("TransactionalEmitter", self._emitter)
            emitter.emit_batch(attempt, _copy(metadata.planned), emission.collector)
            emission.end_part(self._task)
            yield
        elif component.role is Role.PARTITIONED_SPOUT and metadata.cut is not None:
            yield from self._again(attempt, metadata, emission)
        else:
            yield from self._anew(attempt, metadata, emission)
        emission.collector.close()

    def close(self) -> None:
        """Close the emitter; nothing that happens here can fail a batch that is emitted."""
        if self._emitter is not None:
            with suppress(Exception):
                self._emitter.close()

    def _open(self) -> Any:
        program, component = self._channel.site.program, self._component
        context = TaskContext(program.topology_id, component.id, self._task, component.tasks)
        return loads(component.prototype).emitter(program.config, context)

    def _emission(self, attempt: TransactionAttempt) -> Emission:
        return Emission(self._channel, self._component, txid=attempt.txid, task=self._task)

    def _partitions(self, metadata: BatchMetadata) -> range:
        number = metadata.planned
        if type(number) is not int or number < 0:
            raise EmitError(
                f"spout {self._component.id!r} planned {number!r} partitions; expected a whole "
                "number; look at number_of_partitions of its coordinator part"
            )
        return range(self._task, number, self._component.tasks)

    def _again(
        self,
        attempt: TransactionAttempt,
        metadata: BatchMetadata,
        emission: Emission,
    ) -> Iterator[None]:
        """Emit a batch again whose cut is known: partitions that were not in it stay out."""
        emitter = cast("PartitionedTransactionalEmitter", self._emitter)
        cut = metadata.cut or {}
        for partition in self._partitions(metadata):
            if str(partition) in cut:
                self._last[partition] = json.dumps(cut[str(partition)])
                known = json.loads(self._last[partition])
                emitter.emit_partition_batch(attempt, emission.collector, partition, known)
                emission.end_part(partition)
                yield

    def _anew(
        self, attempt: TransactionAttempt, metadata: BatchMetadata, emission: Emission
    ) -> Iterator[None]:
        opaque = self._component.role is Role.OPAQUE_SPOUT
        for partition in self._partitions(metadata):
            last = json.loads(self._last.get(partition, "null"))
            before = emission.emitted()
            if opaque:
                opaque_emitter = cast("OpaquePartitionedTransactionalEmitter", self._emitter)
                end = opaque_emitter.emit_partition_batch(
                    attempt, emission.collector, partition, last
                )
            else:
                emitter = cast("PartitionedTransactionalEmitter", self._emitter)
                end = emitter.emit_partition_batch_new(attempt, emission.collector, partition, last)
            self._take(attempt, partition, end, silent=emission.emitted() == before)
            emission.end_part(partition)
            yield

    def _take(
        self, attempt: TransactionAttempt, partition: int, end: Json, *, silent: bool
    ) -> None:
        """Note where a partition ended; one that is down keeps its position.

        Raises:
            EmitError: What the emitter returned cannot stand for where it ended.
        """
        who = f"emitter of {self._component.id!r} returned"
        if end is None:
            if silent and self._component.role is Role.OPAQUE_SPOUT:
                return
            raise EmitError(
                f"{who} no metadata for partition {partition}; got None; expected JSON that says "
                "where the batch ended (None only from an opaque emitter that emitted nothing)",
                partition=partition,
            )
        flaw = json_flaw(end)
        if flaw is not None:
            raise EmitError(
                f"{who} metadata of partition {partition} that is no JSON; got {shown(end)} "
                f"({flaw}); expected numbers, strings, lists and objects with string keys",
                partition=partition,
            )
        text = self._last[partition] = json.dumps(end)
        self._channel.control.cuts[attempt.txid, partition] = json.loads(text)


def _copy(value: Json) -> Json:
    return cast("Json", json.loads(json.dumps(value)))
