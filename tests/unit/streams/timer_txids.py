"""Runs the committer of ``process`` txid by txid, times in seconds, and counts what it reads."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tests.unit.streams.txids import second, seconds
from txtopo import Fields, TransactionAttempt, open_state
from txtopo.config import Config
from txtopo.state.ledger import Claim, Owner
from txtopo.state.transaction import StateHandle
from txtopo.streams.event_time import WATERMARK
from txtopo.streams.timers import Processing, TimedValues
from txtopo.tuples import DEFAULT_STREAM, Origin, Tuple

ROW = Fields("key string, n long, ts timestamp")
WATER = ("watermark", "w")
Row = tuple[str, int, float]
"""A key, a number and a time in seconds."""

Emitted = list[tuple[Any, ...]]


class Timed:
    """Txids of one operator; its functions emit rows of a text and a number.

    Args:
        function: The function for rows.
        on_timer: The function for timers.
        planned: Whether the timers fire by planned time.
        url: The store.
        value: The columns of the value.
        order_by: The columns by which the rows of a batch are ordered.

    Attributes:
        read: How many rows each method of a snapshot has returned, by the name of the state.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        on_timer: Callable[..., Any],
        *,
        planned: bool = False,
        url: str = "memory:",
        value: str = "value long",
        order_by: Sequence[str] = (),
    ) -> None:
        key = ROW.select(["key"])
        self.states = {
            "values": open_state(url, table="values_kept").with_columns(key, Fields(value)),
            "timers": open_state(url, table="timers")
            .with_columns(Fields("key string, timer string"), Fields("at timestamp"))
            .ranged("at"),
        }
        watermark = None if planned else WATER
        given = Processing(key, function, on_timer, tuple(order_by), "timers", watermark)
        self._given = given
        self._planned = planned
        self.read: dict[str, Counter[str]] = {name: Counter() for name in self.states}
        self.backends: dict[str, Any] = {}
        for name, state in self.states.items():
            self.backends[name] = state.open()
            self.backends[name].create()
            self.backends[name].claim(Claim(Owner("t", name, name), 1))
        self.txid = 0
        self._before: datetime.datetime | None = None
        self._after: datetime.datetime | None = None

    def run(self, rows: Sequence[Row], now: float | None, *, attempt: int = 0) -> Emitted:
        """Run a txid and write it; return what it emits.

        Args:
            rows: Its rows.
            now: The watermark after it, or its planned time; None for an unknown watermark.
            attempt: More than 0 to run the last txid again.
        """
        self.txid += 0 if attempt else 1
        if not attempt:
            self._before = self._after
        held = TransactionAttempt(self.txid, attempt, 1)
        handles = self.handles()
        bolt = TimedValues("values", self._given, Fields("what string, n long"))
        emitted = _Collected()
        at = None if now is None else second(now)
        context = _Context(handles, at)
        bolt.prepare(Config(), context, emitted, held)  # type: ignore[arg-type]
        if not self._planned:
            bolt.execute(Tuple([self._before, at], Origin(held, *WATER, WATERMARK)))
        origin = Origin(held, "rows", DEFAULT_STREAM, ROW)
        for key, number, time in rows:
            bolt.execute(Tuple([key, number, second(time)], origin))
        bolt.finish_batch()
        for name, handle in handles.items():
            assert handle.writes is not None
            self.backends[name].commit(held, handle.writes)
        self._after = at
        return emitted.rows

    def handles(self) -> dict[str, StateHandle]:
        return {
            name: StateHandle(name, state.layout(), Counting(self.backends[name], self.read[name]))  # type: ignore[arg-type]
            for name, state in self.states.items()
        }

    def values(self) -> dict[str, Any]:
        """Return the values."""
        held = self._held("values")
        return {key: value[0] if len(value) == 1 else value for (key,), value in held.items()}

    def timers(self) -> dict[tuple[str, str], float | None]:
        """Return the moment of each timer, by key and name."""
        return {key: seconds(at) for key, (at,) in self._held("timers").items()}

    def _held(self, name: str) -> Mapping[Any, tuple[Any, ...]]:
        with self.backends[name].snapshot() as snapshot:
            return {key: row.current for key, row in snapshot.items() if not row.deleted}


class Counting:
    """A state that counts the rows which its snapshots return, by method."""

    def __init__(self, backend: Any, read: Counter[str]) -> None:
        self._backend, self._read = backend, read

    @contextmanager
    def snapshot(self) -> Iterator[Any]:
        with self._backend.snapshot() as snapshot:
            yield CountingSnapshot(snapshot, self._read)


class CountingSnapshot:
    """A snapshot that counts the rows which it returns."""

    def __init__(self, snapshot: Any, read: Counter[str]) -> None:
        self._snapshot, self._read = snapshot, read

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._snapshot, name)
        if not callable(found):
            return found

        def counted(*arguments: Any) -> Any:
            rows = found(*arguments)
            rows = rows if hasattr(rows, "__len__") else list(rows)
            self._read[name] += len(rows)
            return rows

        return counted


class _Context:
    def __init__(
        self, states: dict[str, StateHandle], planned_time: datetime.datetime | None
    ) -> None:
        self.state, self.planned_time = states.__getitem__, planned_time


class _Collected:
    def __init__(self) -> None:
        self.rows: Emitted = []

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        self.rows.append(tuple(values))
