"""The carrier ``resident``, with slots in threads: lives, who owns a slot, what arrives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

import pytest
import zmq

from tests.harness.polling import LIMIT_S, wait_until
from tests.unit.reliable.bolts import WORD, Forward, Seen
from tests.unit.reliable.test_handle import Kept
from tests.unit.resident.threads import HOST, Resident, rotate_out
from txtopo import (
    AtLeastOnceConfig,
    BasicBolt,
    Bolt,
    Fields,
    OutputCollector,
    ReliableTopology,
    SpoutOutputCollector,
    Stream,
    TaskContext,
    TopologyBuilder,
    Tuple,
    is_tick,
)
from txtopo.collector import BatchOutputCollector
from txtopo.reliable.anchoring.spout_task import EndedMessages, ReliableSpoutTask, TurnLimits
from txtopo.resident import wire
from txtopo.resident.sockets import Keys, connected
from txtopo.runtime import ErrorReported
from txtopo.spouts import MemorySpout
from txtopo.stages.compiled_topology import compile_topology
from txtopo.testing import FeederSpout, Shared

pytestmark = pytest.mark.integration


class Note(Bolt):
    """Notes the lives of its task and what each of them was given; may be held up."""

    def __init__(self, seen: Seen, gate: Gate | None = None) -> None:
        self._seen, self._gate = seen, gate

    def prepare(
        self, config: AtLeastOnceConfig, context: TaskContext, collector: OutputCollector
    ) -> None:
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
        self.enter: Callable[[], object] = int
        """Called by the bolt when it is at the gate."""


def noting(
    feeder: FeederSpout, seen: Seen, gate: Gate | None = None, *, apart: bool = False
) -> ReliableTopology:
    """Return a topology of one bolt; with *apart* and two slots its spout is in slot 1."""
    builder = TopologyBuilder()
    if apart:
        builder.set_spout("idle", MemorySpout([], WORD))
    builder.set_spout("words", feeder)
    builder.set_bolt("note", Note(seen, gate)).shuffle_grouping("words")
    return builder.build_topology()


def test_a_slot_prepares_once_and_cleans_up_at_the_end() -> None:
    feeder, seen = FeederSpout(WORD), Seen()

    with Resident(noting(feeder, seen), AtLeastOnceConfig()):
        for id in range(3):
            feeder.feed([f"word {id}"], id)
            feeder.wait_until_acked(id)

    assert [note[0] for note in seen.notes] == [
        *("prepared", "word 0", "word 1", "word 2", "cleaned up"),
    ]


class Greets(Bolt):
    """Emits before it was given anything."""

    output_fields = WORD

    def prepare(
        self, config: AtLeastOnceConfig, context: TaskContext, collector: OutputCollector
    ) -> None:
        collector.emit(["hello"])

    def execute(self, tuple: Tuple) -> None:
        raise AssertionError("nothing was sent to it")


def test_what_prepare_emits_is_sent_without_waiting_for_an_input() -> None:
    seen = Seen()
    builder = TopologyBuilder()
    builder.set_spout("words", MemorySpout([], WORD))
    builder.set_bolt("greets", Greets()).shuffle_grouping("words")
    builder.set_bolt("note", Note(seen)).shuffle_grouping("greets")

    with Resident(builder.build_topology(), AtLeastOnceConfig()):
        wait_until(lambda: ("hello", "first") in seen.notes, "the bolt has got the tuple")


@pytest.mark.parametrize("ackers", [None, 3])
def test_tuples_go_from_slot_to_slot(ackers: int | None) -> None:
    """With four slots every word passes through two others than those of its own bolt.

    With three ackers in two slots, trees begin and end in slots that are not their acker's, too.
    """
    feeder = FeederSpout(WORD)
    builder = TopologyBuilder()
    builder.set_spout("words", feeder, 2)
    builder.set_bolt("first", Forward(), 4).shuffle_grouping("words")
    builder.set_bolt("second", Forward(), 4).fields_grouping("first", "word")
    builder.set_bolt("third", Forward(), 4).shuffle_grouping("second")
    for id in range(500):
        feeder.feed([f"word {id}"], id)

    with Resident(builder.build_topology(), AtLeastOnceConfig(ackers=ackers), slots=4) as resident:
        resident.run.process_all_available(LIMIT_S)
        progress = resident.run.last_progress

    assert progress is not None
    assert sorted(feeder.acked) == list(range(500))
    assert sum(each.completed for each in progress.ackers) == 500
    assert [each.slot for each in progress.ackers] == ([0, 1] if ackers is None else [0, 1, 0])
    assert (progress.failed, progress.timed_out, progress.backlog) == (0, 0, 0)
    assert progress.executed == {"first": 500, "second": 500, "third": 500}


@pytest.mark.rule("txtopo.reliable.carrier", "Rules", 1)
@pytest.mark.parametrize("apart", [True, False])
def test_the_newest_task_has_the_slot_and_the_earlier_one_is_not_heard(apart: bool) -> None:
    """Its tuple times out at a spout in another slot; a spout of its own is lost with it."""
    feeder, seen, gate = FeederSpout(WORD), Seen(), Gate()
    feeder.feed(["lost"], 1)

    topology = noting(feeder, seen, gate, apart=apart)
    with Resident(topology, AtLeastOnceConfig(), slots=2 if apart else 1) as resident:
        assert gate.reached.wait(LIMIT_S)
        resident.jobs.copy(0, submission=1)
        wait_until(lambda: resident.driver.meter.slots_lost == 1, "a slot is lost")
        earlier = next(each for each in resident.jobs.hosts if each.link.slot == 0)
        wait_until(lambda: earlier.link.socket.poll(0) > 0, "it can know that it was cut off")
        gate.opened.set()  # now the first one acks
        # It cleans up, but does not end: Spark would then stop the other one.
        wait_until(lambda: ("cleaned up", "first") in seen.notes, "the bolt is cleaned up")
        feeder.feed(["found"], 2)
        feeder.wait_until_acked(2)
        assert not earlier.link.over
        if apart:
            resident.time_out(slot=1)
            wait_until(lambda: feeder.failed == [1], "the tuple has failed")

    assert feeder.acked == [2]
    assert ("found", "later") in seen.notes
    assert earlier.link.over


def test_a_task_of_an_earlier_job_is_sent_away() -> None:
    feeder, seen = FeederSpout(WORD), Seen()

    with Resident(noting(feeder, seen), AtLeastOnceConfig()) as resident:
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
    compiled = compile_topology(noting(feeder, seen).graph, AtLeastOnceConfig(ackers=0), 1)
    feeder.feed(["a"])
    spout = ReliableSpoutTask(compiled, compiled.components["words"], 0, 0, 1, now=lambda: 0.0)
    spout.open()
    record = spout.turn(EndedMessages(), active=True, limits=TurnLimits()).sealed[0].record
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()

    with Resident(noting(feeder, seen), AtLeastOnceConfig()) as resident:
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

    with Resident(builder.build_topology(), AtLeastOnceConfig()) as resident:
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


@pytest.mark.rule("txtopo.reliable.carrier", "Rules", 5)
def test_an_exception_of_a_bolt_ends_the_run_with_what_and_where() -> None:
    feeder = FeederSpout(WORD)
    builder = TopologyBuilder()
    builder.set_spout("words", feeder)
    builder.set_bolt("broken", Broken()).shuffle_grouping("words")
    feeder.feed(["a"], 1)

    resident = Resident(builder.build_topology(), AtLeastOnceConfig())
    with pytest.raises(Exception, match="UnpicklableError") as raised:
        resident.run.await_termination(LIMIT_S)
    assert "in task 0 of 'broken'" in raised.value.__notes__[0]


class BreaksAt(MemorySpout):
    """Raises in a method."""

    def __init__(self, method: str) -> None:
        super().__init__([["a"]], WORD)
        self._method = method

    def open(
        self, config: AtLeastOnceConfig, context: TaskContext, collector: SpoutOutputCollector
    ) -> None:
        super().open(config, context, collector)
        self._break("open")

    def next_tuple(self) -> None:
        super().next_tuple()
        self._break("next_tuple")

    def ack(self, message_id: object) -> None:
        self._break("ack")

    def _break(self, method: str) -> None:
        if method == self._method:
            raise ZeroDivisionError(f"in {method}")


@pytest.mark.parametrize("method", ["open", "next_tuple", "ack"])
def test_an_exception_of_a_spout_ends_the_run_with_what_and_where(method: str) -> None:
    builder = TopologyBuilder()
    builder.set_spout("idle", MemorySpout([], WORD))
    builder.set_spout("breaks", BreaksAt(method))
    builder.set_bolt("forward", Forward(), 2).shuffle_grouping("breaks")

    resident = Resident(builder.build_topology(), AtLeastOnceConfig(), slots=2)
    with pytest.raises(ZeroDivisionError, match=f"in {method}") as raised:
        resident.run.await_termination(LIMIT_S)

    note = raised.value.__notes__[0]
    assert "in task 0 of 'breaks'" in note
    assert f'self._break("{method}")' in note


class Blocks(MemorySpout):
    """Does not return from its first call until the gate opens."""

    def __init__(self, gate: Gate) -> None:
        super().__init__([], WORD)
        self._gate = gate

    def next_tuple(self) -> None:
        self._gate.reached.set()
        self._gate.opened.wait(LIMIT_S)


@pytest.mark.rule("txtopo.reliable.spout_host", "Rules", 1)
def test_a_spout_that_blocks_holds_up_neither_bolts_nor_other_spouts() -> None:
    feeder, gate = FeederSpout(WORD), Gate()
    builder = TopologyBuilder()
    builder.set_spout("blocks", Blocks(gate))
    builder.set_spout("words", feeder)
    builder.set_bolt("forward", Forward()).shuffle_grouping("words")

    with Resident(builder.build_topology(), AtLeastOnceConfig()) as resident:
        assert gate.reached.wait(LIMIT_S)
        for id in range(5):
            feeder.feed([f"word {id}"], id)
            feeder.wait_until_acked(id)
        gate.opened.set()
        resident.run.process_all_available(LIMIT_S)

    assert feeder.acked == list(range(5))


class Busy(Bolt):
    """Acks at once, but for one word that the gate holds up."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def prepare(
        self, config: AtLeastOnceConfig, context: TaskContext, collector: OutputCollector
    ) -> None:
        self._collector = collector

    def execute(self, tuple: Tuple) -> None:
        if tuple["word"] == "busy":
            self._gate.enter()
            self._gate.reached.set()
            self._gate.opened.wait(LIMIT_S)
        self._collector.ack(tuple)


