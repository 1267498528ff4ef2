"""Aggregates that combine in Python: in the workers, in the driver, and with the stored value.

A store has no operator for them, so it reads the stored values of the keys of a batch inside its
transaction and writes what :func:`txtopo.state.final_values.final_values` makes of them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar

from txtopo.errors import FieldsError
from txtopo.state.aggregates import Aggregate, Operator
from txtopo.tuples import Field, Fields


@dataclass(frozen=True, slots=True)
class PythonAggregate(Aggregate):
    """How one value column is computed in Python.

    On its way from the workers to the driver a partial result may have more columns than the one
    that is stored; that one comes first.
    """

    operator: ClassVar[Operator | None] = None

    def partial_fields(self, name: str, inputs: Fields) -> list[Field]:
        """Return the columns of a partial result; names do not matter, but for the first."""
        return [self.value_field(name, inputs)]

    @abstractmethod
    def folded(self, rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Return the partial result of rows of one key; a row has the values of ``inputs``."""

    def without(self, partial: tuple[Any, ...], rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Return a partial result that takes rows back; asked only where it can."""
        raise NotImplementedError(f"{type(self).__name__} takes no rows back")

    @abstractmethod
    def merged(self, partials: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Return one partial result for those of one key."""

    @abstractmethod
    def combine_values(self, left: Any, right: Any) -> Any:
        """Return the stored value *left* with the first column of a partial result *right*."""


class OwnAggregate(PythonAggregate):
    """An aggregate of your own: ``zero``, ``add`` and ``combine``, and the type of its value.

    One that has ``remove(value, *items)``, too, can be kept over rows that take earlier ones back
    (``PersistentAggregate(…, retracted=field)``): it returns *value* without that row. The row may
    have been added in an earlier batch, so a value must be able to owe something, as -1 owes one.

    Delivery: exactly once, as with every aggregate; a batch that is replayed otherwise is undone
    first. Derive a class, and give its instance to a ``PersistentAggregate``.

    Who calls it: the tasks that emit rows call :meth:`zero` and :meth:`add`, the tasks, the driver
    and the commit :meth:`combine`; in one thread each, any number of times, also for attempts that
    are abandoned. It is pickled with the topology. A value may be changed in place.
    ``None`` stands for no value, so that ``combine`` never gets it; ``zero`` must be a new value.
    What is not promised: an order. Rows and partial results meet in any order that the groupings
    leave, so ``combine`` must give the same whatever was combined first.
    What stores keep of it is the name of its module and class, and its fields: never a pickle.
    Whoever reads the state needs neither, and sees the value as it is stored. A changed class of
    the same name goes on with the values that are stored.

    Args:
        fields: Names of the input fields, whose values :meth:`add` gets in this order.

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
        """Names of the input fields that it reads."""
        return self.fields

    @property
    def takes_back(self) -> bool:
        """Whether the class has ``remove``."""
        return callable(getattr(self, "remove", None))

    @property
    def name(self) -> str:
        """What a store keeps of it, beside its fields."""
        return f"{type(self).__module__}:{type(self).__qualname__}"

    @abstractmethod
    def zero(self) -> Any:
        """Return the value of no rows, a new one each time."""

    @abstractmethod
    def add(self, value: Any, *items: Any) -> Any:
        """Return *value* with one more row; *items* are its input fields, None where NULL."""

    @abstractmethod
    def combine(self, left: Any, right: Any) -> Any:
        """Return the value of the rows of both."""

    def value_type(self, inputs: Fields) -> str:
        """Return the type of the class, if it is one and the input fields are there."""
        inputs.select(self.fields)
        (field,) = Fields.of([Field("value", self.type)])
        return field.type

    def folded(self, rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Add the rows to nothing."""
        value = self.zero()
        for row in rows:
            value = self.add(value, *row)
        return (value,)

    def without(self, partial: tuple[Any, ...], rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Remove the rows, one by one."""
        (value,) = partial
        for row in rows:
            value = getattr(self, "remove")(value, *row)  # noqa: B009 - a method of some only
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
        # The ready-made ones are frozen; a class of your own may keep what it likes.
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
    """An aggregate that a store knows by name: a user's own, which is never imported to read it.

    Attributes:
        name: Module and class.
        fields: Names of its input fields.
    """

    name: str = ""
    fields: tuple[str, ...] = ()

    def value_type(self, inputs: Fields) -> str:
        """Raise: nobody but the class itself knows."""
        raise self._unknown()

    def folded(self, rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Raise: nobody but the class itself knows."""
        raise self._unknown()

    def merged(self, partials: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Raise: nobody but the class itself knows."""
        raise self._unknown()

    def combine_values(self, left: Any, right: Any) -> Any:
        """Raise: nobody but the class itself knows."""
        raise self._unknown()

    def _unknown(self) -> FieldsError:
        return FieldsError(
            f"the aggregate {self.name!r} is known by name only, from a store; it can be read, but "
            "not combined; expected the state as its topology declares it"
        )
