"""Random programs with event time, each from a seed, for a StreamBuilder or in plain Python.

Every stream has the fields id, shop, amount and ts again after a step. Closed windows are such rows
too, so windows stand below windows, and what has no event time any more goes into a table.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa

from tests.unit.streams.programs import plus
from tests.unit.streams.worlds import NOON, TIMED, TimedProgram
from txtopo import Count, Fields, Max, Min, Sum
from txtopo.streams import session, sliding, tumbling
from txtopo.streams.lookup_sources import LookupSource

GRID = datetime.timedelta(minutes=8)
IDLE = datetime.timedelta(seconds=2)
INTERVALS = (
    ("-2 minutes", "5 minutes"),
    ("0 minutes", "3 minutes"),
    ("-6 minutes", "-1 minute"),
    ("1 minute", "4 minutes"),
)
LATE: tuple[dict[str, Any], ...] = ({}, {}, {"late": False})
FULL = ("id", "shop", "amount", "ts")
STEPS_MAX = 6
WINDOWS = (
    tumbling("5 minutes"),
    tumbling("7 minutes", offset="3 minutes"),
    sliding("10 minutes", every="5 minutes"),
    sliding("7 minutes", every="3 minutes"),
    session("3 minutes"),
    session("8 minutes"),
)


def sources_of(seed: int) -> tuple[str, ...]:
    """Return the sources of the program of a seed."""
    return ("sales", "returns") if seed % 3 == 0 else ("sales",)


def random_timed_program(
    seed: int, delay: str | None = None, *, changes: bool = True, planned: bool = True
) -> TimedProgram:
    """Return the program of a seed; it does the same each time that it is called.

    Args:
        seed: The seed.
        delay: That of all sources, if it is not drawn.
        changes: Whether some do what depends on how a stream is cut into batches: read changes, or
            keep running values.
        planned: Whether some do what depends on when a batch is planned: sources that are idle or
            have a clock, and lookups with versions.
    """

    def program(builder: Any, source: Callable[..., Any], state: Callable[..., Any]) -> None:
        chance, streams = Random(seed), []
        for id in sources_of(seed):
            drawn = chance.choice(["0 seconds", "2 minutes", "10 minutes"])
            by = chance.choice([(), ("shop",)])
            # A clock moves the watermark to the planned time, so that all rows are late from then
            # on: one program in 16 has it.
            silent = chance.choice([{"idle_after": IDLE}] * 3 + [{"clock": IDLE}] + [{}] * 12)
            more = silent if planned else {}
            streams.append(source(id, event_time="ts", delay=delay or drawn, by=by, **more))
        TimedWriter(chance, builder, streams, state, changes, planned).write()

    return program


class TimedWriter:
    """Calls random operators on a builder, or on what stands for one."""

    def __init__(
        self,
        chance: Random,
        builder: Any,
        streams: list[Any],
        state: Any,
        changes: bool,
        planned: bool,
    ) -> None:
        self._chance, self._builder, self._state = chance, builder, state
        self._changes, self._planned = changes, planned
        # Each stream with whether its rows are closed windows, whose times are before their ends.
        self._streams = [(stream, False) for stream in streams]
        self._states = 0

    def write(self) -> None:
        steps = [getattr(self, name) for name in dir(self) if name.startswith("step_")]
        for _ in range(self._chance.randint(1, STEPS_MAX)):
            self._chance.choice(steps)()
        self.step_window()

    def step_map(self) -> None:
        stream, closed = self._chance.choice(self._streams)
        more = self._chance.randint(-3, 3)
        self._add(
            stream.map(
                lambda row: [row["id"], row["shop"], plus(row["amount"], 1, more), row["ts"]], TIMED
            ),
            closed,
        )

    def step_filter(self) -> None:
        stream, closed = self._chance.choice(self._streams)
        least = self._chance.randint(-5, 10)
        self._add(stream.filter(lambda row: (row["amount"] or 0) >= least), closed)

    def step_branch(self) -> None:
        stream, closed = self._chance.choice(self._streams)
        shop = self._chance.choice("abcd")
        for side in stream.branch(lambda row: row["shop"] <= shop):
            self._add(side, closed)

    def step_merge(self) -> None:
        stream, closed = self._chance.choice(self._streams)
        others = [each for each, alike in self._streams if alike == closed and each is not stream]
        sides = [stream, *others[:1]]
        renamed = [
            side.map(
                lambda row, m=f"{at}": [row["id"] + m, row["shop"], row["amount"], row["ts"]], TIMED
            )
            for at, side in enumerate(sides)
        ]
        self._add(self._builder.merge(*renamed), closed)

    def step_window(self) -> None:
        stream, _ = self._chance.choice(self._streams)
        key = self._chance.choice([("shop",), ("shop",), ("shop", "id"), ()])
        window = self._chance.choice(WINDOWS)
        more: dict[str, Any] = self._chance.choice(
            [{}, {}, {"late": False}, {"keep": "0 minutes"}, {"keep": "10 minutes"}]
        )
        table = (
            stream.group_by(*key)
            .window(window)
            .persistent_aggregate(
                self._new_state(),
                n=Count(),
                paid=Sum("amount"),
                least=Min("amount"),
                most=Max("amount"),
                **more,
            )
        )
        if window not in WINDOWS[-2:] and self._chance.random() < 0.3 and self._changes:
            table.changes(before=True).store(
                self._new_state(), key=("window_start", *key), order_by=("n",)
            )
        if self._chance.random() < 0.7:
            self._final(table, key)

    def step_drop_duplicates(self) -> None:
        """Rows of a shop are copies, or apart by GRID, so it does not matter which one is first."""
        stream, closed = self._chance.choice(self._streams)
        key = self._chance.choice([("shop",), ("shop", "amount")])
        kinds = len(key) > 1
        alike = stream.map(
            lambda row: [
                row["shop"],
                row["shop"],
                row["amount"] and row["amount"] % 2 if kinds else 1,
                on_grid(row["ts"]),
            ],
            TIMED,
        )
        unique = alike.drop_duplicates(
            *key, within=GRID, state=self._new_state(), **self._chance.choice(LATE)
        )
        self._add(unique, closed)

    def step_join(self) -> None:
        left, closed = self._chance.choice(self._streams)
        right, _ = self._chance.choice(self._streams)
        how, within = self._chance.choice(["inner", "left"]), self._chance.choice(INTERVALS)
        both = left.join(
            right.select("shop", rid="id", ramount="amount", rts="ts"),
            on="shop",
            how=how,
            within=within,
            state=self._new_state(),
            **self._chance.choice(LATE),
        )
        self._add(
            both.map(
                lambda row: [
                    f"{row['id']}{row['rid'] or ''}",
                    row["shop"],
                    plus(row["amount"], 1, row["ramount"] or 0),
                    row["ts"],
                ],
                TIMED,
            ),
            closed,
        )

    def step_lookup(self) -> None:
        stream, closed = self._chance.choice(self._streams)
        source, how = Regions(self._planned), self._chance.choice(["inner", "left"])
        self._states += 1
        regions = self._builder.lookup(
            f"regions{self._states}",
            source,
            key="shop",
            value="region string",
            refresh="0 seconds",
        )
        self._add(
            stream.join(regions, on="shop", how=how).map(
                lambda row: [f"{row['id']}{row['region']}", row["shop"], row["amount"], row["ts"]],
                TIMED,
            ),
            closed,
        )

    def step_update(self) -> None:
        stream, closed = self._chance.choice(self._streams)
        after = self._chance.choice(["2 minutes", "6 minutes"])
        if not self._changes:
            return
        totals = stream.group_by("shop").update(
            running,
            TIMED,
            state=self._new_state(value=Fields("total long")),
            order_by=FULL,
            expire_after=after,
        )
        self._add(totals, closed)

    def step_window_again(self) -> None:
        """Windows are what these programs are for."""
        self.step_window()

    def _final(self, table: Any, key: tuple[str, ...]) -> None:
        closed = table.final()
        if self._chance.random() < 0.5:
            closed.store(self._new_state(), key=("window_start", *key))
        if not key:
            closed = closed.with_columns(lambda row: ["all"], "shop string")
        self._add(
            closed.select("shop", "n", "paid", ts="window_end").map(
                lambda row: [f"{row['shop']}{row['n']}", row["shop"], row["paid"], row["ts"]], TIMED
            ),
            True,
        )

    def _add(self, stream: Any, closed: bool) -> None:
        self._streams.append((stream, closed))

    def _new_state(self, **more: Any) -> Any:
        self._states += 1
        return self._state(f"t{self._states}", **more)


def on_grid(at: datetime.datetime) -> datetime.datetime:
    """Return the next time on the grid; a later one, so that no row is late by it."""
    return NOON - (NOON - at) // GRID * GRID


def running(total: int | None, row: Any) -> tuple[int | None, list[Any]]:
    """Return the sum of the amounts, which begins again when it is large."""
    after = (total or 0) + (row["amount"] or 0)
    emitted = [row["id"], row["shop"], after, row["ts"]]
    return (None if after > 60 else after), emitted


class Regions(LookupSource):
    """The regions of three shops of four, which are others in each version."""

    columns = ("region",)
    name = identity = "regions"

    def __init__(self, versions: bool) -> None:
        self._versions = versions

    def check(self, fields: Fields) -> None:
        pass

    def newest(self, fields: Fields, held: Any, time_ms: int) -> Any:
        return (held or 0) + 1 if self._versions else 1

    def read(self, version: Any, key: Fields, value: Fields) -> pa.Table:
        rows = self.plain(version)
        regions = [row["region"] for row in rows.values()]
        return pa.table({"shop": list(rows), "region": regions})

    def plain(self, version: Any) -> dict[str, dict[str, str]]:
        known = version if self._versions else 1
        return {shop: {"region": f"{shop}{known}"} for shop in "abc"}
