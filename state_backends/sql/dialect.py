"""SqlDialect: what differs between databases. The protocol itself is in ``backend.py``."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.types import TypeEngine

from state_backends.sql.names import Names, Taken
from state_backends.sql.tables import StateColumns
from txtopo.state import Key, StateMode, StateTable, Writes

_COLLATED = re.compile(r" (COLLATE|CHARACTER SET|CHARSET) .*", re.IGNORECASE)


class SqlDialect(ABC):
    """One state in one kind of database.

    Attributes:
        state: The state.
        columns: Its table.
        ledger: The ledger table.
        names: The names of what the state has.
    """

    state: StateTable
    columns: StateColumns
    ledger: sa.Table
    names: Names

    modes: frozenset[StateMode] = frozenset({"table"})
    """Which modes it keeps."""

    pages: bool = False
    """Whether a long reading has to ask for one page after the other, since its driver cannot do
    anything else while a result is under way."""

    fetches: bool = False
    """Whether a long reading is fetched into memory at once instead, since each page would cost as
    much as all of it."""

    driver_errors: tuple[type[Exception], ...] = ()
    """What the driver raises where it is used without SQLAlchemy."""

    @property
    def redone(self) -> bool:
        """Whether a redo takes back the rows of its txid; a transactional state keeps them."""
        return self.columns.opaque

    @staticmethod
    @abstractmethod
    def names_of(state: StateTable) -> Names:
        """Return the names of what a state has in such a database."""

    @abstractmethod
    def taken(self, connection: sa.Connection, names: Sequence[str]) -> list[Taken]:
        """Return what is in the database that has one of these names, or cannot be beside it."""

    def fold(self, connection: sa.Connection) -> Callable[[str], str]:
        """Return what makes names equal that the database does not tell apart."""
        return str

    def same_column(self, name: str, other: str) -> bool:
        """Return whether the database takes two names of columns for one."""
        return name == other

    def missing(self) -> bool:
        """Whether there is no database yet, so that a reading would make an empty one."""
        return False

    @abstractmethod
    def engine(self) -> sa.Engine:
        """Make the engine; its transactions are made ready for writes and for readings."""

    @abstractmethod
    def prepare(self, connection: sa.Connection) -> None:
        """Make what a connection needs before its first write; in no transaction of a txid."""

    @abstractmethod
    def create(self, connection: sa.Connection) -> None:
        """Make what stands beside the table of the state, if it is missing."""

    @abstractmethod
    def creating(self, connection: sa.Connection) -> AbstractContextManager[None]:
        """Keep other creators out meanwhile; the transaction may end inside."""

    def listing(self) -> sa.Table | None:
        """Return the table with the keys of the last txid, without which there is no undo."""
        return None

    def type_name(self, kind: TypeEngine[Any], connection: sa.Connection) -> str:
        """Return the name of a column type, without how it is collated."""
        return _COLLATED.sub("", kind.compile(connection.dialect))

    def same_type(self, wanted: str, found: str) -> bool:
        """Return whether a user's column of the type *found* will do for *wanted*."""
        return wanted == found

    @abstractmethod
    def flaw(self, connection: sa.Connection) -> str | None:
        """Say why the table that is there cannot keep the promise, whatever its columns are."""

    @abstractmethod
    def write_options(self) -> dict[str, Any]:
        """Return the execution options of a transaction that writes."""

    @abstractmethod
    def read_options(self) -> dict[str, Any]:
        """Return the execution options of one consistent reading."""

    @abstractmethod
    def begin_reading(self, connection: sa.Connection) -> None:
        """Make a transaction ready for a reading that may take long."""

    @abstractmethod
    def undo(self, connection: sa.Connection, txid: int) -> None:
        """Take back every row that *txid* wrote."""

    @abstractmethod
    def apply(self, connection: sa.Connection, txid: int, writes: Writes) -> None:
        """Write the rows of *txid*; none is tagged with it, and no tombstone is left."""

    def purge(self, connection: sa.Connection) -> None:
        """Delete the tombstones of earlier txids."""
        connection.execute(sa.delete(self.columns.table).where(self.columns.deleted))

    def selected(self) -> sa.Select[Any]:
        """Return what reads the rows: key, value, txid, then what an opaque state keeps."""
        columns = self.columns
        extra: list[sa.Column[Any]] = []
        if columns.opaque:
            extra = [columns.prev_txid, columns.deleted]
        own = [*columns.keys, *columns.values, columns.txid]
        return sa.select(*own, *columns.previous, *extra)

    def after_commit(self, engine: sa.Engine, txid: int) -> None:  # noqa: B027 - a hook
        """Look after a commit of *txid*; nothing, unless there is something to tidy."""

    def close(self) -> None:  # noqa: B027 - a hook
        """Wait for what is under way; nothing, unless there is."""

    def encoded(self, key: Key) -> tuple[Any, ...]:
        """Return a key as the database has it."""
        return key

    def decoded(self, fields: Sequence[str], values: Sequence[Any]) -> tuple[Any, ...]:
        """Return what the database has as values of these field types."""
        return tuple(values)


def undo_statements(
    columns: StateColumns, txid: int, touched: sa.ColumnElement[bool] | None = None
) -> list[sa.Executable]:
    """Return what takes the rows of *txid* back to what they were before it."""
    table = columns.table
    tagged = columns.txid == txid
    if touched is not None:
        tagged = sa.and_(tagged, touched)
    restored: dict[Any, Any] = dict(zip(columns.values, columns.previous, strict=True))
    # 0 stands for a row that was there before the first txid.
    origin = sa.func.nullif(columns.prev_txid, sa.literal_column("0"))
    restored |= {columns.txid: origin, columns.deleted: False}
    return [
        sa.delete(table).where(tagged, columns.prev_txid.is_(None)),
        sa.update(table).where(tagged, columns.prev_txid.is_not(None)).values(restored),
    ]
