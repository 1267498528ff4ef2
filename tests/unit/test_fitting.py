"""What a field holds for a value that is given, emitted or read, and what it refuses."""

from __future__ import annotations

import datetime as dt
import enum
import math
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txtopo import Fields
from txtopo.errors import EmitError, StateUsageError, ValueRefusedError
from txtopo.fitting import FITTING, NotExact, exact, fitted_array, fitted_values, kind_of
from txtopo.stages.columns import to_batches
from txtopo.state import open_state
from txtopo.testing.conformance.driver import StateDriver, putting
from txtopo.testing.conformance.rules import exactly

NOON = dt.datetime(2026, 1, 31, 12, 30, 15, 123456)


class Colour(str, enum.Enum):  # noqa: UP042 - the text of a StrEnum is its value anyway
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Cents(Decimal):
    """A number of some library."""


class Blob(bytes):
    def __bytes__(self) -> bytes:
        return b"something else"


TAKEN: list[tuple[str, Any, Any]] = [
    ("string", Colour.RED, "red"),
    ("string", np.str_("red"), "red"),
    ("binary", Blob(b"abc"), b"abc"),
    ("binary", memoryview(b"abcdef")[::2], b"ace"),
    ("boolean", np.True_, True),
    ("long", Level.HIGH, 3),
    ("long", np.uint8(3), 3),
    ("double", Level.HIGH, 3.0),
    ("double", 2**60, 2.0**60),
    ("double", np.float32(0.1), 0.10000000149011612),
    ("double", np.longdouble(0.5), 0.5),
    ("float", 16777216, 16777216.0),
    ("decimal(10,2)", Cents("1.5"), Decimal("1.50")),
    ("decimal(10,2)", np.int64(7), Decimal("7.00")),
    ("date", pd.NaT, None),
    ("timestamp_ntz", pd.NaT, None),
    ("timestamp", pd.NaT, None),
    ("timestamp_ntz", np.datetime64("NaT"), None),
    ("timestamp_ntz", pd.Timestamp(NOON), NOON),
    ("timestamp_ntz", np.datetime64(NOON, "ns"), NOON),
    ("timestamp_ntz", np.datetime64("2026-01-31"), dt.datetime(2026, 1, 31)),
    ("timestamp", pd.Timestamp(NOON, tz="UTC"), NOON.replace(tzinfo=dt.UTC)),
    (
        "timestamp",
        pd.Timestamp(NOON, tz="Europe/Berlin"),
        NOON.replace(hour=11, tzinfo=dt.UTC),
    ),
]

REFUSED: list[tuple[str, Any]] = [
    ("timestamp", pd.Timestamp("2026-01-01T00:00:00.000000100Z")),
    ("timestamp_ntz", pd.Timestamp("2026-01-01T00:00:00.000000100")),
    ("timestamp_ntz", np.datetime64("2026-01-01T00:00:00.000000100")),
    ("timestamp_ntz", np.datetime64("30000-01-01")),
    ("double", 2**53 + 1),
    ("double", np.longdouble(1) / 3),
    ("double", 10**400),
    ("float", 2**24 + 1),
    ("float", 1e39),
    ("long", 2**63),
    ("byte", np.int16(128)),
    ("decimal(10,2)", Cents("1.005")),
    ("decimal(10,2)", Decimal("NaN")),
]


@pytest.mark.parametrize(("kind", "value", "kept"), TAKEN)
def test_a_field_holds_the_plain_value_of_what_it_takes(kind: str, value: Any, kept: Any) -> None:
    found = exact(kind, value)

    assert exactly(found) == exactly(kept)
    assert type(found) is type(kept)


@pytest.mark.parametrize(("kind", "value", "kept"), TAKEN)
def test_a_state_and_a_stream_hold_the_same(kind: str, value: Any, kept: Any) -> None:
    store = StateDriver(open_state("memory:", table="t", value=Fields(f"x {kind}")))
    store.run(1, putting({"a": value}))
    assert exactly(store.contents()) == exactly({"a": kept})

    fields = Fields(f"x {kind}")
    (batch,) = to_batches("bolt", "default", fields, fields.arrow_schema(), [(value,)])
    assert exactly(batch.column(0).to_pylist()) == exactly([kept])


