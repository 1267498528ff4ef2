"""Under any luck each record is committed once, in order, and nothing gets stuck."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.chance import examples
from tests.unit.coordinator.world import RECORDS, World
from txtopo.coordinator import CoordinatorSettings

SETTINGS = [
    CoordinatorSettings(
        window_txids=window,
        run_txids_max=run,
        jobs_max=jobs,
        attempts_max=3,
        keep_processed=keep,
        repeatable=repeatable,
        chained=chained,
        group_txids_max=group,
    )
    for group, (window, run, jobs), repeatable, chained, keep in product(
        [1, 4],
        [(1, 1, 1), (4, 10, 4), (6, 3, 1), (9, 3, 2), (2, 5, 1)],
        [True, False],
        [True, False],
        [True, False],
    )
    if repeatable or not keep
]


def name_of(chosen: CoordinatorSettings) -> str:
    kind = "repeatable" if chosen.repeatable else "opaque"
    words = [kind, "chained" * chosen.chained, "keeping" * chosen.keep_processed]
    sizes = [chosen.window_txids, chosen.run_size, chosen.group_txids_max]
    return "-".join([*filter(None, words), *map(str, sizes)])


@pytest.mark.parametrize("chosen", SETTINGS, ids=name_of)
@examples(5)
@given(seed=st.integers(0, 2**32))
@pytest.mark.row(27)
def test_each_record_is_committed_once_and_in_order(chosen: CoordinatorSettings, seed: int) -> None:
    world = World(chosen, seed)
    for _ in range(80):
        world.step()
        assert_something_is_under_way(world)

    world.heal()

    ranges = world.store.ranges
    assert [begin for begin, _ in ranges] == [0, *[end for _, end in ranges[:-1]]]
    assert ranges[-1][1] == RECORDS
    assert world.coordinator.current == len(ranges) + 1


def assert_something_is_under_way(world: World) -> None:
    if world.coordinator.transactions:
        assert world.work or world.pauses, world.coordinator.transactions
