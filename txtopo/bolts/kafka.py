"""KafkaSink: the committer that writes the records of a txid in one Kafka transaction.

PublishedRecords: the state behind a KafkaSink, which holds a ledger and no rows.

To the coordinator a sink is a state like any other: it is claimed by each new epoch, its ledger
says which (epoch, txid, attempt) it holds, and a txid that it holds already is adopted or not
written again. What is special is what Kafka can and cannot do.

Rules
-----
1. The records of a txid and the ledger's record are written in one Kafka transaction. The ledger is
   a record in a compacted topic of one partition. (Offsets of a consumer group, Kafka's own way to
   keep a position in a transaction, expire seven days after the group was last used.)
2. The ledger is read only after ``init_transactions``, and up to a record that was written after
   it, since what is committed becomes visible a little later. ``init_transactions`` ends what a
   predecessor with the same transactional id has open, so that nothing is still to become visible;
   and from then on the broker refuses whatever that predecessor tries to commit (``_FENCED``).
3. A claim first reads the ledger that is visible. If that refuses it (another topology, another
   ensemble, a later epoch) nobody is disturbed. What is visible may be a little old, so a zombie
   that slept between its claim in ZooKeeper and this one may still take the id. Then the ledger's
   epoch decides: the zombie reads a later one and stops; its successor is fenced once, reads its
   own epoch, and takes the id back. Who has not claimed (an operator who looks, a reader) only
   reads what is visible, and fences nobody.
4. After any error the producer is thrown away. The next call begins with rule 2, so an unknown
   outcome is decided by the ledger. A record that the broker will never take (too large for the
   topic, without a key for a compacted one) breaks its transaction: nothing of it becomes visible,
   and the run ends, since the batch would bring the same record each time.
5. A transaction that is committed is seen by readers at once and cannot be taken back. So a txid
   that is held is never written again, whatever its attempt, which is right if every attempt brings
   the same records: a transactional state. Opaque spouts are refused when the topology is built.

LedgerTopic: the ledger of a sink as the last record of a compacted topic.
"""

from __future__ import annotations

import dataclasses
import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from txtopo.attempt import TransactionAttempt
from txtopo.bolts.bolt import BatchBolt, Committer
from txtopo.collector import BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.errors import (
    ConfigError,
    CorruptNodeError,
    InfrastructureError,
    SchemaDrift,
    SchemaVersionError,
    StateUsageError,
    StoreUnavailable,
    UnknownOutcomeError,
    ValueRefusedError,
)
from txtopo.kafka_connection import HEARD_MAX, Connection, Heard, Setting, require_client
from txtopo.kafka_errors import KafkaMeaning, may_pass, meaning_of
from txtopo.state.backend import Key, Puts, Snapshot, StateBackend, StateTable, Writes
from txtopo.state.ledger import Claim, Ledger, Standing, claimed, standing
from txtopo.state.registry import State
from txtopo.state.values import Row
from txtopo.tuples import Fields, Tuple

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, Producer
    from confluent_kafka.admin import AdminClient

# Whoever sets one of these would lose records when a broker does, or see them twice. librdkafka
# refuses some values beside a transactional id, but in the run, where it reads like an outage.
_OURS = {
    "transactional.id": "it fences, and is the same for each coordinator of a topology",
    "enable.idempotence": "without it a record that is sent again is there twice",
    "acks": "all copies of a record are written before its txid is done",
    "request.required.acks": "all copies of a record are written before its txid is done",
}

# How long the report of a record is waited for that has broken its transaction: far longer than it
# takes behind the reports of those before it. Without it the batch is tried again, and told then.
_REPORT_POLL_S, _REPORT_POLLS_MAX = 0.1, 50

VERSION = 2
"""2: the ledger has the fields of schema 2; one of version 1 is read as it is."""

# Compaction runs now and then, so there may be a day's ledgers in front of the last. Control
# markers and transactions that were aborted lie in between: look back further where there is none.
_LOOK_BACK = (100, 10_000)

_POLL_S = 0.02

END = ".txtopo-ledger"
"""How the name of a ledger's topic ends: no sink may write to such a topic, which could be one."""

BOUND = b"txtopo-bound"
"""Key of the records that are no ledger, but say how far to read."""


