"""Spouts wait while a slot has more than enough to do, and no longer than that."""

from __future__ import annotations

import pytest

from tests.unit.reliable.bolts import WORD, Count, Forward, rows
from txtopo import AtLeastOnceConfig, TopologyBuilder
from txtopo.reliable import driver
from txtopo.reliable.anchoring.spout_task import EndedMessages, ReliableSpoutTask, TurnLimits
from txtopo.spouts import MemorySpout
from txtopo.stages.compiled_topology import compile_topology
from txtopo.testing import SimulatedCluster

ROWS = 20_000
BACKLOG = 500
# A turn that was begun is not cut short.
TURN = 2_100


def started() -> SimulatedCluster:
    builder = TopologyBuilder()
    builder.set_spout("words", MemorySpout(rows("a", "b", "c", "d"), WORD, ROWS // 4))
    builder.set_bolt("forward", Forward(), 2).shuffle_grouping("words")
    builder.set_bolt("count", Count(), 2).fields_grouping("forward", "word")
    cluster = SimulatedCluster()
    cluster.start(builder.build_topology(), AtLeastOnceConfig(slots=2, message_timeout_s=5))
    return cluster


def test_the_backlog_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "BACKLOG_TUPLES_MAX", BACKLOG)
    cluster = started()
    largest = 0
    while cluster.progress.acked < ROWS:
        cluster.advance(0.001)
        largest = max(largest, cluster.progress.backlog)

    # In each of two slots: what a turn brings, and what comes of what the other slot had.
    assert BACKLOG < largest < 2 * (BACKLOG + 2 * TURN)


def test_what_was_on_its_way_to_a_lost_slot_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver, "BACKLOG_TUPLES_MAX", BACKLOG)
    cluster = started()
    cluster.run_until(lambda: cluster.progress.backlog > BACKLOG // 2)
    for slot in range(2):
        cluster.kill_slot(slot)
    assert cluster.progress.backlog == 0
    acked = cluster.progress.acked

    cluster.process_all_available()

    # The spout was in one of them, and has begun again.
    assert (cluster.progress.acked, cluster.progress.slots_lost) == (acked + ROWS, 2)


@pytest.mark.parametrize(("room", "emitted"), [(0, 0), (1, 1), (7, 7)])
def test_a_turn_emits_no_more_than_there_is_room_for(room: int, emitted: int) -> None:
    builder = TopologyBuilder()
    builder.set_spout("words", MemorySpout(rows("a"), WORD, 10))
    compiled = compile_topology(builder.build_topology().graph, AtLeastOnceConfig(), 1)
    spout = ReliableSpoutTask(compiled, compiled.components["words"], 0, 0, 1, now=lambda: 0.0)
    spout.open()

    turn = spout.turn(EndedMessages(), active=True, limits=TurnLimits(trees=room))

    assert (turn.emitted, len(turn.messages)) == (emitted, emitted)


def test_a_spout_can_see_how_many_of_its_trees_are_pending() -> None:
    builder = TopologyBuilder()
    builder.set_spout("words", MemorySpout(rows("a"), WORD, 10))
    compiled = compile_topology(builder.build_topology().graph, AtLeastOnceConfig(), 1)
    spout = ReliableSpoutTask(compiled, compiled.components["words"], 0, 0, 1, now=lambda: 0.0)
    spout.open()

    spout.turn(EndedMessages(), active=True, limits=TurnLimits(trees=5))
    assert spout.pending == 5
    spout.turn(EndedMessages(acked=[0, 1], failed=[2]), active=False, limits=TurnLimits())
    assert spout.pending == 2
