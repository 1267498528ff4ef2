"""Tables and states that keep keys alone: stored, queried, changed and updated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.streams.scripted import ScriptedSpout, emitted, tables
from tests.unit.streams.seeds import config_of
from tests.unit.streams.times import events, tables_of
from tests.unit.streams.worlds import (
    LOCAL,
    RecuttingSpout,
    judged,
    replay_of,
    run,
    sales,
    topology_of,
)
from txtopo import Count, Fields, StreamBuilder, open_state
from txtopo.errors import FieldsError, TopologyError
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.streams import DataStream

WORD = Fields("word string, number long")
Streams = Mapping[str, DataStream]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'keys.db'}"


def program(builder: Any, rows: Any, state: Any) -> None:
    """Shops with a large sale, as keys alone; each sale asks whether its shop is one of them."""
    large = rows.filter(lambda row: (row["amount"] or 0) > 30).select("shop")
    shops = large.as_table(state("shops"), key="shop")
    asked = rows.query(shops, on="shop").select("id", "found")
    asked.store(state("asked"), key=("id", "found"))
    shops.changes().store(state("new"), key="shop")
    shops.changes(before=True).query(
        rows.select("shop").as_table(state("all"), key="shop", value=()), on="shop"
    ).store(state("again"), key="shop")


def held(batches: Sequence[Sequence[Sequence[Any]]], _: object) -> dict[str, dict[Any, Any]]:
    """Return what the tables hold after some batches."""
    shops: dict[Any, Any] = {}
    asked: dict[Any, Any] = {}
    every: dict[Any, Any] = {}
    for batch in batches:
        shops |= {shop: {} for _, shop, amount in batch if (amount or 0) > 30}
        asked |= {(id, shop in shops): {} for id, shop, _ in batch}
        every |= {shop: {} for _, shop, _ in batch}
    again: Mapping[Any, Any] = {shop: {"found": True} for shop in shops}
    return {"shops": shops, "asked": asked, "new": dict(shops), "all": every, "again": dict(again)}


@pytest.mark.integration
@pytest.mark.parametrize("seed", range(6))
def test_tables_of_keys_alone_are_right_whatever_crashes(seed: int) -> None:
    """Every second seed commits txids in groups; each attempt cuts its batches again."""
    rows = sales(20, seed)
    topology = topology_of(program, RecuttingSpout(rows, 1 + seed % 5), 1 + seed % 3)

    found = judged(topology, seed, held, rows, config_of(seed))

    assert not found.violations, f"{replay_of(seed)}: {found.violations[:3]}"


def test_changes_emit_each_key_once_and_a_query_says_whether_it_is_there(url: str) -> None:
    words = [[["a", 1], ["a", 2], ["b", 3]], [["a", 4], ["c", 5]], [["b", 6]]]

    def seen(builder: StreamBuilder, sources: Streams, state: Any) -> DataStream:
        return sources["w"].select("word").as_table(state("seen"), key="word").changes()

    assert emitted(seen, {"w": (words, WORD)}, url) == {1: [("a",), ("b",)], 2: [("c",)]}
    assert tables(url, "seen") == [{"a": True, "b": True, "c": True}]

    def asked(builder: StreamBuilder, sources: Streams, state: Any) -> DataStream:
        few = sources["w"].filter(lambda row: row["number"] < 3).select("word")
        return sources["w"].query(few.as_table(state("few"), key="word"), on="word")

    answers = emitted(asked, {"w": ([*words, [[None, 7]]], WORD)}, f"{url}-2")
    assert answers[1] == [("a", "1", "True"), ("a", "2", "True"), ("b", "3", "False")]
    assert answers[4] == [("", "7", "False")]


def test_an_update_may_keep_keys_alone(url: str) -> None:
    """Its function gets True or None, and returns it."""

    def first(seen: Any, row: Any) -> Any:
        leaves = row["number"] < 0
        return None if leaves else True, [row["word"], row["number"], bool(seen)]

    builder = StreamBuilder("updating")
    rows = [["a", 1], ["a", 2], ["a", -1], ["a", 3], ["b", -1]]
    source = builder.source("words", MemoryTransactionalSpout({0: rows}, WORD, 2))
    kept = open_state(url, table="kept", value=Fields())
    source.group_by("word").update(
        first, "word string, number long, seen boolean", state=kept, order_by="number"
    ).store(open_state(url, table="out"), key=("word", "number"))
    run(builder.build_topology(), LOCAL)

    out, left = tables(url, "out", "kept")
    assert out == {("a", 1): False, ("a", 2): True, ("a", -1): True, ("a", 3): False,
                   ("b", -1): False}  # fmt: skip
    assert left == {"a": True}


def test_keys_alone_expire(url: str) -> None:
    """The state has the time at which a key was seen last, and nothing else."""

    def first(seen: Any, row: Any) -> Any:
        return True, [row["id"], bool(seen)]

    def written(builder: StreamBuilder, rows: DataStream) -> None:
        state = open_state(url, table="keys", value=Fields())
        rows.group_by("key").update(
            first, "id string, seen boolean", state=state, order_by="id", expire_after="10 minutes"
        ).store(open_state(url, table="out"), key="id")

    rows = events(("a", 0), ("a", 9.99), ("a", 20), ("a", 20))
    (out,) = tables_of(written, rows, url, "out")
    assert out == {"e1": False, "e2": True, "e3": False, "e4": True}


def test_keys_alone_are_removed_with_the_rows_that_are_taken_back(url: str) -> None:
    """A word is there as long as it is the newest one of some number; numbers are keys alone."""
    moves = [[["a", 1], ["b", 2]], [["c", 1]], [["c", 1], ["d", 2]]]
    builder = StreamBuilder("removing")
    held = builder.source("w", ScriptedSpout(moves, WORD)).as_table(
        open_state(url, table="held"), key="number"
    )
    words = (
        held.changes(retracted=True)
        .select("word", "retracted")
        .as_table(open_state(url, table="words"), key="word")
    )
    words.changes(retracted=True).group_by().persistent_aggregate(
        open_state(url, table="counted"), words=Count()
    )
    with pytest.raises(TopologyError, match="could not tell a removed key"):
        words.changes()
    run(builder.build_topology(), LOCAL)

    assert tables(url, "words", "counted") == [{"c": True, "d": True}, {"global": 2}]


def test_keys_alone_that_expire_are_told_by_the_rows_that_are_taken_back(url: str) -> None:
    """A key that has expired would be a row like that of a new one."""

    def written(builder: StreamBuilder, rows: DataStream) -> None:
        keys = rows.select("key", "ts").as_table(
            open_state(url, table="keys"), key="key", value=(), expire_after="10 minutes"
        )
        for before in (False, True):
            with pytest.raises(TopologyError, match="could not tell a removed key"):
                keys.changes(before=before)
        keys.changes(retracted=True).append(open_state(url, table="told"))

    (told,) = tables_of(written, events(("a", 0), ("b", 1), ("b", 30), ("a", 31)), url, "told")
    each = [(row["key"], row["retracted"]) for _, row in sorted(told.items())]
    assert each == [("a", False), ("b", False), ("a", True), ("a", False)]


def test_a_table_needs_a_key_and_max_by_a_value() -> None:
    rows = StreamBuilder("p").source("words", MemoryTransactionalSpout({0: []}, WORD, 1))
    state = open_state("memory:", table="t")

    with pytest.raises(FieldsError, match="store has no key columns"):
        rows.store(state, key=())
    with pytest.raises(FieldsError, match="max_by has no value columns"):
        rows.group_by("word", "number").max_by(state, by="number")
