"""An alert when an address has failed to log in too often within ten minutes.

A failed login is in ten windows of ten minutes, one for each minute in which one begins.
``changes`` tells the count before and after each txid, so the alert is written in the txid whose
rows take the count over the limit, once for each window. Run it with
``python examples/streams_alerts.py``.
"""

from __future__ import annotations

import datetime

from pyspark.sql import SparkSession

from txtopo import Config, Count, Fields, StreamBuilder, Topology, Tuple, open_state
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.streams import sliding

LOGIN = Fields("ip string, ok boolean, ts timestamp")
FAILS_MAX = 3


def at(minute: int, second: int = 0) -> datetime.datetime:
    """Return a time after noon."""
    return datetime.datetime(2020, 6, 1, 12, minute, second, tzinfo=datetime.UTC)


LOGINS = [
    ["10.0.0.1", False, at(0, 10)],
    ["10.0.0.2", False, at(1)],
    ["10.0.0.1", False, at(2)],
    ["10.0.0.1", True, at(3)],
    ["10.0.0.2", False, at(9)],
    ["10.0.0.1", False, at(4)],
    ["10.0.0.1", False, at(9, 30)],
    ["10.0.0.2", False, at(12)],
    ["10.0.0.2", False, at(13)],
    ["10.0.0.1", False, at(20)],
]
TAKE = 3


def crosses(row: Tuple) -> bool:
    """Return whether a txid has taken the count of a window over the limit."""
    before: int = row["before_fails"] or 0
    return bool(row["fails"] > FAILS_MAX >= before)


def topology(url: str) -> Topology:
    """Return the topology, with the tables ``fails`` and ``alerts``."""
    builder = StreamBuilder("stream-alerts")
    spout = MemoryTransactionalSpout({0: LOGINS}, LOGIN, TAKE)
    logins = builder.source("logins", spout, event_time="ts", delay="5 minutes")
    fails = (
        logins.filter(lambda row: not row["ok"])
        .group_by("ip")
        .window(sliding("10 minutes", every="1 minute"))
        .persistent_aggregate(open_state(url, table="fails"), fails=Count())
    )
    alerts = fails.changes(before=True).filter(crosses).select("ip", "window_start", "fails")
    alerts.store(open_state(url, table="alerts"), key=("ip", "window_start"))
    return builder.build_topology()


def main(
    spark: SparkSession | None = None,
    config: Config = Config(),
    url: str = "sqlite:///streams_alerts.db",
) -> None:
    """Count failed logins, and print the first window of each address that has too many."""
    with topology(url).start(spark, config) as run:
        run.process_all_available()

    with open_state(url, table="alerts").reader() as reader:
        alerts = dict(reader.items())
    for ip in sorted({ip for ip, _ in alerts}):
        start = min(start for other, start in alerts if other == ip)
        print(f"{ip}: {alerts[ip, start]} failed logins in the ten minutes from {start:%H:%M}")


if __name__ == "__main__":
    main()
