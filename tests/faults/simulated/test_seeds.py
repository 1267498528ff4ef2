"""The seeds that find planted bugs, a few fresh ones, and every seed that once found a bug.

``make test-all`` runs three hundred besides, and some more with groups of txids.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping

import pytest

from tests.faults.matrix.results import TIMES
from tests.faults.simulated.fresh_seeds import fresh_seeds
from tests.faults.simulated.named_seeds import (
    GROUPS,
    NAMED_SEEDS,
    SEEDS_OF_GROUPS,
    NamedSeed,
    seeds_of_planted,
)
from tests.faults.simulated.one_core import handoff_on_one_core
from txtopo.testing.simulation.campaign import CampaignReport, Simulator, run_seeds
from txtopo.testing.simulation.scenario import Scenario

pytestmark = pytest.mark.integration
SEEDS = 300
GROUP_SEEDS = 80
MATRIX = pytest.mark.row(6, 14, 15, 16, 20, 22, 23, 25, 26, 28, 36, 37, 42, 43, 45, 47, 48, 49, 53)


@pytest.fixture(autouse=True)
def one_core() -> Iterator[None]:
    with handoff_on_one_core():
        yield


def judged(seeds: Iterable[int], changes: Mapping[str, str] | None = None) -> CampaignReport:
    """Run seeds, here, and let none of them break a promise."""
    report = CampaignReport()
    for seed in seeds:
        report.add(run_seeds(seed, 1, changes=changes))
    commands = [Scenario.drawn(seed).changed(changes or {}).command() for seed in report.failures]
    assert not report.failures, "\n".join(commands)
    return report


@MATRIX
def test_no_seed_that_finds_a_planted_bug_breaks_a_promise(
    record_property: Callable[[str, object], None],
) -> None:
    report = judged(seeds_of_planted())

    record_property(TIMES, report.seeds)
    assert report.fenced, "no coordinator was ever deposed: the seeds test too little"


def test_no_fresh_seed_breaks_a_promise() -> None:
    judged(fresh_seeds())
    judged(fresh_seeds(2), GROUPS)


def test_no_seed_with_groups_breaks_a_promise() -> None:
    """Batches of one record, many at a time, and states that take groups."""
    report = judged(SEEDS_OF_GROUPS, GROUPS)

    assert report.groups["written"] > 5 * len(SEEDS_OF_GROUPS)
    assert report.groups["redone"] > 3
    assert report.groups["adopted"]
    assert report.groups["shared"]


@pytest.mark.slow
@MATRIX
def test_none_of_three_hundred_seeds_breaks_a_promise(
    record_property: Callable[[str, object], None],
) -> None:
    record_property(TIMES, SEEDS)
    report = run_seeds(0, SEEDS, processes=len(os.sched_getaffinity(0)))

    commands = [Scenario.drawn(seed).command() for seed in report.failures]
    assert not report.failures, "\n".join(commands)
    assert report.seeds == SEEDS


@pytest.mark.slow
def test_none_of_eighty_seeds_with_groups_breaks_a_promise() -> None:
    report = judged(range(GROUP_SEEDS), GROUPS)

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
