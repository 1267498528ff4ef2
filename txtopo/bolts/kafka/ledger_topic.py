"""LedgerTopic: the ledger of a sink as the last record of a compacted topic."""

from __future__ import annotations

import dataclasses
import json
from collections import deque
from typing import TYPE_CHECKING, Any

from txtopo.errors import ConfigError, CorruptNodeError, SchemaDrift, StoreUnavailable
from txtopo.kafka_connection import HEARD_MAX, Connection
from txtopo.state.ledger import Ledger

if TYPE_CHECKING:
    from confluent_kafka import Consumer
    from confluent_kafka.admin import AdminClient

VERSION = 1
# Compaction runs now and then, so there may be a day's ledgers in front of the last. Control
# markers and transactions that were aborted lie in between: look back further where there is none.
_LOOK_BACK = (100, 10_000)
_POLL_S = 0.02
BOUND = b"txtopo-bound"
"""Key of the records that are no ledger, but say how far to read."""


class LedgerTopic:
    """Where a sink's ledger is: topic ``<topic>.txtopo-ledger``, one partition, compacted.

    Attributes:
        name: Name of the topic.
    """

    def __init__(self, connection: Connection, topic: str) -> None:
        self._connection = connection
        self._topic = topic
        self.name = f"{topic}.txtopo-ledger"

    def create(self) -> None:
        """Make the topic if it is missing.

        It is kept as safe as the records, in as many copies: if it were lost alone, nobody would
        know what was written. A topic that takes a copy that is behind for the newest
        (``unclean.leader.election.enable``) loses what it has acknowledged, and the records alone
        of both may lose it: then their txid is done, and nobody brings them again.

        Raises:
            ConfigError: The topic of the records is not there, or may lose what it acknowledged.
            SchemaDrift: The ledger's topic has several partitions, or is not compacted.
        """
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import (  # type: ignore[attr-defined]
            AdminClient,
            NewTopic,
        )

        timeout_s = self._connection.timeout_s
        admin = AdminClient(self._connection.of_client(deque(maxlen=HEARD_MAX)))
        topics = admin.list_topics(timeout=timeout_s).topics
        if self._topic not in topics:
            raise ConfigError(
                f"topic of a KafkaSink is not there; got {self._topic!r}; make it before the "
                "topology starts",
                topic=self._topic,
            )
        told = self._settings(admin, [n for n in (self._topic, self.name) if n in topics])
        if self.name not in topics:
            least = told[self._topic]["min.insync.replicas"].value
            copies = len(topics[self._topic].partitions[0].replicas)
            kept = {"cleanup.policy": "compact", "min.insync.replicas": least}
            new = NewTopic(self.name, 1, copies, config=kept)
            try:
                admin.create_topics([new])[self.name].result(timeout_s)
            except KafkaException as error:
                if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                    raise
            return
        policy = told[self.name]["cleanup.policy"].value
        partitions = len(topics[self.name].partitions)
        if partitions != 1 or policy != "compact":
            raise SchemaDrift(
                f"topic {self.name!r} cannot hold a ledger; got {partitions} partitions and "
                f"cleanup.policy={policy}; expected one partition and compact; without that "
                "retention may delete the ledger",
                topic=self.name,
            )

    def _settings(self, admin: AdminClient, topics: list[str]) -> dict[str, dict[str, Any]]:
        """Return the settings of topics, none of which may lose what it has acknowledged."""
        from confluent_kafka.admin import (  # type: ignore[attr-defined]
            ConfigResource,
            ResourceType,
        )

        resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
        answers = admin.describe_configs(resources)
        timeout_s = self._connection.timeout_s
        told = {each.name: answers[each].result(timeout_s) for each in resources}
        for name in topics:
            if told[name]["unclean.leader.election.enable"].value == "true":
                raise ConfigError(
                    f"topic {name!r} cannot keep exactly once; got "
                    "unclean.leader.election.enable=true, so a copy that is behind may become the "
                    "newest, without what was acknowledged; expected false",
                    topic=name,
                )
        return told

    def record(self, ledger: Ledger) -> dict[str, Any]:
        """Return the key and value of a ledger's record."""
        text = json.dumps({"version": VERSION, **dataclasses.asdict(ledger)})
        return {"key": self._topic.encode(), "value": text.encode()}

    def read(self, bound: int) -> Ledger | None:
        """Return the last committed ledger before offset *bound*; None if there is none.

        Waits until the record at *bound* is visible, so that no ledger before it is missed.

        Raises:
            CorruptNodeError: It cannot be read.
            StoreUnavailable: The broker does not answer.
        """
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(self._connection.of_consumer(deque(maxlen=HEARD_MAX)))
        try:
            place = TopicPartition(self.name, 0)
            low, _ = consumer.get_watermark_offsets(place, self._connection.timeout_s)
            for back in (*_LOOK_BACK, bound):
                data = self._last(consumer, max(low, bound - back), bound)
                if data is not None or bound - back <= low:
                    return None if data is None else self._parsed(data)
        finally:
            consumer.close()
        return None

    def visible(self) -> Ledger | None:
        """Return the last ledger that readers see now; None if there is none, or no topic.

        It disturbs nobody, unlike a claim; what is committed meanwhile is not in it.

        Raises:
            CorruptNodeError: It cannot be read.
            StoreUnavailable: The broker does not answer.
        """
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(self._connection.of_consumer(deque(maxlen=HEARD_MAX)))
        try:
            timeout_s = self._connection.timeout_s
            if self.name not in consumer.list_topics(timeout=timeout_s).topics:
                return None
            low, high = consumer.get_watermark_offsets(TopicPartition(self.name, 0), timeout_s)
            for back in (*_LOOK_BACK, high):
                data = self._last(consumer, max(low, high - back), None)
                if data is not None or high - back <= low:
                    return None if data is None else self._parsed(data)
        finally:
            consumer.close()
        return None

    def _last(self, consumer: Consumer, start: int, end: int | None) -> bytes | None:
        """Return the last ledger from *start* up to offset *end*, or what is visible."""
        from confluent_kafka import TopicPartition

        last, idle_s = None, 0.0
        consumer.assign([TopicPartition(self.name, 0, start)])
        while True:
            got = consumer.consume(1000, _POLL_S)
            for message in got:
                error = message.error()
                if error is not None:
                    if end is None and error.name() == "_PARTITION_EOF":
                        return last
                    continue
                if end is not None and int(message.offset() or 0) >= end:
                    return last
                if message.key() != BOUND:
                    last = message.value()
                idle_s = 0.0
            idle_s += _POLL_S
            if idle_s > self._connection.timeout_s:
                raise StoreUnavailable(
                    f"the ledger in topic {self.name!r} cannot be read; Kafka at "
                    f"{self._connection.servers} sent nothing for {self._connection.timeout_s} s"
                )

    def _parsed(self, data: bytes) -> Ledger:
        try:
            parts = json.loads(data)
            if parts.pop("version") != VERSION:
                raise ValueError("it was written by another version of txtopo")
            return Ledger(**parts)
        except (ValueError, TypeError, KeyError) as error:
            raise CorruptNodeError(
                f"the last record of topic {self.name!r} is no ledger; got {data!r:.200} "
                f"({error}); who else writes there? bring back the last one of txtopo's",
                topic=self.name,
            ) from error
