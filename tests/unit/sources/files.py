"""Files in the four formats, and a spout that reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.unit.sources.driving import Row
from txtopo import Fields
from txtopo.spouts import FilesTransactionalSpout

FIELDS = Fields("name string, amount long")
LINE = Fields("line string")
FORMATS = ["csv", "json", "text", "parquet"]


def write(path: Path, format: str, rows: list[tuple[str, int]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if format == "csv":
        path.write_text("amount,other,name\n" + "".join(f"{n},x,{w}\n" for w, n in rows))
    elif format == "json":
        path.write_text("".join(json.dumps({"name": w, "amount": n}) + "\n" for w, n in rows))
    elif format == "text":
        path.write_text("".join(f"{w} {n}\n" for w, n in rows))
    else:
        columns = {"amount": [n for _, n in rows], "name": [w for w, _ in rows]}
        schema = pa.schema([("amount", pa.int32()), ("name", pa.string())])
        pq.write_table(pa.table(columns, schema=schema), path, row_group_size=7)


def spout(path: Path | str, format: Any = "csv", **options: Any) -> FilesTransactionalSpout:
    fields = LINE if format == "text" else FIELDS
    return FilesTransactionalSpout(path, fields, format, **options)


def expected(format: str, rows: list[tuple[str, int]]) -> list[Row]:
    return [(f"{w} {n}",) for w, n in rows] if format == "text" else list(rows)


def numbered(count: int, start: int = 0) -> list[tuple[str, int]]:
    return [(f"w{n}", n) for n in range(start, start + count)]
