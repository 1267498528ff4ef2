"""Tables whose values expire, txid by txid: lifetimes are ten seconds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.streams.living import Lives, Make, program
from txtopo import Count, Last, Mean, Sum
from txtopo.streams.expiring_tables import newest_spans

AFTER = "10 seconds"


def summing(rows: Any, asked: Any, state: Any) -> Any:
    return rows.group_by("key").persistent_aggregate(state("t"), expire_after=AFTER, n=Sum("n"))


def latest(rows: Any, asked: Any, state: Any) -> Any:
    return rows.as_table(state("t"), key="key", value="n", order_by="id", expire_after=AFTER)


def told(make: Make, **how: bool) -> Make:
    """A table whose changes are read."""

    def program(rows: Any, asked: Any, state: Any) -> None:
        table: Any = make(rows, asked, state)
        table.changes(**how).filter(lambda row: True)

    return program


def asked_for(make: Make) -> Make:
    """A table that is queried."""

    def program(rows: Any, asked: Any, state: Any) -> None:
        asked.query(make(rows, asked, state), on="who").map(lambda row: [1], "one long")

    return program


def answers(lives: Lives) -> dict[str, Any]:
    ((_, rows),) = lives.told.items()
    return {row["who"]: row["n"] for row in rows}


@pytest.mark.rule("txtopo.streams.expiring_tables", "Rules", 1)
@pytest.mark.parametrize("make", [summing, latest])
def test_a_value_has_the_latest_event_time_of_its_rows(make: Make) -> None:
    lives = Lives(program(make))
    lives.run([("a", 1, 3), ("b", 2, 5), ("a", 4, 2)], 5)
    lives.run([("b", 8, 1)], 5)

    b = 10 if make is summing else 8
    assert lives.held() == {"a": (5 if make is summing else 4, 3), "b": (b, 5)}


@pytest.mark.rule("txtopo.streams.expiring_tables", "Rules", 1)
def test_streams_of_the_program_do_not_see_the_time() -> None:
    def make(rows: Any, asked: Any, state: Any) -> None:
        table = summing(rows, asked, state)
        assert table.changes().fields.names == ("key", "n")
        assert asked.query(table, on="who").fields.names == ("who", "n")

    program(make)


@pytest.mark.rule("txtopo.streams.expiring_tables", "Rules", 2)
@pytest.mark.parametrize(("now", "found"), [(12.999999, 1), (13, None)])
@pytest.mark.parametrize("make", [summing, latest])
def test_a_value_is_absent_from_its_time_on(make: Make, now: float, found: int | None) -> None:
    lives = Lives(program(asked_for(make)))
    lives.run([("a", 1, 3)], 3)
    lives.run([], now, "a", "b")

    assert answers(lives) == {"a": found, "b": None}


@pytest.mark.rule("txtopo.streams.expiring_tables", "Rules", 2)
def test_without_event_time_it_lives_by_the_planned_time() -> None:
    lives = Lives(program(asked_for(summing), event=False))
    lives.run([("a", 1, 99), ("b", 1, 99)], 0)
    lives.run([("a", 2, 0)], 9.999, "a", "b")
    assert answers(lives) == {"a": 3, "b": 1}
    lives.run([("b", 4, 0)], 10, "a", "b")
    assert answers(lives) == {"a": 3, "b": 4}
    lives.run([], 19.999, "a", "b")
    assert answers(lives) == {"a": None, "b": 4}


@pytest.mark.rule("txtopo.streams.expiring_tables", "Rules", 3)
@pytest.mark.parametrize("deleted", [True, False])
def test_a_row_finds_no_value_that_has_expired(deleted: bool) -> None:
    """Whether the store has deleted it makes no difference."""
    lives = Lives(program(summing))
    lives.run([("a", 1, 0), ("b", 1, 1)], 1)
    lives.run([], 10)
    lives.run([("c", 1, 10)], 10)
    if deleted:
        assert lives.delete() == 1
    lives.run([("a", 2, 5), ("b", 2, 5)], 10)

    assert lives.held() == {"a": (2, 5), "b": (3, 5), "c": (1, 10)}


@pytest.mark.rule("txtopo.streams.expiring_tables", "Rules", 3)
@pytest.mark.parametrize("take", [1, 2, 3, 7])
def test_in_order_it_makes_no_difference_how_rows_are_cut(take: int) -> None:
    """A value ends where its key had no row for its time, also within a batch."""
    a, b = [("a", 1, 0), ("a", 2, 9), ("a", 4, 19), ("a", 8, 24)], [("b", 1, 4), ("b", 2, 14)]
    rows = sorted([*a, *b, ("b", 4, 15)], key=lambda row: row[2])
    lives = Lives(program(summing))
    for start in range(0, len(rows), take):
        part = rows[start : start + take]
        lives.run(part, part[-1][2])

    assert lives.held() == {"a": (12, 24), "b": (6, 15)}


@pytest.mark.parametrize(
    ("gap", "newest"), [(9, [0, 1, 1, 1, 1, 1]), (8, [0, 0, 1, 0, 1, 0]), (2, [0, 0, 1, 0, 1, 0])]
)
def test_spans_behind_the_last_gap_of_their_key(gap: int, newest: list[int]) -> None:
    keys = np.array([0, 1, 0, 0, 1, 0])
    starts, ends = np.array([0, 5, 30, 12, 14, 21]), np.array([3, 6, 31, 20, 14, 22])

    assert newest_spans(keys, starts, ends, gap).tolist() == list(map(bool, newest))


@pytest.mark.rule("txtopo.streams.expiring_tables", "Rules", 4)
@pytest.mark.parametrize("make", [summing, latest])
def test_a_row_that_comes_too_late_leaves_nothing(make: Make) -> None:
    lives = Lives(program(told(make)))
    lives.run([("a", 1, 0), ("b", 1, 100)], 100)
    assert lives.held() == {"b": (1, 100)}
    lives.run([("a", 2, 90)], 100)

    assert lives.held() == {"b": (1, 100)}
    assert lives.told == {}


@pytest.mark.rule("txtopo.streams.expiring_tables", "Rules", 4)
def test_a_late_row_counts_in_a_value_that_lives() -> None:
    lives = Lives(program(summing))
    lives.run([("a", 1, 100)], 100)
    lives.run([("a", 2, 1)], 100)

    assert lives.held() == {"a": (3, 100)}


@pytest.mark.rule("txtopo.streams.expiring_tables", "Rules", 5)
@pytest.mark.parametrize("event", [True, False])
def test_a_value_that_expires_is_a_change_of_the_txid_in_which_it_does(event: bool) -> None:
    lives = Lives(program(told(summing, retracted=True), event=event))
    lives.run([("a", 1, 0), ("b", 2, 0)], 0)
    lives.run([("b", 4, 9)], 9)
    lives.run([], 10)

    (rows,) = lives.told.values()
    assert rows == [{"key": "a", "n": 1, "retracted": True}]
    assert lives.held() == {"b": (6, 9)}
    lives.run([], 11)
    assert lives.told == {}


@pytest.mark.rule("txtopo.streams.expiring_tables", "Rules", 5)
def test_a_value_that_begins_again_replaces_the_one_that_expires() -> None:
    lives = Lives(program(told(summing, retracted=True), event=False))
    lives.run([("a", 1, 0), ("b", 1, 0)], 0)
    lives.run([("a", 2, 0), ("b", 1, 0)], 10)

    (rows,) = lives.told.values()
    assert rows == [
        {"key": "a", "n": 1, "retracted": True},
        {"key": "a", "n": 2, "retracted": False},
    ]


@pytest.mark.rule("txtopo.streams.expiring_tables", "Rules", 5)
def test_a_replay_takes_back_what_the_first_attempt_took_back() -> None:
    lives = Lives(program(told(latest, before=True)))
    lives.run([("a", 1, 0)], 0)
    for attempt in range(3):
        lives.run([("b", 2, 20)], 20, attempt=attempt)
        (rows,) = lives.told.values()
        assert rows == [
            {"key": "a", "n": None, "before_n": 1},
            {"key": "b", "n": 2, "before_n": None},
        ]
    assert lives.held() == {"b": (2, 20)}


@pytest.mark.rule("txtopo.streams.expiring_tables", "Rules", 5)
def test_what_no_stream_reads_is_deleted_later() -> None:
    lives = Lives(program(latest))
    lives.run([("a", 1, 0)], 0)
    lives.run([], 10)
    assert lives.held() == {"a": (1, 0)}
    lives.run([], 10)

    assert lives.delete() == 1
    assert lives.held() == {}


@pytest.mark.parametrize("event", [True, False])
def test_all_rows_may_be_one_group(event: bool) -> None:
    def make(rows: Any, asked: Any, state: Any) -> None:
        rows.group_by().persistent_aggregate(
            state("t"),
            expire_after=AFTER,
            n=Count(),
            mean=Mean("n"),
            last=Last("id", order="ts"),
        )

    lives = Lives(program(make, event=event))
    lives.run([("a", 1, 0), ("b", 4, 8)], 8)
    assert lives.held() == {"global": (2, 5, 2, "e2", 8)}
    lives.run([("b", 4, 18)], 18)
    assert lives.held() == {"global": (1, 4, 1, "e3", 18)}


def test_nothing_expires_while_the_watermark_is_unknown() -> None:
    lives = Lives(program(told(summing)))
    lives.run([("a", 1, 0), ("a", 1, 50)], None)
    lives.run([("a", 1, 40)], None)

    assert lives.held() == {"a": (2, 50)}
