"""Damage files as a bad disk does."""

from __future__ import annotations

import os
from pathlib import Path


def cut_off(path: Path, share: float = 0.5) -> None:
    """Cut a file off after this share of its data."""
    size = written(path)
    with path.open("r+b") as file:
        file.truncate(int(size * share))


def flip(path: Path, share: float = 0.5) -> None:
    """Change one bit of a file, after this share of its data."""
    at = int(written(path) * share)
    with path.open("r+b") as file:
        byte = os.pread(file.fileno(), 1, at)[0]
        os.pwrite(file.fileno(), bytes([byte ^ 1]), at)


def written(path: Path) -> int:
    """Return the length of the data in a file; a log ends with zeros that are not data."""
    return len(path.read_bytes().rstrip(b"\0"))
