"""Delta tables without delta-rs: the log is read in Python, and Spark writes.

It has the part of the interface of the package deltalake that states in mode ``table`` use, so that
the protocol above it is the same (:mod:`state_backends.delta.library` chooses).

Rules
-----
1. What only sets the ledger or the properties, such as a claim, is a transaction of Delta for Spark
   that begins on the version which was read here. So Delta refuses it if another transaction of the
   state came in between, as it does for delta-rs.
2. While a process commits to a table, its JVM holds the lock of a file beside the table's folder.
   Delta for Spark looks whether a version exists, and then renames a file to it; on a local disk a
   rename replaces what another process wrote in between. The lock ends with the JVM.
3. Rows are merged as those of a frame are (:mod:`state_backends.delta.spark`): on the newest
   version, with the undo, and the ledger is read afterwards. While the lock is held, the newest
   version must be the one whose ledger was judged; else nothing is written.
4. Reading needs no session.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from state_backends.delta.layout import RETENTION
from state_backends.delta.log_reading import (
    LogState,
    NoTableError,
    UnreadableTableError,
    history,
    is_table,
)
from state_backends.delta.spark_session import check_session
from txtopo.clock import now, sleep
from txtopo.errors import ConfigError, StoreUnavailable, TxtopoError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class DeltaError(Exception):
    """A failure of a table."""


class DeltaProtocolError(DeltaError):
    """The table has a feature that cannot be used."""


class SchemaMismatchError(DeltaError):
    """The table has other columns."""


class TableNotFoundError(DeltaError):
    """There is no such table, or no such version of it."""


@dataclass(frozen=True)
class AppTransaction:
    """A transaction of an application."""

    app_id: str
    version: int


@dataclass(frozen=True)
class CommitProperties:
    """What is noted with a commit."""

    custom_metadata: Mapping[str, str] = field(default_factory=dict)
    app_transactions: Sequence[AppTransaction] = ()


@dataclass(frozen=True)
class Metadata:
    """What a table says about itself."""

    configuration: Mapping[str, str]


@dataclass(frozen=True)
class Schema:
    """The columns of a table."""

    arrow: pa.Schema

    def to_arrow(self) -> pa.Schema:
        """Return them in Arrow."""
        return self.arrow


class DeltaTable:
    """A table in a local folder, at one version."""

    def __init__(
        self,
        uri: str,
        version: int | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        self.table_uri = uri
        self._state = self._read(version)
        self.alter = self

    def _read(self, version: int | None) -> LogState:
        try:
            return LogState.read(self.table_uri, version)
        except NoTableError as error:
            raise TableNotFoundError(str(error)) from error
        except UnreadableTableError as error:
            raise DeltaProtocolError(str(error)) from error

    @staticmethod
    def is_deltatable(uri: str, storage_options: Mapping[str, str] | None = None) -> bool:
        """Return whether there is a table."""
        return is_table(uri)

    @staticmethod
    def create(
        uri: str,
        schema: pa.Schema,
        *,
        description: str,
        configuration: Mapping[str, str],
        **_: object,
    ) -> None:
        """Create a table."""
        from delta.tables import DeltaTable as Writer
        from pyspark.sql.pandas.types import from_arrow_schema

        builder = Writer.create(own_session()).location(uri).comment(description)
        builder = builder.addColumns(from_arrow_schema(schema))
        for name, text in configuration.items():
            if name != RETENTION:  # Spark refuses a log that is kept for less than old files are
                builder = builder.property(name, text)
        with _failures(), sole_writer(uri):
            builder.execute()

    def version(self) -> int:
        """Return the version that was read."""
        return self._state.version

    def metadata(self) -> Metadata:
        """Return the properties of the table."""
        return Metadata(self._state.configuration)

    def schema(self) -> Schema:
        """Return the columns of the table."""
        return Schema(self._state.arrow_schema())

    def transaction_version(self, app_id: str) -> int | None:
        """Return the version of the last transaction of an application."""
        return self._state.transactions.get(app_id)

    def file_uris(self) -> list[str]:
        """Return the paths of the files."""
        return [f"{self.table_uri}/{path}" for path in self._state.files]

    def history(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Return what is noted of the last commits, newest first."""
        newest = LogState.read(self.table_uri).version
        return history(self.table_uri, newest, limit)

    def get_add_actions(self, *, flatten: bool = True) -> pa.RecordBatch:
        """Return path, size and statistics of each file, in flat columns."""
        rows = []
        for path, add in self._state.files.items():
            stats = json.loads(add.get("stats") or "{}")
            row = {"path": path, "size_bytes": add["size"], "num_records": stats.get("numRecords")}
            for name, kind in (("min", "minValues"), ("max", "maxValues")):
                row[f"{name}.txid"] = (stats.get(kind) or {}).get("txid")
            rows.append(row)
        names = ("path", "size_bytes", "num_records", "min.txid", "max.txid")
        types = (pa.string(), *[pa.int64()] * 4)
        return pa.RecordBatch.from_pylist(
            rows, schema=pa.schema(list(zip(names, types, strict=True)))
        )

    def update_incremental(self) -> None:
        """Read what was added to the log."""
        before = self._state.version
        self._state.follow(self.table_uri)
        if self._state.version == before:
            # Old entries may be gone, with a checkpoint in their place.
            newest = self._read(None)
            if newest.version > before:
                self._state = newest

    def set_table_properties(
        self, properties: Mapping[str, str], *, raise_if_not_exists: bool = True
    ) -> None:
        """Set properties of the table, in a version that follows the one that was read."""
        self.commit((), properties=properties)

    def commit(
        self,
        transactions: Sequence[AppTransaction],
        notes: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Commit transactions and properties on the version that was read.

        Raises:
            DeltaError: Another commit of one of the applications came in between.
        """
        with _failures():
            own = own_session()
            if notes:
                own.conf.set(
                    "spark.databricks.delta.commitInfo.userMetadata", json.dumps(dict(notes))
                )
            with sole_writer(self.table_uri):
                written = _Commit(own, self.table_uri, self.version()).write(
                    transactions, properties
                )
        # Not further: what another writer added since is not ours.
        self._state.follow(self.table_uri, written)


class _Commit:
    """A transaction of Delta for Spark that begins on a given version."""

    def __init__(self, own: SparkSession, uri: str, version: int) -> None:
        self._own, self._uri, self._version = own, uri, version

    def write(
        self, transactions: Sequence[AppTransaction], properties: Mapping[str, str] | None
    ) -> int:
        """Commit, and return the version."""
        with _active(self._own):
            return self._written(transactions, properties)

    def _written(
        self, transactions: Sequence[AppTransaction], properties: Mapping[str, str] | None
    ) -> int:
        from delta.tables import DeltaTable as Writer

        jvm: Any = self._own._jvm
        delta = jvm.org.apache.spark.sql.delta
        log = Writer.forPath(self._own, self._uri)._jdt.deltaLog()
        none, some = jvm.scala.Option.empty(), jvm.scala.Option.apply
        snapshot = log.getSnapshotAt(self._version, none, none, False)
        transaction = log.startTransaction(none, some(snapshot))
        actions = jvm.java.util.ArrayList()
        moment = some(jvm.java.lang.System.currentTimeMillis())
        for each in transactions:
            transaction.txnVersion(each.app_id)  # so that another one in between is a conflict
            actions.add(delta.actions.SetTransaction(each.app_id, each.version, moment))
        if properties:
            held = transaction.metadata()
            added = held.configuration()
            for name, text in properties.items():
                added = added.updated(name, text)
            transaction.updateMetadata(
                held.copy(
                    held.id(),
                    held.name(),
                    held.description(),
                    held.format(),
                    held.schemaString(),
                    held.partitionColumns(),
                    added,
                    held.createdTime(),
                ),
                False,
            )
        operation = getattr(getattr(delta, "DeltaOperations$ManualUpdate$"), "MODULE$")
        sequence = jvm.scala.jdk.javaapi.CollectionConverters.asScala(actions).toSeq()
        return int(transaction.commit(sequence, operation))


@contextmanager
def _active(own: SparkSession) -> Iterator[None]:
    """Make a session the one whose settings Delta uses, and then the earlier one again."""
    sessions = getattr(cast("Any", own._jvm).org.apache.spark.sql, "SparkSession$")
    sessions = getattr(sessions, "MODULE$")
    before = sessions.getActiveSession()
    sessions.setActiveSession(own._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


_LOCKS: dict[str, threading.Lock] = {}

_WAITS_S, _POLLS_S = 60, 0.05


@contextmanager
def sole_writer(uri: str) -> Iterator[None]:
    """Keep other threads and processes of this machine from committing to a table meanwhile.

    Raises:
        StoreUnavailable: Another one holds the lock for a minute; nothing was written.
    """
    folder = Path(uri).resolve()
    path = str(folder.with_name(f".{folder.name}.lock"))
    # Closing any channel of a file ends all locks that its process has on it: one at a time.
    own = _LOCKS.setdefault(path, threading.Lock())
    if not own.acquire(timeout=_WAITS_S):
        raise _locked(uri, path)
    try:
        jvm: Any = session()._jvm
        channel = jvm.java.io.RandomAccessFile(path, "rw").getChannel()
        try:
            ends = now() + _WAITS_S
            while channel.tryLock() is None:
                if now() > ends:
                    raise _locked(uri, path)
                sleep(_POLLS_S)
            yield
        finally:
            channel.close()
    finally:
        own.release()


def _locked(uri: str, path: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"another process writes to {uri!r}; got its lock on {path!r} for {_WAITS_S} s; expected "
        "it to commit or end; nothing was written; end it if it hangs",
        path=path,
    )


class _failures:
    """Translates the exceptions of Spark into those of a table."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, TxtopoError | DeltaError):
            lines = str(error).strip().split("\n")
            raise DeltaError(" ".join(lines[:2])[:500]) from error


def own_session() -> SparkSession:
    """Return a session to which none of the user's settings apply.

    The log of a state names few files; by default 50 tasks read it, several times a commit.
    """
    own = session().newSession()
    own.conf.set("spark.databricks.delta.snapshotPartitions", "2")
    # Computing a checksum after each commit costs more than the commit; our own notes are cheaper.
    own.conf.set("spark.databricks.delta.writeChecksumFile.enabled", "false")
    return own


def session() -> SparkSession:
    """Return the session that writes.

    Raises:
        ConfigError: There is none, or it cannot write Delta tables.
    """
    from pyspark.sql import SparkSession

    found = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    if found is None:
        raise ConfigError(
            "a state in Delta has nothing to write it; got neither the package deltalake nor a "
            "Spark session; expected one of them; install it with: pip install 'txtopo[delta]', "
            "or start the topology on Spark",
            setting="spark",
        )
    check_session(found)
    return found


def write_deltalake(
    table: DeltaTable, rows: pa.Table, *, mode: str, commit_properties: CommitProperties
) -> None:
    """Commit a transaction without rows."""
    assert not rows.num_rows, "rows are merged"
    table.commit(commit_properties.app_transactions, commit_properties.custom_metadata)


class DeltaStorageHandler:
    """Stands for the files of an object store, which need delta-rs."""

    def __init__(self, *_: object) -> None:
        raise ConfigError("object stores need the package deltalake; pip install 'txtopo[delta]'")