class KafkaSink(BatchBolt, Committer):
    """Writes its tuples to a topic of Kafka; it emits nothing.

    Delivery: exactly once for consumers with ``isolation.level=read_committed``, which see the
    records of each txid once, all of them or none, in txid order within a partition. A txid is one
    Kafka transaction, with the ledger in it; a deposed coordinator is fenced by the transactional
    id, ``txtopo.<topic>``. What consumers have seen cannot be taken back, and another attempt of
    an opaque spout may bring other records, so a topology with an opaque spout refuses it. Other
    consumers (``read_uncommitted``) may see records of attempts that failed.

    It runs in the driver with one producer, so its parallelism is 1; a transaction of 1,000
    records takes some 7 ms. The topic must exist; beside it ``<topic>.txtopo-ledger`` is made,
    which must be kept as long as the topology id: deleting it is like dropping a state's table.
    Two sinks never write to one topic.

    Args:
        servers: Bootstrap servers, ``host:port,…``.
        topic: The topic.
        value: The field, a string or bytes, that becomes the value; of several fields a JSON object
            is made.
        key: The same for the key; None for records without key.
        timeout_s: After how many seconds without an answer a commit fails and is tried again.
        settings: More settings of librdkafka (SASL, TLS, ``compression.type``); never shown.

    Raises:
        ConfigError: An argument is wrong, or confluent-kafka is missing; mend it.
    """

    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        value: str | Sequence[str] = "value",
        key: str | Sequence[str] | None = None,
        timeout_s: float = 20.0,
        settings: Mapping[str, Setting] | None = None,
    ) -> None:
        require_client()
        if not isinstance(topic, str) or not topic:
            raise ConfigError(f"topic of a KafkaSink is wrong; got {topic!r}; expected its name")
        if topic.endswith(END):
            raise ConfigError(
                f"topic of a KafkaSink is wrong; got {topic!r}; names that end with {END!r} are "
                "those of ledgers, and a record in one would end the topology that it belongs to; "
                "choose another topic",
                topic=topic,
            )
        given = dict(settings or {})
        for name in _OURS.keys() & given.keys():
            raise ConfigError(
                f"setting {name!r} of a KafkaSink is not for you to set; {_OURS[name]}; leave it "
                "out",
                setting=name,
            )
        connection = Connection(servers, given, timeout_s=timeout_s)
        self._value, self._key = value, key
        self.state = State(
            f"kafka://{servers}/{topic}",
            "transactional",
            topic,
            Fields("position long"),
            Fields("record_key binary, record_value binary"),
            _factory=PublishedFactory(connection, topic),
        )

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Get ready for one attempt."""
        self._attempt = attempt
        self._records: list[tuple[bytes | None, bytes | None]] = []
        self._published = context.state(context.component_id)

    def execute(self, tuple: Tuple) -> None:
        """Make a record of a tuple.

        Raises:
            ValueRefusedError: A field cannot be written; cast it in the bolt above.
        """
        key = None if self._key is None else _encoded(tuple, self._key)
        self._records.append((key, _encoded(tuple, self._value)))

    def finish_batch(self) -> None:
        """Hand the records on; they are written together with the ledger."""
        with self._published.transaction(self._attempt) as state:
            for position, record in enumerate(self._records):
                state.put(position, record)


def _encoded(tuple: Tuple, fields: str | Sequence[str]) -> bytes | None:
    value: Any = tuple[fields] if isinstance(fields, str) else None
    if not isinstance(fields, str):
        return json.dumps({name: tuple[name] for name in fields}, default=str).encode()
    if isinstance(value, str):
        return value.encode()
    if value is None or isinstance(value, bytes):
        return value
    raise ValueRefusedError(
        f"field {fields!r} cannot be a record's key or value; got {value!r:.100} of type "
        f"{type(value).__name__}; expected a string or bytes; cast it in the bolt above, or name "
        f"several fields, as in [{fields!r}], for a JSON object"
    )


class PublishedFactory:
    """Opens the state of a sink; travels with it, settings and all."""

    def __init__(self, connection: Connection, topic: str) -> None:
        self._connection = connection
        self._topic = topic

    def __call__(self, url: str, table: StateTable) -> PublishedRecords:
        """Open it; nothing is connected yet."""
        return PublishedRecords(self._connection, self._topic)


class PublishedRecords(StateBackend):
    """The records that a sink has published, of which only the ledger is kept.

    Delivery: exactly once for consumers with ``read_committed``, fenced, in txid order.
    """

    def __init__(self, connection: Connection, topic: str) -> None:
        self._connection = connection
        self._topic = topic
        self._ledgers = LedgerTopic(connection, topic)
        self._producer: Producer | None = None
        self._heard: Heard = deque(maxlen=HEARD_MAX)
        self._ledger: Ledger | None = None
        self._claims = False
        # One producer, so one call at a time, also when an abandoned one has not returned.
        self._turn: SimpleQueue[None] = SimpleQueue()
        self._turn.put(None)

    def create(self) -> None:
        """Make the ledger's topic, and check both.

        Raises:
            SchemaDrift: The ledger's topic is not as it must be.
            ConfigError: The topic for the records is not there.
            StoreUnavailable: Try again later.
        """
        with self._stored("make the ledger's topic"):
            self._ledgers.create()

    def claim(self, claim: Claim) -> Ledger:
        """Take over the transactional id, then read the ledger, then write the claim into it.

        Taking it over stops whoever has it. So first the ledger that is visible is asked whether
        the claim is allowed at all: one of another topology or ensemble disturbs nobody.
        """
        self.claimant = claim
        with self._alone(), self._stored("claim the transactional id"):
            claimed(self._ledgers.visible(), claim)
            self._claims = True
            held = self._taken_over()
            ledger = claimed(held, claim)
            if ledger != held:
                self._write(ledger, ())
            return ledger

    def commit(self, attempt: TransactionAttempt, writes: Writes) -> Ledger:
        """Write the records and the ledger in one transaction."""
        assert isinstance(writes, Puts)
        with self._alone(), self._stored("write the records"):
            held = self._taken_over() if self._producer is None else self._ledger
            found = standing(held, attempt, self.claimant)
            assert held is not None
            if found is Standing.HELD:
                return held
            self.point("begin.after")
            self.point("rows.before")
            again = found is Standing.REDO
            ledger = held.written_by(attempt)
            self._write(ledger, () if again else [v for v in writes.rows.values() if v is not None])
            return ledger

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Open a reading of the ledger; there are no rows."""
        with self._alone(), self._stored("read the ledger"):
            if not self._claims:
                held = self._ledgers.visible()
            else:
                held = self._taken_over() if self._producer is None else self._ledger
        return nullcontext(_LedgerOnly(held))

    def close(self) -> None:
        """Forget the producer; what it had open is ended by whoever claims next."""
        self._producer = None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self._turn.get()
        try:
            yield
        finally:
            self._turn.put(None)

    @contextmanager
    def _stored(self, doing: str) -> Iterator[None]:
        """Throw the producer away after any error, and name what happened as a store does."""
        try:
            with self._connection.named_errors(doing, self._heard):
                yield
        except UnknownOutcomeError:
            self._producer = None
            raise
        except InfrastructureError as error:
            self._producer = None
            raise StoreUnavailable(f"{error}; nothing was written") from error
        except BaseException:
            self._producer = None
            raise

    def _taken_over(self) -> Ledger | None:
        """Become the only one that may commit, and only then read the ledger."""
        from confluent_kafka import Producer

        self._heard.clear()
        producer = Producer(
            self._connection.of_client(self._heard)
            | {
                "transactional.id": f"txtopo.{self._topic}",
                # As librdkafka has it anyway with that id: a record is there when all copies have
                # it, and once, though it was sent twice. With less only a lost broker tells.
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 0,
            }
        )
        producer.init_transactions(self._connection.timeout_s)
        self._ledger = self._ledgers.read(self._bound(producer))
        self._producer = producer
        return self._ledger

    def _bound(self, producer: Producer) -> int:
        """Write a record behind all ledgers, and return its offset: to be read before the ledger.

        What is committed becomes visible a little later, and after the crash of a broker even what
        was visible may be missing for a moment. A reader that sees this record sees all before it.
        """
        offsets: list[int] = []
        producer.begin_transaction()
        producer.produce(
            self._ledgers.name,
            partition=0,
            key=BOUND,
            on_delivery=lambda error, record: offsets.append(int(record.offset() or 0)),
        )
        producer.flush(self._connection.timeout_s)
        producer.commit_transaction(self._connection.timeout_s)
        if not offsets:
            raise StoreUnavailable(f"Kafka {self._connection.servers} took no record in time")
        return offsets[0]

    def _write(self, ledger: Ledger, records: Sequence[tuple[Any, ...]]) -> None:
        from confluent_kafka import KafkaException

        assert self._producer is not None
        producer, timeout_s = self._producer, self._connection.timeout_s
        try:
            producer.begin_transaction()
            for key, value in records:
                self._produce(key, value)
            producer.produce(self._ledgers.name, partition=0, **self._ledgers.record(ledger))
            self.point("rows.after")
            self.point("write.before")
        except KafkaException as error:
            # A transaction that a record has broken takes no more, and only says so: why, the
            # report of that record tells, which is on its way.
            producer.poll(0)
            for _ in range(_REPORT_POLLS_MAX * (error.args[0].name() == "_STATE")):
                if self._heard:
                    break
                producer.poll(_REPORT_POLL_S)
            raise self._fault(error.args[0]) from error
        try:
            producer.commit_transaction(timeout_s)
        except KafkaException as error:
            raise self._fault(error.args[0], unknown=True) from error
        self._ledger = ledger

    def _produce(self, key: bytes | None, value: bytes | None) -> None:
        from confluent_kafka import KafkaException

        assert self._producer is not None
        while True:
            try:
                self._producer.produce(self._topic, value, key, on_delivery=self._delivered)
                return
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                if error.args[0].name() != "MSG_SIZE_TOO_LARGE":
                    raise
                raise ValueRefusedError(
                    f"a record is too large for topic {self._topic!r}; got {len(value or b'')} "
                    "bytes; nothing of its batch was written; send less, or set message.max.bytes"
                ) from error

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None and not may_pass(error):
            self._heard.append(error)

    def _fault(self, error: KafkaError, *, unknown: bool = False) -> Exception:
        doing = "write the records"
        if meaning_of(error.name()) is KafkaMeaning.FENCED:
            # By a successor, whose epoch the ledger has; or by a zombie that will read ours in it.
            return StoreUnavailable(
                f"somebody else has taken over transactional id 'txtopo.{self._topic}'; nothing "
                "was written; the ledger will say who may write"
            )
        if unknown and not error.txn_requires_abort():
            return UnknownOutcomeError(
                f"no answer to the commit of a transaction to {self._topic!r}: {error.str()}"
            )
        return self._connection.fault(doing, error, self._heard)


