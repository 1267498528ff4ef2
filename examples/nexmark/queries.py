"""The queries of NEXMark, each as a program of streams.

A query is a function that takes an :class:`Auctions`, which has the streams and opens tables. The
results of ``q7`` are in the table ``q7``; other tables of a query begin with that name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from examples.nexmark.generator import FIRST_CATEGORY, Generator, Kind
from examples.nexmark.spout import EventSpout
from txtopo import (
    Count,
    Fields,
    Max,
    Mean,
    OwnAggregate,
    StreamBuilder,
    Sum,
    TopN,
    Topology,
    open_state,
)
from txtopo.plugins.spouts import PartitionedTransactionalSpout, TransactionalSpout
from txtopo.state import State
from txtopo.streams import DataStream, FilesLookup, session, sliding, tumbling

Spouts = Callable[[Kind], PartitionedTransactionalSpout | TransactionalSpout]
"""Returns the spout of a kind of events."""

EURO = Decimal("0.908")
"""What a dollar costs, as in the original."""


class Auctions:
    """The streams of the auction house, and where results are kept.

    Args:
        id: Id of the topology.
        generator: What makes the events.
        url: The store.
        spout: Returns the spout of a kind of events.
        parallelism: How many tasks read each kind.
    """

    def __init__(
        self, id: str, generator: Generator, url: str, spout: Spouts, parallelism: int = 1
    ) -> None:
        self.builder = StreamBuilder(id)
        self.generator = generator
        self._url, self._spout, self._parallelism = url, spout, parallelism

    @cached_property
    def persons(self) -> DataStream:
        """All persons."""
        return self._source("persons")

    @cached_property
    def auctions(self) -> DataStream:
        """All auctions."""
        return self._source("auctions")

    @cached_property
    def bids(self) -> DataStream:
        """All bids."""
        return self._source("bids")

    def state(self, table: str, **more: Any) -> State:
        """Open a table."""
        return open_state(self._url, table=table, **more)

    def _source(self, kind: Kind) -> DataStream:
        return self.builder.source(
            kind,
            self._spout(kind),
            self._parallelism,
            event_time="date_time",
            delay=timedelta(milliseconds=self.generator.delayed_by_ms),
            max_ahead=None,
        )


def q0(house: Auctions) -> None:
    """Pass through: every bid."""
    house.bids.store(house.state("q0"), key="id")


def q1(house: Auctions) -> None:
    """Currency conversion: every bid, with its price in euros."""
    fields = Fields("id long, auction long, bidder long, price decimal(18,3), date_time timestamp")

    def in_euros(batch: pa.RecordBatch) -> pa.RecordBatch:
        dollars = batch.column("price").cast(pa.decimal128(19, 0))
        price = pc.multiply(dollars, pa.scalar(EURO, pa.decimal128(3, 3)))
        others = [batch.column(name) for name in fields.names if name != "price"]
        others.insert(3, price.cast(pa.decimal128(18, 3)))
        return pa.RecordBatch.from_arrays(others, schema=fields.arrow_schema())

    house.bids.map_batches(in_euros, fields).store(house.state("q1"), key="id")


def q2(house: Auctions) -> None:
    """Selection: the bids on some auctions."""

    def chosen(batch: pa.RecordBatch) -> pa.BooleanArray:
        auction = batch.column("auction")
        rest = pc.subtract(auction, pc.multiply(pc.divide(auction, 123), 123))
        return pc.equal(rest, 0)

    found = house.bids.filter_batches(chosen).select("id", "auction", "price")
    found.store(house.state("q2"), key="id")


def in_first_category(auctions: pa.RecordBatch) -> pa.BooleanArray:
    """Choose the auctions of one category."""
    return pc.equal(auctions.column("category"), FIRST_CATEGORY)


def q3(house: Auctions) -> None:
    """Local item suggestion: who sells in three states and one category, and what.

    A join without any bound in time: a person comes before or after their auctions.
    """
    states = pa.array(["OR", "ID", "CA"])
    near = house.persons.filter_batches(lambda rows: pc.is_in(rows.column("state"), states))
    persons = near.select("name", "city", "state", person="id")
    auctions = house.auctions.filter_batches(in_first_category).select(
        auction="id", seller="seller"
    )
    found = auctions.join(persons, on={"seller": "person"}, state=house.state("q3_sellers"))
    found.select("auction", "name", "city", "state").store(house.state("q3"), key="auction")


def q5(house: Auctions) -> None:
    """Hot items: in the last ten seconds, every two seconds, the auctions with the most bids.

    All windows of one time close in one txid. A query sees what the rows of its txid have made of
    the table, so it is a join with the largest count.
    """
    counts = (
        house.bids.group_by("auction")
        .window(sliding("10 seconds", every="2 seconds"))
        .persistent_aggregate(house.state("q5_counts"), keep="0 seconds", num=Count())
    )
    closed = counts.final().select("window_start", "auction", "num")
    most = closed.group_by("window_start").persistent_aggregate(
        house.state("q5_most"), most=Max("num")
    )
    (
        closed.query(most, on="window_start")
        .filter_batches(lambda rows: pc.equal(rows.column("num"), rows.column("most")))
        .select("window_start", "auction", "num")
        .store(house.state("q5"), key=("window_start", "auction"))
    )


class AllOfMax(OwnAggregate):
    """The largest value with the labels of all rows that have it: ``[value, [label, …]]``."""

    type = "json"

    def zero(self) -> Any:
        return None

    def add(self, value: Any, *items: Any) -> Any:
        number, *labels = items
        return self.combine(value, [number, [labels]]) if value else [number, [labels]]

    def combine(self, left: Any, right: Any) -> Any:
        if left[0] != right[0]:
            return max(left, right, key=lambda each: each[0])
        return [left[0], sorted([*left[1], *right[1]])]


def q7(house: Auctions) -> None:
    """Highest bid: the bids with the highest price of each ten seconds."""

    def may_be_highest(batch: pa.RecordBatch) -> pa.BooleanArray:
        """Keep the highest of each window in this batch: what follows has a few rows only."""
        times = batch.column("date_time").cast(pa.int64()).to_numpy()
        prices = batch.column("price").to_numpy()
        windows, place = np.unique(times // 10_000_000, return_inverse=True)
        most = np.zeros(len(windows), np.int64)
        np.maximum.at(most, place, prices)
        return pa.array(prices == most[place])

    (
        house.bids.filter_batches(may_be_highest)
        .group_by()
        .window(tumbling("10 seconds"))
        .persistent_aggregate(
            house.state("q7"), highest=AllOfMax("price", "id", "auction", "bidder")
        )
    )


def q8(house: Auctions) -> None:
    """New users: persons who registered, and opened auctions, in the same ten seconds.

    A join of two streams by a key and a window is one aggregate over both.
    """
    sides = Fields("id long, name string, persons long, auctions long, date_time timestamp")

    def of_persons(rows: pa.RecordBatch) -> pa.RecordBatch:
        ones, zeros = (pa.repeat(pa.scalar(number), rows.num_rows) for number in (1, 0))
        id, name, time = (rows.column(each) for each in ("id", "name", "date_time"))
        return pa.RecordBatch.from_arrays([id, name, ones, zeros, time], sides.names)

    def of_auctions(rows: pa.RecordBatch) -> pa.RecordBatch:
        ones, zeros = (pa.repeat(pa.scalar(number), rows.num_rows) for number in (1, 0))
        nobody = pa.nulls(rows.num_rows, pa.string())
        seller, time = rows.column("seller"), rows.column("date_time")
        return pa.RecordBatch.from_arrays([seller, nobody, zeros, ones, time], sides.names)

    persons = house.persons.map_batches(of_persons, sides)
    sellers = house.auctions.map_batches(of_auctions, sides)
    both = (
        house.builder.merge(persons, sellers)
        .group_by("id")
        .window(tumbling("10 seconds"))
        .persistent_aggregate(
            house.state("q8_both"),
            keep="0 seconds",
            name=Max("name"),
            persons=Sum("persons"),
            auctions=Sum("auctions"),
        )
    )

    def in_both(rows: pa.RecordBatch) -> pa.BooleanArray:
        return pc.and_(
            pc.greater(rows.column("persons"), 0), pc.greater(rows.column("auctions"), 0)
        )

    found = both.final().filter_batches(in_both)
    found.select("window_start", "id", "name").store(house.state("q8"), key=("window_start", "id"))


def winning(house: Auctions, table: str) -> DataStream:
    """Return each bid on an auction that was open, with the auction."""
    bids = house.bids.select("auction", "bidder", "price", bid="id", bid_time="date_time")
    auctions = house.auctions.select("id", "seller", "category", "date_time", "expires")
    return auctions.join(
        bids,
        on={"id": "auction"},
        within=(timedelta(0), house.generator.longest_auction),
        state=house.state(table),
    ).filter_batches(lambda rows: pc.less_equal(rows.column("bid_time"), rows.column("expires")))


def q4(house: Auctions) -> None:
    """Average price of a category: the mean of the winning bids of its auctions so far.

    When the price of an auction changes, that of before is taken back.
    """
    final = (
        winning(house, "q4_open")
        .group_by("id", "category")
        .persistent_aggregate(house.state("q4_final"), price=Max("price"))
    )
    prices = final.changes(retracted=True).group_by("category")
    prices.persistent_aggregate(house.state("q4"), price=Mean("price"))


def q9(house: Auctions) -> None:
    """Winning bids: the highest bid on each auction while it was open, of equals the earliest."""
    winning(house, "q9_open").group_by("id").max_by(
        house.state("q9"),
        by=("price", "bid_time", "bid"),
        smallest=("bid_time", "bid"),
        value=("bid", "bidder", "price", "bid_time"),
    )


def q11(house: Auctions) -> None:
    """User sessions: how many bids a bidder made until a pause of ten seconds."""
    (
        house.bids.group_by("bidder")
        .window(session("10 seconds"))
        .persistent_aggregate(house.state("q11"), bids=Count())
    )


def q12(house: Auctions) -> None:
    """Processing time: how many bids a bidder made in each ten seconds of the run.

    The time is that at which a batch was planned, so a replay counts in the same ten seconds.
    """
    (
        house.bids.select("bidder")
        .with_planned_time("planned")
        .map_batches(ten_seconds, "window_start timestamp, bidder long")
        .group_by("window_start", "bidder")
        .persistent_aggregate(house.state("q12"), bids=Count())
    )


def ten_seconds(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Replace times by the beginnings of their ten seconds."""
    planned = batch.column("planned")
    start = pc.floor_temporal(planned, 10, "second")
    return pa.RecordBatch.from_arrays([start, batch.column("bidder")], ["window_start", "bidder"])


