"""Rows that take earlier ones back, as the deletions of a change feed do."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.chance import examples
from tests.unit.stages.running import Row
from tests.unit.stages.test_partials import totals
from tests.unit.stages.test_python_partials import Rows
from txtopo import Fields, PersistentAggregate
from txtopo.errors import FieldsError, TopologyError, ValueRefusedError
from txtopo.state import Aggregate, Count, First, Max, Mean, Min, Sum, TopN, open_state

FIELDS = "word string, n long, price decimal(6,2), gone boolean"


class Total(Rows):
    """A sum of one's own that can go down."""

    def add(self, value: int, item: int | None = None) -> int:
        return value + (item or 0)

    def remove(self, value: int, item: int | None) -> int:
        return value - (item or 0)


ALL: dict[str, Aggregate] = {
    "rows": Count(),
    "known": Count("n"),
    "total": Sum("n"),
    "own": Total("n"),
    "mean": Mean("price"),
}
ROWS = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.none() | st.integers(-5, 5),
        st.none() | st.sampled_from([Decimal("0.25"), Decimal("-7.50")]),
        st.sampled_from([True, False, None]),
    ),
    max_size=30,
)


def signed(rows: list[Row], at: int) -> int | Decimal | None:
    known = [(-row[at] if row[3] else row[at]) for row in rows if row[at] is not None]
    return sum(known) if known else None


@examples(40)
@given(rows=ROWS, tasks=st.integers(1, 3), slots=st.integers(1, 2))
def test_what_is_taken_back_counts_against_what_is_added(
    rows: list[Row], tasks: int, slots: int
) -> None:
    found = totals(rows, FIELDS, "word", ALL, retracted="gone", tasks=tasks, slots=slots)

    assert set(found) == {(row[0],) for row in rows}
    for (word,), values in found.items():
        mine = [row for row in rows if row[0] == word]
        assert values == (
            sum(-1 if row[3] else 1 for row in mine),
            sum(-1 if row[3] else 1 for row in mine if row[1] is not None),
            signed(mine, 1),
            signed(mine, 1) or 0,
            signed(mine, 2),
            sum(-1 if row[3] else 1 for row in mine if row[2] is not None),
        )


@pytest.mark.parametrize("aggregate", [Min("n"), Max("n"), First("n"), TopN("n", 2), Rows("n")])
def test_what_cannot_forget_a_row_is_refused(aggregate: Aggregate) -> None:
    with pytest.raises(TopologyError, match="rows cannot be taken back from"):
        PersistentAggregate(open_state("memory:"), "word", aggregate, retracted="gone")


def test_the_field_must_be_there_and_boolean() -> None:
    with pytest.raises(TopologyError, match=r"retracted is wrong; got \['gone'\]"):
        PersistentAggregate(open_state("memory:"), "word", Count(), retracted=["gone"])  # type: ignore[arg-type]
    for field, match in (
        ("n", "is not a boolean; got 'n', long"),
        ("away", "unknown field 'away'"),
    ):
        made = PersistentAggregate(open_state("memory:"), "word", Count(), retracted=field)

        with pytest.raises(FieldsError, match=match):
            made.value_fields(Fields(FIELDS))


def test_the_smallest_number_cannot_be_taken_back_but_added() -> None:
    least: dict[str, Any] = {"n": Sum("n")}

    assert totals([["a", -(2**63), None, False]], FIELDS, "word", least, retracted="gone") == {
        ("a",): (-(2**63),)
    }
    with pytest.raises(ValueRefusedError, match="a sum does not fit value column 'n'"):
        totals([["a", -(2**63), None, True]], FIELDS, "word", least, retracted="gone")
