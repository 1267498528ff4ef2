"""What a session of a database needs, whatever its server, database and user have set for sessions.

States, queries of states, and spouts and lookups that read queries set up each session here. A
setting of a session may change what a number, time or text is on its way: ``extra_float_digits``
rounds, another ``datestyle`` cannot be read, and ``sql_select_limit`` leaves rows out.

A pooler that hands a session to another client after each transaction (PgBouncer with
``pool_mode = transaction``) loses these settings, or gives them to strangers. It is recognised
(:func:`is_shared`) and named in the log; then each transaction sets what it needs for itself, and
no statement is prepared and no temporary table kept beyond it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Event
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from txtopo.log_records import logger_of
from txtopo.servers import Server

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection, Engine

_logger = logger_of("txtopo.state")

SHARED = "shared"
"""The name under which the ``info`` of a connection says that other clients get its session."""

_SERVERS = {
    "postgresql": ("PostgreSQL", 5432),
    "mariadb": ("MariaDB", 3306),
    "mysql": ("MySQL", 3306),
}

_NONE: Mapping[str, str] = MappingProxyType({})

POSTGRESQL: Mapping[str, str] = MappingProxyType(
    {
        "TimeZone": "UTC",
        "DateStyle": "ISO, YMD",
        "IntervalStyle": "postgres",
        "extra_float_digits": "1",
        "bytea_output": "hex",
        "client_encoding": "UTF8",
        "standard_conforming_strings": "on",
        "array_nulls": "on",
        "transform_null_equals": "off",
    }
)
"""The settings of PostgreSQL on which values and texts depend."""

MYSQL: Mapping[str, str] = MappingProxyType(
    {
        "time_zone": "'+00:00'",
        "sql_select_limit": "18446744073709551615",
        "sql_auto_is_null": "0",
        "div_precision_increment": "4",
    }
)
"""Those of MariaDB and MySQL. The character set is an option of the connection."""

_QUERY_MYSQL: Mapping[str, str] = MappingProxyType(
    {
        # Those of the server stay, since the text of a query is written for them, without the one
        # that changes values: it fills CHAR with blanks.
        "sql_mode": "REPLACE(@@sql_mode, 'PAD_CHAR_TO_FULL_LENGTH', '')",
    }
)


def set_up_postgresql(engine: Engine, more: Mapping[str, str] = _NONE) -> None:
    """Let an engine of psycopg set up its sessions, or, where they are shared, its transactions.

    Args:
        engine: The engine, before it has connected.
        more: Further settings.
    """
    from sqlalchemy import event

    settings = {**POSTGRESQL, **more}
    told = Event()

    def connected(driver: Any, record: Any) -> None:
        arguments, options = engine.dialect.create_connect_args(engine.url)
        if _set_up(driver, settings):
            return
        if not is_shared(driver, lambda: engine.dialect.connect(*arguments, **options)):
            _set_up(driver, settings, whoever=True)
            return
        record.info[SHARED] = True
        driver.prepare_threshold = None
        if not told.is_set():
            told.set()
            _logger.warning(_TOLD)

    def begun(connection: Connection) -> None:
        if connection.info.get(SHARED):
            calls = ", ".join("pg_catalog.set_config(%s, %s, true)" for _ in settings)
            connection.exec_driver_sql(f"SELECT {calls}", tuple(_parts(settings)))

    # Before SQLAlchemy asks the first session what it has set.
    event.listen(engine, "connect", connected, insert=True)
    event.listen(engine, "begin", begun)


def read_json_as_text(driver: Any) -> None:
    """Let a connection of psycopg return JSON as the server's text, not as parsed values.

    SQLAlchemy cannot inspect tables through it afterwards.
    """
    from psycopg.types.string import TextLoader

    for kind in ("json", "jsonb"):
        driver.adapters.register_loader(kind, TextLoader)


def _set_up(driver: Any, settings: Mapping[str, str], *, whoever: bool = False) -> bool:
    """Set up a session in one round trip, and return whether it was done.

    It is not if a pooler stands before the server: it tells another number of the process than the
    server has. Then the session may be that of other clients.
    """
    calls = ", ".join("pg_catalog.set_config(%s, %s, false)" for _ in settings)
    known = None if whoever else driver.info.backend_pid
    with driver.cursor() as cursor:
        cursor.execute(
            f"SELECT CASE WHEN pg_catalog.pg_backend_pid() = coalesce(%s, "
            f"pg_catalog.pg_backend_pid()) THEN ARRAY[{calls}] END IS NOT NULL",
            [known, *_parts(settings)],
        )
        (done,) = cursor.fetchone()
    driver.commit()
    return bool(done)


def _parts(settings: Mapping[str, str]) -> list[str]:
    return [part for pair in settings.items() for part in pair]


def is_shared(driver: Any, connect: Callable[[], Any]) -> bool:
    """Return whether a pooler hands the session to other clients between two transactions.

    After a transaction its server process is free in such a pooler, so that another client gets it,
    or this one gets another in its next transaction. A session of its own keeps its process.

    Args:
        driver: A connection through the pooler, outside of a transaction.
        connect: Makes another one.
    """
    before = _process(driver)
    driver.commit()
    other = connect()
    try:
        for _ in range(_LOOKS):
            if _process(other) == before:
                return True
            now = _process(driver)  # while the other one is in a transaction
            driver.commit()
            other.commit()
            if now != before:
                return True
    finally:
        other.close()
    return False


_LOOKS = 3
"""Other clients of the pooler may take the process meanwhile."""


def _process(driver: Any) -> int:
    with driver.cursor() as cursor:
        cursor.execute("SELECT pg_catalog.pg_backend_pid()")
        (number,) = cursor.fetchone()
    return int(number)


_TOLD = (
    "PostgreSQL is behind a pooler that hands the session to other clients after each "
    "transaction (PgBouncer with pool_mode = transaction), so each transaction sets what it "
    "needs, at the cost of a round trip; pool_mode = session, or a direct connection, avoids it"
)


def mysql_statement(more: Mapping[str, str] = _NONE) -> str:
    """Return the SET statement that each session of MariaDB or MySQL executes first."""
    parts = ", ".join(f"{name} = {value}" for name, value in {**MYSQL, **more}.items())
    return f"SET SESSION {parts}"


def set_up_mysql_query(driver: Any) -> None:
    """Set up a new session that reads a query of the user's."""
    with driver.cursor() as cursor:
        cursor.execute(mysql_statement(_QUERY_MYSQL))
        # No row of a transaction that may be rolled back, whatever the default of the server is.
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    driver.commit()


def database_servers(url: URL) -> tuple[Server, ...]:
    """Return the server that a URL names; none for a file, a socket, or an unknown port.

    Args:
        url: The URL of a database. A database other than ours must name the port.
    """
    backend = url.get_backend_name()
    name, port = _SERVERS.get(backend, (f"the database {backend}", 0))
    hosts = (url.host,) if url.host else url.query.get("host", ())
    listed = hosts if isinstance(hosts, tuple) else (hosts,)
    places = [each for text in listed for each in text.split(",") if each[:1] not in ("/", "@")]
    if url.host and ":" in url.host:
        places = [f"[{url.host}]"]
    server = Server.of(name, ",".join(places), url.port or port)
    return (server,) if server.addresses and "unix_socket" not in url.query else ()
