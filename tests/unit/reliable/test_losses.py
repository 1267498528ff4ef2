"""The failure cases of Storm's page: whatever is lost, each message is processed at least once."""

from __future__ import annotations

import pytest

from tests.harness.chance import most
from tests.unit.reliable.losing import (
    Fault,
    all_at_once,
    kill_bolts,
    kill_spouts,
    lose_ackers,
    run,
)

SEEDS = most(100, otherwise=15)

CASES: dict[str, tuple[Fault | None, float]] = {
    "a bolt forgets to ack": (None, 0.2),
    "a slot without spouts dies": (kill_bolts, 0.0),
    "the acker's state is lost": (lose_ackers, 0.0),
    "the slots of the spouts die": (kill_spouts, 0.0),
    "anything": (all_at_once, 0.1),
}


@pytest.mark.integration
@pytest.mark.row(56, 57)
@pytest.mark.parametrize("case", CASES)
def test_nothing_is_lost_and_some_come_twice(case: str) -> None:
    fault, forgets = CASES[case]

    seeds = SEEDS if case != "anything" else SEEDS // 3

    slots = (3, 3) if fault is kill_bolts else (1, 3)
    results = {seed: run(seed, fault, forgets, slots) for seed in range(seeds)}

    assert {seed: each.lost for seed, each in results.items() if each.lost} == {}
    assert {seed: each.unacked for seed, each in results.items() if each.unacked} == {}
    # The fault was one: else the two lines above would say nothing.
    doubled = sum(each.doubled for each in results.values())
    print(f"{case}: {doubled} words came again in {len(results)} runs")
    assert doubled > len(results)
    if case != "the slots of the spouts die":
        assert sum(each.failed for each in results.values()) > len(results) // 2


def test_without_a_fault_each_message_is_processed_once() -> None:
    for seed in range(SEEDS // 3):
        result = run(seed, None)

        assert (result.lost, result.doubled, result.unacked, result.failed) == ([], 0, [], 0)


def test_a_seed_is_a_run() -> None:
    assert run(7, all_at_once, 0.1) == run(7, all_at_once, 0.1)
