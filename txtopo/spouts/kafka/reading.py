"""Reading: the records of ranges of offsets, in the tasks.

A consumer is told where to read, never a member of a group. A range is finished at a record with
the last offset or a later one, or at the end of the log at or behind the range's end: markers of
transactions and compaction leave gaps, so the last offset itself may never come. Nothing here waits
without limit: a broker that is dead, a topic that is gone and a log that ends before the range does
are all just silent.

The next batch mostly starts where this one ends. So a consumer keeps its assignment, and what it
fetched beyond the ranges; a reading of the same partitions from there on goes on with them. All
others assign anew.

Records: Kafka's records as columns, with their keys and values decoded.

Consumers: those of this process, lent to one reading at a time, closed before Python ends.
"""

from __future__ import annotations

import atexit
import base64
import json
import os
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import groupby
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from txtopo.errors import ConfigError, EmitError, InfrastructureError, OffsetRegression, TxtopoError
from txtopo.kafka_connection import HEARD_MAX, Connection, Heard
from txtopo.spouts.kafka.offsets import PartitionPosition, Range, deleted
from txtopo.spouts.values import Read, first_bad, fitted_column, objects
from txtopo.tuples import Fields

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

_ERROR, _OFFSET, _PARTITION = map(methodcaller, ("error", "offset", "partition"))

POLL_S = 0.02

CONSUME_MAX = 10_000

# At least so many records of a partition are kept while others are read; then it is paused.
AHEAD_MIN = 10_000

# An end that was told before is not told again. So a reading that goes on, and gets nothing for
# this long though there should be something, assigns anew.
GOES_ON_IDLE_S = 0.1


def read_ranges(
    connection: Connection, ranges: Mapping[PartitionPosition, Range]
) -> dict[PartitionPosition, list[Message]]:
    """Read the records of ranges, all partitions at once.

    Returns:
        The records by partition, in the order of their offsets.

    Raises:
        SourceDataLost: The first records of a range are deleted.
        OffsetRegression: Its last ones are not there.
        InfrastructureError: The cluster did not answer in time; try again.
    """
    wanted = {place: each for place, each in ranges.items() if each.start < each.end}
    if not wanted:
        return {}
    topics = {place.topic for place in wanted}
    with lent_consumer(connection, topics) as lent, connection.named_errors("read", lent.heard):
        return _Reading(connection, lent, wanted).all()


