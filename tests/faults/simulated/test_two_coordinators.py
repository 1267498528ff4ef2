"""Every order of two coordinators over the points of three txids, or of two groups of two txids:
about eight thousand.

``make test`` stops the first one at each of its points, with a few points of the second one at each
of them: groups with opaque states, and batches alone with transactional ones. ``make faults`` and
``make test-all`` try all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product

import pytest

from tests.faults.matrix.results import TIMES
from tests.faults.simulated.crash_cells import KINDS
from tests.faults.simulated.one_core import handoff_on_one_core
from tests.faults.simulated.two_coordinators import Order, outcomes, run_order
from txtopo.state.backend import StateKind

pytestmark = pytest.mark.integration
PARTS = 7
QUICK = {"every": 17}
IN_MAKE_TEST = [("opaque", True), ("transactional", False)]
"""A kind of state, and whether txids are committed in groups."""


def samples() -> Iterator[object]:
    """Yield a quick sample of each kind with and without groups, and all parts of both."""
    for kind, groups in product(KINDS, (False, True)):
        name = f"{kind}-{'groups' if groups else 'alone'}"
        more = () if (kind, groups) in IN_MAKE_TEST else (pytest.mark.slow,)
        yield pytest.param(kind, groups, QUICK, id=f"{name}-quick", marks=more)
        for part in range(PARTS):
            sample = {"part": part, "parts": PARTS}
            yield pytest.param(kind, groups, sample, id=f"{name}-{part}", marks=pytest.mark.slow)


each_sample = pytest.mark.parametrize(("kind", "groups", "sample"), list(samples()))


@each_sample
@pytest.mark.row(5, 26, 29, 47, 53)
def test_a_zombie_changes_nothing_wherever_it_hung_and_whenever_it_wakes(
    kind: StateKind,
    groups: bool,
    sample: dict[str, int],
    record_property: Callable[[str, object], None],
) -> None:
    wrong: dict[Order, list[str]] = {}
    refused: Counter[str] = Counter()
    count = 0
    with handoff_on_one_core() as handoff:
        for order, outcome in outcomes(kind, handoff, apart=False, groups=groups, **sample):
            refused += outcome.refused
            count += 1
            assert bool(outcome.groups) == groups
            if outcome.wrong:
                wrong[order] = outcome.wrong

    record_property(TIMES, count)
    assert not wrong, f"{len(wrong)} of {count} orders: {list(wrong.items())[:3]}"
    assert count > 80
    if sample == QUICK:  # Of all orders; a seventh of them may have one of the two alone.
        assert refused["store-metadata.before"], "ZooKeeper never refused a write of a zombie"
        assert refused["begin.before"], "no store ever refused a write of a zombie"


@each_sample
@pytest.mark.row(5, 51)
def test_of_two_with_a_zookeeper_each_one_is_refused_and_nothing_is_lost(
    kind: StateKind,
    groups: bool,
    sample: dict[str, int],
    record_property: Callable[[str, object], None],
) -> None:
    wrong: dict[Order, list[str]] = {}
    count = 0
    with handoff_on_one_core() as handoff:
        for order, outcome in outcomes(kind, handoff, apart=True, groups=groups, **sample):
            count += 1
            assert bool(outcome.groups) == groups
            if outcome.wrong:
                wrong[order] = outcome.wrong

    record_property(TIMES, count)
    assert not wrong, f"{len(wrong)} of {count} orders: {list(wrong.items())[:3]}"
    assert count > 60


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
