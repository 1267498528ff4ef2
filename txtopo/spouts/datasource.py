"""DataSourceSpout: any Python Data Source stream reader, without Spark's streaming engine.

The ends of a batch are planned in the driver and stored before anything is read, so each txid is a
range of offsets and the ranges are chained; what a range holds is the reader's affair. The first
batch may be empty: it is there to store the initial offset before any record is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.errors import ConfigError, EmitError
from txtopo.metadata import Json
from txtopo.spouts.offsets import behind, copied, same
from txtopo.spouts.readers import (
    SimpleReader,
    StreamReader,
    made,
    modules_of,
    name_of,
    opener,
    takes_limit,
)
from txtopo.spouts.transactional import (
    LastBatch,
    TransactionalCoordinator,
    TransactionalEmitter,
    TransactionalSpout,
)
from txtopo.spouts.values import first_bad, fitted_column
from txtopo.tuples import Fields

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceStreamReader,
        SimpleDataSourceStreamReader,
    )


class DataSourceSpout(TransactionalSpout):
    """Reads what a ``pyspark.sql.datasource`` stream reader reads, also a simple one.

    Delivery: each range of offsets counts in exactly one committed txid. Opaque, unless you say
    with *repeatable* that a range reads the same again, tuple by tuple: then it is transactional.
    Ranges are planned in the driver and read in the tasks; a simple reader's are read in one task.
    When data has gone, what the reader raises ends the run (``SourceDataLost``, if it raises that);
    a reader that passes over it in silence cannot be noticed.

    ``latestOffset`` may have the signature of PySpark 4.2, with the end of the batch before and a
    ``ReadLimit``, or the older one without, whose batches are as large as the reader says. An
    offset whose numbers have all gone back is no news, with a warning, until it is ahead again: a
    reader that counts its own calls says so in each new process.

    ``partitions(start, end)`` is called in each task, and has to give each the same list; use one
    task where it does not. ``commit(end)`` is called in the driver once it is durable that all up
    to *end* is committed; not for each batch, and again after a restart.

    Args:
        source: A ``DataSource`` class, the name of one that is imported, or a stream reader that
            can be pickled.
        options: Options of the ``DataSource``.
        fields: The fields; by default the schema of the ``DataSource``.
        repeatable: Whether a range always reads the same tuples in the same order.
        batch_rows_max: What the reader is asked for as ``ReadMaxRows``; by default its own limit.
            A simple reader and one with the older signature take none.

    Raises:
        ConfigError: The source is none; mend it. ``start`` raises it when the source has no stream
            reader, or one that takes no limit although there is a *batch_rows_max*.
    """

    def __init__(
        self,
        source: type[DataSource] | str | DataSourceStreamReader | SimpleDataSourceStreamReader,
        options: Mapping[str, str] | None = None,
        *,
        fields: Fields | None = None,
        repeatable: bool = False,
        batch_rows_max: int | None = None,
    ) -> None:
        if batch_rows_max is not None and (type(batch_rows_max) is not int or batch_rows_max < 1):
            raise ConfigError(
                f"batch_rows_max is wrong; got {batch_rows_max!r}; expected a whole number of at "
                "least 1, or None"
            )
        self._open, self.output_fields = opener(source, dict(options or {}), fields)
        self.repeatable = repeatable
        self.client_modules = ("pyspark.sql.datasource", *modules_of(source))
        self._rows_max = batch_rows_max

    def coordinator(self, config: Config, context: TaskContext) -> TransactionalCoordinator:
        """Make the planning part, which has the reader of the driver."""
        self._done = _Done()
        return _DataSourceCoordinator(made(self._open), self._rows_max, self._done)

    def emitter(self, config: Config, context: TaskContext) -> TransactionalEmitter:
        """Make an emitting part; the one in the driver only hears what is committed."""
        assert self.output_fields is not None
        done = self.__dict__.get("_done")
        return _DataSourceEmitter(self._open, self.output_fields.names, context, done)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is the driver's."""
        return {name: value for name, value in self.__dict__.items() if name != "_done"}


class _Done:
    """Tells the coordinator part, on whatever thread it is called next, up to where all is done.

    What was planned in an earlier epoch may never have been stored, and another leader's batch of
    that txid may end elsewhere. So it is forgotten; the source hears of a later batch instead.
    """

    def __init__(self) -> None:
        self._ends: dict[int, Json] = {}
        self._epoch = 0
        self._before = self._newest = 0
        self._told: SimpleQueue[Json] = SimpleQueue()

    def committing(self, attempt: TransactionAttempt) -> None:
        """Take note of the epoch that commits."""
        if attempt.epoch != self._epoch:
            self._epoch = attempt.epoch
            self._ends.clear()

    def planned(self, txid: int, metadata: Json) -> None:
        """Take note of where the last batch before the one that is planned ends."""
        assert isinstance(metadata, dict)
        if txid > self._newest:
            self._ends[txid] = metadata["end"]
            self._tell()

    def cleanup_before(self, txid: int) -> None:
        """Pass on the end of the newest batch before *txid* that is known."""
        self._before = txid
        self._tell()

    def _tell(self) -> None:
        """Two threads may come here at a time: then an end is told twice, which does no harm."""
        known = [each for each in list(self._ends) if each < self._before]
        ends = [end for each in sorted(known) if (end := self._ends.pop(each, None)) is not None]
        if ends:
            self._newest = max(known)
            self._told.put(ends[-1])

    def take(self) -> Iterator[Json]:
        """Yield what was told since the last call."""
        while True:
            try:
                yield self._told.get_nowait()
            except Empty:
                return


