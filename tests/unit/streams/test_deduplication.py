"""Deduplication: what is a duplicate, what is late, and what is remembered."""

from __future__ import annotations

import datetime
import random
from pathlib import Path
from typing import Any

import pytest

from tests.unit.streams.plain_joins import deduplicated
from tests.unit.streams.times import EVENT, at, events, tables_of
from tests.unit.streams.txids import Unique, second
from tests.unit.streams.worlds import GROUPS, LOCAL, run
from txtopo import Config, Count, Fields, StreamBuilder, TopologyError, open_state
from txtopo.errors import EmitError, FieldsError
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.streams import DataStream

HOUR = datetime.timedelta(hours=1)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'unique.db'}"


@pytest.mark.rule("txtopo.streams.deduplication", "Rules", 2)
def test_rows_of_a_key_are_duplicates_if_they_are_less_apart_than_within() -> None:
    unique = Unique(10)

    assert unique.run([("a", 1, 100)], None) == [("a", 1, 100)]
    assert unique.run([("a", 2, 109.999999), ("a", 3, 90.000001)], None) == []
    assert unique.run([("a", 4, 110)], None) == [("a", 4, 110)]


def test_a_duplicate_does_not_prolong_what_it_repeats() -> None:
    unique = Unique(10)

    found = unique.run([("a", number, number * 4.0) for number in range(8)], None)

    assert [time for _, _, time in found] == [0, 12, 24]


@pytest.mark.rule("txtopo.streams.deduplication", "Rules", 2, 3)
def test_a_row_that_is_older_by_within_is_let_through_once() -> None:
    unique = Unique(10)
    unique.run([("a", 1, 100)], None)

    assert unique.run([("a", 2, 90), ("a", 3, 90)], None) == [("a", 2, 90)]
    assert unique.run([("a", 4, 105), ("a", 5, 85), ("a", 6, 90)], None) == []
    assert unique.run([("a", 7, 110), ("a", 8, 80)], None) == [("a", 7, 110), ("a", 8, 80)]
    assert unique.held() == {"a": [80, 90, 100, 110]}


@pytest.mark.rule("txtopo.streams.deduplication", "Rules", 5)
def test_a_time_is_remembered_until_no_row_on_time_can_repeat_it() -> None:
    unique = Unique(10)
    unique.run([("a", 1, 100), ("a", 2, 50), ("a", 3, 70)], second(59.999999))
    assert unique.held() == {"a": [50, 70, 100]}

    unique.run([("a", 4, 80)], second(80))
    assert unique.held() == {"a": [80, 100]}
    unique.run([], second(109.999999))
    assert unique.run([("a", 5, 109.999999)], second(109.999999)) == []

    unique.run([], second(110))
    assert unique.held() == {}


@pytest.mark.parametrize("first", range(3))
def test_the_first_row_that_came_is_let_through_in_one_batch_as_in_several(first: int) -> None:
    """Neither the times nor the other columns decide."""
    rows = [("a", 3, 5.0), ("a", 1, 4.0), ("a", 2, 6.0)]
    rows = rows[first:] + rows[:first]
    cut = Unique(10)

    assert Unique(10).run(rows, None) == rows[:1]
    assert [row for each in rows for row in cut.run([each], None)] == rows[:1]


@pytest.mark.rule("txtopo.streams.deduplication", "Rules", 4)
def test_a_row_without_a_key_is_never_a_duplicate() -> None:
    unique = Unique(10)

    assert len(unique.run([(None, 1, 1), (None, 1, 1)], None)) == 2
    assert not unique.txids.held("seen")


@pytest.mark.rule("txtopo.streams.deduplication", "Rules", 1)
def test_a_row_at_the_watermark_is_on_time_and_one_before_is_late() -> None:
    """The watermark of the previous txid counts, not that of its own."""
    unique = Unique(10)
    unique.run([("a", 1, 50)], second(50))

    assert unique.run([("b", 2, 50), ("c", 3, 49.999999)], second(90)) == [("b", 2, 50)]
    assert unique.late() == [("c", 3, 49.999999)]


def test_late_rows_are_numbered_in_the_order_of_their_columns() -> None:
    unique = Unique(10)
    unique.run([("a", 1, 50)], second(50))
    unique.run([("b", 2, 9), ("a", 7, 8), (None, 1, 3), ("a", 3, 8)], second(50))

    assert unique.late() == [("a", 3, 8), ("a", 7, 8), ("b", 2, 9), (None, 1, 3)]


