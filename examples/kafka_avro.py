"""Books the sales of a Kafka topic: Avro in, totals in a database, and Avro out to another topic.

Each sale counts once and is booked once, whatever crashes, and a record that is no sale is kept as
a dead letter. Run it with ``python -m examples.kafka_avro broker:9092 http://registry:8081``, where
both topics are; it ends when it has booked what is there.
"""

from __future__ import annotations

import sys

from txtopo import (
    Avro,
    Config,
    PersistentAggregate,
    Sum,
    Topology,
    TransactionalTopologyBuilder,
    open_state,
)
from txtopo.bolts import KafkaSink
from txtopo.spouts import KafkaTransactionalSpout

SALES, BOOKED = "sales", "sales.booked"
AMOUNT = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
# What the producers write may have more fields than this.
SALE = {
    "type": "record",
    "name": "Sale",
    "fields": [
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": AMOUNT},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
BOOKING = {
    "type": "record",
    "name": "Booking",
    "fields": [{"name": "customer", "type": "string"}, {"name": "amount", "type": AMOUNT}],
}


def booking(servers: str, registry: str, state: str) -> Topology:
    """Return the topology: topic ``sales`` into table ``totals`` and topic ``sales.booked``."""
    spout = KafkaTransactionalSpout(
        servers, SALES, value=Avro(SALE, registry=registry), columns=("value",)
    )
    totals = PersistentAggregate(open_state(state, table="totals"), "customer", Sum("amount"))
    booked = KafkaSink(servers, BOOKED, key="customer", value=Avro(BOOKING, registry=registry))
    builder = TransactionalTopologyBuilder(
        "kafka-avro", "sales", spout, 2, dead_letters=open_state(state)
    )
    builder.set_bolt("totals", totals, 2).fields_grouping("sales", "customer")
    builder.set_bolt("booked", booked).global_grouping("sales")
    return builder.build_topology()


def main(servers: str, registry: str, state: str = "sqlite:///sales.db") -> None:
    """Book what is there, and print the totals."""
    with booking(servers, registry, state).start(config=Config()) as run:
        run.process_all_available()
    with open_state(state, table="totals").reader() as reader:
        for customer, amount in sorted(reader.items()):
            print(f"{customer}: {amount}")


if __name__ == "__main__":
    main(*sys.argv[1:])
