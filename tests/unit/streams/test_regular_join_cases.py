"""Joins without a bound in time do what the tests of other engines expect."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.unit.streams.cases.regular_joins import CASES, RegularCase
from tests.unit.streams.regular_txids import Regular, put, taken_back


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.source)
def test_a_join_has_what_it_has_elsewhere(case: RegularCase) -> None:
    kinds = [type(row[at]) for step in case.steps for row in step.left for at in (0, 1)]
    key, value = ("long" if kind is int else "string" for kind in kinds[:2])
    join = Regular(case.how, f"key {key}, l {value}", f"key {key}, r string")

    for number, step in enumerate(case.steps):
        found = join.run(
            put(*step.left) + taken_back(*step.left_back),
            put(*step.right) + taken_back(*step.right_back),
        )
        assert +join.live == Counter(step.result), number
        if step.emitted is not None:
            assert found == [(row, back) for back, row in step.emitted], number


def test_so_many_cases_are_carried_over() -> None:
    assert len(CASES) == 17
