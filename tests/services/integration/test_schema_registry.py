"""Topologies that read and write Avro and Protobuf of Kafka, while the registry is away or not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from examples import kafka_avro
from tests.harness.dying import RaisingScheduler
from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.runs import LOCAL, Changes, Storage, on, run_to_end, running
from tests.harness.servers.kafka import KafkaBroker
from tests.harness.servers.schema_registry import SchemaRegistry
from tests.unit.kafka.formats.messages import message_class
from tests.unit.kafka.formats.records import read, written
from tests.unit.kafka.formats.test_avro import SALE, field, record
from tests.unit.kafka.groups import Group
from tests.unit.kafka.logs import Log
from txtopo import (
    Avro,
    DeadLetters,
    Fields,
    PersistentAggregate,
    Protobuf,
    Sum,
    Topology,
    TransactionalTopologyBuilder,
    open_state,
)
from txtopo.bolts import KafkaSink
from txtopo.errors import (
    ConfigError,
    EmitError,
    InfrastructureError,
    TopologyError,
    TxtopoError,
)
from txtopo.kafka.formats import schema_format
from txtopo.runtime.start import start_topology
from txtopo.spouts import MemoryTransactionalSpout

pytestmark = pytest.mark.service("kafka")
MESSAGE = message_class("string customer = 1", "double amount = 2")
SALES = [(customer, float(at)) for at, customer in enumerate("abcabcabcabc")]
TOTALS = {"a": 18.0, "b": 22.0, "c": 26.0}
QUICK = {"retries.wait.ms": 1}
BOTH = pytest.mark.parametrize("kind", ["avro", "protobuf"])
AVRO = pytest.mark.parametrize("kind", ["avro", pytest.param("protobuf", marks=pytest.mark.slow)])
"""The protocol is the same for both; ``make test-all`` has both."""


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[SchemaRegistry]:
    """A registry of its own, and a process that knows nothing of it."""
    a_new_process(monkeypatch)
    with SchemaRegistry() as own:
        yield own


def a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what this process has asked a registry."""
    monkeypatch.setattr(schema_format, "_kept", {})


def format_of(registry: SchemaRegistry, kind: str, **more: Any) -> Any:
    given = {"registry": registry.url, "settings": QUICK, **more}
    return Avro(SALE, **given) if kind == "avro" else Protobuf(MESSAGE, **given)


def filled(kafka: KafkaBroker, format: Any, *more: bytes) -> Log:
    """Return a topic with the sales, and with more records."""
    log = Log(kafka)
    log.write([*(written(format, *sale, topic=log.name) for sale in SALES), *more])
    return log


def summing(
    log: Log,
    format: Any,
    storage: Storage,
    sink: KafkaSink | None = None,
    *,
    letters: bool = True,
    **spout: Any,
) -> Topology:
    """Return a topology that adds up the sales, and writes each of them to the sink."""
    source = log.transactional(value=format, **{"batch_rows_max": 2, **spout})
    taken = DeadLetters(open_state(storage.url, storage.kind)) if letters else None
    builder = TransactionalTopologyBuilder("sales", "sales", source, 2, dead_letters=taken)
    totals = storage.state("totals", Fields("key string"), Fields("value double"))
    builder.set_bolt(
        "totals", PersistentAggregate(totals, "customer", Sum("amount"))
    ).fields_grouping("sales", "customer")
    if sink is not None:
        builder.set_bolt("out", sink).global_grouping("sales")
    return builder.build_topology()


def seen(log: Log) -> list[tuple[bytes | None, bytes | None]]:
    """Return the keys and values that a consumer of committed records sees."""
    consumer = Consumer(
        {
            "bootstrap.servers": log.kafka.servers,
            "group.id": "test",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(log.name, 0, 0)])
    found: list[tuple[bytes | None, bytes | None]] = []
    while True:
        for message in consumer.consume(100, 0.05):
            if message.error() is not None:
                consumer.close()
                return found
            found.append((message.key(), message.value()))


