"""The table or query that a spout reads, as SQL."""

from __future__ import annotations

import datetime
import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from txtopo.database_errors import NOT_UTF8, passes
from txtopo.errors import (
    ConfigError,
    EmitError,
    InfrastructureError,
    SourceDataLost,
    TopologyChanged,
)
from txtopo.extras import EXTRAS, require
from txtopo.metadata import Json
from txtopo.servers import Server
from txtopo.sources.query.keys import EXPECTED, KEY_TYPES, Gap, Key, PlannedKeys
from txtopo.spouts.spout import other_position
from txtopo.sql_sessions import (
    database_servers,
    read_json_as_text,
    set_up_mysql_query,
    set_up_postgresql,
)
from txtopo.tuples import Fields

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Dialect, Engine, FromClause, SelectBase
    from sqlalchemy.exc import DBAPIError
    from sqlalchemy.types import TypeEngine

_DRIVERS = {"postgresql": "psycopg", "mysql": "pymysql", "mariadb": "pymysql"}

# Parameters of psycopg, unless the URL sets them, as for states. Without them a query whose server
# vanished waits for two hours.
_PROBES = {
    "connect_timeout": 10,
    "tcp_user_timeout": 15_000,
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 2,
}

# The names that drivers of MariaDB and MySQL use for FLOAT and TIMESTAMP.
_MYSQL_FLOAT = 4
_MYSQL_TIMESTAMP = 7

# Forms of text in SQLite that sort like their times: what SQLAlchemy and SQLite write. Other forms
# must not be mixed in: 'T' sorts behind ' '.
_DAY = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]"
_SECOND = f"{_DAY} [0-9][0-9]:[0-9][0-9]:[0-9][0-9]"
_MOMENTS = (_DAY, _SECOND, f"{_SECOND}.{'[0-9]' * 3}", f"{_SECOND}.{'[0-9]' * 6}")

