"""KafkaTransactionalSpout: the same records for the same txid.

KafkaOpaqueSpout: no record is lost or counted twice, though a replay may be cut anew.

KafkaCoordinator: cuts the logs into batches of bounded size.

It keeps nothing that decides what a batch is: the batch of a txid follows from the metadata of the
txid before and from one look at the cluster.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Mapping, Sequence
from typing import Literal

from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.errors import ConfigError, InfrastructureError, OffsetRegression, SourceDataLost
from txtopo.kafka_connection import Connection, Isolation, Setting, require_client
from txtopo.metadata import Json
from txtopo.spouts.kafka.offsets import (
    MISSING_LOOKS_MAX,
    Look,
    LossCheck,
    Lost,
    Offsets,
    PartitionPosition,
    Positions,
    Range,
    Start,
    Topics,
    checked_start,
    from_json,
    losses,
    made_anew,
    unseen,
)
from txtopo.spouts.kafka.reading import COLUMNS, EMIT_ROWS_MAX, Decoder, RecordColumns, read_ranges
from txtopo.spouts.spout import (
    LastBatch,
    OpaquePartitionedTransactionalEmitter,
    OpaquePartitionedTransactionalSpout,
    PartitionedCoordinator,
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
    ranges: Mapping[PartitionPosition, Range],
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


OnDataLoss = Literal["stop", "record"]

# An opaque spout's partitions are numbers that must mean the same for good, while topics may come
# to match a pattern at any time. So there are always as many, and each is a share of all partitions
# of Kafka, found by their names. More tasks than this would have nothing to do.
SHARES = 64

logger = logging.getLogger("txtopo")


class KafkaOpaqueSpout(OpaquePartitionedTransactionalSpout):
    """Reads topics of Kafka in batches that a replay may cut anew; goes on where data has gone.

    Delivery: opaque. Each record counts in exactly one committed txid, though an attempt that fails
    may be followed by another batch of the same txid; needs opaque states. Where a batch ends is
    decided in the tasks that read it. Use it for topics that are compacted, and where going on is
    better than standing still when retention has deleted what was not read yet:
    ``on_data_loss="record"`` then reads on from the first offset that is there, also in a topic
    that was made again; which offsets were lost stands in the metadata of the batch (``lost``), in
    the log as a warning and in the progress. A topic that is not there keeps its position, in case
    that it comes back. With ``"stop"`` the run stops with ``SourceDataLost``, as that of a
    ``KafkaTransactionalSpout`` does. A log that ends before the position stops both.

    Everything else, and the other arguments, are as for ``KafkaTransactionalSpout``.

    Args:
        servers: Bootstrap servers.
        topics: A name, several, or a pattern.
        on_data_loss: ``"stop"`` or ``"record"``.
        value: How a value is decoded.
        key: How a key is decoded.
        columns: Which columns are emitted.
        start: Where the first batch starts. ``"latest"`` is where txid 1 found the ends when it was
            first committed.
        batch_records_max: Offsets that a batch takes of each partition at the most.
        isolation: What is seen of transactions.
        timeout_s: After how many seconds without an answer an attempt fails.
        settings: More settings of librdkafka.

    Raises:
        ConfigError: An argument is wrong, or confluent-kafka is missing; mend it.
    """

    def __init__(
        self,
        servers: str,
        topics: Topics,
        *,
        on_data_loss: OnDataLoss = "stop",
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
        if on_data_loss not in ("stop", "record"):
            raise ConfigError(
                f"unknown on_data_loss; got {on_data_loss!r}; expected 'stop' or 'record'"
            )
        self._connection = Connection(servers, dict(settings or {}), isolation, timeout_s)
        self._offsets = Offsets(self._connection, topics)
        self._records = RecordColumns(tuple(columns), key, value)
        self._cutting = _Cutting(
            self._offsets,
            checked_start(start),
            checked_max(batch_records_max),
            stop=on_data_loss == "stop",
        )
        self.output_fields = self._records.fields()

    def coordinator(self, config: Config, context: TaskContext) -> PartitionedCoordinator:
        """Make the planning part.

        Raises:
            ConfigError: A topic that was named is not there; make it first.
        """
        check_topics(self._offsets)
        return _SharesCoordinator(self._cutting)

    def emitter(
        self, config: Config, context: TaskContext
    ) -> OpaquePartitionedTransactionalEmitter:
        """Make an emitting part."""
        return _ShareEmitter(self._connection, self._records, self._cutting, context)


def share_of(place: PartitionPosition) -> int:
    """Return the number of the spout's partition that a partition of Kafka belongs to."""
    return (zlib.crc32(place.topic.encode()) + place.partition) % SHARES