def test_a_tree_whose_ack_has_come_does_not_time_out() -> None:
    """The timeout passes while a bolt keeps the slot from reading the ack."""
    words, busy, gate = FeederSpout(WORD), FeederSpout(WORD), Gate()
    builder = TopologyBuilder()
    builder.set_spout("words", words)
    builder.set_spout("idle", MemorySpout([], WORD))  # in slot 1, the others are in slot 0
    builder.set_spout("busy", busy)
    # The second task of the bolt is in slot 1, and gets all words.
    builder.set_bolt("forward", ToTheSecond(), 1).shuffle_grouping("words")
    builder.set_bolt("quick", Forward(), 2).direct_grouping("forward", stream="words")
    builder.set_bolt("busy bolt", Busy(gate)).shuffle_grouping("busy")

    config = AtLeastOnceConfig(message_timeout_s=600)
    with Resident(builder.build_topology(), config, slots=2) as resident:
        for id in range(10):  # so that the slots are given more than one tuple at a time
            words.feed(["a"], id)
        words.wait_until_acked(*range(10))
        resident.run.process_all_available(LIMIT_S)
        host, other = resident.host(0), resident.host(1)
        other_gate = threading.Event()
        other.loop.post(lambda: void(other_gate.wait(LIMIT_S)))
        words.feed(["a"], 10)
        wait_until(lambda: resident.driver.meter.emitted == 11, "the word is on its way")
        wait_until(lambda: resident.driver._backlog == [0, 1], "it waits for the other slot")
        gate.enter = partial(host.loop.call_later, 0.0, partial(rotate_out, host))
        busy.feed(["busy"])
        assert gate.reached.wait(LIMIT_S)
        other_gate.set()
        wait_until(lambda: host._inbox.poll(0) > 0, "the ack has come")
        gate.opened.set()
        wait_until(lambda: len(words.acked + words.failed) == 11, "the tree has ended")

    assert words.failed == []


