"""Transactional topologies in resident slots, with slots in threads: orders, answers, losses."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.harness.polling import LIMIT_S, wait_until
from tests.unit.resident.held import (
    AWAY,
    DIED,
    Commits,
    Gate,
    Limited,
    Mute,
    Slots,
    held,
    txids,
)
from tests.unit.resident.threads import SILENCE_S, Clock
from tests.unit.runtime.carrying import BATCHES, CountWords, carry, contents, counting
from tests.unit.stages.running import (
    RowsSpout,
    bolt,
    compile_components,
    gathered,
    grouped,
    run_of,
    shuffled,
    spout,
)
from txtopo.bolts.bolt import BasicBolt
from txtopo.carriers.carrier import LocalCarrier
from txtopo.errors import RunLostError
from txtopo.groupings import FieldsGrouping, Grouping, LocalOrShuffleGrouping
from txtopo.resident.orders import CANCEL_S
from txtopo.resident.slot_runner import SlotLimits
from txtopo.stages.outcome import judge
from txtopo.topology.bolt_kinds import BASIC_BOLT
from txtopo.tuples import Tuple

pytestmark = pytest.mark.integration


BY_WORD = FieldsGrouping(("word",))
# The driver waits for the reason of a loss, however slowly the test gives it.
PATIENT = SlotLimits(silent_s=LIMIT_S, reason_s=LIMIT_S)


@pytest.mark.parametrize(("tasks", "slots"), [(1, 2), (3, 2), (2, 3)])
def test_slots_give_what_the_local_carrier_gives(tmp_path: Path, tasks: int, slots: int) -> None:
    (here := tmp_path / "here").mkdir()
    (there := tmp_path / "there").mkdir()

    carry(LocalCarrier(slots), counting(here, tasks=tasks, slots=slots), run_of(3))
    there_is = counting(there, tasks=tasks, slots=slots)
    committed = carry(Slots(slots).carrier, there_is, run_of(3))

    assert committed == [1, 2, 3]
    assert contents(there) == contents(here)


@pytest.mark.parametrize(("grouping", "orders"), [(LocalOrShuffleGrouping(), 2), (BY_WORD, 3)])
def test_levels_whose_tuples_stay_in_their_slot_are_one_order(
    grouping: Grouping, orders: int
) -> None:
    """A slot signs what it makes with the number of its order."""
    words = "word string, amount long"
    compiled = compile_components(
        spout(RowsSpout(BATCHES, words), parallelism=2),
        bolt("one", CountWords(words), grouped(grouping), parallelism=2),
        bolt("two", CountWords(words), grouped(BY_WORD, "one"), parallelism=2),
        slots=2,
    )
    slots = Slots(2)
    slots.start(compiled)

    there = slots.process(run_of(3)).result(LIMIT_S).processed
    slots.close()

    (local := LocalCarrier(2)).start(compiled)
    here = judge(compiled, run_of(3), local.process(run_of(3)).records).processed
    assert [(each.metadata, each.tuples) for each in there] == [
        (each.metadata, each.tuples) for each in here
    ]
    for batch in there:
        signed = {(producer.slot, producer.task_id) for producer in batch.producers}
        assert Counter(slot for slot, _ in signed) == {0: orders, 1: orders}


def test_a_worker_that_dies_fails_the_run_that_it_worked_on_and_the_next_life_goes_on(
    one: Slots,
) -> None:
    gate = Gate()
    one.start(held(gate))
    lost, waiting = one.process(run_of(1)), None
    assert gate.reached.wait(LIMIT_S)
    waiting = one.process(replace(run_of(1, first=2), tag="waits"))

    one.jobs.kill(0, 1, DIED)
    with pytest.raises(RunLostError, match="a Python worker") as caught:
        lost.result(LIMIT_S)

    assert caught.value.facts["counted"] is True
    # It was not begun, so it had nothing to do with it.
    assert txids(waiting.result(LIMIT_S)) == [2]
    assert txids(one.process(replace(run_of(1), tag="again")).result(LIMIT_S)) == [1]
    gate.opened.set()


def test_a_connection_that_is_lost_may_be_the_first_sign_of_a_dead_worker(
    limited: Limited,
) -> None:
    """A ping may find it out before Spark tells of it; the batch must not be spared for that."""
    one = limited(PATIENT)
    gate = Gate()
    one.start(held(gate))
    lost = one.process(run_of(1))
    assert gate.reached.wait(LIMIT_S)

    one.lose_connection(0)
    one.jobs.kill(0, 1, DIED)
    with pytest.raises(RunLostError, match="a Python worker"):
        lost.result(LIMIT_S)
    gate.opened.set()


def test_a_connection_that_is_lost_for_no_reason_fails_its_run_as_well(limited: Limited) -> None:
    one = limited(SlotLimits(reason_s=0.2))
    gate = Gate()
    one.start(held(gate))
    lost = one.process(run_of(1))
    assert gate.reached.wait(LIMIT_S)

    one.lose_connection(0)
    with pytest.raises(RunLostError, match="the connection to its task was lost") as caught:
        lost.result(LIMIT_S)
    gate.opened.set()

    assert caught.value.facts["counted"] is False


def test_each_order_signs_what_it_makes(one: Slots) -> None:
    """So a level that was ever mixed of two computations would show, as it does on Spark."""
    gate = Gate(txid=0)
    one.start(held(gate))

    first, again = (
        one.process(replace(run_of(1), tag=tag)).result(LIMIT_S).processed[0].producers
        for tag in ("first", "again")
    )

    assert len(first) == len(again) == len(one.compiled.processing)
    assert not first & again


def test_what_an_earlier_life_answers_is_not_heard(one: Slots) -> None:
    """The run was given up; the answer must stand neither for it nor for another one."""
    gate = Gate()
    one.start(held(gate))
    lost = one.process(run_of(1))
    assert gate.reached.wait(LIMIT_S)

    one.jobs.copy(0, submission=1)
    with pytest.raises(RunLostError, match="another copy of its task") as caught:
        lost.result(LIMIT_S)
    again = one.process(replace(run_of(3), tag="again"))
    gate.opened.set()

    assert caught.value.facts["counted"] is False
    assert txids(again.result(LIMIT_S)) == [1, 2, 3]
    wait_until(lambda: sorted(gate.passed) == [1, 1, 2, 3], "all batches have passed the gate")
    assert txids(one.process(replace(run_of(2), tag="third")).result(LIMIT_S)) == [1, 2]


def test_a_cancelled_run_ends_at_once_and_its_late_answer_is_dropped(limited: Limited) -> None:
    # However slow the machine is, the slot is given the time to end by itself.
    one = limited(SlotLimits(cancel_s=LIMIT_S))
    gate = Gate()
    one.start(held(gate))
    run = run_of(1)
    abandoned, behind = one.process(run), one.process(replace(run_of(1, first=2), tag="behind"))
    assert gate.reached.wait(LIMIT_S)

    one.carrier.cancel(run.tag)
    with pytest.raises(RunLostError, match="was cancelled") as caught:
        abandoned.result(LIMIT_S)
    gate.opened.set()

    assert caught.value.facts == {"tag": run.tag, "counted": False, "cancelled": True}
    assert txids(behind.result(LIMIT_S)) == [2]
    assert one.jobs.cancelled == []  # it ended by itself


def test_a_slot_that_hangs_on_a_cancelled_run_is_started_again(one: Slots) -> None:
    gate = Gate()
    one.start(held(gate))
    run = run_of(1)
    abandoned = one.process(run)
    assert gate.reached.wait(LIMIT_S)

    one.carrier.cancel(run.tag)
    with pytest.raises(RunLostError, match="was cancelled"):
        abandoned.result(LIMIT_S)

    assert txids(one.process(run_of(1, first=2)).result(CANCEL_S + LIMIT_S)) == [2]
    assert one.jobs.cancelled == [(0, 1)]
    gate.opened.set()


def test_commits_go_first_then_lower_txids(one: Slots) -> None:
    """All that is processed waits for a commit, and later runs are lost if an earlier one is."""
    gate = Gate(txid=4)
    committer = bolt("commits", Commits(gate), shuffled("held"), parallelism=2, committer=True)
    one.start(held(gate, committer))
    processed = one.carrier.process(run_of(1))
    blocking = one.process(run_of(1, first=4))
    assert gate.reached.wait(LIMIT_S)

    pending: list[Future[Any]] = [one.process(run_of(1, first=txid)) for txid in (3, 2)]
    attempt = processed.run.attempts[0]
    pending.append(one.threads.submit(lambda: one.carrier.commit(processed, attempt)))
    wait_until(lambda: len(one.carrier._slots.queues[0].waiting) == 3, "three orders wait")
    gate.opened.set()
    for each in (blocking, *pending):
        each.result(LIMIT_S)

    assert gate.order == ["emits 1", "emits 4", "commits 1", "emits 2", "emits 3"]


def test_runs_do_not_wait_for_a_slot_that_does_not_come_to_life(limited: Limited) -> None:
    """They fail for the reason, even if the connection is lost before that is known."""
    one = limited(PATIENT)
    one.jobs.kind = Mute
    one.start(held(Gate()))
    slots, queues = one.carrier._slots.slots, one.carrier._slots.queues
    waiting = one.process(run_of(1))

    wait_until(lambda: bool(slots[0].owner and queues[0].waiting), "an order waits")
    one.jobs.kill(0, 1, AWAY)
    wait_until(lambda: slots[0].submission == 2 and bool(slots[0].owner), "the slot is back")
    one.lose_connection(0)
    one.jobs.kill(0, 2, DIED)
    with pytest.raises(RunLostError, match="a Python worker") as caught:
        waiting.result(LIMIT_S)

    assert caught.value.facts["counted"] is False


class Slow(BasicBolt):
    """Takes longer than a slot waits for a word of its driver."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def execute(self, tuple: Tuple, collector: Any) -> None:
        self.clock.pass_silently()


def test_a_stage_may_take_longer_than_the_driver_may_be_silent() -> None:
    clock = Clock()
    slots = Slots(1, clock)
    clock.jobs = slots.jobs
    rows = spout(RowsSpout([BATCHES[0][:1], []], "word string, amount long"))
    slots.start(compile_components(rows, bolt("slow", Slow(clock), gathered(), kind=BASIC_BOLT)))

    assert txids(slots.process(run_of(1)).result(LIMIT_S)) == [1]
    assert txids(slots.process(run_of(1, first=2)).result(LIMIT_S)) == [2]
    slots.close()
    assert len(slots.jobs.hosts) == 1
    assert clock.now_s > SILENCE_S
