"""Reading ranges of offsets from Kafka in the tasks, and decoding their records into columns.

Each consumer is assigned its offsets; none joins a group. A range is finished when a record with
its last offset or a later one has arrived, or when the log ends at or after the range's end:
transaction markers and compaction leave gaps, so the last offset itself may never arrive. Every
wait has a limit: a dead broker, a deleted topic and a log that ends before the range all look the
same, silent.

The next batch usually starts where this one ends. So a consumer keeps its assignment, and the
records that it fetched beyond the ranges. The next reading uses them if it reads the same
partitions from those offsets on; any other reading assigns the consumer again.
"""

from __future__ import annotations

import atexit
import base64
import json
import os
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import groupby
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from txtopo.collector import BatchOutputCollector, SeenFields
from txtopo.errors import ConfigError, EmitError, InfrastructureError, OffsetRegression, TxtopoError
from txtopo.kafka.connection import HEARD_MAX, Connection, Heard
from txtopo.kafka.formats.record_format import Part, RecordFormat, Row, RowReader
from txtopo.kafka.formats.schema_format import SchemaFormat
from txtopo.kafka.offsets import KafkaPartition, Range, deleted
from txtopo.metadata import Json
from txtopo.servers import Server
from txtopo.sources.json_objects import objects, seen_fields
from txtopo.sources.values import Read, first_unreadable, fitted_column, readable
from txtopo.tuples import Field, Fields

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

_ERROR, _OFFSET, _PARTITION = map(methodcaller, ("error", "offset", "partition"))

POLL_S = 0.02

CONSUME_MAX = 10_000

# This many fetched records of a partition, or more, are kept while others are read; then the
# partition is paused.
AHEAD_MIN = 10_000

# A consumer reports the end of a partition only once. So a reading that continues an assignment,
# and gets no expected record for this long, assigns the consumer again.
GOES_ON_IDLE_S = 0.1


def read_ranges(
    connection: Connection, ranges: Mapping[KafkaPartition, Range]
) -> dict[KafkaPartition, list[Message]]:
    """Read the records of ranges, from all partitions at once.

    Returns:
        The records by partition, in the order of their offsets.

    Raises:
        SourceDataLost: The first records of a range were deleted.
        OffsetRegression: The log ends before the end of a range.
        InfrastructureError: The cluster did not answer in time; try again.
    """
    wanted = {partition: each for partition, each in ranges.items() if each.start < each.end}
    if not wanted:
        return {}
    topics = {partition.topic for partition in wanted}
    with lent_consumer(connection, topics) as lent, connection.named_errors("read", lent.heard):
        return _Reading(connection, lent, wanted).all()