def values_of(log: Log, format: Any) -> list[tuple[Any, ...]]:
    """Return what a sink has written, decoded."""
    return [tuple(row.values()) for row in read(format, *(value for _, value in seen(log)))]


@AVRO
@pytest.mark.parametrize(
    "step",
    [
        "write.after:out.out",
        *(
            pytest.param(step, marks=pytest.mark.slow)
            for step in ("store-metadata.after", "write.before:out.out", "advance.after")
        ),
    ],
)
def test_each_record_is_read_and_written_once_wherever_the_driver_dies(
    kafka: KafkaBroker,
    registry: SchemaRegistry,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    step: str,
) -> None:
    format, storage = format_of(registry, kind), Storage.in_memory()
    log, out = filled(kafka, format), Log(kafka, partitions=1)
    sink = KafkaSink(kafka.servers, out.name, key="customer", value=format)
    topology = summing(log, format, storage, sink)
    dying = RaisingScheduler(step, 2)
    run = start_topology(topology.graph, None, LOCAL, scheduler=dying, ensemble=storage.ensemble)
    with pytest.raises((TxtopoError, RuntimeError), match="Died"):
        run.await_termination(LIMIT_S)

    a_new_process(monkeypatch)
    run_to_end(topology, storage)

    assert storage.read("totals") == TOTALS
    assert sorted(values_of(out, format)) == sorted(SALES)
    assert storage.read("dead_letters") == {}
    assert {key for key, _ in seen(out)} == {b"a", b"b", b"c"}
    registered = [each for each in registry.asked() if f"/{out.name}-value/versions" in each]
    assert len(registered) == 2, "each process registers once, not in each txid"
    assert {f"{log.name}-value", f"{out.name}-value"} == set(registry.subjects())


@BOTH
def test_bad_records_are_dead_letters_and_the_others_count(
    kafka: KafkaBroker, registry: SchemaRegistry, kind: str
) -> None:
    format, storage = format_of(registry, kind), Storage.in_memory()
    log = filled(kafka, format, b"\0\0\0\0\x63\0abc", b"no frame")
    topology = summing(log, format, storage)

    run_to_end(topology, storage)

    assert storage.read("totals") == TOTALS
    letters = storage.read("dead_letters").values()
    assert sorted(each["record"] for each in letters) == sorted(["AAAAAGMAYWJj", "no frame"])
    strict = summing(log, format, Storage.in_memory(), letters=False)
    with pytest.raises(EmitError, match="cannot be read; got"):
        run_to_end(strict, Storage.in_memory())


