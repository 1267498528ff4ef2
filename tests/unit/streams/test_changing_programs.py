"""Random programs of operators that put and take back rows, judged after each txid."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.unit.streams.changing_programs import ROWS, Program, judged_changing_program
from tests.unit.streams.seeds import assert_promises_kept
from tests.unit.streams.worlds import sales

pytestmark = pytest.mark.integration

SEEDS = [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 60))]


@pytest.mark.parametrize("seed", SEEDS)
def test_relations_of_relations_are_right_after_each_txid(seed: int) -> None:
    """Whatever the batches, the groups, the replays and the leaders."""
    assert_promises_kept(judged_changing_program(seed))


def test_the_seeds_have_all_operators() -> None:
    made = Counter(name for seed in range(12) for name in Program(seed, sales(ROWS)).made)

    assert set(made) == {
        "_filtered",
        "_mapped",
        "_coarse",
        "_as_table",
        "_aggregated",
        "_top",
        "_merged",
        "_joined",
    }
