"""The states of windows, sessions, duplicates and joins stay as small as their horizon says.

Event number *n* happens *n* seconds after noon. Files of events come one after the other; after
each the run has deleted what has expired, beside its commits, and the rows in the database are
counted. What may be left follows from the horizon: what has not expired by the watermark of the
last txid but one, since that of the last one may still be taken back.
"""

from __future__ import annotations

import datetime
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.harness.polling import wait_until
from tests.unit.runtime.stamping import ONE_BY_ONE
from tests.unit.streams.times import NOON
from txtopo import Count, Fields, StreamBuilder, Sum, open_state
from txtopo.context import EPOCH
from txtopo.runtime import expiry
from txtopo.spouts import FilesTransactionalSpout
from txtopo.streams import DataStream, session, tumbling

pytestmark = pytest.mark.integration

EVENT = Fields("id long, key long, ts timestamp")
FILES, BATCHES_OF_FILE = 5, 4
KEYS = 10
DELAY = 20
SECOND = datetime.timedelta(seconds=1)


@dataclass(frozen=True)
class Sizes:
    """How many events there are, and in a batch; and the horizon, which is half a batch.

    All of them are seconds as well.
    """

    events: int

    @property
    def batch(self) -> int:
        return self.events // (FILES * BATCHES_OF_FILE)

    @property
    def horizon(self) -> int:
        return self.batch // 2

    @property
    def known(self) -> int:
        """How many of the last events may not have expired: a batch, the delay and the horizon."""
        return self.batch + DELAY + self.horizon


Program = Callable[[Mapping[str, DataStream], Callable[[str], Any], Sizes], DataStream]
"""Takes the streams, what opens a state and the sizes; returns rows with a column ``n`` to add."""


def unique(streams: Mapping[str, DataStream], state: Callable[[str], Any], n: Sizes) -> DataStream:
    """Each event repeats the one before it, or is repeated."""
    within = n.horizon * SECOND
    pairs = streams["left"].with_columns(lambda row: [row["id"] // 2], "id long")
    rows = pairs.drop_duplicates("id", within=within, state=state("kept"))
    return rows.map(lambda row: [1], "n long")


def windows(streams: Mapping[str, DataStream], state: Callable[[str], Any], n: Sizes) -> DataStream:
    size = n.horizon * SECOND / 4
    aligned = tumbling(size, offset=(NOON - EPOCH) % size)
    windowed = streams["left"].group_by("key").window(aligned)
    keep = n.horizon * SECOND * 3 / 4
    return windowed.persistent_aggregate(state("kept"), keep=keep, n=Count()).final()


def sessions(
    streams: Mapping[str, DataStream], state: Callable[[str], Any], n: Sizes
) -> DataStream:
    """Each ten events are of a user who does not come back."""
    users = streams["left"].with_columns(lambda row: [row["id"] // KEYS], "key long")
    windowed = users.group_by("key").window(session(n.horizon * SECOND / 4))
    keep = n.horizon * SECOND * 3 / 4
    return windowed.persistent_aggregate(state("kept"), keep=keep, n=Count()).final()


def matches(streams: Mapping[str, DataStream], state: Callable[[str], Any], n: Sizes) -> DataStream:
    right = streams["right"].select("id", rkey="key", rts="ts")
    within = (-n.horizon * SECOND, n.horizon * SECOND)
    both = streams["left"].join(right, on="id", within=within, state=state("kept"))
    return both.map(lambda row: [1], "n long")


def rows_of_windows(n: Sizes) -> int:
    """Windows of all keys; one more is begun at either end."""
    return (n.known // (n.horizon // 4) + 2) * KEYS


def rows_of_sessions(n: Sizes) -> int:
    return n.known // KEYS + 2


@dataclass(frozen=True)
class Bounded:
    """A program, how many rows its state may have, and the sum of what it emits of all events."""

    program: Program
    rows_max: Callable[[Sizes], int]
    total: Callable[[Sizes], int]
    sources: tuple[str, ...] = ("left",)


def closed(n: Sizes) -> int:
    """Of all events, how many are in windows that the last watermark has closed."""
    size = n.horizon // 4
    return (n.events - 1 - DELAY) // size * size


def ended(n: Sizes) -> int:
    """Of all events, how many are in sessions that the last watermark has closed."""
    last = n.events - 1 - DELAY - n.horizon // 4
    # One that ends at the watermark may still grow.
    return last // KEYS * KEYS


CASES = {
    "duplicates": Bounded(unique, lambda n: n.known // 2 + 1, lambda n: n.events // 2),
    "windows": Bounded(windows, rows_of_windows, closed),
    "sessions": Bounded(sessions, rows_of_sessions, ended),
    "joins": Bounded(matches, lambda n: 2 * n.known, lambda n: n.events, ("left", "right")),
}
SIZES = [4_000, pytest.param(1_000_000, marks=pytest.mark.slow)]


@pytest.mark.parametrize("events", SIZES)
@pytest.mark.parametrize("name", CASES)
def test_a_state_is_as_large_as_its_horizon_however_many_events_there_were(
    name: str, events: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # How soon rows are deleted makes no difference but in time.
    monkeypatch.setattr(expiry, "EXPIRY_PAUSE_S", 0.05)
    case, sizes, database = CASES[name], Sizes(events), tmp_path / "states.db"
    builder, streams = StreamBuilder("bounded"), {}
    for source in case.sources:
        (tmp_path / source).mkdir()
        spout = FilesTransactionalSpout(
            tmp_path / source, EVENT, "parquet", batch_rows_max=sizes.batch
        )
        streams[source] = builder.source(
            source, spout, event_time="ts", delay=DELAY * SECOND, max_ahead=None
        )

    def state(table: str) -> Any:
        return open_state(f"sqlite:///{database}", table=table)

    emitted = case.program(streams, state, sizes)
    emitted.group_by().persistent_aggregate(state("emitted"), total=Sum("n"))
    rows_max = case.rows_max(sizes)
    assert 5 * rows_max < sizes.events
    with builder.build_topology().start(None, ONE_BY_ONE) as run:
        for number in range(FILES):
            for source in case.sources:
                write_events(tmp_path / source, number, sizes)
            run.process_all_available()
            wait_until(
                lambda: rows_in(database, "kept") <= rows_max,
                lambda: f"{name}: {rows_in(database, 'kept')} rows; expected {rows_max}",
            )

    with state("emitted").reader() as reader:
        assert [total for _, total in reader.items()] == [case.total(sizes)]
    assert rows_in(database, "kept_late") == 0


def write_events(folder: Path, number: int, sizes: Sizes) -> None:
    """Write the events of a file, which appears when it is complete."""
    count = sizes.events // FILES
    ids = np.arange(number * count, (number + 1) * count)
    times = np.datetime64(NOON.replace(tzinfo=None), "us") + ids * np.timedelta64(1, "s")
    columns = [ids, ids % KEYS, pa.array(times).cast(EVENT.arrow_schema().field("ts").type)]
    hidden = folder / f".{number}"
    parquet.write_table(pa.table(dict(zip(EVENT.names, columns, strict=True))), hidden)
    hidden.rename(folder / f"{number}.parquet")


def rows_in(database: Path, table: str) -> int:
    """Return how many rows a table has, whatever they are."""
    with closing(sqlite3.connect(database)) as connection:
        (count,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(count)
