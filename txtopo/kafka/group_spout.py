"""The spout that reads topics of Kafka for a consumer group, at least once: KafkaSpout.

Rules
-----
1. The group decides which task reads which partition. Each task is a member with its own consumer,
   so tasks of one run, and runs of several drivers, share the partitions. When a member dies, the
   group notices after ``session.timeout.ms``, and gives its partitions to the others.
2. Kafka keeps the position: the offset that is committed for the group. A record is committed when
   it and all records below it in its partition are acked. :class:`UncommittedOffsets` decides that,
   without I/O. So whatever dies, records that were not acked are read again.
3. Commits are sent at most once a second, and nothing waits for them. A lost or refused commit is
   sent again with the next one. A broker refuses commits of a member that the group has excluded.
4. A partition without a committed offset begins at ``start``, and that offset is committed before
   its first record is emitted: "latest" must not mean a later end after a crash. A partition that
   was created after the group began is read from its first record. It counts as such if it did not
   exist when the task opened, or if the group had committed offsets of its topic before the task
   joined.
5. A partition that is revoked is committed as far as it is acked, and forgotten. Acks and failures
   of its tuples are ignored from then on, even if it is assigned again, since the member that got
   it began at the committed offset. That is why message ids contain the number of the assignment.
6. A record that failed is emitted again from memory, before any new one. So its offset, and all
   after it, are not committed meanwhile, and no consumer seeks backwards.
7. A partition with ``uncommitted_max`` records from the first one that is not acked is paused, and
   resumes when half of them are committable. That bounds the memory, and the records that a restart
   repeats.
8. A deactivated run leaves the group when its last tree has ended.
9. The topics are exhausted when the group has committed the end of each partition. No task can tell
   by itself: a partition that moves belongs to nobody for a while, and a fetch that is not answered
   yet looks like one without records.
10. An offset is committed with the id of its topic. A topic that is recreated under its name has
    another id, and other records at the same offsets, so such an offset is refused. While a
    partition is read, the id is queried regularly.

Storm's ``storm-kafka-client`` differs: it seeks a consumer back to the first failed record and
skips records that were acked since, which caused several of its bugs; it once needed offsets
without gaps to commit any; it may commit for partitions that it lost; and a group whose start is
the end of the log begins at a later end if it dies before its first commit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from txtopo.clock import now
from txtopo.config import AtLeastOnceConfig
from txtopo.context import TaskContext
from txtopo.errors import (
    ConfigError,
    EmitError,
    InfrastructureError,
    OffsetRegression,
    PromiseError,
    SourceDataLost,
)
from txtopo.extras import require
from txtopo.kafka.batch_spouts import check_topics
from txtopo.kafka.connection import HEARD_MAX, Connection, Heard, Isolation, Setting
from txtopo.kafka.errors import may_pass
from txtopo.kafka.offsets import (
    ClusterSnapshot,
    KafkaPartition,
    Offsets,
    Range,
    Start,
    checked_start,
)
from txtopo.kafka.reading import COLUMNS, Decoder, KeyDecoder, RecordColumns
from txtopo.kafka.uncommitted import UncommittedOffsets
from txtopo.reliable.collector import SpoutOutputCollector
from txtopo.reliable.spout import Spout
from txtopo.retries import warn_of_retry
from txtopo.setting_checks import check_text

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
    from confluent_kafka.admin._topic import TopicDescription

OnBadRecord = Literal["stop", "report"]

UNCOMMITTED_MAX = 100_000

# Acked records are committed after this time. A shorter time causes more requests; a longer one
# causes more records to be repeated.
COMMIT_S = 1.0

# Records that are decoded together. The first waits for the last, which takes about a millisecond.
FETCH_MAX = 500

# `next_tuple` may not block for long, since acks wait meanwhile. But a spout that returns without a
# tuple is called again only after a pause, so it waits a little for records that the log has. A
# member that has just joined has no pending acks. It waits longer, for members that have died.
WAIT_S = 0.5
JOIN_S = 60.0
POLL_S = 0.05

# A topic may be recreated while it is read, which no record shows. Its id is queried this often.
WATCH_S = 10.0

# The prefix of a topic's id in the metadata of a committed offset, where other tools note other
# things.
_OF_TOPIC = "txtopo topic "

# An unreachable broker is reported again after this time.
REPORT_S = 60.0

# After n failures in a row the next 2^n calls do not connect, at most this many: some seconds, with
# the pauses of an idle spout.
SKIPPED_CALLS_MAX = 64

# This many refusals in a row end the run: some 15 seconds, with the pauses of an idle spout.
REFUSALS_MAX = 10

_GROUP = {
    # Partitions that a task keeps in a rebalance continue meanwhile.
    "partition.assignment.strategy": "cooperative-sticky",
    # Heartbeats have their own thread, so a member that is silent for this long is dead.
    "session.timeout.ms": 10_000,
    # A fetch that finds nothing is answered after this time. It only delays the event that the end
    # of a partition is reached.
    "fetch.wait.max.ms": 100,
}

# A spout that waits for acks is not called. The group must not exclude it before its trees have
# timed out.
POLL_INTERVAL_MS = 300_000


class MessageId(NamedTuple):
    """Identifies an emitted record, for one assignment of its partition."""

    topic: str
    partition: int
    offset: int
    assignment: int


@dataclass(slots=True, eq=False)
class _Assigned:
    """A partition that the group has given to this task.

    Attributes:
        number: The number of the assignment.
        offsets: Its records that are not committed yet.
        topic_id: The id of its topic; empty if the cluster did not report it.
        committed: The offset that was committed last, or is being committed.
        ended: Whether it was read to the end of the log.
        paused: Whether nothing is fetched.
    """

    number: int
    offsets: UncommittedOffsets[Message]
    topic_id: str
    committed: int
    ended: bool = False
    paused: bool = False


class KafkaSpout(Spout):
    """Emits the records of Kafka topics, and commits their offsets when their trees are complete.

    Delivery: at least once. The position is the committed offset of a consumer group, which Kafka
    keeps even while this process is down. An offset is committed once its record and all earlier
    ones in the partition are acked, in any order. After a failure, a timeout, a crash or a change
    of the group, records that were not acked are emitted again; after a crash or such a change, so
    are acked ones that follow them. With ``AtLeastOnceConfig(ackers=0)``, a record is acked when it
    is emitted: at most once, except for records that a crash repeats.

    Tasks, and runs with the same *group*, share the partitions; surplus tasks are idle. Records of
    a partition are emitted in the order of their offsets, except repeated ones.

    A record that *fails* is immediately emitted again. Kafka does not count failures, so a record
    is never given up: a bolt that cannot process a record should ack it, and emit it to a stream
    for such records. Until a record is acked, at most about *uncommitted_max* further records of
    its partition are read.

    ``process_all_available`` waits until the group has committed the end of each partition,
    whichever run reads it.

    An outage of the cluster is reported (``ErrorReported``), and the client reconnects by itself;
    ``process_all_available`` waits meanwhile. If the cluster refuses, or has no such topic or
    offset, :data:`REFUSALS_MAX` times in a row, the run ends. A deactivated run leaves the group
    when its last tree has ended.

    Args:
        servers: Bootstrap servers, ``host:port,…``.
        topics: A name, or several names.
        group: The consumer group, ``group.id``.
        value: How a value is decoded: ``"bytes"``, ``"string"`` (UTF-8), the ``Fields`` of a JSON
            object, ``txtopo.Avro(…)``, ``txtopo.Protobuf(…)`` or ``txtopo.Debezium(…)``.
        key: How a key is decoded: ``"bytes"``, ``"string"``, ``Avro(…)`` or ``Protobuf(…)``.
        columns: The fields of a tuple, out of ``key``, ``value``, ``headers``, ``topic``,
            ``partition``, ``offset``, ``timestamp``, as for a ``KafkaTransactionalSpout``.
        start: Where to begin a partition for which the group has no offset: ``"earliest"``,
            ``"latest"``, a datetime, or ``{topic: {partition: offset}}``. A partition that is added
            to a topic of which the group has offsets begins at its first record, unless it is
            named.
        on_bad_record: What happens to a record that cannot be decoded: ``"stop"`` ends the run;
            ``"report"`` reports its topic, partition and offset to the listeners
            (``ErrorReported``), and treats it as acked.
        uncommitted_max: How many records of a partition may be read, counted from the first one
            that is not acked, to within a few hundred. It limits what a crash repeats.
        isolation: Which records of transactions are read, as in a ``KafkaTransactionalSpout``.
        timeout_s: How many seconds a request to the cluster may take.
        settings: More settings of librdkafka, such as ``security.protocol``, ``sasl.password`` or
            ``session.timeout.ms``. Task *i* is the member ``group.instance.id`` with the suffix
            ``-i``, because two members with the same name exclude each other.

    Raises:
        ConfigError: An argument is wrong, or ``txtopo[kafka]`` is not installed. When the run
            starts: a topic does not exist, *start* names a partition that does not exist or an
            offset behind its end, or the client refuses *settings*.
        InfrastructureError: The cluster cannot be reached, when the run starts.
        AuthError: The cluster refuses the credentials, when the run starts or for some time.
        SourceDataLost: Records at the committed offset were deleted, or the topic was. To continue
            without them, set the offset of the group with Kafka's own tool.
        OffsetRegression: A log ends before the committed offset, or the topic was recreated.
        EmitError: A record cannot be decoded, and *on_bad_record* is ``"stop"``; it ends the run.
    """

    client_modules: Sequence[str] = ("confluent_kafka",)

    def __init__(
        self,
        servers: str,
        topics: str | Sequence[str],
        group: str,
        *,
        value: Decoder = "bytes",
        key: KeyDecoder = "bytes",
        columns: Sequence[str] = COLUMNS,
        start: Start = "earliest",
        on_bad_record: OnBadRecord = "stop",
        uncommitted_max: int = UNCOMMITTED_MAX,
        isolation: Isolation = "read_committed",
        timeout_s: float = 20.0,
        settings: Mapping[str, Setting] | None = None,
    ) -> None:
        require("confluent_kafka", "KafkaSpout")
        _check_settings(settings)
        _check_group(group, settings or {})
        _check_topics(topics)
        if on_bad_record not in ("stop", "report"):
            raise ConfigError(
                f"unknown on_bad_record; got {on_bad_record!r}; expected 'stop' or 'report'",
                setting="on_bad_record",
            )
        if type(uncommitted_max) is not int or uncommitted_max < 1:
            raise ConfigError(
                f"uncommitted_max is wrong; got {uncommitted_max!r}; expected a whole number of at "
                "least 1",
                setting="uncommitted_max",
            )
        self._connection = Connection(servers, dict(settings or {}), isolation, timeout_s)
        self._offsets = Offsets(self._connection, topics)
        self._topics = [topics] if isinstance(topics, str) else list(topics)
        self.takes_from = [
            f"topic {topic!r} of {servers} for group {group!r}" for topic in self._topics
        ]
        self._group = group
        self._records = RecordColumns(tuple(columns), key, value)
        self._start: Start = checked_start(start, topics)
        self._stops = on_bad_record == "stop"
        self._uncommitted_max = uncommitted_max
        self.output_fields = self._records.fields()
        self.client_modules = self._records.client_modules
        self.connects_to = [self._connection.server, *self._records.connects_to]

    def open(
        self, config: AtLeastOnceConfig, context: TaskContext, collector: SpoutOutputCollector
    ) -> None:
        """Check the topics; the class lists the errors."""
        self._collector, self._config = collector, config
        self._topology, self._id = context.topology_id, context.component_id
        self._task = context.task_index
        self._schema = self._records.fields().arrow_schema()
        self._consumer: Consumer | None = None
        self._heard: Heard = deque(maxlen=HEARD_MAX)
        self._assigned: dict[tuple[str, int], _Assigned] = {}
        self._fetched: list[tuple[_Assigned, Message]] = []
        self._failed: list[tuple[_Assigned, Message]] = []
        self._ready: deque[tuple[MessageId, Sequence[Any]]] = deque()
        self._active = self._joined = False
        # Tuples that were emitted and neither acked nor failed.
        self._pending = 0
        self._number = self._failures = self._refusals = self._skip = 0
        self._tended_s = self._reported_s = -REPORT_S
        self._watched_s = now()
        self._ids: dict[str, str] = {}
        self._answers: Mapping[str, Future[TopicDescription]] = {}
        check_topics(self._offsets)
        self._known = set(ClusterSnapshot(self._offsets.topics(), {}).partitions)
        self._begun: set[str] | None = None
        self._looked = False

    def activate(self) -> None:
        """Get ready to join the group, with the next call of ``next_tuple``."""
        self._active, self._skip = True, 0

    def deactivate(self) -> None:
        """Leave the group, when the last tuple has ended."""
        self._active = False
        self._leave_at_rest()

    def next_tuple(self) -> None:
        """Emit the next record if there is one: one that failed, or the next of the log."""
        self.tend()
        if not self._ready:
            self._guarded(self._fill)
        while self._ready:
            message_id, values = self._ready.popleft()
            if self._assignment(message_id) is not None:
                self._pending += 1
                self._collector.emit(values, message_id)
                return

    def tend(self) -> None:
        """Commit what is acked, and take part in changes of the group, once a second.

        If a spout may not emit more, it is not called for records, but still for acks.
        """
        now_s = now()
        if self._consumer is None or now_s - self._tended_s < COMMIT_S:
            return
        self._tended_s = now_s
        self._guarded(self._watch)
        self._guarded(self._commit)
        self._guarded(self._poll)

    def may_have_more(self) -> bool:
        """Return whether tuples are pending or the consumer group may have unread records."""
        self._more = True
        if self._consumer is not None and not self._pending:
            self._guarded(self._look)
        return self._more

    def ack(self, message_id: Any) -> None:
        """Record that the record is processed; the next commit may pass it."""
        self._pending -= 1
        assigned = self._assignment(message_id)
        if assigned is not None:
            self._guarded(lambda: self._processed(message_id, assigned))
        self.tend()
        self._leave_at_rest()

    def fail(self, message_id: Any) -> None:
        """Emit the record again."""
        self._pending -= 1
        assigned = self._assignment(message_id)
        if assigned is not None:
            record = assigned.offsets.open_record(message_id.offset)
            assert record is not None, "a message ends once"
            self._failed.append((assigned, record))
        self.tend()
        self._leave_at_rest()

    def close(self) -> None:
        """Commit what is acked, and leave the group."""
        self._guarded(self._commit)
        self._leave()

    def _assignment(self, message_id: MessageId) -> _Assigned | None:
        """Return the assignment that a message belongs to; None if it has ended."""
        assigned = self._assigned.get(message_id[:2])
        return assigned if assigned and assigned.number == message_id.assignment else None

    def _poll(self) -> None:
        if self._consumer is not None and (message := self._consumer.poll(0)) is not None:
            self._take(message)

    def _fill(self) -> None:
        """Prepare records for emission: those that failed, then those of the log."""
        if self._consumer is None:
            if self._skip:
                self._skip -= 1
                return
            self._connect()
        self._fetched += self._failed
        self._failed.clear()
        self._receive()
        self._decode()

    def _receive(self) -> None:
        """Process fetched records; if there are none, wait for records in the log."""
        assert self._consumer is not None
        end_s = now() + (WAIT_S if self._joined else JOIN_S)
        while len(self._fetched) < FETCH_MAX:
            waits = not self._fetched and self._lacks_records
            message = self._consumer.poll(POLL_S if waits else 0)
            if message is not None:
                self._take(message)
            elif not waits or self._heard or now() >= end_s:
                break
        if self._heard:
            self._tell_heard()

    @property
    def _lacks_records(self) -> bool:
        """Whether the log has records that have not arrived, or it is not known yet."""
        if not self._joined:
            return True
        return not all(each.ended or each.paused for each in self._assigned.values())

    def _look(self) -> None:
        """Ask whether the group has committed the end of each partition."""
        from confluent_kafka import KafkaException

        assert self._consumer is not None
        self._commit()
        look = self._offsets.look()
        places = [_at(each) for each in look.partitions]
        ends = {partition: bounds.end for partition, bounds in look.bounds.items()}
        for each in self._consumer.committed(places, timeout=self._connection.timeout_s):
            if each.error:
                raise KafkaException(each.error)
            partition = KafkaPartition(each.topic, each.partition)
            if partition not in ends or each.offset < ends[partition]:
                return
        self._more = not set(self._topics) <= look.topics.keys()

    def _take(self, message: Message) -> None:
        error = message.error()
        place = (str(message.topic()), int(message.partition() or 0))
        assigned = self._assigned.get(place)
        offset = int(message.offset() or 0)
        if error is None:
            if assigned is not None and assigned.offsets.take(offset, message):
                self._fetched.append((assigned, message))
                assigned.ended = False
                if len(assigned.offsets) >= self._uncommitted_max and not assigned.paused:
                    self._pause(place, assigned)
            self._failures = self._refusals = 0
        elif error.name() == "_PARTITION_EOF":
            if assigned is not None:
                assigned.offsets.reach(offset)
                assigned.ended = True
            self._failures = self._refusals = 0
        elif error.name() == "_AUTO_OFFSET_RESET":
            partition = KafkaPartition(*place)
            if assigned is not None:
                bounds = self._offsets.bounds([partition]).get(partition)
                self._check(partition, assigned.offsets.position, bounds)
            raise InfrastructureError(
                f"the position in {partition} was not there; it is now",
                topic=partition.topic,
                partition=partition.number,
            )
        else:
            raise self._connection.fault("read", error, self._heard)

    def _decode(self) -> None:
        """Decode what was fetched; a bad record ends the run, or is reported and acked."""
        fetched, self._fetched = self._fetched, []
        if not fetched:
            return
        try:
            self._decode_all(fetched)
        except EmitError:
            for one in fetched:
                try:
                    self._decode_all([one])
                except EmitError as error:
                    if self._stops:
                        raise
                    self._collector.report_error(error)
                    self._processed(_id_of(*one), one[0])

    def _decode_all(self, fetched: Sequence[tuple[_Assigned, Message]]) -> None:
        messages = [message for _, message in fetched]
        if not self._looked:
            self._looked = True
            if (seen := self._records.seen(messages)) is not None:
                for text in seen.warnings(f"spout {self._id!r}"):
                    self._collector.report_error(EmitError(text, component=self._id))
        made, batch = self._records.read(messages, self._schema)
        rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        of_row = {id(message): row for message, row in zip(made, rows, strict=True)}
        for assigned, message in fetched:
            if id(message) in of_row:
                self._ready.append((_id_of(assigned, message), of_row[id(message)]))
            else:  # it makes no row
                self._processed(_id_of(assigned, message), assigned)

    def _processed(self, message_id: MessageId, assigned: _Assigned) -> None:
        """Allow the next commit to pass a record, and resume its partition if it was paused."""
        assigned.offsets.ack(message_id.offset)
        if assigned.paused and len(assigned.offsets) <= self._uncommitted_max // 2:
            self._resume(message_id[:2], assigned)

    def _pause(self, place: tuple[str, int], assigned: _Assigned) -> None:
        assert self._consumer is not None
        self._consumer.pause([_at(place)])
        assigned.paused = True

    def _resume(self, place: tuple[str, int], assigned: _Assigned) -> None:
        assert self._consumer is not None
        self._consumer.resume([_at(place)])
        assigned.paused = assigned.ended = False

    def _commit(self) -> None:
        """Commit all offsets that can be committed, without waiting for the answer."""
        if self._consumer is None:
            return
        offsets = []
        for place, assigned in self._assigned.items():
            if assigned.offsets.committable > assigned.committed:
                assigned.committed = assigned.offsets.committable
                offsets.append(_at(place, assigned.committed, assigned.topic_id))
        if offsets:
            self._consumer.commit(offsets=offsets, asynchronous=True)

    def _answered(self, error: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        """Schedule offsets whose commit failed for the next commit."""
        for each in partitions:
            assigned = self._assigned.get((each.topic, each.partition))
            if assigned is not None and (error or each.error):
                assigned.committed = -1
        # A transient error is what a change of the group or an outage looks like.
        if error is not None and not may_pass(error):
            self._heard.append(error)

    def _on_assign(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        if consumer is not self._consumer:
            return
        self._joined = True
        self._answers = {}  # they may be from the previous topic
        if partitions:
            for partition, offset in self._starts(consumer, partitions).items():
                self._number += 1
                offsets: UncommittedOffsets[Message] = UncommittedOffsets(offset)
                id = self._ids.get(partition.topic, "")
                self._assigned[partition] = _Assigned(self._number, offsets, id, offset)
        # The client continues from the committed offsets, which are these.

    def _starts(
        self, consumer: Consumer, partitions: Sequence[TopicPartition]
    ) -> dict[KafkaPartition, int]:
        """Return where partitions begin; afterwards each has a committed offset.

        Raises:
            SourceDataLost: The records there were deleted.
            OffsetRegression: A log ends before that, or the offset belongs to another topic.
            InfrastructureError: A partition is not visible; try again.
        """
        from confluent_kafka import KafkaException

        starts: dict[KafkaPartition, int] = {}
        told: set[tuple[str, str]] = set()
        for each in consumer.committed(list(partitions), timeout=self._connection.timeout_s):
            if each.error:
                raise KafkaException(each.error)
            if each.offset >= 0:
                starts[KafkaPartition(each.topic, each.partition)] = each.offset
                told.add((each.topic, each.metadata or ""))
        wanted = [KafkaPartition(each.topic, each.partition) for each in partitions]
        look = self._offsets.look(wanted)
        self._ids = {name: topic.id for name, topic in look.topics.items()}
        for name, text in sorted(told):
            self._check_topic(name, self._ids.get(name, ""), text)
        new = [partition for partition in wanted if partition not in starts]
        begun: dict[KafkaPartition, int] = {}
        for first in (True, False):
            some = [partition for partition in new if self._starts_as_chosen(partition) == first]
            if some:
                begun |= self._offsets.starts(self._start, look, some, first=first)
        self._check_begun(begun, look)
        starts |= begun
        for partition in wanted:
            if partition not in starts:
                raise InfrastructureError(
                    f"partition {partition} has no leader, so it cannot begin; try again",
                    topic=partition.topic,
                    partition=partition.number,
                )
            self._check(partition, starts[partition], look.bounds.get(partition))
        if begun:
            consumer.commit(
                offsets=[_at(each, begun[each], self._ids[each.topic]) for each in begun],
                asynchronous=False,
            )
        return starts

    def _starts_as_chosen(self, partition: KafkaPartition) -> bool:
        """Return whether a partition without an offset begins at ``start``."""
        if isinstance(self._start, Mapping) and partition.number in self._start.get(
            partition.topic, {}
        ):
            return True
        return partition in self._known and partition.topic not in (self._begun or ())

    def _watch(self) -> None:
        """Check regularly whether a topic was recreated, without waiting for the answer.

        Raises:
            OffsetRegression: A topic was recreated.
        """
        if not self._answers:
            if self._assigned and now() - self._watched_s >= WATCH_S:
                self._watched_s = now()
                self._answers = self._offsets.asked({topic for topic, _ in self._assigned})
            return
        if not all(answer.done() for answer in self._answers.values()):
            return
        answers, self._answers = self._answers, {}
        for (topic, _), assigned in self._assigned.items():
            answer = answers.get(topic)
            # If there is no answer, the consumer reports what is wrong.
            if answer is not None and answer.exception() is None and assigned.topic_id:
                text = _OF_TOPIC + assigned.topic_id
                self._check_topic(topic, str(answer.result().topic_id), text)

    def _check_topic(self, topic: str, id: str, told: str) -> None:
        """Check that an offset belongs to this topic, by the topic id committed with it."""
        if not id or not told.startswith(_OF_TOPIC) or told == _OF_TOPIC + id:
            return
        raise OffsetRegression(
            f"topic {topic!r} was deleted and recreated; got id {id}; expected "
            f"{told.removeprefix(_OF_TOPIC)}, of which group {self._group!r} has committed "
            "offsets; set them with kafka-consumer-groups --reset-offsets while no run has "
            "joined the group: --to-earliest, or --to-current if the offsets belong to this "
            "topic, as after a move to another cluster",
            topic=topic,
        )

    def _check_begun(self, begun: Mapping[KafkaPartition, int], look: ClusterSnapshot) -> None:
        """Check that no partition begins behind its end.

        Raises:
            ConfigError: A partition does, because of *start*; repair it.
        """
        for partition, offset in begun.items():
            bounds = look.bounds.get(partition)
            if bounds is not None and offset > bounds.end:
                raise ConfigError(
                    f"start of spout {self._id!r} is outside partition {partition.number} of "
                    f"topic {partition.topic!r}; got offset {offset}; expected {bounds.start} to "
                    f"{bounds.end}; was the topic recreated?",
                    setting="start",
                )

    def _check(self, partition: KafkaPartition, offset: int, bounds: Range | None) -> None:
        """Check that an offset is one that the log still has, or its end."""
        if bounds is None or bounds.start <= offset <= bounds.end:
            return
        advice = (
            f"restore the data, or set the offset of group {self._group!r} with "
            "kafka-consumer-groups --reset-offsets while no run has joined the group"
        )
        about = f"partition {partition.number} of topic {partition.topic!r}"
        place: dict[str, Any] = {"topic": partition.topic, "partition": partition.number}
        if offset < bounds.start:
            raise SourceDataLost(
                f"records of {about} were deleted before they were read; the next offset to read "
                f"is {offset}, but the first available one is {bounds.start}; {advice}",
                **place,
                wanted=offset,
                available=bounds.start,
            )
        raise OffsetRegression(
            f"{about} ends at offset {bounds.end}, but the next offset to read is {offset}; the "
            f"log was truncated, the topic recreated, or start is wrong; {advice}",
            **place,
            wanted=offset,
            end=bounds.end,
        )

    def _on_revoke(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        if consumer is self._consumer:
            self._commit()
            self._forget(partitions)

    def _on_lost(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        """Forget partitions that others may already have: nothing of them can be committed."""
        if consumer is self._consumer:
            self._forget(partitions)

    def _forget(self, partitions: Sequence[TopicPartition]) -> None:
        gone = set()
        for each in partitions:
            place = (each.topic, each.partition)
            assigned = self._assigned.pop(place, None)
            if assigned is not None:
                gone.add(assigned)
                if assigned.paused:
                    # Otherwise it would still be paused when it is assigned again.
                    self._resume(place, assigned)
        self._fetched = [one for one in self._fetched if one[0] not in gone]
        self._failed = [one for one in self._failed if one[0] not in gone]

    def _guarded(self, call: Callable[[], object]) -> None:
        """Call the client; if the call fails, leave the group, report the error and join again."""
        try:
            with self._connection.named_errors("read", self._heard):
                call()
        except (PromiseError, InfrastructureError) as error:
            self._give_up(error)

    def _give_up(self, error: PromiseError | InfrastructureError) -> None:
        self._leave()
        self._skip = min(2**self._failures, SKIPPED_CALLS_MAX)
        self._failures += 1
        self._refusals = self._refusals + 1 if isinstance(error, PromiseError) else 0
        if self._refusals >= REFUSALS_MAX:
            raise error
        self._report(error, self._skip * self._config.poll_interval_s)

    def _tell_heard(self) -> None:
        """Report errors that the client got in the background; raise permanent ones."""
        error = self._connection.fault("read", self._heard[-1], self._heard)
        self._heard.clear()
        if isinstance(error, PromiseError):
            raise error
        now_s = now()
        if now_s - self._reported_s >= REPORT_S:
            self._reported_s = now_s
            self._report(error, None)

    def _report(self, error: Exception, pause_s: float | None) -> None:
        self._collector.report_error(error)
        warn_of_retry(
            f"spout {self._id!r}, task {self._task},",
            error,
            topology=self._topology,
            failures=max(1, self._failures),
            pause_s=pause_s,
            component=self._id,
        )

    def _connect(self) -> None:
        """Join the group."""
        from confluent_kafka import Consumer, TopicPartition

        if missing := self._offsets.missing():
            raise SourceDataLost(
                f"spout {self._id!r} found no topic {missing[0]!r}; expected one that exists; "
                "create it first",
                topic=missing[0],
            )
        self._heard.clear()
        settings = dict(self._connection.settings)
        if "group.instance.id" in settings:
            # Two members with one name would exclude each other again and again.
            settings["group.instance.id"] = f"{settings['group.instance.id']}-{self._task}"
        interval_ms = max(POLL_INTERVAL_MS, int(3000 * self._config.message_timeout_s))
        given = {
            **self._connection.of_consumer(self._heard),
            **_GROUP,
            "group.id": self._group,
            "max.poll.interval.ms": min(interval_ms, 86_400_000),
            "on_commit": self._answered,
            **settings,
        }
        with self._connection.checked_settings():
            self._consumer = Consumer(given)
        self._joined = False
        if self._begun is None:
            # Before this task joins: what others commit later does not change the beginning.
            known = [TopicPartition(*partition) for partition in sorted(self._known)]
            told = self._consumer.committed(known, timeout=self._connection.timeout_s)
            self._begun = {each.topic for each in told if each.offset >= 0}
        self._consumer.subscribe(
            self._topics,
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    def _leave_at_rest(self) -> None:
        if not self._active and not self._pending and self._consumer is not None:
            self._guarded(self._commit)
            self._leave()

    def _leave(self) -> None:
        """Leave the group; records that were not committed are read again."""
        consumer, self._consumer = self._consumer, None
        self._assigned.clear()
        self._fetched.clear()
        self._failed.clear()
        self._ready.clear()
        if consumer is not None:
            # librdkafka waits for an unanswered commit as long as a session lasts.
            consumer.close()


def _check_topics(topics: object) -> None:
    if not isinstance(topics, str | Sequence):
        raise ConfigError(
            f"topics of a KafkaSpout are wrong; got {topics!r}; expected one or more names",
            setting="topics",
        )
    if not isinstance(topics, str) and any(topics.count(each) > 1 for each in topics):
        raise ConfigError(
            f"a KafkaSpout reads a topic twice; got {topics!r}; expected each topic once; remove "
            "the duplicate",
            setting="topics",
        )


def _check_settings(settings: object) -> None:
    if settings is not None and not isinstance(settings, Mapping):
        raise ConfigError(
            f"settings of a KafkaSpout are wrong; got {type(settings).__name__}; expected a dict "
            "of settings of librdkafka",
            setting="settings",
        )


def _check_group(group: str, settings: Mapping[str, Setting]) -> None:
    if not isinstance(group, str) or not group.strip():
        raise ConfigError(
            f"group of a KafkaSpout is wrong; got {group!r}; expected the name of a consumer group",
            setting="group",
        )
    check_text("the group of a KafkaSpout", group)
    if "group.id" in settings:
        raise ConfigError(
            "the Kafka setting 'group.id' cannot be set; use group", setting="group.id"
        )


def _id_of(assigned: _Assigned, message: Message) -> MessageId:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    return MessageId(str(topic), int(partition or 0), int(offset or 0), assigned.number)


def _at(place: tuple[str, int], offset: int = 0, topic_id: str = "") -> TopicPartition:
    from confluent_kafka import TopicPartition

    return TopicPartition(*place, offset, _OF_TOPIC + topic_id if topic_id else "")
