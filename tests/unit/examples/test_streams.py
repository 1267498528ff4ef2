"""The examples of streams: what they print, on Spark as well, and their tables under kills."""

from __future__ import annotations

import datetime
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from examples import (
    streams_alerts,
    streams_balances,
    streams_branches,
    streams_deduplication,
    streams_enrichment,
    streams_orders_payments,
    streams_sessions,
    streams_sources,
    streams_stock,
    streams_top,
    streams_windows,
    streams_word_count,
)
from tests.unit.streams.plain_joins import deduplicated, joined
from tests.unit.streams.worlds import judged, versions
from txtopo import Config, Fields, Topology, open_state
from txtopo.streams import DeltaLookup
from txtopo.testing import simulate
from txtopo.testing.own_topology import _run  # simulate, but not of all tables
from txtopo.testing.simulation.clock import ThreadHandoff

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration
LOCAL = Config(carrier="local", zookeeper="memory", slots=2)
SEEDS = 4

EXAMPLES: list[tuple[Any, str]] = [
    (streams_word_count, "apple: 2\nbanana: 1\ncat: 8\nchicken: 1\ndog: 7\n"),
    (
        streams_balances,
        "ann has -25\nbob has -11\ne4: ann had -30, below -20\ne8: ann had -25, below -20\n"
        "e9: bob had -11, below 0\n",
    ),
    (streams_branches, "totals: {'north': 42, 'south': 7}\nrejected: ['s2', 's5']\n"),
    (streams_sources, "salt: 3 after 2 moves\ntea: 12 after 5 moves\n"),
    (streams_stock, "salt: 0, at last from 4 to 0\ntea: 7, at last from 8 to 7\n"),
    (streams_enrichment, "Austria: 18\nBolivia: 7\nBrazil: 20\nunknown: 1\n"),
    (
        streams_windows,
        "12:00 north: 30, final\n12:00 south: 7, final\n12:05 north: 13, final\n"
        "12:05 south: 1, final\n12:10 south: 2, open\n12:00 north: 3 too late\n",
    ),
    (
        streams_sessions,
        "ann 12:00 to 13:36: 5, bought 6\nbob 12:05 to 13:20: 3, bought 10\n"
        "bob 12:15: 1 too late\n",
    ),
    (streams_top, "09:00 tea 7, salt 6\n10:00 rice 9, tea 1\n"),
    (streams_alerts, "10.0.0.1: 4 failed logins in the ten minutes from 12:00\n"),
]
each_example = pytest.mark.parametrize(
    ("example", "printed"),
    [pytest.param(example, text, id=example.__name__) for example, text in EXAMPLES],
)

Records = Sequence[Sequence[Any]]


