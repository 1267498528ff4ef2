"""Which errors of a database a query waits for."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from txtopo.spouts.query import LASTING_MYSQL, LASTING_TEXTS, PASSING_SQLSTATES, passes

pymysql = pytest.importorskip("pymysql")


class Said(Exception):
    def __init__(self, sqlstate: str) -> None:
        self.sqlstate = sqlstate


def of_sqlite(name: str) -> Exception:
    error: Any = sqlite3.OperationalError("it says")
    error.sqlite_errorcode = getattr(sqlite3, name)
    return error  # type: ignore[no-any-return]


@pytest.mark.parametrize("state", [*PASSING_SQLSTATES, "57P03", "08006", "53100", "40001"])
def test_what_the_server_or_a_lock_is_the_cause_of_passes(state: str) -> None:
    assert passes(Said(state))


@pytest.mark.parametrize("state", ["42501", "42P01", "42703", "28P01", "3D000", "58030", "XX001"])
def test_what_the_server_says_of_rights_names_and_disks_lasts(state: str) -> None:
    assert not passes(Said(state))


@pytest.mark.parametrize("number", sorted(LASTING_MYSQL))
def test_what_mariadb_says_of_the_same_lasts(number: int) -> None:
    assert not passes(pymysql.err.OperationalError(number, "it says"))


@pytest.mark.parametrize("number", [1040, 1205, 1213, 1053, 2003, 2006, 2013, 9999])
def test_what_passes_in_mariadb(number: int) -> None:
    assert passes(pymysql.err.OperationalError(number, "it says"))


@pytest.mark.parametrize("text", LASTING_TEXTS)
def test_words_decide_where_there_is_no_code(text: str) -> None:
    assert not passes(RuntimeError(text))
    assert passes(RuntimeError("could not translate host name"))


@pytest.mark.parametrize(
    ("name", "passing"),
    [
        ("SQLITE_BUSY", True),
        ("SQLITE_LOCKED", True),
        ("SQLITE_FULL", True),
        ("SQLITE_IOERR", False),
        ("SQLITE_CANTOPEN", False),
        ("SQLITE_ERROR", False),
        ("SQLITE_CORRUPT", False),
        ("SQLITE_NOTADB", False),
        ("SQLITE_READONLY", False),
    ],
)
def test_what_sqlite_says(name: str, passing: bool) -> None:
    assert passes(of_sqlite(name)) is passing
