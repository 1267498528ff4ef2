"""The spout that reads a SQL table by ranges of a growing key: QueryTransactionalSpout.

The metadata of a batch is ``{"after": key, "upto": key, "cuts": [[key, rows], …], "newest": key,
"at_upto": rows, "gaps": [[key or null, key], …], "source": {"key": name, "query": text}}``.

Each cut is read by one task: the rows after the key of the cut before it, up to its own key. The
number of rows was counted when the batch was planned; a task that reads another number knows that
rows were changed. ``newest`` was the largest key in the table at that time; when the table ends
before it, unread rows have been deleted. ``at_upto`` is the number of rows whose key is the last
one of the batch. ``gaps`` are the largest distances between keys so far, for keys that are numbers;
the one before the first key has no beginning. ``source`` tells a position from one in another table
or by another key, which may be an equal number.

Rows
----
1. A row whose key is a time that has not come yet is not there yet: it is not the newest key, and
   no batch reads up to it. So one row of a writer whose clock is ahead does not take the position
   past all rows of the present. It is told, and read when its time has come. The time of a date
   has come when the day is over, since rows of that day come until then.
2. No such bound is known of numbers. A row whose number is far ahead, as one typed by hand, is
   read, and the position with it. The rows that follow then have keys within the gap before it,
   which count as read. So the largest gaps are kept, and a row that appears in one ends the run.
   All numbers before the first row are a gap, too.
3. A row that comes with the last key that was read counts as read. So the rows of that key are
   counted, and one more ends the run. It happens if keys are times of whole hours, or numbers of
   files, and ``settle_s`` is shorter than such a key lasts.
"""

from __future__ import annotations

import datetime
import hashlib
import math
import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import unquote

from txtopo import clock
from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.config import Config, check_text
from txtopo.context import TaskContext
from txtopo.database_errors import NOT_UTF8, passes
from txtopo.errors import (
    ConfigError,
    EmitError,
    InfrastructureError,
    OffsetRegression,
    SourceDataLost,
    TopologyChanged,
)
from txtopo.extras import require
from txtopo.fitting import fitted_values
from txtopo.log_records import logger_of
from txtopo.metadata import Json
from txtopo.spouts.spout import (
    LastBatch,
    TransactionalCoordinator,
    TransactionalEmitter,
    TransactionalSpout,
    check_min_batch_rows,
    other_position,
)
from txtopo.spouts.values import first_bad, fitted_column
from txtopo.sql_sessions import set_up_mysql_query, set_up_postgresql
from txtopo.tuples import Fields

if TYPE_CHECKING:
    import pyarrow as pa
    from sqlalchemy import (
        ColumnElement,
        Connection,
        Dialect,
        Engine,
        FromClause,
        Result,
        SelectBase,
    )
    from sqlalchemy.exc import DBAPIError
    from sqlalchemy.types import TypeEngine

_logger = logger_of("txtopo.spouts")

Key = int | datetime.date
"""A key; a datetime is a date, too."""

_DRIVERS = {"postgresql": "psycopg", "mysql": "pymysql", "mariadb": "pymysql"}

# Of psycopg, unless the URL has them, as for states. Else a query whose server is gone without a
# word waits for two hours.
_PROBES = {
    "connect_timeout": 10,
    "tcp_user_timeout": 15_000,
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 2,
}

# What drivers of MariaDB and MySQL call a FLOAT and a TIMESTAMP.
_MYSQL_FLOAT = 4
_MYSQL_TIMESTAMP = 7

_KEYS: dict[str, type] = {
    "byte": int,
    "short": int,
    "int": int,
    "long": int,
    "date": datetime.date,
    "timestamp": datetime.datetime,
    "timestamp_ntz": datetime.datetime,
}

_EXPECTED = {
    int: "a whole number",
    datetime.date: "a date",
    datetime.datetime: "a date with a time",
}

# Texts of SQLite whose order is that of their times: what SQLAlchemy and SQLite write. No other
# form may be among them: 'T' is behind ' '.
_DAY = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]"
_SECOND = f"{_DAY} [0-9][0-9]:[0-9][0-9]:[0-9][0-9]"
_MOMENTS = (_DAY, _SECOND, f"{_SECOND}.{'[0-9]' * 3}", f"{_SECOND}.{'[0-9]' * 6}")

# The newest key is noted this many times while it settles.
_NOTES_MAX = 100

_MICROSECOND = datetime.timedelta(microseconds=1)

# The clocks of some databases tick in seconds.
_TICK_S = 1.0

# A longer query is in metadata by its beginning and its digest.
_QUERY_CHARACTERS_MAX = 200

# The largest gap is that before a number which was typed by hand, but some may be of the source,
# and one is before the first number.
_GAPS_MAX = 5

# Up to this number, rows of the last key that was read are counted at every look, and else only
# before a batch is planned.
_COUNTED_MAX = 1_000

# The rows that a task holds at once; record batches of this size are the fastest to process.
_ROWS_AT_ONCE = 10_000


