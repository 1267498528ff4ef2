"""KafkaSink against a real broker: each txid is seen once, in order, whoever dies when."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from tests.harness.dying import Died, dies_at, raise_died
from tests.harness.polling import LIMIT_S, retry, wait_until
from tests.harness.runs import Changes, started
from tests.harness.servers.kafka import KafkaBroker
from tests.unit.kafka.logs import Log
from txtopo import Config, Fields, Topology, TransactionalTopologyBuilder, TransactionAttempt
from txtopo.attempt import group_of
from txtopo.bolts import KafkaSink
from txtopo.ensemble import MemoryEnsemble
from txtopo.errors import (
    ConfigError,
    FencedError,
    ForeignEnsembleError,
    ForeignStateError,
    GroupBoundsError,
    InfrastructureError,
    SchemaDrift,
    SchemaVersionError,
    StaleBatchError,
    StoreUnavailable,
    TopologyError,
)
from txtopo.kafka.sink import PublishedRecords
from txtopo.plugins.stores import Claim, Ledger, Writes
from txtopo.runtime.progress import BatchCommitted, BatchesProcessed
from txtopo.runtime.start import start_topology
from txtopo.spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from txtopo.state.backend import Puts, StateBackend
from txtopo.testing.conformance.driver import claim_of, whole_ledger

pytestmark = pytest.mark.service("kafka")
FIELDS = Fields("value string")


def seen(log: Log) -> list[str]:
    """Return what a consumer sees that reads committed records only, in order."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": log.kafka.servers,
            "group.id": "test",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(log.name, 0, 0)])
    values: list[str] = []
    while True:
        for message in consumer.consume(100, 0.05):
            if message.error() is not None:
                consumer.close()
                return values
            values.append((message.value() or b"").decode())


def opened(log: Log, epoch: int) -> StateBackend:
    """Open the state behind a sink and claim it."""
    backend = KafkaSink(log.kafka.servers, log.name, timeout_s=5.0).state.open()
    backend.create()
    backend.claim(claim_of("topology", epoch))
    return backend


def puts(*values: str) -> Puts:
    return Puts({(at,): (None, value.encode()) for at, value in enumerate(values)})


def attempt(txid: int, number: int = 0, epoch: int = 1) -> TransactionAttempt:
    return TransactionAttempt(txid, number, epoch)


def topology(log: Log, rows: Sequence[Sequence[Any]], *, opaque: bool = False) -> Topology:
    kind = OpaqueMemoryTransactionalSpout if opaque else MemoryTransactionalSpout
    builder = TransactionalTopologyBuilder("sink", "words", kind({0: rows}, FIELDS, 2))
    builder.set_bolt("out", KafkaSink(log.kafka.servers, log.name)).global_grouping("words")
    return builder.build_topology()


def test_consumers_see_each_txid_once_and_in_order(kafka: KafkaBroker) -> None:
    """Also over two runs of the topology, of which the second continues."""
    log, ensemble = Log(kafka, partitions=1), MemoryEnsemble()
    config = Config(carrier="local", zookeeper="memory", poll_interval_s=0.01)
    words = [[f"w{at}"] for at in range(9)]
    for rows in (words[:5], words):
        run = start_topology(topology(log, rows).graph, None, config, ensemble=ensemble)
        run.process_all_available(60)
        run.stop()

    assert seen(log) == [row[0] for row in words]


def test_an_opaque_spout_is_refused(kafka: KafkaBroker) -> None:
    log = Log(kafka, partitions=1)

    with pytest.raises(TopologyError, match="cannot be taken back"):
        topology(log, [["w"]], opaque=True)


def test_several_tasks_are_refused() -> None:
    spout = MemoryTransactionalSpout({0: [["w"]]}, FIELDS, 1)
    builder = TransactionalTopologyBuilder("sink", "words", spout)
    builder.set_bolt("out", KafkaSink("localhost:9092", "t"), 2).shuffle_grouping("words")

    with pytest.raises(TopologyError, match="parallelism 2"):
        builder.build_topology()


def test_a_txid_that_is_visible_is_never_written_again(kafka: KafkaBroker) -> None:
    log = Log(kafka, partitions=1)
    first = opened(log, 1)
    first.commit(attempt(1), puts("a", "b"))
    first.commit(attempt(1), puts("a", "b"))
    second = opened(log, 2)
    with second.snapshot() as snapshot:
        assert snapshot.ledger == whole_ledger("topology", 2, 1, 1, 0)
    redone = second.commit(attempt(1, 0, 2), puts("a", "b"))
    second.commit(attempt(2, 0, 2), puts())
    second.commit(attempt(3, 0, 2), puts("c"))

    assert redone == whole_ledger("topology", 2, 1, 2, 0)
    assert seen(log) == ["a", "b", "c"]


