"""BatchBolt: a fresh bolt for each batch, told when the batch is complete."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.tuples import Fields, Stream, Tuple


class BatchBolt(ABC):
    """A bolt that sees a whole batch (Storm ``IBatchBolt``).

    Delivery: its output counts in exactly one committed txid; it may run several times on a batch.

    Who calls it: the framework, in a Spark task (or in the driver, as a committer of parallelism 1
    and below one), one thread; a fresh copy of the prototype for each task of each attempt:
    ``prepare`` once, ``execute`` for each tuple, ``finish_batch`` once, also when there was no
    tuple. The prototype must be picklable; what it sets on itself is gone after the batch.
    """

    output_fields: Fields | None = None
    output_streams: Mapping[str, Stream | Fields] = {}

    @abstractmethod
    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Get ready for one attempt."""

    @abstractmethod
    def execute(self, tuple: Tuple) -> None:
        """Process one tuple.

        Raises:
            FailedException: To fail the batch; it is replayed.
        """

    @abstractmethod
    def finish_batch(self) -> None:
        """Take note that all tuples of the batch have come; the last chance to emit."""
