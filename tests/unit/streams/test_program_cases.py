"""Programs of the tests of Flink and Trident do here what they do there: see ``cases``."""

from __future__ import annotations

import datetime
import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.streams.cases import flink_ranks, flink_temporal_joins, flink_window_joins, trident
from tests.unit.streams.cases.flink_ranks import RankOfRows, RankOfSums
from tests.unit.streams.cases.flink_window_joins import WindowJoin
from tests.unit.streams.cases.trident import OfBatch, WordCount
from tests.unit.streams.scripted import ScriptedSpout, emitted, tables
from tests.unit.streams.worlds import run
from txtopo import Count, Fields, StreamBuilder, Sum, TopN, open_state
from txtopo.context import EPOCH
from txtopo.errors import FieldsError
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.streams import DataStream, QueryLookup
from txtopo.streams.windows import Window

pytestmark = pytest.mark.integration

# How many have been carried over; a table that is not run would not be missed otherwise.
COUNT = 23
# When Flink's input ends, in seconds: far behind all of it.
END = 1000.0


def named(case: Any) -> str:
    return str(case.source).replace(" ", "-")


def at(second: float) -> datetime.datetime:
    return EPOCH + datetime.timedelta(seconds=second)


def seconds(time: datetime.datetime) -> float:
    return (time - EPOCH).total_seconds()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'case.db'}"


def bids(given: Sequence[flink_ranks.Bid], largest: bool) -> list[list[list[Any]]]:
    """Each bid in a txid of its own, with what it is ranked by; then one that ends the input."""
    rows: list[Any] = [*given, (END, 0, "end", "end")]
    return [
        [[at(second), price if largest else -price, f"{END - second:06}", item, supplier]]
        for second, price, item, supplier in rows
    ]


BID = Fields("ts timestamp, ranked long, before string, item string, supplier string")


def the_best(closed: Mapping[Any, Any]) -> dict[float, list[Any]]:
    """The lists by the beginnings of their windows, but for that of the row that ends the input."""
    return {seconds(start): best for start, best in closed.items() if seconds(start) < END - 10}


@pytest.mark.parametrize("case", flink_ranks.OF_ROWS, ids=named)
def test_the_first_rows_of_a_window_are_those_of_flink(case: RankOfRows, url: str) -> None:
    builder = StreamBuilder("ranks")
    spout = ScriptedSpout(bids(case.bids, case.largest), BID)
    stream = builder.source("bids", spout, event_time="ts", delay="1 second", max_ahead=None)
    first = TopN("ranked", 3, labels=("before", "item"))
    windowed = stream.group_by().window(case.window)
    table = windowed.persistent_aggregate(open_state(url, table="open"), best=first)
    table.final().select("window_start", "best").store(
        open_state(url, table="closed"), key="window_start"
    )
    run(builder.build_topology())

    found = the_best(tables(url, "closed")[0])
    assert {
        start: [(item, abs(price)) for price, _, item in as_list(best)]
        for start, best in found.items()
    } == case.best
    assert not tables(url, "open_late")[0]


@pytest.mark.parametrize("case", flink_ranks.OF_SUMS, ids=named)
def test_the_first_groups_of_a_window_are_those_of_flink(case: RankOfSums, url: str) -> None:
    builder = StreamBuilder("ranks")
    spout = ScriptedSpout(bids(flink_ranks.BIDS, case.largest), BID)
    stream = builder.source("bids", spout, event_time="ts", delay="1 second", max_ahead=None)
    sums = (
        stream.group_by("supplier")
        .window(case.window)
        .persistent_aggregate(open_state(url, table="open"), total=Sum("ranked"), bids=Count())
    )
    first = TopN("total", 3, labels=("supplier", "bids"))
    sums.final().group_by("window_start").persistent_aggregate(
        open_state(url, table="closed"), best=first
    )
    run(builder.build_topology())

    found = the_best(tables(url, "closed")[0])
    assert {
        start: [(supplier, abs(total), count) for total, supplier, count in as_list(best)]
        for start, best in found.items()
    } == case.best


