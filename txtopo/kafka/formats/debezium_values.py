"""The values of columns in Debezium's records, by what the schema says they mean.

A record with a schema (``schemas.enable``, or Avro) says of each column which Connect type it has
and which *semantic type*, such as ``io.debezium.time.MicroTimestamp``. Then nothing has to be
guessed. Without one, the declared type decides, and where several settings of the connector would
look alike, the format must be told which one it is: a number may be milliseconds or microseconds, a
text may be base64 or digits. Otherwise the value is refused.

=====================  ========================================================================
declared type          accepted
=====================  ========================================================================
string                 text: also of enums, Json, Xml, Uuid, ZonedTimestamp; a time of day of a
                       known unit, as ``"08:30:00.5"``; no bytes, which are base64 in JSON
boolean                true and false; 0 and 1
byte, short, int,      a whole number that is not a time, since its unit may change with the column
long
float, double          a number; ``"NaN"``, ``"Infinity"``, ``"-Infinity"``
decimal                Connect's Decimal (``precise``), VariableScaleDecimal, a number (``double``),
                       text (``string``)
binary                 bytes; base64, base64-url-safe or hex
date                   days since 1970; ISO 8601
timestamp,             milliseconds, microseconds or nanoseconds since 1970; ISO 8601. Times without
timestamp_ntz          a zone are what the clock showed, taken as UTC
=====================  ========================================================================

A value is held exactly or refused, as everywhere: parts of a microsecond, more digits than the
column has, or the infinity of PostgreSQL's times.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import decimal
import math
import re
import struct
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

TimeUnit = Literal["milliseconds", "microseconds", "nanoseconds"]
DecimalMode = Literal["precise", "string"]
BinaryMode = Literal["base64", "base64-url-safe", "hex"]


class ColumnMeaning(NamedTuple):
    """What a schema says of a column; all None if there is no schema.

    Attributes:
        kind: The Connect type: ``int64``, ``bytes``, ``string``, ``struct`` …
        name: The semantic type; None if the type has none.
        scale: The scale of a decimal.
    """

    kind: str | None = None
    name: str | None = None
    scale: int | None = None


class Encodings(NamedTuple):
    """What the user says of values that do not say it themselves.

    Attributes:
        times: The unit of times.
        decimals: How decimals are written.
        binary: How bytes are written.
    """

    times: TimeUnit | None = None
    decimals: DecimalMode | None = None
    binary: BinaryMode | None = None


Convert = Callable[[Any], object]

UNKNOWN = ColumnMeaning()

_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_ISO_TIMESTAMP = "io.debezium.time.IsoTimestamp"

# How many nanoseconds a number stands for.
_UNITS_NS = {"milliseconds": 1_000_000, "microseconds": 1_000, "nanoseconds": 1}
_TIMESTAMPS_NS = {
    "io.debezium.time.Timestamp": 1_000_000,
    "io.debezium.time.MicroTimestamp": 1_000,
    "io.debezium.time.NanoTimestamp": 1,
    "org.apache.kafka.connect.data.Timestamp": 1_000_000,
}
_TIMES_OF_DAY_NS = {
    "io.debezium.time.Time": 1_000_000,
    "io.debezium.time.MicroTime": 1_000,
    "io.debezium.time.NanoTime": 1,
    "org.apache.kafka.connect.data.Time": 1_000_000,
}
_DATES = ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date")
_TIMES = (*_TIMESTAMPS_NS, *_TIMES_OF_DAY_NS, *_DATES)

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)

_FRACTION = re.compile(r"(\.\d{6})(\d+)")

# A number with more digits than a column has; Inexact signals that digits were lost.
_ALL_DIGITS = decimal.Context(prec=200, traps=[decimal.Inexact, decimal.InvalidOperation])

# A column has at most 38 digits; longer numbers are refused before they are computed with.
_DIGITS_MAX = 100


def converter(declared: str, meaning: ColumnMeaning, modes: Encodings) -> Convert:
    """Return a function from the values of a column, which are not null, to those of a field.

    It raises ``ValueError`` for a value that the field cannot hold, or whose meaning is not known.

    Raises:
        ValueError: No value of this meaning fits the declared type.
    """
    if declared in ("timestamp", "timestamp_ntz"):
        return _timestamp_of(declared, meaning, modes)
    if meaning.name in _TIMES and declared not in ("string", "date"):
        raise _misfit(declared, meaning, "timestamp, timestamp_ntz, date, or string for times of")
    if declared.startswith("decimal"):
        precision, scale = map(int, declared[8:-1].split(","))
        return _decimal_of(precision, scale, meaning, modes)
    if declared == "date":
        return _date_of(meaning)
    if declared == "string":
        return _text_of(meaning)
    if declared == "binary":
        return _bytes_of(meaning, modes)
    if meaning.name == _DECIMAL:
        raise _misfit(declared, meaning, "decimal of")
    if declared == "boolean":
        return _boolean
    if declared in ("float", "double"):
        return _single if declared == "float" else _double
    return _whole


def _misfit(declared: str, meaning: ColumnMeaning, expected: str) -> ValueError:
    what = meaning.name or meaning.kind
    return ValueError(f"it is declared as {declared}; got {what}; expected {expected} such values")


def _other(value: object, expected: str) -> ValueError:
    return ValueError(f"got {value!r:.100}; expected {expected}")


def _whole(value: Any) -> object:
    if type(value) is not int:
        raise _other(value, "a whole number")
    return value


def _boolean(value: Any) -> object:
    if type(value) in (bool, int) and value in (0, 1):
        return bool(value)
    raise _other(value, "true or false")


def _double(value: Any) -> float:
    if value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    if type(value) is int and abs(value) > 2**53 and int(float(value)) != value:
        raise _other(value, "a number that a double has")
    if type(value) not in (int, float, decimal.Decimal):
        raise _other(value, "a number")
    number = float(value)
    if math.isinf(number) and value != number:  # digits of JSON beyond its range
        raise _other(value, "a number that a double has")
    return number


def _single(value: Any) -> object:
    number = _double(value)
    # It raises OverflowError beyond its range. Digits of a fraction are rounded as in a column.
    (held,) = struct.unpack("<f", struct.pack("<f", number))
    if type(value) is int and held != value:
        raise _other(value, "a number that a float has")
    return number


def _text_of(meaning: ColumnMeaning) -> Convert:
    unit_ns = _TIMES_OF_DAY_NS.get(str(meaning.name))
    if unit_ns is None and meaning.name in _TIMES:
        raise _misfit("string", meaning, "timestamp, timestamp_ntz or date for")
    if meaning.kind == "bytes":  # base64 in JSON, which looks like a text
        expected = "decimal of" if meaning.name == _DECIMAL else "binary for"
        raise _misfit("string", meaning, expected)

    def to_text(value: Any) -> object:
        if isinstance(value, str):
            return value
        if unit_ns is not None and type(value) is int:
            return _clock(value * unit_ns)
        if unit_ns is not None and isinstance(value, datetime.time):
            return value.isoformat()
        raise _other(value, "text")

    return to_text


def _clock(nanoseconds: int) -> str:
    """Return a time of day as text; those of MySQL may be negative, or have more than 24 hours."""
    seconds, rest = divmod(abs(nanoseconds), 1_000_000_000)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{'-' * (nanoseconds < 0)}{hours:02d}:{minute:02d}:{second:02d}{fraction}"


def _bytes_of(meaning: ColumnMeaning, modes: Encodings) -> Convert:
    mode = "base64" if meaning.kind == "bytes" else modes.binary

    def to_bytes(value: Any) -> object:
        if isinstance(value, bytes):
            return value
        if not isinstance(value, str):
            raise _other(value, "bytes")
        if mode is None:
            raise _other(value, "an encoding of the bytes: Debezium(…, binary='base64')")
        try:
            if mode == "hex":
                return bytes.fromhex(value)
            return base64.b64decode(value, b"-_" if mode == "base64-url-safe" else None, True)
        except (binascii.Error, ValueError) as error:
            raise _other(value, f"{mode} ({error})") from error

    return to_bytes


def _date_of(meaning: ColumnMeaning) -> Convert:
    if meaning.name in _TIMESTAMPS_NS or meaning.name in _TIMES_OF_DAY_NS:
        raise _misfit("date", meaning, "timestamp, timestamp_ntz, or string for times of")
    counts = meaning.kind is None or meaning.name in _DATES

    def to_date(value: Any) -> object:
        if type(value) is int and counts:
            return value
        if isinstance(value, str):
            return datetime.date.fromisoformat(value.removesuffix("Z"))
        if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
            return value
        raise _other(value, "a date")

    return to_date


def _timestamp_of(declared: str, meaning: ColumnMeaning, modes: Encodings) -> Convert:
    unit_ns = _TIMESTAMPS_NS.get(str(meaning.name))
    if unit_ns is None and meaning.name in _TIMES:
        raise _misfit(declared, meaning, "date, or string for times of")
    if meaning.kind is None and modes.times is not None:
        unit_ns = _UNITS_NS[modes.times]
    zoned = declared == "timestamp"

    def to_microseconds(value: Any) -> object:
        if type(value) is int:
            if unit_ns is None:
                raise _other(value, "a unit: Debezium(…, times='microseconds')")
            if value * unit_ns % 1000:
                raise _other(value, "whole microseconds")
            return value * unit_ns // 1000
        if isinstance(value, str):
            value = _moment(value)
            if not zoned and value.tzinfo is not None and meaning.name != _ISO_TIMESTAMP:
                raise _other(value.isoformat(), "a time without a zone, or the type timestamp")
        if not isinstance(value, datetime.datetime):
            raise _other(value, "a time")
        value = value.replace(tzinfo=datetime.UTC) if value.tzinfo is None else value
        return (value - _EPOCH) // _MICROSECOND

    return to_microseconds


def _moment(text: str) -> datetime.datetime:
    if found := _FRACTION.search(text):
        if found[2].strip("0"):
            raise _other(text, "at most microseconds")
        text = text.replace(found[0], found[1])
    return datetime.datetime.fromisoformat(text)


def _decimal_of(precision: int, scale: int, meaning: ColumnMeaning, modes: Encodings) -> Convert:
    if meaning.name == _DECIMAL:
        if meaning.scale is None:
            raise ValueError("it is a decimal whose schema has no scale")
        unscaled: int | None = meaning.scale
    else:
        unscaled = scale if meaning.kind is None and modes.decimals == "precise" else None
    digits = meaning.kind == "string" or (meaning.kind is None and modes.decimals == "string")
    smallest = decimal.Decimal(1).scaleb(-scale, _ALL_DIGITS)

    def to_decimal(value: Any) -> object:
        number = _number_of(value, unscaled, digits)
        if not number.is_finite() or number.adjusted() >= _DIGITS_MAX:
            raise _other(value, f"a number of at most {precision} digits")
        try:
            fitted = number.quantize(smallest, context=_ALL_DIGITS)
        except (decimal.Inexact, decimal.InvalidOperation) as error:
            raise _other(value, f"a number of at most {scale} digits after the point") from error
        if fitted and fitted.adjusted() + 1 > precision - scale:
            raise _other(value, f"a number of at most {precision} digits, {scale} after the point")
        return fitted

    return to_decimal


def _number_of(value: Any, unscaled: int | None, digits: bool) -> decimal.Decimal:
    """Return the number that a value stands for.

    Args:
        value: The value.
        unscaled: The scale, if a text is base64 of the unscaled number.
        digits: Whether a text shows the number.
    """
    if isinstance(value, decimal.Decimal):
        return value
    if type(value) in (int, float):
        return decimal.Decimal(repr(value))
    if isinstance(value, dict) and type(value.get("scale")) is int:
        return _scaled(value.get("value"), value["scale"])
    if isinstance(value, str) and unscaled is not None:
        return _scaled(value, unscaled)
    if isinstance(value, str) and digits:
        try:
            return decimal.Decimal(value)
        except decimal.InvalidOperation as error:
            raise _other(value, "a number") from error
    if isinstance(value, str):
        raise _other(value, "an encoding of the decimals: Debezium(…, decimals='precise')")
    raise _other(value, "a number")


def _scaled(value: Any, scale: int) -> decimal.Decimal:
    """Return the number whose unscaled value is in big-endian bytes, or base64 of them."""
    if isinstance(value, str):
        try:
            value = base64.b64decode(value, validate=True)
        except binascii.Error as error:
            raise _other(value, f"base64 of an unscaled number ({error})") from error
    if not isinstance(value, bytes) or not value or abs(scale) > _DIGITS_MAX:
        raise _other(value, "the bytes of an unscaled number")
    if len(value) > _DIGITS_MAX // 2:
        raise _other(value, "a number of at most 38 digits")
    number = decimal.Decimal(int.from_bytes(value, "big", signed=True))
    return number.scaleb(-scale, _ALL_DIGITS)
