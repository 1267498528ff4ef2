"""Spout: the source of an at-least-once topology, which is told whether each tuple was processed.

:mod:`txtopo.plugins.spouts` exports all that an implementation needs. The spouts of transactional
topologies are in :mod:`txtopo.spouts.spout`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from txtopo.config import AtLeastOnceConfig
from txtopo.context import TaskContext
from txtopo.reliable.collector import SpoutOutputCollector
from txtopo.traits import HasTraits, Traits
from txtopo.tuples import Fields, Stream


class Spout(HasTraits, ABC):
    """A source of an at-least-once topology (Storm ``IRichSpout``).

    Delivery: at least once, if the spout replays. For each tuple that it emits with a message id,
    one of two methods is called, once: ``ack(message_id)`` when the tuple and all tuples that were
    anchored to it are processed; ``fail(message_id)`` when a bolt failed one of them, or between
    one and two ``AtLeastOnceConfig.message_timeout_s`` after the emit. To replay is the spout's
    job: emit the message again. Only messages that the source keeps until they are acked survive
    the loss of the spout's task.

    Who calls it: the framework, in the slot of the task, all methods on one thread that never
    changes: with the carrier ``resident`` in a Spark task, with ``local`` in the driver. Each task
    has a copy of the prototype, which must be picklable; connect in ``open``. A task whose slot is
    lost is made again, and ``open`` is called on another copy, perhaps while the first one still
    runs: what it was not told to be acked, the source must bring again.
    ``next_tuple`` is called again and again, except while ``max_spout_pending`` trees of
    the task are pending, while the run is deactivated, and while the bolts are overloaded. ``ack``
    and ``fail`` are called in between, in any order, so none of them may block for long.

    An exception of any method ends the run, except one of ``close``, which listeners get
    (``ErrorReported``). Not guaranteed: that ``close`` is called when the slot or the driver is
    killed, or when ``open`` has failed.

    Prove it with :class:`txtopo.testing.SimulatedCluster`, which loses and delays tuples.

    Attributes:
        output_fields: The fields of the default stream.
        output_streams: The other streams, by name.
        client_modules: The modules that its tasks import; see ``TransactionalSpout``.
        takes_from: Names of sources that give each record to one of those who read. Two spouts of
            a topology that take from the same one are refused, since each would get a part.
    """

    takes_from: Sequence[str] = ()

    output_fields: Fields | None = None
    output_streams: Mapping[str, Stream | Fields] = {}

    @property
    def traits(self) -> Traits:
        """The traits that the framework reads. Your own class sets the attributes instead."""
        return replace(super().traits, takes_from=self.takes_from)

    @abstractmethod
    def open(
        self, config: AtLeastOnceConfig, context: TaskContext, collector: SpoutOutputCollector
    ) -> None:
        """Get ready and keep the collector; called once, before all other methods."""

    @abstractmethod
    def next_tuple(self) -> None:
        """Emit one tuple or a few, or return without one; it is called again soon."""

    @abstractmethod
    def ack(self, message_id: Any) -> None:
        """Release a message that is processed; the source may forget it."""

    @abstractmethod
    def fail(self, message_id: Any) -> None:
        """Have a message emitted again that was not processed completely."""

    def may_have_more(self) -> bool:
        """Return whether the source may have more messages, although ``next_tuple`` emitted none.

        ``process_all_available`` waits while it may. Called after such a ``next_tuple`` when
        somebody waits for that, again and again until it is False. It may ask the source, and
        return True when it cannot tell now: while tuples are pending, or the source is away.
        """
        return False

    def tend(self) -> None:
        """Show the source that this task is alive; called about once a second while it waits.

        A spout that may not emit more, or is deactivated, gets no ``next_tuple``, for as long as
        its tuples take.
        """

    def activate(self) -> None:
        """Get ready to emit: the run is activated; ``next_tuple`` will be called."""

    def deactivate(self) -> None:
        """Get ready to pause: ``next_tuple`` will not be called until the next ``activate``."""

    def close(self) -> None:
        """Release what ``open`` opened."""
