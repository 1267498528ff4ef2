"""Topics of a real broker, filled as a test needs them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import NewPartitions, NewTopic  # type: ignore[attr-defined]

from tests.harness.polling import LIMIT_S, retry, wait_until
from tests.harness.servers.kafka import KafkaBroker
from tests.unit.sources.driving import Partitioned, Planner, Row, emit
from txtopo.errors import InfrastructureError
from txtopo.metadata import Json
from txtopo.spouts import KafkaOpaqueSpout, KafkaTransactionalSpout

# Generous: the machine may be busy, and nothing waits for it to pass.
Result = TypeVar("Result")


class Log:
    """A topic of its own for a test."""

    def __init__(
        self,
        kafka: KafkaBroker,
        partitions: int = 2,
        prefix: str = "test",
        end: str = "",
        **config: str,
    ) -> None:
        self.kafka = kafka
        self.name = f"{prefix}-{uuid.uuid4().hex[:8]}{end}"
        # Else records with an old time are deleted as soon as the broker looks.
        config = {"retention_ms": "-1"} | config
        self._config = {name.replace("_", "."): value for name, value in config.items()}
        self.create(partitions)

    def create(self, partitions: int) -> None:
        topic = NewTopic(self.name, partitions, 1, config=self._config)
        wait_until(lambda: self._created(topic), "the topic is made")
        # The controller has made it; the broker learns of it a little later.
        wait_until(lambda: self.partitions() == partitions, "the broker shows the partitions")

    def _created(self, topic: NewTopic) -> bool:
        """Create it; False if the controller has not heard of its only broker for too long."""
        try:
            self.kafka.admin.create_topics([topic])[self.name].result(LIMIT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.INVALID_REPLICATION_FACTOR:
                raise
            return False
        return True

    def delete(self) -> None:
        self.kafka.admin.delete_topics([self.name])[self.name].result(LIMIT_S)
        wait_until(
            lambda: self.name not in self.kafka.admin.list_topics(timeout=LIMIT_S).topics,
            "the broker has deleted the topic",
        )

    def grow(self, partitions: int) -> None:
        grown = self.kafka.admin.create_partitions([NewPartitions(self.name, partitions)])
        grown[self.name].result(LIMIT_S)

    def delete_before(self, partition: int, offset: int) -> None:
        """Delete the first records of a partition, as retention does."""
        place = TopicPartition(self.name, partition, offset)
        for deleted in self.kafka.admin.delete_records([place]).values():
            deleted.result(LIMIT_S)

    def write(self, values: Iterable[Any], partitions: int = 2, **record: Any) -> None:
        """Write values as text, to the partitions in turn."""
        producer = Producer({"bootstrap.servers": self.kafka.servers, "linger.ms": 0})
        self._produce(producer, values, partitions, **record)
        assert producer.flush(LIMIT_S) == 0

    def write_to(self, partition: int, values: Iterable[Any]) -> None:
        """Write values as text to one partition."""
        producer = Producer({"bootstrap.servers": self.kafka.servers, "linger.ms": 0})
        for value in values:
            producer.produce(self.name, str(value).encode(), partition=partition)
        assert producer.flush(LIMIT_S) == 0

    def partitions(self) -> int:
        """Return how many partitions the broker knows of that can be read."""
        known = self.kafka.admin.list_topics(self.name, timeout=LIMIT_S).topics[self.name]
        return sum(partition.leader >= 0 for partition in known.partitions.values())

    def transact(self, values: Iterable[Any], *, commit: bool, partitions: int = 2) -> None:
        """Write values in a transaction."""
        id = f"writer-{uuid.uuid4().hex}"
        producer = Producer({"bootstrap.servers": self.kafka.servers, "transactional.id": id})
        producer.init_transactions(LIMIT_S)
        producer.begin_transaction()
        self._produce(producer, values, partitions)
        producer.flush(LIMIT_S)
        (producer.commit_transaction if commit else producer.abort_transaction)(LIMIT_S)

    def _produce(
        self, producer: Producer, values: Iterable[Any], partitions: int, **record: Any
    ) -> None:
        for at, value in enumerate(values):
            data = value if isinstance(value, bytes | None) else str(value).encode()
            producer.produce(self.name, data, partition=at % partitions, **record)

    def transactional(self, **options: Any) -> KafkaTransactionalSpout:
        given = {"value": "string", "columns": ("value",)} | options
        return KafkaTransactionalSpout(self.kafka.servers, self.name, **given)

    def opaque(self, **options: Any) -> KafkaOpaqueSpout:
        given = {"value": "string", "columns": ("value",)} | options
        return KafkaOpaqueSpout(self.kafka.servers, self.name, **given)


def in_time(action: Callable[[], Result]) -> Result:
    """Try again what a slow broker did not do in time, as the framework does."""
    return retry(action, InfrastructureError)


def values(rows: Iterable[Row]) -> list[Any]:
    return [row[0] for row in rows]


def ranges(metadata: Json) -> dict[str, list[list[int]]]:
    """Return the ranges of a batch by topic, in the order of the partitions."""
    assert isinstance(metadata, dict)
    topics: Any = metadata["topics"]
    return {
        name: [topic["ranges"][p] for p in sorted(topic["ranges"], key=int)]
        for name, topic in topics.items()
    }


def read_all(
    spout: KafkaTransactionalSpout, planner: Planner, number: int, tasks: int = 1
) -> list[Row]:
    """Plan and read until there are as many records, which the broker may show a little later."""
    rows: list[Row] = []

    def enough() -> bool:
        while (metadata := in_time(planner.plan)) is not None:
            rows.extend(in_time(partial(emit, spout, metadata, tasks)))
        return len(rows) >= number

    wait_until(enough, "all records are read")
    return rows


def read_opaque(run: Partitioned, number: int) -> list[Row]:
    """The same for an opaque spout."""
    rows: list[Row] = []

    def enough() -> bool:
        txid = max(run.cuts) + 1
        while in_time(partial(run.ready, txid, txid - 1)):
            rows.extend(in_time(partial(run.attempt, txid)))
            txid += 1
        return len(rows) >= number

    wait_until(enough, "all records are read")
    return rows
