"""Enrichment: sales are joined with a Delta table of shops, whose version each txid keeps.

Sales come as CSV files, and the country of each shop is in a Delta table that somebody else writes.
While the topology runs, shop ``b`` moves to another country: earlier sales stay where they were
counted, later ones count there. A txid that is done again after a crash reads the version of the
table that it was planned with. Run it with ``python examples/streams_enrichment.py``; a second run
finds nothing left to add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from txtopo import Config, Fields, StreamBuilder, Sum, Topology, open_state
from txtopo.spouts import FilesTransactionalSpout

SALE = Fields("id string, shop string, amount long")
MONDAY = [["s1", "a", 10], ["s2", "b", 20], ["s3", "a", 5], ["s4", "x", 1]]
TUESDAY = [["s5", "b", 7], ["s6", "a", 3]]
SHOPS = {"a": "Austria", "b": "Brazil"}
MOVED = {"a": "Austria", "b": "Bolivia"}


def topology(url: str, folder: Path) -> Topology:
    """Return the topology, with the table ``revenue``: the sum of all sales in each country."""
    builder = StreamBuilder("stream-enrichment")
    sales = builder.source("sales", FilesTransactionalSpout(folder / "sales", SALE))
    shops = builder.lookup(
        "shops", f"delta://{folder}/shops", key="shop", value="country string", refresh="0 seconds"
    )
    (
        sales.join(shops, on="shop", how="left")
        # A shop that the table does not know has NULL, and NULL cannot be the key of a state.
        .with_columns(lambda row: [row["country"] or "unknown"], "country string")
        .group_by("country")
        .persistent_aggregate(open_state(url, table="revenue"), revenue=Sum("amount"))
    )
    return builder.build_topology()


def write_shops(folder: Path, countries: Mapping[str, str]) -> None:
    """Write a new version of the table of shops."""
    rows = pa.table({"shop": list(countries), "country": list(countries.values())})
    write_deltalake(folder / "shops", rows, mode="overwrite")


def write_sales(folder: Path, name: str, sales: Sequence[Sequence[object]]) -> None:
    """Write a file of sales, which appears when it is complete."""
    (folder / "sales").mkdir(parents=True, exist_ok=True)
    lines = ["id,shop,amount", *(",".join(map(str, sale)) for sale in sales)]
    hidden = folder / "sales" / f".{name}"
    hidden.write_text("\n".join(lines) + "\n")
    hidden.rename(folder / "sales" / name)


def main(
    spark: SparkSession | None = None,
    config: Config = Config(),
    url: str = "sqlite:///streams_enrichment.db",
    folder: Path = Path("streams_enrichment"),
) -> None:
    """Add up the sales of two days, with a change of the shops between them, and print the sums."""
    folder = folder.absolute()
    write_shops(folder, SHOPS)
    write_sales(folder, "monday.csv", MONDAY)
    with topology(url, folder).start(spark, config) as run:
        run.process_all_available()
        write_shops(folder, MOVED)
        write_sales(folder, "tuesday.csv", TUESDAY)
        run.process_all_available()

    with open_state(url, table="revenue").reader() as reader:
        for country, revenue in sorted(reader.items()):
            print(f"{country}: {revenue}")


if __name__ == "__main__":
    main()
