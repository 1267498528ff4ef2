"""Random logs of captured tables, and whether each table follows from them after each txid."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.unit.streams.captured import Captured, PlainTable
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


@pytest.mark.slow
def test_a_hundred_thousand_events_become_the_rows_of_their_table() -> None:
    """Far out of order, a tenth of them repeated, with two truncates; compared after each txid."""
    chance, live = Random(40), set[str]()
    events: list[tuple[Any, ...]] = []
    for at in range(100_000):
        key = f"k{chance.randrange(3_000)}"
        if at in (30_000, 70_000):
            live.clear()
            events.append(("t", None, None, at))
        elif key in live and chance.random() < 0.3:
            live.remove(key)
            events.append(("d", key, None, at))
        else:
            events.append(("u" if key in live else "c", key, chance.randrange(50), at))
            live.add(key)
    events += chance.sample(events, 10_000)
    events.sort(key=lambda event: event[3] + chance.uniform(0, 5_000))
    table, plain = Captured(on_truncate="clear"), PlainTable()

    for start in range(0, len(events), 5_000):
        taken = events[start : start + 5_000]
        table.run(*taken)
        plain.take([(at, op, key, n, None) for op, key, n, at in taken])
        assert table.rows == plain.rows()
    assert set(table.rows) == live
