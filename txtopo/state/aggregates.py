"""Count, Sum, Min, Max: how partial results of a batch meet each other and a stored value.

An aggregate is combined three times: rows to a partial in the worker, partials of the workers in
the driver, and the partial of a txid with the stored value in the store. NULL inputs are passed
over, as in SQL; a group whose inputs are all NULL has the value NULL (``Count``: 0).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from txtopo.errors import FieldsError
from txtopo.tuples import Field, Fields

Combine = Literal["add", "min", "max"]
_WHOLE = frozenset({"byte", "short", "int", "long"})


@dataclass(frozen=True, slots=True)
class Aggregate(ABC):
    """How one value column of a ``PersistentAggregate`` is computed.

    Attributes:
        field: The input field; ``None`` stands for the row itself (``Count`` only).
        combine: How two partials, or a partial and the stored value, become one.
    """

    field: str | None = None
    combine: ClassVar[Combine] = "add"

    @property
    def default_name(self) -> str:
        """Name of the value column when the user gives none: ``count``, ``sum_delay`` …"""
        kind = type(self).__name__.lower()
        return kind if self.field is None else f"{kind}_{self.field}"

    @abstractmethod
    def value_type(self, inputs: Fields) -> str:
        """Return the type of the stored column for inputs of these fields.

        Raises:
            FieldsError: The input field is missing, or is of a type that this cannot aggregate.
        """

    def value_field(self, name: str, inputs: Fields) -> Field:
        """Return the stored column."""
        return Field(name, self.value_type(inputs))

    def combine_values(self, left: Any, right: Any) -> Any:
        """Combine two values in Python; ``None`` is "no value yet"."""
        if left is None or right is None:
            return right if left is None else left
        if self.combine == "add":
            return left + right
        # NaN is the largest number, as in Spark and PostgreSQL.
        if left != left or right != right:
            smaller, larger = (right, left) if left != left else (left, right)
        else:
            smaller, larger = (left, right) if left <= right else (right, left)
        return smaller if self.combine == "min" else larger

    def _input(self, inputs: Fields) -> Field:
        if self.field is None:
            raise FieldsError(f"{type(self).__name__} needs an input field; got none")
        (field,) = inputs.select([self.field])
        return field


@dataclass(frozen=True, slots=True)
class Count(Aggregate):
    """Number of rows, or of those whose *field* is not NULL. A ``long``."""

    def value_type(self, inputs: Fields) -> str:
        """Return ``long``; the field, if given, must exist."""
        if self.field is not None:
            self._input(inputs)
        return "long"


@dataclass(frozen=True, slots=True)
class Sum(Aggregate):
    """Sum of *field*: a ``long`` of whole numbers, a ``double`` of floats, a wide decimal."""

    def value_type(self, inputs: Fields) -> str:
        """Return the widened type of the input, as Spark's ``sum`` does."""
        field = self._input(inputs)
        if field.type in _WHOLE:
            return "long"
        if field.type in ("float", "double"):
            return "double"
        if field.type.startswith("decimal"):
            return f"decimal(38,{field.type[8:-1].split(',')[1]})"
        raise FieldsError(f"Sum needs numbers; field {field.name!r} is {field.type}")


@dataclass(frozen=True, slots=True)
class _Extreme(Aggregate):
    def value_type(self, inputs: Fields) -> str:
        """Return the type of the input."""
        field = self._input(inputs)
        if field.type in ("binary", "boolean"):
            raise FieldsError(
                f"{type(self).__name__} needs an ordered type; field {field.name!r} is {field.type}"
            )
        return field.type


@dataclass(frozen=True, slots=True)
class Min(_Extreme):
    """Smallest value of *field*."""

    combine: ClassVar[Combine] = "min"


@dataclass(frozen=True, slots=True)
class Max(_Extreme):
    """Largest value of *field*."""

    combine: ClassVar[Combine] = "max"
