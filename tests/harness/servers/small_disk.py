"""A small file system that a test fills up; needs root on Linux."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_BLOCK = 4096


class SmallDisk:
    """A file system in memory.

    Attributes:
        folder: Where it is mounted.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self, left_bytes: int) -> None:
        """Take all of its room but *left_bytes*."""
        found = os.statvfs(self.folder)
        size = max(_BLOCK, found.f_bavail * found.f_frsize - left_bytes)
        with self._ballast.open("ab") as ballast:
            os.posix_fallocate(ballast.fileno(), 0, size)

    def free(self) -> None:
        """Give the room back."""
        self._ballast.unlink()


@contextmanager
def small_disk(size_bytes: int) -> Iterator[SmallDisk]:
    """Mount a file system where servers of other accounts get at it.

    Raises:
        PermissionError: This process may not mount.
    """
    folder = Path(tempfile.mkdtemp(prefix="txtopo-disk-"))
    folder.chmod(0o755)
    options = f"size={size_bytes},mode=0777"
    mount = ["mount", "-t", "tmpfs", "-o", options, "txtopo-tests", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise PermissionError("there is no program mount") from error
    if done.returncode:
        folder.rmdir()
        raise PermissionError(done.stderr.strip())
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        folder.rmdir()
