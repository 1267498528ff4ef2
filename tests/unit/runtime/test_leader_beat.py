"""The beat of a leader: when it is due, what it tells, and when it is not heard any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from tests.unit.runtime.by_hand import ByHand
from txtopo import Config
from txtopo.carriers.spark_jobs import session_stopped
from txtopo.ensemble import Journal, MemoryEnsemble, MemoryTransactionalState, Put
from txtopo.ensemble.commands import Desired, command_path
from txtopo.errors import ConfigError, FencedError
from txtopo.metadata import Json
from txtopo.runtime.leader_beat import BEAT_S, BeatHooks, LeaderBeat
from txtopo.runtime.scheduler import Scheduler

CONFIG = Config(carrier="local", zookeeper="memory", backoff_s=0.7)


class Leader:
    """A leader with a beat, and a list of what it has heard of it."""

    def __init__(self, *, at_once: bool = True, check: Callable[[], None] | None = None) -> None:
        self.loop, self.ensemble = ByHand(), MemoryEnsemble()
        state = MemoryTransactionalState("totals", self.ensemble)
        journal = Journal(state)
        journal.claim_epoch({"host": "here"}, token="ensemble")
        scheduler = cast("Scheduler", self.loop)
        self.beat = LeaderBeat("totals", CONFIG, state, scheduler, journal, Desired(), None, check)
        self.heard: list[object] = []
        hooks = BeatHooks(
            due=lambda: self.heard.append("due"),
            ended=lambda desired: self.heard.append(desired.status),
            end=lambda error: self.heard.append(type(error)),
        )
        self.beat.start(hooks, at_once=at_once)

    def ask(self, verb: str) -> None:
        """Ask for something as an operator does."""
        command: dict[str, Json] = {"verb": verb, "arguments": {}, "by": None, "at_s": 1.0}
        MemoryTransactionalState("totals", self.ensemble).apply([Put(command_path(1), command)])


def test_the_first_beat_is_due_after_a_pause_unless_it_begins_at_once() -> None:
    assert Leader(at_once=False).loop.pauses_s == [BEAT_S]
    assert Leader(at_once=True).beat.beating


@pytest.mark.rule("txtopo.runtime.leader_beat", "Rules", 1)
def test_a_beat_is_due_a_pause_after_the_end_of_the_last_one_and_its_owner_begins_it() -> None:
    leader = Leader()
    loop, beat = leader.loop, leader.beat

    assert loop.pauses_s == []
    loop.work()
    assert not beat.beating
    assert loop.pauses_s == [BEAT_S]
    loop.pass_time()
    assert leader.heard == ["running", "due"]
    assert not loop.works
    beat.begin()
    assert beat.beating


@pytest.mark.rule("txtopo.runtime.leader_beat", "Rules", 1)
def test_beats_that_fail_are_repeated_after_pauses_that_grow() -> None:
    leader = Leader()
    leader.ensemble.reachable = False

    for _ in range(3):
        leader.loop.work()
        leader.loop.pass_time()
        leader.beat.begin()
    leader.ensemble.reachable = True
    leader.loop.work()

    first, second, third, last = leader.loop.pauses_s
    assert BEAT_S == first < second < third
    assert last == BEAT_S
    assert leader.heard == ["running", "due"] * 3 + ["running"]


def test_a_pause_is_short_again_when_zookeeper_has_answered_somebody_else() -> None:
    leader = Leader()
    leader.ensemble.reachable = False
    for _ in range(3):
        leader.loop.work()
        leader.beat.begin()

    leader.beat.forget_failures()
    leader.loop.work()

    assert leader.loop.pauses_s[-1] == leader.loop.pauses_s[0]


@pytest.mark.rule("txtopo.runtime.leader_beat", "Rules", 2)
def test_what_an_operator_wants_is_told_when_the_beat_that_stored_it_has_ended() -> None:
    leader = Leader()
    leader.ask("deactivate")

    assert leader.beat.beating
    assert leader.heard == []
    leader.loop.work()
    assert leader.heard == ["deactivated"]


@pytest.mark.rule("txtopo.runtime.leader_beat", "Rules", 3)
def test_a_leader_that_finds_another_one_is_deposed_and_beats_no_more() -> None:
    leader = Leader()
    leader.ask("deactivate")
    other = MemoryTransactionalState("totals", leader.ensemble)
    Journal(other).claim_epoch({"host": "there"}, token="ensemble")

    leader.loop.work()

    assert leader.heard == [FencedError]
    assert leader.loop.pauses_s == []


@pytest.mark.rule("txtopo.runtime.leader_beat", "Rules", 3)
def test_a_leader_whose_jobs_cannot_end_ends_though_zookeeper_is_away() -> None:
    def stopped() -> None:
        raise session_stopped()

    leader = Leader(check=stopped)
    leader.ensemble.reachable = False

    leader.loop.work()

    assert leader.heard == [ConfigError]
    assert leader.loop.pauses_s == []


@pytest.mark.rule("txtopo.runtime.leader_beat", "Rules", 3)
def test_nothing_is_heard_of_a_beat_that_was_closed() -> None:
    during, between = Leader(), Leader()

    during.beat.close()
    during.loop.work()
    assert during.heard == during.loop.pauses_s == []
    assert not during.beat.beating

    between.loop.work()
    between.beat.close()
    between.loop.pass_time()
    assert between.heard == ["running"]
