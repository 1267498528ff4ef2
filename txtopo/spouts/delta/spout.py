"""DeltaTransactionalSpout: rows appended to a Delta table, each exactly once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.errors import ConfigError, InfrastructureError, SourceDataLost
from txtopo.metadata import Json
from txtopo.spouts.delta.log import AddedFile, DeltaLog
from txtopo.spouts.delta.planning import DeltaCoordinator, DeltaLimits, files_between, positions
from txtopo.spouts.transactional import TransactionalEmitter, TransactionalSpout
from txtopo.tuples import Fields

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable


class DeltaTransactionalSpout(TransactionalSpout):
    """Reads what is appended to a Delta table, version by version; needs no JVM.

    Delivery: transactional. A batch is a range of files of the table's log, which a replay reads
    again. Each appended row is emitted once. If a file or an entry of the log is removed (VACUUM,
    ``delta.logRetentionDuration``) before its rows are committed, the run stops with
    ``SourceDataLost``; so it does at a version that deletes, updates or overwrites rows, since what
    was emitted cannot be taken back. OPTIMIZE does no harm.

    Versions are planned in the driver, from the log alone, and only those that are there; the
    files are read in the tasks with pyarrow, a file in one task. Columns are matched by name;
    one that older files lack is NULL there.

    Args:
        table: Path or URL of the table.
        fields: Which columns to emit.
        starting_version: The first version to read; 0 reads all that was ever appended, as long as
            the log has it.
        batch_versions_max: Versions of a batch at the most.
        batch_files_max: Files of a batch at the most.
        batch_bytes_max: Bytes of a batch at the most; a larger file is a batch of its own.
        storage_options: For deltalake, where the table is in an object store.

    Raises:
        ConfigError: A limit or the version is wrong.
    """

    def __init__(
        self,
        table: str | os.PathLike[str],
        fields: Fields,
        *,
        starting_version: int = 0,
        batch_versions_max: int = 100,
        batch_files_max: int = 100,
        batch_bytes_max: int = 64 << 20,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        if type(starting_version) is not int or starting_version < 0:
            raise ConfigError(
                f"starting_version is wrong; got {starting_version!r}; expected a whole number of "
                "at least 0"
            )
        self.output_fields = fields
        self._limits = DeltaLimits(batch_versions_max, batch_files_max, batch_bytes_max)
        self._first = (starting_version, 0)
        uri = os.fspath(table)
        uri = uri if "://" in uri else os.path.abspath(uri)
        self._log = DeltaLog(uri, dict(storage_options or {}))

    def coordinator(self, config: Config, context: TaskContext) -> DeltaCoordinator:
        """Make the planning part.

        Raises:
            ConfigError: The table is not there, or lacks a field.
        """
        assert self.output_fields is not None
        table = _opened(self._log)
        _check_fields(table, self.output_fields, self._log.uri)
        return DeltaCoordinator(self._log, self._limits, self._first, table)

    def emitter(self, config: Config, context: TaskContext) -> TransactionalEmitter:
        """Make an emitting part."""
        assert self.output_fields is not None
        return DeltaEmitter(self._log, self.output_fields, context)


class DeltaEmitter(TransactionalEmitter):
    """Reads the files that the metadata says; holds one row group at a time."""

    def __init__(self, log: DeltaLog, fields: Fields, context: TaskContext) -> None:
        self._log = log
        self._schema = fields.arrow_schema()
        self._context = context

    def emit_batch(
        self, attempt: TransactionAttempt, metadata: Json, collector: BatchOutputCollector
    ) -> None:
        """Emit the files that are this task's.

        Raises:
            SourceDataLost: A file or an entry of the log is gone.
            InfrastructureError: The table cannot be reached; the batch is tried again.
        """
        context = self._context
        found = enumerate(files_between(self._log, *positions(metadata)))
        for number, (version, _, file) in found:
            if number % context.tasks == context.task_index:
                for batch in self._read(version, file):
                    collector.emit_batch(batch)

    def _read(self, version: int, file: AddedFile) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        try:
            opened = self._log.filesystem().open_input_file(file.path)
        except FileNotFoundError as error:
            raise SourceDataLost(
                f"file {file.path!r} of version {version} of {self._log.uri!r} is gone; expected "
                "it, since its batch is planned and not committed; was the table vacuumed? bring "
                "the file back, or begin behind it with starting_version, under a new topology id",
                version=version,
                path=file.path,
            ) from error
        except OSError as error:
            raise InfrastructureError(f"cannot read {file.path!r}: {error}") from error
        with opened, pq.ParquetFile(opened) as parquet:
            there = [name for name in self._schema.names if name in parquet.schema_arrow.names]
            for group in range(parquet.num_row_groups):
                table = parquet.read_row_group(group, columns=there, use_threads=False)
                yield from self._fitting(table, file).to_batches()

    def _fitting(self, table: pa.Table, file: AddedFile) -> pa.Table:
        """Return a table with all fields: those of its partition, and NULL for what it lacks."""
        import pyarrow as pa

        columns = []
        for field in self._schema:
            if field.name in table.column_names:
                columns.append(table.column(field.name).cast(field.type))
            else:
                value = pa.scalar(file.partition.get(field.name), pa.string())
                columns.append(pa.repeat(value.cast(field.type), table.num_rows))
        return pa.table(columns, schema=self._schema)


def _opened(log: DeltaLog) -> DeltaTable:
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        return DeltaTable(log.uri, storage_options=dict(log.options) or None)
    except TableNotFoundError as error:
        raise ConfigError(
            f"there is no Delta table at {log.uri!r}; expected the folder that has _delta_log in "
            "it; make the table before the topology starts",
            table=log.uri,
        ) from error


def _check_fields(table: DeltaTable, fields: Fields, uri: str) -> None:
    import pyarrow as pa

    found = {field.name: field.type for field in pa.schema(table.schema().to_arrow())}
    for field in fields.arrow_schema():
        if found.get(field.name) != field.type:
            got = found.get(field.name, "no such column")
            raise ConfigError(
                f"column {field.name!r} of {uri!r} does not fit; got {got}; expected {field.type}; "
                f"the table has {', '.join(f'{name} {kind}' for name, kind in found.items())}",
                column=field.name,
            )
