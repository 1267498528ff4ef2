"""What a txid of operators with state costs in PostgreSQL, committer and write apart.

``python -m benchmarks.streams_joins``. A txid of 10,000 new ids, one of 10,000 ids that are all
known, one of 1,000 orders and 1,000 payments with 1,000,000 orders buffered, one of 10,000 bids
that are stored, and one of 10,000 bids of which ``update`` keeps the last. The committer runs as in
the driver, on a claimed state; what it writes is committed as the runtime does. ``processor`` is
the time of this process alone, which suffers less from other work.
"""

from __future__ import annotations

import argparse
import datetime
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from tests.harness.servers.postgresql import PostgresServer
from txtopo import Config, Fields, TransactionAttempt, Tuple, open_state
from txtopo.bolts.bolt import ArrowBolt
from txtopo.clock import now
from txtopo.state import State
from txtopo.state.columns import rows_of
from txtopo.state.ledger import Claim, Owner
from txtopo.state.transaction import StateHandle
from txtopo.streams.deduplication import ENTRY, DropDuplicates
from txtopo.streams.event_time import WATERMARK, TimeColumn
from txtopo.streams.interval_join import (
    BUFFERED,
    LEFT,
    RIGHT,
    SIDE_AND_TIME,
    IntervalJoin,
    JoinedStream,
    joined_fields,
)
from txtopo.streams.tables import RunningValues, StoredRows, Upserting
from txtopo.tuples import DEFAULT_STREAM, Origin

IDS, ORDERS, BUFFER, TXIDS = 10_000, 1_000, 1_000_000, 12
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
NOTHING = datetime.timedelta(0)
EVENT = Fields("id string, shop string, amount long, ts timestamp")
ORDER = Fields("order_id long, customer string, total double, ts timestamp")
PAYMENT = Fields("order_id long, payment_id string, paid double, at timestamp")
BID = Fields("auction long, bidder long, id long, price long, date_time timestamp")
Batches = Iterator[dict[str, pa.RecordBatch]]
"""The rows of each component."""


