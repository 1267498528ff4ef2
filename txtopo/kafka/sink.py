"""The committer that writes the records of a txid in one Kafka transaction: KafkaSink.

To the coordinator a sink is a state like any other (:class:`PublishedRecords`, which holds a ledger
and no rows): each new epoch claims it, its ledger records which (epoch, txid, attempt) it holds,
and a txid that it already holds is adopted or not written again. The rules follow from what Kafka
can and cannot do.

Rules
-----
1. The records of a txid, or of a group of txids in their order, and the ledger's record are written
   in one Kafka transaction. The ledger is a record in a compacted topic of one partition. (Offsets
   of a consumer group, Kafka's own way to keep a position in a transaction, expire seven days after
   the group was last used.)
2. The ledger is read only after ``init_transactions``, and up to a record that was written after
   it, since a committed record becomes visible a little later. ``init_transactions`` ends the open
   transaction of a predecessor with the same transactional id, so nothing more of it will become
   visible. From then on the broker refuses every commit of that predecessor (``_FENCED``).
3. A claim first reads the visible ledger. If that ledger refuses the claim (another topology,
   another ensemble, a later epoch), no other producer is fenced. The visible ledger may be a little
   old, so a zombie that slept between its claim in ZooKeeper and this one may still take the id.
   Then the ledger's epoch decides: the zombie reads a later epoch and stops; its successor is
   fenced once, reads its own epoch, and takes the id back. A process that has not claimed (a
   reader, an operator's verb) reads only the visible ledger, and does not fence anybody.
4. After any error the producer is dropped. The next call begins with rule 2, so the ledger decides
   an unknown outcome. A record that the broker will never accept (too large for the topic, or
   without a key in a compacted topic) breaks its transaction: nothing of it becomes visible, and
   the run ends, since the batch would contain the same record each time.
5. Readers see a committed transaction at once, and it cannot be taken back. So a held txid is never
   written again, whatever its attempt. That is right if every attempt brings the same records, as
   for a transactional state; opaque spouts are refused when the topology is built. The same holds
   for a group: it is held whole, or not at all.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from txtopo.attempt import TransactionAttempt
from txtopo.bolts.bolt import BatchBolt, Committer
from txtopo.collector import BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.errors import (
    ConfigError,
    CorruptNodeError,
    ErrorMeaning,
    InfrastructureError,
    SchemaDrift,
    SchemaVersionError,
    StateUsageError,
    StoreUnavailable,
    UnknownOutcomeError,
    ValueRefusedError,
)
from txtopo.extras import require
from txtopo.kafka.connection import HEARD_MAX, LEDGER_END, Connection, Heard, Setting
from txtopo.kafka.errors import may_pass, meaning_of
from txtopo.kafka.formats.record_format import Part
from txtopo.kafka.formats.schema_format import SchemaFormat
from txtopo.state.backend import Key, Puts, Snapshot, StateBackend, StateTable, Writes
from txtopo.state.ledger import Claim, Ledger, Standing, claimed, standing
from txtopo.state.plain_values import json_of
from txtopo.state.registry import State
from txtopo.state.values import Row
from txtopo.traits import Traits
from txtopo.tuples import Fields, Tuple

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, Producer
    from confluent_kafka.admin import AdminClient

# With other values of these, records could be lost with a broker, or be written twice. librdkafka
# refuses some values in combination with a transactional id, but only during the run, and like an
# outage.
_OURS = {
    "transactional.id": "it fences, and is the same for each coordinator of a topology",
    "enable.idempotence": "without it a record that is sent again is there twice",
    "acks": "all copies of a record are written before its txid is done",
    "request.required.acks": "all copies of a record are written before its txid is done",
}

# How long to wait for the report of the record that broke its transaction: far longer than it takes
# after the reports of earlier records. Without it the batch is tried again, and reported then.
_REPORT_POLL_S, _REPORT_POLLS_MAX = 0.1, 50

VERSION = 1
"""The version of the stored form of a record with a ledger."""

# Compaction runs only occasionally, so there may be a day's ledgers before the last one, and
# control markers and aborted transactions after it. If no ledger is found, look back further.
_LOOK_BACK = (100, 10_000)

_POLL_S = 0.02

# A position is (txid, number) in one long, so that the positions in a group differ. The column must
# stay, since a running topology is identified by its columns. 33 bits are left for the txid, as in
# Delta.
_POSITION_BITS = 30

BOUND = b"txtopo-bound"
"""Key of the records that are not ledgers, but mark how far to read."""


Encoded = str | Sequence[str] | SchemaFormat
"""The fields that become a key or value, and how."""


class KafkaSink(BatchBolt, Committer):
    """Writes its tuples to a Kafka topic; it emits nothing.

    Delivery: exactly once for consumers with ``isolation.level=read_committed``. They see the
    records of each txid once, all or none, in txid order within a partition. A txid, or a group of
    txids, is one Kafka transaction, which includes the ledger; the transactional id,
    ``txtopo.<topic>``, fences a deposed coordinator. Records that consumers have seen cannot be
    called back, and another attempt of an opaque spout may have other records, so a sink is refused
    in a topology with an opaque spout. Other consumers (``read_uncommitted``) may see records of
    failed attempts.

    It runs in the driver with one producer, so its parallelism is 1; a transaction of 1,000 records
    takes about 7 ms. The topic must exist. The sink creates the topic ``<topic>.txtopo-ledger``,
    which must be kept as long as the topology id is used: deleting it is like dropping the table of
    a state. Two sinks must not write to the same topic.

    Args:
        servers: Bootstrap servers, ``host:port,…``.
        topic: The topic.
        value: The field, a string or bytes, that becomes the value; several fields become a JSON
            object, which a Kafka spout with the same ``Fields`` reads back; ``txtopo.Avro(…)`` or
            ``txtopo.Protobuf(…)`` takes the fields of its schema, which is registered when the
            topology starts. By default, the field ``value``; all fields, if the sink receives dead
            letters.
        key: The same for the key; None for records without a key.
        timeout_s: The number of seconds without an answer after which a commit fails and is
            retried.
        settings: More settings of librdkafka (SASL, TLS, ``compression.type``); never shown.

    Raises:
        ConfigError: An argument is wrong, or confluent-kafka is missing; repair it.
    """

    writes_nowhere_else = True

    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        value: Encoded | None = None,
        key: Encoded | None = None,
        timeout_s: float = 20.0,
        settings: Mapping[str, Setting] | None = None,
    ) -> None:
        require("confluent_kafka", "KafkaSink")
        if not isinstance(topic, str) or not topic:
            raise ConfigError(
                f"topic of a KafkaSink is wrong; got {topic!r}; expected its name", setting="topic"
            )
        if topic.endswith(LEDGER_END):
            raise ConfigError(
                f"topic of a KafkaSink is wrong; got {topic!r}; names that end with "
                f"{LEDGER_END!r} are reserved for ledgers, and a record in a ledger would end its "
                "topology; choose another topic",
                topic=topic,
            )
        given = dict(settings or {})
        for name in _OURS.keys() & given.keys():
            raise ConfigError(
                f"setting {name!r} of a KafkaSink cannot be set; {_OURS[name]}; remove it",
                setting=name,
            )
        connection = Connection(servers, given, timeout_s=timeout_s)
        self._topic = topic
        self._value = "value" if value is None else _checked("value", value)
        self._key = None if key is None else _checked("key", key)
        for format in self._formats.values():
            format.check_writable()
        self._has_value = value is not None
        registries = (each for format in self._formats.values() for each in format.connects_to)
        self.connects_to = [connection.server, *registries]
        self.state = State(
            f"kafka://{servers}/{topic}",
            "transactional",
            topic,
            Fields("position long"),
            Fields("record_key binary, record_value binary"),
            _factory=PublishedFactory(connection, topic, self._formats),
        )

    @property
    def traits(self) -> Traits:
        """The sink's state, and the restrictions that follow because Kafka cannot undo writes."""
        return dataclasses.replace(
            super().traits,
            state=self.state,
            reads_states=False,
            one_task=(
                "the records of a txid are one transaction of one producer; do the work in bolts "
                "above it"
            ),
            refuses_opaque=(
                "records that consumers have seen cannot be taken back; use a transactional "
                "spout, or keep the results in a state"
            ),
            check_input=self.check_input,
            with_dead_letters=self.with_default_value,
            cannot_fork=(
                "its records cannot be copied, and a second sink for its topic would depose this "
                "one, because the transactional id is derived from the topic; let the forked "
                "program write to another topic, under an id that begins with its first record"
            ),
            holds="records of a topic, one Kafka transaction a txid",
            delivery="in Kafka for consumers that read committed records only",
        )

    def with_default_value(self, fields: Sequence[str]) -> KafkaSink:
        """Return this sink with *fields* as its value, unless it already has one."""
        sink = copy.copy(self)
        if not self._has_value:
            sink._value = list(fields)
        return sink

    def check_input(self, fields: Fields) -> None:
        """Check that tuples with these fields can be written, as far as schemas show.

        Raises:
            FieldsError: A field of a schema is missing, or of another type.
        """
        for part, format in self._formats.items():
            format.check_input(fields, part)

    @property
    def _formats(self) -> dict[Part, SchemaFormat]:
        given = {"key": self._key, "value": self._value}
        return {part: each for part, each in given.items() if isinstance(each, SchemaFormat)}

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
        """Make a record from a tuple.

        Raises:
            ValueRefusedError: A field cannot be written; cast it in the bolt upstream.
            InfrastructureError: A schema registry does not answer a new process; try again.
        """
        key = None if self._key is None else self._encoded("key", tuple, self._key)
        self._records.append((key, self._encoded("value", tuple, self._value)))

    def _encoded(self, part: Part, tuple: Tuple, encoded: Encoded) -> bytes | None:
        if isinstance(encoded, SchemaFormat):
            return encoded.writer(self._topic, part)(tuple)
        return _encoded(tuple, encoded)

    def finish_batch(self) -> None:
        """Write the records, together with the ledger, in one transaction."""
        with self._published.transaction(self._attempt) as state:
            for position, record in enumerate(self._records, self._attempt.txid << _POSITION_BITS):
                state.put(position, record)


