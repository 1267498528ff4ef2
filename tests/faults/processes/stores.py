"""The stores of the tests that kill: which of them have a server, and a new URL in each."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from tests.harness.servers.mariadb import MariaServer
from tests.harness.servers.postgresql import PostgresServer
from tests.harness.servers.redis import RedisServer

STORES = ("sqlite", "postgresql", "delta", "mariadb", "redis")
Server = PostgresServer | MariaServer | RedisServer
SERVERS: dict[str, type[Server]] = {
    "postgresql": PostgresServer,
    "mariadb": MariaServer,
    "redis": RedisServer,
}
"""The stores that have a server; the others are files."""
FIXTURES = {"postgresql": "postgresql", "mariadb": "mariadb", "redis": "redis_server"}
"""The fixtures of the servers that all tests share."""


def marks_of(store: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a test that needs a store."""
    return [pytest.mark.service(store)] if store in SERVERS else []


def new_url(server: Server) -> str:
    """Return the URL of a new, empty database of a server."""
    if isinstance(server, RedisServer):
        return server.empty()
    return server.create_database(f"new_{uuid4().hex}")


def url_in(folder: Path, store: str) -> str:
    """Return the URL of a store that is files in *folder*."""
    return f"sqlite:///{folder / 'flights.db'}" if store == "sqlite" else f"delta://{folder}/states"
