"""Aggregates as a store keeps them, and as readers see them."""

from __future__ import annotations

import math
import pickle
import random
from decimal import Decimal
from typing import Any

import pytest

from tests.unit.stages.test_python_partials import Longest, Rows
from txtopo import Fields, PersistentAggregate, Stream
from txtopo.errors import FieldsError, TopologyError
from txtopo.plugins.stores import StateTable, declaration, parsed_declaration
from txtopo.state import (
    Aggregate,
    Count,
    CountDistinct,
    First,
    Last,
    Max,
    Mean,
    Min,
    State,
    Sum,
    TopN,
    open_state,
)
from txtopo.testing.conformance.driver import StateDriver

INPUTS = Fields(
    "word string, n long, x double, cost decimal(9,2), at timestamp, flag boolean, raw binary"
)
READY_MADE: tuple[Aggregate, ...] = (
    *(Count(), Count("n"), Sum("n"), Min("n"), Max("n"), Mean("cost")),
    *(CountDistinct("n"), CountDistinct("x", precision=9), First("n", order="at")),
    *(Last("x", order="n"), TopN("n"), TopN("x", 3, labels=("word", "flag")), TopN("cost")),
)


def declared_with(state: State, *aggregates: Aggregate) -> State:
    made = PersistentAggregate(state, "word", {f"a{at}": a for at, a in enumerate(aggregates)})
    columns = made.stored_aggregates(INPUTS)
    return state.with_columns(made.key_fields(INPUTS), made.value_fields(INPUTS), columns)


def test_a_declaration_gives_each_ready_made_aggregate_back() -> None:
    state = declared_with(open_state("memory:", table="t"), *READY_MADE).layout()

    assert parsed_declaration("t", declaration(state)) == state


def test_the_declaration_of_plain_aggregates_is_what_it_always_was() -> None:
    state = declared_with(open_state("memory:", table="t"), Count(), Sum("n")).layout()

    assert declaration(state).endswith('"aggregates": [["Count", null], ["Sum", "n"]]}')


def test_an_aggregate_of_ones_own_is_read_without_its_class() -> None:
    """A store names code, and a reader must not run what a store names."""
    store = open_state("memory:", table="t")
    state = declared_with(store, Rows(), Longest("n"))
    text = declaration(state.layout())
    foreign = text.replace("tests.unit.stages.test_python_partials", "not_there")
    driver = StateDriver(state)
    driver.merge(1, [("a", 3, '{"rows":3,"words":["7"]}')])

    found = parsed_declaration("t", foreign)
    assert declaration(found) == foreign
    with state.reader() as reader:
        assert reader.get("a") == {"a0": 3, "a1": {"rows": 3, "words": ["7"]}}
    with pytest.raises(FieldsError, match="'not_there:Rows' is known only by name"):
        found.aggregates[0].combine_values(1, 2)


def test_an_own_aggregate_is_pickled_with_what_it_keeps() -> None:
    made = pickle.loads(pickle.dumps(Longest("word", "n", most=5)))

    assert (made.inputs, made.most) == (("word", "n"), 5)
    assert made == Longest("word", "n", most=5) != Longest("word", "n", most=4)


@pytest.mark.parametrize(
    ("kind", "partials", "mean"),
    [
        ("n", [(2**53, 1), (1, 2)], (2**53 + 1) / 3),
        ("x", [(0.5, 1), (1.0, 2)], 0.5),
        ("cost", [(Decimal("0.10"), 2), (Decimal("0.10"), 1)], Decimal("0.2") / 3),
        ("n", [(None, 0)], None),
    ],
)
def test_a_mean_is_exact_to_the_last_digit(kind: str, partials: list[Any], mean: Any) -> None:
    state = declared_with(open_state("memory:", table="t"), Mean(kind))
    driver = StateDriver(state)

    for txid, partial in enumerate(partials, 1):
        driver.merge(txid, [("a", *partial)])
    with state.reader() as reader:
        found = reader.get("a")
        assert found == mean or math.isclose(found, mean, rel_tol=1e-27)
        assert type(found) is type(mean)
        assert list(reader.table.value.names) == ["a0_sum", "a0_count"]


def test_an_sql_view_has_the_mean_and_what_it_is_made_of(tmp_path: Any) -> None:
    import sqlite3

    state = declared_with(open_state(f"sqlite:///{tmp_path}/a.db", table="t"), Mean("n"))
    driver = StateDriver(state)
    driver.merge(1, [("a", 7, 2), ("b", None, 0)])
    driver.close()

    rows = sqlite3.connect(tmp_path / "a.db").execute("SELECT * FROM t_view ORDER BY word")
    assert rows.fetchall() == [("a", 7, 2, 3.5), ("b", None, 0, None)]
    assert [name for name, *_ in rows.description] == ["word", "a0_sum", "a0_count", "a0"]


