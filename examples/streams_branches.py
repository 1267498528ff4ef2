"""One stream into two states: sales that have an amount are added up, the others are set aside.

Each sale is in one of the two tables. Both are in one database, so they change in one transaction.
Run it with ``python examples/streams_branches.py``.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from txtopo import Config, Fields, StreamBuilder, Sum, Topology, open_state
from txtopo.spouts import MemoryTransactionalSpout

SALE = Fields("id string, shop string, amount long")
SALES: list[list[Any]] = [
    ["s1", "north", 12],
    ["s2", "south", None],
    ["s3", "north", 30],
    ["s4", "south", 7],
    ["s5", "north", None],
]


def topology(url: str) -> Topology:
    """Return the topology, with the tables ``totals`` and ``rejected``."""
    builder = StreamBuilder("stream-branches")
    sales = builder.source("sales", MemoryTransactionalSpout({0: SALES}, SALE, 2))
    good, bad = sales.branch(lambda row: row["amount"] is not None)
    good.group_by("shop").persistent_aggregate(open_state(url, table="totals"), total=Sum("amount"))
    bad.store(open_state(url, table="rejected"), key="id")
    return builder.build_topology()


def main(
    spark: SparkSession | None = None,
    config: Config = Config(),
    url: str = "sqlite:///streams_branches.db",
) -> None:
    """Divide the sales, and print both tables."""
    with topology(url).start(spark, config) as run:
        run.process_all_available()

    with open_state(url, table="totals").reader() as reader:
        print(f"totals: {dict(sorted(reader.items()))}")
    with open_state(url, table="rejected").reader() as reader:
        print(f"rejected: {sorted(key for key, _ in reader.items())}")


if __name__ == "__main__":
    main()
