"""Two drivers of one at-least-once topology, on an ensemble in memory: one waits for the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest

from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.runs import Changes
from tests.unit.reliable.bolts import WORD, Seen
from tests.unit.runtime.loop_world import memory_state, topology_of
from tests.unit.runtime.loop_world import running as running_transactional
from txtopo import (
    AtLeastOnceConfig,
    BasicBolt,
    Config,
    Restart,
    SpoutOutputCollector,
    TaskContext,
    TopologyBuilder,
    Tuple,
    ZooKeeper,
)
from txtopo.collector import BatchOutputCollector
from txtopo.config import AnyConfig
from txtopo.ensemble import MemoryEnsemble, MemoryTransactionalState
from txtopo.ensemble.journal import Journal
from txtopo.errors import (
    FencedError,
    TooFewCores,
    TopologyChanged,
    TopologyError,
    TopologyKilled,
)
from txtopo.metadata import Json
from txtopo.operations.ensemble import Ensemble
from txtopo.reliable import standby
from txtopo.reliable.spout import Spout
from txtopo.reliable.standby import StandbyDriver, TermDriver
from txtopo.reliable.start import start_reliable
from txtopo.runtime import candidacy, leader_beat
from txtopo.runtime.handle import ReliableRun
from txtopo.runtime.progress import Leading, Restarting, Standby, Started, Stopped, TopologyListener
from txtopo.runtime.scheduler import ThreadScheduler
from txtopo.spouts import MemorySpout
from txtopo.testing import Shared
from txtopo.topology.graph import Graph
from txtopo.ui.pages.sources import RunSource

MEMORY = AtLeastOnceConfig(
    carrier="local", zookeeper="memory", poll_interval_s=0.005, backoff_s=0.01
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a standby ask, and a leader look for commands, more often than once a second."""
    monkeypatch.setattr(candidacy, "LEAD_TIMEOUT_S", 0.05)
    monkeypatch.setattr(leader_beat, "BEAT_S", 0.05)


class Source(Shared):
    """Keeps messages until they are acked, and delivers them again to who opens it next.

    Attributes:
        left: Messages that were not acked.
        calls: What the spout of each run was told: ``(run, call)``.
    """

    def __init__(self, *messages: str) -> None:
        self.left = list(messages)
        self.calls: list[tuple[str, str]] = []

    def of(self, run: str) -> list[str]:
        return [call for who, call in self.calls if who == run]


class Delivering(Spout):
    """Emits the messages of a source."""

    output_fields = WORD

    def __init__(self, source: Source, run: str) -> None:
        self._source, self._run = source, run

    def open(
        self, config: AtLeastOnceConfig, context: TaskContext, collector: SpoutOutputCollector
    ) -> None:
        self._collector, self._out = collector, set[str]()
        self._source.calls.append((self._run, "open"))

    def next_tuple(self) -> None:
        for message in self._source.left:
            if message not in self._out:
                self._out.add(message)
                self._collector.emit([message], message)
                return

    def ack(self, message_id: Any) -> None:
        self._source.left.remove(message_id)

    def fail(self, message_id: Any) -> None:
        self._out.discard(message_id)

    def activate(self) -> None:
        self._source.calls.append((self._run, "activate"))

    def deactivate(self) -> None:
        self._source.calls.append((self._run, "deactivate"))

    def close(self) -> None:
        self._source.calls.append((self._run, "close"))


class Note(BasicBolt):
    """Notes who has processed what, and may hold a message back for ever, or raise."""

    def __init__(self, seen: Seen, run: str, held: str = "", broken: str = "") -> None:
        self._seen, self._run, self._held, self._broken = seen, run, held, broken

    def prepare(self, config: AnyConfig, context: TaskContext) -> None:
        self._seen.notes.append((self._run, "prepare"))

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        self._seen.notes.append((self._run, tuple["word"]))
        if tuple["word"] == self._held:
            assert GATE.wait(LIMIT_S)
        if tuple["word"] == self._broken:
            raise ZeroDivisionError(self._broken)

    def cleanup(self) -> None:
        self._seen.notes.append((self._run, "cleanup"))


