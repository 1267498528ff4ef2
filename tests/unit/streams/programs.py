"""Random programs of the stream API, each from a seed; they run on a StreamBuilder or in plain
Python.

Every stream has the fields id, shop and amount again after a step, so any operator can follow any
other. Rows may be equal, but never only in the fields that they are ordered by.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tests.unit.streams.worlds import SALE, Program
from txtopo import Count, Fields, Max, Min, Sum

FULL = ("id", "shop", "amount")
STEPS_MAX = 8
AMOUNT_MAX = 10_000


def random_program(seed: int) -> Program:
    """Return the program of a seed; it does the same each time that it is called."""

    def program(builder: Any, sales: Any, state: Callable[..., Any]) -> None:
        Writer(Random(seed), builder, sales, state).write()

    return program


class Writer:
    """Calls random operators on a builder, or on what stands for one."""

    def __init__(self, chance: Random, builder: Any, source: Any, state: Any) -> None:
        self._chance, self._builder, self._state = chance, builder, state
        # Each stream and each table with the number of the tables that it depends on.
        self._streams: list[tuple[Any, frozenset[int]]] = [(source, frozenset())]
        self._tables: list[tuple[Any, set[int], str]] = []
        self._states = 0

    def write(self) -> None:
        steps = [getattr(self, name) for name in dir(self) if name.startswith("step_")]
        for _ in range(self._chance.randint(2, STEPS_MAX)):
            self._chance.choice(steps)()
        if not self._states:
            self.step_store()

    def step_map(self) -> None:
        stream, upon = self._stream()
        factor, more = self._chance.choice([-1, 1, 2]), self._chance.randint(-3, 3)
        self._add(
            stream.map(
                lambda row: [row["id"], row["shop"], plus(row["amount"], factor, more)], SALE
            ),
            upon,
        )

    def step_flat_map(self) -> None:
        stream, upon = self._stream()
        times = self._chance.randint(2, 3)
        self._add(
            stream.flat_map(
                lambda row: [
                    [f"{row['id']}/{n}", row["shop"], row["amount"]]
                    for n in range((row["amount"] or 0) % times)
                ],
                SALE,
            ),
            upon,
        )

    def step_filter(self) -> None:
        stream, upon = self._stream()
        least = self._chance.randint(-5, 20)
        self._add(stream.filter(lambda row: (row["amount"] or 0) >= least), upon)

    def step_with_columns(self) -> None:
        stream, upon = self._stream()
        wide = stream.with_columns(
            lambda row: [row["shop"] + row["id"][-1], row["amount"] is None],
            "shop string, empty boolean",
        )
        self._add(wide.filter(lambda row: not row["empty"]).select(*FULL), upon)

    def step_select(self) -> None:
        stream, upon = self._stream()
        self._add(stream.select("amount", "shop", "id").select(*FULL), upon)

    def step_branch(self) -> None:
        stream, upon = self._stream()
        shop = self._chance.choice("abcd")
        for side in stream.branch(lambda row: row["shop"] <= shop):
            self._add(side, upon)

    def step_merge(self) -> None:
        chosen = self._chance.sample(self._streams, min(len(self._streams), 2))
        sides = []
        for at, (stream, _) in enumerate(chosen):
            # No stream of a merge twice, and distinct ids.
            mark = f"{at}"
            sides.append(
                stream.map(lambda row, m=mark: [row["id"] + m, row["shop"], row["amount"]], SALE)
            )
        self._add(self._builder.merge(*sides), frozenset().union(*(upon for _, upon in chosen)))

    def step_aggregate(self) -> None:
        stream, upon = self._stream()
        sums = stream.group_by("shop").aggregate(amount=Sum("amount"), n=Count())
        self._add(
            sums.map(lambda row: [f"{row['shop']}{row['n']}", row["shop"], row["amount"]], SALE),
            upon,
        )

    def step_persistent_aggregate(self) -> None:
        stream, upon = self._stream()
        key = self._chance.choice([("shop",), ("shop", "id"), ()])
        table = stream.group_by(*key).persistent_aggregate(
            self._new_state(),
            paid=Sum("amount"),
            n=Count(),
            least=Min("amount"),
            most=Max("amount"),
        )
        if key == ("shop",):
            self._tables.append((table, set(upon), "paid"))
            if self._chance.random() < 0.5:
                self._changes(table, len(self._tables) - 1)

    def step_as_table(self) -> None:
        stream, upon = self._stream()
        renamed = stream.select("shop", "id", paid="amount")
        table = renamed.as_table(
            self._new_state(), key="shop", value="paid", order_by=("id", "paid")
        )
        self._tables.append((table, set(upon), "paid"))
        if self._chance.random() < 0.5:
            self._changes(table, len(self._tables) - 1)

    def step_max_by(self) -> None:
        stream, upon = self._stream()
        renamed = stream.select("shop", who="id", paid="amount")
        by = self._chance.choice([("paid",), ("paid", "who"), ("who", "paid")])
        smallest = [name for name in by if self._chance.random() < 0.3]
        value = self._chance.choice([None, ("paid", "who")])
        grouped = renamed.group_by("shop")
        table = grouped.max_by(self._new_state(), by=by, value=value, smallest=smallest)
        self._tables.append((table, set(upon), "paid"))
        if self._chance.random() < 0.5:
            self._changes(table, len(self._tables) - 1)

    def step_store(self) -> None:
        stream, _ = self._stream()
        stream.store(self._new_state(), key="id", order_by=FULL)

    def step_update(self) -> None:
        stream, upon = self._stream()
        booked = stream.group_by("shop").update(
            book, SALE, state=self._new_state(value=Fields("value long")), order_by=FULL
        )
        self._add(booked, upon)

    def step_query(self) -> None:
        stream, upon = self._stream()
        free = [at for at in range(len(self._tables)) if at not in self._upstream(upon)]
        if not free:
            return
        at = self._chance.choice(free)
        table, above, value = self._tables[at]
        above |= upon
        asked = stream.query(table, on="shop")
        self._add(
            asked.map(
                lambda row: [row["id"], row["shop"], plus(row["amount"], 1, row[value] or 0)], SALE
            ),
            upon | {at},
        )

    def _changes(self, table: Any, at: int) -> None:
        value = self._tables[at][2]
        changes = table.changes(before=True).map(
            lambda row: [
                row["shop"],
                row["shop"],
                plus(row[value], 1, -(row[f"before_{value}"] or 0)),
            ],
            SALE,
        )
        self._add(changes, frozenset({at}))

    def _stream(self) -> tuple[Any, frozenset[int]]:
        return self._chance.choice(self._streams)

    def _add(self, stream: Any, upon: frozenset[int]) -> None:
        self._streams.append((stream, upon))

    def _upstream(self, upon: frozenset[int]) -> set[int]:
        """All tables that a stream depends on, also through streams that query them."""
        waiting, found = list(upon), set[int]()
        while waiting:
            at = waiting.pop()
            if at not in found:
                found.add(at)
                waiting += self._tables[at][1]
        return found

    def _new_state(self, **more: Any) -> Any:
        self._states += 1
        return self._state(f"t{self._states}", **more)


def plus(amount: int | None, factor: int, more: int) -> int | None:
    return None if amount is None else (amount * factor + more) % AMOUNT_MAX


def book(value: int | None, row: Any) -> Any:
    value = ((value or 0) + (row["amount"] or 1)) % AMOUNT_MAX
    return (None if value % 5 == 0 else value), [row["id"], row["shop"], value]