def _checked(part: Part, encoded: Encoded) -> Encoded:
    if isinstance(encoded, str | SchemaFormat):
        return encoded
    if isinstance(encoded, list | tuple) and all(isinstance(name, str) for name in encoded):
        return encoded
    raise ConfigError(
        f"{part} of a KafkaSink is wrong; got {encoded!r:.200}; expected the name of a field, a "
        "list of names, Avro(…) or Protobuf(…)",
        setting=part,
    )


def _encoded(tuple: Tuple, fields: str | Sequence[str]) -> bytes | None:
    value: Any = tuple[fields] if isinstance(fields, str) else None
    if not isinstance(fields, str):
        return json.dumps({name: json_of(tuple[name]) for name in fields}).encode()
    if isinstance(value, str):
        return value.encode()
    if value is None or isinstance(value, bytes):
        return value
    raise ValueRefusedError(
        f"field {fields!r} cannot be a record's key or value; got {value!r:.100} of type "
        f"{type(value).__name__}; expected a string or bytes; cast it in the bolt above, or name "
        f"several fields, as in [{fields!r}], for a JSON object",
        field=fields,
    )


class PublishedFactory:
    """Opens the state of a sink. Picklable, with the settings of the connection."""

    def __init__(
        self, connection: Connection, topic: str, formats: Mapping[Part, SchemaFormat]
    ) -> None:
        self._connection = connection
        self._topic = topic
        self._formats = formats

    def __call__(self, url: str, table: StateTable) -> PublishedRecords:
        """Return the state of the sink; it does not connect yet."""
        return PublishedRecords(self._connection, self._topic, self._formats)


