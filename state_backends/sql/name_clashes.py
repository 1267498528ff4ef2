"""Refuses names that another state of the database or a user's own object already uses.

A table in the place of a state's bookkeeping would be overwritten, or would end the run with an
arbitrary error of the database. So both names are reported here, before anything is created,
whichever came first. Other states are found in the ledger, other objects in the database itself.

A state that the ledger lists continues without its view, and with whatever has replaced the view,
since nobody writes to a view.
"""

from __future__ import annotations

import sqlalchemy as sa

from state_backends.sql.dialect import SqlDialect
from state_backends.sql.names import LEDGER, VIEW, SqlNames, TakenName
from txtopo.errors import SchemaDrift
from txtopo.plugins.stores import parsed_declaration

# Objects that share the namespace of tables but are not tables.
_NO_TABLES = ("index", "sequence", "system table", "type")


def check_ledger_name(connection: sa.Connection, dialect: SqlDialect, label: str) -> None:
    """Check that no other object has the name of the ledger.

    Raises:
        SchemaDrift: Another object has it.
    """
    for taken in dialect.taken(connection, [LEDGER]):
        if taken.kind != "table":
            raise SchemaDrift(
                f"{label} has no ledger: {LEDGER!r}, the table that all states share, already "
                f"exists as {taken}; nothing was written; rename the existing one",
                taken=taken.name,
            )


def check_other_states(connection: sa.Connection, dialect: SqlDialect, label: str) -> None:
    """Check that no other state in the ledger uses a name of this one.

    Args:
        connection: In the transaction that makes the state.
        dialect: The dialect of the state.
        label: The state and its store, for messages.

    Raises:
        SchemaDrift: Another state does; the message names both states and how each uses the name.
    """
    ledger, own = dialect.ledger, dialect.state.name
    fold = dialect.fold(connection)
    mine = {fold(name): (name, use) for name, use in dialect.names.reserved().items()}
    for other, text in connection.execute(sa.select(ledger.c.state, ledger.c.declaration)):
        if other == own:
            continue
        for name, use in _names_of(dialect, other, text).reserved().items():
            if fold(name) not in mine:
                continue
            ours, our_use = mine[fold(name)]
            raise SchemaDrift(
                f"{label} clashes with state {other!r} of the same database: {ours!r} is "
                f"{our_use} of the first, and {name!r} is {use} of the other; expected names that "
                "the database can tell apart; nothing was written; give the state another table",
                state=own,
                other=other,
            )


def check_objects(
    connection: sa.Connection, dialect: SqlDialect, label: str, *, known: bool
) -> None:
    """Check that no foreign database object has a name that is reserved for the state.

    Args:
        connection: In the transaction that makes the state.
        dialect: The dialect of the state.
        label: The state and its store, for messages.
        known: Whether the ledger lists the state. If not, the state has created nothing yet, so any
            object with such a name is foreign.

    Raises:
        SchemaDrift: An object has a reserved name; rename it, or give the state another table.
    """
    names, fold = dialect.names, dialect.fold(connection)
    uses = {fold(name): (name, use) for name, use in names.reserved().items()}
    for taken in dialect.taken(connection, list(names.reserved())):
        name, use = uses[fold(taken.name)]
        if name == names.table:
            # The checks of columns report what is wrong with a table or a view.
            if taken.kind in _NO_TABLES:
                raise SchemaDrift(
                    f"{label} has no table: {name!r} already exists as {taken}; nothing was "
                    "written; rename the existing one, or give the state another table",
                    taken=taken.name,
                )
        elif not known or not (use == VIEW or _is_own(connection, dialect, name, taken)):
            raise SchemaDrift(
                f"{label}: {name!r}, which the state needs, already exists as {taken}; "
                f"expected {use} of the state, or nothing; nothing was written; rename that one, "
                "or give the state another table",
                taken=taken.name,
            )


def _is_own(connection: sa.Connection, dialect: SqlDialect, name: str, taken: TakenName) -> bool:
    """Return whether an object with a name of a listed state was created by that state."""
    names, fold = dialect.names, dialect.fold(connection)
    if taken.kind != names.kind(name):
        return False
    if taken.table is not None:
        return fold(taken.table) == fold(names.table)
    listing = dialect.listing()
    if listing is None or name != listing.name:
        return True
    found = sa.inspect(connection).get_columns(name)
    return {column["name"] for column in found} == set(listing.columns.keys())


def _names_of(dialect: SqlDialect, state: str, text: str) -> SqlNames:
    try:
        return dialect.names_of(parsed_declaration(state, text))
    except SchemaDrift:
        # From a newer version, or damaged: the code that uses it reports that.
        return SqlNames(state, f"{state}_view")
