"""Random programs with windows of a number of rows, and what their tables hold, in plain Python.

A model keeps all rows of each key in a list and cuts it into windows, after each txid from the
beginning. It knows no counts, stores, tasks or attempts.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.unit.streams.scripted import stamped
from tests.unit.streams.seeds import config_of
from tests.unit.streams.worlds import NAMES, RecuttingSpout, judged, sales, topology_of
from txtopo import Count, Max, Sum
from txtopo.streams import sliding, tumbling
from txtopo.testing.simulation.campaign import Verdict

ROWS = 24

Row = Mapping[str, Any]
Held = dict[Any, dict[str, Any]]


@dataclass(frozen=True)
class RowWindowProgram:
    """A program: its windows, and what is above and below them.

    Attributes:
        key: The columns of the group.
        size: How many rows a window has.
        every: How many rows are between two ends.
        order_by: The columns by which the rows of a batch are ordered.
        keep: How many full windows of a key are kept; None for all.
        merged: Whether the rows come as two streams, which are merged again.
        asked: Whether each row asks for the first window of its key.
    """

    key: tuple[str, ...]
    size: int
    every: int
    order_by: tuple[str, ...]
    keep: int | None
    merged: bool
    asked: bool

    @classmethod
    def of(cls, seed: int) -> RowWindowProgram:
        """Return the program of a seed."""
        chance = Random(f"windows of rows {seed}")
        size = chance.choice([1, 2, 3, 3, 4, 5, 7])
        key = chance.choice([("shop",), ("shop",), ()])
        return cls(
            key,
            size,
            size if chance.random() < 0.5 else chance.randint(1, size),
            chance.choice([(), (), ("id",), ("amount", "id")]),
            chance.choice([None, None, 0, 1, 3]),
            merged=chance.random() < 0.4,
            asked=bool(key) and chance.random() < 0.5,
        )

    def __call__(self, builder: Any, rows: Any, state: Any) -> None:
        """Write the program."""
        if self.merged:
            rows = builder.merge(*rows.branch(lambda row: (row["amount"] or 0) % 2 == 0))
        size, every = self.size, self.every
        window = tumbling(rows=size) if every == size else sliding(rows=size, every=every)
        table = (
            rows.group_by(*self.key)
            .window(window)
            .persistent_aggregate(
                state("windows"),
                order_by=self.order_by,
                keep=self.keep,
                n=Count(),
                total=Sum("amount"),
                last=Max("id"),
            )
        )
        key = (*self.key, "window_number")
        full = stamped(table.final()).group_by("batch", *key)
        full.persistent_aggregate(
            state("full"), times=Count(), last=Max("last"), total=Max("total")
        )
        table.changes().store(state("changed"), key=key)
        if self.asked:
            first = rows.select("id", "shop").with_columns(lambda _: [1], "window_number long")
            first.query(table, on=("shop", "window_number")).select("id", "n").store(
                state("asked"), key="id"
            )

    def held(self, batches: Sequence[Sequence[Sequence[Any]]], _: object = None) -> dict[str, Held]:
        """Return what the tables hold after some batches."""
        tables: dict[str, Held] = {"windows": {}, "windows_counts": {}, "full": {}, "changed": {}}
        if self.asked:
            tables["asked"] = {}
        arrived: dict[tuple[Any, ...], list[Row]] = {}
        for txid, batch in enumerate(batches, 1):
            before = {key: len(rows) for key, rows in arrived.items()}
            rows = self._in_order([dict(zip(NAMES, each, strict=True)) for each in batch])
            for row in rows:
                arrived.setdefault(tuple(row[name] for name in self.key), []).append(row)
            for key, all_rows in arrived.items():
                self._apply(tables, key, all_rows, before.get(key, 0), txid)
            for row in rows if self.asked else ():
                found = tables["windows"].get((row["shop"], 1))
                tables["asked"][row["id"]] = {"n": None if found is None else found["n"]}
        return tables

    def _in_order(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if self.merged:
            rows = sorted(rows, key=lambda row: (row["amount"] or 0) % 2)

        def place(row: Row) -> tuple[Any, ...]:
            return tuple((row[name] is not None, row[name] or 0) for name in self.order_by)

        return sorted(rows, key=place) if self.order_by != ("id",) else _by_id(rows)

    def _apply(
        self,
        tables: Mapping[str, Held],
        key: tuple[Any, ...],
        rows: Sequence[Row],
        before: int,
        txid: int,
    ) -> None:
        """Cut the rows of a key into windows; take those that have changed in a txid."""
        tables["windows_counts"][key or ("global",)] = {"rows": len(rows)}
        for number in itertools.count(1):
            end = number * self.every
            start = max(end - self.size, 0)
            inside = rows[start:end]
            if not inside:
                break
            full, place = end <= len(rows), (*key, number)
            found = _aggregated(inside)
            if full and self.keep is not None and number <= len(rows) // self.every - self.keep:
                tables["windows"].pop(place, None)
            else:
                tables["windows"][place] = found
            if len(rows) > before < end:
                tables["changed"][place] = found
            if full and before < end:
                parts = {"times": 1, "last": found["last"], "total": found["total"]}
                tables["full"][txid, *place] = parts


def _by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: str(row["id"]))


def _aggregated(rows: Sequence[Row]) -> dict[str, Any]:
    amounts = [row["amount"] for row in rows if row["amount"] is not None]
    return {
        "n": len(rows),
        "total": sum(amounts) if amounts else None,
        "last": max(row["id"] for row in rows),
    }


def judged_row_windows(seed: int) -> Verdict:
    """Run the program of a seed under the faults of that seed, and judge it."""
    program, rows = RowWindowProgram.of(seed), sales(ROWS, seed)
    # What rows come first of several tasks that merge is not known, unless the program says it.
    tasks = 1 + seed % 3 if program.order_by or not program.merged else 1
    topology = topology_of(program, RecuttingSpout(rows, 1 + seed % 7), tasks)
    return judged(topology, seed, program.held, rows, config_of(seed))
