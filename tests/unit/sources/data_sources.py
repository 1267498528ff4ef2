"""Python Data Sources of the kind that PySpark's documentation shows: lines of files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
    SimpleDataSourceStreamReader,
)
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows

from txtopo.errors import SourceDataLost

SCHEMA = "partition bigint, n bigint"
Offset = dict[str, int]


class LinesSource(DataSource):
    """Each file of a folder is a partition; an offset says how many lines of each were read.

    Options: ``path``; ``rows``: tuples, named rows or Arrow batches; ``limit``: the default limit.
    """

    @classmethod
    def name(cls) -> str:
        return "lines"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        kinds = {"old": OldLinesReader, "together": TogetherReader}
        kind = kinds.get(self.options.get("signature", ""), LinesReader)
        return kind(Path(self.options["PATH"]), self.options.get("rows", "tuples"), schema)


class SimpleLinesSource(LinesSource):
    @classmethod
    def name(cls) -> str:
        return "simple-lines"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return DataSource.streamReader(self, schema)

    def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:
        return SimpleLinesReader(Path(self.options["path"]))


class Part(InputPartition):
    def __init__(self, name: str, start: int, end: int) -> None:
        super().__init__(name)
        self.name, self.start, self.end = name, start, end


class OldLinesReader(DataSourceStreamReader):
    def __init__(self, folder: Path, rows: str, schema: Any) -> None:
        assert schema.simpleString().startswith("struct<partition:bigint,")
        self.folder, self.rows = folder, rows

    def initialOffset(self) -> Offset:
        return {}

    def latestOffset(self) -> Offset:  # type: ignore[override]
        return {path.name: len(lines(path)) for path in sorted(self.folder.glob("p*"))}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        parts = [Part(name, start.get(name, 0), stop) for name, stop in end.items()]
        return [part for part in parts if part.start < part.end]

    def read(self, partition: Any) -> Iterator[Any]:
        found = lines(self.folder / partition.name)
        if len(found) < partition.end:
            raise SourceDataLost(f"{partition.name} has {len(found)} lines")
        rows = [(int(partition.name[1:]), int(n)) for n in found[partition.start : partition.end]]
        if self.rows == "arrow":
            columns = {"n": [n for _, n in rows], "partition": [p for p, _ in rows]}
            schema = pa.schema([("n", pa.int64()), ("partition", pa.int64())])
            yield pa.RecordBatch.from_pydict(columns, schema=schema)
        elif self.rows == "named":
            yield from (Row(n=n, partition=p) for p, n in rows)
        else:
            yield from rows

    def commit(self, end: Offset) -> None:
        with (self.folder / "committed").open("a") as notes:
            notes.write(f"{sum(end.values())}\n")

    def stop(self) -> None:
        (self.folder / "stopped").touch()


class LinesReader(OldLinesReader):
    together = False
    """Whether the limit is one of all files together, not of each."""

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # type: ignore[override]
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else 1_000_000
        latest = start | super().latestOffset()
        check(start, latest)
        for name, end in sorted(latest.items()):
            latest[name] = min(end, start.get(name, 0) + most)
            most -= self.together * (latest[name] - start.get(name, 0))
        start.clear()  # it may do what it likes with what it gets
        return latest

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(3)


class TogetherReader(LinesReader):
    together = True


class TableReader(DataSourceStreamReader):
    """Gives one table, as the one partition from 0 to 1."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]
        return {"at": 1}

    def partitions(self, start: Any, end: Any) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield self._table


class CountingReader(DataSourceStreamReader):
    """As in PySpark's documentation: it counts its own calls, and begins again in each process."""

    def __init__(self) -> None:
        self.current = 0

    def initialOffset(self) -> Offset:
        return {"offset": 0}

    def latestOffset(self) -> Offset:  # type: ignore[override]
        self.current += 2
        return {"offset": self.current}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        return [InputPartition(n) for n in range(start["offset"], end["offset"])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield (0, partition.value)


class SimpleLinesReader(SimpleDataSourceStreamReader):
    """Reads two lines of the only file at a time."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "p0"

    def initialOffset(self) -> Offset:
        return {"line": 0}

    def read(self, start: Offset) -> tuple[Iterator[Any], Offset]:
        there = {"line": len(lines(self.path))}
        check(start, there)
        end = {"line": min(start["line"] + 2, there["line"])}
        return self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(self, start: Offset, end: Offset) -> Iterator[Any]:
        found = lines(self.path)
        if len(found) < end["line"]:
            raise SourceDataLost(f"{len(found)} lines")
        return iter([(0, int(n)) for n in found[start["line"] : end["line"]]])


def check(start: Offset, there: Offset) -> None:
    """Notice what an offset cannot tell by itself: that it lies behind the end."""
    gone = [name for name, end in there.items() if end < start.get(name, 0)]
    if gone:
        raise SourceDataLost(f"{', '.join(gone)}: read up to {start}, but there is {there}")


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def write(path: Path, *numbers: int) -> None:
    with path.open("a") as file:
        file.writelines(f"{n}\n" for n in numbers)