def as_list(best: Any) -> list[Any]:
    found = best["best"] if isinstance(best, dict) else best
    entries: list[Any] = json.loads(found) if isinstance(found, str) else found
    return entries


SIDE = Fields("ts timestamp, id string, name string")


def side(rows: Sequence[flink_window_joins.Row]) -> list[list[list[Any]]]:
    """Each row in a txid of its own, then one that ends the input."""
    return [[[at(second), id, name]] for second, id, name in [*rows, (END, "end", None)]]


def in_windows(stream: DataStream, window: Window, prefix: str) -> DataStream:
    """Each row once for each of its windows, with the beginning of the window."""

    def copies(row: Any) -> list[Any]:
        last = window.every * ((row["ts"] - EPOCH) // window.every)
        found = []
        while last + window.size > row["ts"] - EPOCH:
            found.append([row["ts"], EPOCH + last, row["id"], row["name"]])
            last -= window.every
        return found

    spread = stream.flat_map(copies, "ts timestamp, start timestamp, id string, name string")
    return spread.select("start", "name", **{f"{prefix}id": "id", f"{prefix}ts": "ts"})


@pytest.mark.parametrize("case", flink_window_joins.JOINS, ids=named)
def test_rows_of_a_window_are_joined_as_by_flink(case: WindowJoin, url: str) -> None:
    sides = [flink_window_joins.LEFT, flink_window_joins.RIGHT]
    left, right = sides[::-1] if case.exchanged else sides
    builder, streams = StreamBuilder("joins"), []
    for name, rows in (("left", left), ("right", right)):
        spout = ScriptedSpout(side(rows), SIDE)
        streams.append(
            builder.source(name, spout, event_time="ts", delay="1 second", max_ahead=None)
        )
    size = case.window.size
    joined = in_windows(streams[0], case.window, "l").join(
        in_windows(streams[1], case.window, "r"),
        on=("start", "name"),
        within=(-size, size),
        how="inner" if case.how in ("inner", "semi") else "left",
        state=open_state(url, table="buffer"),
    )
    if case.how == "anti":
        joined = joined.filter(lambda row: row["rid"] is None)
    key = "start, lid" if case.how in ("semi", "anti") else "start, lid, rid"
    texts = joined.map(
        lambda row: [row["start"], row["name"], row["lid"], row["rid"] or ""],
        "start timestamp, name string, lid string, rid string",
    )
    texts.store(open_state(url, table="found"), key=tuple(key.split(", ")))
    run(builder.build_topology())

    found, late = tables(url, "found", "buffer_late")
    if case.how in ("semi", "anti"):
        pairs = [(seconds(at), row["name"], id, None) for (at, id), row in found.items()]
    else:
        pairs = [(seconds(at), name, id, rid or None) for (at, id, rid), name in found.items()]
    assert Counter(pair for pair in pairs if pair[2] != "end") == Counter(case.pairs)
    assert sorted(row["lid"] or row["rid"] for row in late.values()) == sorted(case.late)


RATED = Fields("kind string, currency string, amount long, ts timestamp")


@pytest.mark.parametrize("source", flink_temporal_joins.CASES)
def test_orders_meet_the_rate_of_their_time_as_in_flink(source: str, url: str) -> None:
    def rows(kind: str, txids: Sequence[Sequence[Any]]) -> Any:
        parts = [
            [
                [kind, *sorted(row[:2], key=lambda each: isinstance(each, int)), at(row[2])]
                for row in rows
            ]
            for rows in txids
        ]
        return parts, RATED

    def known(rate: Any, row: Any) -> Any:
        if row["kind"] == "a rate":
            return row["amount"], None
        return rate, None if rate is None else [row["amount"] * rate]

    def program(builder: Any, streams: Any, state: Any) -> DataStream:
        both = builder.merge(streams["rates"], streams["orders"])
        rate = state("rates", value=Fields("rate long"))
        # Of one time, the rate comes first.
        order = ("ts", "kind")
        found: DataStream = both.group_by("currency").update(
            known, "amount long", state=rate, order_by=order
        )
        return found

    sources = {
        "rates": rows("a rate", flink_temporal_joins.RATES),
        "orders": rows("an order", flink_temporal_joins.ORDERS),
    }
    found = emitted(program, sources, url)

    assert {txid: sorted(int(amount) for (amount,) in rows) for txid, rows in found.items()} == {
        txid: sorted(amounts) for txid, amounts in enumerate(flink_temporal_joins.AMOUNTS, 1)
    }


def test_a_lookup_as_of_the_time_of_an_order_has_the_rate_of_flink(tmp_path: Path) -> None:
    path = tmp_path / "rates.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE rates (currency TEXT, rate INTEGER, since TEXT)")
        rates = [row for rows in flink_temporal_joins.RATES for row in rows]
        database.executemany(
            "INSERT INTO rates VALUES (?, ?, ?)",
            [(name, rate, f"{at(second):%Y-%m-%d %H:%M:%S}") for name, rate, second in rates],
        )
    database.close()
    lookup = QueryLookup(f"sqlite:///{path}", "rates", as_of="since", settle_s=0)
    key, value = Fields("currency string"), Fields("rate long")

    found = []
    for amount, currency, second in (row for rows in flink_temporal_joins.ORDERS for row in rows):
        version = lookup.newest(Fields.of([*key, *value]), None, int(second * 1000))
        held = {
            row["currency"]: row["rate"] for row in lookup.read(version, key, value).to_pylist()
        }
        found.append(amount * held[currency])

    assert found == [amount for amounts in flink_temporal_joins.AMOUNTS for amount in amounts]