@pytest.mark.parametrize("values", [1, 100, 3_000, 60_000])
@pytest.mark.parametrize("precision", [12, 9])
def test_a_count_of_distinct_values_keeps_its_error_bound(values: int, precision: int) -> None:
    one = CountDistinct("n", precision=precision)
    rows = [(f"{precision} {n}",) for n in range(values)] * 2
    bound = 3 * 1.04 / math.sqrt(2**precision)

    (sketch,) = one.folded(rows)
    assert abs(one.shown(sketch) - values) <= max(bound * values, 0.5)
    assert len(sketch) <= 2**precision // 2 + 200


def test_how_sketches_were_united_changes_no_count() -> None:
    one, chance = CountDistinct("n"), random.Random(5)
    for values in (10, 190, 500, 3_000, 20_000):
        rows = [(n,) for n in range(values)]
        counts = set()
        for parts in (1, 2, 3, 7):
            chance.shuffle(rows)
            sketches = [one.folded(rows[at::parts]) for at in range(parts)]
            (united,) = one.merged(sketches)
            stored = None
            for (sketch,) in sketches:
                stored = one.combine_values(stored, sketch)
            counts |= {one.shown(united), one.shown(stored)}
        assert len(counts) == 1, f"{values} values are counted as {counts}"


def test_values_of_all_types_are_counted() -> None:
    one = CountDistinct("n")
    kinds: list[list[Any]] = [
        [1, 2, -1],
        [0.0, -0.0, 1.5, float("nan"), float("nan")],
        ["a", "A", ""],
        [b"a", b"", b"\0"],
        [Decimal("1.00"), Decimal("-0.00"), Decimal("0.00"), Decimal("2.00")],
        [True, False],
    ]

    counts = [one.shown(one.folded([(value,) for value in [*k, *k, None]])[0]) for k in kinds]
    assert counts == [3, 3, 3, 3, 3, 2]


@pytest.mark.parametrize(
    ("aggregate", "why"),
    [
        (
            First("n"),
            r"First needs the field that orders .* expected e.g. First\('n', order='ts'\)",
        ),
        (Last("n", order="flag"), "Last needs an ordered type; field 'flag' is boolean"),
        (First("n", order="when"), "unknown field 'when'"),
        (TopN("flag"), "TopN needs an ordered type; field 'flag' is boolean"),
        (TopN("n", labels=("raw",)), "TopN keeps labels as JSON.*field 'raw' is binary"),
        (CountDistinct(), "CountDistinct needs an input field"),
        (Mean("word"), "Mean needs numbers; field 'word' is string"),
        (Longest("what"), "unknown field 'what'"),
    ],
)
def test_inputs_that_do_not_do_are_refused(aggregate: Aggregate, why: str) -> None:
    with pytest.raises(FieldsError, match=why):
        declared_with(open_state("memory:"), aggregate)


@pytest.mark.parametrize("n", [0, 10_001, 1.5, True])
def test_a_bad_n_is_refused(n: Any) -> None:
    with pytest.raises(FieldsError, match="bad n of TopN"):
        TopN("n", n)


@pytest.mark.parametrize("precision", [3, 22, 12.0])
def test_a_bad_precision_is_refused(precision: Any) -> None:
    with pytest.raises(FieldsError, match="bad precision"):
        CountDistinct("n", precision)


@pytest.mark.parametrize("one", [TopN("n"), First("n", order="at"), CountDistinct("n"), Rows()])
def test_a_log_takes_only_what_sql_combines(one: Aggregate) -> None:
    log = open_state("memory:", table="t", mode="log")

    declared_with(log, Count(), Mean("n"))
    with pytest.raises(TopologyError, match=f"{type(one).__name__} in column 'a1' in mode 'log'"):
        declared_with(log, Count(), one)


@pytest.mark.parametrize(
    "aggregates",
    [
        {"x": Mean("n"), "x_sum": Sum("n")},
        {"x_count": Count(), "x": Mean("n")},
        {"x": Mean("n"), "x_sum": Mean("n")},
    ],
)
def test_columns_that_would_stand_twice_are_refused(aggregates: dict[str, Aggregate]) -> None:
    with pytest.raises(TopologyError, match="two aggregates use the column 'x_"):
        PersistentAggregate(open_state("memory:"), "word", aggregates)


def test_two_aggregates_of_one_default_name_are_refused() -> None:
    """One of them would be gone without a word."""
    with pytest.raises(TopologyError, match=r"'topn_n'.*name them"):
        PersistentAggregate(open_state("memory:"), "word", [TopN("n", 1), TopN("n", 2)])


def test_json_is_refused_where_it_is_no_value() -> None:
    with pytest.raises(TopologyError, match="key column 'k' of type json"):
        StateTable("t", "opaque", Fields("k json"), Fields("v json"))
    assert Fields(a=dict, b=list) == Fields("a json, b json")
    assert Stream(Fields("v json")).fields[0].type == "json"
