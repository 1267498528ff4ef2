"""max_by keeps the largest row of each key, whatever batches, tasks and attempts there were."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cmp_to_key
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.streams.scripted import emitted, tables
from tests.unit.streams.worlds import assert_right
from txtopo import Config, Fields, FieldsError, StreamBuilder, TopologyError, open_state
from txtopo.spouts import OpaqueMemoryTransactionalSpout
from txtopo.state import StateHandle
from txtopo.state.columns import rows_of
from txtopo.streams.largest_rows import LargestRows, MaxBy
from txtopo.streams.tables import CHANGES, CHANGES_BEFORE, CHANGES_RETRACTED, TableCommitter
from txtopo.testing.conformance.driver import StateDriver

KEY, VALUE = Fields("shop string"), Fields("note string, price double, at long, ok boolean")
FIELDS = Fields.of([*KEY, *VALUE])
Row = tuple[Any, ...]
Rows = Sequence[Row]
NAN = math.nan


def max_by(*by: str, smallest: Sequence[str] = ()) -> MaxBy:
    return MaxBy(KEY.names, VALUE.names, by, frozenset(smallest))


def table_of(rows: Rows) -> pa.Table:
    schema = FIELDS.arrow_schema()
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def kept(largest: MaxBy, *rows: Row) -> Rows:
    """Return the rows that count, without the key."""
    return [row[1:] for row in rows_of(largest.changed(table_of(rows)))]


class Collected:
    """What a bolt emits, by stream."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Row]] = {}
        self.batches: list[pa.RecordBatch] = []

    def emit(self, batch: pa.RecordBatch, stream: str = "default") -> None:
        self.rows.setdefault(stream, []).extend(rows_of(pa.Table.from_batches([batch])))
        self.batches.append(batch)


class Best:
    """Runs the tasks above a committer, and the committer, txid by txid, on a state in memory."""

    def __init__(self, largest: MaxBy) -> None:
        self.largest = largest
        self.store = StateDriver(open_state("memory:", table="best").with_columns(KEY, VALUE))

    def run(self, txid: int, parts: Sequence[Rows], attempt: int = 0) -> Collected:
        """Run a txid with the rows of each task, and commit; return what it emits."""
        layout, given = self.store.state.layout(), self.store.attempt(txid, attempt)
        handle = StateHandle("best", layout, self.store.backend)
        changes = frozenset([CHANGES, CHANGES_BEFORE, CHANGES_RETRACTED])
        committer = TableCommitter(
            "best", layout, (("above", "default"),), FIELDS, self.largest, {}, changes
        )
        collected, context = Collected(), Context(handle)
        committer.prepare(Config(), context, collected, given)  # type: ignore[arg-type]
        for rows in parts:
            for batch in self.above(rows):
                committer.execute_from("above", "default", batch)
        committer.finish_batch()
        assert handle.writes is not None
        self.store.commit(txid, handle.writes, attempt)
        return collected

    def above(self, rows: Rows) -> list[pa.RecordBatch]:
        """Return what a task emits for its rows, which reach it in two record batches."""
        bolt, collected = LargestRows(self.largest, FIELDS), Collected()
        bolt.prepare(Config(), None, collected, None)  # type: ignore[arg-type]
        for half in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
            for batch in table_of(half).to_batches():
                bolt.execute(batch)
        bolt.finish_batch()
        return collected.batches

    def held(self) -> dict[str, Row]:
        return {key: tuple(value.values()) for key, value in self.store.contents().items()}


class Context:
    def __init__(self, handle: StateHandle) -> None:
        self._handle = handle

    def state(self, name: str) -> StateHandle:
        return self._handle


def drawn(chance: Random, count: int) -> Rows:
    """Return rows that are often equal in some columns."""
    return [
        (
            chance.choice("ab"),
            chance.choice([None, "", "x", "y"]),
            chance.choice([None, NAN, -1.0, 0.0, 2.5, math.inf]),
            chance.choice([None, 1, 2]),
            chance.choice([None, False, True]),
        )
        for _ in range(count)
    ]


def plainly(largest: MaxBy, rows: Rows) -> dict[str, Row]:
    """Return the row of each key that counts, compared in Python value by value."""
    others = [name for name in VALUE.names if name not in largest.by]
    order = [(FIELDS.names.index(n), n in largest.smallest) for n in (*largest.by, *others)]

    def rank(value: Any) -> tuple[Any, ...]:
        if value is None:
            return (0,)
        return (2,) if isinstance(value, float) and math.isnan(value) else (1, value)

    def compare(one: Row, other: Row) -> int:
        for at, smaller in order:
            left, right = rank(one[at]), rank(other[at])
            if left != right:
                return -1 if (left < right) != smaller else 1
        return 0

    found: dict[str, Row] = {}
    for row in rows:
        found[row[0]] = max([row, found.get(row[0], row)], key=cmp_to_key(compare))
    return {key: row[1:] for key, row in sorted(found.items())}


