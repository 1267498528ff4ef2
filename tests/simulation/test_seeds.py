"""Three hundred seeds, and every seed that once found a bug."""

from __future__ import annotations

import os

import pytest

from tests.simulation.named_seeds import NAMED_SEEDS, NamedSeed
from txtopo.testing.simulation.campaign import run_seeds
from txtopo.testing.simulation.scenario import Scenario
from txtopo.testing.simulation.simulator import Simulator

pytestmark = pytest.mark.integration
SEEDS = 300


def test_no_seed_breaks_a_promise() -> None:
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
