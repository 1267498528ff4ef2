"""RowBackend: a state in a store that is read and replaced as a whole.

:class:`RowBackend` implements the rules of :mod:`txtopo.state.backend` in Python, so that a plug-in
for a store that can replace a document atomically has two methods and no protocol. It reads all
rows for each commit. A store for many keys implements :class:`StateBackend` instead.

The functions turn writes into rows, for every backend. :func:`checked_partials` checks partial
aggregates before they are merged. A store that cannot combine an aggregate itself calls
:func:`final_values` inside its transaction, and writes the result like any final values.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

from txtopo.attempt import TransactionAttempt
from txtopo.errors import PlugInError, StateUsageError, StoreUnavailable, ValueRefusedError
from txtopo.state.aggregates import Aggregate, PythonAggregate
from txtopo.state.backend import (
    Key,
    Merges,
    Puts,
    Snapshot,
    StateBackend,
    StateTable,
    Values,
    Writes,
    in_range,
)
from txtopo.state.columns import Columns
from txtopo.state.declaration import declaration
from txtopo.state.evolution import TableChange, check_none_taken, not_allowed, table_change
from txtopo.state.ledger import Claim, Ledger, Standing, claimed, expiring, standing
from txtopo.state.values import Row, first_row
from txtopo.state.witness import witness_of
from txtopo.tuples import Field, Fields

if TYPE_CHECKING:
    import pyarrow as pa

# A lost compare-and-set means that another writer came in between. The next try reads the ledger
# again and is refused if it may not write. More than a few losses in a row should not happen.
_TRIES_MAX = 3


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a state at one instant.

    Attributes:
        ledger: The ledger, or None if nobody has claimed the state.
        rows: Every row by key. The mapping must not change afterwards.
    """

    ledger: Ledger | None = None
    rows: Mapping[Key, Row] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Replacement:
    """What takes the place of the contents of a state.

    Attributes:
        backend: The state.
        expected: The ledger that :meth:`RowBackend.load` returned.
        ledger: The ledger to write.
        changes: The rows to set; None removes the row. May be empty.
    """

    backend: RowBackend
    expected: Ledger | None
    ledger: Ledger
    changes: Mapping[Key, Row | None]


