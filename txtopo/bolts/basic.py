"""BasicBolt: one tuple in, tuples out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from txtopo.collector import BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.tuples import Fields, Stream, Tuple


class BasicBolt(ABC):
    """A bolt that turns each tuple into tuples and keeps nothing (Storm ``IBasicBolt``).

    Delivery: its output counts in exactly one committed txid; it may run several times on a tuple.
    In a topology of ``TopologyBuilder``: at least once. What it emits is anchored to its input,
    which is acked after ``execute``; ``FailedException`` fails the input.

    Who calls it: the framework, in a Spark task (or in the driver, below a committer), one thread;
    a fresh copy of the prototype for each task of each attempt (for each task, in a topology of
    ``TopologyBuilder``): ``prepare`` once, ``execute`` for each tuple, ``cleanup`` once. The
    prototype must be picklable; open clients in ``prepare``.
    Not guaranteed: that ``cleanup`` runs when the task dies.

    Attributes:
        tick_interval_s: In a topology of ``TopologyBuilder``: every so many seconds the bolt is
            given a tick (:func:`txtopo.is_tick`).
    """

    output_fields: Fields | None = None
    output_streams: Mapping[str, Stream | Fields] = {}
    tick_interval_s: float | None = None

    def prepare(self, config: Config, context: TaskContext) -> None:  # noqa: B027 - optional hook
        """Get ready for one attempt."""

    @abstractmethod
    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        """Process one tuple.

        Raises:
            FailedException: To fail the batch; it is replayed.
        """

    def cleanup(self) -> None:  # noqa: B027 - optional hook
        """Release what ``prepare`` opened."""
