"""A disk that keeps only flushed data, to see what a power cut would leave."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

Inode = int

Names = dict[str, tuple[Inode, bool]]
"""What a folder names: the inode of each name, and whether it is a folder."""


class ForgetfulDisk:
    """Watches ``os.fsync`` below a folder, and brings the folder to what was flushed.

    It is as harsh as POSIX lets a disk be. A file has what it had when it was last flushed, and is
    empty if it never was. A folder names what it named when it was last flushed itself. Programs
    that flush by other means than ``os.fsync`` are not seen; delta-rs flushes nothing.

    Args:
        folder: The folder, which the disk is for.
        monkeypatch: Puts ``os.fsync`` back.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._contents: dict[Inode, bytes] = {}
        self._names: dict[Inode, Names] = {}
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self._flush)

    def cut_the_power(self) -> None:
        """Leave only flushed data.

        The files are made again, so they may have other inodes than before, and those of lost files
        may come again for other files. So what was flushed is noted again under the new inodes.
        """
        contents, names = self._contents, self._names
        self._contents, self._names = {}, {}
        inode = self._folder.stat().st_ino
        for path in self._folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self._restore(self._folder, inode, contents, names)

    def _flush(self, descriptor: int) -> None:
        found = os.fstat(descriptor)
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if stat.S_ISDIR(found.st_mode):
            self._names[found.st_ino] = _names_in(path)
        else:
            self._contents[found.st_ino] = path.read_bytes()
        self._fsync(descriptor)

    def _restore(
        self, folder: Path, inode: Inode, contents: dict[Inode, bytes], names: dict[Inode, Names]
    ) -> None:
        """Bring a folder to what was flushed of the one that had an inode."""
        for name, (number, is_folder) in names.get(inode, {}).items():
            path = folder / name
            if is_folder:
                path.mkdir()
                self._restore(path, number, contents, names)
            else:
                path.write_bytes(contents.get(number, b""))
                self._contents[path.stat().st_ino] = contents.get(number, b"")
        self._names[folder.stat().st_ino] = _names_in(folder)


def _names_in(folder: Path) -> Names:
    return {entry.name: (entry.inode(), entry.is_dir()) for entry in os.scandir(folder)}