@pytest.mark.parametrize("at", [NOON, NOON.replace(tzinfo=dt.UTC)])
def test_the_fold_of_a_time_is_not_held(at: dt.datetime) -> None:
    """Equal times may have another one, and no store keeps it."""
    kind = "timestamp_ntz" if at.tzinfo is None else "timestamp"

    assert exact(kind, at.replace(fold=1)).fold == 0


@pytest.mark.parametrize(("kind", "value"), REFUSED)
def test_a_state_and_a_stream_refuse_the_same(kind: str, value: Any) -> None:
    store = StateDriver(open_state("memory:", table="t", value=Fields(f"x {kind}")))
    with pytest.raises(ValueRefusedError):
        store.run(1, putting({"a": value}))
    assert store.contents() == {}

    fields = Fields(f"x {kind}")
    with pytest.raises(EmitError, match="column 'x'"):
        list(to_batches("bolt", "default", fields, fields.arrow_schema(), [(value,)]))


@pytest.mark.parametrize(
    ("kind", "value"),
    [("string", b"a"), ("long", True), ("long", 1.0), ("date", NOON), ("boolean", 1)],
)
def test_a_value_of_another_type_is_a_mistake_of_the_program(kind: str, value: Any) -> None:
    store = StateDriver(open_state("memory:", table="t", value=Fields(f"x {kind}")))

    with pytest.raises(StateUsageError):
        store.run(1, putting({"a": value}))


def test_no_key_is_what_stands_for_no_time() -> None:
    store = StateDriver(
        open_state("memory:", table="t", key=Fields("at timestamp_ntz"), value=Fields("n long"))
    )

    with pytest.raises(ValueRefusedError, match="a key cannot be NULL"):
        store.run(1, putting({pd.NaT: 1}))


def test_json_refuses_what_it_would_join() -> None:
    store = StateDriver(open_state("memory:", table="t", value=Fields("x json")))
    halves = "\ud83d\ude00"

    for value in ({halves: 1, "\U0001f600": 2}, [halves], halves):
        with pytest.raises(ValueRefusedError, match="surrogates"):
            store.run(1, putting({"a": value}))
    store.run(1, putting({"a": ["\U0001f600", "\ud83d"]}))
    assert store.contents() == {"a": ["\U0001f600", "\ud83d"]}


READ: list[tuple[str, Any, Any]] = [
    ("long", Decimal("12.00"), 12),
    ("long", 12.0, 12),
    ("double", Decimal("0.99"), 0.99),
    ("double", Decimal("NaN"), math.nan),
    ("decimal(10,2)", 0.5, Decimal("0.50")),
    ("decimal(10,2)", 3, Decimal("3.00")),
    ("boolean", 1, True),
    ("boolean", b"\0", False),
    ("date", dt.datetime(2026, 1, 31), dt.date(2026, 1, 31)),
    ("timestamp_ntz", dt.date(2026, 1, 31), dt.datetime(2026, 1, 31)),
    ("string", b"a", "a"),
]

UNREAD: list[tuple[str, Any]] = [
    *(("long", value) for value in (Decimal("5.50"), 0.99, math.nan, Decimal("1E30"), 2.0**63)),
    *(("int", value) for value in (Decimal("5.50"), 2.0**31)),
    *(("decimal(10,2)", value) for value in (1.005, 0.1 + 0.2, math.inf, 1e300)),
    *(("boolean", value) for value in (2, -1, b"\2")),
    ("double", Decimal("12345678901234567890.12")),
    ("float", 1e39),
    ("date", dt.datetime(2026, 1, 31, 0, 0, 1)),
    ("date", dt.datetime(2026, 1, 31, tzinfo=dt.UTC)),
    ("timestamp_ntz", NOON.replace(tzinfo=dt.UTC)),
    ("timestamp_ntz", pd.Timestamp(NOON, tz="Europe/Berlin")),
    *((kind, 1_700_000_000) for kind in ("date", "timestamp", "timestamp_ntz")),
    *(("long", value) for value in (NOON, NOON.date(), NOON.time(), dt.timedelta(1), True)),
    *(("string", value) for value in (5, 5.5, True, NOON)),
]


