"""The sources of lookups: a Delta table, a database table with validity times, or files.

A version must always mean the same rows, since a replay reads them again, perhaps on another
machine and after the table has changed. So each source identifies a version in its own way:

* Delta: the number of the version, the digest of its log entry, and the id of the table. A table
  that is created again has another id. A folder that was restored to an earlier state and then
  changed has other entries. A version lasts until the table is vacuumed.
* Database: a table keeps no versions, so each row must have the time from which it is valid
  (``as_of``), and must not be changed or deleted. A version is the newest such time, and the number
  and the digest of the rows up to it. The digest is needed since a table that was restored, or
  changed in place, may have the same number of rows up to that time.
* Files: each file is the whole table, and the last one by name is the newest version. A version is
  the name, the size and the digest of the file.

If the rows of a version cannot be found any more, the run stops with ``SourceDataLost``: with other
rows a replay would produce another result than the previous attempt.
"""

from __future__ import annotations

import datetime
import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from txtopo.attempt import TransactionAttempt
from txtopo.collector import SeenFields
from txtopo.context import EPOCH, TaskContext
from txtopo.disk_errors import failure
from txtopo.errors import ConfigError, OffsetRegression, SourceDataLost, TxtopoError, nearest
from txtopo.extras import require
from txtopo.log_records import logger_of
from txtopo.metadata import Json
from txtopo.servers import Server
from txtopo.setting_checks import check_text
from txtopo.sources.delta.log import DeltaLog, partition_value
from txtopo.sources.files.reading import FilesEmitter
from txtopo.sources.files.source import (
    FileFormat,
    FileRange,
    FileSource,
    FormatName,
    SourceFile,
    to_json,
)
from txtopo.sources.query.keys import check_key
from txtopo.sources.query.planning import QueryCoordinator
from txtopo.sources.query.reading import QueryEmitter
from txtopo.sources.query.source import QuerySource, modules_of, servers_of
from txtopo.sources.values import INT96_UNIT, fitted_column
from txtopo.state.registry import redacted_url
from txtopo.tuples import Fields

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

_logger = logger_of("txtopo.streams")

NOBODY = TaskContext("lookup", "lookup", 0, 1)
"""The context of a single task that reads the whole source."""

ATTEMPT = TransactionAttempt(1, 0, 1)


