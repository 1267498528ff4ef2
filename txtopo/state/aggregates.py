"""Aggregates: Count, Sum, Min, Max and Mean, and OwnAggregate, the base of a user's own.

An aggregate is combined three times: rows into a partial result in the worker; partial results of
the workers in the driver; and the partial result of a txid with the stored value in the store. NULL
inputs are ignored, as in SQL; a group whose inputs are all NULL has the value NULL (``Count``: 0).

Count, Sum, Min, Max and Mean combine in the store, by an operator of SQL. An ``OwnAggregate``, like
those in ``python_aggregates.py``, combines in Python: the store reads the stored values of the keys
of a batch inside its transaction, and :func:`txtopo.state.row_backend.final_values` combines them.
"""

from __future__ import annotations

import decimal
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from txtopo.errors import FieldsError
from txtopo.tuples import Field, Fields

if TYPE_CHECKING:
    import pyarrow as pa

    from txtopo.state.keyed_columns import KeyedRows

Operator = Literal["add", "min", "max"]

_WHOLE = frozenset({"byte", "short", "int", "long"})

# Two decimals of 38 digits have a sum of 39.
_DECIMALS = decimal.Context(prec=39, traps=[decimal.Inexact])


@dataclass(frozen=True, slots=True)
class Aggregate(ABC):
    """How one value column of a ``PersistentAggregate`` is computed.

    Attributes:
        field: The input field; ``None`` means the row itself (``Count`` only).
        operator: The SQL operator that combines two partial results, or one with the stored value;
            None if only :meth:`combine_values` can, in Python.
        initial: The stored value for no rows; existing rows get it in a column that is added to
            their table.
    """

    field: str | None = None
    operator: ClassVar[Operator | None] = "add"
    initial: ClassVar[int | None] = None

    @property
    def takes_back(self) -> bool:
        """Whether a row can be retracted without access to the other rows."""
        return self.operator == "add"

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the input fields that the aggregate reads."""
        return () if self.field is None else (self.field,)

    @property
    def default_name(self) -> str:
        """Default name of the value column, such as ``count`` or ``sum_delay``."""
        kind = type(self).__name__.lower()
        return kind if self.field is None else f"{kind}_{self.field}"

    @abstractmethod
    def value_type(self, inputs: Fields) -> str:
        """Return the type of the stored column for inputs of these fields.

        Raises:
            FieldsError: The input field is missing, or has a type that cannot be aggregated.
        """

    def value_field(self, name: str, inputs: Fields) -> Field:
        """Return the stored column."""
        return Field(name, self.value_type(inputs))

    def columns(self, name: str) -> dict[str, Aggregate]:
        """Return the aggregate of each stored column, by name; usually just this one."""
        return {name: self}

    def of_inputs(self, inputs: Fields) -> Aggregate:
        """Return the aggregate as it combines inputs of these fields; usually just this one."""
        return self

    def shown(self, value: Any) -> Any:
        """Return the value that a reader sees for a stored value."""
        return value

    def shown_type(self, stored: str) -> str:
        """Return the type of the values of :meth:`shown`, given the type of the stored column."""
        return stored

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
            raise FieldsError(
                f"{type(self).__name__} needs an input field; got none", name=type(self).__name__
            )
        return selected(inputs, self.field)


def selected(inputs: Fields, name: str) -> Field:
    """Return an input field.

    Raises:
        FieldsError: There is none of this name.
    """
    (field,) = inputs.select([name])
    return field


def _sum(left: Any, right: Any) -> Any:
    # Python would round decimals to the 28 digits of its context. Columns checks that the sum fits.
    return _DECIMALS.add(left, right) if isinstance(left, decimal.Decimal) else left + right


@dataclass(frozen=True, slots=True)
class Count(Aggregate):
    """Number of rows, or of rows whose *field* is not NULL. A ``long``."""

    initial: ClassVar[int | None] = 0

    def value_type(self, inputs: Fields) -> str:
        """Return ``long``; the field, if given, must exist."""
        if self.field is not None:
            self._input(inputs)
        return "long"


@dataclass(frozen=True, slots=True)
class Sum(Aggregate):
    """Sum of *field*: a ``long`` for integers, a ``double`` for floats, else a wide decimal."""

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
        raise FieldsError(
            f"{self.word} needs numbers; field {field.name!r} is {field.type}",
            field=field.name,
            got=field.type,
        )


def ordered(aggregate: Aggregate, field: Field) -> Field:
    """Return a field by which rows can be ordered.

    Raises:
        FieldsError: Its type has no order.
    """
    if field.type in ("binary", "boolean"):
        raise FieldsError(
            f"{type(aggregate).__name__} needs an ordered type; field {field.name!r} is "
            f"{field.type}",
            field=field.name,
            got=field.type,
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
    """Exact mean of *field*: stored as a sum and a count, which are divided when the mean is read.

    The table has two columns, ``<name>_sum`` and ``<name>_count``; readers and the view of an SQL
    store show ``<name>``: a ``float``, rounded once; for decimals, a ``Decimal`` of 38 digits.
    """

    def value_type(self, inputs: Fields) -> str:
        """Return the type of the sum."""
        return MeanSum(self.field).value_type(inputs)

    def columns(self, name: str) -> dict[str, Aggregate]:
        """Return the two columns."""
        return {f"{name}_sum": MeanSum(self.field), f"{name}_count": MeanCount(self.field)}


@dataclass(frozen=True, slots=True)
class PythonAggregate(Aggregate):
    """How one value column is computed in Python.

    Between workers and driver a partial result may have more columns than the stored one, which
    comes first.

    Attributes:
        by_txid: Whether partial results of several txids must be combined by
            :meth:`combine_values`, one txid after the other, and not by :meth:`merged`.
        at_once: Whether it defines :meth:`folded_at_once` and :meth:`united_at_once`, which combine
            many keys in columns. Its partial result has one column.
    """

    operator: ClassVar[Operator | None] = None
    by_txid: ClassVar[bool] = False
    at_once: ClassVar[bool] = False

    def partial_fields(self, name: str, inputs: Fields) -> list[Field]:
        """Return the columns of a partial result. Only the name of the first one matters."""
        return [self.value_field(name, inputs)]

    @abstractmethod
    def folded(self, rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Return the partial result of rows of one key; a row has the values of ``inputs``."""

    def without(self, partial: tuple[Any, ...], rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Return *partial* with some rows removed; called only if ``takes_back`` is true."""
        raise NotImplementedError(f"{type(self).__name__} cannot take rows back")

    @abstractmethod
    def merged(self, partials: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Return one partial result for all partial results of one key."""

    @abstractmethod
    def combine_values(self, left: Any, right: Any) -> Any:
        """Combine the stored value *left* with the first column of a partial result, *right*."""

    def folded_at_once(self, rows: KeyedRows) -> pa.Array | None:
        """Return the partial result of each key, as it is stored; called only if ``at_once``.

        Args:
            rows: The columns of ``inputs``.

        Returns:
            None if :meth:`folded` must be called for each key, for instance to raise its error.
        """
        raise NotImplementedError(f"{type(self).__name__} combines key by key")

    def united_at_once(self, values: KeyedRows) -> pa.Array | None:
        """Return one value for all values of each key, as it is stored; called only if ``at_once``.

        Args:
            values: A column of stored values and partial results. Those of one key are in the order
                in which they are combined.

        Returns:
            None if :meth:`merged` or :meth:`combine_values` must be called for each key.
        """
        raise NotImplementedError(f"{type(self).__name__} combines key by key")


class OwnAggregate(PythonAggregate):
    """Your own aggregate: ``zero``, ``add``, ``combine``, and the type of its value.

    Define :meth:`remove` as well if rows retract earlier ones
    (``PersistentAggregate(…, retracted=field)``). The retracted row may have been added in an
    earlier batch, so partial values must be able to become negative, such as a count of -1.

    Delivery: exactly once, as for every aggregate; the batch of an earlier attempt is undone first.
    Subclass it, and pass an instance to a ``PersistentAggregate``.

    Who calls it, and where: the tasks that emit rows call :meth:`zero` and :meth:`add`; the tasks,
    the driver and the commit call :meth:`combine`. Each uses one thread.

    How often: any number of times, even for attempts that are abandoned.

    What must be picklable: the aggregate, which is pickled with the topology.

    What is durable: the value. Stores keep the name of module and class and the input fields, never
    a pickle. A reader of the state does not need the class, and sees the value as it is stored. If
    you change the class and keep its name, it continues with the stored values.

    Not guaranteed: an order. Rows and partial results are combined in any order, so ``combine``
    must be associative and commutative. ``None`` stands for no value, and ``combine`` never gets
    it. A value may be changed in place, so ``zero`` must return a new value each time.

    Args:
        fields: Names of the input fields; :meth:`add` receives their values in this order.

    Attributes:
        type: The type of the stored value, such as ``"long"`` or ``"json"``.

    Example:
        >>> class Words(OwnAggregate):
        ...     type = "json"
        ...     def zero(self):
        ...         return []
        ...     def add(self, value, word):
        ...         return sorted({*value, word})
        ...     def combine(self, left, right):
        ...         return sorted({*left, *right})
        >>> Words("word").default_name
        'words_word'
    """

    type: ClassVar[str] = "json"

    def __init__(self, *fields: str) -> None:
        super().__init__(fields[0] if fields else None)
        self.fields = fields

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the input fields that the aggregate reads."""
        return self.fields

    @property
    def takes_back(self) -> bool:
        """Whether the aggregate defines ``remove``."""
        remove: object = self.remove
        return callable(remove) and getattr(remove, "__func__", None) is not OwnAggregate.remove

    @property
    def name(self) -> str:
        """The module and class, as stores record the aggregate."""
        return f"{type(self).__module__}:{type(self).__qualname__}"

    @abstractmethod
    def zero(self) -> Any:
        """Return the value for no rows; a new object each time."""

    @abstractmethod
    def add(self, value: Any, *items: Any) -> Any:
        """Return *value* with one more row; *items* are its input fields, None where NULL."""

    @abstractmethod
    def combine(self, left: Any, right: Any) -> Any:
        """Return the value of all rows of both values."""

    def remove(self, value: Any, *items: Any) -> Any:
        """Return *value* without one row; optional, see the class."""
        raise NotImplementedError(f"{type(self).__name__} has no remove")

    def value_type(self, inputs: Fields) -> str:
        """Return ``type``, after a check that it is a type and that the input fields exist."""
        inputs.select(self.fields)
        (field,) = Fields.of([Field("value", self.type)])
        return field.type

    def folded(self, rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Add the rows to :meth:`zero`."""
        value = self.zero()
        for row in rows:
            value = self.add(value, *row)
        return (value,)

    def without(self, partial: tuple[Any, ...], rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Remove the rows, one by one."""
        (value,) = partial
        for row in rows:
            value = self.remove(value, *row)
        return (value,)

    def merged(self, partials: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Combine the partial results."""
        values = [value for (value,) in partials if value is not None]
        return (reduce(self.combine, values) if values else None,)

    def combine_values(self, left: Any, right: Any) -> Any:
        """Combine the stored value with that of a batch."""
        if left is None or right is None:
            return right if left is None else left
        return self.combine(left, right)

    def __setattr__(self, name: str, value: Any) -> None:
        # The built-in ones are frozen; a class of your own may keep any attributes.
        object.__setattr__(self, name, value)

    def __getstate__(self) -> dict[str, Any]:
        return {"field": self.field, **vars(self)}

    def __setstate__(self, parts: dict[str, Any]) -> None:
        for name, part in parts.items():
            setattr(self, name, part)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash((type(self), self.fields))


@dataclass(frozen=True, slots=True)
class NamedAggregate(PythonAggregate):
    """A user's own aggregate as a store records it: by name. Reading the state does not import it.

    Attributes:
        name: Module and class.
        fields: Names of its input fields.
    """

    name: str = ""
    fields: tuple[str, ...] = ()

    def value_type(self, inputs: Fields) -> str:
        """Raise ``FieldsError``: this needs the user's class, which is not imported."""
        raise self._unknown()

    def folded(self, rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Raise ``FieldsError``: this needs the user's class, which is not imported."""
        raise self._unknown()

    def merged(self, partials: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Raise ``FieldsError``: this needs the user's class, which is not imported."""
        raise self._unknown()

    def combine_values(self, left: Any, right: Any) -> Any:
        """Raise ``FieldsError``: this needs the user's class, which is not imported."""
        raise self._unknown()

    def _unknown(self) -> FieldsError:
        return FieldsError(
            f"the aggregate {self.name!r} is known only by name, from a store; it can be read, "
            "but not combined; expected the state as its topology declares it",
            name=self.name,
        )
