"""Orders and payments, joined over time: which order was paid within an hour, and which was not.

An order matches the payments of its id that come up to an hour later, in event time. An order that
has no payment leaves once, when the watermark of both streams says that none can come any more. Run
it with ``python examples/streams_orders_payments.py``.
"""

from __future__ import annotations

import datetime
from typing import Any

from pyspark.sql import SparkSession

from txtopo import Config, Fields, StreamBuilder, Topology, open_state
from txtopo.spouts import MemoryTransactionalSpout

NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
ORDER = Fields("order_id string, customer string, total long, ts timestamp")
PAYMENT = Fields("payment_id string, order_id string, paid long, paid_at timestamp")
TAKE = 1


def at(minutes: int) -> datetime.datetime:
    """Return a time this many minutes after noon."""
    return NOON + datetime.timedelta(minutes=minutes)


ORDERS: list[list[Any]] = [
    ["o1", "ann", 50, at(0)],
    ["o2", "bob", 20, at(5)],
    ["o3", "ann", 70, at(12)],
    ["o4", "cid", 10, at(15)],
    ["o5", "dan", 30, at(200)],
]
PAYMENTS: list[list[Any]] = [
    ["p1", "o1", 30, at(10)],
    ["p2", "o1", 20, at(60)],  # the last moment
    ["p3", "o2", 20, at(66)],  # a minute too late
    ["p4", "o3", 70, at(40)],
    ["p5", "o9", 99, at(190)],  # of no order
]


def topology(url: str) -> Topology:
    """Return the topology, with the tables ``settled``, ``unpaid`` and those of the join."""
    builder = StreamBuilder("stream-orders-payments")
    orders = builder.source(
        "orders",
        MemoryTransactionalSpout({0: ORDERS}, ORDER, TAKE),
        event_time="ts",
        delay="1 minute",
        max_ahead=None,
    )
    payments = builder.source(
        "payments",
        MemoryTransactionalSpout({0: PAYMENTS}, PAYMENT, TAKE),
        event_time="paid_at",
        delay="30 minutes",
        max_ahead=None,
    )
    both = orders.join(
        payments,
        on="order_id",
        within=("0 minutes", "1 hour"),
        how="left",
        state=open_state(url, table="order_payment"),
    )
    unpaid, settled = both.branch(lambda row: row["payment_id"] is None)
    settled.store(open_state(url, table="settled"), key=("order_id", "payment_id"))
    unpaid.select("order_id", "customer", "total").store(
        open_state(url, table="unpaid"), key="order_id"
    )
    return builder.build_topology()


def main(
    spark: SparkSession | None = None,
    config: Config = Config(),
    url: str = "sqlite:///streams_orders_payments.db",
) -> None:
    """Join orders and payments, and print what was paid and what was not."""
    with topology(url).start(spark, config) as run:
        run.process_all_available()

    with open_state(url, table="settled").reader() as reader:
        for (order, payment), row in sorted(reader.items()):
            print(f"{order}: {payment} pays {row['paid']} of {row['total']}")
    with open_state(url, table="unpaid").reader() as reader:
        for order, row in sorted(reader.items()):
            print(f"{order}: {row['customer']} has not paid {row['total']}")


if __name__ == "__main__":
    main()
