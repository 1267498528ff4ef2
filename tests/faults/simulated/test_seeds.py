"""Three hundred seeds, and every seed that once found a bug."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.faults.matrix.results import TIMES
from tests.faults.simulated.named_seeds import NAMED_SEEDS, NamedSeed
from txtopo.testing.simulation.campaign import Simulator, run_seeds
from txtopo.testing.simulation.scenario import Scenario

pytestmark = pytest.mark.integration
SEEDS = 300


@pytest.mark.row(6, 14, 15, 16, 20, 22, 23, 25, 26, 28, 36, 37, 42, 43, 45, 47, 48, 49, 53)
def test_no_seed_breaks_a_promise(record_property: Callable[[str, object], None]) -> None:
    record_property(TIMES, SEEDS)
    report = run_seeds(0, SEEDS, processes=len(os.sched_getaffinity(0)))

    commands = [Scenario.drawn(seed).command() for seed in report.failures]
    assert not report.failures, "\n".join(commands)
    assert report.seeds == SEEDS
    assert report.fenced, "no coordinator was ever deposed: the seeds test too little"


@pytest.mark.parametrize("named", NAMED_SEEDS, ids=lambda named: named.found)
def test_a_seed_that_once_found_a_bug_finds_none(named: NamedSeed) -> None:
    simulator = Simulator()
    scenario = Scenario.drawn(named.seed).changed(named.settings, named.without)

    verdict = simulator.run(scenario)
    simulator.close()

    assert verdict.violations == (), scenario.command()
