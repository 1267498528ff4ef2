"""ClockTransactionalSpout: produces a txid when no other spout has for some time."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import replace

from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.durations import Duration, duration, shown
from txtopo.errors import TopologyError
from txtopo.metadata import Json
from txtopo.spouts.spout import (
    LastBatch,
    TransactionalCoordinator,
    TransactionalEmitter,
    TransactionalSpout,
    other_position,
)
from txtopo.traits import Traits
from txtopo.tuples import Fields

SHORTEST = datetime.timedelta(seconds=1)


class ClockTransactionalSpout(TransactionalSpout):
    """Produces a txid when none was planned for some time; its only row is its planned time.

    Delivery: transactional. The row is ``context.planned_time`` of the txid, which is stored in its
    metadata, so a replay emits the same row.

    Use it next to other spouts: without it, anything that waits for time to pass would stop while
    they are silent. It takes no part in their batches. It has no clock of its own: the planned time
    of the last txid counts, whichever leader planned it. It waits until its previous txid is
    committed, so a slow batch is followed by at most one of its txids. The pause between two txids
    is *every* plus up to ``Config.poll_interval_s``, plus the duration of the previous commit.

    ``process_all_available`` does not wait for its txids.

    Args:
        every: The pause, as ``"1 minute"`` or a ``timedelta``; at least a second.

    Raises:
        TopologyError: It is not a duration, or too short.

    Example:
        >>> from txtopo.spouts import ClockTransactionalSpout
        >>> builder.set_spout("clock", ClockTransactionalSpout("1 minute"))
    """

    output_fields = Fields("planned_time timestamp")
    needs_planned_time = True

    def __init__(self, every: Duration) -> None:
        self.every = duration("the pause of a clock", every)
        if self.every < SHORTEST:
            raise TopologyError(
                f"the interval of a clock is too short; got {every!r}; expected at least "
                f"{shown(SHORTEST)}, because each of its txids is committed in every state",
                setting="every",
            )

    @property
    def traits(self) -> Traits:
        """The traits of a clock, since nobody waits for txids that only time brings."""
        return replace(super().traits, brings_time_only=True)

    def coordinator(self, config: Config, context: TaskContext) -> TransactionalCoordinator:
        """Make the planning part."""
        return _ClockCoordinator(self.every.total_seconds())

    def emitter(self, config: Config, context: TaskContext) -> TransactionalEmitter:
        """Make an emitting part."""
        return _ClockEmitter(context)


class _ClockCoordinator(TransactionalCoordinator):
    def __init__(self, every_s: float) -> None:
        self._every_s = every_s

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        _check_position(last.metadata)
        return not last.pending and (last.idle_s is None or last.idle_s >= self._every_s)

    def initialize_transaction(self, txid: int, previous_metadata: Json) -> Json:
        return None

    def unread(self, last: LastBatch) -> Mapping[str, int]:
        """Return nothing: a batch of a clock has no rows, so no limit holds it back."""
        return {}

    def planned_rows(self, metadata: Json) -> int:
        """Return that it has none."""
        return 0


class _ClockEmitter(TransactionalEmitter):
    def __init__(self, context: TaskContext) -> None:
        self._context = context

    def emit_batch(
        self, attempt: TransactionAttempt, metadata: Json, collector: BatchOutputCollector
    ) -> None:
        _check_position(metadata)
        if self._context.task_index == 0:
            collector.emit([self._context.planned_time])


def _check_position(metadata: Json) -> None:
    if metadata is not None:
        raise other_position("ClockTransactionalSpout", metadata)