class RowBackend(StateBackend):
    """A state in a store that can be read whole and replaced by compare-and-set.

    Delivery: exactly once and fenced, if :meth:`replace` is atomic and durable.

    Who calls it: the methods of this class, in the processes and threads that
    :class:`~txtopo.state.backend.StateBackend` names. Calls may overlap, hence :meth:`replace`
    compares and writes in one step.

    How often: a claim and a commit call :meth:`load` and :meth:`replace` once each, and a few times
    if another writer comes in between. A snapshot calls :meth:`load` once.

    What must be durable: whatever :meth:`replace` wrote, when it returns True.

    Not guaranteed: that :meth:`close` is called, since the process may be killed.

    How to store it: ledger and rows are dataclasses of plain values. ``dataclasses.asdict`` turns
    the ledger into JSON, and ``Ledger.of`` reads it back; ``RowText`` does so for keys and rows.
    Store every field of the ledger, since later versions add some.

    How to prove it: subclass ``txtopo.testing.conformance.StateBackendSuite``.
    """

    groups = True

    def __init__(self, table: StateTable) -> None:
        self.table = table

    @abstractmethod
    def load(self) -> Contents:
        """Read the ledger and all rows at one moment; return ``Contents()`` for a new store."""

    @abstractmethod
    def replace(
        self, expected: Ledger | None, ledger: Ledger, changes: Mapping[Key, Row | None]
    ) -> bool:
        """Write ledger and rows together or not at all, if the store still holds *expected*.

        Args:
            expected: The ledger that :meth:`load` returned.
            ledger: The ledger to write.
            changes: The rows to set; None removes the row. May be empty.

        Returns:
            True if everything was written durably; False if the store now holds another ledger.
        """

    def replace_together(self, replacements: Sequence[Replacement]) -> bool:
        """Write the ledgers and rows of several states, all or none, as :meth:`replace` does.

        Only a store that returns a :meth:`database` has it, and :meth:`load_together`.

        Returns:
            False if one of the states holds another ledger than expected; nothing was written.
        """
        raise NotImplementedError(f"{type(self).__name__} has a database and no replace_together")

    def load_together(self, backends: Sequence[RowBackend]) -> Sequence[Contents]:
        """Read several states at one moment."""
        raise NotImplementedError(f"{type(self).__name__} has a database and no load_together")

    def create(self) -> None:
        """Create the objects that the store needs. The default only checks the columns, if it can.

        With :attr:`evolves` the store keeps the declared columns: :meth:`stored` returns them as of
        the last :meth:`replace`, which takes them from :attr:`table`.
        """
        self._change()

    def close(self) -> None:
        """Release connections. The default does nothing."""

    def claim(self, claim: Claim) -> Ledger:
        """Write a claim into the ledger, as ``StateBackend.claim`` says."""
        self.claimant = claim
        for _ in range(_TRIES_MAX):
            held = self.load()
            ledger, change = claimed(held.ledger, claim), self._change()
            if change is not None and not claim.changes_table:
                raise not_allowed(change, f"state {self.table.name!r}")
            changed = {} if change is None else {k: change.row(r) for k, r in held.rows.items()}
            same = ledger == held.ledger and change is None
            if same or self._replaced([Replacement(self, held.ledger, ledger, changed)]):
                return ledger
        raise self._contended()

    def commit(self, attempt: TransactionAttempt, writes: Writes) -> Ledger:
        """Apply the writes of an attempt, as ``StateBackend.commit`` says."""
        return self.commit_together(attempt, [(self, writes)])[0]

    def commit_together(
        self, attempt: TransactionAttempt, writes: Sequence[tuple[StateBackend, Writes]]
    ) -> list[Ledger]:
        """Apply the writes of an attempt to several states of this store."""
        for _ in range(_TRIES_MAX):
            together = [_own(backend)._replacement(attempt, each) for backend, each in writes]
            new = [each for each in together if each.ledger != each.expected]
            for each in new:
                each.backend.point("write.before")
            if not new or self._replaced(new):
                return [each.ledger for each in together]
        raise self._contended()

    def _replacement(self, attempt: TransactionAttempt, writes: Writes) -> Replacement:
        held = self.load()
        found = standing(held.ledger, attempt, self.claimant)
        assert held.ledger is not None
        if found is Standing.HELD:
            return Replacement(self, held.ledger, held.ledger, {})
        self.point("begin.after")
        self.point("rows.before")
        witness = witness_of(self.table, held.ledger, attempt, writes, found)
        ledger = held.ledger.written_by(attempt, witness)
        changes = changed_rows(self.table, held.rows, attempt.txid, writes, found)
        self.point("rows.after")
        return Replacement(self, held.ledger, ledger, changes)

    def expire(self, up_to: Any, before_txid: int) -> int:
        """Delete rows that no later txid needs, all at once, as ``StateBackend.expire`` says."""
        for _ in range(_TRIES_MAX):
            held = self.load()
            txid = expiring(held.ledger, self.claimant, before_txid)
            gone = expired_keys(self.table, held.rows, up_to, txid)
            if not gone:
                return 0
            assert held.ledger is not None
            if self._replaced([Replacement(self, held.ledger, held.ledger, dict.fromkeys(gone))]):
                return len(gone)
        raise self._contended()

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Open a consistent snapshot of the state; it holds all rows in memory."""
        return nullcontext(_LoadedSnapshot(self.load()))

    def snapshots(
        self, backends: Sequence[StateBackend]
    ) -> AbstractContextManager[Sequence[Snapshot]]:
        """Open snapshots of several states of this store, of the same instant."""
        contents = self.load_together([_own(backend) for backend in backends])
        return nullcontext([_LoadedSnapshot(each) for each in contents])

    def _change(self) -> TableChange | None:
        """Return the change that the table needs, if the store knows its columns."""
        tables = self.stored() or () if self.evolves else ()
        stored = next((table for table in tables if table.name == self.table.name), None)
        if stored is None:
            return None
        label = f"state {self.table.name!r}"
        change = table_change(declaration(stored), self.table, label)
        if change is not None:
            check_none_taken(change, label)
        return change

    def _replaced(self, replacements: Sequence[Replacement]) -> bool:
        first = replacements[0]
        written: object = (
            self.replace_together(replacements)
            if len(replacements) > 1
            else first.backend.replace(first.expected, first.ledger, first.changes)
        )
        if not isinstance(written, bool):
            raise PlugInError(
                f"replace of {type(self).__name__} returned {written!r:.100}; expected True or "
                "False: whether it was written; fix the plug-in, and check what the store holds",
                state=self.table.name,
            )
        return written

    def _contended(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"state {self.table.name!r} was changed by other writers {_TRIES_MAX} times in a row; "
            "nothing was written; try again",
            state=self.table.name,
            tries=_TRIES_MAX,
        )


def _own(backend: StateBackend) -> RowBackend:
    assert isinstance(backend, RowBackend), "states of another kind of store have another database"
    return backend


class _LoadedSnapshot(Snapshot):
    def __init__(self, contents: Contents) -> None:
        self._contents = contents

    @property
    def ledger(self) -> Ledger | None:
        return self._contents.ledger

    def rows(self, keys: Sequence[Key]) -> dict[Key, Row]:
        rows = self._contents.rows
        return {key: rows[key] for key in keys if key in rows}

    def items(self) -> Iterator[tuple[Key, Row]]:
        return iter(self._contents.rows.items())


def changed_rows(
    table: StateTable, rows: Mapping[Key, Row], txid: int, writes: Writes, found: Standing
) -> dict[Key, Row | None]:
    """Return the rows that a commit of *txid* changes; None for a row to remove.

    The undo comes first, then the removal of old tombstones, then the writes.

    Args:
        table: The state.
        rows: The stored rows by key: at least those that the commit undoes or writes.
        txid: The txid of the commit.
        writes: What the commit writes.
        found: What :func:`~txtopo.state.ledger.standing` returned.
    """
    if table.kind == "transactional":
        if found is Standing.REDO:
            return {}
        final = final_values(table, txid, writes, lambda _: rows).rows
        return {key: None if values is None else Row(txid, values) for key, values in final.items()}
    changes: dict[Key, Row | None] = {}
    for key, row in rows.items():
        if row.txid == txid:
            changes[key] = row.undone(txid)
        elif row.deleted:
            changes[key] = None
    for key, values in final_values(table, txid, writes, lambda _: rows).rows.items():
        row_before = changes[key] if key in changes else rows.get(key)
        if row_before is not None:
            changes[key] = row_before.after(txid, values)
        elif values is not None:
            changes[key] = first_row(txid, values)
    return changes


def expired_keys(
    table: StateTable, rows: Mapping[Key, Row], up_to: Any, before_txid: int
) -> list[Key]:
    """Return the keys of the rows that expire.

    Args:
        table: The state.
        rows: Stored rows by key.
        up_to: The largest value of the range column of such a row.
        before_txid: What :func:`~txtopo.state.ledger.expiring` returned.
    """
    column = table.range_by
    assert column is not None
    return [
        key
        for key, row in rows.items()
        if row.txid < before_txid
        and not row.deleted
        and in_range(table.column_of(key, row.current, column), None, up_to)
    ]


def written_keys(table: StateTable, writes: Writes) -> list[Key]:
    """Return the keys that a commit puts, deletes or adds to.

    Keys that only an earlier attempt wrote, which the commit undoes, are not among them.
    """
    if isinstance(writes, Puts):
        return list(writes.rows)
    columns = checked_partials(table, writes.partials).columns[: len(table.key)]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


ReadRows = Callable[[Sequence[Key]], Mapping[Key, Row]]
"""Returns the rows of those keys that exist, including tombstones, as the transaction sees them."""


def combines_in_store(table: StateTable) -> bool:
    """Return whether a store can combine the aggregates of a state: all have an ``operator``."""
    return all(aggregate.operator is not None for aggregate in table.aggregates)


def final_values(table: StateTable, txid: int, writes: Writes, read: ReadRows) -> Puts:
    """Return the final values of the keys that a batch writes.

    Call it before or after the undo of an earlier attempt of *txid*: in an opaque state, a row that
    *txid* wrote counts with its previous values. Do not call it for a transactional state that
    holds *txid*, which keeps its rows.

    Args:
        table: The state.
        txid: The txid of the batch.
        writes: The writes of the batch; final values are returned as they are.
        read: Reads stored rows, in the transaction that will write.

    Raises:
        ValueRefusedError: A value cannot be stored exactly; nothing may be written.
    """
    if isinstance(writes, Puts):
        return writes
    partials = checked_partials(table, writes.partials)
    width = len(table.key)
    keys = list(zip(*(column.to_pylist() for column in partials.columns[:width]), strict=True))
    rows = read(keys)
    before = [_before(table, txid, rows.get(key)) for key in keys]
    columns = partials.columns[width:]
    combined = None
    if all(map(_combines_columns, table.aggregates, table.value)):
        with suppress(Exception):  # raised again, with the key
            combined = _in_columns(table, before, columns)
    if combined is None:
        partial = list(zip(*(column.to_pylist() for column in columns), strict=True))
        return Puts(_combined(table, keys, before, partial))
    return Puts(dict(zip(keys, zip(*combined, strict=True), strict=True)))


def _combines_columns(one: Aggregate, column: Field) -> bool:
    return one.at_once if isinstance(one, PythonAggregate) else column.type != "json"


def _in_columns(
    table: StateTable, before: Sequence[Values], partials: Sequence[pa.ChunkedArray]
) -> list[Sequence[Any]] | None:
    """Return the final values by column; None if one has to be combined key by key."""
    final: list[Sequence[Any]] = []
    stored = list(zip(*before, strict=True)) or [()] * len(table.value)
    for at, one in enumerate(table.aggregates):
        if isinstance(one, PythonAggregate):
            united = _united_at_once(one, stored[at], partials[at])
            if united is None:
                return None
            final.append(united.to_pylist())
        else:
            combined = list(map(one.combine_values, stored[at], partials[at].to_pylist()))
            door = Columns(table.name, "value", Fields.of([table.value[at]]))
            final += door.exact_columns([combined])
    return final


def _united_at_once(
    one: PythonAggregate, stored: Sequence[Any], partials: pa.ChunkedArray
) -> pa.Array | None:
    import numpy as np
    import pyarrow as pa

    from txtopo.state.keyed_columns import KeyedRows

    count = len(stored)
    both = [pa.chunked_array([stored], partials.type), partials]
    values = pa.chunked_array([chunk for each in both for chunk in each.chunks], partials.type)
    return one.united_at_once(KeyedRows.of(np.tile(np.arange(count), 2), count, [values]))


def _combined(
    table: StateTable,
    keys: Sequence[Key],
    before: Sequence[Values],
    partials: Sequence[Values],
) -> dict[Key, Values | None]:
    """Combine key by key, so that an error names its key."""
    door = Columns(table.name, "value", table.value)
    final: dict[Key, Values | None] = {}
    for key, stored, partial in zip(keys, before, partials, strict=True):
        parts = zip(table.aggregates, door.opened(stored), door.opened(partial), strict=True)
        try:
            final[key] = door.exact([one.combine_values(old, new) for one, old, new in parts])
        except Exception as error:
            error.add_note(f"while a batch was combined with key {key!r} of state {table.name!r}")
            raise
    return final


def _before(table: StateTable, txid: int, row: Row | None) -> Values:
    values = None
    if row is not None:
        values = row.visible() if table.kind == "transactional" else row.before(txid)
    return (None,) * len(table.value) if values is None else values


def checked_partials(table: StateTable, partials: pa.Table) -> pa.Table:
    """Return the partials with the columns of the state, in its order and types, sorted by key.

    Raises:
        ValueRefusedError: A key is NULL or NaN or occurs twice, or a value does not fit its column.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = Fields.of([*table.key, *table.value])
    try:
        exact = partials.select(list(columns.names)).cast(columns.arrow_schema())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, KeyError) as error:
        raise ValueRefusedError(
            f"partial aggregates do not fit state {table.name!r}; got {partials.schema}; "
            f"expected {columns!r}; {error}",
            state=table.name,
        ) from error
    for part in table.key:
        column = exact.column(part.name)
        is_nan = pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py()
        if column.null_count or is_nan:
            raise ValueRefusedError(
                f"a key of state {table.name!r} is {'NaN' if is_nan else 'NULL'} in field "
                f"{part.name!r}; expected a value; filter out such rows, or give them a key",
                state=table.name,
                field=part.name,
            )
        if pa.types.is_floating(column.type):
            # -0.0 and 0.0 are one key: some stores would tell them apart, others would not.
            unsigned = pc.add(column, pa.scalar(0.0, column.type))
            exact = exact.set_column(columns.index[part.name], exact.field(part.name), unsigned)
    exact = exact.sort_by([(name, "ascending") for name in table.key.names])
    _check_distinct(table, exact)
    return exact


