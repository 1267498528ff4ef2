"""Fitting: which value a field of a declared type holds for a given one, and which do not fit.

All ways of a value into a field ask here: what a bolt or spout emits, what a committer puts into a
state, and what a spout or lookup reads. A value is held exactly or refused; none is cut.

Given values (:func:`exact`)
----------------------------
A value of the user's program has the type of its field, or one that Python takes for it: a subclass
(an enum of ``str``, a ``Timestamp`` of pandas), a scalar of NumPy, a whole number for a ``double``.
It becomes a value of the plain Python type. ``NaT`` is not a time, so it becomes None. Refused are
parts of a microsecond, and whole numbers that a ``double`` or ``float`` does not have. Only a
``float`` may round: Python has no type with its 24 bits, so a ``float`` of Python becomes the
nearest one.

Columns of Arrow may be the memory of somebody else, such as an array of NumPy that a program fills
again, and Arrow does not know. So columns that are held after a call are copied (:func:`owned`).

Values that were read (:func:`fitted_values`, :func:`fitted_array`)
-------------------------------------------------------------------
A database or file has types of its own, so a column may have another type than its field as long as
every value in it is the same value in the field: 12.00 is the ``long`` 12, and 5.50 is none. A
binary number means the digits that it shows. So 0.5 is a ``decimal(10,2)``, 1.005 is none, and a
decimal is a ``double`` if that shows its digits.

Types that have nothing in common are refused whatever the values are: a number is not a time, since
nothing says what it counts, nor is it a text. A time with a zone is not a ``timestamp_ntz`` or a
``date``, since what the clock shows depends on the zone. A time without one is a ``timestamp`` in
UTC. A column of Arrow has one type, and :data:`FITTING` says which fields it may have.

A column of texts, as in CSV or a Parquet file, is read as what it shows: numbers in decimal digits,
and infinity only where the text says so (:func:`check_texts`).
"""

from __future__ import annotations

import datetime
import decimal
import math
import struct
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

_BITS = {"byte": 8, "short": 16, "int": 32, "long": 64}

_EPOCH = datetime.datetime(1970, 1, 1)

# How many of a unit of NumPy are a microsecond.
_FINER = {"ns": 10**3, "ps": 10**6, "fs": 10**9, "as": 10**12}

# Half the distance to the next number that a ``float`` would have, beyond its largest one.
_FLOAT_END = 2.0**128 - 2.0**103


# Below this size a copy takes less time than to find out how much of the memory is used.
_SMALL_BYTES = 1 << 16


class NotExact(ValueError):
    """The value is of the right type, but its field cannot hold it exactly."""


def exact(kind: str, value: Any) -> Any:
    """Return the value that a field stores for a value of a user; None for ``NaT``.

    Args:
        kind: Type of the field, not ``json``.
        value: The value, not None.

    Raises:
        TypeError: The value has another type than the field.
        NotExact: The field cannot hold it exactly.
    """
    return exact_of(kind)(value)


@cache
def exact_of(kind: str) -> Callable[[Any], Any]:
    """Return :func:`exact` for one type of field."""
    name = kind.partition("(")[0]
    if name in _BITS:
        return partial(_whole, name)
    if name == "decimal":
        return partial(_decimal, kind)
    return {
        "string": _string,
        "binary": _binary,
        "boolean": _boolean,
        "float": _float,
        "double": _double,
        "date": _date,
        "timestamp": _instant,
        "timestamp_ntz": _wall_clock,
    }[name]


def moment(value: Any) -> datetime.datetime | None:
    """Return a date with a time as a plain ``datetime``, with or without a zone; None for ``NaT``.

    Raises:
        TypeError: It is not a datetime.
        NotExact: It has parts of a microsecond, or is in a year that Python does not have.
    """
    if type(value) is datetime.datetime:
        return value
    value = _native(value)
    if value is None or type(value) is datetime.datetime:
        return value
    if not isinstance(value, datetime.datetime):
        raise TypeError
    if value != value:
        return None
    if getattr(value, "nanosecond", 0):
        raise NotExact("it has parts of a microsecond")
    try:
        day = value.year, value.month, value.day
        time = value.hour, value.minute, value.second, value.microsecond
        return datetime.datetime(*day, *time, value.tzinfo, fold=value.fold)
    except (ValueError, OverflowError) as error:
        raise NotExact("it is outside the years 1 to 9999") from error


