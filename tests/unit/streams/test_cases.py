"""What other engines expect of windows and watermarks: the tables in ``cases``, run here."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.streams.cases import bytewax, flink, kafka_streams, spark, storm
from tests.unit.streams.cases.case import Case, Chain, Marks
from tests.unit.streams.scripted import ScriptedSpout, stamped, tables
from tests.unit.streams.worlds import run
from txtopo import Count, Fields, StreamBuilder, Sum, open_state
from txtopo.attempt import TransactionAttempt
from txtopo.streams import DataStream, sliding, tumbling
from txtopo.streams.event_time import WATERMARK, TimeColumn
from txtopo.streams.windows import BOUNDS, AssignWindows

pytestmark = pytest.mark.integration

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
ROW = Fields("key string, ts timestamp")
CASES = [
    *spark.CASES,
    *flink.CASES,
    *kafka_streams.CASES,
    *bytewax.CASES,
    *storm.CASES,
]
MARKS = [*spark.MARKS, *storm.MARKS]
# How many have been carried over; a table that is not run would not be missed otherwise.
COUNT = 83
# ``make test`` runs one of this many cases.
EVERY = 3


def named(case: Case | Chain | Marks) -> str:
    return case.source.replace(" ", "-")


def at(second: float) -> datetime.datetime:
    return EPOCH + datetime.timedelta(seconds=second)


def seconds(time: datetime.datetime | None) -> float | None:
    return None if time is None else (time - EPOCH).total_seconds()


def scripted(txids: Sequence[Sequence[tuple[str, float]]]) -> ScriptedSpout:
    return ScriptedSpout([[[key, at(second)] for key, second in rows] for rows in txids], ROW)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.slow if at % EVERY else ())
        for at, case in enumerate(CASES)
    ],
    ids=named,
)
def test_windows_are_those_of_the_other_engine(case: Case, tmp_path: Path) -> None:
    check(case, 1, tmp_path)


@pytest.mark.parametrize("case", flink.CASES, ids=named)
def test_windows_are_the_same_in_several_tasks(case: Case, tmp_path: Path) -> None:
    check(case, 3, tmp_path)


def check(case: Case, parallelism: int, folder: Path) -> None:
    url = f"sqlite:///{folder / 'case.db'}"
    builder = StreamBuilder("case")
    delay = datetime.timedelta(seconds=case.delay)
    rows = builder.source("rows", scripted(case.txids), parallelism, event_time="ts", delay=delay)
    table = (
        rows.group_by("key")
        .window(case.window)
        .persistent_aggregate(open_state(url, table="kept"), n=Count())
    )
    stamped(table.final()).store(open_state(url, table="closed"), key=("key", "window_start"))
    run(builder.build_topology())

    kept, late, closed = (
        {seconds_of(key): row for key, row in held.items()}
        for held in tables(url, "kept", "kept_late", "closed")
    )
    if case.kept is not None:
        assert sorted(found(kept)) == sorted(case.kept)
    if case.late is not None:
        assert {key: row["n"] for key, row in late.items()} == dict(case.late)
    if case.closed is not None:
        assert by_txid(closed) == {txid: sorted(each) for txid, each in case.closed.items()}


def seconds_of(key: tuple[Any, Any]) -> tuple[str, float]:
    """The key and the beginning of a window, which come in another order for sessions."""
    name, start = key if isinstance(key[0], str) else key[::-1]
    return name, (start - EPOCH).total_seconds()


def found(held: Mapping[Any, Any]) -> list[tuple[Any, ...]]:
    return [(*key, seconds(row["window_end"]), row["n"]) for key, row in held.items()]


def by_txid(held: Mapping[Any, Any]) -> dict[int, list[tuple[Any, ...]]]:
    txids: dict[int, list[tuple[Any, ...]]] = {}
    for key, row in held.items():
        txids.setdefault(row["batch"], []).append((*key, seconds(row["window_end"]), row["n"]))
    return {txid: sorted(rows) for txid, rows in txids.items()}


@pytest.mark.parametrize("case", spark.CHAINS, ids=named)
def test_windows_of_windows_are_those_of_the_other_engine(case: Chain, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'case.db'}"
    builder = StreamBuilder("case")
    spout = scripted([[("", second) for second in rows] for rows in case.txids])
    stream = builder.source("rows", spout, event_time="ts")
    stream = stream.select(ended="ts").with_columns(lambda row: [1], "n long")
    for size in case.sizes:
        windowed = stream.group_by().window(tumbling(f"{size} seconds"))
        state = open_state(url, table=f"of_{size}")
        table = windowed.persistent_aggregate(state, windows=Count(), n=Sum("n"))
        last = table.final()
        stream = last.select("n", ended="window_end")
    stamped(last).store(open_state(url, table="closed"), key="window_start")
    run(builder.build_topology())

    (closed,) = tables(url, "closed")
    answers: dict[int, list[tuple[Any, ...]]] = {}
    for start, row in sorted(closed.items()):
        answer = seconds(start), row["windows"], row["n"]
        answers.setdefault(row["batch"], []).append(answer)
    assert answers == case.closed


@pytest.mark.parametrize("case", MARKS, ids=named)
def test_watermarks_are_those_of_the_other_engine(case: Marks, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'case.db'}"
    builder = StreamBuilder("case")
    streams = []
    for number, delay in enumerate(case.delays):
        spout = scripted([[("", at) for at in rows[number]] for rows, _ in case.steps])
        length = datetime.timedelta(seconds=delay)
        streams.append(builder.source(f"rows-{number}", spout, event_time="ts", delay=length))
    merged = builder.merge(*streams) if len(streams) > 1 else streams[0]
    assert merged.time is not None
    port = builder._draft.watermark(merged.time, open_state(url), "case")
    watermarks = DataStream(builder._draft, "watermarks", (port,), WATERMARK)
    stamped(watermarks).store(open_state(url, table="watermarks"), key="batch")
    run(builder.build_topology())

    (held,) = tables(url, "watermarks")
    answers = [seconds(row["after"]) for _, row in sorted(held.items())]
    assert answers == [after for _, after in case.steps]


@pytest.mark.parametrize("case", bytewax.ASSIGNED, ids=lambda case: str(case[0]))
def test_a_row_is_in_the_windows_of_the_other_engine(case: tuple[str, int, float, Any]) -> None:
    """Windows there are aligned with this time."""
    _, every, second, numbers = case
    aligned = datetime.datetime(2023, 3, 16, 9, tzinfo=datetime.UTC)
    window = sliding(
        "10 seconds",
        every=f"{every} seconds",
        offset=(aligned - EPOCH) % datetime.timedelta(seconds=every),
    )
    fields = Fields("ts timestamp")
    time = TimeColumn("ts", {"rows": datetime.timedelta(0)})
    operator = AssignWindows("window", fields, Fields.of([*BOUNDS, *fields]), print, time, window)
    columns = {"ts": [aligned + datetime.timedelta(seconds=second)]}
    batch = pa.RecordBatch.from_pydict(columns, schema=fields.arrow_schema())
    (assigned,) = operator.apply(batch, TransactionAttempt(1, 0, 1))

    starts = [row["window_start"] for row in assigned.to_pylist()]
    assert [(start - aligned).total_seconds() / every for start in starts] == numbers


def test_no_case_is_left_out_or_there_twice() -> None:
    every: list[Case | Chain | Marks] = [*CASES, *spark.CHAINS, *MARKS]
    names = [case.source for case in every] + [name for name, *_ in bytewax.ASSIGNED]

    assert len(names) == COUNT
    # A late event is looked at in its watermark and in its window.
    assert {name for name, count in Counter(names).items() if count > 1} == {
        f"{storm.WATERMARKS}: testLateEvent"
    }