class QueryTransactionalSpout(TransactionalSpout):
    """Reads the rows of a SQL table or query in the order of a growing key, with SQLAlchemy.

    Delivery: transactional. A batch is a range of keys together with its number of rows. If a task
    finds another number of rows in its part of the range, the run stops with ``SourceDataLost``. It
    also stops when unread rows at the end of the table are gone. Rows must not be changed, nor
    deleted before their batch is committed. Each row is then emitted in exactly one batch, on one
    condition, which holds for every reader of a table:

    *Rows may become visible in a different order from that in which their keys were assigned.* A
    sequence, an identity column or ``now()`` assigns a key when a row is inserted, but others see
    the row only when its transaction is committed. If a larger key was read before that, the row
    would be skipped, and nothing could notice. So the spout reads up to a key only when it has seen
    the key for ``settle_s`` seconds. Give more seconds than the longest transaction that inserts
    rows takes, and if several rows have one key, than the time between the first and the last of
    them. 0 is right if the table no longer grows, or if one transaction at a time inserts.

    A key that is a time is read when the time has come, by the clock of the database in UTC: a row
    of a writer whose clock is ahead waits, and a warning, the page and the metrics say so. A date
    has come when its day is over. A number is read however far it is ahead. If rows then come with
    numbers before it that count as read, or with the last key that was read, the run ends with
    ``OffsetRegression``.

    Ranges are planned in the driver; the tasks divide a batch and read it. Rows are read in the
    order of the key, so give it an index. Rows of equal keys stay in one batch, in no order.

    Rows may be deleted once they are committed, but a key that was read must not come again: a
    table that is emptied continues behind it. The position belongs to the key and the query, and
    the run stops with ``TopologyChanged`` if another one is under the id of the topology.

    Sessions in PostgreSQL, MariaDB and MySQL are in UTC, whatever the zone of the server is. Times
    without a zone that become a ``timestamp`` are taken as UTC, from every database.

    For topologies of DataFrames, ``DataFrameTransactionalSpout(spout.coordinator, read, fields)``
    plans the same ranges: ``metadata["after"]`` (excluded, or None) to ``metadata["upto"]``.

    Args:
        url: The database, as a URL of SQLAlchemy; the driver is chosen for PostgreSQL and MariaDB.
            The URL travels to the tasks with its password.
        query: A table or view, as ``name`` or ``schema.name``, or a ``SELECT`` in parentheses. The
            database should be able to search a ``SELECT`` by the key.
        key: Name of the growing field: a whole number, a date or a timestamp; never NULL.
        fields: The columns to emit, including the key.
        settle_s: How many seconds a key must have been visible before it is read.
        start_after: Start after this key (exclusive); None starts with the first row.
        batch_rows_max: Maximum rows of a batch; exceeded only to keep rows of equal keys together.
        max_ahead_s: How many seconds a key that is a time may be ahead of the database's clock and
            be read: as many as local times are ahead of UTC, if keys are local times; 86,400 if all
            rows of a date are inserted at once. None for any, if the table no longer grows.

    Raises:
        ConfigError: An argument is wrong.

    Example:
        >>> from txtopo import Fields
        >>> from txtopo.spouts import QueryTransactionalSpout
        >>> fields = Fields("id long, word string")
        >>> spout = QueryTransactionalSpout("sqlite:///w.db", "words", "id", fields, settle_s=10)
    """

    client_modules = ("sqlalchemy",)

    def __init__(
        self,
        url: str,
        query: str,
        key: str,
        fields: Fields,
        *,
        settle_s: float,
        start_after: Any = None,
        batch_rows_max: int = 10_000,
        max_ahead_s: float | None = 0.0,
    ) -> None:
        if type(batch_rows_max) is not int or batch_rows_max < 1:
            raise ConfigError(
                f"batch_rows_max of a query is wrong; got {batch_rows_max!r}; expected a whole "
                "number of at least 1"
            )
        if isinstance(settle_s, bool) or not isinstance(settle_s, int | float) or not settle_s >= 0:
            raise ConfigError(
                f"settle_s of a query is wrong; got {settle_s!r}; expected seconds: more than the "
                "longest transaction that inserts rows takes, or 0 if there is one at a time"
            )
        _check_ahead(max_ahead_s)
        check_text("the URL of a query", unquote(url))
        kind = check_key(key, fields, start_after)
        if isinstance(start_after, datetime.datetime) and start_after.tzinfo is not None:
            start_after = start_after.astimezone(datetime.UTC)  # some drivers drop the zone
        self.output_fields = fields
        self._source = QuerySource(url, query, key, kind, fields)
        self._start_after = start_after
        self._settle_s = settle_s
        self._batch_rows_max = batch_rows_max
        self._max_ahead_s = max_ahead_s

    def coordinator(self, config: Config, context: TaskContext) -> QueryCoordinator:
        """Make the planning part.

        Raises:
            ConfigError: The query cannot be run, or a key is NULL or of another type.
            InfrastructureError: The database cannot be reached; try again.
        """
        check_min_batch_rows(config, self._batch_rows_max, "batch_rows_max")
        planner = QueryCoordinator(
            self._source,
            self._start_after,
            self._settle_s,
            self._batch_rows_max,
            context,
            allow_change=config.allow_change,
            max_ahead_s=self._max_ahead_s,
        )
        planner.check()
        return planner

    def emitter(self, config: Config, context: TaskContext) -> QueryEmitter:
        """Make an emitting part."""
        return QueryEmitter(self._source, context, allow_change=config.allow_change)


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
        return _KEYS[self.kind] is int

    @property
    def identity(self) -> dict[str, str]:
        """What tells its keys from those of another source, for metadata.

        The URL is not in it: a database may move.
        """
        query = " ".join(self.query.split())
        if len(query) > _QUERY_CHARACTERS_MAX:
            digest = hashlib.sha256(query.encode()).hexdigest()
            query = f"{query[: _QUERY_CHARACTERS_MAX // 2]}… (sha256 {digest})"
        return {"key": self.key, "query": query}

    def check_same(self, metadata: Json, *, allow_change: bool) -> None:
        """Check that a batch was planned by this query, or that another one is allowed.

        Raises:
            TopologyChanged: It was planned by another one, or by another key, which is never
                allowed: its position says nothing about this one.
        """
        planned = cast("dict[str, dict[str, Json]]", metadata)["source"]
        identity = self.identity
        wrong = [name for name in identity if planned.get(name) != identity[name]]
        if not wrong or (allow_change and "key" not in wrong):
            return
        way = "or begin again under another topology id"
        if "key" not in wrong:
            way = (
                "if the rows behind the position are the next ones of the new query, start with "
                f"Config(allow_change=True) until a batch is planned; {way}"
            )
        raise TopologyChanged(
            f"the stored position is one of another {' and another '.join(wrong)}; got "
            f"{', '.join(f'the {name} {identity[name]!r}' for name in wrong)}; expected "
            f"{', '.join(f'{planned.get(name)!r}' for name in wrong)}, by which it was planned; "
            f"give the old one back; {way}",
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
                "as postgresql://user@host/database, and its driver installed"
            ) from None
        if engine.dialect.driver == "psycopg":
            set_up_postgresql(engine)
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
                    f"cannot read {self.query!r:.100}: {error.orig}"
                ) from error
            raise SourceDataLost(
                f"{self.query!r:.100} cannot be read: {error.orig}; expected columns "
                f"{', '.join(self.fields.names)}; was the table changed, or a right taken away?",
                query=self.query,
            ) from error

    def unreadable(self, error: DBAPIError) -> str:
        """Return what is wrong when the driver or the database refuses a value."""
        return (
            f"a value of {self.query!r:.100} cannot be read: {error.orig}; expected "
            f"{self.fields!r}; repair the row, or leave it out by a query"
        )

    def checked(self, key: Any, wrong: type[ConfigError | EmitError] = ConfigError) -> Key | None:
        """Return a key as the database gave it, or raise *wrong* if it is of another type."""
        expected = _KEYS[self.kind]
        if key is None or type(key) is expected:
            return cast("Key | None", key)
        raise wrong(
            f"the key {self.key!r} of {self.query!r:.100} is not a {self.kind}; got {key!r}, a "
            f"{type(key).__name__}; expected {_EXPECTED[expected]}; declare the field as the "
            "column is, or convert it by a query: (SELECT CAST(… AS …) …)",
            key=self.key,
        )

    def check_order(
        self,
        connection: Connection,
        keys: SelectBase,
        wrong: type[ConfigError | EmitError] = ConfigError,
    ) -> None:
        """Raise *wrong* if SQLite has keys in another order than their values.

        SQLite keeps any value in any column, compares times as texts, and texts behind all numbers.
        Other databases compare what they have declared.

        Args:
            connection: A connection to any database.
            keys: Selects the keys to look at, under the name of the key.
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
                f"column {self.key!r} of {self.query!r:.100} has a value that SQLite would not "
                "compare rightly, since it compares texts as texts; "
                f"got {found!r:.100}; expected {expected}",
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
        """Return the columns to read: a FLOAT of MariaDB and MySQL as a DOUBLE.

        They print a FLOAT with six digits, which are another number than the one that they hold and
        compute with. A TIMESTAMP of theirs is a moment, which their driver gives without a zone.

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
                    "moment; got a timestamp_ntz, which has no zone; expected a timestamp; declare "
                    "it so, or convert it by a query: (SELECT CAST(… AS DATETIME(6)) …)",
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
        """Return a key as it is stored in metadata."""
        return key if key is None or isinstance(key, int) else key.isoformat()

    def planned(self, metadata: Json) -> PlannedKeys:
        """Return the keys in the metadata of a batch.

        Raises:
            TopologyChanged: Another spout planned it, or this one by a key of another type.
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
        """Return a key as the Python value that the database gave."""
        if kept is None:
            return None
        kind: Any = _KEYS[self.kind]
        if kind is not int:
            return cast("Key", kind.fromisoformat(kept))
        if not isinstance(kept, int):
            raise TypeError(f"{kept!r:.100} is no number")
        return kept


class Gap(NamedTuple):
    """A range of numbers in which there was no row when it was read past.

    Attributes:
        low: The key of the row before it; None before the first row.
        high: The key of the row after it.
    """

    low: int | None
    high: int

    @property
    def width(self) -> float:
        """How far the two keys are apart."""
        return math.inf if self.low is None else self.high - self.low

    def holds(self, key: Any) -> Any:
        """Return whether a key is in the gap, or the condition for a column."""
        below = key < self.high
        return below if self.low is None else (key > self.low) & below


class PlannedKeys(NamedTuple):
    """The metadata of a batch, with keys as the database gave them.

    Attributes:
        after: The end of the batch before.
        upto: The end of the batch.
        newest: The largest key in the table when the batch was planned.
        cuts: The end of each cut, and its number of rows.
        gaps: The largest gaps up to the end of the batch.
        at_upto: The number of rows whose key is the end of the batch.
    """

    after: Key | None
    upto: Key | None
    newest: Key | None
    cuts: list[tuple[Key | None, int]]
    gaps: tuple[Gap, ...] = ()
    at_upto: int | None = None


def check_key(key: str, fields: Fields, start_after: object) -> str:
    """Return the type of the key field.

    Raises:
        ConfigError: There is no such field, its type cannot be a key, or *start_after* is of
            another type.
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


