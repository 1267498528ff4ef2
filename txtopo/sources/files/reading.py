"""Reading ranges of files in the tasks, as Arrow record batches."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import IO, TYPE_CHECKING

from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.context import TaskContext
from txtopo.disk_errors import failure
from txtopo.errors import EmitError, TxtopoError
from txtopo.fitting import check_texts
from txtopo.metadata import Json
from txtopo.sources.files.source import (
    FileFormat,
    FileRange,
    FileSource,
    SourceFile,
    from_json,
    is_open,
)
from txtopo.sources.json_objects import SAMPLE_RECORDS_MAX, bytes_of, objects, seen_fields
from txtopo.sources.values import (
    INT96_UNIT,
    UnreadableRow,
    damaged,
    first_unreadable,
    fitted,
    readable,
    row_values,
)
from txtopo.spouts.spout import TransactionalEmitter
from txtopo.tuples import Fields

if TYPE_CHECKING:
    import pyarrow as pa

# Ten times the size that is fastest for Python code: columns are divided where they become tuples,
# and routing is faster with larger batches.
EMIT_ROWS_MAX = 100_000

# Large enough that starting a parser costs nothing, small enough for many tasks on one machine.
BLOCK_BYTES = 8 * 1024 * 1024

# A missing quotation mark makes a record of the rest of the file, which is not taken into memory.
RECORD_BYTES_MAX = 64 * 1024 * 1024

_TAIL_BYTES = 64 * 1024

# The byte order mark of UTF-8, which is not part of the first line.
_MARK = b"\xef\xbb\xbf"

# A dead letter has the number of its line if the range starts within this many bytes: to count the
# lines before it, each range with a bad line reads the file from its beginning.
COUNTED_BYTES_MAX = 256 * 1024 * 1024

# Once a batch is planned with a file, its size and time must not change, since repairing it in
# place would change rows that may have been written.
REMEDY = (
    "declare other fields; or leave the file as it is, remove its batch with quarantine, and "
    "write the repaired rows of the batch to a file with another name"
)
_ASIDE = "set such records aside with dead_letters= (which needs allow_change once); "

# What to do about a record that was set aside.
_AGAIN = "write the repaired file under another name"

# Counting stops inside a block, and the rest of the block is read again for the next batch; so
# these blocks are smaller.
_COUNT_BYTES = 1024 * 1024


class FilesEmitter(TransactionalEmitter):
    """Reads the ranges in the metadata of a batch; holds one block or row group at a time.

    Args:
        source: Where the files are.
        format: How they are read.
        fields: The columns.
        context: Which task it is.
        remedy: What to do about a file that cannot be read; the last part of error messages.
        aside: What to do instead about a single record; empty if its reader takes no dead letters.
    """

    def __init__(
        self,
        source: FileSource,
        format: FileFormat,
        fields: Fields,
        context: TaskContext,
        *,
        remedy: str = REMEDY,
        aside: str = _ASIDE,
    ) -> None:
        self._remedy = remedy
        self._aside = aside
        self._source = source
        self._format = format
        self._fields = fields
        self._schema = fields.read_schema()
        self._context = context
        # How many more JSON objects of the first batch are looked at for declared fields.
        self._unseen = SAMPLE_RECORDS_MAX if format.name == "json" else 0

    def emit_batch(
        self, attempt: TransactionAttempt, metadata: Json, collector: BatchOutputCollector
    ) -> None:
        """Emit this task's shares of the batch.

        Raises:
            SourceDataLost: A file is gone or was changed; restore it unchanged.
            EmitError: A record does not fit the fields; the message says what to do.
            InfrastructureError: The filesystem cannot be reached; the batch is tried again.
        """
        shares = from_json(metadata)
        for share in shares[self._context.task_index :: self._context.tasks]:
            for each in share:
                with self._named(each):
                    for batch in self._read(each, collector):
                        collector.emit_batch(batch)
        # Later batches are not looked at once a batch had objects.
        if self._unseen < SAMPLE_RECORDS_MAX:
            self._unseen = 0

    def _read(self, each: FileRange, collector: BatchOutputCollector) -> Iterator[pa.RecordBatch]:
        read = self._lines if self._format.lines else self._row_groups
        for table in read(each, collector):
            yield from table.to_batches(max_chunksize=EMIT_ROWS_MAX)

    def _row_groups(self, each: FileRange, collector: BatchOutputCollector) -> Iterator[pa.Table]:
        import pyarrow.parquet as pq

        names = list(self._fields.names)
        with (
            self._source.open(each.file) as opened,
            pq.ParquetFile(opened, coerce_int96_timestamp_unit=INT96_UNIT) as parquet,
        ):
            _check_columns(names, parquet.schema_arrow.names)
            before = 0
            for group in range(parquet.num_row_groups):
                rows = parquet.metadata.row_group(group).num_rows
                start = max(each.start - before, 0)
                end = rows if each.end is None else min(each.end - before, rows)
                before += rows
                if start < end:
                    table = parquet.read_row_group(group, columns=names, use_threads=False)
                    part = table.slice(start, end - start)
                    yield self._rows(part, each, before - rows + start, collector)

    def _rows(
        self, table: pa.Table, each: FileRange, before: int, collector: BatchOutputCollector
    ) -> pa.Table:
        def read(start: int, end: int, schema: pa.Schema) -> pa.Table:
            return fitted(table.slice(start, end - start), schema)

        def bad_row(first: int, rows: int, error: Exception, do: str | None = None) -> EmitError:
            bad = first_unreadable(
                rows, self._schema, lambda a, b, some: read(first + a, first + b, some)
            )
            row = None if bad.row is None else before + first + bad.row
            return self._bad(each.file, "row", row, bad, error, do)

        def refuse(row: int, error: Exception) -> None:
            place: dict[str, Json] = {"file": each.file.name, "row": before + row}
            collector.set_aside(bad_row(row, 1, error, _AGAIN), place, row_values(table, row))

        try:
            return read(0, table.num_rows, self._schema)
        except (ValueError, TypeError) as error:
            # A column of another type is not the fault of a row.
            if isinstance(error, TypeError) or not collector.takes_dead_letters:
                raise bad_row(0, table.num_rows, error) from error
        parts = readable(table.num_rows, lambda a, b: read(a, b, self._schema), refuse)
        return _joined(parts, self._schema)

    def _lines(self, each: FileRange, collector: BatchOutputCollector) -> Iterator[pa.Table]:
        header = self._header(each.file)
        start, end = each.start, each.end
        if self._format.multiline:
            each = each._replace(start=0)  # records are found from the beginning of the file
        before = at = 0
        with self._opened(each.file) as opened:
            for block in self._blocks(opened, each):
                first, last = 0, len(block)
                if self._format.multiline and (start or end is not None):
                    # A plan that was made without multiline has ranges inside of files.
                    starts = partial(_record_at, self._format.plain_lines(block))
                    first, last = starts(start - at), last if end is None else starts(end - at)
                if start == 0 and not at:
                    first = _beginning(block, header)
                body = block[first:last]
                if body.strip(b"\r\n") or (body and self._format.name == "text"):
                    place = before + block.count(b"\n", 0, first), at + first
                    yield self._parsed(body, header, each, place, collector)
                before += block.count(b"\n")
                at += len(block)

    def _blocks(self, opened: pa.NativeFile, each: FileRange) -> Iterator[bytes]:
        if self._format.multiline:
            return _record_blocks(opened, self._format)
        return line_blocks(opened, each.start, each.end)

    def _parsed(
        self,
        body: bytes,
        header: list[str] | None,
        each: FileRange,
        before: tuple[int, int],
        collector: BatchOutputCollector,
    ) -> pa.Table:
        """Return lines as columns; *before* are the lines and bytes of the range before them."""
        if self._unseen:
            lines = body.split(b"\n", self._unseen)[: self._unseen]
            seen = seen_fields(lines, self._fields.names)
            self._unseen -= seen.records
            collector.saw(seen)
        try:
            return self._parse(body, header, self._schema)
        except (ValueError, TypeError) as error:
            lines = _split(body, self._format)

            def read(start: int, end: int, schema: pa.Schema) -> pa.Table:
                return self._parse(b"".join(lines[start:end]), header, schema)

            # A type that text cannot have is not the fault of a line.
            if isinstance(error, TypeError) or not collector.takes_dead_letters:
                bad = first_unreadable(len(lines), self._schema, read)
                number = None
                if bad.row is not None:
                    newlines = _newlines(lines[: bad.row])
                    number = self._lines_before(each) + before[0] + newlines + 1
                raise self._bad(each.file, "line", number, bad, error) from error

        counted = each.start <= COUNTED_BYTES_MAX
        first = self._lines_before(each) + before[0] + 1 if counted else None
        at = self._first_byte(each) + before[1]

        def refuse(row: int, error: Exception) -> None:
            bad = first_unreadable(1, self._schema, lambda a, b, some: read(row + a, row + b, some))
            line = None if first is None else first + _newlines(lines[:row])
            place: dict[str, Json] = {"file": each.file.name}
            place |= {} if line is None else {"line": line}
            place |= {"byte": at + sum(map(len, lines[:row]))}
            refused = self._bad(each.file, "line", line, bad, error, _AGAIN)
            collector.set_aside(refused, place, lines[row].removesuffix(b"\n").removesuffix(b"\r"))

        parts = readable(len(lines), lambda a, b: read(a, b, self._schema), refuse)
        return _joined(parts, self._schema)

    def _parse(self, body: bytes, header: list[str] | None, schema: pa.Schema) -> pa.Table:
        if self._format.name == "csv":
            return _csv(body, header or list(self._schema.names), self._format, schema)
        if self._format.name == "json":
            return objects([line for line in body.split(b"\n") if line.strip(b" \t\r")], schema)
        return _text(body, schema)

    def _lines_before(self, each: FileRange) -> int:
        with self._opened(each.file) as opened:
            return sum(block.count(b"\n") for block in line_blocks(opened, 0, each.start))

    def _first_byte(self, each: FileRange) -> int:
        """Return where the first line of a range starts."""
        if not each.start:
            return 0
        with self._opened(each.file) as opened:
            opened.seek(each.start - 1)
            return each.start - 1 + len(_tail(opened))

    def _bad(
        self,
        file: SourceFile,
        unit: str,
        number: int | None,
        bad: UnreadableRow,
        error: Exception,
        do: str | None = None,
    ) -> EmitError:
        place = f"{unit} {number} of {file.name!r}" if number is not None else repr(file.name)
        field = f"field {bad.field!r} of " if bad.field is not None else ""
        if do is None:
            # A column of another type is not a record that could be set aside.
            do = self._remedy if isinstance(error, TypeError) else self._aside + self._remedy
        return EmitError(
            f"cannot read {field}{place} as {self._format.name}: {bad.reason or error}; expected "
            f"{self._fields!r}; {do}",
            path=file.name,
            field=bad.field,
            **{unit: number},
        )

    def _header(self, file: SourceFile) -> list[str] | None:
        if self._format.name != "csv" or not self._format.header:
            return None
        with self._opened(file) as opened:
            line = first_line(opened)
        if self._format.multiline and is_open(line, self._format.delimiter):
            raise ValueError("its header has a line break in quotes; expected it in one line")
        try:
            header = next(csv.reader([line.decode()], delimiter=self._format.delimiter), [])
        except csv.Error as error:
            raise ValueError(f"its header is not a line of CSV: {error}") from error
        _check_columns(list(self._fields.names), header)
        return header

    @contextmanager
    def _named(self, each: FileRange) -> Iterator[None]:
        """Name the file and the range in every error."""
        unit, name = "bytes" if self._format.lines else "rows", self._format.name
        where = f"{each.file.name!r}, {unit} {each.start} to {each.end or 'the end'}"
        try:
            yield
        except TxtopoError:
            raise
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and not damaged(error, self._source.filesystem):
                raise failure(f"read {where}", error) from error
            raise EmitError(
                f"cannot read {where} as {name}: {error}; expected {self._fields!r}; "
                f"{self._remedy}",
                path=each.file.name,
            ) from error

    @contextmanager
    def _opened(self, file: SourceFile) -> Iterator[pa.NativeFile]:
        import pyarrow as pa

        compression = self._format.compression(file.name)
        with self._source.open(file) as opened:
            yield opened if compression is None else pa.CompressedInputStream(opened, compression)


def parquet_rows(source: FileSource, file: SourceFile) -> int:
    """Return the number of rows of a Parquet file, from its footer."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with source.open(file) as opened:
            return int(pq.read_metadata(opened).num_rows)
    except pa.ArrowInvalid as error:
        raise EmitError(
            f"file {file.name!r} is not a Parquet file: {error}; repair the file, or move it out "
            "of the folder",
            path=file.name,
        ) from error
    except OSError as error:
        raise failure(f"read {file.name!r}", error) from error


