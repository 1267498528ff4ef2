"""Credit: a slow slot is given no more at once than it finishes in a share of the timeout."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.unit.reliable.bolts import Forward
from tests.unit.reliable.slow import Slow, World
from txtopo import AtLeastOnceConfig
from txtopo.reliable import driver
from txtopo.reliable.credit import SHARE, Credit

MAX = 50_000


def served(credit: Credit, slot: int, tuple_s: float, rounds: int) -> float:
    """Have a slot consume what it is given, a number of times; return the time."""
    now_s = 0.0
    for _ in range(rounds):
        tuples = credit.limit(slot)
        credit.began(slot, now_s)
        now_s += tuples * tuple_s
        credit.consumed(slot, tuples, now_s)
    return now_s


@pytest.mark.parametrize(("tuple_s", "timeout_s"), [(0.05, 1), (0.05, 30), (0.005, 30), (5, 30)])
def test_a_slot_gets_what_it_finishes_in_a_share_of_the_timeout(
    tuple_s: float, timeout_s: float
) -> None:
    credit = Credit(1, timeout_s, MAX)
    served(credit, 0, tuple_s, 20)

    assert credit.limit(0) == pytest.approx(max(1, timeout_s * SHARE / tuple_s), abs=1)


def test_a_fast_slot_gets_all_that_there_may_be_after_some_rounds() -> None:
    credit = Credit(1, 30, MAX)

    assert credit.limit(0) == 1
    assert served(credit, 0, 3e-6, 11) < 0.5
    assert credit.limit(0) == MAX


def test_a_slot_that_was_slow_once_is_soon_known_to_be_fast() -> None:
    credit = Credit(1, 30, MAX)
    served(credit, 0, 3e-6, 12)
    credit.began(0, 10.0)
    credit.consumed(0, 1, 20.0)

    assert credit.limit(0) < MAX
    served(credit, 0, 3e-6, 20)
    assert credit.limit(0) == MAX


def test_reports_that_come_together_count_as_one() -> None:
    """Else a driver that was away for a second would take a slot for a thousand times faster."""
    credit, together = Credit(1, 30, MAX), Credit(1, 30, MAX)
    for each in (credit, together):
        served(each, 0, 0.05, 20)
        each.began(0, 100.0)
    credit.consumed(0, 20, 101.0)
    for _ in range(20):
        together.consumed(0, 1, 101.0)

    assert together.limit(0) == credit.limit(0)


def test_a_slot_that_is_lost_begins_again() -> None:
    credit = Credit(1, 30, MAX)
    served(credit, 0, 3e-6, 12)
    credit.lost(0)

    assert credit.limit(0) == 1


def test_a_slot_that_gets_little_holds_up_little() -> None:
    credit = Credit(2, 30, MAX)
    served(credit, 0, 0.05, 20)  # 60 tuples
    served(credit, 1, 3e-6, 20)
    for _ in range(10):
        credit.emitted(1000, Counter({0: 10, 1: 990}))

    assert 5_000 < credit.room([0, 0]) <= 6_100
    assert 1_000 < credit.room([55, 0]) < 2_000
    assert credit.room([60, 0]) == 0


def test_a_slow_bolt_finishes_all_in_time() -> None:
    """As it was: none was ever acked. 60 of these take three timeouts."""
    world = World()
    config = AtLeastOnceConfig(max_spout_pending=60, message_timeout_s=1, slots=1)
    world.start({"slow": (Slow(world, 0.05), 1)}, config)
    world.feed(100)

    world.cluster.process_all_available()

    assert sorted(world.feeder.acked) == list(range(100))
    assert (world.feeder.failed, len(world.seen)) == ([], 100)


def test_what_waits_for_a_slow_bolt_is_bounded() -> None:
    world = World()
    config = AtLeastOnceConfig(slots=1)
    world.start({"slow": (Slow(world, 0.05), 1)}, config)
    world.feed(1_000)
    largest = 0
    while len(world.feeder.acked) < 1_000:
        world.cluster.advance(0.5)
        largest = max(largest, world.cluster.progress.backlog)

    # 60 are three seconds, a tenth of the timeout; half as many come while some are on their way.
    assert 20 < largest <= 100
    assert (world.feeder.failed, len(world.seen)) == ([], 1_000)


def test_a_slow_bolt_behind_fast_ones_finishes_all_in_time() -> None:
    """They share a slot, so what the first one emits waits in the slot itself."""
    world = World()
    config = AtLeastOnceConfig(message_timeout_s=2, slots=1)
    world.start(
        {"first": (Forward(), 1), "second": (Forward(), 1), "slow": (Slow(world, 0.05), 1)}, config
    )
    world.feed(300)

    world.cluster.process_all_available()

    assert sorted(world.feeder.acked) == list(range(300))
    assert (world.feeder.failed, len(world.seen)) == ([], 300)


def test_spouts_are_not_held_up_by_credit_while_slots_are_fast() -> None:
    world = World()
    world.start({"forward": (Forward(), 2)}, AtLeastOnceConfig(slots=2))
    world.feed(20_000)
    started = world.cluster.time.now()

    world.cluster.process_all_available()

    # A turn of 2,000 and its report take some 20 ms of simulated time.
    assert world.cluster.time.now() - started < 1.0
    assert driver.BACKLOG_TUPLES_MAX == MAX