def _check_ahead(max_ahead_s: object) -> None:
    number = isinstance(max_ahead_s, int | float) and not isinstance(max_ahead_s, bool)
    if max_ahead_s is not None and not (number and cast("float", max_ahead_s) >= 0):
        raise ConfigError(
            f"max_ahead_s of a query is wrong; got {max_ahead_s!r}; expected seconds by which a "
            "key may be ahead of the database's clock in UTC, or None for any",
            setting="max_ahead_s",
        )


def _comparable(key: Key) -> Any:
    """Return a key that can be compared with any other: without a zone, in UTC."""
    if isinstance(key, datetime.datetime) and key.tzinfo is not None:
        return key.astimezone(datetime.UTC).replace(tzinfo=None)
    return key


def _set_time_zone(driver: Any, _: object) -> None:
    """Set up a session of another driver than psycopg, whose own settings are left to it."""
    cursor = driver.cursor()
    cursor.execute("SET TIME ZONE 'UTC'")
    cursor.close()
    driver.commit()


def _type(kind: str) -> TypeEngine[Any]:
    """Return the type of a column: for comparisons, and for the texts of SQLite's times.

    Of all other values the driver's are read as they are, since SQLAlchemy would make them fit: it
    rounds a binary number to the scale of a decimal, and any number but 0 is true to it. What fits
    is decided by :mod:`txtopo.fitting`.
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
    """Return the type of SQLite's texts of times: Python would drop digits behind the sixth."""
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
    """Return a time of SQLite; what is not a text, for which SQLite has no type, as it is."""
    if not isinstance(text, str):
        return text
    if _FINER.search(text):
        raise ValueError(f"{text!r} has parts of a microsecond")
    return datetime.datetime.fromisoformat(text)


