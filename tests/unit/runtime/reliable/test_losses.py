"""The failure cases of Storm's page: whatever is lost, each message is processed at least once."""

from __future__ import annotations

import pytest

from tests.harness.chance import times
from tests.unit.runtime.reliable.losing import (
    Fault,
    all_at_once,
    kill_slot,
    lose_acker,
    lose_spout,
    run,
)

SEEDS = 100

CASES: dict[str, tuple[Fault | None, float]] = {
    "a bolt forgets to ack": (None, 0.2),
    "a bolt's slot dies": (kill_slot, 0.0),
    "the acker's state is lost": (lose_acker, 0.0),
    "the spout's task dies": (lose_spout, 0.0),
    "anything": (all_at_once, 0.1),
}


@pytest.mark.integration
@pytest.mark.row(57, 58)
@pytest.mark.parametrize("case", CASES)
def test_nothing_is_lost_and_some_come_twice(case: str) -> None:
    fault, forgets = CASES[case]

    seeds = SEEDS if case != "anything" else SEEDS // 3

    results = {seed: run(seed, fault, forgets) for seed in range(times(seeds))}

    assert {seed: each.lost for seed, each in results.items() if each.lost} == {}
    assert {seed: each.unacked for seed, each in results.items() if each.unacked} == {}
    # The fault was one: else the two lines above would say nothing.
    doubled = sum(each.doubled for each in results.values())
    print(f"{case}: {doubled} words came again in {len(results)} runs")
    assert doubled > len(results)
    if case != "the spout's task dies":
        assert sum(each.failed for each in results.values()) > len(results)


def test_without_a_fault_each_message_is_processed_once() -> None:
    for seed in range(times(SEEDS // 5)):
        result = run(seed, None)

        assert (result.lost, result.doubled, result.unacked, result.failed) == ([], 0, [], 0)


def test_a_seed_is_a_run() -> None:
    assert run(7, all_at_once, 0.1) == run(7, all_at_once, 0.1)