class _LedgerOnly(Snapshot):
    def __init__(self, ledger: Ledger | None) -> None:
        self._ledger = ledger

    @property
    def ledger(self) -> Ledger | None:
        return self._ledger

    def rows(self, keys: Sequence[Key]) -> dict[Key, Row]:
        return {}

    def items(self) -> Iterator[tuple[Key, Row]]:
        raise StateUsageError(
            "the records of a KafkaSink are read with a consumer of Kafka, isolation read_committed"
        )


class LedgerTopic:
    """Where a sink's ledger is: topic ``<topic>.txtopo-ledger``, one partition, compacted.

    Attributes:
        name: Name of the topic.
    """

    def __init__(self, connection: Connection, topic: str) -> None:
        self._connection = connection
        self._topic = topic
        self.name = f"{topic}{END}"

    def create(self) -> None:
        """Make the topic if it is missing.

        It is kept as safe as the records, in as many copies: if it were lost alone, nobody would
        know what was written. A topic that takes a copy that is behind for the newest
        (``unclean.leader.election.enable``) loses what it has acknowledged, and the records alone
        of both may lose it: then their txid is done, and nobody brings them again.

        Raises:
            ConfigError: The topic of the records is not there, or may lose what it acknowledged.
            SchemaDrift: The ledger's topic has several partitions, is not compacted, or has a name
                that the broker refuses.
        """
        from confluent_kafka.admin import (  # type: ignore[attr-defined]
            AdminClient,
            ConfigResource,
            ResourceType,
        )

        timeout_s = self._connection.timeout_s
        admin = AdminClient(self._connection.of_client(deque(maxlen=HEARD_MAX)))
        topics = admin.list_topics(timeout=timeout_s).topics
        if self._topic not in topics:
            raise ConfigError(
                f"topic of a KafkaSink is not there; got {self._topic!r}; make it before the "
                "topology starts",
                topic=self._topic,
            )
        asked = [name for name in (self._topic, self.name) if name in topics]
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in asked]
        answers = admin.describe_configs(resources)
        told = {resource.name: answers[resource].result(timeout_s) for resource in resources}
        for name in asked:
            if told[name]["unclean.leader.election.enable"].value == "true":
                raise ConfigError(
                    f"topic {name!r} cannot keep exactly once; got "
                    "unclean.leader.election.enable=true, so a copy that is behind may become the "
                    "newest, without what was acknowledged; expected false",
                    topic=name,
                )
        if self.name not in topics:
            copies = len(topics[self._topic].partitions[0].replicas)
            self._make(admin, copies, told[self._topic]["min.insync.replicas"].value)
            return
        self._check_kept(told[self.name]["cleanup.policy"].value, len(topics[self.name].partitions))

    def _check_kept(self, policy: str, partitions: int) -> None:
        if partitions != 1 or policy != "compact":
            raise SchemaDrift(
                f"topic {self.name!r} cannot hold a ledger; got {partitions} partitions and "
                f"cleanup.policy={policy}; expected one partition and compact; without that "
                "retention may delete the ledger",
                topic=self.name,
            )

    def _make(self, admin: AdminClient, copies: int, insync_copies_min: str) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        kept = {"cleanup.policy": "compact", "min.insync.replicas": insync_copies_min}
        new = NewTopic(self.name, 1, copies, config=kept)
        try:
            admin.create_topics([new])[self.name].result(self._connection.timeout_s)
        except KafkaException as error:
            name = error.args[0].name()
            if name == "TOPIC_EXCEPTION":
                raise SchemaDrift(
                    f"the ledger of a KafkaSink to {self._topic!r} cannot be made: the broker "
                    f"refuses the topic {self.name!r}; got {error.args[0].str()!r}; expected "
                    "a name of at most 249 characters that no other topic has with '.' and "
                    "'_' taken for one; nothing was written; choose another topic",
                    topic=self.name,
                ) from error
            if name != "TOPIC_ALREADY_EXISTS":
                raise

    def record(self, ledger: Ledger) -> dict[str, Any]:
        """Return the key and value of a ledger's record."""
        text = json.dumps({"version": VERSION, **dataclasses.asdict(ledger)})
        return {"key": self._topic.encode(), "value": text.encode()}

    def read(self, bound: int) -> Ledger | None:
        """Return the last committed ledger before offset *bound*; None if there is none.

        Waits until the record at *bound* is visible, so that no ledger before it is missed.

        Raises:
            CorruptNodeError: It cannot be read.
            StoreUnavailable: The broker does not answer.
        """
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(self._connection.of_consumer(deque(maxlen=HEARD_MAX)))
        try:
            place = TopicPartition(self.name, 0)
            low, _ = consumer.get_watermark_offsets(place, self._connection.timeout_s)
            for back in (*_LOOK_BACK, bound):
                data = self._last(consumer, max(low, bound - back), bound)
                if data is not None or bound - back <= low:
                    return None if data is None else self._parsed(data)
        finally:
            consumer.close()
        return None

    def visible(self) -> Ledger | None:
        """Return the last ledger that readers see now; None if there is none, or no topic.

        It disturbs nobody, unlike a claim; what is committed meanwhile is not in it.

        Raises:
            CorruptNodeError: It cannot be read.
            StoreUnavailable: The broker does not answer.
        """
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(self._connection.of_consumer(deque(maxlen=HEARD_MAX)))
        try:
            timeout_s = self._connection.timeout_s
            if self.name not in consumer.list_topics(timeout=timeout_s).topics:
                return None
            low, high = consumer.get_watermark_offsets(TopicPartition(self.name, 0), timeout_s)
            for back in (*_LOOK_BACK, high):
                data = self._last(consumer, max(low, high - back), None)
                if data is not None or high - back <= low:
                    return None if data is None else self._parsed(data)
        finally:
            consumer.close()
        return None

    def _last(self, consumer: Consumer, start: int, end: int | None) -> bytes | None:
        """Return the last ledger from *start* up to offset *end*, or what is visible."""
        from confluent_kafka import TopicPartition

        last, idle_s = None, 0.0
        consumer.assign([TopicPartition(self.name, 0, start)])
        while True:
            got = consumer.consume(1000, _POLL_S)
            for message in got:
                error = message.error()
                if error is not None:
                    if end is None and error.name() == "_PARTITION_EOF":
                        return last
                    if not may_pass(error):
                        raise self._connection.fault("read the ledger", error, deque())
                    continue
                if end is not None and int(message.offset() or 0) >= end:
                    return last
                if message.key() != BOUND:
                    last = message.value()
                idle_s = 0.0
            idle_s += _POLL_S
            if idle_s > self._connection.timeout_s:
                raise StoreUnavailable(
                    f"the ledger in topic {self.name!r} cannot be read; Kafka at "
                    f"{self._connection.servers} sent nothing for {self._connection.timeout_s} s"
                )

    def _parsed(self, data: bytes) -> Ledger:
        try:
            parts = json.loads(data)
            if (version := parts.pop("version")) > VERSION:
                raise SchemaVersionError(
                    f"the ledger in topic {self.name!r} has version {version}; expected at most "
                    f"{VERSION}; a newer txtopo wrote it; upgrade this one",
                    topic=self.name,
                )
            return Ledger.of(parts)
        except (ValueError, TypeError, KeyError) as error:
            raise CorruptNodeError(
                f"the last record of topic {self.name!r} is no ledger; got {data!r:.200} "
                f"({error}); who else writes there? bring back the last one of txtopo's",
                topic=self.name,
            ) from error