class _Reading:
    def __init__(
        self, connection: Connection, lent: LentConsumer, wanted: Mapping[KafkaPartition, Range]
    ) -> None:
        self._connection = connection
        self._lent = lent
        self._consumer = lent.consumer
        self._heard = lent.heard
        self._wanted = wanted
        self._next = {partition: each.start for partition, each in wanted.items()}
        self._records: dict[KafkaPartition, list[Message]] = {partition: [] for partition in wanted}
        self._ahead: dict[KafkaPartition, list[Message]] = {}
        self._short: dict[KafkaPartition, int] = {}
        topics = {partition.topic for partition in wanted}
        self._key = _PARTITION if len(topics) == 1 else _where
        self._goes_on = lent.positions == self._next
        # The offsets that the consumer brings next; after `_next` where more was fetched.
        self._fetched = dict(self._next)
        self._paused: set[KafkaPartition] = set()
        self._lost = False

    def all(self) -> dict[KafkaPartition, list[Message]]:
        """Read until every range is finished."""
        self._begin()
        idle_s = 0.0
        while self._next:
            if self._goes_on and (self._lost or idle_s > GOES_ON_IDLE_S or self._waits):
                self._assign()
            left = sum(self._wanted[partition].end - at for partition, at in self._next.items())
            # If asked for more records than there are, `consume` waits until its timeout.
            got = self._consumer.consume(min(left, CONSUME_MAX), POLL_S)
            idle_s = 0.0 if self._take(got) else idle_s + POLL_S
            if idle_s > self._connection.timeout_s:
                raise self._silence()
        lent = self._lent
        lent.positions = {partition: each.end for partition, each in self._wanted.items()}
        lent.fetched, lent.ahead, lent.paused = self._fetched, self._ahead, self._paused
        return self._records

    def _begin(self) -> None:
        lent = self._lent
        ahead, lent.ahead, lent.positions = lent.ahead, {}, {}
        if not self._goes_on:
            self._assign()
            return
        self._paused = lent.paused
        for partition, stretch in ahead.items():
            self._take_stretch(partition, stretch)
        self._fetched = {p: max(n, self._fetched[p]) for p, n in lent.fetched.items()}

    @property
    def _waits(self) -> bool:
        """Whether a partition that has to be read is paused."""
        return bool(self._paused & self._next.keys())

    def _assign(self) -> None:
        """Assign the consumer again, from the offsets that it has not returned yet."""
        self._goes_on, self._paused = False, set()
        offsets = [_at(partition, offset) for partition, offset in self._fetched.items()]
        self._consumer.assign(offsets)
        # A partition that was paused stays paused when it is assigned again.
        self._consumer.resume(offsets)

    def _take(self, got: Sequence[Message]) -> bool:
        """Process records and events; return whether a range was read further."""
        moved = False
        # A fetch returns a run of records of one partition, which is taken in one step: calls from
        # Python for single records cost more than the rest of the reading.
        plain = not any(map(_ERROR, got))
        for _, records in groupby(got, self._key):
            stretch = list(records)
            first = stretch[0]
            partition = KafkaPartition(str(first.topic()), int(first.partition() or 0))
            if not plain and any(map(_ERROR, stretch)):
                moved |= sum(map(self._take_one, stretch)) > 0
            else:
                moved |= self._take_stretch(partition, stretch)
        return moved

    def _take_stretch(self, partition: KafkaPartition, stretch: list[Message]) -> bool:
        """Process consecutive records of one partition, except those that were processed before."""
        if partition not in self._wanted:
            return False
        if _OFFSET(stretch[0]) < self._fetched[partition]:
            stretch = stretch[bisect_left(stretch, self._fetched[partition], key=_OFFSET) :]
            if not stretch:
                return False
        end, fetched = self._wanted[partition].end, _OFFSET(stretch[-1]) + 1
        cut = bisect_left(stretch, end, key=_OFFSET) if fetched > end else len(stretch)
        self._records[partition] += stretch[:cut]
        self._fetched[partition] = fetched
        if cut < len(stretch):
            self._keep(partition, stretch[cut:])
        return self._reached(partition, fetched)

    def _keep(self, partition: KafkaPartition, beyond: list[Message]) -> None:
        """Keep records from beyond a range for the next reading, up to the size of a range."""
        kept = self._ahead.setdefault(partition, [])
        kept += beyond
        start, end = self._wanted[partition]
        if len(kept) > max(AHEAD_MIN, end - start) and partition not in self._paused:
            self._consumer.pause([_at(partition, 0)])
            self._paused.add(partition)

    def _take_one(self, message: Message) -> bool:
        partition = KafkaPartition(str(message.topic()), int(message.partition() or 0))
        error = message.error()
        if error is None:
            return self._take_stretch(partition, [message])
        return partition in self._next and self._take_event(
            partition, error, int(message.offset() or 0)
        )

    def _take_event(self, partition: KafkaPartition, error: KafkaError, offset: int) -> bool:
        if error.name() == "_PARTITION_EOF":
            self._short[partition] = offset
            self._fetched[partition] = max(offset, self._fetched[partition])
            self._reached(partition, offset)
            return partition not in self._next
        if error.name() == "_AUTO_OFFSET_RESET" and self._goes_on:
            self._lost = True  # it may concern records that were fetched ahead: assign again
            return False
        if error.name() == "_AUTO_OFFSET_RESET":
            low, high = self._consumer.get_watermark_offsets(
                _at(partition, 0), timeout=self._connection.timeout_s
            )
            wanted = self._next[partition]
            raise deleted(partition, wanted, low) if wanted < low else self._beyond(partition, high)
        self._heard.append(error)
        return False

    def _reached(self, partition: KafkaPartition, offset: int) -> bool:
        """Record how far a range is read; return False if it had been read to its end earlier."""
        if partition not in self._next:
            return False
        if offset >= self._wanted[partition].end:
            del self._next[partition]
        else:
            self._next[partition] = max(offset, self._next[partition])
        return True

    def _silence(self) -> TxtopoError:
        for partition, end in self._short.items():
            if partition in self._next:
                return self._beyond(partition, end)
        partition, at = next(iter(self._next.items()))
        for error in self._heard:
            fault = self._connection.fault("read", error, self._heard)
            if not isinstance(fault, InfrastructureError):
                return fault
        heard = f"; last heard: {self._heard[-1].str()}" if self._heard else ""
        return InfrastructureError(
            f"Kafka {self._connection.servers} sent nothing from {partition}, offset {at} for "
            f"{self._connection.timeout_s} s{heard}; is the broker down?",
            topic=partition.topic,
            partition=partition.number,
        )

    def _beyond(self, partition: KafkaPartition, end: int) -> OffsetRegression:
        wanted = self._wanted[partition]
        return OffsetRegression(
            f"partition {partition.number} of topic {partition.topic!r} ends at offset {end}, but "
            f"a planned batch has the offsets {wanted.start} to {wanted.end - 1}; the log was "
            "truncated or the topic recreated; restore the data, or start again under a new "
            "topology id",
            topic=partition.topic,
            partition=partition.number,
            wanted=wanted.end - 1,
            end=end,
        )


