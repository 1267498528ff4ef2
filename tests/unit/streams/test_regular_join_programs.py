"""Programs with joins of tables and of streams, what is below such a join, and its mistakes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.streams.scripted import ScriptedSpout, tables
from tests.unit.streams.test_changed_programs import Changing
from tests.unit.streams.test_mistakes import builder_and_sales, state
from tests.unit.streams.times import at, events
from tests.unit.streams.worlds import run
from txtopo import Count, Fields, FieldsError, Max, StreamBuilder, Sum, TopologyError, open_state
from txtopo.errors import SchemaDrift, TopologyChanged
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.streams import DataStream, Table

ORDER = Fields("order string, customer string, total long")
CUSTOMER = Fields("customer string, name string")
ORDERS: Any = [
    [["o1", "c1", 5], ["o2", "c2", 7], ["o3", None, 1]],
    [["o4", "c1", 3]],
    [["o1", "c3", 6]],
    [["o2", "c1", 7], ["o5", "c9", 2]],
]
CUSTOMERS: Any = [[["c1", "ann"]], [["c2", "bob"], ["c3", "cyd"]], [["c1", "Ann"]], []]

Program = Callable[[StreamBuilder, DataStream, DataStream, Callable[[str], Any]], None]


def held(program: Program, url: str, *names: str) -> list[dict[Any, Any]]:
    """Run a program over orders and customers, and return what some tables hold."""
    builder = StreamBuilder("joins")
    orders = builder.source("orders", ScriptedSpout(ORDERS, ORDER))
    customers = builder.source("customers", ScriptedSpout(CUSTOMERS, CUSTOMER))
    program(builder, orders, customers, lambda name: open_state(url, table=name))
    run(builder.build_topology())
    return tables(url, *names)


def both_tables(orders: DataStream, customers: DataStream, state: Any) -> tuple[Table, Table]:
    return (
        orders.as_table(state("orders"), key="order"),
        customers.as_table(state("customers"), key="customer"),
    )


@pytest.fixture
def url(tmp_path: Any) -> str:
    return f"sqlite:///{tmp_path}/joins.db"


def test_a_foreign_key_join_of_two_tables_as_a_table(url: str) -> None:
    def program(builder: Any, orders: Any, customers: Any, state: Any) -> None:
        left, right = both_tables(orders, customers, state)
        both = left.join(right, on="customer", how="left", state=state("joined"))
        both.as_table(state("out"), key="order")

    (out,) = held(program, url, "out")

    assert out == {
        "o1": {"customer": "c3", "total": 6, "name": "cyd"},
        "o2": {"customer": "c1", "total": 7, "name": "Ann"},
        "o3": {"customer": None, "total": 1, "name": None},
        "o4": {"customer": "c1", "total": 3, "name": "Ann"},
        "o5": {"customer": "c9", "total": 2, "name": None},
    }


def test_an_aggregate_below_a_join_counts_each_row_where_it_is_now(url: str) -> None:
    """Each customer has the total of their orders, under the name that they have now."""

    def program(builder: Any, orders: Any, customers: Any, state: Any) -> None:
        left, right = both_tables(orders, customers, state)
        both = right.join(left, on="customer", state=state("joined"))
        big = both.filter(lambda row: row["total"] > 1).group_by("name")
        big.persistent_aggregate(state("totals"), total=Sum("total"), n=Count())

    (totals,) = held(program, url, "totals")

    assert {name: row for name, row in totals.items() if row["n"]} == {
        "Ann": {"total": 10, "n": 2},
        "cyd": {"total": 6, "n": 1},
    }


def test_a_join_of_a_table_with_a_stream_whose_rows_stay(url: str) -> None:
    def program(builder: Any, orders: Any, customers: Any, state: Any) -> None:
        newest = customers.as_table(state("customers"), key="customer")
        both = orders.join(newest, on="customer", how="right", state=state("joined"))
        both.group_by("name").persistent_aggregate(state("n"), n=Count(), sold=Sum("total"))

    (found,) = held(program, url, "n")

    assert {name: row for name, row in found.items() if row["n"]} == {
        "Ann": {"n": 3, "sold": 15},
        "bob": {"n": 1, "sold": 7},
        "cyd": {"n": 1, "sold": 6},
    }


def test_a_join_of_a_join(url: str) -> None:
    def program(builder: Any, orders: Any, customers: Any, state: Any) -> None:
        left, right = both_tables(orders, customers, state)
        per_customer = orders.filter(lambda row: row["customer"] is not None)
        often = per_customer.group_by("customer").persistent_aggregate(
            state("often"), times=Count()
        )
        both = left.join(right, on="customer", state=state("joined"))
        both.join(often, on="customer", how="left", state=state("again")).as_table(
            state("out"), key="order", value=("name", "times")
        )

    (out,) = held(program, url, "out")

    assert out == {
        "o1": {"name": "cyd", "times": 1},
        "o2": {"name": "Ann", "times": 3},
        "o4": {"name": "Ann", "times": 3},
    }


def test_a_table_joined_with_itself(url: str) -> None:
    def program(builder: Any, orders: Any, customers: Any, state: Any) -> None:
        table = orders.as_table(state("orders"), key="order")
        others = table.changes(retracted=True).select("customer", "retracted", other="order")
        pairs = table.join(others, on="customer", state=state("joined"))
        pairs.group_by("customer").persistent_aggregate(state("pairs"), n=Count())
        same = table.changes(retracted=True)
        same.join(
            same.select("order", "retracted", again="total"), on="order", state=state("same")
        ).as_table(state("twice"), key="order", value=("total", "again"))

    pairs, twice = held(program, url, "pairs", "twice")

    assert {key: n for key, n in pairs.items() if n} == {"c1": 4, "c3": 1, "c9": 1}
    assert twice == {
        key: {"total": total, "again": total}
        for key, total in {"o1": 6, "o2": 7, "o3": 1, "o4": 3, "o5": 2}.items()
    }


def test_rows_that_expire_are_taken_back_in_a_run(url: str) -> None:
    """With event time, whose watermark the sources move."""
    fields = Fields("key string, n long, ts timestamp")
    rows = [[("a", 1, 0)], [("b", 2, 5)], [("a", 3, 40)], [("b", 4, 80)]]
    txids = [[[key, n, at(minute)] for key, n, minute in batch] for batch in rows]
    builder = StreamBuilder("expiring")
    spout = MemoryTransactionalSpout({0: [row for rows in txids for row in rows]}, fields, 1)
    source = builder.source("s", spout, event_time="ts", max_ahead=None)
    other = source.select("key", m="n", at="ts")
    both = source.join(
        other, on="key", state=open_state(url, table="joined"), expire_after="30 minutes"
    )
    both.group_by("key").persistent_aggregate(open_state(url, table="out"), n=Count(), sum=Sum("m"))
    run(builder.build_topology())

    assert tables(url, "out") == [{"a": {"n": 0, "sum": 0}, "b": {"n": 1, "sum": 4}}]


# ------------------------------------------------------------ mistakes

MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "how": ({"how": "outer"}, "join has no how='outer'; expected 'inner', 'left', 'right' or 'f"),
    "state": ({"state": None}, "a join of two streams needs a state that keeps their rows"),
    "kind": ({"state": state(kind="transactional")}, "join reads a transactional state"),
    "late": ({"late": False}, "a join without within takes no late; got False"),
    "parallelism": ({"parallelism": 2}, "join with a stream takes no parallelism; got 2"),
    "expire_after": ({"expire_after": "soon"}, "expire_after, of join, is not a duration"),
    "on": ({"on": ()}, "join compares no column"),
    "column": ({"on": "sho"}, "join names unknown column 'sho'"),
    "types": ({"on": {"shop": "m"}}, "columns of join, on its right side, do not fit the key"),
    "mark": ({"on": "retracted"}, "join names unknown column 'retracted'"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_where_it_stands(name: str) -> None:
    given, message = MISTAKES[name]
    _, sales = builder_and_sales()
    table = sales.as_table(state("latest"), key="shop", value="amount")
    other = sales.select("shop", m="amount")

    with pytest.raises(TopologyError, match=message):
        table.changes(retracted=True).join(
            other, **{"on": "shop", "state": state("joined"), **given}
        )


def test_an_inner_join_of_rows_that_stay_takes_nothing_back(url: str) -> None:
    """So any aggregate may be below it."""

    def program(builder: Any, orders: Any, customers: Any, state: Any) -> None:
        both = orders.join(customers, on="customer", state=state("joined"))
        assert both.retracted is None
        both.group_by("name").persistent_aggregate(state("most"), most=Max("total"))

    assert held(program, url, "most") == [{"ann": 7, "Ann": 7, "bob": 7, "cyd": 6}]


def test_columns_that_would_stand_twice_are_refused() -> None:
    _, sales = builder_and_sales()
    marked = sales.select("shop", retracted="amount")
    sided = sales.select("id", side="shop")

    with pytest.raises(FieldsError, match="join would make column 'amount' twice"):
        sales.join(sales.select("shop", "amount"), on="shop", state=state())
    with pytest.raises(FieldsError, match="join would make column 'retracted' twice"):
        sales.join(marked, on="shop", how="full", state=state())
    with pytest.raises(FieldsError, match="the state of join would make column 'side' twice"):
        sided.join(sided.select("side"), on="side", state=state())


def test_changes_that_take_nothing_back_are_refused() -> None:
    """Else each earlier row of a key would stay in the join."""
    _, sales = builder_and_sales()
    table = sales.as_table(state("latest"), key="shop", value="amount")
    other = sales.select("shop", "id")

    for left, right in ((table.changes(), other), (other, table.changes())):
        with pytest.raises(TopologyError, match="join would keep a row of table 'latest' again"):
            left.join(right, on="shop", state=state())
    other.join(table.changes().select("shop", "amount"), on="shop", state=state())


def test_a_table_of_another_builder_is_refused() -> None:
    _, sales = builder_and_sales()
    theirs = builder_and_sales()[1].as_table(state("latest"), key="shop", value="amount")

    with pytest.raises(TopologyError, match="join got 'latest' of another StreamBuilder"):
        sales.join(theirs, on="shop", state=state())
    with pytest.raises(TopologyError, match="join does not accept a str"):
        theirs.join("sales", on="shop", state=state())  # type: ignore[arg-type]


@pytest.mark.parametrize("how", ["right", "full"])
def test_joins_that_keep_right_rows_are_without_within_and_lookup(how: Any) -> None:
    builder, sales = builder_and_sales()
    lookup = builder.lookup("rates", "delta://rates", key="shop", value="rate long")

    with pytest.raises(TopologyError, match=f"join has no how='{how}' here"):
        sales.join(lookup, on="shop", how=how)
    with pytest.raises(TopologyError, match="join with a lookup takes no expire_after"):
        sales.join(lookup, on="shop", expire_after="1 hour")


def test_an_operator_that_gives_other_values_is_refused_below_a_join() -> None:
    _, sales = builder_and_sales()
    other = sales.select("shop", m="amount")
    both = sales.join(other, on="shop", how="left", state=state("joined"))

    assert both.retracted == "retracted"
    assert both.time is None
    with pytest.raises(TopologyError, match="with_planned_time may give a row different values"):
        both.with_planned_time()
    with pytest.raises(FieldsError, match="select leaves out column 'retracted'"):
        both.select("shop", "m")


# ------------------------------------------------------------ a program that changes

KEYED = events(("a", 1), ("b", 2), ("a", 3), ("b", 4))


def joining(**more: Any) -> Any:
    """Join the last number of each key with all rows of the source, and count."""

    def program(world: Changing, builder: StreamBuilder) -> None:
        source = world.source(builder)
        last = source.as_table(world.state(more.get("table", "last")), key="key", value="n")
        left = last.changes(retracted=True)
        if more.get("filtered"):
            left = left.filter(lambda row: row["key"] != "z")
        columns = more.get("columns", {"id": "id"})
        right = source.filter(lambda row: True) if more.get("appended") else source
        both = left.join(
            right.select("key", **columns),
            on="key",
            how=more.get("how", "inner"),
            state=world.state(more.get("state", "joined")),
            expire_after=more.get("expire_after"),
            id=more.get("id"),
        )
        rows = both.filter(lambda row: True) if more.get("below") else both
        rows.group_by("key").persistent_aggregate(world.state(more.get("out", "out")), n=Count())

    return program


def all_new(name: str) -> dict[str, Any]:
    return {"table": f"{name} table", "state": f"{name} state", "out": f"{name} out"}


@pytest.mark.parametrize(
    "after",
    [
        {"how": "left"},
        {"columns": {"id": "id", "m": "n"}},
        {"columns": {"i": "id"}},
        {"filtered": True},
        {"below": True},
        {"state": "another"},
        {"table": "another"},
        {"out": "another"},
    ],
    ids=str,
)
@pytest.mark.rule("txtopo.streams.regular_join", "Rules", 8)
def test_a_changed_join_does_not_go_on_with_the_same_state(after: dict[str, Any]) -> None:
    world = Changing("memory:")
    world.run(joining(), s=KEYED[:2])
    before = dict(world.ensemble.nodes)

    with pytest.raises(TopologyChanged):
        world.run(joining(**after), s=KEYED)
    assert world.ensemble.nodes == before


def test_rows_that_do_not_expire_do_not_begin_to_in_the_same_state() -> None:
    world = Changing("memory:")
    world.run(joining(), s=KEYED[:2])

    with pytest.raises(SchemaDrift, match="column 'seen' is new"):
        world.run(joining(expire_after="1 hour"), s=KEYED)


@pytest.mark.parametrize(
    "after", [{}, {"id": "renamed"}, {"appended": True}, all_new("b")], ids=str
)
def test_what_does_not_change_what_counted_may_change(after: dict[str, Any]) -> None:
    world = Changing("memory:")
    world.run(joining(), s=KEYED[:2])
    world.run(joining(**after), s=KEYED)

    found = world.held(after.get("out", "out"))
    assert found == ({"a": 2, "b": 2} if "out" not in after else {"a": 1, "b": 1})