@each_example
def test_an_example_prints_what_it_says(
    example: Any,
    printed: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    config = replace(LOCAL, zookeeper=f"file:{tmp_path}/progress.db")
    for _ in range(2):  # the second run finds nothing left to do
        example.main(None, config, f"sqlite:///{tmp_path / 'example.db'}")

        assert capsys.readouterr().out == printed


@each_example
def test_an_example_prints_the_same_on_spark(
    spark: SparkSession,
    example: Any,
    printed: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    example.main(spark, Config(zookeeper="memory"), f"sqlite:///{tmp_path / 'example.db'}")

    assert capsys.readouterr().out == printed


def counts(records: Records) -> Mapping[str, int]:
    return Counter(word for (line,) in records for word in line.split())


def batches(records: Records, take: int) -> list[Records]:
    return [records[at : at + take] for at in range(0, len(records), take)]


def balances(records: Records) -> Mapping[str, Any]:
    totals: dict[str, int] = {}
    for _, kind, account, amount, _ in records:
        if kind == "transfer":
            totals[account] = totals.get(account, 0) + amount
    return totals


def limits(records: Records) -> Mapping[str, Any]:
    return {account: amount for _, kind, account, amount, _ in records if kind == "limit"}


def alarms(records: Records) -> Mapping[str, Any]:
    """Each balance is compared with the limits after all rows of its batch."""
    found: dict[str, Any] = {}
    done: list[Sequence[Any]] = []
    for batch in batches(records, streams_balances.TAKE):
        floors = limits([*done, *batch])
        for record in batch:
            done.append(record)
            id, kind, account, _, _ = record
            balance = balances(done).get(account, 0)
            if kind == "transfer" and account in floors and balance < floors[account]:
                found[id] = (account, balance, balance < 0, floors[account])
    return found


def totals(records: Records) -> Mapping[str, Any]:
    found: dict[str, int] = {}
    for _, shop, amount in records:
        if amount is not None:
            found[shop] = found.get(shop, 0) + amount
    return found


def rejected(records: Records) -> Mapping[str, Any]:
    return {id: (shop, None) for id, shop, amount in records if amount is None}


def stock(records: Records) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for product, pieces in records:
        found[product] = found.get(product, 0) + pieces
    return found


def last_change(records: Records) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    done: list[Sequence[Any]] = []
    for batch in batches(records, streams_stock.TAKE):
        before = stock(done)
        done += batch
        for product, pieces in stock(done).items():
            if pieces != before.get(product):
                found[product] = (pieces, before.get(product))
    return found


MINUTE = datetime.timedelta(minutes=1)


def watermarks(records: Records, take: int, delay: int) -> list[tuple[Records, Any]]:
    """Each batch with the watermark before it, and at the end no batch and the last one."""
    found, newest = [], None
    for batch in [*batches(records, take), []]:
        found.append((batch, None if newest is None else newest - delay * MINUTE))
        newest = max([record[-1] for record in batch] + [newest or batch[0][-1]])
    return found


def marks(records: Records, source: str, table: str, delay: int) -> Mapping[Any, Any]:
    """The newest time, and the watermark of a table that follows from it."""
    newest = max((record[-1] for record in records), default=None)
    if newest is None:
        return {}
    return {
        ("mark", source, '["ts"]', ""): (newest, None),
        ("source", source, '["ts"]', ""): (newest, None),
        ("watermark", table, "", ""): (newest - delay * MINUTE, None),
    }


def nothing(records: Records) -> Mapping[Any, Any]:
    return {}


def floor(at: datetime.datetime, size: int) -> datetime.datetime:
    return at - datetime.timedelta(minutes=at.minute % size, seconds=at.second)


def revenue(records: Records, *, late: bool) -> Mapping[Any, Any]:
    found: dict[Any, Any] = {}
    for batch, before in watermarks(records, streams_windows.TAKE, 2):
        for _, shop, amount, at in batch:
            start = floor(at, 5)
            end = start + 5 * MINUTE
            if late == (before is not None and end <= before):
                _, total, count = found.get((start, shop), (end, 0, 0))
                found[start, shop] = end, total + amount, count + 1
    return found


def revenue_closed(records: Records) -> Mapping[Any, Any]:
    *_, (_, watermark) = watermarks(records, streams_windows.TAKE, 2)
    found = revenue(records, late=False)
    return {key: row for key, row in found.items() if watermark and row[0] <= watermark}


def sessions(records: Records, *, closed: bool) -> Mapping[Any, Any]:
    """All clicks but the last one are in time."""
    found: dict[Any, Any] = {}
    for user, _, amount, at in sorted(records[:9], key=lambda record: (record[0], record[3])):
        last = max((key for key in found if key[0] == user), default=None)
        if last is None or at > found[last][0]:
            found[user, at] = at + 30 * MINUTE, 1, amount
        else:
            _, clicks, bought = found[last]
            found[last] = at + 30 * MINUTE, clicks + 1, bought + amount
    *_, (_, watermark) = watermarks(records, streams_sessions.TAKE, 20)
    return {
        key: row
        for key, row in found.items()
        if not closed or (watermark is not None and row[0] <= watermark)
    }


def late_clicks(records: Records) -> Mapping[Any, Any]:
    return {(user, at): (at + 30 * MINUTE, 1, amount) for user, _, amount, at in records[9:]}


def hourly(records: Records) -> Mapping[Any, Any]:
    found: dict[Any, Any] = {}
    for product, amount, at in records:
        start = floor(at, 60)
        _, sold = found.get((start, product), (None, 0))
        found[start, product] = start + 60 * MINUTE, sold + amount
    return found


def top(records: Records) -> Mapping[Any, Any]:
    *_, (_, watermark) = watermarks(records, streams_top.TAKE, 10)
    found: dict[Any, list[list[Any]]] = {}
    for (start, product), (end, sold) in hourly(records).items():
        if watermark is not None and end <= watermark:
            found.setdefault(start, []).append([sold, product])
    best = {start: sorted(each, reverse=True) for start, each in found.items()}
    # A state keeps a list as its text.
    return {
        start: json.dumps(each[: streams_top.BEST], separators=(",", ":"))
        for start, each in best.items()
    }


def fails(records: Records) -> dict[Any, int]:
    found: Counter[Any] = Counter()
    for ip, ok, at in records:
        for back in range(10):
            if not ok:
                found[floor(at, 1) - back * MINUTE, ip] += 1
    return found


def all_fails(records: Records) -> Mapping[Any, Any]:
    return {key: (key[0] + 10 * MINUTE, count) for key, count in fails(records).items()}


def alerts(records: Records) -> Mapping[Any, Any]:
    found: dict[Any, Any] = {}
    done: list[Sequence[Any]] = []
    for batch in batches(records, streams_alerts.TAKE):
        before = fails(done)
        done += batch
        for (start, ip), count in fails(done).items():
            if count > streams_alerts.FAILS_MAX >= before[start, ip]:
                found[ip, start] = count
    return found


def stock_of_sources(records: Records) -> Mapping[Any, Any]:
    found: dict[str, tuple[int, int]] = {}
    for row in records:
        pieces, moves = found.get(row[1], (0, 0))
        found[row[1]] = (pieces + (row[2] if len(row) > 2 else -1), moves + 1)
    return found


UNDER_KILLS: list[tuple[Callable[[str], Topology], Mapping[str, Any], Records]] = [
    (
        streams_word_count.topology,
        {"counts": counts},
        [(line,) for line in streams_word_count.LINES],
    ),
    (
        streams_balances.topology,
        {"balances": balances, "limits": limits, "alarms": alarms},
        streams_balances.EVENTS,
    ),
    (streams_branches.topology, {"totals": totals, "rejected": rejected}, streams_branches.SALES),
    (
        streams_sources.topology,
        {"stock": stock_of_sources},
        [*streams_sources.SALES, *streams_sources.RECEIPTS],
    ),
    (streams_stock.topology, {"stock": stock, "last_change": last_change}, streams_stock.MOVES),
    (
        streams_windows.topology,
        {
            "revenue": partial(revenue, late=False),
            "revenue_late": partial(revenue, late=True),
            "closed": revenue_closed,
            "stream-windows_marks": partial(marks, source="sales", table="revenue", delay=2),
        },
        streams_windows.SALES,
    ),
    (
        streams_sessions.topology,
        {
            "sessions": partial(sessions, closed=False),
            "closed": partial(sessions, closed=True),
            "sessions_late": late_clicks,
            "stream-sessions_marks": partial(marks, source="clicks", table="sessions", delay=20),
        },
        streams_sessions.CLICKS,
    ),
    (
        streams_top.topology,
        {
            "hourly": hourly,
            "hourly_late": nothing,
            "stream-top_marks": partial(marks, source="sales", table="hourly", delay=10),
            "top": top,
        },
        streams_top.SALES,
    ),
    (
        streams_alerts.topology,
        {
            "fails": all_fails,
            "fails_late": nothing,
            "stream-alerts_marks": partial(marks, source="logins", table="fails", delay=5),
            "alerts": alerts,
        },
        streams_alerts.LOGINS,
    ),
]


HOUR = datetime.timedelta(hours=1)


def let_through(records: Records, *, late: bool) -> Any:
    """The sales that are counted; or what is kept of late ones, by txid and number."""
    rows = [(shop, id, amount, at) for id, shop, amount, at in records]
    told = deduplicated(batches(rows, streams_deduplication.TAKE), 24 * HOUR, 10 * MINUTE)
    if late:
        # No txid has two.
        return {
            key: (id, shop, amount, at) for key, (shop, id, amount, at) in told.numbered().items()
        }
    return [row for _, row in told.emitted]


def sold_once(records: Records) -> Mapping[str, Any]:
    found: dict[str, tuple[int, int]] = {}
    for shop, _, amount, _ in let_through(records, late=False):
        count, total = found.get(shop, (0, 0))
        found[shop] = count + 1, total + amount
    return found


def seen(records: Records) -> Mapping[str, Any]:
    """No id is let through twice, so there are no earlier times."""
    return {id: (at, None) for _, id, _, at in let_through(records, late=False)}


UNDER_KILLS.append(
    (
        streams_deduplication.topology,
        {
            "per_shop": sold_once,
            "seen": seen,
            "seen_late": partial(let_through, late=True),
            "stream-deduplication_marks": partial(marks, source="sales", table="seen", delay=10),
        },
        streams_deduplication.SALES,
    )
)


@pytest.mark.parametrize("case", UNDER_KILLS, ids=lambda case: case[0].__module__)
def test_an_example_is_right_whatever_crashes(case: Any) -> None:
    topology, oracle, records = case

    simulate(topology("memory:"), oracle, seeds=SEEDS, records=records)


def joined_payments(records: Records) -> Mapping[str, Mapping[Any, Any]]:
    """The tables of orders and payments but for the buffer; each batch has one row of both."""
    pairs = []
    for batch in batches(records, 2):
        orders = [(row[0], row[0], (*row[1:3],), row[3]) for row in batch if row[0][0] == "o"]
        payments = [row for row in batch if row[0][0] == "p"]
        pairs.append((orders, payments))
    told = joined(pairs, 0 * HOUR, HOUR, "left", (MINUTE, 30 * MINUTE))
    settled, unpaid = {}, {}
    for _, (order, payment) in told.emitted:
        id, _, (customer, total), at = order
        if payment is None:
            unpaid[id,] = customer, total
        else:
            settled[id, payment[0]] = customer, total, at, *payment[2:]
    assert not told.late
    return {"settled": settled, "unpaid": unpaid, "order_payment_late": {}}


def test_orders_and_payments_are_right_whatever_crashes() -> None:
    """The buffer of the join is left out; what follows from it is compared."""
    topology = streams_orders_payments.topology("memory:")
    oracles = {
        name: partial(lambda name, records: joined_payments(records)[name], name)
        for name in joined_payments([])
    }
    handoff = ThreadHandoff()
    every = [*streams_orders_payments.ORDERS, *streams_orders_payments.PAYMENTS]
    for seed in range(SEEDS):
        found = _run(topology, oracles, seed, None, every, {}, handoff)

        assert not found.violations, f"seed {seed}: {found.violations[:3]}"
    handoff.close()


def test_sales_are_enriched_as_of_their_txid_whatever_crashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shops of Monday are read first; Tuesday's sales come, and shop b moves, meanwhile."""
    example, newest = streams_enrichment, DeltaLookup.newest

    def in_turn(self: DeltaLookup, fields: Fields, held: Any, time_ms: int) -> Any:
        if not (folder / "sales" / "tuesday.csv").exists():
            example.write_sales(folder, "tuesday.csv", example.TUESDAY)
        version: Any = newest(self, fields, held, time_ms)
        number = 0 if held is None else 1
        return version | {"version": number, "entry": self._log.digest_now(number)}

    def revenue(
        batches: Sequence[Records], stamps: Mapping[int, Any]
    ) -> dict[str, dict[Any, dict[str, Any]]]:
        found: Counter[str] = Counter()
        for txid, batch in enumerate(batches, 1):
            number = versions(stamps[txid])["shops"]["version"]
            used.add(number)
            for _, shop, amount in batch:
                found[[example.SHOPS, example.MOVED][number].get(shop, "unknown")] += amount
        return {"revenue": {country: {"revenue": total} for country, total in found.items()}}

    monkeypatch.setattr(DeltaLookup, "newest", in_turn)
    used: set[int] = set()
    for seed in range(SEEDS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        example.write_shops(folder, example.SHOPS)
        example.write_shops(folder, example.MOVED)
        example.write_sales(folder, "monday.csv", example.MONDAY)
        found = judged(example.topology("memory:", folder), seed, revenue)

        assert not found.violations, f"seed {seed}: {found.violations[:3]}"
    assert used == {0, 1}


def test_the_enriched_sales_are_those_that_pandas_joins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each day with the shops of that day."""
    pandas = pytest.importorskip("pandas")
    days = [
        (streams_enrichment.MONDAY, streams_enrichment.SHOPS),
        (streams_enrichment.TUESDAY, streams_enrichment.MOVED),
    ]
    parts = []
    for sales, shops in days:
        left = pandas.DataFrame(sales, columns=["id", "shop", "amount"])
        right = pandas.DataFrame(list(shops.items()), columns=["shop", "country"])
        parts.append(left.merge(right, on="shop", how="left").fillna({"country": "unknown"}))
    expected = pandas.concat(parts).groupby("country")["amount"].sum()

    lake = f"delta://{tmp_path}/states"
    streams_enrichment.main(None, LOCAL, lake, tmp_path)

    printed = capsys.readouterr().out.splitlines()
    assert printed == [f"{country}: {amount}" for country, amount in expected.items()]


@pytest.mark.parametrize("take", [50, 1000])
def test_revenue_kept_and_late_is_what_pandas_adds_up(take: int, tmp_path: Path) -> None:
    chance = random.Random(7)
    noon = streams_windows.at(0)
    times = [noon + (at / 50 - chance.expovariate(0.5)) * MINUTE for at in range(3000)]
    sales = [[f"s{n}", chance.choice("abc"), chance.randrange(99), t] for n, t in enumerate(times)]
    url = f"sqlite:///{tmp_path / 'sales.db'}"
    with streams_windows.topology(url, sales, take).start(None, LOCAL) as run:
        run.process_all_available()

    frames = []
    for table in ("revenue", "revenue_late"):
        with open_state(url, table=table).reader() as reader:
            rows = [[*key, row["revenue"], row["sales"]] for key, row in reader.items()]
        frames.append(pd.DataFrame(rows, columns=["start", "shop", "revenue", "sales"]))
    found = pd.concat(frames).groupby(["start", "shop"]).sum()
    frame = pd.DataFrame(sales, columns=["id", "shop", "amount", "ts"])
    frame["start"] = frame["ts"].dt.floor("5min")
    expected = frame.groupby(["start", "shop"])["amount"].agg(revenue="sum", sales="count")
    assert len(frames[1])
    assert rows_of(found) == rows_of(expected)


def rows_of(frame: Any) -> list[Any]:
    rows: list[Any] = frame.reset_index().to_numpy().tolist()
    return sorted(rows)