def _instant(value: Any) -> datetime.datetime | None:
    found = moment(value)
    if found is None or (found.tzinfo is datetime.UTC and not found.fold):
        return found
    if found.tzinfo is None:
        raise TypeError
    try:
        return found.astimezone(datetime.UTC).replace(fold=0)
    except (ValueError, OverflowError) as error:
        raise NotExact("it is outside the years 1 to 9999 in UTC") from error


def _wall_clock(value: Any) -> datetime.datetime | None:
    found = moment(value)
    if found is None:
        return None
    if found.tzinfo is not None:
        raise TypeError
    return found.replace(fold=0) if found.fold else found  # no store keeps it


def _date(value: Any) -> datetime.date | None:
    if type(value) is datetime.date:
        return value
    if isinstance(value, datetime.datetime) and value != value:
        return None
    if not isinstance(value, datetime.date) or isinstance(value, datetime.datetime):
        raise TypeError
    return datetime.date(value.year, value.month, value.day)


def _string(value: Any) -> str:
    if type(value) is str:
        return value
    if not isinstance(value, str):
        raise TypeError
    return str.__str__(value)  # that of an enum is the name of the member


def _binary(value: Any) -> bytes:
    if type(value) is bytes:
        return value
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError
    return memoryview(value).tobytes()


def _boolean(value: Any) -> bool:
    if type(value) is bool:
        return value
    value = _native(value)
    if not isinstance(value, bool):
        raise TypeError
    return value


