"""The statements that write the rows of a txid in PostgreSQL, compiled once for each state.

Sizes
-----
A message to the server holds less than 1 GiB, and so does a field. Long rows are therefore copied,
however few they are, and in pieces: each is written as text while the server waits in ``COPY``,
which its limit on idle transactions leaves alone. A row that is too long by itself is refused by
name before it is sent; what the server finds too large is refused as a value as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler

from state_backends.sql.names import STAGE, Names
from state_backends.sql.postgresql_types import as_array, as_csv, plain_type
from state_backends.sql.tables import StateColumns
from txtopo.errors import ValueRefusedError
from txtopo.state import Aggregate, StateTable

# Below this, arrays in the statement are faster than COPY with its extra round trips.
COPIED_ROWS_MIN = 2_000
COPIED_BYTES_MIN = 1 << 24
# So much is turned into text at a time.
PIECE_BYTES_MAX = 1 << 24
ROW_BYTES_MAX = (1 << 30) - 1
"""What the server takes of one row as text: PostgreSQL's MaxAllocSize."""
GONE = "in_gone"


def given(at: int) -> str:
    """Return the name of the at-th column, keys then values, of rows on their way in.

    The user's names will not do: SQLAlchemy changes odd ones in the names of parameters.
    """
    return f"in_{at}"


@dataclass(frozen=True, slots=True)
class Change:
    """What a MERGE does with a row; no values means that it deletes the row.

    Attributes:
        when: ``MATCHED`` or ``NOT MATCHED``.
        values: The new values by column.
        condition: A further condition.
    """

    when: str
    values: dict[sa.Column[Any], sa.ColumnElement[Any]]
    condition: sa.ColumnElement[bool] | None = None


class Merge(sa.ClauseElement):
    """``MERGE``, which SQLAlchemy does not have."""

    inherit_cache = False

    def __init__(
        self,
        target: sa.Table,
        source: sa.FromClause,
        keys: Sequence[sa.Column[Any]],
        changes: Sequence[Change],
    ) -> None:
        self.target = target
        self.source = source
        self.match = sa.and_(*[key == source.c[given(at)] for at, key in enumerate(keys)])
        self.changes = changes


@compiles(Merge, "postgresql")
def _merge(element: Merge, compiler: SQLCompiler, **_: Any) -> str:
    target = compiler.process(element.target, asfrom=True)
    source = compiler.process(element.source, asfrom=True)
    parts = [f"MERGE INTO {target} USING {source} ON {compiler.process(element.match)}"]
    for change in element.changes:
        also = "" if change.condition is None else f" AND {compiler.process(change.condition)}"
        parts.append(f"WHEN {change.when}{also} THEN {_action(change, compiler)}")
    return " ".join(parts)


def _action(change: Change, compiler: SQLCompiler) -> str:
    names = [compiler.preparer.quote(column.name) for column in change.values]
    values = [compiler.process(value) for value in change.values.values()]
    if not names:
        return "DELETE"
    if change.when == "NOT MATCHED":
        return f"INSERT ({', '.join(names)}) VALUES ({', '.join(values)})"  # noqa: S608 - compiled
    pairs = zip(names, values, strict=True)
    return "UPDATE SET " + ", ".join(f"{name} = {value}" for name, value in pairs)


