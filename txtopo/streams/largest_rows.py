"""MaxBy: of the rows of each key the one with the largest values of some columns counts.

Rules
-----
1. Rows are compared by the columns of ``by``, from left to right: the larger value counts, or the
   smaller one, if the column is one of ``smallest``. NULL is smaller than all values, NaN larger.
2. Of rows that are equal there, the one with the larger values in the other columns counts, from
   left to right. So the result depends on the rows alone: not on batches, tasks or their order.
   -0.0 becomes 0.0: they are equal, so either of them could be the largest.
3. Because of that, each task may send the largest row of each key only (``LargestRows``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from txtopo.attempt import TransactionAttempt
from txtopo.bolts.bolt import ArrowBolt
from txtopo.collector import ArrowOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.state.keyed_columns import last_of_each, with_plain_zeros
from txtopo.tuples import Fields


@dataclass(frozen=True)
class MaxBy:
    """How rows become values: the row with the largest values counts.

    Attributes:
        key: The key fields.
        value: The value fields.
        by: Those of them that are compared.
        smallest: Those of *by* of which the smaller value counts.
        reads: Whether a new value depends on the old one.
        removes: Whether keys are removed.
    """

    key: tuple[str, ...]
    value: tuple[str, ...]
    by: tuple[str, ...]
    smallest: frozenset[str]
    reads: ClassVar[bool] = True
    removes: ClassVar[bool] = False

    def changed(self, rows: pa.Table) -> pa.Table:
        """Return the largest row of each key: key columns, then value columns."""
        others = [name for name in self.value if name not in self.by]
        kept = rows.select([*self.key, *self.value])
        kept = with_plain_zeros(kept, kept.column_names)
        return last_of_each(kept, len(self.key), [*self.by, *others], self.smallest)

    def combined(self, before: pa.Table, changes: pa.Table) -> pa.Table:
        """Return the rows after changes; *before* has the rows of those keys that exist."""
        if not before.num_rows:
            return changes
        return self.changed(pa.concat_tables([before.select(changes.column_names), changes]))

    def __str__(self) -> str:
        return ", ".join(f"-{name}" if name in self.smallest else name for name in self.by)


class LargestRows(ArrowBolt):
    """Emits the largest row of each key among the rows of one task and batch.

    Delivery: the same as for any ``ArrowBolt``.

    Args:
        largest: How rows are compared.
        fields: The fields of the emitted rows: those of the key, then those of the value.
    """

    writes_nowhere_else = True

    def __init__(self, largest: MaxBy, fields: Fields) -> None:
        self._largest = largest
        self.output_fields = fields

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: ArrowOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Get ready for one attempt."""
        self._collector = collector
        self._batches: list[pa.RecordBatch] = []

    def execute(self, batch: pa.RecordBatch) -> None:
        """Add rows to the batch."""
        self._batches.append(batch)

    def finish_batch(self) -> None:
        """Emit the largest row of each key."""
        if self._batches:
            rows = pa.Table.from_batches(self._batches)
            for batch in self._largest.changed(rows).to_batches():
                self._collector.emit(batch)
