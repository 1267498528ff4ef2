"""The spout that reads any PySpark Python Data Source as a stream: DataSourceSpout.

Spark's streaming engine is not used. The driver plans the end of each batch and stores it before
anything is read, so each txid is a range of offsets that starts where the previous one ended. Which
records a range holds is up to the reader. The first batch may be empty: it stores the initial
offset before any record is read.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.emitted_values import BATCH_TUPLES_MAX, copied_row
from txtopo.errors import ConfigError, EmitError, FieldsError
from txtopo.instead import known_arguments
from txtopo.log_records import logger_of
from txtopo.metadata import Json, json_flaw, shown
from txtopo.sources.values import first_unreadable, fitted_column, readable, row_values
from txtopo.spouts.spout import (
    LastBatch,
    TransactionalCoordinator,
    TransactionalEmitter,
    TransactionalSpout,
    check_min_batch_rows,
    other_position,
)
from txtopo.traits import Traits
from txtopo.tuples import Fields

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceStreamReader,
        SimpleDataSourceStreamReader,
    )
    from pyspark.sql.types import StructType

_logger = logger_of("txtopo.spouts")

# Names of types for StructType.add that differ from ours.
_SPARK_NAMES = {"int": "integer"}


class DataSourceSpout(TransactionalSpout):
    """Emits the records of a ``pyspark.sql.datasource`` stream reader, simple or not.

    Delivery: opaque; each range of offsets counts in exactly one committed txid. With *repeatable*
    you promise that a range always reads the same tuples in the same order; the spout is then
    transactional. When data is gone, the exception of the reader ends the run (``SourceDataLost``,
    if it raises that). If a reader silently skips lost data, nothing can notice.

    Who calls the reader: ``latestOffset``, ``commit`` and ``stop`` in the driver, ``partitions``
    and ``read`` in each task. ``partitions(start, end)`` must return the same list in each task;
    use one task if it does not. The ranges of a simple reader are read in one task. ``commit(end)``
    is called once everything up to *end* is durably committed; not for each batch, and possibly
    again after a restart. ``reportLatestOffset`` (PySpark 4.2) is asked for the lag only.

    ``latestOffset`` may have the signature of PySpark 4.2, with the end of the previous batch and a
    ``ReadLimit``, or the older one without arguments, where the reader decides the size of a batch.
    If all changed numbers of an offset are lower than before, there is a warning and no batch until
    it is ahead again: a reader that counts its own calls starts over in each process.

    Args:
        source: A ``DataSource`` class, the name of one that is imported, or a stream reader that
            can be pickled.
        options: Options of the ``DataSource``.
        fields: The fields; by default the schema of the ``DataSource``.
        repeatable: Whether a range always reads the same tuples in the same order.
        batch_rows_max: The limit that the reader gets as ``ReadMaxRows``; by default its own limit.
            A simple reader and one with the older signature accept none.
        writes_nowhere_else: Declares that the topology may commit txids in groups, although the
            reader has a ``commit``. Otherwise each txid is committed separately.

    Raises:
        ConfigError: *source* is not a source; repair it. ``start`` raises it when the source has no
            stream reader, or when its reader accepts no limit but *batch_rows_max* is set.
    """

    @known_arguments
    def __init__(
        self,
        source: type[DataSource] | str | DataSourceStreamReader | SimpleDataSourceStreamReader,
        options: Mapping[str, str] | None = None,
        *,
        fields: Fields | None = None,
        repeatable: bool = False,
        batch_rows_max: int | None = None,
        writes_nowhere_else: bool = False,
    ) -> None:
        if batch_rows_max is not None and (type(batch_rows_max) is not int or batch_rows_max < 1):
            raise ConfigError(
                f"batch_rows_max is wrong; got {batch_rows_max!r}; expected a whole number of at "
                "least 1, or None",
                setting="batch_rows_max",
            )
        if not isinstance(options, Mapping | None):
            fits = f"fields={options!r}" if isinstance(options, Fields) else "options={…}"
            raise ConfigError(
                f"options are of the wrong type; got {type(options).__name__}; expected a mapping "
                f"or None; write DataSourceSpout(…, {fits})",
                setting="options",
                got=type(options).__name__,
            )
        self._open, self.output_fields = opener(source, dict(options or {}), fields)
        self.repeatable = repeatable
        self.client_modules = ("pyspark.sql.datasource", *modules_of(source))
        self._rows_max = batch_rows_max
        self.writes_nowhere_else = writes_nowhere_else

    @property
    def traits(self) -> Traits:
        """The traits of the spout, with what was declared of a ``commit`` of the reader."""
        return replace(super().traits, emitter_writes_nowhere_else=self.writes_nowhere_else)

    def coordinator(self, config: Config, context: TaskContext) -> TransactionalCoordinator:
        """Create the planning part, which has the reader of the driver."""
        if self._rows_max is not None:
            check_min_batch_rows(config, self._rows_max)
        reader = made(self._open)
        self._done = _Done(told=has_commit(reader))
        limited = not isinstance(reader, SimpleReader) and takes_limit(reader)
        kind = _LimitedCoordinator if limited else _DataSourceCoordinator
        return kind(reader, self._rows_max, self._done, config, context)

    def emitter(self, config: Config, context: TaskContext) -> TransactionalEmitter:
        """Create an emitting part; the one in the driver only passes on committed ends."""
        assert self.output_fields is not None
        done = self.__dict__.get("_done")
        emitter = _DataSourceEmitter(self._open, self.output_fields.names, context, done)
        emitter.writes_nowhere_else = self.writes_nowhere_else or not (done and done.told)
        return emitter

    def __getstate__(self) -> dict[str, Any]:
        """Exclude the part that stays in the driver."""
        return {name: value for name, value in self.__dict__.items() if name != "_done"}


class _Done:
    """Passes committed offsets from the emitter to the coordinator part, which notifies the reader.

    They run on different threads. A batch that was planned in an earlier epoch may never have been
    stored, and another leader's batch of that txid may end elsewhere. So its end is forgotten; the
    reader is notified of a later batch instead.

    Attributes:
        told: Whether the reader has its own ``commit``, which is notified.
    """

    def __init__(self, *, told: bool) -> None:
        self.told = told
        self._ends: dict[int, Json] = {}
        self._term = (0, "")
        self._before = self._newest = 0
        self._told: SimpleQueue[Json] = SimpleQueue()

    def committing(self, attempt: TransactionAttempt) -> None:
        """Forget the plans of earlier epochs when a new one commits."""
        if (attempt.epoch, attempt.term) != self._term:
            self._term = (attempt.epoch, attempt.term)
            self._ends.clear()

    def planned(self, txid: int, metadata: Json) -> None:
        """Remember where batch *txid* ends."""
        if txid > self._newest:
            self._ends[txid] = _range(metadata)[1]
            self._tell()

    def cleanup_before(self, txid: int) -> None:
        """Pass on the end of the newest batch before *txid* that is known."""
        self._before = txid
        self._tell()

    def _tell(self) -> None:
        """Queue the newest committed end; if two threads do so at once, it is queued twice."""
        known = [each for each in list(self._ends) if each < self._before]
        ends = [end for each in sorted(known) if (end := self._ends.pop(each, None)) is not None]
        if ends:
            self._newest = max(known)
            self._told.put(ends[-1])

    def take(self) -> Iterator[Json]:
        """Yield the ends that were queued since the last call."""
        while True:
            try:
                yield self._told.get_nowait()
            except Empty:
                return


class _DataSourceCoordinator(TransactionalCoordinator):
    def __init__(
        self,
        reader: StreamReader,
        rows_max: int | None,
        done: _Done,
        config: Config,
        context: TaskContext,
    ) -> None:
        self._reader, self._done = reader, done
        self._about = {"topology": context.topology_id, "component": context.component_id}
        self._limited = takes_limit(reader)
        self._rows_max = rows_max
        if rows_max is not None and (isinstance(reader, SimpleReader) or not self._limited):
            raise ConfigError(
                f"this reader does not accept a limit; got batch_rows_max={rows_max} and "
                f"{name_of(reader)}; expected None, or a reader with latestOffset(start, limit)",
                setting="batch_rows_max",
                got=rows_max,
            )
        self._next: dict[str, Json] | None = None
        self._newest: Json = None
        # Whether a batch may be held back until there is more to read.
        self._gathers = config.pace.min_batch_rows is not None

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        """Return whether the latest offset is after the last batch.

        The answer of the reader is kept until it is planned, unless batches wait for a minimum:
        then it is asked again. The first batch is always ready, so that the initial offset is
        stored.
        """
        if last.metadata is not None:
            self._done.planned(last.txid, last.metadata)
            start = _range(last.metadata)[1]
        elif self._next:
            start = self._next["start"]
        else:
            start = copied(self._reader.initialOffset(), "initialOffset")
        self._commit()
        if self._next is None or self._next["start"] != start or self._gathers:
            end = self._latest(start)
            if behind(start, end):
                text = "the source's latest offset %s is behind %s; nothing is read"
                _logger.warning(text, end, start, extra={**self._about, "txid": txid})
                end = start
            self._next = {"start": start, "end": end}
            self._newest = self._reported(end)
        if txid > 1 and same(start, self._next["end"]):
            self._next = None
            return False
        return True

    def initialize_transaction(self, txid: int, previous_metadata: Json) -> Json:
        planned, self._next = self._next, None
        assert planned is not None, "only asked when it was ready"
        return planned

    def unread(self, last: LastBatch) -> Mapping[str, int] | None:
        """Return None, since offsets do not count rows; nothing for a batch that stores a start."""
        found = self._next
        return {} if found is not None and same(found["start"], found["end"]) else None

    def lag(self, metadata: Json) -> Mapping[str, int]:
        """Return by how many ``offsets`` the reader was ahead of a batch when it was last asked.

        That is the sum of all differences of numbers; nothing if the offsets have no numbers.
        """
        if not metadata or self._newest is None:
            return {}
        ahead = offsets_between(_range(metadata)[1], self._newest)
        return {} if ahead is None else {"offsets": ahead}

    def _reported(self, end: Json) -> Json:
        """Return the newest offset, for the lag; None if it is not known."""
        report = getattr(self._reader, "reportLatestOffset", lambda: None)
        try:
            newest = copied(report(), "reportLatestOffset")
            if newest is not None or isinstance(self._reader, SimpleReader):
                return newest  # a simple reader reads as much at a time as it likes
            if not self._limited:
                return end
            limit = self._reader.getDefaultReadLimit() if self._rows_max is None else self._rows_max
        except Exception:
            text = "the source could not report its latest offset; its lag is unknown"
            _logger.warning(text, exc_info=True, extra=self._about)
            return None
        is_all = limit is None or type(limit).__name__ == "ReadAllAvailable"
        return end if is_all else None

    def close(self) -> None:
        self._commit()
        self._reader.stop()

    def _latest(self, start: Json, rows_max: int | None = None) -> Json:
        latest: Callable[..., Json] = self._reader.latestOffset
        if not self._limited:
            return copied(latest(), "latestOffset")
        from pyspark.sql.streaming.datasource import ReadMaxRows

        rows_max = self._rows_max if rows_max is None else rows_max
        default = self._reader.getDefaultReadLimit
        # A copy, since a reader may keep and change its arguments.
        copy = json.loads(json.dumps(start))
        limit = default() if rows_max is None else ReadMaxRows(rows_max)
        return copied(latest(copy, limit), "latestOffset")

    def _commit(self) -> None:
        for end in self._done.take():
            self._reader.commit(end)


class _LimitedCoordinator(_DataSourceCoordinator):
    """Has a reader whose ``latestOffset`` takes a limit."""

    def initialize_transaction(
        self, txid: int, previous_metadata: Json, *, rows_max: int | None = None
    ) -> Json:
        planned = super().initialize_transaction(txid, previous_metadata)
        assert isinstance(planned, dict)
        if rows_max and (self._rows_max is None or rows_max < self._rows_max):
            start = planned["start"]
            end = self._latest(start, rows_max)
            planned["end"] = start if behind(start, end) else end
        return planned


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
        start, end = _range(metadata)
        if same(start, end):
            return
        reader, context = made(self._open), self._context
        partitions = list(enumerate(reader.partitions(start, end)))
        for at, partition in partitions[context.task_index :: context.tasks]:
            span = Span(at, start, end)
            if collector.takes_dead_letters:
                self._emit_readable(reader.read(partition), span, collector)
                continue
            for number, row in enumerate(reader.read(partition)):
                self._emit(row, collector, number, span)

    def commit(self, attempt: TransactionAttempt, metadata: Json) -> None:
        """Note, in the driver, that an attempt is about to be committed."""
        if self._done is not None:
            self._done.committing(attempt)

    def cleanup_before(self, txid: int) -> None:
        """Pass on, in the driver, that all txids before *txid* are durably committed."""
        if self._done is not None:
            self._done.cleanup_before(txid)

    def _emit(self, row: Any, collector: BatchOutputCollector, number: int, span: Span) -> None:
        batches = _batches(row)
        if batches is None:
            collector.emit(self._values(row))
        else:
            for batch in batches:
                collector.emit_batch(self._checked(batch, number, span))

    def _values(self, row: Any) -> Sequence[Any]:
        if hasattr(row, "__fields__"):  # a Row with names
            return [row[name] for name in self._names]
        if isinstance(row, tuple | list):
            return row
        raise EmitError(
            f"the reader of {self._context.component_id!r} returned something that is not a row; "
            f"got {row!r:.200}; expected a tuple, a list, a Row, or a pyarrow.RecordBatch",
            component=self._context.component_id,
        )

    def _emit_readable(
        self, rows: Iterable[Any], span: Span, collector: BatchOutputCollector
    ) -> None:
        """Emit the rows of a partition; those that do not fit become dead letters."""
        waiting: list[Sequence[Any]] = []
        first = 0
        for number, row in enumerate(rows):
            batches = _batches(row)
            if batches is None:
                waiting.append(copied_row(self._values(row)))
                if len(waiting) < BATCH_TUPLES_MAX:
                    continue
            self._emit_waiting(waiting, first, span, collector)
            waiting, first = [], number + 1
            for batch in batches or ():
                self._emit_readable_batch(batch, number, span, collector)
        self._emit_waiting(waiting, first, span, collector)

    def _emit_waiting(
        self,
        rows: list[Sequence[Any]],
        first: int,
        span: Span,
        collector: BatchOutputCollector,
    ) -> None:
        def refuse(row: int, error: Exception) -> None:
            collector.set_aside(error, span.place(row=first + row), rows[row])

        for fitted in readable(len(rows), lambda a, b: collector.fitted(rows[a:b]), refuse):
            for batch in fitted:
                collector.emit_batch(batch)

    def _emit_readable_batch(
        self, batch: pa.RecordBatch, number: int, span: Span, collector: BatchOutputCollector
    ) -> None:
        def read(start: int, end: int) -> list[pa.RecordBatch]:
            part = batch.slice(start, end - start)
            return collector.fitted(self._checked(part, number, span, start))

        def refuse(row: int, error: Exception) -> None:
            place = span.place(batch=number, row=row)
            collector.set_aside(error, place, row_values(batch, row))

        # A wrong column, or one of another type, is not the fault of a row.
        collector.fitted(batch.slice(0, 0))
        for fitted in readable(batch.num_rows, read, refuse):
            for each in fitted:
                collector.emit_batch(each)

    def _checked(
        self, batch: pa.RecordBatch, number: int, span: Span, before: int = 0
    ) -> pa.RecordBatch:
        """Return a record batch if Python can hold all of its values; types are checked later."""
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
            bad = first_unreadable(batch.num_rows, batch.schema, read)
            row = None if bad.row is None else before + bad.row
            raise EmitError(
                f"field {bad.field!r} of row {row} of record batch {number} that the reader of "
                f"{self._context.component_id!r} gave cannot be held: {bad.reason}; it was read "
                f"from {span.start!r:.200} to {span.end!r:.200}; fix the data that the reader "
                "reads",
                row=row,
                field=bad.field,
            ) from error
        return batch


class Span(NamedTuple):
    """A partition of a range of offsets.

    Attributes:
        partition: Its number.
        start: The offset where the range starts.
        end: The offset where it ends.
    """

    partition: int
    start: Json
    end: Json

    def place(self, **numbers: Json) -> dict[str, Json]:
        """Return where a row was read."""
        return {"partition": self.partition, **numbers, "start": self.start, "end": self.end}


def _batches(row: Any) -> Sequence[pa.RecordBatch] | None:
    """Return the record batches that a reader returned; None for a single row."""
    if hasattr(row, "to_batches"):  # a table of Arrow
        batches: Sequence[pa.RecordBatch] = row.to_batches()
        return batches
    return [row] if hasattr(row, "schema") else None


class StreamReader(Protocol):
    """The methods of a ``DataSourceStreamReader`` that are called; PySpark documents them."""

    def initialOffset(self) -> Any:
        """Return the offset where the first batch starts."""
        ...

    def latestOffset(self, start: Any, limit: Any) -> Any:
        """Return the end of the batch that starts at *start*."""
        ...

    def getDefaultReadLimit(self) -> Any:
        """Return the limit of a batch."""
        ...

    def partitions(self, start: Any, end: Any) -> Sequence[Any]:
        """Return the parts into which a range is divided."""
        ...

    def read(self, partition: Any) -> Iterator[Any]:
        """Yield the records of a part."""
        ...

    def commit(self, end: Any) -> None:
        """Release everything up to *end*, which is committed."""
        ...

    def stop(self) -> None:
        """Release what was opened."""
        ...


class SimpleReader:
    """Adapts a ``SimpleDataSourceStreamReader`` to ``StreamReader``.

    Its ``read`` is called in the driver, only to learn where a batch ends. The rows are read with
    ``readBetweenOffsets`` in a task, so that a replay reads the same range as the first attempt.
    """

    def __init__(self, reader: SimpleDataSourceStreamReader) -> None:
        self.wrapped = reader
        self.initialOffset = reader.initialOffset
        self.commit = reader.commit

    def latestOffset(self, start: Any, limit: Any) -> Any:
        """Return the offset after the last row that exists now.

        Raises:
            EmitError: There are rows, but the end equals the start, so they would never be read.
        """
        rows, end = self.wrapped.read(start)
        if end == start and next(iter(rows), None) is not None:
            raise EmitError(
                f"read() of {name_of(self)} returned rows but ended where it began; got "
                f"{end!r:.200} twice; expected an end after the start whenever there are rows",
                name=name_of(self),
            )
        return end

    def getDefaultReadLimit(self) -> None:
        """Return None: a simple reader has no limit."""

    def partitions(self, start: Any, end: Any) -> Sequence[Any]:
        """Return the range as one part."""
        return [(start, end)]

    def read(self, partition: Any) -> Iterator[Any]:
        """Yield the records of a range."""
        return iter(self.wrapped.readBetweenOffsets(*partition))

    def stop(self) -> None:
        """Do nothing: a simple reader has no ``stop``."""


def opener(
    source: object, options: Mapping[str, str], fields: Fields | None
) -> tuple[Callable[[], Any], Fields]:
    """Return a picklable function that creates the reader, and the fields of its records.

    Raises:
        ConfigError: *source* is not a source, or has no fields.
    """
    from pyspark.sql import datasource as spark

    readers = (spark.DataSourceStreamReader, spark.SimpleDataSourceStreamReader)
    if isinstance(source, readers):
        if fields is None:
            raise ConfigError(
                f"a reader does not declare its fields; got {type(source).__name__} alone; "
                "expected fields=Fields(…) too",
                setting="fields",
                got=type(source).__name__,
            )
        return _Given(source), fields
    if isinstance(source, str):
        source = _named(source)
    if not (isinstance(source, type) and issubclass(source, spark.DataSource)):
        raise ConfigError(
            f"this is not a source; got {source!r:.200}; expected a subclass of "
            "pyspark.sql.datasource.DataSource, its name, or a stream reader",
            setting="source",
        )
    made_of = _FromDataSource(source, dict(options), None)
    try:
        declared = fields or Fields(made_of.source().schema())
    except FieldsError as error:
        raise ConfigError(
            f"the schema of {source.name()!r} cannot be used as fields: {error}; pass "
            "fields=Fields(…)",
            name=source.name(),
        ) from error
    return _FromDataSource(source, dict(options), declared), declared


def modules_of(source: object) -> tuple[str, ...]:
    """Return the module that a source comes from; none for the main script, pickled by value."""
    kind = _named(source) if isinstance(source, str) else source
    module = (kind if isinstance(kind, type) else type(kind)).__module__
    return () if module == "__main__" else (module,)


def made(open_reader: Callable[[], Any]) -> StreamReader:
    """Open a reader; a simple one is adapted."""
    from pyspark.sql.datasource import DataSourceStreamReader, SimpleDataSourceStreamReader

    reader = open_reader()
    if isinstance(reader, SimpleDataSourceStreamReader):
        return SimpleReader(reader)
    if type(reader).partitions is DataSourceStreamReader.partitions:
        raise ConfigError(
            f"{type(reader).__name__} does not divide a range; got no partitions(start, end); "
            "expected a reader whose partitions(start, end) returns a list of InputPartition",
            name=type(reader).__name__,
        )
    opened: StreamReader = reader
    return opened


def name_of(reader: StreamReader) -> str:
    """Return the class name of the user's reader, for messages."""
    return type(reader.wrapped if isinstance(reader, SimpleReader) else reader).__name__


