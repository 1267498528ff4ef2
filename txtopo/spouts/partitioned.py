"""PartitionedTransactionalSpout: a replayable source in partitions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.metadata import Json
from txtopo.spouts.transactional import LastBatch
from txtopo.tuples import Fields, Stream


class PartitionedCoordinator(ABC):
    """The planning part of a partitioned spout, transactional or opaque.

    Who calls it: the runtime, in the driver of the leading coordinator, one call at a time.
    """

    @abstractmethod
    def is_ready(self, txid: int, last: LastBatch) -> bool:
        """Return whether a batch *txid* can be emitted now. Not asked for replays."""

    @abstractmethod
    def number_of_partitions(self) -> int:
        """Return how many partitions there are now; asked once per txid and kept with it."""

    def lag(self, metadata: Mapping[str, Json]) -> Mapping[str, int]:
        """Return how many records each partition has behind this metadata, where it is known.

        Called before each commit, perhaps while ``is_ready`` runs on another thread.
        """
        return {}

    def lost(self, metadata: Mapping[str, Json]) -> Mapping[str, str]:
        """Return what was gone before the batch of this metadata could read it, by partition.

        For spouts that go on all the same: it is logged and shown in the progress. Called as
        ``lag`` is.
        """
        return {}

    def close(self) -> None:  # noqa: B027 - optional hook
        """Release what was opened."""


class PartitionedTransactionalEmitter(ABC):
    """The emitting part (Storm ``IPartitionedTransactionalSpout.Emitter``).

    Who calls it: the framework, in a Spark task, one thread; a fresh emitter for each task of each
    job. Task i of n has the partitions i, i + n, i + 2n … Optional ``commit(attempt)`` and
    ``cleanup_before(txid)``: see ``TransactionalEmitter``.
    """

    @abstractmethod
    def emit_partition_batch_new(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        last_metadata: Json,
    ) -> Json:
        """Emit a new batch of a partition and return its metadata, as JSON.

        Args:
            attempt: The attempt.
            collector: Where to emit.
            partition: Number of the partition, from 0.
            last_metadata: What this returned for the txid before; None for the first.
        """

    @abstractmethod
    def emit_partition_batch(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        metadata: Json,
    ) -> None:
        """Emit the batch of a partition again, exactly as it was.

        The run ends with ``NonRepeatableBatch`` if it has other tuples, or another order.
        """

    def close(self) -> None:  # noqa: B027 - optional hook
        """Release what was opened."""


class PartitionedTransactionalSpout(ABC):
    """A partitioned source that can bring the same batch again (Storm's of the same name).

    Delivery: transactional, as ``TransactionalSpout``. A replay never touches partitions that were
    added after the batch was planned.

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
    def emitter(self, config: Config, context: TaskContext) -> PartitionedTransactionalEmitter:
        """Make an emitting part; called in a task. The spout itself must be picklable."""
