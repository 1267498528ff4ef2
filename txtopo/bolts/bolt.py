"""Bolt: lives long, holds tuples as long as it likes, and answers for each of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from txtopo.collector import OutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.tuples import Fields, Stream, Tuple


class Bolt(ABC):
    """A bolt of an at-least-once topology (Storm ``IRichBolt``).

    Delivery: at least once. A tuple is processed again when its tree failed or timed out, also when
    this bolt had processed it; what it does with a tuple should not mind being done twice.

    Who calls it: the framework, in the slot of the task, on one thread that never changes:
    ``prepare`` once in a slot's life, then ``execute`` for each tuple, ``cleanup`` when the run
    stops. Each task has a copy of the prototype, which must be picklable; open clients in
    ``prepare``. What it keeps on itself stays from call to call, and is lost with its slot: the
    trees of the tuples that it held time out, and their spout brings them again. Not guaranteed:
    that ``cleanup`` runs when a slot is lost; what it raises is told to listeners
    (``ErrorReported``). The collector is for that thread only: let threads of your own put what
    they have done into a queue, and ack what is in it in ``execute``, on a tick at the latest.

    Attributes:
        tick_interval_s: Every so many seconds the bolt is given a tick (:func:`txtopo.is_tick`).
    """

    output_fields: Fields | None = None
    output_streams: Mapping[str, Stream | Fields] = {}
    tick_interval_s: float | None = None

    @abstractmethod
    def prepare(self, config: Config, context: TaskContext, collector: OutputCollector) -> None:
        """Get ready; keep the collector."""

    @abstractmethod
    def execute(self, tuple: Tuple) -> None:
        """Process one tuple: emit what follows from it, then ack it; or keep it and ack it later.

        Raises:
            FailedException: To fail this tuple. Any other exception ends the run.
        """

    def cleanup(self) -> None:  # noqa: B027 - optional hook
        """Release what ``prepare`` opened."""
