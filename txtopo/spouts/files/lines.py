"""Lines: finding and reading the lines of a range of bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

# Large enough that a parser's set-up does not count, small enough for many tasks on one machine.
BLOCK_BYTES = 8 * 1024 * 1024
_TAIL_BYTES = 64 * 1024
# Counting stops somewhere inside a batch, so blocks read too far are read again for the next one.
_COUNT_BYTES = 1024 * 1024


def line_blocks(file: IO[bytes], start: int, end: int | None) -> Iterator[bytes]:
    """Yield the lines that start in ``[start, end)``, in blocks of whole lines.

    Args:
        file: An open file; seekable unless *start* is 0.
        start: First byte.
        end: Last byte, exclusive; None for the end of the file.
    """
    # A line starts at *start* if the byte before is a newline, so reading begins there.
    position = max(start - 1, 0)
    if position:
        file.seek(position)
    inside = start == 0
    rest = b""
    while end is None or position < end:
        size = BLOCK_BYTES if end is None else min(BLOCK_BYTES, end - position)
        chunk = file.read(size)
        if not chunk:
            break
        position += len(chunk)
        if not inside:
            found = chunk.find(b"\n")
            if found < 0:
                continue
            chunk, inside = chunk[found + 1 :], True
        border = chunk.rfind(b"\n") + 1
        if border:
            yield rest + chunk[:border]
            rest = chunk[border:]
        else:
            rest += chunk
    if rest:
        yield rest + _tail(file)


def end_of_rows(file: IO[bytes], start: int, size: int, rows: int) -> tuple[int, int]:
    """Find where *rows* lines that start at or after *start* end.

    Returns:
        The start of the line after them (or *size*), and how many lines there are before it.
    """
    if start:
        file.seek(start - 1)
    position = max(start - 1, 0)
    found = 0 if start else 1  # lines whose start was met; the first begins at byte 0
    while chunk := file.read(_COUNT_BYTES):
        newlines = chunk.count(b"\n")
        if found + newlines > rows:
            at = -1
            while found <= rows:
                at = chunk.find(b"\n", at + 1)
                found += 1
            end = position + at + 1
            return (end, rows) if end < size else (size, rows)
        found += newlines
        position += len(chunk)
        if chunk.endswith(b"\n") and position >= size:
            found -= 1  # a newline at the very end starts no line
    return size, found


def first_line(file: IO[bytes]) -> bytes:
    """Return the first line of a file, without its end and byte order mark."""
    line = b""
    while b"\n" not in line:
        chunk = file.read(_TAIL_BYTES)
        if not chunk:
            break
        line += chunk
    return line.split(b"\n", 1)[0].rstrip(b"\r").removeprefix(b"\xef\xbb\xbf")


def _tail(file: IO[bytes]) -> bytes:
    """Read on to the end of the line."""
    tail = b""
    while True:
        chunk = file.read(_TAIL_BYTES)
        found = chunk.find(b"\n")
        if found >= 0:
            return tail + chunk[: found + 1]
        if not chunk:
            return tail
        tail += chunk
