"""The changelog of a table in Kafka: consumers see the difference of each txid once."""

from __future__ import annotations

import json

import pytest

from examples.streams_stock import topology
from tests.harness.servers.kafka import KafkaBroker
from tests.unit.kafka.logs import Log
from tests.unit.kafka.test_sink import seen
from txtopo import Config
from txtopo.bolts import KafkaSink

pytestmark = pytest.mark.service("kafka")


@pytest.mark.parametrize("group_txids_max", [1, 10])
def test_a_changelog_has_the_difference_of_each_txid(
    kafka: KafkaBroker, group_txids_max: int
) -> None:
    log = Log(kafka, partitions=1)
    value = ["before_pieces", "pieces"]
    sink = KafkaSink(kafka.servers, log.name, key="product", value=value)
    config = Config(carrier="local", zookeeper="memory", group_txids_max=group_txids_max)

    with topology("memory:", sink).start(config=config) as run:
        run.process_all_available()

    pairs = [tuple(json.loads(each).values()) for each in seen(log)]
    assert pairs == [(None, 7), (None, 4), (7, 8), (4, 0), (8, 7)]