SENTENCE = Fields("sentence string")


def split(row: Any) -> list[list[str]]:
    return [[word] for word in row["sentence"].split()]


@pytest.mark.parametrize("parallelism", [1, 6])
@pytest.mark.parametrize("case", trident.WORD_COUNTS, ids=named)
def test_words_are_counted_as_by_trident(case: WordCount, parallelism: int, url: str) -> None:
    for txids in sorted({*case.counts, *case.sums}):
        feeds = [[[sentence] for sentence in feed] for feed in case.feeds[:txids]]
        builder = StreamBuilder(f"words-{txids}")
        lines = builder.source("tester", ScriptedSpout(feeds, SENTENCE), parallelism)
        words = lines.flat_map(split, "word string").group_by("word")
        words.persistent_aggregate(open_state(url, table=f"counts_{txids}"), count=Count())
        run(builder.build_topology())

        (counts,) = tables(url, f"counts_{txids}")
        if txids in case.counts:
            assert counts == case.counts[txids]
        for text, total in case.sums.get(txids, {}).items():
            assert sum(counts[word] for word in text.split()) == total


@pytest.mark.parametrize("case", trident.WORD_COUNTS[1:], ids=named)
def test_a_stream_asks_the_counts_as_by_drpc(case: WordCount, url: str) -> None:
    """Each question is a row of the txid of the last sentences that it asks about."""
    feeds = [[[sentence] for sentence in feed] for feed in case.feeds]
    asked: list[list[list[Any]]] = [[] for _ in feeds]
    for txid, sums in case.sums.items():
        asked[txid - 1] = [[text] for text in sums]

    def program(builder: Any, streams: Any, state: Any) -> DataStream:
        words = streams["tester"].flat_map(split, "word string")
        counts = words.group_by("word").persistent_aggregate(state("counts"), count=Count())
        args = streams["words"].flat_map(
            lambda row: [[row["sentence"], word] for word in row["sentence"].split()],
            "args string, word string",
        )
        answers: DataStream = (
            args.query(counts, on="word").group_by("args").aggregate(sum=Sum("count"))
        )
        return answers

    sources: dict[str, Any] = {"tester": (feeds, SENTENCE), "words": (asked, SENTENCE)}
    found = emitted(program, sources, url, 2)

    assert found == {
        txid: sorted((text, str(total)) for text, total in sums.items())
        for txid, sums in case.sums.items()
    }


def count(stream: DataStream) -> DataStream:
    return stream.flat_map(split, "word string", parallelism=2).aggregate(count=Count())


def split_and_merge(stream: DataStream) -> DataStream:
    words = stream.flat_map(split, "text string")
    lengths = stream.map(lambda row: [str(len(row["sentence"]))], "text string")
    return merged(words, lengths)


