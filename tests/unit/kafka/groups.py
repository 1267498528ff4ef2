"""A consumer group of a test's own: its offsets and members, and spouts that read for it."""

from __future__ import annotations

import uuid
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicPartition,
)

from tests.harness.polling import LIMIT_S, retry, wait_until
from tests.harness.servers.kafka import KafkaBroker
from tests.unit.kafka.logs import Log
from tests.unit.sources.queues import Driven
from txtopo import AtLeastOnceConfig
from txtopo.spouts import KafkaSpout

# Changes of a group are found in half a second, not in three.
QUICK = {"heartbeat.interval.ms": 500}


class Group:
    """A group that reads one topic."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.kafka: KafkaBroker = log.kafka
        self.name = f"group-{uuid.uuid4().hex[:8]}"

    def spout(self, *, settings: dict[str, Any] | None = None, **options: Any) -> KafkaSpout:
        """Return a spout that emits the values as text."""
        given = {"value": "string", "columns": ("value",)} | options
        settings = QUICK | (settings or {})
        return KafkaSpout(self.kafka.servers, self.log.name, self.name, settings=settings, **given)

    def driven(self, *, acks: bool = False, **options: Any) -> Driven:
        """Return a spout that the test calls."""
        return Driven(self.spout(**options), AtLeastOnceConfig(poll_interval_s=0.001), acks=acks)

    def committed(self) -> dict[int, int]:
        """Return the committed offsets, by partition."""
        return {each.partition: each.offset for each in self._committed() if each.offset >= 0}

    def told(self) -> str:
        """Return what was committed with the offset of partition 0."""
        return str(self._committed()[0].metadata)

    def _committed(self) -> list[TopicPartition]:
        numbers = self.kafka.admin.list_topics(self.log.name, timeout=LIMIT_S).topics
        places = [TopicPartition(self.log.name, n) for n in numbers[self.log.name].partitions]
        # One that asks and joins nothing. The answers of an AdminClient, asked again and again,
        # have crashed the interpreter.
        consumer = Consumer({"bootstrap.servers": self.kafka.servers, "group.id": self.name})
        try:
            # A broker that has just started may not have loaded its groups yet.
            return retry(lambda: consumer.committed(places, timeout=LIMIT_S), KafkaException)
        finally:
            consumer.close()

    def set_to(self, offset: int, told: str = "") -> None:
        """Set the offset of partition 0, as Kafka's own tool does."""
        place = TopicPartition(self.log.name, 0, offset, told)
        asked = [ConsumerGroupTopicPartitions(self.name, [place])]
        admin = self.kafka.admin
        retry(
            lambda: admin.alter_consumer_group_offsets(asked)[self.name].result(LIMIT_S),
            KafkaException,
        )

    def members(self) -> int:
        """Return how many consumers are in the group."""
        return len(self.instances())

    def instances(self) -> list[str | None]:
        """Return the static name of each consumer in the group."""

        def ask() -> list[str | None]:
            described = self.kafka.admin.describe_consumer_groups([self.name])
            members = described[self.name].result(LIMIT_S).members
            return [member.group_instance_id for member in members]

        return retry(ask, KafkaException)


def turn_until(*driven: Driven, tuples: int) -> None:
    """Call spouts in turn until they have emitted this many tuples together."""

    def are_emitted() -> bool:
        for each in driven:
            each.spout.next_tuple()
        return sum(len(each.emitted) for each in driven) >= tuples

    wait_until(
        are_emitted,
        lambda: f"{tuples} are emitted; got {[len(each.emitted) for each in driven]}",
        pause_s=0.001,
    )