class RowWriter:
    """Writes many rows: from arrays or from the stage, which ``COPY`` fills.

    Attributes:
        stage: The temporary table of a connection that takes the rows.
        touched: The table with the keys of the last txid; None for a transactional state.
    """

    def __init__(self, state: StateTable, columns: StateColumns, names: Names) -> None:
        self._state = state
        self._columns = columns
        self.stage = _stage(state)
        self.touched = None if names.touched is None else _touched(names.touched, state)
        arrays = _arrays(state)
        self._puts = self._pair(arrays, put=True)
        self._merges = self._pair(arrays, put=False) if state.aggregates else None
        self._keep = None if self.touched is None else self._keep_pair()

    def write(self, connection: sa.Connection, rows: pa.Table, txid: int, *, put: bool) -> None:
        """Write rows whose columns are keys, values and, for puts, whether the key goes."""
        statements = self._puts if put else self._merges
        assert statements is not None
        copied = rows.num_rows >= COPIED_ROWS_MIN or rows.nbytes >= COPIED_BYTES_MIN
        parameters: dict[str, Any] = {"in_txid": txid}
        if copied:
            copy_rows(connection, self.stage.name, rows, state=self._state.name)
        else:
            names = rows.column_names
            parameters |= {name: as_array(rows.column(name)) for name in names}
        if self._keep is not None:
            connection.exec_driver_sql(self._keep[copied], parameters)
        if rows.num_rows:
            connection.exec_driver_sql(statements[copied], parameters)

    def _pair(self, arrays: dict[str, sa.BindParameter[Any]], *, put: bool) -> tuple[str, str]:
        wanted = [name for name in arrays if put or name != GONE]
        unnested = sa.func.unnest(*[arrays[name] for name in wanted])
        typed = [sa.column(name, self.stage.c[name].type) for name in wanted]
        source = unnested.table_valued(*typed, name="s").render_derived()
        return self._merge(source, put=put), self._merge(self.stage.alias("s"), put=put)

    def _merge(self, source: sa.FromClause, *, put: bool) -> str:
        columns = self._columns
        gone = source.c[GONE] if put else None
        width = len(columns.keys)
        updated: dict[sa.Column[Any], sa.ColumnElement[Any]] = {
            column: source.c[given(at)] for at, column in enumerate(columns.values, width)
        }
        if not put:
            updated = {
                column: _combined(aggregate, column, new)
                for aggregate, (column, new) in zip(
                    self._state.aggregates, updated.items(), strict=True
                )
            }
        changes = [
            *([] if gone is None else [self._removal(gone)]),
            Change("MATCHED", {**updated, **self._tags(deleted=False)}),
            self._insertion(source, None if gone is None else sa.not_(gone)),
        ]
        return _text(Merge(columns.table, source, columns.keys, changes))

    def _removal(self, gone: sa.ColumnElement[bool]) -> Change:
        if not self._columns.opaque:
            return Change("MATCHED", {}, gone)
        return Change("MATCHED", self._tags(deleted=True), gone)

    def _tags(self, *, deleted: bool) -> dict[Any, Any]:
        columns = self._columns
        tags: dict[Any, Any] = {columns.txid: _txid()}
        if columns.opaque:
            tags |= dict(columns.moved_back())
            tags |= {columns.deleted: sa.true() if deleted else sa.false()}
        return tags

    def _insertion(self, source: sa.FromClause, condition: sa.ColumnElement[bool] | None) -> Change:
        columns = self._columns
        inserted = enumerate((*columns.keys, *columns.values))
        values: dict[Any, Any] = {column: source.c[given(at)] for at, column in inserted}
        values[columns.txid] = _txid()
        if columns.opaque:
            values[columns.deleted] = sa.false()
        return Change("NOT MATCHED", values, condition)

    def _keep_pair(self) -> tuple[str, str]:
        assert self.touched is not None
        arrays = _arrays(self._state)
        keys = [(self.touched.c[name], given(at)) for at, name in enumerate(self._state.key.names)]
        read = {
            column: sa.select(sa.func.array_agg(self.stage.c[name]))
            .select_from(self.stage)
            .scalar_subquery()
            for column, name in keys
        }
        update = sa.update(self.touched)
        txid: dict[Any, Any] = {self.touched.c.txid: _txid()}
        bound = {column: arrays[name] for column, name in keys}
        return _text(update.values({**txid, **bound})), _text(update.values({**txid, **read}))


