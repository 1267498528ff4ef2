"""Columns: converts and checks keys and values from users before they reach a store.

A user passes a plain value for one field, and a tuple or list for several. Values of several fields
may also be a dict by name; a single ``json`` field accepts any of these as its value. Internally
keys and values are always tuples of exact Python types. :mod:`txtopo.fitting` decides what a field
holds for a value, for all stores and plug-ins and also for emitted tuples: so ``NaT`` is NULL, and
an enum of ``str`` is its text. A value that a store could not return exactly is refused here, and
the error names the state and the field.

A state may have no value columns: it keeps keys alone. The value of each key is then True, and an
empty tuple internally. So ``get(key, False)`` tells whether the state has a key.

A value of type ``json`` is stored as text, the same in every store: ASCII, on one line, names
sorted, without spaces. A read returns an equal Python value, so a value that JSON would change is
refused.
"""

from __future__ import annotations

import datetime
import decimal
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, Any, NoReturn

from txtopo.errors import SchemaDrift, StateUsageError, ValueRefusedError
from txtopo.fitting import NotExact, digits_of, exact_of
from txtopo.tuples import Field, Fields

if TYPE_CHECKING:
    import pyarrow as pa

_BITS = {"byte": 8, "short": 16, "int": 32, "long": 64}


@dataclass(frozen=True, slots=True)
class Columns:
    """The key or the value columns of a state.

    Attributes:
        state: Name of the state, for messages.
        part: ``"key"`` or ``"value"``.
        fields: The columns.
    """

    state: str
    part: str
    fields: Fields
    _json: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        places = (at for at, each in enumerate(self.fields) if each.type == "json")
        object.__setattr__(self, "_json", tuple(places))

    def pack(self, given: Any) -> tuple[Any, ...]:
        """Return a user's key or value as a tuple of exact values.

        Raises:
            StateUsageError: The number of values or a type is wrong; repair the bolt.
            ValueRefusedError: NULL or NaN in a key, or a value that does not fit its column.
        """
        return self.exact(self._split(given))

    def exact(self, parts: Sequence[Any]) -> tuple[Any, ...]:
        """Return one exact value for each field; raises as :meth:`pack` does."""
        return tuple(
            self._exact(field, part) for field, part in zip(self.fields, parts, strict=True)
        )

    def pack_all(self, given: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Return many keys or values as :meth:`pack` does, column by column where that is
        faster."""
        width, kinds = len(self.fields), set(map(type, given))
        if width == 1 and not any(issubclass(kind, dict | list | tuple) for kind in kinds):
            columns = [given]
        elif kinds == {tuple} and set(map(len, given)) == {width}:
            columns = list(zip(*given, strict=True))
        else:
            columns = list(zip(*map(self._split, given), strict=True))
        return list(tuples_of(self.exact_columns(columns), len(given))) if given else []

    def exact_columns(self, columns: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
        """Return columns with the exact types of the fields; raises as :meth:`pack` does."""
        nullable = self.part == "value"
        return [
            [self._exact(field, value) for value in column]
            if (exact := _exact_column(field.type, column, nullable=nullable)) is None
            else exact
            for field, column in zip(self.fields, columns, strict=True)
        ]

    def exact_arrays(self, rows: pa.Table) -> list[pa.ChunkedArray]:
        """Return the Arrow columns of the fields; raises as :meth:`pack` does.

        ``json`` is text, which is converted to the form that is stored.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        exact = []
        for each, declared in zip(self.fields, self.fields.arrow_schema(), strict=True):
            found = rows.schema.get_field_index(each.name)
            column = None if found < 0 else rows.column(found)
            if column is None or column.type != declared.type:
                raise StateUsageError(
                    f"wrong columns for state {self.state!r}; got {rows.schema.names} with "
                    f"{None if column is None else column.type} in {each.name!r}; expected "
                    f"{declared.type}; put_all takes Python values",
                    state=self.state,
                    field=each.name,
                )
            if self.part == "key" and column.null_count:
                self._exact(each, None)
            try:
                column.validate(full=True)
            except pa.ArrowInvalid as error:
                self._refuse(each, f"a column of {len(column)} rows", str(error))
            if each.type == "json" and column.null_count < len(column):
                column = self._exact_texts(each, column)
            if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
                self._check_years(each, column)
            if self.part == "key" and pa.types.is_floating(column.type):
                if pc.any(pc.is_nan(column)).as_py():
                    self._exact(each, math.nan)
                # -0.0 and 0.0 are one key: some stores would tell them apart, others would not.
                column = pc.add(column, pa.scalar(0.0, column.type))
            exact.append(column)
        return exact

    def _exact_texts(self, field: Field, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return the texts of json in the form that is stored."""
        import pyarrow as pa

        texts: list[str | None] = []
        for text in column.to_pylist():
            try:
                texts.append(None if text is None else self._exact(field, json.loads(text)))
            except (ValueError, RecursionError) as error:
                self._refuse(field, text, f"it is not JSON: {error}")
        return pa.chunked_array([pa.array(texts, column.type)])

    def _check_years(self, field: Field, column: pa.ChunkedArray) -> None:
        """Check that Python can represent the times or dates of a column."""
        import pyarrow as pa
        import pyarrow.compute as pc

        whole = pa.int32() if pa.types.is_date(column.type) else pa.int64()
        ends = (pa.scalar(end, column.type).cast(whole) for end in _YEARS[field.type])
        found = pc.min_max(column.cast(whole)).as_py()
        least, most = (end.as_py() for end in ends)
        for each in (found["min"], found["max"]):
            if each is not None and not least <= each <= most:
                unit = "days" if whole == pa.int32() else "microseconds"
                self._refuse(
                    field, f"{each} {unit} after 1970", "it is outside the years 1 to 9999"
                )

    def plain(self, packed: tuple[Any, ...]) -> Any:
        """Return a key in the form in which users give it."""
        return packed[0] if len(self.fields) == 1 else packed

    def named(self, packed: tuple[Any, ...]) -> Any:
        """Return values in the form in which users read them: plain, a dict by name, or True."""
        (named,) = self.named_all([packed])
        return named

    def named_all(self, packed: Sequence[tuple[Any, ...] | None]) -> list[Any]:
        """Return many values as :meth:`named` does; None for None."""
        if self._json:
            packed = [None if values is None else self.opened(values) for values in packed]
        if len(self.fields) == 1:
            return [None if values is None else values[0] for values in packed]
        if not self.fields:
            return [None if values is None else True for values in packed]
        names = self.fields.names
        return [
            None if values is None else dict(zip(names, values, strict=True)) for values in packed
        ]

    def opened(self, packed: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return values with each ``json`` text replaced by its value."""
        for place in self._json:
            if packed[place] is not None:
                break
        else:
            return packed
        return tuple(
            json_value(value) if field.type == "json" and value is not None else value
            for field, value in zip(self.fields, packed, strict=True)
        )

    def _split(self, given: Any) -> tuple[Any, ...] | list[Any]:
        if len(self.fields) == 1 and self.fields[0].type == "json":
            return (given,)
        if self.part == "value" and isinstance(given, Mapping):
            if set(given) == set(self.fields.names):
                return [given[name] for name in self.fields.names]
        elif isinstance(given, tuple | list):
            if len(given) == len(self.fields):
                return given
        elif len(self.fields) == 1:
            return (given,)
        elif not self.fields and given is True:
            return ()
        expected = f"the fields {', '.join(self.fields.names)}"
        if not self.fields:
            expected = "True, because the state keeps only keys, without value columns"
        raise StateUsageError(
            f"wrong {self.part} for state {self.state!r}; got {given!r}; expected {expected}",
            state=self.state,
        )

    def _exact(self, field: Field, given: Any) -> Any:
        kind, value = field.type, given
        try:
            if value is not None:
                value = _json(value) if kind == "json" else exact_of(kind)(value)
        except NotExact as error:
            self._refuse(field, value, str(error))
        except TypeError as error:
            raise StateUsageError(
                f"wrong type in field {field.name!r} of state {self.state!r}; got {value!r} "
                f"({type(value).__name__}); expected {kind}{_hint(kind)}",
                state=self.state,
                field=field.name,
            ) from error
        if self.part == "key":
            if value is None:
                self._refuse(field, given, "a key cannot be NULL")
            if type(value) is float:
                if value != value:
                    self._refuse(
                        field, value, "a key cannot be NaN, which is not equal to anything"
                    )
                # -0.0 and 0.0 are one key: some stores would tell them apart, others would not.
                return value + 0.0
        return value

    def _refuse(self, field: Field, value: Any, why: str) -> NoReturn:
        raise ValueRefusedError(
            f"state {self.state!r} refuses a value of {self.part} field {field.name!r} "
            f"({field.type}); got {value!r}; {why}",
            state=self.state,
            field=field.name,
        )


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def values_of(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return the values of an Arrow column as Python values."""
    import pyarrow as pa

    values: list[Any]
    if column.type != pa.timestamp("us", tz="UTC"):
        values = column.to_pylist()
        return values
    # Arrow takes nine times as long: it creates a time zone for each value.
    values = column.cast(pa.int64()).to_pylist()
    moved, epoch = datetime.timedelta, _EPOCH
    if column.null_count:
        return [None if us is None else epoch + moved(0, 0, us) for us in values]
    return [epoch + moved(0, 0, us) for us in values]


def rows_of(batch: pa.RecordBatch) -> Iterable[tuple[Any, ...]]:
    """Return the rows of a record batch as Python values."""
    return tuples_of(list(map(values_of, batch.columns)), batch.num_rows)


def tuples_of(columns: Sequence[Sequence[Any]], count: int) -> Iterable[tuple[Any, ...]]:
    """Return *count* rows that are given by column; of no columns, as many empty rows."""
    # zip() of no columns has no rows.
    return zip(*columns, strict=True) if columns else repeat((), count)


_EXACTLY = {"string": str, "boolean": bool, "timestamp": datetime.datetime}


# The first and the last value of a type that Python can represent.
_YEARS: dict[str, tuple[Any, Any]] = {
    "date": (datetime.date.min, datetime.date.max),
    "timestamp_ntz": (datetime.datetime.min, datetime.datetime.max),
    "timestamp": (
        datetime.datetime.min.replace(tzinfo=datetime.UTC),
        datetime.datetime.max.replace(tzinfo=datetime.UTC),
    ),
}


def _exact_column(kind: str, column: Sequence[Any], *, nullable: bool) -> Sequence[Any] | None:
    """Return the exact values of a column, if their types alone show that they are exact.

    That is ten times faster than checking each value. None means that each must be checked.
    """
    kinds, given = set(map(type, column)), column
    if nullable and type(None) in kinds:
        kinds.discard(type(None))
        given = [value for value in column if value is not None]
    if not kinds:
        return column
    if kinds == {decimal.Decimal} and len(given) == len(column) and kind.startswith("decimal"):
        return _exact_decimals(kind, column)
    return column if _fits(kind, given, kinds) else None


def _fits(kind: str, column: Sequence[Any], kinds: set[type]) -> bool:
    """Return whether all values of a column are already exact."""
    if kind in _BITS and kinds == {int}:
        limit = 1 << (_BITS[kind] - 1)
        return bool(-limit <= min(column) and max(column) < limit)
    if kinds != {_EXACTLY.get(kind)}:
        return False
    return kind != "timestamp" or {value.tzinfo for value in column} == {datetime.UTC}


def _exact_decimals(kind: str, column: Sequence[decimal.Decimal]) -> list[decimal.Decimal] | None:
    digits, context = digits_of(kind)
    try:
        exact = [value.quantize(digits, None, context) for value in column]
    except (decimal.InvalidOperation, decimal.Inexact):
        return None
    # A zero may have a sign, and NaN is not a number.
    return exact if all(exact) and not any(map(decimal.Decimal.is_nan, exact)) else None


def _hint(kind: str) -> str:
    if kind == "json":
        return ", a value made of dicts with string names, lists, str, int, float, bool and None"
    if kind == "timestamp":
        return " (a datetime with a time zone)"
    return " (a datetime without a time zone)" if kind == "timestamp_ntz" else ""


def _json(value: Any) -> str:
    try:
        return json_text(value)
    except NotExactlyJson as error:
        raise NotExact(str(error)) from error


_LIMIT = 2**63

# Created once: json.dumps would create one for each text.
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


class NotExactlyJson(Exception):
    """JSON would return a different value."""


def json_text(value: Any) -> str:
    """Return the text of a value.

    Raises:
        TypeError: It is not made of dict, list, str, int, float, bool and None.
        NotExactlyJson: It is of these types, but JSON cannot hold it exactly.
    """
    try:
        _check(value)
        text = _ENCODER.encode(value)
        # JSON reads two adjacent surrogates as one character: a different text, or a different
        # name.
        if "\\ud" in text and json.loads(text) != value:
            raise NotExactlyJson("a character is written as two surrogates, which json would join")
        return text
    except RecursionError as error:
        raise NotExactlyJson("it is nested too deeply, or contains itself") from error


def json_value(text: str) -> Any:
    """Return the value that this JSON text represents.

    Raises:
        SchemaDrift: The text is not JSON; txtopo did not write it.
    """
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise SchemaDrift(
            f"a column of json holds something else: {error}; got {text!r:.80}; was it changed by "
            "hand?",
            got=f"{text!r:.80}",
        ) from error


def _check(value: Any) -> None:
    kind = type(value)
    if kind is dict:
        for name, part in value.items():
            if type(name) is not str:
                raise TypeError(f"names in json are strings; got {name!r:.100}")
            _check(part)
    elif kind is list:
        for part in value:
            _check(part)
    elif kind is int:
        if not -_LIMIT <= value < _LIMIT:
            raise NotExactlyJson("a whole number in json has at most 64 bits")
    elif kind is float:
        if not math.isfinite(value):
            raise NotExactlyJson("json has no NaN and no infinity")
    elif value is not None and kind not in (str, bool):
        raise TypeError(f"json has no {kind.__name__}; got {value!r:.100}")