def log_rows(table: StateTable, txid: int, writes: Writes) -> pa.Table:
    """Return the rows that a txid appends to a state in mode ``log``: its partials and its txid.

    Raises:
        StateUsageError: The writes are final values; use a ``PersistentAggregate``.
        ValueRefusedError: Raised by :func:`checked_partials`.
    """
    import pyarrow as pa

    if isinstance(writes, Merges):
        rows = checked_partials(table, writes.partials)
    elif writes.rows:
        raise StateUsageError(
            f"state {table.name!r} is in mode 'log' and accepts only partial aggregates; got "
            "final values; use it in a PersistentAggregate",
            state=table.name,
        )
    else:
        rows = Fields.of([*table.key, *table.value]).arrow_schema().empty_table()
    return rows.append_column("txid", pa.array([txid] * rows.num_rows, pa.int64()))


def _check_distinct(table: StateTable, partials: pa.Table) -> None:
    """Refuse a key that occurs twice: stores would handle it in different ways."""
    import pyarrow.compute as pc

    keys = [partials.column(name) for name in table.key.names]
    pairs = max(partials.num_rows - 1, 0)
    same = [pc.equal(column.slice(1), column.slice(0, pairs)) for column in keys]
    at = pc.index(reduce(pc.and_, same), True).as_py()
    if at < 0:
        return
    key = tuple(column[at].as_py() for column in keys)
    raise ValueRefusedError(
        f"partial aggregates of state {table.name!r} contain a key twice; got {key!r:.200}; "
        "expected distinct keys; combine them before they are merged",
        state=table.name,
        key=key,
    )
