"""First and Last: the value that came first, or last, by an order that the rows say themselves.

After a shuffle the rows of a batch have no order, so a field has to give it. Between batches the
txid decides: ``First`` keeps what an earlier txid brought, ``Last`` takes what a later one brings,
whatever the order field says. Of equal places the smaller (``First``) or larger (``Last``) value is
taken, so that the number of tasks changes no result.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from txtopo.errors import FieldsError
from txtopo.state.aggregates import ordered, selected
from txtopo.state.own_aggregate import PythonAggregate
from txtopo.tuples import Field, Fields


@dataclass(frozen=True, slots=True)
class _AtAnEnd(PythonAggregate):
    order: str | None = dataclasses.field(default=None, kw_only=True)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The field, and that of the order."""
        return tuple(name for name in (self.field, self.order) if name is not None)

    def value_type(self, inputs: Fields) -> str:
        """Return the type of the input."""
        if self.order is None:
            kind = type(self).__name__
            raise FieldsError(
                f"{kind} needs the field that orders the rows of a batch, which have no order "
                f"after a shuffle; got {kind}({self.field!r}); "
                f"expected e.g. {kind}({self.field!r}, order='ts')"
            )
        ordered(self, selected(inputs, self.order))
        return self._input(inputs).type

    def partial_fields(self, name: str, inputs: Fields) -> list[Field]:
        """Return the value, and its place in the batch."""
        assert self.order is not None
        place = selected(inputs, self.order)
        return [self.value_field(name, inputs), Field(f"{name} place", place.type)]

    def folded(self, rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Return the first or last row; a row without value or place is passed over."""
        known = [row for row in rows if row[0] is not None and row[1] is not None]
        return self._end(known) if known else (None, None)

    def merged(self, partials: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Return the first or last of the partial results."""
        return self.folded(partials)

    @abstractmethod
    def _end(self, rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Return the row at this end."""


@dataclass(frozen=True, slots=True)
class First(_AtAnEnd):
    """Value of *field* in the first row: of the lowest txid, and in it of the smallest *order*."""

    def combine_values(self, left: Any, right: Any) -> Any:
        """Return the stored value, if there is one."""
        return right if left is None else left

    def _end(self, rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        return min(rows, key=_by_place)


@dataclass(frozen=True, slots=True)
class Last(_AtAnEnd):
    """Value of *field* in the last row: of the highest txid, and in it of the largest *order*."""

    def combine_values(self, left: Any, right: Any) -> Any:
        """Return the value of the batch, if it has one."""
        return left if right is None else right

    def _end(self, rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        return max(rows, key=_by_place)


def _by_place(row: tuple[Any, ...]) -> tuple[Any, ...]:
    value, place = row
    # NaN is the largest number, as in Spark and PostgreSQL.
    return (place != place, 0 if place != place else place, value != value, value)
