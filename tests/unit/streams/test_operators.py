"""Each operator equals plain Python, under every fault of the simulator and with any cut."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.unit.streams.worlds import GROUPS, SALE, assert_right
from txtopo import Count, Fields, Max, Min, Sum

pytestmark = pytest.mark.integration
SEEDS = range(4)
FULL = ("id", "shop", "amount")


def test_stateless_operators_in_a_row() -> None:
    def program(builder: Any, sales: Any, state: Any) -> None:
        (
            sales.map(lambda row: [row["id"], row["shop"].upper(), row["amount"]], SALE)
            .filter(lambda row: row["amount"] is not None)
            .flat_map(
                lambda row: [[f"{row['id']}/{n}", row["amount"] + n] for n in range(2)],
                "id string, pieces long",
            )
            .with_columns(lambda row: [row["pieces"] * 2, row["id"][0]], "pieces long, sort string")
            .select("sort", "id", number="pieces")
            .store(state("kept"), key="id")
        )

    assert_right(program, SEEDS)


def test_branch_gives_each_row_to_one_side() -> None:
    def program(builder: Any, sales: Any, state: Any) -> None:
        good, bad = sales.branch(lambda row: row["amount"] is not None)
        good.group_by("shop").persistent_aggregate(state("totals"), total=Sum("amount"), n=Count())
        bad.store(state("rejected"), key="id")

    assert_right(program, SEEDS)


def test_stored_rows_are_the_last_of_their_key_in_the_order_asked_for() -> None:
    def program(builder: Any, sales: Any, state: Any) -> None:
        sales.store(state("last"), key="shop", order_by=("amount", "id"))

    assert_right(program, SEEDS)


def test_merge_has_the_rows_of_all_its_streams() -> None:
    def program(builder: Any, sales: Any, state: Any) -> None:
        sold = sales.map(lambda row: [row["shop"], -1], "shop string, pieces long")
        bought = sales.filter(lambda row: (row["amount"] or 0) > 10).map(
            lambda row: [row["shop"], row["amount"]], "shop string, pieces long"
        )
        left, right = bought.branch(lambda row: row["shop"] < "b")
        both = builder.merge(sold, left, right)
        both.group_by("shop").persistent_aggregate(
            state("stock"), pieces=Sum("pieces"), n=Count(), least=Min("pieces"), most=Max("pieces")
        )

    assert_right(program, SEEDS)


@pytest.mark.rule("txtopo.streams.builder", "Rules", 2)
def test_an_aggregate_within_a_batch_forgets_the_batch_before() -> None:
    def program(builder: Any, sales: Any, state: Any) -> None:
        of_batch = sales.group_by("shop").aggregate(
            sold=Sum("amount"), n=Count(), most=Max("amount")
        )
        of_batch.store(state("last"), key="shop")
        of_batch.group_by("shop").persistent_aggregate(state("totals"), sold=Sum("sold"))
        sales.aggregate(n=Count()).map(lambda row: ["all", row["n"]], "name string, n long").store(
            state("batch"), key="name"
        )

    assert_right(program, SEEDS)


def book(balance: Any, row: Any) -> Any:
    balance = (balance or 0) + (row["amount"] or 0)
    if balance < -20:
        return None, None  # closed
    return balance, [row["id"], row["shop"], balance]


def running(builder: Any, sales: Any, state: Any) -> None:
    booked = sales.group_by("shop").update(
        book,
        "id string, shop string, balance long",
        state=state("balances", value=Fields("balance long")),
        order_by=FULL,
    )
    booked.store(state("bookings"), key="id")


@pytest.mark.rule("txtopo.streams.builder", "Rules", 1)
def test_a_running_value_reads_what_was_before_and_its_own_writes() -> None:
    assert_right(running, SEEDS)


def queried(builder: Any, sales: Any, state: Any) -> None:
    latest = sales.filter(lambda row: row["id"] < "s012").as_table(
        state("latest"), key="shop", value=["id", "amount"], order_by=FULL
    )
    asked = sales.select("shop", sale="id").query(latest, on="shop")
    asked.store(state("answers"), key="sale")
    totals = sales.group_by("shop").persistent_aggregate(state("totals"), total=Sum("amount"))
    asked.select("shop", "sale").query(totals, on="shop").store(state("more"), key="sale")


def test_a_query_reads_the_table_with_the_changes_of_its_txid() -> None:
    assert_right(queried, SEEDS)


def changing(builder: Any, sales: Any, state: Any) -> None:
    totals = sales.group_by("shop").persistent_aggregate(
        state("totals"), total=Sum("amount"), n=Count("amount")
    )
    totals.changes(before=True).store(state("view"), key="shop")
    steps = totals.changes().map(lambda row: [row["n"] or 0], "n long")
    steps.group_by("n").persistent_aggregate(state("steps"), times=Count())
    totals.changes(before=True).map(
        lambda row: [row["shop"], (row["total"] or 0) - (row["before_total"] or 0)],
        "shop string, step long",
    ).group_by("shop").persistent_aggregate(state("again"), total=Sum("step"))
    latest = sales.as_table(state("latest"), key="shop", value="amount", order_by=FULL)
    moves = latest.changes().select("shop", "amount").group_by("shop")
    moves.persistent_aggregate(state("moves"), n=Count())


def test_changes_are_the_difference_between_two_txids() -> None:
    assert_right(changing, SEEDS)


@pytest.mark.parametrize("program", [running, queried, changing])
def test_operators_that_read_their_state_are_right_in_groups_of_txids(program: Any) -> None:
    """With one row a batch and many in flight, most txids share a write, also when it is redone."""
    judged = assert_right(program, range(5, 31, 5), config=GROUPS)

    groups = Counter[str]()
    for each in judged:
        groups.update(each.groups)
    assert groups["written"] > 0
    assert groups["redone"] > 0


def test_record_batches_are_taken_and_given() -> None:
    def program(builder: Any, sales: Any, state: Any) -> None:
        if hasattr(sales, "map_batches"):
            batches = sales.filter_batches(lambda batch: pc.greater(batch["amount"], 5))
            doubled = batches.map_batches(
                lambda batch: batch.set_column(2, "amount", pc.multiply(batch["amount"], 2)), SALE
            ).flat_map_batches(twice, SALE)
        else:
            rows = sales.filter(lambda row: row["amount"] is not None and row["amount"] > 5)
            doubled = rows.flat_map(
                lambda row: [[row["id"], row["shop"], row["amount"] * 2]] * 2, SALE
            )
        doubled.group_by("shop").persistent_aggregate(state("t"), s=Sum("amount"), n=Count())

    assert_right(program, SEEDS)


def twice(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.concat_batches([batch, batch])