class PublishedRecords(StateBackend):
    """The state of a sink: it writes records to Kafka and keeps only the ledger of them.

    Delivery: exactly once for consumers with ``read_committed``, fenced, in txid order.
    """

    groups = True

    def __init__(
        self, connection: Connection, topic: str, formats: Mapping[Part, SchemaFormat]
    ) -> None:
        self._connection = connection
        self._topic = topic
        self._formats = formats
        self._ledgers = LedgerTopic(connection, topic)
        self._producer: Producer | None = None
        self._heard: Heard = deque(maxlen=HEARD_MAX)
        self._ledger: Ledger | None = None
        self._claims = False
        # A producer allows one call at a time. So the lock is held across calls that block and the
        # marks of a commit; Kafka is not simulated.
        self._lock = threading.Lock()

    def create(self) -> None:
        """Register the schemas of the records; create the topic of the ledger; check both topics.

        Raises:
            SchemaDrift: The topic of the ledger does not have the required settings.
            ConfigError: The topic of the records does not exist, or the registry refuses a schema;
                make it, or repair it, first.
            StoreUnavailable: Kafka or a schema registry cannot be reached; try again.
        """
        with self._stored("create the ledger's topic"):
            for part, format in self._formats.items():
                format.writer(self._topic, part)
            self._ledgers.create()

    def claim(self, claim: Claim) -> Ledger:
        """Take over the transactional id, then read the ledger, then write the claim into it.

        Taking it over fences its holder. So the visible ledger is checked first: a claim by another
        topology or ensemble is refused before it fences anybody.
        """
        self.claimant = claim
        with self._lock, self._stored("claim the transactional id"):
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
        with self._lock, self._stored("write the records"):
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
        """Open a snapshot of the ledger; there are no rows."""
        with self._lock, self._stored("read the ledger"):
            if not self._claims:
                held = self._ledgers.visible()
            else:
                held = self._taken_over() if self._producer is None else self._ledger
        return nullcontext(_LedgerOnly(held))

    def close(self) -> None:
        """Drop the producer; the next claim ends its open transaction."""
        self._producer = None

    @contextmanager
    def _stored(self, doing: str) -> Iterator[None]:
        """Drop the producer after any error, and raise the error as one of a store."""
        try:
            with self._connection.named_errors(doing, self._heard):
                yield
        except UnknownOutcomeError:
            self._producer = None
            raise
        except InfrastructureError as error:
            self._producer = None
            raise StoreUnavailable(f"{error}; nothing was written", **error.facts) from error
        except BaseException:
            self._producer = None
            raise

    def _taken_over(self) -> Ledger | None:
        """Fence all other producers of the transactional id, and then read the ledger."""
        from confluent_kafka import Producer

        self._heard.clear()
        producer = Producer(
            self._connection.of_client(self._heard)
            | {
                "transactional.id": f"txtopo.{self._topic}",
                # librdkafka's defaults with a transactional id: a record counts when all replicas
                # have it, and is written once, even if it was sent twice. Weaker settings would be
                # noticed only when a broker is lost.
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
        """Write a record after all ledgers; return its offset, up to which the ledgers are read.

        A committed record becomes visible a little later, and after the crash of a broker even a
        visible record may be missing for a moment. A reader that sees this record sees all before
        it.
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
            raise StoreUnavailable(
                f"Kafka at {self._connection.servers} accepted no record for topic "
                f"{self._ledgers.name!r} within {self._connection.timeout_s} s; is the broker "
                "down?",
                topic=self._ledgers.name,
                servers=self._connection.servers,
            )
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
            # A transaction that was broken by a record accepts no more records. The reason is in
            # the report of that record, which arrives a little later.
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
                    "bytes; nothing of its batch was written; send smaller records, or raise "
                    "message.max.bytes",
                    topic=self._topic,
                    got=len(value or b""),
                ) from error

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None and not may_pass(error):
            self._heard.append(error)

    def _fault(self, error: KafkaError, *, unknown: bool = False) -> Exception:
        doing = "write the records"
        if meaning_of(error.name()) is ErrorMeaning.FENCED:
            # Fenced by a successor, whose epoch is in the ledger, or by a zombie, which will read
            # our epoch in the ledger and stop.
            return StoreUnavailable(
                f"another producer has taken over the transactional id 'txtopo.{self._topic}'; "
                "nothing was written; the ledger will show who may write",
                topic=self._topic,
            )
        if unknown and not error.txn_requires_abort():
            return UnknownOutcomeError(
                f"no response to the commit of a transaction to {self._topic!r}: {error.str()}",
                topic=self._topic,
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
    """The topic of a sink's ledger, ``<topic>.txtopo-ledger``: compacted, with one partition.

    Attributes:
        name: Name of the topic.
    """

    def __init__(self, connection: Connection, topic: str) -> None:
        self._connection = connection
        self._topic = topic
        self.name = f"{topic}{LEDGER_END}"

    def create(self) -> None:
        """Create the topic if it is missing.

        It has as many replicas as the topic of the records: if only the ledger were lost, it would
        be unknown what was written. A topic with ``unclean.leader.election.enable`` may lose
        acknowledged records, since a replica that is behind may become the leader. If the records
        were lost but not the ledger, their txid would count as done and never be written again.

        Raises:
            ConfigError: The topic of the records does not exist, or may lose acknowledged records.
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
                f"topic {self._topic!r} of a KafkaSink does not exist; create it before the "
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
                    f"topic {name!r} cannot guarantee exactly once; got "
                    "unclean.leader.election.enable=true, so a replica that is behind may become "
                    "the leader without records that were acknowledged; expected false",
                    topic=name,
                )
        if self.name not in topics:
            copies = len(topics[self._topic].partitions[0].replicas)
            self._make(admin, copies, told[self._topic]["min.insync.replicas"].value)
            return
        policy = told[self.name]["cleanup.policy"].value
        partitions = len(topics[self.name].partitions)
        if partitions != 1 or policy != "compact":
            raise SchemaDrift(
                f"topic {self.name!r} cannot hold a ledger; got {partitions} partitions and "
                f"cleanup.policy={policy}; expected one partition and compact; otherwise "
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
                    f"the ledger of a KafkaSink to {self._topic!r} cannot be created: the broker "
                    f"refuses the topic {self.name!r}; got {error.args[0].str()!r}; expected a "
                    "name of at most 249 characters that differs from all other topics by more "
                    "than '.' instead of '_'; nothing was written; choose another topic",
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
        """Return the last visible ledger; None if there is none, or no topic.

        Unlike a claim, it does not fence anybody; a ledger that is committed meanwhile may be
        missing.

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
        """Return the last ledger from *start* to offset *end*; None reads to the visible end."""
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
                    f"{self._connection.servers} sent nothing for {self._connection.timeout_s} s",
                    topic=self.name,
                    servers=self._connection.servers,
                )

    def _parsed(self, data: bytes) -> Ledger:
        try:
            parts = json.loads(data)
            if (version := parts.pop("version")) > VERSION:
                raise SchemaVersionError(
                    f"the ledger in topic {self.name!r} has version {version}; expected at most "
                    f"{VERSION}; a newer txtopo wrote it; upgrade this installation",
                    topic=self.name,
                )
            return Ledger.of(parts)
        except (ValueError, TypeError, KeyError) as error:
            raise CorruptNodeError(
                f"the last record of topic {self.name!r} is not a ledger; got {data!r:.200} "
                f"({error}); which other program writes there? restore the last record that "
                "txtopo wrote",
                topic=self.name,
            ) from error
