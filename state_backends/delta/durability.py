"""Making a version durable on a local disk, which delta-rs leaves to the operating system.

What is durable is noted with its checksum: see :mod:`state_backends.delta.checksums`.
"""

from __future__ import annotations

import json
import os
import threading  # noqa: TID251 - calls of a backend may overlap; none is started
from pathlib import Path
from urllib.parse import unquote

from state_backends.delta.checksums import LogChecksums
from state_backends.delta.names import LOG


class DurableLog:
    """The log of a table: what is written is durable and noted, what is read is what was noted.

    Args:
        table: Its folder or URL.
        place: Which state where, for messages.
        local: Whether it is a folder; elsewhere nothing has to be done.
    """

    def __init__(self, table: str, place: str, *, local: bool) -> None:
        self._table = table
        self._checksums = LogChecksums(table, place) if local else None
        self._unsynced: list[int] = []
        self._lock = threading.RLock()

    def check(self, version: int | None = None) -> None:
        """Compare the log up to *version* with what is noted; all of it without one.

        Raises:
            StoreDamagedError: It is not what was written.
        """
        if self._checksums is not None:
            with self._lock:
                self._checksums.check(version)

    def begin(self, version: int) -> None:
        """Note what has no note up to *version*, which is the newest; before a first commit."""
        if self._checksums is not None:
            with self._lock:
                self._checksums.begin(version)

    def written(self, *versions: int) -> None:
        """Make versions of ours durable; when it fails, :meth:`sync` tries again."""
        with self._lock:
            self._unsynced += versions
            self.sync()

    def sync(self) -> None:
        """Make durable what is not yet; nobody may believe in it before."""
        with self._lock:
            while self._unsynced:
                if self._checksums is not None:
                    sync_version(self._table, self._unsynced[0])
                    self._checksums.note(self._unsynced[0])
                del self._unsynced[0]


def sync_version(table: str, version: int) -> None:
    """Sync the log of a version, the files that it adds, and their folders.

    It comes after the commit, so a power cut may leave a version that lacks its files; but then
    the commit has not returned, and whoever reads the torn version gets an error.
    """
    folder = Path(table)
    log = folder / LOG / f"{version:020}.json"
    for line in log.read_text().splitlines():
        added = json.loads(line).get("add")
        if added is not None:
            _sync(folder / unquote(added["path"]))
    _sync(log)
    for parent in (folder, log.parent):
        _sync(parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