class _DataSourceCoordinator(TransactionalCoordinator):
    def __init__(self, reader: StreamReader, rows_max: int | None, done: _Done) -> None:
        self._reader, self._done = reader, done
        self._limited = takes_limit(reader)
        self._rows_max = rows_max
        if rows_max is not None and (isinstance(reader, SimpleReader) or not self._limited):
            raise ConfigError(
                f"this reader takes no limit; got batch_rows_max={rows_max} and "
                f"{name_of(reader)}; expected None, or a reader with latestOffset(start, limit)"
            )
        self._next: dict[str, Json] | None = None

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        """Ask for the latest offset; what was asked for once is planned before it is asked again.

        The first batch is always ready, so that the initial offset is stored.
        """
        if isinstance(last.metadata, dict):
            self._done.planned(last.txid, last.metadata)
            start = last.metadata["end"]
        elif self._next:
            start = self._next["start"]
        else:
            start = copied(self._reader.initialOffset(), "initialOffset")
        self._commit()
        if self._next is None or self._next["start"] != start:
            end = self._latest(start)
            self._next = {"start": start, "end": start if behind(start, end) else end}
        if txid > 1 and same(start, self._next["end"]):
            self._next = None
            return False
        return True

    def initialize_transaction(self, txid: int, previous_metadata: Json) -> Json:
        planned, self._next = self._next, None
        assert planned is not None, "only asked when it was ready"
        return planned

    def close(self) -> None:
        self._commit()
        self._reader.stop()

    def _latest(self, start: Json) -> Json:
        latest: Callable[..., Json] = self._reader.latestOffset
        if not self._limited:
            return copied(latest(), "latestOffset")
        from pyspark.sql.streaming.datasource import ReadMaxRows

        rows_max = self._rows_max
        default = self._reader.getDefaultReadLimit
        # A copy, since a reader may keep and change what it gets.
        copy = json.loads(json.dumps(start))
        limit = default() if rows_max is None else ReadMaxRows(rows_max)
        return copied(latest(copy, limit), "latestOffset")

    def _commit(self) -> None:
        for end in self._done.take():
            self._reader.commit(end)


class _DataSourceEmitter(TransactionalEmitter):
    def __init__(
        self,
        open_reader: Callable[[], Any],
        names: tuple[str, ...],
        context: TaskContext,
        done: _Done | None,
    ) -> None:
        self._open = open_reader
        self._names = names
        self._context = context
        self._done = done

    def emit_batch(
        self, attempt: TransactionAttempt, metadata: Json, collector: BatchOutputCollector
    ) -> None:
        assert isinstance(metadata, dict)
        start, end = metadata["start"], metadata["end"]
        if same(start, end):
            return
        reader, context = made(self._open), self._context
        for partition in list(reader.partitions(start, end))[context.task_index :: context.tasks]:
            for number, row in enumerate(reader.read(partition)):
                self._emit(row, collector, number, start, end)

    def commit(self, attempt: TransactionAttempt) -> None:
        """Hear, in the driver, that an attempt is about to be committed."""
        if self._done is not None:
            self._done.committing(attempt)

    def cleanup_before(self, txid: int) -> None:
        """Hear, in the driver, that all txids before *txid* are durably committed."""
        if self._done is not None:
            self._done.cleanup_before(txid)

    def _emit(
        self, row: Any, collector: BatchOutputCollector, number: int, start: Json, end: Json
    ) -> None:
        if hasattr(row, "to_batches"):  # a table of Arrow
            for batch in row.to_batches():
                collector.emit_batch(self._checked(batch, number, start, end))
        elif hasattr(row, "schema"):  # a record batch
            collector.emit_batch(self._checked(row, number, start, end))
        elif hasattr(row, "__fields__"):  # a Row with names
            collector.emit([row[name] for name in self._names])
        elif isinstance(row, tuple | list):
            collector.emit(row)
        else:
            raise EmitError(
                f"the reader of {self._context.component_id!r} gave a row that is none; got "
                f"{row!r:.200}; expected a tuple, a list, a Row, or a pyarrow.RecordBatch"
            )

    def _checked(
        self, batch: pa.RecordBatch, number: int, start: Json, end: Json
    ) -> pa.RecordBatch:
        """Return a record batch, if all of its values can be held; types are looked at later."""
        import pyarrow as pa

        def read(first: int, last: int, schema: pa.Schema) -> None:
            for field in schema:
                kind = field.type
                if pa.types.is_timestamp(kind):
                    kind = pa.timestamp("us", kind.tz)
                fitted_column(batch.column(field.name).slice(first, last - first), kind)

        try:
            read(0, batch.num_rows, batch.schema)
        except ValueError as error:
            bad = first_bad(batch.num_rows, batch.schema, read)
            raise EmitError(
                f"field {bad.field!r} of row {bad.row} of record batch {number} that the reader of "
                f"{self._context.component_id!r} gave cannot be held: {bad.reason}; it was read "
                f"from {start!r:.200} to {end!r:.200}; mend what the reader reads",
                row=bad.row,
                field=bad.field,
            ) from error
        return batch