class _Reading:
    def __init__(
        self, connection: Connection, lent: Lent, wanted: Mapping[PartitionPosition, Range]
    ) -> None:
        self._connection = connection
        self._lent = lent
        self._consumer = lent.consumer
        self._heard = lent.heard
        self._wanted = wanted
        self._next = {place: each.start for place, each in wanted.items()}
        self._records: dict[PartitionPosition, list[Message]] = {place: [] for place in wanted}
        self._ahead: dict[PartitionPosition, list[Message]] = {}
        self._short: dict[PartitionPosition, int] = {}
        topics = {place.topic for place in wanted}
        self._key = _PARTITION if len(topics) == 1 else _where
        self._goes_on = lent.stands == self._next
        # What is next to come from the consumer; behind `_next` where more was fetched.
        self._fetched = dict(self._next)
        self._paused: set[PartitionPosition] = set()
        self._lost = False

    def all(self) -> dict[PartitionPosition, list[Message]]:
        """Read until every range is finished."""
        self._begin()
        idle_s = 0.0
        while self._next:
            if self._goes_on and (self._lost or idle_s > GOES_ON_IDLE_S or self._waits):
                self._assign()
            left = sum(self._wanted[place].end - at for place, at in self._next.items())
            # A larger number than there is would wait out its time.
            got = self._consumer.consume(min(left, CONSUME_MAX), POLL_S)
            idle_s = 0.0 if self._take(got) else idle_s + POLL_S
            if idle_s > self._connection.timeout_s:
                raise self._silence()
        lent = self._lent
        lent.stands = {place: each.end for place, each in self._wanted.items()}
        lent.fetched, lent.ahead, lent.paused = self._fetched, self._ahead, self._paused
        return self._records

    def _begin(self) -> None:
        lent = self._lent
        ahead, lent.ahead, lent.stands = lent.ahead, {}, {}
        if not self._goes_on:
            self._assign()
            return
        self._paused = lent.paused
        for place, stretch in ahead.items():
            self._take_stretch(place, stretch)
        self._fetched = {p: max(n, self._fetched[p]) for p, n in lent.fetched.items()}

    @property
    def _waits(self) -> bool:
        """Whether a partition that is wanted was paused."""
        return bool(self._paused & self._next.keys())

    def _assign(self) -> None:
        """Have the consumer fetch anew what it has not brought yet."""
        self._goes_on, self._paused = False, set()
        places = [_at(place, offset) for place, offset in self._fetched.items()]
        self._consumer.assign(places)
        # A partition that was paused stays so when it is assigned again.
        self._consumer.resume(places)

    def _take(self, got: Sequence[Message]) -> bool:
        """Take what came; return whether it brought a range on."""
        moved = False
        # A fetch brings a stretch of one partition, which is taken in one step: calls from Python
        # for single records cost more than all the rest of the reading.
        plain = not any(map(_ERROR, got))
        for _, records in groupby(got, self._key):
            stretch = list(records)
            first = stretch[0]
            place = PartitionPosition(str(first.topic()), int(first.partition() or 0))
            if not plain and any(map(_ERROR, stretch)):
                moved |= sum(map(self._take_one, stretch)) > 0
            else:
                moved |= self._take_stretch(place, stretch)
        return moved

    def _take_stretch(self, place: PartitionPosition, stretch: list[Message]) -> bool:
        """Take records of one partition that follow each other; none is taken twice."""
        if place not in self._wanted:
            return False
        if _OFFSET(stretch[0]) < self._fetched[place]:
            stretch = stretch[bisect_left(stretch, self._fetched[place], key=_OFFSET) :]
            if not stretch:
                return False
        end, fetched = self._wanted[place].end, _OFFSET(stretch[-1]) + 1
        cut = bisect_left(stretch, end, key=_OFFSET) if fetched > end else len(stretch)
        self._records[place] += stretch[:cut]
        self._fetched[place] = fetched
        if cut < len(stretch):
            self._keep(place, stretch[cut:])
        return self._reached(place, fetched)

    def _keep(self, place: PartitionPosition, beyond: list[Message]) -> None:
        """Keep what was fetched beyond a range for the next reading, up to the size of a range."""
        kept = self._ahead.setdefault(place, [])
        kept += beyond
        start, end = self._wanted[place]
        if len(kept) > max(AHEAD_MIN, end - start) and place not in self._paused:
            self._consumer.pause([_at(place, 0)])
            self._paused.add(place)

    def _take_one(self, message: Message) -> bool:
        place = PartitionPosition(str(message.topic()), int(message.partition() or 0))
        error = message.error()
        if error is None:
            return self._take_stretch(place, [message])
        return place in self._next and self._take_event(place, error, int(message.offset() or 0))

    def _take_event(self, place: PartitionPosition, error: KafkaError, offset: int) -> bool:
        if error.name() == "_PARTITION_EOF":
            self._short[place] = offset
            self._fetched[place] = max(offset, self._fetched[place])
            self._reached(place, offset)
            return place not in self._next
        if error.name() == "_AUTO_OFFSET_RESET" and self._goes_on:
            self._lost = True  # it may be about what was fetched ahead: assign anew and see
            return False
        if error.name() == "_AUTO_OFFSET_RESET":
            low, high = self._consumer.get_watermark_offsets(
                _at(place, 0), timeout=self._connection.timeout_s
            )
            wanted = self._next[place]
            raise deleted(place, wanted, low) if wanted < low else self._beyond(place, high)
        self._heard.append(error)
        return False

    def _reached(self, place: PartitionPosition, offset: int) -> bool:
        """Note how far a range is read; return whether that is news."""
        if place not in self._next:
            return False
        if offset >= self._wanted[place].end:
            del self._next[place]
        else:
            self._next[place] = max(offset, self._next[place])
        return True

    def _silence(self) -> TxtopoError:
        for place, end in self._short.items():
            if place in self._next:
                return self._beyond(place, end)
        place, at = next(iter(self._next.items()))
        for error in self._heard:
            fault = self._connection.fault("read", error, self._heard)
            if not isinstance(fault, InfrastructureError):
                return fault
        heard = f"; last heard: {self._heard[-1].str()}" if self._heard else ""
        return InfrastructureError(
            f"Kafka {self._connection.servers} sent nothing of {place} from offset {at} for "
            f"{self._connection.timeout_s} s{heard}; is the broker down?",
            topic=place.topic,
            partition=place.partition,
        )

    def _beyond(self, place: PartitionPosition, end: int) -> OffsetRegression:
        wanted = self._wanted[place]
        return OffsetRegression(
            f"partition {place.partition} of topic {place.topic!r} ends at offset {end}, but a "
            f"planned batch has the offsets {wanted.start} to {wanted.end - 1}; the log was "
            "truncated or the topic made again; bring the data back, or begin with a new topology "
            "id",
            topic=place.topic,
            partition=place.partition,
            wanted=wanted.end - 1,
            end=end,
        )