class Settling:
    """Finds the largest key that has been visible long enough.

    Two clocks must say so: the database's own, which may be set forward, and one of the driver that
    is never set. If the database's goes back, what was noted has to settle again.
    """

    def __init__(self, settle_s: float) -> None:
        self._settle_s = settle_s
        self._seen: deque[tuple[datetime.datetime, float, Key]] = deque()
        self._settled: Key | None = None

    def settled(self, now: datetime.datetime, elapsed_s: float, newest: Key | None) -> Key | None:
        """Return the largest key that may be read.

        Args:
            now: The time of the database.
            elapsed_s: The time of a clock that only goes forward.
            newest: The newest key at that time.
        """
        if not self._settle_s:
            return newest
        if self._seen and _seconds(now, self._seen[-1][0]) < -_TICK_S:
            self._seen.clear()

        def lasted(seen: tuple[datetime.datetime, float, Key], limit_s: float) -> bool:
            return min(_seconds(now, seen[0]), elapsed_s - seen[1]) >= limit_s

        if newest is not None and (
            not self._seen or lasted(self._seen[-1], self._settle_s / _NOTES_MAX)
        ):
            self._seen.append((now, elapsed_s, newest))
        while self._seen and lasted(self._seen[0], self._settle_s + _TICK_S):
            self._settled = self._seen.popleft()[2]
        return self._settled


def _seconds(now: datetime.datetime, before: datetime.datetime) -> float:
    return (now - before).total_seconds()


