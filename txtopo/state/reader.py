"""StateReader: reads a state, in or outside a topology, in the form that users see.

Users see a mean where its sum and count are stored, and a number where a sketch is stored. They
read key by key, or everything as an Arrow table, a pandas frame or a Spark DataFrame.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from txtopo.errors import (
    ConfigError,
    StateUsageError,
    StoreUnavailable,
    ValueRefusedError,
    similar,
)
from txtopo.notebook import html_of
from txtopo.state.aggregates import Aggregate, MeanCount, MeanSum
from txtopo.state.backend import (
    Snapshot,
    StateBackend,
    StateSize,
    StateTable,
    Values,
    held_ledger,
)
from txtopo.state.columns import Columns, values_of
from txtopo.state.ledger import Ledger
from txtopo.tuples import Field, Fields

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from txtopo.state.registry import State

TXID = "txid"
"""The key of the last txid whose effect is included, in the schema metadata of an Arrow table and
in the ``attrs`` of a pandas frame."""
# Values are Python objects until their part of the table is made.
_ROWS_AT_A_TIME = 10_000


@runtime_checkable
class FrameSnapshot(Protocol):
    """A :class:`~txtopo.state.backend.Snapshot` that Spark can read without this process."""

    def frame(self, spark: SparkSession) -> DataFrame | None:
        """Return the visible rows: key columns, then value columns as they are stored.

        Returns:
            The DataFrame; None if the rows must pass through this process.

        Raises:
            ConfigError: The session cannot read the store; the message says what is missing.
        """
        ...


class StateReader:
    """Reads a consistent snapshot of a state: the result of the batches 1 to ``ledger.txid``.

    It is a context manager. Everything read in one ``with`` block is from the same moment. It takes
    no lock and never delays a topology.

    Example:
        >>> with open_state("sqlite:///counts.db", table="counts").reader() as reader:
        ...     print(reader.get("the"), reader.ledger.txid)
        2 3
    """

    def __init__(
        self,
        table: str | None,
        declared: StateTable,
        opener: Callable[[StateTable], StateBackend],
        txid: int | None = None,
    ) -> None:
        self._txid = txid
        self._wanted = table
        self._table = declared
        self._open = opener
        self._stack = ExitStack()
        self._snapshot: Snapshot | None = None
        self._backend: StateBackend | None = None

    @property
    def ledger(self) -> Ledger | None:
        """The ledger, with the last txid, its attempt and the writer's epoch; None if unclaimed."""
        return self._opened().ledger

    @property
    def is_snapshot(self) -> bool:
        """Whether everything is read from the same moment; a backing map has no snapshots."""
        return self._opened().is_snapshot

    @property
    def table(self) -> StateTable:
        """The columns of the state, as the store has recorded them."""
        self._opened()
        return self._table

    def size(self) -> StateSize:
        """Return the size of the state as far as the store has it; an estimate, as of now."""
        self._opened()
        assert self._backend is not None
        return self._backend.size()

    def sql(self) -> str | None:
        """Return a query for the rows as readers see them; None if SQL cannot read the store.

        In a database it reads the view of the state. For a Delta table it leaves out bookkeeping
        and deleted rows; it expects the table under the name of the state, which each tool gives it
        in its own way. A mean comes after its sum and count, as in the view.
        """
        self._opened()
        assert self._backend is not None
        return self._backend.sql()

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of *key*: plain for one value field, else a dict by field name.

        A mean and a count of distinct values are returned as numbers, not as they are stored.
        """
        snapshot = self._opened()
        packed = Columns(self._table.name, "key", self._table.key).pack(key)
        row = snapshot.rows([packed]).get(packed)
        values = None if row is None else row.visible()
        return default if values is None else ReaderView(self._table).value(values)

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Yield every key with its value, in no particular order."""
        snapshot = self._opened()
        keys, shown = Columns(self._table.name, "key", self._table.key), ReaderView(self._table)
        for key, row in snapshot.items():
            seen = row.visible()
            if seen is not None:
                yield keys.plain(key), shown.value(seen)

    def to_arrow(self) -> pa.Table:
        """Return all keys with their values as an Arrow table, which outlives the block.

        The columns are the key columns and the value columns, with the declared types. A ``json``
        value is returned as text. A mean is a ``double``; a mean of decimals is a decimal with four
        more digits after the point (22 in total, unless its values have more). The metadata of the
        schema has the last txid as ``txid``, unless the state is unclaimed.

        The rows are converted a few thousand at a time, so that only the table is held as a whole.

        Raises:
            ValueRefusedError: The mean of decimals does not fit; read it with :meth:`items`.
        """
        import pyarrow as pa

        batches = self.to_batches()
        return pa.Table.from_batches(batches, batches.schema)

    def to_batches(self) -> pa.RecordBatchReader:
        """Return all keys with their values as Arrow record batches, a few thousand rows each.

        Columns, types and metadata are the same as in :meth:`to_arrow`. The batches are made while
        they are read, inside the ``with`` block, so a state of any size can be written elsewhere.

        Raises:
            ValueRefusedError: The mean of decimals does not fit; raised when its batch is read.
        """
        import pyarrow as pa

        snapshot, view = self._opened(), ReaderView(self._table)
        told = None if snapshot.ledger is None else {TXID: str(snapshot.ledger.txid)}
        fields = [*self._table.key.arrow_schema(), *view.fields.arrow_schema()]
        schema = pa.schema(fields, metadata=told)
        rows = (
            (*key, *view.row(seen))
            for key, row in snapshot.items()
            if (seen := row.visible()) is not None
        )

        def batches() -> Iterator[pa.RecordBatch]:
            while part := list(islice(rows, _ROWS_AT_A_TIME)):
                columns = zip(schema.types, zip(*part, strict=True), strict=True)
                # It may have several chunks, since a column of text has 2 GiB at most.
                arrays = [pa.array(column, kind) for kind, column in columns]
                yield from pa.Table.from_arrays(arrays, schema=schema).to_batches()

        return pa.RecordBatchReader.from_batches(schema, batches())

    def to_pandas(self) -> pd.DataFrame:
        """Return all keys with their values as a pandas frame, as :meth:`to_arrow` does.

        Whole numbers and booleans have pandas' nullable types (``Int64``, ``boolean``);
        decimals and dates are Python objects. ``frame.attrs["txid"]`` is the last txid.

        Raises:
            ConfigError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise ConfigError(
                "to_pandas needs the package pandas, which is not installed; pip install pandas, "
                "or use to_arrow()"
            ) from error
        import pyarrow as pa

        table = self.to_arrow()
        with_null = {
            pa.int8(): pd.Int8Dtype(),
            pa.int16(): pd.Int16Dtype(),
            pa.int32(): pd.Int32Dtype(),
            pa.int64(): pd.Int64Dtype(),
            pa.bool_(): pd.BooleanDtype(),
        }
        held = table.schema.metadata or {}
        # The table is released column by column, so that there are never two copies of it.
        frame: pd.DataFrame = table.to_pandas(
            types_mapper=with_null.get, split_blocks=True, self_destruct=True
        )
        if TXID.encode() in held:
            frame.attrs[TXID] = int(held[TXID.encode()])
        return frame

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """Return all keys with their values as a Spark DataFrame, which outlives the block.

        The columns have the declared types; ``json`` is a string. They come from :meth:`to_arrow`,
        so the rows pass through this process. A Delta state opened with
        ``?writer=spark`` is read by Spark itself, at the version of this reader, unless it keeps
        a mean; compute such a DataFrame, or ``persist`` it, before the version is too old to be
        read (``?history_txids=…``).

        Args:
            spark: The session.

        Raises:
            ConfigError: The state is to be read by Spark, and the session cannot read Delta.
        """
        snapshot, view = self._opened(), ReaderView(self._table)
        if isinstance(snapshot, FrameSnapshot) and view.as_stored:
            frame = snapshot.frame(spark)
            if frame is not None:
                return frame
        columns = [*self._table.key, *view.fields]
        # Spark would read text unchanged, but a time without a zone in the zone of the session.
        declared = ", ".join(
            f"`{each.name.replace('`', '``')}` {'string' if each.type == 'json' else each.type}"
            for each in columns
        )
        return spark.createDataFrame(self.to_arrow(), declared)

    def _repr_html_(self) -> str:
        return html_of(self)

    def __enter__(self) -> StateReader:
        with ExitStack() as stack:
            backend = self._connected(stack)
            asked = backend.snapshot() if self._txid is None else backend.snapshot_of(self._txid)
            self._snapshot, self._backend = stack.enter_context(asked), backend
            self._stack = stack.pop_all()
        return self

    def _connected(self, stack: ExitStack) -> StateBackend:
        """Open the backend of the state that the store holds; *stack* closes it."""
        backend = self._open(self._table)
        stack.callback(backend.close)
        found = self._pick(backend)
        if found != self._table:
            self._table = found
            backend = self._open(found)
            stack.callback(backend.close)
        return backend

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._snapshot = self._backend = None
        self._stack.close()

    def _pick(self, backend: StateBackend) -> StateTable:
        stored = backend.stored()
        if stored is None:
            return self._table
        if not stored:
            raise StateUsageError(
                "the store holds no states; is its URL right, and has its topology run yet?",
                expected=(),
            )
        names = ", ".join(sorted(table.name for table in stored))
        if self._wanted is None:
            if len(stored) == 1:
                return stored[0]
            raise StateUsageError(
                f"no state was named, but the store holds {names}; expected the name of its "
                "table: table='…', or --table of the command",
                expected=tuple(sorted(table.name for table in stored)),
            )
        for table in stored:
            if table.name == self._wanted:
                return table
        meant = similar(self._wanted, [table.name for table in stored])
        raise StateUsageError(
            f"the store holds no state {self._wanted!r}; it holds {names}; "
            f"{meant or 'has its topology run yet?'}",
            table=self._wanted,
            expected=tuple(sorted(table.name for table in stored)),
        )

    def _opened(self) -> Snapshot:
        if self._snapshot is None:
            raise StateUsageError("the reader is not open; use it in a with statement")
        return self._snapshot


@contextmanager
def read_together(*readers: StateReader | State) -> Iterator[tuple[StateReader, ...]]:
    """Open several states of one topology and one database at the same instant.

    All are the result of the same batches: their ledgers have the same txid. It takes no lock and
    never delays a topology.

    Args:
        readers: The states, two or more, or readers of them that are not open.

    Yields:
        A reader of each, in their order.

    Raises:
        StateUsageError: They are in different databases, or of different topologies, or their store
            has no snapshot of several states; or a reader is of an earlier txid. The message names
            what it refuses.
        StoreUnavailable: The store cannot be reached; or the states hold different txids, since
            they share no transaction, see :mod:`txtopo.state.together`. Read them again.

    Example:
        >>> counts, totals = (open_state("sqlite:///both.db", table=name) for name in ("a", "b"))
        >>> with read_together(counts, totals) as (counted, total):
        ...     print(counted.ledger.txid == total.ledger.txid)
        True
    """
    opened = tuple(each if isinstance(each, StateReader) else each.reader() for each in readers)
    if len(opened) < 2:
        raise StateUsageError(
            f"read_together reads two or more states; got {len(opened)}; use reader() for one",
            got=len(opened),
        )
    for each in opened:
        if each._txid is not None:
            raise StateUsageError(
                f"read_together reads states as they are now; got a reader with txid={each._txid}; "
                "expected readers without txid; use the reader alone",
                txid=each._txid,
            )
    with ExitStack() as stack:
        backends = [each._connected(stack) for each in opened]
        names = [each._table.name for each in opened]
        _check_databases(names, backends)
        before = [held_ledger(backend) for backend in backends]
        snapshots = stack.enter_context(backends[0].snapshots(backends))
        after = [held_ledger(backend) for backend in backends]
        held = [each.ledger for each in snapshots]
        for name, earlier, ledger, later in zip(names, before, held, after, strict=True):
            if not _place(earlier) <= _place(ledger) <= _place(later):
                raise StateUsageError(
                    f"states {names[0]!r} and {name!r} cannot be read together: the connection of "
                    f"the first reads {ledger} in the second, whose own reads {later}; one of "
                    "them is in a copy of the other's database; read them separately",
                    state=name,
                    got=str(ledger),
                    expected=str(later),
                )
        _check_ledgers(names, held)
        for each, backend, snapshot in zip(opened, backends, snapshots, strict=True):
            each._snapshot, each._backend = snapshot, backend
        try:
            yield opened
        finally:
            for each in opened:
                each._snapshot = each._backend = None


def _check_databases(names: Sequence[str], backends: Sequence[StateBackend]) -> None:
    databases = [backend.database() for backend in backends]
    first = databases[0]
    for name, backend, database in zip(names, backends, databases, strict=True):
        if first is not None and database == first:
            continue
        if database is None or first is None:
            kind = type(backend if database is None else backends[0]).__name__
            why = f"{kind} has no snapshot of several states"
        elif database.identity == first.identity:
            why = "their URLs have different users or options"
        else:
            why = "they are in different databases"
        raise StateUsageError(
            f"states {names[0]!r} and {name!r} cannot be read together: {why}; expected states of "
            "one database; read them separately, and compare the txids of their ledgers",
            state=name,
        )


def _check_ledgers(names: Sequence[str], held: Sequence[Ledger | None]) -> None:
    first = held[0]
    for name, ledger in zip(names, held, strict=True):
        same = (None, None) if first is None else (first.topology, first.ensemble)
        owner = (None, None) if ledger is None else (ledger.topology, ledger.ensemble)
        if owner != same:
            raise StateUsageError(
                f"states {names[0]!r} and {name!r} cannot be read together: the first holds "
                f"{first}, the second {ledger}; expected states of one topology, because each "
                "topology counts its own txids",
                state=name,
            )
        if ledger is not None and first is not None and ledger.txid != first.txid:
            raise StoreUnavailable(
                f"states {names[0]!r} and {name!r} hold txids {first.txid} and {ledger.txid}; "
                "expected one txid; they share no transaction (see the log of the run), or one "
                "was removed from its topology; read them again, or separately",
                state=name,
            )


def _place(ledger: Ledger | None) -> tuple[int, int]:
    return (0, 0) if ledger is None else (ledger.epoch, ledger.txid)


_DIVISION = decimal.Context(prec=38)
_ROUNDING = decimal.Context(
    prec=38, rounding=decimal.ROUND_HALF_UP, traps=[decimal.InvalidOperation]
)
_MEAN_DIGITS = 4
_MEAN_SCALE_MAX = 22


class ReaderView:
    """Turns stored values of a state into what users see.

    Args:
        table: The state.
    """

    def __init__(self, table: StateTable) -> None:
        self._columns = Columns(table.name, "value", table.value)
        self._aggregates = table.aggregates
        self._means = mean_names(table)
        taken = {at + 1 for at in self._means}
        self._names = {
            at: self._means.get(at, name)
            for at, name in enumerate(table.value.names)
            if at not in taken
        }

    @property
    def fields(self) -> Fields:
        """The columns that users see, with their types; a mean takes the place of its sum."""
        return Fields.of([self._field(at, name) for at, name in self._names.items()])

    @property
    def as_stored(self) -> bool:
        """Whether users see every value as it is stored."""
        stored = self._columns.fields
        return self.fields == stored and all(
            each.shown_type(field.type) == field.type
            for each, field in zip(self._aggregates, stored, strict=False)
        )

    def row(self, packed: Values) -> Values:
        """Return what users see of stored values, one for each of :attr:`fields`; json as text."""
        if not self._aggregates:
            return packed
        return tuple(self._cell(at, packed) for at in self._names)

    def columns(self, stored: pa.Table) -> pa.Table:
        """Return what users see of stored value columns; json as text.

        Args:
            stored: The value columns, and perhaps others.
        """
        import pyarrow as pa

        shown: list[Any] = []
        schema = self.fields.arrow_schema()
        names = self._columns.fields.names
        for at, each in zip(self._names, schema, strict=True):
            name = names[at]
            if at not in self._means and self._plain(at):
                shown.append(stored.column(name))
                continue
            read = [values_of(stored.column(name))]
            if at in self._means:
                read.append(values_of(stored.column(names[at + 1])))
            before = (None,) * at
            cells = [self._cell(at, (*before, *values)) for values in zip(*read, strict=True)]
            shown.append(pa.array(cells, each.type))
        return pa.table(shown, schema=schema)

    def _plain(self, at: int) -> bool:
        """Return whether users see the values of a column as they are stored."""
        if not self._aggregates or self._columns.fields[at].type == "json":
            return True
        aggregate = self._aggregates[at]
        return type(aggregate).shown is Aggregate.shown

    def _field(self, at: int, name: str) -> Field:
        kind = self._columns.fields[at].type
        if at in self._means:
            return Field(name, mean_type(kind))
        return Field(name, self._aggregates[at].shown_type(kind) if self._aggregates else kind)

    def _cell(self, at: int, packed: Values) -> Any:
        if at not in self._means:
            kept = packed[at]
            return kept if self._columns.fields[at].type == "json" else self._shown(at, packed)
        mean = self._shown(at, packed)
        if not isinstance(mean, decimal.Decimal):
            return mean
        kind = mean_type(self._columns.fields[at].type)
        scale = int(kind[8:-1].partition(",")[2])
        try:
            return mean.quantize(decimal.Decimal((0, (1,), -scale)), context=_ROUNDING)
        except decimal.InvalidOperation as error:
            raise ValueRefusedError(
                f"the mean {self._means[at]!r} of state {self._columns.state!r} does not fit the "
                f"column of a table; got {mean}; expected {kind}; read it with items()",
                state=self._columns.state,
                field=self._means[at],
            ) from error

    def value(self, packed: Values) -> Any:
        """Return what a user sees of stored values: one plain value, or a dict by name."""
        if not self._aggregates:
            return self._columns.named(packed)
        opened = self._columns.opened(packed)
        shown = {name: self._shown(at, opened) for at, name in self._names.items()}
        return next(iter(shown.values())) if len(shown) == 1 else shown

    def _shown(self, at: int, opened: Values) -> Any:
        if at in self._means:
            return _mean(opened[at], opened[at + 1])
        return self._aggregates[at].shown(opened[at])


def mean_names(table: StateTable) -> dict[int, str]:
    """Return the name of each mean by the position of its sum; its count is the next column."""
    names = table.value.names
    return {
        at: names[at].removesuffix("_sum")
        for at, (left, right) in enumerate(
            zip(table.aggregates, table.aggregates[1:], strict=False)
        )
        if isinstance(left, MeanSum) and isinstance(right, MeanCount)
    }


def mean_type(kind: str) -> str:
    """Return the type of the column of means, by that of their sums."""
    if not kind.startswith("decimal"):
        return "double"
    scale = int(kind[8:-1].partition(",")[2])
    # As many more digits as Spark adds for an average, while enough are left before the point.
    return f"decimal(38,{max(scale, min(scale + _MEAN_DIGITS, _MEAN_SCALE_MAX))})"


def _mean(total: Any, count: int | None) -> Any:
    if total is None or not count:
        return None
    if isinstance(total, decimal.Decimal):
        return _DIVISION.divide(total, decimal.Decimal(count))
    return total / count
