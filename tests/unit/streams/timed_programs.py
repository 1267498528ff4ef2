"""Random programs with event time, each from a seed, for a StreamBuilder or in plain Python.

Every stream has the fields id, shop, amount and ts again after a step. Closed windows are such rows
too, so windows stand below windows, and what has no event time any more goes into a table.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tests.unit.streams.programs import plus
from tests.unit.streams.worlds import TIMED, TimedProgram
from txtopo import Count, Max, Min, Sum
from txtopo.streams import session, sliding, tumbling

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
    seed: int, delay: str | None = None, *, changes: bool = True
) -> TimedProgram:
    """Return the program of a seed; it does the same each time that it is called.

    Args:
        seed: The seed.
        delay: That of all sources, if it is not drawn.
        changes: Whether some read changes, which depend on how a stream is cut into batches.
    """

    def program(builder: Any, source: Callable[..., Any], state: Callable[..., Any]) -> None:
        chance, streams = Random(seed), []
        for id in sources_of(seed):
            drawn = chance.choice(["0 seconds", "2 minutes", "10 minutes"])
            by = chance.choice([(), ("shop",)])
            streams.append(source(id, event_time="ts", delay=delay or drawn, by=by))
        TimedWriter(chance, builder, streams, state, changes).write()

    return program


class TimedWriter:
    """Calls random operators on a builder, or on what stands for one."""

    def __init__(
        self, chance: Random, builder: Any, streams: list[Any], state: Any, changes: bool
    ) -> None:
        self._chance, self._builder, self._state, self._changes = chance, builder, state, changes
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

    def _new_state(self) -> Any:
        self._states += 1
        return self._state(f"t{self._states}")
