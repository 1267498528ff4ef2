"""Reads versions of a state's Delta table with pyarrow: files, rows, snapshots, earlier txids.

Filters are applied to rows only, not to statistics: delta-rs writes the statistics of text as
views, which pyarrow cannot compare, and 0.0 is not found in a file whose smallest value is -0.0.
Ranges of timestamps and whole numbers are the exception: their statistics exclude most files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem, PyFileSystem

from state_backends.delta.failures import FAILURES, translated
from state_backends.delta.layout import Layout, Location
from state_backends.delta.library import DeltaStorageHandler
from state_backends.delta.spark_session import check_session
from state_backends.delta.tables import LEDGER, application, notes_of, unpacked
from txtopo.errors import ValueRefusedError
from txtopo.plugins.stores import Aggregate, Key, Ledger, Row, Snapshot, StateTable
from txtopo.state.log_mode import is_exact

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from state_backends.delta.library import DeltaTable


class Reader:
    """Reads the table of a state.

    Attributes:
        uri: Where the table is.
    """

    def __init__(self, label: Location, state: str, schema: pa.Schema) -> None:
        self.uri = label.table(state)
        self._local = label.local
        self._options = label.options
        self._schema = schema

    def read(
        self,
        table: DeltaTable,
        condition: Any = None,
        wanted: Callable[[LogFile], bool] = lambda _: True,
    ) -> pa.Table:
        """Return the rows of a version.

        Args:
            table: The table at that version.
            condition: A filter on rows; None reads all rows.
            wanted: Returns whether to read a file.
        """
        paths = [file.path for file in files_of(table) if wanted(file)]
        if not paths:
            return self._schema.empty_table()
        dataset = self._dataset(paths)
        if condition is None:
            return dataset.to_table()
        found = [pa.Table.from_batches([batch]).filter(condition) for batch in dataset.to_batches()]
        return pa.concat_tables([self._schema.empty_table(), *found])

    def within(self, table: DeltaTable, condition: Any) -> pa.Table:
        """Return the rows of a version in a range of timestamps or whole numbers."""
        paths = [file.path for file in files_of(table)]
        if not paths:
            return self._schema.empty_table()
        return self._dataset(paths).to_table(filter=condition)

    def batches(self, table: DeltaTable) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a version; only some of its files are held at a time."""
        paths = [file.path for file in files_of(table)]
        if paths:
            yield from self._dataset(paths).to_batches(batch_size=_ROWS_AT_A_TIME)

    def _dataset(self, paths: list[str]) -> ds.Dataset:
        if self._local:
            files: Any = LocalFileSystem()
            paths = [os.path.join(self.uri, path) for path in paths]
        else:
            files = PyFileSystem(DeltaStorageHandler(self.uri, self._options))
        # Another program's OPTIMIZE may have written INT96. If read as ns, years from 2262 on wrap.
        form = ds.ParquetFileFormat(coerce_int96_timestamp_unit="us")
        return ds.dataset(paths, schema=self._schema, format=form, filesystem=files)


ANY_TXID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LogFile:
    """A data file of a table in mode ``log``.

    Attributes:
        path: Path below the folder of the table.
        first_txid: Smallest txid of its rows; 0 if its writer kept no statistics.
        last_txid: Largest txid of its rows; larger than all if its writer kept no statistics.
        rows: Number of rows; 0 if its writer kept no statistics.
    """

    path: str
    first_txid: int
    last_txid: int
    rows: int


def files_of(table: DeltaTable) -> list[LogFile]:
    """Return the data files, in the order of their last txids."""
    columns = statistics(table, "path", "min.txid", "max.txid", "num_records")
    files = [
        LogFile(
            path,
            0 if first is None else first,
            ANY_TXID if last is None else last,
            rows or 0,
        )
        for path, first, last, rows in zip(*columns, strict=True)
        if rows != 0
    ]
    return sorted(files, key=lambda file: file.last_txid)


def statistics(table: DeltaTable, *names: str) -> list[list[Any]]:
    """Return statistics of each file by column; None where a writer kept none."""
    actions = pa.table(table.get_add_actions(flatten=True))
    nothing = [None] * actions.num_rows
    there = set(actions.column_names)
    return [actions.column(name).to_pylist() if name in there else nothing for name in names]


_SKIPPING = pc.ScalarAggregateOptions(skip_nulls=True, min_count=1)

_DIGITS = 76
"""Room for the sum of any number of rows: Arrow's own sums wrap silently."""


