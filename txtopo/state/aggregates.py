"""Count, Sum, Min, Max, Mean: how partial results of a batch meet each other and a stored value.

An aggregate is combined three times: rows to a partial in the worker, partials of the workers in
the driver, and the partial of a txid with the stored value in the store. NULL inputs are passed
over, as in SQL; a group whose inputs are all NULL has the value NULL (``Count``: 0).

All of these combine where the values are stored, by an operator of SQL. Those that do not are in
``own_aggregate.py``, ``first_last.py``, ``top_n.py`` and ``count_distinct.py``.
"""

from __future__ import annotations

import decimal
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from txtopo.errors import FieldsError
from txtopo.tuples import Field, Fields

Operator = Literal["add", "min", "max"]
_WHOLE = frozenset({"byte", "short", "int", "long"})
# Two decimals of 38 digits have a sum of 39.
_DECIMALS = decimal.Context(prec=39, traps=[decimal.Inexact])


@dataclass(frozen=True, slots=True)
class Aggregate(ABC):
    """How one value column of a ``PersistentAggregate`` is computed.

    Attributes:
        field: The input field; ``None`` stands for the row itself (``Count`` only).
        operator: How a store makes one of a partial and the stored value, and the workers of two
            partials; None if only :meth:`combine_values` knows, in Python.
    """

    field: str | None = None
    operator: ClassVar[Operator | None] = "add"

    @property
    def takes_back(self) -> bool:
        """Whether a row can be taken back when the others are not known any more."""
        return self.operator == "add"

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the input fields that it reads."""
        return () if self.field is None else (self.field,)

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

    def columns(self, name: str) -> dict[str, Aggregate]:
        """Return what is stored for it, by column: itself, unless it is made of several."""
        return {name: self}

    def shown(self, value: Any) -> Any:
        """Return what a reader sees of a stored value."""
        return value

    def combine_values(self, left: Any, right: Any) -> Any:
        """Combine two values in Python; ``None`` is "no value yet"."""
        if left is None or right is None:
            return right if left is None else left
        if self.operator == "add":
            return _sum(left, right)
        # NaN is the largest number, as in Spark and PostgreSQL.
        if left != left or right != right:
            smaller, larger = (right, left) if left != left else (left, right)
        else:
            smaller, larger = (left, right) if left <= right else (right, left)
        return smaller if self.operator == "min" else larger

    def _input(self, inputs: Fields) -> Field:
        if self.field is None:
            raise FieldsError(f"{type(self).__name__} needs an input field; got none")
        return selected(inputs, self.field)


def selected(inputs: Fields, name: str) -> Field:
    """Return an input field.

    Raises:
        FieldsError: There is none of this name.
    """
    (field,) = inputs.select([name])
    return field


def _sum(left: Any, right: Any) -> Any:
    # Python would round decimals to the 28 digits of its context; whether the sum fits its column
    # is the door's question.
    return _DECIMALS.add(left, right) if isinstance(left, decimal.Decimal) else left + right


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

    word: ClassVar[str] = "Sum"

    def value_type(self, inputs: Fields) -> str:
        """Return the widened type of the input, as Spark's ``sum`` does."""
        field = self._input(inputs)
        if field.type in _WHOLE:
            return "long"
        if field.type in ("float", "double"):
            return "double"
        if field.type.startswith("decimal"):
            return f"decimal(38,{field.type[8:-1].split(',')[1]})"
        raise FieldsError(f"{self.word} needs numbers; field {field.name!r} is {field.type}")


def ordered(aggregate: Aggregate, field: Field) -> Field:
    """Return a field by which rows can be ordered.

    Raises:
        FieldsError: Its type has no order.
    """
    if field.type in ("binary", "boolean"):
        raise FieldsError(
            f"{type(aggregate).__name__} needs an ordered type; field {field.name!r} is "
            f"{field.type}"
        )
    return field


@dataclass(frozen=True, slots=True)
class _Extreme(Aggregate):
    def value_type(self, inputs: Fields) -> str:
        """Return the type of the input."""
        return ordered(self, self._input(inputs)).type


@dataclass(frozen=True, slots=True)
class Min(_Extreme):
    """Smallest value of *field*."""

    operator: ClassVar[Operator | None] = "min"


@dataclass(frozen=True, slots=True)
class Max(_Extreme):
    """Largest value of *field*."""

    operator: ClassVar[Operator | None] = "max"


@dataclass(frozen=True, slots=True)
class MeanSum(Sum):
    """The column ``<name>_sum`` of a :class:`Mean`."""

    word: ClassVar[str] = "Mean"


@dataclass(frozen=True, slots=True)
class MeanCount(Count):
    """The column ``<name>_count`` of a :class:`Mean`."""


@dataclass(frozen=True, slots=True)
class Mean(Aggregate):
    """Mean of *field*, exact: kept as its sum and its count, and divided when it is read.

    The table has two columns, ``<name>_sum`` and ``<name>_count``; readers and the view of an SQL
    store show ``<name>``: a ``float``, rounded once, or of decimals a ``Decimal`` of 38 digits.
    """

    def value_type(self, inputs: Fields) -> str:
        """Return the type of the sum."""
        return MeanSum(self.field).value_type(inputs)

    def columns(self, name: str) -> dict[str, Aggregate]:
        """Return the two columns."""
        return {f"{name}_sum": MeanSum(self.field), f"{name}_count": MeanCount(self.field)}
