"""Decimals in SQLite: what plain SQL sees of them, and which ones are refused."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runtime.loop_world import running
from txtopo import Fields, PersistentAggregate, TransactionalTopologyBuilder
from txtopo.builders.transactional import Topology
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.errors import SchemaDrift, TopologyError, ValueRefusedError
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.state import Aggregate, Max, Mean, Min, State, Sum, open_state
from txtopo.testing.conformance.driver import StateDriver

pytestmark = pytest.mark.integration
CENTS = [Decimal(text) for text in ("9.10", "10.20", "-3.50", "-10.00", "0.00", "0.05", "100.00")]
ENDS = [Decimal(text) for text in ("9999999999999999.99", "-9999999999999999.99", "0.01")]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/states.db"


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Anybody who uses SQL."""
    connection = sqlite3.connect(tmp_path / "states.db", isolation_level=None)
    yield connection
    connection.close()


def filled(url: str, kind: str, values: list[Decimal]) -> State:
    state = open_state(url, table="prices", value=Fields(f"price {kind}"))
    StateDriver(state).puts(1, {f"key {at}": value for at, value in enumerate(values)})
    return state


@pytest.mark.parametrize("values", [CENTS, ENDS], ids=["cents", "18 digits"])
def test_plain_sql_sorts_compares_and_sums_the_table_exactly(
    url: str, plain: sqlite3.Connection, values: list[Decimal]
) -> None:
    filled(url, "decimal(18,2)", values)
    whole = [int(value.scaleb(2)) for value in values]

    found = "SELECT max(price), min(price), sum(price), count(*) FROM prices"
    expected = (max(whole), min(whole), sum(whole), len(whole))
    assert plain.execute(found).fetchone() == expected
    ordered = plain.execute("SELECT price FROM prices ORDER BY price").fetchall()
    assert [price for (price,) in ordered] == sorted(whole)
    assert plain.execute("SELECT count(*) FROM prices WHERE price > 1").fetchone() == (
        sum(value > Decimal("0.01") for value in values),
    )


@pytest.mark.parametrize("values", [CENTS, ENDS], ids=["cents", "18 digits"])
def test_the_view_shows_the_numbers_that_are_meant(
    url: str, plain: sqlite3.Connection, values: list[Decimal]
) -> None:
    filled(url, "decimal(18,2)", values)

    found = plain.execute("SELECT max(price), min(price) FROM prices_view").fetchone()
    assert found == (float(max(values)), float(min(values)))
    ordered = plain.execute("SELECT price FROM prices_view ORDER BY price").fetchall()
    assert [price for (price,) in ordered] == [float(value) for value in sorted(values)]
    (total,) = plain.execute("SELECT sum(price) FROM prices_view").fetchone()
    assert total == pytest.approx(float(sum(values)))


def test_a_decimal_without_a_fraction_is_a_whole_number_in_the_view(
    url: str, plain: sqlite3.Connection
) -> None:
    filled(url, "decimal(18,0)", [Decimal(10**18 - 1), Decimal(-1)])

    assert plain.execute("SELECT max(price), sum(price) FROM prices_view").fetchone() == (
        10**18 - 1,
        10**18 - 2,
    )


@pytest.mark.rule("state_backends.sql.sqlite_decimals", "Rules", 2)
def test_the_schema_tells_where_the_point_is(url: str, plain: sqlite3.Connection) -> None:
    filled(url, "decimal(10,2)", CENTS)

    (schema,) = plain.execute("SELECT sql FROM sqlite_schema WHERE name = 'prices'").fetchone()
    assert '"price: 10 digits, 2 of them after the point"' in schema
    with pytest.raises(sqlite3.IntegrityError, match="price: 10 digits"):
        plain.execute("UPDATE prices SET price = 10000000000")


@pytest.mark.parametrize("name", ['50% "off"', "select", "ünicode:`b"])
def test_a_name_of_a_decimal_is_quoted(url: str, plain: sqlite3.Connection, name: str) -> None:
    column = name.replace("`", "'")
    state = open_state(url, table=column, value=Fields(f"`{column} 2` decimal(10,2)"))
    StateDriver(state).puts(1, {"a": Decimal("1.50")})

    quoted = column.replace('"', '""')
    assert plain.execute(f'SELECT * FROM "{quoted}_view"').fetchall() == [("a", 1.5)]
    with state.reader() as reader:
        assert reader.get("a") == Decimal("1.50")


def test_the_context_of_the_program_rounds_nothing(url: str) -> None:
    with localcontext() as context:
        context.prec = 3
        state = filled(url, "decimal(18,2)", ENDS)
        with state.reader() as reader:
            assert [value for _, value in reader.items()] == ENDS


def topology_of(url: str, kind: str, aggregates: dict[str, Aggregate]) -> Topology:
    rows: list[list[Any]] = [
        ["a", Decimal("9.10")],
        ["a", Decimal("10.20")],
        ["b", Decimal("-0.05")],
        ["b", None],
    ]
    spout = MemoryTransactionalSpout({0: rows}, Fields(f"shop string, amount {kind}"), 1)
    builder = TransactionalTopologyBuilder("sales", "spout", spout)
    bolt = PersistentAggregate(open_state(url, table="sales"), "shop", aggregates)
    builder.set_bolt("sales", bolt).fields_grouping("spout", "shop")
    return builder.build_topology()


