"""Rows with event times, programs over them, and what their tables hold."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.unit.streams.worlds import LOCAL, run
from txtopo import BatchBolt, Committer, Config, Fields, StreamBuilder, open_state
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.streams import DataStream

EVENT = Fields("id string, key string, n long, ts timestamp")
NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)


def at(minute: float) -> datetime.datetime:
    """Return a time this many minutes after noon."""
    return NOON + datetime.timedelta(minutes=minute)


def minutes(time: datetime.datetime | None) -> float | None:
    """Return how many minutes a time is after noon."""
    return None if time is None else (time - NOON).total_seconds() / 60


def events(*given: tuple[str, float | None]) -> list[list[Any]]:
    """Return rows with numbers from 1, of keys and minutes after noon; None for no time."""
    return [
        [f"e{number}", key, number, None if minute is None else at(minute)]
        for number, (key, minute) in enumerate(given, 1)
    ]


def tables_of(
    program: Callable[[StreamBuilder, DataStream], object],
    rows: Sequence[Sequence[Any]],
    url: str,
    *names: str,
    take: int = 1,
    config: Config = LOCAL,
    dead_letters: Any = None,
    marks: Any = None,
    **time: Any,
) -> list[dict[Any, Any]]:
    """Run a program over one partition, *take* rows a txid; return what some tables hold."""
    builder = StreamBuilder("timed", dead_letters=dead_letters, marks=marks)
    spout = MemoryTransactionalSpout({0: rows}, EVENT, take)
    declared: Mapping[str, Any] = {"event_time": "ts", "max_ahead": None, **time}
    program(builder, builder.source("events", spout, **declared))
    run(builder.build_topology(), config)
    found = []
    for name in names:
        with open_state(url, table=name).reader() as reader:
            found.append(dict(reader.items()))
    return found


class KeepsNothing(BatchBolt, Committer):
    """A committer that keeps nothing."""

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None: ...

    def execute(self, tuple: Any) -> None: ...

    def finish_batch(self) -> None: ...


def without_a_table(builder: StreamBuilder, rows: DataStream) -> None:
    """A program without any table."""
    rows.to(KeepsNothing(), id="nothing")


def marks_of(url: str, table: str) -> dict[Any, Any]:
    """Return the marks and watermarks of a table, in minutes after noon."""
    with open_state(url, table=table).reader() as reader:
        return {key: minutes(row["time"]) for key, row in reader.items() if key[0] != "begun"}
