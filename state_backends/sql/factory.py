"""Finds the dialect for a URL; ``open_backend`` is the entry point."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import sqlalchemy as sa

from state_backends.sql.backend import SqlBackend
from state_backends.sql.dialect import SqlDialect
from state_backends.sql.mariadb import MariadbDialect
from state_backends.sql.mariadb_log import MariadbLogDialect
from state_backends.sql.names import (
    LEDGER,
    TABLE_BYTES_MAX,
    in_small_letters,
)
from state_backends.sql.postgresql import PostgresqlDialect
from state_backends.sql.postgresql_log import PostgresqlLogDialect
from state_backends.sql.sqlite import SqliteDialect
from txtopo.errors import TopologyError
from txtopo.plugins.stores import Server, StateTable, redacted_url
from txtopo.sql_sessions import database_servers

_Kind = type[MariadbDialect] | type[PostgresqlDialect] | type[SqliteDialect]
_DIALECTS: dict[str, _Kind] = {
    "mariadb": MariadbDialect,
    "mariadb+pymysql": MariadbDialect,
    "mysql": MariadbDialect,
    "mysql+pymysql": MariadbDialect,
    "sqlite": SqliteDialect,
    "sqlite+pysqlite": SqliteDialect,
    "postgres": PostgresqlDialect,
    "postgresql": PostgresqlDialect,
    "postgresql+psycopg": PostgresqlDialect,
}
_CLIENTS: dict[_Kind, tuple[str, ...]] = {
    MariadbDialect: ("pymysql",),
    PostgresqlDialect: ("psycopg",),
}
# SQLite has no mode log, and its dialect says why.
_LOG_DIALECTS: dict[_Kind, _Kind] = {
    MariadbDialect: MariadbLogDialect,
    PostgresqlDialect: PostgresqlLogDialect,
}
# Limited by PostgreSQL as well; "prev_" is added.
_COLUMN_BYTES_MAX = 58


class SqlFactory:
    """Opens states in SQLite, PostgreSQL, MariaDB and MySQL."""

    def anchor(self, url: str) -> tuple[str, object]:
        """Make the path of an SQLite file absolute: tasks may run in another folder."""
        parsed = _parsed(url)
        path = parsed.database
        if parsed.get_backend_name() == "sqlite" and path and not path.startswith(("file:", ":")):
            parsed = parsed.set(database=str(Path(path).absolute()))
        return parsed.render_as_string(hide_password=False), None

    def names_taken(self, url: str, table: StateTable) -> dict[str, str]:
        """Return the names that a state uses in its database, each with its use."""
        kind = _DIALECTS[_parsed(url).drivername]
        fold = in_small_letters if kind is SqliteDialect else str
        return {fold(name): use for name, use in kind.names_of(table).reserved().items()}

    def check(self, url: str, table: StateTable) -> None:
        """Check, when a topology is built, that its database can keep a state.

        Raises:
            TopologyError: It cannot; the message names a store that can.
        """
        _DIALECTS[_parsed(url).drivername].check(table)

    def servers_of(self, url: str) -> Sequence[Server]:
        """Return the server of the database; none for an SQLite file."""
        return database_servers(_parsed(url))

    def client_modules_of(self, url: str, table: StateTable) -> Sequence[str]:
        """Return the driver of the database, if it is an extra."""
        return _CLIENTS.get(_DIALECTS[_parsed(url).drivername], ())

    def __call__(self, url: str, table: StateTable) -> SqlBackend:
        """Open a state; connects when it is first used.

        Raises:
            TopologyError: The URL or a name in the state cannot be used; repair it.
        """
        parsed = _parsed(url)
        kind = _DIALECTS[parsed.drivername]
        kind.check_names(table)
        if table.mode == "log":
            kind = _LOG_DIALECTS.get(kind, kind)
        dialect: SqlDialect = kind(parsed, _checked(table))
        return SqlBackend(dialect, url)

    def __reduce__(self) -> str:
        return "open_backend"


def _parsed(url: str) -> sa.URL:
    scheme, _, rest = url.partition(":")
    scheme = scheme.lower()
    try:
        parsed = sa.make_url(f"{scheme}:{rest}")
    except (sa.exc.ArgumentError, ValueError) as error:
        raise TopologyError(
            f"cannot read the URL of a state; got {redacted_url(url)!r}; expected e.g. "
            "'sqlite:///counts.db' or 'postgresql://user:…@host/database', with three slashes "
            "before the path of a file, and two before a host",
            path=redacted_url(url),
        ) from error
    if scheme not in _DIALECTS:
        raise TopologyError(
            f"states cannot be stored through {scheme!r}; write {scheme.partition('+')[0]!r}; "
            f"expected one of {', '.join(sorted(_DIALECTS))}; other drivers are not tested",
            scheme=scheme,
            expected=tuple(sorted(_DIALECTS)),
        )
    if _DIALECTS[scheme] is SqliteDialect and parsed.host:
        raise TopologyError(
            "the URL of an SQLite file has no host, so it needs three slashes; got "
            f"{redacted_url(url)!r}; write {f'sqlite:///{parsed.host}'!r}",
            path=redacted_url(url),
        )
    return parsed


def _checked(table: StateTable) -> StateTable:
    names = [*table.key.names, *table.value.names]
    if table.name.casefold() == LEDGER or len(table.name.encode()) > TABLE_BYTES_MAX:
        raise TopologyError(
            f"bad name of a state's table; got {table.name!r}; "
            f"expected at most {TABLE_BYTES_MAX} bytes and not {LEDGER!r}",
            state=table.name,
        )
    for name in names:
        if len(name.encode()) > _COLUMN_BYTES_MAX or "\0" in name:
            raise TopologyError(
                f"bad column name in state {table.name!r}; got {name!r}; "
                f"expected at most {_COLUMN_BYTES_MAX} bytes",
                state=table.name,
                column=name,
            )
        if [other.casefold() for other in names].count(name.casefold()) > 1:
            raise TopologyError(
                f"state {table.name!r} has columns that differ only in case: {name!r}; databases "
                "cannot tell them apart; rename one",
                state=table.name,
                column=name,
            )
    return table


open_backend = SqlFactory()
