"""When the driver grants the spouts of a slot what they may emit, and when it takes all to rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future

import pytest

from tests.unit.reliable.bolts import WORD, Forward
from txtopo import AtLeastOnceConfig, TopologyBuilder
from txtopo.reliable import driver as driver_module
from txtopo.reliable.anchoring.envelope import SlotReport, SpoutGrant, SpoutReport
from txtopo.reliable.carrier import SlotListener
from txtopo.reliable.driver import ReliableContext, ReliableDriver
from txtopo.spouts import MemorySpout
from txtopo.stages.compiled_topology import CompiledTopology, compile_topology
from txtopo.testing.cluster import VirtualTime

SLOTS = 3
SPOUTS = 2


class Slots:
    """A carrier that only writes down what was granted; the test reports."""

    def __init__(self) -> None:
        self.granted: list[tuple[int, SpoutGrant]] = []

    def start(self, compiled: CompiledTopology, listener: SlotListener) -> None:
        pass

    def grant(self, slot: int, grant: SpoutGrant) -> None:
        self.granted.append((slot, grant))

    def stop(self, done: Callable[[], None]) -> None:
        done()

    def taken(self) -> dict[int, SpoutGrant]:
        """Return the grants since the last call, at most one for each slot."""
        taken = dict(self.granted)
        assert len(taken) == len(self.granted)
        self.granted.clear()
        return taken


class Driven:
    """A driver whose slots are ready."""

    def __init__(self) -> None:
        builder = TopologyBuilder()
        builder.set_spout("words", MemorySpout([], WORD), SPOUTS)
        builder.set_bolt("forward", Forward(), 3).shuffle_grouping("words")
        compiled = compile_topology(builder.build_topology().graph, AtLeastOnceConfig(), SLOTS)
        self.slots, time = Slots(), VirtualTime()
        context = ReliableContext(compiled, AtLeastOnceConfig(), self.slots, time)
        self.driver = ReliableDriver(context, [], active=True)
        self.driver.start()
        time.timeline.run(lambda: False, until_s=0.1)
        self.numbers: dict[int, int] = {}

    def get_ready(self) -> None:
        """Have all slots become ready; the grants of the first two are taken."""
        for slot in range(SLOTS):
            self.driver.slot_ready(slot)
        self.numbers = {slot: grant.number for slot, grant in self.slots.granted if grant.tuples}
        self.slots.granted.clear()

    def report(self, slot: int, *, pending: int = 0, dry: bool = True, active: bool = True) -> None:
        """Have the spouts of a slot report that they have emitted under their last grant."""
        used = self.numbers[slot]
        said = SpoutReport(used, used, used if dry else 0, pending, active)
        self.driver.slot_reported(slot, SlotReport(spouts=said))
        for of, grant in self.slots.granted:
            self.numbers[of] = grant.number


@pytest.mark.rule("txtopo.reliable.driver", "Rules", 2)
def test_only_slots_with_spouts_are_granted_and_none_before_all_are_ready() -> None:
    driven = Driven()
    driven.driver.slot_ready(0)
    driven.driver.slot_ready(1)
    assert {grant.tuples for grant in driven.slots.taken().values()} == {0}

    driven.driver.slot_ready(2)

    taken = driven.slots.taken()
    assert sorted(taken) == [0, 1]
    assert all(grant.tuples > 0 and grant.active for grant in taken.values())
    assert len({grant.number for grant in taken.values()}) == 2


@pytest.mark.rule("txtopo.reliable.driver", "Rules", 1)
def test_a_slot_has_one_grant_until_it_has_used_it() -> None:
    driven = Driven()
    driven.get_ready()
    unused = SpoutReport(granted=driven.numbers[0], active=True)

    driven.driver.slot_reported(0, SlotReport(spouts=unused))
    driven.driver.slot_reported(2, SlotReport(counts=Counter({("executed", "forward"): 1})))
    assert driven.slots.taken() == {}
    driven.report(0)

    assert list(driven.slots.taken()) == [0]


@pytest.mark.rule("txtopo.reliable.driver", "Rules", 2)
def test_no_grant_follows_while_a_slot_has_enough_to_consume() -> None:
    driven = Driven()
    driven.get_ready()
    full = driver_module.BACKLOG_TUPLES_MAX
    driven.driver.slot_reported(1, SlotReport(sent=Counter({2: full})))
    driven.report(0)
    assert driven.slots.taken() == {}

    driven.driver.slot_reported(2, SlotReport(consumed=full))

    assert list(driven.slots.taken()) == [0]


@pytest.mark.rule("txtopo.reliable.driver", "Rules", 4)
def test_who_waits_for_rest_needs_a_turn_of_each_spout_that_was_granted_since() -> None:
    driven = Driven()
    driven.get_ready()
    driven.report(0)
    driven.report(1)
    driven.slots.granted.clear()
    rested: Future[None] = Future()

    driven.driver.wait_for_rest(rested)
    driven.numbers = {slot: grant.number for slot, grant in driven.slots.taken().items()}
    assert (driven.driver.at_rest, rested.done(), sorted(driven.numbers)) == (True, False, [0, 1])
    driven.report(0)
    driven.report(1, dry=False)
    assert not rested.done()
    driven.report(1)

    assert rested.done()


@pytest.mark.rule("txtopo.reliable.driver", "Rules", 1)
def test_who_waits_while_there_is_no_room_has_all_spouts_granted_later() -> None:
    driven = Driven()
    driven.get_ready()
    full = driver_module.BACKLOG_TUPLES_MAX
    driven.driver.slot_reported(1, SlotReport(sent=Counter({2: full})))

    driven.driver.wait_for_rest(Future())
    assert driven.slots.taken() == {}
    driven.driver.slot_reported(2, SlotReport(consumed=full))

    assert sorted(driven.slots.taken()) == [0, 1]


@pytest.mark.rule("txtopo.reliable.driver", "Rules", 3)
def test_there_is_no_rest_with_a_pending_tree_or_a_tuple_to_consume() -> None:
    driven = Driven()
    driven.get_ready()
    driven.report(0)
    driven.report(1, pending=1)
    assert (driven.driver.at_rest, driven.driver.pending) == (False, 1)

    driven.driver.slot_reported(0, SlotReport(sent=Counter({2: 1})))
    driven.report(1)
    assert not driven.driver.at_rest
    driven.driver.slot_reported(2, SlotReport(consumed=1))

    assert driven.driver.at_rest


@pytest.mark.rule("txtopo.reliable.driver", "Rules", 3)
def test_a_report_from_before_the_deactivation_is_not_taken_for_rest() -> None:
    driven = Driven()
    driven.get_ready()
    driven.driver.set_active(False)
    driven.numbers = {slot: grant.number for slot, grant in driven.slots.taken().items()}
    driven.report(0, active=False)
    driven.report(1, active=True)  # the turn of a spout has not ended
    assert not driven.driver.at_rest
    driven.report(1, active=False)
    assert driven.driver.at_rest

    driven.driver.set_active(True)
    driven.driver.set_active(False)  # what was emitted meanwhile was not told yet
    assert not driven.driver.at_rest
    driven.numbers = {slot: each.number for slot, each in driven.slots.granted if not each.active}
    driven.report(0, active=False)
    driven.report(1, active=False)

    assert driven.driver.at_rest


@pytest.mark.rule("txtopo.reliable.driver", "Rules", 5)
def test_a_lost_slot_is_not_at_rest_and_its_next_life_is_granted_again() -> None:
    driven = Driven()
    driven.get_ready()
    driven.report(0, pending=5)
    driven.report(1)
    driven.slots.granted.clear()

    driven.driver.slot_lost(0, "it was killed")
    assert (driven.driver.pending, driven.driver.at_rest) == (0, False)
    assert driven.slots.taken() == {}
    driven.driver.slot_ready(0)

    taken = driven.slots.taken()
    assert list(taken) == [0]
    assert taken[0].tuples > 0