@pytest.mark.rule("txtopo.streams.deduplication", "Rules", 5)
def test_a_key_expires_when_no_row_on_time_can_repeat_it() -> None:
    unique = Unique(10)
    unique.run([("a", 1, 50), ("b", 1, 51)], second(40))

    unique.run([], second(60))
    assert set(unique.txids.held("seen")) == {("b",)}


@pytest.mark.integration
def test_many_keys_leave_a_bounded_state() -> None:
    """30,000 rows with ids of their own; the state has those of the horizon."""
    unique, most = Unique(1000), 0
    for batch in range(15):
        start = batch * 2000
        rows = [(f"{n}", 0, float(n)) for n in range(start, start + 2000)]
        assert len(unique.run(rows, second(start + 1900))) == 2000
        most = max(most, len(unique.txids.held("seen")))

    assert most <= 1100


def program(url: str, **more: Any) -> Any:
    def write(builder: StreamBuilder, rows: DataStream) -> None:
        state = open_state(url, table="seen")
        unique = rows.drop_duplicates("key", within=HOUR, state=state, **more)
        unique.store(open_state(url, table="out"), key="id")

    return write


PARTS = 3
TAKES = [*(pytest.param(take, marks=pytest.mark.slow) for take in (1, 2)), 7, 1000]
DELAYS = {"n": "90 minutes", (): "7 hours"}
"""How far rows are out of order in each part, and in all."""