SIDE_INPUT = Path(__file__).with_name("side_input.csv")
"""A table that each bid is joined with, by the last two digits of its auction."""


def q13(house: Auctions) -> None:
    """Side input: every bid with what a small table says of its auction."""
    side = house.builder.lookup("side", FilesLookup(SIDE_INPUT), key="key", value="item string")
    fields = Fields("id long, auction long, bidder long, price long, date_time timestamp, key long")

    def keyed(rows: pa.RecordBatch) -> pa.RecordBatch:
        auction = rows.column("auction")
        key = pc.subtract(auction, pc.multiply(pc.divide(auction, 100), 100))
        columns = [rows.column(name) for name in fields.names if name != "key"]
        return pa.RecordBatch.from_arrays([*columns, key], fields.names)

    found = house.bids.map_batches(keyed, fields)
    found.join(side, on="key").store(house.state("q13"), key="id")


def q18(house: Auctions) -> None:
    """Last bids: of each bidder on each auction the bid with the latest time."""
    bids, value = house.bids.group_by("bidder", "auction"), ("id", "price", "date_time")
    bids.max_by(house.state("q18"), by=("date_time", "id"), value=value)


def q19(house: Auctions) -> None:
    """Top ten: the ten highest bids on each auction."""
    top = TopN("price", 10, labels=("id", "bidder"))
    house.bids.group_by("auction").persistent_aggregate(house.state("q19"), top=top)