def group(first: int, last: int, number: int = 0, epoch: int = 1) -> TransactionAttempt:
    return group_of([attempt(txid, number, epoch) for txid in range(first, last + 1)])


@pytest.mark.rule("txtopo.kafka.sink", "Rules", 5)
def test_a_group_is_one_transaction_and_is_never_written_again(kafka: KafkaBroker) -> None:
    """Neither by its own attempt, nor by a later one, nor by a successor."""
    log = Log(kafka, partitions=1)
    first = opened(log, 1)
    first.commit(attempt(1), puts("a"))
    first.commit(group(2, 4), puts("b", "c"))
    first.commit(group(2, 4), puts("b", "c"))
    first.commit(group(2, 4, 1), puts("b", "c"))
    second = opened(log, 2)
    with second.snapshot() as snapshot:
        assert snapshot.ledger == whole_ledger("topology", 2, 4, 1, 1, earlier=(1, 1))
    redone = second.commit(group(2, 4, 0, 2), puts("b", "c"))
    for bounds in (group(2, 3, 5, 2), group(3, 4, 5, 2), attempt(4, 5, 2), group(4, 5, 5, 2)):
        with pytest.raises((GroupBoundsError, StaleBatchError)):
            second.commit(bounds, puts("wrong"))
    second.commit(group(5, 6, 0, 2), puts("d"))

    assert redone == whole_ledger("topology", 2, 4, 2, 0, earlier=(0, 0))
    assert seen(log) == ["a", "b", "c", "d"]


def test_what_a_dead_coordinator_left_open_of_a_group_is_written_once(kafka: KafkaBroker) -> None:
    log = Log(kafka, partitions=1)
    dead = opened(log, 1)
    dead.commit(attempt(1), puts("a"))
    dead.point = dies_at("write.before", die=raise_died)
    with pytest.raises(Died):
        dead.commit(group(2, 3), puts("b", "c"))

    successor = opened(log, 2)
    with successor.snapshot() as snapshot:
        assert snapshot.ledger == whole_ledger("topology", 2, 1, 1, 0)
    successor.commit(group(2, 3, 0, 2), puts("b", "c"))
    assert seen(log) == ["a", "b", "c"]


