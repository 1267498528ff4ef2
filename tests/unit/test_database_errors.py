"""What each error of a database means: none that the installed drivers know is left out."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from txtopo.database_errors import (
    CLASSES,
    MYSQL_STATES,
    SQLITE,
    SQLSTATES,
    TEXTS,
    meaning_of,
    passes,
    state_of,
)
from txtopo.errors import ErrorMeaning

psycopg_errors = pytest.importorskip("psycopg.errors")
pymysql = pytest.importorskip("pymysql")

STATES = sorted(each for each in psycopg_errors._sqlcodes if len(each) == 5 and each[0] != "_")
PASSING = {ErrorMeaning.PASSES, ErrorMeaning.READ_ONLY, ErrorMeaning.CONTENDED}


class OfPostgresql(Exception):
    """An error of psycopg's with an SQLSTATE."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__("it says")
        self.sqlstate = sqlstate


def of_sqlite(name: str) -> Exception:
    error: Any = sqlite3.OperationalError("it says")
    error.sqlite_errorcode = getattr(sqlite3, name)
    return error  # type: ignore[no-any-return]


def test_each_class_of_sqlstates_is_in_the_table() -> None:
    codes = {each[:2] for each in STATES if each[:2].strip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")}

    assert codes - {each[:2] for each in SQLSTATES} == set()


def test_each_result_code_of_sqlite_is_in_the_table() -> None:
    """Extended codes have the primary one as their last byte, and stand for it."""
    primary = {
        name
        for name, code in vars(sqlite3).items()
        if isinstance(code, int)
        and 0 < code < 100
        and name.count("_") == 1
        and name.split("_")[1] in " ".join(SQLITE)
    }
    assert {each for each in SQLITE if each.count("_") == 1} <= primary
    codes = {getattr(sqlite3, each) for each in SQLITE if each.count("_") == 1}
    assert codes == set(range(1, 29))


@pytest.mark.parametrize("number", sorted(MYSQL_STATES))
def test_a_number_of_mariadb_is_a_known_state(number: int) -> None:
    text = "running with the --read-only option" if number == 1290 else "it says"
    error = pymysql.err.OperationalError(number, text)

    assert state_of(error) == MYSQL_STATES[number]
    state = MYSQL_STATES[number]
    assert state in SQLSTATES or state[:2] in SQLSTATES


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_classes_decide_last(name: str) -> None:
    kind = type(name, (Exception,), {})

    assert meaning_of(kind("it says"), "it says") is CLASSES[name]


@pytest.mark.parametrize("state", sorted(SQLSTATES))
def test_a_reader_waits_for_a_server_and_for_a_lock(state: str) -> None:
    """What a statement, a right or a value is the cause of would come again."""
    assert passes(OfPostgresql(state.ljust(5, "0"))) is (SQLSTATES[state] in PASSING)


@pytest.mark.parametrize(
    "state", ["25006", "25P03", "08006", "26000", "40001", "53100", "55P03", "57P03", "XX000"]
)
def test_what_the_server_or_a_lock_is_the_cause_of_passes(state: str) -> None:
    assert passes(OfPostgresql(state))


@pytest.mark.parametrize("state", ["42501", "42P01", "42703", "28P01", "3D000", "58030", "XX001"])
def test_what_the_server_says_of_rights_names_and_disks_lasts(state: str) -> None:
    assert not passes(OfPostgresql(state))


@pytest.mark.parametrize(
    "number",
    [
        *(1044, 1045, 1049, 1130, 1131, 1142, 1143, 1227, 1251, 1370, 1698, 1820, 1862, 3118, 4151),
        *(1051, 1052, 1054, 1064, 1072, 1109, 1146, 1176, 1193, 1305, 1356),
        *(1015, 1016, 1017, 1024, 1030, 1034, 1035, 1194, 1195, 1712, 1877, 1932),
        *(2049, 2059, 2061),
    ],
)
def test_what_mariadb_says_of_the_same_lasts(number: int) -> None:
    assert not passes(pymysql.err.OperationalError(number, "it says"))


@pytest.mark.parametrize("number", [1040, 1205, 1213, 1053, 2003, 2006, 2013, 9999])
def test_what_passes_in_mariadb(number: int) -> None:
    assert passes(pymysql.err.OperationalError(number, "it says"))


@pytest.mark.parametrize("text", sorted(TEXTS))
def test_words_decide_where_there_is_no_code(text: str) -> None:
    assert passes(RuntimeError(text)) is (TEXTS[text] in PASSING)
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
