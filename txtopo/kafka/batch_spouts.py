"""The two spouts that read Kafka: KafkaTransactionalSpout and KafkaOpaqueSpout.

Neither keeps anything that determines a batch: the batch of a txid follows from the metadata of the
previous txid and from one look at the cluster.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from itertools import chain
from typing import Literal, Self

from txtopo.attempt import TransactionAttempt
from txtopo.clock import now
from txtopo.collector import BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.errors import ConfigError, InfrastructureError, OffsetRegression, SourceDataLost
from txtopo.extras import require
from txtopo.instead import known_arguments
from txtopo.kafka.connection import Connection, Isolation, Setting
from txtopo.kafka.group_offsets import CommitGroup, GroupOffsets, renamed_group
from txtopo.kafka.offsets import (
    MISSING_LOOKS_MAX,
    ClusterSnapshot,
    KafkaPartition,
    LossCheck,
    Lost,
    Offsets,
    Positions,
    Range,
    Start,
    Topic,
    Topics,
    checked_start,
    from_json,
    losses,
    recreated,
    start_from,
    unseen,
)
from txtopo.kafka.reading import (
    COLUMNS,
    EMIT_ROWS_MAX,
    Decoder,
    KeyDecoder,
    RecordColumns,
    read_ranges,
)
from txtopo.log_records import logger_of
from txtopo.metadata import Json
from txtopo.pacing import Turns
from txtopo.spouts.spout import (
    LastBatch,
    OpaquePartitionedTransactionalEmitter,
    OpaquePartitionedTransactionalSpout,
    PartitionedCoordinator,
    TransactionalCoordinator,
    TransactionalEmitter,
    TransactionalSpout,
    check_min_batch_rows,
)
from txtopo.traits import Traits

BATCH_ROWS_MAX = 10_000

# The partitions of an opaque spout are numbers that keep their meaning forever, while new topics
# may match a pattern at any time. So their number is fixed, and each stands for a share of all
# Kafka partitions, determined by their names. Tasks beyond this number have nothing to do.
SHARES = 64

# How long it may take to notice that a topic became compacted. By default Kafka compacts a segment
# when it is a week old; a query costs a round trip.
COMPACTION_CHECK_S = 60.0

OnDataLoss = Literal["stop", "record"]

_logger = logger_of("txtopo.spouts")


class KafkaTransactionalSpout(TransactionalSpout):
    """Reads Kafka topics in batches that are the same in every replay.

    Delivery: transactional. A batch is a range of offsets of each partition. The driver plans it
    and stores it before the tasks read it, so states of both kinds are exactly once. If retention
    has deleted records of a range, or the next records, the run stops with ``SourceDataLost``,
    which names the topic, the partition, the wanted and the first available offset. A topic that
    was deleted, or recreated under its name, stops the run as well. A topic with
    ``cleanup.policy=compact`` may return fewer records in a replay, so it is refused. If a topic
    becomes compacted later, it is refused within a minute. Use ``KafkaOpaqueSpout`` instead.

    If a broker is down, the attempt fails after ``timeout_s`` and is retried, with pauses, until
    the broker is back. A partition without a leader keeps its position while the others continue.
    Partitions and topics that are added later are read from their beginning. The spout neither
    joins a consumer group nor reads offsets from one. Progress shows how many offsets each
    partition is behind.

    Args:
        servers: Bootstrap servers, ``host:port,…``.
        topics: A name, several names, or ``re.compile(…)``, which must match a whole name.
        value: How a value is decoded: ``"bytes"``, ``"string"`` (UTF-8), the ``Fields`` of a JSON
            object, ``txtopo.Avro(…)`` or ``txtopo.Protobuf(…)``, with schemas in a registry, or
            ``txtopo.Debezium(…)``, some of whose records produce no row. The fields become columns
            in place of ``value``; a field missing in JSON is NULL. A value that cannot be decoded
            ends the run with an error that names the record, or goes to the ``dead_letters`` of the
            topology.
        key: How a key is decoded: ``"bytes"``, ``"string"``, ``Avro(…)`` or ``Protobuf(…)``.
        columns: The columns to emit, out of ``key``, ``value``, ``headers`` (JSON: a list of [name,
            value]), ``topic``, ``partition``, ``offset``, ``timestamp``. Fewer columns are faster.
        start: Where the first batch starts: ``"earliest"``, ``"latest"``, a datetime (the first
            record of that time or later), or ``{topic: {partition: offset}}`` (``"earliest"`` for
            all other partitions). Later starts continue after the last batch.
        batch_rows_max: The maximum number of offsets that a batch takes from each partition.
        isolation: ``"read_committed"``: records of aborted transactions are skipped, and an open
            transaction holds back all records after its first one. ``"read_uncommitted"``: both are
            read.
        timeout_s: The number of seconds without an answer after which an attempt fails.
        commit_group: A consumer group to which committed offsets are copied, on a best-effort
            basis, for tools that show its lag; None for none. Nothing else may use the group; see
            ``docs/how-to/kafka.md``.
        settings: More settings of librdkafka, e.g. ``security.protocol``, ``sasl.password``,
            ``ssl.ca.location``. They are sent to the tasks, and never shown or stored.

    Raises:
        ConfigError: An argument is wrong, or confluent-kafka is missing; repair it.
    """

    client_modules: Sequence[str] = ("confluent_kafka",)

    @known_arguments
    def __init__(
        self,
        servers: str,
        topics: Topics,
        *,
        value: Decoder = "bytes",
        key: KeyDecoder = "bytes",
        columns: Sequence[str] = COLUMNS,
        start: Start = "earliest",
        batch_rows_max: int = BATCH_ROWS_MAX,
        isolation: Isolation = "read_committed",
        timeout_s: float = 20.0,
        commit_group: str | None = None,
        settings: Mapping[str, Setting] | None = None,
    ) -> None:
        require("confluent_kafka", "KafkaTransactionalSpout")
        connection = Connection(servers, dict(settings or {}), isolation, timeout_s)
        records = RecordColumns(tuple(columns), key, value)
        self._source = KafkaSource(connection, topics, records, start, batch_rows_max)
        self._group = CommitGroup.of(connection, commit_group)
        self.output_fields = records.fields()
        self.client_modules = records.client_modules
        self.connects_to = [connection.server, *records.connects_to]

    def beginning_at(self, place: Json) -> Self:
        """Return a copy of this spout whose first batch begins at a place.

        Args:
            place: As *start*, in JSON: ``"earliest"``, ``"latest"``, a time with a zone as text in
                ISO 8601, or offsets as ``{topic: {"0": offset}}``.

        Raises:
            ConfigError: It is not such a place.
        """
        begun = copy(self)
        begun._source = self._source.beginning_at(place)
        return begun

    @property
    def traits(self) -> Traits:
        """The traits of the spout, with its consumer group."""
        return replace(super().traits, renamed_in_forks=renamed_group(self._group))

    def coordinator(self, config: Config, context: TaskContext) -> TransactionalCoordinator:
        """Make the planning part.

        Raises:
            ConfigError: A named topic does not exist, a topic is compacted, or no batch can have
                ``min_batch_rows``.
        """
        self._source.check(config)
        coordinator = RangesCoordinator(self._source)
        with suppress(InfrastructureError):  # planning will wait for the cluster
            coordinator.check_kept(self._source.offsets.topics())
        return coordinator

    def emitter(self, config: Config, context: TaskContext) -> TransactionalEmitter:
        """Make an emitting part."""
        return _RangesEmitter(self._source, context, self._group)


class KafkaOpaqueSpout(OpaquePartitionedTransactionalSpout):
    """Reads Kafka topics in batches that a replay may divide differently; can skip lost records.

    Delivery: opaque. Each record counts in exactly one committed txid, although the batch of a txid
    may differ between attempts; needs opaque states. The tasks that read a batch decide where it
    ends. Use this spout for compacted topics, or if the run should continue when retention has
    deleted unread records: with ``on_data_loss="record"`` it continues at the first available
    offset, even in a topic that was recreated. The lost offsets are recorded in the metadata of the
    batch (``lost``), in a warning in the log, and in the progress. A missing topic keeps its
    position, in case it returns. With ``"stop"`` the run stops with ``SourceDataLost``, as with a
    ``KafkaTransactionalSpout``. With either setting, a log that ends before the position stops the
    run.

    Everything else is as for ``KafkaTransactionalSpout``.

    Args:
        servers: Bootstrap servers.
        topics: A name, several names, or a pattern.
        on_data_loss: ``"stop"`` or ``"record"``.
        value: How a value is decoded.
        key: How a key is decoded.
        columns: The columns to emit.
        start: Where the first batch starts. ``"latest"`` is the end of each partition when the
            committed attempt of txid 1 read it.
        batch_rows_max: The maximum number of offsets that a batch takes from each partition.
        isolation: Which records of transactions are read.
        timeout_s: The number of seconds without an answer after which an attempt fails.
        commit_group: A consumer group to which committed offsets are copied.
        settings: More settings of librdkafka.

    Raises:
        ConfigError: An argument is wrong, or confluent-kafka is missing; repair it.
    """

    client_modules: Sequence[str] = ("confluent_kafka",)

    @known_arguments
    def __init__(
        self,
        servers: str,
        topics: Topics,
        *,
        on_data_loss: OnDataLoss = "stop",
        value: Decoder = "bytes",
        key: KeyDecoder = "bytes",
        columns: Sequence[str] = COLUMNS,
        start: Start = "earliest",
        batch_rows_max: int = BATCH_ROWS_MAX,
        isolation: Isolation = "read_committed",
        timeout_s: float = 20.0,
        commit_group: str | None = None,
        settings: Mapping[str, Setting] | None = None,
    ) -> None:
        require("confluent_kafka", "KafkaOpaqueSpout")
        if on_data_loss not in ("stop", "record"):
            raise ConfigError(
                f"unknown on_data_loss; got {on_data_loss!r}; expected 'stop' or 'record'",
                setting="on_data_loss",
            )
        connection = Connection(servers, dict(settings or {}), isolation, timeout_s)
        records = RecordColumns(tuple(columns), key, value)
        self._source = KafkaSource(connection, topics, records, start, batch_rows_max)
        self._group = CommitGroup.of(connection, commit_group)
        self._stops = on_data_loss == "stop"
        self.output_fields = records.fields()
        self.client_modules = records.client_modules
        self.connects_to = [connection.server, *records.connects_to]

    def beginning_at(self, place: Json) -> Self:
        """Return a copy of this spout whose first batch begins at a place.

        Args:
            place: As *start*, in JSON: ``"earliest"``, ``"latest"``, a time with a zone as text in
                ISO 8601, or offsets as ``{topic: {"0": offset}}``.

        Raises:
            ConfigError: It is not such a place.
        """
        begun = copy(self)
        begun._source = self._source.beginning_at(place)
        return begun

    @property
    def traits(self) -> Traits:
        """The traits of the spout, with its consumer group."""
        return replace(super().traits, renamed_in_forks=renamed_group(self._group))

    def coordinator(self, config: Config, context: TaskContext) -> PartitionedCoordinator:
        """Make the planning part.

        Raises:
            ConfigError: A named topic does not exist, or no batch can have ``min_batch_rows``.
        """
        self._source.check(config)
        return SharesCoordinator(self._source, context, stops=self._stops)

    def emitter(
        self, config: Config, context: TaskContext
    ) -> OpaquePartitionedTransactionalEmitter:
        """Make an emitting part."""
        return _SharesEmitter(self._source, context, self._group, stops=self._stops)


class KafkaSource:
    """The topics that a spout reads, how it decodes them, and how it cuts them. Picklable.

    Raises:
        ConfigError: The topics, the start or the size of a batch are wrong; repair them.
    """

    def __init__(
        self,
        connection: Connection,
        topics: Topics,
        records: RecordColumns,
        start: Start,
        records_max: int,
    ) -> None:
        self.offsets = Offsets(connection, topics)
        self._connection = connection
        self._records = records
        self._topics = topics
        self._start: Start = checked_start(start, topics)
        self._records_max = checked_max(records_max)
        self._looked = False

    def beginning_at(self, place: Json) -> KafkaSource:
        """Return a copy that begins at a place, which is a *start* in JSON.

        Raises:
            ConfigError: It is not such a place.
        """
        begun = copy(self)
        begun._start = checked_start(start_from(place), self._topics)
        return begun

    def check(self, config: Config) -> None:
        """Check that the topics exist, and that batches can be as large as required.

        If the cluster cannot be asked, planning will wait for it.

        Raises:
            ConfigError: A named topic does not exist, or all partitions together cannot give
                ``min_batch_rows``; create it first, or repair the settings.
        """
        check_topics(self.offsets)
        if config.pace.min_batch_rows is not None:
            with suppress(InfrastructureError):
                partitions = len(ClusterSnapshot(self.offsets.topics(), {}).partitions)
                if partitions:  # a pattern may match nothing yet
                    check_min_batch_rows(config, self._records_max, partitions)

    def is_ready(
        self, txid: int, last: LastBatch, before: Positions, look: ClusterSnapshot, *, first: bool
    ) -> bool:
        """Return whether a batch *txid* is to be planned now.

        A first batch whose start depends on the time is planned at once, empty or not, so that the
        position where the topology started is durable.

        Args:
            txid: The batch.
            last: The newest batch whose metadata is known.
            before: The positions of that batch in the topics that are unchanged.
            look: The state of the cluster.
            first: Whether no batch has read anything yet.
        """
        if first and not self._fixed:
            return txid == last.txid + 1 and self.offsets.can_start(look)
        left = max(self.unread(before, look, first=first).values(), default=0)
        # The batches between the last known one and this one take their part.
        left -= (txid - last.txid - 1) * self._records_max
        return last.worth_a_batch(left, self._records_max)

    def unread(
        self, before: Positions, look: ClusterSnapshot, *, first: bool
    ) -> dict[KafkaPartition, int]:
        """Return how many offsets each partition has after *before*.

        For a first batch whose start depends on the time nothing is known yet: it stores the start.
        """
        if first and not self._fixed:
            return {}
        unread = {}
        for partition, bounds in look.bounds.items():
            known = before.ranges.get(partition)
            unread[partition] = max(0, bounds.end - (known.end if known else bounds.start))
        return unread

    @property
    def _fixed(self) -> bool:
        return self._start == "earliest" or isinstance(self._start, Mapping)

    def ranges_after(
        self,
        before: Positions,
        look: ClusterSnapshot,
        partitions: Sequence[KafkaPartition],
        *,
        first: bool,
        rows_max: int | None = None,
        turns: Turns,
    ) -> dict[KafkaPartition, Range]:
        """Return the ranges of the batch that follows *before* in *partitions*.

        With *rows_max* they have no more offsets together, which *turns* shares out.

        Raises:
            SourceDataLost: Unread records are gone.
            OffsetRegression: A log ends before the position.
            InfrastructureError: The start of the first batch is not visible; try again.
        """
        ends = {partition: each.end for partition, each in before.ranges.items()}
        new = [partition for partition in partitions if partition not in ends]
        ends |= self.offsets.starts(self._start, look, new, first=first)
        ranges = {
            partition: self._range(partition, ends[partition], look.bounds.get(partition))
            for partition in partitions
            if partition in ends
        }
        if rows_max is not None:
            unread = {partition: each.end - each.start for partition, each in ranges.items()}
            shares = turns.shared_out(rows_max, unread)
            ranges = {
                partition: Range(each.start, each.start + shares[partition])
                for partition, each in ranges.items()
            }
        return unseen(before, look) | ranges

    def emit(self, ranges: Mapping[KafkaPartition, Range], collector: BatchOutputCollector) -> None:
        """Read ranges and emit their records, partition by partition."""
        schema = self._records.fields().arrow_schema()
        read = read_ranges(self._connection, ranges)
        if not self._looked and any(read.values()):
            self._looked = True
            if (seen := self._records.seen([*chain(*read.values())])) is not None:
                collector.saw(seen)
        for _, records in sorted(read.items()):
            for at in range(0, len(records), EMIT_ROWS_MAX):
                self._records.emit(records[at : at + EMIT_ROWS_MAX], schema, collector)

    def _range(self, partition: KafkaPartition, start: int, bounds: Range | None) -> Range:
        if bounds is None:
            return Range(start, start)
        LossCheck.range(partition, start, bounds)
        return Range(start, min(bounds.end, start + self._records_max))


class RangesCoordinator(TransactionalCoordinator):
    """Plans the ranges of a ``KafkaTransactionalSpout``."""

    def __init__(self, source: KafkaSource) -> None:
        self._source = source
        self._check = LossCheck()
        self._turns = Turns()
        self._look: ClusterSnapshot | None = None
        # When the policy of a topic was last queried, by its name and id; and which topics have an
        # unknown one.
        self._asked_s: dict[tuple[str, str], float] = {}
        self._untold: set[str] = set()

    def check_kept(self, topics: Mapping[str, Topic]) -> None:
        """Check that no topic is compacted, for each topic about once a minute.

        A topic whose policy the cluster does not report is read, and named in the log once.

        Raises:
            ConfigError: A topic is compacted.
            InfrastructureError: The cluster cannot be reached, and a topic was never checked.
        """
        now_s = now()
        asked = {(name, topic.id): name for name, topic in topics.items()}
        due = {
            topic: name
            for topic, name in asked.items()
            if now_s - self._asked_s.get(topic, -COMPACTION_CHECK_S) >= COMPACTION_CHECK_S
        }
        if not due:
            return
        try:
            policies = self._source.offsets.cleanup_policies([*due.values()])
        except InfrastructureError:
            if not due.keys() <= self._asked_s.keys():
                raise
            return  # the next planning shows whether the cluster is unreachable
        for topic, name in due.items():
            if name not in policies and topic not in self._asked_s:
                raise InfrastructureError(
                    f"topic {name!r} is not known to all brokers yet; checking again", topic=name
                )
        for name, policy in policies.items():
            if policy is None:
                self._warn_untold(name)
            elif "compact" in policy:
                raise _compacted(name, policy)
        self._asked_s = {topic: now_s for topic in due if due[topic] in policies} | {
            topic: self._asked_s[topic] for topic in asked if topic not in due
        }

    def _warn_untold(self, name: str) -> None:
        if name not in self._untold:
            self._untold.add(name)
            text = (
                "the cluster does not report whether topic %r is compacted; expected a user with "
                "the right to describe its settings (DescribeConfigs); it is read as a topic "
                "that is not compacted; if it is compacted, a replay may lack records"
            )
            _logger.warning(text, name)

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        """Return whether there are records after the last batch, enough to plan the next."""
        self._look = look = self._source.offsets.look()
        before = from_json(last.metadata)
        self._check.positions(before, look)
        self.check_kept(look.topics)
        first = last.metadata is None
        return self._source.is_ready(txid, last, before, look, first=first)

    def unread(self, last: LastBatch) -> Mapping[str, int]:
        """Return how many offsets each partition has after the last batch, at the last look."""
        assert self._look is not None, "is_ready looked"
        first = last.metadata is None
        unread = self._source.unread(from_json(last.metadata), self._look, first=first)
        return {str(partition): count for partition, count in unread.items()}

    def initialize_transaction(
        self, txid: int, previous_metadata: Json, *, rows_max: int | None = None
    ) -> Json:
        """Plan the next batch, with at most *rows_max* offsets in all.

        Raises:
            SourceDataLost: Records that were not read are gone.
            OffsetRegression: A topic was recreated, or a log ends before the position.
            InfrastructureError: The cluster cannot be reached, or does not yet report every topic
                and partition leader that the first batch needs; try again.
        """
        before = from_json(previous_metadata)
        look = self._look or self._source.offsets.look()
        self._check.topics(before, look)
        first = previous_metadata is None
        ranges = self._source.ranges_after(
            before, look, look.partitions, first=first, rows_max=rows_max, turns=self._turns
        )
        return Positions({name: topic.id for name, topic in look.topics.items()}, ranges).to_json()

    def lag(self, metadata: Json) -> Mapping[str, int]:
        """Return how many offsets each partition was behind its end at the last look."""
        return behind(self._look, from_json(metadata))


class _RangesEmitter(TransactionalEmitter):
    """Reads the planned ranges of this task's share of the partitions."""

    writes_nowhere_else = True

    def __init__(
        self, source: KafkaSource, context: TaskContext, group: CommitGroup | None
    ) -> None:
        self._source = source
        self._context = context
        self._group = None if group is None else GroupOffsets(group, context)
        self._ids: dict[str, str] = {}

    def emit_batch(
        self, attempt: TransactionAttempt, metadata: Json, collector: BatchOutputCollector
    ) -> None:
        positions = from_json(metadata)
        full = {p: each for p, each in positions.ranges.items() if each.start < each.end}
        ours = sorted(full)[self._context.task_index :: self._context.tasks]
        self._check_ids({each.topic: positions.ids[each.topic] for each in ours})
        self._source.emit({partition: full[partition] for partition in ours}, collector)

    def commit(self, attempt: TransactionAttempt, metadata: Json) -> None:
        if self._group is not None:
            self._group.committing(attempt.txid, from_json(metadata))

    def cleanup_before(self, txid: int) -> None:
        if self._group is not None:
            self._group.committed_before(txid)

    def close(self) -> None:
        if self._group is not None:
            self._group.close()

    def _check_ids(self, ids: Mapping[str, str]) -> None:
        """Check, once per job, that the topics are still those of the plan."""
        if not ids.keys() <= self._ids.keys():
            topics = self._source.offsets.topics()
            self._ids = {name: topic.id for name, topic in topics.items()}
        for name, id in ids.items():
            got = self._ids.get(name)
            if got is None:
                raise InfrastructureError(
                    f"topic {name!r} is missing; got {len(self._ids)} other topics; expected "
                    "those of the plan; if it was deleted, stop the run, and create it again or "
                    "remove it from the spout; checking again",
                    topic=name,
                )
            if got != id:
                raise recreated(name, id, got)


