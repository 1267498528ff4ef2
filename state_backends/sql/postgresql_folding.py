"""Folds of a log in PostgreSQL, beside the commits.

Rules
-----
1. A fold is one statement, in a transaction of its own, that deletes the rows of a span of txids
   and inserts their combination with the last of them. The span ends before the ledger's txid, so
   that an undo never needs what was folded, and commits write other rows.
2. Two folds of the same rows, of a zombie's too, wait for each other; the second finds nothing.
3. How many rows each txid has is remembered, since counting reads the whole log: a million rows
   took all cores 0.6 s, every sixteen commits. It is counted once, before the first fold. What
   others did since may be missing; then a fold is larger or smaller, and as right.
4. A fold does not wait for the disk. The log of PostgreSQL is in order: once a later commit is
   durable the fold is, and until then it may be lost, with nothing lost that was in it.

Why not in slices: sixteen, by a hash of the keys, with pauses between them or without, made a fold
of 160,000 rows take three times as long, and no commit beside it shorter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from state_backends.sql.tables import StateColumns
from txtopo.state import SEGMENTS_OF_A_TIER, Aggregate, Lane, StateTable, span_to_fold

# Else counting takes every core, and commits wait for one.
_BESIDE = (
    "SET LOCAL synchronous_commit = off",
    "SET LOCAL max_parallel_workers_per_gather = 0",
)


@dataclass(frozen=True, slots=True)
class LogSpan:
    """Rows of the log that were written, or folded, together."""

    first_txid: int
    last_txid: int
    rows: int


class LogFolder:
    """Folds the log of a state.

    Args:
        state: The state.
        columns: Its table.
        options: Execution options of a transaction that writes.
    """

    def __init__(
        self, state: StateTable, columns: StateColumns, options: Mapping[str, Any]
    ) -> None:
        self._state = state
        self._columns = columns
        self._options = options
        self._lane = Lane(f"the log of state {state.name!r}")
        # What commits wrote since the last fold; the lane alone has the rest.
        self._written: deque[tuple[int, int]] = deque()
        self._rows: dict[int, int] | None = None

    def wrote(self, txid: int, rows: int) -> None:
        """Remember how many rows a txid has, whether its commit succeeds or not."""
        self._written.append((txid, rows))

    def after_commit(self, engine: sa.Engine, txid: int) -> None:
        """Fold beside the next commits, once there is enough to fold."""
        if txid % SEGMENTS_OF_A_TIER == 0:
            self._lane.submit(lambda: self._fold(engine, txid))

    def close(self) -> None:
        """Wait for a fold that is under way."""
        self._lane.close()

    def statement(self, first: int, last: int) -> sa.Executable:
        """Return what replaces the rows of the txids *first* to *last* by their combination."""
        columns = self._columns
        wanted = columns.txid.between(first, last)
        own = [*columns.keys, *columns.values]
        gone = sa.delete(columns.table).where(wanted).returning(*own).cte("gone")
        keys = [gone.c[key.name] for key in columns.keys]
        values = [gone.c[value.name] for value in columns.values]
        rows = sa.select(*keys, *combined(self._state, values), sa.literal(last)).group_by(*keys)
        names = [column.name for column in (*own, columns.txid)]
        return sa.insert(columns.table).from_select(names, rows).add_cte(gone)

    def _fold(self, engine: sa.Engine, txid: int) -> None:
        # A lost connection must not leave half of it known.
        known, self._rows = self._rows, None
        with engine.connect() as connection:
            connection.execution_options(**self._options)
            if known is None:
                known = self._counted(connection)
            while self._written:
                at, rows = self._written.popleft()
                known[at] = rows  # also none, if a redo has none
            known = {at: rows for at, rows in known.items() if rows}
            while span := span_to_fold(_spans(known), txid):
                first, last = span
                left = self._folded(connection, first, last)
                known = {at: n for at, n in known.items() if not first <= at <= last}
                known[last] = left
        self._rows = known

    def _counted(self, connection: sa.Connection) -> dict[int, int]:
        txid = self._columns.txid
        with connection.begin():
            _stay_beside(connection)
            found = connection.execute(sa.select(txid, sa.func.count()).group_by(txid))
            return {row[0]: row[1] for row in found}

    def _folded(self, connection: sa.Connection, first: int, last: int) -> int:
        """Fold a span, and return how many rows are left of it."""
        with connection.begin():
            _stay_beside(connection)
            counting = {"preserve_rowcount": True}
            result = connection.execute(self.statement(first, last), execution_options=counting)
            return result.rowcount


def _spans(rows: dict[int, int]) -> list[LogSpan]:
    # A folded row has the last txid of its span, and rows of the span are nowhere else.
    return [LogSpan(at, at, rows[at]) for at in sorted(rows)]


def _stay_beside(connection: sa.Connection) -> None:
    for setting in _BESIDE:
        connection.exec_driver_sql(setting)


def combined(state: StateTable, values: Any) -> list[sa.Label[Any]]:
    """Return what combines the rows of a key, for each value column."""
    pairs = zip(state.aggregates, values, strict=True)
    return [_over_rows(aggregate, value).label(value.name) for aggregate, value in pairs]


def _over_rows(aggregate: Aggregate, value: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    if aggregate.operator == "add":
        # A sum of whole numbers is numeric; the cast raises where it does not fit.
        return sa.cast(sa.func.sum(value), value.type)
    return (sa.func.min if aggregate.operator == "min" else sa.func.max)(value)
