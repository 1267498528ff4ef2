"""Creates the tables of a state, and checks existing ones, including a user's own.

In MariaDB each DDL statement ends the transaction. So the row of the ledger is created first, and
the other objects are created as long as no txid has been written.

Rules for a user's own table
----------------------------
1. Its rows have no txid, since they are older than the first one. A batch that changes such a row
   stores 0 as the txid of its previous values, so an undo restores the row.
2. The key columns are one unique key, under which different keys are different. No other unique key
   may reject a new row.
3. Columns that are neither key, value nor bookkeeping are the user's. A new row leaves them to
   their defaults.
4. Everything is checked before anything is added.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import ReflectedColumn
from sqlalchemy.schema import CreateColumn

from state_backends.sql.dialect import CreateView, SqlDialect, ledger_of
from state_backends.sql.name_clashes import check_ledger_name, check_objects, check_other_states
from state_backends.sql.names import LEDGER, RANGE_INDEX
from txtopo.errors import SchemaDrift
from txtopo.plugins.stores import (
    LEDGER_SCHEMA,
    StateTable,
    declaration,
    listed_states,
    mean_names,
    parsed_declaration,
    retired_of,
)


def create_tables(
    connection: sa.Connection,
    dialect: SqlDialect,
    label: str,
    is_to_change: Callable[[sa.Connection, str], bool],
) -> None:
    """Create the missing tables and the view, and check the others.

    Args:
        connection: In the transaction that creates the state.
        dialect: The dialect of the state.
        label: The state and its store, for messages.
        is_to_change: Returns whether a table with this declaration has to be changed first, or
            raises ``SchemaDrift`` if it cannot be.

    Raises:
        SchemaDrift: An existing table does not fit the state.
        TopologyError: Such a database cannot keep the state.
    """
    dialect.check(dialect.state)
    with dialect.creating(connection):
        check_ledger_name(connection, dialect, label)
        if not sa.inspect(connection).has_table(LEDGER):
            dialect.ledger.create(connection)
        ledger, state = dialect.ledger, dialect.state
        row = connection.execute(sa.select(ledger).where(ledger.c.state == state.name)).first()
        if row is not None and is_to_change(connection, row._mapping["declaration"]):
            return  # the next claim changes the table, if it may
        held = ledger_of(row)
        txid, known = 0 if held is None else held.txid, row is not None
        check_other_states(connection, dialect, label)
        there, missing = True, []
        if state.origin == "made":
            retired = () if row is None else retired_of(row._mapping["declaration"])
            there = _made(connection, dialect, label, retired, known=known, txid=txid)
        else:
            missing = check_existing(connection, dialect, label, known=known, txid=txid)
        check_objects(connection, dialect, label, known=known)
        _register(connection, dialect, known=known)
        add_columns(connection, dialect, missing)
        if not there:
            dialect.columns.table.create(connection)
        _complete(connection, dialect, label, txid)


def stored_states(connection: sa.Connection, dialect: SqlDialect) -> tuple[StateTable, ...]:
    """Return the states that the ledger lists."""
    if not sa.inspect(connection).has_table(LEDGER):
        return ()
    ledger = dialect.ledger
    rows = connection.execute(sa.select(ledger.c.state, ledger.c.declaration))
    own = dialect.state.name
    return listed_states(
        own, {name: partial(parsed_declaration, name, text) for name, text in rows}
    )


def _made(
    connection: sa.Connection,
    dialect: SqlDialect,
    label: str,
    retired: Sequence[str],
    *,
    known: bool,
    txid: int,
) -> bool:
    """Return whether the table exists, created by this module."""
    there = sa.inspect(connection).has_table(dialect.state.name)
    if there and not known:
        raise SchemaDrift(
            f"{label}: a table of this name already exists, but {LEDGER} does not list it; "
            "expected both or neither; give the state another table, or use create=False if the "
            "table is your own",
            state=dialect.state.name,
        )
    if not there and txid:
        raise SchemaDrift(
            f"{label}: its table is missing, but its ledger holds txid {txid}; expected both or "
            "neither; restore the table, or delete its row in the ledger",
            state=dialect.state.name,
            ledger_txid=txid,
        )
    if there:
        _check_flaw(connection, dialect, label)
        check_columns(connection, dialect, label, retired)
    return there


def replace_view(connection: sa.Connection, dialect: SqlDialect) -> None:
    """Replace the view, if there is one, since its table has changed."""
    name = dialect.names.view
    if name in sa.inspect(connection).get_view_names():
        quoted = connection.dialect.identifier_preparer.quote(name)
        connection.exec_driver_sql(f"DROP VIEW {quoted}")
        connection.execute(CreateView(dialect, mean_names(dialect.state)))


def _complete(connection: sa.Connection, dialect: SqlDialect, label: str, txid: int) -> None:
    """Create the objects of the state other than its table."""
    _index_range(connection, dialect)
    listing = dialect.listing()
    if txid:
        if listing is not None and not sa.inspect(connection).has_table(listing.name):
            raise SchemaDrift(
                f"{label}: its list of keys, {listing.name!r}, is missing, but its ledger holds "
                f"txid {txid}, which could not be undone; expected both or neither; restore it",
                state=dialect.state.name,
                table=listing.name,
                ledger_txid=txid,
            )
        return
    dialect.create(connection)
    if not sa.inspect(connection).has_table(dialect.names.view):
        connection.execute(CreateView(dialect, mean_names(dialect.state)))


def _index_range(connection: sa.Connection, dialect: SqlDialect) -> None:
    """Create the index of ranges, even for an older table, unless an existing one is usable.

    The state can be read without it, but slowly: the range may be declared later than the table, or
    the index may have been dropped.
    """
    table, column = dialect.columns.table, dialect.state.range_by
    if column is None or column == dialect.state.key[0].name:
        return
    found = sa.inspect(connection).get_indexes(table.name)
    if all(each["column_names"][:1] != [column] for each in found):
        name = dialect.names.by_range or RANGE_INDEX
        sa.Index(name, table.c[column]).create(connection)


def _register(connection: sa.Connection, dialect: SqlDialect, *, known: bool) -> None:
    if not known:
        row = {
            "state": dialect.state.name,
            "epoch": 0,
            "txid": 0,
            "writer_epoch": 0,
            "attempt": 0,
            "schema_version": LEDGER_SCHEMA,
            "declaration": declaration(dialect.state),
        }
        connection.execute(sa.insert(dialect.ledger).values(row))


def _check_flaw(connection: sa.Connection, dialect: SqlDialect, label: str) -> None:
    flaw = dialect.flaw(connection)
    if flaw is not None:
        raise SchemaDrift(
            f"{label} cannot be stored in the object of that name: {flaw}; expected the table "
            "that was created for it; nothing was written; was it changed by hand? give the "
            "state another table",
            state=dialect.state.name,
            got=flaw,
        )


def check_columns(
    connection: sa.Connection, dialect: SqlDialect, label: str, retired: Sequence[str]
) -> None:
    """Check the columns of the table, which may also have the value columns *retired*.

    Raises:
        SchemaDrift: It has other columns.
    """
    table = dialect.columns.table
    inspector, type_name = sa.inspect(connection), dialect.type_name
    wanted = {column.name: type_name(column.type, connection) for column in table.columns}
    found = {c["name"]: type_name(c["type"], connection) for c in inspector.get_columns(table.name)}
    for name in retired:
        for besides in {name, f"prev_{name}"} - wanted.keys():
            found.pop(besides, None)
    key = set(inspector.get_pk_constraint(table.name)["constrained_columns"])
    if found != wanted or key != {column.name for column in table.primary_key}:
        raise SchemaDrift(
            f"{label} does not have the columns that the state declares; expected {wanted} with "
            f"the key {[column.name for column in table.primary_key]}; the table has {found} with "
            f"the key {sorted(key)}; nothing was written; was it changed by hand?",
            state=table.name,
            got=str(found),
            expected=str(wanted),
            key=tuple(sorted(key)),
        )


# Options of an index that does not hold whole columns of every row.
_PARTIAL = re.compile(r"_(where|length)$")


def add_columns(
    connection: sa.Connection, dialect: SqlDialect, missing: list[sa.Column[Any]]
) -> None:
    """Add the bookkeeping columns that a user's table lacks."""
    for statement in added_columns(connection, dialect.columns.table, missing):
        connection.exec_driver_sql(statement)


