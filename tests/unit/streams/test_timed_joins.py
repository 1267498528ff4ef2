"""Deduplication, interval joins and expiring values under the simulator, against plain Python."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.unit.streams.plain_joins import deduplicated, joined, updated
from tests.unit.streams.timed_worlds import assert_right, stream_of
from tests.unit.streams.times import NOON
from tests.unit.streams.worlds import GROUPS
from txtopo import Config, Count, Fields

pytestmark = pytest.mark.integration

Batches = Sequence[Mapping[str, Sequence[Any]]]
CONFIGS: list[Config | None] = [None, GROUPS]
SEEDS = [range(4), pytest.param(range(4, 20), marks=pytest.mark.slow)]
ROWS = 30
DELAY = datetime.timedelta(minutes=3)
WITHIN = datetime.timedelta(minutes=8)
LOWER, UPPER = datetime.timedelta(minutes=-2), datetime.timedelta(minutes=5)


def duplicates(streams: Any, state: Any) -> None:
    unique = streams["l"].drop_duplicates("key", within=WITHIN, state=state("seen"))
    unique.group_by("id").persistent_aggregate(state("out"), n=Count())


def unique_rows(batches: Batches) -> Mapping[str, Mapping[Any, Any]]:
    told = deduplicated([batch["l"] for batch in batches], WITHIN, DELAY)
    return {"out": counted(row[0] for _, row in told.emitted), "seen_late": told.numbered()}


def copies(streams: Any, state: Any) -> None:
    unique = streams["l"].drop_duplicates("key", within=WITHIN, state=state("seen"))
    known = unique.filter(lambda row: row["key"] is not None)
    known.group_by("key", "ts").persistent_aggregate(state("out"), n=Count())


def one_of_each(batches: Batches) -> Mapping[str, Mapping[Any, Any]]:
    told = deduplicated([batch["l"] for batch in batches], WITHIN, DELAY)
    known = [row for _, row in told.emitted if row[1] is not None]
    return {"out": counted((row[1], row[3]) for row in known), "seen_late": told.numbered()}


def counted(keys: Any) -> dict[Any, Any]:
    return {
        key if isinstance(key, tuple) else (key,): (count,) for key, count in Counter(keys).items()
    }


def joining(how: Any) -> Any:
    def program(streams: Any, state: Any) -> None:
        right = streams["r"].select("key", rid="id", rn="n", rts="ts")
        both = streams["l"].join(
            right, on="key", within=(LOWER, UPPER), how=how, state=state("buffer")
        )
        both.with_columns(lambda row: [row["rid"] or ""], "rid string").group_by(
            "id", "rid"
        ).persistent_aggregate(state("out"), n=Count())

    return program


def matches(how: str) -> Any:
    def fold(batches: Batches) -> Mapping[str, Mapping[Any, Any]]:
        pairs = [(batch["l"], batch["r"]) for batch in batches]
        told = joined(pairs, LOWER, UPPER, how, (DELAY, DELAY))
        told.late = [(txid, late_row(side, row)) for txid, (side, row) in told.late]
        found = ((one[0], "" if other is None else other[0]) for _, (one, other) in told.emitted)
        return {"out": counted(found), "buffer_late": told.numbered()}

    return fold


def late_row(side: str, row: Any) -> tuple[Any, ...]:
    id, key, number, time = row
    if side == "left":
        return (side, id, key, number, time, None, None, None)
    return (side, None, key, None, None, id, number, time)


def adding(total: int | None, row: Any) -> tuple[int, list[Any]]:
    total = (total or 0) + row[2]
    return total, [row[0], total]


def sums(streams: Any, state: Any) -> None:
    known = streams["l"].filter(lambda row: row["key"] is not None)
    known.group_by("key").update(
        adding,
        "id string, total long",
        state=state("sums", value=Fields("total long")),
        order_by=("id", "n"),
        expire_after=datetime.timedelta(minutes=4),
    ).store(state("out"), key="id")


def plain_sums(batches: Batches) -> Mapping[str, Mapping[Any, Any]]:
    known = [[row for row in batch["l"] if row[1] is not None] for batch in batches]
    every = [[row[3] for row in batch["l"]] for batch in batches]
    told = updated(known, adding, datetime.timedelta(minutes=4), DELAY, every)
    return {"out": {(id,): (total,) for _, (id, total) in told.emitted}}


def one(seed: int) -> Any:
    return {"l": stream_of(ROWS, seed, "l")}


def with_copies(seed: int) -> Any:
    """Return rows of which those of a key are copies, or apart by WITHIN."""
    rows = stream_of(ROWS, seed, "l")
    return {"l": [[*row[:3], NOON + (row[3] - NOON) // WITHIN * WITHIN] for row in rows]}


def two(seed: int) -> Any:
    return {"l": stream_of(ROWS, seed, "l"), "r": stream_of(ROWS, seed, "r")}


@pytest.mark.parametrize("seeds", SEEDS, ids=["few", "more"])
@pytest.mark.parametrize("config", CONFIGS, ids=["one by one", "groups"])
def test_deduplication_is_right_whatever_crashes(config: Config | None, seeds: range) -> None:
    assert_right(duplicates, unique_rows, one, seeds, delay=DELAY, config=config, tasks=1)


@pytest.mark.parametrize("seeds", SEEDS, ids=["few", "more"])
@pytest.mark.parametrize("config", CONFIGS, ids=["one by one", "groups"])
def test_copies_that_tasks_share_are_right_whatever_crashes(
    config: Config | None, seeds: range
) -> None:
    assert_right(copies, one_of_each, with_copies, seeds, delay=DELAY, config=config, tasks=2)


@pytest.mark.parametrize(
    ("how", "config"),
    [
        pytest.param("inner", None, id="inner-one by one"),
        pytest.param("left", GROUPS, id="left-groups"),
        pytest.param("inner", GROUPS, id="inner-groups", marks=pytest.mark.slow),
        pytest.param("left", None, id="left-one by one", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("seeds", SEEDS, ids=["few", "more"])
def test_interval_joins_are_right_whatever_crashes(
    how: str, config: Config | None, seeds: range
) -> None:
    assert_right(joining(how), matches(how), two, seeds, delay=DELAY, config=config)


@pytest.mark.parametrize("seeds", SEEDS, ids=["few", "more"])
@pytest.mark.parametrize("config", CONFIGS, ids=["one by one", "groups"])
@pytest.mark.rule("txtopo.streams.expiring_values", "Rules", 3)
def test_expiring_values_are_right_whatever_crashes(config: Config | None, seeds: range) -> None:
    assert_right(sums, plain_sums, one, seeds, delay=DELAY, config=config)
