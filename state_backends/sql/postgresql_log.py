"""A state in PostgreSQL in mode ``log``: the partials of a txid are copied in, and folded later.

A row is a partial aggregate with its txid, and so is a folded row; the view groups by key. There is
no primary key, and one index, on txid: for the redo and the folds. A commit is one ``COPY`` and the
ledger; the folds, ``postgresql_folding.py``, are beside the commits.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from state_backends.sql.postgresql import PostgresqlDialect
from state_backends.sql.postgresql_folding import LogFolder, combined
from state_backends.sql.postgresql_rows import copy_rows
from state_backends.sql.postgresql_types import column_type
from state_backends.sql.tables import StateColumns
from txtopo.errors import ValueRefusedError
from txtopo.state import (
    StateMode,
    StateTable,
    Writes,
    largest,
    limited_sums,
    log_rows,
)

_FLOAT_MAX = {"float": 3.4e38, "double": 1.79e308}
_MARGIN = 0.99  # the bounds are floats, and the limits have up to 38 digits


class PostgresqlLogDialect(PostgresqlDialect):
    """One state in PostgreSQL in mode ``log``."""

    modes: frozenset[StateMode] = frozenset({"log"})

    def __init__(self, url: sa.URL, state: StateTable) -> None:
        super().__init__(url, state)
        self.columns = _columns(state)
        self._limits = limited_sums(state)
        # PostgreSQL refuses a sum beyond the range of a float, where others have infinity.
        self._floats = [
            field.name
            for field, aggregate in zip(state.value, state.aggregates, strict=True)
            if aggregate.operator == "add" and field.type in _FLOAT_MAX
        ]
        self._tops = dict(self._limits) | {
            field.name: _FLOAT_MAX[field.type]
            for field in state.value
            if field.name in self._floats
        }
        self._bounds: dict[str, float] | None = None
        self._folder = LogFolder(state, self.columns, self.write_options())

    @property
    def redone(self) -> bool:
        """Whether a redo takes back the rows of its txid; a transactional state keeps them."""
        return self.state.kind == "opaque"

    def prepare(self, connection: sa.Connection) -> None:
        """Make nothing: rows are copied where they stay."""
        self.check_version(connection)

    def listing(self) -> sa.Table | None:
        """Return none: the txid stands in each row."""
        return None

    def create(self, connection: sa.Connection) -> None:
        """Make the index on txid."""
        index = sa.Index(f"{self.state.name}_txid", self.columns.txid)
        index.create(connection, checkfirst=True)

    def selected(self) -> sa.Select[Any]:
        """Return what reads one row for each key: its key, its values, and the largest txid."""
        columns = self.columns
        values = combined(self.state, columns.values)
        txid = sa.func.max(columns.txid).label("txid")
        return sa.select(*columns.keys, *values, txid).group_by(*columns.keys)

    def undo(self, connection: sa.Connection, txid: int) -> None:
        """Take back the rows of *txid*."""
        connection.execute(sa.delete(self.columns.table).where(self.columns.txid == txid))

    def purge(self, connection: sa.Connection) -> None:
        """Do nothing: there are no tombstones."""

    def apply(self, connection: sa.Connection, txid: int, writes: Writes) -> None:
        """Append the partials of *txid*."""
        rows = log_rows(self.state, txid, writes)
        self._folder.wrote(txid, rows.num_rows)
        if not rows.num_rows:
            return
        copy_rows(connection, self.state.name, rows)
        self._check_sums(connection, {name: largest(rows.column(name)) for name in self._tops})

    def after_commit(self, engine: sa.Engine, txid: int) -> None:
        """Fold beside the next commits, once there is enough to fold."""
        self._folder.after_commit(engine, txid)

    def close(self) -> None:
        """Wait for a fold that is under way."""
        self._folder.close()

    def _check_sums(self, connection: sa.Connection, added: dict[str, float]) -> None:
        """Refuse sums that do not fit; the rows are in the table, in this transaction."""
        if not self._tops:
            return
        if self._bounds is not None:
            bounds = {name: self._bounds[name] + more for name, more in added.items()}
            if all(bounds[name] < limit * _MARGIN for name, limit in self._tops.items()):
                self._bounds = bounds
                return
        self._bounds = self._exact_bounds(connection)

    def _exact_bounds(self, connection: sa.Connection) -> dict[str, float]:
        table = self.columns.table
        sums = [sa.func.sum(table.c[name]).label(name) for name in self._tops]
        grouped = sa.select(*sums).group_by(*self.columns.keys).subquery()
        ends = [(sa.func.min(grouped.c[n]), sa.func.max(grouped.c[n])) for n in self._tops]
        row = connection.execute(sa.select(*[end for pair in ends for end in pair])).one()
        bounds: dict[str, float] = {}
        for at, name in enumerate(self._tops):
            low, high = (row[2 * at + side] or 0 for side in (0, 1))
            if name in self._floats:
                # A sum beyond the range has raised by now.
                bounds[name] = float(max(abs(high), abs(low)))
                continue
            limit = self._limits[name]
            # A whole number may be one further below zero than above it.
            lowest = -limit if self.columns.table.c[name].type.python_type is int else 1 - limit
            if high >= limit or low < lowest:
                raise ValueRefusedError(
                    f"a sum of state {self.state.name!r} does not fit its column {name!r}; got "
                    f"{high if high >= limit else low}; expected less than {limit}; nothing of its "
                    "batch was written",
                    state=self.state.name,
                    field=name,
                )
            bounds[name] = float(max(high, -low))
        return bounds


def _columns(state: StateTable) -> StateColumns:
    keys = tuple(
        sa.Column(field.name, column_type(field.type), nullable=False) for field in state.key
    )
    values = tuple(sa.Column(field.name, column_type(field.type)) for field in state.value)
    txid = sa.Column("txid", sa.BigInteger(), nullable=False)
    table = sa.Table(state.name, sa.MetaData(), *keys, *values, txid)
    return StateColumns(table, keys, values, ())
