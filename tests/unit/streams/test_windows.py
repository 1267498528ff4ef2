"""Windows: which a row is in, what is late, and that each closed window leaves once."""

from __future__ import annotations

import datetime
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.streams.times import EVENT, NOON, at, events, minutes, tables_of
from tests.unit.streams.worlds import LOCAL
from txtopo import Count, Fields, Max, Mean, StreamBuilder, Sum, TopologyError, open_state
from txtopo.attempt import TransactionAttempt
from txtopo.errors import FieldsError, StateUsageError, ValueRefusedError
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.streams import DataStream, session, sliding, tumbling
from txtopo.streams.event_time import TimeColumn
from txtopo.streams.windows import BOUNDS, SLICE_ROWS, AssignWindows, Session, Window
from txtopo.topology.graph import fingerprint

ATTEMPT = TransactionAttempt(1, 0, 1)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'windows.db'}"


def assigned(window: Window, times: list[datetime.datetime], **time: Any) -> list[tuple[Any, ...]]:
    fields = Fields("ts timestamp")
    operator = AssignWindows(
        "window",
        fields,
        Fields.of([*BOUNDS, *fields]),
        print,
        TimeColumn("ts", {"s": datetime.timedelta(0)}, **time),
        window,
    )
    batch = pa.RecordBatch.from_pydict({"ts": times}, schema=fields.arrow_schema())
    slices = list(operator.apply(batch, ATTEMPT))
    assert max(each.num_rows for each in slices) <= SLICE_ROWS
    return [tuple(row.values()) for each in slices for row in each.to_pylist()]


def test_a_tumbling_window_begins_at_a_multiple_of_its_size() -> None:
    found = assigned(tumbling("5 minutes"), [at(0), at(4.99), at(5), at(-0.01)])

    assert [(minutes(start), minutes(end)) for start, end, _ in found] == [
        (0, 5),
        (0, 5),
        (5, 10),
        (-5, 0),
    ]


@pytest.mark.integration
def test_rows_in_very_many_windows_are_made_a_few_at_a_time() -> None:
    times = [at(second / 60) for second in range(50)]

    found = assigned(sliding("2000 seconds", every="1 second"), times)

    assert len(found) == 50 * 2_000 > SLICE_ROWS
    assert [time for _, _, time in found] == [time for time in times for _ in range(2_000)]


@pytest.mark.rule("txtopo.streams.windows", "Rules", 1)
def test_windows_can_be_moved_by_an_offset() -> None:
    day = assigned(tumbling("1 day", offset="22 hours"), [NOON])

    assert day[0][0] == datetime.datetime(2025, 12, 31, 22, tzinfo=datetime.UTC)


def test_windows_before_1970_begin_before_their_rows() -> None:
    early = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=datetime.UTC)

    ((start, end, _),) = assigned(tumbling("1 hour"), [early])

    assert (start.hour, end) == (23, datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC))


