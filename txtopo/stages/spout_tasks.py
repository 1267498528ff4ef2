"""Tasks of spouts: how a spout emits one batch after another.

A spout task has one emitter for the whole run. In each partition the batch of txid t + 1 begins
where the batch of txid t ended, and the same task emits both. So one job can process several
batches, although nobody knows beforehand where each of them will end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.context import Stamp
from txtopo.errors import EmitError
from txtopo.metadata import BatchMetadata, Json, SpoutShare, json_copy, shown
from txtopo.pacing import Limit, limits_of
from txtopo.spouts.spout import takes_rows_max
from txtopo.stages.compiled_topology import PlannedComponent
from txtopo.stages.emission import Channel, Emission
from txtopo.topology.component import check_runs


class SpoutTask:
    """One task of a spout. It has one emitter for the whole run.

    Args:
        channel: Takes the emitted tuples.
        component: The spout.
        task: Index of the task.
        rows: The rows of a stream spout's batch in this slot.
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
        self._stamp: Stamp = None
        previous = channel.stage.run.previous
        cut = previous.of(component.id).cut if previous is not None else None
        # Where each partition ended last. Emitters get copies, so that none can change what another
        # one gets.
        self._last = {int(p): metadata for p, metadata in (cut or {}).items()}

    def steps(self, attempt: TransactionAttempt, metadata: BatchMetadata) -> Iterator[None]:
        """Emit this task's share of a batch; yield at each point where the outbox may be emptied.

        If the spout takes no part in the batch, its emitter is not called.
        """
        if not metadata.takes_part(self._component.id):
            return
        self._stamp = metadata.stamp
        component, kind = self._component, self._component.spout_kind
        if self._emitter is None and kind.emitter_calls:
            self._emitter = self._open()
        emission = Emission(self._channel, component, txid=attempt.txid, task=self._task)
        yield from kind.emit(
            _Share(
                attempt,
                metadata.of(component.id),
                self._emitter,
                self._rows,
                component=component,
                task=self._task,
                emission=emission,
                last=self._last,
                rows_max=(limits_of(metadata.pace) or {}).get(component.id),
                cuts=self._channel.control.cuts,
            )
        )
        emission.collector.close()

    def close(self) -> None:
        """Close the emitter. Errors are ignored, since its batches are complete by now."""
        if self._emitter is not None:
            with suppress(Exception):
                self._emitter.close()

    def _open(self) -> Any:
        compiled, component = self._channel.stage.compiled, self._component
        context = compiled.context(component, self._task, lambda: self._stamp)
        emitter = component.prototype.copy().emitter(compiled.config, context)
        calls = component.spout_kind.emitter_calls
        check_runs("the emitter of spout", component.id, emitter, *calls)
        return emitter


@dataclass(frozen=True, slots=True)
class _Share:
    """The share of one task in a batch of its spout; see ``TaskShare`` for what a kind calls."""

    attempt: TransactionAttempt
    share: SpoutShare
    emitter: Any
    rows: Iterable[pa.RecordBatch]
    component: PlannedComponent
    task: int
    emission: Emission
    last: dict[int, Json]
    rows_max: Limit
    cuts: dict[tuple[int, str], dict[int, Json]]

    @property
    def collector(self) -> BatchOutputCollector:
        """The collector that receives the tuples."""
        return self.emission.collector

    @property
    def tasks(self) -> int:
        """How many tasks the spout has."""
        return self.component.tasks

    def of_part(self, share: SpoutShare, *, begins_again: bool) -> _Share:
        """Return the same with another share, of one of the spouts that are in the spout."""
        if begins_again:
            self.last.clear()  # the next batch begins after this one, and has these positions
        return replace(self, share=share)

    def end_part(self, part: int) -> None:
        """End a part of the batch."""
        self.emission.end_part(part, self.emission.emitted())

    def repeat_partitions(self, emit: Callable[..., None]) -> Iterator[None]:
        """Emit a batch with a known cut again. Partitions that were not in it emit nothing."""
        cut = self.share.cut or {}
        for partition in self._partitions():
            if str(partition) in cut:
                self.last[partition] = cut[str(partition)]
                emit(self.attempt, self.collector, partition, json_copy(self.last[partition]))
                self.end_part(partition)
                yield

    def look_back(self, repeat: Callable[..., bool], emit: Callable[..., Json]) -> Iterator[None]:
        """Emit a batch of an opaque spout as it was, where its emitter can do that."""
        cut, limits = self.share.cut or {}, self._limits(emit)
        for partition in self._partitions():
            end, last = cut.get(str(partition)), self.last.get(partition)
            if end != last:  # else it was silent, and kept its position
                if not repeat(self.attempt, self.collector, partition, json_copy(end)):
                    limit = {} if limits is None else {"rows_max": limits[partition]}
                    emit(self.attempt, self.collector, partition, json_copy(last), **limit)
                self.last[partition] = end
            yield

    def cut_partitions(
        self, emit: Callable[..., Json], *, may_be_silent: bool = False
    ) -> Iterator[None]:
        """Emit a batch of each partition, from where its previous one ended, and keep its end."""
        # Without a limit the keyword is left out: an emitter need not take rows_max.
        limits, limit = self._limits(emit), {}
        emitted = self.emission.emitted()
        for partition in self._partitions():
            last = json_copy(self.last.get(partition))
            before = emitted
            if limits is not None:
                # A limit of 0 lets a partition without a share emit nothing.
                limit = {"rows_max": limits[partition] if partition < len(limits) else 0}
            end = emit(self.attempt, self.collector, partition, last, **limit)
            emitted = self.emission.emitted()
            self._check_limit(partition, emitted - before, **limit)
            if end is not None or emitted > before or not may_be_silent:
                self._keep_end(partition, end)
            self.emission.end_part(partition, emitted)
            yield

    def _partitions(self) -> range:
        number = self.share.planned
        if type(number) is not int or number < 0:
            raise EmitError(
                f"spout {self.component.id!r} planned {number!r} partitions; expected a whole "
                "number; check number_of_partitions of its coordinator",
                component=self.component.id,
            )
        return range(self.task, number, self.component.tasks)

    def _limits(self, emit: Callable[..., Json]) -> list[int] | None:
        """Return the limits of the partitions, which an emitter gets as ``rows_max``, or None.

        An emitter that takes none emits as without a limit.
        """
        return self.rows_max if isinstance(self.rows_max, list) and takes_rows_max(emit) else None

    def _check_limit(self, partition: int, emitted: int, rows_max: int | None = None) -> None:
        if rows_max is not None and emitted > rows_max:
            raise EmitError(
                f"emitter of {self.component.id!r} emitted more than its limit from partition "
                f"{partition}; got {emitted} tuples; expected at most rows_max={rows_max}; fix "
                "the emitter",
                partition=partition,
            )

    def _keep_end(self, partition: int, end: Json) -> None:
        """Keep the position where a partition ended.

        Raises:
            EmitError: The emitter returned None or a value that is not JSON; repair the emitter.
        """
        who = f"emitter of {self.component.id!r} returned"
        if end is None:
            raise EmitError(
                f"{who} no metadata for partition {partition}; got None; expected JSON for the "
                "position where the batch ended (None only if an opaque emitter emitted nothing)",
                partition=partition,
            )
        try:
            kept = self.last[partition] = json_copy(end)
        except ValueError as error:
            raise EmitError(
                f"{who} metadata of partition {partition} that is not JSON; got {shown(end)} "
                f"({error}); expected numbers, strings, lists and objects with string keys",
                partition=partition,
            ) from error
        self.cuts.setdefault((self.attempt.txid, self.component.id), {})[partition] = kept