def cut(chance: Random, rows: Rows, parts: int) -> list[Rows]:
    """Divide rows into some parts, in another order."""
    among: list[list[Row]] = [[] for _ in range(parts)]
    for row in chance.sample(list(rows), len(rows)):
        chance.choice(among).append(row)
    return list(among)


def orders() -> Iterator[MaxBy]:
    yield max_by("price")
    yield max_by("price", smallest=["price"])
    yield max_by("ok", "price", smallest=["ok"])
    yield max_by("at", "note", "price", smallest=["note", "price"])


@pytest.mark.rule("txtopo.streams.largest_rows", "Rules", 1)
def test_rows_are_compared_by_columns_from_left_to_right() -> None:
    cheap, dear = ("a", "z", 1.0, 9, True), ("a", "a", 2.0, 1, False)
    later = ("a", "a", 1.0, 10, False)

    assert kept(max_by("price"), dear, cheap) == [dear[1:]]
    assert kept(max_by("price", smallest=["price"]), dear, cheap) == [cheap[1:]]
    assert kept(max_by("price", "at", smallest=["price"]), later, dear, cheap) == [later[1:]]
    assert kept(max_by("at", "price"), dear, later, cheap) == [later[1:]]
    both = max_by("price", "at", smallest=["price", "at"])
    assert kept(both, later, cheap, dear) == [cheap[1:]]


@pytest.mark.rule("txtopo.streams.largest_rows", "Rules", 1)
def test_null_is_smaller_than_all_values_and_nan_larger() -> None:
    rows = [("a", "x", price, 1, True) for price in (0.0, None, -math.inf, NAN, math.inf)]
    for chance in map(Random, range(8)):
        mixed = chance.sample(rows, len(rows))
        assert str(kept(max_by("price"), *mixed)[0][1]) == "nan"
        assert kept(max_by("price", smallest=["price"]), *mixed)[0][1] is None
        numbers = [row for row in mixed if str(row[2]) != "nan"]
        assert kept(max_by("price"), *numbers)[0][1] == math.inf
        values = [row for row in mixed if row[2] is not None]
        assert kept(max_by("price", smallest=["price"]), *values)[0][1] == -math.inf


@pytest.mark.rule("txtopo.streams.largest_rows", "Rules", 2)
def test_of_equal_rows_the_other_columns_decide_from_left_to_right() -> None:
    """The larger value counts there, also if the smallest one is asked for in *by*."""
    rows = [
        ("a", "x", 1.0, 2, False),
        ("a", "y", 1.0, 1, False),
        ("a", "y", 1.0, 1, True),
        ("a", "y", 1.0, None, True),
        ("a", None, 1.0, 3, True),
    ]
    for largest in (max_by("price"), max_by("price", smallest=["price"])):
        for chance in map(Random, range(8)):
            assert kept(largest, *chance.sample(rows, len(rows))) == [("y", 1.0, 1, True)]


@pytest.mark.rule("txtopo.streams.largest_rows", "Rules", 2)
def test_the_sign_of_a_zero_does_not_depend_on_the_order() -> None:
    """0.0 and -0.0 are equal, so either of them could be the largest."""
    zeros = [("a", "x", -0.0, 1, True), ("a", "x", 0.0, 1, True)]

    for rows in (zeros, zeros[::-1], zeros[:1]):
        assert [str(row[1]) for row in kept(max_by("price"), *rows)] == ["0.0"]


@pytest.mark.rule("txtopo.streams.largest_rows", "Rules", 2)
def test_neither_batches_nor_tasks_nor_the_order_of_rows_decide() -> None:
    for largest in orders():
        for seed in range(6):
            chance = Random(seed)
            rows = drawn(chance, 30)
            best = Best(largest)
            for txid, part in enumerate(cut(chance, rows, 4), 1):
                best.run(txid, cut(chance, part, chance.randint(1, 3)))

            assert str(best.held()) == str(plainly(largest, rows)), (str(largest), seed)


@pytest.mark.rule("txtopo.streams.largest_rows", "Rules", 3)
def test_a_task_sends_the_largest_row_of_each_key_alone() -> None:
    for largest in orders():
        rows = drawn(Random(1), 40)
        (batch,) = Best(largest).above(rows)

        found = {row[0]: row[1:] for row in rows_of(pa.Table.from_batches([batch]))}
        assert str(dict(sorted(found.items()))) == str(plainly(largest, rows))
        assert batch.num_rows == 2
        assert Best(largest).above([]) == []


