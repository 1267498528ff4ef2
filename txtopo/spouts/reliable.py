"""Spout: emits tuples and is told which of them were processed to the end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from txtopo.collector import SpoutOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.tuples import Fields, Stream


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
