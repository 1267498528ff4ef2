"""QuerySource: a table or query with a key, in SQLAlchemy's terms; how keys are kept as JSON."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from txtopo.errors import ConfigError, InfrastructureError, SourceDataLost
from txtopo.spouts.query.errors import passes
from txtopo.tuples import Fields

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Engine, FromClause
    from sqlalchemy.types import TypeEngine

Key = int | datetime.date
"""A date, or a datetime, which is one too."""
_DRIVERS = {"postgresql": "psycopg", "mysql": "pymysql", "mariadb": "pymysql"}
_KEYS: dict[str, type] = {
    "byte": int,
    "short": int,
    "int": int,
    "long": int,
    "date": datetime.date,
    "timestamp": datetime.datetime,
    "timestamp_ntz": datetime.datetime,
}


@dataclass(frozen=True, slots=True)
class QuerySource:
    """What is read; picklable.

    Attributes:
        url: Of the database, with its password.
        query: Name of a table, or a SELECT in parentheses.
        key: Name of the key column.
        kind: Type of the key field.
        fields: The columns.
    """

    url: str
    query: str
    key: str
    kind: str
    fields: Fields

    def __repr__(self) -> str:
        return f"QuerySource({self.query!r:.100})"

    def engine(self) -> Engine:
        """Return an engine that keeps no connection; who has it need not close it.

        Raises:
            ConfigError: The URL cannot be used.
        """
        from sqlalchemy import create_engine, make_url
        from sqlalchemy.exc import ArgumentError
        from sqlalchemy.pool import NullPool

        try:
            url = make_url(self.url)
            if url.drivername in _DRIVERS:
                url = url.set(drivername=f"{url.drivername}+{_DRIVERS[url.drivername]}")
            return create_engine(url, poolclass=NullPool, hide_parameters=True)
        except (ArgumentError, ImportError) as error:
            reason = str(error).replace(self.url, "…")
            raise ConfigError(
                f"the URL of a query cannot be used: {reason}; expected one of SQLAlchemy's, such "
                "as postgresql://user@host/database, and its driver installed"
            ) from None

    @contextmanager
    def connected(self, engine: Engine) -> Iterator[Connection]:
        """Open a connection for reading.

        Raises:
            InfrastructureError: The database cannot be reached, or failed; try again.
            SourceDataLost: It no longer understands the query, or refuses to run it.
        """
        from sqlalchemy.exc import (
            DBAPIError,
            InterfaceError,
            InternalError,
            OperationalError,
        )

        try:
            with engine.connect() as connection:
                yield connection
        except DBAPIError as error:
            if isinstance(error, OperationalError | InterfaceError | InternalError) and passes(
                error.orig
            ):
                raise InfrastructureError(
                    f"cannot read {self.query!r:.100}: {error.orig}"
                ) from error
            raise SourceDataLost(
                f"{self.query!r:.100} cannot be read: {error.orig}; expected columns "
                f"{', '.join(self.fields.names)}; was the table changed, or a right taken away?",
                query=self.query,
            ) from error

    def selectable(self) -> FromClause:
        """Return the table or query, with the fields as columns."""
        from sqlalchemy import column, table, text

        columns = [column(field.name, _type(field.type)) for field in self.fields]
        if self.query.lstrip().startswith("("):
            inner = self.query.strip()[1:-1].replace(":", "\\:")  # no parameters of SQLAlchemy's
            return text(inner).columns(*columns).subquery("txtopo_rows")
        schema, _, name = self.query.rpartition(".")
        return table(name, *columns, schema=schema or None)

    def between(self, rows: FromClause, after: Key | None, upto: Key) -> ColumnElement[bool]:
        """Return the condition of a range of keys: behind *after*, and *upto* included."""
        key = rows.c[self.key]
        return key <= upto if after is None else (key > after) & (key <= upto)

    def to_json(self, key: Key | None) -> int | str | None:
        """Return a key as it is kept in metadata."""
        return key if key is None or isinstance(key, int) else key.isoformat()

    def from_json(self, kept: Any) -> Key | None:
        """Return a key from metadata, as the database gave it."""
        if kept is None:
            return None
        kind: Any = _KEYS[self.kind]
        return int(kept) if kind is int else kind.fromisoformat(kept)


def check_key(key: str, fields: Fields, start_after: object) -> str:
    """Return the type of the key field.

    Raises:
        ConfigError: There is no such field, or it cannot be a key, or the first key is no such one.
    """
    kinds = {field.name: field.type for field in fields}
    kind = kinds.get(key)
    if kind not in _KEYS:
        got = f"{key!r}, which is no field" if kind is None else f"{key!r}, a {kind}"
        raise ConfigError(
            f"the key of a query is wrong; got {got}; expected one of the fields, which is a "
            f"whole number, a date or a timestamp; the fields are {fields}",
            key=key,
        )
    if start_after is not None and type(start_after) is not _KEYS[kind]:
        raise ConfigError(
            f"start_after of a query is no key; got {start_after!r}; expected a {kind}", key=key
        )
    return kind


def _type(kind: str) -> TypeEngine[Any]:
    import sqlalchemy

    decimal = re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", kind)
    if decimal:
        return sqlalchemy.Numeric(int(decimal.group(1)), int(decimal.group(2)))
    kinds: dict[str, TypeEngine[Any]] = {
        "boolean": sqlalchemy.Boolean(),
        "byte": sqlalchemy.SmallInteger(),
        "short": sqlalchemy.SmallInteger(),
        "int": sqlalchemy.Integer(),
        "long": sqlalchemy.BigInteger(),
        "float": sqlalchemy.Float(),
        "double": sqlalchemy.Double(),
        "date": sqlalchemy.Date(),
        "timestamp": sqlalchemy.DateTime(timezone=True),
        "timestamp_ntz": sqlalchemy.DateTime(),
        "binary": sqlalchemy.LargeBinary(),
    }
    return kinds.get(kind, sqlalchemy.Text())
