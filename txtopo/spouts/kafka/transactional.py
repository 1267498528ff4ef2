"""KafkaTransactionalSpout: the same records for the same txid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.errors import ConfigError, InfrastructureError
from txtopo.kafka_connection import Connection, Isolation, Setting, require_client
from txtopo.metadata import Json
from txtopo.spouts.kafka.loss import made_anew
from txtopo.spouts.kafka.offsets import Offsets, Topics
from txtopo.spouts.kafka.planning import KafkaCoordinator
from txtopo.spouts.kafka.positions import Place, Range, Start, checked_start, from_json
from txtopo.spouts.kafka.reading import read_ranges
from txtopo.spouts.kafka.records import COLUMNS, EMIT_ROWS_MAX, Decoder, RecordColumns
from txtopo.spouts.transactional import (
    TransactionalCoordinator,
    TransactionalEmitter,
    TransactionalSpout,
)

BATCH_RECORDS_MAX = 10_000


class KafkaTransactionalSpout(TransactionalSpout):
    """Reads topics of Kafka in batches that are the same on every replay.

    Delivery: transactional. A batch is a range of offsets of each partition, planned by the
    coordinator in the driver and stored before it is read in the tasks, so both kinds of state are
    exactly once. When records of a range, or the ones that come next, have been deleted by
    retention, the run stops with ``SourceDataLost``, which names topic, partition, wanted and first
    available offset; a topic that was deleted, or made again under its name, stops it as well. A
    topic with ``cleanup.policy=compact`` may bring fewer records on replay: use
    ``KafkaOpaqueSpout``.

    A broker that is down fails the attempt after ``timeout_s``; it is tried again, with pauses,
    until the broker is back. A partition without a leader keeps its position and the others go on.
    Partitions that are added, and topics that come to match a pattern, are read from their
    beginning. No consumer group is joined and nothing is stored in Kafka. Progress shows how many
    offsets each partition is behind.

    Args:
        servers: Bootstrap servers, ``host:port,…``.
        topics: A name, several, or ``re.compile(…)`` that a whole name must match.
        value: How a value is decoded: ``"bytes"``, ``"string"`` (UTF-8), or the ``Fields`` of a
            JSON object, which become columns in its place (a missing one is NULL). A value that is
            not exactly one object ends the run with its address; decode bytes in a bolt to go on.
        key: How a key is decoded: ``"bytes"`` or ``"string"``.
        columns: Which columns are emitted: of ``key``, ``value``, ``headers`` (JSON: a list of
            [name, value]), ``topic``, ``partition``, ``offset``, ``timestamp``. Fewer are faster.
        start: Where the first batch starts: ``"earliest"``, ``"latest"``, a datetime (the first
            record of that time or later), or ``{topic: {partition: offset}}`` (``"earliest"`` for
            partitions that are not named). Later starts go on after the last batch.
        batch_records_max: Offsets that a batch takes of each partition at the most.
        isolation: ``"read_committed"``: records of transactions that were aborted are not seen, and
            those of an open transaction hold back what comes after them. ``"read_uncommitted"``:
            both are seen.
        timeout_s: After how many seconds without an answer an attempt fails.
        settings: More settings of librdkafka, e.g. ``security.protocol``, ``sasl.password``,
            ``ssl.ca.location``. They travel to the tasks, and are never shown or stored.

    Raises:
        ConfigError: An argument is wrong, or confluent-kafka is missing; mend it.
    """

    def __init__(
        self,
        servers: str,
        topics: Topics,
        *,
        value: Decoder = "bytes",
        key: str = "bytes",
        columns: Sequence[str] = COLUMNS,
        start: Start = "earliest",
        batch_records_max: int = BATCH_RECORDS_MAX,
        isolation: Isolation = "read_committed",
        timeout_s: float = 20.0,
        settings: Mapping[str, Setting] | None = None,
    ) -> None:
        require_client()
        self._connection = Connection(servers, dict(settings or {}), isolation, timeout_s)
        self._offsets = Offsets(self._connection, topics)
        self._records = RecordColumns(tuple(columns), key, value)
        self._start = checked_start(start)
        self._records_max = checked_max(batch_records_max)
        self.output_fields = self._records.fields()

    def coordinator(self, config: Config, context: TaskContext) -> TransactionalCoordinator:
        """Make the planning part.

        Raises:
            ConfigError: A topic that was named is not there; make it first.
        """
        check_topics(self._offsets)
        return KafkaCoordinator(self._offsets, self._start, self._records_max)

    def emitter(self, config: Config, context: TaskContext) -> TransactionalEmitter:
        """Make an emitting part."""
        return _RangeEmitter(self._connection, self._offsets, self._records, context)


class _RangeEmitter(TransactionalEmitter):
    """Reads the ranges of its share of the partitions."""

    def __init__(
        self,
        connection: Connection,
        offsets: Offsets,
        records: RecordColumns,
        context: TaskContext,
    ) -> None:
        self._connection = connection
        self._offsets = offsets
        self._records = records
        self._context = context
        self._ids: dict[str, str] = {}

    def emit_batch(
        self, attempt: TransactionAttempt, metadata: Json, collector: BatchOutputCollector
    ) -> None:
        positions = from_json(metadata)
        full = {place: each for place, each in positions.ranges.items() if each.start < each.end}
        places = sorted(full)[self._context.task_index :: self._context.tasks]
        self._check_ids({place.topic: positions.ids[place.topic] for place in places})
        emit_ranges(self._connection, self._records, {p: full[p] for p in places}, collector)

    def _check_ids(self, ids: Mapping[str, str]) -> None:
        """See once a job that the topics are those that were planned."""
        if not ids.keys() <= self._ids.keys():
            self._ids = {name: topic.id for name, topic in self._offsets.topics().items()}
        for name, id in ids.items():
            got = self._ids.get(name)
            if got is None:
                raise InfrastructureError(f"topic {name!r} is not there; looking again")
            if got != id:
                raise made_anew(name, id, got)


def emit_ranges(
    connection: Connection,
    columns: RecordColumns,
    ranges: Mapping[Place, Range],
    collector: BatchOutputCollector,
) -> None:
    """Read ranges and emit their records, partition by partition."""
    schema = columns.fields().arrow_schema()
    for _, records in sorted(read_ranges(connection, ranges).items()):
        for at in range(0, len(records), EMIT_ROWS_MAX):
            collector.emit_batch(columns.batch(records[at : at + EMIT_ROWS_MAX], schema))


def check_topics(offsets: Offsets) -> None:
    """Check that the topics are there, if the cluster can be asked; else planning will wait for it.

    Raises:
        ConfigError: A topic that was named is not.
    """
    try:
        missing = offsets.missing()
    except InfrastructureError:
        return
    if missing:
        raise ConfigError(
            f"topic of a Kafka spout is not there; got {missing[0]!r}; look at its spelling, or "
            "make it before the topology starts",
            topic=missing[0],
        )


def checked_max(records: int) -> int:
    """Return the limit of a batch, if it is one.

    Raises:
        ConfigError: It is none.
    """
    if type(records) is not int or records < 1:
        raise ConfigError(
            f"batch_records_max is wrong; got {records!r}; expected a whole number of at least 1"
        )
    return records
