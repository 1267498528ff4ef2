"""EventSpout: the events of one kind, made where they are emitted.

Spouts of several kinds in one topology, with equal numbers, take the same ranges of events: what
happens at the same time is in the same txid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from examples.nexmark.generator import FIELDS, TOTAL, Generator, Kind
from txtopo import Config
from txtopo.plugins.spouts import (
    BatchOutputCollector,
    Json,
    LastBatch,
    PartitionedCoordinator,
    PartitionedTransactionalEmitter,
    PartitionedTransactionalSpout,
    TaskContext,
    TransactionAttempt,
)


@dataclass(frozen=True)
class Partitions:
    """How events are divided into partitions: each has every n-th round of 50 events.

    Attributes:
        generator: Makes the events.
        kind: Of which kind those are that are emitted.
        take: How many events, of all kinds, a batch takes from each partition.
        count: How many partitions there are.
    """

    generator: Generator
    kind: Kind
    take: int
    count: int

    @property
    def size(self) -> int:
        """How many events each partition has room for."""
        return -(-self.generator.events // (TOTAL * self.count)) * TOTAL

    def emit(
        self, collector: BatchOutputCollector, partition: int, start: int, amount: int
    ) -> None:
        """Emit some events of a partition."""
        places = np.arange(start, start + amount)
        numbers = (places // TOTAL * self.count + partition) * TOTAL + places % TOTAL
        rows = self.generator.rows(self.kind, numbers)
        if rows.num_rows:
            collector.emit_batch(rows)


class EventSpout(PartitionedTransactionalSpout):
    """Emits the events of one kind.

    Delivery: transactional. The metadata of a partition is ``[start, amount]``, and the same range
    has the same events always.

    Args:
        kind: Persons, auctions or bids.
        generator: Makes the events.
        take: How many events, of all kinds, a batch takes from each partition.
        partitions: How many partitions there are.

    Raises:
        ValueError: There are no partitions, or a batch takes nothing.
    """

    def __init__(self, kind: Kind, generator: Generator, take: int, partitions: int = 1) -> None:
        if take < 1 or partitions < 1:
            raise ValueError(
                f"the spout has nothing to emit; got take={take}, partitions={partitions}; "
                "expected at least 1 of each"
            )
        self.output_fields = FIELDS[kind]
        self._partitions = Partitions(generator, kind, take, partitions)

    def coordinator(self, config: Config, context: TaskContext) -> PartitionedCoordinator:
        """Make the planning part."""
        return _EventCoordinator(self._partitions)

    def emitter(self, config: Config, context: TaskContext) -> PartitionedTransactionalEmitter:
        """Make an emitting part."""
        return _EventEmitter(self._partitions)


class _EventCoordinator(PartitionedCoordinator):
    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        left = self.lag(last.metadata if isinstance(last.metadata, dict) else {})
        needed = -(-max(left.values()) // self._partitions.take)
        return txid - last.txid <= needed

    def number_of_partitions(self) -> int:
        return self._partitions.count

    def lag(self, metadata: Mapping[str, Json]) -> Mapping[str, int]:
        names = map(str, range(self._partitions.count))
        return {name: self._partitions.size - _end(metadata.get(name)) for name in names}


class _EventEmitter(PartitionedTransactionalEmitter):
    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def emit_partition_batch_new(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        last_metadata: Json,
    ) -> Json:
        start = _end(last_metadata)
        amount = min(self._partitions.take, self._partitions.size - start)
        self._partitions.emit(collector, partition, start, amount)
        return [start, amount]

    def emit_partition_batch(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        metadata: Json,
    ) -> None:
        assert isinstance(metadata, list)
        start, amount = metadata
        assert isinstance(start, int)
        assert isinstance(amount, int)
        self._partitions.emit(collector, partition, start, amount)


def _end(metadata: Json) -> int:
    return sum(metadata) if isinstance(metadata, list) else 0  # type: ignore[arg-type]
