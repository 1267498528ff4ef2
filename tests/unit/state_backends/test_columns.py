"""Databases write rows that come as Arrow columns as they write Python values."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.harness.servers.mariadb import MariaServer
from txtopo import Fields
from txtopo.state import open_state
from txtopo.testing.conformance.driver import StateDriver

KEY = Fields("k decimal(9,2), word string, flag boolean, day date")
VALUE = Fields(
    "b byte, i int, n long, f float, d double, price decimal(18,3), text string, raw binary, "
    "at timestamp, local timestamp_ntz, note json"
)
FIELDS = Fields.of([*KEY, *VALUE])
DAY = datetime.date(2026, 2, 28)
AT = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, datetime.UTC)
LOCAL = datetime.datetime(2026, 3, 29, 2, 30)


@pytest.fixture(params=["memory", "sqlite", "postgresql", "mariadb"])
def store(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[StateDriver]:
    url = "memory:"
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/states.db"
    elif request.param == "postgresql":
        url = request.getfixturevalue("postgresql_schema")
    elif request.param == "mariadb":
        server: MariaServer = request.getfixturevalue("mariadb")
        url = server.create_schema(f"columns_{abs(hash(request.node.name))}")
    driver = StateDriver(open_state(url, table="wide").with_columns(KEY, VALUE))
    yield driver
    driver.close()


def row_of(at: int) -> tuple[Any, ...]:
    key = (Decimal(at).scaleb(-2) - 5, f'wörd "{at}", \\', bool(at % 2), DAY)
    if at % 3 == 0:
        return *key, *(None for _ in VALUE)
    price, moved = Decimal(at * 1000).scaleb(-3), datetime.timedelta(hours=at, microseconds=at)
    times = AT + moved, LOCAL + moved
    return (
        *key,
        -at % 100,
        at,
        at << 40,
        at / 4,
        at / 3,
        price,
        f"{at},\n\t",
        bytes([at % 256]),
        *times,
        None,
    )


def columns_of(numbers: range) -> pa.Table:
    columns = zip(*map(row_of, numbers), strict=True)
    schema = FIELDS.arrow_schema()
    arrays = [pa.array(column, each.type) for column, each in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def expected(numbers: range) -> dict[Any, Any]:
    width = len(KEY)
    rows = map(row_of, numbers)
    return {row[:width]: dict(zip(VALUE.names, row[width:], strict=True)) for row in rows}


@pytest.mark.parametrize("count", [20, 2_500])
def test_rows_in_columns_are_stored_as_python_values(store: StateDriver, count: int) -> None:
    """PostgreSQL has a way for few rows and one for many."""
    store.run(1, lambda state: state.put_columns(columns_of(range(count))))

    assert store.contents() == expected(range(count))


def test_rows_in_columns_are_undone(store: StateDriver) -> None:
    store.run(1, lambda state: state.put_columns(columns_of(range(10))))
    store.run(2, lambda state: state.put_columns(columns_of(range(5, 15))))
    store.run(2, lambda state: state.delete(row_of(0)[: len(KEY)]), attempt=1)

    assert store.contents() == expected(range(1, 10))


def test_rows_in_columns_take_the_place_of_deleted_ones(store: StateDriver) -> None:
    store.run(1, lambda state: state.put_columns(columns_of(range(3))))
    store.run(2, lambda state: state.delete(row_of(0)[: len(KEY)]))
    store.run(3, lambda state: state.put_columns(columns_of(range(1))))

    assert store.contents() == expected(range(3))
