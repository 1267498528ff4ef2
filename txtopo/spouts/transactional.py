"""TransactionalSpout: the same batch for the same txid."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
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