def check_existing(
    connection: sa.Connection, dialect: SqlDialect, label: str, *, known: bool, txid: int
) -> list[sa.Column[Any]]:
    """Check a user's table.

    Args:
        connection: In the transaction that makes the state.
        dialect: The dialect of the state.
        label: The state and its store, for messages.
        known: Whether the ledger lists the state.
        txid: The txid in the ledger.

    Returns:
        The bookkeeping columns to add.

    Raises:
        SchemaDrift: The table cannot hold the state; the message says why.
    """
    inspector, name = sa.inspect(connection), dialect.state.name
    if not inspector.has_table(name):
        raise _refused(
            label, "there is no such table; expected your own; with create=True, txtopo creates one"
        )
    flaw = dialect.flaw(connection)
    if flaw is not None:
        raise _refused(label, flaw)
    found = {column["name"]: column for column in inspector.get_columns(name)}
    missing = [column for column in dialect.columns.bookkeeping if column.name not in found]
    flaw = (
        _wrong_column(connection, dialect, found)
        or _wrong_keys(inspector, dialect, found)
        or (None if known else _taken(connection, dialect, missing))
    )
    if flaw is not None:
        raise _refused(label, flaw)
    if missing and (dialect.state.origin == "found" or txid):
        raise SchemaDrift(
            f"{label} lacks columns for bookkeeping: {', '.join(c.name for c in missing)}; "
            "nothing was written; use add_columns=True, or add them yourself before the first "
            "batch: " + "; ".join(added_columns(connection, dialect.columns.table, missing)),
            missing=[column.name for column in missing],
        )
    return missing


