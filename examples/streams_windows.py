"""Revenue of each shop in windows of five minutes, and what came too late for them.

A sale counts in the window of its own time, however late it comes, until the watermark has passed
the end of the window: that is the newest time so far, less a delay of two minutes. What comes later
still is kept apart, so that both tables together have all sales. Run it with
``python examples/streams_windows.py``.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession

from txtopo import Config, Count, Fields, StreamBuilder, Sum, Topology, open_state
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.streams import tumbling

SALE = Fields("id string, shop string, amount long, ts timestamp")


def at(minute: int, second: int = 0) -> datetime.datetime:
    """Return a time after noon."""
    return datetime.datetime(2020, 6, 1, 12, minute, second, tzinfo=datetime.UTC)


SALES = [
    ["s1", "north", 10, at(0, 30)],
    ["s2", "south", 7, at(2)],
    ["s3", "north", 5, at(6)],
    ["s4", "north", 20, at(4, 59)],
    ["s5", "south", 1, at(8)],
    ["s6", "north", 8, at(9)],
    ["s7", "south", 2, at(13)],
    ["s8", "north", 3, at(3)],
]
TAKE = 2


def topology(url: str, sales: Sequence[Sequence[Any]] = SALES, take: int = TAKE) -> Topology:
    """Return the topology, with the tables ``revenue``, ``revenue_late`` and ``closed``."""
    builder = StreamBuilder("stream-windows")
    spout = MemoryTransactionalSpout({0: sales}, SALE, take)
    rows = builder.source("sales", spout, event_time="ts", delay="2 minutes")
    revenue = (
        rows.group_by("shop")
        .window(tumbling("5 minutes"))
        .persistent_aggregate(
            open_state(url, table="revenue"), revenue=Sum("amount"), sales=Count()
        )
    )
    revenue.final().store(open_state(url, table="closed"), key=("window_start", "shop"))
    return builder.build_topology()


def main(
    spark: SparkSession | None = None,
    config: Config = Config(),
    url: str = "sqlite:///streams_windows.db",
) -> None:
    """Add up the sales, and print the windows and what came too late for them."""
    with topology(url).start(spark, config) as run:
        run.process_all_available()

    held = {}
    for table in ("revenue", "closed", "revenue_late"):
        with open_state(url, table=table).reader() as reader:
            held[table] = dict(reader.items())
    for (start, shop), row in sorted(held["revenue"].items()):
        standing = "final" if (start, shop) in held["closed"] else "open"
        print(f"{start:%H:%M} {shop}: {row['revenue']}, {standing}")
    for (start, shop), row in sorted(held["revenue_late"].items()):
        print(f"{start:%H:%M} {shop}: {row['revenue']} too late")


if __name__ == "__main__":
    main()
