"""A row whose key is far ahead does not take the position of a query past other rows."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.unit.sources.driving import Planner, emit
from tests.unit.sources.test_query import FIELDS, Table
from txtopo import Config, Fields
from txtopo.errors import ConfigError, OffsetRegression
from txtopo.spouts import QueryTransactionalSpout

CENTURY_S = 100 * 365 * 86_400.0
KINDS = ["at timestamp", "at timestamp_ntz", "at date"]
by_kind = pytest.mark.parametrize("key", KINDS)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC).replace(tzinfo=None)


def add(table: Table, key: str, word: str, days: float) -> None:
    """Add a row whose key is this many days from now."""
    at = now() + datetime.timedelta(days=days)
    written = at.date() if key.endswith("date") else at
    table.run("INSERT INTO words (word, at) VALUES (?, ?)", word, str(written))


def timed(table: Table, key: str, **options: Any) -> QueryTransactionalSpout:
    return table.spout(key="at", fields=Fields(f"word string, {key}"), **options)


def words(spout: QueryTransactionalSpout, batches: list[Any]) -> list[Any]:
    return [row[0] for batch in batches for row in emit(spout, batch)]


@by_kind
@pytest.mark.rule("txtopo.sources.query.planning", "Rows", 1)
def test_a_row_whose_time_has_not_come_waits_and_the_rows_of_the_present_are_read(
    table: Table, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    spout = timed(table, key)
    planner = Planner(spout)
    add(table, key, "old", -20)
    add(table, key, "ahead", 365)
    found = words(spout, planner.all())
    for at in range(3):
        add(table, key, f"new {at}", at - 10)
        found += words(spout, planner.all())

    assert found == ["old", "new 0", "new 1", "new 2"]
    told = planner.coordinator.held_back()
    assert told is not None
    assert "rows of 'words' are ahead of the clock of the database, up to " in told
    assert [each.partition(",")[0] for each in caplog.messages] == [told.partition(",")[0]]


@by_kind
@pytest.mark.rule("txtopo.sources.query.planning", "Rows", 1)
def test_a_row_that_waited_is_read_when_its_time_has_come(table: Table, key: str) -> None:
    """The time that may be read passes here by what may be ahead."""
    add(table, key, "old", -1)
    add(table, key, "ahead", 365)
    stored = Planner(timed(table, key)).plan()

    later = timed(table, key, max_ahead_s=366 * 86_400)
    planner = Planner(later, stored=stored)

    assert words(later, planner.all()) == ["ahead"]
    assert planner.coordinator.held_back() is None


@pytest.mark.parametrize("ahead_s", [None, CENTURY_S, 1e300])
def test_what_may_be_ahead_can_be_chosen(table: Table, ahead_s: float | None) -> None:
    spout = timed(table, KINDS[0], max_ahead_s=ahead_s)
    add(table, KINDS[0], "booked", 365)

    assert words(spout, Planner(spout).all()) == ["booked"]


def test_a_table_of_rows_that_all_wait_is_not_taken_for_one_that_was_emptied(table: Table) -> None:
    spout = timed(table, KINDS[0])
    planner = Planner(spout)
    add(table, KINDS[0], "ahead", 365)
    assert planner.plan() is None
    add(table, KINDS[0], "now", -1)

    assert words(spout, planner.all()) == ["now"]


@pytest.mark.parametrize("ahead_s", [-1, True, "1 hour", float("nan")])
def test_what_is_no_time_ahead_is_refused(table: Table, ahead_s: Any) -> None:
    with pytest.raises(ConfigError, match="max_ahead_s of a query is wrong"):
        timed(table, KINDS[0], max_ahead_s=ahead_s)


@pytest.mark.parametrize("far", [10**12, 2**63 - 1])
@pytest.mark.rule("txtopo.sources.query.planning", "Rows", 2)
def test_rows_that_follow_before_a_number_far_ahead_end_the_run(table: Table, far: int) -> None:
    """Also after a restart, and if larger keys were read since."""
    for id in (-(2**62), 5, 6, far - 3):
        table.run("INSERT INTO words (id) VALUES (?)", id)
    planner = Planner(table.spout(batch_rows_max=2))
    assert len(planner.all()) == 2
    table.run("INSERT INTO words (id) VALUES (?)", far)
    stored = planner.plan()
    table.run("INSERT INTO words (id) VALUES (7), (8)")

    for each in (planner, Planner(table.spout(), stored=stored)):
        with pytest.raises(
            OffsetRegression, match=rf"'words' appeared .* got id 7, between 6 and {far - 3}, which"
        ):
            each.plan()
    table.run("DELETE FROM words WHERE id IN (7, 8)")
    assert Planner(table.spout(), stored=stored).plan() is None


def test_gaps_are_few_and_those_that_cannot_have_a_row_are_none(table: Table) -> None:
    table.add(1, 2, 3, *range(10, 200, 10))
    batches = Planner(table.spout(batch_rows_max=4)).all()

    first: Any = Planner(table.spout(batch_rows_max=3)).plan()
    assert first["gaps"] == [[None, 1]]
    assert batches[-1]["gaps"] == [[None, 1], [10, 20], [20, 30], [30, 40], [40, 50]]  # type: ignore[index,call-overload]


@pytest.mark.rule("txtopo.sources.query.planning", "Rows", 2)
def test_rows_that_follow_a_first_row_far_ahead_end_the_run(table: Table) -> None:
    """A first row that was typed by hand has no row before it that would begin a gap."""
    table.run("INSERT INTO words (id) VALUES (9000000000)")
    stored = Planner(table.spout()).plan()
    table.add(1, 2)

    with pytest.raises(OffsetRegression, match="got id 1, before 9000000000, which was read first"):
        Planner(table.spout(), stored=stored).plan()


@pytest.mark.rule("txtopo.sources.query.planning", "Rows", 1)
def test_a_date_is_read_when_its_day_is_over(
    table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows of a day come until its end, and after a batch with that day none would be read."""
    spout = timed(table, "at date")
    planner = Planner(spout)
    add(table, "at date", "yesterday", -1)
    add(table, "at date", "today", 0)
    assert words(spout, planner.all()) == ["yesterday"]
    assert "are read when the 'at' of each is over; if all rows of a date" in caplog.text
    add(table, "at date", "later today", 0)

    next_day = timed(table, "at date", max_ahead_s=86_400)
    assert sorted(words(next_day, Planner(next_day, stored=planner.metadata).all())) == [
        "later today",
        "today",
    ]


