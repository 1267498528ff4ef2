"""The columns of a PersistentAggregate follow from its inputs."""

from __future__ import annotations

import pytest

from txtopo import Committer, Fields, PersistentAggregate
from txtopo.errors import FieldsError, TopologyError
from txtopo.state import Count, Max, Sum, open_state

STATE = open_state("memory:")
INPUTS = Fields("word string, day date, amount int, price decimal(10,2)")


def test_one_aggregate_and_one_key_may_stand_alone() -> None:
    count = PersistentAggregate(STATE, "word", Count())

    assert isinstance(count, Committer)
    assert count.key_fields(INPUTS) == Fields("word string")
    assert count.value_fields(INPUTS) == Fields("count long")


def test_several_keys_and_named_aggregates_become_columns() -> None:
    aggregates = {"n": Count(), "total": Sum("price"), "most": Max("amount")}
    made = PersistentAggregate(STATE, ["word", "day"], aggregates)

    assert made.key_fields(INPUTS) == Fields("word string, day date")
    assert made.value_fields(INPUTS) == Fields("n long, total decimal(38,2), most int")


def test_without_key_there_is_one_row() -> None:
    made = PersistentAggregate(STATE, aggregates=[Count(), Sum("amount")])

    assert made.key_fields(INPUTS) == Fields("key string")
    assert made.value_fields(INPUTS) == Fields("count long, sum_amount long")


def test_no_aggregates_are_refused() -> None:
    with pytest.raises(TopologyError, match="PersistentAggregate has no aggregates"):
        PersistentAggregate(STATE, "word")


def test_a_missing_key_is_named() -> None:
    with pytest.raises(FieldsError, match="unknown field 'wort'; declared are word, day"):
        PersistentAggregate(STATE, "wort", Count()).key_fields(INPUTS)
