"""PublishedRecords: the state behind a KafkaSink, which holds a ledger and no rows.

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
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from txtopo.attempt import TransactionAttempt
from txtopo.bolts.kafka.ledger_topic import BOUND, LedgerTopic
from txtopo.errors import (
    InfrastructureError,
    StateUsageError,
    StoreUnavailable,
    UnknownOutcomeError,
    ValueRefusedError,
)
from txtopo.kafka_connection import HEARD_MAX, Connection, Heard
from txtopo.kafka_errors import Meaning, may_pass, meaning_of
from txtopo.state.backend import Key, Puts, Snapshot, StateBackend, StateTable, Writes
from txtopo.state.ledger import Claim, Ledger, Standing, claimed, standing
from txtopo.state.values import Row

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer


# How long the report of a record is waited for that has broken its transaction: far longer than it
# takes behind the reports of those before it. Without it the batch is tried again, and told then.
_REPORT_POLL_S, _REPORT_POLLS_MAX = 0.1, 50


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
            self.point("P5.after")
            self.point("P6.before")
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
            self.point("P6.after")
            self.point("P7.before")
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
        if meaning_of(error.name()) is Meaning.FENCED:
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
