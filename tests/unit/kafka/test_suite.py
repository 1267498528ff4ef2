"""Both Kafka spouts keep the rules of their kind."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.harness.polling import wait_until
from tests.harness.servers.kafka import KafkaBroker
from tests.unit.kafka.logs import Log
from txtopo import Fields
from txtopo.spouts import KafkaOpaqueSpout, KafkaTransactionalSpout
from txtopo.testing.conformance import SpoutSource, SpoutSuite
from txtopo.testing.conformance.spout_source import Spout

pytestmark = pytest.mark.service("kafka")


class KafkaSource(SpoutSource):
    """A topic, whose records are JSON. A partition of it never goes away by itself."""

    def __init__(self, kafka: KafkaBroker) -> None:
        self.log = Log(kafka, partitions=self.partitions)
        self.ends = dict.fromkeys(range(self.partitions), 0)

    def spout(self) -> Spout:
        return KafkaTransactionalSpout(
            self.log.kafka.servers,
            self.log.name,
            value=Fields("n long"),
            columns=("partition", "value"),
            batch_rows_max=self.batch_rows_max,
        )

    def append(self, partition: int, count: int) -> Sequence[tuple[int, int]]:
        start = self.ends[partition]
        self.ends[partition] += count
        numbers = range(start, start + count)
        self.log.write_to(partition, [f'{{"n": {n}}}' for n in numbers])
        return [(partition, n) for n in numbers]

    def add_partition(self) -> None:
        self.ends[len(self.ends)] = 0
        self.log.grow(len(self.ends))
        wait_until(
            lambda: self.log.partitions() == len(self.ends), "the broker shows the partitions"
        )

    def lose(self, partition: int) -> None:
        self.log.delete_before(partition, self.ends[partition])


class OpaqueKafkaSource(KafkaSource):
    def spout(self) -> Spout:
        return KafkaOpaqueSpout(
            self.log.kafka.servers,
            self.log.name,
            value=Fields("n long"),
            columns=("partition", "value"),
            batch_rows_max=self.batch_rows_max,
            on_data_loss=self.on_data_loss,
        )


class RecordingKafkaSource(OpaqueKafkaSource):
    on_data_loss = "record"


class TestKafka(SpoutSuite):
    @pytest.fixture
    def source(self, kafka: KafkaBroker) -> SpoutSource:
        return KafkaSource(kafka)


class TestOpaqueKafka(SpoutSuite):
    @pytest.fixture
    def source(self, kafka: KafkaBroker) -> SpoutSource:
        return OpaqueKafkaSource(kafka)


class TestRecordingKafka(SpoutSuite):
    @pytest.fixture
    def source(self, kafka: KafkaBroker) -> SpoutSource:
        return RecordingKafkaSource(kafka)
