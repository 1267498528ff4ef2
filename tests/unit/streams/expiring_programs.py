"""Random programs with ``expire_after``, and what their tables hold, in plain Python.

The plain program takes the rows of a batch one by one, in the order of their event times, and
forgets what has expired after each batch. Tables whose changes are read hold exactly that. Of the
others only what a query finds is judged, since rows that have expired may still be there.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.unit.streams.seeds import config_of
from tests.unit.streams.worlds import (
    BEGINNING,
    TIMED,
    RecuttingSpout,
    judged,
    planned_time,
    timed_sales,
    timed_topology,
)
from txtopo import Count, Sum
from txtopo.testing.simulation.campaign import Verdict

Row = Sequence[Any]
Time = datetime.datetime
Tables = dict[str, dict[Any, Any]]
ROWS = 16


@dataclass(frozen=True)
class ExpiringProgram:
    """A program over sales.

    Attributes:
        after: How long values live.
        delay: The delay of event time; None for planned time.
        grouped: Whether rows are grouped by shop.
    """

    after: datetime.timedelta
    delay: datetime.timedelta | None
    grouped: bool

    @classmethod
    def drawn(cls, seed: int) -> ExpiringProgram:
        chance = random.Random(seed)
        grouped = chance.random() < 0.8
        if chance.random() < 0.3:
            return cls(datetime.timedelta(seconds=chance.choice([0.5, 3, 20])), None, grouped)
        after, delay = chance.choice([1, 4, 9, 20]), chance.choice([0, 3])
        return cls(datetime.timedelta(minutes=after), datetime.timedelta(minutes=delay), grouped)

    def __call__(self, builder: Any, source: Any, state: Any) -> None:
        time = {} if self.delay is None else {"event_time": "ts", "delay": self.delay}
        sales = source("s", **time)
        groups = sales.group_by("shop") if self.grouped else sales.group_by()

        def summed(name: str) -> Any:
            return groups.persistent_aggregate(
                state(name), expire_after=self.after, n=Count(), total=Sum("amount")
            )

        table = summed("sums")
        rows = table.changes(retracted=True)
        rows.store(state("rows"), key="shop" if self.grouped else "key")
        rows.group_by().persistent_aggregate(state("sum"), groups=Count(), n=Sum("n"))
        latest = sales.as_table(
            state("latest"), key="shop", value=["id"], order_by="id", expire_after=self.after
        )
        latest.changes(retracted=True).group_by("id").persistent_aggregate(state("ids"), n=Count())
        latest.changes().store(state("told"), key="shop")
        if self.grouped:
            asked = sales.select("id", "shop").query(summed("unread"), on="shop")
            asked.store(state("answers"), key="id")
        found = sales.select("id", asked="shop").query(
            sales.as_table(
                state("unread_latest"),
                key="shop",
                value=["amount"],
                order_by="id",
                expire_after=self.after,
            ),
            on="asked",
        )
        found.store(state("found"), key="id")

    def tables(self, batches: Sequence[Sequence[Row]], stamps: Mapping[int, Any]) -> Tables:
        """Return what the tables hold after some batches."""
        sums, latest = Living(self.after), Latest(self.after)
        ever = False
        told: dict[Any, Any] = {}
        answers: dict[Any, Any] = {}
        found: dict[Any, Any] = {}
        ids: dict[Any, int] = {}
        before = after = None
        for txid, batch in enumerate(batches, 1):
            if self.delay is None:
                before = after = planned_time(stamps.get(txid))
                rows = [(row, after) for row in batch]
            else:
                before, rows = after, [(row, row[3]) for row in batch]
                times = [row[3] - self.delay for row in batch]
                after = max([*times, *([] if before is None else [before])], default=None)
            was = {key: row[0] for key, row in latest.values().items()}
            sums.take([(row[1] if self.grouped else "global", row, at) for row, at in rows], before)
            latest.take([(row[1], row, at) for row, at in rows], before)
            sums.forget(after)
            latest.forget(after)
            ever |= bool(sums.rows)
            now = {key: row[0] for key, row in latest.values().items()}
            for key in was.keys() | now.keys():
                if was.get(key) != now.get(key):
                    told[key] = {"id": now.get(key)}
                    for id, step in ((was.get(key), -1), (now.get(key), 1)):
                        if id is not None:
                            ids[id] = ids.get(id, 0) + step
            for row in batch:
                n, total = sums.summed().get(row[1], (None, None))
                answers[row[0]] = {"shop": row[1], "n": n, "total": total}
                amount = latest.values()[row[1]][2] if row[1] in now else None
                found[row[0]] = {"asked": row[1], "amount": amount}
        held = {
            key: {"n": n, "total": total, "seen": sums.seen[key]}
            for key, (n, total) in sums.summed().items()
        }
        tables: Tables = {
            "sums": held,
            "rows": {key: {"n": row["n"], "total": row["total"]} for key, row in held.items()},
            "latest": {
                key: {"id": row[0], "seen": latest.seen[key]}
                for key, row in latest.values().items()
            },
            "told": told,
            "ids": {id: {"n": count} for id, count in ids.items()},
            "found": found,
        }
        total = sum(n for n, _ in sums.summed().values())
        tables["sum"] = {"global": {"groups": len(held), "n": total}} if ever else {}
        if self.grouped:
            tables["answers"] = answers
        return tables


class Living:
    """The rows of each key since it was last without a value."""

    def __init__(self, after: datetime.timedelta) -> None:
        self._after = after
        self.rows: dict[Any, list[Row]] = {}
        self.seen: dict[Any, Time] = {}

    def take(self, rows: Sequence[tuple[Any, Row, Any]], now: Time | None) -> None:
        """Take the rows of a batch, in the order of their times."""
        self.forget(now)
        for key, row, at in sorted(rows, key=lambda each: each[2]):
            if key in self.seen and self.seen[key] + self._after <= at:
                del self.rows[key], self.seen[key]
            self.rows.setdefault(key, []).append(row)
            self.seen[key] = max(at, self.seen.get(key, at))

    def forget(self, now: Time | None) -> None:
        """Forget what has expired."""
        for key in list(self.seen):
            if now is not None and self.seen[key] + self._after <= now:
                del self.rows[key], self.seen[key]

    def summed(self) -> dict[Any, tuple[int, int | None]]:
        """Return the number of rows and the sum of amounts of each key."""
        found = {}
        for key, rows in self.rows.items():
            amounts = [row[2] for row in rows if row[2] is not None]
            found[key] = len(rows), sum(amounts) if amounts else None
        return found


class Latest(Living):
    """The last row of each key, by its id in the last batch that had one."""

    def take(self, rows: Sequence[tuple[Any, Row, Any]], now: Time | None) -> None:
        self.forget(now)
        for key, row, at in sorted(rows, key=lambda each: each[1][0]):
            self.rows[key] = [row]
            self.seen[key] = max(at, self.seen.get(key, at))

    def values(self) -> dict[Any, Row]:
        return {key: rows[-1] for key, rows in self.rows.items()}


def judged_expiring_program(seed: int) -> Verdict:
    """Run the program of a seed under its faults, and judge it."""
    program = ExpiringProgram.drawn(seed)
    rows = timed_sales(ROWS, seed, "s", BEGINNING)
    spout = RecuttingSpout(rows, 1 + seed % 5, 1 + seed % 3, TIMED)
    topology = timed_topology(program, {"s": spout}, 1 + seed % 3)
    return judged(topology, seed, program.tables, rows, config_of(seed))
