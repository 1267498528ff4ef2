"""Interval joins: what matches, when a row leaves alone, what is late, and what is buffered."""

from __future__ import annotations

import datetime
import decimal
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.streams.plain_joins import joined
from tests.unit.streams.times import at, minutes
from tests.unit.streams.txids import Join, Txids, joining, second
from tests.unit.streams.worlds import LOCAL, run
from txtopo import Count, Fields, StreamBuilder, TopologyError, open_state
from txtopo.errors import FieldsError
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.streams import DataStream, tumbling
from txtopo.streams.interval_join import (
    LEFT,
    RIGHT,
    How,
    joined_fields,
)
from txtopo.streams.late_rows import LATE
from txtopo.streams.packed_rows import packed_rows, unpacked_columns

ORDER = Fields("id string, n long, ts timestamp")
PAYMENT = Fields("order string, paid long, at timestamp")
MINUTE = datetime.timedelta(minutes=1)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'join.db'}"


@pytest.mark.rule("txtopo.streams.interval_join", "Rules", 1)
def test_both_ends_of_the_interval_match() -> None:
    join = Join(-2, 5)
    found = join.run([("k", 10)], [("k", time) for time in (7.999999, 8, 15, 15.000001)], None)

    assert found == [("k", 10, 8), ("k", 10, 15)]


@pytest.mark.rule("txtopo.streams.interval_join", "Rules", 4)
def test_a_match_at_the_end_of_the_interval_and_of_the_watermark_is_found() -> None:
    """The right row is just on time, and the left one not closed."""
    join = Join(0, 5, "left")
    join.run([("k", 10)], [], second(10))
    join.run([], [], second(15))

    assert join.run([], [("k", 15)], second(90)) == [("k", 10, 15)]
    assert join.run([], [], second(99)) == []


def test_a_left_row_leaves_alone_once_when_no_match_can_come() -> None:
    join = Join(0, 5, "left")
    join.run([("k", 10)], [], second(10))

    assert join.run([], [], second(15)) == []
    assert join.run([], [], second(15.000001)) == [("k", 10, None)]
    assert join.run([], [], second(15.000001)) == []
    assert join.run([], [], second(50)) == []


def test_a_left_row_that_is_closed_when_it_comes_leaves_in_that_txid() -> None:
    join = Join(0, 5, "left")
    found = join.run([("a", 10), ("b", 20)], [("a", 12)], second(30))

    assert found == [("a", 10, 12), ("b", 20, None)]
    assert not join.txids.held("join")
    assert join.run([], [], second(60)) == []


def test_the_same_with_an_interval_in_the_past() -> None:
    """A right row has to be 2 to 5 seconds earlier, so only buffered ones can match."""
    join = Join(-5, -2, "left")
    join.run([], [("a", 8)], second(8))

    assert join.run([("a", 11), ("b", 9)], [], second(9)) == [("a", 11, 8), ("b", 9, None)]
    assert join.run([("a", 10)], [], second(10)) == [("a", 10, 8)]


@pytest.mark.rule("txtopo.streams.interval_join", "Rules", 4)
def test_a_row_that_had_a_match_in_an_earlier_txid_does_not_leave_alone() -> None:
    join = Join(0, 5, "left")
    join.run([("k", 10)], [], second(10))
    join.run([], [("k", 11)], second(11))

    assert join.run([], [], second(30)) == []


def test_a_row_with_a_match_in_the_txid_that_closes_it_does_not_leave_alone() -> None:
    join = Join(0, 5, "left")
    join.run([("k", 10)], [], second(10))

    assert join.run([], [("k", 12)], second(30)) == [("k", 10, 12)]


@pytest.mark.rule("txtopo.streams.interval_join", "Rules", 7)
def test_rows_of_one_key_and_time_are_all_matched_and_all_leave() -> None:
    join = Join(0, 5, "left")
    assert join.run([("a", 1), ("a", 1)], [("a", 2)], None) == [("a", 1, 2)] * 2
    assert join.run([("a", 1), ("b", 1)], [("a", 2)], None) == [("a", 1, 2)] * 4
    assert join.run([("b", 1)], [], second(20)) == [("b", 1, None)] * 2


def test_null_keys_match_nothing_and_left_ones_leave_at_once() -> None:
    join = Join(0, 5, "left")

    assert join.run([(None, 1), ("a", 1)], [(None, 1)], None) == [(None, 1, None)]
    assert len(join.txids.held("join")) == 1
    assert Join(0, 5).run([(None, 1)], [(None, 1)], None) == []


