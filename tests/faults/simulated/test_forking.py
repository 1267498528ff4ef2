"""Simulated operators who fork a topology while it runs, and both run to their end."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from txtopo.testing.simulation.campaign import Simulator, verdict
from txtopo.testing.simulation.forking import Forked
from txtopo.testing.simulation.scenario import Scenario

SEEDS = 25
WANTED = 3


@pytest.mark.integration
def test_a_topology_and_its_fork_count_every_record_once() -> None:
    """Processes die in the middle of the fork, and it is called again."""
    simulator, found = Simulator(), Counter[str]()
    for seed in range(SEEDS):
        scenario = replace(Scenario.drawn(seed).changed({}, ["restore"]), forks=True)
        world, evidence = simulator.evidence(scenario)
        assert verdict(seed, world, evidence).violations == (), f"seed {seed}"
        forked = Forked.of(world)
        assert forked is not None
        ended = simulator.fork_evidence(scenario, forked, evidence)
        assert verdict(seed, *ended).violations == (), f"fork of seed {seed}"
        last = max(each.ledger.txid for each in ended[1].history.stores.values() if each.ledger)
        found["called again"] += world.forks.calls > 1
        found["forked in the middle"] += 0 < forked.txid < last
    simulator.close()

    assert min(found["called again"], found["forked in the middle"]) >= WANTED
