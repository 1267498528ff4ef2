"""Databases of the crash matrix: empty for each cell, and quick to open again.

What is compiled once is kept: a cell opens some six connections, and a matrix has hundreds of
cells. Durability is left out, since the machine does not lose its power here.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from state_backends.sql.dialect import SqlDialect
from state_backends.sql.postgresql import PostgresqlDialect
from state_backends.sql.sqlite import SqliteDialect
from state_backends.sql.sqlite_file import SqliteFile
from tests.faults.simulated.cell_stores import CellStores, MemoryStores, SqlStores
from txtopo.state.backend import StateKind, StateTable


class StoreKind(ABC):
    """Makes stores of one kind for one cell after the other."""

    @abstractmethod
    def stores(self) -> CellStores:
        """Return stores that are empty; those of the cell before are gone."""

    @abstractmethod
    def close(self) -> None:
        """Remove everything."""


class Memory(StoreKind):
    """Stores in memory."""

    def stores(self) -> CellStores:
        return MemoryStores()

    def close(self) -> None:
        pass


class Databases(StoreKind):
    """Stores in a kind of database, one for each table."""

    def __init__(self, make_dialect: Callable[[StateTable], SqlDialect]) -> None:
        self._make_dialect = make_dialect
        self._dialects: dict[tuple[str, StateKind], SqlDialect] = {}
        self._used: set[str] = set()
        self._stores = SqlStores(self._dialect_of)

    def stores(self) -> CellStores:
        self.close()
        self._stores = SqlStores(self._dialect_of)
        return self._stores

    def close(self) -> None:
        self._stores.close()
        for name in self._used:
            self.drop(name)
        self._used.clear()

    @abstractmethod
    def create(self, table: str) -> None:
        """Make an empty database for a table."""

    @abstractmethod
    def drop(self, table: str) -> None:
        """Remove the database of a table."""

    def _dialect_of(self, table: StateTable) -> SqlDialect:
        if table.name not in self._used:
            self._used.add(table.name)
            self.create(table.name)
        key = (table.name, table.kind)
        if key not in self._dialects:
            self._dialects[key] = self._make_dialect(table)
        return self._dialects[key]


class SqliteFiles(Databases):
    """A file for each table."""

    def __init__(self, folder: Path) -> None:
        super().__init__(lambda table: _Sqlite(self._url(table.name), table))
        self._folder = folder

    def create(self, table: str) -> None:
        pass

    def drop(self, table: str) -> None:
        for path in self._folder.glob(f"{table}.db*"):
            path.unlink()

    def _url(self, table: str) -> sa.URL:
        return sa.make_url(f"sqlite:///{self._folder}/{table}.db")


class PostgresqlSchemas(Databases):
    """A schema of one database for each table."""

    def __init__(self, url: str) -> None:
        super().__init__(lambda table: _Postgresql(self._url(table.name), table))
        self._base = sa.make_url(url)
        self._engine = sa.create_engine(self._base, isolation_level="AUTOCOMMIT")

    def create(self, table: str) -> None:
        with self._engine.connect() as connection:
            connection.execute(sa.schema.CreateSchema(f"cell_{table}"))

    def drop(self, table: str) -> None:
        with self._engine.connect() as connection:
            connection.execute(sa.schema.DropSchema(f"cell_{table}", cascade=True))

    def close(self) -> None:
        super().close()
        self._engine.dispose()

    def _url(self, table: str) -> sa.URL:
        return self._base.update_query_dict({"options": f"-csearch_path=cell_{table}"})


class _Sqlite(SqliteDialect):
    def __init__(self, url: sa.URL, state: StateTable) -> None:
        super().__init__(url, state)
        self._compiled: dict[Any, Any] = {}

    def engine(self) -> sa.Engine:
        # Each backend has a dialect of its own elsewhere, and so a file that it knows.
        self._file = SqliteFile(str(self._url.database), self._label)
        engine = super().engine()
        sa.event.listen(engine, "connect", _do_not_sync)
        return engine.execution_options(compiled_cache=self._compiled)

    def create(self, connection: sa.Connection) -> None:
        super().create(connection)
        self.columns.table.indexes.clear()  # the next cell makes them again


class _Postgresql(PostgresqlDialect):
    def __init__(self, url: sa.URL, state: StateTable) -> None:
        super().__init__(url, state)
        self._compiled: dict[Any, Any] = {}

    def engine(self) -> sa.Engine:
        return super().engine().execution_options(compiled_cache=self._compiled)

    def create(self, connection: sa.Connection) -> None:
        super().create(connection)
        self.columns.table.indexes.clear()


def _do_not_sync(driver: sqlite3.Connection, _: object) -> None:
    driver.execute("PRAGMA synchronous=OFF")
