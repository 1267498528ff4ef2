"""Every order of two coordinators over the points of three txids, or of two groups of two txids:
about five thousand.

A seventh of them is tried every day; ``make faults``, ``make rows`` and ``make test-all`` try all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.faults.matrix.results import TIMES
from tests.faults.simulated.crash_cells import KINDS
from tests.faults.simulated.one_core import handoff_on_one_core
from tests.faults.simulated.two_coordinators import Order, orders, run_order
from txtopo.state.backend import StateKind

pytestmark = pytest.mark.integration
PARTS = 7
MORE = [pytest.param(part, marks=pytest.mark.slow) for part in range(1, PARTS)]


@pytest.mark.parametrize("part", [0, *MORE])
@pytest.mark.parametrize("groups", [False, True], ids=["alone", "groups"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.row(5, 26, 29, 47, 53)
def test_a_zombie_changes_nothing_wherever_it_hung_and_whenever_it_wakes(
    kind: StateKind, groups: bool, part: int, record_property: Callable[[str, object], None]
) -> None:
    wrong: dict[Order, list[str]] = {}
    refused: Counter[str] = Counter()
    count = 0
    with handoff_on_one_core() as handoff:
        for order in orders(kind, handoff, part=part, parts=PARTS, groups=groups):
            outcome = run_order(order, handoff)
            refused += outcome.refused
            count += 1
            assert bool(outcome.groups) == groups
            if outcome.wrong:
                wrong[order] = outcome.wrong

    record_property(TIMES, count)
    assert not wrong, f"{len(wrong)} of {count} orders: {list(wrong.items())[:3]}"
    assert count > 120
    assert refused["store-metadata.before"], (
        "ZooKeeper never refused a write of a zombie: nothing was tested"
    )
    assert refused["begin.before"], "no store ever refused a write of a zombie: nothing was tested"


@pytest.mark.parametrize("part", [0, *MORE])
@pytest.mark.parametrize("groups", [False, True], ids=["alone", "groups"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.row(5, 51)
def test_of_two_with_a_zookeeper_each_one_is_refused_and_nothing_is_lost(
    kind: StateKind, groups: bool, part: int, record_property: Callable[[str, object], None]
) -> None:
    wrong: dict[Order, list[str]] = {}
    count = 0
    with handoff_on_one_core() as handoff:
        for order in orders(kind, handoff, part=part, parts=PARTS, apart=True, groups=groups):
            outcome = run_order(order, handoff)
            count += 1
            assert bool(outcome.groups) == groups
            if outcome.wrong:
                wrong[order] = outcome.wrong

    record_property(TIMES, count)
    assert not wrong, f"{len(wrong)} of {count} orders: {list(wrong.items())[:3]}"
    assert count > 20


@pytest.mark.parametrize(("groups", "commits"), [(False, 3), (True, 2)])
@pytest.mark.parametrize("kind", KINDS)
def test_one_coordinator_alone_is_refused_nothing(
    kind: StateKind, groups: bool, commits: int
) -> None:
    """So what is counted as refused was refused to a zombie."""
    with handoff_on_one_core() as handoff:
        outcome = run_order(Order(kind, None, None, groups=groups), handoff)

    assert outcome.wrong == []
    assert outcome.refused == {}
    assert outcome.points_a.count("cleanup.after") == commits