def _where(message: Message) -> Any:
    return message.topic(), message.partition()


def _at(partition: KafkaPartition, offset: int) -> TopicPartition:
    from confluent_kafka import TopicPartition

    return TopicPartition(partition.topic, partition.number, offset)


KeyDecoder = str | SchemaFormat
"""``"bytes"``, ``"string"`` (UTF-8), ``Avro(…)`` or ``Protobuf(…)``."""

Decoder = KeyDecoder | RecordFormat | Fields
"""A decoder of keys, ``Debezium(…)``, or the fields of a JSON object."""

Decoded = dict[Part, list[Row]]
"""The columns of keys and values that have a schema, one row for each record."""

COLUMNS = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")

_TYPES = {
    "headers": "string",
    "topic": "string",
    "partition": "int",
    "offset": "long",
    "timestamp": "timestamp",
}

_DECODED = {"bytes": "binary", "string": "string"}

# Envelopes are cut smaller; larger record batches only take more memory.
EMIT_ROWS_MAX = 50_000


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """The columns that a record becomes. Picklable.

    Attributes:
        columns: Names of :data:`COLUMNS`, in the order in which they are emitted.
        key: A decoder; the fields of a schema take the place of ``key``.
        value: A decoder; the fields of a schema or JSON object take the place of ``value``.
    """

    columns: tuple[str, ...] = COLUMNS
    key: KeyDecoder = "bytes"
    value: Decoder = "bytes"

    def __post_init__(self) -> None:
        unknown = [name for name in self.columns if name not in COLUMNS]
        if unknown or not self.columns or len(set(self.columns)) < len(self.columns):
            raise ConfigError(
                f"columns of a Kafka spout are wrong; got {self.columns!r}; expected some of "
                f"{', '.join(COLUMNS)}, each once",
                setting="columns",
            )
        if not isinstance(self.key, SchemaFormat) and self.key not in tuple(_DECODED):
            raise ConfigError(
                f"unknown decoder of keys; got {self.key!r}; expected 'bytes', 'string', Avro(…) "
                "or Protobuf(…)",
                setting="key",
            )
        formats = (Fields, RecordFormat)
        if not isinstance(self.value, formats) and self.value not in tuple(_DECODED):
            raise ConfigError(
                f"unknown decoder of values; got {self.value!r}; expected 'bytes', 'string', the "
                "Fields of a JSON object, Avro(…), Protobuf(…) or Debezium(…)",
                setting="value",
            )

    @property
    def client_modules(self) -> tuple[str, ...]:
        """The modules that read the records."""
        modules = [module for each in self._formats.values() for module in each.modules]
        return ("confluent_kafka", *dict.fromkeys(modules))

    @property
    def connects_to(self) -> tuple[Server, ...]:
        """The servers with the schemas of the records."""
        return tuple(server for each in self._formats.values() for server in each.connects_to)

    @property
    def _formats(self) -> dict[Part, RecordFormat]:
        given: dict[Part, Decoder] = {"key": self.key, "value": self.value}
        return {
            part: each
            for part, each in given.items()
            if isinstance(each, RecordFormat) and part in self.columns
        }

    def fields(self) -> Fields:
        """Return the declared fields of the spout."""
        formats = self._formats
        parts: list[Field] = []
        for name in self.columns:
            if name == "value" and isinstance(self.value, Fields):
                parts += self.value
            elif name in formats:
                parts += formats[name].fields(name)
            elif name in ("key", "value"):
                parts.append(Field(name, _DECODED[str(getattr(self, name))]))
            else:
                parts.append(Field(name, _TYPES[name]))
        return Fields.of(parts)

    def batch(
        self, records: Sequence[Message], schema: pa.Schema, decoded: Decoded | None = None
    ) -> pa.RecordBatch:
        """Return the records as one record batch.

        Args:
            records: The records.
            schema: The columns.
            decoded: The columns of a key or value that has a schema.

        Raises:
            EmitError: A key or value cannot be decoded; repair its writer, or the decoder.
        """
        import pyarrow as pa

        arrays: list[pa.Array] = []
        formats = self._formats
        for name in self.columns:
            if name == "value" and isinstance(self.value, Fields):
                arrays += self._objects(records)
            elif name in formats:
                rows = (decoded or {})[name]
                own = formats[name].fields(name).arrow_schema()
                arrays += [_of_rows(name, records, rows, field) for field in own]
            else:
                arrays.append(self._column(name, records, schema.field(name)))
        return pa.record_batch(arrays, schema=schema)

    def read(
        self, records: Sequence[Message], schema: pa.Schema
    ) -> tuple[Sequence[Message], pa.RecordBatch]:
        """Decode records, with a schema or without.

        Returns:
            The records that make a row, and their rows as one record batch.

        Raises:
            EmitError: A key or value cannot be decoded; repair its writer, or the decoder.
            InfrastructureError: A schema registry does not answer; try again.
        """
        records, decoded = self._decoded(records, _raised)
        return records, self.batch(records, schema, decoded)

    def emit(
        self, records: Sequence[Message], schema: pa.Schema, collector: BatchOutputCollector
    ) -> None:
        """Emit the records; undecodable ones become dead letters, if the topology has them.

        Raises:
            EmitError: A key or value cannot be decoded, and the topology takes no dead letters.
        """
        import pyarrow as pa

        def set_aside(error: EmitError, record: Message) -> None:
            if not collector.takes_dead_letters:
                raise error
            _set_aside(error, record, collector)

        records, decoded = self._decoded(records, set_aside)
        try:
            batch = self.batch(records, schema, decoded)
        except EmitError:
            if not collector.takes_dead_letters:
                raise
        else:
            collector.emit_batch(batch)
            return

        def read(start: int, end: int) -> pa.RecordBatch:
            rows = {part: each[start:end] for part, each in decoded.items()}
            return self.batch(records[start:end], schema, rows)

        def refuse(row: int, error: Exception) -> None:
            _set_aside(error, records[row], collector)

        parts = list(readable(len(records), read, refuse))
        if parts:
            collector.emit_batch(pa.concat_batches(parts))

    def seen(self, records: Sequence[Message]) -> SeenFields | None:
        """Return which fields the JSON objects of the first records have; None for other values."""
        if "value" not in self.columns or not isinstance(self.value, Fields):
            return None
        values = (record.value() for record in records)
        return seen_fields((each for each in values if each is not None), self.value.names)

    def _decoded(
        self, records: Sequence[Message], refuse: Callable[[EmitError, Message], None]
    ) -> tuple[Sequence[Message], Decoded]:
        """Decode the parts with a format, each record once; return the records that make a row.

        Args:
            records: The records.
            refuse: Called with the error of each record that cannot be decoded; may raise it.

        Raises:
            InfrastructureError: A schema registry does not answer; try again.
        """
        readers = {part: each.reader(part) for part, each in self._formats.items()}
        if not readers:
            return records, {}
        kept: list[Message] = []
        decoded: Decoded = {part: [] for part in readers}
        for record in records:
            try:
                rows = {part: _decode(reader, part, record) for part, reader in readers.items()}
            except EmitError as error:
                refuse(error, record)
                continue
            made = {part: row for part, row in rows.items() if row is not None}
            if len(made) < len(rows):
                continue  # it says nothing that is a row
            kept.append(record)
            for part, row in made.items():
                decoded[part].append(row)
        return kept, decoded

    def _column(self, name: str, records: Sequence[Message], field: pa.Field) -> pa.Array:
        import pyarrow as pa

        def read(start: int, end: int, schema: pa.Schema) -> pa.Array:
            return fitted_column(_array(name, records[start:end]), field.type)

        try:
            return read(0, len(records), pa.schema([field]))
        except (ValueError, OverflowError, pa.ArrowException) as error:
            raise _refused(name, field.type, records, read, pa.schema([field])) from error

    def _objects(self, records: Sequence[Message]) -> list[pa.Array]:
        """Return a column for each field of the JSON objects; a tombstone becomes NULLs."""
        assert isinstance(self.value, Fields)
        values = [b"{}" if (data := record.value()) is None else data for record in records]
        schema = self.value.read_schema()

        def read(start: int, end: int, schema: pa.Schema) -> pa.Table:
            return objects(values[start:end], schema)

        try:
            table = read(0, len(values), schema)
        except ValueError as error:
            kind = f"one JSON object with {self.value!r}"
            raise _refused("value", kind, records, read, schema) from error
        return [column.combine_chunks() for column in table.columns]


