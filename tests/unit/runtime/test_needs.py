"""A missing package ends a start before Spark, and a silent server is told at once."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Mapping
from typing import Any

import pytest

import state_backends.delta.library  # noqa: F401  # before a test hides what it remembers
from tests.harness.polling import LIMIT_S, wait_until
from txtopo import (
    AtLeastOnceConfig,
    Bolt,
    Config,
    Count,
    Fields,
    PersistentAggregate,
    Topology,
    TopologyBuilder,
    TransactionalTopologyBuilder,
    Tuple,
    ZooKeeper,
    open_state,
)
from txtopo.errors import ConfigError, InfrastructureError, TopologyError
from txtopo.plugins.ensembles import MemoryTransactionalState, register_ensemble
from txtopo.plugins.stores import BackingMap, backing_map_factory, register_backend
from txtopo.runtime.needs import missing_packages, needed_servers
from txtopo.runtime.progress import BatchFailed, TopologyEvent, TopologyListener
from txtopo.servers import Server
from txtopo.spouts import MemorySpout, MemoryTransactionalSpout, StreamSpout

WORD = Fields("word string")
LOCAL = Config(carrier="local", zookeeper="memory", backoff_s=0.01)
CLOSED = "127.0.0.1:1"
SAID = f"{CLOSED} refuses connections, nothing listens there"
KAFKA = Server.of("Kafka", CLOSED, 9092)


class Away(MemoryTransactionalSpout):
    """A spout whose server is down."""

    connects_to = (KAFKA,)

    def coordinator(self, config: Any, context: Any) -> Any:
        coordinator: Any = super().coordinator(config, context)
        coordinator.is_ready = unreachable
        return coordinator


def unreachable(*_: object) -> bool:
    raise InfrastructureError("timed out while waiting for controller")


def counting(spout: Any = None, url: str = "memory:") -> Topology:
    builder = TransactionalTopologyBuilder(
        "counting", "words", spout or MemoryTransactionalSpout({0: [["a"]]}, WORD, 1)
    )
    counts = PersistentAggregate(open_state(url), "word", Count())
    builder.set_bolt("counts", counts).fields_grouping("words", "word")
    return builder.build_topology()


def missing(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)


def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> Any:
        raise AssertionError("Spark would start")

    monkeypatch.setattr("txtopo.runtime.start.open_own_session", refuse)


class FirstFailure(TopologyListener):
    def __init__(self) -> None:
        self.failed = threading.Event()

    def on_change(self, change: TopologyEvent) -> None:
        if isinstance(change, BatchFailed):
            self.failed.set()


def test_a_silent_server_is_told_before_anything_runs_and_in_the_timeout(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = FirstFailure()

    with counting(Away({0: [["a"]]}, WORD, 1)).start(config=LOCAL, listeners=[first]) as run:
        assert first.failed.wait(LIMIT_S)
        with pytest.raises(TimeoutError) as caught:
            run.process_all_available(0.01)

    warnings = [each for each in caplog.records if each.levelno == logging.WARNING]
    told = next(each for each in warnings if each.__dict__["cause"] == SAID)
    failure = next(each for each in warnings if "controller" in str(each.__dict__["cause"]))
    assert told.getMessage() == (
        f"topology 'counting': Kafka (spout 'words') does not answer: {SAID}; the start "
        "continues, since it may come back; start the server, or repair its address"
    )
    assert warnings.index(told) < warnings.index(failure)
    assert str(caught.value).endswith(
        " s ago in 'words', was InfrastructureError: timed out while waiting for controller; "
        f"Kafka (spout 'words') did not answer at the start: {SAID}"
    )


def test_a_spout_that_is_away_while_others_run_is_told_in_the_timeout() -> None:
    """Its failures fail no attempt, so none is the last failure."""
    builder = TransactionalTopologyBuilder(
        "counting", "words", MemoryTransactionalSpout({0: [["a"]]}, WORD, 1)
    )
    builder.set_spout("away", Away({0: [["a"]]}, WORD, 1))
    counts = PersistentAggregate(open_state("memory:"), "word", Count())
    declared = builder.set_bolt("counts", counts).fields_grouping("words", "word")
    declared.fields_grouping("away", "word")

    with builder.build_topology().start(config=LOCAL) as run:
        wait_until(lambda: run.board.figures()["pace"]["held_back"], "an outage")
        with pytest.raises(TimeoutError) as caught:
            run.process_all_available(0.01)

    assert "; 'away' is held back: out of reach; got InfrastructureError" in str(caught.value)


def test_an_at_least_once_topology_tells_of_a_silent_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    spout = MemorySpout([["a"]], WORD)
    spout.connects_to = [Server.of("RabbitMQ", "amqp://user:secret@nowhere.invalid", 5672)]
    builder = TopologyBuilder("words")
    builder.set_spout("words", spout)

    builder.build_topology().start(config=AtLeastOnceConfig(carrier="local")).stop()

    assert (
        "RabbitMQ (spout 'words') does not answer: nowhere.invalid:5672 cannot be resolved"
    ) in caplog.text
    assert "secret" not in caplog.text


class NeverAcks(Bolt):
    def prepare(self, *_: object) -> None: ...

    def execute(self, tuple: Tuple) -> None: ...


def test_an_at_least_once_topology_that_has_acked_nothing_tells_it_in_the_timeout() -> None:
    """It has a progress each second, whatever it has processed."""
    spout = MemorySpout([["a"]], WORD)
    spout.connects_to = [KAFKA]
    builder = TopologyBuilder("words")
    builder.set_spout("words", spout)
    builder.set_bolt("keeps", NeverAcks()).shuffle_grouping("words")

    with builder.build_topology().start(config=AtLeastOnceConfig(carrier="local")) as run:
        wait_until(lambda: run.last_progress, "a progress")
        with pytest.raises(TimeoutError) as caught:
            run.process_all_available(0.01)

    assert f"; Kafka (spout 'words') did not answer at the start: {SAID}" in str(caught.value)


def test_a_missing_package_is_told_before_spark_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    missing(monkeypatch, "psycopg")
    no_spark(monkeypatch)

    with pytest.raises(ConfigError) as caught:
        counting(url="postgresql://host/db").start(config=Config(zookeeper="memory"))

    assert str(caught.value) == (
        "state counts.counts needs the package psycopg; it is not installed; install it with: "
        "pip install 'txtopo[postgres]'"
    )


def test_all_missing_packages_are_told_together(monkeypatch: pytest.MonkeyPatch) -> None:
    missing(monkeypatch, "redis", "pika", "puresasl", "zmq")
    spout = MemoryTransactionalSpout({0: [["a"]]}, WORD, 1)
    spout.client_modules = ("pika", "a_module_of_the_executors")
    login = ZooKeeper(CLOSED, auth={"mechanism": "DIGEST-MD5"})

    with pytest.raises(ConfigError) as caught:
        counting(spout, "redis://host").start(config=Config(carrier="resident", zookeeper=login))

    assert str(caught.value) == (
        "spout 'words' needs the package pika; it is not installed; "
        "state counts.counts needs the package redis; it is not installed; "
        "zookeeper.auth needs the package pure-sasl; it is not installed; "
        "carrier='resident' needs the package pyzmq; it is not installed; "
        "install them with: pip install 'txtopo[rabbitmq,redis,resident,sasl]'"
    )


def test_an_at_least_once_topology_and_a_query_tell_of_missing_packages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing(monkeypatch, "pika", "pymysql")
    spout = MemorySpout([["a"]], WORD)
    spout.client_modules = ("pika",)
    builder = TopologyBuilder("words")
    builder.set_spout("words", spout)

    with pytest.raises(ConfigError, match=r"spout 'words' needs the package pika; .*\[rabbitmq"):
        builder.build_topology().start(config=AtLeastOnceConfig(carrier="local"))
    with pytest.raises(ConfigError, match=r"state counts.counts needs the package PyMySQL"):
        counting(StreamSpout(WORD), "mysql://host/db").foreach_batch()


def test_an_explanation_tells_of_missing_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    missing(monkeypatch, "deltalake")

    local = counting(url="delta:///folder").explain(LOCAL)
    remote = counting(url="s3://bucket/folder").explain(LOCAL)

    assert not any("deltalake" in each for each in local.advice)  # Spark writes it
    assert remote.advice[0] == (
        "a start here would be refused: state counts.counts needs the package deltalake; it is "
        "not installed; install it with: pip install 'txtopo[delta]'"
    )


class Notes(BackingMap):
    """A map whose class names what it needs."""

    servers_of = staticmethod(lambda url: [Server.of("the notes", url, 1)])
    client_modules_of = staticmethod(lambda url, table: ["a_client_that_nobody_has"])

    def __init__(self, url: str) -> None: ...

    def multi_get(self, keys: Any) -> Any: ...

    def multi_put(self, keys: Any, values: Any) -> None: ...


class Elsewhere:
    """An ensemble that names its server."""

    def __call__(self, url: str, topology_id: str, zookeeper: ZooKeeper) -> Any:
        return MemoryTransactionalState(topology_id)

    def servers_of(self, url: str) -> list[Server]:
        return [Server.of("etcd", url, 2379)]


def test_plug_ins_take_part() -> None:
    register_backend("noted", backing_map_factory(Notes))
    register_ensemble("elsewhere", Elsewhere())
    graph = counting(url="noted://user:secret@host/notes").graph
    config = Config(carrier="local", zookeeper="elsewhere://host/root")

    (lack,) = missing_packages(graph, config)

    expected: Mapping[Server, str] = {
        Server("etcd", (("host", 2379),)): "the transactional state",
        Server("the notes", (("host", 1),)): "state counts.counts",
    }
    assert needed_servers(graph, config) == expected
    assert str(lack) == (
        "state counts.counts needs the package a_client_that_nobody_has; it is not installed"
    )


def test_what_is_no_list_of_servers_is_refused() -> None:
    spout = MemoryTransactionalSpout({0: [["a"]]}, WORD, 1)
    spout.connects_to = "user:secret@host:9092"  # type: ignore[assignment]

    with pytest.raises(TopologyError, match=r"the servers of spout 'words' are wrong; got str; ex"):
        counting(spout).start(config=LOCAL)


def test_a_server_without_an_address_that_can_be_read_is_not_tried() -> None:
    assert needed_servers(counting(url="redis:///0").graph, LOCAL) == {}