GATE = threading.Event()


def graph_of(source: Source, seen: Seen, run: str, **faults: str) -> Graph:
    builder = TopologyBuilder("words")
    builder.set_spout("source", Delivering(source, run))
    builder.set_bolt("note", Note(seen, run, **faults)).shuffle_grouping("source")
    return builder.build_topology().graph


@contextmanager
def running(
    source: Source,
    seen: Seen,
    ensemble: MemoryEnsemble,
    run: str,
    *listeners: TopologyListener,
    config: AtLeastOnceConfig = MEMORY,
    restart: Restart | None = None,
    **faults: str,
) -> Iterator[ReliableRun]:
    graph = graph_of(source, seen, run, **faults)
    started = start_reliable(graph, None, config, listeners, restart=restart, ensemble=ensemble)
    try:
        yield started
    finally:
        GATE.set()
        started.stop(LIMIT_S)
        GATE.clear()


def ask(ensemble: MemoryEnsemble, verb: str, wait_s: float = 0.0) -> None:
    with Ensemble.open(Config(zookeeper="memory"), ensemble=ensemble) as opened:
        opened.ask("words", verb, wait_s=wait_s, timeout_s=LIMIT_S)


def status_is(run: ReliableRun, status: str) -> None:
    wait_until(lambda: run.status == status, lambda: f"{run.status} is {status}")


@pytest.mark.rule("txtopo.reliable.standby", "Rules", 1)
def test_a_standby_opens_nothing_until_the_leader_is_gone_and_then_the_source_replays() -> None:
    source, seen, ensemble, waiting = Source("a", "b"), Seen(), MemoryEnsemble(), Changes()

    with running(source, seen, ensemble, "first", held="b") as first:
        status_is(first, "running")
        with running(source, seen, ensemble, "second", waiting) as second:
            waiting.wait_for(Standby)
            wait_until(lambda: source.left == ["b"], "the leader has acked a")
            wait_until(lambda: ("first", "b") in seen.notes, "the leader holds b")
            assert second.status == "standby"
            assert not source.of("second")
            assert ("second", "prepare") not in seen.notes
            stopping = threading.Thread(target=lambda: first.stop(LIMIT_S), daemon=True)
            stopping.start()
            # From now on the leader can neither take a message nor ack the one that it holds.
            wait_until(lambda: ("first", "close") in source.calls, "the spout is closed")
            GATE.set()
            stopping.join(LIMIT_S)

            second.process_all_available(LIMIT_S)

            assert second.status == "running"
            assert source.left == []
            assert ("second", "b") in seen.notes
    assert [
        type(each) for each in waiting.seen if isinstance(each, Started | Standby | Leading)
    ] == [*(Started, Standby, Leading)]
    (leading,) = waiting.of(Leading)
    assert (leading.epoch, leading.current) == (2, None)
    assert waiting.seen[-1] == Stopped("words", None)


@pytest.mark.rule("txtopo.reliable.standby", "Rules", 2)
def test_a_leader_keeps_its_place_until_its_spouts_and_bolts_are_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, seen, ensemble = Source("a"), Seen(), MemoryEnsemble()
    asked, lead = threading.Semaphore(0), MemoryTransactionalState.lead

    def counted(*arguments: Any, **settings: Any) -> Any:
        asked.release()
        return lead(*arguments, **settings)

    with running(source, seen, ensemble, "first", held="a") as first:
        wait_until(lambda: ("first", "a") in seen.notes, "a bolt is at work")
        with running(source, seen, ensemble, "second") as second:
            status_is(second, "standby")
            stopping = threading.Thread(target=lambda: first.stop(LIMIT_S), daemon=True)
            stopping.start()
            wait_until(lambda: ("first", "close") in source.calls, "the spout is closed")
            monkeypatch.setattr(MemoryTransactionalState, "lead", counted)
            assert all(asked.acquire(timeout=LIMIT_S) for _ in range(5))
            assert second.status == "standby"
            GATE.set()
            stopping.join(LIMIT_S)
            status_is(second, "running")

    assert seen.notes.index(("first", "cleanup")) < seen.notes.index(("second", "prepare"))


