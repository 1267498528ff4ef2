"""The tables of a state: the rows, the ledger that all states of a database share, and the view."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import ExecutableDDLElement
from sqlalchemy.sql.compiler import DDLCompiler
from sqlalchemy.types import TypeEngine

from state_backends.sql.names import LEDGER
from txtopo.errors import SchemaVersionError
from txtopo.state import LEDGER_SCHEMA, Ledger, StateTable

SCHEMA_VERSION = LEDGER_SCHEMA
"""Of a row of the ledger's table: that of the ledger, which grows with the next claim."""
LEDGER_COLUMNS_2 = ("component", "state_name", "ensemble", "first_txid", "attempts")
"""What schema 2 added; NULL in rows of schema 1."""
_NO = sa.false()


@dataclass(frozen=True, slots=True)
class StateColumns:
    """The table of a state, with its columns by their part.

    Attributes:
        table: The table.
        keys: The key columns.
        values: The value columns.
        previous: The previous values; empty for a transactional state.
    """

    table: sa.Table
    keys: tuple[sa.Column[Any], ...]
    values: tuple[sa.Column[Any], ...]
    previous: tuple[sa.Column[Any], ...]

    @property
    def opaque(self) -> bool:
        """Whether rows keep what was there before their txid."""
        return bool(self.previous)

    @property
    def txid(self) -> sa.Column[int]:
        """The txid that wrote the row."""
        return self.table.c.txid

    @property
    def prev_txid(self) -> sa.Column[int]:
        """The txid that wrote the previous values; NULL if the row did not exist.

        0 stands for the time before the first txid: a row that a user's own table brought along.
        """
        return self.table.c.prev_txid

    @property
    def deleted(self) -> sa.Column[bool]:
        """Whether the row is a tombstone."""
        return self.table.c.deleted

    @property
    def bookkeeping(self) -> list[sa.Column[Any]]:
        """The columns that are neither key nor value."""
        own = (*self.keys, *self.values)
        return [column for column in self.table.columns if column not in own]

    def moved_back(self) -> list[tuple[sa.Column[Any], Any]]:
        """Return the assignments, in order, that keep what a row was before its txid.

        A row without a txid was there before the first one: 0, since NULL would mean that there
        was no row, and an undo would delete it.
        """
        if not self.opaque:
            return []
        kept: list[tuple[sa.Column[Any], Any]] = list(zip(self.previous, self.values, strict=True))
        return [*kept, (self.prev_txid, sa.func.coalesce(self.txid, sa.literal_column("0")))]


def state_columns(
    state: StateTable,
    type_of: Callable[[str], TypeEngine[Any]],
    key_type_of: Callable[[str], TypeEngine[Any]] | None = None,
    **options: Any,
) -> StateColumns:
    """Return the table of a state.

    Args:
        state: The state.
        type_of: Gives the column type of a field type.
        key_type_of: The same for key columns, where they need another.
        options: Of the dialect.
    """
    of_key = key_type_of or type_of
    keys = tuple(
        sa.Column(field.name, of_key(field.type), primary_key=True, autoincrement=False)
        for field in state.key
    )
    values = tuple(sa.Column(field.name, type_of(field.type)) for field in state.value)
    whole, flag = type_of("long"), type_of("boolean")
    previous: tuple[sa.Column[Any], ...] = ()
    # In a user's own table the rows from before have no txid, and the user may add more of them.
    theirs = state.origin != "made"
    extra = [sa.Column("txid", whole, nullable=theirs)]
    if state.kind == "opaque":
        previous = tuple(
            sa.Column(f"prev_{field.name}", type_of(field.type)) for field in state.value
        )
        extra += [
            *previous,
            sa.Column("prev_txid", whole),
            sa.Column("deleted", flag, nullable=False, server_default=_NO if theirs else None),
        ]
    table = sa.Table(state.name, sa.MetaData(), *keys, *values, *extra, **options)
    return StateColumns(table, keys, values, previous)


