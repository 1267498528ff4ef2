"""KafkaSink: the committer that writes the records of a txid in one Kafka transaction."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from txtopo.attempt import TransactionAttempt
from txtopo.bolts.batch import BatchBolt
from txtopo.bolts.committer import Committer
from txtopo.bolts.kafka.ledger_topic import END
from txtopo.bolts.kafka.published import PublishedFactory
from txtopo.collector import BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.errors import ConfigError, ValueRefusedError
from txtopo.kafka_connection import Connection, Setting, require_client
from txtopo.state.registry import State
from txtopo.tuples import Fields, Tuple

# Whoever sets one of these would lose records when a broker does, or see them twice. librdkafka
# refuses some values beside a transactional id, but in the run, where it reads like an outage.
_OURS = {
    "transactional.id": "it fences, and is the same for each coordinator of a topology",
    "enable.idempotence": "without it a record that is sent again is there twice",
    "acks": "all copies of a record are written before its txid is done",
    "request.required.acks": "all copies of a record are written before its txid is done",
}


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
