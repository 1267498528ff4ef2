"""Queries of NEXMark in plain Python, with Arrow and pandas; what they remember is in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from examples.nexmark.generator import Generator, Kind
from examples.nexmark.queries import EURO

SCHEMA = pa.schema(
    [("auction", pa.int64()), ("name", pa.string()), ("city", pa.string()), ("state", pa.string())]
)
"""The rows that q3 finds."""


class Plain(ABC):
    """A query: gets the events of a batch, and returns the rows to upsert."""

    kinds: Sequence[Kind] = ("bids",)

    def __init__(self, generator: Generator) -> None:
        self.delay = pd.Timedelta(milliseconds=generator.delayed_by_ms)
        self.newest: dict[int, Any] = {}
        self.kept = pd.DataFrame()

    @abstractmethod
    def step(self, *tables: pa.Table) -> pa.Table:
        """Take the events of a batch, a table for each kind."""

    def watermark(self, *tables: pa.Table) -> Any:
        """Return the watermark after a batch."""
        for at, table in enumerate(tables):
            newest = pc.max(table["date_time"]).as_py()
            self.newest[at] = max(newest, self.newest.get(at, newest))
        return pd.Timestamp(min(self.newest.values())) - self.delay

    def closed(self, watermark: Any) -> pd.DataFrame:
        """Take out the windows that are closed."""
        done = self.kept["window_start"] + pd.Timedelta(seconds=10) <= watermark
        found: pd.DataFrame = self.kept[done]
        self.kept = self.kept[~done]
        return found


class Q0(Plain):
    def step(self, *tables: pa.Table) -> pa.Table:
        return tables[0]


class Q1(Plain):
    def step(self, *tables: pa.Table) -> pa.Table:
        (bids,) = tables
        price = pc.multiply(bids["price"].cast(pa.decimal128(19, 0)), pa.scalar(EURO))
        place = bids.schema.get_field_index("price")
        return bids.set_column(place, "price", price)


class Q2(Plain):
    def step(self, *tables: pa.Table) -> pa.Table:
        (bids,) = tables
        auction = bids["auction"]
        rest = pc.subtract(auction, pc.multiply(pc.divide(auction, 123), 123))
        return bids.filter(pc.equal(rest, 0))


class Q3(Plain):
    kinds = ("auctions", "persons")

    def __init__(self, generator: Generator) -> None:
        super().__init__(generator)
        self.persons: dict[int, tuple[str, str, str]] = {}
        self.waiting: dict[int, list[int]] = {}

    def step(self, *tables: pa.Table) -> pa.Table:
        auctions, persons = tables
        found: list[Any] = []
        auctions = auctions.filter(pc.equal(auctions["category"], 10))
        pairs = zip(auctions["id"].to_pylist(), auctions["seller"].to_pylist(), strict=True)
        for id, seller in pairs:
            if seller in self.persons:
                found.append((id, *self.persons[seller]))
            else:
                self.waiting.setdefault(seller, []).append(id)
        chosen = pc.is_in(persons["state"], pa.array(["OR", "ID", "CA"]))
        columns = persons.filter(chosen).select(["id", "name", "city", "state"]).columns
        for id, *person in zip(*(column.to_pylist() for column in columns), strict=True):
            self.persons[id] = tuple(person)
            found += [(auction, *person) for auction in self.waiting.pop(id, ())]
        names = ["auction", "name", "city", "state"]
        return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in found], SCHEMA)


class Q5(Plain):
    def step(self, *tables: pa.Table) -> pa.Table:
        (bids,) = tables
        watermark = self.watermark(bids)
        rows = bids.select(["auction", "date_time"]).to_pandas()
        first = rows["date_time"].dt.floor("2s")
        shifted = [
            rows[["auction"]].assign(window_start=first - pd.Timedelta(seconds=back))
            for back in (0, 2, 4, 6, 8)
        ]
        counts = pd.concat(shifted).groupby(["window_start", "auction"]).size().rename("num")
        both = pd.concat([self.kept, counts.reset_index()])
        self.kept = both.groupby(["window_start", "auction"])["num"].sum().reset_index()
        found = self.closed(watermark)
        most = found.groupby("window_start")["num"].transform("max")
        return pa.Table.from_pandas(found[found["num"] == most], preserve_index=False)


class Q7(Plain):
    def step(self, *tables: pa.Table) -> pa.Table:
        (bids,) = tables
        rows = bids.select(["id", "auction", "bidder", "price", "date_time"]).to_pandas()
        rows["window_start"] = rows["date_time"].dt.floor("10s")
        best = rows.loc[rows.groupby("window_start")["price"].idxmax()]
        best["window_end"] = best["window_start"] + pd.Timedelta(seconds=10)
        return pa.Table.from_pandas(best, preserve_index=False)


class Q8(Plain):
    kinds = ("persons", "auctions")

    def __init__(self, generator: Generator) -> None:
        super().__init__(generator)
        self.persons: dict[Any, str] = {}
        self.sellers: set[Any] = set()

    def step(self, *tables: pa.Table) -> pa.Table:
        persons, auctions = (table.to_pandas() for table in tables)
        entered = dict(
            zip(
                zip(persons["date_time"].dt.floor("10s"), persons["id"], strict=True),
                persons["name"],
                strict=True,
            )
        )
        opened = set(zip(auctions["date_time"].dt.floor("10s"), auctions["seller"], strict=True))
        self.persons |= entered
        self.sellers |= opened
        found = sorted(
            {key for key in {*entered, *opened} if key in self.persons and key in self.sellers}
        )
        windows, ids = [key[0] for key in found], [key[1] for key in found]
        names = [self.persons[key] for key in found]
        return pa.table({"window_start": windows, "id": ids, "name": names})


class Q18(Plain):
    def step(self, *tables: pa.Table) -> pa.Table:
        rows = tables[0].select(["bidder", "auction", "id", "price", "date_time"]).to_pandas()
        last = rows.sort_values(["date_time", "id"]).drop_duplicates(
            ["bidder", "auction"], keep="last"
        )
        return pa.Table.from_pandas(last, preserve_index=False)


class Q19(Plain):
    def step(self, *tables: pa.Table) -> pa.Table:
        rows = tables[0].select(["id", "auction", "bidder", "price"]).to_pandas()
        rows = rows.sort_values("price", ascending=False)
        return pa.Table.from_pandas(rows.groupby("auction").head(10), preserve_index=False)


PLAIN: Mapping[str, type[Plain]] = {
    kind.__name__.lower(): kind for kind in (Q0, Q1, Q2, Q3, Q5, Q7, Q8, Q18, Q19)
}
"""The queries by name."""
