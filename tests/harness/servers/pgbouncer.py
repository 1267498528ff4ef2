"""A private PgBouncer on a free loopback port, before a PostgreSQL of the tests."""

from __future__ import annotations

import shutil
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.harness.servers.private import ServerProcess, account, free_port

if TYPE_CHECKING:
    from tests.harness.servers.postgresql import PostgresServer


def find_program() -> str | None:
    """Return the program, or None; Debian has it where only root looks."""
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


class PgBouncer(ServerProcess):
    """A pooler in a temporary folder; a context manager that starts and stops it.

    Args:
        server: The PostgreSQL behind it.
        mode: When a session goes to another client: ``"transaction"`` or ``"session"``.
    """

    def __init__(self, server: PostgresServer, mode: str) -> None:
        program = find_program()
        if program is None:
            raise FileNotFoundError("no pgbouncer found; install it or run make services")
        self._program, self._server = program, server
        self._account = account(("postgres", "nobody"), "PgBouncer")
        self.folder = Path(tempfile.mkdtemp(prefix="txtopo-pgbouncer-"))
        self.port = free_port()
        settings = {
            "listen_addr": "127.0.0.1",
            "listen_port": self.port,
            "auth_type": "trust",
            "auth_file": self.folder / "users",
            "pool_mode": mode,
            "unix_socket_dir": "",
        }
        lines = [f"{name} = {value}" for name, value in settings.items()]
        behind = f"* = host=127.0.0.1 port={server.port}"
        users, file = self.folder / "users", self.folder / "settings"
        users.write_text(f'"{server.user}" "{server.password}"\n')
        file.write_text("\n".join(["[databases]", behind, "[pgbouncer]", *lines, ""]))
        for path in (self.folder, users, file):
            path.chmod(0o755)

    def url_of(self, database: str) -> str:
        """Return the URL of a database of the server, through the pooler."""
        return self._server.url_of(database).replace(f":{self._server.port}/", f":{self.port}/")

    def start(self) -> None:
        """Start the pooler and wait until it answers."""
        as_account: dict[str, Any] = {}
        if self._account is not None:
            ids = self._account
            as_account = {"user": ids.pw_uid, "group": ids.pw_gid, "extra_groups": []}
        self._process = self._open([self._program, self.folder / "settings"], **as_account)
        self._wait_until_it_answers(self._process, self._answers)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return True
        except OSError:
            return False
