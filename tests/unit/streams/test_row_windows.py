"""Windows of a number of rows: which rows a window has, when it is full, and what is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.faults.simulated.fresh_seeds import fresh_seeds
from tests.unit.streams.cases.row_windows import CASES, RowCase
from tests.unit.streams.row_window_programs import RowWindowProgram, judged_row_windows
from tests.unit.streams.scripted import emitted, tables
from tests.unit.streams.test_changed_programs import Changing, steps
from tests.unit.streams.worlds import LOCAL, replay_of, run
from txtopo import Count, Fields, Max, StreamBuilder, Sum, TopologyError, open_state
from txtopo.errors import FieldsError, TopologyChanged, ValueRefusedError
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.streams import DataStream, sliding, tumbling
from txtopo.streams.row_windows import RowWindow, numbers_within

ROW = Fields("key string, time long, amount long")
Streams = Mapping[str, DataStream]
Txids = Sequence[Sequence[Sequence[Any]]]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'windows.db'}"


def rows_of(*txids: str) -> Txids:
    """Return rows of keys with one letter each; their amounts are 1, 2, 4 and so on."""
    number, found = 0, []
    for keys in txids:
        found.append([[key, number + at, 1 << (number + at)] for at, key in enumerate(keys)])
        number += len(keys)
    return found


def full(url: str, window: RowWindow, txids: Txids, **more: Any) -> dict[int, Any]:
    """Return (key, number, rows, total) of the windows that are full in each txid."""

    def program(builder: StreamBuilder, sources: Streams, state: Any) -> DataStream:
        windows = sources["rows"].group_by("key").window(window)
        kept = windows.persistent_aggregate(
            state("windows"), rows=Count(), total=Sum("amount"), **more
        )
        return kept.final()

    found = emitted(program, {"rows": (txids, ROW)}, url)
    return {txid: [(key, *map(int, rest)) for key, *rest in rows] for txid, rows in found.items()}


@pytest.mark.rule("txtopo.streams.row_windows", "Rules", 2)
@pytest.mark.parametrize(("size", "every"), [(1, 1), (4, 4), (4, 1), (5, 2), (7, 3), (100, 10)])
def test_a_row_is_in_each_window_that_ends_with_one_of_the_next_rows(size: int, every: int) -> None:
    numbers = np.arange(1, 300)

    places, windows = RowWindow(size, every).assigned(numbers)

    found = list(zip(numbers[places].tolist(), windows.tolist(), strict=True))
    assert found == [
        (row, window)
        for row in range(1, 300)
        for window in range(1, 600)
        if window * every - size < row <= window * every
    ]
    assert max(np.bincount(places)) == RowWindow(size, every).of_row


def test_rows_are_numbered_within_their_key_in_their_order() -> None:
    codes = np.array([7, 3, 7, 7, 3, 9])

    assert numbers_within(codes).tolist() == [1, 1, 2, 3, 2, 1]
    assert numbers_within(codes[:0]).tolist() == []


@pytest.mark.rule("txtopo.streams.row_windows", "Rules", 3)
def test_a_window_is_emitted_once_in_the_txid_that_fills_it(url: str) -> None:
    """Several windows of a key may be full in one txid."""
    found = full(url, tumbling(rows=2), rows_of("ab", "", "aaab", "b"))

    assert found == {3: [("a", 1, 2, 1 + 4), ("a", 2, 2, 8 + 16), ("b", 1, 2, 2 + 32)]}
    kept, counts = tables(url, "windows", "windows_counts")
    assert kept["b", 2] == {"rows": 1, "total": 64}, "a window can be read before it is full"
    assert counts == {"a": 4, "b": 3}


@pytest.mark.rule("txtopo.streams.row_windows", "Rules", 2)
def test_the_first_sliding_windows_have_fewer_rows(url: str) -> None:
    found = full(url, sliding(rows=3, every=1), rows_of("a", "aa", "a"))

    assert found == {
        1: [("a", 1, 1, 1)],
        2: [("a", 2, 2, 3), ("a", 3, 3, 7)],
        3: [("a", 4, 3, 14)],
    }


@pytest.mark.rule("txtopo.streams.row_windows", "Rules", 1)
def test_rows_of_a_batch_are_ordered_by_columns_before_they_are_numbered(url: str) -> None:
    """Rows that are equal there stay in their order; so do rows of several txids."""
    batch: list[list[Any]] = [["a", 5, 1], ["a", 2, 2], ["a", 5, 4], ["a", None, 8]]

    found = full(url, tumbling(rows=2), [batch, [["a", 1, 16], ["a", 0, 32]]], order_by="time")

    assert found == {1: [("a", 1, 2, 8 + 2), ("a", 2, 2, 1 + 4)], 2: [("a", 3, 2, 48)]}


@pytest.mark.rule("txtopo.streams.row_windows", "Rules", 1)
def test_rows_of_merged_streams_are_numbered_stream_by_stream(url: str) -> None:
    def program(builder: StreamBuilder, sources: Streams, state: Any) -> DataStream:
        odd, even = sources["rows"].branch(lambda row: row["time"] % 2 == 1)
        merged = builder.merge(odd, even).group_by().window(tumbling(rows=3))
        return merged.persistent_aggregate(state("windows"), total=Sum("amount")).final()

    found = emitted(program, {"rows": (rows_of("aaaaaa"), ROW)}, url)

    assert found == {1: [("1", str(2 + 8 + 32)), ("2", str(1 + 4 + 16))]}


@pytest.mark.rule("txtopo.streams.row_windows", "Rules", 5)
@pytest.mark.parametrize("keep", [0, 1, 2])
def test_the_last_full_windows_of_a_key_are_kept(keep: int, url: str) -> None:
    """All are emitted, also those that are never written."""
    txids = rows_of("aaab", "a", "aaaa", "b")
    found = full(url, tumbling(rows=2), txids, keep=keep)

    numbers = [number for rows in found.values() for key, number, *_ in rows if key == "a"]
    assert numbers == [1, 2, 3, 4]
    kept, counts = tables(url, "windows", "windows_counts")
    assert sorted(kept) == [("a", n) for n in range(5 - keep, 5)] + [("b", 1)] * bool(keep)
    assert counts == {"a": 8, "b": 2}


def test_windows_can_be_queried_and_their_changes_taken_back(url: str) -> None:
    def program(builder: StreamBuilder, sources: Streams, state: Any) -> DataStream:
        windows = sources["rows"].group_by("key").window(tumbling(rows=2))
        table = windows.persistent_aggregate(state("windows"), rows=Count(), most=Max("amount"))
        # How many windows have how many rows.
        table.changes(retracted=True).group_by("rows").persistent_aggregate(
            state("sizes"), windows=Count()
        )
        first = sources["rows"].with_columns(lambda _: [1], "window_number long")
        return first.query(table, on=("key", "window_number")).select("key", "rows", "most")

    found = emitted(program, {"rows": (rows_of("ab", "a"), ROW)}, url)

    assert found == {1: [("a", "1", "1"), ("b", "1", "2")], 2: [("a", "2", "4")]}
    assert tables(url, "sizes") == [{1: 1, 2: 1}]


def test_a_long_batch_is_cut_into_slices(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txtopo.streams.row_window_tables.SLICE_ROWS", 7)
    found = full(url, sliding(rows=5, every=2), rows_of("a" * 12, "b" + "a" * 4))

    assert [rows[1:3] for txid in found for rows in found[txid]] == [
        (1, 2), (2, 4), (3, 5), (4, 5), (5, 5), (6, 5), (7, 5), (8, 5),
    ]  # fmt: skip


@pytest.mark.parametrize("key", ["null", "number"])
def test_a_key_is_that_of_a_state(key: str, url: str) -> None:
    """NULL is refused as below any group_by; -0.0 and 0.0 are one key."""
    kind, rows = ("string", [[None]]) if key == "null" else ("double", [[0.0], [-0.0], [1.0]])
    builder = StreamBuilder("keys")
    source = builder.source("rows", MemoryTransactionalSpout({0: rows}, Fields(f"k {kind}"), 5))
    source.group_by("k").window(tumbling(rows=2)).persistent_aggregate(
        open_state(url, table="windows"), n=Count()
    )
    if key == "null":
        with pytest.raises(ValueRefusedError, match="a key cannot be NULL"):
            run(builder.build_topology(), LOCAL)
    else:
        run(builder.build_topology(), LOCAL)
        assert tables(url, "windows") == [{(0.0, 1): 2, (1.0, 1): 1}]


@pytest.mark.integration
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.source.replace(" ", "-"))
def test_full_windows_are_those_of_the_other_engine(case: RowCase, url: str) -> None:
    def program(builder: StreamBuilder, sources: Streams, state: Any) -> DataStream:
        key = ("key",) if case.by_key else ()
        kept = (
            sources["rows"]
            .group_by(*key)
            .window(case.window)
            .persistent_aggregate(
                state("windows"), order_by=case.order_by, rows=Count(), total=Sum("amount")
            )
        )
        return kept.final().filter(lambda row: not case.whole or row["rows"] == case.window.size)

    found = emitted(program, {"rows": (case.txids, ROW)}, url)

    assert [
        (txid, *(row if case.by_key else ("", *row)))
        for txid, rows in found.items()
        for row in rows
    ] == [(txid, key, *map(str, rest)) for txid, key, *rest in case.full]


@pytest.mark.integration
@pytest.mark.rule("txtopo.streams.row_windows", "Rules", 4)
@pytest.mark.parametrize(
    "seed", [pytest.param(s, marks=pytest.mark.slow if s > 5 else ()) for s in range(40)]
)
def test_random_programs_are_right_whatever_crashes(seed: int) -> None:
    """Each attempt cuts its batches again; every second seed commits txids in groups."""
    assert_right(seed)


@pytest.mark.integration
def test_fresh_programs_are_right_whatever_crashes() -> None:
    for seed in fresh_seeds(2):
        assert_right(seed)


def assert_right(seed: int) -> None:
    found = judged_row_windows(seed)
    assert not found.violations, (
        f"{replay_of(seed)}: {RowWindowProgram.of(seed)} {found.violations[:3]}"
    )


WRONG: Mapping[str, tuple[Any, str]] = {
    "none": (lambda: tumbling(rows=0), "rows, of tumbling windows, is wrong; got 0"),
    "text": (lambda: tumbling(rows="5"), "got '5'; expected how many rows"),  # type: ignore[call-overload]
    "flag": (lambda: tumbling(rows=True), "got True; expected how many rows"),
    "both": (lambda: tumbling("5 minutes", rows=5), "have a length or a number of rows"),  # type: ignore[call-overload]
    "offset": (lambda: tumbling(rows=5, offset="1 minute"), "only a length has an offset"),  # type: ignore[call-overload]
    "neither": (lambda: tumbling(), "the size of tumbling windows is not a duration"),  # type: ignore[call-overload]
    "gaps": (lambda: sliding(rows=5, every=6), "sliding windows leave gaps; got rows=5"),
    "no step": (lambda: sliding(rows=5, every=0), "every, of sliding windows, is wrong; got 0"),
    "duration": (lambda: sliding(rows=5, every="1 minute"), "got '1 minute'"),  # type: ignore[call-overload]
    "many": (lambda: sliding(rows=10**6, every=1), "each row would be in 1000000 windows"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_windows_that_cannot_be_are_refused(wrong: str) -> None:
    declare, message = WRONG[wrong]

    with pytest.raises(TopologyError, match=message):
        declare()


def test_what_cannot_be_numbered_or_kept_is_refused(url: str) -> None:
    rows = StreamBuilder("p").source("rows", MemoryTransactionalSpout({0: []}, ROW, 1))
    state, two = open_state(url, table="t"), tumbling(rows=2)
    windows = rows.group_by("key").window(two)

    for keep in (-1, True, "3"):
        with pytest.raises(TopologyError, match="keep, of windows of rows, is wrong"):
            windows.persistent_aggregate(state, keep=keep, n=Count())  # type: ignore[arg-type]
    with pytest.raises(FieldsError, match="for its order, names unknown column 'tim'"):
        windows.persistent_aggregate(state, order_by="tim", n=Count())
    kept = open_state(url, "transactional", table="t")
    with pytest.raises(TopologyError, match="reads a transactional state"):
        windows.persistent_aggregate(kept, n=Count())
    with pytest.raises(FieldsError, match="would make column 'key' twice"):
        windows.persistent_aggregate(state, key=Count())
    with pytest.raises(FieldsError, match="would make column 'window_number' twice"):
        rows.select("key", window_number="time").group_by("key").window(two)
    table = rows.as_table(open_state("memory:", table="last"), key="key")
    with pytest.raises(
        TopologyError, match="would get a different number than when it was counted"
    ):
        table.changes(retracted=True).group_by("key").window(two)
    assert windows.persistent_aggregate(state, n=Count()).name == "t"
    other = open_state(url, table="t_counts")
    with pytest.raises(TopologyError, match=r"table 't_counts' of .* is used twice"):
        rows.store(other, key="key")


def test_other_windows_in_the_same_table_are_refused() -> None:
    """Windows of another size, or of event time, would find rows that are not theirs."""
    world = Changing("memory:")

    def counting(window: Any) -> Any:
        def program(world: Changing, builder: StreamBuilder) -> None:
            kept = world.source(builder).group_by("key").window(window)
            kept.persistent_aggregate(world.state("kept"), n=Count())

        return program

    world.run(counting(tumbling(rows=2)), s=steps(0, 20))
    for other in (tumbling(rows=3), sliding(rows=2, every=1)):
        with pytest.raises(TopologyChanged, match="would mean something else"):
            world.run(counting(other), s=steps(0, 40))
    world.run(counting(tumbling(rows=2)), s=steps(0, 25))

    assert world.held("kept") == {("x", 1): 2, ("x", 2): 2, ("x", 3): 2}


def test_an_explanation_shows_the_windows() -> None:
    builder = StreamBuilder("p")
    rows = builder.source("rows", MemoryTransactionalSpout({0: [], 1: []}, ROW, 1))
    windows = rows.group_by("key").window(sliding(rows=4, every=2))
    windows.persistent_aggregate(open_state("memory:", table="t"), keep=3, n=Count())
    shown = str(builder.build_topology().explain())

    assert "sliding windows of 4 rows, one every 2 → the last 3 full ones are kept" in shown
