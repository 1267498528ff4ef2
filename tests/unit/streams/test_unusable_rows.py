"""Rows without a usable event time, kept in a table of their own by choice."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from tests.unit.streams.plain_joins import in_order
from tests.unit.streams.test_changed_programs import Changing
from tests.unit.streams.timed_worlds import assert_right, stream_of
from tests.unit.streams.times import EVENT, at, events, marks_of, tables_of, without_a_table
from tests.unit.streams.worlds import GROUPS, memory_state
from txtopo import (
    Config,
    Count,
    Fields,
    FieldsError,
    StreamBuilder,
    TaskContext,
    TopologyError,
    TransactionAttempt,
    open_state,
)
from txtopo.durations import MICROSECOND
from txtopo.errors import EmitError, RecordFailed
from txtopo.metadata import Json
from txtopo.spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from txtopo.streams import DataStream, tumbling
from txtopo.streams.event_time import MeasureTimes, SourceTime

YEAR_9999 = datetime.datetime(9999, 1, 1, tzinfo=datetime.UTC)
YEAR_12 = datetime.datetime(12, 1, 1, tzinfo=datetime.UTC)


class Collected:
    """Takes what a bolt emits: the event times, by stream."""

    def __init__(self) -> None:
        self.times: dict[str, list[datetime.datetime]] = {}

    def emit(self, batch: pa.RecordBatch, stream: str = "default") -> None:
        self.times.setdefault(stream, []).extend(batch.column("ts").to_pylist())


def ms(time: datetime.datetime) -> int:
    return int(time.timestamp() * 1000)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'times.db'}"


def counting(url: str) -> Any:
    def program(builder: StreamBuilder, rows: DataStream) -> None:
        counts = open_state(url, table="counts")
        rows.group_by("key").window(tumbling("5 minutes")).persistent_aggregate(counts, n=Count())

    return program


@pytest.mark.parametrize("bad", [None, YEAR_9999, YEAR_12])
def test_a_row_without_a_usable_time_is_kept_told_and_moves_nothing(
    url: str, bad: Any, caplog: pytest.LogCaptureFixture
) -> None:
    rows = events(("a", 7), ("b", None), ("a", 8))
    rows[1][3] = bad
    unusable = open_state(url, table="odd")
    counts, odd = tables_of(counting(url), rows, url, "counts", "odd", take=3, unusable=unusable)

    assert [row["n"] for row in counts.values()] == [2]
    assert odd == {(1, 1): {"id": "e2", "key": "b", "n": 2, "ts": bad}}
    assert "txid 1: 1 rows without a usable event time go to state 'odd'" in caplog.text
    assert marks_of(url, "timed_marks")["mark", "events", '["ts"]', ""] == 8


ENDS = [datetime.datetime(year, 1, 1, tzinfo=datetime.UTC) for year in (1000, 9000)]
PAST = [ENDS[0] - MICROSECOND, ENDS[1] + MICROSECOND]


@pytest.mark.rule("txtopo.streams.event_time", "Rules", 7)
def test_both_ends_of_the_usable_times_are_usable(url: str) -> None:
    rows = [[f"e{n}", "a", n, time] for n, time in enumerate([*ENDS, *PAST], 1)]
    unusable = open_state(url, table="odd")
    (counts, odd) = tables_of(counting(url), rows, url, "counts", "odd", take=4, unusable=unusable)

    assert sorted(start for start, _ in counts) == ENDS
    assert [row["id"] for row in odd.values()] == ["e3", "e4"]


@pytest.mark.parametrize("bad", PAST)
@pytest.mark.parametrize("max_ahead", [None, "1 day"])
def test_the_message_names_both_ends_of_the_usable_times(
    url: str, bad: datetime.datetime, max_ahead: str | None
) -> None:
    told = r"expected a time from 1000-01-01 to 9000-01-01 00:00 UTC; set such rows aside"
    with pytest.raises(RecordFailed, match=told):
        tables_of(without_a_table, [["e1", "a", 1, bad]], url, max_ahead=max_ahead)


@pytest.mark.parametrize("bad", PAST)
def test_so_does_the_message_about_a_row_that_a_function_has_changed(
    url: str, bad: datetime.datetime
) -> None:
    def program(builder: StreamBuilder, rows: DataStream) -> None:
        counting(url)(builder, rows.map(lambda row: [*row.values[:3], bad], EVENT))

    told = "expected a time from 1000-01-01 to 9000-01-01 00:00 UTC; let the functions above keep"
    with pytest.raises(EmitError, match=told):
        tables_of(program, events(("a", 1)), url)


@pytest.mark.rule("txtopo.streams.event_time", "Rules", 7)
def test_a_row_too_far_ahead_of_its_planned_time_is_kept(url: str) -> None:
    rows = events(("a", 7), ("b", 8))
    rows[1][3] = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=2)
    (odd,) = tables_of(
        counting(url),
        rows,
        url,
        "events_unusable",
        unusable=open_state(url),
        max_ahead="1 hour",
    )

    assert [row["id"] for row in odd.values()] == ["e2"]


@pytest.mark.rule("txtopo.streams.event_time", "Rules", 7)
def test_a_row_is_as_far_ahead_as_the_later_clock_says(url: str) -> None:
    """A clock that was set right, as after a pause of a virtual machine, is in doubt at first."""
    fields = Fields("ts timestamp")
    rows = pa.RecordBatch.from_arrays(
        [pa.array([at(7), at(9)], pa.timestamp("us", "UTC"))], schema=fields.arrow_schema()
    )
    stamp: dict[str, Json] = {"time": ms(at(0)), "latest": ms(at(8))}
    context = TaskContext("timed", "times", 0, 1, stamp=lambda: stamp)
    no_time = datetime.timedelta(0)
    bolt = MeasureTimes(SourceTime("events", "ts", delay=no_time, max_ahead=no_time), fields)
    collector = Collected()

    bolt.prepare(Config(), context, cast("Any", collector), TransactionAttempt(1))
    bolt.execute(rows)

    assert collector.times == {"refused": [at(9)], "default": [at(7)]}


def test_it_is_no_dead_letter_then(url: str) -> None:
    letters = open_state(url, table="letters")
    rows = events(("a", 7), ("b", None))
    odd, dead = tables_of(
        counting(url),
        rows,
        url,
        "events_unusable",
        "letters",
        unusable=open_state(url),
        dead_letters=letters,
    )

    assert len(odd) == 1
    assert not dead


@pytest.mark.rule("txtopo.streams.event_time", "Rules", 7)
@pytest.mark.parametrize("marks", [None, "kept"])
def test_by_default_it_is_kept_as_a_dead_letter_is(
    url: str, marks: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """The table is beside the marks, in the store that the program uses."""
    rows = events(("a", 7), ("b", None), ("a", 8), ("b", 9))
    rows[3][3] = YEAR_9999
    name = "timed_unusable" if marks is None else "kept_unusable"
    given = None if marks is None else open_state(url, table=marks)
    counts, kept = tables_of(counting(url), rows, url, "counts", name, take=3, marks=given)

    assert [row["n"] for row in counts.values()] == [2]
    letters = [(key, json.loads(row["record"])["id"]) for key, row in sorted(kept.items())]
    assert letters == [((1, 1), "e2"), ((2, 1), "e4")]
    assert {row["component"] for row in kept.values()} == {"events"}
    assert kept[1, 1]["message"].startswith("a row of source 'events' has no usable event time")
    assert f"txid 1: 1 rows without a usable event time go to state '{name}'" in caplog.text
    assert marks_of(url, marks or "timed_marks")["mark", "events", '["ts"]', ""] == 8


def test_a_source_that_is_added_after_a_build_has_the_table_too(url: str) -> None:
    builder = StreamBuilder("timed")
    spout = MemoryTransactionalSpout({0: []}, EVENT, 1)
    for id in ("events", "others"):
        rows = builder.source(id, spout, event_time="ts")
        rows.store(open_state(url, table=f"kept_{id}"), key="id")
        topology = builder.build_topology()

    read = {each.source for each in topology.graph.components["unusable"].subscriptions}
    assert read == {"events.times.refused", "others.times.refused"}


def keeping(streams: Mapping[str, DataStream], state: Any) -> None:
    streams["e"].store(state("kept"), key="id")


def kept(batches: Sequence[Mapping[str, Sequence[Any]]]) -> Any:
    tables: dict[str, dict[Any, Any]] = {"kept": {}, "odd": {}}
    for txid, batch in enumerate(batches, 1):
        odd = []
        for row in batch["e"]:
            if row[3] is None or row[3] > at(10_000):
                odd.append(tuple(row))
            else:
                tables["kept"][(row[0],)] = tuple(row[1:])
        for number, row in enumerate(sorted(odd, key=in_order), 1):
            tables["odd"][txid, number] = row
    return tables


def with_odd_ones(seed: int) -> dict[str, list[list[Any]]]:
    rows = stream_of(24, seed, "e")
    for number in range(seed % 3, 24, 3):
        rows[number][3] = YEAR_9999 if number % 2 else None
    return {"e": rows}


@pytest.mark.integration
@pytest.mark.parametrize("config", [None, GROUPS])
def test_each_row_is_in_the_stream_or_kept_apart_whatever_crashes(config: Any) -> None:
    """The source cuts its batches again in each attempt, so what was kept is undone."""
    assert_right(
        keeping,
        kept,
        with_odd_ones,
        range(10),
        delay=datetime.timedelta(minutes=1),
        config=config,
        unusable=memory_state("odd"),
    )


@pytest.mark.parametrize(
    ("fields", "more", "told"),
    [
        ("ts timestamp", {"unusable": "sqlite:///x.db"}, "is of the wrong type; got 'sqlite:///x"),
        ("ts timestamp, number long", {}, "rows of source 'events' without a usable time would"),
        ("ts timestamp", {"event_time": None}, "has unusable, but no event_time"),
    ],
)
def test_a_mistake_is_told(fields: str, more: Any, told: str) -> None:
    builder = StreamBuilder("timed")
    spout = MemoryTransactionalSpout({0: []}, Fields(fields), 1)
    declared = {"event_time": "ts", "unusable": open_state("memory:")} | more

    with pytest.raises((TopologyError, FieldsError), match=told):
        builder.source("events", spout, **declared)


def test_its_table_is_used_once(url: str) -> None:
    builder = StreamBuilder("timed")
    spout = MemoryTransactionalSpout({0: []}, EVENT, 1)
    odd = open_state(url, table="odd")
    builder.source("events", spout, event_time="ts", unusable=odd)

    with pytest.raises(TopologyError, match=r"table 'odd' of .* is used twice"):
        builder.source("others", spout, event_time="ts", unusable=odd)
    builder.source("others", spout, event_time="ts", unusable=open_state(url))


def test_a_transactional_table_is_refused_below_an_opaque_source(url: str) -> None:
    builder = StreamBuilder("timed")
    spout = OpaqueMemoryTransactionalSpout({0: []}, EVENT, 1)
    odd = open_state(url, table="odd", kind="transactional")
    rows = builder.source("events", spout, event_time="ts", unusable=odd)
    rows.store(open_state(url, table="kept"), key="id")

    with pytest.raises(TopologyError, match="transactional"):
        builder.build_topology()


def test_a_program_that_has_run_may_keep_them_elsewhere() -> None:
    """Kept rows stay; what closed stays closed."""
    world, rows = Changing("memory:"), events(("x", 1), ("x", None), ("x", 2), ("x", 7), ("x", 12))

    def keeping(world: Changing, builder: StreamBuilder) -> None:
        world.count(world.source(builder, unusable=world.state("odd")))

    def by_default(world: Changing, builder: StreamBuilder) -> None:
        world.count(world.source(builder))

    rows[2][3] = None
    world.run(by_default, s=rows[:2])
    world.run(keeping, s=rows)

    assert [json.loads(row["record"])["id"] for row in world.held("d_unusable").values()] == ["e2"]
    assert [row["id"] for row in world.held("odd").values()] == ["e3"]
    assert world.counted() == {0: 1, 5: 1, 10: 1}
    assert world.closed == {0: 1, 5: 1}
