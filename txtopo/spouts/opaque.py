"""OpaquePartitionedTransactionalSpout: the batch of a txid may differ on replay."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.metadata import Json
from txtopo.spouts.partitioned import PartitionedCoordinator
from txtopo.tuples import Fields, Stream


class OpaquePartitionedTransactionalEmitter(ABC):
    """The emitting part (Storm ``IOpaquePartitionedTransactionalSpout.Emitter``).

    Who calls it: the framework, in a Spark task, one thread; a fresh emitter for each task of each
    job. Task i of n has the partitions i, i + n, i + 2n … (Storm asks the emitter for the number of
    partitions; here the coordinator part is asked, so that all tasks see the same number.)
    """

    @abstractmethod
    def emit_partition_batch(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        last_metadata: Json,
    ) -> Json:
        """Emit a batch of a partition and return its metadata, as JSON.

        It starts where *last_metadata* ended, and may emit other tuples for the same txid than an
        earlier attempt did. A partition that is down returns None: it keeps its position.

        Args:
            attempt: The attempt.
            collector: Where to emit.
            partition: Number of the partition, from 0.
            last_metadata: The newest metadata of this partition before the txid; None for none.
        """

    def close(self) -> None:  # noqa: B027 - optional hook
        """Release what was opened."""


class OpaquePartitionedTransactionalSpout(ABC):
    """A partitioned source that loses nothing but may cut its batches anew on replay.

    Delivery: opaque. Each record counts in exactly one committed txid, though an attempt that fails
    may be followed by another batch of the same txid; needs opaque states.

    Attributes:
        client_modules: What its tasks import; see ``TransactionalSpout``.
    """

    client_modules: Sequence[str] = ()

    output_fields: Fields | None = None
    output_streams: Mapping[str, Stream | Fields] = {}

    @abstractmethod
    def coordinator(self, config: Config, context: TaskContext) -> PartitionedCoordinator:
        """Make the planning part; called in the driver, once per start."""

    @abstractmethod
    def emitter(
        self, config: Config, context: TaskContext
    ) -> OpaquePartitionedTransactionalEmitter:
        """Make an emitting part; called in a task. The spout itself must be picklable."""
