"""What each error of a database becomes when a store raises it."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from state_backends.sql.failures import Duplicate, stuck, translated
from txtopo.database_errors import SQLITE, SQLSTATES, TEXTS, meaning_of
from txtopo.errors import (
    AuthError,
    ErrorMeaning,
    InfrastructureError,
    PromiseError,
    SchemaDrift,
    StoreContended,
    StoreDamagedError,
    StoreUnavailable,
    TxtopoError,
    UnknownOutcomeError,
    ValueRefusedError,
)
from txtopo.state import open_state
from txtopo.testing.conformance.driver import StateDriver

pymysql = pytest.importorskip("pymysql")

KINDS: dict[ErrorMeaning, type[TxtopoError]] = {
    ErrorMeaning.PASSES: StoreUnavailable,
    ErrorMeaning.READ_ONLY: StoreUnavailable,
    ErrorMeaning.CONTENDED: StoreContended,
    ErrorMeaning.DUPLICATE: Duplicate,
    ErrorMeaning.VALUE: ValueRefusedError,
    ErrorMeaning.DRIFT: SchemaDrift,
    ErrorMeaning.REFUSED: AuthError,
    ErrorMeaning.DAMAGED: StoreDamagedError,
    ErrorMeaning.LASTS: PromiseError,
}


class Said(Exception):
    """An error of psycopg's with an SQLSTATE."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__("it says")
        self.sqlstate = sqlstate


@pytest.mark.parametrize("state", sorted(SQLSTATES))
def test_an_sqlstate_becomes_what_the_table_says(state: str) -> None:
    error = Said(state.ljust(5, "0"))

    found = translated(error, "state 's'")

    assert type(found) is KINDS[SQLSTATES[state]]
    assert isinstance(found, InfrastructureError) is not isinstance(found, PromiseError)


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("25006", StoreUnavailable),  # failed over
        ("57P01", StoreUnavailable),  # stopped
        ("57P03", StoreUnavailable),  # starting up
        ("53100", StoreUnavailable),  # disk full
        ("53300", StoreUnavailable),  # too many connections
        ("08006", StoreUnavailable),
        ("XX000", StoreUnavailable),
        ("40001", StoreContended),
        ("40P01", StoreContended),
        ("23505", Duplicate),
        ("42501", AuthError),
        ("28P01", AuthError),
        ("42P01", SchemaDrift),
        ("42703", SchemaDrift),
        ("22003", ValueRefusedError),
        ("23502", ValueRefusedError),
        ("58030", PromiseError),  # the disk fails
        ("0A000", PromiseError),
        ("42601", PromiseError),
        ("XX001", StoreDamagedError),
    ],
)
@pytest.mark.rule("txtopo.database_errors", "Rules", 1)
def test_what_is_known_to_pass_or_to_last_is_sorted_so(state: str, kind: type[TxtopoError]) -> None:
    assert type(translated(Said(state), "state 's'")) is kind


@pytest.mark.parametrize("name", sorted(SQLITE))
def test_a_result_code_of_sqlite_becomes_what_the_table_says(name: str) -> None:
    error: Any = sqlite3.OperationalError("it says")
    error.sqlite_errorcode = getattr(sqlite3, name)

    assert type(translated(error, "state 's'")) is KINDS[SQLITE[name]]


@pytest.mark.parametrize("text", sorted(TEXTS))
@pytest.mark.rule("txtopo.database_errors", "Rules", 2)
def test_words_decide_where_there_is_no_code(text: str) -> None:
    error = sa.exc.OperationalError("SELECT", None, RuntimeError(f"so: {text} here"))

    assert type(translated(error, "state 's'")) is KINDS[TEXTS[text]]
    assert meaning_of(Said("08006"), text) is ErrorMeaning.PASSES


@pytest.mark.parametrize(
    ("number", "text", "kind"),
    [
        (1026, 'Error writing file "x" (Errcode: 28 "No space left on device")', StoreUnavailable),
        (1026, 'Error writing file "x" (Errcode: 5 "Input/output error")', PromiseError),
        (1030, "Got error 28 from storage engine", StoreUnavailable),
        (1030, "Got error 127 from storage engine", PromiseError),
        (1290, "running with the --read-only option", StoreUnavailable),
        (1290, "running with the --secure-file-priv option", PromiseError),
        (1036, "Table 't' is read only", AuthError),
        (1040, "Too many connections", StoreUnavailable),
        (1047, "WSREP has not yet prepared node for application use", StoreUnavailable),
        (1062, "Duplicate entry", Duplicate),
        (1142, "INSERT command denied", AuthError),
        (1146, "Table doesn't exist", SchemaDrift),
        (2013, "Lost connection", StoreUnavailable),
        (9999, "of next year", StoreUnavailable),
    ],
)
def test_what_mariadb_says_is_sorted(number: int, text: str, kind: type[TxtopoError]) -> None:
    assert type(translated(pymysql.err.OperationalError(number, text), "state 's'")) is kind


@pytest.mark.rule("state_backends.sql.backend", "Rules", 2)
@pytest.mark.rule("txtopo.database_errors", "Rules", 3)
def test_an_error_that_nothing_is_known_of_passes_and_leaves_a_commit_open() -> None:
    assert type(translated(RuntimeError("?"), "state 's'")) is StoreUnavailable
    found = translated(RuntimeError("?"), "state 's'", during_commit=True)
    assert type(found) is UnknownOutcomeError
    lasting = translated(Said("58030"), "state 's'", during_commit=True)
    assert "the ledger will show at the next start whether it was written" in str(lasting)


@pytest.mark.rule("state_backends.sql.backend", "Rules", 3)
def test_a_row_that_stays_in_the_way_ends_the_run_and_a_lock_does_not() -> None:
    """Who makes a row at the same time is seen at the next try; bookkeeping by hand is not."""
    assert type(stuck(Duplicate("a row of this key"), 3)) is PromiseError
    assert type(stuck(StoreContended("locked"), 3)) is StoreUnavailable


@pytest.mark.parametrize("spoil", ["missing", "folder"])
def test_a_database_that_cannot_be_opened_ends_the_run(tmp_path: Path, spoil: str) -> None:
    folder = tmp_path / "of"
    if spoil == "folder":
        (folder / "x.db").mkdir(parents=True)

    with pytest.raises(PromiseError, match=r"unable to open database file.*; does its folder"):
        StateDriver(open_state(f"sqlite:///{folder}/x.db", table="counts"))
