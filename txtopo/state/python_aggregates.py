"""First, Last, TopN and CountDistinct: aggregates that combine in Python, not in the store."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import json
import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

from txtopo.errors import FieldsError, SchemaDrift, ValueRefusedError
from txtopo.extras import require
from txtopo.state.aggregates import PythonAggregate, ordered, selected
from txtopo.tuples import Field, Fields

if TYPE_CHECKING:
    import datasketches
    import pyarrow as pa

    from txtopo.state.keyed_columns import KeyedRows


@dataclass(frozen=True, slots=True)
class _AtAnEnd(PythonAggregate):
    """First or last value, by an order field.

    After a shuffle the rows of a batch have no order, so a field has to define it. Between batches
    the txid decides: ``First`` keeps the value of the earlier txid and ``Last`` uses the value of
    the later one, regardless of the order field. Among rows with an equal order field the smaller
    (``First``) or larger (``Last``) value counts, so that the result does not depend on the number
    of tasks.
    """

    order: str | None = dataclasses.field(default=None, kw_only=True)
    by_txid: ClassVar[bool] = True

    @property
    def inputs(self) -> tuple[str, ...]:
        """The field and the order field."""
        return tuple(name for name in (self.field, self.order) if name is not None)

    def value_type(self, inputs: Fields) -> str:
        """Return the type of the input."""
        if self.order is None:
            kind = type(self).__name__
            raise FieldsError(
                f"{kind} needs the field that orders the rows of a batch, which have no order "
                f"after a shuffle; got {kind}({self.field!r}); "
                f"expected e.g. {kind}({self.field!r}, order='ts')",
                name=kind,
                field=self.field,
                setting="order",
            )
        ordered(self, selected(inputs, self.order))
        return self._input(inputs).type

    def partial_fields(self, name: str, inputs: Fields) -> list[Field]:
        """Return the columns of the value and of the order field."""
        assert self.order is not None
        place = selected(inputs, self.order)
        return [self.value_field(name, inputs), Field(f"{name} place", place.type)]

    def folded(self, rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Return the first or last row; rows in which value or order field is NULL are ignored."""
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


@dataclass(frozen=True, slots=True)
class TopN(PythonAggregate):
    """The *n* largest values of *field*, largest first; a ``json`` list.

    The field has any type that ``Max`` takes. A value is kept as often as it occurs in the input.
    With *labels* each entry is a list: the value, then the labels of its row. Of rows with equal
    values those with the larger JSON text of the labels are kept, and come first, so that the
    result does not depend on batches or on the number of tasks.

    JSON has numbers, text, true and false. All else is text there, which is exact: a decimal with
    all digits of its type, ``"12.30"``; a date, ``"2013-07-04"``; a timestamp,
    ``"2013-07-04T16:30:15.250000+00:00"``, in UTC; a ``timestamp_ntz`` without the zone.

    The value never falls. The largest *current* values of a table, also when values fall or keys
    go, are ``table.top(n, by=…)`` of :mod:`txtopo.streams`.

    Attributes:
        n: Number of values to keep; 1 to 10,000, since each write of a key carries all of them.
        labels: Names of fields that are kept with a value, and identify its row; not ``binary``.
        scale: How many digits decimal values have after the point. It is set for each input when
            the topology is built.

    Example:
        >>> TopN("delay", 3, labels=("flight",)).default_name
        'topn_delay'
    """

    n: int = 10
    labels: tuple[str, ...] = ()
    scale: int | None = dataclasses.field(default=None, kw_only=True)
    at_once: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if isinstance(self.labels, str):
            object.__setattr__(self, "labels", (self.labels,))
        object.__setattr__(self, "labels", tuple(self.labels))
        if type(self.n) is not int or not 1 <= self.n <= 10_000:
            raise FieldsError(
                f"bad n of TopN({self.field!r}); got {self.n!r}; expected 1 to 10000",
                field=self.field,
                setting="n",
                got=repr(self.n),
            )

    @property
    def inputs(self) -> tuple[str, ...]:
        """The field and its labels."""
        return (*(() if self.field is None else (self.field,)), *self.labels)

    def value_type(self, inputs: Fields) -> str:
        """Return ``json``."""
        ordered(self, self._input(inputs))
        for field in (selected(inputs, name) for name in self.labels):
            if field.type == "binary":
                raise FieldsError(
                    f"TopN keeps labels as JSON, which has no bytes; field {field.name!r} is "
                    "binary; expected another type; make it a string in the bolt above",
                    field=field.name,
                    got=field.type,
                )
        return "json"

    def of_inputs(self, inputs: Fields) -> TopN:
        """Return the aggregate with the scale of decimal values."""
        kind = self._input(inputs).type
        if not kind.startswith("decimal"):
            return self
        return dataclasses.replace(self, scale=int(kind[8:-1].split(",")[1]))

    def folded(self, rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Return the largest values of the rows; NULL is ignored.

        Raises:
            ValueRefusedError: A value is NaN or infinite, which JSON cannot represent.
        """
        for value in chain.from_iterable(rows):
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueRefusedError(
                    f"TopN({self.field!r}) keeps no {value}; expected finite numbers; filter it "
                    "out",
                    field=self.field,
                )
        known = [list(map(_in_json, row)) for row in rows if row[0] is not None]
        return (self._largest([row if self.labels else row[0] for row in known]),)

    def merged(self, partials: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Return the largest values of all partial results."""
        return (self._largest([entry for (value,) in partials for entry in value]),)

    def combine_values(self, left: Any, right: Any) -> Any:
        """Return the largest values of the stored ones and those of the batch."""
        return self._largest([*(left or ()), *(right or ())])

    def folded_at_once(self, rows: KeyedRows) -> pa.Array | None:
        """Return the largest values of the rows of each key; None if one is not finite."""
        from txtopo.state.largest_entries import largest_of_rows

        # A subclass may combine otherwise.
        return largest_of_rows(self.n, rows) if type(self) is TopN else None

    def united_at_once(self, values: KeyedRows) -> pa.Array | None:
        """Return the largest values of each key; None if a column of them has several types."""
        from txtopo.state.largest_entries import largest_of_texts

        if type(self) is not TopN:
            return None
        return largest_of_texts(self.n, len(self.labels), values, self.scale)

    def _largest(self, entries: list[Any]) -> list[Any]:
        if not self.labels:
            return nlargest(self.n, entries, key=self._ordered)
        return nlargest(
            self.n, entries, key=lambda entry: (self._ordered(entry[0]), json.dumps(entry[1:]))
        )

    def _ordered(self, value: Any) -> Any:
        # The text of a time is ordered as the time is; that of a decimal is not.
        return value if self.scale is None else decimal.Decimal(value)


def _in_json(value: Any) -> Any:
    """Return a value as JSON has it; ``largest_entries`` writes the same."""
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, datetime.datetime):
        return value.isoformat(timespec="microseconds")
    return value.isoformat() if isinstance(value, datetime.date) else value