def test_sums_and_means_of_narrow_decimals_are_kept(url: str, plain: sqlite3.Connection) -> None:
    """Their type is decimal(38,2), as in every store."""
    several = {
        "total": Sum("amount"),
        "mean": Mean("amount"),
        "low": Min("amount"),
        "high": Max("amount"),
    }
    with running(topology_of(url, "decimal(10,2)", several), MemoryEnsemble()) as run:
        run.process_all_available()

    with open_state(url).reader() as reader:
        assert reader.get("a") == {
            "total": Decimal("19.30"),
            "mean": Decimal("9.65"),
            "low": Decimal("9.10"),
            "high": Decimal("10.20"),
        }
        assert reader.get("b")["total"] == Decimal("-0.05")
    shown = "SELECT shop, total, mean, low, high FROM sales_view ORDER BY shop"
    assert plain.execute(shown).fetchall() == [
        ("a", 19.3, 9.65, 9.1, 10.2),
        ("b", -0.05, -0.05, -0.05, -0.05),
    ]


@pytest.mark.parametrize(
    ("kind", "aggregate", "got"),
    [
        ("decimal(19,2)", Max("amount"), r"decimal\(19,2\) for 'it'"),
        ("decimal(38,18)", Min("amount"), r"decimal\(38,18\) for 'it'"),
        ("decimal(38,18)", Sum("amount"), "a sum with 18 of them after the point for 'it'"),
        ("decimal(38,18)", Mean("amount"), "a sum with 18 of them after the point for 'it_sum'"),
    ],
)
@pytest.mark.rule("state_backends.sql.sqlite_decimals", "Rules", 1)
def test_wider_decimals_are_refused_when_the_topology_is_built(
    url: str, tmp_path: Path, kind: str, aggregate: Aggregate, got: str
) -> None:
    with pytest.raises(TopologyError, match=rf"at most 18 digits; got {got}.*in PostgreSQL"):
        topology_of(url, kind, {"it": aggregate})
    assert list(tmp_path.iterdir()) == []
    topology_of("memory:", kind, {"it": aggregate})


def test_a_wider_key_is_refused_before_a_table_is_made(url: str, plain: sqlite3.Connection) -> None:
    state = open_state(url, table="prices", key=Fields("price decimal(19,2)"))

    with pytest.raises(TopologyError, match=r"got decimal\(19,2\) for 'price'.*PostgreSQL"):
        state.open().create()
    assert plain.execute("SELECT name FROM sqlite_schema").fetchall() == []


@pytest.mark.parametrize("amount", ["9999999999999999.99", "99999999999999999.99"])
def test_a_sum_beyond_18_digits_names_another_store(url: str, amount: str) -> None:
    state = open_state(url, table="sums").with_columns(
        Fields("k string"), Fields("total decimal(38,2)"), (Sum("x"),)
    )
    store = StateDriver(state)
    store.merge(1, [("a", Decimal("0.01"))])

    with pytest.raises(ValueRefusedError, match=r"18 digits, 2 of them after .* PostgreSQL"):
        store.merge(2, [("b", Decimal(1)), ("a", Decimal(amount))])
    assert store.contents() == {"a": Decimal("0.01")}


@pytest.mark.parametrize("given", ["1.005", "NaN", "Infinity", "100000000.00"])
def test_a_number_that_no_column_of_its_type_holds_is_refused(url: str, given: str) -> None:
    store = StateDriver(open_state(url, table="prices", value=Fields("price decimal(10,2)")))
    value = Decimal(given)

    with pytest.raises(ValueRefusedError, match="'price'"):
        store.run(1, lambda state: state.put("a", value))
    # What reaches the store itself is not rounded either.
    with pytest.raises(ValueRefusedError, match="SQLite keeps 10 digits, 2 of them after"):
        store.puts(1, {"a": value})
    assert store.contents() == {}


class TestTableOfTheUsers:
    """A table that the user made is extended, but its own columns are never changed."""

    def state(self, url: str, plain: sqlite3.Connection, kind: str, price: Any) -> State:
        plain.execute(f"CREATE TABLE mine (name TEXT NOT NULL PRIMARY KEY, price {kind}) STRICT")
        plain.execute("INSERT INTO mine VALUES ('ann', ?)", (price,))
        price_type = Fields("price decimal(10,2)")
        return open_state(
            url, table="mine", key=Fields("name string"), value=price_type, add_columns=True
        )

    def test_whole_numbers_of_the_last_digit_are_decimals(
        self, url: str, plain: sqlite3.Connection
    ) -> None:
        state = self.state(url, plain, "INTEGER", 910)
        store = StateDriver(state)

        store.puts(1, {"ann": Decimal("10.00")})
        assert plain.execute("SELECT name, price FROM mine").fetchall() == [("ann", 1000)]
        assert plain.execute("SELECT name, price FROM mine_view").fetchall() == [("ann", 10.0)]
        store.puts(1, {}, attempt=1)
        assert store.contents() == {"ann": Decimal("9.10")}

    def test_text_is_refused_with_what_is_expected(
        self, url: str, plain: sqlite3.Connection
    ) -> None:
        state = self.state(url, plain, "TEXT", "9.10")

        with pytest.raises(SchemaDrift, match=r"'price' is TEXT.*expected INTEGER.*9.10 .* is 910"):
            StateDriver(state)
        assert plain.execute("SELECT * FROM mine").fetchall() == [("ann", "9.10")]
