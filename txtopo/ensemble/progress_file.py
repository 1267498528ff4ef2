"""FileTransactionalState: the transactional state in an SQLite file, for the carrier ``local``.

It needs no server, no Spark and no Java. One file may hold many topologies, and several processes
of one machine may use it at once: one leads, the others wait, and commands come from anywhere.

Rules
-----
1. What ``apply`` has written is on disk when it returns (``synchronous=FULL``), all or nothing, in
   one transaction of SQLite together with the checks of versions. So a deposed or suspended leader
   writes nothing after its successor has claimed an epoch.
2. A candidate leads when no earlier candidate lives. It lives as long as its process has locked its
   number in the file ``…-lock`` (:mod:`txtopo.ensemble.lock_file`), so a killed leader is replaced
   at once, and a suspended one keeps its place until it ends.
3. A process that has the file open would continue to use it after it was deleted or replaced, and
   another process would begin with a new one. So each call checks that the file is in place, with
   SQLite's log, the index of the log, and the lock. For the same reason a file with two names is
   refused, since each name has a log and a lock of its own.
4. A file that is refused is not changed.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event, Lock

from txtopo.clock import now
from txtopo.config import ZooKeeper
from txtopo.database_errors import passes
from txtopo.ensemble.directory import TopologyNodes, read_one
from txtopo.ensemble.lock_file import id_at, open_lock_file
from txtopo.ensemble.nodes import decode, encode, encode_steps
from txtopo.ensemble.store import (
    Check,
    CompareAndSet,
    Delete,
    Json,
    Leadership,
    Node,
    Put,
    Step,
    TransactionalState,
    VersionConflict,
)
from txtopo.errors import (
    ConfigError,
    CoordinatorUnavailable,
    CorruptNodeError,
    PromiseError,
    StateUsageError,
    TxtopoError,
)

PREFIX = "file:"

LOOK_S = 0.05
"""How often a candidate looks whether it leads."""

_APPLICATION = 0x7478746F
"""``txto``: marks the file as one of txtopo, in SQLite's ``application_id``."""

_SCHEMA = 1

_TABLES = (
    "CREATE TABLE nodes (topology TEXT, path TEXT, data BLOB NOT NULL, version INTEGER NOT NULL, "
    "PRIMARY KEY (topology, path)) WITHOUT ROWID",
    # Numbers are never used again, as two candidates could then have one lock.
    "CREATE TABLE candidates (number INTEGER PRIMARY KEY AUTOINCREMENT, topology TEXT NOT NULL, "
    "candidate BLOB NOT NULL, announced BLOB)",
    f"PRAGMA application_id={_APPLICATION}",
    f"PRAGMA user_version={_SCHEMA}",
)


def is_file(hosts: str) -> bool:
    """Return whether ``ZooKeeper.hosts`` names a file."""
    return hosts.startswith(PREFIX)


def path_in(hosts: str) -> Path:
    """Return the path that ``ZooKeeper.hosts`` names."""
    return Path(os.path.realpath(hosts.removeprefix(PREFIX)))