@pytest.mark.rule("txtopo.kafka.sink", "Rules", 1)
def test_the_records_of_the_txids_of_a_group_are_all_written_in_order(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first commit waits for seven batches, so of it and the next one has four or more."""
    log, ensemble, changes = Log(kafka, partitions=1), MemoryEnsemble(), Changes()
    words = [[f"w{at}"] for at in range(18)]
    commit, processed = PublishedRecords.commit, threading.Event()

    def waiting(self: PublishedRecords, each: TransactionAttempt, writes: Writes) -> Ledger:
        assert processed.wait(LIMIT_S)
        return commit(self, each, writes)

    monkeypatch.setattr(PublishedRecords, "commit", waiting)
    settings: dict[str, Any] = {"max_spout_pending": 9, "poll_interval_s": 0.01}
    config = Config(carrier="local", zookeeper="memory", **settings)
    with started(topology(log, words), config, ensemble, (changes,)) as run:

        def enough_processed() -> bool:
            told = changes.of(BatchesProcessed)
            return sum(len(each.attempts) for each in told) >= 7

        wait_until(enough_processed, "seven of nine batches are processed")
        processed.set()
        run.process_all_available(LIMIT_S)

    groups = {each.progress.group for each in changes.of(BatchCommitted)}
    assert max(last - first for first, last in groups) >= 3
    assert seen(log) == [row[0] for row in words]


@pytest.mark.row(29)
def test_a_zombie_is_fenced_in_the_middle_of_its_transaction(kafka: KafkaBroker) -> None:
    log = Log(kafka, partitions=1)
    zombie = opened(log, 1)
    zombie.commit(attempt(1), puts("a"))
    successors = []

    def overtaken(step: str) -> None:
        if step == "write.before":
            successors.append(opened(log, 2))

    zombie.point = overtaken
    with pytest.raises(StoreUnavailable, match="taken over"):
        zombie.commit(attempt(2), puts("zombie"))
    zombie.point = lambda step: None
    with pytest.raises(FencedError):
        zombie.commit(attempt(2, 1), puts("zombie"))
    successors[0].claim(claim_of("topology", 2))
    successors[0].commit(attempt(2, 0, 2), puts("b"))

    assert seen(log) == ["a", "b"]


@pytest.mark.row(26)
@pytest.mark.rule("txtopo.kafka.sink", "Rules", 4)
def test_a_zombie_that_claims_late_stops_and_its_successor_goes_on(kafka: KafkaBroker) -> None:
    """It read the visible ledger before its successor claimed, and took the id after that."""
    log = Log(kafka, partitions=1)
    successor = opened(log, 2)
    successor.commit(attempt(1, 0, 2), puts("a"))
    zombie = KafkaSink(log.kafka.servers, log.name, timeout_s=5.0).state.open()
    zombie._ledgers.visible = lambda: None  # type: ignore[attr-defined]
    with pytest.raises(FencedError):
        zombie.claim(claim_of("topology", 1))
    with pytest.raises(StoreUnavailable, match="taken over"):
        successor.commit(attempt(2, 0, 2), puts("b"))
    successor.commit(attempt(2, 1, 2), puts("b"))

    assert seen(log) == ["a", "b"]


@pytest.mark.parametrize(
    ("claim", "error"),
    [
        (claim_of("other", 9), ForeignStateError),
        (claim_of("topology", 9, ensemble="second"), ForeignEnsembleError),
        (claim_of("topology", 1), FencedError),
    ],
)
@pytest.mark.rule("txtopo.kafka.sink", "Rules", 3)
def test_a_claim_that_the_ledger_refuses_fences_nobody(
    kafka: KafkaBroker, claim: Claim, error: type[Exception]
) -> None:
    log = Log(kafka, partitions=1)
    holder = opened(log, 2)
    holder.commit(attempt(1, 0, 2), puts("a"))
    with pytest.raises(error):
        KafkaSink(log.kafka.servers, log.name, timeout_s=5.0).state.open().claim(claim)

    holder.commit(attempt(2, 0, 2), puts("b"))
    assert seen(log) == ["a", "b"]


def test_a_ledger_of_a_newer_version_is_refused(kafka: KafkaBroker) -> None:
    from confluent_kafka import Producer

    log = Log(kafka, partitions=1)
    opened(log, 1).commit(attempt(1), puts("a"))
    producer = Producer({"bootstrap.servers": log.kafka.servers})
    value = json.dumps({"version": 2, "unheard_of": 1}).encode()
    producer.produce(f"{log.name}.txtopo-ledger", key=log.name.encode(), value=value)
    assert producer.flush(30.0) == 0

    with pytest.raises(SchemaVersionError, match=r"version 2; expected at most 1; .* upgrade"):
        opened(log, 2)


def test_who_only_looks_at_the_ledger_fences_nobody(kafka: KafkaBroker) -> None:
    """Such as an operator's verb while the topology runs; also in the middle of a transaction."""
    log = Log(kafka, partitions=1)
    sink = KafkaSink(kafka.servers, log.name, timeout_s=5.0)
    with sink.state.open().snapshot() as before:
        assert before.ledger is None
    backend, looks = opened(log, 1), []

    def look(step: str) -> None:
        if step == "write.before":
            with sink.state.open().snapshot() as snapshot:
                looks.append(snapshot.ledger)

    backend.point = look
    for txid in range(1, 4):
        backend.commit(attempt(txid), puts(f"{txid}"))

    assert [ledger and ledger.txid for ledger in looks] == [0, 1, 2]
    assert seen(log) == ["1", "2", "3"]


@pytest.mark.row(31)
def test_what_a_dead_coordinator_left_open_is_taken_back(kafka: KafkaBroker) -> None:
    log = Log(kafka, partitions=1)
    dead = opened(log, 1)
    dead.commit(attempt(1), puts("a"))

    def dies(step: str) -> None:
        if step == "write.before":
            dead._producer.flush(5)  # type: ignore[attr-defined]
            raise Died(step)

    dead.point = dies
    with pytest.raises(Died):
        dead.commit(attempt(2), puts("lost"))
    after = opened(log, 2)
    with after.snapshot() as snapshot:
        assert snapshot.ledger is not None
        assert snapshot.ledger.txid == 1
    after.commit(attempt(2, 0, 2), puts("b"))

    assert seen(log) == ["a", "b"]


@pytest.mark.row(36, 37)
def test_a_broker_that_dies_at_the_commit_leaves_each_txid_once(kafka: KafkaBroker) -> None:
    log = Log(kafka, partitions=1)
    backend = opened(log, 1)
    backend.commit(attempt(1), puts("a"))
    backend.point = lambda step: kafka.kill() if step == "write.before" else None
    with pytest.raises(InfrastructureError):
        backend.commit(attempt(2), puts("b"))
    backend.point = lambda step: None
    kafka.start()

    retry(lambda: backend.commit(attempt(2, 1), puts("b")), InfrastructureError)
    assert seen(log) == ["a", "b"]


def test_the_ledger_survives_many_others(kafka: KafkaBroker) -> None:
    """More records than the first look back takes in."""
    log = Log(kafka, partitions=1)
    backend = opened(log, 1)
    for txid in range(1, 71):
        backend.commit(attempt(txid), puts())
    fresh = opened(log, 2)

    with fresh.snapshot() as snapshot:
        assert snapshot.ledger == whole_ledger("topology", 2, 70, 1, 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("acks", 1),
        ("request.required.acks", 0),
        ("enable.idempotence", False),
        ("transactional.id", "mine"),
    ],
)
def test_settings_that_would_lose_or_double_records_are_refused(
    name: str, value: str | int | bool
) -> None:
    """Before the run: in it librdkafka would refuse them for ever, like a broker that is down."""
    with pytest.raises(ConfigError, match=f"setting '{name}' of a KafkaSink cannot be set"):
        KafkaSink("127.0.0.1:1", "t", settings={name: value})


