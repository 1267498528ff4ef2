"""Plans batches of files in the driver: which part of which file is next, and which were read.

The metadata of a batch has a *cursor*, which records which files were read. It must stay small
however many files there were. It keeps a digest of each of the last ``RECENT_FILES_MAX`` files. Of
earlier files, which were pruned, it keeps only a *mark*: the highest position in the order (by name
or time), the latest time, their number, and one digest of all their digests.

Rules
-----
1. After a restart, a file that is not among the recent ones is new if its position is above the
   mark, or below the position of every file that was ever read, or if it is newer than the time of
   the mark. None of this holds for a pruned file, as long as it keeps its time.
2. All other files were read if their number and their digest are those of the pruned files.
3. Otherwise some of the read files are gone, or others were added. A file that got its name before
   the last listing was found by that listing, and was read if its turn had come. Unlike the time of
   a file, which ``cp -p`` and ``rsync -a`` set, the time at which it got its name cannot be set.
   (Only a local filesystem reports it. Other filesystems set the time of a file themselves, so a
   file that is added late is newer than the mark; there the files were read if they are not more
   than were pruned.)
4. A file that was added later may have been read, moved away and brought back, or renamed; or it
   was never read. There is no way to tell. So this is an error that names the file, never a silent
   skip and never a second reading. With ``Config.allow_change`` such files are read.
5. A file whose time is in the future is read like any other, and reported. It stays among the
   recent ones until that time; otherwise its time would become the time of the mark, and no present
   file would be newer.
6. A file that changes after it was read is not read again, and neither is data appended to it. A
   process that saw the earlier version warns once for each file. The new time counts from then on,
   so that the file does not look like a new one when it is pruned.

A running process knows all files that it read. The order cannot change once files were pruned,
since a mark in one order says nothing about the other.

The cursor also keeps the folders that were read, if they are few. If they are many, it keeps the
folders of the files of its batch instead. If other folders replace them, it is an error, unless a
file in them was read or ``Config.allow_change`` is set; :mod:`txtopo.sources.files.folders`
explains why.
"""

from __future__ import annotations

import base64
import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import reduce
from operator import xor
from typing import Literal, NamedTuple

from txtopo import clock
from txtopo.disk_errors import failure
from txtopo.errors import ConfigError, PromiseError, TopologyChanged
from txtopo.log_records import logger_of
from txtopo.metadata import Json
from txtopo.sources.files.density import Densities
from txtopo.sources.files.folders import exchanged, within
from txtopo.sources.files.reading import end_of_rows, parquet_rows
from txtopo.sources.files.source import (
    FileFormat,
    FileRange,
    FileSource,
    SourceFile,
    check_version,
    folder_of,
    from_json,
    shared,
    to_json,
)
from txtopo.spouts.spout import LastBatch, TransactionalCoordinator, other_position

_logger = logger_of("txtopo.spouts")

# A name and its fingerprint have about 60 to 230 bytes; ten batches of 256 files are then at most
# 0.6 MB in one write, where ZooKeeper takes 1 MiB.
BATCH_FILES_MAX = 256

# The size of a batch if no limit is given: a second or two of work for one core.
BATCH_BYTES_MAX = 64 * 1024 * 1024

# 8 base64 characters each: 32 kB in each batch's metadata, 330 kB in the one write of ten batches,
# where ZooKeeper takes 1 MiB.
RECENT_FILES_MAX = 4096

# How far the clocks of writers and servers may be ahead of that of the driver.
AHEAD_S = 60.0

# Clocks of disks tick in hundredths of a second, and clocks of servers differ a little.
LISTING_S = 0.5

# 48 bits: with 4,096 digests, one new file in 7e10 is mistaken for one that was read.
DIGEST_BYTES = 6

# Batches whose end is remembered to compute the lag; far more than are ever in flight.
ENDS_MAX = 1000

# Folders that are longer than this in total are not stored, so that the metadata of a batch stays
# small.
FOLDERS_CHARACTERS_MAX = 4096

Order = Literal["name", "time"]

