"""Checksums of a table's log, since nothing in it tells a bit that changed by itself.

A bit of the name of a removed file brings its rows back beside those that replaced them; a bit of a
transaction makes another ledger. Both are JSON as before, so delta-rs believes them. Here whoever
writes notes a CRC-32 of each entry of the log, and of each checkpoint, in a file beside them:

    <entry>@<time of its last change, ns> <its CRC-32> <CRC-32 of all that>

* A disk that fails does not change the time. A file with another time was written by somebody, in a
  copy, in a table made anew or by hand, and is believed, like all that has no note.
* Only on a local disk: object stores have checksums of their own, and a note would cost a request.
* It is written after the entry is durable and is not synced. A line that was cut off or changed is
  no note. What another program wrote has none until the next commit of ours.
* What cannot be read is left to delta-rs, which says so itself.
* The newest :data:`KEPT` versions are noted, more than lie between two checkpoints.
* Other readers pass over the file, as over all names that begin with ``_``.
"""

from __future__ import annotations

import contextlib
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from state_backends.delta.names import CHECKSUMS, LOG
from txtopo.errors import StoreDamagedError

KEPT = 150
"""A checkpoint is made every hundred versions; a reader begins with the last one."""
_REWRITTEN_AFTER = 100
_NOTE = re.compile(r"(\d{20}\.\S+@\d+) ([0-9a-f]{8})")


class LogChecksums:
    """The notes of one table.

    Args:
        table: Its folder.
        place: Which state where, for messages.
    """

    def __init__(self, table: str, place: str) -> None:
        self._log = Path(table) / LOG
        self._file = self._log / CHECKSUMS
        self._place = place
        self._compared = -1
        self._noted = -1
        self._rewritten = -1

    def check(self, version: int | None = None) -> None:
        """Compare what is noted up to *version* and was not compared yet; anew without one.

        Raises:
            StoreDamagedError: An entry is another one than was written.
        """
        if version is not None and version <= self._compared:
            return
        notes = self._notes()
        for name, noted in notes.items():
            if version is None or self._compared < _version(name) <= version:
                self._compare(name, noted)
        if version is not None:
            self._compared = version

    def begin(self, version: int) -> None:
        """Keep the notes of the last versions up to *version*, and add those that are missing."""
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
        """Note what was written up to *version*, which is durable.

        A disk that has no room for it is no reason to fail a commit that is there.
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
            # Asked again afterwards: somebody may have written a checkpoint anew meanwhile.
            if (
                _named(path) == name
                and zlib.crc32(path.read_bytes()) != noted
                and _named(path) == name
            ):
                raise StoreDamagedError(
                    f"{self._place} is damaged: {path.name} of its log has another checksum than "
                    "when it was written, and nobody wrote it since; did its disk fail? bring back "
                    f"a copy that is whole; to believe the file nevertheless, remove {self._file}"
                )

    def _sums(
        self, versions: Iterable[int], noted: Mapping[str, int] = MappingProxyType({})
    ) -> Iterator[tuple[str, int]]:
        """Yield (name, checksum) of the files there are; those *noted* are not read."""
        for version in versions:
            for kind in ("json", "checkpoint.parquet"):
                path = self._log / f"{version:020}.{kind}"
                with contextlib.suppress(OSError):
                    name = _named(path)
                    known = noted.get(name)
                    yield name, zlib.crc32(path.read_bytes()) if known is None else known

    def _notes(self) -> dict[str, int]:
        try:
            lines = self._file.read_bytes().splitlines()
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


def _version(name: str) -> int:
    return int(name[:20])
