"""The sources of our own spouts, as the suite wants them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from sqlalchemy import create_engine, text

from tests.unit.sources.data_sources import write
from txtopo import Fields
from txtopo.spouts import (
    DataSourceSpout,
    DeltaTransactionalSpout,
    FilesTransactionalSpout,
    MemoryTransactionalSpout,
    OpaqueMemoryTransactionalSpout,
    Outage,
    QueryTransactionalSpout,
    SequenceSpout,
)
from txtopo.testing import ScriptedSpout, ScriptedTransactionalSpout
from txtopo.testing.conformance import SpoutSource
from txtopo.testing.conformance.spout_source import Spout

FIELDS = Fields("partition long, n long")
# More than any test of the suite processes.
TXIDS_MAX = 100


class MemorySource(SpoutSource):
    live = False

    def __init__(self) -> None:
        self.rows: dict[int, list[tuple[int, int]]] = {0: [], 1: []}
        self.written = 0

    def spout(self) -> Spout:
        return MemoryTransactionalSpout(self.rows, FIELDS, self.batch_rows_max)

    def append(self, partition: int, count: int) -> Sequence[tuple[int, int]]:
        rows = [(partition, self.written + at) for at in range(count)]
        self.written += count
        self.rows[partition] += rows
        return rows

    def add_partition(self) -> None:
        self.rows[len(self.rows)] = []

    def remove_partition(self) -> None:
        del self.rows[len(self.rows) - 1]

    def lose(self, partition: int) -> None:
        self.rows[partition] = []


class OpaqueMemorySource(MemorySource):
    def __init__(self) -> None:
        super().__init__()
        self.down: set[int] = set()

    def spout(self) -> Spout:
        script = [Outage(p, txid) for p in self.down for txid in range(1, TXIDS_MAX)]
        return OpaqueMemoryTransactionalSpout(self.rows, FIELDS, self.batch_rows_max, script)

    def take_down(self, partition: int) -> None:
        self.down.add(partition)

    def bring_up(self, partition: int) -> None:
        self.down.remove(partition)


class SequenceSource(MemorySource):
    """What is written before the first start is in the first part, and the rest in the second."""

    first: type[MemoryTransactionalSpout | OpaqueMemoryTransactionalSpout]
    then: type[MemoryTransactionalSpout | OpaqueMemoryTransactionalSpout]

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[int, list[tuple[int, int]]] = {0: [], 1: []}
        self.started = False

    def spout(self) -> Spout:
        self.started = True
        most = self.batch_rows_max
        first, then = self.first(self.before, FIELDS, most), self.then(self.rows, FIELDS, most)
        return SequenceSpout(first, then)

    def append(self, partition: int, count: int) -> Sequence[tuple[int, int]]:
        rows = super().append(partition, count)
        if not self.started:
            self.rows[partition], self.before[partition] = [], [*self.before[partition], *rows]
        return rows

    def lose(self, partition: int) -> None:
        self.rows[partition] = self.before[partition] = []


class ScriptedSource(MemorySource):
    """The script is cut as the memory spouts cut their lists."""

    kind: type[ScriptedSpout | ScriptedTransactionalSpout] = ScriptedTransactionalSpout

    def __init__(self) -> None:
        super().__init__()
        self.down: set[int] = set()

    def spout(self) -> Spout:
        most = max(len(rows) for rows in self.rows.values())
        steps = range(0, most, self.batch_rows_max)
        cut = [
            {p: rows[at : at + self.batch_rows_max] for p, rows in self.rows.items()}
            for at in steps
        ]
        script = [Outage(p, txid) for p in self.down for txid in range(1, TXIDS_MAX)]
        return self.kind(FIELDS, cut or [{p: [] for p in self.rows}], script)

    def take_down(self, partition: int) -> None:
        self.down.add(partition)

    def bring_up(self, partition: int) -> None:
        self.down.remove(partition)


class FilesSource(SpoutSource):
    """Every append is a file. A batch is this many rows, and the files are one partition."""

    partitions = 1

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.options = {"batch_rows_max": self.batch_rows_max, **options}
        self.written = 0

    def spout(self) -> Spout:
        return FilesTransactionalSpout(self.folder, Fields("n long"), "csv", **self.options)

    def append(self, partition: int, count: int) -> Sequence[tuple[int]]:
        numbers = range(self.written, self.written + count)
        lines = "".join(f"{n}\n" for n in numbers)
        (self.folder / f"{self.written:05}.csv").write_text(f"n\n{lines}")
        self.written += count
        return [(n,) for n in numbers]

    def lose(self, partition: int) -> None:
        for path in self.folder.iterdir():
            path.unlink()


class LinesOfFiles(SpoutSource):
    """Files of lines behind a Python Data Source."""

    def __init__(self, folder: Path, source: Any, **options: Any) -> None:
        self.folder, self.source, self.options = folder, source, options
        self.written = 0
        self.files = self.partitions

    def spout(self) -> Spout:
        options = {"path": str(self.folder), "signature": "together"}
        return DataSourceSpout(self.source, options, **self.options)

    def append(self, partition: int, count: int) -> Sequence[tuple[int, int]]:
        numbers = range(self.written, self.written + count)
        self.written += count
        write(self.folder / f"p{partition}", *numbers)
        return [(partition, n) for n in numbers]

    def add_partition(self) -> None:
        self.files += 1
        (self.folder / f"p{self.files - 1}").touch()

    def remove_partition(self) -> None:
        self.files -= 1
        (self.folder / f"p{self.files}").unlink()

    def lose(self, partition: int) -> None:
        (self.folder / f"p{partition}").write_text("")


class SimpleLines(LinesOfFiles):
    partitions = 1

    def add_partition(self) -> None:
        pytest.skip("add_partition: a simple reader has one partition")

    def remove_partition(self) -> None:
        pytest.skip("remove_partition: a simple reader has one partition")


class DeltaSource(SpoutSource):
    """Every row is a version of a table; a batch is one version, and all are one partition."""

    partitions = 1
    batch_rows_max = 1

    options: ClassVar[dict[str, Any]] = {"batch_versions_max": 1}

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written = 0
        self._write([])

    def spout(self) -> Spout:
        return DeltaTransactionalSpout(self.folder, Fields("n long"), **self.options)

    def append(self, partition: int, count: int) -> Sequence[tuple[int]]:
        numbers = range(self.written, self.written + count)
        for number in numbers:
            self._write([number])
        self.written += count
        return [(n,) for n in numbers]

    def lose(self, partition: int) -> None:
        for path in self.folder.glob("*.parquet"):
            path.unlink()

    def _write(self, numbers: Sequence[int]) -> None:
        rows = pa.table({"n": pa.array(numbers, pa.int64())})
        write_deltalake(str(self.folder), rows, mode="append")


class DeltaChangesSource(DeltaSource):
    """The same, read as changes."""

    def spout(self) -> Spout:
        fields = Fields("n long, gone boolean")
        return DeltaTransactionalSpout(self.folder, fields, changes="gone", **self.options)

    def append(self, partition: int, count: int) -> Sequence[tuple[int, bool]]:  # type: ignore[override]
        return [(n, False) for (n,) in super().append(partition, count)]


class QuerySource(SpoutSource):
    """A table in SQLite, all of it one partition."""

    partitions = 1

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder}/rows.db"
        self.written = 0
        self._run("CREATE TABLE numbers (n INTEGER PRIMARY KEY)")

    def spout(self) -> Spout:
        rows_max = self.batch_rows_max
        return QueryTransactionalSpout(
            self.url, "numbers", "n", Fields("n long"), settle_s=0, batch_rows_max=rows_max
        )

    def append(self, partition: int, count: int) -> Sequence[tuple[int]]:
        numbers = range(self.written, self.written + count)
        self._run("INSERT INTO numbers VALUES (:n)", *numbers)
        self.written += count
        return [(n,) for n in numbers]

    def lose(self, partition: int) -> None:
        self._run("DELETE FROM numbers")

    def _run(self, statement: str, *numbers: int) -> None:
        engine = create_engine(self.url)
        with engine.begin() as connection:
            connection.execute(text(statement), [{"n": n} for n in numbers] or None)
        engine.dispose()
