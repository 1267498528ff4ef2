"""Aggregates of the rows that a table has: what changes takes the row of before back."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.unit.streams.test_changed_programs import Changing
from tests.unit.streams.test_mistakes import builder_and_sales, latest, state
from tests.unit.streams.times import events
from tests.unit.streams.worlds import GROUPS, assert_right, run
from txtopo import (
    Count,
    Fields,
    FieldsError,
    Last,
    Max,
    Mean,
    OwnAggregate,
    StreamBuilder,
    Sum,
    TopologyError,
    open_state,
)
from txtopo.errors import EmitError, TopologyChanged
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.streams import DataStream

FULL = ("id", "shop", "amount")


def counting(builder: Any, sales: Any, state: Any) -> None:
    """Shops are in the group of their last amount, which may be NULL, so they leave a group."""
    last = sales.as_table(state("last"), key="shop", value=["id", "amount"], order_by=FULL)
    rows = last.changes(retracted=True).with_columns(
        lambda row: [(row["amount"] or 0) % 3], "size long"
    )
    sizes = rows.group_by("size").persistent_aggregate(
        state("sizes"), shops=Count(), known=Count("amount")
    )
    # An aggregate of an aggregate: how many sizes have how many shops.
    again = sizes.changes(retracted=True).select("size", "retracted", many="shops")
    again.group_by("many").persistent_aggregate(state("many"), sizes=Count())
    rows.filter(lambda row: row["id"] < "s015").select("shop", gone="retracted").group_by(
        "shop"
    ).persistent_aggregate(state("early"), retracted="gone", n=Count())


def totalling(builder: Any, sales: Any, state: Any) -> None:
    """A chain: sums by shop and size, of which a sum of all."""
    sized = sales.with_columns(lambda row: [row["amount"] or 0], "pieces long")
    by_shop = sized.group_by("shop").persistent_aggregate(state("by_shop"), pieces=Sum("pieces"))
    left, right = by_shop.changes(retracted=True).branch(lambda row: row["shop"] < "b")
    both = builder.merge(left, right).group_by()
    both.persistent_aggregate(state("all"), pieces=Sum("pieces"), shops=Count())
    by_shop.changes().store(state("view"), key="shop")


def materializing(builder: Any, sales: Any, state: Any) -> None:
    """Tables of what a filter lets through: rows come, change and go; their changes are read."""
    last = sales.as_table(state("last"), key="shop", value=["id", "amount"], order_by=FULL)
    rows = last.changes(retracted=True).filter(lambda row: (row["amount"] or 0) % 2 == 0)
    even = rows.as_table(state("even"), key=("id", "shop"))
    by_shop = even.changes(retracted=True).group_by("shop")
    by_shop.persistent_aggregate(state("n"), n=Count(), known=Count("amount"))
    even.changes(before=True).store(state("moves"), key=("id", "shop"))
    rows.store(state("same"), key="shop")


@pytest.mark.integration
@pytest.mark.rule("txtopo.streams.materialized", "Rules", 1)
@pytest.mark.rule("txtopo.streams.materialized", "Rules", 2)
@pytest.mark.parametrize("program", [counting, totalling, materializing])
def test_an_aggregate_of_changes_is_one_of_the_rows_of_the_table(program: Any) -> None:
    """The plain program keeps all rows, and takes each row of before out of them."""
    assert_right(program, range(6))


@pytest.mark.integration
@pytest.mark.parametrize("program", [counting, totalling, materializing])
def test_it_is_right_in_groups_of_txids(program: Any) -> None:
    judged = assert_right(program, range(5, 16, 5), config=GROUPS)

    groups = Counter[str]()
    for each in judged:
        groups.update(each.groups)
    assert groups["written"] > 0


def test_a_zero_is_taken_back_as_it_was_put() -> None:
    """-0.0 and 0.0 are equal in a table, but a function may tell them apart."""

    def program(sales: DataStream, state: Any) -> None:
        rows = sales.as_table(state("last"), key="shop").changes(retracted=True)
        texts = rows.with_columns(lambda row: [str(row["x"])], "text string")
        texts.as_table(state("texts"), key="shop", value="text")

    rows = [["a", -0.0], ["a", 0.0], ["a", 5.0], ["b", 0.0], ["b", -0.0]]
    (texts,) = held(rows, "shop string, x double", program, "texts")
    assert texts == {"a": "5.0", "b": "0.0"}


def held(rows: Any, fields: str, program: Any, *tables: str) -> list[dict[Any, Any]]:
    """Run a program over rows, one in a txid, and return what tables hold."""
    builder = StreamBuilder("changes")
    spout = MemoryTransactionalSpout({0: rows}, Fields(fields), 1)
    program(builder.source("sales", spout), lambda name: open_state("memory:", table=name))
    topology = builder.build_topology()
    run(topology)
    states = {
        each.layout(name).name: each
        for component in topology.graph.components.values()
        for name, each in component.states.items()
    }
    found = []
    for table in tables:
        with states[table].reader() as reader:
            found.append(dict(reader.items()))
    return found


ORDERS = [["o1", "new", 5], ["o2", "new", None], ["o1", "paid", 6], ["o2", "new", None]]
ORDER = "id string, status string, total long"


def test_each_row_counts_where_it_is_now() -> None:
    def program(orders: DataStream, state: Any) -> None:
        table = orders.as_table(state("orders"), key="id")
        by_status = table.changes(retracted=True).group_by("status")
        by_status.persistent_aggregate(
            state("by_status"), n=Count(), total=Sum("total"), mean=Mean("total")
        )

    (found,) = held(ORDERS, ORDER, program, "by_status")

    assert found == {
        "new": {"n": 1, "total": 0, "mean": None},
        "paid": {"n": 1, "total": 6, "mean": 6.0},
    }


def test_a_row_whose_values_are_all_null_is_taken_back_too() -> None:
    """``before_…`` alone does not tell it from no row."""
    rows: list[list[Any]] = [["a", None], ["a", 3], ["a", None], ["b", None]]

    def program(sales: DataStream, state: Any) -> None:
        table = sales.as_table(state("latest"), key="shop", value="amount")
        changes = table.changes(retracted=True)
        changes.group_by().persistent_aggregate(state("n"), n=Count())
        changes.select("amount", gone="retracted").group_by().persistent_aggregate(
            state("renamed"), n=Count()
        )

    assert held(rows, "shop string, amount long", program, "n", "renamed") == [
        {"global": 2},
        {"global": 2},
    ]


class Words(OwnAggregate):
    """How often each word came; it changes the values that it is given, as it may."""

    type = "json"

    def zero(self) -> dict[str, int]:
        return {}

    def add(self, value: dict[str, int], *items: Any) -> dict[str, int]:
        for word in items:
            value[word] = value.get(word, 0) + 1
        return value

    def combine(self, left: dict[str, int], right: dict[str, int]) -> dict[str, int]:
        for word, count in right.items():
            left[word] = left.get(word, 0) + count
        return left


def test_an_aggregate_that_changes_its_values_in_place_loses_no_change() -> None:
    rows = [["ann", "x"], ["ann", "y"], ["bob", "x"], ["ann", "x"]]

    def program(said: DataStream, state: Any) -> None:
        words = said.group_by("user").persistent_aggregate(state("words"), words=Words("word"))
        words.changes().store(state("newest"), key="user")
        before = words.changes(before=True).select("user", "before_words")
        before.store(state("before"), key="user")
        told = words.changes(retracted=True).group_by("words")
        told.persistent_aggregate(state("users"), n=Count())

    newest, before, users = held(
        rows, "user string, word string", program, "newest", "before", "users"
    )
    assert newest == {"ann": '{"x":2,"y":1}', "bob": '{"x":1}'}
    assert before == {"ann": '{"x":1,"y":1}', "bob": None}
    assert {words: n for words, n in users.items() if n} == {newest["ann"]: 1, newest["bob"]: 1}


NUMBERED = "id string, shop string, n long"


def test_a_key_whose_row_is_taken_back_is_removed_and_its_changes_are_null() -> None:
    rows = [
        ["a", "x", 3],
        ["b", "x", 5],
        ["a", "x", 1],
        ["a", "y", 7],
        ["a", "y", 7],
        ["b", "x", 4],
    ]

    def program(sales: DataStream, state: Any) -> None:
        last = sales.as_table(state("last"), key="id")
        large = last.changes(retracted=True).filter(lambda row: row["n"] > 2)
        table = large.as_table(state("large"), key="id")
        table.changes(before=True).select("id", "n", "before_n").append(state("told"))
        large.as_table(state("shops"), key="id", value="shop")

    large, told, shops = held(rows, NUMBERED, program, "large", "told", "shops")

    assert large == {"a": {"shop": "y", "n": 7}, "b": {"shop": "x", "n": 4}}
    assert shops == {"a": "y", "b": "x"}
    assert [tuple(row.values()) for row in told.values()] == [
        ("a", 3, None),
        ("b", 5, None),
        ("a", None, 3),
        ("a", 7, None),
        ("b", 4, 5),
    ]


ONE_KEY = {
    "two rows in one txid": [[["a", "x", 3], ["b", "x", 5]]],
    "two equal rows": [[["a", "x", 3], ["b", "x", 3]]],
    "two rows in two txids": [[["a", "x", 3]], [["b", "x", 5]]],
    "another row taken back": [[["a", "x", 3]], [["b", "y", 5]], [["b", "x", 5]]],
}


@pytest.mark.rule("txtopo.streams.materialized", "Rules", 3)
@pytest.mark.parametrize("case", ONE_KEY)
def test_a_key_that_two_rows_have_at_the_same_time_is_an_error(case: str) -> None:
    builder = StreamBuilder("changes")
    rows = [row for batch in ONE_KEY[case] for row in batch]
    spout = MemoryTransactionalSpout({0: rows}, Fields(NUMBERED), len(ONE_KEY[case][0]))
    last = builder.source("sales", spout).as_table(open_state("memory:", table="last"), key="id")
    last.changes(retracted=True).select("shop", "n", "retracted").store(
        open_state("memory:", table="by_shop"), key="shop"
    )

    with pytest.raises(EmitError, match=r"would need two .*rows.* for one key; got shop='x'"):
        run(builder.build_topology())


def test_a_table_of_rows_that_are_taken_back_has_no_order() -> None:
    _, sales = builder_and_sales()

    with pytest.raises(TopologyError, match="store takes no order_by where rows are taken back"):
        changes_below(sales, retracted=True).store(state(), key="shop", order_by="amount")


def test_a_table_is_made_by_no_other_program_than_the_rows_that_it_has() -> None:
    def program(limit: int) -> Any:
        def declare(world: Changing, builder: StreamBuilder) -> None:
            last = world.source(builder).as_table(world.state("last"), key="key", value="n")
            rows = last.changes(retracted=True)
            for _ in range(limit):
                rows = rows.filter(lambda row: row["n"] > 1)
            rows.store(world.state("large"), key="key")

        return declare

    world = Changing("memory:")
    world.run(program(1), s=KEYED[:2])
    with pytest.raises(TopologyChanged, match="a row would be taken back in a different way"):
        world.run(program(0), s=KEYED)


def changes_below(sales: DataStream, **more: Any) -> DataStream:
    return latest(sales).changes(**more)


def test_what_counts_a_row_again_each_time_that_it_changes_is_refused() -> None:
    builder, sales = builder_and_sales()
    changes = changes_below(sales)
    told = (
        r"persistent_aggregate would count a row of table 'latest' again each time it "
        r"changes; got the stream '(latest.changes|merge)' as it is; expected "
        r"changes\(retracted=True\).*"
        r"select\('shop', 'amount'\) or another operator in between"
    )
    for stream in (changes, builder.merge(changes)):
        for kind in (Count(), Sum("amount"), Max("amount")):
            with pytest.raises(TopologyError, match=told):
                stream.group_by("shop").persistent_aggregate(state(), n=kind)
    both = sales.as_table(state("both"), key="id", value="amount").changes(before=True)
    with pytest.raises(TopologyError, match="would count a row of table 'both'"):
        both.group_by("id").persistent_aggregate(state(), n=Sum("amount"))


def test_what_has_been_in_a_table_may_be_counted() -> None:
    _, sales = builder_and_sales()
    changes = changes_below(sales).select("shop", "amount").group_by("shop")

    changes.persistent_aggregate(state(), most_ever=Max("amount"))


@pytest.mark.parametrize("kind", [Max("amount"), Last("amount", order="amount")])
def test_an_aggregate_that_cannot_take_back_is_refused(kind: Any) -> None:
    _, sales = builder_and_sales()
    rows = changes_below(sales, retracted=True)

    for stream in (rows, rows.filter(lambda row: True), rows.branch(lambda row: True)[1]):
        with pytest.raises(TopologyError, match="rows cannot be taken back from"):
            stream.group_by("shop").persistent_aggregate(state(), n=kind)


def test_an_aggregate_of_a_batch_takes_no_rows_back() -> None:
    _, sales = builder_and_sales()
    rows = changes_below(sales, retracted=True)

    with pytest.raises(TopologyError, match=r"aggregate cannot take rows back.*column 'retracted'"):
        rows.group_by("shop").aggregate(n=Count())
    rows.group_by("shop", "retracted").aggregate(n=Count())


@pytest.mark.parametrize("operator", ["query", "join", "with_planned_time"])
def test_what_gives_a_row_other_values_when_it_is_taken_back_is_refused(operator: str) -> None:
    builder, sales = builder_and_sales()
    rows = changes_below(sales, retracted=True)
    prices = sales.as_table(state("prices"), key="shop", value="id")
    lookup = builder.lookup("rates", "delta://rates", key="shop", value="rate long")
    given: dict[str, tuple[Any, ...]] = {"query": (prices, "shop"), "join": (lookup, "shop")}

    told = f"{operator} may give a row different values when it is taken back.*changes"
    with pytest.raises(TopologyError, match=told):
        getattr(rows, operator)(*given.get(operator, ()))


LEAVES_OUT = {
    "select": lambda rows: rows.select("shop", "amount"),
    "map": lambda rows: rows.map(lambda row: [row["shop"]], "shop string"),
    "flat_map": lambda rows: rows.flat_map(lambda row: [[row["shop"]]], "shop string"),
    "map_batches": lambda rows: rows.map_batches(lambda batch: batch, "shop string"),
    "flat_map_batches": lambda rows: rows.flat_map_batches(lambda batch: batch, "shop string"),
    "with_columns": lambda rows: rows.with_columns(lambda row: ["no"], "retracted string"),
}


@pytest.mark.parametrize("operator", LEAVES_OUT)
def test_the_column_that_says_what_is_taken_back_is_not_left_out(operator: str) -> None:
    """Otherwise old rows would count as new ones."""
    _, sales = builder_and_sales()
    rows = changes_below(sales, retracted=True)

    with pytest.raises(FieldsError, match=f"^{operator} leaves out column 'retracted', which"):
        LEAVES_OUT[operator](rows)


def test_merged_streams_say_in_one_column_what_is_taken_back() -> None:
    """Else the rows that one of them takes back would count as new ones."""
    builder, sales = builder_and_sales()
    one = sales.select("id").with_columns(lambda row: [1], "n long")
    tables = [one.as_table(state(name), key="id") for name in ("one", "two")]
    first = tables[0].changes(retracted=True).with_columns(lambda row: [False], "gone boolean")
    second = tables[1].changes(retracted=True).select("id", "n", gone="retracted")
    second = second.with_columns(lambda row: [False], "retracted boolean")

    with pytest.raises(FieldsError, match="got 'retracted' and 'gone'; expected one; rename"):
        builder.merge(first.select("id", "n", "retracted", "gone"),
                      second.select("id", "n", "retracted", "gone"))  # fmt: skip


def test_changes_that_are_merged_with_rows_taken_back_would_count_again() -> None:
    builder, sales = builder_and_sales()
    one = sales.select("id").with_columns(lambda row: [False], "retracted boolean")
    table = one.as_table(state("one"), key="id")
    numbers = sales.select("id", "amount").as_table(state("two"), key="id")
    back = numbers.changes(retracted=True).select("id", "retracted")

    for merged in (builder.merge(table.changes(), back), builder.merge(back, table.changes())):
        with pytest.raises(TopologyError, match=r"would count a row of table .* again"):
            merged.group_by().persistent_aggregate(state(), n=Count())
        with pytest.raises(TopologyError, match=r"join would keep a row of table .* again"):
            merged.join(sales.select("id", "amount"), on="id", state=state())


def test_the_mark_is_no_column_of_what_takes_rows_back() -> None:
    """Else no row that is taken back would be found where it counted."""
    _, sales = builder_and_sales()
    rows = changes_below(sales, retracted=True)

    with pytest.raises(
        TopologyError, match="would be taken back from a different group than the one they"
    ):
        rows.group_by("shop", "retracted").persistent_aggregate(state(), n=Count())
    for columns in ({"key": ("shop", "retracted")}, {"key": "shop", "value": "retracted"}):
        with pytest.raises(FieldsError, match="as_table would never find a row that is taken back"):
            rows.as_table(state(), **columns)


def test_the_row_of_before_is_told_in_one_way() -> None:
    _, sales = builder_and_sales()

    with pytest.raises(TopologyError, match="changes of 'latest' would have the old values twice"):
        changes_below(sales, before=True, retracted=True)


def test_a_table_with_a_column_of_that_name_is_refused() -> None:
    _, sales = builder_and_sales()
    table = sales.select("id", retracted="amount").as_table(state(), key="id")

    with pytest.raises(FieldsError, match="changes would make column 'retracted' twice"):
        table.changes(retracted=True)


KEYED = events(("a", 1), ("b", 2), ("a", 3), ("b", 4))


def aggregated(table: str, total: str | None) -> Any:
    """Keep the last number of each key, and, if a table is given for it, their sum."""

    def program(world: Changing, builder: StreamBuilder) -> None:
        last = world.source(builder).as_table(world.state(table), key="key", value="n")
        if total is not None:
            rows = last.changes(retracted=True).filter(lambda row: True).group_by()
            rows.persistent_aggregate(world.state(total), n=Sum("n"))
        last.changes().store(world.state("view"), key="key")

    return program


@pytest.mark.parametrize(
    ("before", "after"),
    [(("last", None), ("last", "sum")), (("last", "sum"), ("other", "sum")),
     (("last", "sum"), ("last", "other"))],
)  # fmt: skip
def test_a_table_and_what_takes_its_rows_back_begin_together(before: Any, after: Any) -> None:
    """Else a row is taken back that never counted, or counts again."""
    world = Changing("memory:")
    world.run(aggregated(*before), s=KEYED[:2])

    with pytest.raises(
        TopologyChanged, match=r"would begin from the start .* takes back what changes"
    ):
        world.run(aggregated(*after), s=KEYED)


def test_both_may_stay_and_both_may_be_new() -> None:
    world = Changing("memory:")
    world.run(aggregated("last", None), s=KEYED[:1])
    world.run(aggregated("newer", "sum"), s=KEYED[:2])
    world.run(aggregated("newer", "sum"), s=KEYED[:3])
    world.run(aggregated("newer", "sum"), s=KEYED)

    assert world.held("newer") == {"a": 3, "b": 4}
    assert world.held("sum") == {"global": 7}


def summed(table: str = "last", **more: Any) -> Any:
    """Keep two tables of the last numbers, and the sum of those of one of them."""

    def program(world: Changing, builder: StreamBuilder) -> None:
        source = world.source(builder)
        tables = {
            name: source.as_table(world.state(name), key="key", value="n")
            for name in ("last", "also")
        }
        rows = tables[table].changes(retracted=True)
        for operator in more.get("between", ()):
            rows = getattr(rows, operator)(lambda row: row["key"] != "a")
        columns = {"n": Sum("n"), **more.get("columns", {})}
        sums = rows.group_by().persistent_aggregate(
            world.state("sum"), id=more.get("id"), **columns
        )
        if more.get("read"):
            sums.changes().select("key", "n").store(world.state("view"), key="key")

    return program


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize(
    "after", [{"between": ["filter"]}, {"table": "also"}, {"columns": {"rows": Count()}}]
)
def test_a_row_is_taken_back_by_no_other_program_than_it_counted_in(after: Any, read: bool) -> None:
    world = Changing("memory:")
    world.run(summed(read=read), s=KEYED[:2])

    with pytest.raises(
        TopologyChanged, match="a row would be taken back in a different way than it was count"
    ):
        world.run(summed(read=read, **after), s=KEYED)


@pytest.mark.parametrize("after", [{"id": "other"}, {"read": True}, {}])
def test_what_takes_rows_back_may_be_renamed_and_read(after: Any) -> None:
    world = Changing("memory:")
    world.run(summed(between=["filter"]), s=KEYED[:2])
    world.run(summed(between=["filter"], **after), s=KEYED)

    assert world.held("sum") == {"global": 4}
