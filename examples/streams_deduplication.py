"""Deduplication within 24 hours: a source that repeats events, and sums that count each one once.

A sale that comes again within 24 hours, with the same id, is dropped. The ids are in a table with
the event time of each, and expire with it, so that the table does not grow for ever. A sale that
comes after the watermark is kept apart, in ``seen_late``: nobody knows any more whether it is new.
Run it with ``python examples/streams_deduplication.py``.
"""

from __future__ import annotations

import datetime
from typing import Any

from pyspark.sql import SparkSession

from txtopo import Config, Count, Fields, StreamBuilder, Sum, Topology, open_state
from txtopo.spouts import MemoryTransactionalSpout

NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
SALE = Fields("id string, shop string, amount long, ts timestamp")
TAKE = 2


def sale(number: int, shop: str, amount: int, hours: float) -> list[Any]:
    """Return a sale this many hours after noon."""
    return [f"s{number}", shop, amount, NOON + datetime.timedelta(hours=hours)]


SALES = [
    sale(1, "north", 12, 0),
    sale(2, "south", 7, 0.1),
    sale(1, "north", 12, 0),  # repeated at once
    sale(3, "north", 30, 1),
    sale(2, "south", 7, 0.1),  # repeated later
    sale(4, "south", 5, 2),
    sale(5, "north", 1, 30),
    sale(6, "north", 2, 31),
    sale(4, "south", 5, 2),  # after the watermark
]


def topology(url: str) -> Topology:
    """Return the topology, with the tables ``per_shop``, ``seen`` and ``seen_late``."""
    builder = StreamBuilder("stream-deduplication")
    spout = MemoryTransactionalSpout({0: SALES}, SALE, TAKE)
    sales = builder.source("sales", spout, event_time="ts", delay="10 minutes", max_ahead=None)
    unique = sales.drop_duplicates("id", within="24 hours", state=open_state(url, table="seen"))
    unique.group_by("shop").persistent_aggregate(
        open_state(url, table="per_shop"), sales=Count(), revenue=Sum("amount")
    )
    return builder.build_topology()


def main(
    spark: SparkSession | None = None,
    config: Config = Config(),
    url: str = "sqlite:///streams_deduplication.db",
) -> None:
    """Add up the sales, and print the revenue of each shop and what came too late."""
    with topology(url).start(spark, config) as run:
        run.process_all_available()

    with open_state(url, table="per_shop").reader() as reader:
        for shop, row in sorted(reader.items()):
            print(f"{shop}: {row['sales']} sales, {row['revenue']} in all")
    with open_state(url, table="seen_late").reader() as reader:
        for _, row in sorted(reader.items()):
            print(f"too late: {row['id']} of {row['ts']:%H:%M}")


if __name__ == "__main__":
    main()
