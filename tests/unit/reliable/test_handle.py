"""The handle of a real run, with real threads."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.unit.reliable.bolts import WORD, Count, Forward, Seen, rows
from txtopo import (
    AtLeastOnceConfig,
    BasicBolt,
    Bolt,
    OutputCollector,
    Spout,
    SpoutOutputCollector,
    TaskContext,
    TopologyBuilder,
    TopologyListener,
    Tuple,
)
from txtopo.builders import ReliableTopology
from txtopo.collector import BatchOutputCollector
from txtopo.errors import ConfigError, StateUsageError
from txtopo.runtime import ErrorReported, Progressed, Started, Stopped, TopologyEvent, TreesFailed
from txtopo.spouts import MemorySpout
from txtopo.testing import FeederSpout

# Generous: the machine may be busy, and nothing below waits for it to pass.
WAIT_S = 120.0
LOCAL = AtLeastOnceConfig(carrier="local", slots=2)


def topology(spout: Spout, *bolts: Bolt | BasicBolt, tasks: int = 1) -> ReliableTopology:
    builder = TopologyBuilder("handled")
    builder.set_spout("words", spout, tasks)
    source = "words"
    for number, bolt in enumerate(bolts):
        builder.set_bolt(f"bolt-{number}", bolt, 2).fields_grouping(source, "word")
        source = f"bolt-{number}"
    return builder.build_topology()


class Kept(TopologyListener):
    """Keeps all changes."""

    def __init__(self) -> None:
        self.changes: list[TopologyEvent] = []

    def on_change(self, change: TopologyEvent) -> None:
        self.changes.append(change)


def test_a_run_processes_all_and_says_so() -> None:
    kept = Kept()
    spout = MemorySpout(rows("a", "b", "c"), WORD, repeat=1000)

    with topology(spout, Forward(), Count(), tasks=2).start(None, LOCAL, [kept]) as run:
        run.process_all_available(WAIT_S)
        progress = run.last_progress

    assert progress is not None
    assert (progress.emitted, progress.acked, progress.pending) == (3000, 3000, 0)
    assert (progress.backlog, progress.replays, progress.failed) == (0, 0, 0)
    assert progress.executed == {"bolt-0": 3000, "bolt-1": 3000}
    assert progress.emitted_by == {"words": 3000, "bolt-0": 3000, "bolt-1": 3000}
    assert progress.latency_p50_s is not None
    assert (run.status, run.is_active, run.exception()) == ("stopped", False, None)
    assert kept.changes[0] == Started("handled")
    assert kept.changes[-1] == Stopped("handled", None)
    assert any(isinstance(change, Progressed) for change in kept.changes)


class Threads(Spout):
    """Notes on which thread each call comes."""

    output_fields = WORD

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def _note(self, what: str) -> None:
        self._seen.notes.append((self._task, what, threading.get_ident()))

    def open(
        self, config: AtLeastOnceConfig, context: TaskContext, collector: SpoutOutputCollector
    ) -> None:
        self._collector, self._task, self._left = collector, context.task_index, 20
        self._note("open")

    def next_tuple(self) -> None:
        self._note("next_tuple")
        if self._left:
            self._left -= 1
            self._collector.emit([f"word {self._left}"], self._left)

    def ack(self, message_id: Any) -> None:
        self._note("ack")

    def fail(self, message_id: Any) -> None:
        self._note("fail")

    def activate(self) -> None:
        self._note("activate")

    def deactivate(self) -> None:
        self._note("deactivate")

    def close(self) -> None:
        self._note("close")


class BoltThreads(Bolt):
    """The same of a bolt."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def _note(self, what: str) -> None:
        self._seen.notes.append((self._task, what, threading.get_ident()))

    def prepare(
        self, config: AtLeastOnceConfig, context: TaskContext, collector: OutputCollector
    ) -> None:
        self._collector, self._task = collector, context.task_index
        self._note("prepare")

    def execute(self, tuple: Tuple) -> None:
        self._note("execute")
        self._collector.ack(tuple)

    def cleanup(self) -> None:
        self._note("cleanup")


@pytest.mark.rule("txtopo.reliable.carrier", "Rules", 6)
def test_all_calls_of_the_bolts_of_a_slot_come_on_one_thread() -> None:
    seen = Seen()

    words = [f"word {number}" for number in range(20)]
    with topology(MemorySpout(rows(*words), WORD), BoltThreads(seen)).start(None, LOCAL) as run:
        run.process_all_available(WAIT_S)

    of = {task: {thread for t, _, thread in seen.notes if t == task} for task in (0, 1)}
    assert [len(threads) for threads in of.values()] == [1, 1]
    assert of[0] != of[1]
    for task in (0, 1):
        calls = [what for t, what, _ in seen.notes if t == task]
        assert (calls[0], calls[1], calls[-1]) == ("prepare", "execute", "cleanup")