@pytest.mark.rule("txtopo.streams.interval_join", "Rules", 2)
def test_late_rows_match_nothing_and_are_kept_with_their_columns() -> None:
    join = Join(0, 5, "left")
    join.run([("a", 10)], [("a", 10)], second(10))

    found = join.run([("a", 9), ("b", 10)], [("a", 9.999999), ("b", 10)], second(10))

    assert found == [("b", 10, 10)]
    assert join.late() == [("left", "a", 9), ("right", "a", 9.999999)]


def test_late_rows_keep_the_sign_of_zero_and_are_numbered_by_their_values() -> None:
    left, right = Fields("k double, ts timestamp"), Fields("k double, v double, at timestamp")
    joined = joined_fields(left, right, "k", -MINUTE, MINUTE, "inner")
    for values in ([0.0, -0.0], [-0.0, 0.0]):
        late = [{"k": -0.0, "v": value, "at": second(1)} for value in values]
        txids = joining(lambda: joined, (left, "ts"), (right, "at"), late=True)
        txids.run({}, second(10))

        rows = pa.RecordBatch.from_pylist(late, right.arrow_schema())
        assert not txids.run({RIGHT: rows}, second(10))

        kept = [row for _, row in sorted(txids.held(LATE).items())]
        assert [repr(row[1:4]) for row in kept] == ["(-0.0, None, 0.0)", "(-0.0, None, -0.0)"]


@pytest.mark.rule("txtopo.streams.interval_join", "Rules", 3)
def test_rows_are_buffered_as_long_as_they_may_match_each_side_by_its_own_end() -> None:
    join = Join(-3, 5)
    join.run([("k", 10)], [("k", 10)], second(10))

    join.run([], [], second(13))
    assert (join.buffered(LEFT), join.buffered(RIGHT)) == ([10], [10])
    join.run([], [], second(13.000001))
    assert (join.buffered(LEFT), join.buffered(RIGHT)) == ([10], [])
    join.run([], [], second(15.000001))
    assert not join.buffered(LEFT)


@pytest.mark.rule("txtopo.streams.interval_join", "Rules", 7)
def test_the_order_of_matches_depends_on_nothing_but_the_rows() -> None:
    chance = random.Random(1)
    left = [(chance.choice("abc"), float(chance.randrange(9))) for _ in range(40)]
    right = [(chance.choice("abc"), float(chance.randrange(9))) for _ in range(40)]
    first = Join(-1, 2).run(left, right, None)
    for _ in range(3):
        chance.shuffle(left)
        chance.shuffle(right)
        assert Join(-1, 2).run(left, right, None) == first
    assert [row[:2] for row in first] == sorted(row[:2] for row in first)


@pytest.mark.rule("txtopo.streams.interval_join", "Rules", 7)
def test_rows_of_one_key_and_time_are_in_the_order_of_their_txids_and_values() -> None:
    chance = random.Random(2)
    paid: list[Any] = [{"order": "a", "paid": n, "at": second(0)} for n in range(6)]
    ordered: list[Any] = [{"id": "a", "n": n, "ts": second(0)} for n in (1, 2)]
    for _ in range(3):
        chance.shuffle(paid)
        chance.shuffle(ordered)
        txids = orders_with_payments()
        rows = {LEFT: ordered, RIGHT: [row for row in paid if row["paid"] % 2]}
        first = txids.run(columns_of(rows), None)
        then = txids.run(columns_of({RIGHT: [row for row in paid if not row["paid"] % 2]}), None)
        last = txids.run(columns_of({LEFT: [{"id": "a", "n": 0, "ts": second(0)}]}), None)

        assert pairs(first) == [(n, m) for n in (1, 2) for m in (1, 3, 5)]
        assert pairs(then) == [(n, m) for n in (1, 2) for m in (0, 2, 4)]
        assert pairs(last) == [(0, m) for m in (1, 3, 5, 0, 2, 4)]


