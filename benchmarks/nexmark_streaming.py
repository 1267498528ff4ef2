"""The queries of NEXMark in Structured Streaming.

A query is a function of what reads a kind of events, and of their generator. It returns the
streaming DataFrame, its output mode, and what is done with a batch before the upsert.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f
from pyspark.sql.window import Window

from examples.nexmark.generator import Generator, Kind
from examples.nexmark.queries import SIDE_INPUT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Read = Callable[[Kind], Any]
InBatch = Callable[[Any], Any]
Query = Callable[[Read, Generator], tuple[Any, str, InBatch]]


def same(rows: DataFrame) -> DataFrame:
    """Return a batch as it is."""
    return rows


def timed(read: Read, kind: Kind, generator: Generator) -> DataFrame:
    """Return events with a watermark."""
    frame: DataFrame = read(kind)
    return frame.withWatermark("date_time", f"{generator.delayed_by_ms} milliseconds")


def q0(read: Read, generator: Generator) -> Any:
    return read("bids"), "append", same


def q1(read: Read, generator: Generator) -> Any:
    price = (f.col("price").cast("decimal(15,0)") * f.lit("0.908").cast("decimal(3,3)")).cast(
        "decimal(18,3)"
    )
    bids = read("bids").select("id", "auction", "bidder", price.alias("price"), "date_time")
    return bids, "append", same


def q2(read: Read, generator: Generator) -> Any:
    return read("bids").where("auction % 123 = 0").select("id", "auction", "price"), "append", same


def q3(read: Read, generator: Generator) -> Any:
    persons = read("persons").where("state IN ('OR', 'ID', 'CA')")
    persons = persons.select(f.col("id").alias("person"), "name", "city", "state")
    auctions = (
        read("auctions").where("category = 10").select(f.col("id").alias("auction"), "seller")
    )
    both = auctions.join(persons, f.expr("person = seller"))
    return both.select("auction", "name", "city", "state"), "append", same


def won(read: Read, generator: Generator) -> DataFrame:
    """Return the bids on auctions that were open."""
    longest = generator.longest_auction.total_seconds()
    auctions = timed(read, "auctions", generator).select("id", "category", "date_time", "expires")
    bids = timed(read, "bids", generator).select(
        "auction", "bidder", "price", f.col("id").alias("bid"), f.col("date_time").alias("bid_time")
    )
    return auctions.join(
        bids,
        f.expr(
            "id = auction AND bid_time >= date_time AND bid_time <= expires "
            f"AND bid_time <= date_time + INTERVAL {longest} SECONDS"
        ),
    )


def q4(read: Read, generator: Generator) -> Any:
    def highest(rows: DataFrame) -> DataFrame:
        return rows.groupBy("id", "category").agg(f.max("price").alias("price"))

    return won(read, generator), "append", highest


def q5(read: Read, generator: Generator) -> Any:
    counts = (
        timed(read, "bids", generator)
        .groupBy(f.window("date_time", "10 seconds", "2 seconds"), "auction")
        .agg(f.count("*").alias("num"))
    )
    return counts, "append", hottest


def hottest(rows: DataFrame) -> DataFrame:
    """Return the auctions with the most bids; a window closes in one batch."""
    place = f.rank().over(Window.partitionBy("window").orderBy(f.desc("num")))
    best = rows.withColumn("place", place).where("place = 1")
    return best.select(f.col("window.start").alias("window_start"), "auction", "num")


def q7(read: Read, generator: Generator) -> Any:
    best = f.max(f.struct("price", "id", "auction", "bidder")).alias("best")
    windows = timed(read, "bids", generator).groupBy(f.window("date_time", "10 seconds")).agg(best)
    start = f.col("window.start").alias("window_start")
    end = f.col("window.end").alias("window_end")
    return windows.select(start, end, "best.*"), "update", same


def q8(read: Read, generator: Generator) -> Any:
    persons = timed(read, "persons", generator).select(
        "id", "name", f.window("date_time", "10 seconds").alias("entered")
    )
    sellers = timed(read, "auctions", generator).select(
        "seller", f.window("date_time", "10 seconds").alias("opened")
    )
    both = persons.join(sellers, f.expr("id = seller AND entered = opened"))
    both = both.select(f.col("entered.start").alias("window_start"), "id", "name")
    return both, "append", lambda rows: rows.distinct()


def q9(read: Read, generator: Generator) -> Any:
    def best(rows: DataFrame) -> DataFrame:
        order = Window.partitionBy("id").orderBy(f.desc("price"), "bid_time", "bid")
        ranked = rows.withColumn("place", f.row_number().over(order)).where("place = 1")
        return ranked.select("id", "bid", "bidder", "price", "bid_time")

    return won(read, generator), "append", best


def q11(read: Read, generator: Generator) -> Any:
    sessions = (
        timed(read, "bids", generator)
        .groupBy(f.session_window("date_time", "10 seconds").alias("session"), "bidder")
        .agg(f.count("*").alias("bids"))
    )
    bounds = (
        f.col("session.start").alias("session_start"),
        f.col("session.end").alias("session_end"),
    )
    return sessions.select("bidder", *bounds, "bids"), "append", same


def q12(read: Read, generator: Generator) -> Any:
    def counted(rows: DataFrame) -> DataFrame:
        start = f.window(f.current_timestamp(), "10 seconds").getField("start")
        rows = rows.withColumn("window_start", start)
        return rows.groupBy("window_start", "bidder").agg(f.count("*").alias("bids"))

    return read("bids"), "append", counted


def q13(read: Read, generator: Generator) -> Any:
    def joined(rows: DataFrame) -> DataFrame:
        spark = rows.sparkSession
        side = spark.read.schema("key long, item string").csv(str(SIDE_INPUT), header=True)
        return rows.join(f.broadcast(side), "key")

    bids = read("bids").select("id", "auction", "bidder", "price", "date_time")
    return bids.withColumn("key", f.expr("auction % 100")), "append", joined


def q18(read: Read, generator: Generator) -> Any:
    def last(rows: DataFrame) -> DataFrame:
        best = f.max(f.struct("date_time", "id", "price")).alias("best")
        return rows.groupBy("bidder", "auction").agg(best).select("bidder", "auction", "best.*")

    return read("bids"), "append", last


def q19(read: Read, generator: Generator) -> Any:
    def top(rows: DataFrame) -> DataFrame:
        order = Window.partitionBy("auction").orderBy(
            f.desc("price"), f.col("id").cast("string").desc()
        )
        ranked = rows.withColumn("place", f.row_number().over(order)).where("place <= 10")
        return ranked.select("id", "auction", "bidder", "price")

    return read("bids"), "append", top


def q20(read: Read, generator: Generator) -> Any:
    wait = generator.longest_wait.total_seconds()
    auctions = (
        timed(read, "auctions", generator).where("category = 10").drop("description", "extra")
    )
    bids = timed(read, "bids", generator).select(
        "auction", "bidder", "price", f.col("id").alias("bid"), f.col("date_time").alias("bid_time")
    )
    both = auctions.join(
        bids,
        f.expr(
            f"id = auction AND bid_time >= date_time - INTERVAL {wait} SECONDS "
            f"AND bid_time <= date_time + INTERVAL {wait} SECONDS"
        ),
    )
    return both, "append", same


STREAMING: Mapping[str, Query] = {
    query.__name__: query
    for query in (q0, q1, q2, q3, q4, q5, q7, q8, q9, q11, q12, q13, q18, q19, q20)
}
"""The queries by name."""
