"""A table with a growing key is read once, in bounded ranges, and the same again in a replay."""

from __future__ import annotations

import datetime
import pickle
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from tests.unit.sources.driving import Emitted, Planner, context, emit
from txtopo import Config, Fields, TransactionAttempt
from txtopo.errors import (
    ConfigError,
    EmitError,
    InfrastructureError,
    OffsetRegression,
    SourceDataLost,
    TopologyChanged,
)
from txtopo.plugins.spouts import LastBatch
from txtopo.sources.query.planning import SettledKeys
from txtopo.spouts import QueryTransactionalSpout

pytestmark = pytest.mark.integration
FIELDS = Fields("id long, word string")
NOON = datetime.datetime(2026, 1, 1, 12)


class Table:
    """A table of words in SQLite."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "words.db"
        self.run("CREATE TABLE words (id INTEGER, word TEXT, at TIMESTAMP, day DATE)")

    def run(self, statement: str, *values: Any) -> None:
        with sqlite3.connect(self.path) as connection:
            connection.execute(statement, values)
        connection.close()

    def add(self, *ids: int) -> None:
        for id in ids:
            at = NOON + datetime.timedelta(microseconds=id)
            day = (NOON + datetime.timedelta(days=id)).date()
            values = (id, f"w{id}", at.isoformat(" "), day.isoformat())
            self.run("INSERT INTO words VALUES (?, ?, ?, ?)", *values)

    def spout(self, query: str = "words", **options: Any) -> QueryTransactionalSpout:
        settings = {"key": "id", "fields": FIELDS, "settle_s": 0, **options}
        made = QueryTransactionalSpout(f"sqlite:///{self.path}", query, **settings)
        travelled: QueryTransactionalSpout = pickle.loads(pickle.dumps(made))
        return travelled


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


def ids(spout: QueryTransactionalSpout, metadata: Any, tasks: int = 1) -> list[Any]:
    return [row[0] for row in emit(spout, metadata, tasks)]


@pytest.mark.parametrize("tasks", [1, 2, 3, 9])
def test_all_batches_together_are_the_table(table: Table, tasks: int) -> None:
    table.add(-5, 3, 4, 5, 90, 91, 200)
    spout = table.spout(batch_rows_max=3)

    batches = Planner(spout, tasks).all()

    for others in (1, tasks):
        found = [sorted(ids(spout, batch, others)) for batch in batches]
        assert found == [[-5, 3, 4], [5, 90, 91], [200]]
    assert emit(spout, batches[2]) == [(200, "w200")]


def test_a_batch_ends_where_the_table_did_when_it_was_planned(table: Table) -> None:
    table.add(1, 2)
    spout = table.spout()
    planner = Planner(spout)
    first = planner.plan()
    assert planner.plan() is None
    table.add(3)

    assert ids(spout, first) == [1, 2]
    again = Planner(table.spout(), stored=first)
    assert ids(spout, again.plan()) == [3]
    assert again.plan() is None


def test_rows_of_equal_keys_stay_together(table: Table) -> None:
    table.add(1, 2, 2, 2, 3)
    spout = table.spout(batch_rows_max=2)

    assert [ids(spout, batch) for batch in Planner(spout).all()] == [[1, 2, 2, 2], [3]]


def test_a_query_may_choose_and_begin_anywhere(table: Table) -> None:
    table.add(*range(8))
    query = "(SELECT id, word || ':x' AS word FROM words WHERE id % 2 = 0 AND word <> ':y')"
    spout = table.spout(query, start_after=2)

    (batch,) = Planner(spout).all()

    assert emit(spout, batch) == [(4, "w4:x"), (6, "w6:x")]


@pytest.mark.parametrize("key", ["at timestamp", "at timestamp_ntz", "day date"])
def test_dates_and_times_are_keys(table: Table, key: str) -> None:
    table.add(1, 2, 3, 4)
    spout = table.spout(key=key.split()[0], fields=Fields(f"id long, {key}"), batch_rows_max=3)

    assert [ids(spout, batch) for batch in Planner(spout).all()] == [[1, 2, 3], [4]]


def test_keys_without_rows_are_passed(table: Table) -> None:
    """The last rows may go between two looks; the next batch is empty and continues behind them."""
    table.add(1)
    spout = table.spout()
    coordinator = spout.coordinator(Config(), context())
    assert coordinator.is_ready(1, LastBatch())
    table.run("DELETE FROM words")

    metadata = coordinator.initialize_transaction(1, None)
    assert ids(spout, metadata) == []
    assert not coordinator.is_ready(2, LastBatch(1, metadata))


def test_a_key_settles_before_it_is_read() -> None:
    """Until then a smaller one may be committed."""
    keys = SettledKeys(10)

    def after(seconds: float, newest: int | None) -> Any:
        return keys.settled(NOON + datetime.timedelta(seconds=seconds), seconds, newest)

    assert after(0, None) is None
    assert after(1, 5) is None
    assert after(6, 8) is None
    assert after(11.9, 9) is None
    assert after(12, 9) == 5
    assert after(16.9, 9) == 5
    assert after(17, 9) == 8
    assert after(100, 12) == 9
    assert after(101, None) == 9, "that rows are gone is said by others"
    for number in range(5_000):
        after(200 + number / 1_000, number)
    assert len(keys._seen) <= 101, "what is noted is bounded"


@pytest.mark.parametrize("jump_s", [3600, -3600])
def test_a_clock_of_the_database_that_is_set_makes_no_key_settle_early_and_none_wait_for_it(
    jump_s: int,
) -> None:
    """Forward, all keys would settle at once; back, none for an hour."""
    keys = SettledKeys(10)

    def after(seconds: float) -> Any:
        now = NOON + datetime.timedelta(seconds=seconds + (jump_s if seconds >= 3 else 0))
        return keys.settled(now, 100 + seconds, int(seconds))

    found = [after(seconds) for seconds in range(20)]

    first = 0 if jump_s > 0 else 3
    assert found == [None] * (first + 11) + list(range(first, 9))


def test_a_clock_that_stands_still_settles_nothing_and_fills_no_memory() -> None:
    keys = SettledKeys(10)

    found = {keys.settled(NOON, number, number) for number in range(1_000)}

    assert found == {None}
    assert len(keys._seen) == 1


def test_rows_gather_while_batches_are_in_flight_until_they_fill_one(table: Table) -> None:
    table.add(1, 2)
    coordinator = table.spout(batch_rows_max=3).coordinator(Config(), context())
    coordinator.is_ready(1, LastBatch())
    planned = coordinator.initialize_transaction(1, None)

    def ready(pending: int) -> bool:
        return coordinator.is_ready(2, LastBatch(1, planned, pending))

    table.add(3, 4)
    assert [ready(pending) for pending in (0, 1)] == [True, False]
    table.add(5)
    assert ready(1), "three rows are a full batch"


def test_nothing_is_planned_before_a_key_has_settled(table: Table) -> None:
    table.add(1)

    assert Planner(table.spout(settle_s=3600)).plan() is None


def test_a_late_row_in_a_planned_batch_stops_the_run(table: Table) -> None:
    table.add(1, 3)
    spout = table.spout()
    metadata = Planner(spout).plan()
    table.add(2)

    with pytest.raises(SourceDataLost, match=r"got 3 rows; expected 2; rows came late .settle_s"):
        emit(spout, metadata)


def test_rows_that_are_gone_stop_the_run(table: Table) -> None:
    table.add(1, 2, 3)
    spout = table.spout(batch_rows_max=2)
    planner = Planner(spout)
    metadata = planner.plan()
    table.run("DELETE FROM words WHERE id > 1")

    with pytest.raises(SourceDataLost, match=r"got 1 rows; expected 2; rows were deleted"):
        emit(spout, metadata)
    with pytest.raises(SourceDataLost, match=r"got 1 as the largest 'id', which was 3"):
        planner.plan()


def test_rows_that_were_read_may_go(table: Table) -> None:
    table.add(1, 2)
    planner = Planner(table.spout())
    planner.plan()
    table.run("DELETE FROM words")

    assert planner.plan() is None


def test_a_table_that_has_gone_ends_the_run(table: Table) -> None:
    table.add(1)
    spout = table.spout()
    metadata = Planner(spout).plan()
    table.run("DROP TABLE words")

    with pytest.raises(SourceDataLost, match="no such table"):
        emit(spout, metadata)


def test_a_large_range_is_read_in_pieces(table: Table) -> None:
    table.run(
        "INSERT INTO words WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE "
        "i < 25000) SELECT i, 'w', NULL, NULL FROM n"
    )
    spout = table.spout(batch_rows_max=100_000)
    (metadata,) = Planner(spout).all()
    emitted = Emitted(spout)

    spout.emitter(Config(), context()).emit_batch(
        TransactionAttempt(1), metadata, emitted.collector
    )
    emitted.collector.close()
    assert [row[0] for row in emitted.rows] == list(range(1, 25_001))
    assert max(batch.num_rows for batch in emitted.batches) == 10_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": "other"}, "'other', which is not a field"),
        ({"key": "word"}, "'word', a string"),
        ({"settle_s": -1}, "settle_s"),
        ({"settle_s": float("nan")}, "settle_s"),
        ({"settle_s": True}, "settle_s"),
        ({"batch_rows_max": 0}, "batch_rows_max"),
        ({"start_after": "1"}, "start_after"),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused(table: Table, options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        table.spout(**options)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("wordz", r"no such table: wordz.*got 'wordz'.*with id, word"),
        ("(SELECT id FROM words)", "no such column"),
        ("(SELECT id, word FROM", "the query cannot be run"),
        ("words; DROP TABLE words", "no such table"),
    ],
)
def test_a_query_that_cannot_be_run_is_found_at_the_start(
    table: Table, query: str, message: str
) -> None:
    table.add(1)
    with pytest.raises(ConfigError, match=message):
        table.spout(query).coordinator(Config(), context())
    assert Planner(table.spout()).plan() is not None


def test_a_key_that_is_null_is_found_at_the_start(table: Table) -> None:
    table.run("INSERT INTO words VALUES (NULL, 'w', NULL, NULL)")
    with pytest.raises(ConfigError, match="'id' of 'words' is NULL"):
        table.spout().coordinator(Config(), context())


def test_a_key_that_is_null_and_came_later_is_found_by_the_next_plan(table: Table) -> None:
    table.add(1)
    planner = Planner(table.spout())
    planner.plan()
    table.run("INSERT INTO words VALUES (NULL, 'w', NULL, NULL)")
    table.add(2)

    with pytest.raises(EmitError, match="'id' of 'words' is NULL"):
        planner.plan()


def times(table: Table, kind: str, *keys: Any, **options: Any) -> QueryTransactionalSpout:
    """Make a table that keeps keys as they are given, and a spout that reads it by them."""
    table.run("CREATE TABLE times (at BLOB, id INTEGER)")
    came(table, *keys)
    return table.spout("times", key="at", fields=Fields(f"at {kind}, id long"), **options)


def came(table: Table, *keys: Any) -> None:
    for key in keys:
        table.run("INSERT INTO times SELECT ?, count(*) FROM times", key)


@pytest.mark.parametrize(
    ("kind", "keys", "got"),
    [
        ("timestamp", ["2026-01-31T10:00:00"], "'2026-01-31T10:00:00'"),
        ("timestamp", ["2026-01-31 10:00:00Z"], "Z'"),
        ("timestamp", ["2026-01-31 10:00:00.250000+00:00"], "00:00'"),
        ("timestamp_ntz", ["2026-01-31 10:00:00", "2026-01-31 10:00:00.5"], "00.5'"),
        ("timestamp", ["20260131 10:00:00"], "'20260131 10:00:00'"),
        ("timestamp", [1767312000], "1767312000"),
        ("date", ["2026-01-31", "2026-02-01 10:00:00", "2026-02-02"], "'2026-02-01 10:00:00'"),
        ("date", ["20260131"], "'20260131'"),
        ("long", ["9", "10", "11"], "'9'"),
        ("long", [1.5, 2, 3], "1.5"),
    ],
)
def test_keys_that_sqlite_would_compare_wrongly_are_found_at_the_start(
    table: Table, kind: str, keys: list[Any], got: str
) -> None:
    """They were passed over without a word, or planned for ever."""
    spout = times(table, kind, *keys)

    with pytest.raises(ConfigError, match=rf"'at' of 'times' .*; got .*{re.escape(got)}; expected"):
        spout.coordinator(Config(), context())


@pytest.mark.parametrize(
    ("kind", "first", "later"),
    [
        ("timestamp", "2026-01-31 10:00:00", ["2026-01-31T11:00:00"]),
        ("timestamp", "2026-01-31 10:00:00", ["2026-01-31T11:00:00", "2026-02-01 00:00:00"]),
        ("timestamp", "2026-01-31 10:00:00", ["2026-01-31 11:00:00Z", "2026-01-31 12:00:00"]),
        ("timestamp", "2026-01-31", [f"2026-02-0{d}" for d in ("1 11:00:00", "1 11:00:00+02", 2)]),
        ("timestamp", "2026-01-31 10:00:00", [1767312000]),
        ("date", "2026-01-31", ["2026-02-01 10:00:00", "2026-02-02"]),
        ("long", 9, ["10"]),
        ("long", 9, [9.5, 10]),
    ],
)
@pytest.mark.parametrize("rows_max", [1, 10])
def test_keys_that_sqlite_would_compare_wrongly_are_found_when_they_come(
    table: Table, kind: str, first: Any, later: list[Any], rows_max: int
) -> None:
    spout = times(table, kind, first, batch_rows_max=rows_max)
    planner = Planner(spout)
    assert [row[1] for row in emit(spout, planner.plan())] == [0]
    came(table, *later)

    with pytest.raises(EmitError, match=r"'at' of 'times' has a value that SQLite"):
        planner.all()


def test_all_forms_of_times_that_sqlite_and_sqlalchemy_write_are_in_their_order(
    table: Table,
) -> None:
    hour = "2026-01-31 10:00:00"
    keys = ["2026-01-31", hour, f"{hour}.250", f"{hour}.250001", "2026-02-01 00:00:00.000000"]
    spout = times(table, "timestamp", *keys, batch_rows_max=1)

    found = [emit(spout, batch) for batch in Planner(spout, 2).all()]

    assert [[row[1] for row in rows] for rows in found] == [[0], [1], [2], [3], [4]]


def test_a_row_that_goes_while_it_is_counted_ends_the_plan(table: Table) -> None:
    """A cut without rows, or one that does not grow, would be planned for ever."""
    table.add(1, 2)
    coordinator = table.spout(batch_rows_max=1).coordinator(Config(), context())
    assert coordinator.is_ready(1, LastBatch())

    def before(connection: Any, cursor: Any, statement: str, *more: Any) -> None:
        if "count(*)" in statement:
            table.run("DELETE FROM words")

    event.listen(coordinator._engine, "before_cursor_execute", before)

    with pytest.raises(SourceDataLost, match=r"got 0 rows after None up to 1, which is the key"):
        coordinator.initialize_transaction(1, None)


def test_a_decimal_with_more_digits_than_its_field_is_refused_as_emit_does(table: Table) -> None:
    """SQLAlchemy rounds what SQLite keeps in binary: 1.005 would be 1.00."""
    table.run("CREATE TABLE prices (id INTEGER, price NUMERIC)")
    for id, price in enumerate([1, 2.5, 0.1, 12345678.25, None]):
        table.run("INSERT INTO prices VALUES (?, ?)", id, price)
    spout = table.spout("prices", fields=Fields("id long, price decimal(10,2)"))
    planner = Planner(spout)
    found = [row[1] for row in emit(spout, planner.plan())]
    assert list(map(str, found)) == ["1.00", "2.50", "0.10", "12345678.25", "None"]
    table.run("INSERT INTO prices VALUES (9, 1.005)")

    with pytest.raises(EmitError, match=r"'price' of the row .* id 9 .* got 1.005 .*more digits"):
        emit(spout, planner.plan())


@pytest.mark.parametrize("key", ["at timestamp", "at timestamp_ntz"])
def test_a_start_with_a_zone_is_the_same_moment_in_utc(table: Table, key: str) -> None:
    table.add(1, 2, 3)
    zone = datetime.timezone(datetime.timedelta(hours=2))
    start = datetime.datetime(2026, 1, 1, 14, microsecond=2, tzinfo=zone)
    spout = table.spout(key="at", fields=Fields(f"id long, {key}"), start_after=start)

    assert [ids(spout, batch) for batch in Planner(spout).all()] == [[3]]


def changed(metadata: Any, **source: str) -> Any:
    """Return metadata as another query or key would have left it."""
    return metadata | {"source": metadata["source"] | source}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            {"key": "nr"},
            r"another key; got the key 'id'; expected 'nr', with .* another topology id",
        ),
        ({"query": "wordz"}, r"got the query 'words'; expected 'wordz'.*allow_change=\['source'\]"),
        ({"key": "nr", "query": "wordz"}, r"another key and another query; .* 'nr', 'wordz', with"),
    ],
)
def test_a_position_of_another_table_or_key_is_refused(
    table: Table, source: dict[str, str], message: str
) -> None:
    """It is a number as well, and rows up to it would be passed over."""
    table.add(1, 2)
    spout = table.spout(batch_rows_max=1)
    stored = changed(Planner(spout).plan(), **source)

    with pytest.raises(TopologyChanged, match=message):
        Planner(spout, stored=stored).plan()
    with pytest.raises(TopologyChanged, match=message):
        emit(spout, stored)


def test_a_position_goes_on_whose_change_is_allowed(table: Table) -> None:
    table.add(1, 2)
    spout = table.spout(batch_rows_max=1)
    stored = changed(Planner(spout).plan(), query="wordz")
    config = Config(allow_change=True)

    coordinator = spout.coordinator(config, context())
    assert coordinator.is_ready(2, LastBatch(1, stored))
    planned: Any = coordinator.initialize_transaction(2, stored)
    emitted = Emitted(spout)
    spout.emitter(config, context()).emit_batch(TransactionAttempt(1), stored, emitted.collector)
    emitted.collector.close()

    assert emitted.rows == [(1, "w1")]
    assert planned["source"] == {"key": "id", "query": "words"}
    assert ids(spout, planned) == [2]


def test_another_key_is_refused_even_if_changes_are_allowed(table: Table) -> None:
    table.add(1)
    spout = table.spout()
    stored = changed(Planner(spout).plan(), key="nr")
    coordinator = spout.coordinator(Config(allow_change=True), context())

    with pytest.raises(TopologyChanged, match="another key"):
        coordinator.is_ready(2, LastBatch(1, stored))


def test_a_query_may_be_written_in_other_lines_and_a_long_one_is_kept_as_a_digest(
    table: Table,
) -> None:
    table.add(1)
    query = "(SELECT id, word FROM words WHERE word <> '{}')"
    (stored,) = Planner(table.spout(query.format("x" * 5_000))).all()

    other_lines = query.format("x" * 5_000).replace(" ", "\n  ")
    assert Planner(table.spout(other_lines), stored=stored).plan() is None
    assert len(str(stored)) < 400
    with pytest.raises(TopologyChanged, match="another query"):
        Planner(table.spout(query.format("x" * 4_999)), stored=stored).plan()


def test_a_table_that_was_empty_and_is_filled_from_the_beginning_stops_the_run(
    table: Table,
) -> None:
    table.add(1, 2, 3)
    planner = Planner(table.spout())
    planner.plan()
    table.run("DELETE FROM words")
    assert planner.plan() is None
    table.add(1, 2)

    with pytest.raises(OffsetRegression, match=r"got 2 as the largest 'id'; .* keys after 3, up"):
        planner.plan()


def test_a_file_that_was_replaced_by_one_that_ends_earlier_stops_the_run(table: Table) -> None:
    """Rows that come then get keys that count as read."""
    table.add(1, 2)
    backup = table.path.read_bytes()
    table.add(3)
    planner = Planner(table.spout())
    planner.plan()
    assert planner.plan() is None
    replace_file(table, backup)

    with pytest.raises(OffsetRegression, match=r"was replaced by .* got 2 as .* after 3, up to"):
        planner.plan()


def test_a_file_that_was_replaced_by_one_with_further_rows_is_read_on(table: Table) -> None:
    table.add(1, 2)
    planner = Planner(table.spout())
    planner.plan()
    replace_file(table, table.path.read_bytes())
    table.add(3)

    assert ids(table.spout(), planner.plan()) == [3]


def replace_file(table: Table, content: bytes) -> None:
    """Move another file into the place of the table's."""
    other = table.path.with_name("other.db")
    other.write_bytes(content)
    other.replace(table.path)