class QueryCoordinator(TransactionalCoordinator):
    """Plans the batches of a query in the driver."""

    def __init__(
        self,
        source: QuerySource,
        start_after: Key | None,
        settle_s: float,
        batch_rows_max: int,
        context: TaskContext,
        *,
        allow_change: bool = False,
        max_ahead_s: float | None = None,
    ) -> None:
        self._source = source
        self._max_ahead_s = None if source.counts else max_ahead_s
        self._ahead: Key | None = None
        self._first = start_after
        self._settling = Settling(settle_s)
        self._batch_rows_max = batch_rows_max
        self._tasks = context.tasks
        self._about = {"topology": context.topology_id, "component": context.component_id}
        self._allow_change = allow_change
        self._engine = source.engine()
        self._rows = source.selectable()
        self._upto: Key | None = None
        self._newest: Key | None = None
        self._was_empty = self._warned = self._replaced = False
        self._file: tuple[int, int] | None = None

    def check(self) -> None:
        """Check that the query can be read.

        Raises:
            ConfigError: It cannot be read, or a key is NULL or of another type; repair the query.
            InfrastructureError: The database cannot be reached; try again.
        """
        from sqlalchemy import func, select
        from sqlalchemy.exc import DataError, DBAPIError

        source, key = self._source, self._rows.c[self._source.key]
        with source.connected(self._engine) as connection:
            pass  # an unreachable database is no mistake in the query
        try:
            with self._engine.connect() as connection:
                connection.execute(select(self._rows).limit(0)).all()  # no value is looked at
                self._check_null(connection, ConfigError)
                source.check_order(connection, select(key))
                source.checked(connection.scalar(select(func.min(key))))
        except DataError as error:
            raise ConfigError(source.unreadable(error)) from error
        except DBAPIError as error:
            if error.connection_invalidated:
                raise InfrastructureError(f"cannot read {source.query!r:.100}") from error
            raise ConfigError(
                f"the query cannot be run: {error.orig}; got {source.query!r:.200}; expected a "
                f"table, or a SELECT in parentheses, with {', '.join(source.fields.names)}"
            ) from error

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        """Return whether a key after the last batch has settled, or enough of them.

        Raises:
            SourceDataLost: Unread rows are gone.
            OffsetRegression: The table was empty, and was filled again behind the position.
            TopologyChanged: The last batch was planned by another query or key.
            EmitError: A key cannot be read, or compared; repair its row.
        """
        with self._source.connected(self._engine) as connection:
            now, self._newest = self._look(connection)
            position = self._position(last.metadata)
            self._check_lost(position, last.metadata)
            self._check_filled_again(position, last.metadata)
            self._upto = self._settling.settled(now, clock.now(), self._newest)
            waits = self._upto is None or (
                position is not None and _comparable(self._upto) <= _comparable(position)
            )
            self._check_late(connection, last.metadata, also_many=not waits)
        if waits:
            return False
        if last.worth_a_batch(1, full=2):  # however few there are, so they need not be counted
            return True
        return last.worth_a_batch(self.unread(last)[self._source.key], self._batch_rows_max)

    def unread(self, last: LastBatch) -> Mapping[str, int]:
        """Return how many rows have settled, counted up to the limit of a batch."""
        from sqlalchemy import func, literal, select

        source, upto = self._source, self._upto
        assert upto is not None, "is_ready said so"
        within = source.between(self._rows, self._position(last.metadata), upto)
        few = select(literal(1)).select_from(self._rows).where(within)
        counted = select(func.count()).select_from(few.limit(self._batch_rows_max).subquery("few"))
        with source.connected(self._engine) as connection:
            return {source.key: connection.scalar(counted) or 0}

    def initialize_transaction(
        self, txid: int, previous_metadata: Json, *, rows_max: int | None = None
    ) -> Json:
        """Return the range of keys of the batch, divided into cuts.

        With *rows_max* it has no more rows, except to keep rows of equal keys together.

        Raises:
            SourceDataLost: Rows that were just seen cannot be counted.
            EmitError: A key is NULL, or cannot be compared; repair its row.
        """
        kept, upto = self._source.to_json, self._upto
        end = upto
        start = after = self._position(previous_metadata)
        assert upto is not None, "is_ready said so"
        cuts: list[tuple[Key, int]] = []
        with self._source.connected(self._engine) as connection:
            left = self._batch_rows_max if rows_max is None else min(rows_max, self._batch_rows_max)
            each = -(-left // self._tasks)
            self._check_null(connection, EmitError)
            while left > 0:
                cut = self._cut(connection, after, upto, min(left, each))
                if cut is None:
                    break
                cuts.append(cut)
                after, left = cut[0], left - cut[1]
            if rows_max == 0 and self._cut(connection, start, upto, 1) is not None:
                end = start  # there are rows, which are for the next batch
            gaps = self._gaps_upto(connection, previous_metadata, start, after)
            last = cuts[-1][0] if cuts else end
            at_upto = self._planned_here(previous_metadata).at_upto
            if last is not None and last != start:
                at_upto = self._count_at(connection, last)
        return {
            "after": kept(start),
            "upto": kept(last),
            "cuts": [[kept(key), rows] for key, rows in cuts],
            "newest": kept(self._newest),
            **({} if at_upto is None else {"at_upto": at_upto}),
            **({"gaps": [[*gap] for gap in gaps]} if gaps else {}),
            "source": {**self._source.identity},
        }

    def held_back(self) -> str | None:
        """Return which rows wait until their time has come."""
        if self._ahead is None:
            return None
        source = self._source
        come = "is over" if source.kind == "date" else "has come"
        return (
            f"rows of {source.query!r:.100} are ahead of the clock of the database, up to "
            f"{self._ahead}, and are read when the {source.key!r} of each {come}"
        )

    def close(self) -> None:
        """Close the connections to the database."""
        self._engine.dispose()

    def _cut(
        self, connection: Any, after: Key | None, upto: Key, rows_max: int
    ) -> tuple[Key, int] | None:
        from sqlalchemy import func, select

        source, rows = self._source, self._rows
        key = rows.c[source.key]
        within = select(key).where(source.between(rows, after, upto))
        first = within.order_by(key).limit(rows_max)
        source.check_order(connection, first, EmitError)
        newest = func.max(first.subquery("cut").c[source.key])
        end = source.checked(connection.scalar(select(newest)), EmitError)
        if end is None:
            return None
        # Counted by the key, since rows of equal keys stay together.
        cut = select(key).where(source.between(rows, after, end))
        source.check_order(connection, cut, EmitError)
        count = connection.scalar(select(func.count()).select_from(cut.subquery("cut")))
        if not count or (after is not None and _comparable(end) <= _comparable(after)):
            raise SourceDataLost(
                f"rows of {source.query!r:.100} cannot be counted by {source.key!r}; got {count} "
                f"rows behind {after} up to {end}, which is the key of a row behind {after}; "
                "expected that row at least; was it deleted just now? else the database "
                f"compares the column in another way than a {source.kind}; convert it by a query",
                query=source.query,
            )
        return end, count

    def _check_null(self, connection: Any, wrong: type[ConfigError | EmitError]) -> None:
        from sqlalchemy import select

        source, key = self._source, self._rows.c[self._source.key]
        if connection.execute(select(key).where(key.is_(None)).limit(1)).all():
            raise wrong(
                f"the key {source.key!r} of {source.query!r:.100} is NULL in some rows, which "
                "would never be read; expected NOT NULL; leave them out by a query",
                key=source.key,
            )

    def _look(self, connection: Connection) -> tuple[datetime.datetime, Key | None]:
        from sqlalchemy import func, select, union_all

        self._look_at_file()
        source, key = self._source, self._rows.c[self._source.key]
        dialect = self._engine.dialect.name
        zoneless = dialect in ("mysql", "mariadb")  # its CURRENT_TIMESTAMP jumps in summer
        time = func.utc_timestamp() if zoneless else func.current_timestamp()
        ends = [select(end(key).label(source.key)) for end in (func.min, func.max)]
        # What SQLite has before or behind all other keys is not of their form.
        source.check_order(connection, union_all(*ends), EmitError)
        now, newest = connection.execute(select(time, func.max(key))).one()
        newest = source.checked(newest, EmitError)
        latest = self._latest(now)
        ahead = newest if latest is not None and newest is not None else None
        if latest is None or ahead is None or _comparable(ahead) <= _comparable(latest):
            self._ahead = None
        else:
            self._tell_ahead(ahead)
            newest = connection.scalar(select(func.max(key)).where(key <= latest))
            newest = source.checked(newest, EmitError)
        return now, newest

    def _look_at_file(self) -> None:
        """Note whether a file of SQLite was replaced since the last look."""
        path = self._engine.url.database
        if self._engine.dialect.name != "sqlite" or not path:
            return
        try:
            found = os.stat(path)
        except OSError:
            return  # what is read next tells it
        before, self._file = self._file, (found.st_dev, found.st_ino)
        self._replaced |= before not in (None, self._file)

    def _latest(self, now: datetime.datetime) -> Key | None:
        """Return the latest key whose time has come; None if no time is waited for."""
        if self._max_ahead_s is None:
            return None
        days = 0
        ahead_s = _TICK_S + self._max_ahead_s
        if self._source.kind == "date":  # the day must be over, by the tick as well
            days, ahead_s = 1, self._max_ahead_s
        try:
            latest = _comparable(now) + datetime.timedelta(days=-days, seconds=ahead_s)
        except OverflowError:
            return None
        if self._source.kind == "date":
            return cast("Key", latest.date())
        zone = datetime.UTC if self._source.kind == "timestamp" else None
        return cast("Key", latest.replace(tzinfo=zone))

    def _tell_ahead(self, newest: Key) -> None:
        told, self._ahead = self._ahead is not None, newest
        if not told:
            text = (
                "%s; is the clock of a writer wrong, or of the database? if these are local times, "
                "give max_ahead_s the seconds by which they are ahead of UTC"
            )
            if self._source.kind == "date":
                text = (
                    "%s; if all rows of a date are inserted at once, give max_ahead_s 86,400, and "
                    "if these are local dates, the seconds by which they are ahead of UTC"
                )
            _logger.warning(text, self.held_back(), extra=self._about)

    def _gaps_upto(
        self, connection: Any, metadata: Json, start: Key | None, end: Key | None
    ) -> tuple[Gap, ...]:
        """Return the largest gaps up to the end of a batch, the largest first."""
        from sqlalchemy import func, select

        source, key = self._source, self._rows.c[self._source.key]
        if not source.counts:
            return ()
        gaps = self._planned_here(metadata).gaps
        if end is None or end == start:
            return gaps
        before = func.lag(key).over(order_by=key)
        pairs = select(before.label("low"), key.label("high"))
        found = pairs.where(source.between(self._rows, start, end)).subquery("txtopo_pairs")
        low, high = found.c.low, found.c.high
        # As floats, since the distance of two numbers of 64 bits may be none.
        width = high * 1.0 - low
        widest = select(low, high).where(high > low + 1).order_by(width.desc())
        new = [Gap(*pair) for pair in connection.execute(widest.limit(_GAPS_MAX)).all()]
        first = connection.scalar(
            select(func.min(key)).where(source.between(self._rows, start, end))
        )
        new.append(Gap(cast("int | None", start), first))
        wide = {gap for gap in (*gaps, *new) if gap.width > 1}
        return tuple(sorted(wide, key=lambda gap: (-gap.width, gap.high))[:_GAPS_MAX])

    def _check_late(self, connection: Connection, metadata: Json, *, also_many: bool) -> None:
        """Look for rows in the gaps that were read past, and for more rows of the last key.

        With *also_many* the rows of the last key are counted however many they are.
        """
        planned = self._planned_here(metadata)
        if planned.gaps:
            self._check_gaps(connection, planned)
        if planned.at_upto is not None and (also_many or planned.at_upto <= _COUNTED_MAX):
            self._check_last_key(connection, planned)

    def _check_gaps(self, connection: Connection, planned: PlannedKeys) -> None:
        from sqlalchemy import func, select, union_all

        source, key = self._source, self._rows.c[self._source.key]
        # One by one, since a database searches an index for each range, and not for several.
        firsts = [
            select(func.min(key).label(source.key)).where(each.holds(key)) for each in planned.gaps
        ]
        found = union_all(*firsts).subquery("txtopo_firsts")
        first = connection.scalar(select(func.min(found.c[source.key])))
        if first is None:
            return
        gap = next(each for each in planned.gaps if each.holds(first))
        where = f"before {gap.high}" if gap.low is None else f"between {gap.low} and {gap.high}"
        read = "which was read first" if gap.low is None else "which were read"
        raise OffsetRegression(
            f"rows of {source.query!r:.100} came with keys that count as read; got "
            f"{source.key} {first}, {where}, {read}; expected "
            f"keys behind {planned.upto}; was {gap.high} given by hand, far ahead of its sequence, "
            "or is settle_s shorter than the transactions that insert rows? give such rows keys "
            f"behind {planned.upto}, and let the sequence continue there",
            query=source.query,
        )

    def _check_last_key(self, connection: Connection, planned: PlannedKeys) -> None:
        count = self._count_at(connection, planned.upto)
        if count <= (planned.at_upto or 0):
            return
        source = self._source
        raise OffsetRegression(
            f"rows of {source.query!r:.100} came with the last key that was read, and count as "
            f"read; got {count} rows of {source.key} {planned.upto}; expected at most "
            f"{planned.at_upto}, which were read; is settle_s shorter than the time in which rows "
            f"of one key are inserted? give such rows keys behind {planned.upto}, and the spout a "
            "longer settle_s, or a key that no two rows have",
            query=source.query,
        )

    def _count_at(self, connection: Connection, key: Key | None) -> int:
        """Return the number of rows of one key."""
        from sqlalchemy import func, select

        rows = self._rows
        same = rows.c[self._source.key] == key
        if isinstance(key, datetime.datetime):  # which SQLite has in several forms
            first = _comparable(key) == datetime.datetime.min
            same = self._source.between(rows, None if first else key - _MICROSECOND, key)
        return connection.scalar(select(func.count()).select_from(rows).where(same)) or 0

    def _planned_here(self, metadata: Json) -> PlannedKeys:
        """Return what this query has planned: nothing if another one did, whose rows are others."""
        if not isinstance(metadata, dict) or metadata.get("source") != self._source.identity:
            return PlannedKeys(None, None, None, [])
        return self._source.planned(metadata)

    def _position(self, metadata: Json) -> Key | None:
        if metadata is None:
            return self._first
        planned = self._source.planned(metadata)
        self._source.check_same(metadata, allow_change=self._allow_change)
        return planned.upto

    def _check_lost(self, position: Key | None, metadata: Json) -> None:
        if metadata is None:
            return
        before = self._source.planned(metadata).newest
        if before is None or (
            position is not None and _comparable(before) <= _comparable(position)
        ):
            return
        if self._newest is None or _comparable(before) > _comparable(self._newest):
            raise SourceDataLost(
                f"rows of {self._source.query!r:.100} are gone that were not read; got "
                f"{self._newest} as the largest {self._source.key!r}, which was {before}; expected "
                "rows to stay until they are committed; bring them back, or begin again with "
                "start_after, under a new topology id",
                query=self._source.query,
            )

    def _check_filled_again(self, position: Key | None, metadata: Json) -> None:
        """Look for new rows up to the position, which are never read.

        Rows that were read may go, the last ones too, so that a table ends before its position
        proves nothing, and is a warning. After it was empty, all its rows are new. In another file
        of SQLite they are those of another time, as of a backup, and new ones follow them.
        """
        newest, was_empty = self._newest, self._was_empty
        self._was_empty = newest is None
        if metadata is None or newest is None or position is None:
            return
        if _comparable(newest) >= _comparable(position):
            return
        source = self._source
        if self._replaced:
            raise OffsetRegression(
                f"the file of {source.query!r:.100} was replaced by one that ends before the "
                f"position; got {newest} as the largest {source.key!r}; expected keys behind "
                f"{position}, up to which it was read; was it restored from a backup? rows that "
                "come now get keys that count as read; bring the newer file back, or begin again "
                "under another topology id; if only rows that were read are missing, start again",
                query=source.query,
            )
        if was_empty:
            raise OffsetRegression(
                f"{source.query!r:.100} was empty and was filled with keys that count as read; got "
                f"{newest} as the largest {source.key!r}; expected keys behind {position}, up to "
                "which it was read; let keys continue when a table is emptied (TRUNCATE … CONTINUE "
                "IDENTITY, AUTOINCREMENT of SQLite) and give the rows new ones, or begin again "
                "under another topology id",
                query=source.query,
            )
        if not self._warned:
            self._warned = True
            text = (
                "the largest %r of %.100r is %s, and rows up to %s count as read; was the table "
                "filled again from the beginning? such rows are never read"
            )
            about = self._about
            _logger.warning(text, source.key, source.query, newest, position, extra=about)


class QueryEmitter(TransactionalEmitter):
    """Reads the cuts of a batch in a task."""

    def __init__(
        self, source: QuerySource, context: TaskContext, *, allow_change: bool = False
    ) -> None:
        self._source = source
        self._allow_change = allow_change
        self._schema = source.fields.arrow_schema()
        self._context = context

    def emit_batch(
        self, attempt: TransactionAttempt, metadata: Json, collector: BatchOutputCollector
    ) -> None:
        """Emit this task's cuts.

        Raises:
            TopologyChanged: The batch was planned by another query or key.
            SourceDataLost: A cut has another number of rows than when it was planned.
            EmitError: A value does not fit its field; repair the row or the fields.
            InfrastructureError: The database cannot be reached; the batch is tried again.
        """
        source, context = self._source, self._context
        planned = source.planned(metadata)
        source.check_same(metadata, allow_change=self._allow_change)
        ranges = list(pairwise([planned.after, *(key for key, _ in planned.cuts)]))
        mine = range(context.task_index, len(ranges), context.tasks)
        if not mine:
            return
        with source.connected(source.engine()) as connection:
            for number in mine:
                (after, upto), (_, expected) = ranges[number], planned.cuts[number]
                assert upto is not None
                found = self._emit(connection, after, upto, collector)
                if found != expected:
                    raise self._changed(after, upto, found, expected)

    def _emit(
        self,
        connection: Connection,
        after: Key | None,
        upto: Key,
        collector: BatchOutputCollector,
    ) -> int:
        from sqlalchemy import select

        source = self._source
        rows = source.selectable()
        columns = source.exact_columns(connection, rows)
        ordered = source.between(rows, after, upto)
        within = select(*columns).where(ordered).order_by(rows.c[source.key])
        streamed = connection.execution_options(yield_per=_ROWS_AT_ONCE)
        count = 0
        for chunk in self._chunks(streamed.execute(within), after, upto):
            collector.emit_batch(self._columns(chunk))
            count += len(chunk)
        return count

    def _chunks(
        self, result: Result[Any], after: Key | None, upto: Key
    ) -> Iterator[Sequence[Sequence[Any]]]:
        """Yield rows in chunks; name the range when the driver cannot convert a value."""
        try:
            yield from result.partitions()
        except (ValueError, TypeError, OverflowError, ArithmeticError) as error:
            raise EmitError(
                f"rows of {self._source.query!r:.100} with {self._source.key} behind {after} up to "
                f"{upto} cannot be read ({error}); expected {self._source.fields!r}; repair "
                "the rows or the fields",
                query=self._source.query,
            ) from error

    def _columns(self, rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
        import pyarrow as pa

        names = self._schema.names
        kinds = {field.name: field.type for field in self._source.fields}

        def read(start: int, end: int, schema: pa.Schema) -> pa.RecordBatch:
            columns = list(zip(*rows[start:end], strict=True))
            arrays = []
            for field in schema:
                values = fitted_values(kinds[field.name], columns[names.index(field.name)])
                arrays.append(fitted_column(pa.array(values, field.type), field.type))
            return pa.RecordBatch.from_arrays(arrays, schema=schema)

        try:
            return read(0, len(rows), self._schema)
        except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
            bad = first_bad(len(rows), self._schema, read)
            assert bad.row is not None, "a value was refused"
            key = rows[bad.row][names.index(self._source.key)]
            got = None if bad.field is None else rows[bad.row][names.index(bad.field)]
            raise EmitError(
                f"field {bad.field!r} of the row of {self._source.query!r:.100} with "
                f"{self._source.key} {key} cannot be read; got {got!r:.100} ({bad.reason}); "
                f"expected {self._source.fields!r}; repair the row or the fields",
                query=self._source.query,
                key=key,
                field=bad.field,
            ) from error

    def _changed(self, after: Key | None, upto: Key, found: int, expected: int) -> SourceDataLost:
        late = found > expected
        what = "rows came late (settle_s is too short);" if late else "rows were deleted;"
        return SourceDataLost(
            f"rows of {self._source.query!r:.100} with {self._source.key!r} behind {after} up to "
            f"{upto} have changed since their batch was planned; got {found} rows; expected "
            f"{expected}; {what} give the table back what it had, and late rows a new key",
            query=self._source.query,
        )