def has_commit(reader: StreamReader) -> bool:
    """Return whether the user's reader has its own ``commit``, not just PySpark's."""
    from pyspark.sql import datasource as spark

    kinds = (spark.DataSourceStreamReader, spark.SimpleDataSourceStreamReader)
    own = type(reader.wrapped if isinstance(reader, SimpleReader) else reader).commit
    return all(own is not kind.commit for kind in kinds)


def takes_limit(reader: StreamReader) -> bool:
    """Return whether ``latestOffset`` takes a start and a limit, as since PySpark 4.2."""
    try:
        inspect.signature(reader.latestOffset).bind({}, None)
    except TypeError:
        return False
    return True


class _Given:
    """Returns a reader that the user gave."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def __call__(self) -> Any:
        return self._reader


class _FromDataSource:
    """Makes the reader of a ``DataSource``."""

    def __init__(self, kind: Any, options: dict[str, str], fields: Fields | None) -> None:
        self._kind, self._options, self._fields = kind, options, fields

    def source(self) -> Any:
        """Return the source; as with Spark, the names of its options ignore case."""
        from pyspark.sql.datasource import CaseInsensitiveDict

        return self._kind(CaseInsensitiveDict(self._options))

    def __call__(self) -> Any:
        from pyspark.errors import PySparkNotImplementedError

        source, schema = self.source(), _struct_type(self._fields)
        try:
            return source.streamReader(schema)
        except PySparkNotImplementedError:
            pass
        try:
            return source.simpleStreamReader(schema)
        except PySparkNotImplementedError as error:
            raise ConfigError(
                f"data source {source.name()!r} cannot be read as a stream; got "
                f"{self._kind.__name__} without a stream reader; expected streamReader(schema) or "
                "simpleStreamReader(schema)",
                name=source.name(),
                got=self._kind.__name__,
            ) from error


def _struct_type(fields: Fields | None) -> StructType:
    from pyspark.sql.types import StructType

    schema = StructType()
    for field in fields or ():
        schema = schema.add(field.name, _SPARK_NAMES.get(field.type, field.type))
    return schema


def _named(name: str) -> type:
    """Return the imported ``DataSource`` of this name; Spark's own registry needs a session."""
    from pyspark.sql.datasource import DataSource

    kinds = [DataSource]
    for kind in kinds:
        kinds += kind.__subclasses__()
    known = {kind.name(): kind for kind in kinds[1:]}
    if name not in known:
        raise ConfigError(
            f"no data source of this name is imported; got {name!r}; expected one of "
            f"{', '.join(sorted(known)) or 'none'}; import its module first, or pass the class",
            name=name,
        )
    return known[name]


