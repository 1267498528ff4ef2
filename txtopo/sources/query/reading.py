"""Reads the cuts of a batch of a query in a task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.context import TaskContext
from txtopo.errors import EmitError, SourceDataLost
from txtopo.fitting import fitted_values
from txtopo.metadata import Json
from txtopo.sources.query.keys import Key
from txtopo.sources.query.source import QuerySource
from txtopo.sources.values import first_unreadable, fitted_field
from txtopo.spouts.spout import TransactionalEmitter

if TYPE_CHECKING:
    import pyarrow as pa
    from sqlalchemy import Connection, Result

# The rows that a task holds at once; record batches of this size are processed fastest.
_ROWS_AT_ONCE = 10_000


class QueryEmitter(TransactionalEmitter):
    """Reads the cuts of a batch in a task."""

    def __init__(
        self, source: QuerySource, context: TaskContext, *, may_change: bool = False
    ) -> None:
        self._source = source
        self._may_change = may_change
        self._schema = source.fields.read_schema()
        self._context = context

    def emit_batch(
        self, attempt: TransactionAttempt, metadata: Json, collector: BatchOutputCollector
    ) -> None:
        """Emit this task's cuts.

        Raises:
            TopologyChanged: The batch was planned by another query or key.
            SourceDataLost: A cut has another number of rows than when it was planned.
            EmitError: A value does not fit its field; repair the row or the fields.
            InfrastructureError: The database cannot be reached; the batch is tried again.
        """
        source, context = self._source, self._context
        planned = source.planned(metadata)
        source.check_same(metadata, may_change=self._may_change)
        ranges = list(pairwise([planned.after, *(key for key, _ in planned.cuts)]))
        mine = range(context.task_index, len(ranges), context.tasks)
        if not mine:
            return
        with source.connected(source.engine()) as connection:
            for number in mine:
                (after, upto), (_, expected) = ranges[number], planned.cuts[number]
                assert upto is not None
                found = self._emit(connection, after, upto, collector)
                if found != expected:
                    raise self._changed(after, upto, found, expected)

    def _emit(
        self,
        connection: Connection,
        after: Key | None,
        upto: Key,
        collector: BatchOutputCollector,
    ) -> int:
        from sqlalchemy import select

        source = self._source
        rows = source.selectable()
        columns = source.exact_columns(connection, rows)
        ordered = source.between(rows, after, upto)
        within = select(*columns).where(ordered).order_by(rows.c[source.key])
        streamed = connection.execution_options(yield_per=_ROWS_AT_ONCE)
        count = 0
        for chunk in self._chunks(streamed.execute(within), after, upto):
            collector.emit_batch(self._columns(chunk))
            count += len(chunk)
        return count

    def _chunks(
        self, result: Result[Any], after: Key | None, upto: Key
    ) -> Iterator[Sequence[Sequence[Any]]]:
        """Yield rows in chunks; name the range when the driver cannot convert a value."""
        try:
            yield from result.partitions()
        except (ValueError, TypeError, OverflowError, ArithmeticError) as error:
            raise EmitError(
                f"rows of {self._source.query!r:.100} with {self._source.key} after {after} up to "
                f"{upto} cannot be read ({error}); expected {self._source.fields!r}; repair the "
                "rows or the fields",
                query=self._source.query,
            ) from error

    def _columns(self, rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
        import pyarrow as pa

        names = self._schema.names
        kinds = {field.name: field.type for field in self._source.fields}

        def read(start: int, end: int, schema: pa.Schema) -> pa.RecordBatch:
            columns = list(zip(*rows[start:end], strict=True))
            arrays = []
            for field in schema:
                values = fitted_values(kinds[field.name], columns[names.index(field.name)])
                arrays.append(fitted_field(pa.array(values, field.type), field))
            return pa.RecordBatch.from_arrays(arrays, schema=schema)

        try:
            return read(0, len(rows), self._schema)
        except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
            bad = first_unreadable(len(rows), self._schema, read)
            assert bad.row is not None, "a value was refused"
            key = rows[bad.row][names.index(self._source.key)]
            got = None if bad.field is None else rows[bad.row][names.index(bad.field)]
            raise EmitError(
                f"field {bad.field!r} of the row of {self._source.query!r:.100} with "
                f"{self._source.key} {key} cannot be read; got {got!r:.100} ({bad.reason}); "
                f"expected {self._source.fields!r}; repair the row or the fields",
                query=self._source.query,
                key=key,
                field=bad.field,
            ) from error

    def _changed(self, after: Key | None, upto: Key, found: int, expected: int) -> SourceDataLost:
        late = found > expected
        what = "rows came late (settle_s is too short);" if late else "rows were deleted;"
        return SourceDataLost(
            f"rows of {self._source.query!r:.100} with {self._source.key!r} after {after} up to "
            f"{upto} have changed since their batch was planned; got {found} rows; expected "
            f"{expected}; {what} restore the rows of the table, and give late rows a new key",
            query=self._source.query,
        )
