"""Emitted rows and record batches as columns of the declared types."""

from __future__ import annotations

import datetime as dt
import enum
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from txtopo.errors import EmitError
from txtopo.stages.columns import conform, to_batches
from txtopo.tuples import Fields

AWARE = dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC)


class Level(enum.IntEnum):
    HIGH = 3


def column(kind: str, *values: Any) -> list[Any]:
    """Return what is stored: at once, as a few tuples are, and column by column."""
    fields = Fields(f"x {kind}")
    schema = fields.arrow_schema()
    (at_once,) = to_batches("bolt", "default", fields, schema, [(value,) for value in values])
    (apart,) = to_batches("bolt", "default", fields, schema, [[value] for value in values])
    assert at_once.equals(apart)
    assert at_once.schema.equals(schema, check_metadata=True)
    return list(at_once.column(0).to_pylist())


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        ("long", np.int64(3), 3),
        ("long", Level.HIGH, 3),
        ("double", 1, 1.0),
        ("double", np.float32(0.5), 0.5),
        ("decimal(10,2)", 1, Decimal("1.00")),
        ("decimal(10,2)", Decimal("1.5"), Decimal("1.50")),
        ("binary", bytearray(b"a"), b"a"),
        ("date", dt.date(2013, 1, 1), dt.date(2013, 1, 1)),
        ("timestamp", AWARE, AWARE),
        ("timestamp_ntz", dt.datetime(2013, 1, 1), dt.datetime(2013, 1, 1)),
        ("boolean", True, True),
        ("string", np.str_("a"), "a"),
    ],
)
def test_values_that_fit_are_stored_as_they_are(kind: str, value: Any, stored: Any) -> None:
    assert column(kind, value, None) == [stored, None]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("long", 1.0),
        ("long", True),
        ("long", "1"),
        ("byte", 128),
        ("double", True),
        ("double", Decimal(1)),
        ("decimal(10,2)", 1.5),
        ("decimal(10,2)", Decimal("1.234")),
        ("boolean", 1),
        ("string", b"a"),
        ("string", "\ud800"),
        ("binary", "a"),
        ("date", dt.datetime(2013, 1, 1, 5)),
        ("date", 5),
        ("timestamp", dt.date(2013, 1, 1)),
        ("timestamp_ntz", 5),
        ("timestamp_ntz", AWARE),
        ("timestamp_ntz", pd.Timestamp(AWARE)),
    ],
)
def test_values_that_would_be_changed_are_refused(kind: str, value: Any) -> None:
    with pytest.raises(EmitError, match="does not fit column 'x' of stream 'default'") as caught:
        column(kind, None, value)

    assert (caught.value.column, caught.value.component) == ("x", "bolt")


def conformed(declared: str, batch: pa.RecordBatch) -> list[Any]:
    fields = Fields(declared)
    return list(conform("bolt", "default", fields, fields.arrow_schema(), batch).to_pylist())


def test_record_batches_are_matched_by_name_and_widened() -> None:
    numbers = pa.array([1, 2], pa.int8())
    words = pa.array(["a", "b"]).dictionary_encode()

    found = conformed("word string, n long", pa.record_batch([numbers, words], ["n", "word"]))

    assert found == [{"word": "a", "n": 1}, {"word": "b", "n": 2}]


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"n": [1]}, "the wrong columns; got n; expected word, n"),
        ({"word": ["a"], "n": [1], "x": [1]}, "the wrong columns; got word, n, x"),
        ({"word": ["a"], "n": ["1"]}, "column 'n' does not fit; got string; expected long"),
        ({"word": ["a"], "n": [1.0]}, "column 'n' does not fit; got double; expected long"),
        ({"word": ["a"], "n": [AWARE]}, r"column 'n' does not fit; got timestamp.*; expected long"),
    ],
)
def test_record_batches_with_other_columns_are_refused(columns: Any, text: str) -> None:
    with pytest.raises(EmitError, match=text):
        conformed("word string, n long", pa.RecordBatch.from_pydict(columns))


def test_a_record_batch_whose_values_do_not_fit_is_refused() -> None:
    with pytest.raises(EmitError, match="column 'n' does not fit; got int64; expected byte"):
        conformed("n byte", pa.record_batch([pa.array([300])], ["n"]))


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("float", pa.array([1e39])),
        ("timestamp_ntz", pa.array([AWARE], pa.timestamp("us", "UTC"))),
        ("timestamp", pa.array([1], pa.timestamp("ns", "UTC"))),
    ],
)
def test_a_column_that_would_be_changed_is_refused_with_its_name(
    kind: str, column: pa.Array
) -> None:
    with pytest.raises(EmitError, match=r"'bolt'.* column 'x' does not fit"):
        conformed(f"x {kind}", pa.record_batch([column], ["x"]))
