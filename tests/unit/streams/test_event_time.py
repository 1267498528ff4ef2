"""Watermarks: the slowest part holds them back, they never go back, and a replay has the same."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.harness.polling import wait_until
from tests.unit.streams.times import EVENT, events, marks_of, minutes, tables_of, without_a_table
from tests.unit.streams.worlds import LOCAL, run
from txtopo import Count, Fields, StreamBuilder, TopologyError, open_state
from txtopo.errors import FieldsError, RecordFailed
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.streams import DataStream, tumbling
from txtopo.tuples import Field

MINUTE = datetime.timedelta(minutes=1)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'times.db'}"


NAMES = ("time", "time_max", "ts_max", "max", "0")
EVENTS = events(("a", 7), ("b", 3), ("a", 8))


def counting(url: str) -> Any:
    def program(builder: StreamBuilder, rows: DataStream) -> None:
        counts = open_state(url, table="counts")
        rows.group_by("key").window(tumbling("5 minutes")).persistent_aggregate(counts, n=Count())

    return program


def watermark(url: str) -> float | None:
    return marks_of(url, "timed_marks").get(("watermark", "counts", "", ""))


@pytest.mark.rule("txtopo.streams.event_time", "Rules", 1)
def test_the_watermark_is_the_latest_event_less_the_delay(url: str) -> None:
    tables_of(counting(url), events(("a", 7), ("a", 3)), url, delay="2 minutes")

    assert marks_of(url, "timed_marks") == {
        ("mark", "events", '["ts"]', ""): 7,
        ("source", "events", '["ts"]', ""): 7,
        ("watermark", "counts", "", ""): 5,
    }


def test_a_time_without_a_zone_is_one_of_utc(url: str) -> None:
    rows = events(("a", 7), ("a", 3))
    rows[0][3] = rows[0][3].replace(tzinfo=None)
    tables_of(counting(url), rows, url, delay="2 minutes")

    assert watermark(url) == 5


@pytest.mark.rule("txtopo.streams.event_time", "Rules", 1)
def test_the_slowest_part_holds_the_watermark_back(url: str) -> None:
    rows = events(("a", 7), ("b", 3), ("a", 9))
    tables_of(counting(url), rows, url, delay="2 minutes", by="key", take=3)

    assert marks_of(url, "timed_marks") == {
        ("mark", "events", '["ts", "key"]', '["a"]'): 9,
        ("mark", "events", '["ts", "key"]', '["b"]'): 3,
        ("source", "events", '["ts", "key"]', ""): 3,
        ("watermark", "counts", "", ""): 1,
    }


@pytest.mark.rule("txtopo.streams.event_time", "Rules", 8)
def test_a_part_that_appears_late_does_not_move_the_watermark_back(url: str) -> None:
    rows = events(("a", 20), ("b", 3))
    tables_of(counting(url), rows, url, by="key")

    assert watermark(url) == 20


@pytest.mark.parametrize("by", ["time", "ts_max", ("max", "0"), ("0", "time_max", "ts_max")])
def test_parts_may_be_told_apart_by_columns_of_any_name(url: str, by: Any) -> None:
    named = Fields.of([*EVENT, *(Field(name, "long") for name in NAMES)])
    rows = [[*row, *[minute] * len(NAMES)] for row, minute in zip(EVENTS, (7, 3, 7), strict=True)]
    builder = StreamBuilder("timed")
    declared: Any = {"event_time": "ts", "by": by, "max_ahead": None}
    spout = MemoryTransactionalSpout({0: rows}, named, 3)
    counting(url)(builder, builder.source("events", spout, **declared))
    run(builder.build_topology(), LOCAL)

    columns = [by] if isinstance(by, str) else by
    names = json.dumps(["ts", *columns])
    assert marks_of(url, "timed_marks") == {
        ("mark", "events", names, json.dumps([7] * len(columns))): 8,
        ("mark", "events", names, json.dumps([3] * len(columns))): 3,
        ("source", "events", names, ""): 3,
        ("watermark", "counts", "", ""): 3,
    }


def timed_source(
    builder: StreamBuilder, name: str, rows: Sequence[Sequence[Any]], **more: Any
) -> DataStream:
    spout = MemoryTransactionalSpout({0: rows}, EVENT, 1)
    return builder.source(name, spout, event_time="ts", **{"max_ahead": None, **more})


def closed_counts(url: str, rows: DataStream) -> None:
    """Count in windows of five minutes, and keep those that have closed."""
    windows = rows.group_by().window(tumbling("5 minutes"))
    table = windows.persistent_aggregate(open_state(url, table="counts"), n=Count())
    table.final().store(open_state(url, table="closed"), key="window_start")


def counted(url: str, table: str) -> dict[float | None, int]:
    """Return the counts of a table by the starts of windows, in minutes."""
    with open_state(url, table=table).reader() as reader:
        return {minutes(start): row["n"] for start, row in reader.items()}


def two_sources(url: str, left: Any, right: Any, **more: Any) -> None:
    builder = StreamBuilder("timed")
    streams = [
        timed_source(builder, name, rows, delay=delay, **more)
        for name, rows, delay in (("left", left, "1 minute"), ("right", right, "2 minutes"))
    ]
    counting(url)(builder, builder.merge(*streams))
    run(builder.build_topology(), LOCAL)


def test_of_several_sources_the_slowest_counts_with_its_own_delay(url: str) -> None:
    two_sources(url, events(("a", 10)), events(("a", 11)))

    assert watermark(url) == 9


@pytest.mark.rule("txtopo.streams.event_time", "Rules", 8)
def test_windows_close_though_a_part_of_another_source_begins_far_behind(url: str) -> None:
    builder = StreamBuilder("timed")
    left = events(("a", 100), ("b", 10), ("b", 11))
    sides = [
        timed_source(builder, "left", left, by="key"),
        timed_source(builder, "right", events(("c", 20), ("c", 50), ("c", 70))),
    ]
    closed_counts(url, builder.merge(*sides))
    run(builder.build_topology(), LOCAL)

    assert watermark(url) == 70
    assert counted(url, "closed") == {20: 1, 50: 1}
    assert counted(url, "counts_late") == {10: 2}


BUYS = events(("a", 0), ("b", 100), ("c", 101)), events(("a", 30), ("b", 100), ("c", 104))


def bought(builder: StreamBuilder, url: str, rows: Any = BUYS) -> DataStream:
    """Return the orders of one source for which another one has a payment within an hour."""
    orders, payments = rows
    sides = timed_source(builder, "orders", orders), timed_source(builder, "payments", payments)
    return joined(*sides, url, "60 minutes", "bought")


def joined(left: DataStream, right: DataStream, url: str, upper: str, table: str) -> DataStream:
    """Return the left rows for which there is a right one up to some time later."""
    other = right.select("key", right_id="id", right_n="n", right_ts="ts")
    within = ("0 minutes", upper)
    state = open_state(url, table=table)
    return left.join(other, "key", within=within, state=state).select(*EVENT.names)


@pytest.mark.rule("txtopo.streams.event_time", "Rules", 10)
def test_a_merge_has_the_smallest_of_the_watermarks_of_its_streams(url: str) -> None:
    """The join is at 100 less its hour, and the other source at 20: not at 20 less an hour."""
    builder = StreamBuilder("timed")
    both = bought(builder, url)
    others = timed_source(builder, "others", events(("x", 5), ("x", 19), ("x", 20)))
    closed_counts(url, builder.merge(both, others))
    run(builder.build_topology(), LOCAL)

    assert watermark(url) == 20
    assert counted(url, "closed") == {0: 1, 5: 1, 15: 1}
    assert not counted(url, "counts_late")


@pytest.mark.rule("txtopo.streams.event_time", "Rules", 10)
def test_what_a_join_emits_is_on_time_in_a_merge_with_a_source_far_ahead(url: str) -> None:
    """The pair at 55 is emitted when both sources of the join are at 100."""
    builder = StreamBuilder("timed")
    orders = events(("a", 55), ("b", 100), ("b", 101))
    payments = events(("c", 56), ("b", 100), ("a", 110))
    both = bought(builder, url, (orders, payments))
    others = timed_source(builder, "others", events(("x", 5), ("x", 200), ("x", 201)))
    closed_counts(url, builder.merge(others, both))
    run(builder.build_topology(), LOCAL)

    assert watermark(url) == 41
    assert counted(url, "closed") == {5: 1}
    assert counted(url, "counts")[55] == 1
    assert not counted(url, "counts_late")


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.rule("txtopo.streams.event_time", "Rules", 10)
def test_a_source_that_reaches_a_merge_by_two_ways_has_the_longer_wait(
    url: str, first: bool
) -> None:
    builder = StreamBuilder("timed")
    orders, payments = (timed_source(builder, *each) for each in zip("op", BUYS, strict=True))
    both = joined(orders, payments, url, "60 minutes", "kept")
    closed_counts(url, builder.merge(*((both, orders) if first else (orders, both))))
    run(builder.build_topology(), LOCAL)

    assert watermark(url) == 101 - 60


@pytest.mark.rule("txtopo.streams.event_time", "Rules", 10)
@pytest.mark.rule("txtopo.streams.interval_join", "Rules", 6)
def test_below_a_join_of_a_join_rows_may_be_behind_by_both_waits(url: str) -> None:
    builder = StreamBuilder("timed")
    both = bought(builder, url)
    parcels = timed_source(builder, "parcels", events(("a", 1), ("z", 39), ("z", 40)))
    closed_counts(url, joined(both, parcels, url, "5 minutes", "three"))
    run(builder.build_topology(), LOCAL)

    assert marks_of(url, "timed_marks")["watermark", "three", "", ""] == min(101 - 60, 40)
    assert watermark(url) == min(101 - 60, 40) - 5
    assert counted(url, "closed") == {0: 1}


@pytest.mark.rule("txtopo.streams.event_time", "Rules", 4)
def test_a_source_without_a_row_keeps_the_watermark_unknown(url: str) -> None:
    two_sources(url, events(("a", 10), ("a", 40), ("a", 1)), [])

    assert watermark(url) is None
    with open_state(url, table="counts_late").reader() as reader:
        assert not dict(reader.items())


def test_marks_may_be_kept_in_another_database(url: str, tmp_path: Path) -> None:
    other = f"sqlite:///{tmp_path / 'marks.db'}"
    builder = StreamBuilder("timed", marks=open_state(other, table="kept"))
    spout = MemoryTransactionalSpout({0: events(("a", 7), ("a", 30), ("a", 1))}, EVENT, 1)
    counting(url)(builder, builder.source("events", spout, event_time="ts", max_ahead=None))
    run(builder.build_topology(), LOCAL)

    assert marks_of(other, "kept")["watermark", "counts", "", ""] == 30
    with open_state(url, table="counts_late").reader() as reader:
        assert list(reader.items())


@pytest.mark.parametrize("bad", [None, datetime.datetime(9999, 1, 1, tzinfo=datetime.UTC),
                                 datetime.datetime(12, 1, 1, tzinfo=datetime.UTC)])  # fmt: skip
def test_a_row_without_a_usable_time_is_a_dead_letter(url: str, bad: Any) -> None:
    rows = events(("a", 7), ("a", None), ("a", 8))
    rows[1][3] = bad
    letters = open_state(url, table="letters")
    counts, dead = tables_of(
        counting(url), rows, url, "counts", "letters", take=3, dead_letters=letters
    )

    assert [row["n"] for row in counts.values()] == [2]
    (letter,) = dead.values()
    assert letter["component"] == "events.times.refused"
    assert "has no usable event time in column 'ts'" in letter["message"]
    assert '"e2"' in letter["record"]
    assert watermark(url) == 8


@pytest.mark.rule("txtopo.streams.event_time", "Rules", 7)
def test_without_any_table_such_a_row_ends_the_run(url: str) -> None:
    """It has no place, and its text, which goes to the driver and into a log, is cut."""
    rows = events(("a", 7), ("a", None))
    rows[1][1] = "x" * 100_000

    told = "a row of source 'events' has no usable event time in column 'ts'; got NULL, in .*'e2'"
    with pytest.raises(RecordFailed, match=told) as caught:
        tables_of(without_a_table, rows, url)
    assert len(str(caught.value)) < 2000


def test_a_row_too_far_ahead_is_a_dead_letter_and_moves_nothing(url: str) -> None:
    rows = events(("a", 7), ("a", 8))
    rows[1][3] = datetime.datetime(2200, 1, 1, tzinfo=datetime.UTC)
    letters = open_state(url, table="letters")
    counts, dead = tables_of(
        counting(url), rows, url, "counts", "letters", dead_letters=letters, max_ahead="1 hour"
    )

    assert [row["n"] for row in counts.values()] == [1]
    (letter,) = dead.values()
    assert "at most 1:00:00 after the time at which its batch was planned" in letter["message"]
    assert watermark(url) == 7


@pytest.mark.parametrize(
    ("time", "told"),
    [
        ({"event_time": "t"}, "unknown column 't'.*did you mean 'ts'"),
        ({"event_time": "n"}, "event time of source 'events' is of the wrong type; got 'n', long"),
        ({"event_time": "ts", "delay": "soon"}, "delay of source 'events' is not a duration"),
        ({"event_time": "ts", "delay": "-1 minute"}, "delay of source 'events' is not a duration"),
        ({"event_time": "ts", "by": "partition"}, "for by, names unknown column 'partition'"),
        ({"event_time": "ts", "idle_after": "0 minutes"}, "idle_after of source .* out of range"),
        ({"event_time": "ts", "max_ahead": 5}, "max_ahead of source 'events' is not a duration"),
        ({"event_time": "ts", "clock": "1 minute", "idle_after": "1 hour"}, "idle_after and clock"),
        ({"event_time": "ts", "clock": "1 millisecond"}, "interval of a clock is too short"),
        ({"delay": "1 minute"}, "delay, but no event_time"),
        ({"idle_after": "1 minute"}, "idle_after, but no event_time"),
        ({"max_ahead": "1 minute"}, "max_ahead, but no event_time"),
        ({"event_time": ["ts", "n"]}, r"event time of source 'events' is one column; got \['ts'"),
        ({"event_time": ()}, "event time of source 'events' is one column"),
        ({"event_time": "ts", "by": "ts"}, "parts of source 'events' are identified by its event"),
        ({"event_time": "ts", "by": ("key", "ts")}, "expected other columns than 'ts'"),
    ],
)
def test_a_mistake_in_a_source_is_told(time: Any, told: str) -> None:
    builder = StreamBuilder("timed")
    spout = MemoryTransactionalSpout({0: events(("a", 1))}, EVENT, 1)

    with pytest.raises((TopologyError, FieldsError), match=told):
        builder.source("events", spout, **time)


def test_marks_need_an_opaque_state() -> None:
    marks = open_state("sqlite:///x.db", table="marks", kind="transactional")

    with pytest.raises(TopologyError, match="reads a transactional state"):
        StreamBuilder("timed", marks=marks)
    with pytest.raises(TopologyError, match="state of marks is of the wrong type"):
        StreamBuilder("timed", marks="sqlite:///x.db")  # type: ignore[arg-type]


def test_a_program_whose_event_time_nobody_uses_keeps_no_marks() -> None:
    builder = StreamBuilder("timed")
    spout = MemoryTransactionalSpout({0: events(("a", 1))}, EVENT, 1)
    rows = builder.source("events", spout, event_time="ts")
    rows.store(open_state("sqlite:///x.db", table="rows"), key="id")

    assert list(builder.build_topology().graph.components) == [
        "events",
        "events.times",
        "events.times.refused",
        "rows",
        "unusable",
    ]


@pytest.mark.integration
def test_a_clock_closes_windows_while_nothing_comes(url: str) -> None:
    """The last window would stay open for ever: no row comes after it."""
    now = datetime.datetime.now(datetime.UTC)
    builder = StreamBuilder("timed")
    spout = MemoryTransactionalSpout({0: [["e1", "a", 1, now - 10 * MINUTE]]}, EVENT, 1)
    rows = builder.source("events", spout, event_time="ts", clock="1 second")
    table = (
        rows.group_by("key")
        .window(tumbling("1 second"))
        .persistent_aggregate(open_state(url, table="counts"), n=Count())
    )
    table.final().store(open_state(url, table="closed"), key=("window_start", "key"))

    def closed() -> bool:
        with open_state(url, table="closed").reader() as reader:
            return bool(dict(reader.items()))

    with builder.build_topology().start(config=LOCAL) as run:
        run.process_all_available()
        wait_until(closed, "the window to close")
