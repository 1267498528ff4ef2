"""The base classes of private servers: start one in a temporary folder, wait for it, end it."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from signal import SIGCONT, SIGKILL, Signals
from typing import Any, Self

from tests.harness.polling import LIMIT_S, wait_until


class PrivateServer(ABC):
    """A server in a temporary folder; a context manager that starts it and leaves nothing behind.

    Attributes:
        folder: The folder of its data, settings and log.
    """

    folder: Path

    @abstractmethod
    def start(self) -> None:
        """Start the server and wait until it answers."""

    @abstractmethod
    def end(self) -> None:
        """End the server, however it stands."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def log(self) -> str:
        """The end of what the server has written to its log."""
        return (self.folder / "log").read_text(errors="replace")[-2000:]

    def _open(self, command: Sequence[str | Path], **settings: Any) -> subprocess.Popen[bytes]:
        """Start a process that writes to the log; *settings* are those of ``Popen``."""
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **settings
            )

    def _wait_until_it_answers(
        self, process: subprocess.Popen[bytes], answers: Callable[[], object]
    ) -> None:
        """Wait until *answers* returns something true.

        Raises:
            RuntimeError: If *process* ends, or the server never answers.
        """

        def has_started() -> bool:
            assert process.poll() is None, f"it ended with status {process.returncode}"
            return bool(answers())

        try:
            wait_until(has_started, "it answers", pause_s=0.05)
        except AssertionError as error:
            text = f"{type(self).__name__} did not start: {error}; {self.log}"
            raise RuntimeError(text) from error


class ServerProcess(PrivateServer):
    """A server that is one process."""

    _process: subprocess.Popen[bytes] | None = None

    @property
    def runs(self) -> bool:
        """Whether its process runs."""
        return self._process is not None and self._process.poll() is None

    def signal(self, number: Signals) -> None:
        """Send a signal to the server, e.g. SIGSTOP and SIGCONT; nothing if it does not run."""
        if self._process is not None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """Kill the server (SIGKILL), as a crash does; what it has flushed is on disk."""
        self._end(SIGKILL)

    def end(self) -> None:
        """End the server, however it stands."""
        self.kill()

    def _end(self, number: Signals) -> None:
        if self._process is not None:
            self.signal(SIGCONT)  # it may be frozen
            self.signal(number)
            self._process.wait(LIMIT_S)
            self._process = None


def run_program(
    command: Sequence[str | Path], folder: Path, stdout: int = subprocess.PIPE, **settings: Any
) -> None:
    """Run a program in a folder until it ends; *settings* are those of ``subprocess.run``.

    Raises:
        RuntimeError: If it fails; the message has what it wrote.
    """
    done = subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.STDOUT,
        errors="replace",
        check=False,
        **settings,
    )
    if done.returncode:
        name = Path(command[0]).name
        raise RuntimeError(f"{name} failed with status {done.returncode}: {done.stdout or ''}")


def installed(name: str) -> Path:
    """Return the folder of the user's caches where a script of ``.ci/`` puts a server."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "txtopo" / name


_reserved: list[socket.socket] = []


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on, and that nobody else is given.

    A server may bind it much later, and once more after it was killed. Meanwhile others look for
    ports as well: the other half of the tests, and whoever connects. So the port stays bound here,
    without listening, as long as this process runs. Linux lets servers bind it all the same, since
    they too set SO_REUSEADDR; other systems would not.
    """
    probe = socket.socket()
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    probe.bind(("127.0.0.1", 0))
    port = int(probe.getsockname()[1])
    if sys.platform == "linux":
        _reserved.append(probe)
    else:
        probe.close()
    return port


def account(names: Sequence[str], server: str) -> pwd.struct_passwd | None:
    """Return the first account there is, for a server that refuses to run as root; else None."""
    if os.geteuid() != 0:
        return None
    for name in names:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise RuntimeError(f"{server} must not run as root; none of {tuple(names)} exists")
