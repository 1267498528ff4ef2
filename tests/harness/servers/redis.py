"""A private Redis server on a free loopback port, for the tests and the benchmark."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tests.harness.servers.private import ServerProcess, free_port

# Debian's package redis-tools has the server under this name, without a service that starts it.
_PROGRAMS = ("redis-server", "redis-check-rdb")
_SETTINGS = {
    "bind": "127.0.0.1",
    "appendonly": "yes",
    "appendfsync": "always",
    "save": "",
    "databases": "64",
}


def find_server() -> str | None:
    """Return the path of the server on this machine, or None."""
    return next((path for name in _PROGRAMS if (path := shutil.which(name))), None)


class RedisServer(ServerProcess):
    """A server with a folder of its own; a context manager that starts and stops it.

    Durable as in production (each write is flushed to disk), so that what a test kills and reads
    again means something.

    Attributes:
        port: Its port on 127.0.0.1; the same after :meth:`start` again.
        folder: Where its data is.
    """

    password = "secret-of-the-tests"

    def __init__(self, **settings: str) -> None:
        found = find_server()
        if found is None:
            raise FileNotFoundError("no redis-server found; install Redis or run make services")
        self.folder = Path(tempfile.mkdtemp(prefix="txtopo-redis-"))
        # It is one program, which does by its name what is asked of it.
        self._program = self.folder / "redis-server"
        self._program.symlink_to(found)
        self._settings = _SETTINGS | {name.replace("_", "-"): v for name, v in settings.items()}
        self.port = free_port()

    def url(self, scheme: str = "redis", database: int = 0, port: int | None = None) -> str:
        """Return the URL of a database of this server."""
        return f"{scheme}://:{self.password}@127.0.0.1:{port or self.port}/{database}"

    def empty(self, database: int = 0) -> str:
        """Empty a database, and return its URL."""
        from redis import Redis

        url = self.url(database=database)
        with Redis.from_url(url) as client:
            client.flushdb()
        return url

    def start(self) -> None:
        """Start the server and wait until it answers and has read its data."""
        settings = self._settings | {
            "port": str(self.port),
            "dir": str(self.folder),
        }
        # A word on its command line could be read by every user of this machine.
        secret = self.folder / "redis.conf"
        secret.write_text(f"requirepass {self.password}\n")
        options = (word for name, value in settings.items() for word in (f"--{name}", value))
        self._process = self._open([self._program, secret, *options], cwd=self.folder)
        self._wait_until_it_answers(self._process, self._answers)

    def _answers(self) -> bool:
        from redis import Redis
        from redis.exceptions import ConnectionError as RedisConnectionError

        with Redis.from_url(self.url()) as client:
            try:
                return bool(client.ping())
            except RedisConnectionError:
                return False