Place = tuple[int, str]
"""The position of a file in the order: (0, name) or (mtime_ns, name)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that a batch holds; None for no limit."""

    rows: int | None = None
    bytes: int | None = None
    files: int | None = None

    def __post_init__(self) -> None:
        for name in ("rows", "bytes", "files"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise ConfigError(
                    f"batch_{name}_max is wrong; got {value!r}; expected a whole number of at "
                    "least 1, or None",
                    setting=f"batch_{name}_max",
                )


class FilePart(NamedTuple):
    """The part of a file that goes into a batch.

    Attributes:
        range: The part.
        rest: Where the next batch continues in the file; None if the file is finished.
        rows: The number of rows of the part, if rows are counted.
    """

    range: FileRange
    rest: int | None
    rows: int = 0


class _Cut(NamedTuple):
    """A batch that may be planned.

    Attributes:
        ranges: Its parts of files.
        files: How many of the waiting files it begins.
        open: The file in which it ends, and where the next batch continues in it.
        rows: How many rows it has, if all were counted.
    """

    ranges: list[FileRange]
    files: int
    open: tuple[SourceFile, int] | None
    rows: int | None


class _Amount(NamedTuple):
    """How much there is to read."""

    files: int = 0
    bytes: int = 0


class FilesCoordinator(TransactionalCoordinator):
    """Plans ranges in the driver; reads a file itself only to count rows.

    Counting may fail, and the batch is then planned again. So the cursor moves only when the whole
    batch is known: otherwise files that were counted before the failure would be skipped.
    """

    def __init__(
        self,
        source: FileSource,
        format: FileFormat,
        limits: Limits,
        partitions: int,
        order: Order,
        *,
        may_change: bool = False,
        gathers: bool = False,
    ) -> None:
        self._gathers = gathers
        self._asked: int | None = None
        self._rows: int | None = None
        self._densities = Densities(source, format)
        self._source = source
        self._may_change = may_change
        self._format = format
        self._limits = limits
        self._partitions = partitions
        self._order: Order = order
        self._stored: Json = None
        self._cursor = self._cursor_of(None)
        self._open: tuple[SourceFile, int] | None = None
        # The folders that an earlier coordinator read, until they have been found to be the same.
        self._earlier: list[str] | None = None
        self._folders: list[str] | None = None
        # Totals planned since this coordinator began, at the end of each batch and so far; and the
        # same including waiting files. They are replaced, never changed, since lag() has its own
        # thread.
        self._planned = _Amount()
        self._ends: dict[str | None, _Amount] = {}
        self._found = _Amount()

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        """Return whether a file is waiting; list new files when all earlier ones are planned."""
        self._resume(last.metadata)
        # One that is asked again was held back, to gather files.
        self._look(more=self._gathers and self._asked == txid)
        self._asked = txid
        return self._open is not None or self._cursor.waiting > 0

    def initialize_transaction(
        self, txid: int, previous_metadata: Json, *, rows_max: int | None = None
    ) -> Json:
        """Plan the next batch; with *rows_max*, rows are counted, except in compressed files."""
        self._resume(previous_metadata)
        self._look()
        cut = self._next_cut(rows_max)
        self._rows = cut.rows if rows_max is not None else None
        shares = shared(self._divisible(cut.ranges), self._partitions)
        # Nothing from here on can fail.
        before = self._rest()
        self._cursor.take(cut.files)
        self._open = cut.open
        rest = self._rest()
        self._planned = _Amount(
            self._planned.files + before.files - rest.files,
            self._planned.bytes + before.bytes - rest.bytes,
        )
        cursor = self._cursor.stored()
        assert isinstance(cursor, dict)
        if self._open is not None:
            file, start = self._open
            cursor["open"] = [*file, start]
        folders = self._folders if self._earlier is None else self._earlier
        if folders is not None and sum(map(len, folders)) <= FOLDERS_CHARACTERS_MAX:
            cursor["folders"] = list(folders)
        self._stored = cursor
        self._ends[_end_of(cursor)] = self._planned
        if len(self._ends) > ENDS_MAX:
            del self._ends[next(iter(self._ends))]
        batch = to_json(shares)
        assert isinstance(batch, dict)
        return {**batch, "cursor": cursor}

    def ended(self, last: LastBatch) -> bool:
        """Return whether the last listing had no file that is not read."""
        return self._open is None and not self._cursor.waiting

    def lag(self, metadata: Json) -> Mapping[str, int]:
        """Return how many ``files`` and ``bytes`` wait behind a batch, as of the last listing.

        This lists and reads nothing. A partly read file counts as one file; its bytes are those of
        the rest, but for a Parquet file all bytes. The lag behind batches that an earlier
        coordinator planned is unknown, except for the last one.
        """
        end = self._ends.get(_end_of(_cursor(metadata))) if metadata else None
        if end is None:
            return {}
        found = self._found
        return {"files": found.files - end.files, "bytes": found.bytes - end.bytes}

    def unread(self, last: LastBatch) -> Mapping[str, int] | None:
        """Return about how many rows wait: their bytes, by the density of the first of them."""
        rest = self._rest()
        file, start = self._open or (next(self._cursor.ahead()), 0)
        density = self._densities.rows_per_byte(file, start)
        return None if density is None else {"rows": max(1, round(rest.bytes * density))}

    def planned_rows(self, metadata: Json) -> int | None:
        """Return how many rows the batch has that was planned last, if they were counted."""
        return self._rows

    def _look(self, *, more: bool = False) -> None:
        more = more and self._cursor.untouched
        if self._open is None and (more or not self._cursor.waiting):
            now_s = clock.wall_clock()
            files = self._source.files()
            if self._folders is None:
                self._folders = self._source.folders()
            if self._earlier is not None:
                self._compare(self._earlier, self._folders, files)
            self._cursor.list(files, now_s)
        rest = self._rest()
        self._found = _Amount(self._planned.files + rest.files, self._planned.bytes + rest.bytes)

    def _compare(self, earlier: list[str], now: list[str], files: Sequence[SourceFile]) -> None:
        """Check that folders which replace earlier ones contain a file that was read.

        While they contain no files at all, this cannot be decided.
        """
        gone, new = exchanged(earlier, now)
        found = [file for file in files if any(within(file.name, folder) for folder in new)]
        if new and not self._may_change:
            if not found:
                return
            if not any(self._cursor.has_read(file) for file in found):
                raise _moved(gone, new, found)
        self._earlier = None

    def _cursor_of(self, stored: Json) -> Cursor:
        return Cursor(
            self._order, stored, came_at=self._source.came_at, may_change=self._may_change
        )

    def held_back(self) -> str | None:
        """Return which links are not followed."""
        loops = sorted(self._source.loops)
        if not loops:
            return None
        more = f" and {len(loops) - 1} more" if len(loops) > 1 else ""
        return f"link {loops[0]!r}{more} leads to a folder above it, so it is not followed"

    def _rest(self) -> _Amount:
        """Return the totals that were found and are not planned yet."""
        files, size = self._cursor.waiting, self._cursor.waiting_bytes
        if self._open is None:
            return _Amount(files, size)
        file, start = self._open
        return _Amount(files + 1, size + file.size - (start if self._format.lines else 0))

    def _resume(self, metadata: Json) -> None:
        """Continue after a batch that another coordinator planned."""
        stored = None if metadata is None else _cursor(metadata)
        if stored == self._stored:
            return
        self._stored = stored
        self._cursor = self._cursor_of(stored)
        self._earlier = None if metadata is None else _folders(metadata)
        self._open = None
        if isinstance(stored, dict) and "open" in stored:
            self._open = _opened(stored["open"])
        self._ends = {}  # first, so that an end that lag() finds always fits these totals
        self._planned, self._found = _Amount(), self._rest()
        self._ends = {_end_of(stored): self._planned}

    def _next_cut(self, rows_max: int | None) -> _Cut:
        ranges: list[FileRange] = []
        rows, size = self._limits.rows, self._limits.bytes
        if rows_max is not None:
            rows = rows_max if rows is None else min(rows, rows_max)
        ahead, files, opened = self._cursor.ahead(), 0, self._open
        total: int | None = 0
        while len(ranges) < (self._limits.files or BATCH_FILES_MAX):
            if (rows is not None and rows <= 0) or (size is not None and size <= 0):
                break
            file, start = opened or (next(ahead, None), 0)
            if file is None or (ranges and not self._fits(file, rows, size)):
                break
            taken = self._take(file, start, rows, size)
            files += opened is None
            opened = None if taken.rest is None else (file, taken.rest)
            if taken.range.weight:
                ranges.append(taken.range)
            counted = None if self._format.undivided(file.name) else taken.rows
            total = None if total is None or counted is None else total + counted
            rows = None if rows is None else rows - taken.rows
            size = None if size is None else size - self._bytes(taken)
        return _Cut(ranges, files, opened, total)

    def _fits(self, file: SourceFile, rows: int | None, size: int | None) -> bool:
        """Return whether a file fits into the rest of the batch; one that can be divided does."""
        if not self._format.undivided(file.name):
            return True
        return rows is None and (size is None or file.size <= size)

    def _take(self, file: SourceFile, start: int, rows: int | None, size: int | None) -> FilePart:
        if self._format.undivided(file.name):
            # Its rows are not counted, so it fills a batch that is limited by rows. A start after
            # 0 is from a plan that was made without multiline.
            return FilePart(FileRange(file, start, None), None, rows or 0)
        if self._format.lines:
            return self._take_lines(file, start, rows, size)
        if rows is None and size is None:
            return FilePart(FileRange(file, 0, None), None)
        return self._take_parquet(file, start, rows, size)

    def _take_lines(
        self, file: SourceFile, start: int, rows: int | None, size: int | None
    ) -> FilePart:
        end, counted = file.size, 0
        if rows is not None and file.size:
            header = int(self._format.name == "csv" and self._format.header and start == 0)
            end, counted = self._count(file, start, rows + header)
            counted -= header
        if size is not None:
            end = min(end, start + size)
        return FilePart(FileRange(file, start, end), end if end < file.size else None, counted)

    def _take_parquet(
        self, file: SourceFile, start: int, rows: int | None, size: int | None
    ) -> FilePart:
        total = parquet_rows(self._source, file)
        end = total if rows is None else min(total, start + rows)
        if size is not None:
            end = min(end, start + max(1, size * total // max(file.size, 1)))
        return FilePart(FileRange(file, start, end), end if end < total else None, end - start)

    def _count(self, file: SourceFile, start: int, rows: int) -> tuple[int, int]:
        try:
            with self._source.open(file) as opened:
                return end_of_rows(opened, start, file.size, rows)
        except OSError as error:
            raise failure(f"read {file.name!r}", error) from error

    def _bytes(self, taken: FilePart) -> int:
        each = taken.range
        if each.end is None or self._format.lines:
            return each.weight
        total = parquet_rows(self._source, each.file)
        return each.file.size * each.weight // max(total, 1)

    def _divisible(self, ranges: list[FileRange]) -> list[FileRange]:
        """Make Parquet files divisible, by counting their rows, if there are too few files."""
        if self._format.lines or len(ranges) >= self._partitions:
            return ranges
        return [
            FileRange(each.file, 0, parquet_rows(self._source, each.file))
            if each.end is None
            else each
            for each in ranges
        ]


def _cursor(metadata: Json) -> Json:
    match metadata:
        case {"version": version, "shares": list(), "cursor": dict(cursor)}:
            check_version(version)
            return cursor
    raise other_position("FilesTransactionalSpout", metadata)


def _end_of(cursor: Json) -> str | None:
    """Return what identifies the end of a batch: its last file, and the place in it."""
    if not isinstance(cursor, dict):
        return None
    opened = cursor.get("open")
    start = opened[-1] if isinstance(opened, list) else None
    # Six bytes are eight characters of base64, without padding.
    return f"{str(cursor['recent'])[-8:]} {start}"


def _folders(metadata: Json) -> list[str]:
    """Return the folders read up to a batch; if it has none stored, the folders of its files."""
    cursor = _cursor(metadata)
    assert isinstance(cursor, dict)
    stored = cursor.get("folders")
    if isinstance(stored, list):
        return [str(folder) for folder in stored]
    names = {each.file.name for share in from_json(metadata) for each in share}
    return sorted(set(map(folder_of, names)))


def _moved(gone: list[str], new: list[str], found: list[SourceFile]) -> TopologyChanged:
    before, now = (
        ", ".join(map(repr, each[:5])) + (f" and {len(each) - 5} more" if len(each) > 5 else "")
        for each in (gone, new)
    )
    example = min(file.name for file in found)
    return TopologyChanged(
        f"the files spout reads different folders than before; got {now}, where none of "
        f"{len(found)} files was read, e.g. {example!r}; expected {before}, which it read before; "
        "were the files moved, or is it the same folder under another path? a file is identified "
        "by its path, so all of them would be read again: move them back, or put a link in the "
        "old place and pass the same path as before; if these are other files, pass the earlier "
        "paths as well, or start once with Config(allow_change=['source'])",
        changes=(f"folders of a files spout: {before} before, {now} now",),
    )


def _opened(stored: Json) -> tuple[SourceFile, int]:
    assert isinstance(stored, list)
    name, size, mtime_ns, start = stored
    assert isinstance(name, str)
    assert isinstance(size, int)
    assert isinstance(mtime_ns, int)
    assert isinstance(start, int)
    return SourceFile(name, size, mtime_ns), start


@dataclass(frozen=True, slots=True)
class Mark:
    """What the cursor keeps of the files that were pruned."""

    place: Place
    mtime_ns: int
    count: int
    digest: int


@dataclass(frozen=True, slots=True)
class Listings:
    """What the cursor keeps of the last listings.

    Attributes:
        done_s: When the last fully taken listing was made, in seconds since 1970.
        last_s: When the last listing was made.
        upto: The position of the last file that was taken from it; None for none.
    """

    done_s: float = 0.0
    last_s: float = 0.0
    upto: Place | None = None


class Cursor:
    """The files that were read, and the listed files that wait to be planned.

    It is mutable; one thread at a time uses it. :meth:`list` finds new files, :meth:`ahead` yields
    the next files, and :meth:`take` marks them as planned, which cannot fail.

    Args:
        order: The order of the files.
        stored: What an earlier cursor has stored.
        came_at: Returns when a file got its name, at the latest; None if that is not known.
        may_change: Whether to read a file when it is unknown whether it was read before.
    """

    def __init__(
        self,
        order: Order,
        stored: Json = None,
        *,
        came_at: Callable[[SourceFile], float | None] = lambda _: None,
        may_change: bool = False,
    ) -> None:
        self._order, self._came_at, self._may_change = order, came_at, may_change
        self._low: Place | None = None
        self._listings = Listings()
        self._now_s = 0.0
        self._queue: deque[SourceFile] = deque()
        self._queue_bytes = 0
        self._recent: deque[bytes] = deque()
        self._recent_files: dict[bytes, SourceFile] = {}
        self._changed: set[bytes] = set()
        self._mark: Mark | None = None
        if stored is not None:
            self._restore(stored)
        self._read: set[bytes] = set(self._recent)
        self._doubt = self._mark is not None

    @property
    def waiting(self) -> int:
        """The number of listed files that are not planned yet."""
        return len(self._queue)

    @property
    def untouched(self) -> bool:
        """Whether no file of the last listing was taken."""
        return self._listings.upto is None

    @property
    def waiting_bytes(self) -> int:
        """The total size in bytes of the waiting files."""
        return self._queue_bytes

    def list(self, files: Sequence[SourceFile], now_s: float = 0.0) -> None:
        """Queue the files that are new, in order; those that wait in the queue stay in it.

        While files wait, it is called only if none of the last listing was taken.

        Args:
            files: The files that exist.
            now_s: When they were listed, in seconds since 1970.

        Raises:
            TopologyChanged: Files were pruned in another order.
            PromiseError: It is unknown which files were read; the message says how to continue.
        """
        by_digest = {_digest(file.name): file for file in files}
        first, self._now_s = not self._now_s, now_s
        if self._doubt:
            self._settle(by_digest)
        self._look_at_recent(by_digest)
        new = [file for digest, file in by_digest.items() if digest not in self._read]
        waited = bool(self._queue)
        self._queue = deque(sorted(new, key=self._place))
        self._queue_bytes = sum(file.size for file in new)
        # The first listing of a process may find files that an earlier process found but did not
        # take.
        done_s = self._listings.done_s if first or waited else self._listings.last_s
        self._listings = Listings(done_s, now_s)
        self._tell_ahead(new)

    def _look_at_recent(self, by_digest: Mapping[bytes, SourceFile]) -> None:
        changed = []
        for digest in self._recent:
            file = by_digest.get(digest)
            if file is None:
                continue
            if self._recent_files.get(digest, file) != file and digest not in self._changed:
                self._changed.add(digest)
                changed.append(file.name)
            self._recent_files[digest] = file
        if changed:
            text = (
                "%d files were changed after they were read, such as %r; neither they nor what "
                "was appended to them is read again; write new rows into files with new names"
            )
            _logger.warning(text, len(changed), min(changed))

    def _tell_ahead(self, new: Sequence[SourceFile]) -> None:
        ahead = [file for file in new if self._is_ahead(file)]
        if ahead:
            text = (
                "%d files have a time in the future, such as %r; they are read like any other "
                "file; is the clock of a writer wrong?"
            )
            _logger.warning(text, len(ahead), min(file.name for file in ahead))

    def _is_ahead(self, file: SourceFile) -> bool:
        return bool(self._now_s) and file.mtime_ns > (self._now_s + AHEAD_S) * 1e9

    def has_read(self, file: SourceFile) -> bool:
        """Return whether a file is known to have been read; for pruned ones that is unknown."""
        return _digest(file.name) in self._read

    def ahead(self) -> Iterator[SourceFile]:
        """Yield the waiting files in order, without taking them."""
        return iter(self._queue)

    def take(self, count: int) -> None:
        """Mark the next files as read."""
        if not count:
            return
        first, last = self._place(self._queue[0]), self._place(self._queue[count - 1])
        self._low = first if self._low is None else min(self._low, first)
        self._listings = replace(self._listings, upto=last)
        for _ in range(count):
            file = self._queue.popleft()
            self._queue_bytes -= file.size
            digest = _digest(file.name)
            self._read.add(digest)
            self._recent.append(digest)
            self._recent_files[digest] = file
            while len(self._recent) > RECENT_FILES_MAX:
                self._prune(self._oldest())

    def _oldest(self) -> bytes:
        """Remove the first of the recent files; the first in time, if others are in the future."""
        for _ in range(len(self._recent)):
            digest = self._recent.popleft()
            if digest not in self._recent_files or not self._is_ahead(self._recent_files[digest]):
                return digest
            self._recent.append(digest)
        return self._recent.popleft()

    def stored(self) -> Json:
        """Return the cursor as JSON."""
        recent = base64.b64encode(b"".join(self._recent)).decode()
        stored: dict[str, Json] = {"recent": recent}
        if self._low is not None:
            stored["low"] = [*self._low]
        listings = self._listings
        upto: Json = None if listings.upto is None else [*listings.upto]
        stored["listed"] = [listings.done_s, listings.last_s, upto]
        if self._mark is not None:
            mark = self._mark
            stored["mark"] = [*mark.place, mark.mtime_ns, mark.count, mark.digest]
        return stored

    def _restore(self, stored: Json) -> None:
        assert isinstance(stored, dict)
        recent = base64.b64decode(str(stored["recent"]))
        steps = range(0, len(recent), DIGEST_BYTES)
        self._recent.extend(recent[at : at + DIGEST_BYTES] for at in steps)
        mark = stored.get("mark")
        if isinstance(mark, list):
            time, name, mtime_ns, count, digest = mark
            assert isinstance(mtime_ns, int)
            assert isinstance(count, int)
            assert isinstance(digest, int)
            self._mark = Mark(_place_of([time, name]), mtime_ns, count, digest)
        self._listings = _listings_of(stored["listed"])
        if "low" in stored:
            low = _place_of(stored["low"])
            # The order may change until files are pruned: then nothing is below what was read.
            same = self._mark is not None or bool(low[0]) == (self._order == "time")
            self._low = low if same else (-1, "")

    def _place(self, file: SourceFile) -> Place:
        return (file.mtime_ns if self._order == "time" else 0, file.name)

    def _prune(self, digest: bytes) -> None:
        # A recent file of an earlier process that was removed has no position; none is needed,
        # since it will not be listed again.
        file = self._recent_files.pop(digest, SourceFile("", 0, 0))
        place = self._place(file)
        number = int.from_bytes(digest)
        if self._mark is None:
            self._mark = Mark(place, file.mtime_ns, 1, number)
            return
        self._mark = Mark(
            max(self._mark.place, place),
            max(self._mark.mtime_ns, file.mtime_ns),
            self._mark.count + 1,
            self._mark.digest ^ number,
        )

    def _settle(self, by_digest: dict[bytes, SourceFile]) -> None:
        """Decide, at the first listing after a restart, which old files were read."""
        assert self._mark is not None
        # A filesystem without times has only one order.
        marked = "time" if self._mark.place[0] else "name"
        if self._mark.mtime_ns and marked != self._order:
            raise TopologyChanged(
                "a files spout cannot change its order once it has read more than "
                f"{RECENT_FILES_MAX} files; got order={self._order!r}; expected order={marked!r}, "
                f"in which {self._mark.count} earlier files were read that the position does not "
                "list one by one; use the same order as before, or give the topology another id, "
                "under which it starts over",
                changes=(f"order of a files spout: {marked} before, {self._order} now",),
            )
        below = {
            digest
            for digest, file in by_digest.items()
            if digest not in self._read
            and (self._low is None or self._low <= self._place(file))
            and self._place(file) <= self._mark.place
            and file.mtime_ns <= self._mark.mtime_ns
        }
        doubtful = self._doubtful(below, by_digest)
        if doubtful and not self._may_change:
            raise self._unknown([by_digest[digest].name for digest in doubtful])
        self._read |= below - doubtful
        self._doubt = False

    def _doubtful(self, below: set[bytes], by_digest: Mapping[bytes, SourceFile]) -> set[bytes]:
        """Return the files that may have been either pruned or never read."""
        assert self._mark is not None
        numbers = (int.from_bytes(digest) for digest in below)
        if len(below) == self._mark.count and reduce(xor, numbers, 0) == self._mark.digest:
            return set()
        doubtful = set()
        for digest in below:
            came_s = self._came_at(by_digest[digest])
            if came_s is None:
                # If it is unknown when a file was added, its own time is used, and that is old.
                return below if len(below) > self._mark.count else set()
            if not self._was_taken(self._place(by_digest[digest]), came_s):
                doubtful.add(digest)
        return doubtful

    def _was_taken(self, place: Place, came_s: float) -> bool:
        """Return whether a file was added before the last listing, and its turn had come."""
        done_s, last_s, upto = astuple(self._listings)
        if last_s > self._now_s:
            return False  # The clock of that driver was ahead, or this one is behind.
        turn_had_come = upto is not None and place <= upto
        return came_s < done_s - LISTING_S or (came_s < last_s - LISTING_S and turn_had_come)

    def _unknown(self, names: Sequence[str]) -> PromiseError:
        assert self._mark is not None
        return PromiseError(
            f"cannot tell which files were read; got {len(names)} files that came or were renamed "
            f"since the last listing, e.g. {min(names)!r}, with a time and a name among the "
            f"{self._mark.count} that were read first, which the position does not list one by "
            "one; expected files with a new time, or with names after those that were read; if "
            "they were never read, touch them, or start once with "
            "Config(allow_change=['source']), which reads them; if they were read, move them away",
            count=len(names),
        )


def _listings_of(stored: Json) -> Listings:
    assert isinstance(stored, list)
    done_s, last_s, upto = stored
    assert isinstance(done_s, int | float)
    assert isinstance(last_s, int | float)
    return Listings(done_s, last_s, None if upto is None else _place_of(upto))


def _place_of(stored: Json) -> Place:
    assert isinstance(stored, list)
    time, name = stored
    assert isinstance(time, int)
    return time, str(name)


def _digest(name: str) -> bytes:
    return hashlib.blake2b(name.encode(errors="surrogateescape"), digest_size=DIGEST_BYTES).digest()