class LookupSource(ABC):
    """Reads the rows of a lookup, in the driver and in tasks. Picklable.

    Attributes:
        client_modules: The modules that tasks import to read it.
        connects_to: The servers that have it.
    """

    client_modules: Sequence[str] = ()
    connects_to: Sequence[Server] = ()

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the source in messages, without passwords."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """A text that only this source has, since another has other rows for an equal version.

        It contains no secrets, and nothing that can change without changing a row. Its digest is
        stored with each version.
        """

    def shown(self, version: Json) -> str:
        """Return the name of a version, for messages."""
        return f"version {version} of {self.name}"

    @abstractmethod
    def check(self, fields: Fields) -> None:
        """Check that the columns can be read.

        Raises:
            ConfigError: They cannot; repair the lookup or its table.
            InfrastructureError: The source cannot be reached.
        """

    @abstractmethod
    def newest(self, fields: Fields, held: Json, time_ms: int) -> Json:
        """Return the newest version; see ``VersionedTable.newest``."""

    @abstractmethod
    def read(self, version: Json, key: Fields, value: Fields) -> pa.Table:
        """Return the rows of a version: the key columns, then the value columns.

        Raises:
            SourceDataLost: The version is gone, or has changed.
            ConfigError: A column is missing, or has another type.
            InfrastructureError: The source cannot be reached; try again.
        """


class DeltaLookup(LookupSource):
    """The rows of a Delta table as of one version. It needs no JVM.

    Args:
        table: Path or URL of the table.
        storage_options: Options for deltalake, if the table is in an object store.

    Raises:
        ConfigError: deltalake is not installed, or the path cannot be used.
    """

    client_modules = ("deltalake",)

    def __init__(
        self,
        table: str | os.PathLike[str],
        *,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        require("deltalake", "a lookup in a Delta table")
        uri = os.fspath(table)
        check_text("the path of a Delta table", uri)
        self._uri = uri if "://" in uri else os.path.abspath(uri)
        self._options = dict(storage_options or {})
        self._log = DeltaLog(self._uri, self._options)

    @property
    def name(self) -> str:
        """The path or URL."""
        return self._uri

    @property
    def identity(self) -> str:
        """The path or URL."""
        return redacted_url(self._uri)

    def check(self, fields: Fields) -> None:
        """Check that the table exists and has the columns."""
        import pyarrow as pa

        schema = pa.schema(self._opened(None).schema().to_arrow())
        _check_columns(schema, fields.arrow_schema(), self.name)

    def newest(self, fields: Fields, held: Json, time_ms: int) -> Json:
        """Return the id of the table, and the number and the log entry of the newest version."""
        table = self._opened(None)
        number = int(table.version())
        entry = self._log.digest_now(number)
        return {"table": str(table.metadata().id), "version": number, "entry": entry}

    def shown(self, version: Json) -> str:
        """Return the number of a version, and the table."""
        return f"version {_told(version)['version']} of {self.name}"

    def read(self, version: Json, key: Fields, value: Fields) -> pa.Table:
        """Return the rows of a version."""
        import pyarrow as pa
        from deltalake.exceptions import DeltaError
        from pyarrow.dataset import ParquetReadOptions

        wanted, told = Fields.of([*key, *value]), _told(version)
        number = told["version"]
        table = self._opened(number)
        self._check_same(table, told)
        _check_columns(pa.schema(table.schema().to_arrow()), wanted.arrow_schema(), self.name)
        try:
            options = ParquetReadOptions(coerce_int96_timestamp_unit=INT96_UNIT)
            dataset = table.to_pyarrow_dataset(parquet_read_options=options)
            rows = dataset.to_table(columns=list(wanted.names))
            rows = _with_bytes(rows, table.metadata().partition_columns)
        except (DeltaError, OSError) as error:
            # An object store reports a missing file only in the text of its error.
            if isinstance(error, FileNotFoundError) or "not found" in str(error).lower():
                raise self._gone(number) from error
            raise failure(f"read {self._uri!r}", error) from error
        return _fitted(rows, wanted, self.shown(version))

    def _check_same(self, table: DeltaTable, told: Mapping[str, Any]) -> None:
        """Check that a version has the same log entry as when a batch was planned with it."""
        number, id = told["version"], str(table.metadata().id)
        entry = None if told["entry"] is None else self._log.digest_now(number)
        if id == told["table"] and entry in (None, told["entry"]):
            return
        raise OffsetRegression(
            f"the Delta table at {self._uri!r} is not the one that a batch was planned with; got "
            f"version {number} of table {id} with the log entry {entry}; expected table "
            f"{told['table']} with {told['entry']} until the batch is committed; was it deleted "
            "and created again, or restored from a copy? restore the earlier table, and write new "
            "rows as a further version of it",
            version=number,
        )

    def _opened(self, version: int | None) -> DeltaTable:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            return DeltaTable(self._uri, version=version, storage_options=self._options or None)
        except (DeltaError, OSError) as error:
            if version is not None and any(text in str(error) for text in _NO_VERSION):
                raise self._gone(version) from error
            if isinstance(error, TableNotFoundError) or _NO_TABLE in str(error):
                raise ConfigError(
                    f"there is no Delta table at {self._uri!r}; expected the folder that contains "
                    "_delta_log; create the table before the topology starts",
                    table=self._uri,
                ) from error
            raise failure(f"read {self._uri!r}", error) from error

    def _gone(self, version: int) -> SourceDataLost:
        return SourceDataLost(
            f"version {version} of {self._uri!r} no longer exists, but a batch was planned with "
            "it; expected it to exist until the batch is committed; was the table vacuumed, or "
            "restored from a copy? restore the files of that version; keep versions longer than "
            "a batch may wait, including the time that the topology may be stopped (VACUUM … "
            "RETAIN, delta.deletedFileRetentionDuration)",
            version=version,
        )


# What errors of deltalake contain if a table has no such version, or no longer has it.
_NO_VERSION = ("LogSegment end version", "No files in log segment", "No table metadata")

# What they contain if there is a file instead of a folder.
_NO_TABLE = "Invalid table location"


class QueryLookup(LookupSource):
    """The rows of a table or query with a column that says from when a row is valid (SQLAlchemy).

    For each key, the newest row that is not later than the version counts. To change a row, insert
    another one with a later time. To remove the value of a key, insert a row with NULL values. Rows
    must not be changed or deleted while a batch may be repeated, and a row must become visible to
    others at most *settle_s* seconds after its time. Otherwise, the run stops with
    ``SourceDataLost`` when such a version is read again, in any process, because a version has a
    digest of its rows. A change that keeps the newest time and the number of rows does not create a
    newer version while a driver runs. The next driver detects it when it first plans a batch.

    Args:
        url: The database, as a SQLAlchemy URL. It is sent to the tasks, with its password.
        query: A table or view, or a ``SELECT`` in parentheses.
        as_of: The column with the time from which a row is valid, never NULL: ``"valid_from"`` for
            a timestamp in UTC, or ``"valid_from date"``, ``"valid_from timestamp_ntz"``. A row with
            a time in the future counts from that time on.
        settle_s: How late, in seconds after its time, a row may become visible.

    Raises:
        ConfigError: An argument is wrong.
    """

    def __init__(self, url: str, query: str, *, as_of: str, settle_s: float) -> None:
        _check_settle_s(settle_s)
        text = as_of if isinstance(as_of, str) and " " in as_of.strip() else f"{as_of} timestamp"
        column, *more = Fields(text)
        if more or column.type not in ("timestamp", "timestamp_ntz", "date"):
            raise ConfigError(
                f"as_of of a lookup is wrong; got {as_of!r}; expected a column with the time from "
                "which a row is valid: a timestamp, timestamp_ntz or date",
                setting="as_of",
            )
        self._url, self._query, self._as_of, self._settle_s = url, query, column, settle_s
        self.client_modules, self.connects_to = modules_of(url), servers_of(url)
        self._newest: Json = None
        self._rows: pa.Table | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the rows that this process has read."""
        return {**self.__dict__, "_newest": None, "_rows": None}

    @property
    def name(self) -> str:
        """The table or query."""
        return repr(self._query)[:102]

    def shown(self, version: Json) -> str:
        """Return the table or query, and the time of a version."""
        return f"{self.name} as of {_told(version)['as_of']}"

    @property
    def identity(self) -> str:
        """The database and the query."""
        return repr((redacted_url(self._url), self._query, self._as_of))

    def check(self, fields: Fields) -> None:
        """Check that the query can be run."""
        QueryCoordinator(self._source(fields), None, 0, 1, NOBODY).check()

    def newest(self, fields: Fields, held: Json, time_ms: int) -> Json:
        """Return the newest settled time, with the count and the digest of the rows up to it.

        A time is settled if it is at least ``settle_s`` before *time_ms*. The rows are read the
        first time in a process. After that they are read only if the count or the time differs from
        *held*. They are kept for the ``read`` that follows.
        """
        source = self._source(fields)
        counted = self._counted(source, time_ms)
        if held is not None and held == self._newest and counted.items() <= _told(held).items():
            return held
        rows = self._read(source, counted)
        self._newest = {**counted, "columns": _columns(source.fields), "digest": _digest(rows)}
        self._rows = rows if self._newest != held else None
        return self._newest

    def _counted(self, source: QuerySource, time_ms: int) -> dict[str, Json]:
        from sqlalchemy import func, select

        rows = source.selectable()
        column = rows.c[self._as_of.name]
        settled = EPOCH + datetime.timedelta(milliseconds=time_ms, seconds=-self._settle_s)
        bound: Any = settled if self._as_of.type == "timestamp" else settled.replace(tzinfo=None)
        bound = bound.date() if self._as_of.type == "date" else bound
        counted = select(func.max(column), func.count()).where(column <= bound)
        with source.connected(source.engine()) as connection:
            source.check_order(connection, select(column))
            upto, count = connection.execute(counted.select_from(rows)).one()
        return {"as_of": source.to_json(source.checked(upto)), "rows": count}

    def read(self, version: Json, key: Fields, value: Fields) -> pa.Table:
        """Return the row of each key that is valid as of a version."""
        import pyarrow as pa

        wanted, told = Fields.of([*key, *value]), _told(version)
        source, table = self._source(wanted), self._rows
        if table is not None and version == self._newest:
            self._rows = None
        else:
            table = self._read(source, told)
            self._check_same(source, table, told)
        times = table.column(self._as_of.name).to_pylist()
        last: dict[Any, list[int]] = {}
        for at, (name, time) in enumerate(zip(keys_of(table, key.names), times, strict=True)):
            before = last.get(name, [])
            # Two rows with the same time are both kept, and later refused like any duplicate key.
            last[name] = [*before, at] if before and times[before[-1]] == time else [at]
        chosen = sorted(at for each in last.values() for at in each)
        return table.take(pa.array(chosen, pa.int64())).select(list(wanted.names))

    def _read(self, source: QuerySource, told: Mapping[str, Any]) -> pa.Table:
        """Return all rows up to the time of a version, in the order of their times."""
        rows = _Collected()
        planned: Json = {
            "after": None,
            "upto": told["as_of"],
            "cuts": [[told["as_of"], told["rows"]]],
            "newest": told["as_of"],
            "source": {**source.identity},
        }
        if told["rows"]:
            QueryEmitter(source, NOBODY).emit_batch(ATTEMPT, planned, cast("Any", rows))
        return rows.table(source.fields)

    def _check_same(self, source: QuerySource, rows: pa.Table, told: Mapping[str, Any]) -> None:
        """Check the rows against the digest, unless the program now declares other columns."""
        if told["columns"] != _columns(source.fields) or told["digest"] == (found := _digest(rows)):
            return
        raise SourceDataLost(
            f"the rows of {self.name} up to {told['as_of']} have changed since a batch was "
            f"planned with them; got the same number, {told['rows']}, but the digest {found}; "
            f"expected {told['digest']} until the batch is committed; was a row changed in place, "
            "or the table restored from a backup? restore the rows, and to change a key, insert "
            "a row with a later time",
            query=self._query,
        )

    def _source(self, fields: Fields) -> QuerySource:
        if self._as_of.name not in fields.index:
            fields = Fields.of([*fields, self._as_of])
        kind = check_key(self._as_of.name, fields, None)
        return QuerySource(self._url, self._query, self._as_of.name, kind, fields)


