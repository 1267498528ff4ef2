"""The carrier ``resident``, with slots in threads: lives, who owns a slot, what arrives."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest
import zmq

from tests.harness.polling import LIMIT_S, wait_until
from tests.unit.runtime.reliable.bolts import WORD, Forward, Seen
from tests.unit.runtime.resident.threads import HOST, Resident
from txtopo import (
    BasicBolt,
    Bolt,
    Config,
    Fields,
    OutputCollector,
    ReliableTopology,
    TaskContext,
    TopologyBuilder,
    Tuple,
    is_tick,
)
from txtopo.collector import BatchOutputCollector
from txtopo.runtime.resident import wire
from txtopo.runtime.resident.sockets import Keys, connected
from txtopo.stages.anchoring.spout_task import Ends, ReliableSpoutTask, Room
from txtopo.stages.program import compile_program
from txtopo.testing import FeederSpout, Shared

pytestmark = pytest.mark.integration


class Note(Bolt):
    """Notes the lives of its task and what each of them was given; may be held up."""

    def __init__(self, seen: Seen, gate: Gate | None = None) -> None:
        self._seen, self._gate = seen, gate

    def prepare(self, config: Config, context: TaskContext, collector: OutputCollector) -> None:
        self._collector, self._thread = collector, threading.get_ident()
        self._seen.notes.append(("prepared", context.task_index))
        self._first = len([note for note in self._seen.notes if note[0] == "prepared"]) == 1

    def execute(self, tuple: Tuple) -> None:
        assert self._thread == threading.get_ident()
        self._seen.notes.append((tuple[0], "first" if self._first else "later"))
        if self._gate is not None and self._first:
            self._gate.reached.set()
            self._gate.opened.wait(LIMIT_S)
        self._collector.ack(tuple)

    def cleanup(self) -> None:
        self._seen.notes.append(("cleaned up", "first" if self._first else "later"))


class Gate(Shared):
    """Holds a bolt up in the middle of a tuple."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()


def noting(feeder: FeederSpout, seen: Seen, gate: Gate | None = None) -> ReliableTopology:
    builder = TopologyBuilder()
    builder.set_spout("words", feeder)
    builder.set_bolt("note", Note(seen, gate)).shuffle_grouping("words")
    return builder.build_topology()


def test_a_slot_prepares_once_and_cleans_up_at_the_end() -> None:
    feeder, seen = FeederSpout(WORD), Seen()

    with Resident(noting(feeder, seen), Config()):
        for id in range(3):
            feeder.feed([f"word {id}"], id)
            feeder.wait_until_acked(id)

    assert [note[0] for note in seen.notes] == [
        *("prepared", "word 0", "word 1", "word 2", "cleaned up"),
    ]


class Greets(Bolt):
    """Emits before it was given anything."""

    output_fields = WORD

    def prepare(self, config: Config, context: TaskContext, collector: OutputCollector) -> None:
        collector.emit(["hello"])

    def execute(self, tuple: Tuple) -> None:
        raise AssertionError("nothing was sent to it")


def test_what_prepare_emits_is_sent_without_waiting_for_an_input() -> None:
    seen = Seen()
    builder = TopologyBuilder()
    builder.set_spout("words", FeederSpout(WORD))
    builder.set_bolt("greets", Greets()).shuffle_grouping("words")
    builder.set_bolt("note", Note(seen)).shuffle_grouping("greets")

    with Resident(builder.build_topology(), Config()):
        wait_until(lambda: ("hello", "first") in seen.notes, "the bolt has got the tuple")


def test_tuples_go_from_slot_to_slot() -> None:
    """With four slots every word passes through two others than those of its own bolt."""
    feeder = FeederSpout(WORD)
    builder = TopologyBuilder()
    builder.set_spout("words", feeder)
    builder.set_bolt("first", Forward(), 4).shuffle_grouping("words")
    builder.set_bolt("second", Forward(), 4).fields_grouping("first", "word")
    builder.set_bolt("third", Forward(), 4).shuffle_grouping("second")
    for id in range(500):
        feeder.feed([f"word {id}"], id)

    with Resident(builder.build_topology(), Config(), slots=4) as resident:
        resident.run.process_all_available(LIMIT_S)
        progress = resident.run.last_progress

    assert progress is not None
    assert sorted(feeder.acked) == list(range(500))
    assert (progress.failed, progress.timed_out, progress.backlog) == (0, 0, 0)
    assert progress.executed == {"first": 500, "second": 500, "third": 500}


def test_the_newest_task_has_the_slot_and_the_earlier_one_is_not_heard() -> None:
    feeder, seen, gate = FeederSpout(WORD), Seen(), Gate()
    feeder.feed(["lost"], 1)

    with Resident(noting(feeder, seen, gate), Config()) as resident:
        assert gate.reached.wait(LIMIT_S)
        resident.jobs.copy(0, submission=1)
        wait_until(lambda: resident.driver.meter.slots_lost == 1, "a slot is lost")
        gate.opened.set()  # now the first one acks
        # It cleans up, but does not end: Spark would then stop the other one.
        wait_until(lambda: ("cleaned up", "first") in seen.notes, "the bolt is cleaned up")
        feeder.feed(["found"], 2)
        feeder.wait_until_acked(2)
        assert not resident.jobs.hosts[0].link.over
        resident.time_out()
        wait_until(lambda: feeder.failed == [1], "the tuple has failed")

    assert feeder.acked == [2]
    assert ("found", "later") in seen.notes
    assert resident.jobs.hosts[0].link.over