class Refuse(BasicBolt):
    """Fails one word."""

    def __init__(self) -> None:
        self._forward = Forward("word 3")

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        if tuple["word"] == "word 3":
            self._forward.execute(tuple, collector)


@pytest.mark.rule("txtopo.reliable.carrier", "Rules", 6)
def test_all_calls_of_a_spout_task_come_on_one_thread() -> None:
    seen, kept = Seen(), Kept()

    with topology(Threads(seen), Refuse(), tasks=3).start(None, LOCAL, [kept]) as run:
        run.process_all_available(WAIT_S)
        run.deactivate()
        run.process_all_available(WAIT_S)

    for task in range(3):
        threads = {thread for of, _, thread in seen.notes if of == task}
        calls = [what for of, what, _ in seen.notes if of == task]
        assert len(threads) == 1
        assert threads != {threading.get_ident()}
        assert calls[:2] == ["open", "activate"]
        assert calls[-2:] == ["deactivate", "close"]
        assert (calls.count("ack"), calls.count("fail")) == (19, 1)
    failed = [change for change in kept.changes if isinstance(change, TreesFailed)]
    assert sorted((each.task, *each.message_ids, each.reason) for each in failed) == [
        (task, 3, "failed") for task in range(3)
    ]
    assert any(isinstance(change, ErrorReported) for change in kept.changes)


def test_a_deactivated_run_emits_nothing_and_goes_on_when_activated() -> None:
    feeder = FeederSpout(WORD)

    with topology(feeder, Forward()).start(None, LOCAL) as run:
        feeder.feed(["a"], 1)
        feeder.wait_until_acked(1, timeout_s=WAIT_S)
        run.deactivate()
        run.process_all_available(WAIT_S)
        feeder.feed(["b"], 2)
        assert run.status == "deactivated"
        run.process_all_available(WAIT_S)
        assert feeder.acked == [1]
        run.activate()
        feeder.wait_until_acked(2, timeout_s=WAIT_S)


class Broken(Bolt):
    """Raises where it is told to."""

    def __init__(self, where: str) -> None:
        self._where = where

    def prepare(
        self, config: AtLeastOnceConfig, context: TaskContext, collector: OutputCollector
    ) -> None:
        self._fail("prepare")

    def execute(self, tuple: Tuple) -> None:
        self._fail("execute")

    def _fail(self, where: str) -> None:
        if where == self._where:
            raise ZeroDivisionError(where)


class BrokenSpout(MemorySpout):
    """Raises where it is told to."""

    def __init__(self, where: str) -> None:
        super().__init__(rows("a"), WORD)
        self._where = where

    def next_tuple(self) -> None:
        if self._where == "next_tuple":
            raise ZeroDivisionError("next_tuple")
        super().next_tuple()

    def ack(self, message_id: Any) -> None:
        if self._where == "ack":
            raise ZeroDivisionError("ack")


@pytest.mark.rule("txtopo.reliable.carrier", "Rules", 5)
@pytest.mark.parametrize("where", ["prepare", "execute", "next_tuple", "ack"])
def test_an_exception_of_user_code_ends_the_run_with_it(where: str) -> None:
    spout = BrokenSpout(where)
    bolt: Bolt | BasicBolt = Broken(where) if where in ("prepare", "execute") else Count()
    run = topology(spout, bolt).start(None, LOCAL)

    with pytest.raises(ZeroDivisionError, match=where):
        run.await_termination(WAIT_S)

    assert run.status == "failed"
    assert isinstance(run.exception(), ZeroDivisionError)
    with pytest.raises(ZeroDivisionError, match=where):
        run.process_all_available(WAIT_S)


def test_process_all_available_gives_up_when_its_time_is_up() -> None:
    with topology(MemorySpout(rows("a"), WORD), Broken("never")).start(None, LOCAL) as run:
        with pytest.raises(TimeoutError, match="has not processed all"):
            run.process_all_available(0.2)

        assert run.is_active


class Impatient(TopologyListener):
    """Waits where it must not."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []
        self.told = threading.Event()
        self.run: Any = None

    def on_change(self, change: TopologyEvent) -> None:
        if isinstance(change, Progressed) and self.run is not None and not self.told.is_set():
            try:
                self.run.process_all_available()
            except StateUsageError as error:
                self.errors.append(error)
            self.told.set()


def test_a_listener_may_not_wait_for_the_loop_that_calls_it() -> None:
    impatient = Impatient()

    with topology(MemorySpout(rows("a"), WORD), Count()).start(None, LOCAL, [impatient]) as run:
        impatient.run = run
        assert impatient.told.wait(WAIT_S)

    assert len(impatient.errors) == 1


@pytest.mark.parametrize("carrier", ["rdd", "dataframe"])
def test_a_carrier_of_jobs_is_refused(carrier: Any) -> None:
    with pytest.raises(ConfigError, match="cannot run an at-least-once topology"):
        topology(MemorySpout(rows("a"), WORD), Count()).start(
            None, AtLeastOnceConfig(carrier=carrier)
        )
