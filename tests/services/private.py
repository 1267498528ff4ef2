"""What servers of the tests' own have in common."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import SystemRandom
from types import TracebackType
from typing import Self

# Below those that systems give to programs which do not ask for one: from 32,768 up.
_PORTS = range(10_000, 32_000)
_CHANCE = SystemRandom()
_given: set[int] = set()


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


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on, and that nobody is given by chance.

    A server takes seconds until it listens, and some come back to their port after they were
    killed. The system would meanwhile give a port of its own range to any other program.
    """
    while True:
        port = _CHANCE.choice(_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _given:
                _given.add(port)
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