def main() -> None:
    """Measure, and print milliseconds: smallest, median."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("ids", "orders", "bids"), help="these cases only")
    only = parser.parse_args().only
    with PostgresServer() as server:
        if only in (None, "ids"):
            for name, repeated in (("new ids", False), ("known ids", True)):
                url = server.create_database(f"ids_{repeated}".lower())
                state = open_state(url, table="seen").with_columns(Fields("id string"), ENTRY)
                events = ids(repeated=repeated)
                measure(name, deduplication, state.ranged("time"), events, TXIDS // 2)
        if only in (None, "orders"):
            joined = joined_fields(ORDER, PAYMENT, "order_id", *hour(), "left")
            key = Fields.of([*joined.key, *SIDE_AND_TIME])
            state = open_state(server.create_database("orders"), table="buffer")
            kept = state.with_columns(key, BUFFERED).ranged("expires")
            measure("orders and payments", join, kept, orders(), BUFFER // 50_000 + TXIDS // 2)
        if only in (None, "bids"):
            url, width = server.create_database("bids"), 2
            for name, make in (("stored", stored), ("last of a key", last)):
                state = open_state(url, table=name.replace(" ", "_"))
                key, value = BID.select(BID.names[:width]), BID.select(BID.names[width:])
                measure(name, make, state.with_columns(key, value), bids(), TXIDS // 2)


def measure(
    name: str, make: Callable[[], Any], state: State, batches: Batches, warm_up: int
) -> None:
    """Run txids, and print what those after a number of them took."""
    backend = state.open()
    backend.create()
    backend.claim(Claim(Owner("benchmark", "it", "it"), 1))
    took_s: dict[str, list[tuple[float, float]]] = {"committer": [], "write": []}
    for txid, given in enumerate(batches, 1):
        attempt, bolt = TransactionAttempt(txid, 0, 1), make()
        handle = StateHandle("it", state.layout(), backend)
        begun = now(), time.process_time()
        bolt.prepare(Config(), _Context(handle), _Nowhere(), attempt)
        feed(bolt, given, attempt)
        done = now(), time.process_time()
        assert handle.writes is not None
        backend.commit(attempt, handle.writes)
        written = now(), time.process_time()
        if txid > warm_up:
            for what, start, end in (("committer", begun, done), ("write", done, written)):
                took_s[what].append((end[0] - start[0], end[1] - start[1]))
    for what, times_s in took_s.items():
        (least, median), processor = (
            (1000 * min(each), 1000 * statistics.median(each))
            for each in zip(*times_s, strict=True)
        )
        print(
            f"{name:20} {what:10} {least:6.1f} ms, median {median:6.1f} ms; "
            f"processor {processor[0]:6.1f} ms, median {processor[1]:6.1f} ms",
            flush=True,
        )
    backend.close()


def feed(bolt: Any, batches: Mapping[str, pa.RecordBatch], attempt: TransactionAttempt) -> None:
    """Give a bolt the tuples of a batch as it gets them in a stage."""
    for component, batch in batches.items():
        if isinstance(bolt, ArrowBolt):
            bolt.execute_from(component, DEFAULT_STREAM, batch)
        else:
            origin = Origin(attempt, "bids", "default", BID)
            for values in rows_of(batch):
                bolt.execute(Tuple(values, origin))
    bolt.finish_batch()


def stored() -> StoredRows:
    """Return a committer that stores the last bid of each bidder on each auction that comes."""
    return StoredRows("it", Upserting(BID.names[:2], BID.names[2:], ()), BID)


def last() -> RunningValues:
    """Return a committer that keeps the bid with the latest time."""

    def newer(known: Any, row: Tuple) -> tuple[Any, None]:
        if known and (known["date_time"], known["id"]) >= (row["date_time"], row["id"]):
            return known, None
        return (row["id"], row["price"], row["date_time"]), None

    return RunningValues("it", ("auction", "bidder"), newer, Fields("id long"), ())


def bids() -> Batches:
    """Yield bids, few of which are by a bidder who has bid on the auction before."""
    for number in range(TXIDS):
        chosen = np.random.default_rng(number)
        times = [START + datetime.timedelta(seconds=number, microseconds=n) for n in range(IDS)]
        auctions, bidders, prices = (
            chosen.integers(0, end, IDS).tolist() for end in (2_000, 5_000, 10_000_000)
        )
        ids = list(range(number * IDS, (number + 1) * IDS))
        yield {"bids": batch_of([auctions, bidders, ids, prices, times], BID)}


def deduplication() -> DropDuplicates:
    """Return a committer that drops duplicates within a day."""
    time = TimeColumn("ts", {"events": NOTHING})
    return DropDuplicates("it", ("id",), time, datetime.timedelta(days=1), EVENT, late=False)


def join() -> IntervalJoin:
    """Return a committer that joins orders with payments within an hour."""
    joined = joined_fields(ORDER, PAYMENT, "order_id", *hour(), "left")
    streams = [
        JoinedStream(
            ((side, DEFAULT_STREAM),), fields, TimeColumn(fields.names[3], {side: NOTHING})
        )
        for side, fields in ((LEFT, ORDER), (RIGHT, PAYMENT))
    ]
    return IntervalJoin("it", joined, (streams[0], streams[1]), late=False)


def hour() -> tuple[datetime.timedelta, datetime.timedelta]:
    """Return the interval."""
    return NOTHING, datetime.timedelta(hours=1)


def ids(*, repeated: bool) -> Batches:
    """Yield the batches of events."""
    for number in range(TXIDS):
        first = 0 if repeated else number * IDS
        chosen = np.random.default_rng(number).permutation(IDS) + first
        times = [START + datetime.timedelta(seconds=number, microseconds=n) for n in range(IDS)]
        columns = [[f"event-{n:09d}" for n in chosen], ["shop"] * IDS, list(range(IDS)), times]
        yield {"watermark": watermark(number), "events": batch_of(columns, EVENT)}


def orders() -> Batches:
    """Yield orders until they are buffered, then orders with payments of any of them."""
    for first in range(0, BUFFER, 50_000):
        orders_before = rows_at(list(range(first, first + 50_000)), 60, ORDER)
        yield {"watermark": watermark(0), LEFT: orders_before}
    for number in range(TXIDS):
        new = list(range(BUFFER + number * ORDERS, BUFFER + (number + 1) * ORDERS))
        paid = np.random.default_rng(number).choice(BUFFER, ORDERS, replace=False).tolist()
        after = 120 + number
        both = {LEFT: rows_at(new, after, ORDER), RIGHT: rows_at(paid, after, PAYMENT)}
        yield {"watermark": watermark(number), **both}


def rows_at(numbers: list[int], second: float, fields: Fields) -> pa.RecordBatch:
    """Return orders or payments from this second on."""
    begun = START + datetime.timedelta(seconds=second)
    times = [begun + datetime.timedelta(milliseconds=n) for n in range(len(numbers))]
    columns = [numbers, [f"some-{n}" for n in numbers], [n * 1.5 for n in numbers], times]
    return batch_of(columns, fields)


def watermark(second: int) -> pa.RecordBatch:
    """Return a watermark that continues by a second."""
    before, after = (START + datetime.timedelta(seconds=at) for at in (second - 1, second))
    return batch_of([[before], [after]], WATERMARK)


def batch_of(columns: list[Any], fields: Fields) -> pa.RecordBatch:
    """Return a record batch."""
    schema = fields.arrow_schema()
    arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class _Context:
    def __init__(self, handle: StateHandle) -> None:
        self._handle = handle

    def state(self, _: str) -> StateHandle:
        return self._handle


class _Nowhere:
    def emit(self, batch: pa.RecordBatch, stream: str = "default") -> None:
        """Take what is emitted."""


if __name__ == "__main__":
    main()
