"""Batches that start where their predecessor ended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.harness.metadata import CUTTING, of_one
from tests.unit.coordinator.script import OPAQUE, STORM, Script
from txtopo.coordinator.protocol import Committed, Processed
from txtopo.metadata import Json

PARTITIONED = replace(STORM, cutting_spouts=CUTTING, jobs_max=2)


def end(position: int) -> dict[str, Json]:
    return {"0": position}


def test_a_batch_waits_until_the_end_of_its_predecessor_is_known() -> None:
    script = Script(OPAQUE, s=1)
    assert [start.attempts[0].txid for start in script.starts] == [1]

    assert script.ack(1, end(2)) == ["C1", "B2 1"]
    assert script.starts[1].previous == of_one(1, end(2))


def test_processed_is_enough_committed_is_not_needed() -> None:
    script = Script(OPAQUE, s=1)
    script.ack(1, end(2))

    assert script.ack(2, end(4)) == ["B3 1"]
    assert script.starts[2].previous == of_one(1, end(4))
    assert script.coordinator.current == 1


def test_a_run_starts_where_the_run_before_it_ended() -> None:
    script = Script(replace(OPAQUE, window_txids=6, run_txids_max=3), s=1)
    script.ack(1, end(2))
    script.ack(2, end(4))

    assert script.ack(3, end(6)) == ["B4 1 B5 1 B6 1"]
    assert script.starts[1].previous == of_one(1, end(6))


@pytest.mark.row(23)
def test_an_opaque_replay_is_cut_again_from_where_its_predecessor_ended() -> None:
    script = Script(OPAQUE, s=1)
    for txid in (1, 2, 3):
        script.ack(txid, end(2 * txid))

    assert script.fail(2) == ["Cancel", "B2 1"]
    start = script.starts[-1]
    assert (start.metadata, start.previous) == ((of_one(1),), of_one(1, end(2)))
    script.ack(2, end(3))
    assert script.starts[-1].previous == of_one(1, end(3))


def test_a_partitioned_replay_is_the_same_batch_and_waits_for_nobody() -> None:
    script = Script(PARTITIONED, s=1)
    for txid in (1, 2, 3):
        script.ack(txid, end(2 * txid))

    assert script.fail(2) == ["Cancel", "B2 1", "B4 1"]
    assert script.starts[-2].metadata[0].of("spout").cut == end(4)


def test_a_partitioned_batch_without_an_end_waits() -> None:
    """jobs_max would allow two."""
    script = Script(PARTITIONED, s=1)

    assert len(script.starts) == 1


def test_a_restart_starts_from_the_end_of_the_last_commit() -> None:
    script = Script(OPAQUE, s=1)
    script.commit(1, end(2))

    assert script.restart() == ["B2 1"]
    assert script.starts[0].previous == of_one(1, end(2))


def test_r5_a_kill_between_commit_and_the_durable_current_keeps_the_position() -> None:
    """Storm deleted the predecessor's position first, and started at 0."""
    script = Script(OPAQUE, s=1)
    for txid in (1, 2, 3, 4):
        script.commit(txid, end(2 * txid))
    script.ack(5, end(10))
    script.coordinator.handle(Committed((script.attempt(5),)))

    assert script.restart() == ["B5 1"]
    assert script.starts[0].previous == of_one(1, end(8))


def test_r5_a_partition_that_is_down_keeps_its_position_when_the_batch_before_is_committed() -> (
    None
):
    script = Script(OPAQUE, s=1)
    script.commit(1, end(2))
    script.ack(2, end(2))

    assert script.starts[-1].previous == of_one(1, end(2))


def test_r5_it_keeps_it_while_the_batch_before_is_in_flight() -> None:
    script = Script(OPAQUE, s=1)
    script.ack(1, end(2))
    script.ack(2, end(2))

    assert script.starts[-1].previous == of_one(1, end(2))
    assert script.coordinator.current == 1


def test_r5_it_keeps_it_when_its_empty_batch_is_committed() -> None:
    script = Script(OPAQUE, s=1)
    script.commit(1, end(2))
    script.commit(2, end(2))

    assert script.restart() == ["B3 1"]
    assert script.starts[0].previous == of_one(1, end(2))


def test_check_36_in_storms_own_numbers() -> None:
    """1, 2, 3 in flight, 2 fails: 2 starts at 2 again; after commit(1) its end is stored."""
    script = Script(OPAQUE, s=1)
    for txid in (1, 2, 3):
        script.ack(txid, end(2 * txid))
    script.fail(2)
    assert script.starts[-1].previous == of_one(1, end(2))
    script.ack(2, end(4))
    assert script.starts[-1].previous == of_one(1, end(4))

    script.ack(1)
    assert script.stored[1] == of_one(1, end(2))
    script.fail(2)
    assert script.starts[-1].previous == of_one(1, end(2))


@pytest.mark.row(23)
def test_storms_opaque_story() -> None:
    """41 to 90 is cut again as 41 to 50; the batch behind it, processed already, starts at 51."""
    script = Script(OPAQUE, s=1)
    script.ack(1, end(40))
    script.ack(2, end(90))
    script.ack(3, end(140))
    script.fail(2)

    script.ack(2, end(50))

    assert script.starts[-1].previous == of_one(1, end(50))


def test_what_a_late_run_says_of_its_end_is_not_the_start_of_the_next() -> None:
    script = Script(replace(OPAQUE, window_txids=6, run_txids_max=3), s=1)
    late = script.starts[0]
    script.fail(1)
    cuts = tuple(of_one(1, end(99)) for _ in late.attempts)

    assert script.tell(Processed(late.attempts, cuts)) == []
    assert len(script.starts) == 2
