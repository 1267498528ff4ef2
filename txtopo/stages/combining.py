"""Aggregates that a committer combines with the values that it reads: BatchPartials, Aggregating.

Both use the aggregation of a ``PersistentAggregate``. ``BatchPartials`` runs where the rows are and
emits partial aggregates. ``Aggregating`` combines those of all tasks, and the result with what is
stored. A committer does so if it must know the stored value; otherwise the store combines it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txtopo.attempt import TransactionAttempt
from txtopo.bolts.bolt import ArrowBolt
from txtopo.bolts.persistent_aggregate import PersistentAggregate
from txtopo.collector import ArrowOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.stages.aggregation import Aggregation
from txtopo.state.aggregates import Aggregate, PythonAggregate
from txtopo.state.columns import Columns, values_of
from txtopo.state.keyed_columns import KeyedRows, codes_of
from txtopo.tuples import Field, Fields


def stream_fields(fields: Fields) -> Fields:
    """Return columns with types that a stream can have: json becomes a string."""
    return Fields.of(
        [Field(each.name, "string" if each.type == "json" else each.type) for each in fields]
    )


def partial_fields(aggregates: PersistentAggregate, inputs: Fields) -> Fields:
    """Return the fields of the partial aggregates of inputs with these fields."""
    foldings = Aggregation.of(aggregates, inputs).foldings
    columns = [*aggregates.key_fields(inputs)]
    for field in aggregates.value_fields(inputs):
        columns += foldings[field.name].columns.fields if field.name in foldings else [field]
    return stream_fields(Fields.of(columns))


class BatchPartials(ArrowBolt):
    """Combines the rows of one task and batch by key, and emits partial aggregates.

    Delivery: the same as for any ``ArrowBolt``.

    Args:
        aggregates: Key and aggregates.
        inputs: The fields of the rows.
    """

    writes_nowhere_else = True

    def __init__(self, aggregates: PersistentAggregate, inputs: Fields) -> None:
        self._aggregation = Aggregation.of(aggregates, inputs)
        self.output_fields = partial_fields(aggregates, inputs)

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
        """Add rows to the batch."""
        self._partials.append(self._aggregation.inputs_of(batch))

    def finish_batch(self) -> None:
        """Emit one partial aggregate for each key."""
        if self._partials:
            self._collector.emit(self._aggregation.combine(self._partials))


class Aggregating:
    """How rows become values: partial aggregates are combined with what is stored.

    Args:
        aggregates: Key and aggregates.
        inputs: The fields of the rows that are aggregated.
    """

    reads: ClassVar[bool] = True
    removes: ClassVar[bool] = False

    def __init__(self, aggregates: PersistentAggregate, inputs: Fields) -> None:
        self._aggregation = Aggregation.of(aggregates, inputs)
        self._fields = aggregates.value_fields(inputs)

    def changed(self, rows: pa.Table) -> pa.Table:
        """Return the combined partial aggregates of each key: key columns, then value columns."""
        stored = self._aggregation.stored
        partials = rows.select(self._aggregation.schema.names).to_batches()
        if not partials:
            return self._aggregation.schema.empty_table().select(stored)
        return pa.Table.from_batches([self._aggregation.combine(partials).select(stored)])

    def combined(self, before: pa.Table, changes: pa.Table) -> pa.Table:
        """Return the rows after changes; *before* has the rows of those keys that exist."""
        if not before.num_rows:
            return changes
        return self.united(pa.concat_tables([before.select(changes.column_names), changes]))

    def united(self, rows: pa.Table) -> pa.Table:
        """Combine rows of the table that have equal keys, in the order of the rows."""
        aggregation = self._aggregation
        rows = rows.select(aggregation.stored)
        if not aggregation.foldings:
            return pa.Table.from_batches([aggregation.combine(rows.to_batches())])
        keys = rows.select(aggregation.keys)
        encoded = pc.dictionary_encode(pa.array(codes_of(keys)))
        codes = encoded.indices.to_numpy().astype(np.int64)
        first = np.unique(codes, return_index=True)[1]
        columns = []
        fields = zip(aggregation.names, aggregation.aggregates, self._fields, strict=True)
        for name, aggregate, field in fields:
            column, united = rows.column(name), None
            if isinstance(aggregate, PythonAggregate) and aggregate.at_once:
                united = aggregate.united_at_once(KeyedRows.of(codes, len(first), [column]))
            if united is None:
                united = _united(aggregate, field, codes.tolist(), column)
            columns.append(united)
        together = [*keys.take(pa.array(first)).columns, *columns]
        return pa.table(together, names=aggregation.stored)


def _united(
    aggregate: Aggregate, field: Field, keys: Sequence[int], values: pa.ChunkedArray
) -> pa.Array:
    """Return the value of each key, combined from its values in their order."""
    column = Columns(field.name, "value", Fields.of([field]))
    united: list[Any] = [None] * len(set(keys))
    opened = map(column.opened, zip(values_of(values), strict=True))
    for at, (value,) in zip(keys, opened, strict=True):
        united[at] = aggregate.combine_values(united[at], value)
    (exact,) = column.exact_columns([united])
    return pa.array(exact, values.type)