def test_keys_of_many_columns_and_many_times_are_not_confused() -> None:
    """Numbers for all combinations of their values would not fit 64 bits."""
    names, count = [f"k{n}" for n in range(6)], 1_024
    key = Fields(", ".join(f"{name} long" for name in names))
    left, right = (Fields.of([*key, *Fields(f"{time} timestamp")]) for time in ("ts", "at"))
    chance = random.Random(3)
    keys = list(zip(*(chance.sample(range(count), count) for _ in names), strict=True))
    joined = joined_fields(left, right, names, -MINUTE, MINUTE, "inner")
    both = {
        side: pa.RecordBatch.from_pylist(
            [
                dict(zip(names, each, strict=True), **{time: second(n)})
                for n, each in enumerate(keys)
            ],
            fields.arrow_schema(),
        )
        for side, fields, time in ((LEFT, left, "ts"), (RIGHT, right, "at"))
    }

    found = joining(lambda: joined, (left, "ts"), (right, "at"), late=False).run(both, None)

    assert len(found) == count
    assert {tuple(row[name] for name in names) for row in found} == set(keys)


def orders_with_payments() -> Txids:
    joined = joined_fields(ORDER, PAYMENT, {"id": "order"}, -MINUTE, MINUTE, "inner")
    return joining(lambda: joined, (ORDER, "ts"), (PAYMENT, "at"), late=False)


def columns_of(rows: dict[str, list[dict[str, Any]]]) -> dict[str, pa.RecordBatch]:
    schemas = {LEFT: ORDER.arrow_schema(), RIGHT: PAYMENT.arrow_schema()}
    return {side: pa.RecordBatch.from_pylist(each, schemas[side]) for side, each in rows.items()}


def pairs(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(row["n"], row["paid"]) for row in rows]


@pytest.mark.integration
@pytest.mark.parametrize("how", ["inner", "left"])
def test_how_streams_are_cut_makes_no_difference_without_late_rows(how: Any) -> None:
    chance = random.Random(3)
    sides = [
        [(chance.choice("abcd"), n + chance.uniform(-4, 0)) for n in range(120)] for _ in range(2)
    ]
    results = []
    for take in (1, 3, 10, 120):
        join, found = Join(-1.5, 2, how), Counter[Any]()
        for start in range(0, 120, take):
            left, right = (side[start : start + take] for side in sides)
            found.update(join.run(left, right, second(start + take - 10)))
        found.update(join.run([], [], second(500)))
        assert not join.late()
        results.append(found)
    assert all(each == results[0] for each in results)
    rows = [[(f"{n}", key, n, second(time)) for n, (key, time) in enumerate(s)] for s in sides]
    apart = [datetime.timedelta(seconds=each) for each in (-1.5, 2, 99)]
    told = joined([(rows[0], rows[1])], apart[0], apart[1], how, (apart[2], apart[2]))
    assert sum(results[0].values()) >= len(told.emitted) > 50


@pytest.mark.rule("txtopo.streams.interval_join", "Rules", 5)
def test_many_rows_leave_a_bounded_buffer() -> None:
    """22,500 rows at a fixed horizon."""
    join, most, found = Join(0, 100, "left"), 0, 0
    for batch in range(15):
        start = batch * 1000
        left = [(f"{n}", float(n)) for n in range(start, start + 1000)]
        right = [(f"{n - 50}", float(n)) for n in range(start, start + 1000) if n % 2]
        found += len(join.run(left, right, second(start + 900)))
        most = max(most, len(join.txids.held("join")))

    assert most <= 400
    assert found > 14_000


TYPES = (
    "text string, raw binary, yes boolean, tiny byte, small short, number int, large long, "
    "single float, double double, exact decimal(20,5), day date, at timestamp, wall timestamp_ntz"
)


def test_values_of_every_type_come_back_from_the_buffer_as_they_were() -> None:
    fields = Fields(TYPES)
    values: list[list[Any]] = [
        ["a\n\"ü\x00", b"\x00\xff\n", True, -128, 32767, -(2**31), 2**63 - 1, 1.5, float("inf"),
         decimal.Decimal("-123456789012345.12345"), datetime.date(1, 1, 1),
         datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, datetime.UTC),
         datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999)],
        [None] * 13,
    ]  # fmt: skip
    schema = fields.arrow_schema()
    columns = [
        pa.array(column, kind)
        for column, kind in zip(zip(*values, strict=True), schema.types, strict=True)
    ]
    lines = packed_rows(columns, 2)
    found = unpacked_columns(lines, fields)

    assert not any("\n" in line for line in lines.to_pylist())
    assert [found[name].to_pylist() for name in fields.names] == [c.to_pylist() for c in columns]
    lines = packed_rows([pa.array([float("nan")])], 1)
    (nan,) = unpacked_columns(lines, Fields("x double")).values()
    assert str(nan[0].as_py()) == "nan"