def test_a_task_of_an_earlier_job_is_sent_away() -> None:
    feeder, seen = FeederSpout(WORD), Seen()

    with Resident(noting(feeder, seen), Config()) as resident:
        feeder.feed(["a"], 1)
        feeder.wait_until_acked(1)
        straggler = resident.jobs.copy(0, submission=0)
        straggler.join(LIMIT_S)
        assert not straggler.is_alive()
        feeder.feed(["b"], 2)
        feeder.wait_until_acked(2)

    assert [note for note in seen.notes if note[0] == "prepared"] == [("prepared", 0)]


def test_an_envelope_for_another_life_is_not_worked_on() -> None:
    """The port of a slot that is gone may be given to its successor."""
    feeder, seen = FeederSpout(WORD), Seen()
    program = compile_program(noting(feeder, seen).graph, Config(), 1)
    feeder.feed(["a"])
    spout = ReliableSpoutTask(
        program, program.components["words"], 0, 1, tracked=False, now=lambda: 0.0
    )
    spout.open()
    record = spout.turn(Ends(), active=True, room=Room()).sealed[0].record
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()

    with Resident(noting(feeder, seen), Config()) as resident:
        wait_until(lambda: resident.run.status == "running", "the run has started")
        slot = resident.slots.slots[0]
        assert resident.jobs.keys is not None
        assert slot.endpoint is not None
        push = connected(context, zmq.PUSH, resident.jobs.keys, slot.endpoint)
        for life in (slot.life + 1, slot.life):
            push.send_multipart((wire.lives_frame(life, 99), record))
        wait_until(lambda: ("a", "first") in seen.notes, "the bolt has got the tuple")
        push.close()

    context.term()
    assert [note for note in seen.notes if note[0] == "a"] == [("a", "first")]


@pytest.mark.parametrize("stranger", ["no keys", "other keys", "own keys"])
def test_a_stranger_can_put_nothing_in(stranger: str) -> None:
    feeder = FeederSpout(WORD)
    builder = TopologyBuilder()
    builder.set_spout("words", feeder)
    builder.set_bolt("forward", Forward()).shuffle_grouping("words")
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()

    with Resident(builder.build_topology(), Config()) as resident:
        feeder.feed(["a"], 1)
        feeder.wait_until_acked(1)
        ours = resident.jobs.keys
        assert ours is not None
        if stranger == "no keys":
            socket = context.socket(zmq.DEALER)
            socket.routing_id = wire.new_identity(1)
            socket.linger = 0
            socket.connect(resident.jobs.driver)
        else:
            keys = ours if stranger == "own keys" else Keys.make()
            identity = wire.new_identity(1)
            socket = connected(context, zmq.DEALER, keys, resident.jobs.driver, identity)
        # It says that it is the task of slot 0 from now on.
        claim = f"tcp://{HOST}:9".encode()
        limit_s = LIMIT_S if stranger == "own keys" else 1.5
        socket.sndtimeo = int(1000 * limit_s)
        with suppress(zmq.Again):  # who was refused has nobody to send it to
            socket.send_multipart((wire.HELLO, wire.slot_frame(0), claim))
        answered = socket.poll(int(1000 * limit_s)) != 0
        lost = resident.driver.meter.slots_lost
        socket.close()

    context.term()
    # Who has the keys is let in: this shows that the others were kept out for want of them.
    assert (answered, lost) == ((True, 1) if stranger == "own keys" else (False, 0))


class Broken(BasicBolt):
    """Raises what cannot be pickled."""

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        raise UnpicklableError(threading.Lock())


class UnpicklableError(Exception):
    pass


def test_an_exception_of_a_bolt_ends_the_run_with_what_and_where() -> None:
    feeder = FeederSpout(WORD)
    builder = TopologyBuilder()
    builder.set_spout("words", feeder)
    builder.set_bolt("broken", Broken()).shuffle_grouping("words")
    feeder.feed(["a"], 1)

    resident = Resident(builder.build_topology(), Config())
    with pytest.raises(Exception, match="UnpicklableError") as raised:
        resident.run.await_termination(LIMIT_S)
    assert "in task 0 of 'broken'" in raised.value.__notes__[0]


class TickCounter(Bolt):
    """Emits nothing; notes its ticks."""

    tick_interval_s = 0.05

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def prepare(self, config: Config, context: TaskContext, collector: OutputCollector) -> None:
        self._collector = collector

    def execute(self, tuple: Tuple) -> None:
        if is_tick(tuple):
            self._seen.notes.append(tuple[0])
        self._collector.ack(tuple)


def test_a_slot_gives_ticks_from_its_own_clock() -> None:
    feeder, seen = FeederSpout(Fields("word string")), Seen()
    builder = TopologyBuilder()
    builder.set_spout("words", feeder)
    builder.set_bolt("ticks", TickCounter(seen)).shuffle_grouping("words")

    with Resident(builder.build_topology(), Config()):
        wait_until(lambda: len(seen.notes) >= 5, "five notes are there")
    assert set(seen.notes) == {0.05}
