"""TransactionalSpout: the same batch for the same txid.

PartitionedTransactionalSpout: a replayable source in partitions.

OpaquePartitionedTransactionalSpout: the batch of a txid may differ on replay.

Spout: emits tuples and is told which of them were processed to the end.

StreamSpout: stands where the micro-batches of a Structured Streaming query come in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector, SpoutOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.metadata import Json
from txtopo.tuples import Fields, Stream


@dataclass(frozen=True, slots=True)
class LastBatch:
    """The newest batch before the one that is planned whose metadata is known.

    Attributes:
        txid: Its txid; 0 if there is none yet. Behind ``txid - 1`` when a partitioned spout plans
            ahead, since its emitters decide in the tasks where a batch ends.
        metadata: Its metadata; for partitioned spouts by partition (the partition's number as a
            string).
        pending: How many batches are planned and not yet committed. A spout may leave records to
            gather meanwhile; with none pending, one that has anything must be ready.
    """

    txid: int = 0
    metadata: Json = None
    pending: int = 0


class TransactionalCoordinator(ABC):
    """The part of a spout that plans batches (Storm ``ITransactionalSpout.Coordinator``).

    Who calls it: the runtime, in the driver of the leading coordinator, one call at a time, from
    any thread; ``close`` once at the end, unless the driver is killed.
    """

    @abstractmethod
    def is_ready(self, txid: int, last: LastBatch) -> bool:
        """Return whether batch *txid* can be planned now. Not asked for replays.

        A False stops planning until the next poll; it may wait a little for data.
        """

    @abstractmethod
    def initialize_transaction(self, txid: int, previous_metadata: Json) -> Json:
        """Return the metadata of batch *txid*, as JSON. It is stored, and used for every replay.

        Args:
            txid: The batch, from 1, in order and without gaps.
            previous_metadata: What this returned for *txid* - 1; None for the first.
        """

    def lag(self, metadata: Json) -> Mapping[str, int]:
        """Return how many records each partition has behind this metadata, where it is known.

        Called before each commit, perhaps while ``is_ready`` runs on another thread.
        """
        return {}

    def lost(self, metadata: Json) -> Mapping[str, str]:
        """Return what was gone before the batch of this metadata could read it, by partition.

        For spouts that go on all the same: it is logged and shown in the progress. Called as
        ``lag`` is.
        """
        return {}

    def close(self) -> None:  # noqa: B027 - optional hook
        """Release what was opened."""


class TransactionalEmitter(ABC):
    """The part of a spout that emits (Storm ``ITransactionalSpout.Emitter``).

    Who calls it: the framework, in a Spark task, one thread; a fresh emitter for each task of each
    job. An emitter that also has ``commit(attempt)`` takes part in the commit phase, before the
    committers: it is then called in the driver, once per attempt, on an emitter of its own (task
    0). One that has ``cleanup_before(txid)`` is told there, too, that all txids before *txid* are
    done; the next commit waits for it, so let it be quick.
    """

    @abstractmethod
    def emit_batch(
        self, attempt: TransactionAttempt, metadata: Json, collector: BatchOutputCollector
    ) -> None:
        """Emit this task's share of the batch: the same tuples for the same metadata, in order.

        Each task of the spout is called; ``context.task_index`` of ``context.tasks`` says whose
        share it is.
        """

    def close(self) -> None:  # noqa: B027 - optional hook
        """Release what was opened."""


class TransactionalSpout(ABC):
    """A source that can bring the same batch again (Storm ``ITransactionalSpout``).

    Delivery: transactional. Every attempt of a txid has the same tuples, so both kinds of state are
    exactly once. That is checked, unless ``Config(check_replays=False)``: a batch that is another
    one than before ends the run with ``NonRepeatableBatch``. If its data is gone before a txid is
    committed, the run stands still.

    Attributes:
        repeatable: False for a spout that is opaque after all: its metadata is fixed, but stands
            for other tuples at times. Transactional states are then refused.
        client_modules: What its tasks import, such as the source's client; each executor of a
            cluster is asked for them before anything runs.
    """

    repeatable: bool = True
    client_modules: Sequence[str] = ()

    output_fields: Fields | None = None
    output_streams: Mapping[str, Stream | Fields] = {}

    @abstractmethod
    def coordinator(self, config: Config, context: TaskContext) -> TransactionalCoordinator:
        """Make the planning part; called in the driver, once per start."""

    @abstractmethod
    def emitter(self, config: Config, context: TaskContext) -> TransactionalEmitter:
        """Make an emitting part; called in a task. The spout itself must be picklable."""


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


class Spout(ABC):
    """A source of an at-least-once topology (Storm ``IRichSpout``).

    Delivery: at least once, if the spout replays. For each tuple that it emits with a message id it
    is told once ``ack(message_id)``, when the tuple and all that was made of it is processed, or
    ``fail(message_id)``, when a bolt failed it or between one and two
    ``Config.message_timeout_s`` after it was emitted. Replaying is the spout's job: emit it again.
    Only what the source keeps until it is acked survives the loss of the spout's own task.

    Who calls it: the framework, in the driver, all methods of a task on one thread that never
    changes. Each task has a copy of the prototype, which must be picklable; connect in ``open``.
    ``next_tuple`` is called again and again, but not while ``Config.max_spout_pending`` trees of
    the task are pending, the run is deactivated, or bolts have more than enough to do; ``ack`` and
    ``fail`` are called in between, in any order, so none of them may block for long. Not
    guaranteed: that ``close`` runs when the driver is killed.

    An exception of any method ends the run; one of ``close`` is told to listeners
    (``ErrorReported``). ``close`` is not called where ``open`` has failed.
    """

    output_fields: Fields | None = None
    output_streams: Mapping[str, Stream | Fields] = {}

    @abstractmethod
    def open(self, config: Config, context: TaskContext, collector: SpoutOutputCollector) -> None:
        """Get ready; keep the collector."""

    @abstractmethod
    def next_tuple(self) -> None:
        """Emit one tuple, or a few, or none if there is none: then it is asked again soon."""

    @abstractmethod
    def ack(self, message_id: Any) -> None:
        """Take note that a message is processed; the source may forget it."""

    @abstractmethod
    def fail(self, message_id: Any) -> None:
        """Take note that a message was not processed to the end; emit it again."""

    def activate(self) -> None:  # noqa: B027 - optional hook
        """Take note that the run was activated after it had been deactivated."""

    def deactivate(self) -> None:  # noqa: B027 - optional hook
        """Take note that ``next_tuple`` will not be called for a while."""

    def close(self) -> None:  # noqa: B027 - optional hook
        """Release what ``open`` opened."""


class StreamSpout:
    """The spout of a topology that a Structured Streaming query drives; it reads nothing itself.

    Delivery: that of the query. Spark notes in its checkpoint what a micro-batch consists of before
    it is computed, so a replay has the same input; when that note is lost as well, the batch may be
    cut anew, and then only opaque states are right. It is read where the query reads.

    A topology with it is not started: give ``topology.foreach_batch()`` to
    ``stream.writeStream.foreachBatch``. Its tasks are Spark partitions of the micro-batch, as many
    as there are slots.

    Args:
        fields: The columns of the stream that the topology uses, by name; others are left out.

    Example:
        >>> from txtopo import Fields, PersistentAggregate, TransactionalTopologyBuilder
        >>> from txtopo.spouts import StreamSpout
        >>> from txtopo.state import Count, open_state
        >>> stream = StreamSpout(Fields("word string"))
        >>> builder = TransactionalTopologyBuilder("words", "stream", stream)
        >>> count = PersistentAggregate(open_state("sqlite:///words.db"), "word", Count())
        >>> _ = builder.set_bolt("count", count).fields_grouping("stream", "word")
        >>> write = builder.build_topology().foreach_batch()
        >>> # query = words.writeStream.foreachBatch(write).option("checkpointLocation", …).start()
    """

    output_fields: Fields | None = None
    output_streams: Mapping[str, Stream | Fields] = {}

    def __init__(self, fields: Fields) -> None:
        self.output_fields = fields