def test_a_leader_goes_on_while_the_ensemble_is_away() -> None:
    source, seen, ensemble, changes = Source("a"), Seen(), MemoryEnsemble(), Changes()
    with running(source, seen, ensemble, "one", changes) as run:
        run.process_all_available(LIMIT_S)
        ensemble.reachable = False
        source.left.append("b")
        wait_until(lambda: not source.left, "the message is processed")
        ensemble.reachable = True
        ask(ensemble, "deactivate")
        status_is(run, "deactivated")

    assert len(changes.of(Leading)) == 1
    assert source.of("one").count("open") == 1


@pytest.mark.rule("txtopo.reliable.standby", "Rules", 3)
def test_a_lost_session_closes_all_at_once_though_nobody_can_say_who_leads() -> None:
    source, seen, ensemble, changes = Source("a"), Seen(), MemoryEnsemble(), Changes()

    with running(source, seen, ensemble, "one", changes) as run:
        run.process_all_available(LIMIT_S)
        ensemble.reachable = False
        ensemble.expire_leader("words")
        wait_until(lambda: ("one", "close") in source.calls, "the spout is closed")
        wait_until(lambda: ("one", "cleanup") in seen.notes, "the bolt is cleaned up")
        assert run.status == "leadership lost"
        source.left.append("b")
        ensemble.reachable = True

        run.process_all_available(LIMIT_S)

        assert source.left == []
    assert source.of("one") == ["open", "activate", "close"] * 2
    assert [each.epoch for each in changes.of(Leading)] == [1, 2]
    assert len(changes.of(Started)) == len(changes.of(Stopped)) == 1


def test_who_waits_for_all_that_is_available_is_not_told_so_by_a_lost_session() -> None:
    source, seen, ensemble = Source("a"), Seen(), MemoryEnsemble()

    with running(source, seen, ensemble, "one", held="a") as run:
        wait_until(lambda: ("one", "a") in seen.notes, "the message is held")
        waiting = threading.Thread(target=lambda: run.process_all_available(LIMIT_S), daemon=True)
        waiting.start()
        driver: Any = run._driver
        wait_until(lambda: driver._waiting, "somebody waits")
        ensemble.expire_leader("words")
        wait_until(lambda: run.status == "leadership lost", "the session is lost")
        assert waiting.is_alive()
        GATE.set()
        waiting.join(LIMIT_S)

        assert not waiting.is_alive()
        assert source.left == []


@pytest.mark.rule("txtopo.reliable.standby", "Rules", 3)
def test_a_deposed_leader_ends_with_an_error_that_names_its_successor() -> None:
    source, seen, ensemble = Source("a"), Seen(), MemoryEnsemble()

    with running(source, seen, ensemble, "one", restart=Restart()) as run:
        run.process_all_available(LIMIT_S)
        other = MemoryTransactionalState("words", ensemble)
        Journal(other).claim_epoch({"host": "elsewhere", "pid": 4711}, token="ensemble")
        ensemble.expire_leader("words")
        with pytest.raises(FencedError, match="elsewhere") as raised:
            run.await_termination(LIMIT_S)

    assert raised.value.successor == 2
    assert source.of("one") == ["open", "activate", "close"]
    assert run.status == "failed"


def test_a_leader_that_finds_its_epoch_taken_when_it_answers_closes_all_and_ends() -> None:
    """Its session lives: it was deposed by who had taken over while it seemed to be gone."""
    source, seen, ensemble = Source("a"), Seen(), MemoryEnsemble()

    with running(source, seen, ensemble, "one") as run:
        run.process_all_available(LIMIT_S)
        other = MemoryTransactionalState("words", ensemble)
        Journal(other).claim_epoch({"host": "elsewhere", "pid": 4711}, token="ensemble")
        ask(ensemble, "deactivate")
        with pytest.raises(FencedError):
            run.await_termination(LIMIT_S)

    assert source.of("one")[-1] == "close"


