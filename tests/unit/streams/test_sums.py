"""What adds up: rows are kept, late or duplicates; pairs leave, or one of their rows is late."""

from __future__ import annotations

import datetime
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.unit.streams.plain import starts_of
from tests.unit.streams.timed_worlds import stream_of
from tests.unit.streams.times import EVENT, at, tables_of
from tests.unit.streams.worlds import LOCAL, run
from txtopo import Count, StreamBuilder, open_state
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.streams import DataStream, session, sliding, tumbling
from txtopo.streams.windows import Session

COUNT = 50
MINUTE = datetime.timedelta(minutes=1)
DELAY, SPREAD = 2 * MINUTE, 9  # some rows are late
TAKES = pytest.mark.parametrize("take", [1, 6])


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'sums.db'}"


def rows_of(seed: int, source: str = "e") -> list[list[Any]]:
    """Return rows of known keys; the last one closes all that was before it."""
    rows = stream_of(COUNT, seed, source, spread=SPREAD)
    rows = [[id, key or "k0", number, time] for id, key, number, time in rows]
    return [*rows, [f"{source}last", "last", COUNT, at(10 * COUNT)]]


@pytest.mark.integration
@TAKES
@pytest.mark.parametrize(
    "window", [tumbling("5 minutes"), sliding("6 minutes", every="2 minutes"), session("1 minute")]
)
def test_what_windows_keep_and_what_is_late_make_all_rows(window: Any, take: int, url: str) -> None:
    """In each window, of sessions for each key: a late row makes sessions of its own."""

    def program(builder: StreamBuilder, rows: DataStream) -> None:
        counts = open_state(url, table="counts")
        rows.group_by("key").window(window).persistent_aggregate(counts, n=Count())

    rows, found = rows_of(1), Counter[Any]()
    kept, late = tables_of(program, rows, url, "counts", "counts_late", take=take, delay=DELAY)
    for table in (kept, late):
        for key, row in table.items():
            found[key[0] if isinstance(window, Session) else key] += row["n"]

    assert late
    assert found == Counter(
        key
        for row in rows
        for key in (
            [row[1]]
            if isinstance(window, Session)
            else [(start, row[1]) for start in starts_of(window, row[3])]
        )
    )


@TAKES
def test_each_row_is_let_through_or_late_or_a_duplicate_of_one_let_through(
    take: int, url: str
) -> None:
    within = 15 * MINUTE

    def program(builder: StreamBuilder, rows: DataStream) -> None:
        seen = open_state(url, table="seen")
        rows.drop_duplicates("key", within=within, state=seen).store(
            open_state(url, table="out"), key="id"
        )

    rows = rows_of(2)
    out, late = tables_of(program, rows, url, "out", "seen_late", take=take, delay=DELAY)
    late_ids = {row["id"] for row in late.values()}
    dropped = [row for row in rows if row[0] not in late_ids | out.keys()]

    assert late_ids
    assert not late_ids & out.keys()
    assert len(out) + len(late) + len(dropped) == len(rows)
    assert dropped
    for _, key, _, time in dropped:
        assert any(one["key"] == key and abs(one["ts"] - time) < within for one in out.values())


@pytest.mark.integration
@TAKES
@pytest.mark.parametrize("how", ["inner", "left"])
def test_each_pair_leaves_or_has_a_late_row_and_each_left_row_leaves_or_is_late(
    how: Any, take: int, url: str
) -> None:
    lower, upper = -2 * MINUTE, 5 * MINUTE
    sides = {name: rows_of(number, name) for number, name in enumerate("lr")}
    builder = StreamBuilder("sums")
    left, right = (
        builder.source(
            name,
            MemoryTransactionalSpout({0: rows}, EVENT, take),
            event_time="ts",
            delay=DELAY,
            max_ahead=None,
        )
        for name, rows in sides.items()
    )
    joined = left.join(
        right.select("key", rid="id", rn="n", rts="ts"),
        on="key",
        within=(lower, upper),
        how=how,
        state=open_state(url, table="buffer"),
    )
    named = joined.map(
        lambda row: [row["id"], row["rid"] or "", 1], "id string, rid string, n long"
    )
    named.group_by("id", "rid").persistent_aggregate(open_state(url, table="out"), n=Count())
    run(builder.build_topology(), LOCAL)
    with open_state(url, table="out").reader() as reader:
        out = dict(reader.items())
    with open_state(url, table="buffer_late").reader() as reader:
        late = {row["id"] or row["rid"] for row in dict(reader.items()).values()}

    pairs = {
        (one[0], other[0])
        for one in sides["l"]
        for other in sides["r"]
        if one[1] == other[1] and lower <= other[3] - one[3] <= upper
    }
    assert set(out.values()) == {1}
    assert {pair for pair in pairs if late.isdisjoint(pair)} == {pair for pair in out if pair[1]}
    assert any(not late.isdisjoint(pair) for pair in pairs)
    if how == "left":
        # The last row may still have a match.
        ids = {row[0] for row in sides["l"]} - {"llast"}
        gone = {id for id, _ in out} - {"llast"}
        assert gone | (late & ids) == ids
        assert not gone & late