def two(url: str, left: Any, right: Any, write: Any, **time: Any) -> None:
    builder = StreamBuilder("two")
    sides = []
    for name, rows, fields in (("orders", left, ORDER), ("payments", right, PAYMENT)):
        spout = MemoryTransactionalSpout({0: rows}, fields, time.get("take", 1))
        column = fields.names[2]
        sides.append(
            builder.source(name, spout, event_time=column, max_ahead=None, delay="1 minute")
        )
    write(*sides)
    run(builder.build_topology(), LOCAL)


@pytest.mark.rule("txtopo.streams.interval_join", "Rules", 6)
def test_the_watermark_below_is_behind_by_what_a_left_row_may_wait(url: str) -> None:
    """Windows of the left row's time get matches that come an hour later, and late is nothing."""

    def write(orders: DataStream, payments: DataStream) -> None:
        within = ("0 minutes", "60 minutes")
        both = orders.join(
            payments,
            on={"id": "order"},
            within=within,
            how="left",
            state=open_state(url, table="b"),
        )
        windows = both.group_by().window(tumbling("10 minutes"))
        table = windows.persistent_aggregate(
            open_state(url, table="w"), rows=Count(), paid=Count("paid")
        )
        table.final().store(open_state(url, table="closed"), key="window_start")

    orders = [["a", 1, at(0)], ["b", 2, at(5)], ["c", 3, at(50)], ["d", 4, at(200)]]
    payments = [["x", 1, at(1)], ["a", 7, at(55)], ["z", 9, at(56)], ["y", 8, at(200)]]
    two(url, orders, payments, write)

    found = {}
    for name in ("closed", "w_late"):
        with open_state(url, table=name).reader() as reader:
            found[name] = {minutes(key): row for key, row in reader.items()}
    assert {key: (row["rows"], row["paid"]) for key, row in found["closed"].items()} == {
        0: (2, 1),
        50: (1, 0),
    }
    assert not found["w_late"]


def test_a_column_may_be_named_side_where_late_rows_are_dropped(url: str) -> None:
    """Only the table of late rows has such a column."""

    def write(orders: DataStream, payments: DataStream) -> None:
        sides = orders.select("id", "ts", side="n")
        kept: Any = {"within": ("0 minutes", "1 hour"), "state": open_state(url, table="b")}
        with pytest.raises(FieldsError, match="column 'side' twice"):
            sides.join(payments, on={"id": "order"}, **kept)
        both = sides.join(payments, on={"id": "order"}, late=False, **kept)
        both.store(open_state(url, table="out"), key="id")

    two(url, [["a", 1, at(0)], ["b", 2, at(-99)]], [["a", 7, at(1)]], write)
    with open_state(url, table="out").reader() as reader:
        assert {key: row["side"] for key, row in reader.items()} == {"a": 1}


def test_a_stream_can_be_joined_with_itself_and_a_join_with_another(url: str) -> None:
    def write(orders: DataStream, payments: DataStream) -> None:
        again = orders.select("id", other="n", then="ts")
        twice = orders.join(
            again, on="id", within=("0 minutes", "9 minutes"), state=open_state(url, table="b1")
        )
        all_three = twice.join(
            payments,
            on={"id": "order"},
            within=("0 minutes", "5 minutes"),
            state=open_state(url, table="b2"),
        )
        all_three.store(open_state(url, table="out"), key=("id", "n", "other", "paid"))

    orders = [["a", 1, at(0)], ["a", 2, at(6)], ["b", 3, at(7)]]
    two(url, orders, [["a", 7, at(4)], ["b", 8, at(8)]], write, take=2)

    with open_state(url, table="out").reader() as reader:
        assert {key for key, _ in reader.items()} == {
            ("a", 1, 1, 7),
            ("a", 1, 2, 7),
            ("b", 3, 3, 8),
        }


def sides(right: str = "order string, paid long, at timestamp", **time: Any) -> tuple[Any, Any]:
    builder = StreamBuilder("bad")
    left = builder.source("l", MemoryTransactionalSpout({0: []}, ORDER, 1), event_time="ts")
    declared: Any = {"event_time": "at", **time}
    spout = MemoryTransactionalSpout({0: []}, Fields(right), 1)
    return left, builder.source("r", spout, **declared)