def test_a_table_that_ends_before_its_position_is_told_once_and_read_on(
    table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows may be deleted after they were read, the last ones too."""
    table.add(1, 2, 3)
    planner = Planner(table.spout())
    stored = planner.plan()
    table.run("DELETE FROM words WHERE id = 3")
    planner = Planner(table.spout(), stored=stored)

    assert [planner.plan() for _ in range(3)] == [None] * 3
    (record,) = caplog.records
    assert "the largest 'id' of 'words' is 2, and rows up to 3 count as read" in record.message
    assert record.topology == "topology"  # type: ignore[attr-defined]
    table.add(4)
    assert ids(table.spout(), planner.plan()) == [4]


def test_a_table_that_was_emptied_goes_on_behind_its_position(
    table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    table.add(1, 2, 3)
    planner = Planner(table.spout())
    planner.plan()
    table.run("DELETE FROM words")
    assert planner.plan() is None
    table.add(4)

    assert ids(table.spout(), planner.plan()) == [4]
    assert not caplog.records


def test_no_error_shows_the_password() -> None:
    for url in ("postgresql://u:s3cret@127.0.0.1:1/db", "nothing://u:s3cret@host/db", "u:s3cret"):
        spout = QueryTransactionalSpout(url, "words", "id", FIELDS, settle_s=0)
        with pytest.raises((ConfigError, InfrastructureError)) as caught:
            spout.coordinator(Config(), context())
        assert "s3cret" not in str(caught.value) + repr(caught.value) + repr(vars(spout))


@pytest.mark.parametrize(
    ("kind", "fine", "bad"),
    [
        ("long", 12, 0.5),
        ("long", 12.0, "12 pieces"),
        ("decimal(10,2)", 2, 1.005),
        ("double", 2, "2.5 kg"),
        ("boolean", 1, 2),
        ("boolean", 0, "no"),
        ("binary", b"a", 5),
        ("string", "a", 5),
    ],
)
def test_a_value_that_does_not_fit_its_field_is_never_cut(
    table: Table, kind: str, fine: Any, bad: Any
) -> None:
    """SQLite keeps any value in any column, and drivers and Arrow would make some of them fit."""
    table.run("CREATE TABLE odd (id INTEGER, x BLOB)")
    spout = table.spout("odd", fields=Fields(f"id long, x {kind}"))
    planner = Planner(spout)
    table.run("INSERT INTO odd VALUES (1, ?)", fine)
    ((_, found),) = emit(spout, planner.plan())
    assert found == fine

    table.run("INSERT INTO odd VALUES (2, ?)", bad)
    told = r"'x' of the row of 'odd' with id 2 cannot be read; got .* \(.+\); expected"
    with pytest.raises(EmitError, match=told):
        emit(spout, planner.plan())


def test_a_time_with_parts_of_a_microsecond_is_never_cut(table: Table) -> None:
    table.run("CREATE TABLE times (id INTEGER, at TEXT)")
    spout = table.spout("times", fields=Fields("id long, at timestamp_ntz"))
    planner = Planner(spout)
    table.run("INSERT INTO times VALUES (1, '2026-01-31 12:00:00.123456000')")
    assert emit(spout, planner.plan()) == [(1, datetime.datetime(2026, 1, 31, 12, 0, 0, 123456))]

    table.run("INSERT INTO times VALUES (2, '2026-01-31 12:00:00.123456789')")
    with pytest.raises(EmitError, match="parts of a microsecond"):
        emit(spout, planner.plan())


def test_a_text_of_sqlite_that_is_not_utf_8_ends_the_run(table: Table) -> None:
    """The driver says it without a code, as it does of what passes."""
    spout = table.spout()
    table.run("INSERT INTO words (id, word) VALUES (1, CAST(x'ff' AS TEXT))")

    with pytest.raises(EmitError, match=r"decode to UTF-8 column 'word' .*; repair the row, or"):
        emit(spout, Planner(spout).plan())
