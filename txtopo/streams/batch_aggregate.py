"""BatchAggregate: aggregates of one batch. Nothing is kept for the next batch.

Partial aggregates are computed where the rows are (``BatchPartials``), and then combined by key.
"""

from __future__ import annotations

import pyarrow as pa

from txtopo.attempt import TransactionAttempt
from txtopo.bolts.bolt import ArrowBolt
from txtopo.bolts.persistent_aggregate import PersistentAggregate
from txtopo.collector import ArrowOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.stages.aggregation import Aggregation
from txtopo.stages.combining import BatchPartials as BatchPartials
from txtopo.stages.combining import partial_fields as partial_fields
from txtopo.stages.combining import stream_fields as stream_fields
from txtopo.state.backend import StateTable
from txtopo.state.columns import rows_of
from txtopo.state.reader import ReaderView
from txtopo.streams.operators import batches_of
from txtopo.tuples import Fields


class BatchAggregate(ArrowBolt):
    """Combines the partial aggregates of a batch, and emits one row for each key.

    Delivery: the same as for any ``ArrowBolt``. It emits nothing for a batch without rows.

    Args:
        id: Its id, for messages.
        aggregates: Key and aggregates.
        inputs: The fields of the rows.

    Attributes:
        fields: The fields of the rows that it emits.
    """

    writes_nowhere_else = True

    def __init__(self, id: str, aggregates: PersistentAggregate, inputs: Fields) -> None:
        self._id = id
        self._aggregation = Aggregation.of(aggregates, inputs)
        key, value = aggregates.key_fields(inputs), aggregates.value_fields(inputs)
        table = StateTable(id, "opaque", key, value, tuple(aggregates.aggregates.values()))
        self._view, self._by = ReaderView(table), len(aggregates.key)
        self._width = len(key)
        shown = stream_fields(self._view.fields)
        self.fields = Fields.of([*(key if aggregates.key else ()), *shown])
        self.output_fields = self.fields

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: ArrowOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Get ready for one attempt."""
        self._collector = collector
        self._partials: list[pa.RecordBatch] = []

    def execute(self, batch: pa.RecordBatch) -> None:
        """Add partial aggregates to the batch."""
        self._partials.append(batch.select(self._aggregation.schema.names))

    def finish_batch(self) -> None:
        """Emit the aggregates of each key, as readers of a state see them."""
        if not self._partials:
            return
        combined = self._aggregation.combine(self._partials).select(self._aggregation.stored)
        rows = [
            (*row[: self._by], *self._view.row(row[self._width :])) for row in rows_of(combined)
        ]
        for batch in batches_of(self._id, self.fields, rows):
            self._collector.emit(batch)