# A version is read before a batch is planned with it, so no batch waits for an unreadable file.
_WRITE_ANOTHER = (
    "declare other fields, or write a repaired file under a name that sorts after this one"
)


class FilesLookup(LookupSource):
    """The rows of the last file, by name, in a folder or glob; each file is the whole table.

    To change the table, write another file whose name sorts after the others, such as
    ``shops-2026-11-24.csv``, and move it into the folder when it is complete. A file must not
    change while a batch may be repeated. If it is changed or removed, the run stops with
    ``SourceDataLost`` when the file is read again.

    Args:
        paths: A folder, a glob or a file; local, or a URL such as ``s3://bucket/shops-*.csv``.
        format: ``"csv"`` (with names in its first line), ``"json"`` (one object per line) or
            ``"parquet"``.

    Raises:
        ConfigError: An argument is wrong.
    """

    def __init__(self, paths: str | os.PathLike[str], format: FormatName = "csv") -> None:
        if format not in ("csv", "json", "parquet"):
            raise ConfigError(
                f"the format of a lookup is wrong; got {format!r}; expected 'csv', 'json' or "
                "'parquet'",
                setting="format",
            )
        self._source, self._format = FileSource(paths, None), FileFormat(format)
        self._name = os.fspath(paths)
        self._digests: dict[SourceFile, str] = {}

    @property
    def name(self) -> str:
        """The folder, glob or file."""
        return self._name

    def shown(self, version: Json) -> str:
        """Return the file of a version."""
        return f"file {_told(version)['file']!r}"

    @property
    def identity(self) -> str:
        """The folder, glob or file, and the format."""
        return repr((redacted_url(self._name), self._format))

    def check(self, fields: Fields) -> None:
        """Check that there is a file with the columns, by reading it."""
        self._source.check()
        rows = self._collected(self._last(), fields)
        rows.table(fields)
        for text in rows.seen.warnings(f"lookup of {self.name!r}"):
            _logger.warning(text)

    def newest(self, fields: Fields, held: Json, time_ms: int) -> Json:
        """Return name, size and digest of the file whose name sorts last."""
        file = self._last()
        return {"file": file.name, "bytes": file.size, "sha256": self._digest(file)}

    def read(self, version: Json, key: Fields, value: Fields) -> pa.Table:
        """Return the rows of a file, if it has not changed."""
        told = _told(version)
        files = {each.name: each for each in self._source.files()}
        file = files.get(told["file"])
        if file is None:
            raise self._lost(told, "it is gone")
        if file.size != told["bytes"] or self._digest(file) != told["sha256"]:
            raise self._lost(told, "it was changed")
        return self._read(file, Fields.of([*key, *value]))

    def _last(self) -> SourceFile:
        files = self._source.files()
        if not files:
            raise ConfigError(
                f"a lookup has no file; got {self.name!r}; expected at least one; write it "
                "before the topology starts",
                path=self.name,
            )
        return max(files, key=lambda each: each.name)

    def _digest(self, file: SourceFile) -> str:
        if file not in self._digests:
            found = hashlib.sha256()
            with self._source.open(file) as opened:
                while block := opened.read(1 << 20):
                    found.update(block)
            self._digests.clear()
            self._digests[file] = found.hexdigest()
        return self._digests[file]

    def _read(self, file: SourceFile, fields: Fields) -> pa.Table:
        return self._collected(file, fields).table(fields)

    def _collected(self, file: SourceFile, fields: Fields) -> _Collected:
        rows, shares = _Collected(), to_json([[FileRange(file, 0, None)]])
        emitter = FilesEmitter(
            self._source, self._format, fields, NOBODY, remedy=_WRITE_ANOTHER, aside=""
        )
        emitter.emit_batch(ATTEMPT, shares, cast("Any", rows))
        return rows

    def _lost(self, told: Mapping[str, Any], what: str) -> SourceDataLost:
        return SourceDataLost(
            f"a batch was planned with file {told['file']!r}, but {what}; "
            f"expected {told['bytes']} bytes with the digest {told['sha256'][:16]}…, until the "
            "batch is committed; restore it as it was, and write a new version under a name "
            "that sorts after it",
            path=told["file"],
        )