def ledger_table(
    type_of: Callable[[str], TypeEngine[Any]],
    key_type_of: Callable[[str], TypeEngine[Any]] | None = None,
    **options: Any,
) -> sa.Table:
    """Return the ledger table: one row for each state of the database."""
    text, whole = type_of("string"), type_of("long")
    name = (key_type_of or type_of)("string")
    return sa.Table(
        LEDGER,
        sa.MetaData(),
        sa.Column("state", name, primary_key=True),
        sa.Column("topology", text),
        sa.Column("epoch", whole, nullable=False),
        sa.Column("txid", whole, nullable=False),
        sa.Column("writer_epoch", whole, nullable=False),
        sa.Column("attempt", whole, nullable=False),
        sa.Column("schema_version", whole, nullable=False),
        sa.Column("declaration", text, nullable=False),
        *(
            sa.Column(column, whole if column == "first_txid" else text)
            for column in LEDGER_COLUMNS_2
        ),
        **options,
    )


def ledger_row(table: sa.Table, state: str) -> sa.Select[Any]:
    """Return the question for the row of a state.

    For all columns that there are: a table of schema 1 lacks some until ``create()`` adds them, and
    is read before that.
    """
    return sa.select(sa.text("*")).select_from(table).where(table.c.state == state)


def ledger_of(row: sa.Row[Any] | None) -> Ledger | None:
    """Return the ledger in a row; None if nobody has claimed the state.

    Raises:
        SchemaVersionError: A newer txtopo wrote it; upgrade this one.
    """
    if row is None:
        return None
    found = row._mapping
    if found["schema_version"] > SCHEMA_VERSION:
        raise SchemaVersionError(
            f"the ledger of state {found['state']!r} has schema version {found['schema_version']}; "
            f"expected at most {SCHEMA_VERSION}; a newer txtopo wrote it; upgrade this one",
            state=found["state"],
        )
    if found["topology"] is None:
        return None
    names = ("topology", "epoch", "txid", "writer_epoch", "attempt")
    ledger = Ledger(*(found[name] for name in names))
    if found["schema_version"] < 2:
        return ledger
    return replace(
        ledger,
        component=found["component"],
        state=found["state_name"],
        ensemble=found["ensemble"],
        first_txid=found["first_txid"],
        attempts=json.loads(found["attempts"]),
        schema=found["schema_version"],
    )


def ledger_values(ledger: Ledger) -> dict[str, Any]:
    """Return a ledger as values of the columns of its row."""
    return {
        "topology": ledger.topology,
        "epoch": ledger.epoch,
        "txid": ledger.txid,
        "writer_epoch": ledger.writer_epoch,
        "attempt": ledger.attempt,
        "schema_version": ledger.schema,
        "component": ledger.component,
        "state_name": ledger.state,
        "ensemble": ledger.ensemble,
        "first_txid": ledger.first_txid,
        "attempts": json.dumps(ledger.attempts),
    }


class CreateView(ExecutableDDLElement):
    """The statement that makes the view without bookkeeping."""

    inherit_cache = False

    def __init__(
        self, name: str, columns: StateColumns, rows: sa.Select[Any], means: Mapping[int, str]
    ) -> None:
        self.name = name
        own = [*columns.keys, *columns.values]
        named = [column for column in rows.selected_columns if column.name in {c.name for c in own}]
        self.select = rows.with_only_columns(*named, *_means(named[len(columns.keys) :], means))
        if columns.opaque:
            self.select = self.select.where(sa.not_(columns.deleted))


def _means(values: Sequence[Any], means: Mapping[int, str]) -> list[sa.ColumnElement[Any]]:
    """Return each mean, of its sum and the count beside it; 1e0 makes the division exact."""
    one: sa.ColumnElement[Any] = sa.literal_column("1e0")
    zero: sa.ColumnElement[Any] = sa.literal_column("0")
    return [
        # Decimals are text in SQLite, which multiplies them nevertheless.
        (
            sa.type_coerce(values[at], sa.Double()) * one / sa.func.nullif(values[at + 1], zero)
        ).label(name)
        for at, name in means.items()
    ]


@compiles(CreateView)
def _create_view(element: CreateView, compiler: DDLCompiler, **_: Any) -> str:
    name = compiler.preparer.quote(element.name)
    body = compiler.sql_compiler.process(element.select, literal_binds=True)
    return f"CREATE VIEW {name} AS {body}"
