"""Folds of a log in a database, beside the commits: when, and which rows.

Rules
-----
1. A fold is one transaction of its own that replaces the rows of a span of txids by their
   combination with the last of them. The span ends before the ledger's txid, so that an undo never
   needs what was folded, and commits write other rows.
2. Two folds of the same rows, of a zombie's too, wait for each other; the second finds nothing.
3. How many rows each txid has is remembered, since counting reads the whole log: in PostgreSQL a
   million rows took all cores 0.6 s, every sixteen commits. It is counted once, before the first
   fold. What others did since may be missing; then a fold is larger or smaller, and as right.

How the rows are replaced is each database's own: ``postgresql_folding.py``, ``mariadb_folding.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass

import sqlalchemy as sa

from state_backends.sql.tables import StateColumns
from txtopo.state import SEGMENTS_OF_A_TIER, Lane, StateTable, span_to_fold


@dataclass(frozen=True, slots=True)
class LogSpan:
    """Rows of the log that were written, or folded, together."""

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
        self._lane = Lane(f"the log of state {state.name!r}")
        # What commits wrote since the last fold; the lane alone has the rest.
        self._written: deque[tuple[int, int]] = deque()
        self._rows: dict[int, int] | None = None

    @abstractmethod
    def prepare(self, connection: sa.Connection) -> None:
        """Make a connection one that writes; no transaction has begun."""

    @abstractmethod
    def replace(self, connection: sa.Connection, first: int, last: int) -> int:
        """Replace the rows of the txids *first* to *last*; return how many are left of them."""

    def begin(self, connection: sa.Connection) -> None:  # noqa: B027 - a hook
        """Make a transaction one that is beside the commits; nothing, unless there is a way."""

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

    def folded(self, connection: sa.Connection, first: int, last: int) -> int:
        """Fold a span, and return how many rows are left of it."""
        with connection.begin():
            self.begin(connection)
            return self.replace(connection, first, last)

    def _fold(self, engine: sa.Engine, txid: int) -> None:
        # A lost connection must not leave half of it known.
        known, self._rows = self._rows, None
        with engine.connect() as connection:
            self.prepare(connection)
            if known is None:
                known = self._counted(connection)
            while self._written:
                at, rows = self._written.popleft()
                known[at] = rows  # also none, if a redo has none
            known = {at: rows for at, rows in known.items() if rows}
            while span := span_to_fold(_spans(known), txid):
                first, last = span
                left = self.folded(connection, first, last)
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