def _where(message: Message) -> Any:
    return message.topic(), message.partition()


def _at(place: PartitionPosition, offset: int) -> TopicPartition:
    from confluent_kafka import TopicPartition

    return TopicPartition(place.topic, place.partition, offset)


Decoder = str | Fields
"""``"bytes"``, ``"string"`` (UTF-8), or the fields of a JSON object."""

COLUMNS = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")

_TYPES = {
    "headers": "string",
    "topic": "string",
    "partition": "int",
    "offset": "long",
    "timestamp": "timestamp",
}

_DECODED = {"bytes": "binary", "string": "string"}

# Envelopes are cut smaller; larger ones only take more memory.
EMIT_ROWS_MAX = 50_000


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Which columns a record becomes. Picklable.

    Attributes:
        columns: Names of :data:`COLUMNS`, in the order in which they are emitted.
        key: ``"bytes"`` or ``"string"``.
        value: A decoder; the fields of a JSON object stand in the place of ``value``.
    """

    columns: tuple[str, ...] = COLUMNS
    key: str = "bytes"
    value: Decoder = "bytes"

    def __post_init__(self) -> None:
        unknown = [name for name in self.columns if name not in COLUMNS]
        if unknown or not self.columns or len(set(self.columns)) < len(self.columns):
            raise ConfigError(
                f"columns of a Kafka spout are wrong; got {self.columns!r}; expected some of "
                f"{', '.join(COLUMNS)}, each once"
            )
        if self.key not in _DECODED:
            raise ConfigError(f"unknown decoder of keys; got {self.key!r}; expected bytes, string")
        if not isinstance(self.value, Fields) and self.value not in _DECODED:
            raise ConfigError(
                f"unknown decoder of values; got {self.value!r}; expected 'bytes', 'string' or "
                "the Fields of a JSON object"
            )

    def fields(self) -> Fields:
        """Return the declared fields of the spout."""
        parts = []
        for name in self.columns:
            if name == "value" and isinstance(self.value, Fields):
                parts += [f"`{field.name}` {field.type}" for field in self.value]
            elif name in ("key", "value"):
                parts.append(f"{name} {_DECODED[str(getattr(self, name))]}")
            else:
                parts.append(f"{name} {_TYPES[name]}")
        return Fields(", ".join(parts))

    def batch(self, records: Sequence[Message], schema: pa.Schema) -> pa.RecordBatch:
        """Return the records as one record batch.

        Raises:
            EmitError: A key or value cannot be decoded; mend what writes it, or the decoder.
        """
        import pyarrow as pa

        arrays: list[pa.Array] = []
        for name in self.columns:
            if name == "value" and isinstance(self.value, Fields):
                arrays += self._objects(records)
            else:
                arrays.append(self._column(name, records, schema.field(name)))
        return pa.record_batch(arrays, schema=schema)

    def _column(self, name: str, records: Sequence[Message], field: pa.Field) -> pa.Array:
        import pyarrow as pa

        def read(start: int, end: int, schema: pa.Schema) -> pa.Array:
            return fitted_column(_array(name, records[start:end]), field.type)

        try:
            return read(0, len(records), pa.schema([field]))
        except (ValueError, OverflowError, pa.ArrowException) as error:
            raise _refused(name, field.type, records, read, pa.schema([field])) from error

    def _objects(self, records: Sequence[Message]) -> list[pa.Array]:
        """Return a column for each field of the JSON objects; a tombstone has only NULLs."""
        assert isinstance(self.value, Fields)
        values = [b"{}" if (data := record.value()) is None else data for record in records]
        schema = self.value.arrow_schema()

        def read(start: int, end: int, schema: pa.Schema) -> pa.Table:
            return objects(values[start:end], schema)

        try:
            table = read(0, len(values), schema)
        except ValueError as error:
            kind = f"one JSON object with {self.value!r}"
            raise _refused("value", kind, records, read, schema) from error
        return [column.combine_chunks() for column in table.columns]


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
    bad = first_bad(len(records), schema, read)
    if bad.row is None:
        return EmitError(f"the {what}s of {len(records)} records cannot be read; {bad.reason}")
    record = records[bad.row]
    topic, partition, offset = record.topic(), record.partition(), record.offset()
    got = record.timestamp()[1] if what == "timestamp" else None
    if what in ("key", "value"):
        got = getattr(record, what)()
    field = f"field {bad.field!r} of " if bad.field not in (None, what) else ""
    return EmitError(
        f"{field}the {what} of the record at offset {offset} of partition {partition} of topic "
        f"{topic!r} cannot be read; got {got!r:.100} ({bad.reason}); expected {expected}; mend "
        "what writes it, or decode bytes yourself in a bolt",
        topic=topic,
        partition=partition,
        offset=offset,
        field=bad.field,
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


# Connecting takes 20 to 50 ms, and Spark keeps no slot on one worker process: so each process has
# idle consumers of its own, by configuration. Keyed by the process too, for forks.
_idle: dict[tuple[object, ...], deque[Lent]] = {}

_IDLE_MAX = 4

# A broker answers in milliseconds. A consumer that was idle while its broker was killed and started
# again has been silent for 20 s; it is given up sooner than a broker.
_MEETS_S_MAX = 1.0


@dataclass(slots=True)
class Lent:
    """A consumer, what it heard of, and where it stands.

    Attributes:
        consumer: The consumer.
        heard: Its troubles.
        topics: Those that it has met.
        stands: From where it reads on, in all partitions that it is assigned; empty if that is not
            certain.
        ahead: What it has brought from there on.
        fetched: What it brings next.
        paused: Of which it brings nothing until it is assigned anew.
    """

    consumer: Consumer
    heard: Heard
    topics: set[str] = field(default_factory=set)
    stands: dict[PartitionPosition, int] = field(default_factory=dict)
    ahead: dict[PartitionPosition, list[Message]] = field(default_factory=dict)
    fetched: dict[PartitionPosition, int] = field(default_factory=dict)
    paused: set[PartitionPosition] = field(default_factory=set)

    def meets(self, topics: Set[str]) -> bool:
        """Make the topics known to a consumer that has met others; False if it does not answer.

        A new consumer asks for the first ones at once. One that is told of a topic later waits for
        its next look at all topics, which comes once a second.
        """
        from confluent_kafka import KafkaException

        try:
            for topic in topics - self.topics if self.topics else ():
                self.consumer.list_topics(topic, timeout=_MEETS_S_MAX)
        except KafkaException:
            return False
        self.topics |= topics
        return True


@contextmanager
def lent_consumer(connection: Connection, topics: Set[str]) -> Iterator[Lent]:
    """Lend a consumer of this process for *topics*; one that met an error is not used again."""
    from confluent_kafka import Consumer

    idle = _idle.setdefault((os.getpid(), *connection.key()), deque())
    lent: Lent | None = None
    with suppress(IndexError):  # there is none
        lent = idle.pop()
    if lent is not None and not lent.meets(topics):
        lent.consumer.close()
        lent = None
    if lent is None:
        heard: Heard = deque(maxlen=HEARD_MAX)
        lent = Lent(Consumer(connection.of_consumer(heard)), heard, set(topics))
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
def _close_idle() -> None:
    """Close the consumers while Python still stands; their threads call into it."""
    for (process, *_), idle in _idle.items():
        while process == os.getpid() and idle:
            idle.pop().consumer.close()
