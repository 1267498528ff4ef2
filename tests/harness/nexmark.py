"""What the queries of NEXMark must find, computed with pandas from all events at once."""

from __future__ import annotations

import datetime
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd

from examples.nexmark.generator import FIELDS, Generator
from examples.nexmark.queries import SIDE_INPUT
from txtopo import Topology

Table = Mapping[Any, tuple[Any, ...]]
"""The values by key; a key of several columns is a tuple."""


@dataclass(frozen=True)
class Events:
    """Events so far.

    Attributes:
        persons: All persons.
        auctions: All auctions.
        bids: All bids.
        delay: How late an event may be.
    """

    persons: pd.DataFrame
    auctions: pd.DataFrame
    bids: pd.DataFrame
    delay: datetime.timedelta = datetime.timedelta(seconds=3)

    @classmethod
    def made_by(cls, generator: Generator, first: int | None = None) -> Events:
        """Return all events of a generator, or the first ones."""
        numbers = np.arange(generator.events if first is None else first)
        frames = [generator.rows(kind, numbers).to_pandas() for kind in FIELDS]
        return cls(frames[0], frames[1], frames[2])

    @classmethod
    def of(cls, records: Any) -> Events:
        """Return events from tuples of all kinds."""
        persons: list[Any] = []
        auctions: list[Any] = []
        bids: list[Any] = []
        for record in records:
            if len(record) == len(FIELDS["auctions"]):
                auctions.append(record)
            else:
                (persons if isinstance(record[1], str) else bids).append(record)
        rows = (persons, auctions, bids)
        frames = [
            pd.DataFrame(each, columns=FIELDS[kind].names)
            for kind, each in zip(FIELDS, rows, strict=True)
        ]
        return cls(frames[0], frames[1], frames[2])

    def watermark(self, *kinds: str) -> Any:
        """Return the watermark of some kinds; None if one has no row yet."""
        frames = [getattr(self, kind) for kind in kinds]
        if any(frame.empty for frame in frames):
            return None
        return min(frame["date_time"].max() for frame in frames) - self.delay


def q0(events: Events) -> Table:
    """Return all bids."""
    return keyed(events.bids, ["id"])


def q1(events: Events) -> Table:
    """Return all bids with prices in euros."""
    prices = [
        (price * Decimal("0.908")).quantize(Decimal("0.001"))
        for price in map(Decimal, events.bids["price"])
    ]
    bids = events.bids.drop(columns="price")
    bids["price"] = pd.Series(prices, bids.index, dtype=object)
    return keyed(bids[["id", "auction", "bidder", "price", "date_time"]], ["id"])


def q2(events: Events) -> Table:
    """Return the bids on each 123rd auction."""
    bids = events.bids[events.bids["auction"] % 123 == 0]
    return keyed(bids[["id", "auction", "price"]], ["id"])


def q3(events: Events) -> Table:
    """Return auctions of category 10 with their sellers in three states."""
    persons = events.persons[events.persons["state"].isin(["OR", "ID", "CA"])]
    auctions = events.auctions[events.auctions["category"] == 10]
    found = auctions[["id", "seller"]].merge(
        persons[["id", "name", "city", "state"]], left_on="seller", right_on="id"
    )
    return keyed(found[["id_x", "name", "city", "state"]], ["id_x"])


def q5_counts(events: Events) -> pd.DataFrame:
    """Return how many bids each auction had in each window of ten seconds."""
    shifted = [
        events.bids[["auction"]].assign(
            window_start=events.bids["date_time"].dt.floor("2s") - pd.Timedelta(seconds=back)
        )
        for back in (0, 2, 4, 6, 8)
    ]
    counts = pd.concat(shifted).groupby(["window_start", "auction"]).size()
    return counts.rename("num").reset_index()


def q5_counted(events: Events) -> Table:
    """Return the number of bids of each window and auction."""
    counts = q5_counts(events)
    counts = counts.assign(end=counts["window_start"] + pd.Timedelta(seconds=10))
    return keyed(counts[["window_start", "auction", "end", "num"]], ["window_start", "auction"])


