"""The best sellers of each hour, counted once the hour is over.

``final()`` has each window once, in the txid in which it closes. So the list of an hour is made of
values that do not change any more. Run it with ``python examples/streams_top.py``.
"""

from __future__ import annotations

import datetime

from pyspark.sql import SparkSession

from txtopo import Config, Fields, StreamBuilder, Sum, TopN, Topology, open_state
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.streams import tumbling

SALE = Fields("product string, amount long, ts timestamp")
BEST = 2


def at(hour: int, minute: int) -> datetime.datetime:
    """Return a time of a day."""
    return datetime.datetime(2020, 6, 1, hour, minute, tzinfo=datetime.UTC)


SALES = [
    ["tea", 3, at(9, 5)],
    ["salt", 5, at(9, 10)],
    ["rice", 4, at(9, 50)],
    ["tea", 4, at(9, 55)],
    ["rice", 9, at(10, 2)],
    ["salt", 1, at(9, 58)],
    ["tea", 1, at(10, 30)],
    ["salt", 2, at(11, 1)],
    ["rice", 1, at(11, 20)],
]
TAKE = 2


def topology(url: str) -> Topology:
    """Return the topology, with the tables ``hourly`` and ``top``."""
    builder = StreamBuilder("stream-top")
    spout = MemoryTransactionalSpout({0: SALES}, SALE, TAKE)
    sales = builder.source("sales", spout, event_time="ts", delay="10 minutes")
    hourly = (
        sales.group_by("product")
        .window(tumbling("1 hour"))
        .persistent_aggregate(open_state(url, table="hourly"), sold=Sum("amount"))
    )
    hourly.final().group_by("window_start").persistent_aggregate(
        open_state(url, table="top"), top=TopN("sold", BEST, labels=("product",))
    )
    return builder.build_topology()


def main(
    spark: SparkSession | None = None,
    config: Config = Config(),
    url: str = "sqlite:///streams_top.db",
) -> None:
    """Add up the sales, and print the best sellers of each hour that is over."""
    with topology(url).start(spark, config) as run:
        run.process_all_available()

    with open_state(url, table="top").reader() as reader:
        for start, top in sorted(reader.items()):
            best = ", ".join(f"{product} {sold}" for sold, product in top)
            print(f"{start:%H:%M} {best}")


if __name__ == "__main__":
    main()