class Term:
    """A driver of one term that runs nothing."""

    pace = None

    def __init__(self, listeners: Sequence[TopologyListener]) -> None:
        self.ended: Future[Exception | None] = Future()
        self.status = "running"
        self.started = False

    def start(self) -> None:
        self.started = True

    def post(self, callback: Callable[[], None]) -> None:
        callback()

    def on_loop(self) -> bool:
        return False

    def wait_for_rest(self, future: Any) -> None:
        pass

    def set_active(self, active: bool) -> None:
        pass

    def stop(self, error: Exception | None = None) -> None:
        self.ended.set_result(error)


def test_what_a_lost_session_has_opened_too_late_is_not_started() -> None:
    ensemble = MemoryEnsemble()
    terms: list[Term] = []
    opening, may_open = threading.Event(), threading.Event()

    def open_driver(listeners: Sequence[TopologyListener], active: bool) -> TermDriver:
        opening.set()
        assert may_open.wait(LIMIT_S)
        terms.append(Term(listeners))
        return terms[-1]

    state = MemoryTransactionalState("words", ensemble)
    scheduler, changes = ThreadScheduler("test"), Changes()
    driver = StandbyDriver("words", MEMORY, state, open_driver, [changes], scheduler)
    driver.start()
    assert opening.wait(LIMIT_S)
    ensemble.expire_leader("words")
    wait_until(lambda: driver.status == "leadership lost", "the session is lost")
    may_open.set()
    wait_until(lambda: len(terms) == 2 and terms[1].started, "the next term has begun")
    driver.post(driver.stop)

    assert driver.ended.result(LIMIT_S) is None
    assert [each.started for each in terms] == [False, True]
    assert [each.epoch for each in changes.of(Leading)] == [2]


def test_a_leader_waits_for_cores_and_answers_meanwhile() -> None:
    """Those of a leader that has died may be free a little later than its place."""
    ensemble, changes = MemoryEnsemble(), Changes()
    free = threading.Event()

    def open_driver(listeners: Sequence[TopologyListener], active: bool) -> TermDriver:
        if not free.is_set():
            raise TooFewCores("there are more slots than free cores", slots=1, free=0, cores=1)
        return Term(listeners)

    state, scheduler = MemoryTransactionalState("words", ensemble), ThreadScheduler("test")
    driver = StandbyDriver("words", MEMORY, state, open_driver, [changes], scheduler)
    driver.start()
    wait_until(lambda: ensemble.nodes, "it has claimed an epoch")
    ask(ensemble, "deactivate")
    assert driver.status == "starting"
    assert not changes.of(Leading)
    free.set()
    wait_until(lambda: driver.status == "deactivated", "it leads")
    driver.post(driver.stop)

    assert driver.ended.result(LIMIT_S) is None
    assert [each.epoch for each in changes.of(Leading)] == [1]


def test_a_topology_that_is_killed_before_its_slots_start_is_killed() -> None:
    ensemble = MemoryEnsemble()

    def open_driver(listeners: Sequence[TopologyListener], active: bool) -> TermDriver:
        raise TooFewCores("there are more slots than free cores", slots=1, free=0, cores=1)

    state = MemoryTransactionalState("words", ensemble)
    driver = StandbyDriver("words", MEMORY, state, open_driver, [], ThreadScheduler("test"))
    driver.start()
    wait_until(lambda: ensemble.nodes, "it has claimed an epoch")
    ask(ensemble, "kill", wait_s=0.0)

    assert driver.ended.result(LIMIT_S) is None
    assert driver.status == "killed"


