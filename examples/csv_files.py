"""Orders in CSV files, counted exactly once by customer and country, also those that come later.

Run it with ``python examples/csv_files.py``. It writes two files into the folder ``orders``, counts
them, and adds a third one while the topology runs. Run it again: no file is read a second time, and
the totals stay. Delete ``txtopo-zookeeper``, ``orders`` and the database together to begin again.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from txtopo import (
    Config,
    Count,
    Fields,
    PersistentAggregate,
    Sum,
    TransactionalTopologyBuilder,
    open_state,
)
from txtopo.spouts import FilesTransactionalSpout

ORDERS = Fields("customer string, country string, amount decimal(10,2)")
MONDAY = [("ann", "FR", "9.50"), ("bob", "FR", "4.00"), ("ann", "NL", "1.25")]
TUESDAY = [("ann", "FR", "0.50"), ("cid", "NL", "7.00")]
WEDNESDAY = [("bob", "FR", "6.00"), ("ann", "NL", "2.50")]


def add_file(folder: Path, name: str, orders: Sequence[tuple[str, str, str]]) -> None:
    """Add a file, unless it is there; it gets its name when it is complete, for it is read once."""
    if (folder / name).exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f"_{name}"  # the spout passes over names that begin with _ or .
    with unfinished.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([ORDERS.names, *orders])
    unfinished.rename(folder / name)


def print_totals(url: str) -> None:
    """Print what the store holds."""
    with open_state(url, table="totals").reader() as reader:
        for (customer, country), total in sorted(reader.items()):
            print(f"{customer} in {country}: {total['orders']} orders, {total['amount']}")


def main(
    spark: SparkSession | None = None,
    config: Config = Config(),
    url: str = "sqlite:///csv_files.db",
    folder: Path = Path("orders"),
) -> None:
    """Count two files, add a third one, and print the totals before and after."""
    add_file(folder, "monday.csv", MONDAY)
    add_file(folder, "tuesday.csv", TUESDAY)
    totals = PersistentAggregate(
        open_state(url), ["customer", "country"], {"orders": Count(), "amount": Sum("amount")}
    )
    builder = TransactionalTopologyBuilder(
        "csv-files", "files", FilesTransactionalSpout(folder, ORDERS)
    )
    builder.set_bolt("totals", totals, 2).fields_grouping("files", "customer", "country")

    with builder.build_topology().start(spark, config) as run:
        run.process_all_available()
        print_totals(url)
        add_file(folder, "wednesday.csv", WEDNESDAY)
        run.process_all_available()
        print("and with wednesday.csv:")
        print_totals(url)


if __name__ == "__main__":
    main()
