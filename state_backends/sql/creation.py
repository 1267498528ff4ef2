"""Making the tables of a state, and checking those that are there."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from state_backends.sql.dialect import SqlDialect
from state_backends.sql.tables import (
    LEDGER,
    SCHEMA_VERSION,
    CreateView,
    ledger_of,
)
from txtopo.errors import SchemaDrift
from txtopo.state import StateTable, declaration, declared


def create_tables(connection: sa.Connection, dialect: SqlDialect, place: str) -> None:
    """Make what is missing.

    Raises:
        SchemaDrift: What is there does not fit the state.
    """
    dialect.lock_creation(connection)
    dialect.ledger.create(connection, checkfirst=True)
    ledger, name = dialect.ledger, dialect.state.name
    row = connection.execute(sa.select(ledger).where(ledger.c.state == name)).first()
    there = sa.inspect(connection).has_table(name)
    if row is None:
        if there:
            raise SchemaDrift(
                f"{place}: a table of this name is there, but {LEDGER} does not know it; "
                "expected both or none; give the state another table"
            )
        connection.execute(sa.insert(ledger).values(**_new_row(dialect.state)))
    else:
        _check_declaration(row, dialect.state, place)
        held = ledger_of(row)
        if not there and held is not None and held.txid:
            raise SchemaDrift(
                f"{place}: its table is gone, but its ledger holds txid {held.txid}; "
                "expected both or none; restore the table, or delete its row in the ledger"
            )
    if there:
        _check_flaw(connection, dialect, place)
        _check_columns(connection, dialect, place)
        return
    dialect.columns.table.create(connection)
    dialect.create(connection)
    connection.execute(CreateView(dialect.columns))


def stored_states(connection: sa.Connection, dialect: SqlDialect) -> tuple[StateTable, ...]:
    """Return the states that the ledger knows."""
    if not sa.inspect(connection).has_table(LEDGER):
        return ()
    ledger = dialect.ledger
    rows = connection.execute(sa.select(ledger.c.state, ledger.c.declaration))
    return tuple(declared(name, text) for name, text in rows)


def _new_row(state: StateTable) -> dict[str, Any]:
    return {
        "state": state.name,
        "epoch": 0,
        "txid": 0,
        "writer_epoch": 0,
        "attempt": 0,
        "schema_version": SCHEMA_VERSION,
        "declaration": declaration(state),
    }


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
    inspector = sa.inspect(connection)
    wanted = {column.name: _type(column.type, connection) for column in table.columns}
    found = {c["name"]: _type(c["type"], connection) for c in inspector.get_columns(table.name)}
    key = set(inspector.get_pk_constraint(table.name)["constrained_columns"])
    if found != wanted or key != {column.name for column in dialect.columns.keys}:
        raise SchemaDrift(
            f"{place} has other columns than the state declares; expected {wanted} with the key "
            f"{[column.name for column in dialect.columns.keys]}; the table has {found} with the "
            f"key {sorted(key)}; nothing was written; was it changed by hand?"
        )


def _type(kind: sa.types.TypeEngine[Any], connection: sa.Connection) -> str:
    return kind.compile(connection.dialect).partition(" COLLATE")[0]