# For a longer query, metadata has its beginning and its digest.
_QUERY_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True)
class QuerySource:
    """The table or query that a spout reads. Picklable.

    Attributes:
        url: URL of the database, with its password.
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

    @property
    def counts(self) -> bool:
        """Whether the key is a number, not a time."""
        return KEY_TYPES[self.kind] is int

    @property
    def identity(self) -> dict[str, str]:
        """The parts that distinguish the keys of this source from those of another, for metadata.

        The URL is not included, since a database may move.
        """
        query = " ".join(self.query.split())
        if len(query) > _QUERY_CHARACTERS_MAX:
            digest = hashlib.sha256(query.encode()).hexdigest()
            query = f"{query[: _QUERY_CHARACTERS_MAX // 2]}… (sha256 {digest})"
        return {"key": self.key, "query": query}

    def check_same(self, metadata: Json, *, may_change: bool) -> None:
        """Check that a batch was planned by this query, or that another one is allowed.

        Raises:
            TopologyChanged: It was planned by another query, or by another key, which is never
                allowed: a position by another key means nothing for this one.
        """
        planned = cast("dict[str, dict[str, Json]]", metadata)["source"]
        identity = self.identity
        wrong = [name for name in identity if planned.get(name) != identity[name]]
        if not wrong or (may_change and "key" not in wrong):
            return
        way = "or begin again under another topology id"
        if "key" not in wrong:
            way = (
                "if the rows after the position are the next ones of the new query, start with "
                f"Config(allow_change=['source']) until a batch is planned; {way}"
            )
        raise TopologyChanged(
            f"the stored position belongs to another {' and another '.join(wrong)}; got "
            f"{', '.join(f'the {name} {identity[name]!r}' for name in wrong)}; expected "
            f"{', '.join(f'{planned.get(name)!r}' for name in wrong)}, with which it was planned; "
            f"restore the old one; {way}",
            changes=tuple(f"{name} of the query spout" for name in wrong),
        )

    def engine(self) -> Engine:
        """Return an engine without a pool of connections; it need not be disposed of.

        Its sessions are in UTC, whatever the server, its database or its user has set for sessions;
        see :mod:`txtopo.sql_sessions`.

        Raises:
            ConfigError: The URL cannot be used.
        """
        from sqlalchemy import create_engine, event, make_url
        from sqlalchemy.exc import ArgumentError
        from sqlalchemy.pool import NullPool

        try:
            url = make_url(self.url)
            if url.drivername in _DRIVERS:
                driver = _DRIVERS[url.drivername]
                require(driver, f"{url.drivername}://")
                url = url.set(drivername=f"{url.drivername}+{driver}")
            probes = _PROBES if url.get_driver_name() == "psycopg" else {}
            given = {name: value for name, value in probes.items() if name not in url.query}
            engine = create_engine(
                url, poolclass=NullPool, hide_parameters=True, connect_args=given
            )
        except (ArgumentError, ImportError) as error:
            reason = str(error).replace(self.url, "…")
            raise ConfigError(
                f"the URL of a query cannot be used: {reason}; expected one of SQLAlchemy's, such "
                "as postgresql://user@host/database, and its driver installed",
                setting="url",
            ) from None
        if engine.dialect.driver == "psycopg":
            set_up_postgresql(engine)
            event.listen(engine, "connect", lambda driver, _: read_json_as_text(driver))
        elif engine.dialect.name == "postgresql":
            event.listen(engine, "connect", _set_time_zone)
        elif engine.dialect.name in ("mysql", "mariadb"):
            event.listen(engine, "connect", lambda driver, _: set_up_mysql_query(driver))
        return engine

    @contextmanager
    def connected(self, engine: Engine) -> Iterator[Connection]:
        """Open a connection for reading.

        Raises:
            InfrastructureError: The database cannot be reached, or failed; try again.
            EmitError: A value cannot be read, such as the time ``infinity``; repair the row.
            SourceDataLost: The database refuses the query; was the table changed?
        """
        from sqlalchemy.exc import (
            DataError,
            DBAPIError,
            InterfaceError,
            InternalError,
            OperationalError,
        )

        try:
            with engine.connect() as connection:
                yield connection
        except DataError as error:
            raise EmitError(self.unreadable(error), query=self.query) from error
        except DBAPIError as error:
            if NOT_UTF8 in str(error.orig):
                raise EmitError(self.unreadable(error), query=self.query) from error
            if isinstance(error, OperationalError | InterfaceError | InternalError) and passes(
                error.orig
            ):
                raise InfrastructureError(
                    f"cannot read {self.query!r:.100}: {error.orig}", query=self.query
                ) from error
            raise SourceDataLost(
                f"{self.query!r:.100} cannot be read: {error.orig}; expected columns "
                f"{', '.join(self.fields.names)}; was the table changed, or a privilege revoked?",
                query=self.query,
            ) from error

    def unreadable(self, error: DBAPIError) -> str:
        """Return the error for a value that the driver or the database refuses."""
        return (
            f"a value of {self.query!r:.100} cannot be read: {error.orig}; expected "
            f"{self.fields!r}; repair the row, or exclude it in the query"
        )

    def checked(self, key: Any, wrong: type[ConfigError | EmitError] = ConfigError) -> Key | None:
        """Return a key as the database gave it, or raise *wrong* if it is of another type."""
        expected = KEY_TYPES[self.kind]
        if key is None or type(key) is expected:
            return cast("Key | None", key)
        raise wrong(
            f"the key {self.key!r} of {self.query!r:.100} is not a {self.kind}; got {key!r}, a "
            f"{type(key).__name__}; expected {EXPECTED[expected]}; declare the field with the "
            "type of the column, or convert it in the query: (SELECT CAST(… AS …) …)",
            key=self.key,
        )

    def check_order(
        self,
        connection: Connection,
        keys: SelectBase,
        wrong: type[ConfigError | EmitError] = ConfigError,
    ) -> None:
        """Raise *wrong* if SQLite sorts keys in another order than their values.

        SQLite keeps any value in any column, compares times as text, and sorts text behind all
        numbers. Other databases compare by the declared type.

        Args:
            connection: A connection to any database.
            keys: Selects the keys to check, under the name of the key.
            wrong: What to raise.
        """
        from sqlalchemy import String, func, or_, select, type_coerce

        if connection.dialect.name != "sqlite":
            return
        key = type_coerce(keys.subquery("txtopo_keys").c[self.key], String)
        fit: ColumnElement[bool]
        if self.counts:
            fit = (func.typeof(key) == "integer") | key.is_(None)
            expected = (
                "a value that is INTEGER to SQLite; convert it: (SELECT CAST(… AS INTEGER) …)"
            )
        else:
            forms = [_DAY] if self.kind == "date" else _MOMENTS
            fit = or_(*(key.bool_op("GLOB")(form) for form in forms))
            shape = "2026-01-31" if self.kind == "date" else "2026-01-31 12:00:00"
            expected = (
                f"the form {shape!r}, in UTC and without a zone; write it like that, as SQLAlchemy "
                "does with datetime and date"
            )
        found = connection.execute(select(key).where(~fit).limit(1)).scalar()
        if found is not None:
            raise wrong(
                f"column {self.key!r} of {self.query!r:.100} has a value that SQLite would "
                f"compare wrongly, because it compares text as text; got {found!r:.100}; expected "
                f"{expected}",
                column=self.key,
            )

    def selectable(self) -> FromClause:
        """Return the table or query, with the fields as columns."""
        from sqlalchemy import column, table, text

        columns = [column(field.name, _type(field.type)) for field in self.fields]
        if self.query.lstrip().startswith("("):
            inner = self.query.strip()[1:-1].replace(":", "\\:")  # no parameters of SQLAlchemy's
            return text(inner).columns(*columns).subquery("txtopo_rows")
        schema, _, name = self.query.rpartition(".")
        return table(name, *columns, schema=schema or None)

    def exact_columns(self, connection: Connection, rows: FromClause) -> list[ColumnElement[Any]]:
        """Return the columns to read; of MariaDB and MySQL, a FLOAT is read as a DOUBLE.

        These servers print a FLOAT with six digits only, which differs from the stored number. A
        TIMESTAMP of theirs is a moment, but their client returns it without a zone.

        Raises:
            EmitError: A TIMESTAMP is declared as ``timestamp_ntz``.
        """
        from sqlalchemy import literal_column, select

        columns: list[ColumnElement[Any]] = list(rows.c)
        if connection.dialect.name not in ("mysql", "mariadb"):
            return columns
        result = connection.execute(select(rows).limit(0))
        kinds = [part[1] for part in result.cursor.description]
        result.close()
        for field, kind in zip(self.fields, kinds, strict=True):
            if kind == _MYSQL_TIMESTAMP and field.type == "timestamp_ntz":
                raise EmitError(
                    f"column {field.name!r} of {self.query!r:.100} is a TIMESTAMP, which is a "
                    "moment; got a timestamp_ntz, which has no zone; expected a timestamp; "
                    "declare it as one, or convert it in the query: (SELECT CAST(… AS "
                    "DATETIME(6)) …)",
                    column=field.name,
                )
        return [
            (each * literal_column("1e0")).label(each.name) if kind == _MYSQL_FLOAT else each
            for each, kind in zip(columns, kinds, strict=True)
        ]

    def between(self, rows: FromClause, after: Key | None, upto: Key) -> ColumnElement[bool]:
        """Return the condition for keys after *after*, up to *upto* (included)."""
        key = rows.c[self.key]
        return key <= upto if after is None else (key > after) & (key <= upto)

    def to_json(self, key: Key | None) -> int | str | None:
        """Return a key in its form in metadata."""
        return key if key is None or isinstance(key, int) else key.isoformat()

    def key_from(self, place: Json) -> Key | None:
        """Return the key that a program names by its form in metadata.

        Raises:
            ConfigError: It is not a key.
        """
        try:
            if isinstance(place, bool):  # which Python takes for a number, and SQL does not
                raise TypeError(f"{place} is not a number")
            key = self._from_json(place)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"a query cannot begin there; got {place!r:.100}; expected the form of a "
                f"{self.kind} in metadata, which is a number, or text in ISO 8601; it is the "
                f"place where {self.query!r:.100} begins, after that key",
                key=self.key,
            ) from error
        if isinstance(key, datetime.datetime) and key.tzinfo is not None:
            return key.astimezone(datetime.UTC)  # some drivers drop the zone
        return key

    def planned(self, metadata: Json) -> PlannedKeys:
        """Return the keys in the metadata of a batch.

        Raises:
            TopologyChanged: Another spout planned it, or this one with a key of another type.
        """
        match metadata:
            case {
                "after": after,
                "upto": upto,
                "cuts": list(cuts),
                "newest": newest,
                "source": dict(),
                **more,
            }:
                key = self._from_json
                try:
                    return PlannedKeys(
                        *(key(after), key(upto), key(newest)),
                        [(key(end), rows) for end, rows in cast("Any", cuts)],
                        tuple(Gap(*gap) for gap in cast("Any", more.get("gaps", []))),
                        cast("int | None", more.get("at_upto")),
                    )
                except (TypeError, ValueError):
                    pass
        raise other_position(f"a QueryTransactionalSpout whose key is a {self.kind}", metadata)

    def _from_json(self, kept: Any) -> Key | None:
        """Return a key as the Python value that the database returned."""
        if kept is None:
            return None
        kind: Any = KEY_TYPES[self.kind]
        if kind is not int:
            return cast("Key", kind.fromisoformat(kept))
        if not isinstance(kept, int):
            raise TypeError(f"{kept!r:.100} is not a number")
        return kept


def modules_of(url: str) -> tuple[str, ...]:
    """Return the modules that read a database, as far as they are ours to choose or an extra's."""
    scheme = url.partition(":")[0]
    driver = _DRIVERS.get(scheme, scheme.partition("+")[2])
    return ("sqlalchemy", driver) if driver in EXTRAS else ("sqlalchemy",)


