"""Which components a program becomes: fusion, ids, phases, parallelism."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

from tests.unit.streams.picture import PICTURE, drawn
from tests.unit.streams.worlds import LOCAL, SALE, run
from txtopo import (
    BasicBolt,
    BatchBolt,
    Committer,
    Config,
    Count,
    Fields,
    First,
    Mean,
    StreamBuilder,
    Sum,
    TopN,
    Topology,
    open_state,
)
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.streams import DataStream
from txtopo.topology.graph import fingerprint

ROWS: list[list[Any]] = [[f"s{n}", "ab"[n % 2], n or None] for n in range(6)]


def started(parallelism: int = 1, take: int = 2) -> tuple[StreamBuilder, DataStream]:
    builder = StreamBuilder("shop")
    spout = MemoryTransactionalSpout({0: ROWS}, Fields(SALE), take)
    return builder, builder.source("sales", spout, parallelism)


def state(table: str, **more: Any) -> Any:
    return open_state("memory:", table=table, **more)


def components(topology: Topology) -> list[str]:
    return list(topology.graph.components)


def same(row: Any) -> list[Any]:
    return list(row.values)


def test_operators_without_state_in_a_row_are_one_bolt() -> None:
    builder, sales = started()
    kept = sales.map(same, SALE).filter(lambda row: True).select("id", "shop")
    kept.store(state("kept"), key="id")
    topology = builder.build_topology()

    assert components(topology) == ["sales", "sales.map.filter.select", "kept"]
    assert "ƒ map → filter → select" in str(topology.explain(LOCAL))
    told = topology.explain(LOCAL).to_json()["components"]
    assert [each["operators"] for each in told] == [[], ["map", "filter", "select"], []]


def test_a_bolt_ends_where_a_stream_has_two_readers_and_at_a_branch() -> None:
    builder, sales = started()
    both = sales.map(same, SALE)
    both.filter(lambda row: True).store(state("a"), key="id")
    left, right = both.filter(lambda row: True).branch(lambda row: row["shop"] == "a")
    left.select("id", "shop").store(state("b"), key="id")
    right.store(state("c"), key="id")

    assert components(builder.build_topology()) == [
        "sales",
        "sales.map",
        "sales.map.filter",
        "sales.map.filter-2.branch",
        "a",
        "sales.map.filter-2.branch.matching.select",
        "c",
        "b",
    ]


def test_a_bolt_begins_at_a_merge_and_at_a_parallelism() -> None:
    builder, sales = started(2)
    one = sales.map(same, SALE)
    two = one.map(same, SALE, parallelism=5, id="heavy").map(same, SALE)
    merged = builder.merge(one, two).filter(lambda row: True)
    merged.store(state("kept"), key="id")
    graph = builder.build_topology().graph

    assert {id: each.parallelism for id, each in graph.components.items()} == {
        "sales": 2,
        "sales.map": 2,
        "heavy.map": 5,
        "merge.filter": 5,
        "kept": 1,
    }


def test_what_is_below_a_committer_has_one_task() -> None:
    builder, sales = started(3)
    booked = sales.group_by("shop").update(
        lambda value, row: ((value or 0) + 1, [row["id"]]), "id string", state=state("n")
    )
    booked.map(lambda row: [row["id"], 1], "id string, n long").store(state("seen"), key="id")
    graph = builder.build_topology().graph

    assert {each.parallelism for id, each in graph.components.items() if id != "sales"} == {1}


@pytest.mark.rule("txtopo.streams.builder", "Rules", 4)
def test_neither_parallelism_nor_another_start_changes_what_a_topology_is_known_by() -> None:
    prints = []
    for parallelism in (1, 4):
        builder, sales = started(parallelism)
        counted = sales.filter(same, parallelism=parallelism).group_by("shop")
        counted.aggregate(n=Count()).store(state("n"), key="shop")
        table = counted.persistent_aggregate(state("total"), n=Count())
        table.changes().store(state("changes"), key="shop")
        prints.append(fingerprint(builder.build_topology().graph))

    assert prints[0] == prints[1]


def test_a_table_that_nothing_reads_is_combined_in_the_store() -> None:
    builder, sales = started()
    table = sales.group_by("shop").persistent_aggregate(state("total"), n=Count())
    before = components(builder.build_topology())
    table.changes().store(state("changes"), key="shop")

    assert before == ["sales", "total"]
    assert components(builder.build_topology()) == ["sales", "total.partials", "total", "changes"]


def values(topology: Topology, table: str) -> dict[Any, Any]:
    (held,) = [
        each
        for component in topology.graph.components.values()
        for name, each in component.states.items()
        if each.layout(name).name == table
    ]
    with held.reader() as reader:
        return dict(reader.items())


def test_means_tops_and_firsts_are_shown_in_streams_as_readers_see_them() -> None:
    builder, sales = started()
    wanted: dict[str, Any] = {
        "mean": Mean("amount"),
        "top": TopN("amount", 2, labels=("id",)),
        "first": First("id", order="amount"),
    }
    table = sales.group_by("shop").persistent_aggregate(state("total"), **wanted)
    table.changes(before=True).store(state("changes"), key="shop")
    sales.aggregate(**wanted).with_columns(lambda row: ["all"], "name string").store(
        state("batch"), key="name"
    )
    topology = builder.build_topology()
    run(topology)

    assert values(topology, "total")["b"] == {
        "mean": 3.0,
        "top": [[5, "s5"], [3, "s3"]],
        "first": "s1",
    }
    assert values(topology, "changes")["b"] == {
        "mean": 3.0,
        "top": '[[5,"s5"],[3,"s3"]]',
        "first": "s1",
        "before_mean": 2.0,
        "before_top": '[[3,"s3"],[1,"s1"]]',
        "before_first": "s1",
    }
    assert values(topology, "batch")["all"] == {
        "mean": 4.5,
        "top": '[[5,"s5"],[4,"s4"]]',
        "first": "s4",
    }


def test_a_value_that_is_null_is_not_the_same_as_none() -> None:
    builder, sales = started(take=6)
    table = sales.as_table(state("latest"), key="id", value="amount")
    table.changes(before=True).store(state("changes"), key="id")
    topology = builder.build_topology()
    run(topology)

    assert values(topology, "latest")["s0"] is None
    assert values(topology, "changes")["s0"] == {"amount": None, "before_amount": None}


def test_an_aggregate_with_retracted_rows_has_changes() -> None:
    builder, sales = started()
    signed = sales.with_columns(lambda row: [row["id"] == "s5"], "gone boolean")
    table = signed.group_by("shop").persistent_aggregate(
        state("total"), retracted="gone", sold=Sum("amount"), n=Count()
    )
    table.changes().store(state("changes"), key="shop")
    topology = builder.build_topology()
    run(topology)

    assert values(topology, "total") == {
        "a": {"sold": 6, "n": 3},
        "b": {"sold": -1, "n": 1},
    }
    assert values(topology, "changes") == values(topology, "total")


def test_rows_of_one_batch_are_taken_in_the_order_that_is_asked_for() -> None:
    builder, sales = started(2, take=6)
    sales.select("shop", "id", "amount").store(state("last"), key="shop", order_by="amount")
    backwards = sales.with_columns(lambda row: [-(row["amount"] or 9)], "turn long")
    backwards.group_by("shop").update(
        lambda value, row: ((value or "") + row["id"], None),
        "id string",
        state=state("joined", value=Fields("ids string")),
        order_by=["turn"],
    )
    topology = builder.build_topology()
    run(topology, Config(carrier="local", zookeeper="memory", slots=3))

    assert values(topology, "last") == {
        "a": {"id": "s4", "amount": 4},
        "b": {"id": "s5", "amount": 5},
    }
    assert values(topology, "joined") == {"a": "s0s4s2", "b": "s5s3s1"}


def test_keys_may_have_several_columns() -> None:
    builder, sales = started()
    table = sales.group_by("shop", "id").persistent_aggregate(state("sold"), sold=Sum("amount"))
    table.changes(before=True).store(state("view"), key=["id", "shop"])
    named = sales.select("id", "shop", part="amount")
    running = named.group_by("id", "shop").update(
        lambda value, row: ({"n": 1 if value is None else 2, "last": row["part"]}, [row["id"]]),
        "who string",
        state=state("running", value=Fields("n long, last long")),
    )
    running.with_columns(lambda row: [row["who"] > "s2"], "late boolean").store(
        state("seen"), key="who"
    )
    named.query(table, on=("shop", "id")).store(state("asked"), key="id")
    topology = builder.build_topology()
    run(topology)

    assert values(topology, "sold")["b", "s3"] == 3
    assert values(topology, "view")["s3", "b"] == {"sold": 3, "before_sold": None}
    assert values(topology, "running")["s3", "b"] == {"n": 1, "last": 3}
    assert values(topology, "seen")["s3"] is True
    assert values(topology, "asked")["s3"] == {"shop": "b", "part": 3, "sold": 3}


def test_a_stream_may_ask_a_table_twice() -> None:
    builder, sales = started()
    table = sales.group_by("shop").persistent_aggregate(state("total"), n=Count())
    for name in ("one", "two"):
        sales.query(table, on="shop").store(state(name), key="id")
    topology = builder.build_topology()
    run(topology)

    assert values(topology, "one") == values(topology, "two")
    assert values(topology, "one")["s1"] == {"shop": "b", "amount": 1, "n": 1}


def test_a_row_without_a_key_has_no_answer() -> None:
    builder, sales = started()
    table = sales.filter(lambda row: row["amount"] is not None).as_table(
        state("names"), key="amount", value="shop"
    )
    sales.select("amount", sale="id").query(table, on="amount").store(state("asked"), key="sale")
    topology = builder.build_topology()
    run(topology)

    assert values(topology, "asked")["s0"] == {"amount": None, "shop": None}
    assert values(topology, "asked")["s1"] == {"amount": 1, "shop": "b"}


def test_a_key_that_is_no_number_has_no_answer() -> None:
    builder, sales = started()
    numbers = sales.map(
        lambda row: [row["id"], math.nan if row["amount"] is None else 0.5], "id string, x double"
    )
    table = numbers.filter(lambda row: row["x"] == 0.5).select("x", last="id")
    asked = numbers.query(table.as_table(state("names"), key="x", value="last"), on="x")
    asked.filter(lambda row: row["last"] is None).store(state("asked"), key="id")
    topology = builder.build_topology()
    run(topology)

    assert list(values(topology, "asked")) == ["s0"]


def test_a_program_of_many_diamonds_is_built_at_once() -> None:
    builder, stream = started()
    for _ in range(40):
        left, right = stream.branch(lambda row: row["amount"] is None, id=None)
        stream = builder.merge(left, right)
    stream.store(state("kept"), key="id")

    assert len(builder.build_topology().graph.components) == 42


class Split(BasicBolt):
    output_fields = Fields("id string")
    output_streams: Mapping[str, Any] = {"shops": Fields("shop string")}

    def execute(self, tuple: Any, collector: Any) -> None:
        collector.emit([tuple["id"]])
        collector.emit([tuple["shop"]], "shops")


class CountAll(BatchBolt, Committer):
    output_fields = Fields("sum long")

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.collector, self.attempt, self.rows = collector, attempt, 0
        self.kept = context.state("kept")

    def execute(self, tuple: Any) -> None:
        self.rows += 1

    def finish_batch(self) -> None:
        with self.kept.transaction(self.attempt) as kept:
            self.collector.emit([kept.update("all", lambda rows: (rows or 0) + self.rows)])


def test_the_picture_in_the_documentation_is_the_one_that_is_drawn() -> None:
    """Else: ``python -m tests.unit.streams.picture``."""
    assert drawn() == PICTURE.read_text()


def test_any_bolt_can_stand_in_a_program_with_its_streams_and_states() -> None:
    builder, sales = started()
    ids = sales.bolt("split", Split(), parallelism=3)
    shops = builder.output("split", "shops")
    shops.group_by("shop").persistent_aggregate(state("shops"), n=Count())
    sums = ids.bolt("count", CountAll(), by="id", states={"kept": state("kept")})
    sums.map(lambda row: ["sum", row["sum"]], "name string, sum long").store(
        state("sums"), key="name"
    )
    topology = builder.build_topology()
    run(topology)

    assert values(topology, "shops") == {"a": 3, "b": 3}
    assert values(topology, "kept") == {"all": 6}
    assert values(topology, "sums") == {"sum": 6}


@pytest.mark.parametrize("by", [(), ("shop",)])
def test_an_aggregate_of_a_batch_without_rows_emits_nothing(by: tuple[str, ...]) -> None:
    builder, sales = started()
    none = sales.filter(lambda row: False).group_by(*by).aggregate(n=Count())
    none.with_columns(lambda row: ["all"], "name string").store(state("batch"), key="name")
    topology = builder.build_topology()
    run(topology)

    assert values(topology, "batch") == {}


def test_an_error_in_a_function_names_its_operator() -> None:
    builder, sales = started()
    sales.map(same, SALE).filter(lambda row: 1 / 0).store(state("kept"), key="id")

    with pytest.raises(Exception, match="division by zero") as caught:
        run(builder.build_topology())

    notes = "".join(getattr(caught.value, "__notes__", ())) + str(caught.value.__cause__ or "")
    assert "in operator 'sales.map.filter' (filter)" in f"{caught.value}{notes}"
