"""What resident slots are given to do: what each event leads to, and what changes nothing."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from tests.harness.diagrams import drawn
from txtopo.errors import InfrastructureError, RunLostError, SlotUnavailable
from txtopo.resident import orders
from txtopo.resident.orders import (
    AFTER,
    WITH_ORDER,
    Action,
    AllFailed,
    ChainCancelled,
    ChangeCarrier,
    Event,
    GiveOrder,
    Level,
    LevelDone,
    LevelFailed,
    LevelOrdered,
    LevelOrders,
    OrderSettings,
    QueueStatus,
    RestartSlot,
    SlotAnswered,
    SlotOverdue,
)
from txtopo.resident.supervisor import LifeLost, SlotReady, TimePassed

DIED = RunLostError("a python worker died", counted=True, cancelled=False)
AWAY = RunLostError("the connection was lost", counted=False, cancelled=False)
OVERDUE = SlotUnavailable("slot 0 has had no task for 100 s", slot=0)
FIRST, SECOND = Level(1, "first", (1, 1, 0)), Level(2, "second", (1, 2, 0))
COMMIT = Level(3, "commit", (0, 1, 0))


class Ordered:
    """Orders with a clock that the test moves."""

    def __init__(self, slots: int = 1, *, ready: bool = True, changes: bool = False) -> None:
        self.orders = LevelOrders(OrderSettings(slots, changes))
        self.now_s = 0.0
        for slot in range(slots if ready else 0):
            self.tell(SlotReady(slot))

    def tell(self, event: Event, after_s: float = 0.0) -> list[Action]:
        self.now_s += after_s
        return self.orders.handle(event, self.now_s)

    def order(self, *levels: Level) -> list[Action]:
        return [action for each in levels for action in self.tell(LevelOrdered(each))]

    @property
    def status(self) -> QueueStatus:
        return self.orders.queues[0].status


def with_status(status: QueueStatus) -> Ordered:
    """Return orders whose only slot is in a status."""
    one = Ordered(ready=status is not QueueStatus.AWAY)
    if status in WITH_ORDER:
        one.order(FIRST)
    if status is QueueStatus.ABANDONED:
        one.tell(ChainCancelled("first"))
    if status is QueueStatus.LOST:
        one.tell(lost(AWAY, job_ended=False))
    assert one.status is status
    return one


def lost(error: RunLostError, *, job_ended: bool, unready_jobs: int = 0) -> LifeLost:
    return LifeLost(0, 1, error, job_ended, unready_jobs)


def test_the_diagram_in_the_header_is_the_table() -> None:
    diagram = drawn(AFTER)

    assert diagram in (orders.__doc__ or ""), f"put this into the header:\n{diagram}"


# The events of the table, and the event that each action of the table follows.
CAUSES: dict[type, Event] = {
    SlotReady: SlotReady(0),
    SlotAnswered: SlotAnswered(0, 1, "a"),
    LifeLost: lost(AWAY, job_ended=False),
    GiveOrder: LevelOrdered(SECOND),
    LevelFailed: ChainCancelled("first"),
}


@pytest.mark.rule("txtopo.resident.orders", "Rules", 1)
def test_a_slot_moves_as_the_table_says_and_in_no_other_way() -> None:
    seen: dict[tuple[QueueStatus, type], QueueStatus] = {}
    for status, (cause, event) in product(QueueStatus, CAUSES.items()):
        if (status, cause) == (QueueStatus.LOST, SlotReady):
            continue  # Its level fails first. That is two moves, and a test of its own has them.
        one = with_status(status)
        before = one.orders.queues[0]

        actions = one.tell(event)

        told = type(event) is cause or cause in map(type, actions)
        if told and one.orders.queues[0] is not before:
            seen[status, cause] = one.status
    assert seen == AFTER


@pytest.mark.rule("txtopo.resident.orders", "Rules", 3)
def test_a_level_is_done_when_all_slots_have_answered() -> None:
    two = Ordered(2)

    assert two.order(FIRST) == [GiveOrder(0, 1, FIRST), GiveOrder(1, 2, FIRST)]
    assert two.tell(SlotAnswered(1, 2, "b")) == []
    assert two.tell(SlotAnswered(0, 1, "a")) == [LevelDone(FIRST, ("a", "b"))]


def test_a_slot_has_one_order_at_a_time_and_commits_go_first() -> None:
    one = Ordered()

    assert one.order(SECOND, FIRST, COMMIT) == [GiveOrder(0, 1, SECOND)]
    assert one.tell(SlotAnswered(0, 1, "")) == [LevelDone(SECOND, ("",)), GiveOrder(0, 2, COMMIT)]
    assert one.tell(SlotAnswered(0, 2, ""))[1:] == [GiveOrder(0, 3, FIRST)]


def test_the_invariants_are_checked_after_each_event() -> None:
    one = Ordered(ready=False)
    queues = one.orders._queues
    queues[0] = replace(queues[0], order=7)

    with pytest.raises(AssertionError, match="which order it is"):
        one.order(FIRST)


def test_orders_wait_for_a_slot() -> None:
    one = Ordered(ready=False)

    assert one.order(FIRST) == []
    assert one.tell(SlotReady(0)) == [GiveOrder(0, 1, FIRST)]


@pytest.mark.rule("txtopo.resident.orders", "Rules", 2)
def test_an_answer_that_comes_twice_or_late_changes_nothing() -> None:
    one = Ordered()
    one.order(FIRST, SECOND)
    one.tell(SlotAnswered(0, 1, "a"))

    for order in (1, 0, 3):
        assert one.tell(SlotAnswered(0, order, "again")) == []
    assert one.tell(SlotAnswered(0, 2, "b")) == [LevelDone(SECOND, ("b",))]
    assert one.tell(SlotAnswered(0, 2, "b")) == []


def test_the_reason_of_a_loss_is_waited_for() -> None:
    one = Ordered()
    one.order(FIRST)

    assert one.tell(lost(AWAY, job_ended=False)) == []
    assert one.tell(lost(DIED, job_ended=True), 1.0) == [LevelFailed(FIRST, DIED)]


def test_the_reason_of_a_loss_is_not_waited_for_longer_than_that() -> None:
    one = Ordered()
    one.order(FIRST)
    one.tell(lost(AWAY, job_ended=False))

    assert one.tell(lost(AWAY, job_ended=False), 7.0) == []
    assert one.tell(TimePassed(), 1.0) == [LevelFailed(FIRST, AWAY)]
    assert one.status is QueueStatus.AWAY


def test_the_next_life_ends_the_wait_for_the_reason() -> None:
    one = with_status(QueueStatus.LOST)
    one.order(SECOND)

    assert one.tell(SlotReady(0)) == [LevelFailed(FIRST, AWAY), GiveOrder(0, 2, SECOND)]


def test_what_waits_is_done_by_the_next_life() -> None:
    one = Ordered()
    one.order(FIRST, SECOND)

    assert one.tell(lost(DIED, job_ended=True)) == [LevelFailed(FIRST, DIED)]
    assert one.tell(SlotReady(0)) == [GiveOrder(0, 2, SECOND)]


def test_what_waits_fails_uncounted_when_two_jobs_bring_none() -> None:
    one = Ordered(ready=False)
    one.order(FIRST)

    assert one.tell(lost(DIED, job_ended=True, unready_jobs=0)) == []
    (failed,) = one.tell(lost(DIED, job_ended=True, unready_jobs=1))
    assert isinstance(failed, LevelFailed)
    assert isinstance(failed.error, RunLostError)
    assert failed.error.facts["counted"] is False


@pytest.mark.rule("txtopo.resident.orders", "Rules", 3)
def test_a_cancelled_chain_ends_at_once_and_is_not_begun_again() -> None:
    one = Ordered()
    one.order(FIRST, SECOND)

    (failed,) = one.tell(ChainCancelled("first"))
    assert isinstance(failed, LevelFailed)
    assert failed.level is FIRST
    assert one.status is QueueStatus.ABANDONED
    assert one.tell(SlotAnswered(0, 1, "late")) == [GiveOrder(0, 2, SECOND)]
    (refused,) = one.order(Level(4, "first"))
    assert isinstance(refused, LevelFailed)


def test_a_slot_that_goes_on_with_what_was_given_up_is_started_again_once() -> None:
    one = Ordered()
    one.order(FIRST)
    one.tell(ChainCancelled("first"))

    assert one.tell(TimePassed(), 1.9) == []
    assert one.tell(TimePassed(), 0.1) == [RestartSlot(0)]
    assert one.tell(TimePassed(), 100.0) == []


def test_a_level_that_is_lost_with_one_slot_is_given_up_by_the_others() -> None:
    two = Ordered(2)
    two.order(FIRST)

    assert two.tell(lost(DIED, job_ended=True)) == [LevelFailed(FIRST, DIED)]
    assert two.orders.queues[1].status is QueueStatus.ABANDONED


@pytest.mark.parametrize("first", ["waits", "is overdue"])
def test_nothing_waits_for_a_slot_that_is_overdue(first: str) -> None:
    one = Ordered(ready=False)
    events: list[Event] = [LevelOrdered(FIRST), SlotOverdue(0, OVERDUE)]
    if first == "is overdue":
        events.reverse()

    assert one.tell(events[0]) == []
    assert one.tell(events[1]) == [LevelFailed(FIRST, OVERDUE)]
    assert one.order(SECOND) == [LevelFailed(SECOND, OVERDUE)]


def test_a_slot_that_is_back_is_not_overdue() -> None:
    one = Ordered(ready=False)
    one.tell(SlotOverdue(0, OVERDUE))
    one.tell(SlotReady(0))

    assert one.order(FIRST) == [GiveOrder(0, 1, FIRST)]


def test_a_change_of_the_carrier_fails_what_is_under_way_as_a_lost_executor_does() -> None:
    one = Ordered(ready=False, changes=True)
    one.order(FIRST)

    changed, failed = one.tell(SlotOverdue(0, OVERDUE))

    assert changed == ChangeCarrier(OVERDUE)
    assert isinstance(failed, LevelFailed)
    assert isinstance(failed.error, InfrastructureError)
    assert isinstance(failed.error, RunLostError)
    assert failed.error.facts["counted"] is False


def test_after_the_end_everything_fails_with_the_first_reason() -> None:
    one = Ordered()
    one.order(FIRST)

    assert one.tell(AllFailed(AWAY)) == [LevelFailed(FIRST, AWAY)]
    assert one.tell(AllFailed(DIED)) == []
    assert one.order(SECOND) == [LevelFailed(SECOND, AWAY)]


@pytest.mark.parametrize("status", list(QueueStatus))
@pytest.mark.rule("txtopo.resident.orders", "Rules", 1)
def test_what_the_table_does_not_have_changes_nothing(status: QueueStatus) -> None:
    one = with_status(status)
    before = one.orders.queues[0]

    for event in (SlotReady(0), SlotAnswered(0, 1, "a")):
        comes_back = status is QueueStatus.LOST and isinstance(event, SlotReady)
        if (status, type(event)) not in AFTER and not comes_back:
            assert one.tell(event) == []
            assert one.orders.queues[0] == before
