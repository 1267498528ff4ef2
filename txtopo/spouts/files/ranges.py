"""Ranges: parts of files, and how the ranges of a batch are shared among its partitions.

A range of lines ``[start, end)`` in bytes owns the lines that *start* in it, so ranges that touch
own each line once, wherever they were cut. A range of a Parquet file counts rows. ``end`` None
means the whole file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from txtopo.metadata import Json
from txtopo.spouts.files.source import SourceFile


class FileRange(NamedTuple):
    """Part of a file; bytes of a file of lines, rows of a Parquet file.

    Attributes:
        file: The file.
        start: Where it begins.
        end: Where it ends, exclusive; None for the whole file, which is then never divided.
    """

    file: SourceFile
    start: int
    end: int | None

    @property
    def weight(self) -> int:
        """How much it is, compared with other ranges of its batch."""
        return self.file.size if self.end is None else self.end - self.start


Share = list[FileRange]
"""What one partition gets of a batch."""


def shared(ranges: Sequence[FileRange], partitions: int) -> list[Share]:
    """Share the ranges of a batch among partitions, as evenly as they can be divided."""
    if all(each.end is None for each in ranges):
        return _by_size(ranges, partitions)
    shares: list[Share] = [[] for _ in range(partitions)]
    total = sum(each.weight for each in ranges)
    before = 0
    for each in ranges:
        if each.end is None:
            middle = before + each.weight // 2
            shares[min(middle * partitions // total, partitions - 1)].append(each)
        else:
            _cut(each, before, total, shares)
        before += each.weight
    return shares


def to_json(shares: Sequence[Share]) -> Json:
    """Return shares as JSON; what all names begin with is written once."""
    names = [each.file.name for share in shares for each in share]
    root = _common(names)
    listed: list[Json] = [
        [
            [each.file.name[len(root) :], each.file.size, each.file.mtime_ns, each.start, each.end]
            for each in share
        ]
        for share in shares
    ]
    return {"root": root, "shares": listed}


def from_json(stored: Json) -> list[Share]:
    """Return the shares of a batch's metadata."""
    assert isinstance(stored, dict)
    root, listed = stored["root"], stored["shares"]
    assert isinstance(root, str)
    assert isinstance(listed, list)
    shares: list[Share] = []
    for share in listed:
        assert isinstance(share, list)
        shares.append([_range(root, each) for each in share])
    return shares


def _range(root: str, stored: Json) -> FileRange:
    assert isinstance(stored, list)
    name, size, mtime_ns, start, end = stored
    assert isinstance(name, str)
    assert isinstance(size, int)
    assert isinstance(mtime_ns, int)
    assert isinstance(start, int)
    assert end is None or isinstance(end, int)
    return FileRange(SourceFile(root + name, size, mtime_ns), start, end)


def _by_size(ranges: Sequence[FileRange], partitions: int) -> list[Share]:
    shares: list[Share] = [[] for _ in range(partitions)]
    loads = [0] * partitions
    for each in sorted(ranges, key=lambda each: -each.weight):
        least = loads.index(min(loads))
        shares[least].append(each)
        loads[least] += each.weight
    return shares


def _cut(each: FileRange, before: int, total: int, shares: list[Share]) -> None:
    """Cut a range where the borders of the shares fall into it."""
    assert each.end is not None
    start = each.start
    for partition, share in enumerate(shares):
        border = total * (partition + 1) // len(shares)
        end = min(each.end, each.start + max(border - before, 0))
        if end > start:
            share.append(FileRange(each.file, start, end))
            start = end


def _common(names: Sequence[str]) -> str:
    if not names:
        return ""
    low, high = min(names), max(names)
    at = next((at for at, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))
    return low[: low[:at].rfind("/") + 1]