def q5_most(events: Events) -> Table:
    """Return the largest number of bids on an auction in each window that is closed."""
    counts = closed(q5_counts(events), events.watermark("bids"))
    return keyed(counts.groupby("window_start")["num"].max().reset_index(), ["window_start"])


def q5(events: Events) -> Table:
    """Return the auctions with the most bids in each window that is closed."""
    counts = closed(q5_counts(events), events.watermark("bids"))
    most = counts.groupby("window_start")["num"].transform("max")
    return keyed(counts[counts["num"] == most], ["window_start", "auction"])


def q7(events: Events) -> Table:
    """Return the highest bids of each ten seconds, closed or not."""
    bids = events.bids.assign(window_start=events.bids["date_time"].dt.floor("10s"))
    highest = bids[bids["price"] == bids.groupby("window_start")["price"].transform("max")]
    ten = datetime.timedelta(seconds=10)
    return {
        moment(start): (
            moment(start) + ten,
            [
                int(rows["price"].iloc[0]),
                sorted(map(list, rows[["id", "auction", "bidder"]].itertuples(index=False))),
            ],
        )
        for start, rows in highest.groupby("window_start")
    }


def q8_both(events: Events) -> Table:
    """Return how often each person registered and opened auctions in each ten seconds."""
    persons = events.persons[["id", "name", "date_time"]].assign(persons=1, auctions=0)
    sellers = events.auctions[["seller", "date_time"]].rename(columns={"seller": "id"})
    both = pd.concat([persons, sellers.assign(name=None, persons=0, auctions=1)])
    both["window_start"] = both["date_time"].dt.floor("10s")
    found = {}
    for (start, id), rows in both.groupby(["window_start", "id"]):
        name = rows["name"].dropna().max() if rows["name"].notna().any() else None
        end = moment(start) + datetime.timedelta(seconds=10)
        found[moment(start), id] = (
            end,
            name,
            int(rows["persons"].sum()),
            int(rows["auctions"].sum()),
        )
    return found


def q8(events: Events) -> Table:
    """Return the persons who opened auctions in the ten seconds in which they registered."""
    persons = events.persons.assign(window_start=events.persons["date_time"].dt.floor("10s"))
    auctions = events.auctions.assign(window_start=events.auctions["date_time"].dt.floor("10s"))
    sellers = auctions[["seller", "window_start"]].drop_duplicates()
    both = persons.merge(
        sellers, left_on=["id", "window_start"], right_on=["seller", "window_start"]
    )
    both = closed(both, events.watermark("persons", "auctions"))
    return keyed(both[["window_start", "id", "name"]], ["window_start", "id"])


def won(events: Events) -> pd.DataFrame:
    """Return each bid on an auction that was open, with the auction."""
    bids = events.bids[["auction", "bidder", "price", "id", "date_time"]]
    bids = bids.rename(columns={"id": "bid", "date_time": "bid_time"})
    both = events.auctions.merge(bids, left_on="id", right_on="auction")
    return both[(both["bid_time"] >= both["date_time"]) & (both["bid_time"] <= both["expires"])]


def q4_final(events: Events) -> Table:
    """Return the highest price of each auction."""
    final = won(events).groupby(["id", "category"])["price"].max().reset_index()
    return keyed(final, ["id", "category"])


def q4_stored(events: Events) -> Table:
    """Return the sum and number of the highest prices of each category."""
    final = won(events).groupby(["id", "category"])["price"].max().reset_index()
    return keyed(
        final.groupby("category")["price"].agg(["sum", "count"]).reset_index(), ["category"]
    )


def q4(events: Events) -> Table:
    """Return the mean of the highest prices of each category."""
    return {category: (total / count,) for category, (total, count) in q4_stored(events).items()}


