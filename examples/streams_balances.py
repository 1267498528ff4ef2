"""Balances of accounts, what is overdrawn, and alarms by a limit that may change while it runs.

``update`` keeps a running value for each account: it gets the balance before a transfer and returns
the one after it. ``query`` asks a table, which other rows of the same stream keep, for the limit of
each account. All of it is in one database and changes in one transaction. Run it with
``python examples/streams_balances.py``.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from txtopo import Config, Fields, StreamBuilder, Topology, Tuple, open_state
from txtopo.spouts import MemoryTransactionalSpout

EVENT = Fields("id string, kind string, account string, amount long, second long")
EVENTS = [
    ["e1", "limit", "ann", -50, 1],
    ["e2", "transfer", "ann", 100, 2],
    ["e3", "transfer", "bob", 20, 2],
    ["e4", "transfer", "ann", -130, 3],
    ["e5", "transfer", "bob", -30, 4],
    ["e6", "limit", "ann", -20, 5],
    ["e7", "limit", "bob", 0, 5],
    ["e8", "transfer", "ann", 5, 6],
    ["e9", "transfer", "bob", -1, 7],
]
TAKE = 3


def book(balance: int | None, row: Tuple) -> tuple[int, list[Any]]:
    """Return the balance after a transfer, and what is told of it."""
    balance = (balance or 0) + row["amount"]
    return balance, [row["id"], row["account"], balance, balance < 0]


def below(row: Tuple) -> bool:
    """Return whether a balance is below its limit; an account without one has none."""
    return row["floor"] is not None and row["balance"] < row["floor"]


def topology(url: str) -> Topology:
    """Return the topology, with the tables ``balances``, ``limits`` and ``alarms``."""
    builder = StreamBuilder("stream-balances")
    events = builder.source("events", MemoryTransactionalSpout({0: EVENTS}, EVENT, TAKE))
    transfers, limit_changes = events.branch(lambda row: row["kind"] == "transfer")
    booked = transfers.group_by("account").update(
        book,
        "id string, account string, balance long, overdraft boolean",
        state=open_state(url, table="balances", value=Fields("balance long")),
        order_by=("second", "id"),
    )
    limits = limit_changes.select("account", "second", floor="amount").as_table(
        open_state(url, table="limits"), key="account", value="floor", order_by="second"
    )
    alarms = booked.query(limits, on="account").filter(below)
    alarms.store(open_state(url, table="alarms"), key="id")
    return builder.build_topology()


def main(
    spark: SparkSession | None = None,
    config: Config = Config(),
    url: str = "sqlite:///streams_balances.db",
) -> None:
    """Book the transfers, and print balances and alarms."""
    with topology(url).start(spark, config) as run:
        run.process_all_available()

    with open_state(url, table="balances").reader() as reader:
        for account, balance in sorted(reader.items()):
            print(f"{account} has {balance}")
    with open_state(url, table="alarms").reader() as reader:
        for id, alarm in sorted(reader.items()):
            print(f"{id}: {alarm['account']} had {alarm['balance']}, below {alarm['floor']}")


if __name__ == "__main__":
    main()