def _whole(kind: str, value: Any) -> int:
    if type(value) is not int:
        value = _native(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError
        value = int.__int__(value)
    limit = 1 << (_BITS[kind] - 1)
    if not -limit <= value < limit:
        raise NotExact(f"a {kind} holds {-limit} to {limit - 1}")
    return int(value)


def _double(value: Any) -> float:
    if type(value) is float:
        return value
    value = _native(value)
    if isinstance(value, float):
        return float.__float__(value)
    return _from_whole("double", value, float)


def _float(value: Any) -> float:
    value = _native(value)
    if not isinstance(value, float):
        return _from_whole("float", value, _rounded)
    try:
        return _rounded(float.__float__(value))
    except OverflowError as error:
        raise NotExact("it is beyond the range of a float") from error


def _from_whole(kind: str, value: Any, convert: Callable[[int], float]) -> float:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError
    value = int.__int__(value)
    try:
        number = convert(value)
    except OverflowError as error:
        raise NotExact(f"it is beyond the range of a {kind}") from error
    if number != value:
        raise NotExact(f"no {kind} equals this number; the nearest is {number:.0f}")
    return number


def _rounded(number: float) -> float:
    """Return the nearest number of 24 bits."""
    if not math.isfinite(number):
        return number
    (nearest,) = struct.unpack("<f", struct.pack("<f", number))
    return float(nearest)


def _decimal(kind: str, value: Any) -> decimal.Decimal:
    if type(value) is not decimal.Decimal:
        value = _native(value)
        if isinstance(value, bool) or not isinstance(value, int | decimal.Decimal):
            raise TypeError
        value = decimal.Decimal(int.__int__(value) if isinstance(value, int) else value)
    digits, context = digits_of(kind)
    try:
        found: decimal.Decimal = value.quantize(digits, None, context)
    except (decimal.InvalidOperation, decimal.Inexact) as error:
        raise NotExact("it has more digits than its column") from error
    if not found.is_finite():
        raise NotExact("a decimal is a number")
    # Neither SQL nor Arrow knows the sign of a decimal zero.
    return found.copy_abs() if found.is_zero() else found


@cache
def digits_of(kind: str) -> tuple[decimal.Decimal, decimal.Context]:
    """Return the smallest step of a decimal type, and a context that refuses more digits.

    Made once: they took most of the time of a value.
    """
    precision, scale = (int(part) for part in kind[8:-1].split(","))
    traps = [decimal.InvalidOperation, decimal.Inexact]
    return decimal.Decimal((0, (1,), -scale)), decimal.Context(prec=precision, traps=traps)


def _native(value: Any) -> Any:
    """Return a scalar of NumPy as a value of Python; every other value as it is."""
    numpy = sys.modules.get("numpy")  # who has not imported it gives none of its scalars
    if numpy is None or not isinstance(value, numpy.generic) or isinstance(value, str | bytes):
        return value
    if isinstance(value, numpy.datetime64):
        return _from_numpy(value, numpy)
    if isinstance(value, numpy.longdouble):
        number = float(value)
        if number != value and value == value:
            raise NotExact("it has more than the 53 bits of a double")
        return number
    return value.item()


def _from_numpy(value: Any, numpy: Any) -> datetime.datetime | None:
    if numpy.isnat(value):
        return None
    unit, count = numpy.datetime_data(value.dtype)
    try:
        if unit in _FINER:
            us, rest = divmod(int(value.astype(numpy.int64)) * count, _FINER[unit])
            if rest:
                raise NotExact("it has parts of a microsecond")
            return _EPOCH + datetime.timedelta(microseconds=us)
        found = value.item()
    except OverflowError as error:
        raise NotExact("it is outside the years 1 to 9999") from error
    if isinstance(found, datetime.datetime):
        return found
    if isinstance(found, datetime.date):
        return datetime.datetime(found.year, found.month, found.day)
    raise NotExact("it is outside the years 1 to 9999")


def owned(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a copy of a record batch, so that the memory of the original can be used again.

    It takes 10 µs for 10,000 words.
    """
    import pyarrow as pa

    held = batch.get_total_buffer_size()
    if held > _SMALL_BYTES and held > 2 * batch.nbytes:
        batch = pa.concat_batches([batch])  # a slice of much more, which is left out
    return batch.copy_to(pa.default_cpu_memory_manager())


def fitted_values(kind: str, values: Sequence[Any]) -> Sequence[Any]:
    """Return the values that a field stores for values read by a database driver, None for NULL.

    Raises:
        TypeError: A value has a type that has nothing in common with the field.
        NotExact: The field cannot hold a value exactly.
    """
    name = kind.partition("(")[0]
    if set(map(type, values)) <= {_READ_AS[name], type(None)} and name not in _LOOKED_AT:
        return values
    return [None if value is None else _fitted_value(kind, name, value) for value in values]


_READ_AS: dict[str, type] = {
    "string": str,
    "binary": bytes,
    "boolean": bool,
    **dict.fromkeys(_BITS, int),
    "float": float,
    "double": float,
    "decimal": decimal.Decimal,
    "date": datetime.date,
    "timestamp": datetime.datetime,
    "timestamp_ntz": datetime.datetime,
}

# Types of fields that do not hold all values of the type in which they are read.
_LOOKED_AT = frozenset({"float", "timestamp_ntz"})


def _fitted_value(kind: str, name: str, value: Any) -> Any:
    if name in _BITS:
        return exact(kind, _as_whole(value))
    if name in ("float", "double") and isinstance(value, decimal.Decimal):
        return exact(kind, _as_double(value) if name == "double" else float(value))
    if name == "decimal" and isinstance(value, float):
        return exact(kind, decimal.Decimal(repr(float(value))))
    if name == "boolean" and type(value) in (int, bytes):
        return _as_boolean(value)
    if name == "date" and isinstance(value, datetime.datetime):
        return _day(value)
    if name in ("timestamp", "timestamp_ntz"):
        if type(value) is datetime.date:
            return datetime.datetime(value.year, value.month, value.day)
        found = moment(value)
        return found if name == "timestamp" else without_zone(found)
    if name == "string" and isinstance(value, bytes):
        return value.decode()
    if name == "binary" and isinstance(value, str):
        return value.encode()
    return exact(kind, value)


def without_zone(found: datetime.datetime | None) -> datetime.datetime | None:
    """Return a time that has no zone.

    Raises:
        NotExact: It has one: then which clock it shows is a matter of the zone.
    """
    if found is not None and found.tzinfo is not None:
        raise NotExact("it has a time zone, and a timestamp_ntz has none; a timestamp holds it")
    return found


def _day(value: datetime.datetime) -> datetime.date:
    if value.tzinfo is not None:
        raise NotExact("it has a time zone, and its date depends on the zone")
    if value.time() != datetime.time():
        raise NotExact("it has a time, and a date has none")
    return value.date()


def _as_whole(value: Any) -> Any:
    """Return a number as a whole number, if it is one."""
    if not isinstance(value, float | decimal.Decimal):
        return value
    if not math.isfinite(value) or value != int(value):
        raise NotExact("it is not a whole number")
    return int(value)


def _as_double(value: decimal.Decimal) -> float:
    number = float(value)
    if value.is_finite() and decimal.Decimal(repr(number)) != value:
        raise NotExact("it has more digits than a double shows")
    return number


def _as_boolean(value: int | bytes) -> bool:
    number = int.from_bytes(value) if isinstance(value, bytes) else value  # BIT(1) of MySQL
    if number not in (0, 1):
        raise NotExact("a boolean is 0 or 1")
    return bool(number)


FITTING: dict[str, frozenset[str]] = {
    "text": frozenset({"text", "bytes"}),
    "bytes": frozenset({"bytes", "text"}),
    "boolean": frozenset({"boolean", "whole number", "text"}),
    "whole number": frozenset({"whole number", "binary number", "decimal", "text"}),
    "binary number": frozenset({"binary number", "whole number", "decimal", "text"}),
    "decimal": frozenset({"decimal", "whole number", "binary number", "text"}),
    "date": frozenset({"date", "time without zone", "text"}),
    "time without zone": frozenset({"time without zone", "date", "text"}),
    "moment": frozenset({"moment", "time without zone", "date", "text"}),
}
"""The kinds of columns of Arrow that a field of a kind is read from, by :func:`kind_of`."""


def kind_of(found: pa.DataType) -> str | None:
    """Return the kind of values of an Arrow type; None if no field has values of this kind."""
    from pyarrow import types

    if types.is_timestamp(found):
        return "time without zone" if found.tz is None else "moment"
    kinds = {
        "text": (types.is_string, types.is_large_string, types.is_string_view),
        "bytes": (
            *(types.is_binary, types.is_large_binary),
            *(types.is_binary_view, types.is_fixed_size_binary),
        ),
        "boolean": (types.is_boolean,),
        "whole number": (types.is_integer,),
        "binary number": (types.is_floating,),
        "decimal": (types.is_decimal,),
        "date": (types.is_date,),
    }
    return next((name for name, tests in kinds.items() if any(t(found) for t in tests)), None)


def fitted_array(column: pa.Array, declared: pa.DataType) -> pa.Array:
    """Return a column of Arrow, or a chunked one, in another type that has all its values.

    Raises:
        TypeError: Values of the one type are not values of the other; see :data:`FITTING`.
        ValueError: A value does not fit, which is also what Arrow raises.
    """
    from pyarrow import types

    found = column.type
    if found == declared:
        return column
    if types.is_dictionary(found):
        return fitted_array(column.cast(found.value_type), declared)
    if types.is_null(found):
        return column.cast(declared)
    from_kind, to_kind = kind_of(found), kind_of(declared)
    if to_kind is None or from_kind not in FITTING[to_kind]:
        why = _UNLIKE.get((from_kind, to_kind), "they have nothing in common")
        raise TypeError(f"{found} cannot become {declared}: {why}")
    if from_kind == "text" and to_kind not in ("text", "bytes"):
        return _from_texts(column, declared)
    return _CONVERTED.get((from_kind, to_kind), _cast)(column, declared)


_UNLIKE: dict[tuple[str | None, str | None], str] = {
    ("whole number", "date"): "nothing says what the number counts",
    ("whole number", "time without zone"): "nothing says what the number counts",
    ("whole number", "moment"): "nothing says what the number counts",
    ("moment", "time without zone"): "the clock of a moment depends on the zone",
    ("moment", "date"): "the date of a moment depends on the zone",
}


def _cast(column: pa.Array, declared: pa.DataType) -> pa.Array:
    return column.cast(declared)


def _back_again(column: pa.Array, declared: pa.DataType) -> pa.Array:
    """Cast a column, where Arrow would cut values without refusing them."""
    import pyarrow.compute as pc

    cast = column.cast(declared)
    if pc.any(pc.not_equal(cast.cast(column.type), column)).as_py():
        raise NotExact(f"a value of {column.type} is not a {cast.type}")
    return cast


def _from_texts(column: pa.Array, declared: pa.DataType) -> pa.Array:
    import pyarrow as pa

    texts = column.cast(pa.string())
    cast = texts.cast(declared)
    check_texts(texts, cast)
    return cast


def check_texts(texts: pa.Array, read: pa.Array) -> None:
    """Check the numbers that Arrow read from texts, of CSV as well.

    It reads a number that is too large as infinity, and hexadecimal digits as a whole number.

    Raises:
        NotExact: It has done so. Infinity is ``inf`` or ``infinity``, whatever the case.
    """
    import pyarrow.compute as pc
    from pyarrow import types

    def has(part: str) -> pa.Array:
        return pc.match_substring(texts, part, ignore_case=True)

    if types.is_floating(read.type) and pc.any(pc.and_not(pc.is_inf(read), has("inf"))).as_py():
        raise NotExact(f"a number is beyond the range of a {read.type}")
    if types.is_integer(read.type) and pc.any(has("x")).as_py():
        raise NotExact("a whole number has hexadecimal digits; expected decimal ones")


def _other_floats(column: pa.Array, declared: pa.DataType) -> pa.Array:
    import pyarrow.compute as pc

    cast = column.cast(declared)
    if pc.any(pc.and_not(pc.is_inf(cast), pc.is_inf(column))).as_py():
        raise NotExact(f"a value of {column.type} is beyond the range of a {cast.type}")
    return cast


def _scaled(column: pa.Array, declared: pa.DataType) -> pa.Array:
    """Give whole numbers as many digits as they may have: Arrow looks at types, not at values."""
    import pyarrow as pa

    return column.cast(pa.decimal128(20, 0)).cast(declared)


def _from_decimals(column: pa.Array, declared: pa.DataType) -> pa.Array:
    import pyarrow as pa

    found = column.type
    if found.bit_width < 128:  # Arrow casts to few types from those
        column = column.cast(pa.decimal128(found.precision, found.scale))
    return column.cast(declared)


def _bytes(column: pa.Array, declared: pa.DataType) -> pa.Array:
    import pyarrow as pa

    return column.cast(pa.binary()).cast(declared)


def check_floats(values: Sequence[Any]) -> None:
    """Check that numbers are in the range of a ``float``.

    Raises:
        NotExact: One would become infinite.
    """
    for value in values:
        if value is not None and math.isfinite(value) and abs(value) >= _FLOAT_END:
            raise NotExact("it is beyond the range of a float")


def _shown_digits(column: pa.Array, declared: pa.DataType) -> pa.Array:
    import pyarrow as pa

    shown = column.cast(pa.string()).to_pylist()
    kind = f"decimal({declared.precision},{declared.scale})"
    values = [None if each is None else exact(kind, decimal.Decimal(each)) for each in shown]
    return _array_like(column, values, declared)


def _shown_floats(column: pa.Array, declared: pa.DataType) -> pa.Array:
    kind = "double" if declared.bit_width == 64 else "float"
    return _array_like(column, fitted_values(kind, column.to_pylist()), declared)


def _array_like(column: pa.Array, values: Sequence[Any], declared: pa.DataType) -> pa.Array:
    import pyarrow as pa

    made = pa.array(values, declared)
    return pa.chunked_array([made]) if isinstance(column, pa.ChunkedArray) else made


_CONVERTED: dict[tuple[str | None, str], Callable[[pa.Array, pa.DataType], pa.Array]] = {
    ("bytes", "text"): _bytes,
    ("bytes", "bytes"): _bytes,
    ("whole number", "boolean"): _back_again,
    ("whole number", "decimal"): _scaled,
    ("binary number", "binary number"): _other_floats,
    ("binary number", "decimal"): _shown_digits,
    ("decimal", "binary number"): _shown_floats,
    ("decimal", "whole number"): _from_decimals,
    ("decimal", "decimal"): _from_decimals,
    ("date", "date"): _back_again,
    ("time without zone", "date"): _back_again,
}