def q9(events: Events) -> Table:
    """Return the highest bid on each auction, the earliest among equals."""
    best = won(events).sort_values(["price", "bid_time", "bid"], ascending=[False, True, True])
    best = best.drop_duplicates("id")
    return keyed(best[["id", "bid", "bidder", "price", "bid_time"]], ["id"])


def q11(events: Events) -> Table:
    """Return the bids of each bidder until a pause of ten seconds."""
    bids = events.bids[["bidder", "date_time"]].sort_values(["bidder", "date_time"])
    gap = pd.Timedelta(seconds=10)
    begins = bids.groupby("bidder")["date_time"].diff().fillna(2 * gap) > gap
    sessions = bids.assign(session=begins.cumsum()).groupby(["session", "bidder"])["date_time"]
    found = sessions.agg(["min", "max", "count"]).reset_index()
    found["end"] = found["max"] + gap
    return keyed(found[["bidder", "min", "end", "count"]], ["bidder", "min"])


def q12(events: Events) -> Table:
    """Return the bids of each bidder; which ten seconds they are in depends on the run."""
    counts = events.bids.groupby("bidder").size().rename("bids").reset_index()
    return keyed(counts, ["bidder"])


def q13(events: Events) -> Table:
    """Return all bids with the side input."""
    side = pd.read_csv(SIDE_INPUT)
    bids = events.bids.assign(key=events.bids["auction"] % 100).merge(side, on="key")
    return keyed(bids[["id", "auction", "bidder", "price", "date_time", "key", "item"]], ["id"])


def q18(events: Events) -> Table:
    """Return the last bid of each bidder on each auction."""
    last = events.bids.sort_values(["date_time", "id"]).drop_duplicates(
        ["bidder", "auction"], keep="last"
    )
    return keyed(last[["bidder", "auction", "id", "price", "date_time"]], ["bidder", "auction"])


def q19(events: Events) -> Table:
    """Return the ten highest bids on each auction; among equal prices the labels decide."""
    bids = events.bids[["auction", "price", "id", "bidder"]]
    labels = bids["id"].astype(str) + ", " + bids["bidder"].astype(str) + "]"
    ranked = bids.assign(labels=labels).sort_values(["price", "labels"], ascending=False)
    found: dict[Any, list[list[Any]]] = {}
    for row in ranked.groupby("auction").head(10)[bids.columns].itertuples(index=False):
        auction, *bid = map(plain, row)
        found.setdefault(auction, []).append(bid)
    return {auction: (best,) for auction, best in found.items()}


def marks(table: str, *kinds: str) -> Callable[[Events], Table]:
    """Return what the marks of some kinds must be, and the watermark of a table."""

    def of(events: Events) -> Table:
        found: dict[Any, tuple[Any, ...]] = {}
        for kind in kinds:
            times = getattr(events, kind)["date_time"]
            if len(times):
                for what in ("mark", "source"):
                    found[what, kind, '["date_time"]', ""] = (plain(times.max()), None)
        watermark = events.watermark(*kinds)
        if watermark is not None:
            found["watermark", table, "", ""] = (plain(watermark), None)
        return found

    return of


def nothing(events: Events) -> Table:
    """Return the late rows, of which there are none."""
    return {}


def oracle(table: str) -> Callable[[Any], Table]:
    """Return what a table must hold after some records, as the simulator compares it."""
    known: dict[int, Table] = {}

    def of(records: Any) -> Table:
        # Batches are the same in each run, so their number says which records there are.
        if len(records) not in known:
            found = TABLES[table](Events.of(records))
            known[len(records)] = {
                key: tuple(
                    json.dumps(each, separators=(",", ":")) if isinstance(each, list) else each
                    for each in value
                )
                for key, value in found.items()
            }
        return known[len(records)]

    return of


def q20(events: Events) -> Table:
    """Return the bids on auctions of category 10, with the auction."""
    auctions = events.auctions[events.auctions["category"] == 10]
    auctions = auctions.drop(columns=["description", "extra"])
    bids = events.bids[["auction", "bidder", "price", "id", "date_time"]]
    bids = bids.rename(columns={"id": "bid", "date_time": "bid_time"})
    both = auctions.merge(bids, left_on="id", right_on="auction").drop(columns="auction")
    return keyed(both, ["bid"])