class SharesCoordinator(PartitionedCoordinator):
    """Decides when a ``KafkaOpaqueSpout`` has records; its emitters decide where a batch ends."""

    def __init__(self, source: KafkaSource, context: TaskContext, *, stops: bool) -> None:
        self._source = source
        self._about = {"topology": context.topology_id, "component": context.component_id}
        self._stops = stops
        self._check = LossCheck()
        self._look: ClusterSnapshot | None = None
        self._before = Positions({}, {})
        self._missing_looks: dict[str, int] = {}

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        """Return whether there are records for this batch after those of the batches before it."""
        self._look = look = self._source.offsets.look()
        before = whole(last.metadata)
        if not self._stops:
            before = self._present(before, look)
        self._check.positions(before, look)
        self._before = before
        return self._source.is_ready(txid, last, before, look, first=not last.txid)

    def unread(self, last: LastBatch) -> Mapping[str, int]:
        """Return how many offsets each share has after the last batch, at the last look."""
        assert self._look is not None, "is_ready looked"
        unread = self._source.unread(self._before, self._look, first=not last.txid)
        by_share = dict.fromkeys(map(str, range(SHARES)), 0)
        for partition, count in unread.items():
            by_share[str(share_of(partition))] += count
        return by_share

    def number_of_partitions(self) -> int:
        """Return the number of shares."""
        return SHARES

    def lag(self, metadata: Mapping[str, Json]) -> Mapping[str, int]:
        """Return how many offsets each partition was behind its end at the last look."""
        return behind(self._look, whole(dict(metadata)))

    def lost(self, metadata: Mapping[str, Json]) -> Mapping[str, str]:
        """Return the offsets of each partition that the batch skipped, as text."""
        lost = whole(dict(metadata)).lost
        return {str(each.partition): f"{each.start} to {each.end}" for each in lost}

    def _present(self, before: Positions, look: ClusterSnapshot) -> Positions:
        """Exclude topics that are missing or were recreated; warn once of each missing one."""
        for name in before.ids:
            missing_looks = 0 if name in look.topics else self._missing_looks.get(name, 0) + 1
            self._missing_looks[name] = missing_looks
            if missing_looks == MISSING_LOOKS_MAX:
                text = "topic %r does not exist; its position is kept"
                _logger.warning(text, name, extra=self._about)
        same = {name for name, topic in look.topics.items() if before.ids.get(name) == topic.id}
        return Positions(
            {name: id for name, id in before.ids.items() if name in same},
            {p: each for p, each in before.ranges.items() if p.topic in same},
        )


