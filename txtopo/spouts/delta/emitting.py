"""DeltaEmitter: reads the files of a batch in a task, with pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.context import TaskContext
from txtopo.errors import SourceDataLost
from txtopo.metadata import Json
from txtopo.spouts.delta.log import CHANGE_TYPE, Change, ChangedFile, DeltaLog
from txtopo.spouts.delta.planning import files_between, positions
from txtopo.spouts.transactional import TransactionalEmitter
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
        with opened, pq.ParquetFile(opened) as parquet:
            there = [name for name in wanted if name in parquet.schema_arrow.names]
            for group in range(parquet.num_row_groups):
                table = parquet.read_row_group(group, columns=there, use_threads=False)
                yield from self._fitting(table, file).to_batches()

    def _fitting(self, table: pa.Table, file: ChangedFile) -> pa.Table:
        """Return a table with all fields: those of its partition, and NULL for what it lacks."""
        import pyarrow as pa

        columns = []
        for field in self._schema:
            if field.name == self._changes:
                columns.append(_went(table, file))
            elif field.name in table.column_names:
                columns.append(table.column(field.name).cast(field.type))
            else:
                value = pa.scalar(file.partition.get(field.name), pa.string())
                columns.append(pa.repeat(value.cast(field.type), table.num_rows))
        return pa.table(columns, schema=self._schema)


def _went(table: pa.Table, file: ChangedFile) -> pa.ChunkedArray | pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    if file.change is Change.BY_ROW:
        return pc.is_in(table.column(CHANGE_TYPE), pa.array(_WENT))
    return pa.repeat(file.change is Change.WENT, table.num_rows)
