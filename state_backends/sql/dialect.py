"""SqlDialect: what differs between databases. The protocol itself is in ``backend.py``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from state_backends.sql.tables import StateColumns
from txtopo.state import Key, StateTable, Writes


class SqlDialect(ABC):
    """One state in one kind of database.

    Attributes:
        state: The state.
        columns: Its table.
        ledger: The ledger table.
    """

    state: StateTable
    columns: StateColumns
    ledger: sa.Table

    driver_errors: tuple[type[Exception], ...] = ()
    """What the driver raises where it is used without SQLAlchemy."""

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
        """Make the tables of the state; those that all states share are there."""

    @abstractmethod
    def lock_creation(self, connection: sa.Connection) -> None:
        """Keep other creators out until the transaction ends."""

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
    restored |= {columns.txid: columns.prev_txid, columns.deleted: False}
    return [
        sa.delete(table).where(tagged, columns.prev_txid.is_(None)),
        sa.update(table).where(tagged, columns.prev_txid.is_not(None)).values(restored),
    ]
