"""The publisher of an outbox is killed while it publishes: no row is left out or changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from examples.outbox import publisher, shop, to_kafka, to_rabbitmq
from tests.harness.polling import LIMIT_S
from tests.harness.processes import Child
from tests.harness.servers.kafka import KafkaBroker
from tests.harness.servers.rabbitmq import RabbitServer
from tests.harness.servers.zookeeper import ZooKeeperProcess
from tests.unit.kafka.logs import Log
from tests.unit.sources.queues import TestQueue
from txtopo import Config, open_state

PUBLISHER = "tests.faults.processes.outbox_process"
Sent = list[tuple[str, dict[str, Any]]]
"""The key and the values of each message."""


def in_kafka(log: Log) -> Sent:
    """Read a topic of one partition to its end."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": log.kafka.servers, "group.id": uuid4().hex})
    place = TopicPartition(log.name, 0, 0)
    _, end = consumer.get_watermark_offsets(place, LIMIT_S)
    consumer.assign([place])
    found: Sent = []
    while len(found) < end:
        for message in consumer.consume(end - len(found), 1.0):
            assert message.error() is None
            key = dict(message.headers() or {})["key"]
            assert isinstance(key, bytes)
            found.append((key.decode(), json.loads(message.value() or b"")))
    consumer.close()
    return found


def in_rabbitmq(queue: TestQueue) -> Sent:
    """Read a queue to its end."""
    found: Sent = []
    with queue.server.connect() as connection:
        channel = connection.channel()
        while (got := channel.basic_get(queue.name, auto_ack=True))[0] is not None:
            found.append((str(got[1].message_id), json.loads(got[2])))
    return found


@pytest.mark.service("kafka")
@pytest.mark.service("rabbitmq")
@pytest.mark.service("zookeeper")
def test_a_killed_publisher_sends_each_row_at_least_once_with_its_key(
    kafka: KafkaBroker, rabbitmq: RabbitServer, zookeeper: ZooKeeperProcess, tmp_path: Path
) -> None:
    log, queue = Log(kafka, 1), TestQueue(rabbitmq)
    url, hosts = f"sqlite:///{tmp_path}/shop.db", f"{zookeeper.hosts}/{uuid4().hex}"
    config = Config(carrier="local", zookeeper=hosts)
    with shop(url).start(config=config) as run:
        run.process_all_available(LIMIT_S)
    with open_state(url, table="outbox").reader() as reader:
        held = {f"shop/outbox/{txid}/{at}": row for (txid, at), row in reader.items()}
    half = len(held) // 2
    assert half > 10

    places = {"kafka": (kafka.servers, log.name), "rabbitmq": (rabbitmq.url(), queue.name)}
    with (
        Child(PUBLISHER, url, hosts, "kafka", *places["kafka"], str(half)) as half_way,
        Child(PUBLISHER, url, hosts, "rabbitmq", *places["rabbitmq"], str(len(held))) as all_sent,
    ):
        for child, rows in ((half_way, half), (all_sent, len(held))):
            assert child.wait_for("sent")["rows"] == rows
            child.kill()
    sends = {"kafka": to_kafka(*places["kafka"]), "rabbitmq": to_rabbitmq(*places["rabbitmq"])}
    for name, send in sends.items():
        with publisher(url, name, config) as published:
            assert published.publish_ready(send) == len(held)
            assert published.publish_ready(send) == 0

    for sent, again in ((in_kafka(log), half), (in_rabbitmq(queue), len(held))):
        assert len(sent) == len(held) + again
        assert all(held[key] == values for key, values in sent)
        assert dict(sent) == held