class ToTheSecond(BasicBolt):
    """Sends each word to the second task."""

    output_streams: Mapping[str, Stream | Fields] = {"words": Stream(WORD, direct=True)}

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        collector.emit_direct(1, [tuple["word"]], stream="words")


def void(_: object) -> None:
    """Take a value that nobody needs."""


class Closes(MemorySpout):
    """Cannot be closed."""

    def close(self) -> None:
        raise ZeroDivisionError("close")


def test_what_close_of_a_spout_raises_is_told() -> None:
    kept = Kept()
    builder = TopologyBuilder()
    builder.set_spout("closes", Closes([], WORD), 3)
    builder.set_bolt("forward", Forward()).shuffle_grouping("closes")

    with Resident(
        builder.build_topology(), AtLeastOnceConfig(), slots=2, listeners=[kept]
    ) as resident:
        resident.run.process_all_available(LIMIT_S)

    told = [change for change in kept.changes if isinstance(change, ErrorReported)]
    assert sorted((each.component, each.task, str(each.error)) for each in told) == [
        ("closes", task, "close") for task in range(3)
    ]


class TickCounter(Bolt):
    """Emits nothing; notes its ticks."""

    tick_interval_s = 0.05

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def prepare(
        self, config: AtLeastOnceConfig, context: TaskContext, collector: OutputCollector
    ) -> None:
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

    with Resident(builder.build_topology(), AtLeastOnceConfig()):
        wait_until(lambda: len(seen.notes) >= 5, "five notes are there")
    assert set(seen.notes) == {0.05}
