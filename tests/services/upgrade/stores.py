"""Write the contents of a store to files and read them back: one class a store.

SQLite and Redis become texts that people can read; Delta stays a folder, whose log is text.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from state_backends.redis.backend import VERSION as REDIS_VERSION
from tests.harness.servers.redis import RedisServer
from txtopo.plugins.stores import LEDGER_SCHEMA

DELTA_VERSION = 2
"""Grows with the columns, properties or ledger of a Delta table, which has no number of its own."""
LAYOUTS = {"sql": LEDGER_SCHEMA, "redis": REDIS_VERSION, "delta": DELTA_VERSION}
"""The stores, and the version of each one's layout today."""


class Store(ABC):
    """The store of one test.

    Attributes:
        url: Its URL.
    """

    url: str

    @abstractmethod
    def keep(self, folder: Path, name: str) -> None:
        """Write its contents to files of *folder* whose names begin with *name*."""

    @abstractmethod
    def bring_back(self, folder: Path, name: str) -> None:
        """Read the contents back from such files."""


class SqliteStore(Store):
    """A database in a file."""

    def __init__(self, place: Path) -> None:
        self._database = place / "states.db"
        self.url = f"sqlite:///{self._database}"

    def keep(self, folder: Path, name: str) -> None:
        connection = sqlite3.connect(self._database)
        (folder / f"{name}.sql").write_text("\n".join(connection.iterdump()) + "\n")
        connection.close()

    def bring_back(self, folder: Path, name: str) -> None:
        connection = sqlite3.connect(self._database)
        connection.executescript((folder / f"{name}.sql").read_text())
        connection.close()


class RedisStore(Store):
    """A database of a Redis server; each key is kept with its type."""

    def __init__(self, server: RedisServer) -> None:
        self.url = server.empty()

    def keep(self, folder: Path, name: str) -> None:
        held = {}
        with self._client() as client:
            for key in sorted(client.keys()):
                kind = client.type(key)
                read: dict[str, Any] = {
                    "string": lambda key=key: client.get(key),
                    "hash": lambda key=key: client.hgetall(key),
                    "list": lambda key=key: client.lrange(key, 0, -1),
                    "set": lambda key=key: sorted(client.smembers(key)),
                }
                held[key] = [kind, read[kind]()]
        (folder / f"{name}.redis.json").write_text(f"{json.dumps(held, indent=1)}\n")

    def bring_back(self, folder: Path, name: str) -> None:
        held = json.loads((folder / f"{name}.redis.json").read_text())
        with self._client() as client:
            for key, (kind, value) in held.items():
                if kind == "string":
                    client.set(key, value)
                elif kind == "hash":
                    client.hset(key, mapping=value)
                elif kind == "list":
                    client.rpush(key, *value)
                else:
                    client.sadd(key, *value)

    def _client(self) -> Any:
        from redis import Redis

        return Redis.from_url(self.url, decode_responses=True)


class DeltaStore(Store):
    """A folder with a table a state."""

    def __init__(self, place: Path) -> None:
        self._folder = place / "states"
        self.url = f"delta://{self._folder}"

    def keep(self, folder: Path, name: str) -> None:
        kept = folder / f"{name}.delta"
        shutil.copytree(self._folder, kept)
        for log in kept.rglob("_delta_log/*.json"):
            # The log names the folder in which the table was made; nobody reads that again.
            log.write_text(log.read_text().replace(str(self._folder), "/states"))

    def bring_back(self, folder: Path, name: str) -> None:
        shutil.copytree(folder / f"{name}.delta", self._folder)