def same(start: Json, end: Json) -> bool:
    """Return whether two offsets are equal as JSON text, which is how Spark compares them."""
    return json.dumps(start, sort_keys=True) == json.dumps(end, sort_keys=True)


def _range(metadata: Json) -> tuple[Json, Json]:
    match metadata:
        case {"start": start, "end": end}:
            return start, end
    raise other_position("DataSourceSpout", metadata)


def copied(offset: object, method: str) -> Json:
    """Return a copy of an offset, since a reader may change the object that it returned.

    Raises:
        EmitError: The offset is not JSON; repair the reader.
    """
    flaw = json_flaw(offset)
    if flaw is not None:
        raise EmitError(
            f"the reader's {method} returned what is not JSON; got {shown(offset)} ({flaw}); "
            "expected numbers, strings, lists and objects with string keys",
            name=method,
            got=shown(offset),
        )
    copy: Json = json.loads(json.dumps(offset))
    return copy


def behind(start: Json, end: Json) -> bool:
    """Return whether *end* is before *start*: all differences are numbers that decreased."""
    before, after = dict(_leaves(start)), dict(_leaves(end))
    if before.keys() != after.keys():
        return False
    changed = [(old, after[path]) for path, old in before.items() if old != after[path]]
    return bool(changed) and all(
        type(old) is type(new) and type(old) in (int, float) and new < old for old, new in changed
    )


def offsets_between(start: Json, end: Json) -> int | None:
    """Return the sum of how far the numbers of *end* are ahead; None if it has no whole numbers."""
    before = dict(_leaves(start))
    ahead = [
        max(0, value - known) if type(known := before.get(path, 0)) is int else 0
        for path, value in _leaves(end)
        if type(value) is int
    ]
    return sum(ahead) if ahead else None


def _leaves(offset: Json, path: tuple[str | int, ...] = ()) -> Iterator[tuple[Any, Any]]:
    parts = enumerate(offset) if isinstance(offset, list) else ()
    for name, value in offset.items() if isinstance(offset, dict) else parts:
        yield from _leaves(value, (*path, name))
    if not isinstance(offset, dict | list):
        yield path, offset
