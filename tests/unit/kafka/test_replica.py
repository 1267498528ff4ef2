"""A replica of a PostgreSQL table, made of Debezium's records, is right after each txid."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, ClassVar, cast

import pytest
from confluent_kafka import Producer

from tests.harness.polling import LIMIT_S
from tests.harness.runs import LOCAL, Storage, run_to_end, running
from tests.harness.servers.kafka import KafkaBroker
from tests.harness.servers.postgresql import PostgresServer
from tests.unit.kafka.capture import (
    SETTINGS,
    Captured,
    Table,
    captured,
    described,
    plain,
    recorded,
    table_of,
)
from tests.unit.kafka.logs import Log
from tests.unit.kafka.test_decoding import Record
from txtopo import Config, Count, Debezium, StreamBuilder, Sum, Topology
from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.context import TaskContext
from txtopo.kafka.reading import RecordColumns
from txtopo.metadata import Json
from txtopo.spouts import OpaqueMemoryTransactionalSpout
from txtopo.spouts.spout import (
    LastBatch,
    OpaquePartitionedTransactionalEmitter,
    PartitionedCoordinator,
)


class RecordsSpout(OpaqueMemoryTransactionalSpout):
    """Decodes the records of each txid as the spouts of Kafka do; a test says when one may begin.

    Attributes:
        allowed: The last txid that may begin.
        txids: The records of each txid.
    """

    allowed: ClassVar[int] = 0
    txids: ClassVar[list[list[Record]]] = []

    def __init__(self, format: Debezium) -> None:
        self.columns = RecordColumns(("value",), value=format)
        super().__init__({0: []}, self.columns.fields(), 1)

    def coordinator(self, config: Config, context: TaskContext) -> PartitionedCoordinator:
        return RecordsCoordinator()

    def emitter(
        self, config: Config, context: TaskContext
    ) -> OpaquePartitionedTransactionalEmitter:
        return RecordsEmitter(self.columns)


class RecordsCoordinator(PartitionedCoordinator):
    """See the spout."""

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        return txid <= RecordsSpout.allowed

    def number_of_partitions(self) -> int:
        return 1


class RecordsEmitter(OpaquePartitionedTransactionalEmitter):
    """See the spout."""

    def __init__(self, columns: RecordColumns) -> None:
        self._columns = columns

    def emit_partition_batch(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        last_metadata: Json,
        *,
        rows_max: int | None = None,
    ) -> Json:
        records = RecordsSpout.txids[attempt.txid - 1]
        schema = self._columns.fields().arrow_schema()
        self._columns.emit(cast(Any, records), schema, collector)
        return attempt.txid


def replica(spout: Any, storage: Storage) -> Topology:
    """Return the program: the replica, and the sum of each owner."""
    builder = StreamBuilder("replica")
    rows = builder.source("accounts", spout).as_changes(
        storage.state("captured"),
        "id",
        position="position",
        timeline="timeline",
        on_truncate="clear",
    )
    rows.as_table(storage.state("replica"), "id")
    sums = rows.group_by("day")
    sums.persistent_aggregate(storage.state("sums"), n=Count(), total=Sum("price"))
    return builder.build_topology()


def assert_equal(storage: Storage, table: Table) -> None:
    """Check the replica row by row, and sum by sum."""
    found = {id: {"id": id, **row} for id, row in storage.read("replica").items()}
    assert found == table
    expected: dict[Any, tuple[int, Decimal]] = {}
    for row in table.values():
        n, total = expected.get(row["day"], (0, Decimal(0)))
        expected[row["day"]] = (n + 1, total + row["price"])
    sums = storage.read("sums")
    assert {day: (each["n"], each["total"]) for day, each in sums.items() if each["n"]} == expected


def check_each_txid(format: Debezium, records: Sequence[Captured], size: int) -> Table:
    """Run the program over records, and compare it with the model after each txid."""
    storage, model = Storage.in_memory(), Table()
    parts = [records[at : at + size] for at in range(0, len(records), size)]
    RecordsSpout.txids = [[Record(r.value, name=r.key) for r in part] for part in parts]
    RecordsSpout.allowed = 0
    with running(replica(RecordsSpout(format), storage), storage, LOCAL) as run:
        for part in parts:
            RecordsSpout.allowed += 1
            run.process_all_available(LIMIT_S)
            for record in part:
                record.apply(model)
            assert_equal(storage, model)
    return model


def test_a_replica_is_right_after_each_txid() -> None:
    assert check_each_txid(described(), recorded(), 60)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.service("postgresql")
def test_a_replica_of_a_hundred_thousand_transactions_is_right_after_each_txid() -> None:
    server = PostgresServer(SETTINGS)
    server.start()
    try:
        records = [*captured(server, 40, 100_000, schemas=False)]
        assert check_each_txid(plain(), records, 200) == table_of(server)
    finally:
        server.end()


@pytest.mark.service("kafka")
def test_a_replica_is_right_whatever_partition_a_record_is_in(kafka: KafkaBroker) -> None:
    """A truncate has no key, so it comes before or after changes of other partitions."""
    log, storage, model = Log(kafka, partitions=3), Storage.in_memory(), Table()
    write(log, recorded())
    spout = log.opaque(value=described(), columns=("value",), batch_rows_max=70)

    run_to_end(replica(spout, storage), storage)

    for record in recorded():
        record.apply(model)
    assert_equal(storage, model)


def write(log: Log, records: Iterable[Captured]) -> None:
    producer = Producer({"bootstrap.servers": log.kafka.servers, "linger.ms": 5})
    for each in records:
        producer.produce(log.name, each.value, each.key)
    assert producer.flush(LIMIT_S) == 0
