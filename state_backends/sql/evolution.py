"""Changes the value columns of a table that has rows; the rules are in ``txtopo.state.evolution``.

Order
-----
1. The claim locks the row of the ledger, and writes the ledger.
2. Missing columns are added, without a default in the database: they hold NULL. The view is created
   again.
3. The row of the ledger is locked again. It must still be the row that the claim wrote.
4. Existing rows get the defaults, and the row of the ledger gets the new declaration.

In SQLite and PostgreSQL all steps are one transaction. In MariaDB each statement of step 2 ends the
previous transaction, so a crash may leave the new ledger, and some or all of the columns, under the
old declaration. The next claim repeats the steps: columns that are not declared yet have no values
either. A coordinator that was deposed between 2 and 4 finds another ledger in step 3, and does not
overwrite what its successor has written into the columns.

A removed column stays in the table. PostgreSQL locks the table, even for reads, until the
transaction ends; so a long read of a snapshot delays the start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from state_backends.sql.creation import added_columns, check_columns, replace_view
from state_backends.sql.dialect import SqlDialect
from txtopo.errors import SchemaDrift
from txtopo.plugins.stores import StateTable, TableChange, refused_change, table_change


def change_of(
    connection: sa.Connection, dialect: SqlDialect, text: str, label: str
) -> TableChange | None:
    """Return the change that a state's table needs; *text* is its declaration in the store.

    Raises:
        SchemaDrift: It cannot be done; nothing was written.
    """
    state: StateTable = dialect.state
    change = table_change(text, state, label)
    if change is None:
        return None
    if state.origin != "made" or state.mode == "log":
        what = "a log" if state.mode == "log" else "a table of your own"
        raise refused_change(f"the columns of {what} cannot change", text, state, label)
    inspector = sa.inspect(connection)
    if not inspector.has_table(state.name):
        raise SchemaDrift(
            f"{label}: its table is missing, but the ledger of its database lists it; expected "
            "both or neither; restore the table, or delete its row in the ledger",
            state=state.name,
        )
    there = {column["name"] for column in inspector.get_columns(state.name)}
    left = there.intersection([*change.retired, *(field.name for field in change.taken)])
    for name in (field.name for field in change.added):
        for other in left - {name}:
            if other.casefold() == name.casefold():
                raise SchemaDrift(
                    f"{label} would get a column {name!r}, but its table has {other!r}, and "
                    "databases cannot tell them apart; nothing was written; spell the column as "
                    "before, or give it a name that differs in more than case",
                    state=state.name,
                )
        if name in left:
            quoted = connection.dialect.identifier_preparer.quote(name)
            raise SchemaDrift(
                f"{label} had a column {name!r} before, which was removed and therefore lacks all "
                "later values; nothing was written; give the column another name; or, to start "
                f"over with its default, drop {quoted} and, in an opaque state, "
                f"{connection.dialect.identifier_preparer.quote('prev_' + name)} from the table",
                state=state.name,
            )
    return change


def change_table(
    connection: sa.Connection,
    dialect: SqlDialect,
    change: TableChange,
    check_ledger: Callable[[], None],
    label: str,
    point: Callable[[str], None],
) -> None:
    """Do steps 2 to 4.

    Args:
        connection: In the transaction of the claim, after step 1.
        dialect: The dialect of the state.
        change: What has to be done.
        check_ledger: Locks the row of the ledger and compares it.
        label: The state and its store, for messages.
        point: Marks each step, for tests that crash processes there.
    """
    point("change.claimed")
    columns = dialect.columns
    values = {field.name: dict(change.declared.defaults)[field.name] for field in change.added}
    wanted = {name for each in values for name in (each, f"prev_{each}")}
    wanted &= set(columns.table.columns.keys())
    there = {column["name"] for column in sa.inspect(connection).get_columns(columns.table.name)}
    missing = [c for c in columns.table.columns if c.name in wanted and c.name not in there]
    for statement in added_columns(connection, columns.table, missing):
        connection.exec_driver_sql(statement)
    replace_view(connection, dialect)
    point("change.columns")
    check_ledger()
    table, made = columns.table, {column.name for column in missing}
    for field in change.added:
        default = dialect.stored_value(field, values[field.name])
        if default is None and {field.name, f"prev_{field.name}"} & wanted <= made:
            continue  # it already holds NULL
        connection.execute(sa.update(table).values({table.c[field.name]: default}))
        if columns.opaque:
            previous: dict[Any, Any] = {table.c[f"prev_{field.name}"]: default}
            existed = columns.prev_txid.is_not(None)
            connection.execute(sa.update(table).where(existed).values(previous))
    point("change.rows")
    check_columns(connection, dialect, label, change.left)
    ledger = dialect.ledger
    own = ledger.c.state == change.declared.name
    connection.execute(sa.update(ledger).where(own).values(declaration=change.text()))
    point("change.declared")