class _Cutting:
    """Where batches start and end. Picklable."""

    def __init__(self, offsets: Offsets, start: Start, records_max: int, *, stop: bool) -> None:
        self.offsets = offsets
        self.start: Start = start
        self.records_max = records_max
        self.stop = stop

    @property
    def fixed_start(self) -> bool:
        """Whether the start is the same whenever it is looked for."""
        return self.start == "earliest" or isinstance(self.start, Mapping)

    def cut(
        self, before: Positions, look: Look, places: Sequence[PartitionPosition], *, first: bool
    ) -> Positions:
        """Return the batch of *places* after *before*.

        Raises:
            SourceDataLost: Records that were not read are gone, and the run is to stop.
            InfrastructureError: Where the first batch starts cannot be seen; try again.
        """
        lost: list[Lost] = []
        ends = {place: each.end for place, each in before.ranges.items()}
        if not self.stop:
            lost = losses(before, look)
            for each in lost:
                del ends[each.place]
                if each.end is not None:
                    ends[each.place] = each.end
        new = [place for place in places if place not in ends]
        ends |= self.offsets.starts(self.start, look, new, first=first)
        ranges = unseen(before, look) | {
            place: self._range(place, ends[place], look.bounds.get(place))
            for place in places
            if place in ends
        }
        now = {name: topic.id for name, topic in look.topics.items()}
        ids = {place.topic: (dict(before.ids) | now)[place.topic] for place in ranges}
        return Positions(ids, ranges, tuple(lost))

    def _range(self, place: PartitionPosition, start: int, bounds: Range | None) -> Range:
        if bounds is None:
            return Range(start, start)
        LossCheck.range(place, start, bounds)
        return Range(start, min(bounds.end, start + self.records_max))


class _SharesCoordinator(PartitionedCoordinator):
    def __init__(self, cutting: _Cutting) -> None:
        self._cutting = cutting
        self._check = LossCheck()
        self._look: Look | None = None
        self._away: dict[str, int] = {}

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        """Be ready for as many batches after the last known one as the offsets will fill."""
        self._look = look = self._cutting.offsets.look()
        before = whole(last.metadata)
        if self._cutting.stop:
            self._check.positions(before, look)
        else:
            self._check.positions(self._present(before, look), look)
        if not last.txid and not self._cutting.fixed_start:
            return txid == 1 and self._cutting.offsets.seen_as_wanted(look)
        left = 0
        for place, bounds in look.bounds.items():
            each = before.ranges.get(place)
            same = each is not None and before.ids[place.topic] == look.topics[place.topic].id
            at = each.end if each is not None and same else bounds.start
            left = max(left, bounds.end - at)
        # What is between the last known batch and this one.
        left -= (txid - last.txid - 1) * self._cutting.records_max
        return worth_a_batch(left, self._cutting.records_max, last)

    def _present(self, before: Positions, look: Look) -> Positions:
        """Leave out the topics that are gone or another; tell of those that stay away."""
        for name in before.ids:
            self._away[name] = 0 if name in look.topics else self._away.get(name, 0) + 1
            if self._away[name] == MISSING_LOOKS_MAX:
                logger.warning("topic %r is not there; its position is kept", name)
        ids = {n: id for n, id in before.ids.items() if n in look.topics}
        ids = {n: id for n, id in ids.items() if look.topics[n].id == id}
        return Positions(ids, {p: each for p, each in before.ranges.items() if p.topic in ids})

    def number_of_partitions(self) -> int:
        return SHARES

    def lag(self, metadata: Mapping[str, Json]) -> Mapping[str, int]:
        return behind(self._look, whole(dict(metadata)))

    def lost(self, metadata: Mapping[str, Json]) -> Mapping[str, str]:
        return {str(e.place): f"{e.start} to {e.end}" for e in whole(dict(metadata)).lost}