def out_of_order(seed: int, *, step: int = 1) -> list[list[Any]]:
    """Return rows of few keys whose parts are hours apart, each of them out of order.

    With a *step* of an hour the rows of a key are copies, or an hour or more apart.
    """
    chance, rows = random.Random(seed), []
    for number in range(80):
        part = number if number < PARTS else chance.randrange(PARTS)
        minute = number + part * 150 + chance.randint(-90, 0)
        key = None if chance.random() < 0.03 else f"k{chance.randrange(3)}"
        rows.append([f"e{number}", key, part, at(minute // step * step)])
    return rows


def passed(rows: list[list[Any]]) -> set[str]:
    told = deduplicated([rows], HOUR, datetime.timedelta(days=1))
    return {row[0] for _, row in told.emitted}


@pytest.mark.integration
@pytest.mark.parametrize("config", [LOCAL, GROUPS], ids=["one by one", "groups"])
@pytest.mark.parametrize("by", ["n", ()], ids=["parts", "one part"])
@pytest.mark.parametrize("take", TAKES)
def test_how_rows_on_time_are_cut_into_batches_makes_no_difference(
    take: int, by: Any, config: Config, tmp_path: Path
) -> None:
    """Rows of a partition arrive in its order, whatever their times are."""
    for seed in range(2):
        rows, url = out_of_order(seed), f"sqlite:///{tmp_path / f'{seed}.db'}"
        more: dict[str, Any] = {"take": take, "by": by, "delay": DELAYS[by], "config": config}
        out, late = tables_of(program(url), rows, url, "out", "seen_late", **more)

        assert (set(out), late) == (passed(rows), {}), seed


@pytest.mark.integration
@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize("take", TAKES)
def test_copies_count_once_in_every_order_and_cut(take: int, tasks: int, tmp_path: Path) -> None:
    """Several partitions arrive side by side, and several tasks share a batch."""
    for seed in range(2):
        rows, url = out_of_order(seed, step=60), f"sqlite:///{tmp_path / f'{seed}.db'}"
        shares = {part: [row for row in rows if row[2] == part] for part in range(PARTS)}
        spout = MemoryTransactionalSpout(shares, EVENT, take)
        builder = StreamBuilder("copies")
        declared: Any = {"event_time": "ts", "delay": "150 minutes", "by": "n", "max_ahead": None}
        source = builder.source("events", spout, tasks, **declared)
        program(url)(builder, source)
        run(builder.build_topology(), LOCAL)

        with open_state(url, table="out").reader() as reader:
            found = [(row["key"], row["ts"]) for _, row in reader.items() if row["key"] is not None]
        expected = {(key, time) for _, key, _, time in rows if key is not None}
        assert (len(found), set(found)) == (len(expected), expected), seed


def test_copies_of_a_row_are_dropped_while_another_part_is_ahead(url: str) -> None:
    """What is let through between does not make them new, in one batch or in several."""
    times = [0, 120, 0, 0, 0]
    rows = [[f"e{n}", "x", int(minute == 0), at(minute)] for n, minute in enumerate(times)]

    for take in (1, 2, 5):
        out, late = tables_of(
            program(f"{url}-{take}"), rows, f"{url}-{take}", "out", "seen_late", take=take, by="n"
        )
        assert (sorted(out), late) == (["e0", "e1"], {})


def test_the_stream_keeps_its_time_and_feeds_windows(url: str) -> None:
    from txtopo.streams import tumbling

    def write(builder: StreamBuilder, rows: DataStream) -> None:
        unique = rows.drop_duplicates("key", within=HOUR, state=open_state(url, table="seen"))
        counts = open_state(url, table="counts")
        windows = unique.group_by().window(tumbling("10 minutes"))
        windows.persistent_aggregate(counts, n=Count()).final().store(
            open_state(url, table="closed"), key="window_start"
        )

    rows = events(("a", 0), ("a", 1), ("b", 2), ("c", 11), ("d", 25))
    (closed,) = tables_of(write, rows, url, "closed")

    assert {start: row["n"] for start, row in closed.items()} == {at(0): 2, at(10): 1}


def test_late_rows_can_be_dropped_or_go_elsewhere(url: str) -> None:
    rows = events(("a", 60), ("b", 1))
    tables_of(program(url, late=False), rows, url)
    with pytest.raises(Exception, match="no state"), open_state(url, table="seen_late").reader():
        pass

    other = f"{url}-2"
    late = open_state(other, table="too_late")
    (found,) = tables_of(program(other, late=late), rows, other, "too_late")
    assert list(found) == [(2, 1)]


def stream(fields: str = "id string, ts timestamp", **time: Any) -> DataStream:
    builder = StreamBuilder("t")
    declared: Any = time or {"event_time": "ts"}
    return builder.source("s", MemoryTransactionalSpout({0: []}, Fields(fields), 1), **declared)


FILE = open_state("sqlite:///unused.db", table="seen")

BAD: list[tuple[Any, tuple[str, ...], dict[str, Any], str]] = [
    ({}, ("di",), {}, "unknown column 'di'.*'id'"),
    ({}, (), {}, "names no column"),
    ({}, ("id", "id"), {}, "twice"),
    ({}, ("id",), {"within": "soon"}, "is not a duration"),
    ({}, ("id",), {"within": "0 seconds"}, "out of range"),
    ({}, ("id",), {"within": 5}, "is not a duration"),
    ({}, ("id",), {"state": "sqlite:///x.db"}, "wrong type"),
    ({}, ("id",), {"state": open_state("memory:", table="a", kind="transactional")}, "opaque"),
    ({}, ("id",), {"state": FILE, "late": FILE}, "used twice"),
    ({}, ("id",), {"late": True}, "wrong type"),
    ({"event_time": None}, ("id",), {}, "needs event time"),
    ({"fields": "time string, ts timestamp"}, ("time",), {}, "column 'time' twice"),
    ({"fields": "id string, batch long, ts timestamp"}, ("id",), {}, "column 'batch' twice"),
    (
        {"fields": "before timestamp, after timestamp", "event_time": "after"},
        ("before",),
        {},
        "wat",
    ),
]


@pytest.mark.parametrize(("source", "names", "more", "message"), BAD)
def test_a_mistake_is_found_where_it_stands(
    source: Any, names: tuple[str, ...], more: Any, message: str
) -> None:
    given: dict[str, Any] = {"within": "1 hour", "state": open_state("memory:", table="seen")}

    with pytest.raises(TopologyError, match=message):
        stream(**source).drop_duplicates(*names, **{**given, **more})


def test_a_time_that_an_operator_made_null_ends_the_run(url: str) -> None:
    def write(builder: StreamBuilder, rows: DataStream) -> None:
        gone = rows.map(lambda row: [row["id"], row["key"], row["n"], None], EVENT)
        gone.drop_duplicates("key", within=HOUR, state=open_state(url, table="seen"))

    with pytest.raises(EmitError, match="no usable event time"):
        tables_of(write, events(("a", 1)), url)


def test_the_mistakes_are_of_fields_where_fields_are_wrong() -> None:
    with pytest.raises(FieldsError):
        stream().drop_duplicates("x", within="1 hour", state=open_state("memory:", table="seen"))
