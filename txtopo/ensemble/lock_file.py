"""LockFile: who lives, told by locks of the operating system on the bytes of a file.

Each candidate has a number, and its process locks the byte of that number. The operating system
drops the lock when the process ends, however it ends. A suspended process keeps it.

POSIX locks belong to a process: it cannot see its own locks, and loses all of them when it closes
any handle to the file. So a process opens the file once, and notes which bytes it has locked. A
forked child has no locks, also while its parent's handle is open in it; locks of an open file
(``flock``) would live on in the child.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from threading import Lock

FileId = tuple[int, int]
"""Device and inode."""


class LockFile:
    """The lock file, as all users in this process share it. :func:`open_lock_file` opens it."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._held: set[int] = set()
        self._lock = Lock()
        self.id: FileId = _id_of(os.fstat(self._descriptor))
        self.users = 0

    def hold(self, number: int) -> None:
        """Lock a number that nobody else has."""
        with self._lock:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
            self._held.add(number)

    def release(self, number: int) -> None:
        """Unlock a number; does nothing if this process has not locked it."""
        with self._lock:
            if number in self._held:
                self._held.remove(number)
                fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, number)

    def is_held(self, number: int) -> bool:
        """Return whether a process that has locked a number still lives."""
        with self._lock:
            if number in self._held:
                return True
            try:  # shared, so that two processes that ask at once do not see each other
                fcntl.lockf(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, number)
            except (BlockingIOError, PermissionError):
                return True
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, number)
            return False

    def close(self) -> None:
        """End one use of the file; the last one closes it."""
        with _guard:
            self.users -= 1
            if self.users == 0:
                _opened.pop(self.id, None)
                os.close(self._descriptor)


def open_lock_file(path: Path) -> LockFile:
    """Open a lock file, and create it if it does not exist. Each user closes it once.

    Raises:
        OSError: It cannot be opened for writing.
    """
    with _guard:
        id = id_at(path)
        file = (id and _opened.get(id)) or LockFile(path)
        _opened[file.id] = file
        file.users += 1
        return file


def id_at(path: Path) -> FileId | None:
    """Return which file is at a path; None if there is none."""
    try:
        return _id_of(path.stat())
    except OSError:
        return None


def _id_of(stat: os.stat_result) -> FileId:
    return stat.st_dev, stat.st_ino


# The locks belong to the process, and so does this.
_opened: dict[FileId, LockFile] = {}
_guard = Lock()


def _forget() -> None:
    """Start again in a forked child, which has none of its parent's locks."""
    global _guard
    _guard = Lock()
    _opened.clear()


os.register_at_fork(after_in_child=_forget)
