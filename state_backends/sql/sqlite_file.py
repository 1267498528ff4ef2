"""Which files a connection to SQLite has open, and whether they are still in their place.

A program that has a file open continues to read and write it after the file was removed, or after
another one was moved to its place. SQLite does not check. So batches would be committed into a file
that nobody can open again, and a reader would see old data forever. The log (``-wal``) and its
index (``-shm``) are parts of the database: without them one would see an older database.

Rules
-----
1. A batch is written only if the files that its connection has open are the ones in place, and
   counts as written only if they still are afterwards. Otherwise the run ends.
2. After a backend has written to a file, it does not open another file in that place.
3. A reader that has written nothing opens what is there now.

A file is known by device and inode. A file that is overwritten in place (``cp``) has the same ones:
to copy a database that others have open, use SQLite's own ``.restore`` and ``.backup``.
"""

from __future__ import annotations

import os
import sqlite3
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from txtopo.errors import StoreDamagedError, StoreUnavailable

FileId = tuple[int, int]
"""Device and inode."""

_OPENED = "txtopo_opened"
_BEFORE = "txtopo_before"


class SqliteFile:
    """The file of a state, as the connections of one backend have it open.

    Args:
        path: The path that the URL names; None if it names none, but a URI.
        label: The state and its store, for messages.
    """

    def __init__(self, path: str | None, label: str) -> None:
        self._path = path
        self._label = label
        self._known = False
        self._written: FileId | None = None

    def watch(self, engine: sa.Engine) -> None:
        """Check the file whenever a connection is opened or used."""
        sa.event.listen(engine, "do_connect", self._connecting)
        sa.event.listen(engine, "connect", self._connected)
        sa.event.listen(engine, "checkout", self._used)

    def read(self, connection: sa.Connection) -> None:
        """Begin to read: note the database's log and its index, which the first read opens."""
        opened: OpenFiles = connection.info[_OPENED]
        if not opened.has_log:
            driver = connection.connection.driver_connection
            assert isinstance(driver, sqlite3.Connection)
            driver.execute("PRAGMA schema_version").fetchone()
            connection.info[_OPENED] = opened.with_log(_main_file(driver))

    def write(self, connection: sa.Connection) -> None:
        """Begin to write to this file; from now on no other file is written."""
        self._written = self.main_of(connection)

    def main_of(self, connection: sa.Connection) -> FileId:
        """Return the database that a connection has open."""
        opened: OpenFiles = connection.info[_OPENED]
        return opened.main

    def check(self, connection: sa.Connection) -> None:
        """Check that the files that a connection has open are in their place.

        The connection may be that of another state, whose path is another one.

        Raises:
            StoreDamagedError: A file is gone, or has been replaced by another.
        """
        opened: OpenFiles = connection.info[_OPENED]
        displaced = opened.displaced()
        if self._path is not None and file_id(self._path) != opened.main:
            displaced = self._path
        if displaced is not None:
            raise self._error(displaced)

    def _connecting(self, _: Any, record: Any, *__: object) -> None:
        before = None if self._path is None else file_id(self._path)
        if self._written is not None and self._path is not None and before != self._written:
            raise self._error(self._path)
        if self._known and self._path is not None and before is None:
            raise StoreUnavailable(
                f"{self._label} was removed after it was opened; nothing was read, and no empty "
                "file was created; restore it",
                store=self._label,
                path=self._path,
            )
        record.info[_BEFORE] = before

    def _connected(self, driver: sqlite3.Connection, record: Any) -> None:
        path = self._path or _main_file(driver)
        before, main = record.info.pop(_BEFORE, None), file_id(path)
        if main is None or before not in (None, main):
            raise StoreUnavailable(
                f"{self._label} was replaced while it was being opened; try again",
                store=self._label,
                path=path,
            )
        if self._written not in (None, main):
            raise self._error(path)
        self._known = True
        record.info[_OPENED] = OpenFiles(((path, main),))

    def _used(self, _: object, record: Any, __: object) -> None:
        """Make the pool discard a connection to a file that is gone, and open another one."""
        opened: OpenFiles = record.info[_OPENED]
        displaced = opened.displaced()
        if displaced is None:
            return
        if self._written is not None:
            raise self._error(displaced)
        raise sa.exc.DisconnectionError(f"{displaced!r} is now another file")

    def _error(self, path: str) -> StoreDamagedError:
        found = "is gone" if file_id(path) is None else "is now another file"
        return StoreDamagedError(
            f"{self._label} was removed or replaced while it was open: {path!r} {found}; expected "
            "the file that has been written since the start; what was committed to it is lost, "
            "unless it was only moved; restore it, with its -wal and -shm, or start again with "
            "the present file: the start reports what is missing",
            store=self._label,
            path=path,
        )


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """Files that a connection has open.

    Attributes:
        files: The path of each file, and its device and inode; the database comes first.
        has_log: Whether its log and the index of that are among them.
    """

    files: tuple[tuple[str, FileId], ...]
    has_log: bool = False

    @property
    def main(self) -> FileId:
        """The database."""
        return self.files[0][1]

    def with_log(self, database: str) -> OpenFiles:
        """Return these files, and the database's log and its index if they exist."""
        paths = [f"{database}{end}" for end in ("-wal", "-shm")]
        log = [(path, one) for path in paths if (one := file_id(path)) is not None]
        return OpenFiles((*self.files, *log), has_log=True)

    def displaced(self) -> str | None:
        """Return the first path where the file is gone or another one; None if all are in place."""
        return next((path for path, one in self.files if file_id(path) != one), None)


def file_id(path: str) -> FileId | None:
    """Return device and inode of the file at a path, links followed; None if there is none."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino


def _main_file(driver: sqlite3.Connection) -> str:
    """Return the path of the file that a connection has open, links followed."""
    (path,) = (row[2] for row in driver.execute("PRAGMA database_list") if row[1] == "main")
    return str(path)
