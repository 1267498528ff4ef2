"""Cases of Flink: TemporalJoinTestPrograms, orders with the rate that held at their time.

There both sides wait for the watermark of both. Here are two ways, and the cases run in both:

* Rates come as a stream: it is merged with the orders, and ``update`` keeps the last rate of each
  currency. The rows of a txid go in the order of their times, those of earlier txids before them.
  A rate that comes in a later txid than the order that it holds for is too late for it; nothing
  waits. The source has two parts, before and after it is restored; each is a txid.
* Rates are rows of a database that say from when on they hold: a ``QueryLookup``, as of a time. A
  topology looks as of the time at which a batch was planned, and not as of each row's.
"""

from __future__ import annotations

PROGRAMS = "TemporalJoinTestPrograms"

ORDERS: list[list[tuple[int, str, float]]] = [
    [(2, "Euro", 42), (1, "USD", 43), (50, "Yen", 44), (3, "Euro", 45)],
    [(1, "Euro", 58), (1, "USD", 58)],
]
"""Amount, currency and second, of each txid."""

RATES: list[list[tuple[str, int, float]]] = [
    [("USD", 102, 41), ("Euro", 114, 41), ("Yen", 1, 41), ("Euro", 116, 45), ("Euro", 119, 47)],
    [("USD", 103, 58), ("Euro", 120, 59)],
]
"""Currency, rate and second, of each txid."""

AMOUNTS: list[list[int]] = [[228, 102, 50, 348], [119, 103]]
"""The amount of each order times its rate."""

CASES = [
    f"{PROGRAMS}: temporal-join-table-join",
    f"{PROGRAMS}: temporal-join-temporal-function",
]
"""Both programs have these rows, and say them in another way."""

LEFT_OUT = {
    f"{PROGRAMS}: temporal-join-table-join-nested-key": "the rows and results are the same; rows "
    "have no rows in them here, and a function of the user makes the key",
    f"{PROGRAMS}: temporal-join-table-join-key-from-map": "the rows and results are the same; rows "
    "have no maps in them here, and a function of the user makes the key",
}
"""What is not carried over, and why."""