def _raised(error: EmitError, record: Message) -> None:
    raise error


def _decode(reader: RowReader, part: Part, record: Message) -> Row | None:
    try:
        return reader.read(record)
    except TxtopoError:
        raise
    except ValueError as error:
        raise _unreadable(record, part, reader.expected, str(error), None) from error


def _of_rows(part: Part, records: Sequence[Message], rows: Sequence[Row], field: pa.Field) -> Any:
    """Return a column of the decoded values.

    Raises:
        EmitError: A value does not fit its column, such as a decimal with too many digits.
    """
    import pyarrow as pa

    def read(start: int, end: int, schema: pa.Schema) -> list[pa.Array]:
        return [
            fitted_column(
                pa.array([row.get(each.name) for row in rows[start:end]], each.type), each.type
            )
            for each in schema
        ]

    try:
        return read(0, len(rows), pa.schema([field]))[0]
    except (ValueError, OverflowError, TypeError, pa.ArrowException) as error:
        raise _refused(part, field.type, records, read, pa.schema([field])) from error


def _set_aside(error: Exception, record: Message, collector: BatchOutputCollector) -> None:
    collector.set_aside(error, _place(record), record.value() or b"")


def _place(record: Message) -> dict[str, Json]:
    """Return the place and the key of a record, which are needed to send it again."""
    place: dict[str, Json] = {
        "topic": record.topic(),
        "partition": record.partition(),
        "offset": record.offset(),
    }
    key = record.key()
    if isinstance(key, bytes):
        try:
            return place | {"key": key.decode()}
        except UnicodeDecodeError:
            return place | {"key": {"base64": base64.b64encode(key).decode()}}
    return place


