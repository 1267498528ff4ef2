"""FilesEmitter: reads the ranges of a batch in the tasks, as Arrow record batches."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.context import TaskContext
from txtopo.errors import EmitError, TxtopoError
from txtopo.metadata import Json
from txtopo.spouts.files.format import FileFormat
from txtopo.spouts.files.lines import first_line, line_blocks
from txtopo.spouts.files.ranges import FileRange, from_json
from txtopo.spouts.files.source import FileSource, SourceFile
from txtopo.spouts.transactional import TransactionalEmitter
from txtopo.state.disk_errors import failure
from txtopo.tuples import Fields

if TYPE_CHECKING:
    import pyarrow as pa

# Ten times what Python code likes best: columns are cut smaller where tuples are made of them, and
# routing has less to do on larger ones.
EMIT_ROWS_MAX = 100_000


class FilesEmitter(TransactionalEmitter):
    """Reads what the metadata says, nothing else; holds one block or row group at a time."""

    def __init__(
        self, source: FileSource, format: FileFormat, fields: Fields, context: TaskContext
    ) -> None:
        self._source = source
        self._format = format
        self._fields = fields
        self._schema = fields.arrow_schema()
        self._context = context

    def emit_batch(
        self, attempt: TransactionAttempt, metadata: Json, collector: BatchOutputCollector
    ) -> None:
        """Emit the shares that are this task's.

        Raises:
            SourceDataLost: A file is gone or was changed; bring it back as it was.
            EmitError: A file does not hold the fields; mend the file or the declaration.
            InfrastructureError: The filesystem cannot be reached; the batch is tried again.
        """
        shares = from_json(metadata)
        for share in shares[self._context.task_index :: self._context.tasks]:
            for each in share:
                with _named(self._format, each, self._fields):
                    for batch in self._read(each):
                        collector.emit_batch(batch)

    def _read(self, each: FileRange) -> Iterator[pa.RecordBatch]:
        tables = self._lines(each) if self._format.lines else self._row_groups(each)
        for table in tables:
            fitting = table if table.schema.equals(self._schema) else table.cast(self._schema)
            yield from fitting.to_batches(max_chunksize=EMIT_ROWS_MAX)

    def _row_groups(self, each: FileRange) -> Iterator[pa.Table]:
        import pyarrow.parquet as pq

        names = list(self._fields.names)
        with self._source.open(each.file) as opened, pq.ParquetFile(opened) as parquet:
            _check_columns(names, parquet.schema_arrow.names)
            before = 0
            for group in range(parquet.num_row_groups):
                rows = parquet.metadata.row_group(group).num_rows
                start = max(each.start - before, 0)
                end = rows if each.end is None else min(each.end - before, rows)
                before += rows
                if start < end:
                    table = parquet.read_row_group(group, columns=names, use_threads=False)
                    yield table.select(names).slice(start, end - start)

    def _lines(self, each: FileRange) -> Iterator[pa.Table]:
        header = self._header(each.file)
        parse = self._parser(header)
        with self._opened(each.file) as opened:
            skip = header is not None and each.start == 0
            for block in line_blocks(opened, each.start, each.end):
                body = block
                if each.start == 0 and skip:
                    body, skip = block.partition(b"\n")[2], False
                if body.strip(b"\r\n") or (body and self._format.name == "text"):
                    yield parse(body)

    def _header(self, file: SourceFile) -> list[str] | None:
        if self._format.name != "csv" or not self._format.header:
            return None
        with self._opened(file) as opened:
            line = first_line(opened).decode()
        header = next(csv.reader([line], delimiter=self._format.delimiter), [])
        _check_columns(list(self._fields.names), header)
        return header

    @contextmanager
    def _opened(self, file: SourceFile) -> Iterator[pa.NativeFile]:
        import pyarrow as pa

        compression = self._format.compression(file.name)
        with self._source.open(file) as opened:
            yield opened if compression is None else pa.CompressedInputStream(opened, compression)

    def _parser(self, header: list[str] | None) -> Callable[[bytes], pa.Table]:
        if self._format.name == "csv":
            return lambda block: _csv(block, header, self._format, self._schema)
        if self._format.name == "json":
            return lambda block: _json(block, self._schema)
        return lambda block: _text(block, self._schema)


def parquet_rows(source: FileSource, file: SourceFile) -> int:
    """Return how many rows a Parquet file has, from its footer."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with source.open(file) as opened:
            return int(pq.read_metadata(opened).num_rows)
    except pa.ArrowInvalid as error:
        raise EmitError(f"file {file.name!r} is no Parquet file: {error}") from error
    except OSError as error:
        raise failure(f"read {file.name!r}", error) from error


def _csv(block: bytes, header: list[str] | None, format: FileFormat, schema: pa.Schema) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    return arrow_csv.read_csv(
        pa.BufferReader(block),
        arrow_csv.ReadOptions(
            use_threads=False, block_size=len(block) + 1, column_names=header or schema.names
        ),
        arrow_csv.ParseOptions(delimiter=format.delimiter),
        arrow_csv.ConvertOptions(
            column_types=schema,
            include_columns=schema.names,
            null_values=list(format.null_values),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _json(block: bytes, schema: pa.Schema) -> pa.Table:
    import pyarrow as pa
    from pyarrow import json as arrow_json

    table = arrow_json.read_json(
        pa.BufferReader(block),
        arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1),
        arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )
    return table.select(schema.names)


def _text(block: bytes, schema: pa.Schema) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    text = block.decode().removesuffix("\n")
    lines = pc.split_pattern(pa.scalar(text), "\n").values
    if "\r" in text:
        lines = pc.utf8_rtrim(lines, "\r")
    return pa.table([lines], schema=schema)


def _check_columns(wanted: list[str], there: list[str]) -> None:
    missing = [name for name in wanted if name not in there]
    if missing:
        raise ValueError(f"it has no column {missing[0]!r}, only {', '.join(there)}")


@contextmanager
def _named(format: FileFormat, each: FileRange, fields: Fields) -> Iterator[None]:
    """Say in every error which file it is about."""
    unit = "bytes" if format.lines else "rows"
    where = f"{each.file.name!r}, {unit} {each.start} to {each.end or 'the end'}"
    try:
        yield
    except TxtopoError:
        raise
    except OSError as error:
        raise failure(f"read {where}", error) from error
    except ValueError as error:
        raise EmitError(
            f"cannot read {where} as {format.name}: {error}; expected {fields!r}; mend the file or "
            "the fields",
            path=each.file.name,
        ) from error