@pytest.mark.rule("txtopo.reliable.standby", "Rules", 1)
def test_a_session_that_is_lost_before_the_claim_opens_nothing() -> None:
    ensemble = MemoryEnsemble()
    opened: list[Json] = []
    lost = iter([True])

    class Losing(ThreadScheduler):
        def point(self, name: str) -> None:
            if name == "claim.before-epoch" and next(lost, False):
                ensemble.expire_leader("words")
                wait_until(lambda: driver.status == "leadership lost", "the session is lost")

    def open_driver(listeners: Sequence[TopologyListener], active: bool) -> TermDriver:
        holder = Journal(MemoryTransactionalState("words", ensemble)).holder()
        assert isinstance(holder, dict)
        opened.append(holder["epoch"])
        return Term(listeners)

    state = MemoryTransactionalState("words", ensemble)
    driver = StandbyDriver("words", MEMORY, state, open_driver, [], Losing("test"))
    driver.start()
    wait_until(lambda: driver.status == "running", "it leads")
    driver.post(driver.stop)

    assert driver.ended.result(LIMIT_S) is None
    assert opened == [2]


def test_a_standby_ends_at_once_when_it_is_stopped_and_leaves_the_election() -> None:
    source, seen, ensemble = Source(), Seen(), MemoryEnsemble()

    with running(source, seen, ensemble, "first") as first:
        status_is(first, "running")
        with running(source, seen, ensemble, "second") as second:
            status_is(second, "standby")
            assert len(ensemble.candidates("words")) == 2
        assert second.status == "stopped"
        assert len(ensemble.candidates("words")) == 1
    assert not source.of("second")


def test_a_run_that_fails_and_is_restarted_contends_again() -> None:
    source, seen, ensemble, changes = Source("a"), Seen(), MemoryEnsemble(), Changes()
    again = Restart(times=1, backoff_s=0.01)
    with (
        running(source, seen, ensemble, "one", changes, restart=again, broken="a") as run,
        pytest.raises(ZeroDivisionError),
    ):
        run.await_termination(LIMIT_S)

    assert [each.epoch for each in changes.of(Leading)] == [1, 2]
    assert len(changes.of(Restarting)) == len(changes.of(Stopped)) == 1
    assert source.of("one") == ["open", "activate", "close"] * 2
    assert not ensemble.candidates("words")


@pytest.mark.rule("txtopo.reliable.standby", "Rules", 4)
def test_a_status_that_an_operator_wants_outlives_the_leader() -> None:
    source, seen, ensemble = Source("a"), Seen(), MemoryEnsemble()
    with running(source, seen, ensemble, "first") as first:
        first.process_all_available(LIMIT_S)
        ask(ensemble, "deactivate")
        status_is(first, "deactivated")
        wait_until(lambda: ("first", "deactivate") in source.calls, "the spout is deactivated")
        with running(source, seen, ensemble, "second") as second:
            status_is(second, "standby")
            first.stop(LIMIT_S)
            status_is(second, "deactivated")
            source.left.append("b")
            assert not source.of("second")
            ask(ensemble, "activate")
            status_is(second, "running")
            second.process_all_available(LIMIT_S)

            assert source.left == []


@pytest.mark.rule("txtopo.reliable.standby", "Rules", 4)
def test_a_run_that_is_killed_processes_what_is_pending_and_nobody_runs_it_then() -> None:
    source, seen, ensemble = Source("a"), Seen(), MemoryEnsemble()
    with running(source, seen, ensemble, "first", held="a") as first:
        wait_until(lambda: ("first", "a") in seen.notes, "a message is pending")
        with running(source, seen, ensemble, "second") as second:
            status_is(second, "standby")
            ask(ensemble, "kill", wait_s=LIMIT_S)
            wait_until(lambda: ("first", "deactivate") in source.calls, "it emits nothing new")
            assert first.is_active
            GATE.set()
            assert first.await_termination(LIMIT_S)
            with pytest.raises(TopologyKilled, match="txtopo activate words"):
                second.await_termination(LIMIT_S)

            assert [first.status, second.status] == ["killed", "killed"]
    assert source.left == []
    assert not source.of("second")