def _array(name: str, records: Sequence[Message]) -> pa.Array:
    import pyarrow as pa

    if name in ("key", "value"):
        return pa.array([getattr(record, name)() for record in records], pa.binary())
    if name == "topic":
        return pa.array([record.topic() for record in records], pa.string())
    if name == "partition":
        return pa.array([record.partition() for record in records], pa.int32())
    if name == "offset":
        return pa.array([record.offset() for record in records], pa.int64())
    if name == "timestamp":
        stamps = [record.timestamp() for record in records]
        milliseconds = pa.array([ms if kind else None for kind, ms in stamps], pa.int64())
        return milliseconds.cast(pa.timestamp("ms", tz="UTC"))
    return pa.array([_headers(record) for record in records], pa.string())


def _refused(
    what: str, expected: object, records: Sequence[Message], read: Read, schema: pa.Schema
) -> EmitError:
    """Return the error that names the first record that cannot be read."""
    bad = first_unreadable(len(records), schema, read)
    if bad.row is None:
        return EmitError(
            f"the {what}s of {len(records)} records cannot be read ({bad.reason}); expected "
            f"{expected}; fix the program that writes them, or decode bytes yourself in a bolt",
            column=what,
        )
    return _unreadable(records[bad.row], what, expected, bad.reason, bad.field)