@pytest.mark.parametrize(("kind", "value", "held"), READ)
def test_a_value_of_another_type_is_read_where_it_is_the_same(
    kind: str, value: Any, held: Any
) -> None:
    assert exactly(list(fitted_values(kind, [value, None]))) == exactly([held, None])


@pytest.mark.parametrize(("kind", "value"), UNREAD)
def test_a_value_that_is_another_one_in_its_field_is_not_read(kind: str, value: Any) -> None:
    with pytest.raises((NotExact, TypeError)):
        fitted_values(kind, [value])


@pytest.mark.parametrize(
    ("column", "declared", "held"),
    [
        (pa.array([0.5, None]), pa.decimal128(10, 2), [Decimal("0.50"), None]),
        (pa.array([Decimal("0.99"), None]), pa.float64(), [0.99, None]),
        (pa.array([Decimal("5.00")]), pa.int64(), [5]),
        (pa.array([0, 1, None]), pa.bool_(), [False, True, None]),
        (pa.array([math.inf, 1.5]), pa.float32(), [math.inf, 1.5]),
        (pa.array(["a"]).dictionary_encode(), pa.string(), ["a"]),
    ],
)
def test_a_column_of_arrow_fits_where_its_values_are_the_same(
    column: pa.Array, declared: pa.DataType, held: list[Any]
) -> None:
    assert fitted_array(column, declared).to_pylist() == held
    chunked = fitted_array(pa.chunked_array([column]), declared)
    assert (chunked.type, chunked.to_pylist()) == (declared, held)


@pytest.mark.parametrize(
    ("column", "declared"),
    [
        (pa.array([0.1 + 0.2]), pa.decimal128(10, 2)),
        (pa.array([Decimal("5.50")]), pa.int64()),
        (pa.array([5.5]), pa.int64()),
        (pa.array([Decimal("12345678901234567890.12")]), pa.float64()),
        (pa.array([1e39]), pa.float32()),
        (pa.array([2]), pa.bool_()),
        (pa.array([2**53 + 1]), pa.float64()),
        (pa.array([NOON]), pa.date32()),
        (pa.array([NOON], pa.timestamp("us", "UTC")), pa.date32()),
        (pa.array([1], pa.timestamp("ns")), pa.timestamp("us")),
    ],
)
def test_a_column_of_arrow_is_never_cut(column: pa.Array, declared: pa.DataType) -> None:
    with pytest.raises((ValueError, TypeError), match=r"."):
        fitted_array(column, declared)


# A column of each type that Parquet, Delta and record batches can have.
COLUMNS: dict[str, list[pa.Array]] = {
    "text": [pa.array(["1"], kind) for kind in (pa.string(), pa.large_string(), pa.string_view())],
    "bytes": [
        pa.array([b"1"], kind)
        for kind in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1))
    ],
    "boolean": [pa.array([True])],
    "whole number": [
        pa.array([1], kind)
        for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64())
    ],
    "binary number": [pa.array([1.0], kind) for kind in (pa.float32(), pa.float64())]
    + [pa.array([np.float16(1)])],
    "decimal": [
        pa.array([Decimal("1.00")], kind)
        for kind in (pa.decimal32(5, 2), pa.decimal64(9, 2), pa.decimal128(20, 2))
    ]
    + [pa.array([Decimal("1.00")], pa.decimal256(40, 2))],
    "date": [pa.array([NOON.date()], kind) for kind in (pa.date32(), pa.date64())],
    "time without zone": [
        pa.array([dt.datetime(2026, 1, 31)], pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")
    ],
    "moment": [
        pa.array([dt.datetime(2026, 1, 31)], pa.timestamp(unit, zone))
        for unit in ("s", "ms", "us", "ns")
        for zone in ("UTC", "Europe/Berlin")
    ],
    "nothing a field has": [
        pa.array([1], pa.time32("s")),
        pa.array([1], pa.time64("us")),
        pa.array([1], pa.duration("us")),
        pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
        pa.array([[1]]),
        pa.array([{"a": 1}]),
    ],
}

