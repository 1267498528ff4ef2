"""The top of a table is right after each txid, whatever rises, falls, comes and goes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cmp_to_key
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from txtopo import Config, Count, Fields, FieldsError, StreamBuilder, TopologyError, open_state
from txtopo.spouts import OpaqueMemoryTransactionalSpout
from txtopo.state import StateHandle, StateTransaction
from txtopo.streams import Table, tumbling
from txtopo.streams.materialized import Materializing
from txtopo.streams.tables import CHANGES_RETRACTED, RETRACTED
from txtopo.streams.top_rows import LEVELS, ROWS, Ranking, TopRows, most_rows
from txtopo.testing.conformance.driver import StateDriver
from txtopo.traits import traits_of

FIELDS = Fields("item string, shop string, price double, at long")
Row = tuple[Any, ...]
NAN = math.nan


def ranking(n: int, *by: str, per: Sequence[str] = (), smallest: Sequence[str] = ()) -> Ranking:
    key = tuple(name for name in ("item",) if name not in per)
    value = tuple(name for name in FIELDS.names if name not in (*per, *key))
    return Ranking(n, tuple(per), key, value, by, frozenset(smallest))


class Top:
    """Runs the committer txid by txid, with states in memory, on what changes in a table."""

    def __init__(self, ranked: Ranking) -> None:
        self.ranked, self.rows, self.txid = ranked, dict[str, Row](), 0
        columns = (ranked.result(FIELDS), ranked.levels(FIELDS), ranked.stored(FIELDS))
        self.states = {
            name: StateDriver(open_state("memory:", table=name).with_columns(*each))
            for name, each in zip(("top", LEVELS, ROWS), columns, strict=True)
        }
        self.written = 0

    def run(self, changes: Mapping[str, Row | None]) -> list[Row]:
        """Put and remove rows of the table by key; return what the committer emits."""
        rows: list[Row] = []
        for item, row in changes.items():
            if item in self.rows:
                rows.append((item, *self.rows.pop(item), True))
            if row is not None:
                self.rows[item] = row
                rows.append((item, *row, False))
        self.txid += 1
        attempt = self.states["top"].attempt(self.txid)
        handles = {
            name: StateHandle(name, each.state.layout(), each.backend)
            for name, each in self.states.items()
        }
        fields = Fields.of([*FIELDS, RETRACTED])
        layout = self.states["top"].state.layout()
        applies = Materializing(self.ranked.key, self.ranked.value, RETRACTED.name)
        more: Any = (("table", "changes"),), fields, applies, {}, frozenset([CHANGES_RETRACTED])
        committer, emitted = TopRows(self.ranked, "top", layout, *more), list[Row]()

        class Context:
            state = staticmethod(handles.__getitem__)

        class Collector:
            @staticmethod
            def emit(batch: pa.RecordBatch, stream: str) -> None:
                emitted.extend(tuple(each.values()) for each in batch.to_pylist())

        committer.prepare(Config(), Context(), Collector(), attempt)  # type: ignore[arg-type]
        schema = fields.arrow_schema()
        given = [dict(zip(schema.names, row, strict=True)) for row in rows]
        committer.execute_from("table", "changes", pa.RecordBatch.from_pylist(given, schema))
        committer.finish_batch()
        for name, each in self.states.items():
            writes = handles[name].writes
            assert writes is not None
            self.written += len(writes.rows)
            each.commit(self.txid, writes)
        return emitted

    def held(self) -> dict[Any, Any]:
        return self.states["top"].contents()

    def plainly(self) -> dict[Any, Any]:
        """Return what the top should be."""
        order = [(FIELDS.index[name], name in self.ranked.smallest) for name in self.ranked.by]

        def compare(one: Row, other: Row) -> int:
            for at, smaller in order:
                left, right = ((v != v, 0 if v != v else v) for v in (one[at], other[at]))
                if left != right:
                    return 1 if (left < right) != smaller else -1
            return -1 if one[0] < other[0] else 1

        rows = [(item, *row) for item, row in self.rows.items()]
        per_at = [FIELDS.index[name] for name in self.ranked.per]
        known = [
            row
            for row in rows
            if None not in [row[at] for at, _ in order]
            and not any(row[at] is None or row[at] != row[at] for at in per_at)
        ]
        found, ranks = dict[Any, Any](), dict[Any, int]()
        for row in sorted(known, key=cmp_to_key(compare)):
            named = dict(zip(FIELDS.names, row, strict=True))
            # A state has 0.0 for -0.0 in a key.
            per = tuple(type(v)() if v == 0 else v for v in map(named.get, self.ranked.per))
            ranks[per] = ranks.get(per, 0) + 1
            if ranks[per] <= self.ranked.n:
                key = (*per, ranks[per])
                value = {name: named[name] for name in (*self.ranked.key, *self.ranked.value)}
                found[key if per else ranks[per]] = value
        return found

    def check(self) -> None:
        assert str(sorted(self.held().items())) == str(sorted(self.plainly().items()))
        counted: dict[Any, int] = {}
        for *place, _ in self.states[ROWS].contents():
            counted[tuple(place)] = counted.get(tuple(place), 0) + 1
        for level, line in self.states[LEVELS].contents().items():
            place = level if isinstance(level, tuple) else (level,)
            assert line["rows"] == counted.pop(place, 0), place
        assert not counted, "rows without a level"


RANKINGS = {
    "all": ranking(2, "at"),
    "cheapest": ranking(1, "price", "at", smallest=["price"]),
    "shops": ranking(3, "at", per=["shop"], smallest=["at"]),
    "by-key": ranking(1, "item", per=["shop", "at"]),
}


def drawn(chance: Random, drift: int) -> Row:
    price = chance.choice([None, NAN, -1.0, 0.0, -0.0, 2.5, math.inf])
    return chance.choice("ab"), price, chance.choice([None, *range(drift, drift + 6)])


@pytest.mark.rule("txtopo.streams.top_rows", "Rules", 1)
@pytest.mark.rule("txtopo.streams.top_rows", "Rules", 3)
@pytest.mark.parametrize("ranked", RANKINGS.values(), ids=RANKINGS)
def test_the_top_is_that_of_the_current_rows(ranked: Ranking) -> None:
    """Rows rise and fall together for a while, so that levels are used up, and overflow."""
    for seed in range(2):
        chance, top, drift = Random(seed), Top(ranked), 0
        for _ in range(20):
            drift += chance.choice([-5, 0, 5])
            items = [f"i{chance.randrange(90)}" for _ in range(chance.choice([1, 1, 3, 60]))]
            keeps = chance.random()
            top.run(
                {
                    item: drawn(chance, drift)
                    if "at" not in ranked.per
                    else ("a", 1.0, drift)
                    if chance.random() < keeps
                    else None
                    for item in items
                }
            )
            top.check()
        top.run(dict.fromkeys(top.rows))
        top.check()
        assert not any(each.contents() for each in top.states.values()), "nothing is left behind"


@pytest.mark.rule("txtopo.streams.top_rows", "Rules", 1)
def test_the_next_row_comes_in_when_one_falls_or_goes() -> None:
    top = Top(ranking(2, "at"))
    top.run({"x": ("a", 1.0, 9), "y": ("a", 1.0, 8), "z": ("a", 1.0, 7)})

    fallen = top.run({"x": ("a", 1.0, 1)})
    gone = top.run({"y": None})

    assert [(row[0], row[1], row[-1]) for row in fallen] == [
        *((1, "x", True), (1, "y", False)),
        *((2, "y", True), (2, "z", False)),
    ]
    assert [(row[0], row[1], row[-1]) for row in gone] == [
        *((1, "y", True), (1, "z", False)),
        *((2, "z", True), (2, "x", False)),
    ]
    assert [row["item"] for _, row in sorted(top.held().items())] == ["z", "x"]


@pytest.mark.rule("txtopo.streams.top_rows", "Rules", 1)
def test_a_row_with_null_or_nan_in_per_has_no_rank() -> None:
    top = Top(ranking(1, "at", per=["price"]))
    for prices in ((None, NAN, -0.0, 0.0), (0.0, -0.0, None, NAN), (NAN, None, 1.0, None)):
        top.run({f"i{at}": ("a", price, at) for at, price in enumerate(prices)})
        top.check()
    assert list(top.held()) == [(1.0, 1)]


@pytest.mark.rule("txtopo.streams.top_rows", "Rules", 2)
def test_of_equal_rows_the_smaller_key_comes_first_whenever_it_came() -> None:
    for order in ("xyz", "zyx", "yxz"):
        for falling in ([], ["at"]):
            top = Top(ranking(2, "at", smallest=falling))
            for item in order:
                top.run({item: ("a", 1.0, 5)})
            assert [row["item"] for _, row in sorted(top.held().items())] == ["x", "y"]


@pytest.mark.rule("txtopo.streams.top_rows", "Rules", 4)
def test_a_txid_reads_the_rows_near_the_top_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    top, read = Top(ranking(2, "at")), list[int]()
    top.run({f"i{at:03}": ("a", 1.0, at) for at in range(300)})
    columns_starting = StateTransaction.columns_starting

    def counted(values: StateTransaction, prefixes: pa.Table) -> pa.Table:
        found = columns_starting(values, prefixes)
        read.append(found.num_rows)
        return found

    monkeypatch.setattr(StateTransaction, "columns_starting", counted)
    top.run({"i005": ("a", 1.0, 4), "i006": None})
    top.run({"i299": ("a", 1.0, 298)})

    assert read == [0, 4]
    top.check()


@pytest.mark.rule("txtopo.streams.top_rows", "Rules", 5)
@pytest.mark.parametrize("rises", [False, True])
def test_a_row_moves_a_few_times_however_many_there_are(rises: bool) -> None:
    """The first row falls below all others, or a new one comes above them, again and again."""
    n, count = 1, 100
    top = Top(ranking(n, "at"))
    top.run({f"i{at:04}": ("a", 1.0, at) for at in range(count)})
    top.written = 0
    for at in range(count):
        item, value = (f"n{at:04}", count + at) if rises else (f"i{count - at - 1:04}", -at)
        top.run({item: ("a", 1.0, value)})

    top.check()
    lines = top.states[LEVELS].contents()
    assert len(lines) < 8
    assert lines[0]["rows"] <= most_rows(n, 0)
    assert top.written / count < 12


FALLS = Fields("item string, shop string, price double, at long, rows long")


def table(**state: Any) -> Table:
    builder = StreamBuilder("shop")
    spout = OpaqueMemoryTransactionalSpout({0: []}, FALLS, 1)
    stored = open_state("memory:", table="items", **state)
    return builder.source("sales", spout).as_table(stored, key="item")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"n": 0}, "top has a bad number of rows; got 0; expected 1 to 10000"),
        ({"n": "at"}, "top has a bad number of rows; got 'at'"),
        ({"by": "cost"}, "top, for by, names unknown column 'cost'"),
        ({"by": ()}, "top compares no column; got an empty by"),
        ({"by": "shop", "per": "shop"}, "top, for by, names unknown column 'shop'"),
        ({"smallest": "at"}, "top, for smallest, names unknown column 'at'"),
        ({"by": "rank"}, "'rank'"),
        ({"per": "rows"}, "top would make column 'rows' twice"),
        ({"state": open_state("memory:", table="t", kind="transactional")}, "top reads a trans"),
    ],
)
def test_a_mistake_is_told_where_it_stands(given: dict[str, Any], words: str) -> None:
    items = table()
    with pytest.raises(TopologyError, match=words):
        items.top(**{"n": 3, "by": "price", **given})
    # Nothing was taken, so that the corrected call has the same ids.
    assert items.top(3, "price").name == "items_top"


def test_a_column_named_rank_is_refused() -> None:
    with pytest.raises(FieldsError, match=r"top would make column 'rank' twice"):
        table().top(3, "price").top(2, "price", state=open_state("memory:", table="t"))


@pytest.mark.parametrize(
    ("window", "kept"), [(tumbling("1 hour"), "1 hour"), (tumbling(rows=10), 1)], ids=str
)
def test_windows_that_keep_deletes_are_refused(window: Any, kept: Any) -> None:
    """Their deletion is no change, so they would be in the top forever."""
    spout = OpaqueMemoryTransactionalSpout({0: []}, Fields("item string, ts timestamp"), 1)
    sales = StreamBuilder("shop").source("sales", spout, event_time="ts")
    items = sales.group_by("item").window(window)
    windows = items.persistent_aggregate(open_state("memory:", table="w"), keep=kept, n=Count())
    with pytest.raises(TopologyError, match="top would show windows that 'w' no longer has"):
        windows.top(3, by="n")


def test_a_changed_program_ranks_the_stored_rows_as_before() -> None:
    """They are in levels by that order, and each is taken back where it was put."""
    told = []
    for given in ({"n": 3}, {"n": 2}, {"n": 3, "smallest": "price"}, {"n": 3, "per": "shop"}):
        items = table()
        items.top(by="price", **given)
        graph = items.draft.build_topology().graph
        told.append(traits_of(graph.components["items_top"].prototype).rows)

    assert len({each.text for each in told if each is not None}) == 4
    assert all(each is not None and each.fixed for each in told)
