"""DataSourceSpout: any Python Data Source stream reader, without Spark's streaming engine.

The ends of a batch are planned in the driver and stored before anything is read, so each txid is a
range of offsets and the ranges are chained; what a range holds is the reader's affair. The first
batch may be empty: it is there to store the initial offset before any record is read.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.errors import ConfigError
from txtopo.metadata import Json
from txtopo.spouts.readers import StreamReader, made, modules_of, opener, takes_limit
from txtopo.spouts.transactional import (
    LastBatch,
    TransactionalCoordinator,
    TransactionalEmitter,
    TransactionalSpout,
)
from txtopo.tuples import Fields

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceStreamReader,
        SimpleDataSourceStreamReader,
    )


logger = logging.getLogger("txtopo")


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

    Raises:
        ConfigError: The source is none, or its reader cannot be made; mend it.
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
    """Tells the coordinator part, on whatever thread it is called next, up to where all is done."""

    def __init__(self) -> None:
        self._ends: dict[int, Json] = {}
        self._told: SimpleQueue[Json] = SimpleQueue()

    def planned(self, txid: int, metadata: Json) -> None:
        """Take note of where a batch ends."""
        assert isinstance(metadata, dict)
        self._ends[txid] = metadata["end"]

    def cleanup_before(self, txid: int) -> None:
        """Pass on the end of the newest batch before *txid* that is known."""
        known = [each for each in list(self._ends) if each < txid]
        if known:
            self._told.put(self._ends[max(known)])
            for each in known:
                del self._ends[each]

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
        self._next: dict[str, Json] | None = None

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        """Ask for the latest offset; what was asked for once is planned before it is asked again.

        The first batch is always ready, so that the initial offset is stored.
        """
        self._commit()
        if isinstance(last.metadata, dict):
            self._done.planned(last.txid, last.metadata)
            start = last.metadata["end"]
        else:
            start = self._next["start"] if self._next else self._reader.initialOffset()
        if self._next is None or self._next["start"] != start:
            end = self._latest(start)
            self._next = {"start": start, "end": start if _behind(start, end) else end}
        if txid > 1 and _same(start, self._next["end"]):
            self._next = None
            return False
        return True

    def initialize_transaction(self, txid: int, previous_metadata: Json) -> Json:
        planned, self._next = self._next, None
        assert planned is not None, "only asked when it was ready"
        self._done.planned(txid, planned)
        return planned

    def close(self) -> None:
        self._commit()
        self._reader.stop()

    def _latest(self, start: Json) -> Json:
        latest: Callable[..., Json] = self._reader.latestOffset
        if not self._limited:
            return latest()
        from pyspark.sql.streaming.datasource import ReadMaxRows

        rows_max = self._rows_max
        default = self._reader.getDefaultReadLimit
        # A copy, since a reader may keep and change what it gets.
        copy = json.loads(json.dumps(start))
        return latest(copy, default() if rows_max is None else ReadMaxRows(rows_max))

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
        if _same(start, end):
            return
        reader, context = made(self._open), self._context
        for partition in list(reader.partitions(start, end))[context.task_index :: context.tasks]:
            for row in reader.read(partition):
                self._emit(row, collector)

    def cleanup_before(self, txid: int) -> None:
        """Hear, in the driver, that all txids before *txid* are durably committed."""
        if self._done is not None:
            self._done.cleanup_before(txid)

    def _emit(self, row: Any, collector: BatchOutputCollector) -> None:
        if hasattr(row, "schema"):  # Arrow
            collector.emit_batch(row)
        elif hasattr(row, "__fields__"):  # a Row with names
            collector.emit([row[name] for name in self._names])
        else:
            collector.emit(row)


def _same(start: Json, end: Json) -> bool:
    """Return whether two offsets are one, as Spark compares them: as text."""
    return json.dumps(start, sort_keys=True) == json.dumps(end, sort_keys=True)


def _behind(start: Json, end: Json) -> bool:
    """Return whether *end* lies before *start*: all that differs are numbers that became less."""
    before, after = dict(_leaves(start)), dict(_leaves(end))
    changed = [(before[path], after[path]) for path in before if before[path] != after.get(path)]
    back = (
        before.keys() == after.keys()
        and bool(changed)
        and all(type(old) is type(new) is int and new < old for old, new in changed)
    )
    if back:
        logger.warning("the source's latest offset %s is behind %s; nothing is read", end, start)
    return back


def _leaves(offset: Json, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(offset, dict):
        for name, value in offset.items():
            yield from _leaves(value, (*path, name))
    else:
        yield path, offset