@pytest.mark.parametrize(("size", "every"), [(10, 5), (10, 10), (10, 3), (7, 2), (5, 1)])
def test_a_row_is_in_each_window_that_contains_it_and_in_no_other(size: int, every: int) -> None:
    chance = random.Random(size * 100 + every)
    times = [at(chance.randrange(-100_000, 100_000) / 1000) for _ in range(200)]
    window = sliding(
        datetime.timedelta(minutes=size), every=datetime.timedelta(minutes=every), offset="1 minute"
    )
    found = Counter((minutes(start), row) for start, _, row in assigned(window, times))

    epoch = (NOON - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)).total_seconds() / 60
    first = -200 - (-200 + epoch - 1) % every
    starts = [first + number * every for number in range(400 // every)]
    assert found == Counter(
        (start, time)
        for time in times
        for start in starts
        if start <= (time - NOON).total_seconds() / 60 < start + size
    )


def test_the_time_of_a_closed_window_is_within_it() -> None:
    before = -datetime.timedelta(microseconds=1)

    ((start, _, _),) = assigned(tumbling("1 hour"), [at(60)], offset=before)

    assert minutes(start) == 0


def counted(url: str, window: Window, **more: Any) -> Any:
    def program(builder: StreamBuilder, rows: DataStream) -> None:
        table = (
            rows.group_by("key")
            .window(window)
            .persistent_aggregate(
                open_state(url, table="counts"), n=Count(), total=Sum("n"), **more
            )
        )
        table.final().store(open_state(url, table="closed"), key=("window_start", "key"))

    return program


def in_minutes(table: dict[Any, Any], column: str = "total") -> dict[Any, Any]:
    return {(minutes(start), key): row[column] for (start, key), row in table.items()}


ROWS = events(("a", 0), ("b", 1), ("a", 6), ("a", 3), ("b", 12), ("a", 2), ("a", 11), ("a", 20))


def test_a_row_is_late_once_its_window_has_closed_and_not_before(url: str) -> None:
    """The row of minute 3 comes when the watermark is at 4; that of minute 2, when it is at 10."""
    program = counted(url, tumbling("5 minutes"))
    kept, late = tables_of(program, ROWS, url, "counts", "counts_late", delay="2 minutes")

    assert in_minutes(kept) == {(0, "a"): 5, (0, "b"): 2, (5, "a"): 3, (10, "b"): 5, (10, "a"): 7,
                                (20, "a"): 8}  # fmt: skip
    assert in_minutes(late) == {(0, "a"): 6}


@pytest.mark.rule("txtopo.streams.windows", "Rules", 2)
def test_a_window_whose_end_is_the_watermark_is_closed(url: str) -> None:
    """The watermark is exactly 5: [0, 5) closes in that txid, and a row is late after it."""
    rows = events(("a", 1), ("a", 5), ("a", 4))
    program = counted(url, tumbling("5 minutes"))
    closed, late = tables_of(program, rows, url, "closed", "counts_late")

    assert in_minutes(closed) == {(0, "a"): 1}
    assert in_minutes(late) == {(0, "a"): 3}


@pytest.mark.rule("txtopo.streams.windows", "Rules", 2)
@pytest.mark.rule("txtopo.streams.event_time", "Rules", 3)
def test_rows_of_the_txid_that_closes_their_window_are_in_time(url: str) -> None:
    rows = events(("a", 1), ("a", 30), ("a", 2))
    program = counted(url, tumbling("5 minutes"))
    closed, late = tables_of(program, rows, url, "closed", "counts_late", take=3)

    assert in_minutes(closed) == {(0, "a"): 4}
    assert not late


@pytest.mark.rule("txtopo.streams.windows", "Rules", 3)
def test_closed_windows_are_emitted_as_they_are_in_the_table(url: str) -> None:
    program = counted(url, tumbling("5 minutes"))
    kept, closed = tables_of(program, ROWS, url, "counts", "closed", delay="2 minutes")

    assert closed == {key: row for key, row in kept.items() if key[0] < at(15)}


def test_late_rows_can_be_dropped_or_go_to_a_state_of_ones_own(url: str) -> None:
    tables_of(counted(url, tumbling("5 minutes"), late=False), ROWS, url)
    with (
        pytest.raises(StateUsageError, match="no state"),
        open_state(url, table="counts_late").reader(),
    ):
        pass

    other = f"{url}-2"
    late = open_state(other, table="too_late")
    tables_of(counted(other, tumbling("5 minutes"), late=late), ROWS, other)
    with late.reader() as reader:
        assert in_minutes(dict(reader.items())) == {(0, "a"): 10}


def test_each_window_of_sliding_ones_has_its_own_end(url: str) -> None:
    rows = events(("a", 7), ("a", 12), ("a", 6))
    program = counted(url, sliding("10 minutes", every="5 minutes"))
    kept, late = tables_of(program, rows, url, "counts", "counts_late")

    assert in_minutes(kept) == {(0, "a"): 1, (5, "a"): 6, (10, "a"): 2}
    assert in_minutes(late) == {(0, "a"): 3}


def test_windows_of_windows_close_in_the_same_txid(url: str) -> None:
    """The last five minutes of an hour are a part of that hour."""

    def program(builder: StreamBuilder, rows: DataStream) -> None:
        small = (
            rows.group_by("key")
            .window(tumbling("5 minutes"))
            .persistent_aggregate(open_state(url, table="small"), most=Count())
        )
        final = small.final().select("window_end", "key", "most")
        large = (
            final.select("key", "most", end="window_end")
            .group_by("key")
            .window(tumbling("1 hour"))
            .persistent_aggregate(open_state(url, table="large"), most=Max("most"), windows=Count())
        )
        large.final().store(open_state(url, table="closed"), key=("window_start", "key"))

    rows = events(("a", 58), ("a", 59), ("a", 2), ("a", 61))
    rows[2][3] = at(31)
    closed, late = tables_of(program, rows, url, "closed", "large_late", delay="40 minutes", take=9)
    assert not closed

    rows.append(["e9", "a", 9, at(101)])
    url += "-2"
    closed, late = tables_of(program, rows, url, "closed", "large_late", delay="40 minutes")
    assert in_minutes(closed, "most") == {(0, "a"): 2}
    assert in_minutes(closed, "windows") == {(0, "a"): 2}
    assert not late


def test_changes_of_a_window_have_its_values_of_before(url: str) -> None:
    def program(builder: StreamBuilder, rows: DataStream) -> None:
        table = (
            rows.group_by("key")
            .window(sliding("10 minutes", every="5 minutes"))
            .persistent_aggregate(open_state(url, table="counts"), n=Count())
        )
        (
            table.changes(before=True)
            .filter(lambda row: row["n"] > 1 >= (row["before_n"] or 0))
            .store(open_state(url, table="alerts"), key=("key", "window_start"))
        )

    rows = events(("a", 1), ("a", 6), ("a", 7), ("b", 1))
    (alerts,) = tables_of(program, rows, url, "alerts")

    assert {(key, minutes(start)): row["n"] for (key, start), row in alerts.items()} == {
        ("a", 0): 2,
        ("a", 5): 2,
    }


def test_a_mean_and_no_key_at_all(url: str) -> None:
    def program(builder: StreamBuilder, rows: DataStream) -> None:
        table = (
            rows.group_by()
            .window(tumbling("5 minutes"))
            .persistent_aggregate(open_state(url, table="means"), mean=Mean("n"))
        )
        table.final().store(open_state(url, table="closed"), key="window_start")

    (closed,) = tables_of(program, ROWS, url, "closed", delay="2 minutes")

    assert {minutes(start): row["mean"] for start, row in closed.items()} == {
        0: 7 / 3,
        5: 3.0,
        10: 6.0,
    }


def source(**time: Any) -> tuple[StreamBuilder, DataStream]:
    builder = StreamBuilder("timed")
    spout = MemoryTransactionalSpout({0: events(("a", 1))}, EVENT, 1)
    return builder, builder.source("events", spout, **time)


def kept_in(table: str, **more: Any) -> Any:
    return open_state("sqlite:///x.db", table=table, **more)


def test_a_window_needs_event_time_and_says_where_it_went() -> None:
    _, without = source()
    with pytest.raises(
        TopologyError, match="window needs event time; got stream 'events', which has none"
    ):
        without.group_by("key").window(tumbling("5 minutes"))

    _, rows = source(event_time="ts")
    lost = rows.map(lambda row: [row["key"]], "key string")
    with pytest.raises(
        TopologyError, match=r"got stream 'events.map', which has none.*columns here"
    ):
        lost.group_by("key").window(tumbling("5 minutes"))


def test_event_time_goes_with_its_column() -> None:
    _, rows = source(event_time="ts")
    same = rows.map(lambda row: [row["ts"], 1], "ts timestamp, n long")
    assert same.time == rows.time
    assert rows.map(lambda row: [1], "ts long").time is None
    assert rows.select("key").time is None
    renamed = rows.select("key", when="ts").time
    assert renamed is not None
    assert renamed.column == "when"
    left, right = rows.branch(lambda row: True)
    assert left.time == right.time == rows.time


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        (lambda rows: rows.group_by("key").window("5 minutes"), "window takes no str"),
        (lambda rows: tumbling("5 fortnights"), "size of tumbling windows is not a duration"),
        (lambda rows: sliding("5 minutes", every="6 minutes"), "leave gaps"),
        (lambda rows: sliding("1 day", every="1 second"), "would be in 86400 windows"),
        (
            lambda rows: rows.group_by("key").window(tumbling("1 hour")).persistent_aggregate(
                kept_in("t", kind="transactional"), n=Count()
            ),
            "reads a transactional state",
        ),
        (
            lambda rows: rows.group_by("key").window(tumbling("1 hour")).persistent_aggregate(
                kept_in("t"), late=kept_in("t"), n=Count()
            ),
            "is used twice",
        ),
        (
            lambda rows: rows.group_by("key").window(tumbling("1 hour")).persistent_aggregate(
                kept_in("t")
            ),
            "has no aggregates",
        ),
        (
            lambda rows: rows.group_by("key").persistent_aggregate(kept_in("t"), n=Count()).final(),
            "final needs a table of windows",
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_told(mistake: Any, told: str) -> None:
    _, rows = source(event_time="ts")

    with pytest.raises(TopologyError, match=told):
        mistake(rows)


def test_a_column_that_is_named_like_one_of_a_window_is_told() -> None:
    _, rows = source(event_time="ts")
    named = rows.select("ts", "key", window_start="n")

    with pytest.raises(FieldsError, match="would make column 'window_start' twice"):
        named.group_by("key").window(tumbling("1 hour"))
    with pytest.raises(FieldsError, match="column 'window_end' twice"):
        rows.group_by("key").window(tumbling("1 hour")).persistent_aggregate(
            kept_in("t"), window_end=Max("ts")
        )


def test_explain_tells_windows_and_event_time() -> None:
    builder, rows = source(event_time="ts", delay="90 seconds", by="key")
    window = sliding("1 hour", every="5 minutes")
    rows.group_by("key").window(window).persistent_aggregate(
        kept_in("counts"), keep="30 days", n=Count()
    )
    told = " ".join(str(builder.build_topology().explain(LOCAL)).split())

    assert "ƒ event time ts → delay 1 minute 30 seconds → by key" in told
    assert "ƒ watermark of events" in told
    assert "ƒ sliding windows of 1 hour, one every 5 minutes → late rows in state late →" in told
    assert "kept 30 days after its end" in told


def test_a_topology_with_other_windows_is_another_topology(url: str) -> None:
    """Windows of ten minutes would be added to those of five, under the same keys."""

    def known(window: Window) -> Any:
        builder, rows = source(event_time="ts")
        counted(url, window)(builder, rows)
        return fingerprint(builder.build_topology().graph)

    assert known(tumbling("5 minutes")) == known(tumbling("300 seconds"))
    assert known(tumbling("5 minutes")) != known(tumbling("10 minutes"))
    assert known(tumbling("1 day")) != known(tumbling("1 day", offset="1 hour"))


@pytest.mark.parametrize("window", [tumbling("5 minutes"), session("5 minutes")])
@pytest.mark.rule("txtopo.streams.windows", "Rules", 4)
def test_a_query_finds_no_window_that_may_have_been_deleted(
    window: Window | Session, url: str
) -> None:
    """A replay may come after the deletion, so it must not matter whether the rows are there."""

    def program(builder: StreamBuilder, rows: DataStream) -> None:
        windowed = rows.group_by("key").window(window)
        table = windowed.persistent_aggregate(
            open_state(url, table="t"), keep="1 minute", count=Count()
        )
        key = ("ts", "key") if isinstance(window, Window) else ("key", "ts")
        asked = rows.query(table, on=key)
        asked.store(open_state(url, table="asked"), key="id")

    rows = events(("a", 0), ("x", 5.9), ("a", 0), ("x", 7), ("a", 0))
    (asked,) = tables_of(program, rows, url, "asked")

    assert [asked[id]["count"] for id in ("e1", "e3", "e5")] == [1, 1, None]


@pytest.mark.parametrize("window", [tumbling("5 minutes"), session("5 minutes")])
def test_null_in_the_key_of_a_window_is_told(window: Window | Session, url: str) -> None:
    def program(builder: StreamBuilder, rows: DataStream) -> None:
        empty = rows.with_columns(lambda row: [None if row["key"] == "a" else "b"], "owner string")
        empty.group_by("key", "owner").window(window).persistent_aggregate(
            open_state(url, table="t"), count=Count()
        )

    with pytest.raises(ValueRefusedError, match="NULL"):
        tables_of(program, events(("a", 0), ("b", 0), ("a", 1)), url, take=3)
