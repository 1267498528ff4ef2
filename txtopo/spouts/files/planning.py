"""FilesCoordinator: cuts the files into batches of bounded size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from txtopo.errors import ConfigError
from txtopo.metadata import Json
from txtopo.spouts.files.cursor import Cursor, Order
from txtopo.spouts.files.format import FileFormat
from txtopo.spouts.files.lines import end_of_rows
from txtopo.spouts.files.ranges import FileRange, shared, to_json
from txtopo.spouts.files.reading import parquet_rows
from txtopo.spouts.files.source import FileSource, SourceFile
from txtopo.spouts.transactional import LastBatch, TransactionalCoordinator
from txtopo.state.disk_errors import failure

METADATA_VERSION = 1
# A name and its fingerprint are some 60 to 230 bytes; ten batches of 256 files are then at most
# 0.6 MB in one write, where ZooKeeper takes 1 MiB.
BATCH_FILES_MAX = 256
# What a batch holds if no limit was given: a second or two of one core's work.
BATCH_BYTES_MAX = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a batch holds at the most; None for no limit."""

    rows: int | None = None
    bytes: int | None = None
    files: int | None = None

    def __post_init__(self) -> None:
        for name in ("rows", "bytes", "files"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise ConfigError(
                    f"batch_{name}_max is wrong; got {value!r}; expected a whole number of at "
                    "least 1, or None"
                )


class Taken(NamedTuple):
    """A part of a file that goes into a batch.

    Attributes:
        range: The part.
        rest: Where the next batch goes on in the file; None when it is finished.
        rows: How many rows the part has, if rows are counted.
    """

    range: FileRange
    rest: int | None
    rows: int = 0


class _Cut(NamedTuple):
    """A batch that may be planned.

    Attributes:
        ranges: What is in it.
        files: How many of the waiting files it begins.
        open: The file that its end is in, and where it goes on.
    """

    ranges: list[FileRange]
    files: int
    open: tuple[SourceFile, int] | None


class FilesCoordinator(TransactionalCoordinator):
    """Plans ranges in the driver; reads a file itself only to count rows.

    Counting may fail, and the batch is then planned again. So the cursor moves only when the whole
    batch is known: otherwise the files that were counted before the failure would be skipped.
    """

    def __init__(
        self, source: FileSource, format: FileFormat, limits: Limits, partitions: int, order: Order
    ) -> None:
        self._source = source
        self._format = format
        self._limits = limits
        self._partitions = partitions
        self._order: Order = order
        self._stored: Json = None
        self._cursor = Cursor(order)
        self._open: tuple[SourceFile, int] | None = None

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        """Look for new files when those that were found before are planned."""
        self._resume(last.metadata)
        self._look()
        return self._open is not None or self._cursor.waiting > 0

    def initialize_transaction(self, txid: int, previous_metadata: Json) -> Json:
        """Cut the next batch."""
        self._resume(previous_metadata)
        self._look()
        cut = self._next_cut()
        shares = shared(self._divisible(cut.ranges), self._partitions)
        # Nothing from here on can fail.
        self._cursor.take(cut.files)
        self._open = cut.open
        cursor = self._cursor.stored()
        assert isinstance(cursor, dict)
        if self._open is not None:
            file, start = self._open
            cursor["open"] = [*file, start]
        self._stored = cursor
        batch = to_json(shares)
        assert isinstance(batch, dict)
        return {"version": METADATA_VERSION, **batch, "cursor": cursor}

    def _look(self) -> None:
        if self._open is None and not self._cursor.waiting:
            self._cursor.list(self._source.files())

    def _resume(self, metadata: Json) -> None:
        """Go on after a batch that another coordinator planned."""
        stored = metadata["cursor"] if isinstance(metadata, dict) else None
        if stored == self._stored:
            return
        self._stored = stored
        self._cursor = Cursor(self._order, stored)
        self._open = None
        if isinstance(stored, dict) and "open" in stored:
            self._open = _opened(stored["open"])

    def _next_cut(self) -> _Cut:
        ranges: list[FileRange] = []
        rows, size = self._limits.rows, self._limits.bytes
        ahead, files, opened = self._cursor.ahead(), 0, self._open
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
            rows = None if rows is None else rows - taken.rows
            size = None if size is None else size - self._bytes(taken)
        return _Cut(ranges, files, opened)

    def _fits(self, file: SourceFile, rows: int | None, size: int | None) -> bool:
        """Return whether a file that cannot be divided fits into what is left of the batch."""
        if not self._format.compression(file.name):
            return True
        return rows is None and (size is None or file.size <= size)

    def _take(self, file: SourceFile, start: int, rows: int | None, size: int | None) -> Taken:
        if self._format.compression(file.name):
            # Its rows are not counted, so it fills up a batch of counted rows.
            return Taken(FileRange(file, 0, None), None, rows or 0)
        if self._format.lines:
            return self._take_lines(file, start, rows, size)
        if rows is None and size is None:
            return Taken(FileRange(file, 0, None), None)
        return self._take_parquet(file, start, rows, size)

    def _take_lines(
        self, file: SourceFile, start: int, rows: int | None, size: int | None
    ) -> Taken:
        end, counted = file.size, 0
        if rows is not None and file.size:
            header = int(self._format.name == "csv" and self._format.header and start == 0)
            end, counted = self._count(file, start, rows + header)
            counted -= header
        if size is not None:
            end = min(end, start + size)
        return Taken(FileRange(file, start, end), end if end < file.size else None, counted)

    def _take_parquet(
        self, file: SourceFile, start: int, rows: int | None, size: int | None
    ) -> Taken:
        total = parquet_rows(self._source, file)
        end = total if rows is None else min(total, start + rows)
        if size is not None:
            end = min(end, start + max(1, size * total // max(file.size, 1)))
        return Taken(FileRange(file, start, end), end if end < total else None, end - start)

    def _count(self, file: SourceFile, start: int, rows: int) -> tuple[int, int]:
        try:
            with self._source.open(file) as opened:
                return end_of_rows(opened, start, file.size, rows)
        except OSError as error:
            raise failure(f"read {file.name!r}", error) from error

    def _bytes(self, taken: Taken) -> int:
        each = taken.range
        if each.end is None or self._format.lines:
            return each.weight
        total = parquet_rows(self._source, each.file)
        return each.file.size * each.weight // max(total, 1)

    def _divisible(self, ranges: list[FileRange]) -> list[FileRange]:
        """Count the rows of Parquet files of which there are fewer than partitions."""
        if self._format.lines or len(ranges) >= self._partitions:
            return ranges
        return [
            FileRange(each.file, 0, parquet_rows(self._source, each.file))
            if each.end is None
            else each
            for each in ranges
        ]


def _opened(stored: Json) -> tuple[SourceFile, int]:
    assert isinstance(stored, list)
    name, size, mtime_ns, start = stored
    assert isinstance(name, str)
    assert isinstance(size, int)
    assert isinstance(mtime_ns, int)
    assert isinstance(start, int)
    return SourceFile(name, size, mtime_ns), start