KINDS = (
    *("string", "binary", "boolean", "byte", "short", "int", "long", "float", "double"),
    *("decimal(10,2)", "date", "timestamp", "timestamp_ntz"),
)


def type_of(kind: str) -> pa.DataType:
    return Fields(f"x {kind}").arrow_schema()[0].type


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("origin", COLUMNS)
def test_a_column_is_read_by_the_table_of_kinds_and_by_nothing_else(origin: str, kind: str) -> None:
    declared = type_of(kind)
    own = kind_of(declared)
    assert own is not None
    for column in COLUMNS[origin]:
        held = {"date": NOON.date(), "boolean": True, "text": "1", "bytes": b"1"}.get(own, 1)
        if own == "moment":
            held = dt.datetime(2026, 1, 31, tzinfo=dt.UTC)
        elif own == "time without zone":
            held = dt.datetime(2026, 1, 31)
        if origin not in FITTING[own]:
            with pytest.raises(TypeError, match="cannot become"):
                fitted_array(column, declared)
        elif origin == "text" and own in ("date", "time without zone", "moment"):
            with pytest.raises(ValueError, match="'1'"):
                fitted_array(column, declared)
        else:
            assert fitted_array(column, declared).to_pylist() == [held], column.type


def test_nothing_but_a_number_is_a_number_and_nothing_but_a_time_a_time() -> None:
    """The table itself, against a slip in it."""
    numbers = {"whole number", "binary number", "decimal"}
    times = {"date", "time without zone", "moment"}

    for kind in numbers:
        assert FITTING[kind] == numbers | {"text"}
    for kind in times:
        assert FITTING[kind] <= times | {"text"}
    assert "moment" not in FITTING["date"] | FITTING["time without zone"]
    assert FITTING["text"] == FITTING["bytes"] == {"text", "bytes"}
    assert FITTING["boolean"] == {"boolean", "whole number", "text"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_of_nulls_is_of_every_type(kind: str) -> None:
    assert fitted_array(pa.nulls(2), type_of(kind)).to_pylist() == [None, None]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *(("float", text) for text in ("1e39", "-1e39", "1e400")),
        *(("double", text) for text in ("1e400", "-1E400")),
        *(("decimal(10,2)", text) for text in ("1e400", "inf", "1.005")),
        *(("long", text) for text in ("0x10", "0X1f", "1e400", "9223372036854775808", "1.0")),
        ("byte", "0xff"),
    ],
)
def test_a_text_is_no_number_that_it_does_not_show(kind: str, text: str) -> None:
    column = pa.array(["1", None, text])

    assert fitted_array(column[:2], type_of(kind)).to_pylist() == [1, None]
    with pytest.raises(ValueError, match=r"."):
        fitted_array(column, type_of(kind))


@pytest.mark.parametrize("kind", ["float", "double"])
def test_a_text_may_say_that_a_number_is_infinite(kind: str) -> None:
    texts = pa.array(["inf", "-Infinity", "INF", None, "0.5"])

    found = fitted_array(texts, type_of(kind)).to_pylist()

    assert found == [math.inf, -math.inf, math.inf, None, 0.5]


NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.decimals(allow_nan=False, allow_infinity=False, places=3).map(lambda each: +each),
)


@given(kind=st.sampled_from(["long", "int", "double", "decimal(18,3)"]), value=NUMBERS)
def test_a_number_is_the_same_in_its_field_or_is_not_read(kind: str, value: Any) -> None:
    """Binary numbers mean the digits that they show."""
    try:
        (held,) = fitted_values(kind, [value])
        (held,) = pa.array([held], Fields(f"x {kind}").arrow_schema()[0].type).to_pylist()
    except (NotExact, TypeError, OverflowError, pa.ArrowInvalid):
        return
    if isinstance(value, float) and isinstance(held, float):
        assert struct.pack("d", held) == struct.pack("d", value)
    else:
        assert held == value or _shown(held) == _shown(value)


def _shown(number: Any) -> Decimal:
    return Decimal(repr(number) if isinstance(number, float) else number)
