"""Partial results for a PersistentAggregate: combined by senders, merged in the driver."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from itertools import combinations, pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.chance import examples
from tests.unit.stages.running import (
    Row,
    RowsSpout,
    Topology,
    aggregate,
    grouped,
    run_of,
    spout,
)
from txtopo import Fields, PersistentAggregate, open_state
from txtopo.errors import ValueRefusedError
from txtopo.groupings import (
    AllGrouping,
    CustomGrouping,
    CustomStreamGrouping,
    FieldsGrouping,
    Grouping,
    ShuffleGrouping,
)
from txtopo.stages import mailboxes, partials
from txtopo.stages.aggregation import Aggregation
from txtopo.state import First, Last, TopN
from txtopo.state.aggregates import Aggregate, Count, Max, Min, Sum


class TwiceOrNever(CustomStreamGrouping):
    def choose_tasks(self, task: int, values: Sequence[Any]) -> Sequence[int]:
        return [0, 1] if values[1] % 2 else []


def totals(
    rows: Sequence[Row],
    fields: str,
    key: str | Sequence[str],
    aggregates: Aggregate | dict[str, Aggregate],
    *,
    grouping: Grouping | None = None,
    parallelism: int = 1,
    tasks: int = 1,
    slots: int = 1,
    retracted: str | None = None,
) -> dict[Any, Any]:
    how = grouped(grouping or ShuffleGrouping())
    topology = Topology(
        spout(RowsSpout([rows], fields), tasks),
        aggregate("total", key, aggregates, how, parallelism=parallelism, retracted=retracted),
        slots=slots,
    )
    ran = topology.run(run_of(1))
    if ran.outcome.failure is not None:
        raise ran.outcome.failure.error
    found = topology.merged("total", ran.outcome.processed[0], ran.commits[0])
    keys = 1 if isinstance(key, str) or not key else len(key)
    merged = {row[:keys]: row[keys:] for row in found}
    assert len(merged) == len(found)
    return merged


ALL = {
    "rows": Count(),
    "known": Count("n"),
    "total": Sum("n"),
    "least": Min("n"),
    "most": Max("n"),
}


def fold(rows: Sequence[Row]) -> dict[Any, Any]:
    folded: dict[Any, Any] = {}
    for word in {row[0] for row in rows}:
        numbers = [row[1] for row in rows if row[0] == word]
        known = [n for n in numbers if n is not None]
        extremes = (sum(known), min(known), max(known)) if known else (None, None, None)
        folded[(word,)] = (len(numbers), len(known), *extremes)
    return folded


@examples(25)
@given(
    rows=st.lists(
        st.tuples(st.none() | st.sampled_from("abc"), st.none() | st.integers(-9, 9)), max_size=30
    ),
    tasks=st.integers(1, 4),
    slots=st.integers(1, 3),
    waiting=st.sampled_from([1, 3, 1000]),
)
def test_partials_are_the_plain_fold(rows: list[Row], tasks: int, slots: int, waiting: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partials, "WAITING_ROWS_MAX", waiting)

        found = totals(rows, "word string, n long", "word", ALL, tasks=tasks, slots=slots)

    assert found == fold(rows)


def test_a_batch_without_rows_has_no_partials() -> None:
    assert totals([], "word string, n long", (), ALL) == {}


def test_an_aggregate_without_key_has_one_row() -> None:
    found = totals([["a", 1], ["b", 2]], "word string, n long", (), {"total": Sum("n")}, tasks=2)

    assert found == {("global",): (3,)}


@pytest.mark.parametrize(
    ("grouping", "times"),
    [
        (AllGrouping(), {"odd": 3, "even": 3}),
        (FieldsGrouping(("word",)), {"odd": 1, "even": 1}),
        (CustomGrouping(TwiceOrNever()), {"odd": 2}),
    ],
    ids=["all", "fields", "custom"],
)
def test_rows_count_as_often_as_they_would_be_delivered(
    grouping: Grouping, times: dict[str, int]
) -> None:
    found = totals(
        [["odd", 1], ["even", 2]],
        "word string, n long",
        "word",
        Count(),
        grouping=grouping,
        parallelism=3,
    )

    assert found == {(word,): (count,) for word, count in times.items()}


def test_all_nan_are_one_key_and_both_zeros_are_one() -> None:
    keys = [math.nan, -math.nan, 0.0, -0.0, None, None]

    found = totals([[key] for key in keys], "x double", "x", Count(), tasks=3, slots=2)

    assert sorted((str(key), count) for (key,), (count,) in found.items()) == [
        ("0.0", 2),
        ("None", 2),
        ("nan", 2),
    ]


@pytest.mark.parametrize("tasks", [1, 2], ids=["in a worker", "in the driver"])
@pytest.mark.parametrize(
    ("kind", "largest"),
    [("long", 2**63 - 1), ("decimal(38,2)", Decimal("9" * 36 + ".99"))],
)
def test_a_sum_that_leaves_its_type_is_refused(kind: str, largest: Any, tasks: int) -> None:
    with pytest.raises(ValueRefusedError, match=r"'total'.*does not fit value column 'sum_n'"):
        totals([[largest], [largest]], f"n {kind}", (), Sum("n"), tasks=tasks)


def test_large_numbers_whose_sum_fits_are_summed_exactly() -> None:
    rows = [[2**62], [2**62], [-(2**62)], [2**62 - 1]]

    assert totals(rows, "n long", (), Sum("n")) == {("global",): (2**63 - 1,)}


def test_sums_of_floats_do_not_depend_on_slots() -> None:
    # One row for each task; each order of adding them up loses other digits.
    rows = [[x] for x in (1e16, 1.0, -1e16, 1.0, 1.0)]
    sums = {
        totals(rows, "x double", (), Sum("x"), tasks=5, slots=slots)[("global",)]
        for slots in (1, 2, 3)
    }

    assert len(sums) == 1


@pytest.mark.parametrize(
    ("kind", "values", "least"),
    [
        ("string", ["b", "a", None], "a"),
        ("decimal(5,2)", [Decimal("1.50"), Decimal("-1.00")], Decimal("-1.00")),
        ("int", [3, 2], 2),
        ("double", [3.5, 2.5], 2.5),
    ],
)
def test_extremes_of_all_ordered_types(kind: str, values: list[Any], least: Any) -> None:
    rows = [[value] for value in values]

    assert totals(rows, f"x {kind}", (), Min("x"), tasks=2) == {("global",): (least,)}


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize("values", [[math.nan, 1.0, None], [1.0, math.nan, 2.0]])
@pytest.mark.parametrize("kind", ["float", "double"])
def test_nan_is_the_largest_number_of_a_batch_as_it_is_between_batches(
    kind: str, values: list[float | None], tasks: int
) -> None:
    """Otherwise the result depends on where a batch ends, or a group of them."""
    found = totals(
        [[value] for value in values],
        f"x {kind}",
        (),
        {"least": Min("x"), "most": Max("x"), "number": Count()},
        tasks=tasks,
    )

    ((least, most, number),) = found.values()
    assert (least, number) == (1.0, 3)
    assert math.isnan(most)


OF_FLOATS: dict[str, Aggregate] = {
    "least": Min("x"),
    "most": Max("x"),
    "total": Sum("x"),
    "first": First("x", order="at"),
    "last": Last("x", order="at"),
    "top": TopN("x", 2),
}


@examples(25)
@given(
    values=st.lists(st.sampled_from([0.0, -0.0, None]), min_size=1, max_size=6),
    cuts=st.lists(st.integers(0, 6), max_size=3),
    kind=st.sampled_from(["float", "double"]),
)
def test_which_zero_an_aggregate_holds_does_not_depend_on_the_cut(
    values: list[float | None], cuts: list[int], kind: str
) -> None:
    """They are equal, so that either would be the largest one."""
    fields = Fields(f"x {kind}, at long")

    def aggregated(aggregates: dict[str, Aggregate], *batches: list[float | None]) -> str:
        bolt = PersistentAggregate(open_state("memory:", table="t"), (), aggregates)
        aggregation = Aggregation.of(bolt, fields)
        rows = [[{"x": x, "at": 1} for x in batch] for batch in batches if batch]
        found = [pa.RecordBatch.from_pylist(some, fields.arrow_schema()) for some in rows]
        return repr(aggregation.combine(list(map(aggregation.inputs_of, found))).to_pylist())

    bounds = [0, *sorted(min(cut, len(values)) for cut in cuts), len(values)]
    batches = [values[start:end] for start, end in pairwise(bounds)]
    plain = [None if value is None else 0.0 for value in values]
    for aggregates in ({"least": Min("x"), "most": Max("x"), "total": Sum("x")}, OF_FLOATS):
        assert aggregated(aggregates, *batches) == aggregated(aggregates, plain)


@pytest.mark.parametrize("retracted", [False, True])
def test_what_is_taken_back_leaves_the_zero_without_a_sign(retracted: bool) -> None:
    found = totals([[0.0, retracted]], "x double, gone boolean", (), Sum("x"), retracted="gone")

    assert repr(found) == "{('global',): (0.0,)}"


def test_nan_alone_is_the_largest_and_the_smallest_number_beside_keys_of_null() -> None:
    """Arrow before version 25 answers infinities, and False for any NaN of a later chunk."""
    fields = Fields("key string, x double")
    bolt = PersistentAggregate(
        open_state("memory:", table="t"), "key", {"l": Min("x"), "m": Max("x")}
    )
    aggregation = Aggregation.of(bolt, fields)
    batches = [
        pa.RecordBatch.from_pylist([{"key": key, "x": x}], fields.arrow_schema())
        for key, x in (("null", None), ("nan", math.nan))
    ]
    combined = aggregation.combine([aggregation.inputs_of(batch) for batch in batches]).to_pylist()

    assert {row["key"]: repr((row["l"], row["m"])) for row in combined} == {
        "null": "(None, None)",
        "nan": "(nan, nan)",
    }


BATCHES: list[list[Row]] = [[["a", 1], ["b", 2]], [["a", 4]], [], [["b", 8], ["a", 16]]]
FLOATS: list[list[Row]] = [
    [["a", 1e16], ["a", 1.0]],
    [["a", -1e16]],
    [["b", 1.0]],
    [["a", 1.0], ["a", 3.0]],
]


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize(("batches", "kind"), [(BATCHES, "long"), (FLOATS, "double")])
def test_a_group_takes_its_txids_from_the_envelopes_of_a_run(
    batches: list[list[Row]], kind: str, slots: int
) -> None:
    topology = counting(batches, kind, slots)
    processed = topology.run(run_of(len(batches))).outcome.processed
    everything = {record for batch in processed for record in batch.partials["total"]}

    assert len(everything) == slots  # one of each slot, for all txids

    for first, last in combinations(range(len(batches) + 1), 2):
        group = {b.attempt.txid: b.partials["total"] for b in processed[first:last]}
        merged = topology.merged_of("total", group)
        expected = Counter[str]()
        for rows in batches[first:last]:
            for key, number in rows:
                expected[key] += number
        assert {row["key"]: row["sum"] for row in merged.to_pylist()} == expected


def test_a_batch_that_fails_leaves_those_before_it_their_partial_aggregates() -> None:
    batches: list[list[Row]] = [[["a", 1]], [["a", 2]], [["a", "three"]], [["a", 4]]]
    topology = counting(batches, "long", 1)
    outcome = topology.run(run_of(len(batches))).outcome

    assert [batch.attempt.txid for batch in outcome.processed] == [1, 2]
    for batch, number in zip(outcome.processed, (1, 2), strict=True):
        merged = topology.merged_of("total", {batch.attempt.txid: batch.partials["total"]})
        assert merged.to_pylist() == [{"key": "a", "sum": number}]


def test_a_txid_that_was_tried_again_counts_once_beside_the_others_of_its_first_run() -> None:
    topology = counting(BATCHES, "long", 1)
    first = topology.run(run_of(4)).outcome.processed
    [again] = topology.run(run_of(1)).outcome.processed
    group = {batch.attempt.txid: batch.partials["total"] for batch in (again, *first[1:])}

    totals = {row["key"]: row["sum"] for row in topology.merged_of("total", group).to_pylist()}
    assert totals == {"a": 21, "b": 10}


def test_batches_share_the_bytes_of_their_envelopes_by_rows() -> None:
    batches: list[list[Row]] = [[["a", 1]], [[key, 1] for key in "abc"]]
    processed = counting(batches, "long", 1).run(run_of(2)).outcome.processed
    [record] = processed[0].partials["total"]
    one, three = (batch.bytes_by_stream["spout/default"] for batch in processed)

    assert (one, three) == (len(record) // 4, len(record) * 3 // 4)


def test_partial_aggregates_leave_before_the_end_of_a_run_if_they_are_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mailboxes, "CHUNK_BYTES_MAX", 100)
    batches: list[list[Row]] = [[[key * 30, 1] for key in "abc"] for _ in range(4)]
    processed = counting(batches, "long", 1).run(run_of(4)).outcome.processed

    assert len({record for batch in processed for record in batch.partials["total"]}) == 4


def counting(batches: list[list[Row]], kind: str, slots: int) -> Topology:
    return Topology(
        spout(RowsSpout(batches, f"key string, number {kind}"), slots),
        aggregate("total", "key", {"sum": Sum("number")}, grouped(ShuffleGrouping())),
        slots=slots,
    )