def closed(rows: pd.DataFrame, watermark: pd.Timestamp | None, size_s: int = 10) -> pd.DataFrame:
    """Return the rows whose window is closed."""
    if watermark is None:
        return rows[:0]
    return rows[rows["window_start"] + pd.Timedelta(seconds=size_s) <= watermark]


def keyed(rows: pd.DataFrame, key: list[str]) -> Table:
    """Return rows by their key."""
    rest = [name for name in rows.columns if name not in key]
    keys, values = (
        [tuple(map(plain, row)) for row in rows[names].astype(object).itertuples(index=False)]
        for names in (key, rest)
    )
    return {(k[0] if len(k) == 1 else k): v for k, v in zip(keys, values, strict=True)}


def plain(value: Any) -> Any:
    """Return a value of pandas as a state has it."""
    if isinstance(value, pd.Timestamp):
        return moment(value)
    return value.item() if hasattr(value, "item") else value


def moment(time: Any) -> datetime.datetime:
    """Return a time of pandas as one of Python."""
    found: datetime.datetime = time.to_pydatetime()
    return found.astimezone(datetime.UTC)


def held(reader: Any) -> Table:
    """Return what a table holds."""
    return {
        key: tuple(value.values()) if isinstance(value, dict) else (value,)
        for key, value in reader.items()
    }


def of_all_times(found: Table) -> Table:
    """Return a table of q12 by bidder: which ten seconds the run was in is not known."""
    counts: Counter[Any] = Counter()
    for (start, bidder), (bids,) in found.items():
        assert start.timestamp() % 10 == 0
        counts[bidder] += bids
    return {bidder: (bids,) for bidder, bids in counts.items()}


def tables_of(program: Topology) -> dict[str, str]:
    """Return the table of each state, by component and name: ``q5_counts.late``."""
    return {
        f"{id}.{name}": state.layout().name
        for id, component in program.graph.components.items()
        for name, state in component.states.items()
    }


EXPECTED: Mapping[str, Callable[[Events], Table]] = {
    query.__name__: query
    for query in (q0, q1, q2, q3, q4, q5, q7, q8, q9, q11, q12, q13, q18, q19, q20)
}

TABLES: Mapping[str, Callable[[Events], Table]] = {
    **EXPECTED,
    "q5_counts": q5_counted,
    "q5_most": q5_most,
    "q5_counts_late": nothing,
    "nexmark-q5_marks": marks("q5_counts", "bids"),
    "q4": q4_stored,
    "q4_final": q4_final,
    "q7_late": nothing,
    "nexmark-q7_marks": marks("q7", "bids"),
    "q11_late": nothing,
    "nexmark-q11_marks": marks("q11", "bids"),
    "q4_open_late": nothing,
    "nexmark-q4_marks": marks("q4_open", "auctions", "bids"),
    "q9_open_late": nothing,
    "nexmark-q9_marks": marks("q9_open", "auctions", "bids"),
    "q20_open_late": nothing,
    "nexmark-q20_marks": marks("q20_open", "auctions", "bids"),
    "q8_both": q8_both,
    "q8_both_late": nothing,
    "nexmark-q8_marks": marks("q8_both", "persons", "auctions"),
}
"""All tables of the queries as they are stored, but for those in which a join keeps rows."""

UNSETTLED = {
    "q5_counts": "closed windows are forgotten, and nobody knows at which txid",
    "q8_both": "closed windows are forgotten, and nobody knows at which txid",
}
"""The tables that hold one thing or another after a txid, and why."""

SEEN: Mapping[str, Callable[[Events], Table]] = {
    table: expected for table, expected in {**TABLES, **EXPECTED}.items() if table not in UNSETTLED
}
"""The tables as a reader sees them, with q12 as in :func:`of_all_times`."""