def combined_rows(state: StateTable, rows: pa.Table) -> pa.Table:
    """Return one row for each key: key, value, and the largest txid.

    Raises:
        ValueRefusedError: A sum does not fit its column.
    """
    # Our own names: the user's might equal those that pyarrow generates.
    keys = [f"k{at}" for at in range(len(state.key))]
    values = [f"v{at}" for at in range(len(state.value))]
    wide = rows.select([*state.key.names, *state.value.names, "txid"])
    wide = wide.rename_columns([*keys, *values, "t"])
    functions: list[tuple[str, str, pc.ScalarAggregateOptions]] = [("t", "max", _SKIPPING)]
    for name, field, aggregate in zip(values, state.value, state.aggregates, strict=True):
        column = wide.column(name)
        if aggregate.operator == "add" and is_exact(field.type):
            scale = column.type.scale if pa.types.is_decimal(column.type) else 0
            wide = _with(wide, name, column.cast(pa.decimal256(_DIGITS, scale)))
        elif aggregate.operator != "add" and pa.types.is_floating(column.type):
            wide = wide.append_column(f"{name}n", pc.is_nan(column))
            functions.append((f"{name}n", "max", _SKIPPING))
        functions.append((name, _function(aggregate), _SKIPPING))
    found = wide.group_by(keys, use_threads=False).aggregate(functions)
    combined = [
        _with_nan(found, name, aggregate)
        for name, aggregate in zip(values, state.aggregates, strict=True)
    ]
    columns = [*(found.column(key) for key in keys), *combined, found.column("t_max")]
    fields = [*state.key.arrow_schema(), *state.value.arrow_schema(), pa.field("txid", pa.int64())]
    named = pa.table(columns, names=[field.name for field in fields])
    try:
        return named.cast(pa.schema(fields))
    except pa.ArrowInvalid as error:
        raise ValueRefusedError(
            f"a sum of state {state.name!r} does not fit its column: {error}; a log detects this "
            "only when it is read or folded; use a wider type, or open_state(…, mode='table')",
            state=state.name,
        ) from error


def _with_nan(found: pa.Table, name: str, aggregate: Aggregate) -> Any:
    """Return the combined values, with NaN as the largest number; pyarrow ignores NaN."""
    column = found.column(f"{name}_{_function(aggregate)}")
    if f"{name}n_max" not in found.column_names:
        return column
    nan = found.column(f"{name}n_max")
    if aggregate.operator == "min":
        nan = pc.and_kleene(nan, pc.is_null(column, nan_is_null=True))
    return pc.if_else(pc.fill_null(nan, False), pa.scalar(float("nan"), column.type), column)


def _function(aggregate: Aggregate) -> str:
    assert aggregate.operator is not None
    return {"add": "sum", "min": "min", "max": "max"}[aggregate.operator]


def _with(rows: pa.Table, name: str, column: Any) -> pa.Table:
    return rows.set_column(rows.column_names.index(name), name, column)


_ROWS_AT_A_TIME = 10_000


class DeltaSnapshot(Snapshot):
    """Rows and ledger of one version of the table; later versions do not change it.

    Args:
        table: The table at that version.
        reader: Reads it.
        layout: Its columns.
        ledger: The ledger of that version.
        label: The state, for messages.
        by_spark: Whether the URL asks for Spark to read the table itself.
        flaw: Returns the answer of ``flaw``.
    """

    def __init__(
        self,
        table: DeltaTable,
        reader: Reader,
        layout: Layout,
        ledger: Ledger | None,
        label: str,
        *,
        by_spark: bool,
        flaw: Callable[[], str | None],
    ) -> None:
        self._table = table
        self._flaw = flaw
        self._reader = reader
        self._layout = layout
        self._ledger = ledger
        self._label = label
        self._by_spark = by_spark

    @property
    def ledger(self) -> Ledger | None:
        """The ledger, or None for a state that nobody has claimed."""
        return self._ledger

    def flaw(self) -> str | None:
        """Return which change of the rows left out the ledger, as ``Snapshot.flaw`` says."""
        return self._flaw()

    def last_txid(self) -> int:
        """Return the largest txid of a row, from the statistics of the files."""
        (found,) = statistics(self._table, "max.txid")
        return super().last_txid() if None in found else max(found, default=0)

    def rows(self, keys: Sequence[Key]) -> dict[Key, Row]:
        """Return the rows of those *keys* that exist, including tombstones."""
        return dict(self.starting(keys))

    def between(
        self, table: StateTable, above: Any, up_to: Any, txid: int
    ) -> Iterator[tuple[Key, Row]]:
        """Yield the rows in a range, and what *txid* wrote, as ``Snapshot.between`` says."""
        assert table.range_by is not None
        kind = self._layout.schema.field(table.range_by).type
        column = pc.field(table.range_by)
        condition = column.is_valid()
        if above is not None:
            condition &= column > pa.scalar(above, kind)
        if up_to is not None:
            condition &= column <= pa.scalar(up_to, kind)
        if self._layout.opaque and self._ledger is not None and self._ledger.txid >= txid:
            condition |= pc.field("txid") == txid
        try:
            found = self._reader.within(self._table, condition)
        except FAILURES as error:
            raise self._translated(error) from error
        return _rows(found.to_batches(), self._layout)

    def starting(self, prefixes: Sequence[Key]) -> Iterator[tuple[Key, Row]]:
        """Yield the rows whose key begins with a prefix, as ``Snapshot.starting`` says."""
        if not prefixes:
            return
        # Filtering on each column separately narrows the rows; the prefixes are compared below.
        schema = self._layout.state.key.arrow_schema()
        columns = zip(schema, zip(*prefixes, strict=True), strict=False)
        among = [pc.field(f.name).isin(pa.array(set(part), f.type)) for f, part in columns]
        wanted, width = set(prefixes), len(prefixes[0])
        found = self._read(reduce(lambda left, right: left & right, among))
        for key, row in _rows(found.to_batches(), self._layout):
            if key[:width] in wanted:
                yield key, row

    def items(self) -> Iterator[tuple[Key, Row]]:
        """Yield every row, including tombstones."""
        if self._layout.state.mode == "log":
            yield from _rows(self._read(None).to_batches(_ROWS_AT_A_TIME), self._layout)
            return
        try:
            yield from _rows(self._reader.batches(self._table), self._layout)
        except FAILURES as error:
            raise self._translated(error) from error

    def frame(self, spark: SparkSession) -> DataFrame | None:
        """Return the visible rows as Spark reads them at this version, if the URL asks for that."""
        if not self._by_spark or self._layout.state.mode == "log":
            return None
        check_session(spark)
        version = self._table.version()
        frame = spark.read.format("delta").option("versionAsOf", version).load(self._reader.uri)
        if self._layout.opaque:
            frame = frame.where("NOT coalesce(deleted, false)")
        names = [*self._layout.keys, *self._layout.values]
        return frame.select(*(f"`{name}`" for name in names))

    def _read(self, condition: Any) -> pa.Table:
        try:
            found = self._reader.read(self._table, condition)
        except FAILURES as error:
            raise self._translated(error) from error
        if self._layout.state.mode == "log":
            return combined_rows(self._layout.state, found)
        return found

    def _translated(self, error: Exception) -> Exception:
        return translated(error, self._label, uri=self._table.table_uri)


