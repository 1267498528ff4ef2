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
    """Return what a field holds for a value that a user gave; None for ``NaT``.

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
    """Return a date with a time as a plain one, with its zone or without; None for ``NaT``.

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
    if found is None or found.tzinfo is datetime.UTC:
        return found
    if found.tzinfo is None:
        raise TypeError
    try:
        return found.astimezone(datetime.UTC)
    except (ValueError, OverflowError) as error:
        raise NotExact("it is outside the years 1 to 9999 in UTC") from error


def _wall_clock(value: Any) -> datetime.datetime | None:
    found = moment(value)
    if found is not None and found.tzinfo is not None:
        raise TypeError
    return found


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
        raise NotExact(f"no {kind} is this number; the nearest one is {number:.0f}")
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
    """Return a number with the digits of a decimal type, and what refuses more of them.

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
    """Return a copy of a record batch, which stays as it is when its memory is used again.

    It takes 10 µs for 10,000 words.
    """
    import pyarrow as pa

    if batch.get_total_buffer_size() > max(_SMALL_BYTES, 2 * batch.nbytes):
        batch = pa.concat_batches([batch])  # a slice of much more, which is left out
    return batch.copy_to(pa.default_cpu_memory_manager())


def fitted_values(kind: str, values: Sequence[Any]) -> Sequence[Any]:
    """Return what a field holds for values that the driver of a database read, None for NULL.

    Raises:
        TypeError: A value has a type that has nothing in common with the field.
        NotExact: The field cannot hold a value exactly.
    """
    name = kind.partition("(")[0]
    if set(map(type, values)) <= {_READ_AS[name], type(None)} and name != "float":
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
        if value.time() != datetime.time():
            raise NotExact("it has a time, and a date has none")
        return value.date()
    if name in ("timestamp", "timestamp_ntz"):
        if type(value) is datetime.date:
            return datetime.datetime(value.year, value.month, value.day)
        return moment(value)
    if name == "string" and isinstance(value, bytes):
        return value.decode()
    if name == "binary" and isinstance(value, str):
        return value.encode()
    return exact(kind, value)


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


def fitted_array(column: pa.Array, declared: pa.DataType) -> pa.Array:
    """Return a column of Arrow, or a chunked one, in another type that has all its values.

    Raises:
        ValueError: A value does not fit, which is also what Arrow raises.
        NotImplementedError: Arrow cannot cast one type to the other.
    """
    from pyarrow import types

    found = column.type
    if found == declared:
        return column
    if types.is_dictionary(found):
        return fitted_array(column.cast(found.value_type), declared)
    if types.is_floating(found) and types.is_decimal(declared):
        return _shown_digits(column, declared)
    if types.is_decimal(found) and types.is_float64(declared):
        return _as_doubles(column, declared)
    cast = column.cast(declared)
    if types.is_floating(declared) and types.is_floating(found):
        _check_overflow(column, cast)
    elif (types.is_boolean(declared) and not types.is_string(found)) or (
        types.is_date(declared) and types.is_timestamp(found)
    ):
        _check_same(column, cast)
    return cast


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
    made = pa.array(values, declared)
    return pa.chunked_array([made]) if isinstance(column, pa.ChunkedArray) else made


def _as_doubles(column: pa.Array, declared: pa.DataType) -> pa.Array:
    import pyarrow as pa

    values = [None if each is None else _as_double(each) for each in column.to_pylist()]
    made = pa.array(values, declared)
    return pa.chunked_array([made]) if isinstance(column, pa.ChunkedArray) else made


def _check_overflow(column: pa.Array, cast: pa.Array) -> None:
    import pyarrow.compute as pc

    if pc.any(pc.and_not(pc.is_inf(cast), pc.is_inf(column))).as_py():
        raise NotExact(f"a value of {column.type} is beyond the range of a {cast.type}")


def _check_same(column: pa.Array, cast: pa.Array) -> None:
    import pyarrow.compute as pc

    if pc.any(pc.not_equal(cast.cast(column.type), column)).as_py():
        raise NotExact(f"a value of {column.type} is not a {cast.type}")
