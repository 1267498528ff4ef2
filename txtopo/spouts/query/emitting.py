"""QueryEmitter: reads ranges of keys in a task."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.context import TaskContext
from txtopo.errors import SourceDataLost
from txtopo.metadata import Json
from txtopo.spouts.query.source import Key, QuerySource
from txtopo.spouts.transactional import TransactionalEmitter

if TYPE_CHECKING:
    from sqlalchemy import Connection

# What a task holds; record batches of this size are the fastest further on.
_ROWS_AT_ONCE = 10_000


class QueryEmitter(TransactionalEmitter):
    """Reads what the metadata says."""

    def __init__(self, source: QuerySource, context: TaskContext) -> None:
        self._source = source
        self._schema = source.fields.arrow_schema()
        self._context = context

    def emit_batch(
        self, attempt: TransactionAttempt, metadata: Json, collector: BatchOutputCollector
    ) -> None:
        """Emit the cuts that are this task's.

        Raises:
            SourceDataLost: They are not what they were.
            InfrastructureError: The database cannot be reached; the batch is tried again.
        """
        planned, source, context = cast("dict[str, Any]", metadata), self._source, self._context
        ends = [planned["after"], *(key for key, _ in planned["cuts"])]
        ranges = list(pairwise(map(source.from_json, ends)))
        mine = range(context.task_index, len(ranges), context.tasks)
        if not mine:
            return
        with source.connected(source.engine()) as connection:
            for number in mine:
                (after, upto), (_, expected) = ranges[number], planned["cuts"][number]
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
        import pyarrow as pa
        from sqlalchemy import select

        source = self._source
        rows = source.selectable()
        within = select(rows).where(source.between(rows, after, upto)).order_by(rows.c[source.key])
        streamed = connection.execution_options(yield_per=_ROWS_AT_ONCE)
        count = 0
        for chunk in streamed.execute(within).partitions():
            columns = zip(*chunk, strict=True)
            arrays = [pa.array(c, t) for c, t in zip(columns, self._schema.types, strict=True)]
            collector.emit_batch(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
            count += len(chunk)
        return count

    def _changed(self, after: Key | None, upto: Key, found: int, expected: int) -> SourceDataLost:
        late = found > expected
        what = "rows came late (settle_s is too short);" if late else "rows were deleted;"
        return SourceDataLost(
            f"rows of {self._source.query!r:.100} with {self._source.key!r} behind {after} up to "
            f"{upto} have changed since their batch was planned; got {found} rows; expected "
            f"{expected}; {what} give the table back what it had, and late rows a new key",
            query=self._source.query,
        )