def test_a_kill_waits_no_longer_than_it_says() -> None:
    source, seen, ensemble = Source("a"), Seen(), MemoryEnsemble()
    with running(source, seen, ensemble, "one", held="a") as run:
        wait_until(lambda: ("one", "a") in seen.notes, "a message is pending")
        ask(ensemble, "kill", wait_s=0.0)
        wait_until(lambda: run.status == "stopping", "it stops")
        GATE.set()
        assert run.await_termination(LIMIT_S)
        assert run.status == "killed"


def test_the_id_of_a_transactional_topology_is_refused() -> None:
    ensemble = MemoryEnsemble()
    with running_transactional(topology_of(memory_state()), ensemble) as run:
        run.process_all_available(LIMIT_S)
    state = MemoryTransactionalState("totals", ensemble)
    driver = StandbyDriver(
        "totals", MEMORY, state, lambda listeners, active: Term(listeners), [], ThreadScheduler("t")
    )
    driver.start()

    assert isinstance(driver.ended.result(LIMIT_S), TopologyChanged)


def test_a_topology_without_an_id_of_its_own_is_refused() -> None:
    """Another program without one would stand by for ever."""
    builder = TopologyBuilder()
    builder.set_spout("words", MemorySpout([["a"]], WORD))

    with pytest.raises(TopologyError, match=r"needs its own id; got 'topology', the default"):
        builder.build_topology().start(config=MEMORY)


def test_the_ensemble_lists_leader_and_standbys_with_the_figures_of_the_run() -> None:
    source, seen, ensemble = Source("a"), Seen(), MemoryEnsemble()
    with (
        running(source, seen, ensemble, "first") as first,
        Ensemble.open(Config(zookeeper="memory"), ensemble=ensemble) as opened,
    ):
        first.process_all_available(LIMIT_S)
        with running(source, seen, ensemble, "second") as second:
            status_is(second, "standby")

            def summary() -> dict[str, Any]:
                return opened.topology("words").summary or {}

            wait_until(lambda: summary().get("rows_total") == 1, "its figures are announced")
            found = opened.topology("words")

            assert (found.status, found.epoch, found.txid) == ("running", 1, None)
            assert len(found.standbys) == 1
            assert summary()["kind"] == "at-least-once"


def test_a_page_asks_the_leader_and_not_only_its_own_run() -> None:
    source, seen, ensemble = Source("a"), Seen(), MemoryEnsemble()
    with running(source, seen, ensemble, "first") as first:
        status_is(first, "running")
        with running(source, seen, ensemble, "second") as second:
            status_is(second, "standby")
            graph = graph_of(source, seen, "second")
            page = RunSource(second.board, graph, second, MEMORY, ensemble)
            page.command("words", "deactivate", None)

            status_is(first, "deactivated")


def test_without_zookeeper_nobody_is_asked_who_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby, "StandbyDriver", None)
    source, seen, changes = Source("a"), Seen(), Changes()
    alone = AtLeastOnceConfig(carrier="local", poll_interval_s=0.005)
    with running(source, seen, MemoryEnsemble(), "one", changes, config=alone) as run:
        run.process_all_available(LIMIT_S)
        assert source.left == []
    assert not changes.of(Leading)


@pytest.mark.parametrize(
    ("environment", "zookeeper"),
    [
        ({}, None),
        ({"TXTOPO_ZOOKEEPER_HOSTS": "zk:2181"}, ZooKeeper("zk:2181")),
        ({"TXTOPO_ZOOKEEPER_DIR": "folder"}, ZooKeeper("embedded", dir="folder")),
    ],
)
def test_an_ensemble_of_the_environment_counts(
    environment: dict[str, str], zookeeper: ZooKeeper | None
) -> None:
    assert AtLeastOnceConfig.load(environment=environment).zookeeper == zookeeper
