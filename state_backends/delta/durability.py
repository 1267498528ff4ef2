"""Makes versions of a Delta table durable on a local disk, and finds changed bits in its log.

delta-rs leaves flushing to the operating system.

Rules
-----
1. A version is durable only if all earlier ones are: a reader begins with the last checkpoint and
   reads each later entry of the log. So the first call makes everything that exists durable,
   whoever wrote it. Each later call makes everything durable that was added since, including folds
   and changes of the table's properties, which do not wait for the disk themselves.
2. Data files come first, then the log, then the folders that contain them, up to the folder that
   holds the table.
3. Checkpoints are made durable as well, since delta-rs removes old entries of the log after it has
   written one. It removes them before anybody can flush the checkpoint: after a power cut in these
   milliseconds, the checkpoint may have to be restored from a copy of the log.
4. A writer does not rely on anything it has read until that is durable, whether a predecessor or a
   failed call left it.

Checksums
---------
Nothing in a Delta log reveals a changed bit. If the bit is in the name of a removed file, the old
rows reappear next to those that replaced them; if it is in a transaction, the ledger is a different
one. Both are valid JSON, so delta-rs accepts them. So a writer notes a CRC-32 of each entry of the
log, and of each checkpoint, in a file in the same folder:

    <entry>@<time of its last change, ns> <its CRC-32> <CRC-32 of all that>

* A failing disk does not change the time. If the time of a file differs, a program or a person
  wrote the file: as a copy, in a new table or by hand. It is accepted, like a file without a note.
* Notes are kept only on a local disk: object stores have their own checksums, and a note would cost
  a request.
* A note is written after the entry is durable, and is not synced. A line that is cut off or changed
  is ignored. An entry of another program has no note until our next commit.
* A file that cannot be read is left to delta-rs, which raises an error itself.
* The newest :data:`KEPT` versions have notes, which are more than lie between two checkpoints.
* Other readers ignore the file, as they ignore all names that begin with ``_``.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from urllib.parse import unquote

from state_backends.delta.layout import CHECKSUMS, LOG
from txtopo.errors import StoreDamagedError


class DurableLog:
    """The log of a table: makes versions durable, notes their checksums, and compares them.

    Args:
        table: The folder or URL of the table.
        label: The state and its store, for messages.
        local: Whether it is a local folder. If not, all methods do nothing.
    """

    def __init__(self, table: str, label: str, *, local: bool) -> None:
        self._table = table
        self._checksums = LogChecksums(table, label) if local else None
        # Versions (-1 for none) up to which everything is durable, and up to which it must be.
        self._durable = self._wanted = -1
        self._lock = threading.RLock()

    def check(self, version: int | None = None) -> None:
        """Compare the log up to *version* with the notes; None compares all of it.

        Raises:
            StoreDamagedError: A file differs from its note.
        """
        if self._checksums is not None:
            with self._lock:
                self._checksums.check(version)

    def begin(self, version: int) -> None:
        """Add missing notes up to *version*, the newest. Called before a first commit."""
        if self._checksums is not None:
            with self._lock:
                self._checksums.begin(version)

    def written(self, version: int) -> None:
        """Make a version that we wrote durable. If that fails, :meth:`sync` tries again."""
        with self._lock:
            self._durable = min(self._durable, version - 1)
            self._wanted = max(self._wanted, version)
            self.sync()

    def believed(self, version: int) -> None:
        """Make the log durable up to *version*, which was read; do nothing if this never writes."""
        with self._lock:
            if 0 <= self._durable < version:
                self.written(version)

    def sync(self) -> None:
        """Make all remaining files durable. Until then, nobody may rely on them."""
        with self._lock:
            if self._durable < self._wanted:
                if self._checksums is not None:
                    sync_versions(self._table, self._durable + 1, self._wanted)
                    self._checksums.note(self._wanted)
                self._durable = self._wanted


def sync_versions(table: str, first: int, last: int) -> None:
    """Sync the log entries of the versions *first* to *last*, the files they add, and the folders.

    It runs after the commit, so a power cut may leave a version without its files. But then the
    commit has not returned, and a reader of the torn version gets an error.
    """
    folder = Path(table)
    log = folder / LOG
    names = [name for name in os.listdir(log) if first <= _version(name) <= last]
    entries = [log / name for name in names if name.endswith(".json")]
    for entry in entries:
        # Text may contain U+2028 and other characters that end a line in Python, but not in JSON.
        for line in filter(bytes.strip, entry.read_bytes().split(b"\n")):
            added = json.loads(line).get("add")
            if added is not None:
                _sync(folder / unquote(added["path"]))
    # Looking up each one costs disk access, and they rarely change.
    hint = [log / "_last_checkpoint"] if len(entries) < len(names) else []
    above = [folder.parent] if first == 0 else []
    for path in (*map(log.joinpath, names), *hint, log, folder, *above):
        _sync(path)


def sync_made(folders: Iterable[Path]) -> None:
    """Make new folders durable, each by a sync of the folder that contains it."""
    for folder in folders:
        _sync(folder.parent)


def _version(name: str) -> int:
    """Return the version of a file of the log; -1 if it has none."""
    number = name.partition(".")[0]
    return int(number) if number.isdecimal() else -1


def _sync(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return  # removed since, because no version within reach needs it
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


KEPT = 150
"""A checkpoint is made every hundred versions; a reader begins with the last one."""

_REWRITTEN_AFTER = 100

_NOTE = re.compile(r"(\d{20}\.\S+@\d+) ([0-9a-f]{8})")


class LogChecksums:
    """The checksums that are noted for the log of one table.

    Args:
        table: The folder of the table.
        label: The state and its store, for messages.
    """

    def __init__(self, table: str, label: str) -> None:
        self._log = Path(table) / LOG
        self._file = self._log / CHECKSUMS
        self._label = label
        self._compared = -1
        self._noted = -1
        self._rewritten = -1

    def check(self, version: int | None = None) -> None:
        """Compare files with their notes up to *version*, once each; None compares all again.

        Raises:
            StoreDamagedError: A file differs from its note.
        """
        if version is not None and version <= self._compared:
            return
        notes = self._notes()
        for name, noted in notes.items():
            if version is None or self._compared < _version_of_commit(name) <= version:
                self._compare(name, noted)
        if version is not None:
            self._compared = version

    def begin(self, version: int) -> None:
        """Keep the notes of the last versions up to *version*, and add missing ones."""
        last = range(max(0, version - KEPT), version + 1)
        notes = dict(self._sums(last, self._notes()))
        beside = self._file.with_name(f"{CHECKSUMS}.{os.getpid()}")
        try:
            beside.write_text("".join(map(_line, notes, notes.values())))
            beside.replace(self._file)
        except OSError:
            beside.unlink(missing_ok=True)
        self._noted = self._rewritten = version

    def note(self, version: int) -> None:
        """Record the files up to *version*, which are durable.

        If the disk has no room for notes, the commit does not fail, since it is done.
        """
        if self._noted < 0 or version - self._rewritten > _REWRITTEN_AFTER:
            self.begin(version)
            return
        lines = [_line(*each) for each in self._sums(range(self._noted + 1, version + 1))]
        with contextlib.suppress(OSError), self._file.open("a") as file:
            file.write("".join(lines))
        self._noted = version

    def _compare(self, name: str, noted: int) -> None:
        path = self._log / name.partition("@")[0]
        with contextlib.suppress(OSError):
            # The name is compared again at the end, since a checkpoint may be replaced meanwhile.
            if (
                _named(path) == name
                and zlib.crc32(path.read_bytes()) != noted
                and _named(path) == name
            ):
                raise StoreDamagedError(
                    f"{self._label} is damaged: {path.name} of its log has a different checksum "
                    "than when it was written, and nothing has written it since; did its disk "
                    f"fail? restore an intact copy; to trust the file anyway, remove {self._file}",
                    store=self._label,
                    path=str(path),
                )

    def _sums(
        self, versions: Iterable[int], noted: Mapping[str, int] = MappingProxyType({})
    ) -> Iterator[tuple[str, int]]:
        """Yield (name, checksum) of the files that are not *noted*."""
        for version in versions:
            for kind in ("json", "checkpoint.parquet"):
                path = self._log / f"{version:020}.{kind}"
                with contextlib.suppress(OSError):
                    name = _named(path)
                    known = noted.get(name)
                    yield name, zlib.crc32(path.read_bytes()) if known is None else known

    def _notes(self) -> dict[str, int]:
        try:
            lines = self._file.read_bytes().split(b"\n")
        except OSError:
            return {}
        notes: dict[str, int] = {}
        for line in lines:
            said, _, own = line.rpartition(b" ")
            note = _NOTE.fullmatch(said.decode(errors="replace"))
            if note is not None and own == b"%08x" % zlib.crc32(said):
                notes.setdefault(note[1], int(note[2], 16))
        return notes


def _line(name: str, crc: int) -> str:
    said = f"{name} {crc:08x}"
    return f"{said} {zlib.crc32(said.encode()):08x}\n"


def _named(path: Path) -> str:
    return f"{path.name}@{path.stat().st_mtime_ns}"


def _version_of_commit(name: str) -> int:
    return int(name[:20])
