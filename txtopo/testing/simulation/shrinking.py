"""Shrinking: finds a smaller scenario that breaks the same promise.

A scenario is plain data, so it is made smaller one setting at a time, as long as the same checker
still objects. Less chance is drawn then, so the rest of the run is another one; that is why each
step is tried anew, and why the seed alone is not enough to name the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from txtopo.testing.simulation.faults import Faults
from txtopo.testing.simulation.scenario import Scenario
from txtopo.testing.simulation.simulator import Simulator, Verdict


def shrink(simulator: Simulator, scenario: Scenario) -> tuple[Scenario, Verdict]:
    """Return the smallest scenario found that breaks the same promise, and what came of it."""
    verdict = simulator.run(scenario)
    checkers = {each.checker for each in verdict.violations}
    smaller = True
    while smaller and checkers:
        smaller = False
        for candidate in _smaller(scenario):
            tried = simulator.run(candidate)
            if checkers & {each.checker for each in tried.violations}:
                scenario, verdict, smaller = candidate, tried, True
                break
    return scenario, verdict


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Yield scenarios that are a little smaller, those that take most away first."""
    yield from _without_faults(scenario)
    shape = scenario.shape
    if len(shape.committers) > 1:
        for name in shape.committers:
            yield replace(scenario, shape=replace(shape, committers=(name,)))
    if shape.relay:
        yield replace(scenario, shape=replace(shape, relay=False))
    if shape.parallelism > 1:
        yield replace(scenario, shape=replace(shape, parallelism=1))
    for name in ("coordinators", "slots", "partitions", "jobs_max", "run_txids_max"):
        if getattr(scenario, name) > 1:
            yield scenario.changed({name: "1"})
    if scenario.records > 1:
        yield replace(scenario, records=scenario.records // 2)
        yield replace(scenario, records=scenario.records - 1)
    if scenario.max_spout_pending is not None:
        yield replace(scenario, max_spout_pending=None)
    if scenario.chaos_s > 1.0:
        yield replace(scenario, chaos_s=scenario.chaos_s / 2)


def _without_faults(scenario: Scenario) -> Iterator[Scenario]:
    kinds = [kind for kind in Faults.kinds() if getattr(scenario.faults, kind)]
    if len(kinds) > 3:
        half = len(kinds) // 2
        for some in (kinds[:half], kinds[half:]):
            yield replace(scenario, faults=scenario.faults.without(some))
    for kind in kinds:
        yield replace(scenario, faults=scenario.faults.without([kind]))