def two_groupings(stream: DataStream) -> DataStream:
    texts = stream.filter(lambda row: True)
    return merged(*(texts.group_by("sentence").aggregate(count=Count()) for _ in range(2)))


def merged(*streams: DataStream) -> DataStream:
    ports = tuple(port for stream in streams for port in stream.ports)
    return DataStream(streams[0].draft, "merged", ports, streams[0].fields)


PROGRAMS: Mapping[str, Callable[[DataStream], DataStream]] = {
    "count": count,
    "split and merge": split_and_merge,
    "two groupings": two_groupings,
}


@pytest.mark.parametrize("case", trident.OF_BATCHES, ids=named)
def test_a_batch_becomes_what_a_call_of_drpc_becomes(case: OfBatch, url: str) -> None:
    txids = [[[text]] for text in case.found]

    def program(builder: Any, streams: Any, state: Any) -> DataStream:
        return PROGRAMS[case.program](streams["calls"])

    found = emitted(program, {"calls": (txids, SENTENCE)}, url, 2)

    assert [found.get(txid, []) for txid in range(1, len(txids) + 1)] == [
        sorted(rows) for rows in case.found.values()
    ]


UNKNOWN: Mapping[str, Callable[[DataStream], object]] = {
    "group_by": lambda words: words.group_by("word1"),
    "aggregate": lambda words: words.group_by("word").aggregate(sum=Sum("word1")),
    "select": lambda words: words.select("sentence1"),
    "persistent_aggregate": lambda words: words.group_by("word").persistent_aggregate(
        open_state("memory:", table="counts"), n=Count("non_existent")
    ),
    "store": lambda words: words.store(open_state("memory:", table="words"), key="non_existent"),
    "query": lambda words: words.query(
        words.group_by("word").persistent_aggregate(
            open_state("memory:", table="asked"), count=Count()
        ),
        on="word1",
    ),
}


@pytest.mark.parametrize("operator", UNKNOWN)
def test_a_field_that_is_not_there_is_refused_as_by_trident(operator: str) -> None:
    """``trident.UNKNOWN_FIELDS``; ``each`` has no counterpart that names fields."""
    builder = StreamBuilder("words")
    lines = builder.source("tester", MemoryTransactionalSpout({0: [["a"]]}, SENTENCE, 1))
    words = lines.flat_map(split, "word string")

    with pytest.raises(FieldsError, match=r"word1|sentence1|non_existent"):
        UNKNOWN[operator](words)


def test_a_program_has_the_same_components_each_time_as_in_trident() -> None:
    """``trident.SAME_IDS``."""

    def ids() -> list[str]:
        builder = StreamBuilder("spout")
        lines = builder.source("spout", MemoryTransactionalSpout({0: [["a"]]}, SENTENCE, 3))
        lengths = lines.flat_map(split, "word string").map(
            lambda row: [len(row["word"])], "length long", id="abc"
        )
        counts = lengths.group_by("length").aggregate(id="def", count=Count("length"))
        sums = counts.aggregate(id="ghi", sum=Sum("count"))
        sums.group_by().persistent_aggregate(open_state("memory:", table="sums"), sum=Sum("sum"))
        return list(builder.build_topology().graph.components)

    first = ids()
    assert {"abc", "def", "ghi"} <= {*first}
    assert all(ids() == first for _ in range(100))


def test_no_program_is_left_out_without_a_reason() -> None:
    carried = [
        *(case.source for case in flink_ranks.OF_ROWS),
        *(case.source for case in flink_ranks.OF_SUMS),
        *(case.source for case in flink_window_joins.JOINS),
        *flink_temporal_joins.CASES,
        *(case.source for case in trident.WORD_COUNTS),
        *(case.source for case in trident.OF_BATCHES),
        trident.UNKNOWN_FIELDS,
        trident.SAME_IDS,
    ]
    left_out = {
        name: why
        for each in (flink_ranks, flink_window_joins, flink_temporal_joins, trident)
        for name, why in each.LEFT_OUT.items()
    }

    assert len(carried) == len({*carried}) == COUNT
    assert not {*carried} & {*left_out}
    assert all(left_out.values())