class _ShareEmitter(OpaquePartitionedTransactionalEmitter):
    def __init__(
        self,
        connection: Connection,
        columns: RecordColumns,
        cutting: _Cutting,
        context: TaskContext,
    ) -> None:
        self._connection = connection
        self._columns = columns
        self._cutting = cutting
        self._context = context
        self._check = LossCheck()
        self._seen: tuple[TransactionAttempt, Look] | None = None

    def emit_partition_batch(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        last_metadata: Json,
    ) -> Json:
        look = self._look(attempt)
        before = from_json(last_metadata)
        places = [place for place in look.places if share_of(place) == partition]
        if not places and not before.ids:
            return None
        if self._cutting.stop:
            self._check.topics(before, look)
        try:
            batch = self._cutting.cut(before, look, places, first=attempt.txid == 1)
        except OffsetRegression as error:
            if not before.ids:
                raise
            # The coordinator says when it is for good.
            raise InfrastructureError(f"looking again: {error}") from error
        for lost in batch.lost:
            logger.warning("records of %s are lost: offsets %s to %s", *lost)
        try:
            emit_ranges(self._connection, self._columns, batch.ranges, collector)
        except SourceDataLost as error:
            if self._cutting.stop:
                raise
            # Deleted between the look and the reading: the next attempt looks again.
            raise InfrastructureError(f"records went while they were read: {error}") from error
        return batch.to_json()

    def _look(self, attempt: TransactionAttempt) -> Look:
        """Look once for all shares of a batch."""
        if self._seen is None or self._seen[0] != attempt:
            offsets, tasks = self._cutting.offsets, self._context.tasks
            places = Look(offsets.topics(), {}).places
            ours = [p for p in places if share_of(p) % tasks == self._context.task_index]
            self._seen = (attempt, offsets.look(ours))
        return self._seen[1]


def whole(cut: Json) -> Positions:
    """Return the positions of all shares."""
    parts = [from_json(each) for each in (cut.values() if isinstance(cut, dict) else ())]
    ids = {name: id for part in parts for name, id in part.ids.items()}
    ranges = {place: each for part in parts for place, each in part.ranges.items()}
    return Positions(ids, ranges, tuple(lost for part in parts for lost in part.lost))


PARTIAL_PENDING_MAX = 2


class KafkaCoordinator(TransactionalCoordinator):
    """Plans ranges in the driver, up to the last stable offsets."""

    def __init__(self, offsets: Offsets, start: Start, records_max: int) -> None:
        self._offsets = offsets
        self._start: Start = start
        self._records_max = records_max
        self._check = LossCheck()
        self._look: Look | None = None

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        """Look whether there is anything behind the last batch.

        The first batch of a start that depends on the time is ready at once, empty or not, so that
        it is durable where the topology started.
        """
        self._look = look = self._offsets.look()
        before = from_json(last.metadata)
        self._check.positions(before, look)
        if last.metadata is None and self._offsets.seen_as_wanted(look):
            fixed = self._start == "earliest" or isinstance(self._start, Mapping)
            if not fixed:
                return True
        left = [
            bounds.end - (before.ranges[place].end if place in before.ranges else bounds.start)
            for place, bounds in look.bounds.items()
        ]
        return worth_a_batch(max(left, default=0), self._records_max, last)

    def initialize_transaction(self, txid: int, previous_metadata: Json) -> Json:
        """Cut the next batch.

        Raises:
            SourceDataLost: Records that were not read are gone.
            InfrastructureError: The cluster cannot be reached, or does not show all that the first
                batch needs; try again.
        """
        before = from_json(previous_metadata)
        look = self._look or self._offsets.look()
        self._check.topics(before, look)
        new = [place for place in look.places if place not in before.ranges]
        starts = self._offsets.starts(self._start, look, new, first=previous_metadata is None)
        ends = {place: each.end for place, each in before.ranges.items()} | starts
        ranges = unseen(before, look)
        for place in look.places:
            if place in ends:
                ranges[place] = self._range(place, ends[place], look.bounds.get(place))
        ids = {name: topic.id for name, topic in look.topics.items()}
        return Positions(ids, ranges).to_json()

    def lag(self, metadata: Json) -> Mapping[str, int]:
        """Return how far each partition was behind its end at the last look."""
        return behind(self._look, from_json(metadata))

    def _range(self, place: PartitionPosition, start: int, bounds: Range | None) -> Range:
        if bounds is None:
            return Range(start, start)
        self._check.range(place, start, bounds)
        return Range(start, min(bounds.end, start + self._records_max))


def worth_a_batch(left: int, records_max: int, last: LastBatch) -> bool:
    """Return whether a batch is to be cut now, with *left* offsets in the fullest partition.

    A full one is, at once: the window is there for that. One that has room grows while it waits,
    and a record waits for all batches before its own. So while two are in flight, one of which
    commits and one is processed, the rest is left to gather: no record then waits for more than
    two others, and the slower the commits, the larger the batches.
    """
    return left >= records_max or (left > 0 and last.pending < PARTIAL_PENDING_MAX)


def behind(look: Look | None, positions: Positions) -> dict[str, int]:
    """Return how many offsets each partition has behind *positions*, as far as was seen."""
    if look is None:
        return {}
    return {
        str(place): max(0, look.bounds[place].end - each.end)
        for place, each in positions.ranges.items()
        if place in look.bounds
    }
