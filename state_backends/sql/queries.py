"""Queries of users: one SELECT in a read-only transaction, with limits on rows and time.

A read-only transaction is not enough. In PostgreSQL it may still run ``COPY … TO PROGRAM``,
in MariaDB ``SET GLOBAL`` and ``SELECT … INTO OUTFILE``, and SQLite would attach, and so create,
another file. So each database has a second guard, see ``SqlDialect.read_only``, and a statement has
to begin like a query. What a function does outside the transaction (one of an extension, for
example) is limited only by the rights of the user in the URL.

The connection of a query is not used again, since a statement may have changed its settings.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from state_backends.sql.dialect import SqlDialect
from state_backends.sql.failures import translated
from txtopo.clock import now
from txtopo.errors import StateUsageError, TxtopoError
from txtopo.plugins.stores import QueryRows

BYTES_MAX = 2**26
"""An answer is for a person: 64 MiB of values at most, also within one value."""

_ROWS_AT_A_TIME = 10

_NO_WORD = re.compile(r"(?:\s+|--[^\n]*(?:\n|$)|/\*(?!!|M!).*?\*/|\()*", re.DOTALL)
_QUERIES = ("SELECT", "WITH", "VALUES")


def check_query(statement: str) -> None:
    """Check that a statement begins like a query.

    Raises:
        StateUsageError: It does not.
    """
    if "\0" in statement:
        raise StateUsageError(
            "a query contains a NUL character, which databases treat as its end; got "
            f"{statement!r:.100}; remove it",
            got=statement[:100],
        )
    if first_word(statement).upper() not in _QUERIES:
        raise StateUsageError(
            f"a query can only read; got {statement.strip()!r:.100}; expected one statement that "
            "begins with SELECT, WITH or VALUES",
            got=statement.strip()[:100],
        )


def first_word(statement: str) -> str:
    """Return the first word of a statement, after comments and brackets; empty for none."""
    start = _NO_WORD.match(statement)
    word = re.match(r"\w*", statement[start.end() if start else 0 :])
    return word[0] if word else ""


def query_rows(
    connection: sa.Connection, dialect: SqlDialect, statement: str, rows_max: int, timeout_s: float
) -> QueryRows:
    """Run a query and return its rows. Errors are those of the driver.

    Raises:
        StateUsageError: It takes too long, or its answer is too large.
    """
    deadline = now() + timeout_s
    options = {"stream_results": True, "max_row_buffer": _ROWS_AT_A_TIME, "no_parameters": True}
    connection.execution_options(**dialect.read_options())
    with dialect.read_only(connection, statement, timeout_s):
        result = connection.exec_driver_sql(statement, execution_options=options)
        columns = tuple(result.keys())
        rows: list[tuple[Any, ...]] = []
        room = BYTES_MAX
        for row in result:
            if len(rows) == rows_max:
                return QueryRows(columns, tuple(rows), complete=False)
            rows.append(tuple(row))
            room -= _bytes(rows[-1])
            if room < 0:
                raise StateUsageError(
                    f"the answer to the query is too large; expected at most {BYTES_MAX:,} bytes; "
                    "select less, or export the state",
                    limit=BYTES_MAX,
                )
            if now() > deadline:
                raise too_long(timeout_s)
    return QueryRows(columns, tuple(rows), complete=True)


def refused(error: Exception, label: str, timeout_s: float) -> TxtopoError:
    """Return the error for an error of the database while it answered a query."""
    cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
    if _timed_out(cause):
        return too_long(timeout_s)
    lost = isinstance(error, sa.exc.DBAPIError) and error.connection_invalidated
    if lost:
        return translated(error, label)
    return StateUsageError(
        f"the query is refused: {_text(cause)}; nothing was changed", store=label, got=_text(cause)
    )


def too_long(timeout_s: float) -> StateUsageError:
    """Return the error for a query that takes too long."""
    return StateUsageError(
        f"the query took longer than {timeout_s:g} s and was stopped; nothing was changed; select "
        "less, or allow more time",
        timeout_s=timeout_s,
    )


def _text(cause: BaseException | None) -> str:
    """Return the database's message, without the statement that it repeats."""
    told = getattr(cause, "diag", None)
    if told is not None and told.message_primary:
        return "; ".join(each for each in (told.message_primary, told.message_hint) if each)
    args = cause.args if cause is not None else ()
    return str(args[-1] if args else cause).strip().replace("\n", "; ").replace("\t", " ")


_MARIADB_TIMEOUTS = (1969, 3024)


def _timed_out(cause: BaseException | None) -> bool:
    if getattr(cause, "sqlstate", None) == "57014":
        return True
    if getattr(cause, "sqlite_errorname", None) == "SQLITE_INTERRUPT":
        return True
    return bool(cause and cause.args and cause.args[0] in _MARIADB_TIMEOUTS)


def _bytes(row: Iterable[object]) -> int:
    return sum(sys.getsizeof(value) for value in row)