def _rows(found: Iterable[pa.RecordBatch], layout: Layout) -> Iterator[tuple[Key, Row]]:
    width, values = len(layout.keys), len(layout.values)
    for batch in found:
        for record in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            key, current = record[:width], record[width : width + values]
            txid = record[width + values]
            if not layout.opaque:
                yield key, Row(txid, current)
                continue
            previous_txid, deleted = record[-2:]
            if previous_txid is None:
                yield key, Row(txid, current, deleted=deleted)
            else:
                previous = record[width + values + 1 : -2]
                yield key, Row(txid, current, previous, previous_txid, deleted)


_FIRST_LOOK = 64

_MS_OF_A_SECOND = 1000


def version_of(
    txid: int,
    newest: DeltaTable,
    open_at: Callable[[int], DeltaTable],
    topology: str,
    state: str,
) -> DeltaTable | None:
    """Return the last version whose ledger is not beyond *txid*, or None if the log has none.

    Its ledger holds another txid if *txid* is within a group.

    The txids of versions never decrease, so a binary search works. ``history()`` cannot be used: it
    counts back from the version that is newest when it is called.

    Args:
        txid: The txid.
        newest: The table at its newest version.
        open_at: Opens another version.
        topology: The topology that owns the state.
        state: Name of the state.
    """
    if txid_of(newest, topology, state) <= txid:
        return newest
    found: DeltaTable | None = None
    low, high = 0, newest.version() - 1
    while low <= high:
        middle = (low + high) // 2
        try:
            table = open_at(middle)
        except FAILURES:
            low = middle + 1  # the log does not go back that far
            continue
        if txid_of(table, topology, state) <= txid:
            found, low = table, middle + 1
        else:
            high = middle - 1
    return found


def txid_of(table: DeltaTable, topology: str, state: str) -> int:
    """Return the txid that a version of a table holds; 0 for none."""
    packed = table.transaction_version(application(topology, state))
    return 0 if packed is None else unpacked(packed)[1]


def seconds_since(table: DeltaTable, txid: int) -> int | None:
    """Return the age of *txid* at the newest commit, in seconds, rounded up.

    None if the log does not go back that far.
    """
    newest: int | None = None
    for commit in _commits(table):
        moment = int(commit["timestamp"])
        newest = moment if newest is None else newest
        held = _txid(commit)
        if held is not None and held <= txid:
            return -((moment - newest) // _MS_OF_A_SECOND)
    return None


def _txid(commit: dict[str, Any]) -> int | None:
    version = notes_of(commit).get(LEDGER)
    return None if version is None else unpacked(int(version))[1]


def _commits(table: DeltaTable) -> Iterator[dict[str, Any]]:
    """Yield the commits from the newest back, in growing steps, since each is a file to read."""
    limit, seen = _FIRST_LOOK, 0
    while True:
        commits = table.history(limit)
        yield from commits[seen:]
        if len(commits) < limit:
            return
        limit, seen = limit * 4, len(commits)
