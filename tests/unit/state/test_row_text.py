"""Keys and rows as JSON text: exact, and alike only if they are equal."""

from __future__ import annotations

import datetime
import decimal
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.chance import examples
from txtopo import Fields
from txtopo.errors import SchemaDrift, ValueRefusedError
from txtopo.plugins.stores import Row, RowText, StateTable
from txtopo.testing.conformance.rules import exactly

TYPES: dict[str, st.SearchStrategy[Any]] = {
    "string": st.text(st.characters(exclude_categories=())),
    "binary": st.binary(),
    "boolean": st.booleans(),
    "byte": st.integers(-128, 127),
    "long": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(),
    "decimal(38,4)": st.decimals(places=4, allow_nan=False, min_value=-(10**30), max_value=10**30),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(datetime.UTC)),
    "timestamp_ntz": st.datetimes(),
}
KEY = Fields(", ".join(f"k{at} {kind}" for at, kind in enumerate(TYPES)))
VALUE = Fields(", ".join(f"v{at} {kind}" for at, kind in enumerate(TYPES)))
OPAQUE = RowText(StateTable("wide", "opaque", KEY, VALUE))
KEPT = RowText(StateTable("wide", "transactional", KEY, VALUE))
keys = st.tuples(*TYPES.values()).filter(lambda key: key[5] == key[5])
values = st.tuples(*(st.none() | kind for kind in TYPES.values()))
numbers = st.integers(1, 2**53)


@given(keys)
@examples(200)
def test_a_key_comes_back_as_it_was(key: tuple[Any, ...]) -> None:
    text = OPAQUE.key(key)

    assert OPAQUE.key_of(text) == key
    assert OPAQUE.key(OPAQUE.key_of(text)) == text
    assert text.isascii()


@given(numbers, values, st.none() | st.tuples(numbers, values), st.booleans())
@examples(200)
def test_a_row_comes_back_to_the_last_bit(
    txid: int, current: tuple[Any, ...], before: tuple[int, tuple[Any, ...]] | None, deleted: bool
) -> None:
    previous_txid, previous = before or (None, None)
    row = Row(txid, current, previous, previous_txid, deleted)

    found = OPAQUE.row_of(OPAQUE.row(row))
    assert exactly(found.current) == exactly(row.current)
    assert exactly(found.previous) == exactly(row.previous)
    assert (found.txid, found.previous_txid, found.deleted) == (txid, previous_txid, deleted)
    kept = KEPT.row_of(KEPT.row(Row(txid, current)))
    assert exactly((kept.txid, kept.current)) == exactly((txid, current))


rows = st.builds(
    lambda txid, current, before, deleted: Row(
        txid, current, before and before[0], before and before[1], deleted
    ),
    numbers,
    values | st.just(()),
    st.none() | st.tuples(values, numbers),
    st.booleans(),
)


@given(st.lists(keys, max_size=5), st.lists(rows, max_size=5))
@examples(100)
def test_many_at_once_have_the_same_texts_as_one_by_one(
    keys: list[tuple[Any, ...]], rows: list[Row]
) -> None:
    one_by_one = [OPAQUE.row(row) for row in rows]
    kept = [Row(row.txid, row.current) for row in rows]

    assert OPAQUE.keys(keys) == [OPAQUE.key(key) for key in keys]
    assert OPAQUE.rows(rows) == one_by_one
    assert KEPT.rows(kept) == [KEPT.row(row) for row in kept]
    found = zip(OPAQUE.rows_of(one_by_one), map(OPAQUE.row_of, one_by_one), strict=True)
    for many, one in found:
        assert exactly((many.current, many.previous)) == exactly((one.current, one.previous))
        assert (many.txid, many.previous_txid) == (one.txid, one.previous_txid)
        assert many.deleted == one.deleted
    assert [row.txid for row in KEPT.rows_of(KEPT.rows(kept))] == [row.txid for row in kept]