def _told(version: Json) -> dict[str, Any]:
    return cast("dict[str, Any]", version)


def _columns(fields: Fields) -> str:
    """Return a short digest of the columns that a digest of rows covers."""
    return hashlib.sha256(repr(fields).encode()).hexdigest()[:8]


def _digest(rows: pa.Table) -> str:
    """Return the digest of rows; the order of rows with the same time makes no difference."""
    import pyarrow as pa

    # Times are converted to numbers: how a zone is shown differs between machines.
    columns = [
        (each.cast(pa.int64()) if pa.types.is_timestamp(each.type) else each).to_pylist()
        for each in rows.columns
    ]
    found = sorted(
        hashlib.blake2b(ascii(row).encode(), digest_size=16).digest()
        for row in zip(*columns, strict=True)
    )
    return hashlib.sha256(b"".join(found)).hexdigest()[:32]


class _Collected:
    """Collects what an emitter of a spout emits."""

    takes_dead_letters = False

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self.seen = SeenFields(0, frozenset(), frozenset())

    def saw(self, seen: SeenFields) -> None:
        self.seen = seen

    def emit_batch(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)

    def table(self, fields: Fields) -> pa.Table:
        import pyarrow as pa

        return pa.Table.from_batches(self._batches, schema=fields.arrow_schema())


