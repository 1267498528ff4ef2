"""Files that a disk has spoilt."""

from __future__ import annotations

import os
from pathlib import Path


def cut_off(path: Path, share: float = 0.5) -> None:
    """Keep the first part of what is written in a file."""
    size = written(path)
    with path.open("r+b") as file:
        file.truncate(int(size * share))


def flip(path: Path, share: float = 0.5) -> None:
    """Change one bit in the middle of what is written in a file."""
    at = int(written(path) * share)
    with path.open("r+b") as file:
        byte = os.pread(file.fileno(), 1, at)[0]
        os.pwrite(file.fileno(), bytes([byte ^ 1]), at)


def written(path: Path) -> int:
    """Return how long a file is without the zeros that a log has room in."""
    return len(path.read_bytes().rstrip(b"\0"))
