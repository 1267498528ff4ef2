"""Compares what a store holds of the flights with what plain pandas counts."""

from __future__ import annotations

import io

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table

from examples.flights import SUMS, flights_csv
from txtopo import open_state

KEYS = ["carrier", "hour"]


def counted_by_pandas() -> pd.DataFrame:
    """Return the sums per carrier and hour, counted without txtopo."""
    rows = pd.read_csv(io.BytesIO(flights_csv()), usecols=[*KEYS, "dep_time", "dep_delay"])
    departed = rows["dep_time"].notna()
    rows["departures"] = departed.astype("int64")
    rows["delay_minutes"] = rows["dep_delay"].where(departed, 0).astype("int64")
    rows["cancellations"] = (~departed).astype("int64")
    return rows.groupby(KEYS)[list(SUMS)].sum()


def counted_by_txtopo(state: str, name: str) -> pd.DataFrame:
    """Return the sums per carrier and hour, as the store holds them."""
    with open_state(state, table=f"{name}_by_carrier_hour").reader() as reader:
        rows = [(*key, *(value[sum_] for sum_ in SUMS)) for key, value in reader.items()]
    return pd.DataFrame(rows, columns=[*KEYS, *SUMS]).set_index(KEYS).sort_index()


def total_in_store(state: str, name: str) -> dict[str, int]:
    """Return the sums over everything, as the store holds them; zeros before the first commit."""
    with open_state(state, table=f"{name}_total").reader() as reader:
        return reader.get("global") or dict.fromkeys(SUMS, 0)


def progress_in_store(state: str, name: str) -> tuple[int, int]:
    """Return the txid that the store holds, and how many flights are counted in it."""
    with open_state(state, table=f"{name}_total").reader() as reader:
        total = reader.get("global")
        flights = total["departures"] + total["cancellations"] if total else 0
        return reader.ledger.txid if reader.ledger else 0, flights


def compare(state: str, name: str, console: Console) -> bool:
    """Print both tables side by side and return whether all numbers are equal."""
    store, pandas = counted_by_txtopo(state, name), counted_by_pandas()
    total = pd.Series(total_in_store(state, name))
    table = Table(
        "carrier", title="in the store, and counted by pandas", box=box.SIMPLE, pad_edge=False
    )
    for column in ["departed", "delay min", "cancelled"] * 2:
        table.add_column(column, justify="right")
    ours, theirs = store.groupby("carrier").sum(), pandas.groupby("carrier").sum()
    for carrier in theirs.index:
        mine = ours.loc[carrier] if carrier in ours.index else total * 0
        numbers = [f"{number:,}" for number in [*mine, *theirs.loc[carrier]]]
        table.add_row(carrier, *numbers)
    table.add_row("total", *[f"{n:,}" for n in [*total, *pandas.sum()]], style="bold")
    console.print(table)
    return bool(store.equals(pandas) and total.equals(pandas.sum()))
