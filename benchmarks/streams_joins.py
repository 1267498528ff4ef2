"""What a txid of deduplication and of an interval join costs in PostgreSQL, bolt and write apart.

``python -m benchmarks.streams_joins``. A txid of 10,000 new ids, one of 10,000 ids that are all
known, and one of 1,000 orders and 1,000 payments with 1,000,000 orders buffered. The committer runs
as in the driver, on a claimed state; what it writes is committed as the runtime does.
"""

from __future__ import annotations

import datetime
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from tests.harness.servers.postgresql import PostgresServer
from txtopo import Config, Fields, TransactionAttempt, open_state
from txtopo.clock import now
from txtopo.state import State
from txtopo.state.ledger import Claim, Owner
from txtopo.state.transaction import StateHandle
from txtopo.streams.deduplication import ENTRY, DropDuplicates
from txtopo.streams.event_time import WATERMARK, TimeColumn
from txtopo.streams.interval_join import (
    BUFFERED,
    LEFT,
    RIGHT,
    SIDE_AND_TIME,
    BufferRows,
    IntervalJoin,
    joined_fields,
)

IDS, ORDERS, BUFFER, TXIDS = 10_000, 1_000, 1_000_000, 12
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
EVENT = Fields("id string, shop string, amount long, ts timestamp")
ORDER = Fields("order_id long, customer string, total double, ts timestamp")
PAYMENT = Fields("order_id long, payment_id string, paid double, at timestamp")
Batches = Iterator[list[pa.RecordBatch]]


def main() -> None:
    """Measure, and print milliseconds: smallest, median."""
    with PostgresServer() as server:
        for name, repeated in (("new ids", False), ("known ids", True)):
            state = open_state(server.create_database(f"ids_{repeated}".lower()), table="seen")
            kept = state.with_columns(Fields("id string"), ENTRY).ranged("time")
            measure(name, deduplication, kept, ids(repeated=repeated), TXIDS // 2)
        joined = joined_fields(ORDER, PAYMENT, "order_id", *hour(), "left")
        key = Fields.of([*joined.key, *SIDE_AND_TIME])
        state = open_state(server.create_database("orders"), table="buffer")
        kept = state.with_columns(key, BUFFERED).ranged("expires")
        measure("orders and payments", join, kept, orders(), BUFFER // 50_000 + TXIDS // 2)


def measure(
    name: str, make: Callable[[], Any], state: State, batches: Batches, warm_up: int
) -> None:
    """Run txids, and print what those after a number of them took."""
    backend = state.open()
    backend.create()
    backend.claim(Claim(Owner("benchmark", "it", "it"), 1))
    bolts_s, writes_s = [], []
    for txid, given in enumerate(batches, 1):
        attempt, bolt = TransactionAttempt(txid, 0, 1), make()
        handle = StateHandle("it", state.layout(), backend.snapshot)
        begun_s = now()
        bolt.prepare(Config(), _Context(handle), _Nowhere(), attempt)
        for batch in given:
            bolt.execute(batch)
        bolt.finish_batch()
        done_s = now()
        assert handle.writes is not None
        backend.commit(attempt, handle.writes)
        if txid > warm_up:
            bolts_s.append(done_s - begun_s)
            writes_s.append(now() - done_s)
    for what, times_s in (("committer", bolts_s), ("write", writes_s)):
        least, median = min(times_s) * 1000, statistics.median(times_s) * 1000
        print(f"{name:20} {what:10} {least:6.1f} ms, median {median:6.1f} ms")
    backend.close()


def deduplication() -> DropDuplicates:
    """Return a committer that drops duplicates within a day."""
    time = TimeColumn("ts", frozenset(("events",)))
    return DropDuplicates("it", ("id",), time, datetime.timedelta(days=1), EVENT, late=False)


def join() -> IntervalJoin:
    """Return a committer that joins orders with payments within an hour."""
    joined = joined_fields(ORDER, PAYMENT, "order_id", *hour(), "left")
    return IntervalJoin("it", joined, late=False)


def hour() -> tuple[datetime.timedelta, datetime.timedelta]:
    """Return the interval."""
    return datetime.timedelta(0), datetime.timedelta(hours=1)


def ids(*, repeated: bool) -> Batches:
    """Yield the batches of events."""
    for number in range(TXIDS):
        first = 0 if repeated else number * IDS
        chosen = np.random.default_rng(number).permutation(IDS) + first
        times = [START + datetime.timedelta(seconds=number, microseconds=n) for n in range(IDS)]
        columns = [[f"event-{n:09d}" for n in chosen], ["shop"] * IDS, list(range(IDS)), times]
        yield [watermark(number), batch_of(columns, EVENT)]


def orders() -> Batches:
    """Yield orders until they are buffered, then orders with payments of any of them."""
    for first in range(0, BUFFER, 50_000):
        yield [watermark(0), packed(list(range(first, first + 50_000)), 60, ORDER, LEFT)]
    for number in range(TXIDS):
        new = list(range(BUFFER + number * ORDERS, BUFFER + (number + 1) * ORDERS))
        paid = np.random.default_rng(number).choice(BUFFER, ORDERS, replace=False).tolist()
        after = 120 + number
        left, right = packed(new, after, ORDER, LEFT), packed(paid, after, PAYMENT, RIGHT)
        yield [watermark(number), left, right]


def packed(numbers: list[int], second: float, fields: Fields, side: str) -> pa.RecordBatch:
    """Return rows of one side as they reach the committer."""
    joined = joined_fields(ORDER, PAYMENT, "order_id", *hour(), "left")
    time = TimeColumn(fields.names[3], frozenset(("orders",)))
    operator = BufferRows(side, fields, joined.packed, print, ("order_id",), time, side)
    begun = START + datetime.timedelta(seconds=second)
    times = [begun + datetime.timedelta(milliseconds=n) for n in range(len(numbers))]
    columns = [numbers, [f"some-{n}" for n in numbers], [n * 1.5 for n in numbers], times]
    (found,) = operator.apply(batch_of(columns, fields), TransactionAttempt(1, 0, 1))
    return found


def watermark(second: int) -> pa.RecordBatch:
    """Return a watermark that goes on by a second."""
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
