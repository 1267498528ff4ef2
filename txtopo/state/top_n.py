"""TopN: the largest values of a field, with labels that say whose they are."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import chain
from typing import Any

from txtopo.errors import FieldsError, ValueRefusedError
from txtopo.state.aggregates import selected
from txtopo.state.own_aggregate import PythonAggregate
from txtopo.tuples import Fields

# What JSON holds and gives back exactly, and orders as Python does.
_TYPES = frozenset({"byte", "short", "int", "long", "float", "double", "string"})


@dataclass(frozen=True, slots=True)
class TopN(PythonAggregate):
    """The *n* largest values of *field*, largest first; a ``json`` list.

    A value counts as often as it stands in the input. With *labels* each entry is a list: the
    value, then the labels of its row. Among equal values the labels decide, so that the number of
    tasks changes no result. It is not the most frequent values: count these by key, and take the
    largest counts in the query.

    Attributes:
        n: How many are kept; 1 to 10,000, since each write of a key carries all of them.
        labels: Names of fields that say whose value it is.

    Example:
        >>> TopN("delay", 3, labels=("flight",)).default_name
        'topn_delay'
    """

    n: int = 10
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.labels, str):
            object.__setattr__(self, "labels", (self.labels,))
        object.__setattr__(self, "labels", tuple(self.labels))
        if type(self.n) is not int or not 1 <= self.n <= 10_000:
            raise FieldsError(f"bad n of TopN({self.field!r}); got {self.n!r}; expected 1 to 10000")

    @property
    def inputs(self) -> tuple[str, ...]:
        """The field and its labels."""
        return (*(() if self.field is None else (self.field,)), *self.labels)

    def value_type(self, inputs: Fields) -> str:
        """Return ``json``."""
        for field in (self._input(inputs), *(selected(inputs, name) for name in self.labels)):
            if field.type not in _TYPES and (field.name == self.field or field.type != "boolean"):
                raise FieldsError(
                    f"TopN needs numbers or text; field {field.name!r} is {field.type}; "
                    "cast in the bolt above"
                )
        return "json"

    def folded(self, rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Return the largest of the rows; NULL is passed over.

        Raises:
            ValueRefusedError: A value is NaN or infinite, which JSON does not hold.
        """
        for value in chain.from_iterable(rows):
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueRefusedError(
                    f"TopN({self.field!r}) keeps no {value}; expected finite numbers; filter it",
                    field=self.field,
                )
        known = [row for row in rows if row[0] is not None]
        return (self._largest([list(row) if self.labels else row[0] for row in known]),)

    def merged(self, partials: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Return the largest of all."""
        return (self._largest([entry for (value,) in partials for entry in value]),)

    def combine_values(self, left: Any, right: Any) -> Any:
        """Return the largest of what is stored and what the batch brings."""
        return self._largest([*(left or ()), *right])

    def _largest(self, entries: list[Any]) -> list[Any]:
        if not self.labels:
            return nlargest(self.n, entries)
        return nlargest(self.n, entries, key=lambda entry: (entry[0], json.dumps(entry[1:])))