class _SharesEmitter(OpaquePartitionedTransactionalEmitter):
    """Cuts and reads the batches of some shares."""

    writes_nowhere_else = True

    def __init__(
        self, source: KafkaSource, context: TaskContext, group: CommitGroup | None, *, stops: bool
    ) -> None:
        self._source = source
        self._context = context
        self._group = None if group is None else GroupOffsets(group, context)
        self._stops = stops
        self._check = LossCheck()
        self._turns = Turns()
        self._seen: tuple[TransactionAttempt, ClusterSnapshot] | None = None

    def emit_partition_batch(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        last_metadata: Json,
        *,
        rows_max: int | None = None,
    ) -> Json:
        look = self._look(attempt)
        before = from_json(last_metadata)
        share = [each for each in look.partitions if share_of(each) == partition]
        if not share and not before.ids:
            return None
        if self._stops:
            self._check.topics(before, look)
        try:
            first = attempt.txid == 1
            batch = self._batch(before, look, share, first=first, rows_max=rows_max)
        except OffsetRegression as error:
            if not before.ids:
                raise
            # The coordinator decides when it is final.
            raise InfrastructureError(f"checking again: {error}", **error.facts) from error
        try:
            self._source.emit(batch.ranges, collector)
        except SourceDataLost as error:
            if self._stops:
                raise
            # Deleted after the look and before the read: the next attempt looks again.
            raise InfrastructureError(
                f"records were deleted while they were being read: {error}", **error.facts
            ) from error
        return batch.to_json()

    def repeat_partition_batch(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        metadata: Json,
    ) -> bool:
        self._source.emit(from_json(metadata).ranges, collector)
        return True

    def commit(self, attempt: TransactionAttempt, metadata: Json) -> None:
        if self._group is not None:
            self._group.committing(attempt.txid, whole(metadata))

    def cleanup_before(self, txid: int) -> None:
        if self._group is not None:
            self._group.committed_before(txid)

    def close(self) -> None:
        if self._group is not None:
            self._group.close()

    def _batch(
        self,
        before: Positions,
        look: ClusterSnapshot,
        share: Sequence[KafkaPartition],
        *,
        first: bool,
        rows_max: int | None = None,
    ) -> Positions:
        """Return the batch of a share that follows *before*.

        Raises:
            SourceDataLost: Unread records are gone, and the run is to stop.
            OffsetRegression: A log ends before the position.
            InfrastructureError: The start of the first batch cannot be seen; try again.
        """
        lost = [] if self._stops else losses(before, look)
        after = _skipped(before, lost)
        ranges = self._source.ranges_after(
            after, look, share, first=first, rows_max=rows_max, turns=self._turns
        )
        ids = dict(before.ids) | {name: topic.id for name, topic in look.topics.items()}
        return Positions({each.topic: ids[each.topic] for each in ranges}, ranges, tuple(lost))

    def _look(self, attempt: TransactionAttempt) -> ClusterSnapshot:
        """Look once at the partitions of all shares of this task."""
        if self._seen is None or self._seen[0] != attempt:
            offsets, tasks = self._source.offsets, self._context.tasks
            partitions = ClusterSnapshot(offsets.topics(), {}).partitions
            ours = [p for p in partitions if share_of(p) % tasks == self._context.task_index]
            self._seen = (attempt, offsets.look(ours))
        return self._seen[1]


