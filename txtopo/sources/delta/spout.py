"""The spouts that read a Delta table: DeltaTransactionalSpout, and DeltaDataFrameSpout by Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from copy import copy
from functools import reduce
from typing import TYPE_CHECKING, Any, Self

from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.disk_errors import failure
from txtopo.errors import ConfigError, EmitError, SourceDataLost, TxtopoError
from txtopo.extras import require
from txtopo.metadata import Json
from txtopo.setting_checks import check_text
from txtopo.sources.delta.log import (
    CHANGE_TYPE,
    ChangedFile,
    DeltaCoordinator,
    DeltaLimits,
    DeltaLog,
    RowChange,
    maps_columns,
    partition_value,
)
from txtopo.sources.values import (
    INT96_UNIT,
    UnreadableRow,
    check_required,
    damaged,
    first_unreadable,
    fitted_field,
)
from txtopo.spouts.dataframe import DataFrameTransactionalSpout
from txtopo.spouts.spout import TransactionalEmitter, TransactionalSpout
from txtopo.tuples import Field, Fields

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession


class DeltaTransactionalSpout(TransactionalSpout):
    """Reads the rows appended to a Delta table, or all of its changes, version by version.

    Delivery: transactional. A batch is a range of files in the table's log, which a replay reads
    again. Each appended row is emitted in exactly one batch. If a file or a log entry is removed
    (VACUUM, ``delta.logRetentionDuration``) before its rows are committed, the run stops with
    ``SourceDataLost``; with ``OffsetRegression`` if the table is deleted and recreated, or an
    earlier state of it is restored from a copy. OPTIMIZE does no harm.

    A version that deletes, updates or overwrites rows also stops the run, unless ``changes`` names
    a boolean field. Then each deleted row is emitted again, with true in that field; an updated row
    is emitted twice: its old form as deleted, and its new form. ``PersistentAggregate(…,
    retracted=that field)`` retracts deleted rows. The change data feed
    (``delta.enableChangeDataFeed``) may be off. Batches are smaller if it is on: without it, an
    update rewrites a whole file, so unchanged rows are deleted and inserted too. With ``changes``,
    a version is never divided between batches.

    The driver plans versions that exist, from the log only. The tasks read the files with pyarrow,
    each file in one task; no JVM is needed. Columns are matched by name; a column that an older
    file lacks is NULL there.

    Args:
        table: Path or URL of the table.
        fields: The columns to emit, and the field that ``changes`` names.
        changes: Name of a boolean field, not of a column, that is true for deleted rows; None for a
            table to which rows are only appended.
        starting_version: The first version to read; 0 reads everything that was ever appended, as
            far back as the log goes.
        batch_versions_max: Maximum versions of a batch.
        batch_files_max: Maximum files of a batch.
        batch_bytes_max: Maximum bytes of a batch; a larger file is a batch of its own.
        storage_options: Options for deltalake, if the table is in an object store.

    Attributes:
        log: The log of the table.
        changes: As given.

    Raises:
        ConfigError: A limit or the version is wrong, ``changes`` names no boolean field, or
            deltalake is not installed (``pip install 'txtopo[delta]'``).
    """

    ends = True

    def __init__(
        self,
        table: str | os.PathLike[str],
        fields: Fields,
        *,
        changes: str | None = None,
        starting_version: int = 0,
        batch_versions_max: int = 100,
        batch_files_max: int = 100,
        batch_bytes_max: int = 64 << 20,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        require("deltalake", "DeltaTransactionalSpout")
        self._first = _first_position(starting_version)
        if changes is not None and ("boolean", changes) not in [(f.type, f.name) for f in fields]:
            raise ConfigError(
                f"changes does not name a boolean field; got {changes!r}; expected one of the "
                f"fields, e.g. Fields('…, {changes} boolean'); they are {fields}",
                setting="changes",
            )
        self.output_fields = fields
        self.changes = changes
        self._limits = DeltaLimits(batch_versions_max, batch_files_max, batch_bytes_max)
        uri = os.fspath(table)
        check_text("the path of a Delta table", uri)
        uri = uri if "://" in uri else os.path.abspath(uri)
        # Files on a local disk are read only by pyarrow.
        self.client_modules = ("deltalake",) if "://" in uri else ()
        self.log = DeltaLog(uri, dict(storage_options or {}), changes is not None)

    def beginning_at(self, place: Json) -> Self:
        """Return a copy of this spout that begins at a version.

        Args:
            place: The first version to read, as ``starting_version``.

        Raises:
            ConfigError: It is not a version.
        """
        begun = copy(self)
        begun._first = _first_position(place)
        return begun

    def coordinator(self, config: Config, context: TaskContext) -> DeltaCoordinator:
        """Make the planning part.

        Raises:
            ConfigError: The table does not exist, lacks a field, or maps its columns to other
                names.
        """
        assert self.output_fields is not None
        table = _opened(self.log)
        _check_mapping(table, self.log.uri)
        _check_fields(table, self.output_fields, self.log.uri, self.changes)
        gathers_rows = config.pace.min_batch_rows or 0
        return DeltaCoordinator(self.log, self._limits, self._first, table, gathers_rows)

    def emitter(self, config: Config, context: TaskContext) -> TransactionalEmitter:
        """Make an emitting part."""
        assert self.output_fields is not None
        return DeltaEmitter(self.log, self.output_fields, self.changes, context)


def _first_position(version: object) -> tuple[int, int]:
    if type(version) is not int or version < 0:
        raise ConfigError(
            f"starting_version is wrong; got {version!r}; expected a whole number of at least 0",
            setting="starting_version",
        )
    return version, 0


def _opened(log: DeltaLog) -> DeltaTable:
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        return DeltaTable(log.uri, storage_options=dict(log.options) or None)
    except TableNotFoundError as error:
        raise ConfigError(
            f"there is no Delta table at {log.uri!r}; expected the folder that contains "
            "_delta_log; create the table before the topology starts",
            table=log.uri,
        ) from error


def _check_mapping(table: DeltaTable, uri: str) -> None:
    if mapped := maps_columns(f"the Delta table at {uri!r}", table.metadata().configuration):
        raise ConfigError(mapped, table=uri)


def _check_fields(table: DeltaTable, fields: Fields, uri: str, changes: str | None) -> None:
    import pyarrow as pa

    found = {field.name: field.type for field in pa.schema(table.schema().to_arrow())}
    if changes in found:
        raise ConfigError(
            f"changes names a column of {uri!r}; got {changes!r}; expected a new name, because "
            "the field marks the removed rows",
            column=changes,
        )
    for field in fields.arrow_schema():
        if field.name == changes:
            continue
        if found.get(field.name) != field.type:
            got = found.get(field.name, "no such column")
            raise ConfigError(
                f"column {field.name!r} of {uri!r} does not fit; got {got}; expected {field.type}; "
                f"the table has {', '.join(f'{name} {kind}' for name, kind in found.items())}",
                column=field.name,
            )


# The other two are "insert" and "update_postimage".
_WENT = ("delete", "update_preimage")


class DeltaEmitter(TransactionalEmitter):
    """Reads the files of a batch in a task with pyarrow; holds one row group at a time."""

    def __init__(
        self, log: DeltaLog, fields: Fields, changes: str | None, context: TaskContext
    ) -> None:
        self._log = log
        self._schema = fields.read_schema()
        self._changes = changes
        self._context = context

    def emit_batch(
        self, attempt: TransactionAttempt, metadata: Json, collector: BatchOutputCollector
    ) -> None:
        """Emit this task's files.

        Raises:
            SourceDataLost: A file or an entry of the log is gone, or the table was recreated.
            EmitError: A record does not fit the fields; the message says what to do.
            InfrastructureError: The table cannot be reached; the batch is tried again.
        """
        context = self._context
        for number, (version, file) in enumerate(self._log.planned(metadata)):
            if number % context.tasks == context.task_index:
                for batch in self._read(version, file):
                    collector.emit_batch(batch)

    def _read(self, version: int, file: ChangedFile) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        try:
            opened = self._log.filesystem().open_input_file(file.path)
        except FileNotFoundError as error:
            raise SourceDataLost(
                f"file {file.path!r} of version {version} of {self._log.uri!r} no longer exists, "
                "but its batch is planned and not yet committed; was the table vacuumed? restore "
                "the file, or begin after it with starting_version, under a new topology id",
                version=version,
                path=file.path,
            ) from error
        except OSError as error:
            raise failure(f"read {file.path!r}", error) from error
        wanted = [*self._schema.names]
        if file.change is RowChange.BY_ROW:
            wanted.append(CHANGE_TYPE)
        try:
            with (
                opened,
                pq.ParquetFile(opened, coerce_int96_timestamp_unit=INT96_UNIT) as parquet,
            ):
                there = [name for name in wanted if name in parquet.schema_arrow.names]
                before = 0
                for group in range(parquet.num_row_groups):
                    table = parquet.read_row_group(group, columns=there, use_threads=False)
                    yield from self._fitting(table, version, file, before).to_batches()
                    before += table.num_rows
        except TxtopoError:
            raise
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and not damaged(error, self._log.filesystem()):
                raise failure(f"read {file.path!r}", error) from error
            raise self._unreadable(
                version, file, None, UnreadableRow(None, None, str(error))
            ) from error

    def _fitting(self, table: pa.Table, version: int, file: ChangedFile, before: int) -> pa.Table:
        """Return a table with all fields, including partition columns; NULL for missing ones."""
        import pyarrow as pa

        def read(start: int, end: int, schema: pa.Schema) -> pa.Table:
            rows = table.slice(start, end - start)
            columns = [self._column(field, rows, file) for field in schema]
            return pa.Table.from_arrays(columns, schema=schema)

        try:
            return read(0, table.num_rows, self._schema)
        except (ValueError, TypeError, pa.ArrowException) as error:
            bad = first_unreadable(table.num_rows, self._schema, read)
            row = None if bad.row is None else before + bad.row
            told = bad if bad.reason else UnreadableRow(None, None, str(error))
            raise self._unreadable(version, file, row, told) from error

    def _column(
        self, field: pa.Field, table: pa.Table, file: ChangedFile
    ) -> pa.ChunkedArray | pa.Array:
        import pyarrow as pa

        if field.name == self._changes:
            return _went(table, file)
        if field.name in table.column_names:
            return fitted_field(table.column(field.name), field)
        value = partition_value(file.partition.get(field.name), field.type)
        column = pa.repeat(value, table.num_rows)
        check_required(column, field)
        return column

    def _unreadable(
        self, version: int, file: ChangedFile, row: int | None, bad: UnreadableRow
    ) -> EmitError:
        place = f"row {row} of " if row is not None else ""
        field = f"field {bad.field!r} of " if bad.field is not None else ""
        return EmitError(
            f"cannot read {field}{place}file {file.path!r} of version {version} of "
            f"{self._log.uri!r}: {bad.reason}; expected {self._schema.names} as declared; remove "
            "the field; or remove the batch with quarantine, and append its repaired rows as a "
            "new version; or begin after it with starting_version, under a new topology id",
            version=version,
            path=file.path,
            row=row,
            field=bad.field,
        )


def _went(table: pa.Table, file: ChangedFile) -> pa.ChunkedArray | pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    if file.change is RowChange.BY_ROW:
        return pc.is_in(table.column(CHANGE_TYPE), pa.array(_WENT))
    return pa.repeat(file.change is RowChange.DELETED, table.num_rows)


# A user's session may be set to skip such files silently, which would lose rows.
_READING = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}


class DeltaDataFrameSpout(DataFrameTransactionalSpout):
    """A ``DeltaTransactionalSpout`` whose files Spark reads, for topologies of DataFrames.

    Delivery: transactional, like that spout. The driver takes the files of a batch from the log,
    and Spark reads them as Parquet, so Delta's jars are not needed. Spark must reach the table
    under the same path or URL.

    Args:
        table: Path or URL of the table.
        fields: The columns to emit, and the field that ``changes`` names.
        limits: Other arguments of ``DeltaTransactionalSpout``: ``changes``, ``starting_version``,
            ``batch_versions_max``, ``batch_files_max``, ``batch_bytes_max``, ``storage_options``.

    Raises:
        ConfigError: An argument is wrong, or deltalake is not installed.
    """

    def __init__(self, table: str | os.PathLike[str], fields: Fields, **limits: Any) -> None:
        require("deltalake", "DeltaDataFrameSpout")
        planned = DeltaTransactionalSpout(table, fields, **limits)
        read = _Read(planned.log, fields, planned.changes)
        super().__init__(planned.coordinator, read, fields)


class _Read:
    """Makes Spark's plan of a batch. Picklable."""

    def __init__(self, log: DeltaLog, fields: Fields, changes: str | None) -> None:
        self._log = log
        self._fields = fields
        self._changes = changes

    def __call__(
        self, spark: SparkSession, attempt: TransactionAttempt, metadata: Json
    ) -> DataFrame:
        """Return the rows of the files of a batch.

        Raises:
            SourceDataLost: A file or an entry of the log is gone, or the table was recreated.
        """
        alike: dict[tuple[object, ...], list[ChangedFile]] = {}
        for _, file in self._log.planned(metadata):
            same = (file.change, *sorted(file.partition.items()))
            alike.setdefault(same, []).append(file)
        frames = [self._frame(spark, files) for files in alike.values()]
        if not frames:
            return spark.createDataFrame([], _ddl(self._fields))
        return reduce(lambda left, right: left.unionByName(right), frames)

    def _frame(self, spark: SparkSession, files: list[ChangedFile]) -> DataFrame:
        partition, change = files[0].partition, files[0].change
        stored = [f for f in self._fields if f.name not in partition and f.name != self._changes]
        schema = _ddl(stored)
        if change is RowChange.BY_ROW:
            schema += f"{', ' if stored else ''}`{CHANGE_TYPE}` string"
        paths = [_escaped(f"{self._log.uri.rstrip('/')}/{file.path}") for file in files]
        try:
            frame = spark.read.options(**_READING).schema(schema or "`_` int").parquet(*paths)
        except Exception as error:
            if "PATH_NOT_FOUND" not in str(error):
                raise
            raise SourceDataLost(
                f"a file of {self._log.uri!r} no longer exists, but its batch is planned and not "
                "yet committed; was the table vacuumed? restore the file, or begin after it with "
                f"starting_version, under a new topology id; {str(error)[:500]}",
                table=self._log.uri,
            ) from error
        return frame.selectExpr(*self._columns(partition, change))

    def _columns(self, partition: Mapping[str, str | None], change: RowChange) -> list[str]:
        columns = []
        for field in self._fields:
            if field.name == self._changes:
                value = str(change is RowChange.DELETED).lower()
                if change is RowChange.BY_ROW:
                    value = f"`{CHANGE_TYPE}` IN ('delete', 'update_preimage')"
            elif field.name in partition:
                value = _literal(partition[field.name], field)
            else:
                value = f"`{field.name}`"
            columns.append(f"{value} AS `{field.name}`")
        return columns


def _ddl(fields: Any) -> str:
    return ", ".join(f"`{field.name}` {_type(field.type)}" for field in fields)


def _type(kind: str) -> str:
    return "string" if kind == "json" else kind


def _literal(text: str | None, field: Field) -> str:
    """Return the value of a partition as an SQL expression in which no character needs an escape.

    Raises:
        ValueError: The text is not a value of the type.
    """
    import pyarrow as pa

    (kind,) = Fields.of([field]).arrow_schema().types
    value = partition_value(text, kind)
    if not value.is_valid:
        return f"CAST(NULL AS {_type(field.type)})"
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return f"timestamp_micros({value.value})"  # text would be read in the zone of the session
    if pa.types.is_binary(kind):
        return f"unhex('{value.as_py().hex()}')"
    return f"CAST(decode(unhex('{str(text).encode().hex()}'), 'utf-8') AS {_type(field.type)})"


def _escaped(path: str) -> str:
    """Return a path with escapes, so that Hadoop does not treat it as a pattern."""
    return "".join(f"\\{c}" if c in "{}[]*?\\" else c for c in path)
