"""Several sources, one state: the stock of a shop, from what was sold and what was bought.

Sales come from one source, receipts of goods from another. They share the txids of one topology, so
the stock is that of a moment in both: each sale and each receipt counts exactly once, and a reader
never sees half of a batch. Run it with ``python examples/streams_sources.py``.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from txtopo import Config, Count, Fields, StreamBuilder, Sum, Topology, open_state
from txtopo.spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout

SALE = Fields("id string, product string")
SALES = [["s1", "tea"], ["s2", "salt"], ["s3", "tea"], ["s4", "tea"]]

RECEIPT = Fields("id long, product string, pieces long, price double")
RECEIPTS = [[1, "tea", 10, 2.5], [2, "salt", 4, 0.8], [3, "tea", 5, 2.4]]


def topology(url: str) -> Topology:
    """Return the topology, with the table ``stock``."""
    builder = StreamBuilder("stream-sources")
    sales = builder.source("sales", OpaqueMemoryTransactionalSpout({0: SALES}, SALE, 1))
    receipts = builder.source("receipts", MemoryTransactionalSpout({0: RECEIPTS}, RECEIPT, 2))
    sold = sales.map(lambda row: [row["product"], -1], "product string, pieces long")
    bought = receipts.select("product", "pieces")
    builder.merge(sold, bought).group_by("product").persistent_aggregate(
        open_state(url, table="stock"), pieces=Sum("pieces"), moves=Count()
    )
    return builder.build_topology()


def main(
    spark: SparkSession | None = None,
    config: Config = Config(),
    url: str = "sqlite:///streams_sources.db",
) -> None:
    """Keep the stock, and print it."""
    with topology(url).start(spark, config) as run:
        run.process_all_available()

    with open_state(url, table="stock").reader() as reader:
        for product, row in sorted(reader.items()):
            print(f"{product}: {row['pieces']} after {row['moves']} moves")


if __name__ == "__main__":
    main()
