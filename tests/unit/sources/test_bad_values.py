"""A value that nobody further on could hold is named where it was read."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.sources.data_sources import TableReader
from tests.unit.sources.driving import Planner, emit
from txtopo import Fields
from txtopo.errors import EmitError
from txtopo.spouts import DataSourceSpout, DeltaTransactionalSpout, QueryTransactionalSpout

pytestmark = pytest.mark.integration


def times(*microseconds: int, unit: str = "us") -> pa.Array:
    return pa.array(microseconds, pa.int64()).cast(pa.timestamp(unit))


def broken_text() -> pa.Array:
    raw = pa.array([b"a", b"\xff"], pa.binary())
    return pa.StringArray.from_buffers(2, *raw.buffers()[1:])


@pytest.mark.parametrize(("unit", "bad"), [("us", 2**62), ("ns", 1)])
def test_a_file_of_delta_is_named(tmp_path: Path, unit: str, bad: int) -> None:
    import pyarrow.parquet as pq

    column = times(0, 0, bad, unit=unit).cast(pa.timestamp(unit, tz="UTC"))
    pq.write_table(pa.table({"at": column}), tmp_path / "a.parquet")
    at = {"name": "at", "type": "timestamp", "nullable": True, "metadata": {}}
    schema = {"type": "struct", "fields": [at]}
    actions: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": "a",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(schema),
                "partitionColumns": [],
                "configuration": {},
            }
        },
        {
            "add": {
                "path": "a.parquet",
                "size": 1,
                "partitionValues": {},
                "modificationTime": 0,
                "dataChange": True,
            }
        },
    ]
    (tmp_path / "_delta_log").mkdir()
    log = tmp_path / "_delta_log" / f"{0:020}.json"
    log.write_text("".join(json.dumps(each) + "\n" for each in actions))
    made = DeltaTransactionalSpout(tmp_path, Fields("at timestamp"))

    with pytest.raises(EmitError, match=r"field 'at' of row 2 of file 'a\.parquet' of version 0"):
        emit(made, Planner(made).plan())


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        *(("long", "x"), ("string", 7), ("timestamp_ntz", "noon"), ("short", 2**15)),
        *(("timestamp", 1_700_000_000), ("timestamp_ntz", "2026-01-31 12:00:00+02:00")),
    ],
)
def test_a_row_of_a_query_is_named(tmp_path: Path, kind: str, bad: object) -> None:
    path = tmp_path / "a.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE words (id INTEGER, v)")
        connection.executemany("INSERT INTO words VALUES (?, ?)", [(1, None), (2, bad)])
    connection.close()
    fields = Fields(f"id long, v {kind}")
    made = QueryTransactionalSpout(
        f"sqlite:///{path}", "words", key="id", fields=fields, settle_s=0
    )

    with pytest.raises(EmitError, match=r"'words' with id (2|after None up to 2) cannot be read"):
        emit(made, Planner(made).plan())


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("timestamp_ntz", times(0, 2**62)),
        ("timestamp_ntz", times(0, 1, unit="ns")),
        ("timestamp_ntz", times(0, 2**50, unit="s")),
        ("date", pa.array([0, 2**31 - 1], pa.int32()).cast(pa.date32())),
        ("string", broken_text()),
    ],
)
def test_a_record_batch_of_a_data_source_is_named(kind: str, column: pa.Array) -> None:
    made = DataSourceSpout(TableReader(pa.table({"v": column})), fields=Fields(f"v {kind}"))

    with pytest.raises(EmitError, match=r"field 'v' of row 1 of record batch 0 .* read from"):
        emit(made, Planner(made).plan())
