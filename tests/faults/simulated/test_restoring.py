"""Simulated operators who call ``rebuild`` after an ensemble or all stores were set back."""

from __future__ import annotations

from collections import Counter

import pytest

from txtopo.testing.simulation.campaign import Simulator, verdict
from txtopo.testing.simulation.scenario import Scenario

WANTED = 3


@pytest.mark.integration
def test_what_was_set_back_is_rebuilt_and_every_record_counts_once() -> None:
    """The checkers judge what was committed before and after it as one history."""
    simulator, found = Simulator(), Counter[str]()
    for seed in range(400):
        scenario = Scenario.drawn(seed)
        if not scenario.faults.restore:
            continue
        world, evidence = simulator.evidence(scenario)
        assert verdict(seed, world, evidence).violations == (), f"seed {seed}"
        found["rebuilt"] += world.restorations.rebuilt
        found["brought back"] += world.restorations.refused
        if min(found["rebuilt"], found["brought back"]) >= WANTED:
            break
    simulator.close()

    assert found["rebuilt"] >= WANTED