def keys_of(rows: pa.Table | pa.RecordBatch, names: Sequence[str]) -> list[Any]:
    """Return the key of each row: a value, or a tuple of several."""
    columns = [rows.column(name).to_pylist() for name in names]
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def _check_settle_s(given: object) -> None:
    """Check the seconds after which rows of a lookup no longer change.

    Raises:
        ConfigError: It is not a number, or negative.
    """
    if isinstance(given, bool) or not isinstance(given, int | float) or not given >= 0:
        raise ConfigError(
            f"settle_s of a lookup is wrong; got {given!r}; expected seconds, at least 0",
            setting="settle_s",
        )


def _check_columns(found: pa.Schema, wanted: pa.Schema, name: str) -> None:
    for each in wanted:
        if each.name not in found.names:
            raise ConfigError(
                f"a lookup names unknown column {each.name!r} of {name}; "
                f"{nearest(each.name, found.names)}",
                column=each.name,
            )
        kind = found.field(each.name).type
        if _kind(kind) != _kind(each.type):
            raise ConfigError(
                f"column {each.name!r} of {name} has another type; got {kind}; expected "
                f"{each.type}, as in the stream or in value=; convert the column of the stream "
                "with map(), or declare another type in value=",
                column=each.name,
            )


def _kind(kind: pa.DataType) -> object:
    """Return the kind of a type; values of one type are accepted for another of the same kind."""
    from pyarrow import types

    if types.is_timestamp(kind):
        return "timestamp", kind.tz is None
    alike = {
        "text": (types.is_string, types.is_large_string, types.is_string_view),
        "whole number": (types.is_integer,),
        "floating point": (types.is_floating,),
        "decimal": (types.is_decimal,),
    }
    return next((name for name, tests in alike.items() if any(t(kind) for t in tests)), kind.id)


def _with_bytes(rows: pa.Table, partitioned_by: Sequence[str]) -> pa.Table:
    """Return rows with binary partition columns as bytes; deltalake returns them as text."""
    import pyarrow as pa

    for at, field in enumerate(rows.schema):
        if field.name in partitioned_by and pa.types.is_binary(field.type):
            texts = (
                None if each is None else each.decode() for each in rows.column(at).to_pylist()
            )
            found = [partition_value(text, field.type).as_py() for text in texts]
            rows = rows.set_column(at, field, pa.array(found, field.type))
    return rows


def _fitted(rows: pa.Table, fields: Fields, name: str) -> pa.Table:
    import pyarrow as pa

    schema, columns = fields.arrow_schema(), []
    for each in schema:
        try:
            columns.append(fitted_column(rows.column(each.name), each.type))
        except (ValueError, TypeError, pa.ArrowException) as error:
            if isinstance(error, TxtopoError):
                raise
            raise ConfigError(
                f"column {each.name!r} of {name} does not fit {each.type}: {error}; declare a "
                "wider type, or repair the table",
                column=each.name,
            ) from error
    return pa.Table.from_arrays(columns, schema=schema)