def q20(house: Auctions) -> None:
    """Expanded bids: the bids on auctions of one category, with the auction.

    The original joins without a bound. Here a bid may come before its auction or after it, by what
    the generator can make.
    """
    auctions = house.auctions.filter_batches(in_first_category).select(
        "id", "item_name", "initial_bid", "reserve", "date_time", "expires", "seller", "category"
    )
    bids = house.bids.select("auction", "bidder", "price", bid="id", bid_time="date_time")
    wait = house.generator.longest_wait
    found = auctions.join(
        bids, on={"id": "auction"}, within=(-wait, wait), state=house.state("q20_open")
    )
    found.store(house.state("q20"), key="bid")


QUERIES: Mapping[str, Callable[[Auctions], None]] = {
    query.__name__: query
    for query in (q0, q1, q2, q3, q4, q5, q7, q8, q9, q11, q12, q13, q18, q19, q20)
}
"""The queries by name."""


def topology(
    name: str,
    generator: Generator,
    url: str,
    spout: Spouts | None = None,
    parallelism: int = 1,
    take: int = 10_000,
) -> Topology:
    """Return the topology of a query.

    Args:
        name: The query, ``q0`` and so on.
        generator: What makes the events.
        url: The store.
        spout: Returns the spout of a kind; by default the events are made in the tasks.
        parallelism: How many tasks read each kind; also the number of partitions that are made.
        take: How many events are made for a batch in each partition.
    """

    def made(kind: Kind) -> EventSpout:
        return EventSpout(kind, generator, take, parallelism)

    house = Auctions(f"nexmark-{name}", generator, url, spout or made, parallelism)
    QUERIES[name](house)
    return house.builder.build_topology()
