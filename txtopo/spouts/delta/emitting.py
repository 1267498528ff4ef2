"""DeltaEmitter: reads the files of a batch in a task, with pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.context import TaskContext
from txtopo.errors import EmitError, SourceDataLost
from txtopo.metadata import Json
from txtopo.spouts.delta.log import CHANGE_TYPE, Change, ChangedFile, DeltaLog
from txtopo.spouts.delta.planning import files_between, positions
from txtopo.spouts.transactional import TransactionalEmitter
from txtopo.spouts.values import Bad, damaged, first_bad, fitted_column
from txtopo.state.disk_errors import failure
from txtopo.tuples import Fields

if TYPE_CHECKING:
    import pyarrow as pa

# The other two are "insert" and "update_postimage".
_WENT = ("delete", "update_preimage")


class DeltaEmitter(TransactionalEmitter):
    """Reads the files that the metadata says; holds one row group at a time."""

    def __init__(
        self, log: DeltaLog, fields: Fields, changes: str | None, context: TaskContext
    ) -> None:
        self._log = log
        self._schema = fields.arrow_schema()
        self._changes = changes
        self._context = context

    def emit_batch(
        self, attempt: TransactionAttempt, metadata: Json, collector: BatchOutputCollector
    ) -> None:
        """Emit the files that are this task's.

        Raises:
            SourceDataLost: A file or an entry of the log is gone.
            EmitError: A file does not hold the fields; mend the declaration.
            InfrastructureError: The table cannot be reached; the batch is tried again.
        """
        context = self._context
        found = enumerate(files_between(self._log, *positions(metadata)))
        for number, (version, _, file) in found:
            if number % context.tasks == context.task_index:
                for batch in self._read(version, file):
                    collector.emit_batch(batch)

    def _read(self, version: int, file: ChangedFile) -> Iterator[pa.RecordBatch]:
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
            raise failure(f"read {file.path!r}", error) from error
        wanted = [*self._schema.names]
        if file.change is Change.BY_ROW:
            wanted.append(CHANGE_TYPE)
        try:
            with opened, pq.ParquetFile(opened) as parquet:
                there = [name for name in wanted if name in parquet.schema_arrow.names]
                before = 0
                for group in range(parquet.num_row_groups):
                    table = parquet.read_row_group(group, columns=there, use_threads=False)
                    yield from self._fitting(table, version, file, before).to_batches()
                    before += table.num_rows
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and not damaged(error, self._log.filesystem()):
                raise failure(f"read {file.path!r}", error) from error
            raise self._unreadable(version, file, None, Bad(None, None, str(error))) from error

    def _fitting(self, table: pa.Table, version: int, file: ChangedFile, before: int) -> pa.Table:
        """Return a table with all fields: those of its partition, and NULL for what it lacks."""
        import pyarrow as pa

        def read(start: int, end: int, schema: pa.Schema) -> pa.Table:
            rows = table.slice(start, end - start)
            columns = [self._column(field, rows, file) for field in schema]
            return pa.Table.from_arrays(columns, schema=schema)

        try:
            return read(0, table.num_rows, self._schema)
        except (ValueError, TypeError, pa.ArrowException) as error:
            bad = first_bad(table.num_rows, self._schema, read)
            row = None if bad.row is None else before + bad.row
            told = bad if bad.reason else Bad(None, None, str(error))
            raise self._unreadable(version, file, row, told) from error

    def _column(
        self, field: pa.Field, table: pa.Table, file: ChangedFile
    ) -> pa.ChunkedArray | pa.Array:
        import pyarrow as pa

        if field.name == self._changes:
            return _went(table, file)
        if field.name in table.column_names:
            return fitted_column(table.column(field.name), field.type)
        value = pa.scalar(file.partition.get(field.name), pa.string())
        return fitted_column(pa.repeat(value, table.num_rows), field.type)

    def _unreadable(self, version: int, file: ChangedFile, row: int | None, bad: Bad) -> EmitError:
        place = f"row {row} of " if row is not None else ""
        field = f"field {bad.field!r} of " if bad.field is not None else ""
        return EmitError(
            f"cannot read {field}{place}file {file.path!r} of version {version} of "
            f"{self._log.uri!r}: {bad.reason}; expected {self._schema.names} as declared; mend the "
            "fields, or begin behind it with starting_version, under a new topology id",
            version=version,
            path=file.path,
            row=row,
            field=bad.field,
        )


def _went(table: pa.Table, file: ChangedFile) -> pa.ChunkedArray | pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    if file.change is Change.BY_ROW:
        return pc.is_in(table.column(CHANGE_TYPE), pa.array(_WENT))
    return pa.repeat(file.change is Change.WENT, table.num_rows)
