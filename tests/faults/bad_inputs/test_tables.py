"""A view, or another unsuitable object, with the name of a state's table is never written to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.bad_inputs.by_hand import statements, table_of
from tests.faults.bad_inputs.evidence import KEPT, nothing_committed
from tests.faults.bad_inputs.numbers import bad_input
from tests.faults.bad_inputs.topologies import keeping
from tests.harness.runs import Storage, run_to_end
from tests.harness.servers.postgresql import PostgresServer
from txtopo.errors import SchemaDrift

ROWS = [["a", 1], ["b", 2]]


@bad_input(54)
@pytest.mark.parametrize(
    ("key", "match"),
    [
        ("", r"expected .* with the key \['key'\]; the table has .* with the key \[\]"),
        (
            "more TEXT, PRIMARY KEY (key)",
            "does not have the columns that the state declares; .*'more': 'TEXT'",
        ),
    ],
    ids=["no primary key", "another column"],
)
def test_a_table_of_another_shape_is_refused(database: Storage, key: str, match: str) -> None:
    run_to_end(keeping(database, ROWS[:1]), database)
    strict = " STRICT" if database.url.startswith("sqlite") else ""
    made = table_of(database, key) + strict
    statements(database, f"DROP VIEW {KEPT}_view", f"DROP TABLE {KEPT}", made)

    with (
        nothing_committed(database),
        pytest.raises(SchemaDrift, match=f"{match}.*nothing was written; was it changed by hand"),
    ):
        run_to_end(keeping(database, ROWS), database)


@bad_input(55)
def test_a_view_is_no_place_for_a_state(database: Storage) -> None:
    run_to_end(keeping(database, ROWS[:1]), database)
    moved = f"ALTER TABLE {KEPT} RENAME TO moved"
    statements(
        database, f"DROP VIEW {KEPT}_view", moved, f"CREATE VIEW {KEPT} AS SELECT * FROM moved"
    )

    unfit(database, "it is a view")


@bad_input(55)
@pytest.mark.parametrize(
    ("made", "match"),
    [
        ("{table} PARTITION BY HASH (key)", "it is a partitioned table"),
        ("CREATE UNLOGGED {rest}", "it is UNLOGGED, so a crash of the server empties it"),
    ],
)
def test_another_kind_of_table_is_refused(
    postgresql: PostgresServer, made: str, match: str
) -> None:
    storage = Storage(postgresql.create_schema(f"kinds{len(made)}"))
    run_to_end(keeping(storage, ROWS[:1]), storage)
    table = table_of(storage)
    text = made.format(table=table, rest=table.removeprefix("CREATE "))
    statements(storage, f"DROP VIEW {KEPT}_view", f"DROP TABLE {KEPT}", text)

    unfit(storage, match)


@bad_input(31)
def test_a_table_that_takes_different_keys_for_equal_is_refused(database: Storage) -> None:
    run_to_end(keeping(database, ROWS[:1]), database)
    if database.url.startswith("sqlite"):
        table = table_of(database).replace("key TEXT", "key TEXT COLLATE NOCASE")
        made = [f"DROP VIEW {KEPT}_view", f"DROP TABLE {KEPT}", f"{table} STRICT"]
        match = "it compares keys by 'NOCASE', not as bytes, so different keys are equal"
    elif database.url.startswith("mariadb"):
        made = [f"ALTER TABLE {KEPT} MODIFY `key` VARCHAR(768) COLLATE utf8mb4_bin NOT NULL"]
        match = "it compares keys by the collation 'utf8mb4_bin', under which different keys are .*"
    else:
        made = [
            "CREATE COLLATION anycase "
            "(provider=icu, locale='und-u-ks-level2', deterministic=false)",
            f"DROP VIEW {KEPT}_view",
            f"ALTER TABLE {KEPT} ALTER COLUMN key TYPE text COLLATE anycase",
        ]
        match = "it compares keys by the collation 'anycase', not as bytes"
    statements(database, *made)

    unfit(database, match)


@bad_input(28)
@pytest.mark.integration
def test_a_table_that_would_make_floats_of_large_numbers_is_refused(tmp_path: Path) -> None:
    storage = Storage.in_sqlite(tmp_path)
    run_to_end(keeping(storage, ROWS[:1]), storage)
    statements(storage, f"DROP VIEW {KEPT}_view", f"DROP TABLE {KEPT}", table_of(storage))

    unfit(storage, "it is not STRICT, so a whole number beyond 64 bits would become a float")


def unfit(storage: Storage, match: str) -> None:
    """Check that a table that was put where the state's was is not written to."""
    sentence = (
        f"cannot be stored in the object of that name: {match}; expected the table that was created"
    )
    with nothing_committed(storage), pytest.raises(SchemaDrift, match=sentence):
        run_to_end(keeping(storage, ROWS), storage)
