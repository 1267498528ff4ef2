"""One consistent reading of a state in a database transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import sqlalchemy as sa

from state_backends.sql.dialect import SqlDialect
from state_backends.sql.failures import translated
from state_backends.sql.tables import ledger_of, ledger_row
from txtopo.state import Key, Ledger, Row, Snapshot

# SQLite takes 32,766 parameters in a statement, old ones 999; a state may have several key columns.
_KEYS_IN_A_STATEMENT = 200
_ROWS_AT_A_TIME = 10_000


class SqlSnapshot(Snapshot):
    """Rows and ledger of the same instant; lives as long as its transaction."""

    def __init__(self, connection: sa.Connection, dialect: SqlDialect, place: str) -> None:
        self._connection = connection
        self._dialect = dialect
        self._place = place
        ledger = dialect.ledger
        rows = self._run(ledger_row(ledger, dialect.state.name))
        self._ledger = ledger_of(rows.first())

    @property
    def ledger(self) -> Ledger | None:
        """The ledger, or None for a state that nobody has claimed."""
        return self._ledger

    def rows(self, keys: Sequence[Key]) -> dict[Key, Row]:
        """Return the rows of those of *keys* that exist, tombstones too."""
        found: dict[Key, Row] = {}
        columns = self._dialect.columns.keys
        left = iter(keys)
        while chunk := [self._dialect.encoded(key) for key in islice(left, _KEYS_IN_A_STATEMENT)]:
            if len(columns) == 1:
                wanted = columns[0].in_([key[0] for key in chunk])
            else:
                wanted = sa.tuple_(*columns).in_(chunk)
            rows = self._fetched(self._run(self._dialect.selected().where(wanted)))
            found.update(map(self._row, rows))
        return found

    def items(self) -> Iterator[tuple[Key, Row]]:
        """Yield every row, tombstones too."""
        if self._dialect.pages:
            yield from self._pages()
            return
        options = {"yield_per": _ROWS_AT_A_TIME}
        rows = self._fetched(self._run(self._dialect.selected(), options))
        yield from map(self._row, list(rows) if self._dialect.fetches else rows)

    def _pages(self) -> Iterator[tuple[Key, Row]]:
        keys = self._dialect.columns.keys
        pages = self._dialect.selected().order_by(*keys).limit(_ROWS_AT_A_TIME)
        found = list(self._fetched(self._run(pages)))
        while found:
            yield from map(self._row, found)
            last = tuple(found[-1])[: len(keys)]
            found = list(self._fetched(self._run(pages.where(_after(keys, last)))))

    def _row(self, row: sa.Row[Any]) -> tuple[Key, Row]:
        found = tuple(row)
        state, decoded = self._dialect.state, self._dialect.decoded
        key_types = [field.type for field in state.key]
        value_types = [field.type for field in state.value]
        width, values = len(key_types), len(value_types)
        key = decoded(key_types, found[:width])
        current = decoded(value_types, found[width : width + values])
        # A row of a user's own table has no txid: it was there before the first one.
        txid = found[width + values] or 0
        if not self._dialect.columns.opaque:
            return key, Row(txid, current)
        prev_txid, deleted = found[-2], bool(found[-1])
        if prev_txid is None:
            return key, Row(txid, current, deleted=deleted)
        previous = decoded(value_types, found[width + values + 1 : -2])
        return key, Row(txid, current, previous, prev_txid, deleted)

    def _fetched(self, rows: sa.CursorResult[Any]) -> Iterator[sa.Row[Any]]:
        """Yield rows; what is read later fails later."""
        try:
            yield from rows
        except sa.exc.SQLAlchemyError as error:
            raise translated(error, self._place) from error

    def _run(
        self, statement: sa.Executable, options: dict[str, Any] | None = None
    ) -> sa.CursorResult[Any]:
        try:
            return self._connection.execute(statement, execution_options=options or {})
        except sa.exc.SQLAlchemyError as error:
            raise translated(error, self._place) from error


def _after(keys: Sequence[sa.Column[Any]], last: tuple[Any, ...]) -> sa.ColumnElement[bool]:
    """Return the condition that a key comes after *last*, in a form that uses its index."""
    found: list[sa.ColumnElement[bool]] = []
    for at, key in enumerate(keys):
        equal = [one == value for one, value in zip(keys[:at], last[:at], strict=True)]
        found.append(sa.and_(*equal, key > last[at]))
    return sa.or_(*found)
