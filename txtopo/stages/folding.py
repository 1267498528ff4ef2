"""Folding: what Arrow cannot combine, key by key in Python.

Arrow gathers the values of each key in a list (``hash_list``), for each column that an aggregate
has; here the lists become rows again, the aggregate makes one partial result of them, and that is
checked as a stored value would be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from txtopo.state.columns import Columns
from txtopo.state.own_aggregate import PythonAggregate
from txtopo.tuples import Fields

Reduce = Callable[[Sequence[tuple[Any, ...]]], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Folding:
    """What is combined for one column of a ``PersistentAggregate``.

    Attributes:
        name: Name of the value column.
        aggregate: How it is combined.
        columns: The columns of a partial result.
        retracted: Name of the input field that says which rows are taken back; None if none are.
    """

    name: str
    aggregate: PythonAggregate
    columns: Columns
    retracted: str | None = None

    @classmethod
    def of(
        cls, name: str, aggregate: PythonAggregate, inputs: Fields, retracted: str | None
    ) -> Folding:
        """Return what is combined from inputs of these fields."""
        partial = Fields.of(aggregate.partial_fields(name, inputs))
        return cls(name, aggregate, Columns(name, "value", partial), retracted)

    @property
    def gathered(self) -> list[str]:
        """Names for the columns of input fields, while they are gathered; one at the least."""
        return [f"{self.name} input {at}" for at in range(len(self._read) or 1)]

    def inputs_of(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return the columns of input fields; without any there is one, so that rows are there."""
        columns = [batch.column(name) for name in self._read]
        return columns or [pa.repeat(True, batch.num_rows)]

    def folded(self, lists: Sequence[pa.ChunkedArray]) -> list[pa.Array]:
        """Return partial results, in columns, of the input rows of each key."""
        return self._reduced(lists, self._partial)

    def merged(self, lists: Sequence[pa.ChunkedArray]) -> list[pa.Array]:
        """Return partial results, in columns, of the partial results of each key."""
        opened = self.columns.opened
        return self._reduced(lists, lambda rows: self.aggregate.merged([opened(r) for r in rows]))

    @property
    def _read(self) -> tuple[str, ...]:
        """Names of the input fields; the one that says what is taken back is the last."""
        inputs = self.aggregate.inputs
        return inputs if self.retracted is None else (*inputs, self.retracted)

    def _partial(self, rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        width = len(self.aggregate.inputs)
        if self.retracted is None:
            return self.aggregate.folded([row[:width] for row in rows])
        added = self.aggregate.folded([row[:width] for row in rows if not row[width]])
        return self.aggregate.without(added, [row[:width] for row in rows if row[width]])

    def _reduced(self, lists: Sequence[pa.ChunkedArray], reduce: Reduce) -> list[pa.Array]:
        partials = [
            self.columns.exact(reduce(list(zip(*parts, strict=True))))
            for parts in zip(*(column.to_pylist() for column in lists), strict=True)
        ]
        types = self.columns.fields.arrow_schema().types
        columns = list(zip(*partials, strict=True)) if partials else [()] * len(types)
        return [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
