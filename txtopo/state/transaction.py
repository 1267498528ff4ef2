"""StateTransaction: how a committer reads and changes a state within its txid.

A transaction never writes to the store. It reads the state as of txid - 1 through a snapshot. It
keeps the bolt's writes in an overlay, so that reads see them, and ends with a write set. The
runtime applies the write sets of all tasks together with undo and ledger, in one store transaction.
So transactions work in Spark tasks as they do in the driver. In a group of txids the snapshot shows
the state before the first txid, and the overlay adds what the earlier txids of the group wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

from txtopo.attempt import TransactionAttempt
from txtopo.errors import StateUsageError
from txtopo.instead import Instead
from txtopo.state.backend import (
    BOOKKEEPING,
    Key,
    Puts,
    Snapshot,
    StateBackend,
    StateTable,
    Values,
    column_schema,
    columns_of,
    in_range,
)
from txtopo.state.column_rows import DELETED, ColumnRows, merged_rows
from txtopo.state.columns import Columns, rows_of
from txtopo.state.ledger import Standing, standing
from txtopo.state.statements import Parameters, Statement, check_undo, given_parameters
from txtopo.state.values import Row
from txtopo.tuples import Fields

if TYPE_CHECKING:
    import pyarrow as pa


TXID = BOOKKEEPING[0]


class StateHandle(Instead):
    """The state that one task uses in a commit phase; ``context.state(name)`` returns it.

    Args:
        name: The name that ``with_state`` gave it, for messages.
        table: The schema of the state.
        backend: The state in its store. A snapshot is opened when the transaction begins.
        group: The group that is written to the state; by default the transaction's attempt.
        earlier: What each earlier txid of the group has written, in order.
        repeats: Whether all spouts above the committer repeat their batches.
    """

    _instead: ClassVar = {
        name: f"with state.transaction(attempt) as transaction: transaction.{name}(…)"
        for name in ("get", "put", "update", "delete", "items")
    }

    def __init__(
        self,
        name: str,
        table: StateTable,
        backend: StateBackend,
        group: TransactionAttempt | None = None,
        earlier: Sequence[Mapping[Key, Values | None]] = (),
        *,
        repeats: bool = False,
    ) -> None:
        self.name = name
        self.table = table
        self._backend = backend
        self._repeats = repeats
        self._group, self._earlier = group, earlier
        self._rule = OneTransaction(name, "do all of it in one with block")
        self._writes: Puts | None = None

    @property
    def writes(self) -> Puts | None:
        """The writes of the transaction, once it has ended without an error; None before."""
        return self._writes

    def transaction(self, attempt: TransactionAttempt) -> StateTransaction:
        """Begin the one transaction that *attempt* may have on this state.

        Use it in a ``with`` statement. An exception in its body discards the writes.

        Raises:
            StateUsageError: The attempt has already had its transaction; do everything in one. Or
                the state is in mode ``"log"``, which is for a ``PersistentAggregate``.
        """
        if self.table.mode == "log":
            raise StateUsageError(
                f"state {self.name!r} is in mode 'log', whose rows are partial aggregates that "
                "cannot be read and written one by one; use it in a PersistentAggregate, or "
                "open_state(…, mode='table')",
                state=self.name,
            )
        self._rule.begin(attempt)
        self._writes = None
        written_as = self._group or attempt
        return StateTransaction(self, written_as, attempt, self._earlier)

    def _finish(self, writes: Puts) -> None:
        self._writes = writes


class OneTransaction:
    """Checks that each attempt begins at most one transaction on a state.

    Args:
        state: Name of the state, for the message.
        remedy: What the user should do instead of a second transaction.
    """

    def __init__(self, state: str, remedy: str) -> None:
        self._state = state
        self._remedy = remedy
        self._attempts: set[TransactionAttempt] = set()

    def begin(self, attempt: TransactionAttempt) -> None:
        """Begin the transaction of an attempt.

        Raises:
            StateUsageError: The attempt has already had its transaction.
        """
        if attempt in self._attempts:
            raise StateUsageError(
                f"a second transaction of attempt {attempt} on state {self._state!r}; "
                f"expected one for each state and attempt; {self._remedy}",
                state=self._state,
                attempt=attempt,
            )
        self._attempts.add(attempt)


class StateTransaction:
    """Reads and writes of one attempt. Keys and values are plain for one field, tuples for more.

    Delivery: each write is in the state exactly once, together with everything else of its txid. In
    a replay, an opaque state shows what it held before the txid, so the body does the same again. A
    transactional state that already holds the txid shows what it holds *after* it, and discards the
    body's writes: ``update`` returns the same as the first time, but ``get`` and ``items`` do not.
    So unless the state is opaque, do not emit or compare what they return.
    """

    def __init__(
        self,
        handle: StateHandle,
        attempt: TransactionAttempt,
        batch: TransactionAttempt,
        earlier: Sequence[Mapping[Key, Values | None]],
    ) -> None:
        self._handle = handle
        self._attempt, self._batch = attempt, batch
        self._keys = Columns(handle.name, "key", handle.table.key)
        self._values = Columns(handle.name, "value", handle.table.value)
        self._stack = ExitStack()
        self._snapshot: Snapshot | None = None
        self._held = self._redone = False
        self._stored: dict[Key, Values | None] = {}
        self._writes_before = earlier
        self._overlay: dict[Key, Values | None] | ColumnRows = {}
        self._expires: Any = None
        self._statements: list[Statement] = []

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of *key*, including the transaction's own writes, or *default*."""
        values = self._read(self._keys.pack(key))
        return default if values is None else self._values.named(values)

    def get_all(self, keys: Iterable[Any]) -> list[Any]:
        """Return the values of many keys, None where there is none, in one read of the store.

        Later calls of ``get`` and ``update`` for these keys do not read the store.
        """
        packed = self._keys.pack_all(list(keys))
        stored = self._stored
        self._load([key for key in packed if key not in stored])
        written = self._overlay or self._earlier
        found = list(map(self._read if written else stored.__getitem__, packed))
        return self._values.named_all(found)

    def put(self, key: Any, value: Any) -> None:
        """Set the value of *key*: True in a state that keeps keys alone."""
        self._opened()
        self._write(self._keys.pack(key), self._values.pack(value))

    def put_all(self, values: Iterable[tuple[Any, Any]]) -> None:
        """Set the values of many keys; faster than one :meth:`put` for each."""
        self._opened()
        given = list(values)
        keys = self._keys.pack_all([key for key, _ in given])
        packed = self._values.pack_all([value for _, value in given])
        if not self._held:
            self._own_overlay().update(zip(keys, packed, strict=True))

    def put_columns(self, rows: pa.Table) -> None:
        """Set the values of many keys, given as Arrow columns; several times faster than dicts.

        Args:
            rows: The columns of key and value, by name, of the declared types. Of rows with equal
                keys the last one counts. ``json`` is text.

        Raises:
            StateUsageError: A column is missing, or has another type.
            ValueRefusedError: NULL or NaN in a key, a text that is not JSON, or a time that Python
                does not have.
        """
        import pyarrow as pa

        self._opened()
        table = self._handle.table
        exact = [*self._keys.exact_arrays(rows), *self._values.exact_arrays(rows)]
        names = [*table.key.names, *table.value.names]
        self._write_columns(ColumnRows(pa.table(exact, names), len(table.key)))

    def delete_columns(self, keys: pa.Table) -> None:
        """Remove many keys, given as Arrow columns by name, if they exist.

        Raises:
            StateUsageError: A column is missing, or has another type.
            ValueRefusedError: NULL or NaN in a key.
        """
        import pyarrow as pa

        self._opened()
        table, count = self._handle.table, keys.num_rows
        none = [pa.nulls(count, kind) for kind in table.value.arrow_schema().types]
        columns = [*self._keys.exact_arrays(keys), *none, pa.repeat(pa.scalar(True), count)]
        names = [*table.key.names, *table.value.names, DELETED]
        self._write_columns(ColumnRows(pa.table(columns, names), len(table.key)))

    def get_columns(self, keys: pa.Table) -> pa.Table:
        """Return the rows with some keys, of those that exist, including the transaction's writes.

        Args:
            keys: The key columns, by name; NULL and NaN are not allowed.

        Returns:
            The key columns and the value columns, in any order, a row for each key; ``json`` is
            text.

        Raises:
            StateUsageError: A column is missing, or has another type.
            ValueRefusedError: NULL or NaN in a key.
        """
        import pyarrow as pa

        from txtopo.state.keyed_columns import positions

        names = list(self._handle.table.key.names)
        exact = pa.table(self._keys.exact_arrays(keys), names)
        asked = ColumnRows(exact, len(names)).table
        written = self._written_columns()
        if written is not None:
            place = positions(asked, written.table.select(names))
            mine, asked = written.taken(place), asked.filter(place.is_null())
        stored = self._stored_columns(
            lambda snapshot: snapshot.columns(self._handle.table, asked),
            lambda snapshot: snapshot.rows(list(rows_of(asked))).items(),
        )
        return stored if written is None else pa.concat_tables([mine, stored])

    def all_columns(self) -> pa.Table:
        """Return what :meth:`items` yields as columns, sorted by key."""
        table = self._handle.table
        rows = self._stored_columns(
            lambda snapshot: columns_of(table, snapshot.items()),
            lambda snapshot: snapshot.items(),
        )
        return self._later(rows, lambda rows: rows.column(0).is_valid())

    def columns_between(self, column: str, above: Any, up_to: Any) -> pa.Table:
        """Return what :meth:`between` yields as columns, sorted by key."""
        table = self._ranged(column)
        low, high = (None if end is None else self._end(end) for end in (above, up_to))
        txid = self._attempt.txid
        rows = self._stored_columns(
            lambda snapshot: snapshot.columns_between(table, low, high, txid),
            lambda snapshot: snapshot.between(table, low, high, txid),
        )
        return self._later(rows, lambda rows: _within(rows.column(column), low, high))

    def columns_starting(self, prefixes: pa.Table) -> pa.Table:
        """Return what :meth:`starting` yields as columns, sorted by key.

        Args:
            prefixes: The first one or more key columns, by name.

        Raises:
            StateUsageError: These are not the first key columns, or one has another type.
        """
        import pyarrow as pa

        from txtopo.state.keyed_columns import positions

        names = list(self._handle.table.key.names[: prefixes.num_columns])
        if not names or set(names) != set(prefixes.column_names):
            raise StateUsageError(
                f"bad prefixes of a key of state {self._handle.name!r}; got the columns "
                f"{prefixes.column_names}; expected the first one or more of "
                f"({', '.join(self._handle.table.key.names)})",
                state=self._handle.name,
            )
        first = Columns(self._handle.name, "key", self._handle.table.key.select(names))
        exact = pa.table(first.exact_arrays(prefixes), names)
        asked = ColumnRows(exact, len(names)).table
        table = self._handle.table
        rows = self._stored_columns(
            lambda snapshot: snapshot.columns_starting(table, asked),
            lambda snapshot: snapshot.starting(list(rows_of(asked))),
        )
        return self._later(rows, lambda rows: positions(rows.select(names), asked).is_valid())

    def as_read(self, value: Any) -> Any:
        """Return *value* as a read after a put would return it; raises as :meth:`put` does."""
        return self._values.named(self._values.pack(value))

    def update(self, key: Any, function: Callable[[Any], Any]) -> Any:
        """Set the value of *key* to ``function(value)`` and return it; None stands for no value."""
        packed = self._keys.pack(key)
        before = self._read(packed)
        if self._held:
            return None if before is None else self._values.named(before)
        after = self._values.pack(function(None if before is None else self._values.named(before)))
        self._write(packed, after)
        return self._values.named(after)

    def delete(self, key: Any) -> None:
        """Remove *key*, if it exists."""
        self._opened()
        self._write(self._keys.pack(key), None)

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Yield every key and value, including the transaction's own writes, in arbitrary order."""
        overlay = {**self._earlier, **self._overlay}
        for key, row in self._opened().items():
            values = None if key in overlay else self._base(row)
            if values is not None:
                yield self._keys.plain(key), self._values.named(values)
        for key, written in overlay.items():
            if written is not None:
                yield self._keys.plain(key), self._values.named(written)

    def between(self, column: str, above: Any, up_to: Any) -> Iterator[tuple[Any, Any]]:
        """Yield keys and values with *column* in a range, including own writes, sorted by key.

        Args:
            column: The column by which the state is read in ranges.
            above: The lower end, exclusive; None for no lower end.
            up_to: The upper end, inclusive; None for no upper end. NULL is in no range.

        Raises:
            StateUsageError: The state is not read in ranges of *column*, or an end is of another
                type than it.
        """
        table = self._ranged(column)
        low, high = (None if end is None else self._end(end) for end in (above, up_to))

        def among(key: Key, values: Values) -> bool:
            return in_range(table.column_of(key, values, column), low, high)

        rows = self._opened().between(table, low, high, self._attempt.txid)
        return self._sorted(rows, among)

    def starting(self, prefixes: Iterable[Sequence[Any]]) -> Iterator[tuple[Any, Any]]:
        """Yield every key and value whose key begins with a prefix, as :meth:`between` does.

        Args:
            prefixes: Tuples of the first one or more parts of a key, all of one length.

        Raises:
            StateUsageError: A prefix is not a tuple, is too long, or has another length or type.
        """
        packed = self._packed(prefixes)
        wanted, width = set(packed), len(packed[0]) if packed else 0
        rows = self._opened().starting(packed)
        return self._sorted(rows, lambda key, _: key[:width] in wanted)

    def expire(self, up_to: Any) -> None:
        """Declare that no later txid needs the rows with at most *up_to* in the range column.

        They are not deleted at once, but between later commits, when neither a replay nor an
        operator can bring this txid back; or never, if the store cannot delete them. Until then
        they are still visible; do not rely on their being gone. A NULL in the column never expires.
        The bound applies to all rows of the state, whichever task declares it. The largest counts.

        Raises:
            StateUsageError: The state is not read in ranges, or *up_to* is of another type.
        """
        self._opened()
        self._ranged(self._handle.table.range_by)
        end = self._end(up_to)
        if self._expires is None or end > self._expires:
            self._expires = end

    def execute(
        self,
        statement: Any,
        parameters: Parameters | None = None,
        *,
        many: Sequence[Parameters] | None = None,
        undo: str | None = None,
    ) -> None:
        """Execute a statement on tables of your own in the store transaction of this txid.

        It is executed when the txid is committed, in the driver, after the rows of all states in
        that transaction. So it takes effect exactly once, together with everything else of its
        txid, or not at all. The statements of a txid are executed in the order of their calls;
        those of several tasks in the order of the tasks. In a group they see the rows of states as
        of its last txid. It returns nothing: what a batch needs from the database is read through
        states.

        Below an opaque spout a statement needs an *undo*. It is stored in the same transaction, and
        executed if the txid is written again, by a replay or a verb such as ``rewind``. Whether it
        really takes back what the statement did, nobody can check.

        Args:
            statement: A text with parameters such as ``:amount``, or a statement of SQLAlchemy,
                that begins with INSERT, UPDATE, DELETE, MERGE, REPLACE, SELECT, WITH or NOTIFY.
            parameters: Plain values of its parameters. ``:txid``, ``:attempt`` and ``:epoch`` are
                those of the batch, and are not given.
            many: Instead of *parameters*: several sets of them. It is executed once for each.
            undo: A text with parameters of the same names. It is executed once for each set of
                parameters if it names one of them, else once.

        Raises:
            StateUsageError: The state is not in a SQL database, or the statement, a parameter or
                the undo is refused; the message says why.
        """
        self._opened()
        name = self._handle.name
        sets = given_parameters(name, parameters, many)
        check_undo(name, undo, repeats=self._handle._repeats)
        called = Statement.called(statement, sets, undo, self._batch)
        self._handle._backend.check_statement(called)
        if sets:
            self._statements.append(called)

    def __enter__(self) -> StateTransaction:
        with ExitStack() as stack:
            snapshot = stack.enter_context(self._handle._backend.snapshot())
            found = standing(snapshot.ledger, self._attempt)
            transactional = self._handle.table.kind == "transactional"
            self._held = transactional and found is not Standing.APPLY
            self._redone = found is not Standing.APPLY
            self._snapshot = snapshot
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._snapshot = None
        self._stack.close()
        if kind is None:
            done = tuple(self._statements)
            self._handle._finish(Puts(self._overlay, self._expires, done))

    def _read(self, key: Key) -> Values | None:
        self._opened()
        if key in self._overlay:
            return self._overlay[key]
        if key in self._earlier:
            return self._earlier[key]
        if key not in self._stored:
            self._load([key])
        return self._stored[key]

    def _load(self, keys: Sequence[Key]) -> None:
        found, base = self._opened().rows(keys).get, self._base
        self._stored |= {key: None if (row := found(key)) is None else base(row) for key in keys}

    def _sorted(
        self, rows: Iterable[tuple[Key, Row]], among: Callable[[Key, Values], bool]
    ) -> Iterator[tuple[Any, Any]]:
        """Yield the stored rows and later writes that a read asks for, sorted by key."""
        found: dict[Key, Values] = {}
        written = {**self._earlier, **self._overlay}
        for key, row in rows:
            values = self._stored[key] = self._base(row)
            if values is not None and key not in written and among(key, values):
                found[key] = values
        for key, values in written.items():
            if values is not None and among(key, values):
                found[key] = values
        plain, named = self._keys.plain, self._values.named
        return iter([(plain(key), named(found[key])) for key in sorted(found)])

    def _stored_columns(
        self,
        read: Callable[[Snapshot], pa.Table],
        read_rows: Callable[[Snapshot], Iterable[tuple[Key, Row]]],
    ) -> pa.Table:
        """Return stored rows as of the previous txid, as columns without ``txid``."""
        import pyarrow.compute as pc

        snapshot, table = self._opened(), self._handle.table
        if self._redone:
            base = ((key, self._base(row)) for key, row in read_rows(snapshot))
            return columns_of(
                table, ((key, Row(0, values)) for key, values in base if values is not None)
            ).drop_columns([TXID])
        found = read(snapshot)
        last = pc.max(found.column(TXID)).as_py() or 0
        if last >= self._attempt.txid:
            Row(last, ()).before(self._attempt.txid)  # raises
        return found.drop_columns([TXID])

    def _later(self, stored: pa.Table, among: Callable[[pa.Table], Any]) -> pa.Table:
        """Return stored rows that a read asks for, with later writes, sorted by key."""
        import pyarrow as pa

        from txtopo.state.keyed_columns import order_of, positions

        keys = list(self._handle.table.key.names)
        written = self._written_columns()
        if written is not None:
            place = positions(stored.select(keys), written.table.select(keys))
            stored = pa.concat_tables([stored.filter(place.is_null()), written.kept])
        found = stored.filter(among(stored))
        return found.take(order_of(found, keys))

    def _written_columns(self) -> ColumnRows | None:
        """Return the writes of the group before this txid, and of this txid, if there are any."""
        columns = [self._as_columns(part) for part in (self._earlier, self._overlay) if part]
        if not columns:
            return None
        return columns[0].merged(columns[1:]) if len(columns) > 1 else columns[0]

    def _as_columns(self, rows: Mapping[Key, Values | None]) -> ColumnRows:
        if isinstance(rows, ColumnRows):
            return rows
        import pyarrow as pa

        table = self._handle.table
        empty = (None,) * len(table.value)
        records = [(*key, *(values or empty), values is None) for key, values in rows.items()]
        schema = column_schema(table)
        types = [*schema.types[:-1], pa.bool_()]
        arrays = [
            pa.array(column, kind)
            for column, kind in zip(zip(*records, strict=True), types, strict=True)
        ]
        return ColumnRows(pa.table(arrays, [*schema.names[:-1], DELETED]), len(table.key))

    def _write_columns(self, written: ColumnRows) -> None:
        if self._held or not written:
            return
        if not self._overlay:
            self._overlay = written
        else:
            self._overlay = self._as_columns(self._overlay).merged([written])

    def _ranged(self, column: str | None) -> StateTable:
        table, name = self._handle.table, self._handle.name
        if table.range_by is None:
            raise StateUsageError(
                f"state {name!r} has no column by which ranges are read and rows expire; declare "
                "one that is a timestamp or a whole number: open_state(…).ranged('column')",
                state=name,
            )
        if column != table.range_by:
            raise StateUsageError(
                f"state {name!r} is not read in ranges of this column; got {column!r}; expected "
                f"{table.range_by!r}, as it is declared",
                state=name,
            )
        return table

    def _end(self, end: Any) -> Any:
        """Return the end of a range as a value of the column."""
        table, name = self._handle.table, self._handle.name
        field = next(each for each in (*table.key, *table.value) if each.name == table.range_by)
        if end is None:
            raise StateUsageError(
                f"rows of state {name!r} expire up to a value of {field.name!r}; got None; "
                f"expected {field.type}",
                state=name,
            )
        return Columns(name, "key", Fields.of([field])).exact([end])[0]

    def _packed(self, prefixes: Iterable[Sequence[Any]]) -> list[Key]:
        given, fields = list(prefixes), list(self._handle.table.key)
        width = len(given[0]) if given and isinstance(given[0], tuple | list) else 0
        for prefix in given:
            fits = isinstance(prefix, tuple | list) and len(prefix) == width
            if not fits or not 0 < width <= len(fields):
                names = ", ".join(field.name for field in fields)
                raise StateUsageError(
                    f"bad prefix of a key of state {self._handle.name!r}; got {prefix!r:.200}; "
                    f"expected tuples of the first one or more of ({names}), all of one length",
                    state=self._handle.name,
                )
        columns = Columns(self._handle.name, "key", Fields.of(fields[:width]))
        return list(dict.fromkeys(columns.exact(prefix) for prefix in given))

    def _base(self, row: Row) -> Values | None:
        if self._handle.table.kind == "transactional":
            return row.visible()
        return row.before(self._attempt.txid)

    def _write(self, key: Key, values: Values | None) -> None:
        if not self._held:
            self._own_overlay()[key] = values

    def _own_overlay(self) -> dict[Key, Values | None]:
        """Return the overlay as a dictionary, which can be changed."""
        if isinstance(self._overlay, ColumnRows):
            self._overlay = dict(self._overlay)
        return self._overlay

    @cached_property
    def _earlier(self) -> Mapping[Key, Values | None]:
        """The writes of the earlier txids of the group."""
        return merged_rows(self._writes_before)

    def _opened(self) -> Snapshot:
        if self._snapshot is None:
            raise StateUsageError(
                f"the transaction on state {self._handle.name!r} is not open; "
                "use it inside its with statement",
                state=self._handle.name,
            )
        return self._snapshot


def _within(column: pa.ChunkedArray, above: Any, up_to: Any) -> Any:
    """Return which values are above the lower end and at most the upper; NULL never is."""
    import pyarrow as pa
    import pyarrow.compute as pc

    fits = column.is_valid()
    if above is not None:
        fits = pc.and_(fits, pc.greater(column, pa.scalar(above, column.type)))
    if up_to is not None:
        fits = pc.and_(fits, pc.less_equal(column, pa.scalar(up_to, column.type)))
    return pc.fill_null(fits, False)
