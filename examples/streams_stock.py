"""A materialised view and its changelog: the stock of each product, and what each txid changed.

``changes(before=True)`` has a row for each product whose stock has another value than before the
txid, with both values. Here the rows are kept in a table; ``--kafka broker:9092`` sends them to the
topic ``stock-changes`` as well, where consumers see a txid whole or not at all. Run it with
``python examples/streams_stock.py``.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from txtopo import Config, Fields, StreamBuilder, Sum, Topology, open_state
from txtopo.bolts import KafkaSink
from txtopo.spouts import MemoryTransactionalSpout

MOVE = Fields("product string, pieces long")
MOVES = [["tea", 10], ["tea", -3], ["salt", 4], ["tea", 1], ["tea", -1], ["salt", -4]]
TAKE = 2


def topology(url: str, changelog: KafkaSink | None = None) -> Topology:
    """Return the topology, with the tables ``stock`` and ``last_change``."""
    builder = StreamBuilder("stream-stock")
    moves = builder.source("moves", MemoryTransactionalSpout({0: MOVES}, MOVE, TAKE))
    stock = moves.group_by("product").persistent_aggregate(
        open_state(url, table="stock"), pieces=Sum("pieces")
    )
    changes = stock.changes(before=True)
    changes.store(open_state(url, table="last_change"), key="product")
    if changelog is not None:
        changes.to(changelog)
    return builder.build_topology()


def main(
    spark: SparkSession | None = None,
    config: Config = Config(),
    url: str = "sqlite:///streams_stock.db",
    servers: str | None = None,
) -> None:
    """Add up the moves, and print the stock and the last change of each product."""
    changelog = None
    if servers is not None:
        value = ["before_pieces", "pieces"]
        changelog = KafkaSink(servers, "stock-changes", key="product", value=value)
    with topology(url, changelog).start(spark, config) as run:
        run.process_all_available()

    with open_state(url, table="stock").reader() as reader:
        stock = dict(reader.items())
    with open_state(url, table="last_change").reader() as reader:
        for product, change in sorted(reader.items()):
            before, after = change["before_pieces"], change["pieces"]
            print(f"{product}: {stock[product]}, at last from {before} to {after}")


if __name__ == "__main__":
    main(servers=sys.argv[2] if sys.argv[1:2] == ["--kafka"] else None)
