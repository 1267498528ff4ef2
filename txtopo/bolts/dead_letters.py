"""DeadLetters: where a topology keeps dead letters; CollectDeadLetters: the committer of them.

What a dead letter is, and the rules for it, are in :mod:`txtopo.dead_letters`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from txtopo.attempt import TransactionAttempt
from txtopo.bolts.bolt import BatchBolt, Committer
from txtopo.collector import BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.dead_letters import BATCH_RECORDS_MAX, FIELDS, STREAM, Row, in_order, too_many
from txtopo.tuples import Fields, Tuple

if TYPE_CHECKING:
    from txtopo.state.registry import State

KEY = Fields("batch long, number long")
"""The key of a dead letter in a state: its txid, and its number in the batch, from 1."""


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Where a topology keeps records that cannot be processed, and how many a batch may have.

    Delivery: exactly once, under the txid of their batch, like the results.

    Attributes:
        destination: A state, whose table is ``dead_letters`` unless it names one, or a committer
            without its own state, such as a ``KafkaSink``.
        batch_records_max: The maximum number of dead letters in a batch; a batch with more ends the
            run with ``TooManyDeadLetters``, and is not committed.
    """

    destination: State | Committer
    batch_records_max: int = BATCH_RECORDS_MAX


class CollectDeadLetters(BatchBolt, Committer):
    """Numbers the dead letters of a batch, and writes them to a state if it has one.

    It emits them as well, for a committer below it. The order depends on nothing but the dead
    letters, so equal batches have equal rows.

    Args:
        batch_records_max: The most dead letters of a batch.
        in_state: Whether it has the state ``dead_letters``.
    """

    writes_nowhere_else = True
    output_fields = Fields.of([*KEY, *FIELDS])

    def __init__(self, batch_records_max: int, *, in_state: bool) -> None:
        self._batch_records_max = batch_records_max
        self._in_state = in_state

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Get ready for one attempt."""
        self._collector, self._attempt, self._context = collector, attempt, context
        self._rows: list[Row] = []

    def execute(self, tuple: Tuple) -> None:
        """Keep a dead letter until the end of the batch."""
        self._rows.append(cast("Row", tuple.values))

    def finish_batch(self) -> None:
        """Write and emit the dead letters.

        Raises:
            TooManyDeadLetters: The batch has more than it may have.
        """
        rows = in_order(self._rows)
        if len(rows) > self._batch_records_max:
            raise too_many(len(rows), self._batch_records_max, rows[0])
        numbered = {(self._attempt.txid, at): row for at, row in enumerate(rows, 1)}
        for key, row in numbered.items():
            self._collector.emit([*key, *row])
        if self._in_state and rows:
            with self._context.state(STREAM).transaction(self._attempt) as state:
                for key, row in numbered.items():
                    state.put(key, row)