def share_of(partition: KafkaPartition) -> int:
    """Return the number of the spout's partition that a partition of Kafka belongs to."""
    return (zlib.crc32(partition.topic.encode()) + partition.number) % SHARES


def whole(cut: Json) -> Positions:
    """Return the positions of all shares as one."""
    parts = [from_json(each) for each in (cut.values() if isinstance(cut, dict) else ())]
    ids = {name: id for part in parts for name, id in part.ids.items()}
    ranges = {partition: each for part in parts for partition, each in part.ranges.items()}
    return Positions(ids, ranges, tuple(lost for part in parts for lost in part.lost))


def _skipped(before: Positions, lost: Iterable[Lost]) -> Positions:
    """Return the positions after lost records; a topic that was recreated has none."""
    ranges = dict(before.ranges)
    for each in lost:
        if each.end is None:
            del ranges[each.partition]
        else:
            ranges[each.partition] = Range(each.end, each.end)
    return Positions(before.ids, ranges)


def behind(look: ClusterSnapshot | None, positions: Positions) -> dict[str, int]:
    """Return how many offsets each partition has after *positions*, as far as *look* shows it."""
    if look is None:
        return {}
    return {
        str(partition): max(0, look.bounds[partition].end - each.end)
        for partition, each in positions.ranges.items()
        if partition in look.bounds
    }


def check_topics(offsets: Offsets) -> None:
    """Check that the topics exist; if the cluster cannot be asked, planning will wait for it.

    Raises:
        ConfigError: A named topic does not exist; create it first.
    """
    try:
        missing = offsets.missing()
    except InfrastructureError:
        return
    if missing:
        raise ConfigError(
            f"topic {missing[0]!r} of a Kafka spout does not exist; check its spelling, or create "
            "it before the topology starts",
            topic=missing[0],
        )


def _compacted(topic: str, policy: str) -> ConfigError:
    return ConfigError(
        f"topic {topic!r} of a KafkaTransactionalSpout is compacted; got {policy!r} as its "
        "cleanup.policy; expected 'delete', because a replay may lack records that were "
        "compacted in the meantime; read it with a KafkaOpaqueSpout, or change the policy of the "
        "topic",
        topic=topic,
    )


def checked_max(records: int) -> int:
    """Return the limit of a batch if it is valid.

    Raises:
        ConfigError: It is not; repair it.
    """
    if type(records) is not int or records < 1:
        raise ConfigError(
            f"batch_rows_max is wrong; got {records!r}; expected a whole number of at least 1",
            setting="batch_rows_max",
        )
    return records