def test_the_changes_are_what_a_txid_has_changed() -> None:
    best, first, second = Best(max_by("at")), ("x", 1.0, 1, True), ("x", NAN, 2, None)
    best.run(1, [[("b", *first), ("a", *first)]])
    found = best.run(2, [[("c", *first), ("a", *second)], [("b", *first)]])

    assert str(found.rows[CHANGES]) == str([("a", *second), ("c", *first)])
    nothing = (None,) * 4
    assert str(found.rows[CHANGES_BEFORE]) == str([("a", *second, *first), ("c", *first, *nothing)])
    assert str(found.rows[CHANGES_RETRACTED]) == str(
        [("a", *first, True), ("a", *second, False), ("c", *first, False)]
    )
    assert best.run(3, [[("a", *second), ("a", *first)], [("c", *first)]]).rows == {}
    assert best.run(4, []).rows == {}


def test_a_redo_with_other_rows_takes_the_earlier_attempt_back() -> None:
    """The rows of an opaque spout may differ: those of the first attempt leave nothing behind."""
    best, low, middle, high = Best(max_by("at")), *(("x", 1.0, n, True) for n in (1, 2, 3))
    best.run(1, [[("a", *low)]])
    best.run(2, [[("a", *high), ("b", *high)]])
    found = best.run(2, [[("a", *middle)]], attempt=1)

    assert best.held() == {"a": middle}
    assert found.rows[CHANGES_BEFORE] == [("a", *middle, *low)]
    best.run(2, [[]], attempt=2)
    assert best.held() == {"a": low}


def test_a_program_under_faults_keeps_the_largest_rows() -> None:
    def program(builder: Any, sales: Any, state: Any) -> None:
        rows = sales.select("shop", who="id", paid="amount").group_by("shop")
        best = rows.max_by(state("best"), by=("paid", "who"), smallest="who")
        best.changes(before=True).store(state("changes"), key=("shop", "who"))
        sales.query(best, on="shop").store(state("asked"), key="id")
        rows.max_by(state("first"), by="who", value=("paid", "who"), smallest="who")

    assert_right(program, range(3))


@pytest.mark.integration
def test_a_table_of_largest_rows_has_changes_and_answers_queries(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    fields = Fields("shop string, price double, item string")
    txids: list[list[list[Any]]] = [
        [["a", 1.0, "x"], ["b", None, "z"]],
        [["a", 3.0, "y"], ["a", 3.0, "w"]],
        [["a", 2, "v"]],
    ]

    def program(builder: Any, streams: Any, state: Any) -> Any:
        best = streams["s"].group_by("shop").max_by(state("best"), by="price", value=("price",))
        return streams["s"].select("shop", mine="price").query(best, on="shop")

    assert emitted(program, {"s": (txids, fields)}, url, 2) == {
        1: [("a", "1.0", "1.0"), ("b", "", "")],
        2: [("a", "3.0", "3.0")] * 2,
        3: [("a", "2.0", "3.0")],
    }
    assert tables(url, "best") == [{"a": 3.0, "b": None}]


SALE = Fields("shop string, item string, price double, at long")


def grouped(*names: str) -> Any:
    builder = StreamBuilder("shop")
    spout = OpaqueMemoryTransactionalSpout({0: [["a", "x", 1.0, 1]]}, SALE, 1)
    return builder.source("sales", spout).group_by(*names)


@pytest.mark.parametrize(
    ("key", "given", "words"),
    [
        ((), {}, r"max_by has no groups; got group_by\(\)"),
        (("shop",), {"by": "cost"}, "'cost'"),
        (("shop",), {"by": ()}, "max_by compares no column; got an empty by"),
        (("shop",), {"value": ("item",)}, "'price'"),
        (("shop",), {"by": "shop"}, "'shop'"),
        (("shop",), {"smallest": "at"}, "'at'"),
        (("shop",), {"smallest": "cost"}, "'cost'"),
        (("shop",), {"value": ()}, "max_by has no value columns"),
        (("shop", "item", "price", "at"), {}, "max_by has no value columns"),
        (("shop",), {"by": 5}, "5"),
    ],
)
def test_a_mistake_is_told_where_it_stands(
    key: tuple[str, ...], given: dict[str, Any], words: str
) -> None:
    stream = grouped(*key)
    with pytest.raises(FieldsError, match=words):
        stream.max_by(open_state("memory:", table="best"), **{"by": "price", **given})
    # Nothing was taken, so that the corrected call has the same ids.
    grouped("shop").max_by(open_state("memory:", table="best"), by="price")


def test_a_transactional_state_is_refused() -> None:
    with pytest.raises(TopologyError, match="max_by reads a transactional state"):
        grouped("shop").max_by(
            open_state("memory:", table="best", kind="transactional"), by="price"
        )


def test_rows_that_are_taken_back_are_refused() -> None:
    """The largest row of those that are left is not known any more."""
    table = grouped("shop").max_by(open_state("memory:", table="best"), by="price")
    taken_back = table.changes(retracted=True)

    with pytest.raises(TopologyError, match="max_by"):
        taken_back.group_by("item").max_by(open_state("memory:", table="more"), by="price")