def copy_rows(connection: sa.Connection, table: str, rows: pa.Table, *, state: str) -> None:
    """Append rows to a table, by ``COPY``.

    Args:
        connection: In the transaction of the commit.
        table: The table.
        rows: The rows.
        state: The state that they are of, for messages.

    Raises:
        ValueRefusedError: A row is too long.
    """
    names = ", ".join(_quoted(connection, name) for name in rows.column_names)
    driver: Any = connection.connection.driver_connection
    into = f"COPY {_quoted(connection, table)} ({names}) FROM STDIN (FORMAT csv)"
    with driver.cursor() as cursor, cursor.copy(into) as copy:
        for piece in _pieces(rows, state):
            copy.write(as_csv(piece))


def _pieces(rows: pa.Table, state: str) -> Iterator[pa.Table]:
    if rows.nbytes <= PIECE_BYTES_MAX:
        yield rows
    elif rows.num_rows > 1:
        half = rows.num_rows // 2
        yield from _pieces(rows.slice(0, half), state)
        yield from _pieces(rows.slice(half), state)
    else:
        # Bytes travel as two digits each.
        needed = sum(
            column.nbytes * (2 if pa.types.is_binary(column.type) else 1) for column in rows.columns
        )
        if needed > ROW_BYTES_MAX:
            raise ValueRefusedError(
                f"a row is too long for table {state!r}; got {needed} bytes of text; expected at "
                f"most {ROW_BYTES_MAX}, which no setting of PostgreSQL raises; nothing of its "
                "batch was written; keep the value elsewhere, and where it lies in the state"
            )
        yield rows


def puts_table(state: StateTable, rows: Sequence[tuple[Any, Any]]) -> pa.Table:
    """Return final values of keys as a table with the columns that a stage has."""
    types = [*state.key.arrow_schema().types, *state.value.arrow_schema().types]
    empty = (None,) * len(state.value)
    records = [(*key, *(empty if values is None else values)) for key, values in rows]
    columns = list(zip(*records, strict=True)) if records else [()] * len(types)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    gone = pa.array([values is None for _, values in rows], pa.bool_())
    return pa.table([*arrays, gone], names=[*map(given, range(len(types))), GONE])


def _stage(state: StateTable) -> sa.Table:
    fields = [*state.key, *state.value]
    return sa.Table(
        STAGE,
        sa.MetaData(),
        *[sa.Column(given(at), plain_type(field.type)) for at, field in enumerate(fields)],
        sa.Column(GONE, sa.Boolean()),
        prefixes=["TEMPORARY"],
        postgresql_on_commit="DELETE ROWS",
    )


def _touched(name: str, state: StateTable) -> sa.Table:
    return sa.Table(
        name,
        sa.MetaData(),
        sa.Column("txid", sa.BigInteger(), nullable=False),
        *[sa.Column(field.name, ARRAY(plain_type(field.type))) for field in state.key],
    )


def _arrays(state: StateTable) -> dict[str, sa.BindParameter[Any]]:
    fields = enumerate((*state.key, *state.value))
    types = {given(at): plain_type(field.type) for at, field in fields}
    types[GONE] = sa.Boolean()
    return {name: sa.bindparam(name, type_=ARRAY(kind)) for name, kind in types.items()}


def _quoted(connection: sa.Connection, name: str) -> str:
    # SQLAlchemy doubles "%" for statements with parameters; COPY has none.
    return connection.dialect.identifier_preparer.quote(name).replace("%%", "%")


def _txid() -> sa.BindParameter[int]:
    return sa.bindparam("in_txid", type_=sa.BigInteger())


def _combined(
    aggregate: Aggregate, old: sa.ColumnElement[Any], new: sa.ColumnElement[Any]
) -> sa.ColumnElement[Any]:
    if aggregate.operator == "add":
        return sa.func.coalesce(old + new, old, new)
    if isinstance(old.type, sa.String):
        # Ordered by its bytes, as in Python, also in a user's own table.
        old = sa.collate(old, "C")
    # LEAST and GREATEST pass over NULL.
    return (sa.func.least if aggregate.operator == "min" else sa.func.greatest)(old, new)


def _text(statement: sa.ClauseElement) -> str:
    dialect = sa.make_url("postgresql+psycopg://").get_dialect()
    return str(statement.compile(dialect=dialect()))
