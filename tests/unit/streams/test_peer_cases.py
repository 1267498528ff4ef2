"""Joins and deduplication do what the tests of other engines expect; see ``peer_cases.py``."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from tests.unit.streams.peer_cases import (
    AT_THE_WATERMARK,
    FLINK_BOUNDS,
    FLINK_CLEANUP,
    JOINS,
    UNIQUE,
    JoinCase,
    UniqueCase,
)
from tests.unit.streams.plain_joins import Marks
from tests.unit.streams.txids import Join, Unique, second
from txtopo.streams.interval_join import LEFT, RIGHT

CASES = 39


def delays(*given: float) -> list[datetime.timedelta]:
    return [datetime.timedelta(seconds=delay - AT_THE_WATERMARK) for delay in given]


@pytest.mark.parametrize("case", JOINS, ids=lambda case: case.source)
def test_a_join_matches_what_it_matches_elsewhere(case: JoinCase) -> None:
    join, marks = Join(*case.interval, case.how), Marks(delays(*case.delays))  # type: ignore[arg-type]

    for left, right, expected in case.steps:
        marks.take([[second(time) for _, time in side] for side in (left, right)])
        found = join.run(left, right, marks.now)
        assert rounded(found) == rounded(expected), (left, right)
    assert len(join.late()) == case.late


def rounded(rows: Any) -> list[Any]:
    return sorted(
        str([key, *(None if time is None else round(float(time), 6) for time in times)])
        for key, *times in rows
    )


@pytest.mark.parametrize("left_first", [True, False])
@pytest.mark.parametrize("case", range(len(FLINK_BOUNDS)))
def test_the_ends_of_an_interval_are_in_it_as_in_flink(case: int, left_first: bool) -> None:
    lower, upper, expected = FLINK_BOUNDS[case]
    join, marks, found = Join(lower, upper), Marks(delays(0, 0)), []

    for number in range(1, 5):
        rows = [("k", float(number))]
        for left in (left_first, not left_first):
            marks.take([[second(number)], []] if left else [[], [second(number)]])
            found += join.run(rows, [], marks.now) if left else join.run([], rows, marks.now)

    assert sorted((one, other) for _, one, other in found) == expected
    assert not join.late()


@pytest.mark.parametrize("case", range(len(FLINK_CLEANUP)))
def test_what_is_buffered_at_a_watermark_is_what_flink_buffers(case: int) -> None:
    lower, upper, expected = FLINK_CLEANUP[case]
    join, rows = Join(lower, upper), [("k", float(number)) for number in range(1, 6)]
    join.run(rows, rows, None)

    for watermark, (left, right) in expected.items():
        join.run([], [], second(watermark + AT_THE_WATERMARK))
        assert (join.buffered(LEFT), join.buffered(RIGHT)) == (left, right)


@pytest.mark.parametrize("case", UNIQUE, ids=lambda case: case.source)
def test_duplicates_are_dropped_as_elsewhere(case: UniqueCase) -> None:
    unique, marks = Unique(case.within, *case.key), Marks(delays(case.delay))

    for rows, expected in case.steps:
        marks.take([[second(row[2]) for row in rows]])
        assert unique.run(rows, marks.now) == expected
    assert len(unique.late()) == case.late


def test_so_many_cases_are_carried_over() -> None:
    assert len(JOINS) + 2 * len(FLINK_BOUNDS) + len(FLINK_CLEANUP) + len(UNIQUE) == CASES
