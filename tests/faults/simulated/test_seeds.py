"""Three hundred seeds, some more with groups of txids, and every seed that once found a bug."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.faults.matrix.results import TIMES
from tests.faults.simulated.named_seeds import GROUPS, NAMED_SEEDS, NamedSeed
from txtopo.testing.simulation.campaign import Simulator, run_seeds
from txtopo.testing.simulation.scenario import Scenario

pytestmark = pytest.mark.integration
SEEDS = 300
GROUP_SEEDS = 80


@pytest.mark.row(6, 14, 15, 16, 20, 22, 23, 25, 26, 28, 36, 37, 42, 43, 45, 47, 48, 49, 53)
def test_no_seed_breaks_a_promise(record_property: Callable[[str, object], None]) -> None:
    record_property(TIMES, SEEDS)
    report = run_seeds(0, SEEDS, processes=len(os.sched_getaffinity(0)))

    commands = [Scenario.drawn(seed).command() for seed in report.failures]
    assert not report.failures, "\n".join(commands)
    assert report.seeds == SEEDS
    assert report.fenced, "no coordinator was ever deposed: the seeds test too little"


def test_no_seed_with_groups_breaks_a_promise() -> None:
    """Batches of one record, many at a time, and states that take groups."""
    report = run_seeds(0, GROUP_SEEDS, processes=len(os.sched_getaffinity(0)), changes=GROUPS)

    commands = [Scenario.drawn(seed).changed(GROUPS).command() for seed in report.failures]
    assert not report.failures, "\n".join(commands)
    assert report.groups["written"] > 5 * GROUP_SEEDS // 2
    assert report.groups["redone"] > 3
    assert report.groups["adopted"]


@pytest.mark.parametrize("named", NAMED_SEEDS, ids=lambda named: named.found)
def test_a_seed_that_once_found_a_bug_finds_none(named: NamedSeed) -> None:
    simulator = Simulator()
    scenario = Scenario.drawn(named.seed).changed(named.settings, named.without)

    verdict = simulator.run(scenario)
    simulator.close()

    assert verdict.violations == (), scenario.command()