def servers_of(url: str) -> tuple[Server, ...]:
    """Return the server of a database; none for a file, or for a URL that cannot be read."""
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        return database_servers(make_url(url))
    except (ArgumentError, ValueError):
        return ()  # the first connection says what is wrong with it


def _set_time_zone(driver: Any, _: object) -> None:
    """Set up a session, unless the driver is psycopg, which has its own settings."""
    cursor = driver.cursor()
    cursor.execute("SET TIME ZONE 'UTC'")
    cursor.close()
    driver.commit()


def _type(kind: str) -> TypeEngine[Any]:
    """Return the type of a column: for comparisons, and for the texts of SQLite's times.

    All other values are read as the driver returns them, since SQLAlchemy would force them to fit:
    it rounds a binary number to the scale of a decimal, and treats any number but 0 as true.
    :mod:`txtopo.fitting` decides what fits.
    """
    import sqlalchemy

    kinds: dict[str, TypeEngine[Any]] = {
        "byte": sqlalchemy.SmallInteger(),
        "short": sqlalchemy.SmallInteger(),
        "int": sqlalchemy.Integer(),
        "long": sqlalchemy.BigInteger(),
        "date": sqlalchemy.Date(),
        "timestamp": sqlalchemy.DateTime(timezone=True).with_variant(_moments(), "sqlite"),
        "timestamp_ntz": sqlalchemy.DateTime().with_variant(_moments(), "sqlite"),
    }
    return kinds.get(kind, sqlalchemy.types.NullType())


@cache
def _moments() -> TypeEngine[Any]:
    """Return the type of SQLite's time texts: Python would drop digits after the sixth."""
    from sqlalchemy import types
    from sqlalchemy.dialects.sqlite import DATETIME

    class Moments(types.TypeDecorator[datetime.datetime]):
        impl = DATETIME
        cache_ok = True

        def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
            return _moment

    return Moments()


_FINER = re.compile(r"[.,]\d{6}0*[1-9]")


def _moment(text: Any) -> Any:
    """Return a time from SQLite; anything but text is returned unchanged, to be refused later."""
    if not isinstance(text, str):
        return text
    if _FINER.search(text):
        raise ValueError(f"{text!r} has parts of a microsecond")
    return datetime.datetime.fromisoformat(text)
