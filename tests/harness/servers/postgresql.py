"""A private PostgreSQL cluster on a free loopback port, for the tests and the benchmark."""

from __future__ import annotations

import glob
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.servers.private import PrivateServer, account, free_port, run_program

# PostgreSQL refuses to run as root; these accounts exist where its package is installed, or always.
_ACCOUNTS = ("postgres", "nobody")
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "50",
    "shared_buffers": "128MB",
    "max_wal_size": "2GB",
}


def find_binaries() -> Path | None:
    """Return the folder of the newest ``initdb`` and ``pg_ctl`` on this machine, or None."""
    found = shutil.which("initdb")
    if found and (Path(found).resolve().parent / "pg_ctl").exists():
        return Path(found).resolve().parent
    folders = [Path(path).parent for path in glob.glob("/usr/lib/postgresql/*/bin/initdb")]
    return max(folders, key=lambda folder: float(folder.parent.name), default=None)


class PostgresServer(PrivateServer):
    """A cluster in a temporary folder; a context manager that starts and stops it.

    Durable as in production (fsync is on), so that what a test kills and reads again means
    something. When the tests run as root, the server runs as another account.

    Attributes:
        url: SQLAlchemy URL of its database ``postgres``.
        port: Its port on 127.0.0.1, given or free; the same after :meth:`start` again.
    """

    user = "txtopo"
    password = "secret-of-the-tests"

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        log_folder: Path | None = None,
        port: int | None = None,
    ) -> None:
        self._settings = _SETTINGS | dict(settings or {})
        self._log_folder = log_folder
        binaries = find_binaries()
        if binaries is None:
            raise FileNotFoundError("no initdb found; install PostgreSQL or run make services")
        self._binaries = binaries
        self._account = account(_ACCOUNTS, "PostgreSQL")
        self.folder = Path(tempfile.mkdtemp(prefix="txtopo-postgresql-"))
        self.port = port or free_port()
        self.own(self.folder)
        self._initialise()

    @property
    def url(self) -> str:
        """URL of the database ``postgres``."""
        return self.url_of("postgres")

    def url_of(self, database: str, password: str | None = None) -> str:
        """Return the URL of a database of this server."""
        word = self.password if password is None else password
        return f"postgresql+psycopg://{self.user}:{word}@127.0.0.1:{self.port}/{database}"

    def create_database(self, name: str) -> str:
        """Make a database of its own for a test and return its URL."""
        self.execute(f'CREATE DATABASE "{name}"')
        return self.url_of(name)

    def create_schema(self, name: str) -> str:
        """Make a schema of its own for a test and return a URL that leads there.

        To a topology it is as good as a database of its own, and a database is 300 files, which
        are copied, flushed and at the end deleted.
        """
        self.execute(f'CREATE SCHEMA "{name}"')
        return f"{self.url}?options=-csearch_path%3D{name}"

    def own(self, folder: Path) -> None:
        """Give a folder to the account that the server runs as."""
        if self._account:
            os.chown(folder, self._account.pw_uid, self._account.pw_gid)

    def start(self) -> None:
        """Start the server and wait until it answers."""
        self._run(
            *("pg_ctl", "-D", str(self.folder / "data"), "-w", "-t", f"{LIMIT_S:.0f}"),
            *("-l", str(self.folder / "log"), "start"),
        )

    def stop(self, mode: str = "immediate") -> None:
        """Stop the server; ``immediate`` is a crash of the server, as a power cut is."""
        self._run(
            *("pg_ctl", "-D", str(self.folder / "data"), "-w", "-t", f"{LIMIT_S:.0f}"),
            *("-m", mode, "stop"),
        )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the postmaster and all of its processes, e.g. SIGSTOP and SIGCONT."""
        for each in self._processes():
            with suppress(ProcessLookupError):
                os.kill(each, number)

    def kill(self) -> None:
        """Kill all of its processes at once, as a power cut does; it can be started again."""
        postmaster = self._processes()[0]
        # Who is stopped starts no process that nobody then kills; one that is left would keep the
        # server from starting again.
        os.kill(postmaster, signal.SIGSTOP)
        processes = self._processes()
        for each in processes:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        wait_until(
            lambda: not any(Path(f"/proc/{each}").exists() for each in processes),
            f"the processes {processes} have ended",
        )

    def _processes(self) -> list[int]:
        postmaster = int((self.folder / "data" / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text()
        return [postmaster, *map(int, children.split())]

    def end(self) -> None:
        """End the server, however it stands."""
        self.stop()

    def _initialise(self) -> None:
        secret = self.folder / "password"
        secret.write_text(self.password)
        secret.chmod(0o644)
        elsewhere: tuple[str, ...] = ()
        if self._log_folder is not None:
            self.own(self._log_folder)
            elsewhere = (f"--waldir={self._log_folder}", "--wal-segsize=1")
        self._run(
            *("initdb", "-D", str(self.folder / "data"), "-U", self.user, "-E", "UTF8"),
            # SCRAM takes 5 ms of a processor for each connection.
            *("--locale=C", "--auth=md5", f"--pwfile={secret}", *elsewhere),
        )
        settings = self._settings | {"port": str(self.port), "unix_socket_directories": ""}
        with (self.folder / "data" / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def execute(self, statement: str) -> None:
        """Run a statement outside of a transaction, in the database ``postgres``."""
        import psycopg

        url = self.url.replace("+psycopg", "")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(statement.encode())

    def _run(self, program: str, *arguments: str) -> None:
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "PGPASSWORD": self.password}
        run_program(
            [self._binaries / program, *arguments],
            self.folder,
            user=self._account.pw_uid if self._account else None,
            group=self._account.pw_gid if self._account else None,
            extra_groups=[] if self._account else None,
            env=environment,
            stdout=subprocess.DEVNULL if program == "pg_ctl" else subprocess.PIPE,
        )