@pytest.mark.parametrize("rows", [1, 1_500])
@pytest.mark.parametrize("hour", ["2026-01-31 12:00:00", "0001-01-01 00:00:00"])
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.rule("txtopo.sources.query.planning", "Rows", 3)
def test_a_row_that_comes_with_the_last_key_that_was_read_ends_the_run(
    table: Table, rows: int, hour: str, restarts: bool
) -> None:
    """As of a key that is cut to hours. Many rows of one key are counted by the next plan."""
    table.run(
        "INSERT INTO words (word, at) WITH RECURSIVE n(i) AS "
        "(SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) SELECT 'x', ? FROM n",
        rows,
        hour,
    )
    spout = timed(table, "at timestamp")
    planner = Planner(spout)
    assert len(planner.all()) == 1
    assert planner.plan() is None
    if restarts:
        planner = Planner(spout, stored=planner.metadata)
    table.run("INSERT INTO words (word, at) VALUES ('late', ?)", f"{hour}.000000")
    if rows > 1_000:
        assert planner.plan() is None
        table.run("INSERT INTO words (word, at) VALUES ('next', '2026-01-31 13:00:00')")

    with pytest.raises(
        OffsetRegression, match=rf"got {rows + 1} rows with at .*; expected at most {rows}, which"
    ):
        planner.plan()
    table.run("DELETE FROM words WHERE word = 'late'")
    assert (planner.plan() is None) == (rows == 1)


def test_a_change_of_the_query_that_is_allowed_leaves_what_was_counted(table: Table) -> None:
    table.add(10)
    stored = Planner(table.spout("(SELECT * FROM words WHERE id > 3)")).plan()
    table.add(1, 11)
    changed = table.spout()

    planner = Planner(changed, stored=stored, config=Config(allow_change=True))
    assert [each["cuts"] for each in planner.all()] == [[[11, 1]]]  # type: ignore[index,call-overload]


def test_a_start_far_before_the_first_row_is_a_gap(table: Table) -> None:
    table.add(1_000)
    spout = table.spout(start_after=5, fields=FIELDS)
    planner = Planner(spout)
    planner.plan()
    table.add(6)

    with pytest.raises(OffsetRegression, match="got id 6, between 5 and 1000"):
        planner.plan()
