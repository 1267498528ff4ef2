"""Keys are read by the types of their columns, and values are printed without loss."""

from __future__ import annotations

import datetime
import decimal
import json
import math

import pytest

from txtopo import Fields
from txtopo.errors import StateUsageError
from txtopo.state.plain_values import json_of, key_of, text_of_value

UTC = datetime.UTC


@pytest.mark.parametrize(
    ("kind", "text", "key"),
    [
        ("string", "a b", "a b"),
        ("string", "", ""),
        ("string", '["a"]', '["a"]'),
        ("long", "-7", -7),
        ("double", "0.1", 0.1),
        ("decimal(10,2)", "1.50", decimal.Decimal("1.50")),
        ("boolean", "true", True),
        ("boolean", "false", False),
        ("binary", "AP8=", b"\0\xff"),
        ("binary", "", b""),
        ("date", "2026-01-31", datetime.date(2026, 1, 31)),
        ("timestamp", "2026-01-31T08:00:00Z", datetime.datetime(2026, 1, 31, 8, tzinfo=UTC)),
        ("timestamp_ntz", "2026-01-31 08:00", datetime.datetime(2026, 1, 31, 8)),
    ],
)
def test_a_key_of_one_column_is_its_text(kind: str, text: str, key: object) -> None:
    assert key_of([text], Fields(f"k {kind}")) == key


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("long", "seven"),
        ("long", ""),
        ("long", "9" * 5_000),
        ("double", "much"),
        ("decimal(10,2)", "1,5"),
        ("boolean", "yes"),
        ("binary", "AP8"),
        ("binary", "é"),
        ("date", "2026-13-01"),
        ("timestamp", "2026-01-31T08:00:00"),
        ("timestamp_ntz", "2026-01-31T08:00:00Z"),
    ],
)
def test_a_text_of_another_type_is_refused_with_an_example(kind: str, text: str) -> None:
    with pytest.raises(StateUsageError, match=r"key column 'k' is of type .*; expected "):
        key_of([text], Fields(f"k {kind}"))


def test_a_key_of_several_columns_may_be_a_json_array() -> None:
    fields = Fields("city string, n long, price decimal(4,1), ratio double, ok boolean")
    key = ("Paris", 3, decimal.Decimal("1.5"), 0.1, True)

    assert key_of(['["Paris", 3, 1.5, 0.1, true]'], fields) == key
    assert key_of(["Paris", "3", "1.5", "0.1", "true"], fields) == key
    for wrong in ('["Paris", 3]', "[]", "{}", "Paris", "[1", "null"):
        with pytest.raises(
            StateUsageError, match=r"has 5 values; got .*, or all of them as one JSON array"
        ):
            key_of([wrong], fields)
    for wrong in ('["Paris", null, 1.5, 0.1, true]', '["Paris", [3], 1.5, 0.1, true]'):
        with pytest.raises(StateUsageError, match="key column 'n'"):
            key_of([wrong], fields)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, None),
        (True, True),
        (2**63 - 1, 2**63 - 1),
        (0.1, 0.1),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (math.nan, "NaN"),
        (decimal.Decimal("1E+3"), "1000"),
        (decimal.Decimal("0.10"), "0.10"),
        (b"\0\xff", "AP8="),
        (memoryview(b"\0\xff"), "AP8="),
        (datetime.datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00+00:00"),
        (datetime.date(1, 1, 1), "0001-01-01"),
        ({"a": [decimal.Decimal(1), b""]}, {"a": ["1", ""]}),
        (datetime.timedelta(hours=1), "1:00:00"),
    ],
)
def test_a_value_is_json_without_loss(value: object, shown: object) -> None:
    assert json_of(value) == shown
    assert type(json_of(value)) is type(shown)
    json.dumps(json_of(value), allow_nan=False)


def test_text_has_no_quotation_marks_and_null_is_seen() -> None:
    assert [text_of_value(each) for each in ("a", None, {"é": None}, 0.5)] == [
        "a",
        "NULL",
        '{"é": null}',
        "0.5",
    ]


def test_long_texts_are_cut_where_that_is_asked_for() -> None:
    shown = json_of({"a": ["x" * 1_000_000, b"x" * 1_000_000]}, 2_000)

    assert len(json.dumps(shown)) < 6_000
    assert json_of("x" * 1_000_000) == "x" * 1_000_000