def _unreadable(
    record: Message, what: str, expected: object, reason: str, bad_field: str | None
) -> EmitError:
    """Return the error of a record that cannot be read."""
    topic, partition, offset = record.topic(), record.partition(), record.offset()
    got = record.timestamp()[1] if what == "timestamp" else None
    if what in ("key", "value"):
        got = getattr(record, what)()
    field = f"field {bad_field!r} of " if bad_field not in (None, what) else ""
    return EmitError(
        f"{field}the {what} of the record at offset {offset} of partition {partition} of topic "
        f"{topic!r} cannot be read; got {got!r:.100} ({reason}); expected {expected}; fix the "
        "program that writes it, or decode bytes yourself in a bolt",
        topic=topic,
        partition=partition,
        offset=offset,
        field=bad_field,
    )


def _headers(record: Message) -> str | None:
    """Return the headers as JSON: [name, value] each; a value is text, or {"base64": …}."""
    headers = record.headers()
    return json.dumps([[h[0], _header(h[1])] for h in headers]) if headers else None


def _header(value: Any) -> object:
    if value is None or isinstance(value, str):
        return value
    try:
        return bytes(value).decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


# Connecting takes 20 to 50 ms, and Spark does not keep a task in one worker process. So each
# process has its own idle consumers, by configuration. The key contains the process, because of
# forks.
_idle: dict[tuple[object, ...], deque[LentConsumer]] = {}

_IDLE_MAX = 4

# A broker answers in milliseconds. A consumer that was idle while its broker was killed and
# restarted can be silent for 20 s; it is closed after this time, before the broker counts as
# unreachable.
_ANSWER_S_MAX = 1.0


@dataclass(slots=True)
class LentConsumer:
    """A consumer that one reading uses at a time, with its state between readings.

    Attributes:
        consumer: The consumer.
        heard: The errors that it reported in the background.
        topics: The topics that it knows.
        positions: The next offset to read of each assigned partition; empty if it is not certain.
        ahead: The records from there on that it has already fetched.
        fetched: The offset that it fetches next, of each assigned partition.
        paused: The partitions from which it returns nothing until it is assigned again.
    """

    consumer: Consumer
    heard: Heard
    topics: set[str] = field(default_factory=set)
    positions: dict[KafkaPartition, int] = field(default_factory=dict)
    ahead: dict[KafkaPartition, list[Message]] = field(default_factory=dict)
    fetched: dict[KafkaPartition, int] = field(default_factory=dict)
    paused: set[KafkaPartition] = field(default_factory=set)

    def add_topics(self, topics: Set[str]) -> bool:
        """Make the consumer learn about the topics; return False if it does not answer.

        A new consumer requests its first topics at once. If it gets a topic later, it would wait
        for its next refresh of all topics, once a second.
        """
        from confluent_kafka import KafkaException

        try:
            for topic in topics - self.topics if self.topics else ():
                self.consumer.list_topics(topic, timeout=_ANSWER_S_MAX)
        except KafkaException:
            return False
        self.topics |= topics
        return True


@contextmanager
def lent_consumer(connection: Connection, topics: Set[str]) -> Iterator[LentConsumer]:
    """Lend a consumer of this process for *topics*; after an error it is closed, not kept."""
    from confluent_kafka import Consumer

    idle = _idle.setdefault((os.getpid(), *connection.key()), deque())
    lent: LentConsumer | None = None
    with suppress(IndexError):  # no consumer is idle
        lent = idle.pop()
    if lent is not None and not lent.add_topics(topics):
        lent.consumer.close()
        lent = None
    if lent is None:
        heard: Heard = deque(maxlen=HEARD_MAX)
        lent = LentConsumer(Consumer(connection.of_consumer(heard)), heard, set(topics))
    try:
        yield lent
    except BaseException:
        lent.consumer.close()
        raise
    if len(idle) < _IDLE_MAX:
        lent.heard.clear()
        idle.append(lent)
    else:
        lent.consumer.close()


@atexit.register
def close_idle() -> None:
    """Close the consumers before the interpreter ends: their threads call into it."""
    for (process, *_), idle in _idle.items():
        while process == os.getpid() and idle:
            idle.pop().consumer.close()
