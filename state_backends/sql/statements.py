"""The statements of users that are executed in the transaction of a txid: what is refused, and why.

Nothing may end the transaction, or part of what a txid wrote would be there without the rest. So a
statement is one that changes rows, by its first word, and nothing follows it. Definitions of tables
are refused as well: in MariaDB they commit. What gets through in spite of that is noticed before
COMMIT, by a savepoint that was set before the first statement.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql import visitors

from state_backends.sql.failures import Duplicate, translated
from state_backends.sql.queries import first_word
from txtopo.database_errors import SQLSTATES, state_of
from txtopo.errors import (
    InfrastructureError,
    PromiseError,
    StatementFailed,
    StateUsageError,
    TxtopoError,
)
from txtopo.plugins.stores import BOUND, Statement, StoredUndo, undos_of

_WORDS = ("INSERT", "UPDATE", "DELETE", "MERGE", "REPLACE", "SELECT", "WITH", "NOTIFY")

_QUOTED = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/""", re.DOTALL
)

# SQLAlchemy takes no word before a colon for a parameter.
_CAST = re.compile(r"(?<![:\w\\]):(\w+)::")

_FAILURES = (sa.exc.SQLAlchemyError, UnicodeError, OverflowError)

_SAVEPOINT, _TRIAL = "txtopo_statements", "txtopo_trial"

# A program that writes values into its texts has ever new ones.
_TRIED_MAX = 1_000

_REPAIR = "fix the statement or its values, and start again"


def check_statement(statement: Statement, label: str) -> None:
    """Check a statement, its parameters and its undo.

    Args:
        statement: The statement.
        label: The state, for messages.

    Raises:
        StateUsageError: It is refused; repair the committer.
    """
    text = statement.statement
    names = _checked_text(text, label) if isinstance(text, str) else _names_of_built(text, label)
    of_undo = frozenset[str]()
    if statement.undo is not None:
        of_undo = _checked_text(statement.undo, label)
    if not statement.parameters:
        return
    given = statement.parameters[0].keys()
    shown = ", ".join(sorted(given)) or "none"
    if missing := sorted((names | of_undo) - given - {*BOUND}):
        raise StateUsageError(
            f"a statement of {label} names parameters without values; got {shown}; expected "
            f"{', '.join(missing)} as well",
            store=label,
            missing=missing,
        )
    if isinstance(text, str) and (unused := sorted(given - names - of_undo)):
        raise StateUsageError(
            f"a statement of {label} was given parameters that neither it nor its undo names; got "
            f"{', '.join(unused)}; expected some of {', '.join(sorted(names)) or 'none'}",
            store=label,
            got=unused,
        )
    for parameters in statement.parameters:
        if parameters.keys() != given:
            # SQLAlchemy takes the columns of an INSERT from the first set.
            raise StateUsageError(
                f"the sets in many of a statement of {label} have different names; got "
                f"{', '.join(sorted(parameters)) or 'none'} after {shown}; expected the same names "
                "in each, perhaps with None",
                store=label,
            )


@lru_cache(maxsize=256)
def _checked_text(text: str, label: str) -> frozenset[str]:
    """Return the names of the parameters of a text that may be executed."""
    rest = _QUOTED.sub(" ", text).strip().removesuffix(";")
    word = first_word(text).upper()
    if word not in _WORDS or ";" in rest or "\0" in text:
        raise _refused(label, text.strip())
    if (cast := _CAST.search(rest)) is not None:
        name = cast[1]
        raise StateUsageError(
            f"a statement of {label} has ':{name}::', which is not a parameter; got "
            f"{text!r:.200}; expected CAST(:{name} AS …), or (:{name})::…",
            store=label,
            got=cast[0],
        )
    return names_of(text)


def _refused(label: str, got: str) -> StateUsageError:
    return StateUsageError(
        f"{label} does not execute {got!r:.200}; expected one statement that begins with "
        f"{', '.join(_WORDS)}; nothing may end the transaction of a txid or define tables",
        store=label,
        got=f"{got!r:.200}",
        expected=_WORDS,
    )


def _names_of_built(statement: object, label: str) -> frozenset[str]:
    """Return the names of the parameters that a statement of SQLAlchemy needs."""
    if isinstance(statement, sa.TextualSelect):
        return _names_of_built(statement.element, label)
    if isinstance(statement, sa.TextClause):
        _checked_text(statement.text, label)
        return _needed(statement)
    if not isinstance(statement, sa.sql.dml.UpdateBase | sa.sql.selectable.SelectBase):
        raise _refused(label, f"{type(statement).__name__}: {_text_of(statement)}")
    return _needed(statement)


def _needed(statement: sa.ClauseElement) -> frozenset[str]:
    found = (each for each in visitors.iterate(statement) if isinstance(each, sa.BindParameter))
    return frozenset(str(each.key) for each in found if each.required)


@lru_cache(maxsize=256)
def names_of(text: str) -> frozenset[str]:
    """Return the names of the parameters of a text."""
    return _needed(_built(text))


@lru_cache(maxsize=256)
def _built(text: str) -> sa.TextClause:
    return sa.text(text)