@BOTH
def test_a_registry_that_is_away_loses_no_record_and_makes_no_dead_letter(
    kafka: KafkaBroker, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """It is away for a process that has not asked it, and later for a schema that is new."""
    format, storage, changes = format_of(registry, kind), Storage.in_memory(), Changes()
    log = filled(kafka, format)
    newer = _newer(registry, kind)
    more = written(newer, *("a", 100.0, "x")[: len(newer.fields("value"))], topic="newer")
    a_new_process(monkeypatch)
    registry.kill()

    with running(summing(log, format, storage), storage, listeners=[changes]) as run:
        wait_until(lambda: len(changes.failures) >= 3, "attempts fail")
        assert storage.read("totals") == {}
        registry.start()
        run.process_all_available(LIMIT_S)
        assert storage.read("totals") == TOTALS
        registry.kill()
        failed = len(changes.failures)
        log.write([more])
        wait_until(lambda: len(changes.failures) >= failed + 3, "attempts fail")
        registry.start()
        run.process_all_available(LIMIT_S)

    assert storage.read("totals") == {**TOTALS, "a": 118.0}
    assert storage.read("dead_letters") == {}
    assert all(isinstance(each.error, InfrastructureError) for each in changes.failures)


def _newer(registry: SchemaRegistry, kind: str) -> Any:
    """Return a format with a newer version of the schema."""
    if kind == "avro":
        return Avro(record(*SALE["fields"], field("note", "string")), registry=registry.url)
    message = message_class("string customer = 1", "double amount = 2", "string note = 3")
    return Protobuf(message, registry=registry.url)


def test_an_opaque_spout_reads_them_too(kafka: KafkaBroker, registry: SchemaRegistry) -> None:
    format, storage = format_of(registry, "avro"), Storage.in_memory()
    log = filled(kafka, format, b"bad")
    spout = log.opaque(value=format, batch_rows_max=2)
    letters = open_state(storage.url, storage.kind)
    builder = TransactionalTopologyBuilder("sales", "sales", spout, dead_letters=letters)
    totals = storage.state("totals", Fields("key string"), Fields("value double"))
    adding = PersistentAggregate(totals, "customer", Sum("amount"))
    builder.set_bolt("totals", adding).fields_grouping("sales", "customer")

    run_to_end(builder.build_topology(), storage)

    assert storage.read("totals") == TOTALS
    assert [each["record"] for each in storage.read("dead_letters").values()] == ["bad"]


@BOTH
def test_a_group_reads_them_record_by_record_when_the_registry_is_there(
    kafka: KafkaBroker, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    format = format_of(registry, kind)
    log = filled(kafka, format, b"no frame")
    group = Group(log)
    a_new_process(monkeypatch)
    registry.kill()

    driven = group.driven(value=format, on_bad_record="report")

    def is_said() -> bool:
        driven.spout.next_tuple()
        return bool(driven.errors)

    wait_until(is_said, "the registry that is away is reported")
    assert {type(each) for each in driven.errors} == {InfrastructureError}
    registry.start()
    driven.next(len(SALES))
    for _, mark in driven.emitted:
        driven.spout.ack(mark)
    driven.spout.close()

    assert sorted(map(tuple, driven.rows)) == sorted(SALES)
    assert [type(each) for each in driven.errors if isinstance(each, EmitError)] == [EmitError]
    assert sum(group.committed().values()) == len(SALES) + 1


@pytest.mark.slow
@pytest.mark.spark
@AVRO
def test_tasks_of_spark_decode_and_ask_once_each(
    kafka: KafkaBroker, registry: SchemaRegistry, spark: SparkSession, kind: str
) -> None:
    """The class of the message is in no module that the workers could import."""
    format, storage = format_of(registry, kind), Storage.in_memory()
    out = Log(kafka, partitions=1)
    log = filled(kafka, format, *[written(format, "d", 0.5, topic="more")] * 500)
    registry.forget_asked()
    sink = KafkaSink(kafka.servers, out.name, value=format)

    topology = summing(log, format, storage, sink, batch_rows_max=50)
    run_to_end(topology, storage, on("rdd"), spark)

    assert storage.read("totals") == {**TOTALS, "d": 250.0}
    assert len(seen(out)) == 512
    asked = [each for each in registry.asked() if each.startswith("GET")]
    workers = spark.sparkContext.defaultParallelism
    assert 0 < len(asked) <= 4 * workers


def test_keys_have_schemas_too(kafka: KafkaBroker, registry: SchemaRegistry) -> None:
    """A schema that is no record takes the column ``key``, and makes it."""
    key, value = Avro("long", registry=registry.url), Avro(SALE, registry=registry.url)
    storage, out = Storage.in_memory(), Log(kafka, partitions=1)
    fields = Fields("key long, customer string, amount double")
    rows = [[at, *sale] for at, sale in enumerate(SALES)]
    builder = TransactionalTopologyBuilder(
        "write", "rows", MemoryTransactionalSpout({0: rows}, fields, 5)
    )
    sink = KafkaSink(kafka.servers, out.name, key=key, value=value)
    builder.set_bolt("out", sink).global_grouping("rows")
    run_to_end(builder.build_topology(), storage)

    spout = out.transactional(key=key, value=value, columns=("key", "value"))
    builder = TransactionalTopologyBuilder("read", "records", spout)
    kept = storage.state("kept", Fields("key long"), Fields("value double"))
    adding = PersistentAggregate(kept, "key", Sum("amount"))
    builder.set_bolt("kept", adding).fields_grouping("records", "key")
    run_to_end(builder.build_topology(), Storage(storage.url))

    assert spout.output_fields == fields
    assert storage.read("kept") == {at: amount for at, (_, amount) in enumerate(SALES)}
    assert set(registry.subjects()) == {f"{out.name}-key", f"{out.name}-value"}


def test_a_schema_that_is_incompatible_is_refused_at_the_start(
    kafka: KafkaBroker, registry: SchemaRegistry
) -> None:
    format, out = format_of(registry, "avro"), Log(kafka, partitions=1)
    registry.register(f"{out.name}-value", record(field("customer", "string")))
    log = filled(kafka, format)
    topology = summing(
        log, format, Storage.in_memory(), KafkaSink(kafka.servers, out.name, value=format)
    )

    with pytest.raises(ConfigError, match="incompatible with an earlier schema for subject"):
        start_topology(topology.graph, None, LOCAL, ensemble=Storage.in_memory().ensemble)


def test_a_registry_that_is_away_fails_the_start_of_a_sink(
    kafka: KafkaBroker, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    format, out = format_of(registry, "avro"), Log(kafka, partitions=1)
    log = filled(kafka, format)
    sink = KafkaSink(kafka.servers, out.name, value=format)
    topology = summing(log, format, Storage.in_memory(), sink)
    a_new_process(monkeypatch)
    registry.kill()

    with pytest.raises(InfrastructureError, match="cannot register a schema of"):
        start_topology(topology.graph, None, LOCAL, ensemble=Storage.in_memory().ensemble)


def test_tuples_that_do_not_fit_the_schema_are_refused_when_the_topology_is_built(
    kafka: KafkaBroker, registry: SchemaRegistry
) -> None:
    rows = MemoryTransactionalSpout({0: [["a", "b"]]}, Fields("customer string, amount string"), 1)
    builder = TransactionalTopologyBuilder("sales", "rows", rows)
    sink = KafkaSink(kafka.servers, "out", value=format_of(registry, "avro"))
    builder.set_bolt("out", sink).global_grouping("rows")

    with pytest.raises(TopologyError, match=r"KafkaSink 'out' cannot write.*got string"):
        builder.build_topology()


def test_a_dead_letter_can_be_avro(kafka: KafkaBroker, registry: SchemaRegistry) -> None:
    letter = record(field("batch", "long"), field("place", "string"), field("record", "string"))
    format, dead = format_of(registry, "avro"), Log(kafka, partitions=1)
    log, storage = filled(kafka, format, b"bad"), Storage.in_memory()
    letters = Avro(letter, registry=registry.url)
    builder = TransactionalTopologyBuilder(
        "sales",
        "sales",
        log.transactional(value=format),
        dead_letters=KafkaSink(kafka.servers, dead.name, value=letters),
    )
    totals = storage.state("totals", Fields("key string"), Fields("value double"))
    adding = PersistentAggregate(totals, "customer", Sum("amount"))
    builder.set_bolt("totals", adding).fields_grouping("sales", "customer")

    run_to_end(builder.build_topology(), storage)

    ((batch, place, bad),) = values_of(dead, letters)
    assert (batch, json.loads(place)["topic"], bad) == (1, log.name, "bad")


def test_the_example_books_each_sale_once(
    kafka: KafkaBroker, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    sale = Avro(kafka_avro.SALE, registry=registry.url)
    log, out, storage = Log(kafka), Log(kafka, partitions=1), Storage.in_memory()
    rows = [("ann", Decimal("12.50"), None), ("bob", Decimal("3.00"), "x"), ("ann", Decimal(1), "")]
    log.write([written(sale, *row, topic=log.name) for row in rows])
    monkeypatch.setattr(kafka_avro, "SALES", log.name)
    monkeypatch.setattr(kafka_avro, "BOOKED", out.name)

    topology = kafka_avro.booking(kafka.servers, registry.url, storage.url)
    run_to_end(topology, Storage(storage.url))

    assert storage.read("totals") == {"ann": Decimal("13.50"), "bob": Decimal("3.00")}
    booked = Avro(kafka_avro.BOOKING, registry=registry.url)
    assert sorted(values_of(out, booked)) == sorted(row[:2] for row in rows)