def _refused(label: str, flaw: str) -> SchemaDrift:
    return SchemaDrift(
        f"{label} cannot be stored in this table: {flaw}; nothing was written",
        store=label,
        got=flaw,
    )


def added_columns(
    connection: sa.Connection, to: sa.Table, columns: list[sa.Column[Any]]
) -> list[str]:
    """Return the statements that add columns to a table."""
    table = connection.dialect.identifier_preparer.format_table(to)
    parts = [CreateColumn(column).compile(dialect=connection.dialect) for column in columns]
    return [f"ALTER TABLE {table} ADD COLUMN {part}".replace("%%", "%") for part in parts]


def _wrong_column(
    connection: sa.Connection, dialect: SqlDialect, found: dict[str, ReflectedColumn]
) -> str | None:
    """Describe the first column of the table that the state cannot use, or return None."""
    columns = dialect.columns
    for column in columns.table.columns:
        there = found.get(column.name)
        other = next((name for name in found if dialect.same_column(name, column.name)), None)
        if there is None and other is not None:
            return (
                f"its column {other!r} is spelled differently; expected {column.name!r}; rename it"
            )
        if there is None:
            if column not in columns.bookkeeping:
                return f"it has no column {column.name!r}, which the state declares"
            continue
        wanted, got = (dialect.type_name(kind, connection) for kind in (column.type, there["type"]))
        if not dialect.same_type(wanted, got):
            return f"its column {column.name!r} is {got}; expected {wanted}"
        if column in columns.keys and there["nullable"]:
            return f"its key {column.name!r} may be NULL; expected NOT NULL"
        if column in columns.bookkeeping and there["nullable"] != column.nullable:
            expected = "that NULL is allowed" if column.nullable else "NOT NULL DEFAULT false"
            return f"its column {column.name!r} is not as expected: {expected}"
    ours = set(columns.table.columns.keys())
    for name, theirs in found.items():
        if name not in ours and not theirs["nullable"] and not _generated(theirs):
            return (
                f"its column {name!r} has no default and may not be NULL, so no row can be added "
                "to the table; expected a default, or that NULL is allowed"
            )
    return None


def _wrong_keys(
    inspector: sa.Inspector, dialect: SqlDialect, found: dict[str, ReflectedColumn]
) -> str | None:
    """Describe what is wrong with the unique keys of the table, or return None."""
    name = dialect.state.name
    wanted = {column.name for column in dialect.columns.keys}
    unique: list[set[str]] = [set(inspector.get_pk_constraint(name)["constrained_columns"])]
    unique += [set(one["column_names"]) for one in inspector.get_unique_constraints(name)]
    doubtful: list[set[str]] = []
    for index in inspector.get_indexes(name):
        if not index["unique"]:
            continue
        columns = {str(column) for column in index["column_names"]}
        options = index.get("dialect_options", {})
        if any(_PARTIAL.search(option) and value for option, value in options.items()):
            doubtful.append(columns)
            unique = [one for one in unique if one != columns]
        elif "expressions" in index:
            doubtful.append(columns)
        else:
            unique.append(columns)
    if wanted not in unique:
        return (
            f"it has no unique key on {', '.join(sorted(wanted))}, without which rows could be "
            "duplicated"
        )
    for columns in [*(one for one in unique if not one >= wanted), *doubtful]:
        left_alone = columns - set(dialect.columns.table.columns.keys())
        if columns and not any(_own(found, one) for one in left_alone):
            return (
                f"it has another unique key on {', '.join(sorted(columns))}: a new row could "
                "collide with the row of another key"
            )
    return None


def _own(found: dict[str, ReflectedColumn], name: str) -> bool:
    """Return whether new rows never have equal values in this column, except NULL."""
    column = found.get(name)
    if column is None:
        return False
    default = str(column.get("default") or "")
    none = column["nullable"] and not default
    generated = bool(column.get("identity")) or column.get("autoincrement") is True
    return none or generated or default.startswith("nextval(")


def _generated(column: ReflectedColumn) -> bool:
    """Return whether the database gives a new row a value in this column."""
    return any(
        [
            column.get("default") is not None,
            column.get("identity"),
            column.get("computed"),
            column.get("autoincrement") is True,
        ]
    )


def _taken(
    connection: sa.Connection, dialect: SqlDialect, missing: list[sa.Column[Any]]
) -> str | None:
    """Describe bookkeeping that exists without a ledger: either is lost or somebody else's."""
    columns = dialect.columns
    marks: list[sa.ColumnElement[bool]] = []
    if columns.txid not in missing:
        marks.append(columns.txid.is_not(None))
    if columns.opaque and columns.deleted not in missing:
        marks.append(sa.cast(columns.deleted, sa.Integer) != 0)
    if marks and connection.execute(sa.select(1).where(sa.or_(*marks)).limit(1)).first():
        return (
            f"some of its rows have a txid or are marked as deleted, but {LEDGER} does not list "
            "the table; expected txid NULL and deleted false in all rows; was the ledger lost, "
            "or are these columns your own?"
        )
    return None
