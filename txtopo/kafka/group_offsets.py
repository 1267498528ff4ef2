"""GroupOffsets: copies committed offsets to a consumer group, so that lag tools see them.

Kafka decides nothing here. What is committed is in the metadata of the batches; the group only
gets a copy of it, afterwards and on a best-effort basis. So a copy may be late or missing, is never
read back, and its errors never affect a batch.

The offsets are set with the API of operators' tools (``alter_consumer_group_offsets``), since a
consumer with an unanswered commit cannot be closed while its broker is unreachable. One request is
in flight at a time; when its answer arrives, on a thread of librdkafka, the newest offsets are
sent.
"""

from __future__ import annotations

import threading
from concurrent.futures import wait
from dataclasses import dataclass
from typing import TYPE_CHECKING

from txtopo.context import TaskContext
from txtopo.errors import ConfigError
from txtopo.kafka.connection import Connection
from txtopo.kafka.offsets import Positions, admin_client
from txtopo.log_records import logger_of
from txtopo.setting_checks import check_text

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka import ConsumerGroupTopicPartitions

ANSWER_S = 5.0
"""How long an answer may take; newer offsets wait for it."""

CLOSE_S = 2.0
"""How long a run waits at its end for the last answer."""

_logger = logger_of("txtopo.spouts")


@dataclass(frozen=True, slots=True)
class CommitGroup:
    """A consumer group of a cluster. Picklable."""

    connection: Connection
    name: str

    @classmethod
    def of(cls, connection: Connection, name: str | None) -> CommitGroup | None:
        """Return the group of this name; None for None.

        Raises:
            ConfigError: The name is wrong; repair it.
        """
        if name is None:
            return None
        if not isinstance(name, str) or not name.strip():
            raise ConfigError(
                f"commit_group is wrong; got {name!r}; expected the name of a consumer group that "
                "nothing else uses, or None",
                setting="commit_group",
            )
        check_text("commit_group", name)
        return cls(connection, name)


def renamed_group(group: CommitGroup | None) -> str | None:
    """Return what a fork has to name otherwise, in words; None without a group."""
    if group is None:
        return None
    return (
        f"a commit_group other than {group.name!r}, because a group can show the lag of only one "
        "topology"
    )


class GroupOffsets:
    """Commits offsets to a consumer group, in the driver. One caller at a time.

    Args:
        group: The group. Nobody else may be a member: Kafka refuses these commits then.
        context: The spout, for log records.
    """

    def __init__(self, group: CommitGroup, context: TaskContext) -> None:
        self._group = group
        self._about = {"topology": context.topology_id, "component": context.component_id}
        self._failing = False
        self._batches: dict[int, Positions] = {}
        # Answers arrive on a thread of librdkafka.
        self._lock = threading.Lock()
        self._untold: Positions | None = None
        self._asked: Future[ConsumerGroupTopicPartitions] | None = None

    def committing(self, txid: int, batch: Positions) -> None:
        """Remember where a batch ends that may be committed next."""
        self._batches[txid] = batch

    def committed_before(self, txid: int) -> None:
        """Send the ends of the newest batch before *txid* to the group, without waiting."""
        done = [each for each in self._batches if each < txid]
        if done:
            with self._lock:
                self._untold = self._batches[max(done)]
        for each in done:
            del self._batches[each]
        self._send()

    def close(self) -> None:
        """Wait a little for the last answers."""
        for _ in range(2):  # a request is in flight, and the newest offsets wait for it
            with self._lock:
                asked = self._asked
            if asked is not None:
                wait([asked], CLOSE_S / 2)

    def _send(self) -> None:
        """Send the newest offsets, unless an answer is awaited."""
        try:
            with self._lock:
                if self._asked is not None or self._untold is None:
                    return
                batch, self._untold = self._untold, None
                self._asked = asked = self._alter(batch)
            asked.add_done_callback(self._answered)
        except Exception as error:  # noqa: BLE001 - librdkafka's; the batch is committed already
            self._failed(error)

    def _alter(self, batch: Positions) -> Future[ConsumerGroupTopicPartitions]:
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        # As Kafka's tools expect it: the next offset to be read.
        ends = [TopicPartition(*at, each.end) for at, each in sorted(batch.ranges.items())]
        client, _ = admin_client(self._group.connection)
        asked = [ConsumerGroupTopicPartitions(self._group.name, ends)]
        answers = client.alter_consumer_group_offsets(asked, request_timeout=ANSWER_S)
        found: Future[ConsumerGroupTopicPartitions] = answers[self._group.name]
        return found

    def _answered(self, answer: Future[ConsumerGroupTopicPartitions]) -> None:
        refused: object = answer.exception()
        if refused is None:
            partitions = answer.result().topic_partitions or []
            refused = next((each.error for each in partitions if each.error), None)
        if refused is None:
            self._failing = False
        else:
            self._failed(refused)
        with self._lock:
            self._asked = None
        self._send()

    def _failed(self, error: object) -> None:
        """Warn once, until a commit succeeds again."""
        if not self._failing:
            text = "offsets could not be committed to the consumer group %r: %s; continuing without"
            _logger.warning(text, self._group.name, error, extra=self._about)
        self._failing = True
