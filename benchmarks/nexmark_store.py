"""The tables that Structured Streaming and the plain loop write, and the upsert of both."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa

Rows = set[tuple[Any, ...]]


def flat(key: Any, value: tuple[Any, ...]) -> Iterable[tuple[Any, ...]]:
    """Return a row of a state as one row."""
    yield (*(key if isinstance(key, tuple) else (key,)), *value)


def highest(key: Any, value: tuple[Any, ...]) -> Iterable[tuple[Any, ...]]:
    """Return the highest bids of a window, a row for each."""
    price, bids = value[1]
    for bid in bids:
        yield (key, value[0], price, *bid)


def top(key: Any, value: tuple[Any, ...]) -> Iterable[tuple[Any, ...]]:
    """Return the ten highest bids of an auction, a row for each."""
    for price, id, bidder in value[0]:
        yield (id, key, bidder, price)


@dataclass(frozen=True)
class Table:
    """A table of results.

    Attributes:
        columns: Names and types, as PostgreSQL has them.
        key: How many of the columns, from the first on, are the key.
        newer: Where an upsert replaces a row ``t`` by ``excluded``; always by default.
        sets: What an upsert sets; by default all columns.
        after: A statement after each upsert.
        results: A query of the results; by default the table.
        rows: Returns the rows of a key and its values in the state of txtopo.
    """

    columns: str
    key: int = 1
    newer: str = ""
    sets: str = ""
    after: str = ""
    results: str = "SELECT * FROM results"
    rows: Callable[[Any, tuple[Any, ...]], Iterable[tuple[Any, ...]]] = flat

    @property
    def names(self) -> list[str]:
        """The columns."""
        return [column.split()[0] for column in self.columns.split(", ")]

    @property
    def types(self) -> list[str]:
        """Their types."""
        return [column.split(maxsplit=1)[1] for column in self.columns.split(", ")]

    def create(self) -> str:
        """Return the statement that makes the table."""
        return (
            f"CREATE TABLE results ({self.columns}, "
            f"PRIMARY KEY ({', '.join(self.names[: self.key])}))"
        )

    def upsert(self) -> str:
        """Return the statement that upserts a list for each column."""
        lists = ", ".join(f"%s::{each}[]" for each in self.types)
        sets = self.sets or ", ".join(f"{each} = excluded.{each}" for each in self.names)
        where = f" WHERE {self.newer}" if self.newer else ""
        return (
            f"INSERT INTO results AS t SELECT * FROM unnest({lists}) "
            f"ON CONFLICT ({', '.join(self.names[: self.key])}) DO UPDATE SET {sets}{where}"
        )

    def rows_of(self, held: Mapping[Any, tuple[Any, ...]]) -> Rows:
        """Return the rows of a state of txtopo."""
        return {row for key, value in held.items() for row in self.rows(key, value)}

    def stored(self, connection: psycopg.Connection) -> Rows:
        """Return the rows of the table."""
        return {
            tuple(
                each.astimezone(datetime.UTC) if isinstance(each, datetime.datetime) else each
                for each in row
            )
            for row in connection.execute(self.results)
        }


class Results:
    """Writes batches of results, each once: its number is in the same transaction.

    Args:
        connection: To an empty database.
        table: The table.
    """

    def __init__(self, connection: psycopg.Connection, table: Table) -> None:
        self._connection, self._table = connection, table
        connection.execute(table.create())
        connection.execute("CREATE TABLE progress (batch bigint NOT NULL)")
        connection.execute("INSERT INTO progress VALUES (-1)")
        connection.commit()

    def write(self, rows: pa.Table, batch: int) -> None:
        """Upsert the rows of a batch, unless that was done."""
        with self._connection.transaction():
            found = self._connection.execute("SELECT batch FROM progress FOR UPDATE").fetchone()
            assert found is not None
            if found[0] >= batch:
                return
            if rows.num_rows:
                columns = [rows.column(name).to_pylist() for name in self._table.names]
                self._connection.execute(self._table.upsert(), columns)
                if self._table.after:
                    self._connection.execute(self._table.after)
            self._connection.execute("UPDATE progress SET batch = %s", [batch])


BID = "auction bigint, bidder bigint, price bigint, channel text, url text, date_time timestamptz"
TABLES: Mapping[str, Table] = {
    "q0": Table(f"id bigint, {BID}, extra text"),
    "q1": Table(
        "id bigint, auction bigint, bidder bigint, price numeric(18,3), date_time timestamptz"
    ),
    "q2": Table("id bigint, auction bigint, price bigint"),
    "q3": Table("auction bigint, name text, city text, state text"),
    "q4": Table(
        "id bigint, category bigint, price bigint",
        sets="price = greatest(t.price, excluded.price)",
        results="SELECT category, avg(price)::float8 FROM results GROUP BY category",
    ),
    "q5": Table("window_start timestamptz, auction bigint, num bigint", key=2),
    "q7": Table(
        "window_start timestamptz, window_end timestamptz, price bigint, id bigint, "
        "auction bigint, bidder bigint",
        newer="excluded.price > t.price",
        rows=highest,
    ),
    "q8": Table("window_start timestamptz, id bigint, name text", key=2),
    "q9": Table(
        "id bigint, bid bigint, bidder bigint, price bigint, bid_time timestamptz",
        newer="(-excluded.price, excluded.bid_time, excluded.bid) < (-t.price, t.bid_time, t.bid)",
    ),
    "q11": Table(
        "bidder bigint, session_start timestamptz, session_end timestamptz, bids bigint", key=2
    ),
    "q12": Table(
        "window_start timestamptz, bidder bigint, bids bigint",
        key=2,
        sets="bids = t.bids + excluded.bids",
    ),
    "q13": Table(
        "id bigint, auction bigint, bidder bigint, price bigint, date_time timestamptz, "
        "key bigint, item text"
    ),
    "q18": Table(
        "bidder bigint, auction bigint, id bigint, price bigint, date_time timestamptz",
        key=2,
        newer="(excluded.date_time, excluded.id) > (t.date_time, t.id)",
    ),
    "q19": Table(
        "id bigint, auction bigint, bidder bigint, price bigint",
        after=(
            "DELETE FROM results USING (SELECT id, row_number() OVER "
            "(PARTITION BY auction ORDER BY price DESC, id::text DESC) AS place FROM results) "
            "AS ranked WHERE ranked.id = results.id AND place > 10"
        ),
        rows=top,
    ),
    "q20": Table(
        "bid bigint, id bigint, item_name text, initial_bid bigint, reserve bigint, "
        "date_time timestamptz, expires timestamptz, seller bigint, category bigint, "
        "bidder bigint, price bigint, bid_time timestamptz"
    ),
}
"""The table of each query."""
