"""Session windows: what is one session, what is late, what merges, and what closes."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.streams.times import at, events, minutes, tables_of
from tests.unit.streams.worlds import LOCAL, run
from txtopo import (
    Count,
    CountDistinct,
    Fields,
    First,
    Last,
    Max,
    Mean,
    OwnAggregate,
    StreamBuilder,
    Sum,
    TopN,
    TopologyError,
    open_state,
)
from txtopo.attempt import TransactionAttempt
from txtopo.errors import TxtopoError
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.streams import DataStream, session, tumbling
from txtopo.streams.event_time import TimeColumn
from txtopo.streams.sessions import AssignSessions
from txtopo.streams.windows import BOUNDS

ATTEMPT = TransactionAttempt(1, 0, 1)
NEVER = "1000 days"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'sessions.db'}"


def assigned(rows: list[tuple[Any, float]], gap: str = "5 minutes") -> list[tuple[Any, ...]]:
    fields = Fields("key string, ts timestamp")
    operator = AssignSessions(
        "window",
        fields,
        Fields.of([*BOUNDS, *fields]),
        print,
        TimeColumn("ts", {"s": datetime.timedelta(0)}),
        session(gap).gap,
        ("key",),
    )
    columns = {"key": [key for key, _ in rows], "ts": [at(minute) for _, minute in rows]}
    batch = pa.RecordBatch.from_pydict(columns, schema=fields.arrow_schema())
    (found,) = operator.apply(batch, ATTEMPT)
    return [
        (row["key"], minutes(row["window_start"]), minutes(row["window_end"]))
        for row in found.to_pylist()
    ]


def test_rows_up_to_a_gap_apart_are_in_one_session() -> None:
    found = assigned([("a", 0), ("a", 5), ("a", 10.01), ("a", 15)])

    assert found == [("a", 0, 10), ("a", 0, 10), ("a", 10.01, 20), ("a", 10.01, 20)]


def test_rows_may_come_in_any_order_and_stay_in_it() -> None:
    found = assigned([("b", 30), ("a", 4), ("b", 1), ("a", 0), ("b", 5), ("a", 60)])

    assert found == [
        ("b", 30, 35),
        ("a", 0, 9),
        ("b", 1, 10),
        ("a", 0, 9),
        ("b", 1, 10),
        ("a", 60, 65),
    ]


def test_null_is_a_key_of_its_own_until_a_state_refuses_it() -> None:
    found = assigned([(None, 0), ("a", 1), (None, 2)])

    assert found == [(None, 0, 7), ("a", 1, 6), (None, 0, 7)]


def counted(url: str, gap: str = "5 minutes", **more: Any) -> Any:
    def program(builder: StreamBuilder, rows: DataStream) -> None:
        table = (
            rows.group_by("key")
            .window(session(gap))
            .persistent_aggregate(
                open_state(url, table="sessions"), n=Count(), total=Sum("n"), **more
            )
        )
        table.final().store(open_state(url, table="closed"), key=("key", "window_start"))

    return program


def in_minutes(table: dict[Any, Any], column: str = "total") -> dict[Any, Any]:
    return {
        (key, minutes(start), minutes(row["window_end"])): row[column]
        for (key, start), row in table.items()
    }


def test_a_row_extends_a_session_of_an_earlier_txid_in_both_directions(url: str) -> None:
    rows = events(("a", 10), ("a", 15), ("a", 5), ("a", 7), ("b", 6))
    (kept,) = tables_of(counted(url), rows, url, "sessions", delay=NEVER)

    assert in_minutes(kept) == {("a", 5, 20): 10, ("b", 6, 11): 5}


@pytest.mark.rule("txtopo.streams.sessions", "Rules", 2)
def test_a_row_between_two_sessions_makes_one_of_them_and_leaves_no_other_row(url: str) -> None:
    rows = events(("a", 0), ("a", 9), ("a", 20), ("a", 4))
    (kept,) = tables_of(counted(url), rows, url, "sessions", delay=NEVER)

    assert in_minutes(kept) == {("a", 0, 14): 7, ("a", 20, 25): 3}


@pytest.mark.rule("txtopo.streams.sessions", "Rules", 1)
def test_sessions_touch_if_rows_are_exactly_a_gap_apart(url: str) -> None:
    rows = events(("a", 0), ("a", 5), ("b", 0), ("b", 5.001))
    (kept,) = tables_of(counted(url), rows, url, "sessions", delay=NEVER)

    assert in_minutes(kept) == {("a", 0, 10): 3, ("b", 0, 5): 3, ("b", 5.001, 10.001): 4}


@pytest.mark.rule("txtopo.streams.sessions", "Rules", 5)
def test_a_session_closes_once_the_watermark_has_passed_its_end(url: str) -> None:
    """A row of the end itself would not be late, and is in it."""
    rows = events(("a", 0), ("a", 4), ("b", 9), ("b", 9.001), ("b", 14))
    kept, closed = tables_of(counted(url), rows[:3], url, "sessions", "closed")
    assert not closed

    url += "-2"
    kept, closed = tables_of(counted(url), rows[:4], url, "sessions", "closed")
    assert in_minutes(closed) == {("a", 0, 9): 3}
    assert closed.items() <= kept.items()

    url += "-3"
    kept, closed = tables_of(counted(url), rows, url, "sessions", "closed")
    assert in_minutes(closed) == {("a", 0, 9): 3}
    assert in_minutes(kept)["b", 9, 19] == 12


@pytest.mark.integration
@pytest.mark.parametrize(("delay", "touching"), [(0, 5), (3, 8)])
def test_a_row_exactly_a_gap_later_is_in_the_session_in_every_cut(
    delay: int, touching: float, url: str
) -> None:
    rows = events(("ann", 0), ("bob", touching), ("ann", 5), ("bob", 60))
    for take in (1, 2, 3, 4):
        there = f"{url}-{take}"
        tables = "sessions", "closed", "sessions_late"
        kept, closed, late = tables_of(
            counted(there), rows, there, *tables, take=take, delay=f"{delay} minutes"
        )
        assert in_minutes(closed)["ann", 0, 10] == 4
        assert closed.items() <= kept.items()
        assert not late


@pytest.mark.rule("txtopo.streams.sessions", "Rules", 3)
def test_a_row_is_late_if_its_own_session_has_ended_and_it_reaches_no_open_one(url: str) -> None:
    """W is 10: the session of 4.9 has ended, that of 5 has not; 6.1 and 4 reach an open one."""
    rows = events(("x", 10), ("a", 4.9), ("b", 5), ("b", 4), ("c", 6.1), ("c", 4))
    kept, late = tables_of(counted(url), rows, url, "sessions", "sessions_late")

    assert in_minutes(late) == {("a", 4.9, 9.9): 2}
    assert in_minutes(kept) == {("x", 10, 15): 1, ("b", 5, 10): 7, ("c", 5, 11.1): 11}


def test_a_late_row_is_in_time_beside_one_of_its_batch_in_either_order(url: str) -> None:
    """The rows of a batch have no order: what reaches a session of the batch is in it."""
    for number, order in enumerate([(6, 4), (4, 6)]):
        there = f"{url}-{number}"
        rows = events(("x", 8), ("x", 10), ("a", order[0]), ("a", order[1]))
        kept, late = tables_of(counted(there), rows, there, "sessions", "sessions_late", take=2)

        assert not late
        assert sum(row["n"] for row in kept.values()) == 4


@pytest.mark.rule("txtopo.streams.sessions", "Rules", 4)
def test_a_session_never_takes_the_key_of_a_closed_one(url: str) -> None:
    """[0, 5) is closed. A row of 5 opens [5, 10); one of 0 reaches it, but may not begin it."""
    rows = events(("a", 0), ("x", 5.5), ("a", 5), ("a", 0))
    kept, closed, late = tables_of(counted(url), rows, url, "sessions", "closed", "sessions_late")

    assert in_minutes(closed) == {("a", 0, 5): 1}
    assert in_minutes(kept)["a", 0, 5] == 1
    assert not late
    ((start, total),) = [
        (minutes(start) or 0.0, row["total"])
        for (key, start), row in kept.items()
        if key == "a" and row["total"] > 1
    ]
    assert start == pytest.approx(0.5, abs=1e-6)
    assert total == 7


@pytest.mark.rule("txtopo.streams.sessions", "Rules", 4)
def test_a_closed_session_takes_no_row_though_it_is_near(url: str) -> None:
    rows = events(("a", 0), ("x", 5.5), ("a", 3))
    kept, late = tables_of(counted(url), rows, url, "sessions", "sessions_late")

    assert in_minutes(kept) == {("a", 0, 5): 1, ("x", 5.5, 10.5): 2, ("a", 3, 8): 3}
    assert not late


def test_late_rows_make_sessions_among_themselves(url: str) -> None:
    rows = events(("x", 60), ("a", 1), ("a", 9), ("a", 5), ("a", 20), ("b", 2))
    kept, late = tables_of(counted(url), rows, url, "sessions", "sessions_late")

    assert in_minutes(late) == {("a", 1, 14): 9, ("a", 20, 25): 5, ("b", 2, 7): 6}
    assert in_minutes(kept) == {("x", 60, 65): 1}


def test_late_rows_can_be_dropped(url: str) -> None:
    rows = events(("x", 60), ("a", 1))
    (kept,) = tables_of(counted(url, late=False), rows, url, "sessions")

    assert in_minutes(kept) == {("x", 60, 65): 1}


@pytest.mark.parametrize(
    ("window", "kept"), [(session("5 minutes"), 3), (tumbling("5 minutes"), 1)]
)
@pytest.mark.rule("txtopo.streams.sessions", "Rules", 6)
def test_late_rows_of_what_may_have_expired_are_dropped(window: Any, kept: int, url: str) -> None:
    """Whether their rows are still there depends on when they were deleted."""

    def program(builder: StreamBuilder, rows: DataStream) -> None:
        windowed = rows.group_by("key").window(window)
        state = open_state(url, table="kept")
        windowed.persistent_aggregate(state, n=Count(), keep="30 minutes")

    rows = events(("x", 60), ("a", 24.999), ("a", 25), ("a", 25.001), ("a", 30))
    (late,) = tables_of(program, rows, url, "kept_late")

    assert [row["n"] for row in late.values()] == [kept]


@pytest.mark.integration
def test_sessions_are_the_same_however_rows_that_are_not_late_are_cut(url: str) -> None:
    rows = events(*((f"k{n % 3}", (n * 37 % 100) + n / 3) for n in range(60)))
    found = []
    for take in (1, 2, 7, 60):
        there = f"{url}-{take}"
        program = counted(there, "3 minutes")
        tables = tables_of(
            program, rows, there, "sessions", "sessions_late", take=take, delay=NEVER
        )
        found.append(tables)

    assert len(found[0][0]) > 9
    assert all(each == found[0] for each in found)
    assert not found[0][1]


class Letters(OwnAggregate):
    type = "json"

    def zero(self) -> Any:
        return []

    def add(self, value: Any, *items: Any) -> Any:
        return sorted({*value, *items})

    def combine(self, left: Any, right: Any) -> Any:
        return sorted({*left, *right})


def test_every_aggregate_is_combined_when_sessions_merge(url: str) -> None:
    def program(builder: StreamBuilder, rows: DataStream) -> None:
        rows.group_by("key").window(session("5 minutes")).persistent_aggregate(
            open_state(url, table="sessions"),
            n=Count(),
            mean=Mean("n"),
            most=Max("n"),
            top=TopN("n", 2, labels=("id",)),
            ids=CountDistinct("id"),
            own=Letters("id"),
            first=First("id", order="ts"),
            last=Last("id", order="ts"),
        )

    rows = events(("a", 8), ("a", 0), ("a", 4))
    (kept,) = tables_of(program, rows, url, "sessions", delay=NEVER)

    ((key, row),) = kept.items()
    assert key == ("a", at(0))
    assert row == {
        "window_end": at(13),
        "n": 3,
        "mean": 2.0,
        "most": 3,
        "top": [[3, "e3"], [2, "e2"]],
        "ids": 3,
        "own": ["e1", "e2", "e3"],
        "first": "e2",
        "last": "e3",
    }


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.rule("txtopo.streams.sessions", "Rules", 7)
def test_first_and_last_of_a_batch_go_by_their_order_and_not_by_tasks(tasks: int, url: str) -> None:
    """Two tasks have parts of one session; in the second txid they meet through a stored one."""
    fields = Fields("key string, place long, ts timestamp")
    first = [[["a", 4, at(0)], ["a", 1, at(10)]], [["a", 2, at(1)], ["a", 3, at(3)]]]
    second = [[["a", 9, at(-15)], ["z", 0, at(0)]], [["a", 5, at(25)], ["a", 6, at(26)]]]
    builder = StreamBuilder("ordered")
    spout = MemoryTransactionalSpout({n: first[n] + second[n] for n in (0, 1)}, fields, 2)
    rows = builder.source("events", spout, tasks, event_time="ts", delay=NEVER)
    aggregates: dict[str, Any] = {
        "first": First("place", order="place"),
        "last": Last("place", order="place"),
    }
    windowed = rows.group_by("key").window(session("20 minutes"))
    windowed.persistent_aggregate(open_state(url, table="sessions"), **aggregates)
    run(builder.build_topology(), LOCAL)

    with open_state(url, table="sessions").reader() as reader:
        found = {key: (row["first"], row["last"]) for key, row in reader.items()}
    assert found["a", at(-15)] == (1, 9)


def test_sessions_without_a_key_and_with_two(url: str) -> None:
    def program(builder: StreamBuilder, rows: DataStream) -> None:
        whole = rows.group_by().window(session("5 minutes"))
        table = whole.persistent_aggregate(open_state(url, table="whole"), n=Count())
        table.final().store(open_state(url, table="closed"), key="window_start")
        both = rows.group_by("key", "n").window(session("5 minutes"))
        both.persistent_aggregate(open_state(url, table="both"), rows=Count())

    rows = events(("a", 0), ("b", 4), ("a", 20), ("b", 2))
    rows[1][2] = rows[3][2]
    whole, closed, both = tables_of(program, rows, url, "whole", "closed", "both", delay="1 minute")
    assert {minutes(start): row["n"] for start, row in whole.items()} == {0: 2, 20: 1}
    assert closed == {at(0): whole[at(0)]}
    assert {(key, n, minutes(start)): row["rows"] for (key, n, start), row in both.items()} == {
        ("a", 1, 0): 1,
        ("b", 4, 4): 1,
        ("a", 3, 20): 1,
    }


def test_windows_of_sessions_close_in_the_txid_that_closes_the_session(url: str) -> None:
    def program(builder: StreamBuilder, rows: DataStream) -> None:
        closed = (
            rows.group_by("key")
            .window(session("5 minutes"))
            .persistent_aggregate(open_state(url, table="sessions"), n=Count())
            .final()
        )
        (
            closed.select("n", ended="window_end")
            .group_by()
            .window(tumbling("10 minutes"))
            .persistent_aggregate(open_state(url, table="per_hour"), sessions=Count(), n=Sum("n"))
            .final()
            .store(open_state(url, table="closed"), key="window_start")
        )

    rows = events(("a", 1), ("b", 2), ("b", 3), ("a", 5), ("x", 20))
    (closed,) = tables_of(program, rows, url, "closed")

    assert [(minutes(start), row["sessions"], row["n"]) for start, row in closed.items()] == [
        (0, 2, 4)
    ]

    url += "-2"
    rows = events(("a", 5), ("b", 10), ("x", 10.001), ("x", 20.001))
    closed, late = tables_of(program, rows, url, "closed", "per_hour_late")
    assert not late, "the session that ends where the watermark was when it closes"
    assert closed[at(0)]["sessions"] == 1


def test_a_table_of_sessions_answers_queries(url: str) -> None:
    def program(builder: StreamBuilder, rows: DataStream) -> None:
        table = (
            rows.group_by("key")
            .window(session("5 minutes"))
            .persistent_aggregate(open_state(url, table="sessions"), count=Count())
        )
        asked = rows.query(table, on=("key", "ts"))
        asked.store(open_state(url, table="asked"), key="id")

    rows = events(("a", 0), ("a", 1))
    (asked,) = tables_of(program, rows, url, "asked", take=2)

    assert {id: row["count"] for id, row in asked.items()} == {"e1": 2, "e2": None}


def source() -> DataStream:
    spout = MemoryTransactionalSpout(
        {0: events(("a", 1))}, Fields("id string, key string, n long, ts timestamp"), 1
    )
    return StreamBuilder("timed").source("events", spout, event_time="ts")


def test_explain_tells_the_gap() -> None:
    rows = source()
    windowed = rows.group_by("key").window(session("1 hour 30 minutes"))
    windowed.persistent_aggregate(open_state("memory:", table="t"), n=Count())

    text = str(rows.draft.build_topology().explain())
    assert "sessions with gaps of 1 hour 30 minutes" in text


def test_changes_of_sessions_are_refused_with_what_to_do_instead() -> None:
    table = (
        source()
        .group_by("key")
        .window(session("1 hour"))
        .persistent_aggregate(open_state("memory:", table="t"), n=Count())
    )

    with pytest.raises(TopologyError, match=r"whose sessions merge.*use final\(\)"):
        table.changes()


@pytest.mark.parametrize("gap", ["0 minutes", "five minutes", 5, None, "-1 hour"])
def test_a_gap_that_is_none_is_told(gap: Any) -> None:
    with pytest.raises(TopologyError, match="the gap of sessions is"):
        session(gap)


def test_a_timedelta_is_a_gap() -> None:
    assert session(datetime.timedelta(hours=1)) == session("60 minutes")


@pytest.mark.parametrize(
    ("function", "got"), [(lambda row: [None], "NULL"), (lambda row: [at(4e9)], "9631-")]
)
@pytest.mark.parametrize("window", [session("5 minutes"), tumbling("5 minutes")])
def test_a_function_that_spoils_the_event_time_is_told(
    function: Any, got: str, window: Any, url: str
) -> None:
    spout = MemoryTransactionalSpout({0: [["a", at(1)]]}, Fields("key string, ts timestamp"), 1)
    builder = StreamBuilder("timed")
    rows = builder.source("events", spout, event_time="ts", max_ahead=None)
    spoilt = rows.with_columns(function, "ts timestamp")
    spoilt.group_by("key").window(window).persistent_aggregate(
        open_state(url, table="t"), n=Count()
    )

    with pytest.raises(TxtopoError, match=f"no usable event time in column 'ts'; got {got}"):
        run(builder.build_topology(), LOCAL)
