"""Watermarks in one database and tables in others: a crash may come between their writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.unit.streams.plain import PlainBuilder
from tests.unit.streams.test_timed_joins import DELAY, duplicates, joining, matches, unique_rows
from tests.unit.streams.timed_worlds import assert_right, stream_of
from tests.unit.streams.times import EVENT
from tests.unit.streams.worlds import GROUPS
from txtopo import Count, open_state
from txtopo.streams import tumbling

pytestmark = pytest.mark.integration
WINDOW = tumbling("5 minutes")


def state(name: str, **more: Any) -> Any:
    """Open a table; those that read a watermark are in another database than those below them."""
    file = "below" if name in ("out", "closed") else "timed"
    return open_state(f"sqlite:///{file}.db", table=name, **more)


def windows(streams: Mapping[str, Any], state: Any) -> None:
    known = streams["l"].filter(lambda row: row["key"] is not None)
    table = known.group_by("key").window(WINDOW).persistent_aggregate(state("counts"), n=Count())
    table.final().store(state("closed"), key=("window_start", "key"))


def plain_windows(batches: Sequence[Mapping[str, Sequence[Any]]]) -> Any:
    builder = PlainBuilder()
    stream = builder.source("l", EVENT.names, event_time="ts", delay=DELAY)
    windows({"l": stream}, lambda name: name)
    builder.run(batches)
    return {
        name: {key: tuple(row.values()) for key, row in table.items()}
        for name, table in builder.tables.items()
    }


def sources(seed: int) -> dict[str, list[list[Any]]]:
    return {"l": stream_of(24, seed, "l")}


def two(seed: int) -> dict[str, list[list[Any]]]:
    return {"l": stream_of(24, seed, "l"), "r": stream_of(24, seed, "r")}


@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 8), marks=pytest.mark.slow)])
@pytest.mark.parametrize("config", [None, GROUPS], ids=["one by one", "groups"])
@pytest.mark.parametrize(
    ("program", "fold", "rows"),
    [
        (windows, plain_windows, sources),
        (duplicates, unique_rows, sources),
        (joining("left"), matches("left"), two),
    ],
    ids=["windows", "duplicates", "join"],
)
def test_marks_in_a_database_of_their_own_are_right_whatever_crashes(
    program: Any, fold: Any, rows: Any, config: Any, seeds: range
) -> None:
    """A txid may be redone in one store from a watermark that another store has left behind."""
    marks = open_state("sqlite:///marks.db", table="kept")

    assert_right(
        program,
        fold,
        rows,
        seeds,
        delay=DELAY,
        tasks=1,
        config=config,
        marks=marks,
        state=state,
    )
