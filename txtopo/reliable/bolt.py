"""Bolt: the bolt of an at-least-once topology, which acks or fails each tuple.

Such a topology takes a :class:`~txtopo.bolts.bolt.BasicBolt` as well. Prove it with
:class:`txtopo.testing.SimulatedCluster`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from txtopo.config import AtLeastOnceConfig
from txtopo.context import TaskContext
from txtopo.reliable.collector import OutputCollector
from txtopo.traits import HasTraits
from txtopo.tuples import Fields, Stream, Tuple


class Bolt(HasTraits, ABC):
    """A bolt of an at-least-once topology (Storm ``IRichBolt``).

    Delivery: at least once. When a tree fails or times out, its tuples are processed again, even
    those that this bolt has already processed. So it must be safe to repeat the work.

    Who calls it: the framework, in the slot of the task, always on the same thread: ``prepare``
    once in the life of the slot, then ``execute`` for each tuple, ``cleanup`` when the run stops.
    Each task has a copy of the prototype, which must be picklable; open clients in ``prepare``. The
    collector must be used on that thread only. If you start threads, let them put finished tuples
    into a queue, and ack these tuples in ``execute``, on a tick at the latest.

    Durable: nothing. Attributes keep their values between calls, and are lost with the slot; then
    the trees of the tuples that the bolt held time out, and their spout emits them again.

    Not guaranteed: that ``cleanup`` is called when a slot is lost. An exception of ``cleanup`` is
    reported to the listeners (``ErrorReported``).

    Attributes:
        output_fields: The fields of the default stream.
        output_streams: The other streams, by name.
        tick_interval_s: The bolt receives a tick (:func:`txtopo.is_tick`) at this interval in
            seconds; None for no ticks.
    """

    output_fields: Fields | None = None
    output_streams: Mapping[str, Stream | Fields] = {}
    tick_interval_s: float | None = None

    @abstractmethod
    def prepare(
        self, config: AtLeastOnceConfig, context: TaskContext, collector: OutputCollector
    ) -> None:
        """Get ready and keep the collector."""

    @abstractmethod
    def execute(self, tuple: Tuple) -> None:
        """Process one tuple: emit the tuples that follow from it and ack it, now or later.

        Raises:
            FailedException: To fail this tuple. Any other exception ends the run.
        """

    def cleanup(self) -> None:
        """Release what ``prepare`` opened."""
