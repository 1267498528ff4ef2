"""Random programs with a join without a bound in time, each from a seed, and what they must hold.

The rows of the source are sales. Each side of the join is a stream of them, or a table made of them
or what changes in it, with the columns ``shop``, which is the key, ``a`` and ``b``. The rows of the
join are counted below it, and if both sides are tables, they are a table again. The plain program
makes both sides again after each txid, from all sales, and joins them
(``plain_regular_joins.py``). With every third seed rows expire by planned time.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.unit.streams.plain_regular_joins import Row, joined
from tests.unit.streams.worlds import (
    GROUPS,
    NAMES,
    RecuttingSpout,
    judged,
    memory_state,
    planned_time,
    sales,
)
from txtopo import Count, StreamBuilder, Sum, Topology
from txtopo.streams import DataStream, Table
from txtopo.testing.simulation.campaign import Verdict

HOWS = ("inner", "left", "right", "full")
ROWS = 20
COLUMNS = ("shop", "la", "lb", "ra", "rb")

Sale = dict[str, Any]


@dataclass(frozen=True)
class Side:
    """A side of a join.

    Attributes:
        make: Makes it of the source, with the names of its columns and its state.
        live: Returns its rows after some sales: shop, a and b.
        distinct: Whether no two of its rows are equal.
    """

    make: Callable[[DataStream, str, str, Any], DataStream | Table]
    live: Callable[[Sequence[Sale]], Counter[Row]]
    distinct: bool = True


def judged_join(seed: int) -> Verdict:
    """Run the program of a seed under the faults of that seed, and judge it."""
    rows, config = sales(ROWS, seed), GROUPS if seed % 2 else None
    topology = join_topology(seed, rows)
    return judged(topology, seed, lambda *planned: plain(seed, *planned), rows, config)


def join_topology(seed: int, rows: Sequence[Sequence[Any]]) -> Topology:
    """Return the program of a seed."""
    how, left, right = drawn(seed)
    builder = StreamBuilder("joins")
    source = builder.source("sales", RecuttingSpout(rows, 1 + seed % 4), 1 + seed % 2)
    one = left.make(source, "la", "lb", memory_state("left"))
    other = right.make(source, "ra", "rb", memory_state("right"))
    more: Any = {"how": how, "expire_after": life_of(seed)}
    both = one.join(other, on="shop", state=memory_state("joined"), **more)
    texts = both.map(
        lambda row: [
            repr(tuple(row[name] for name in COLUMNS)),
            1,
            both.retracted is not None and row["retracted"],
        ],
        "row string, one long, retracted boolean",
    )
    texts.group_by("row").persistent_aggregate(
        memory_state("counted"), retracted="retracted", n=Count()
    )
    if left.distinct and right.distinct:
        texts.as_table(memory_state("table"), key="row")
    return builder.build_topology()


def plain(
    seed: int, batches: Sequence[Sequence[Sequence[Any]]], stamps: Mapping[int, Any]
) -> dict[str, dict[Any, dict[str, Any]]]:
    """Return what the tables below the join must hold after some batches.

    A row that is no longer in the join is still counted, with 0.
    """
    how, left, right = drawn(seed)
    alive = Alive(left, life_of(seed)), Alive(right, life_of(seed))
    rows: list[Sale] = []
    counted: dict[str, int] = {}
    found: Counter[Row] = Counter()
    for txid, batch in enumerate(batches, 1):
        rows += [dict(zip(NAMES, sale, strict=True)) for sale in batch]
        now = planned_time(stamps.get(txid))
        found = joined(alive[0].after(rows, now), alive[1].after(rows, now), how, (2, 2))
        counted = dict.fromkeys(counted, 0) | {repr(row): n for row, n in found.items()}
    held = {"counted": {(text,): {"n": n} for text, n in counted.items()}}
    if left.distinct and right.distinct:
        held["table"] = {(repr(row),): {"one": 1} for row in found}
    return held


def life_of(seed: int) -> datetime.timedelta | None:
    """Return how long a row lives without a change; None for ever."""
    if seed % 3 != 2:
        return None
    return datetime.timedelta(milliseconds=Random(f"{seed}/life").randint(100, 4_000))


class Alive:
    """The rows of a side that have not expired.

    Args:
        side: The side.
        life: How long a row lives without a change; None for ever.
    """

    def __init__(self, side: Side, life: datetime.timedelta | None) -> None:
        self._side, self._life = side, life
        self._before: Counter[Row] = Counter()
        self._alive: Counter[Row] = Counter()
        self._changed: dict[Row, datetime.datetime] = {}

    def after(self, rows: Sequence[Sale], now: datetime.datetime | None) -> Counter[Row]:
        """Return the rows after a txid that was planned at some time; the sales are all so far."""
        live = self._side.live(rows)
        if self._life is None:
            return live
        assert now is not None
        for row in live | self._before:
            if difference := live[row] - self._before[row]:
                self._alive[row] = max(self._alive[row] + difference, 0)
                self._changed[row] = now
            if row[0] is not None and self._changed[row] + self._life <= now:
                self._alive[row] = 0
        self._before = live
        return +self._alive


def drawn(seed: int) -> tuple[str, Side, Side]:
    """Return how a seed joins, and what."""
    chance = Random(seed)
    sides = [chance.choice([stream, totals, changes, latest, numbered]) for _ in range(2)]
    left, right = (side(chance.randint(1, 5)) for side in sides)
    return chance.choice(HOWS), left, right


def stream(some: int) -> Side:
    """Return rows that stay, of which many are equal, and some have no key."""

    def row_of(row: Any) -> list[Any]:
        amount = row["amount"] or 0
        return [None if row["shop"] == "d" else row["shop"], amount % some, amount % 2]

    return Side(
        lambda source, a, b, _: source.map(row_of, f"shop string, {a} long, {b} long"),
        lambda rows: Counter(tuple(row_of(row)) for row in rows),
        distinct=False,
    )


def totals(some: int) -> Side:
    """Return a table with the number and the total of the sales of each shop."""

    def live(rows: Sequence[Sale]) -> Counter[Row]:
        found: dict[str, list[int]] = {}
        for row in rows:
            total = found.setdefault(row["shop"], [0, 0])
            total[0] += 1
            total[1] += row["amount"] or 0
        return Counter((shop, *total) for shop, total in found.items())

    def make(source: DataStream, a: str, b: str, state: Any) -> Table:
        known = source.with_columns(lambda row: [row["amount"] or 0], "amount long")
        columns: dict[str, Any] = {a: Count(), b: Sum("amount")}
        return known.group_by("shop").persistent_aggregate(state, **columns)

    return Side(make, live)


def changes(some: int) -> Side:
    """Return the changes of such a table, of which some rows are left out."""
    table = totals(some)

    def make(source: DataStream, a: str, b: str, state: Any) -> DataStream:
        made = table.make(source, a, b, state)
        assert isinstance(made, Table)
        return made.changes(retracted=True).filter(lambda row: row[a] % (some + 1) > 0)

    return Side(
        make,
        lambda rows: Counter(
            {row: n for row, n in table.live(rows).items() if row[1] % (some + 1)}
        ),
    )


def latest(some: int) -> Side:
    """Return a table with the largest amount of each shop, which may be NULL, and its id."""

    def live(rows: Sequence[Sale]) -> Counter[Row]:
        best: dict[str, Row] = {}
        for row in rows:
            found = (row["amount"] is not None, row["amount"] or 0, row["id"])
            best[row["shop"]] = max(best.get(row["shop"], found), found)
        return Counter((shop, n if known else None, id) for shop, (known, n, id) in best.items())

    return Side(
        lambda source, a, b, state: (
            source.select("shop", **{a: "amount", b: "id"})
            .group_by("shop")
            .max_by(state, by=(a, b))
        ),
        live,
    )


def numbered(some: int) -> Side:
    """Return a table with the last shop of each of some numbers: many rows for a key."""

    def row_of(row: Any) -> list[Any]:
        return [int(row["id"][1:]) % (some + 2), row["shop"], row["id"]]

    def live(rows: Sequence[Sale]) -> Counter[Row]:
        last: dict[int, Row] = {}
        for row in sorted(rows, key=lambda row: str(row["id"])):
            number, shop, id = row_of(row)
            last[number] = (shop, number, id)
        return Counter(last.values())

    return Side(
        lambda source, a, b, state: (
            source.map(row_of, f"{a} long, shop string, {b} string")
            .group_by(a)
            .max_by(state, by=b, value=("shop", b))
        ),
        live,
    )
