"""Cursor: which files were read, in a bounded number of bytes.

A cursor is part of a batch's metadata, so it must stay small however many files there were. It
keeps a digest of each of the newest ``RECENT_FILES_MAX`` files by themselves. Of older ones, which
were pruned in the order in which they were read, it keeps a *mark*: the highest place in the order
(``name`` or ``time``), the latest time, and how many there were.

So after a restart a file that is not among the recent ones was read if it stands at or below the
mark and is no newer than the mark's time; every other file is new. That is exact while at most
``RECENT_FILES_MAX`` files were read, and beyond it for files that come later in the order or are
newer than what was pruned. What remains are files that appear late *and* stand below the mark *and*
are old: while the process lives it knows them; after a restart they make more files below the mark
than were pruned, which is an error, never a silent skip. Only when read files were removed as well
can that be missed: with more than ``RECENT_FILES_MAX`` files, move finished ones away only if new
ones are newer.
"""

from __future__ import annotations

import base64
import hashlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from txtopo.errors import PromiseError
from txtopo.metadata import Json
from txtopo.spouts.files.source import SourceFile

Order = Literal["name", "time"]
Place = tuple[int, str]
"""Where a file stands in the order: (0, name) or (mtime_ns, name)."""

# 8 base64 characters each: 32 kB in each batch's metadata, 330 kB in the one write of ten batches,
# where ZooKeeper takes 1 MiB.
RECENT_FILES_MAX = 4096
# 48 bits: with 4,096 digests a new file is taken for a read one once in 7e10 files.
DIGEST_BYTES = 6


@dataclass(frozen=True, slots=True)
class Mark:
    """What is left of the files that were pruned."""

    place: Place
    mtime_ns: int
    count: int


class Cursor:
    """The files that were read, and those that were listed and wait.

    Mutable, used by one thread at a time. :meth:`list` finds new files; :meth:`ahead` shows those
    that come next, and :meth:`take` says that they are planned, which cannot fail.
    """

    def __init__(self, order: Order, stored: Json = None) -> None:
        self._order = order
        self._queue: deque[SourceFile] = deque()
        self._recent: deque[bytes] = deque()
        self._facts: dict[bytes, SourceFile] = {}
        self._mark: Mark | None = None
        if stored is not None:
            self._restore(stored)
        self._read: set[bytes] = set(self._recent)
        self._doubt = self._mark is not None

    @property
    def waiting(self) -> int:
        """How many listed files have not been taken yet."""
        return len(self._queue)

    def list(self, files: Sequence[SourceFile]) -> None:
        """Queue the files that are new, in the order.

        Raises:
            PromiseError: It cannot be told which files were read.
        """
        by_digest = {_digest(file.name): file for file in files}
        if self._doubt:
            self._settle(by_digest)
        for digest in self._recent:
            if digest not in self._facts and digest in by_digest:
                self._facts[digest] = by_digest[digest]
        new = [file for digest, file in by_digest.items() if digest not in self._read]
        self._queue = deque(sorted(new, key=self._place))

    def ahead(self) -> Iterator[SourceFile]:
        """Yield the files that wait, in order; they still wait afterwards."""
        return iter(self._queue)

    def take(self, count: int) -> None:
        """Count the next files as read from now on."""
        for _ in range(count):
            file = self._queue.popleft()
            digest = _digest(file.name)
            self._read.add(digest)
            self._recent.append(digest)
            self._facts[digest] = file
            while len(self._recent) > RECENT_FILES_MAX:
                self._prune(self._recent.popleft())

    def stored(self) -> Json:
        """Return the cursor as JSON."""
        recent = base64.b64encode(b"".join(self._recent)).decode()
        if self._mark is None:
            return {"recent": recent}
        time, name = self._mark.place
        return {"recent": recent, "mark": [time, name, self._mark.mtime_ns, self._mark.count]}

    def _restore(self, stored: Json) -> None:
        assert isinstance(stored, dict)
        recent = base64.b64decode(str(stored["recent"]))
        steps = range(0, len(recent), DIGEST_BYTES)
        self._recent.extend(recent[at : at + DIGEST_BYTES] for at in steps)
        mark = stored.get("mark")
        if isinstance(mark, list):
            time, name, mtime_ns, count = mark
            assert isinstance(time, int)
            assert isinstance(mtime_ns, int)
            assert isinstance(count, int)
            self._mark = Mark((time, str(name)), mtime_ns, count)

    def _place(self, file: SourceFile) -> Place:
        return (file.mtime_ns if self._order == "time" else 0, file.name)

    def _prune(self, digest: bytes) -> None:
        # A recent file of an earlier process that is gone leaves no place: it cannot be met again.
        file = self._facts.pop(digest, SourceFile("", 0, 0))
        place = self._place(file)
        if self._mark is None:
            self._mark = Mark(place, file.mtime_ns, 1)
            return
        self._mark = Mark(
            max(self._mark.place, place),
            max(self._mark.mtime_ns, file.mtime_ns),
            self._mark.count + 1,
        )

    def _settle(self, by_digest: dict[bytes, SourceFile]) -> None:
        """Tell, at the first listing after a restart, which old files were read."""
        assert self._mark is not None
        below = {
            digest
            for digest, file in by_digest.items()
            if digest not in self._read
            and self._place(file) <= self._mark.place
            and file.mtime_ns <= self._mark.mtime_ns
        }
        if len(below) > self._mark.count:
            example = min(by_digest[digest].name for digest in below)
            raise PromiseError(
                f"cannot tell which files were read; got {len(below)} files up to "
                f"{self._mark.place[1]!r}, e.g. {example!r}; expected at most the "
                f"{self._mark.count} that were read; some appeared late with an old time: move "
                "them away and bring them back with a new time",
                count=len(below),
            )
        self._read |= below
        self._doubt = False


def _digest(name: str) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=DIGEST_BYTES).digest()
