"""Readers: a whole state as a table of Arrow and as a frame of pandas."""

from __future__ import annotations

import decimal
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from txtopo import (
    Count,
    CountDistinct,
    Fields,
    First,
    Last,
    Max,
    Mean,
    Min,
    OwnAggregate,
    Sum,
    TopN,
    open_state,
)
from txtopo.errors import ConfigError, StateUsageError, ValueRefusedError
from txtopo.state import State
from txtopo.state.columns import rows_of
from txtopo.state.reader import ReaderView
from txtopo.testing.conformance.driver import StateDriver, putting

KEY = Fields("key string")


def written(state: State, rows: dict[Any, Any]) -> State:
    StateDriver(state).run(1, putting(rows))
    return state


@pytest.mark.integration
def test_a_state_that_nobody_has_claimed_is_a_table_without_rows_and_txid(tmp_path: Path) -> None:
    state = open_state(f"sqlite:///{tmp_path}/counts.db", table="counts")
    backend = state.open()
    backend.create()
    backend.close()

    with state.reader() as reader:
        table, frame = reader.to_arrow(), reader.to_pandas()

    assert table.schema == pa.schema({"key": pa.string(), "value": pa.int64()})
    assert (table.num_rows, table.schema.metadata) == (0, None)
    assert (len(frame), frame.attrs) == (0, {})


def test_a_closed_reader_makes_no_table() -> None:
    with pytest.raises(StateUsageError, match="not open"):
        open_state("memory:", table="counts").reader().to_arrow()


@pytest.mark.integration
@pytest.mark.parametrize("scheme", ["sqlite", "delta"])
def test_rows_are_converted_a_part_at_a_time(scheme: str, tmp_path: Path) -> None:
    """Else a large state would be there as Python objects as well, all at once."""
    state = open_state(f"{scheme}:///{tmp_path}/many", table="counts")
    written(state, {f"{n:06}": n for n in range(25_000)})

    with state.reader() as reader:
        table = reader.to_arrow()

    assert table.column("key").num_chunks == 3
    assert dict(zip(*table.to_pydict().values(), strict=True)) == {
        f"{n:06}": n for n in range(25_000)
    }


def test_json_is_its_text() -> None:
    state = open_state("memory:", table="profiles", value=Fields("profile json, n long"))
    written(state, {"a": ({"b": [1, None]}, 1), "c": (None, 2)})

    with state.reader() as reader:
        assert reader.to_arrow().to_pydict() == {
            "key": ["a", "c"],
            "profile": ['{"b":[1,null]}', None],
            "n": [1, 2],
        }


def test_a_sketch_is_its_estimate() -> None:
    state = open_state("memory:", table="users").with_columns(
        KEY, Fields("users binary"), (CountDistinct("user"),)
    )
    sketch = CountDistinct("user").folded([("ann",), ("bob",), ("ann",)])
    StateDriver(state).merge(1, [("a", *sketch[:1])])

    with state.reader() as reader:
        table = reader.to_arrow()

    assert table.schema.field("users").type == pa.int64()
    assert table.to_pydict() == {"key": ["a"], "users": [2]}


def mean_of(total: str, count: int, scale: int) -> State:
    state = open_state("memory:", table="means").with_columns(
        KEY,
        Fields(f"cost_sum decimal(38,{scale}), cost_count long"),
        tuple(Mean("cost").columns("cost").values()),
    )
    StateDriver(state).merge(1, [("a", decimal.Decimal(total), count)])
    return state


@pytest.mark.parametrize(
    ("scale", "total", "shown"),
    [
        (0, "2", "0.6667"),
        (2, "0.05", "0.016667"),
        (20, "1", "0.3333333333333333333333"),
        (30, "1", "0.333333333333333333333333333333"),
    ],
)
def test_a_mean_of_decimals_has_more_digits_than_its_values(
    scale: int, total: str, shown: str
) -> None:
    with mean_of(total, 3, scale).reader() as reader:
        assert str(reader.to_arrow().column("cost")[0]) == shown


def test_a_mean_that_does_not_fit_is_refused_and_can_be_read_alone() -> None:
    with mean_of("9" * 36, 1, 2).reader() as reader:
        with pytest.raises(ValueRefusedError, match=r"mean 'cost' of state 'means' .*items\(\)"):
            reader.to_arrow()
        assert reader.get("a") == decimal.Decimal("9" * 36)


