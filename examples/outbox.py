"""A shop that sends an event for each large order: an outbox, published to Kafka and RabbitMQ.

The topology keeps totals and events in one database, exactly once, and sends nothing. Publishers
send the events, in processes of their own, at least once: the key of each event goes along, as a
header in Kafka and as the message id in RabbitMQ, and a consumer drops what it has seen. Start it
with ``python examples/outbox.py``; with ``--only kafka`` or ``--only rabbitmq`` it publishes for
ever, without the topology, and may be killed at any time.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pika
from confluent_kafka import KafkaError, Message, Producer

from txtopo import Config, Fields, StreamBuilder, Sum, Topology, Tuple, ZooKeeper, open_state
from txtopo.outbox import OutboxRow, Publisher
from txtopo.spouts import MemoryTransactionalSpout

ORDERS: list[list[Any]] = [[n, ("ann", "bob", "cid")[n % 3], 100 * (n % 7)] for n in range(90)]
Send = Callable[[Sequence[OutboxRow]], None]


def is_large(order: Tuple) -> bool:
    """Return whether an order is worth an event."""
    return bool(order["cents"] >= 300)


def shop(url: str, orders: Sequence[list[Any]] = ORDERS) -> Topology:
    """Return the topology: orders into the tables ``totals`` and ``outbox``."""
    spout = MemoryTransactionalSpout({0: orders}, Fields("id long, customer string, cents long"), 9)
    builder = StreamBuilder("shop")
    rows = builder.source("orders", spout)
    totals = open_state(url, table="totals")
    rows.group_by("customer").persistent_aggregate(totals, cents=Sum("cents"))
    rows.filter(is_large).append(open_state(url, table="outbox"))
    return builder.build_topology()


def to_kafka(servers: str, topic: str) -> Send:
    """Return a function that sends rows to a topic, and returns once the brokers have them."""
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "enable.idempotence": True})

    def send(rows: Sequence[OutboxRow]) -> None:
        errors: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                errors.append(error)

        for at, row in enumerate(rows, 1):
            customer = row.values["customer"]
            producer.produce(
                topic, body(row), customer, headers={"key": row.key}, on_delivery=delivered
            )
            if at % 10_000 == 0:  # its queue has room for more than that
                producer.flush(30.0)
        if producer.flush(30.0) or errors:
            raise ConnectionError(f"Kafka did not accept all rows: {errors or 'no answer'}")

    return send


def to_rabbitmq(url: str, queue: str) -> Send:
    """Return a function that sends rows to a queue, and returns once the server has them."""

    def send(rows: Sequence[OutboxRow]) -> None:
        # A connection that is idle between two calls would be closed by the server.
        with pika.BlockingConnection(pika.URLParameters(url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for row in rows:
                kept = pika.BasicProperties(message_id=row.key, delivery_mode=2)
                channel.basic_publish("", queue, body(row), kept, mandatory=True)

    return send


def body(row: OutboxRow) -> bytes:
    """Return a row as JSON."""
    return json.dumps(row.values).encode()


def publisher(url: str, name: str, config: Config) -> Publisher:
    """Return a publisher of the outbox. Each name publishes all rows."""
    return Publisher(open_state(url, table="outbox"), name, config)


def main() -> None:
    """Run the shop and publish its events, or publish for ever."""
    parser = argparse.ArgumentParser(description="publish the outbox of a shop")
    parser.add_argument("--kafka", default="localhost:9092", help="bootstrap servers")
    parser.add_argument("--topic", default="events", help="a topic that exists")
    parser.add_argument("--rabbitmq", default="amqp://guest:guest@localhost/%2F", help="its URL")
    parser.add_argument("--queue", default="events", help="a queue that exists")
    parser.add_argument("--dir", type=Path, default=Path("txtopo-demo"), help="folder of all files")
    parser.add_argument(
        "--only", choices=("kafka", "rabbitmq"), help="publish to this broker, until stopped"
    )
    args = parser.parse_args()
    args.dir.mkdir(parents=True, exist_ok=True)
    url = f"sqlite:///{args.dir / 'shop.db'}"
    config = Config(zookeeper=ZooKeeper(dir=str(args.dir / "txtopo-zookeeper")))
    sends: dict[str, Callable[[], Send]] = {
        "kafka": lambda: to_kafka(args.kafka, args.topic),
        "rabbitmq": lambda: to_rabbitmq(args.rabbitmq, args.queue),
    }
    if args.only is not None:
        send = sends[args.only]()
        with publisher(url, args.only, config) as published:
            while True:
                if not published.publish_ready(send):
                    time.sleep(1)
    with shop(url).start(config=config) as run:
        run.process_all_available()
        for name, make in sends.items():
            with publisher(url, name, config) as published:
                print(f"{published.publish_ready(make())} events to {name}")


if __name__ == "__main__":
    main()
