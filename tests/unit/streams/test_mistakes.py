"""A mistake in a program is told where it stands, with what was got and what was expected."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.streams.worlds import run
from txtopo import (
    BatchBolt,
    Committer,
    Count,
    Fields,
    FieldsError,
    Max,
    PersistentAggregate,
    StreamBuilder,
    Sum,
    TopologyError,
    open_state,
)
from txtopo.bolts import KafkaSink
from txtopo.spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from txtopo.streams import DataStream, Table, tumbling

SALE = Fields("id string, shop string, amount long")


def builder_and_sales() -> tuple[StreamBuilder, DataStream]:
    builder = StreamBuilder("shop")
    spout = OpaqueMemoryTransactionalSpout({0: [["1", "a", 5]]}, SALE, 1)
    return builder, builder.source("sales", spout)


def state(table: str | None = "t", **more: Any) -> Any:
    return open_state("sqlite:///x.db", table=table, **more)


def latest(sales: DataStream, **more: Any) -> Table:
    return sales.as_table(state("latest", **more), key="shop", value="amount")


def running(sales: DataStream, **more: Any) -> DataStream:
    kept = {"state": state("running")} | more
    return sales.group_by("shop").update(lambda v, row: (1, None), "n long", **kept)


def asking_itself(sales: DataStream) -> object:
    table = latest(sales)
    asked = sales.select("shop").query(table, on="shop")
    return asked.select("shop").query(table, on="shop")


def used_twice(sales: DataStream) -> object:
    sales.store(state("t"), key="id")
    return sales.group_by("shop").persistent_aggregate(state("T"), id="n", n=Count())


def many_operators(sales: DataStream) -> None:
    for _ in range(40):
        sales = sales.filter(bool_of)


async def waiting(row: Any) -> Any: ...


def yielding(row: Any) -> Any:
    yield row


class Waiting:
    async def __call__(self, row: Any) -> bool:
        return True


class Silent(BatchBolt, Committer):
    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None: ...

    def execute(self, tuple: Any) -> None: ...

    def finish_batch(self) -> None: ...


MISTAKES: dict[str, tuple[Callable[[Any], object], str]] = {
    "column": (lambda s: s.group_by("shp"), "group_by names unknown column 'shp'; did you mean"),
    "twice": (lambda s: s.group_by("shop", "shop"), "group_by names column 'shop' twice"),
    "a list": (lambda s: s.group_by(["shop"]), r"group_by needs names of columns; got \['shop'\]"),
    "a number": (lambda s: s.store(state(), key=3), "store, for its key, needs names of columns"),
    "select": (lambda s: s.select("id", who="customer"), "select names unknown column 'customer'"),
    "nothing": (lambda s: s.select(), "select names no column"),
    "renamed": (
        lambda s: s.select("id", id="shop"),
        "field names must be distinct; used twice: id",
    ),
    "function": (lambda s: s.map("x", "n long"), "map needs a function; got 'x'"),
    "class": (lambda s: s.filter(int), "filter needs a function"),
    "arguments": (
        lambda s: s.map(lambda: [1], "n long"),
        r"the function of map does not fit its call; got <lambda>\(\); expected \(row\)",
    ),
    "async": (
        lambda s: s.map(waiting, "n long"),
        "function of map does not return a value; got waiting",
    ),
    "yield": (lambda s: s.filter(yielding), "got yielding, which is a generator, since it has a y"),
    "async call": (
        lambda s: s.filter(Waiting()),
        "does not return a value; got a function, which is async",
    ),
    "one of several": (
        lambda s: s.select("id", other=["shop", "amount"]),
        r"select needs the name of a column; got \['shop', 'amount'\]; expected one of id, shop",
    ),
    "renamed nothing": (lambda s: s.select("id", other=[]), "select needs the name of a column"),
    "many operators": (
        many_operators,
        r"too many operators in a row: the id of filter would be too long.*id='clean'",
    ),
    "states": (
        lambda s: s.to(Silent(), states=[state()]),
        r"the states of bolt 'sales\.to' have no names; got \[State.*expected a dictionary",
    ),
    "update's arguments": (
        lambda s: s.group_by("shop").update(lambda row: row, "n long", state=state()),
        r"the function of update does not fit its call.*expected \(value, row\)",
    ),
    "no type": (lambda s: s.map(list, "n"), "needs a function|has no type"),
    "fields": (lambda s: s.map(lambda row: [1], ["n"]), "fields of map are of the wrong type"),
    "unknown type": (lambda s: s.map(lambda row: [1], "n longg"), "unknown type 'longg'; did you"),
    "json": (lambda s: s.map(lambda row: [1], "n json"), "field 'n' of map is json"),
    "parallelism": (lambda s: s.filter(bool_of, parallelism=0), "parallelism of 'filter' is wrong"),
    "id": (lambda s: s.filter(bool_of, id="sales"), "filter id 'sales' is used twice"),
    "bad id": (lambda s: s.filter(bool_of, id="a/b"), "filter id has a '/'"),
    "no aggregate": (lambda s: s.group_by("shop").aggregate(), "aggregate has no aggregates"),
    "not one": (
        lambda s: s.group_by("shop").aggregate(n=Count),
        "is not an aggregate|of column 'n' is none",
    ),
    "sum of text": (
        lambda s: s.group_by("shop").persistent_aggregate(state(), n=Sum("id")),
        "persistent_aggregate cannot use 'sales': Sum needs numbers; field 'id' is string",
    ),
    "max of nothing": (
        lambda s: s.group_by("shop").aggregate(n=Max("amuont")),
        "unknown field 'amuont'.*did you mean 'amount'",
    ),
    "key as value": (
        lambda s: s.group_by("shop").persistent_aggregate(state(), shop=Count()),
        "would make column 'shop' twice",
    ),
    "taken back": (
        lambda s: s.group_by("shop").persistent_aggregate(state(), retracted="id", n=Count()),
        "not a boolean; got 'id', string",
    ),
    "state": (lambda s: s.store("sqlite:///x.db", key="id"), "state of store is of the wrong type"),
    "no table": (lambda s: s.store(state(None), key="id"), "state of store has no table"),
    "table twice": (used_twice, "table 'T' of .* is used twice; got it in store 't' and in"),
    "no key": (lambda s: s.store(state(), key=()), "has no key columns"),
    "key": (lambda s: s.store(state(), key="idd"), "store, for its key, names unknown column"),
    "key and value": (
        lambda s: s.as_table(state(), key="id", value=["id", "shop"]),
        "would make column 'id' twice",
    ),
    "order": (
        lambda s: s.store(state(), key="id", order_by="time"),
        "store, for its order, names unknown column 'time'",
    ),
    "password": (
        lambda s: s.store("postgresql://me:secret@db/x", key="id"),
        r"got 'postgresql://me:\*\*\*@db/x'",
    ),
    "no groups": (
        lambda s: s.group_by().update(lambda v, row: (1, None), "n long", state=state()),
        "update has no groups",
    ),
    "transactional update": (
        lambda s: running(s, state=state(kind="transactional")),
        "update reads a transactional state",
    ),
    "transactional query": (
        lambda s: s.select("shop").query(latest(s, kind="transactional"), on="shop"),
        "query reads a transactional state",
    ),
    "transactional changes": (
        lambda s: latest(s, kind="transactional").changes(),
        "changes reads a transactional state",
    ),
    "changes of a log": (
        lambda s: s.group_by("shop").persistent_aggregate(state(mode="log"), n=Count()).changes(),
        "changes reads a state in mode 'log'",
    ),
    "types of keys": (
        lambda s: s.select("amount").query(latest(s), on="amount"),
        "columns of query do not fit the key; got .*amount long.* expected 1 of the types of",
    ),
    "several keys": (lambda s: s.query(latest(s), on=["id", "shop"]), "do not fit the key"),
    "column twice": (
        lambda s: s.query(latest(s), on="shop"),
        r"query would make column 'amount' twice.*select\(…, other='amount'\)",
    ),
    "cycle": (asking_itself, "cannot query table 'latest', since it depends on that"),
    "no table to query": (lambda s: s.query(s, on="id"), "query does not accept a DataStream"),
    "merge": (lambda s: StreamBuilder("x").merge(s), "merge got 'sales' of another StreamBuilder"),
    "no bolt": (lambda s: s.bolt("b", object()), "bolt 'b' is no bolt"),
    "no output": (
        lambda s: s.bolt("b", Silent()),
        r"bolt 'b' has no stream 'default' to continue with; got no streams; .*use to\(\)",
    ),
    "bolt's fields": (lambda s: s.bolt("b", Silent(), by="x"), "bolt 'b' names unknown column 'x'"),
    "bolt's text": (
        lambda s: s.to(Silent(), id="b", states={"n": "sqlite:///x.db"}),
        "the state of bolt 'b' is of the wrong type; got 'sqlite:///x.db'",
    ),
    "bolt's state": (
        lambda s: (s.store(state(), key="id"), s.to(Silent(), states={"n": state()})),
        "table 't' of .* is used twice; got it in store 't' and in bolt 'sales.to'",
    ),
}


def bool_of(row: Any) -> bool:
    return bool(row["amount"])


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.rule("txtopo.streams.builder", "Rules", 3)
def test_a_mistake_is_told_where_it_stands(name: str) -> None:
    mistake, message = MISTAKES[name]
    _, sales = builder_and_sales()

    with pytest.raises((TopologyError, TypeError)) as caught:
        mistake(sales)

    assert re.search(message, str(caught.value), re.DOTALL), str(caught.value)
    assert "secret" not in str(caught.value)


def test_merged_streams_need_equal_fields() -> None:
    builder, sales = builder_and_sales()

    with pytest.raises(TopologyError, match=r"merged streams differ in their fields; got .*'sales"):
        builder.merge(sales, sales.select("shop", "id", "amount"))


def test_a_stream_stands_once_in_a_merge() -> None:
    builder, sales = builder_and_sales()
    good, bad = sales.branch(bool_of)

    with pytest.raises(TopologyError, match=r"'sales\.branch\.others' occurs twice in a merge"):
        builder.merge(builder.merge(good, bad), bad)


def test_a_merge_of_nothing_is_refused() -> None:
    with pytest.raises(TopologyError, match="merge got no streams"):
        builder_and_sales()[0].merge()


def test_a_topology_needs_a_source() -> None:
    with pytest.raises(TopologyError, match=r"topology 'shop' has no source.*builder.source"):
        StreamBuilder("shop").build_topology()


def test_a_spout_is_checked_where_it_is_added() -> None:
    builder: Any = StreamBuilder("shop")

    with pytest.raises(TopologyError, match="spout 'sales' is no spout; got 3"):
        builder.source("sales", 3)
    with pytest.raises(TopologyError, match="parallelism of 'sales' is wrong; got 0"):
        builder.source("sales", MemoryTransactionalSpout({0: []}, SALE, 1), 0)
    builder.source("sales", MemoryTransactionalSpout({0: []}, SALE, 1)).store(state(), key="id")

    assert set(builder.build_topology().graph.components) == {"sales", "t"}


def test_a_place_for_dead_letters_is_checked_where_it_is_given() -> None:
    with pytest.raises(TopologyError, match="dead_letters is of the wrong type; got 'x'"):
        StreamBuilder("shop", dead_letters="x")  # type: ignore[arg-type]


def test_an_output_that_is_not_there_is_refused() -> None:
    builder, _ = builder_and_sales()

    with pytest.raises(TopologyError, match=r"no spout or bolt 'sale'.*did you mean 'sales'"):
        builder.output("sale", "late")
    with pytest.raises(TopologyError, match="'sales' has no stream 'late'"):
        builder.output("sales", "late")
    with pytest.raises(TopologyError, match=r"output takes two strings; got \[\] and 'late'"):
        builder.output([], "late")  # type: ignore[arg-type]


def test_a_function_that_returns_no_row_is_told_with_its_operator() -> None:
    returned: dict[str, Callable[[Any], DataStream]] = {
        "did not return a row; got 5": lambda s: s.map(lambda row: 5, "n long"),
        "did not return a row; got [1, 2]": lambda s: s.map(lambda row: [1, 2], "n long"),
        "did not return rows; got 'ab'": lambda s: s.flat_map(lambda row: "ab", "n long"),
        "did not return a truth value; got a generator": lambda s: s.filter(
            lambda row: yielding(row)
        ),
        "did not return a record batch": lambda s: s.map_batches(lambda batch: 5, "n long"),
        "did not return a mask": lambda s: s.filter_batches(lambda batch: batch),
        "does not fit column 'n'": lambda s: s.map(lambda row: ["x"], "n long"),
        "changed the number of rows": lambda s: s.map_batches(
            lambda batch: batch.slice(1).select(["id"]), "id string"
        ),
        "did not return a value and a row": lambda s: s.group_by("shop").update(
            lambda value, row: 3,
            "n long",
            state=open_state("memory:", table="v"),
        ),
    }
    for message, operator in returned.items():
        builder = StreamBuilder("shop")
        spout = OpaqueMemoryTransactionalSpout({0: [["1", "a", 5]]}, SALE, 1)
        last = operator(builder.source("sales", spout))
        wide = last.with_columns(lambda row: [1], "one long")
        wide.store(open_state("memory:", table="out"), key=last.fields.names[0])
        with pytest.raises(Exception, match=re.escape(message)):
            run(builder.build_topology())


def test_a_persistent_aggregate_of_ones_own_holds_its_table() -> None:
    _, sales = builder_and_sales()
    sales.to(PersistentAggregate(state("n"), "shop", Count()), id="count")

    with pytest.raises(TopologyError, match="used twice; got it in bolt 'count'"):
        sales.store(state("n"), key="id")


def test_two_sources_meet_in_one_state() -> None:
    builder, stock = StreamBuilder("stock"), open_state("memory:", table="stock")
    sold = builder.source(
        "sold", MemoryTransactionalSpout({0: [["tea"], ["salt"]]}, Fields("product string"), 1)
    )
    receipts: Any = {0: [["tea", 5], ["salt", 3], ["tea", 2]]}
    fields = Fields("product string, pieces long")
    bought = builder.source("bought", OpaqueMemoryTransactionalSpout(receipts, fields, 1), 2)
    taken = sold.map(lambda row: [row["product"], -1], "product string, pieces long")
    both = builder.merge(taken, bought).group_by("product")
    both.persistent_aggregate(stock, pieces=Sum("pieces"))
    run(builder.build_topology())

    with stock.reader() as reader:
        assert dict(reader.items()) == {"tea": 6, "salt": 2}


def test_errors_of_fields_are_errors_of_the_topology() -> None:
    assert issubclass(FieldsError, TopologyError)


def test_changes_of_an_opaque_source_cannot_go_to_kafka() -> None:
    """Another attempt may bring other changes, and consumers would have seen these."""
    builder, sales = builder_and_sales()
    sink = KafkaSink("broker:9092", "changes", key="shop", value=["amount"])
    latest(sales).changes().to(sink)

    with pytest.raises(TopologyError, match=r"KafkaSink 'latest.changes.to' depends on the opaque"):
        builder.build_topology()


EVENT = Fields("id string, shop string, ts timestamp")
EVENTS = MemoryTransactionalSpout({0: []}, EVENT, 1)


class Above:
    """What a program has before it comes to a mistake."""

    def __init__(self, builder: StreamBuilder) -> None:
        self.events = builder.source("events", EVENTS, event_time="ts")
        self.others = self.events.select("id", at="ts")
        self.windows = self.events.group_by("shop").window(tumbling("1 hour"))


def joining(above: Above, **more: Any) -> object:
    kept = {"state": state("t"), "within": ("0 minutes", "1 hour")} | more
    return above.events.join(above.others, on="id", **kept)


def counting(above: Above, **more: Any) -> object:
    return above.windows.persistent_aggregate(state("t"), n=Count(), **more)


def expiring(above: Above, **more: Any) -> object:
    kept = {"state": state("t", value=Fields("n long")), "expire_after": "1 hour"} | more
    return above.events.group_by("id").update(lambda v, row: (1, None), "n long", **kept)


def unique(above: Above, **more: Any) -> object:
    kept = {"state": state("t"), "within": "1 hour"} | more
    return above.events.drop_duplicates("id", **kept)


def sinking(above: Above, sink: Any = None, **more: Any) -> object:
    return above.events.to(sink or Silent(), id="t", **more)  # type: ignore[func-returns-value]


def going_on(above: Above, **more: Any) -> object:
    return above.events.bolt("t", Emitting(), **more)


CORRECTED: list[tuple[Callable[..., object], dict[str, Any]]] = [
    (unique, {"late": 5}),
    (unique, {"late": state("T")}),
    (unique, {"state": state("t", kind="transactional")}),
    (joining, {"late": "x"}),
    (joining, {"parallelism": 0}),
    (joining, {"state": state("t", kind="transactional")}),
    (counting, {"late": "x"}),
    (counting, {"late": state("t")}),
    (expiring, {"expire_after": "5 minuets"}),
    (expiring, {"state": state("t", value=Fields("seen long"))}),
    (sinking, {"sink": "x"}),
    (going_on, {"by": "nothing"}),
]


class Emitting(Silent):
    output_fields = EVENT


@pytest.mark.parametrize("marks", [None, "others"])
@pytest.mark.parametrize("case", range(len(CORRECTED)))
def test_an_operator_that_fails_takes_nothing_so_it_can_be_corrected(
    case: int, marks: str | None
) -> None:
    """As in a notebook, where the cell is repaired and run again."""
    operator, wrong = CORRECTED[case]
    found = []
    for mistaken in (True, False):
        builder = StreamBuilder("events", marks=None if marks is None else state(marks))
        above = Above(builder)
        if mistaken:
            with pytest.raises(TopologyError):
                operator(above, **wrong)
        operator(above)
        found.append(list(builder.build_topology().graph.components))

    assert found[0] == found[1]


@pytest.mark.parametrize("wrong", [{"event_time": "time"}, {"clock": "1 millisecond"}])
def test_a_source_that_fails_takes_nothing_either(wrong: Any) -> None:
    builder = StreamBuilder("events")

    with pytest.raises(TopologyError):
        builder.source("events", EVENTS, **{"event_time": "ts", **wrong})
    builder.source("events", EVENTS, event_time="ts").store(state("t"), key="id")

    components = list(builder.build_topology().graph.components)
    assert components == ["events", "events.times", "events.times.refused", "t", "unusable"]


def test_a_state_that_is_refused_leaves_its_id_free() -> None:
    _, sales = builder_and_sales()
    sales.store(state("a"), key="id", id="one")

    with pytest.raises(TopologyError, match="used twice"):
        sales.store(state("a"), key="id", id="two")
    sales.store(state("b"), key="id", id="two")


@pytest.mark.parametrize("name", [None, "", "a long, b", "a ", 5, ["a"]])
def test_the_column_of_the_planned_time_is_one_name(name: Any) -> None:
    _, sales = builder_and_sales()

    with pytest.raises(FieldsError, match=r"with_planned_time makes one column|no name"):
        sales.with_planned_time(name)