def test_pandas_has_null_in_whole_numbers_and_the_txid() -> None:
    value = Fields("n long, ok boolean, part double, at timestamp, cost decimal(10,2)")
    state = open_state("memory:", table="counts", value=value)
    written(state, {"a": (2**53 + 1, True, 0.5, None, decimal.Decimal("1.5")), "b": (None,) * 5})

    with state.reader() as reader:
        frame = reader.to_pandas()

    assert frame.attrs == {"txid": 1}
    assert list(map(str, frame.dtypes))[1:5] == [
        "Int64",
        "boolean",
        "float64",
        "datetime64[us, UTC]",
    ]
    assert frame["n"][0] == 2**53 + 1
    assert frame["cost"][0] == decimal.Decimal("1.50")
    assert frame["n"].isna().tolist() == [False, True]
    assert isinstance(frame, pd.DataFrame)


def test_a_missing_pandas_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    state = written(open_state("memory:", table="counts"), {"a": 1})
    monkeypatch.setitem(sys.modules, "pandas", None)

    with (
        state.reader() as reader,
        pytest.raises(ConfigError, match=r"pip install pandas, or use to_arrow\(\)"),
    ):
        reader.to_pandas()


class Words(OwnAggregate):
    """All words, sorted."""

    def zero(self) -> Any:
        return []

    def add(self, value: Any, word: str) -> Any:
        return sorted({*value, word})

    def combine(self, left: Any, right: Any) -> Any:
        return sorted({*left, *right})


class Product(Words):
    """A value that users see as it is stored."""

    type = "long"


def columns_and_rows(value: Fields, aggregates: Any, stored: list[tuple[Any, ...]]) -> None:
    """Check that what users see of columns is what they see of each row."""
    state = open_state("memory:", table="t").with_columns(KEY, value, aggregates)
    view, schema = ReaderView(state.layout()), value.arrow_schema()
    columns = list(zip(*stored, strict=True)) if stored else [()] * len(value)
    table = pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema)
    # A state has its key in front, and a store may return the columns in any order.
    table = table.select(value.names[::-1]).append_column("key", pa.array(["k"] * len(table)))
    found = view.columns(table)

    assert found.schema == view.fields.arrow_schema()
    assert list(map(str, rows_of(found))) == list(map(str, map(view.row, stored)))


def test_columns_are_shown_as_each_of_their_rows() -> None:
    """Of every aggregate: as stored, a mean of two columns, an estimate, and json as its text."""
    inputs = Fields("user string, cost decimal(10,2), part double, at long, words string")
    aggregates = {
        "n": Count(),
        "total": Sum("cost"),
        "least": Min("part"),
        "first": First("user", order="at"),
        "cost": Mean("cost"),
        "users": CountDistinct("user"),
        "part": Mean("part"),
        "most": Max("part"),
        "best": TopN("part", 2, labels=("user",)),
        "last": Last("user", order="at"),
        "words": Words("words"),
        "product": Product("at"),
        "mean": Mean("at"),
    }
    columns = {
        stored: each
        for name, aggregate in aggregates.items()
        for stored, each in aggregate.columns(name).items()
    }
    value = Fields.of([each.value_field(name, inputs) for name, each in columns.items()])
    (sketch,) = CountDistinct("user").folded([("ann",), ("bob",)])[:1]
    cells = {
        "n": 3,
        "total": decimal.Decimal("-1.50"),
        "least": float("nan"),
        "first": "ann",
        "cost_sum": decimal.Decimal("0.05"),
        "cost_count": 3,
        "users": sketch,
        "part_sum": 1.0,
        "part_count": 3,
        "most": -0.0,
        "best": '[[2.5,"ann"],[1.0,"bob"]]',
        "last": "",
        "words": '["a"]',
        "product": 2**63 - 1,
        "mean_sum": 7,
        "mean_count": 2,
    }
    full = tuple(cells[name] for name in value.names)
    # A group whose inputs are all NULL: sums are NULL, counts are 0.
    empty = tuple(0 if name.endswith(("count", "n")) else None for name in value.names)
    rows = [full, empty, (None,) * len(value), full]

    columns_and_rows(value, tuple(columns.values()), rows)
    columns_and_rows(value, tuple(columns.values()), [])


def test_columns_without_aggregates_are_shown_as_they_are_stored() -> None:
    value = Fields("note json, n long")
    columns_and_rows(value, (), [('{"a":1}', 1), (None, None), ("null", 2)])


def test_a_mean_that_does_not_fit_is_refused_among_columns_too() -> None:
    state = mean_of("9" * 36, 1, 2)
    table = pa.table(
        {
            "cost_sum": pa.array([decimal.Decimal("9" * 36)], pa.decimal128(38, 2)),
            "cost_count": pa.array([1]),
        }
    )
    with pytest.raises(ValueRefusedError, match=r"mean 'cost' of state 'means'"):
        ReaderView(state.layout()).columns(table)
