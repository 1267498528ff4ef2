"""What may change in a table that has rows, and what its rows become."""

from __future__ import annotations

import json
from typing import Any

import pytest

from txtopo import Count, Fields, Max, Mean, PersistentAggregate, Sum, TransactionalTopologyBuilder
from txtopo.errors import SchemaDrift, TopologyError
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.state import CountDistinct, First, State, open_state
from txtopo.state.declaration import declaration
from txtopo.state.evolution import TableChange, table_change
from txtopo.state.values import Row


def state(value: str, **options: Any) -> State:
    return open_state("memory:", table="t", value=Fields(value), **options)


def change(before: State, after: State) -> TableChange | None:
    return table_change(declaration(before.layout()), after.layout(), "state 't'")


@pytest.mark.rule("txtopo.state.evolution", "Rules", 2)
def test_a_row_gets_new_columns_by_name_in_whatever_order() -> None:
    after = state("refunds long, note json, paid long", defaults={"refunds": 0, "note": {"a": 1}})

    found = change(state("paid long"), after)

    assert found is not None
    assert found.row(Row(2, (5,), (4,), 1)) == Row(2, (0, '{"a":1}', 5), (0, '{"a":1}', 4), 1)
    assert found.row(Row(2, (5,))) == Row(2, (0, '{"a":1}', 5))
    assert found.row(Row(2, (), None, None, deleted=True)).current == ()


def test_nothing_is_to_be_done_for_the_same_columns() -> None:
    assert change(state("paid long"), state("paid long", defaults={"paid": 3})) is None


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (state("a long"), state("a string"), "the type of its column 'a' cannot change"),
        (state("a long"), state("a long, b long"), r"no default .*\{'b': None\}\) for NULL"),
        (state("a long"), state("a long", kind="transactional"), "its kind cannot change"),
        (state("a long"), state("a long", key=Fields("k long")), "its key cannot change"),
    ],
)
@pytest.mark.rule("txtopo.state.evolution", "Rules", 1, 4)
def test_what_cannot_be_done_is_refused_with_the_way_on(
    before: State, after: State, why: str
) -> None:
    with pytest.raises(SchemaDrift, match=f"{why}.*nothing was written.*txtopo rebuild"):
        change(before, after)


def aggregated(**aggregates: Any) -> State:
    spout = MemoryTransactionalSpout({0: []}, Fields("k string, n long"), 1)
    builder = TransactionalTopologyBuilder("t", "spout", spout)
    kept = PersistentAggregate(open_state("memory:", table="t"), "k", aggregates)
    builder.set_bolt("kept", kept).fields_grouping("spout", "k")
    return next(iter(builder.build_topology().graph.components["kept"].states.values()))


def test_a_column_of_an_aggregate_begins_with_the_value_of_no_rows() -> None:
    more = {
        "mean": Mean("n"),
        "most": Max("n"),
        "kinds": CountDistinct("n"),
        "first": First("n", order="n"),
    }

    found = change(aggregated(sum=Sum("n")), aggregated(sum=Sum("n"), count=Count(), **more))

    assert found is not None
    names = [field.name for field in found.added]
    assert names == ["count", "mean_sum", "mean_count", "most", "kinds", "first"]
    assert found.row(Row(1, (7,))).current == (7, 0, None, 0, None, None, None)


@pytest.mark.parametrize("after", [aggregated(a=Max("n")), state("a long", key=Fields("k string"))])
@pytest.mark.rule("txtopo.state.evolution", "Rules", 4)
def test_the_aggregate_of_a_column_does_not_change(after: State) -> None:
    with pytest.raises(SchemaDrift, match=" its column 'a' cannot change"):
        change(aggregated(a=Sum("n")), after)


@pytest.mark.rule("txtopo.state.evolution", "Rules", 3)
def test_a_column_that_is_taken_away_is_remembered() -> None:
    found = change(state("a long, b long"), state("a long"))

    assert found is not None
    assert [field.name for field in found.taken] == ["b"]
    text = found.text()
    assert json.loads(text)["retired"] == ["b"]
    assert table_change(text, state("a long").layout(), "t") is None
    again = table_change(text, state("a long, b long", defaults={"b": 0}).layout(), "t")
    assert again is not None
    assert again.retired == ("b",)


@pytest.mark.parametrize(
    ("defaults", "why"),
    [
        ({"b": 1}, "does not name a value column; got 'b'; expected one of a"),
        ({"a": "x"}, "the default of column 'a' does not fit it; got 'x'; expected a long"),
        ({"a": 2**63}, "does not fit it"),
        ([("a", 1)], "of the wrong type"),
        (0, "of the wrong type; got 0"),
    ],
)
def test_a_default_that_cannot_be_is_refused_at_once(defaults: Any, why: str) -> None:
    with pytest.raises(TopologyError, match=why):
        state("a long", defaults=defaults)


def test_a_default_may_be_given_where_an_operator_sets_the_columns() -> None:
    """The error of a new column without a default advises it."""
    given = open_state("memory:", table="t", defaults={"b": 1})
    set_by_operator = given.with_columns(Fields("id long"), Fields("a long, b long"))

    assert given.layout().defaults == ()
    assert set_by_operator.layout().defaults == (("b", 1),)
    with pytest.raises(TopologyError, match="does not name a value column; got 'b'; expected"):
        given.with_columns(Fields("id long"), Fields("a long"))
