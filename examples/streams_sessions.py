"""Sessions of clicks: a user's clicks with no half hour between them, and what was bought in them.

Clicks of a user that come in any order make one session as long as they are at most half an hour
apart; one that comes between two sessions makes one of them, in the same txid. A session is final
once the watermark has passed its last click by half an hour. Run it with
``python examples/streams_sessions.py``.
"""

from __future__ import annotations

import datetime

from pyspark.sql import SparkSession

from txtopo import Config, Count, Fields, StreamBuilder, Sum, Topology, open_state
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.streams import session

CLICK = Fields("user string, page string, amount long, ts timestamp")


def at(minute: int) -> datetime.datetime:
    """Return a time after noon."""
    noon = datetime.datetime(2020, 6, 1, 12, tzinfo=datetime.UTC)
    return noon + datetime.timedelta(minutes=minute)


CLICKS = [
    ["ann", "home", 0, at(0)],
    ["bob", "home", 0, at(5)],
    ["ann", "tea", 4, at(20)],
    ["ann", "home", 0, at(65)],
    ["bob", "tea", 9, at(50)],
    ["bob", "salt", 1, at(20)],
    ["ann", "salt", 0, at(45)],
    ["ann", "bill", 2, at(66)],
    ["cem", "home", 0, at(140)],
    ["bob", "bill", 1, at(15)],
]
TAKE = 3


def topology(url: str) -> Topology:
    """Return the topology, with the tables ``sessions``, ``sessions_late`` and ``closed``."""
    builder = StreamBuilder("stream-sessions")
    spout = MemoryTransactionalSpout({0: CLICKS}, CLICK, TAKE)
    clicks = builder.source("clicks", spout, event_time="ts", delay="20 minutes")
    sessions = (
        clicks.group_by("user")
        .window(session("30 minutes"))
        .persistent_aggregate(
            open_state(url, table="sessions"), clicks=Count(), bought=Sum("amount")
        )
    )
    sessions.final().store(open_state(url, table="closed"), key=("user", "window_start"))
    return builder.build_topology()


def main(
    spark: SparkSession | None = None,
    config: Config = Config(),
    url: str = "sqlite:///streams_sessions.db",
) -> None:
    """Find the sessions, and print those that are over and what came too late for them."""
    with topology(url).start(spark, config) as run:
        run.process_all_available()

    with open_state(url, table="closed").reader() as reader:
        for (user, start), row in sorted(reader.items()):
            end = row["window_end"]
            print(f"{user} {start:%H:%M} to {end:%H:%M}: {row['clicks']}, bought {row['bought']}")
    with open_state(url, table="sessions_late").reader() as reader:
        for (user, start), row in sorted(reader.items()):
            print(f"{user} {start:%H:%M}: {row['clicks']} too late")


if __name__ == "__main__":
    main()
