"""Random logs of captured tables, and whether each table follows from them after each txid."""

from __future__ import annotations

import pytest

from tests.unit.streams.captured_programs import judged_log, random_log
from tests.unit.streams.seeds import assert_promises_kept

pytestmark = pytest.mark.integration

SEEDS = [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 60))]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_log_becomes_the_rows_of_its_table(seed: int) -> None:
    """Whatever the order of its events, the batches, the groups, the replays and the leaders."""
    assert_promises_kept(judged_log(seed))


def test_the_seeds_have_what_there_is_to_test() -> None:
    logs = [random_log(seed) for seed in range(6)]
    events = [event for log in logs for event in log.events]

    assert {event[4] for event in events} == set("crudt")
    assert {event[6] for event in events} == {"x", "y"}
    assert {log.ordered for log in logs} == {True, False}
    assert {log.partitions for log in logs} == {1, 2}
    assert any(log.expire_after for log in logs)
