"""What servers of the tests' own have in common."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self


class PrivateServer(ABC):
    """A server in a temporary folder; a context manager that starts it and leaves nothing behind.

    Attributes:
        folder: Everything that it keeps.
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end()
        shutil.rmtree(self.folder, ignore_errors=True)


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