@dataclass(frozen=True, slots=True)
class CountDistinct(PythonAggregate):
    """Estimated number of distinct values of *field*, without NULL. Readers see a ``long``.

    The standard error is 1.04 / sqrt(2 ** *precision*): 1.6 % with 12, so that 95 of 100 counts are
    within 3.3 % and 997 of 1000 within 5 %. Up to a few hundred values the count is exact except
    for rare collisions. It does not depend on the number of tasks or the order of rows.

    The column holds a sketch, an HLL of Apache DataSketches. It takes at most about 2 **
    *precision* / 2 bytes for a key, and less for a few values. The library can read it in any of
    its languages. Needs ``pip install 'txtopo[sketches]'``.

    Attributes:
        precision: 4 to 21; the sketch has 2 ** *precision* registers.
    """

    precision: int = 12

    def __post_init__(self) -> None:
        if type(self.precision) is not int or not 4 <= self.precision <= 21:
            raise FieldsError(
                f"bad precision of CountDistinct({self.field!r}); got {self.precision!r}; "
                "expected 4 to 21",
                field=self.field,
                setting="precision",
                got=repr(self.precision),
            )

    @property
    def default_name(self) -> str:
        """Default name of the value column."""
        return f"distinct_{self.field}"

    def value_type(self, inputs: Fields) -> str:
        """Return ``binary``.

        Raises:
            ConfigError: datasketches is not installed.
        """
        self._input(inputs)
        _library()
        return "binary"

    def folded(self, rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Return a sketch of the rows."""
        library = _library()
        sketch = library.hll_sketch(self.precision, library.HLL_4)
        for value in {value for (value,) in rows if value is not None}:
            sketch.update(_hashable(value))
        return (sketch.serialize_compact(),)

    def merged(self, partials: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Return the union of the sketches."""
        return (self._united([sketch for (sketch,) in partials]),)

    def combine_values(self, left: Any, right: Any) -> Any:
        """Return the union of the stored sketch and the sketch of the batch."""
        return right if left is None else self._united([left, right])

    def shown(self, value: Any) -> Any:
        """Return the estimate."""
        if value is None:
            return None
        # Unite the sketch with itself: the estimate of a sketch that was never united depends on
        # the order of values, and that on the number of tasks.
        return round(self._union([value, value]).get_estimate())

    def shown_type(self, stored: str) -> str:
        """Return ``long``, the type of the estimate."""
        return "long"

    def _united(self, sketches: Sequence[bytes]) -> bytes:
        result = self._union(sketches).get_result(_library().HLL_4)
        return bytes(result.serialize_compact())

    def _union(self, sketches: Sequence[bytes]) -> datasketches.hll_union:
        library = _library()
        union = library.hll_union(self.precision)
        for sketch in sketches:
            try:
                union.update(library.hll_sketch.deserialize(sketch))
            except (ValueError, TypeError, RuntimeError, IndexError, OverflowError) as error:
                raise SchemaDrift(
                    f"a column of CountDistinct holds a value that is not a sketch: {error}; got "
                    f"{sketch!r:.80}; was it changed by hand?",
                    name="CountDistinct",
                    got=f"{sketch!r:.80}",
                ) from error
        return union


def _hashable(value: Any) -> int | float | str:
    """Return a value that datasketches can hash; equal values of a column give equal ones."""
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return value
    # The library ignores an empty text, which is a value like any other.
    if isinstance(value, str):
        return f"={value}"
    if isinstance(value, bytes):
        return f"={value.hex()}"
    if isinstance(value, decimal.Decimal):
        return format(abs(value) if value.is_zero() else value, "f")
    assert isinstance(value, datetime.date)
    return value.isoformat()


def _library() -> Any:
    require("datasketches", "CountDistinct")
    import datasketches

    return datasketches
