"""Running values that expire: by event time, and by planned time without it."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.unit.streams.times import EVENT, at, events, minutes, tables_of
from tests.unit.streams.worlds import LOCAL, run
from txtopo import Fields, StreamBuilder, TopologyError, open_state
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.streams import DataStream


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'values.db'}"


def adding(total: int | None, row: Any) -> tuple[int, list[Any]]:
    total = (total or 0) + row["n"]
    return total, [row["id"], total]


def sums(url: str, value: str = "total long", **more: Any) -> Any:
    def write(builder: StreamBuilder, rows: DataStream) -> None:
        state = open_state(url, table="sums", value=Fields(value))
        rows.group_by("key").update(
            adding, "id string, total long", state=state, order_by="id", **more
        ).store(open_state(url, table="out"), key="id")

    return write


@pytest.mark.rule("txtopo.streams.expiring_values", "Rules", 2)
def test_a_value_counts_as_none_after_that_time_without_a_row(url: str) -> None:
    """Ten minutes after a row its value is none; a microsecond earlier it is there."""
    rows = events(("a", 0), ("a", 9.99), ("b", 10), ("a", 19.99), ("b", 19.99))

    (out,) = tables_of(sums(url, expire_after="10 minutes"), rows, url, "out")

    assert out == {"e1": 1, "e2": 3, "e3": 3, "e4": 4, "e5": 8}


@pytest.mark.parametrize("take", [1, 2, 6])
def test_in_order_it_makes_no_difference_how_rows_are_cut(take: int, url: str) -> None:
    rows = events(*((key, 6.0 * n) for n, key in enumerate("aabaab")))
    (out,) = tables_of(sums(url, expire_after="10 minutes"), rows, url, "out", take=take)

    assert out == {"e1": 1, "e2": 3, "e3": 3, "e4": 4, "e5": 9, "e6": 6}


def test_a_late_row_finds_no_value_that_the_watermark_has_passed(url: str) -> None:
    """Whether the value is deleted by then makes no difference."""
    rows = events(("a", 0), ("b", 60), ("a", 1))
    (out, kept) = tables_of(sums(url, expire_after="10 minutes"), rows, url, "out", "sums")

    assert out["e3"] == 3
    assert kept["a"] == {"total": 3, "seen": at(1)}


@pytest.mark.rule("txtopo.streams.expiring_values", "Rules", 1)
def test_the_state_says_when_a_value_last_had_a_row(url: str) -> None:
    rows = events(("a", 3), ("a", 1), ("b", 5))
    (kept,) = tables_of(sums(url, expire_after="10 minutes"), rows, url, "sums")

    assert {key: minutes(row["seen"]) for key, row in kept.items()} == {"a": 3, "b": 5}


def test_values_of_several_columns_and_removed_ones_do_the_same(url: str) -> None:
    def counting(value: Any, row: Any) -> tuple[Any, list[Any]]:
        value = value or {"n": 0, "names": []}
        names = [*value["names"], row["id"]]
        after = None if row["n"] == 2 else {"n": value["n"] + 1, "names": names}
        return after, [row["id"], value["n"]]

    def write(builder: StreamBuilder, rows: DataStream) -> None:
        state = open_state(url, table="values", value=Fields("n long, names json"))
        rows.group_by("key").update(
            counting, "id string, n long", state=state, expire_after="10 minutes"
        ).store(open_state(url, table="out"), key="id")

    rows = events(("a", 0), ("a", 1), ("a", 2), ("a", 3), ("a", 30))
    out, kept = tables_of(write, rows, url, "out", "values")

    assert out == {"e1": 0, "e2": 1, "e3": 0, "e4": 1, "e5": 0}
    assert kept["a"] == {"n": 1, "names": ["e5"], "seen": at(30)}


def test_without_event_time_planned_time_counts(url: str) -> None:
    def ran(rows: Any, after: Any) -> Any:
        builder = StreamBuilder("planned")
        spout = MemoryTransactionalSpout({0: rows}, EVENT, 1)
        sums(url, expire_after=after)(builder, builder.source("s", spout))
        topology = builder.build_topology()
        assert topology.graph.needs_planned_time
        run(topology, LOCAL)
        with (
            open_state(url, table="out").reader() as out,
            open_state(url, table="sums").reader() as kept,
        ):
            return dict(out.items()), dict(kept.items())

    out, kept = ran(events(("a", 0), ("a", 1)), datetime.timedelta(microseconds=1))
    assert kept["a"]["seen"] > at(0)
    assert out in ({"e1": 1, "e2": 2}, {"e1": 1, "e2": 3}), "both in one millisecond"
    url = f"{url}-2"
    out, _ = ran(events(("a", 0), ("a", 1)), "1 hour")
    assert out == {"e1": 1, "e2": 3}


@pytest.mark.parametrize(
    ("value", "after", "message"),
    [
        ("total long", "soon", "is not a duration"),
        ("total long", "0 minutes", "out of range"),
        ("seen long", "1 hour", "column 'seen' twice"),
    ],
)
def test_a_mistake_is_found_where_it_stands(value: str, after: str, message: str) -> None:
    builder = StreamBuilder("bad")
    rows = builder.source("s", MemoryTransactionalSpout({0: []}, EVENT, 1), event_time="ts")

    with pytest.raises(TopologyError, match=message):
        sums("memory:", value, expire_after=after)(builder, rows)
