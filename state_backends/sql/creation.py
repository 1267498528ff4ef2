"""Making the tables of a state, and checking those that are there.

In MariaDB each statement that makes something ends the transaction. So the row of the ledger comes
first, and what stands beside the table is made as long as no txid has been written.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import sqlalchemy as sa

from state_backends.sql.dialect import SqlDialect
from state_backends.sql.existing import add_columns, added_columns, check_existing
from state_backends.sql.name_clashes import check_ledger_name, check_objects, check_other_states
from state_backends.sql.names import LEDGER
from state_backends.sql.tables import SCHEMA_VERSION, CreateView, ledger_of
from txtopo.errors import SchemaDrift
from txtopo.state import StateTable, declaration, declared, listed, means


def create_tables(connection: sa.Connection, dialect: SqlDialect, place: str) -> None:
    """Make what is missing.

    Raises:
        SchemaDrift: What is there does not fit the state.
    """
    with dialect.creating(connection):
        check_ledger_name(connection, dialect, place)
        dialect.ledger.create(connection, checkfirst=True)
        _add_ledger_columns(connection, dialect)
        ledger, state = dialect.ledger, dialect.state
        row = connection.execute(sa.select(ledger).where(ledger.c.state == state.name)).first()
        if row is not None:
            _check_declaration(row, state, place)
        held = ledger_of(row)
        txid, known = 0 if held is None else held.txid, row is not None
        check_other_states(connection, dialect, place, known=known)
        there, missing = True, []
        if state.origin == "made":
            there = _made(connection, dialect, place, known=known, txid=txid)
        else:
            missing = check_existing(connection, dialect, place, known=known, txid=txid)
        check_objects(connection, dialect, place, known=known)
        _register(connection, dialect, known=known)
        add_columns(connection, dialect, missing)
        if not there:
            dialect.columns.table.create(connection)
        _complete(connection, dialect, place, txid)


def _add_ledger_columns(connection: sa.Connection, dialect: SqlDialect) -> None:
    """Bring a ledger table of schema 1 up; its rows follow with their next claim."""
    there = {column["name"] for column in sa.inspect(connection).get_columns(LEDGER)}
    lacking = [column for column in dialect.ledger.columns if column.name not in there]
    for statement in added_columns(connection, dialect.ledger, lacking):
        connection.exec_driver_sql(statement)


def stored_states(connection: sa.Connection, dialect: SqlDialect) -> tuple[StateTable, ...]:
    """Return the states that the ledger knows."""
    if not sa.inspect(connection).has_table(LEDGER):
        return ()
    ledger = dialect.ledger
    rows = connection.execute(sa.select(ledger.c.state, ledger.c.declaration))
    own = dialect.state.name
    return listed(own, {name: partial(declared, name, text) for name, text in rows})


def _made(
    connection: sa.Connection, dialect: SqlDialect, place: str, *, known: bool, txid: int
) -> bool:
    """Return whether the table is there, as this module makes it."""
    there = sa.inspect(connection).has_table(dialect.state.name)
    if there and not known:
        raise SchemaDrift(
            f"{place}: a table of this name is there, but {LEDGER} does not know it; expected both "
            "or none; give the state another table, or say create=False if it is your own"
        )
    if not there and txid:
        raise SchemaDrift(
            f"{place}: its table is gone, but its ledger holds txid {txid}; "
            "expected both or none; restore the table, or delete its row in the ledger"
        )
    if there:
        _check_flaw(connection, dialect, place)
        _check_columns(connection, dialect, place)
    return there


def _complete(connection: sa.Connection, dialect: SqlDialect, place: str, txid: int) -> None:
    """Make what stands beside the table."""
    listing = dialect.listing()
    if txid:
        if listing is not None and not sa.inspect(connection).has_table(listing.name):
            raise SchemaDrift(
                f"{place}: its list of keys, {listing.name!r}, is gone, but its ledger holds txid "
                f"{txid}, which could not be undone; expected both or none; restore it"
            )
        return
    dialect.create(connection)
    name = dialect.names.view
    view = CreateView(name, dialect.columns, dialect.selected(), means(dialect.state))
    if not sa.inspect(connection).has_table(view.name):
        connection.execute(view)


def _register(connection: sa.Connection, dialect: SqlDialect, *, known: bool) -> None:
    if not known:
        row = {
            "state": dialect.state.name,
            "epoch": 0,
            "txid": 0,
            "writer_epoch": 0,
            "attempt": 0,
            "schema_version": SCHEMA_VERSION,
            "declaration": declaration(dialect.state),
        }
        connection.execute(sa.insert(dialect.ledger).values(row))


def _check_declaration(row: sa.Row[Any], state: StateTable, place: str) -> None:
    found, wanted = row._mapping["declaration"], declaration(state)
    if found != wanted:
        raise SchemaDrift(
            f"{place} was made with another declaration; got {wanted}; the store has {found}; "
            "nothing was written; declare it as before, or give the state another table",
            stored=found,
            declared=wanted,
        )


def _check_flaw(connection: sa.Connection, dialect: SqlDialect, place: str) -> None:
    flaw = dialect.flaw(connection)
    if flaw is not None:
        raise SchemaDrift(
            f"{place} cannot be kept in what has its name: {flaw}; expected the table that was "
            "made for it; nothing was written; was it changed by hand? give the state another table"
        )


def _check_columns(connection: sa.Connection, dialect: SqlDialect, place: str) -> None:
    table = dialect.columns.table
    inspector, type_name = sa.inspect(connection), dialect.type_name
    wanted = {column.name: type_name(column.type, connection) for column in table.columns}
    found = {c["name"]: type_name(c["type"], connection) for c in inspector.get_columns(table.name)}
    key = set(inspector.get_pk_constraint(table.name)["constrained_columns"])
    if found != wanted or key != {column.name for column in table.primary_key}:
        raise SchemaDrift(
            f"{place} has other columns than the state declares; expected {wanted} with the key "
            f"{[column.name for column in table.primary_key]}; the table has {found} with the "
            f"key {sorted(key)}; nothing was written; was it changed by hand?"
        )
