"""Exports: writes a state to a Parquet, CSV or JSON lines file while it is read.

A file is written under a temporary name in its folder and renamed when it is complete, so there is
never half a file. Anything but a plain file, such as a pipe, is written to directly.

=========  ==========================================================================
format     how values are written
=========  ==========================================================================
parquet    with their types; a json as its text; the metadata has the txid
csv        with a heading; text in quotation marks, NULL empty without; bytes in base64
jsonl      an object a line; decimals and times as text; bytes in base64; a json as it is
=========  ==========================================================================
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from txtopo.errors import StateUsageError
from txtopo.state.columns import json_value
from txtopo.state.plain_values import json_of
from txtopo.state.reader import StateReader

Write = Callable[[IO[bytes], StateReader], int]


def export_format(path: Path, asked: str | None) -> str:
    """Return the format of a file: the requested one, or the one of its suffix.

    Raises:
        StateUsageError: The suffix does not name a format.
    """
    found = asked or _SUFFIXES.get(path.suffix.lower())
    if found is None:
        raise StateUsageError(
            f"{str(path)!r} does not name a format; expected a name that ends in "
            f"{', '.join(_SUFFIXES)}, or --format {'|'.join(FORMATS)}",
            path=str(path),
        )
    return found


def export(reader: StateReader, path: Path, form: str, *, force: bool) -> int:
    """Write everything from an open reader to a file, and return the number of rows.

    Raises:
        StateUsageError: The file exists, and *force* is false.
        OSError: It cannot be written; nothing is left of it.
    """
    with _output(path, force=force) as file:
        return FORMATS[form](file, reader)


@contextmanager
def _output(path: Path, *, force: bool) -> Iterator[IO[bytes]]:
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    target = Path(os.path.realpath(path))
    if target.exists() and not force:
        raise StateUsageError(
            f"{str(path)!r} already exists; choose another name, or use --force", path=str(path)
        )
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


_GROUP_ROWS = 131_072
_GROUP_BYTES = 2**26


def _parquet(file: IO[bytes], reader: StateReader) -> int:
    """Write row groups of a usual size, not one for each batch."""
    batches = reader.to_batches()
    rows = 0
    with pyarrow.parquet.ParquetWriter(file, batches.schema) as writer:
        group: list[pa.RecordBatch] = []
        for batch in batches:
            group.append(batch)
            rows += batch.num_rows
            full = sum(each.num_rows for each in group) >= _GROUP_ROWS
            if full or sum(each.nbytes for each in group) >= _GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(group))
                group = []
        if group:
            writer.write_table(pa.Table.from_batches(group))
    return rows


def _csv(file: IO[bytes], reader: StateReader) -> int:
    batches = reader.to_batches()
    schema = pa.schema(
        [each.with_type(pa.string()) if _is_bytes(each) else each for each in batches.schema]
    )
    rows = 0
    with pyarrow.csv.CSVWriter(file, schema) as writer:
        for batch in batches:
            writer.write_batch(pa.record_batch(list(map(_without_bytes, batch)), schema))
            rows += batch.num_rows
    return rows


def _is_bytes(field: pa.Field) -> bool:
    return bool(pa.types.is_binary(field.type))


def _without_bytes(column: pa.Array) -> pa.Array:
    if not pa.types.is_binary(column.type):
        return column
    return pa.array([json_of(each) for each in column.to_pylist()], pa.string())


def _json_lines(file: IO[bytes], reader: StateReader) -> int:
    batches = reader.to_batches()
    documents = {field.name for field in reader.table.value if field.type == "json"}
    rows = 0
    for batch in batches:
        lines = [json.dumps(_line(row, documents), ensure_ascii=False) for row in batch.to_pylist()]
        file.write("".join(f"{line}\n" for line in lines).encode())
        rows += batch.num_rows
    return rows


def _line(row: dict[str, object], documents: set[str]) -> object:
    return {
        name: json_value(value) if name in documents and isinstance(value, str) else json_of(value)
        for name, value in row.items()
    }


FORMATS: dict[str, Write] = {"parquet": _parquet, "csv": _csv, "jsonl": _json_lines}
_SUFFIXES = {".parquet": "parquet", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
