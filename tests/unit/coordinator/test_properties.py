"""Under any luck each record is committed once, in order, and nothing gets stuck."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.chance import examples
from tests.harness.metadata import CUTTING
from tests.unit.coordinator.world import RECORDS, World
from txtopo.coordinator import CoordinatorSettings
from txtopo.coordinator.protocol import Action, Resumed

SETTINGS = [
    CoordinatorSettings(
        window_txids=window,
        run_txids_max=run,
        jobs_max=jobs,
        attempts_max=3,
        repeatable=repeatable,
        cutting_spouts=CUTTING if chained else frozenset(),
        group_txids_max=group,
    )
    for group, (window, run, jobs), repeatable, chained in product(
        [1, 4],
        [(1, 1, 2), (2, 1, 2), (4, 1, 4), (4, 2, 2), (6, 3, 1), (9, 3, 2)],
        [True, False],
        [True, False],
    )
]


def name_of(chosen: CoordinatorSettings) -> str:
    kind = "repeatable" if chosen.repeatable else "opaque"
    words = [kind, "chained" * bool(chosen.cutting_spouts)]
    sizes = [chosen.window_txids, chosen.run_txids_max, chosen.group_txids_max]
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


class Noting(World):
    """Keeps what the coordinators ask for."""

    def __init__(self, settings: CoordinatorSettings, seed: int) -> None:
        self.asked: list[Action] = []
        super().__init__(settings, seed)

    def perform(self, actions: list[Action]) -> None:
        self.asked += actions
        super().perform(actions)


@pytest.mark.rule("txtopo.coordinator.machine", "Rules", 2)
@pytest.mark.parametrize("chosen", SETTINGS[-4:], ids=name_of)
def test_equal_events_lead_to_equal_actions(chosen: CoordinatorSettings) -> None:
    first, second = Noting(chosen, seed=1), Noting(chosen, seed=1)
    for _ in range(80):
        first.step()
    for _ in range(80):
        second.step()

    assert len(first.asked) > 70
    assert str(first.asked) == str(second.asked)


@pytest.mark.rule("txtopo.coordinator.machine", "Rules", 4)
@pytest.mark.parametrize("chosen", [each for each in SETTINGS if each.jobs_max > 1], ids=name_of)
def test_after_an_event_nothing_is_left_to_do(chosen: CoordinatorSettings) -> None:
    world = World(chosen, seed=1)
    for _ in range(80):
        world.step()
        assert world.coordinator.handle(Resumed(0)) == [], "no pause of txid 0 was asked for"


def assert_something_is_under_way(world: World) -> None:
    if world.coordinator.transactions:
        assert world.work or world.pauses, world.coordinator.transactions