@given(st.lists(st.tuples(st.text(st.characters(exclude_categories=())), st.integers(0, 9))))
@examples(100)
def test_many_keys_of_any_text_have_the_same_texts_as_one_by_one(keys: list[Any]) -> None:
    text = RowText(StateTable("t", "opaque", Fields("k string, n long"), Fields("v long")))

    def told(write: Any) -> list[str] | str:
        try:
            return list(write())
        except ValueRefusedError as error:  # a pair of surrogates
            return str(error)

    assert told(lambda: text.keys(keys)) == told(lambda: [text.key(key) for key in keys])


@pytest.mark.parametrize("text", ["", "[1,[2],null]", "[1,[2],null,null] [", "{}", '"abc"', "[1]"])
def test_a_damaged_row_among_many_is_named(text: str) -> None:
    rows = RowText(StateTable("t", "opaque", Fields("k long"), Fields("v long")))

    with pytest.raises(SchemaDrift, match="holds a value that cannot be read"):
        rows.rows_of(["[1,[2],null,null]", text])


def test_a_key_that_is_null_among_many_is_refused() -> None:
    text = RowText(StateTable("t", "opaque", Fields("k string"), Fields("v long")))

    with pytest.raises(ValueRefusedError, match="a key is never NULL"):
        text.keys([("a",), (None,)])


def test_the_tombstone_of_a_key_that_was_not_there_has_no_values() -> None:
    row = Row(3, (), None, None, deleted=True)

    assert OPAQUE.row_of(OPAQUE.row(row)) == row


def test_equal_keys_have_equal_texts_and_others_have_not() -> None:
    def text(kind: str, key: Any) -> str:
        table = StateTable("t", "opaque", Fields(f"k {kind}"), Fields("v long"))
        return RowText(table).key((key,))

    new_york = datetime.timezone(datetime.timedelta(hours=-4))
    noon = datetime.datetime(2013, 7, 4, 12, tzinfo=datetime.UTC)
    assert text("double", -0.0) == text("double", 0.0)
    assert text("decimal(5,2)", decimal.Decimal("-0.00")) == text(
        "decimal(5,2)", decimal.Decimal("0.00")
    )
    assert text("timestamp", noon.astimezone(new_york)) == text("timestamp", noon)
    for one, other in (("a", "a "), ("a", "A"), ("\u00e9", "e\u0301"), ("", "\0"), ("1", "'1'")):
        assert text("string", one) != text("string", other)


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("string", None),
        ("double", float("nan")),
        ("string", 1),
        ("long", "1"),
        ("long", True),
        ("boolean", 1),
        ("binary", "text"),
        ("date", "2013-01-01"),
    ],
)
def test_a_key_of_another_type_is_refused(kind: str, key: Any) -> None:
    table = StateTable("t", "opaque", Fields(f"k {kind}"), Fields("v long"))

    with pytest.raises(ValueRefusedError, match="state 't' refuses a key"):
        RowText(table).key((key,))


@pytest.mark.parametrize(
    "text", ["", "[", "7", "[]", "[1]", '[1,["a"],null,null]', "[1,[1.5],null]"]
)
def test_a_damaged_row_is_said_to_be_one(text: str) -> None:
    table = StateTable("t", "opaque", Fields("k long"), Fields("v long"))

    with pytest.raises(SchemaDrift, match="holds a value that cannot be read"):
        RowText(table).row_of(text)
    with pytest.raises(SchemaDrift, match="holds a value that cannot be read"):
        RowText(table).key_of("{}" if text == "7" else '["a"]')


def test_the_text_is_json_that_anyone_reads() -> None:
    table = StateTable(
        "t", "opaque", Fields("k long"), Fields("a double, b decimal(9,2), c binary")
    )
    row = Row(2, (float("inf"), decimal.Decimal("1.50"), b"\0"), (0.1, None, None), 1)

    text = RowText(table).row(row)
    assert json.loads(text) == [2, ["Infinity", "1.50", "AA=="], 1, [0.1, None, None]]