class FileTransactionalState(TransactionalState):
    """One client of a file.

    Args:
        zookeeper: Its ``hosts`` name the file; ``connect_timeout_s`` is how long a call waits for
            another process that writes.
        topology_id: Id of the topology.
        create: Whether the file is created if it does not exist.

    Attributes:
        path: The file.

    Raises:
        ConfigError: The file cannot be used.
    """

    announces = True

    def __init__(self, zookeeper: ZooKeeper, topology_id: str, *, create: bool = True) -> None:
        self._file = _ProgressFile(zookeeper, create=create)
        self.path = self._file.path
        self._topology_id = topology_id
        self._writes = (f"{os.getpid()}-{number}" for number in count())
        self._closing = Event()
        self._number: int | None = None
        self._on_lost: Callable[[], None] | None = None

    def get(self, path: str) -> Node | None:
        """Return a node; None if there is none."""
        with self._file.reading() as execute:
            found = execute(
                "SELECT data, version FROM nodes WHERE topology=? AND path=?", self._at(path)
            ).fetchone()
        record = found and decode(self._shown(path), found[0])
        return Node(record.value, found[1]) if record else None

    def children(self, path: str) -> list[str]:
        """Return the names of the nodes below *path*, sorted."""
        begin, end = _below(path)
        with self._file.reading() as execute:
            found = execute(
                "SELECT path FROM nodes WHERE topology=? AND path>=? AND path<?",
                (self._topology_id, begin, end),
            ).fetchall()
        return sorted({name[len(begin) :].partition("/")[0] for (name,) in found})

    def apply(self, steps: Sequence[Step]) -> None:
        """Apply all steps or none."""
        records = encode_steps(steps, next(self._writes))
        with self._file.writing() as execute:
            for step, data in zip(steps, records, strict=True):
                self._do(execute, step, data)

    def synchronize(self) -> None:
        """Check that the file is in place, and that this client is still in the election.

        A client always sees all writes.
        """
        with self._file.reading() as execute:
            known = execute("SELECT 1 FROM candidates WHERE number=?", (self._number,)).fetchone()
        if self._number is not None and not known:
            self._leave()
            on_lost, self._on_lost = self._on_lost, None
            if on_lost is not None:
                on_lost()

    def lead(
        self, candidate: Json, *, timeout_s: float, on_lost: Callable[[], None]
    ) -> Leadership | None:
        """Wait until this client leads."""
        end_s = now() + timeout_s
        number = self._enter(candidate)
        while not self._is_first(number):
            left_s = end_s - now()
            if left_s <= 0:
                return None
            self._closing.wait(min(LOOK_S, left_s))
        self._on_lost = on_lost
        return _FileLeadership(partial(self._give_up, number))

    def leader(self) -> Json:
        """Return the candidate that leads now, or None."""
        return next(iter(self.candidates()), None)

    def candidates(self) -> list[Json]:
        """Return who is in the election, the leader first."""
        return [_value(candidate) for candidate, _ in self._living()]

    def announce(self, summary: Json) -> None:
        """Show *summary* to others while this client leads."""
        if self._on_lost is None:
            return
        data = encode("/announced", summary, "")
        with self._file.writing() as execute:
            execute("UPDATE candidates SET announced=? WHERE number=?", (data, self._number))

    def announced(self) -> Json:
        """Return the leader's last summary."""
        for _, summary in self._living():
            return None if summary is None else _value(summary)
        return None

    def close(self) -> None:
        """End the session; may be called twice. Later calls raise ``CoordinatorUnavailable``."""
        self._on_lost = None
        with suppress(TxtopoError):
            self._leave()
        self._closing.set()
        self._file.close()

    def _enter(self, candidate: Json) -> int:
        """Take a place at the end of the election, unless this client has one."""
        self.synchronize()
        if self._number is not None:
            return self._number
        data = encode("/leader", candidate, "")
        with self._file.writing() as execute:
            known = execute(
                "SELECT number FROM candidates WHERE topology=?", (self._topology_id,)
            ).fetchall()
            for gone in known:
                if not self._file.locks.is_held(*gone):
                    execute("DELETE FROM candidates WHERE number=?", gone)
            self._number = execute(
                "INSERT INTO candidates (topology, candidate) VALUES (?, ?)",
                (self._topology_id, data),
            ).lastrowid
            assert self._number is not None
            self._file.locks.hold(self._number)  # before others can see the number
        return self._number

    def _leave(self) -> None:
        """Give the place in the election to the next one, if this client has one."""
        number, self._number = self._number, None
        if number is None:
            return
        try:
            with self._file.writing() as execute:
                execute("DELETE FROM candidates WHERE number=?", (number,))
        finally:
            self._file.locks.release(number)

    def _give_up(self, number: int) -> None:
        if number == self._number:
            self._on_lost = None
            with suppress(CoordinatorUnavailable):  # the lock is released
                self._leave()

    def _is_first(self, number: int) -> bool:
        with self._file.reading() as execute:
            earlier = execute(
                "SELECT number FROM candidates WHERE topology=? AND number<?",
                (self._topology_id, number),
            ).fetchall()
        return not any(self._file.locks.is_held(*each) for each in earlier)

    def _living(self) -> list[tuple[bytes, bytes | None]]:
        """Return what candidates that live have said, the leader first."""
        with self._file.reading() as execute:
            found = execute(
                "SELECT number, candidate, announced FROM candidates WHERE topology=? "
                "ORDER BY number",
                (self._topology_id,),
            ).fetchall()
        return [said for number, *said in found if self._file.locks.is_held(number)]

    def _do(self, execute: Execute, step: Step, data: bytes) -> None:
        at = self._at(step.path)
        found = execute("SELECT version FROM nodes WHERE topology=? AND path=?", at).fetchone()
        version: int | None = found and found[0]
        if isinstance(step, CompareAndSet | Check) and version != step.version:
            raise VersionConflict(
                f"node {step.path} has another version; got {version}; expected {step.version}",
                path=step.path,
            )
        match step:
            case Put() | CompareAndSet():
                execute(
                    "REPLACE INTO nodes VALUES (?, ?, ?, ?)",
                    (*at, data, 0 if version is None else version + 1),
                )
            case Delete():
                children = execute(
                    "SELECT 1 FROM nodes WHERE topology=? AND path>=? AND path<? LIMIT 1",
                    (self._topology_id, *_below(step.path)),
                )
                if children.fetchone():
                    raise StateUsageError(
                        f"node {step.path} has children and cannot be deleted", path=step.path
                    )
                execute("DELETE FROM nodes WHERE topology=? AND path=?", at)

    def _at(self, path: str) -> tuple[str, str]:
        return self._topology_id, path

    def _shown(self, path: str) -> str:
        return f"/{self._topology_id}{path}"


