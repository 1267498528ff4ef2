"""What users do that nobody asked for: the run neither hangs nor hides it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.reliable.bolts import WORD, ByHand, Count, Forward, Seen, rows
from tests.unit.reliable.test_handle import LOCAL, WAIT_S, Kept, topology
from txtopo import (
    BasicBolt,
    Bolt,
    Config,
    OutputCollector,
    SpoutOutputCollector,
    TaskContext,
    Tuple,
    is_tick,
)
from txtopo.collector import BatchOutputCollector
from txtopo.errors import StateUsageError
from txtopo.runtime import ErrorReported
from txtopo.runtime.handle import ReliableRun
from txtopo.spouts import MemorySpout
from txtopo.testing import FeederSpout, Shared, SimulatedCluster


class Flooded(BasicBolt):
    """Wants more ticks than anybody can give."""

    tick_interval_s = 1e-7

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        """Do nothing."""


def test_a_flood_of_ticks_leaves_room_for_tuples_and_for_the_end() -> None:
    run = topology(MemorySpout(rows("a", "b"), WORD), Flooded()).start(None, LOCAL)

    run.process_all_available(WAIT_S)
    run.stop(WAIT_S)

    assert run.status == "stopped"


class Held(Shared):
    """The handle of a run, for its own bolt."""

    def __init__(self) -> None:
        self.run: ReliableRun | None = None
        self.there = threading.Event()

    def get(self) -> ReliableRun:
        assert self.there.wait(WAIT_S)
        assert self.run is not None
        return self.run


class Calls(BasicBolt):
    """Calls the handle of its own run."""

    def __init__(self, held: Held, method: str) -> None:
        self._held, self._method = held, method

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        getattr(self._held.get(), self._method)()


def started(held: Held, method: str) -> ReliableRun:
    held.run = topology(MemorySpout(rows("a"), WORD), Calls(held, method)).start(None, LOCAL)
    held.there.set()
    return held.run


def test_a_bolt_may_stop_its_run() -> None:
    held = Held()

    assert started(held, "stop").await_termination(WAIT_S)


@pytest.mark.parametrize("method", ["process_all_available", "await_termination"])
def test_a_bolt_may_not_wait_for_its_run(method: str) -> None:
    held = Held()

    with pytest.raises(StateUsageError, match=f"{method} was called by a listener, a spout or a"):
        started(held, method).await_termination(WAIT_S)


class Leaves(MemorySpout):
    """Cannot be closed; or not even opened."""

    def __init__(self, seen: Seen, *, opens: bool) -> None:
        super().__init__(rows("a"), WORD)
        self._seen, self._opens = seen, opens

    def open(self, config: Config, context: TaskContext, collector: SpoutOutputCollector) -> None:
        super().open(config, context, collector)
        if not self._opens:
            raise ZeroDivisionError("open")

    def close(self) -> None:
        self._seen.notes.append("close")
        raise ZeroDivisionError("close")


class Unclean(BasicBolt):
    """Cannot clean up; or not even prepare."""

    def __init__(self, seen: Seen, *, prepares: bool) -> None:
        self._seen, self._prepares = seen, prepares

    def prepare(self, config: Config, context: TaskContext) -> None:
        if not self._prepares:
            raise ZeroDivisionError("prepare")

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        """Do nothing."""

    def cleanup(self) -> None:
        self._seen.notes.append("cleanup")
        raise ZeroDivisionError("cleanup")


def test_what_close_and_cleanup_raise_is_told() -> None:
    seen, kept = Seen(), Kept()
    spout, bolt = Leaves(seen, opens=True), Unclean(seen, prepares=True)
    run = topology(spout, bolt).start(None, LOCAL, [kept])

    run.process_all_available(WAIT_S)
    run.stop(WAIT_S)

    told = [change for change in kept.changes if isinstance(change, ErrorReported)]
    assert sorted((each.component, each.task, str(each.error)) for each in told) == [
        ("bolt-0", 0, "cleanup"),
        ("bolt-0", 1, "cleanup"),
        ("words", 0, "close"),
    ]
    assert (run.status, sorted(seen.notes)) == ("stopped", ["cleanup", "cleanup", "close"])


def test_what_was_not_opened_is_not_closed() -> None:
    seen = Seen()
    run = topology(Leaves(seen, opens=False), Forward()).start(None, LOCAL)
    with pytest.raises(ZeroDivisionError, match="open"):
        run.await_termination(WAIT_S)

    run = topology(MemorySpout(rows("a"), WORD), Unclean(seen, prepares=False)).start(None, LOCAL)
    with pytest.raises(ZeroDivisionError, match="prepare"):
        run.await_termination(WAIT_S)

    assert seen.notes == []


class Greets(ByHand):
    """Emits before it was given anything."""

    def prepare(self, config: Config, context: TaskContext, collector: OutputCollector) -> None:
        super().prepare(config, context, collector)
        collector.emit([f"hello {context.task_index}"])


def test_what_prepare_emits_is_sent_without_waiting_for_an_input() -> None:
    seen, feeder = Seen(), FeederSpout(WORD)
    note = ByHand(lambda _, tuple: seen.notes.append(tuple["word"]))
    cluster = SimulatedCluster()
    cluster.start(topology(feeder, Greets(lambda _, __: None), note))

    cluster.advance(1)

    assert sorted(seen.notes) == ["hello 0", "hello 1"]


class Late(Bolt):
    """Answers for all it holds long after the timeout, and answers for ticks too."""

    tick_interval_s = 5.0

    def prepare(self, config: Config, context: TaskContext, collector: OutputCollector) -> None:
        self._collector = collector
        self._held: list[Tuple] = []

    def execute(self, tuple: Tuple) -> None:
        self._held.append(tuple)
        if is_tick(tuple):
            for each in self._held:
                self._collector.reset_timeout(each)
                self._collector.emit([str(each[0])], [each, tuple])
                self._collector.ack(each)
                self._collector.fail(each)
            self._held = []

    output_fields = WORD


def test_answers_after_the_timeout_change_nothing_and_leave_nothing_behind() -> None:
    feeder = FeederSpout(WORD)
    cluster = SimulatedCluster()
    cluster.start(topology(feeder, Late(), Count()), Config(message_timeout_s=1))

    for id in (1, 1, 2):
        feeder.feed([f"word {id}"], id)
    cluster.advance(30)

    lives = cluster._live().slots._lives.values()
    assert (feeder.acked, sorted(feeder.failed)) == ([], [1, 1, 2])
    for spouts in (life.spouts for life in lives):
        assert len(spouts.trees) == sum(len(each) for each in spouts.ackers.values()) == 0


class Talks(MemorySpout):
    """Emits where it is told of ends."""

    def __init__(self, *words: str) -> None:
        super().__init__(rows(*words), WORD)

    def ack(self, message_id: Any) -> None:
        if message_id < 100:
            self._collector.emit([f"after {message_id}"], message_id + 100)

    def fail(self, message_id: Any) -> None:
        self._collector.emit(["again"], message_id + 200)


@pytest.mark.parametrize("max_spout_pending", [None, 1])
def test_a_spout_may_emit_while_it_is_told_of_an_end(max_spout_pending: int | None) -> None:
    config = Config(carrier="local", max_spout_pending=max_spout_pending)
    with topology(Talks("a", "refused", "b"), Forward("refused")).start(None, config) as run:
        run.process_all_available(WAIT_S)
        progress = run.last_progress

    assert progress is not None
    assert (progress.emitted, progress.acked, progress.failed, progress.pending) == (6, 5, 1, 0)


IDS: list[Callable[[], list[Any]]] = [
    lambda: [None, None],
    lambda: [7, 7, 7],
    lambda: [[1], {"a": 1}, {1, 2}],
    lambda: [float("nan")] * 2,
    lambda: [(1, 2), (3, 4)],
    lambda: [0, False, ""],
]


class Named(MemorySpout):
    """Emits words under message ids of a test's own."""

    def __init__(self, ids: list[Any], seen: Seen, word: str) -> None:
        super().__init__(rows(*[word] * len(ids)), WORD)
        self._ids, self._seen = ids, seen

    def next_tuple(self) -> None:
        if self._ids:
            self._collector.emit(self._rows[0], self._ids.pop(0))

    def ack(self, message_id: Any) -> None:
        self._seen.notes.append(("ack", repr(message_id)))

    def fail(self, message_id: Any) -> None:
        self._seen.notes.append(("fail", repr(message_id)))


@pytest.mark.parametrize("end", ["ack", "fail"])
@pytest.mark.parametrize("ids", IDS)
def test_any_object_is_a_message_id_and_each_emit_ends_once(
    ids: Callable[[], list[Any]], end: str
) -> None:
    seen = Seen()
    cluster = SimulatedCluster()
    cluster.start(topology(Named(ids(), seen, end), Forward("fail")))

    cluster.process_all_available()

    expected = sorted((end, repr(id)) for id in ids() if id is not None)
    assert sorted(seen.notes) == expected
    assert cluster.progress.pending == 0