FILE = open_state("sqlite:///unused.db", table="buffer")

BAD: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"on": "ID"}, "unknown column 'ID'.*'id'"),
    ({}, {"on": "id"}, "right side, names unknown column 'id'"),
    ({}, {"on": {"id": "ordr"}}, "unknown column 'ordr'.*'order'"),
    ({}, {"on": ()}, "compares no column"),
    ({}, {"on": {"id": "paid"}}, "do not fit the key"),
    ({}, {"on": {"id": "order", "n": "order"}}, "twice"),
    ({"right": "order string, n long, at timestamp"}, {}, "column 'n' twice.*select"),
    ({}, {"within": "1 hour"}, "is not an interval"),
    ({}, {"within": ("1 hour", "5 minutes")}, "ends before it begins"),
    ({}, {"within": ("-5 minutes", "-10 minutes")}, "ends before it begins"),
    ({}, {"within": ("now", "5 minutes")}, "is not a duration"),
    ({}, {"how": "outer"}, "has no how='outer'"),
    ({}, {"how": "full"}, "has no how='full' here; .*, or join them without within"),
    ({}, {"expire_after": "1 hour"}, "join with within takes no expire_after; got '1 hour'"),
    ({}, {"state": None}, "needs a state that buffers"),
    ({}, {"state": open_state("memory:", table="x", kind="transactional")}, "opaque"),
    ({}, {"state": FILE, "late": FILE}, "used twice"),
    ({"event_time": None}, {}, "needs event time"),
    ({"right": "order string, side long, at timestamp"}, {}, "column 'side' twice"),
]


@pytest.mark.parametrize(("source", "more", "message"), BAD)
def test_a_mistake_is_found_where_it_stands(source: Any, more: Any, message: str) -> None:
    left, right = sides(**source)
    given: dict[str, Any] = {
        "on": {"id": "order"},
        "within": ("0 minutes", "1 hour"),
        "state": open_state("memory:", table="buffer"),
    }

    with pytest.raises(TopologyError, match=message):
        left.join(right, **{**given, **more})


def test_what_is_no_stream_of_this_builder_cannot_be_joined() -> None:
    left, _ = sides()
    state = open_state("memory:", table="buffer")
    for other in (None, "payments", sides()[1]):
        with pytest.raises(TopologyError, match=r"join (does not accept|got)"):
            left.join(other, on={"id": "order"}, within=("0 minutes", "1 hour"), state=state)


# ------------------------------------------------------------ a join that has changed


def changed(join: Join, lower: float, upper: float, how: How = "inner") -> Join:
    """Continue with another join on the states of one."""
    join.joined = Join(lower, upper, how).joined
    return join


@pytest.mark.rule("txtopo.streams.interval_join", "Rules", 8)
def test_a_row_that_has_left_does_not_leave_again_with_a_longer_interval() -> None:
    join = Join(0, 5, "left")
    join.run([("k", 10)], [], second(10))
    assert join.run([], [], second(16)) == [("k", 10, None)]
    changed(join, 0, 60, "left")

    assert join.run([], [("k", 20)], second(20)) == []
    assert join.run([], [], second(99)) == []


def test_a_row_that_is_buffered_leaves_once_with_a_longer_interval() -> None:
    join = Join(0, 5, "left")
    join.run([("k", 10)], [], second(10))
    changed(join, 0, 60, "left")

    assert join.run([("k", 10)], [], second(16)) == [("k", 10, None), ("k", 10, None)]
    assert join.run([], [("k", 20)], second(99)) == []


@pytest.mark.rule("txtopo.streams.interval_join", "Rules", 8)
def test_a_row_that_is_buffered_leaves_once_with_a_shorter_interval() -> None:
    join = Join(0, 20, "left")
    join.run([("k", 10)], [], second(10))
    changed(join, 0, 2, "left")

    assert join.run([], [("k", 12)], second(15)) == [("k", 10, 12)]
    assert join.run([], [], second(99)) == []


def test_a_row_that_an_inner_join_has_buffered_does_not_leave_alone() -> None:
    join = Join(0, 5)
    join.run([("k", 10), ("l", 10)], [("k", 11)], second(10))
    changed(join, 0, 5, "left")

    assert join.run([("m", 12)], [("l", 12)], second(12)) == [("l", 10, 12)]
    assert join.run([], [], second(99)) == [("m", 12, None)]
