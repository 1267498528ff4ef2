"""Kafka after a source that has ended: it begins at the place that was given, whatever the txid."""

from __future__ import annotations

import pytest

from tests.harness.servers.kafka import KafkaBroker
from tests.unit.kafka.logs import Log
from txtopo import Fields
from txtopo.metadata import Json
from txtopo.spouts import (
    KafkaOpaqueSpout,
    KafkaTransactionalSpout,
    MemoryTransactionalSpout,
    SequenceSpout,
)
from txtopo.testing.conformance.spout_driver import SpoutDriver

pytestmark = pytest.mark.service("kafka")
BEFORE = ["a", "b", "c"]


@pytest.mark.parametrize("kind", [KafkaTransactionalSpout, KafkaOpaqueSpout])
def test_kafka_begins_at_offsets_or_at_its_end(
    kind: type[KafkaTransactionalSpout | KafkaOpaqueSpout], kafka: KafkaBroker
) -> None:
    log = Log(kafka, partitions=1)
    log.write_to(0, [f"old-{at}" for at in range(5)])
    first = MemoryTransactionalSpout({0: [[each] for each in BEFORE]}, Fields("value string"), 1)
    then = kind(kafka.servers, log.name, value="string", columns=("value",))
    places: dict[str, Json] = {"offsets": {log.name: {"0": 3}}, "end": "latest"}
    found: dict[str, list[object]] = {}

    for name, place in places.items():
        driver = SpoutDriver(SequenceSpout(first, then, place))
        found[name] = []
        for _ in range(8):
            found[name] += [word for batch in driver.next() for (word,) in batch.rows]
            driver.commit()
        log.write_to(0, [f"new-{name}"])
        for _ in range(3):
            found[name] += [word for batch in driver.next() for (word,) in batch.rows]
            driver.commit()
        driver.close()

    assert found["offsets"] == [*BEFORE, "old-3", "old-4", "new-offsets"]
    assert found["end"] == [*BEFORE, "new-end"]