def test_each_record_is_acknowledged_by_all_copies(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And numbered, so that one that is sent again is not there twice."""
    import confluent_kafka

    given: list[dict[str, Any]] = []
    made = confluent_kafka.Producer

    def make(settings: dict[str, Any]) -> confluent_kafka.Producer:
        given.append(settings)
        return made(settings)

    monkeypatch.setattr(confluent_kafka, "Producer", make)
    log = Log(kafka, partitions=1)
    opened(log, 1).commit(attempt(1), puts("a"))

    (settings,) = given
    assert settings["transactional.id"] == f"txtopo.{log.name}"
    assert settings["acks"] == "all"
    assert settings["enable.idempotence"] is True


def test_the_ledger_is_kept_as_safe_as_the_records(kafka: KafkaBroker) -> None:
    """A ledger that is lost alone leaves records of which nobody knows."""
    from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

    log = Log(kafka, partitions=1, min_insync_replicas="2")
    KafkaSink(kafka.servers, log.name).state.open().create()

    name = f"{log.name}.txtopo-ledger"
    resource = ConfigResource(ResourceType.TOPIC, name)
    wait_until(
        lambda: name in kafka.admin.list_topics(timeout=60).topics, "the broker knows the topic"
    )
    found = kafka.admin.describe_configs([resource])[resource].result(60)
    assert found["min.insync.replicas"].value == "2"
    assert found["cleanup.policy"].value == "compact"


@pytest.mark.parametrize("which", ["records", "ledger"])
def test_a_topic_that_forgets_what_it_acknowledged_is_refused(
    kafka: KafkaBroker, which: str
) -> None:
    careless = {"unclean_leader_election_enable": "true"}
    log = Log(kafka, partitions=1, **(careless if which == "records" else {}))
    if which == "ledger":
        ledger = Log.__new__(Log)
        ledger.kafka, ledger.name = kafka, f"{log.name}.txtopo-ledger"
        ledger._config = {"unclean.leader.election.enable": "true", "cleanup.policy": "compact"}
        ledger.create(1)

    with pytest.raises(
        ConfigError, match=r"got unclean\.leader\.election\.enable=true, so a replica"
    ):
        KafkaSink(kafka.servers, log.name).state.open().create()


def test_topics_that_do_not_fit_are_named(kafka: KafkaBroker) -> None:
    with pytest.raises(ConfigError, match="'no-such-topic'"):
        KafkaSink(kafka.servers, "no-such-topic").state.open().create()
    log = Log(kafka, partitions=1)
    wrong = Log.__new__(Log)
    wrong.kafka, wrong.name, wrong._config = kafka, f"{log.name}.txtopo-ledger", {}
    wrong.create(2)
    with pytest.raises(SchemaDrift, match=r"2 partitions and cleanup.policy=delete"):
        KafkaSink(kafka.servers, log.name).state.open().create()


def test_the_topic_of_a_ledger_is_none_of_a_sink() -> None:
    """A record there would be read as a ledger, and end the topology that it belongs to."""
    with pytest.raises(ConfigError, match="are reserved for ledgers"):
        KafkaSink("localhost:1", "words.txtopo-ledger")


def test_a_ledger_whose_name_the_broker_refuses_is_named(kafka: KafkaBroker) -> None:
    """Too long with its end, or taken: a broker takes '.' and '_' for one."""
    long, log = Log(kafka, 1, "x" * 230), Log(kafka, 1)
    alike = Log.__new__(Log)
    alike.kafka, alike.name, alike._config = kafka, f"{log.name}_txtopo-ledger", {}
    alike.create(1)

    for name in (long.name, log.name):
        with pytest.raises(SchemaDrift, match=f"KafkaSink to '{name}' cannot be created"):
            KafkaSink(kafka.servers, name).state.open().create()
