"""Mode ``log`` in a database: append, read, undo, fold, and the bounds of its sums.

A row is a partial aggregate with its txid, and so is a folded row; the view groups by key. No two
rows have the same key and txid. A commit appends the rows of its txid and writes the ledger, in one
transaction; an undo deletes them.

Folds
-----
1. A fold is a separate transaction, in parallel to the commits. It replaces the rows of a span of
   txids by their combination, which gets the last of these txids. The span ends before the ledger's
   txid, so an undo never needs folded rows, and commits write other rows.
2. Two folds of the same rows, even a zombie's, wait for each other. The second finds nothing to
   fold.
3. The number of rows of each txid is remembered, since counting reads the whole log: in PostgreSQL
   a million rows took all cores 0.6 s, every sixteen commits. It is counted once, before the first
   fold. If other processes folded since, the number is wrong; then a fold is larger or smaller, but
   still right.

How rows are replaced differs between databases: ``postgresql_log.py``, ``mariadb_log.py``.

Sums
----
A commit refuses a sum that does not fit its column. It uses the bounds of
:class:`txtopo.state.log_mode.SumBounds`. The first bounds come from the largest values by txid,
which is much cheaper than adding up by key. When a bound reaches its limit, the rows of each key
are added up. Floats are added up without their signs, since folds and readers add them in any
order, and a partial sum may be larger than the total.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from state_backends.sql.dialect import SqlDialect, StateColumns
from txtopo.errors import ValueRefusedError
from txtopo.plugins.stores import Aggregate, StateMode, StateTable, Writes, log_rows
from txtopo.state.log_mode import (
    SEGMENTS_OF_A_TIER,
    BackgroundTask,
    SumBounds,
    limited_sums,
    span_to_fold,
)


class LogDialect(SqlDialect):
    """One state in mode ``log``; a mixin that comes before the dialect of its database."""

    modes: frozenset[StateMode] = frozenset({"log"})
    folder: LogFolder
    sums: LogSums

    @abstractmethod
    def append(self, connection: sa.Connection, txid: int, rows: pa.Table) -> None:
        """Insert rows, at least one: key, value, txid."""

    @property
    def redone(self) -> bool:
        """Whether a redo undoes the rows of its txid; a transactional state keeps them."""
        return self.state.kind == "opaque"

    def listing(self) -> sa.Table | None:
        """Return None: an undo finds its rows by their txid."""
        return None

    def selected(self) -> sa.Select[Any]:
        """Return the query for one row for each key: its key, its values, and the largest txid."""
        columns = self.columns
        values = combined(self.state, columns.values)
        txid = sa.func.max(columns.txid).label("txid")
        return sa.select(*columns.keys, *values, txid).group_by(*columns.keys)

    def undo(self, connection: sa.Connection, txid: int) -> None:
        """Delete the rows of *txid*."""
        connection.execute(sa.delete(self.columns.table).where(self.columns.txid == txid))

    def purge(self, connection: sa.Connection) -> None:
        """Do nothing: there are no tombstones."""

    def apply(self, connection: sa.Connection, txid: int, writes: Writes) -> None:
        """Append the partials of *txid*."""
        rows = log_rows(self.state, txid, writes)
        self.folder.wrote(txid, rows.num_rows)
        if rows.num_rows:
            self.append(connection, txid, rows)
            self.sums.check(connection, rows)

    def after_commit(self, engine: sa.Engine, txid: int) -> None:
        """Start a fold beside the next commits, if there is enough to fold."""
        self.folder.after_commit(engine, txid)

    def close(self) -> None:
        """Wait for a fold that is running."""
        self.folder.close()


@dataclass(frozen=True, slots=True)
class LogSpan:
    """Rows of the log that were written or folded together."""

    first_txid: int
    last_txid: int
    rows: int


class LogFolder(ABC):
    """Folds the log of a state.

    Args:
        state: The state.
        columns: Its table.
    """

    def __init__(self, state: StateTable, columns: StateColumns) -> None:
        self._state = state
        self._columns = columns
        self.background = BackgroundTask(f"the log of state {state.name!r}")
        self._commits = 0
        # The row counts of commits since the last fold; only the background thread uses _rows.
        self._written: deque[tuple[int, int]] = deque()
        self._rows: dict[int, int] | None = None

    @abstractmethod
    def prepare(self, connection: sa.Connection) -> None:
        """Set a connection up for writes; no transaction has begun."""

    @abstractmethod
    def replace(self, connection: sa.Connection, first: int, last: int) -> int:
        """Replace the rows of the txids *first* to *last*; return how many are left."""

    def begin(self, connection: sa.Connection) -> None:  # noqa: B027 - a hook
        """Make a transaction yield to the commits. The default does nothing."""

    def wrote(self, txid: int, rows: int) -> None:
        """Remember how many rows a txid has, even if its commit fails later."""
        self._written.append((txid, rows))

    def after_commit(self, engine: sa.Engine, txid: int) -> None:
        """Start a fold beside the next commits, if there is enough to fold."""
        self._commits += 1  # not by txid: a group is one commit, and may end at any txid
        if self._commits % SEGMENTS_OF_A_TIER == 0:
            self.background.submit(lambda: self._fold(engine, txid))

    def close(self) -> None:
        """Wait for a fold that is running."""
        self.background.close()

    def folded(self, connection: sa.Connection, txids: Sequence[int]) -> int:
        """Fold the rows of these txids, in their order, and return how many are left."""
        with connection.begin():
            self.begin(connection)
            return self.replace(connection, txids[0], txids[-1])

    def _fold(self, engine: sa.Engine, txid: int) -> None:
        # After a lost connection, the counts must not be half updated.
        known, self._rows = self._rows, None
        with engine.connect() as connection:
            self.prepare(connection)
            if known is None:
                known = self._counted(connection)
            while self._written:
                at, rows = self._written.popleft()
                known[at] = rows  # also zero, if a redo has no rows
            known = {at: rows for at, rows in known.items() if rows}
            while span := span_to_fold(_spans(known), txid):
                first, last = span
                txids = sorted(at for at in known if first <= at <= last)
                left = self.folded(connection, txids)
                known = {at: n for at, n in known.items() if not first <= at <= last}
                known[last] = left
        self._rows = known

    def _counted(self, connection: sa.Connection) -> dict[int, int]:
        txid = self._columns.txid
        with connection.begin():
            self.begin(connection)
            found = connection.execute(sa.select(txid, sa.func.count()).group_by(txid))
            return {row[0]: row[1] for row in found}


def _spans(rows: dict[int, int]) -> list[LogSpan]:
    # A folded row has the last txid of its span, and rows of the span are nowhere else.
    return [LogSpan(at, at, rows[at]) for at in sorted(rows)]


def combined(state: StateTable, values: Iterable[Any]) -> list[sa.Label[Any]]:
    """Return the expressions that combine the rows of a key, one for each value column."""
    pairs = zip(state.aggregates, values, strict=True)
    return [_over_rows(aggregate, value).label(value.name) for aggregate, value in pairs]


def _over_rows(aggregate: Aggregate, value: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    if aggregate.operator != "add":
        return (sa.func.min if aggregate.operator == "min" else sa.func.max)(value)
    total = sa.func.sum(value)
    # A sum of whole numbers or decimals has more digits than its column.
    return total if isinstance(value.type, sa.Float) else sa.cast(total, value.type)


class LogSums:
    """Refuses sums of a state that do not fit their columns.

    Args:
        state: The state.
        columns: Its table.
        float_max: The largest sums of the field types that are floats, rounded down.
    """

    def __init__(
        self, state: StateTable, columns: StateColumns, float_max: Mapping[str, float]
    ) -> None:
        self._state = state
        self._columns = columns
        self._limits = limited_sums(state)
        pairs = zip(state.value, state.aggregates, strict=bool(state.aggregates))
        self.floats = {
            field.name: float_max[field.type]
            for field, aggregate in pairs
            if aggregate.operator == "add" and field.type in float_max
        }
        tops: dict[str, float] = self._limits | self.floats
        self._names = list(tops)
        self._bounds = SumBounds(tops)

    def check(self, connection: sa.Connection, rows: pa.Table) -> None:
        """Refuse sums that do not fit; the rows are in the table, in this transaction.

        Raises:
            ValueRefusedError: A sum is too large; roll the transaction back.
        """
        self._bounds.check(
            rows,
            first_bounds=lambda: self._bounds_by_txid(connection),
            exact_bounds=lambda: self._exact_bounds(connection),
        )

    def summed(self, column: sa.Column[Any]) -> sa.ColumnElement[Any]:
        """Return the sum of a column, without wrapping or an error; floats without signs."""
        return sa.func.sum(sa.func.abs(column) if column.name in self.floats else column)

    def float_bound(self, name: str, high: float) -> float:
        """Return the bound of a sum of floats, from the largest result of :meth:`summed`."""
        return float(high)

    def refused(self, name: str, got: object, limit: object) -> ValueRefusedError:
        """Return the error for a sum that is too large."""
        return ValueRefusedError(
            f"a sum of state {self._state.name!r} does not fit its column {name!r}; got {got}; "
            f"expected less than {limit}; nothing of its batch was written",
            state=self._state.name,
            field=name,
        )

    def _bounds_by_txid(self, connection: sa.Connection) -> dict[str, float]:
        columns = self._columns
        ends = _ends([columns.table.c[name] for name in self._names])
        rows = connection.execute(sa.select(*ends).group_by(columns.txid)).all()
        return {
            name: sum(_furthest(*row[2 * at : 2 * at + 2]) for row in rows)
            for at, name in enumerate(self._names)
        }

    def _exact_bounds(self, connection: sa.Connection) -> dict[str, float]:
        columns = self._columns
        sums = [self.summed(columns.table.c[name]).label(name) for name in self._names]
        grouped = sa.select(*sums).group_by(*columns.keys).subquery()
        ends = _ends([grouped.c[name] for name in self._names])
        row = connection.execute(sa.select(*ends)).one()
        bounds: dict[str, float] = {}
        for at, name in enumerate(self._names):
            low, high = (row[2 * at + side] or 0 for side in (0, 1))
            if name in self.floats:
                bounds[name] = self.float_bound(name, high)
            else:
                self._check(name, low, high)
                bounds[name] = float(max(high, -low))
        return bounds

    def _check(self, name: str, low: Any, high: Any) -> None:
        limit = self._limits[name]
        # The range of whole numbers reaches one further below zero than above it.
        is_whole = self._columns.table.c[name].type.python_type is int
        if high >= limit or low < -limit or (low == -limit and not is_whole):
            raise self.refused(name, high if high >= limit else low, limit)


def _furthest(low: Any, high: Any) -> float:
    # NaN is the highest, and stays if it comes first.
    return max(abs(float(high or 0)), abs(float(low or 0)))


def _ends(columns: list[sa.ColumnElement[Any]]) -> list[sa.ColumnElement[Any]]:
    return [end(column) for column in columns for end in (sa.func.min, sa.func.max)]
