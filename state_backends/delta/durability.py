"""Making a version durable on a local disk, which delta-rs leaves to the operating system.

Rules
-----
1. A version is durable only if all before it are: a reader begins with the last checkpoint and
   takes each entry of the log after it. So the first call makes durable all that is there, whoever
   wrote it, and each later one what has come since: folds and changes of the table's properties
   too, which are not waited for when they are made.
2. Files that hold rows come first, then the log, then the folders that name them, up to the one
   that the table is in.
3. A checkpoint counts as well: delta-rs removes old entries of the log after it has written one.
   It does so before anybody could make the checkpoint durable: a power cut in these milliseconds
   may need the checkpoint to be made again from a copy of the log.
4. Who writes believes in nothing that it has read before it is durable: what a predecessor left,
   and what an error left open.

What is durable is noted with its checksum: see :mod:`state_backends.delta.checksums`.
"""

from __future__ import annotations

import json
import os
import threading  # noqa: TID251 - calls of a backend may overlap; none is started
from collections.abc import Iterable
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
        # Versions, of which -1 is none: up to which all is durable, and up to which it must be.
        self._durable = self._wanted = -1
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

    def written(self, version: int) -> None:
        """Make a version of ours durable; when it fails, :meth:`sync` tries again."""
        with self._lock:
            self._durable = min(self._durable, version - 1)
            self._wanted = max(self._wanted, version)
            self.sync()

    def believed(self, version: int) -> None:
        """Make durable what was read up to *version*, unless it was read by who never writes."""
        with self._lock:
            if 0 <= self._durable < version:
                self.written(version)

    def sync(self) -> None:
        """Make durable what is not yet; nobody may believe in it before."""
        with self._lock:
            if self._durable < self._wanted:
                if self._checksums is not None:
                    sync_versions(self._table, self._durable + 1, self._wanted)
                    self._checksums.note(self._wanted)
                self._durable = self._wanted


def sync_versions(table: str, first: int, last: int) -> None:
    """Sync the log of the versions *first* to *last*, the files that they add, and their folders.

    It comes after the commit, so a power cut may leave a version that lacks its files; but then
    the commit has not returned, and whoever reads the torn version gets an error.
    """
    folder = Path(table)
    log = folder / LOG
    names = [name for name in os.listdir(log) if first <= _version(name) <= last]
    entries = [log / name for name in names if name.endswith(".json")]
    for entry in entries:
        for line in entry.read_text().splitlines():
            added = json.loads(line).get("add")
            if added is not None:
                _sync(folder / unquote(added["path"]))
    # Each costs a question to the disk, and these seldom change.
    hint = [log / "_last_checkpoint"] if len(entries) < len(names) else []
    above = [folder.parent] if first == 0 else []
    for path in (*map(log.joinpath, names), *hint, log, folder, *above):
        _sync(path)


def sync_made(folders: Iterable[Path]) -> None:
    """Make folders durable that were just made: each by the one that it is in."""
    for folder in folders:
        _sync(folder.parent)


def _version(name: str) -> int:
    """Return the version that a file of the log is of; -1 if it is of none."""
    number = name.partition(".")[0]
    return int(number) if number.isdecimal() else -1


def _sync(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return  # removed since, as no version within reach needs it
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