class _FileLeadership(Leadership):
    def __init__(self, release: Callable[[], None]) -> None:
        self._release = release

    def release(self) -> None:
        self._release()


class FileDirectory:
    """The topologies of a file.

    Raises:
        ConfigError: The file does not exist, or cannot be used.
    """

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._file = _ProgressFile(zookeeper, create=False)

    def ids(self) -> list[str]:
        """Return the ids, sorted."""
        with self._file.reading() as execute:
            found = execute("SELECT topology FROM nodes UNION SELECT topology FROM candidates")
            return sorted(id for (id,) in found)

    def read(self, ids: Sequence[str]) -> list[TopologyNodes]:
        """Read what is known of topologies, one after the other."""
        read = []
        for id in ids:
            with closing(self.open(id)) as state:
                read.append(read_one(id, state, state.candidates()))
        return read

    def open(self, topology_id: str) -> FileTransactionalState:
        """Open one more client."""
        return FileTransactionalState(self._zookeeper, topology_id, create=False)

    def close(self) -> None:
        """Close the file; may be called twice."""
        self._file.close()


Execute = Callable[..., sqlite3.Cursor]
"""Executes a statement with its parameters."""


class _ProgressFile:
    """One connection to a file, for one call at a time."""

    def __init__(self, zookeeper: ZooKeeper, *, create: bool) -> None:
        self._hosts = zookeeper.hosts
        self.path = _path_of(zookeeper, create=create)
        self._lock = Lock()
        self._closed = False
        self._connection = self._open(zookeeper.connect_timeout_s)
        try:
            self.locks = open_lock_file(self._beside("-lock"))
        except OSError as error:
            self._connection.close()
            raise self._unusable(f"its lock cannot be opened ({error})") from error
        files = [self._beside(end) for end in ("", "-wal", "-shm", "-lock")]
        self._files = {file: id for file in files if (id := id_at(file)) is not None}

    @contextmanager
    def reading(self) -> Iterator[Execute]:
        """Read; each statement sees all writes so far."""
        with self._call():
            self._check_in_place()
            yield self._connection.execute

    @contextmanager
    def writing(self) -> Iterator[Execute]:
        """Write in one transaction, which is undone if the block raises."""
        with self._call():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._check_in_place()
                yield self._connection.execute
                self._connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._connection.rollback()
                raise

    def close(self) -> None:
        """Close the connection; may be called twice."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._connection.close()
                self.locks.close()

    @contextmanager
    def _call(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise CoordinatorUnavailable(
                    f"this client of {self._hosts!r} is closed", hosts=self._hosts
                )
            try:
                yield
            except sqlite3.Error as error:
                raise self._failed(error) from error

    def _failed(self, error: sqlite3.Error) -> TxtopoError:
        got = f"{type(error).__name__}: {error}"
        if passes(error):
            return CoordinatorUnavailable(
                f"the progress in {self.path} cannot be read or written now; got {got}; does "
                "another process write for long, or is the disk full?",
                hosts=self._hosts,
            )
        return PromiseError(
            f"the progress in {self.path} cannot be read or written; got {got}; look at the file "
            "and its disk; if it is lost, restore it, or call txtopo.operations.rebuild",
            got=got,
        )

    def _beside(self, end: str) -> Path:
        return self.path.with_name(self.path.name + end)

    def _check_in_place(self) -> None:
        for file, id in self._files.items():
            if id_at(file) != id:
                raise CorruptNodeError(
                    f"{file} was deleted or replaced while this process had it open; nothing was "
                    "written; put it back, or start again with the present files: the start "
                    "reports what is missing",
                    path=str(file),
                )

    def _open(self, timeout_s: float) -> sqlite3.Connection:
        """Connect, and create the tables if the file is new."""
        try:
            connection = sqlite3.connect(
                self.path, timeout=timeout_s, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise self._unusable(str(error)) from error
        try:
            connection.execute("BEGIN")
            self._is_new(connection)
            connection.execute("COMMIT")
            # Outside of a transaction; of several processes that do so at once one may fail.
            with suppress(sqlite3.OperationalError):
                connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            # Only on macOS, where fsync leaves a write in the cache of the disk.
            connection.execute("PRAGMA fullfsync=ON")
            connection.execute("BEGIN IMMEDIATE")
            if self._is_new(connection):
                for statement in _TABLES:
                    connection.execute(statement)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            connection.close()
            raise self._refused(error) from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _is_new(self, connection: sqlite3.Connection) -> bool:
        """Return whether a file is empty; refuse one that is not ours."""
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (schema,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if not tables and not application:
            return True
        if application != _APPLICATION:
            raise self._unusable("it is an SQLite database of something else")
        if schema > _SCHEMA:
            raise self._unusable("a newer txtopo has written it, so upgrade this one")
        return False

    def _refused(self, error: sqlite3.Error) -> TxtopoError:
        if getattr(error, "sqlite_errorname", "") == "SQLITE_NOTADB":
            return self._unusable("it is not an SQLite database")
        if getattr(error, "sqlite_errorname", "").startswith("SQLITE_IOERR"):
            return self._unusable(
                f"{error}; if the file was deleted or moved, end what still has it open, and "
                f"delete {self.path.name}-wal and {self.path.name}-shm"
            )
        return self._failed(error) if passes(error) else self._unusable(str(error))

    def _unusable(self, why: str) -> ConfigError:
        return _unusable(self._hosts, why)


def _path_of(zookeeper: ZooKeeper, *, create: bool) -> Path:
    """Return the path of a file that can be opened, or created.

    Raises:
        ConfigError: It cannot.
    """
    hosts = zookeeper.hosts
    for name, given in (("auth", zookeeper.auth), ("tls", zookeeper.tls)):
        if given is not None:
            raise ConfigError(
                f"zookeeper.{name} is for a ZooKeeper; got it with zookeeper={hosts!r}; leave it "
                "out: the rights of the file say who may read it",
                setting=f"zookeeper.{name}",
                hosts=hosts,
            )
    named = hosts.removeprefix(PREFIX)
    if not named or (named.startswith("//") and not named.startswith("///")):
        raise _unusable(hosts, "it names no file")
    path = path_in(hosts)
    if path.is_dir():
        raise _unusable(hosts, f"{path} is a folder")
    if not path.parent.is_dir():
        raise _unusable(hosts, f"the folder {path.parent} does not exist; create it")
    if not path.exists() and not create:
        raise _unusable(hosts, f"{path} does not exist; a topology creates it when it starts")
    for checked in (path.parent, path):
        if checked.exists() and not os.access(checked, os.R_OK | os.W_OK):
            raise _unusable(hosts, f"this user may not read and write {checked}")
    if path.exists() and path.stat().st_nlink > 1:
        raise _unusable(hosts, f"{path} has another name, a hard link; delete that one, or copy it")
    return path


def _unusable(hosts: str, why: str) -> ConfigError:
    return ConfigError(
        f"zookeeper={hosts!r} cannot be used: {why}; expected the path of a file for progress "
        "alone, such as 'file:progress.db' or 'file:/folder/progress.db'",
        setting="zookeeper.hosts",
        hosts=hosts,
    )


def _below(path: str) -> tuple[str, str]:
    """Return the first path that a child may have, and the first one after all children."""
    begin = path.rstrip("/") + "/"
    return begin, begin[:-1] + "0"  # "0" follows "/"


def _value(data: bytes) -> Json:
    record = decode("/leader", data)
    return None if record is None else record.value
