"""Tap: a spout that notes what the spout inside it emits.

What an attempt consisted of is known to its emitters alone; the checkers compare with it what the
stores hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from txtopo.attempt import TransactionAttempt
from txtopo.metadata import Json
from txtopo.testing.simulation.history import Emission
from txtopo.topology.component import Role
from txtopo.tuples import DEFAULT_STREAM

if TYPE_CHECKING:
    import pyarrow as pa

    from txtopo.config import Config
    from txtopo.context import TaskContext
    from txtopo.testing.simulation.world import World

# Spouts are pickled for their tasks, and their world is found again here.
worlds: WeakValueDictionary[int, World] = WeakValueDictionary()


class TappedSpout:
    """A spout of any kind, and the world that it is in."""

    def __init__(self, world: World, spout: Any, role: Role) -> None:
        self._world_number = world.number
        self._spout = spout
        self._role = role
        self.output_fields = getattr(spout, "output_fields", None)
        self.output_streams = getattr(spout, "output_streams", {})

    def coordinator(self, config: Config, context: TaskContext) -> Any:
        """Make the planning part."""
        return self._spout.coordinator(config, context)

    def emitter(self, config: Config, context: TaskContext) -> Any:
        """Make an emitting part."""
        inside = self._spout.emitter(config, context)
        return TappedEmitter(worlds[self._world_number], inside, context.task_index)


class TappedEmitter:
    """An emitter of any kind; has the optional methods that the one inside has."""

    def __init__(self, world: World, emitter: Any, task: int) -> None:
        self._world = world
        self._emitter = emitter
        self._task = task

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_emitter"], name)

    def emit_batch(self, attempt: TransactionAttempt, metadata: Json, collector: Any) -> None:
        """Emit a task's share of a batch."""
        tapped = TappedCollector(collector)
        self._emitter.emit_batch(attempt, metadata, tapped)
        self._note(attempt, self._task, tapped, None)

    def emit_partition_batch_new(
        self, attempt: TransactionAttempt, collector: Any, partition: int, last_metadata: Json
    ) -> Json:
        """Emit a new batch of a partition."""
        tapped = TappedCollector(collector)
        end: Json = self._emitter.emit_partition_batch_new(
            attempt, tapped, partition, last_metadata
        )
        self._note(attempt, partition, tapped, end)
        return end

    def emit_partition_batch(
        self, attempt: TransactionAttempt, collector: Any, partition: int, metadata: Json
    ) -> Json:
        """Emit a batch of a partition, again (transactional) or anew (opaque)."""
        tapped = TappedCollector(collector)
        end: Json = self._emitter.emit_partition_batch(attempt, tapped, partition, metadata)
        again = end is None and tapped.records
        self._note(attempt, partition, tapped, metadata if again else end)
        return end

    def _note(
        self, attempt: TransactionAttempt, share: int, tapped: TappedCollector, end: Json
    ) -> None:
        world = self._world
        emission = Emission(share, tuple(tapped.records), end)
        world.history.emitted(world.timeline.now_s, world.current.name, attempt, emission)


class TappedCollector:
    """A collector that notes the tuples of the default stream."""

    def __init__(self, collector: Any) -> None:
        self.records: list[tuple[Any, ...]] = []
        self._collector = collector

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_collector"], name)

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Emit one tuple."""
        self._collector.emit(values, stream)
        if stream == DEFAULT_STREAM:
            self.records.append(tuple(values))

    def emit_batch(self, batch: pa.RecordBatch, stream: str = DEFAULT_STREAM) -> None:
        """Emit many tuples as one Arrow record batch."""
        self._collector.emit_batch(batch, stream)
        if stream == DEFAULT_STREAM:
            columns = [column.to_pylist() for column in batch.columns]
            self.records += list(zip(*columns, strict=True))
