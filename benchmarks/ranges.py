"""``python -m benchmarks.ranges``: what a txid pays to find what is due among many rows.

Two states, as windows and sessions have them. Of 100,000 open windows of 1,000 shops, those of one
minute are read by a range. Of a million rows under 250,000 users, those of 1,000 users are read by
prefixes. What is measured is the whole transaction of a committer, with its snapshot and ledger.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any

from benchmarks.report import machine
from benchmarks.stores import STORES, measured_in
from txtopo import Fields, open_state
from txtopo.plugins.stores import Puts
from txtopo.state import State, StateHandle, StateTransaction
from txtopo.testing.conformance.driver import StateDriver

WINDOWS, SHOPS = 100_000, 1_000
ROWS, USERS, ASKED = 1_000_000, 250_000, 1_000
TIMES = 15
_FILLING = 100_000
_START = datetime(2026, 1, 1, tzinfo=UTC)
_MINUTE = timedelta(minutes=1)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", help="schemes of stores")
    wanted = parser.parse_args().only
    print(f"{machine()}; milliseconds a transaction, median (longest)\n")
    print(f"| store | due of {WINDOWS:,} windows | {ASKED:,} prefixes of {ROWS:,} rows | expire |")
    print("|---|---|---|---|")
    for store in STORES:
        if store.mode == "log" or "Spark" in store.name or (wanted and store.name not in wanted):
            continue
        with measured_in(store) as url:
            cells = [_text(each) for each in (*windows(url), sessions(url))]
        print(f"| {store.name} | {cells[0]} | {cells[2]} | {cells[1]} |", flush=True)


def windows(url: str) -> tuple[list[float], list[float]]:
    """Return the milliseconds of finding what is due, and of a deletion of 1,000 rows."""
    key, value = Fields("start timestamp, shop string"), Fields("end timestamp, sold long")
    store = _filled(open_state(url, table="windows").with_columns(key, value).ranged("end"), _open)

    def due(minute: int) -> Callable[[StateTransaction], Any]:
        low = _START + minute * _MINUTE
        return lambda state: list(state.between("end", low, low + _MINUTE))

    found = [_timed(store, due(minute)) for minute in range(TIMES)]
    assert all(len(rows) == SHOPS for _, rows in found)
    gone = []
    for minute in range(1, TIMES + 1):
        started_s = time.perf_counter()
        if count := store.backend.expire(_START + minute * _MINUTE, 2):
            gone.append(1000 * (time.perf_counter() - started_s))
            assert count == SHOPS
    store.close()
    return [each for each, _ in found], gone


def sessions(url: str) -> list[float]:
    """Return the milliseconds of reading the rows of many users."""
    key, value = Fields("user string, start long"), Fields("end long, clicks long")
    store = _filled(open_state(url, table="sessions").with_columns(key, value), _clicks)
    chance = random.Random(1)
    asked = [[(f"user {chance.randrange(USERS)}",) for _ in range(ASKED)] for _ in range(TIMES)]
    found = [_timed(store, _reading(prefixes)) for prefixes in asked]
    store.close()
    return [each for each, _ in found]


def _reading(prefixes: Sequence[tuple[str]]) -> Callable[[StateTransaction], Any]:
    return lambda state: list(state.starting(prefixes))


def _open() -> Iterator[tuple[Any, Any]]:
    for at in range(WINDOWS):
        end = _START + (1 + at // SHOPS) * _MINUTE
        yield (end - _MINUTE, f"shop {at % SHOPS}"), (end, at)


def _clicks() -> Iterator[tuple[Any, Any]]:
    for at in range(ROWS):
        yield (f"user {at % USERS}", at), (at, 1)


def _filled(state: State, rows: Callable[[], Iterator[tuple[Any, Any]]]) -> StateDriver:
    store = StateDriver(state)
    everything = list(rows())
    for txid, first in enumerate(range(0, len(everything), _FILLING), 1):
        store.commit(txid, Puts(dict(everything[first : first + _FILLING])))
    store.commit(txid + 1, Puts({}))  # what the last txid wrote does not expire
    return store


def _timed(store: StateDriver, body: Callable[[StateTransaction], Any]) -> tuple[float, list[Any]]:
    held = store.held()
    assert held is not None
    started_s = time.perf_counter()
    handle = StateHandle("state", store.state.layout(), store.backend)
    with handle.transaction(store.attempt(held.txid + 1)) as state:
        found = body(state)
    return 1000 * (time.perf_counter() - started_s), found


def _text(walls: list[float]) -> str:
    return f"{median(walls):.1f} ({max(walls):.1f})"


if __name__ == "__main__":
    main()
