"""A private MariaDB server on a free loopback port, for the tests and the benchmark."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Any

from tests.harness.servers.private import ServerProcess, account, free_port, run_program

# MariaDB refuses to run as root; these accounts exist where its package is installed, or always.
_ACCOUNTS = ("mysql", "nobody")
# Debian keeps the servers where only root looks for programs.
_FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin")
_SETTINGS = {
    "bind-address": "127.0.0.1",
    "skip-name-resolve": "1",
    "max-connections": "50",
    "innodb-buffer-pool-size": "128M",
    "innodb-flush-log-at-trx-commit": "1",
    "innodb-log-file-size": "256M",
}


def find_program(name: str) -> str | None:
    """Return the path of a program of MariaDB on this machine, or None."""
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *_FOLDERS]))


class MariaServer(ServerProcess):
    """A server with a data folder of its own; a context manager that starts and stops it.

    Durable as in production (each commit is flushed to disk), so that what a test kills and reads
    again means something. When the tests run as root, the server runs as another account.

    Attributes:
        port: Its port on 127.0.0.1; the same after :meth:`start` again.
    """

    user = "txtopo"
    password = "secret-of-the-tests"

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        install, server = find_program("mariadb-install-db"), find_program("mariadbd")
        if install is None or server is None:
            raise FileNotFoundError("no mariadbd found; install MariaDB or run make services")
        self._server = server
        self._settings = _SETTINGS | (settings or {})
        self._account = account(_ACCOUNTS, "MariaDB")
        self.folder = Path(tempfile.mkdtemp(prefix="txtopo-mariadb-"))
        self.port = free_port()
        if self._account:
            os.chown(self.folder, self._account.pw_uid, self._account.pw_gid)
        self._initialise(install)

    def url_of(self, database: str, password: str | None = None) -> str:
        """Return the URL of a database of this server."""
        word = self.password if password is None else password
        return f"mariadb+pymysql://{self.user}:{word}@127.0.0.1:{self.port}/{database}"

    def create_database(self, name: str) -> str:
        """Make a database of its own for a test and return its URL."""
        import pymysql  # type: ignore[import-untyped]

        account: Any = {"user": self.user, "password": self.password, "ssl_disabled": True}
        with pymysql.connect(host="127.0.0.1", port=self.port, **account) as connection:
            connection.cursor().execute(f"CREATE DATABASE `{name}`")
        return self.url_of(name)

    def create_schema(self, name: str) -> str:
        """Make a database, which is another word for a schema here."""
        return self.create_database(name)

    def start(self) -> None:
        """Start the server and wait until it answers."""
        options = self._settings | {
            "datadir": str(self.folder / "data"),
            "port": str(self.port),
            "socket": str(self.folder / "socket"),
            "pid-file": str(self.folder / "pid"),
            # A server that starts deletes what others have in a folder that they share.
            "tmpdir": str(self.folder),
            "init-file": str(self.folder / "users.sql"),
        }
        command = [self._server, "--no-defaults", *(f"--{n}={v}" for n, v in options.items())]
        self._process = self._open(command, **self._as_account())
        self._wait_until_it_answers(self._process, self._answers)

    def _initialise(self, install: str) -> None:
        users = self.folder / "users.sql"
        users.write_text(
            f"CREATE USER IF NOT EXISTS '{self.user}'@'127.0.0.1' "
            f"IDENTIFIED BY '{self.password}';\n"
            f"GRANT ALL ON *.* TO '{self.user}'@'127.0.0.1' WITH GRANT OPTION;\n"
        )
        users.chmod(0o644)
        options = [
            *("--no-defaults", "--skip-test-db", "--auth-root-authentication-method=normal"),
            *(f"--datadir={self.folder / 'data'}", f"--tmpdir={self.folder}"),
        ]
        run_program([install, *options], self.folder, **self._as_account())

    def _as_account(self) -> dict[str, Any]:
        if self._account is None:
            return {}
        ids = self._account
        return {"user": ids.pw_uid, "group": ids.pw_gid, "extra_groups": []}

    def _answers(self) -> bool:
        """Return whether the server sends its greeting; it listens a little before that."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                return len(connection.recv(5)) == 5
        except OSError:
            return False
