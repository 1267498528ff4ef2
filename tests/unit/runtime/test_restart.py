"""A run that ended with an error that may pass is started again, as often as its policy says."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from state_backends.memory import MemoryBackend, MemoryStore
from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.runs import LOCAL, Changes
from tests.unit.reliable.bolts import WORD, Seen, rows
from tests.unit.runtime.loop_world import Total, expected, memory_state, stored, topology_of
from txtopo import (
    AtLeastOnceConfig,
    BasicBolt,
    Config,
    Count,
    FailedException,
    Fields,
    PersistentAggregate,
    Restart,
    Restarting,
    Started,
    Stopped,
    Topology,
    TopologyBuilder,
    TopologyListener,
    TopologyRun,
    TransactionalTopologyBuilder,
    Tuple,
    ZooKeeper,
    open_state,
)
from txtopo.collector import BatchOutputCollector
from txtopo.ensemble.journal import Journal
from txtopo.ensemble.memory import MemoryEnsemble, MemoryTransactionalState
from txtopo.errors import (
    AuthError,
    ConfigError,
    CoordinatorUnavailable,
    DriverMemoryError,
    EmitError,
    FencedError,
    NonRepeatableBatch,
    PoisonBatchError,
    SlotUnavailable,
    SourceDataLost,
    StatementFailed,
    StateUsageError,
    StoreUnavailable,
    TooFewCores,
    TooManyDeadLetters,
    TopologyChanged,
    TopologyError,
)
from txtopo.plugins.stores import StateTable
from txtopo.runtime.progress import BatchCommitted, Leading
from txtopo.runtime.restart import RestartCount, may_pass
from txtopo.runtime.start import start_topology
from txtopo.spouts import MemorySpout, MemoryTransactionalSpout
from txtopo.state import State, register_backend
from txtopo.testing import Shared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txtopo.config import Carrier

QUICK = Restart(times=5, within_s=3600.0, backoff_s=0.01, backoff_max_s=0.02)
HOUR = Restart(backoff_s=3600.0, backoff_max_s=3600.0)


class Away(Shared):
    """A service outside, which answers after a number of calls."""

    def __init__(self, calls: int, error: Exception | None = None) -> None:
        self.calls, self.error = calls, error or ConnectionError("the service is away")

    def call(self) -> None:
        if self.calls:
            self.calls -= 1
            raise self.error


class Asking(Total):
    """Calls the service for the batch of txid 5."""

    def __init__(self, service: Away) -> None:
        self.service = service

    def finish_batch(self) -> None:
        if self.attempt.txid == 5:
            self.service.call()
        super().finish_batch()


@contextmanager
def running(
    topology: Topology, restart: Restart | None, *listeners: TopologyListener, **settings: Any
) -> Iterator[TopologyRun]:
    config = Config(carrier="local", zookeeper="memory", poll_interval_s=0.005, **settings)
    with topology.start(None, config, listeners, restart=restart) as run:
        yield run


def asking(state: State, calls: int, error: Exception | None = None) -> Topology:
    return topology_of(state, Asking(Away(calls, error)))


def test_a_run_goes_on_after_exceptions_of_a_bolt_and_its_handle_lives_on() -> None:
    state, changes = memory_state(), Changes()

    with running(asking(state, calls=2), QUICK, changes) as run:
        run.process_all_available(LIMIT_S)

        assert stored(state) == (12, expected())
        assert run.exception() is None
        assert run.is_active
        assert run.status == "running"
        assert run.last_progress is not None
        assert run.last_progress.rows_total == 36
        assert [each.txid for each in run.recent_progress] == [*range(1, 13)]
    assert [leading.epoch for leading in changes.of(Leading)] == [1, 2, 3]
    assert len(changes.of(Started)) == 3
    assert changes.of(Stopped) == [Stopped("totals", None)]
    assert run.await_termination(0)
    assert run.status == "stopped"


THE_RUN_FAILED = "topology 'totals': the run failed; "


def test_each_restart_is_told_to_listeners_and_to_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    changes = Changes()

    with running(asking(memory_state(), calls=3), QUICK, changes) as run:
        run.process_all_available(LIMIT_S)

    told = changes.of(Restarting)
    assert [(each.restarts, each.pause_s) for each in told] == [(1, 0.01), (2, 0.02), (3, 0.02)]
    assert {str(each.error) for each in told} == {"the service is away"}
    records = [
        vars(each) for each in caplog.records if each.getMessage().startswith(THE_RUN_FAILED)
    ]
    assert [(each["levelno"], each["failures"], each["pause_s"]) for each in records] == [
        (logging.WARNING, 1, 0.01),
        (logging.WARNING, 2, 0.02),
        (logging.WARNING, 3, 0.02),
    ]
    assert {each["cause"] for each in records} == {"ConnectionError: the service is away"}


def test_without_a_policy_the_first_error_ends_the_run() -> None:
    with (
        running(asking(memory_state(), calls=1), None) as run,
        pytest.raises(ConnectionError, match="the service is away"),
    ):
        run.await_termination(LIMIT_S)


def test_an_error_after_the_last_restart_ends_the_run_and_says_so() -> None:
    changes = Changes()
    restart = Restart(times=2, within_s=3600.0, backoff_s=0.01)

    with running(asking(memory_state(), calls=99), restart, changes) as run:
        with pytest.raises(ConnectionError) as raised:
            run.await_termination(LIMIT_S)

        assert raised.value.__notes__[-1] == (
            "topology 'totals' was restarted 2 times within 3600 s, so the run ends"
        )
        assert run.status == "failed"
        assert run.exception() is raised.value
    assert len(changes.of(Restarting)) == 2
    assert changes.of(Stopped) == [Stopped("totals", raised.value)]


def test_a_batch_whose_attempts_are_exhausted_has_them_again() -> None:
    state = memory_state()
    topology = asking(state, calls=5, error=FailedException("not yet"))

    with running(topology, QUICK, attempts_max=2, backoff_s=0.001) as run:
        run.process_all_available(LIMIT_S)

        assert stored(state) == (12, expected())


@pytest.mark.row(29)
def test_a_deposed_leader_is_not_started_again() -> None:
    ensemble, changes = MemoryEnsemble(), Changes(lambda change: depose(change))

    def depose(change: object) -> None:
        if isinstance(change, BatchCommitted) and change.progress.txid == 5:
            other = MemoryTransactionalState("totals", ensemble)
            Journal(other).claim_epoch({"host": "elsewhere", "pid": 4711}, token="ensemble")

    topology = topology_of(memory_state())
    run = start_topology(topology.graph, None, LOCAL, [changes], ensemble=ensemble, restart=QUICK)

    with pytest.raises(FencedError):
        run.await_termination(LIMIT_S)
    assert changes.of(Restarting) == []


def test_a_stop_ends_the_pause_before_a_restart() -> None:
    changes = Changes()

    with running(asking(memory_state(), calls=1), HOUR, changes) as run:
        changes.wait_for(Restarting)
        assert run.status == "restarting"
        assert run.exception() is None
        assert run.is_active
        assert not run.await_termination(0)
        run.stop(LIMIT_S)

        assert run.status == "stopped"
        assert run.exception() is None
    assert changes.of(Stopped) == [Stopped("totals", None)]


def test_whoever_waits_for_the_rest_is_let_go_by_a_stop_in_the_pause() -> None:
    changes = Changes(lambda change: run.stop() if isinstance(change, Restarting) else None)

    with running(asking(memory_state(), calls=1), HOUR, changes) as run:
        run.process_all_available(LIMIT_S)

        assert run.await_termination(LIMIT_S)


def test_a_run_that_was_deactivated_in_the_pause_comes_back_deactivated() -> None:
    """The batches that were planned are in flight, and are committed."""
    state, changes = memory_state(), Changes()
    restart = Restart(backoff_s=0.2)

    with running(asking(state, calls=1), restart, changes, max_spout_pending=6) as run:
        changes.wait_for(Restarting)
        run.deactivate()
        wait_until(lambda: run.status == "deactivated", "it is back")
        run.process_all_available(LIMIT_S)
        assert stored(state)[0] < 12

        run.activate()
        run.process_all_available(LIMIT_S)
        assert stored(state) == (12, expected())


def test_a_start_that_fails_is_an_error_of_start_and_not_tried_again() -> None:
    changes = Changes()
    config = Config(carrier="local", zookeeper=ZooKeeper("127.0.0.1:1", connect_timeout_s=0.2))

    with pytest.raises(CoordinatorUnavailable):
        topology_of(memory_state()).start(None, config, [changes], restart=QUICK)
    assert changes.seen == []


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (ValueError("user code"), True),
        (StoreUnavailable("away"), True),
        (CoordinatorUnavailable("away"), True),
        (PoisonBatchError("txid 3"), True),
        (SlotUnavailable("slot 1"), True),
        (TooFewCores("1 free"), True),
        (FencedError("epoch 2"), False),
        (NonRepeatableBatch("txid 3"), False),
        (SourceDataLost("gone"), False),
        (TopologyChanged("bolt"), False),
        (AuthError("password"), False),
        (DriverMemoryError("too much"), False),
        (TopologyError("wrong"), False),
        (ConfigError("wrong"), False),
        (StateUsageError("wrong"), False),
        (EmitError("wrong"), False),
        (TooManyDeadLetters("101"), False),
        (StatementFailed("no such table"), False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_the_class_of_an_error_says_whether_it_may_pass(error: Exception, passes: bool) -> None:
    assert may_pass(error) is passes


def test_restarts_are_counted_within_a_window_that_moves() -> None:
    count = RestartCount(Restart(times=2, within_s=100.0, backoff_s=1.0, backoff_max_s=60.0))

    assert [count.pause_s(0.0), count.pause_s(60.0), count.pause_s(99.0)] == [1.0, 2.0, None]
    assert [count.pause_s(100.0), count.pause_s(159.0), count.pause_s(160.0)] == [2.0, None, 2.0]


def test_pauses_before_restarts_grow_to_the_longest_and_begin_again() -> None:
    count = RestartCount(Restart(times=9, within_s=100.0, backoff_s=1.0, backoff_max_s=5.0))

    assert [count.pause_s(now_s) for now_s in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert count.pause_s(200.0) == 1.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"times": 0}, "times of a Restart must be a whole number of at least 1; got 0; leave"),
        ({"times": True}, "times of a Restart must be a whole number of at least 1; got True"),
        ({"times": 2.0}, "times of a Restart must be a whole number of at least 1; got 2.0"),
        ({"within_s": 0}, "within_s of a Restart must be a finite number above 0; got 0"),
        ({"backoff_s": "1 s"}, "backoff_s of a Restart must be a finite number .* got '1 s'"),
        ({"backoff_max_s": float("inf")}, "backoff_max_s of a Restart must be .* got inf"),
    ],
)
def test_a_policy_is_checked_when_it_is_made(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Restart(**settings)


def test_another_thing_than_a_policy_is_refused_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match=r"restart is of the wrong type; got 3; expected Restart"):
        topology_of(memory_state()).start(None, LOCAL, restart=3)  # type: ignore[arg-type]


class Calling(BasicBolt):
    """Calls the service, then notes the word."""

    output_fields = None

    def __init__(self, service: Away, seen: Seen) -> None:
        self.service, self.seen = service, seen

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        self.service.call()
        self.seen.notes.append(tuple["word"])


def test_an_at_least_once_run_is_started_again_with_new_spouts_and_bolts() -> None:
    """This spout keeps its position in memory, so it begins again: each word comes once or more."""
    seen, changes = Seen(), Changes()
    builder = TopologyBuilder("calling")
    builder.set_spout("words", MemorySpout(rows("a", "b", "c"), WORD))
    builder.set_bolt("call", Calling(Away(2), seen)).shuffle_grouping("words")
    config = AtLeastOnceConfig(carrier="local", slots=1)

    with builder.build_topology().start(None, config, [changes], restart=QUICK) as run:
        run.process_all_available(LIMIT_S)

        assert run.exception() is None
        assert run.last_progress is not None
        assert run.last_progress.acked >= 3
    assert set(seen.notes) == {"a", "b", "c"}
    assert [each.restarts for each in changes.of(Restarting)] == [1, 2]
    assert changes.of(Stopped) == [Stopped("calling", None)]


def test_an_at_least_once_run_that_was_started_inactive_comes_back_as_it_was() -> None:
    changes = Changes()
    builder = TopologyBuilder("calling")
    builder.set_spout("words", MemorySpout(rows("a"), WORD))
    builder.set_bolt("call", Calling(Away(1), Seen())).shuffle_grouping("words")
    config = AtLeastOnceConfig(carrier="local", slots=1)
    topology = builder.build_topology()

    with topology.start(None, config, [changes], active=False, restart=HOUR) as run:
        assert run.status == "deactivated"
        run.activate()
        changes.wait_for(Restarting)
        run.stop(LIMIT_S)

    assert run.exception() is None


class SlowToCreate(MemoryBackend):
    """Waits when it is created for the second start."""

    creating, go_on = threading.Event(), threading.Event()
    created = 0

    def create(self) -> None:
        SlowToCreate.created += 1
        if SlowToCreate.created == 2:  # each start creates it once; its takeover uses the same
            SlowToCreate.creating.set()
            assert SlowToCreate.go_on.wait(LIMIT_S)
        super().create()


def test_a_stop_while_the_run_is_opened_again_ends_it_when_it_is_open() -> None:
    store, changes = MemoryStore(), Changes()

    def opened(url: str, table: StateTable) -> SlowToCreate:
        return SlowToCreate(store, table)

    register_backend("slow-to-create", opened)
    with running(asking(open_state("slow-to-create:"), calls=1), QUICK, changes) as run:
        assert SlowToCreate.creating.wait(LIMIT_S)
        assert run.status == "restarting"
        with pytest.raises(TimeoutError):
            run.stop(0.05)
        assert run.status == "stopping"
        SlowToCreate.go_on.set()
        run.stop(LIMIT_S)

        assert run.exception() is None
    assert changes.of(Stopped) == [Stopped("totals", None)]


class AskingInATask(BasicBolt):
    """Calls a service outside, which a file stands for: it says how often it is still away."""

    output_fields = Fields("word string")

    def __init__(self, service: Path) -> None:
        self.service = service

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        if away := int(self.service.read_text()):
            self.service.write_text(str(away - 1))
            raise ConnectionError("the service is away")
        collector.emit(tuple.values)


@pytest.mark.spark
@pytest.mark.parametrize("carrier", ["rdd", "resident"])
def test_a_run_on_spark_is_started_again_on_its_session(
    carrier: Carrier, spark: SparkSession, tmp_path: Path
) -> None:
    (service := tmp_path / "away").write_text("2")
    spout = MemoryTransactionalSpout({0: [["a"], ["b"], ["a"]]}, Fields("word string"), 1)
    builder = TransactionalTopologyBuilder(f"asking-{carrier}", "spout", spout)
    builder.set_bolt("ask", AskingInATask(service)).shuffle_grouping("spout")
    words = open_state(f"sqlite:///{tmp_path / 'words.db'}")
    count = PersistentAggregate(words, "word", Count())
    builder.set_bolt("count", count).fields_grouping("ask", "word")
    config = Config(
        carrier=carrier, slots=1, zookeeper=ZooKeeper("embedded", dir=str(tmp_path / "zookeeper"))
    )

    with builder.build_topology().start(spark, config, restart=QUICK) as run:
        run.process_all_available(LIMIT_S)

        assert run.last_progress is not None
        assert (run.last_progress.attempt.epoch, run.last_progress.rows_total) == (3, 3)
    with words.named("count").reader() as reader:
        assert dict(reader.items()) == {"a": 2, "b": 1}