def _beginning(block: bytes, header: list[str] | None) -> int:
    """Return where the rows of the first block begin, after a header or a byte order mark."""
    if header is not None:
        return block.find(b"\n") + 1 or len(block)
    return len(_MARK) if block.startswith(_MARK) else 0


def _newlines(lines: Sequence[bytes]) -> int:
    return sum(line.count(b"\n") for line in lines)


def _joined(parts: Iterator[pa.Table], schema: pa.Schema) -> pa.Table:
    import pyarrow as pa

    return pa.concat_tables([schema.empty_table(), *parts])


def _split(body: bytes, format: FileFormat) -> list[bytes]:
    """Return the records, each with a newline at its end."""
    lines, start = [], 0
    for line in format.plain_lines(body).split(b"\n"):
        lines.append(body[start : start + len(line)] + b"\n")
        start += len(line) + 1
    return lines if lines[-1] != b"\n" else lines[:-1]


def _csv(block: bytes, header: list[str], format: FileFormat, schema: pa.Schema) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    # As in JSON, bytes are base64.
    asked = pa.schema(
        [f.with_type(pa.string()) if pa.types.is_binary(f.type) else f for f in schema]
    )

    def parsed(lines: bytes, asked: pa.Schema = asked) -> pa.Table:
        # Without it, Arrow takes an empty value at the very end for one in quotes, if there is any.
        lines = lines if lines.endswith(b"\n") else lines + b"\n"
        return arrow_csv.read_csv(
            pa.BufferReader(lines),
            arrow_csv.ReadOptions(
                use_threads=False, block_size=len(lines) + 1, column_names=header
            ),
            arrow_csv.ParseOptions(delimiter=format.delimiter, newlines_in_values=format.multiline),
            arrow_csv.ConvertOptions(
                column_types=asked,
                include_columns=asked.names,
                null_values=list(format.null_values),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    try:
        table = parsed(block)
    except pa.ArrowInvalid as error:
        if is_open(block, format.delimiter):
            raise ValueError(_unclosed(format)) from error
        raise
    if format.multiline:
        if is_open(block, format.delimiter):
            raise ValueError(_unclosed(format))
    elif b'"' in block:
        lines = list(filter(None, block.replace(b"\r\n", b"\n").split(b"\n")))
        rows = len(lines)
        if b"\r" in block and b"\r" in b"".join(lines):
            # A carriage return outside a quoted value ends a row, so a line may have several rows.
            rows = sum(parsed(line).num_rows for line in lines)
        # Parse the last line twice: Arrow closes a quoted value at the end of a block, but not
        # before another line.
        once, twice = (parsed(b"\n".join(lines[-1:] * times)).num_rows for times in (1, 2))
        if table.num_rows < rows or twice < 2 * once:
            # If a range ended between the two lines, the value would be different.
            raise ValueError(_unclosed(format))
    doubtful = _doubtful(block, table.select(asked.names))
    if doubtful:
        texts = parsed(block, pa.schema([(name, pa.string()) for name in doubtful]))
        for name in doubtful:
            check_texts(texts.column(name), table.column(name))
    for at, field in enumerate(schema):
        if pa.types.is_binary(field.type):
            table = table.set_column(at, field.name, bytes_of(table.column(field.name)))
    return fitted(table, schema)


def _unclosed(format: FileFormat) -> str:
    if format.multiline:
        return "a quoted value has no closing quotation mark"
    return (
        "a quoted value continues after the end of its line; if values may have line breaks, read "
        "the files with multiline=True"
    )


def _doubtful(block: bytes, table: pa.Table) -> list[str]:
    """Return the columns whose numbers may differ from their texts.

    Only their texts are parsed, and usually there is no such column.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    whole = {each.name for each in table.schema if pa.types.is_integer(each.type)}
    if whole and not any(_has_pair(block, pair) for pair in (b"0x", b"0X")):
        whole.clear()
    return [
        each.name
        for each in table.schema
        if each.name in whole
        or (pa.types.is_floating(each.type) and pc.any(pc.is_inf(table.column(each.name))).as_py())
    ]


def _has_pair(block: bytes, pair: bytes) -> bool:
    """Return whether two characters occur in a block; ten times as fast as ``in``."""
    if pair[1:] not in block:
        return False
    import numpy as np

    wanted = np.frombuffer(pair, np.uint16)
    starts = ((0, len(block) // 2), (1, (len(block) - 1) // 2))
    return any((np.frombuffer(block, np.uint16, n, at) == wanted).any() for at, n in starts)


def _text(block: bytes, schema: pa.Schema) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    text = block.decode().removesuffix("\n")
    lines = pc.split_pattern(pa.scalar(text), "\n").values
    if "\r" in text:
        lines = pc.replace_substring_regex(lines, r"\r\z", "")
    return fitted(pa.table([lines], ["line"]).rename_columns(schema.names or ["line"]), schema)


def _check_columns(wanted: list[str], there: list[str]) -> None:
    missing = [name for name in wanted if name not in there]
    if missing:
        raise ValueError(f"it has no column {missing[0]!r}, only {', '.join(there)}")
    doubled = [name for name in wanted if there.count(name) > 1]
    if doubled:
        raise ValueError(f"it has column {doubled[0]!r} more than once: {', '.join(there)}")


def _record_blocks(file: IO[bytes], format: FileFormat) -> Iterator[bytes]:
    """Yield a file of CSV whose values may have line breaks, in blocks of whole records.

    Raises:
        ValueError: A record is too long; probably a quotation mark is missing.
    """
    rest = b""
    while chunk := file.read(BLOCK_BYTES):
        rest += chunk
        border = format.plain_lines(rest).rfind(b"\n") + 1
        if border:
            yield rest[:border]
            rest = rest[border:]
        elif len(rest) > RECORD_BYTES_MAX:
            raise ValueError(
                f"a record has more than {RECORD_BYTES_MAX} bytes; got {rest[:100]!r}…; is a "
                "closing quotation mark missing?"
            )
    if rest:
        yield rest


def _record_at(lines: bytes, at: int) -> int:
    """Return where the first record begins that begins at a byte of a block or later."""
    if at <= 0:
        return 0
    return lines.find(b"\n", at - 1) + 1 or len(lines)


def line_blocks(file: IO[bytes], start: int, end: int | None) -> Iterator[bytes]:
    """Yield the lines that start in ``[start, end)``, in blocks of whole lines.

    Args:
        file: An open file; seekable unless *start* is 0.
        start: First byte.
        end: Last byte, exclusive; None for the end of the file.
    """
    # A line starts at *start* if the preceding byte is a newline, so reading begins there.
    position = max(start - 1, 0)
    if position:
        file.seek(position)
    inside = start == 0
    rest = b""
    while end is None or position < end:
        size = BLOCK_BYTES if end is None else min(BLOCK_BYTES, end - position)
        chunk = file.read(size)
        if not chunk:
            break
        position += len(chunk)
        if not inside:
            found = chunk.find(b"\n")
            if found < 0:
                continue
            chunk, inside = chunk[found + 1 :], True
        border = chunk.rfind(b"\n") + 1
        if border:
            yield rest + chunk[:border]
            rest = chunk[border:]
        else:
            rest += chunk
    if rest:
        yield rest + _tail(file)


def end_of_rows(file: IO[bytes], start: int, size: int, rows: int) -> tuple[int, int]:
    """Find where *rows* lines that start at or after *start* end.

    Returns:
        The start of the line after them (or *size*), and the number of lines before it.
    """
    if start:
        file.seek(start - 1)
    position = max(start - 1, 0)
    found = 0 if start else 1  # lines that have started; the first one starts at byte 0
    while chunk := file.read(_COUNT_BYTES):
        newlines = chunk.count(b"\n")
        if found + newlines > rows:
            at = -1
            while found <= rows:
                at = chunk.find(b"\n", at + 1)
                found += 1
            end = position + at + 1
            return (end, rows) if end < size else (size, rows)
        found += newlines
        position += len(chunk)
        if chunk.endswith(b"\n") and position >= size:
            found -= 1  # a newline at the very end does not start a line
    return size, found


def first_line(file: IO[bytes]) -> bytes:
    """Return the first line of a file, without its end and byte order mark."""
    line = b""
    while b"\n" not in line:
        chunk = file.read(_TAIL_BYTES)
        if not chunk:
            break
        line += chunk
    return line.split(b"\n", 1)[0].rstrip(b"\r").removeprefix(_MARK)


def _tail(file: IO[bytes]) -> bytes:
    """Continue reading to the end of the line."""
    tail = b""
    while True:
        chunk = file.read(_TAIL_BYTES)
        found = chunk.find(b"\n")
        if found >= 0:
            return tail + chunk[: found + 1]
        if not chunk:
            return tail
        tail += chunk