def execute_statements(
    connection: sa.Connection,
    statements: Sequence[Statement],
    parameter: Callable[[Any], Any],
    label: str,
    tried: set[str],
) -> None:
    """Execute statements, in their order.

    If a text is an undo for the first time, all undos are executed as in a redo, and rolled back.
    So one that the database refuses is found before it is stored.

    Args:
        connection: In the transaction of the txid.
        statements: The statements.
        parameter: Returns a value as the driver takes it in a text.
        label: The states of the transaction, for messages.
        tried: The texts of undos that the database has executed; more are added.

    Raises:
        StatementFailed: The database refuses one, or its undo.
        PromiseError: One has ended the transaction.
    """
    if not statements:
        return
    with _in_one_transaction(connection, label):
        for each in sorted(statements, key=lambda one: one.order):
            text = built = each.statement
            sets: Sequence[Mapping[str, object]] = each.parameters
            if isinstance(text, str):
                built, names = _built(text), names_of(text)
                sets = [_as_taken(given, parameter) for given in sets]
            else:
                names = _needed(text)
            bound = each.bound(names)
            sets = [{**given, **bound} for given in sets]
            try:
                connection.execute(built, sets if len(sets) > 1 else sets[0])
            except _FAILURES as error:
                txid, by = each.attempt.txid, each.component
                raise _failure_of(error, label, _text_of(text), txid, by) from error
        texts = {each.undo for each in statements if each.undo is not None}
        if not texts <= tried:
            undos = [each for each in undos_of(statements, names_of) if each.text is not None]
            connection.exec_driver_sql(f"SAVEPOINT {_TRIAL}")
            _execute_undos(connection, undos, parameter, label, "the undo of a statement", _REPAIR)
            connection.exec_driver_sql(f"ROLLBACK TO SAVEPOINT {_TRIAL}")
            if len(tried) > _TRIED_MAX:
                tried.clear()
            tried |= texts


def execute_undos(
    connection: sa.Connection,
    undos: Sequence[StoredUndo],
    parameter: Callable[[Any], Any],
    label: str,
) -> None:
    """Execute stored undos, the last one first; arguments and errors are the same."""
    if not undos:
        return
    remedy = (
        "it was stored with the txid, so fixing the program does not change it; change the "
        "tables so that it can be executed, and do the same again"
    )
    with _in_one_transaction(connection, label):
        _execute_undos(connection, undos, parameter, label, "the stored undo", remedy)


def _execute_undos(
    connection: sa.Connection,
    undos: Sequence[StoredUndo],
    parameter: Callable[[Any], Any],
    label: str,
    what: str,
    remedy: str,
) -> None:
    for each in sorted(undos, key=lambda one: one.order, reverse=True):
        assert each.text is not None
        for given in reversed(each.parameters):
            try:
                connection.execute(_built(each.text), _as_taken(given, parameter))
            except _FAILURES as error:
                txid, text = each.order[0], each.text
                raise _failure_of(error, label, text, txid, what=what, remedy=remedy) from error


def is_of_user(found: TxtopoError) -> bool:
    """Return whether a statement would meet an error each time, so that the user is to blame."""
    return isinstance(found, Duplicate) or not isinstance(found, InfrastructureError)


def _failure_of(
    error: Exception,
    label: str,
    statement: str,
    txid: int,
    component: str = "",
    *,
    what: str = "a statement",
    remedy: str = _REPAIR,
) -> TxtopoError:
    found = translated(error, label)
    # An error of SQLAlchemy alone has not come from the database.
    if isinstance(error, sa.exc.DBAPIError) and not (is_of_user(found) or _is_own(error)):
        return found
    got = found.got or str(error)
    return StatementFailed(
        f"{label} refuses {what} of txid {txid}: {got}; nothing of the batch was written; got "
        f"{statement!r:.300}; {remedy}",
        store=label,
        txid=txid,
        component=component,
        statement=statement,
        got=got,
    )


def _is_own(error: sa.exc.DBAPIError) -> bool:
    """Return whether a function of the user may have chosen the SQLSTATE, which means nothing."""
    state = state_of(error.orig)
    return state == "55000" or (bool(state) and not {state, state[:2]} & SQLSTATES.keys())


def _text_of(statement: object) -> str:
    """Return a statement as text. One of SQLAlchemy that is wrong may have none."""
    try:
        return str(statement)
    except _FAILURES:
        return f"a {type(statement).__name__} of SQLAlchemy"


def _as_taken(given: Mapping[str, object], parameter: Callable[[Any], Any]) -> dict[str, object]:
    return {name: parameter(value) for name, value in given.items()}


@contextmanager
def _in_one_transaction(connection: sa.Connection, label: str) -> Iterator[None]:
    """Check at the end that the statements in between have not ended the transaction."""
    connection.exec_driver_sql(f"SAVEPOINT {_SAVEPOINT}")
    yield
    try:
        connection.exec_driver_sql(f"RELEASE SAVEPOINT {_SAVEPOINT}")
    except sa.exc.DBAPIError as error:
        if error.connection_invalidated:
            raise
        raise PromiseError(
            f"a statement has ended the transaction of {label}: {error.orig}; expected no "
            "statement that commits or rolls back; its writes remain, perhaps without the rest "
            "of their txid; check the tables and the ledger",
            store=label,
            got=str(error.orig),
        ) from error
