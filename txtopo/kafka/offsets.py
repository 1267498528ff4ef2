"""Offsets of Kafka: those that the cluster has, those of a batch, and lost ones.

The metadata of a batch (:class:`Positions`) contains the id of each topic, which changes when a
topic is recreated under its name, and for each partition the range of offsets [start, end). A
partition without new records has an empty range, so that the next batch finds its position. A range
also covers offsets without a record: deleted records, and markers of transactions.
"""

from __future__ import annotations

import atexit
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from txtopo.errors import (
    ConfigError,
    InfrastructureError,
    OffsetRegression,
    SchemaVersionError,
    SourceDataLost,
)
from txtopo.kafka.connection import HEARD_MAX, LEDGER_END, Connection, Heard
from txtopo.kafka.errors import may_pass
from txtopo.metadata import Json
from txtopo.spouts.spout import other_position

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._listoffsets import OffsetSpec
    from confluent_kafka.admin._topic import TopicDescription

Start = Literal["earliest", "latest"] | datetime | Mapping[str, Mapping[int, int]]
"""Where the first batch starts: a word, a time, or offsets by topic and partition."""

Topics = str | Sequence[str] | re.Pattern[str]
"""Names of topics, or a pattern that whole names match."""

METADATA_VERSION = 1


class KafkaPartition(NamedTuple):
    """A partition of a topic of Kafka."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


class Range(NamedTuple):
    """The offsets from *start* (included) to *end* (excluded)."""

    start: int
    end: int


class Lost(NamedTuple):
    """Offsets whose records were deleted before they were read.

    Attributes:
        partition: The partition.
        start: The first of them.
        end: The offset after the last one; None if the whole topic was deleted and recreated.
    """

    partition: KafkaPartition
    start: int
    end: int | None


class Topic(NamedTuple):
    """An existing topic: its id and its number of partitions."""

    id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The topics and offsets that the cluster reported at one moment.

    Attributes:
        topics: The topics, by name.
        bounds: The first and the end offset of each partition that has a leader.
    """

    topics: Mapping[str, Topic]
    bounds: Mapping[KafkaPartition, Range]

    @property
    def partitions(self) -> list[KafkaPartition]:
        """All partitions, including those without a leader."""
        return [
            KafkaPartition(name, partition)
            for name, topic in sorted(self.topics.items())
            for partition in range(topic.partitions)
        ]


@dataclass(frozen=True, slots=True)
class Positions:
    """The ranges of a batch; its metadata as an object.

    Attributes:
        ids: The id of each topic.
        ranges: The range of each partition.
        lost: The offsets that the batch skipped because their records were deleted.
    """

    ids: Mapping[str, str] = field(default_factory=dict)
    ranges: Mapping[KafkaPartition, Range] = field(default_factory=dict)
    lost: tuple[Lost, ...] = ()

    def to_json(self) -> Json:
        """Return the metadata of the batch."""
        topics: dict[str, Json] = {}
        for name, id in self.ids.items():
            ranges: dict[str, Json] = {
                str(partition.number): list(each)
                for partition, each in self.ranges.items()
                if partition.topic == name
            }
            topics[name] = {"id": id, "ranges": ranges}
        whole: dict[str, Json] = {"version": METADATA_VERSION, "topics": topics}
        if self.lost:
            whole["lost"] = [[*each.partition, each.start, each.end] for each in self.lost]
        return whole


def from_json(metadata: Json) -> Positions:
    """Return the positions that the metadata of a batch holds; none for None, before txid 1.

    Raises:
        SchemaVersionError: A newer txtopo wrote it.
        TopologyChanged: Another spout planned it.
    """
    if metadata is None:
        return Positions()
    if not isinstance(metadata, dict) or not {"version", "topics"} <= metadata.keys():
        raise other_position("a Kafka spout", metadata)
    if metadata["version"] != METADATA_VERSION:
        raise SchemaVersionError(
            f"the metadata of a Kafka batch has version {metadata['version']!r}; expected "
            f"{METADATA_VERSION}; upgrade this txtopo",
            version=metadata["version"],
        )
    ids: dict[str, str] = {}
    ranges: dict[KafkaPartition, Range] = {}
    topics = metadata["topics"]
    assert isinstance(topics, dict)
    for name, topic in topics.items():
        assert isinstance(topic, dict)
        ids[name] = str(topic["id"])
        stored = topic["ranges"]
        assert isinstance(stored, dict)
        for partition, each in stored.items():
            start, end = _numbers(each)
            ranges[KafkaPartition(name, int(partition))] = Range(start, end)
    lost = metadata.get("lost") or []
    assert isinstance(lost, list)
    return Positions(ids, ranges, tuple(_lost(each) for each in lost))


def _lost(stored: Json) -> Lost:
    assert isinstance(stored, list)
    topic, *numbers = stored
    assert isinstance(topic, str)
    end = None if numbers[-1] is None else _numbers(numbers)[-1]
    partition, start = _numbers(numbers[:2])
    return Lost(KafkaPartition(topic, partition), start, end)


def _numbers(stored: Json) -> list[int]:
    assert isinstance(stored, list)
    numbers = [each for each in stored if isinstance(each, int)]
    assert len(numbers) == len(stored)
    return numbers


# A broker learns of a topic a little after the controller that created it, and later under load.
_LOOKS_AGAIN_MAX = 15

_LOOKS_AGAIN_S = 0.2

# One for each process and cluster, since it takes 30 ms to connect; threads may share it. Keyed by
# the process too: a client does not outlive a fork.
_clients: dict[tuple[object, ...], tuple[AdminClient, Heard]] = {}


class Offsets:
    """Asks a cluster for its topics and offsets. Picklable; used in the driver and in tasks.

    With ``read_committed`` the end of a partition is its *last stable offset*: every transaction
    below it has ended, so a range has the same records whenever it is read.
    """

    def __init__(self, connection: Connection, topics: Topics) -> None:
        self._connection = connection
        self._names, self._pattern = _checked(topics)

    def look(self, partitions: Iterable[KafkaPartition] | None = None) -> ClusterSnapshot:
        """Return the topics, and the bounds of all partitions or of those given.

        It takes two round trips.

        Raises:
            InfrastructureError: The cluster cannot be reached; try again.
            AuthError: The cluster refuses the credentials.
        """
        topics = self.topics()
        look = ClusterSnapshot(topics, {})
        wanted = (
            look.partitions if partitions is None else [p for p in partitions if p.topic in topics]
        )
        return ClusterSnapshot(topics, self.bounds(wanted))

    def topics(self) -> dict[str, Topic]:
        """Return the topics that exist now, by name."""
        from confluent_kafka import KafkaError, KafkaException, TopicCollection

        names = self._matching()
        found = {}
        with self._asking("list the topics") as client:
            if not names:
                return {}
            answers = client.describe_topics(
                TopicCollection(names), request_timeout=self._connection.timeout_s
            )
            for name, answer in answers.items():
                try:
                    told = answer.result()
                except KafkaException as error:
                    if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                        continue
                    raise
                found[name] = Topic(str(told.topic_id), len(told.partitions))
        return found

    def asked(self, names: Iterable[str]) -> Mapping[str, Future[TopicDescription]]:
        """Request topics, by name, and do not wait for the answers."""
        from confluent_kafka import TopicCollection

        client, _ = admin_client(self._connection)
        wanted = TopicCollection([*names])
        return client.describe_topics(wanted, request_timeout=self._connection.timeout_s)

    def cleanup_policies(self, names: Sequence[str]) -> dict[str, str | None]:
        """Return the ``cleanup.policy`` of topics; None where the cluster does not report it.

        It takes one round trip. Missing topics are left out.

        Raises:
            InfrastructureError: The cluster cannot be reached; try again.
        """
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import (  # type: ignore[attr-defined]
            ConfigResource,
            ResourceType,
        )

        found: dict[str, str | None] = {}
        with self._asking("describe the settings of topics") as client:
            answers = client.describe_configs(
                [ConfigResource(ResourceType.TOPIC, name) for name in names],
                request_timeout=self._connection.timeout_s,
            )
            for resource, answer in answers.items():
                try:
                    setting = answer.result().get("cleanup.policy")
                    found[resource.name] = None if setting is None else str(setting.value)
                except KafkaException as error:
                    if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                        continue
                    if may_pass(error.args[0]):
                        raise
                    found[resource.name] = None
        return found

    def can_start(self, look: ClusterSnapshot) -> bool:
        """Return whether the first batch can be planned from *look*.

        It needs the offsets of a partition, unless the topics are a pattern that matches none yet.
        """
        return bool(look.bounds) or (self._pattern is not None and not look.topics)

    def missing(self) -> list[str]:
        """Return the named topics that do not exist, after waiting a few seconds for them."""
        missing = self._unseen(self.topics())
        for _ in range(_LOOKS_AGAIN_MAX):
            if not missing:
                break
            with self._asking("list the topics") as client:
                client.poll(_LOOKS_AGAIN_S)  # a pause
            missing = self._unseen(self.topics())
        return missing

    def bounds(self, partitions: Sequence[KafkaPartition]) -> dict[KafkaPartition, Range]:
        """Return the first offset and the end of each partition that has a leader."""
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        # Both requests are in flight at once.
        ends: tuple[OffsetSpec, OffsetSpec] = (
            OffsetSpec.earliest(),  # type: ignore[no-untyped-call]
            OffsetSpec.latest(),  # type: ignore[no-untyped-call]
        )
        asked = [self._ask(partitions, what) for what in ends]
        first, end = map(self._answers, asked)
        return {p: Range(first[p], end[p]) for p in partitions if p in first and p in end}

    def starts(
        self,
        start: Start,
        look: ClusterSnapshot,
        partitions: Sequence[KafkaPartition],
        *,
        first: bool,
    ) -> dict[KafkaPartition, int]:
        """Return the offset from which each of *partitions*, new to the spout, is read.

        A partition that is added after the first batch is read from its beginning, since its
        records came after the start; one without a leader is left out until it has one. The first
        batch must see every named topic and a leader of every partition: a partition that it left
        out would later count as added, and be read from its beginning.

        Args:
            start: The start that the user chose; it applies to the first batch only.
            look: The state of the cluster.
            partitions: Partitions that no batch has read yet.
            first: Whether this is the first batch.

        Raises:
            InfrastructureError: The first batch does not see a topic or a leader; try again.
            ConfigError: *start* names a partition that does not exist; repair it.
        """
        if not first:
            return self._starts("earliest", look, partitions)
        if missing := self._unseen(look.topics):
            raise InfrastructureError(
                f"topic {missing[0]!r} does not exist, so the first batch cannot start; trying "
                "again",
                topic=missing[0],
            )
        _check_partitions(start, look)
        starts = self._starts(start, look, partitions)
        if len(starts) < len(partitions):
            silent = next(each for each in partitions if each not in starts)
            raise InfrastructureError(
                f"partition {silent} has no leader, so the first batch cannot start; trying again",
                topic=silent.topic,
                partition=silent.number,
            )
        return starts

    def _starts(
        self, start: Start, look: ClusterSnapshot, partitions: Sequence[KafkaPartition]
    ) -> dict[KafkaPartition, int]:
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        known = [partition for partition in partitions if partition in look.bounds]
        if isinstance(start, datetime):
            at = OffsetSpec.for_timestamp(int(start.timestamp() * 1000))
            found = self._answers(self._ask(known, at))
            return {p: n if n >= 0 else look.bounds[p].end for p, n in found.items()}
        if start == "latest":
            return {partition: look.bounds[partition].end for partition in known}
        given: Mapping[str, Mapping[int, int]] = {} if isinstance(start, str) else start
        return {
            partition: given.get(partition.topic, {}).get(
                partition.number, look.bounds[partition].start
            )
            for partition in known
        }

    def _ask(
        self, partitions: Sequence[KafkaPartition], what: OffsetSpec
    ) -> dict[KafkaPartition, Any]:
        from confluent_kafka import IsolationLevel, TopicPartition

        if not partitions:
            return {}
        level = self._connection.isolation.upper()
        with self._asking("list offsets") as client:
            asked = client.list_offsets(
                {TopicPartition(*partition): what for partition in partitions},
                isolation_level=IsolationLevel[level],
                request_timeout=self._connection.timeout_s,
            )
        return {KafkaPartition(at.topic, at.partition): answer for at, answer in asked.items()}

    def _answers(self, asked: Mapping[KafkaPartition, Any]) -> dict[KafkaPartition, int]:
        """Return the offsets, without partitions that are down; raise if all of them are."""
        from confluent_kafka import KafkaException

        found, failed = {}, None
        for partition, answer in asked.items():
            try:
                found[partition] = int(answer.result().offset)
            except KafkaException as error:
                failed = error
        if failed is not None and not found:
            with self._asking("list offsets"):
                raise failed
        return found

    def _unseen(self, topics: Mapping[str, Topic]) -> list[str]:
        return sorted(set(self._names) - topics.keys())

    def _matching(self) -> list[str]:
        if self._pattern is None:
            return list(self._names)
        with self._asking("list the topics") as client:
            listed = client.list_topics(timeout=self._connection.timeout_s).topics
        return sorted(
            name for name in listed if self._pattern.fullmatch(name) and not _is_internal(name)
        )

    @contextmanager
    def _asking(self, doing: str) -> Iterator[AdminClient]:
        from confluent_kafka import KafkaException

        client, heard = admin_client(self._connection)
        with self._connection.named_errors(doing, heard):
            try:
                yield client
            except KafkaException:
                client.poll(0)  # includes the reported errors
                raise
        heard.clear()


def admin_client(connection: Connection) -> tuple[AdminClient, Heard]:
    """Return the client of this process for a cluster, and the errors that it reported."""
    from confluent_kafka.admin import AdminClient

    key = (os.getpid(), *connection.key())
    if key not in _clients:
        heard: Heard = deque(maxlen=HEARD_MAX)
        with connection.checked_settings():
            _clients[key] = AdminClient(connection.of_client(heard)), heard
    return _clients[key]


@atexit.register
def forget_clients() -> None:
    """Release the clients before the interpreter ends: their threads call into it."""
    for key in [key for key in _clients if key[0] == os.getpid()]:
        del _clients[key]


def _checked(topics: Topics) -> tuple[tuple[str, ...], re.Pattern[str] | None]:
    if isinstance(topics, re.Pattern):
        return (), topics
    names = (topics,) if isinstance(topics, str) else tuple(topics)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ConfigError(
            f"topics of a Kafka spout are wrong; got {topics!r}; expected names or re.compile(…)",
            setting="topics",
        )
    return tuple(sorted(set(names))), None


# Kafka's own internal topics, which patterns of its clients do not match either.
_INTERNAL = ("__consumer_offsets", "__share_group_state", "__transaction_state")


def _is_internal(topic: str) -> bool:
    """Return whether a topic has no records of users, so that patterns ignore it."""
    return topic in _INTERNAL or topic.endswith(LEDGER_END)


def start_from(place: Json) -> Start:
    """Return the start that a place in JSON stands for; what stands for none, as it is."""
    start: Any = place
    if isinstance(place, str) and place not in ("earliest", "latest"):
        with suppress(ValueError):
            start = datetime.fromisoformat(place)
    elif isinstance(place, dict):
        start = {
            topic: {int(at) if at.isdecimal() else at: offset for at, offset in each.items()}
            if isinstance(each, dict)
            else each
            for topic, each in place.items()
        }
    return cast("Start", start)


def checked_start(start: Start, topics: Topics) -> Start:
    """Return *start* if it is valid, for *topics*.

    Raises:
        ConfigError: It is not; repair it.
    """
    expected = "expected 'earliest', 'latest', a datetime with a time zone, or {topic: {0: offset}}"
    fits = start in ("earliest", "latest") if isinstance(start, str) else False
    if isinstance(start, datetime):
        fits = start.tzinfo is not None
    elif isinstance(start, Mapping):
        fits = all(
            isinstance(offsets, Mapping)
            and all(type(n) is int and n >= 0 for pair in offsets.items() for n in pair)
            for offsets in start.values()
        )
    if not fits:
        raise ConfigError(
            f"start of a Kafka spout is wrong; got {start!r}; {expected}", setting="start"
        )
    if isinstance(start, Mapping):
        for topic in start:
            _check_named(topic, topics)
    return start


def _check_named(topic: str, topics: Topics) -> None:
    names, pattern = _checked(topics)
    if pattern is None:
        named, expected = topic in names, f"topics of the spout: {', '.join(names)}"
    else:
        named = pattern.fullmatch(topic) is not None
        expected = f"topics that match {pattern.pattern!r}"
    if not named:
        raise ConfigError(
            f"start of a Kafka spout names a topic that the spout does not read; got {topic!r}; "
            f"expected {expected}; check its spelling",
            setting="start",
        )


def _check_partitions(start: Start, look: ClusterSnapshot) -> None:
    """Check that the partitions that *start* names exist."""
    if not isinstance(start, Mapping):
        return
    for name, offsets in start.items():
        topic = look.topics.get(name)
        if topic is not None and offsets and max(offsets) >= topic.partitions:
            raise ConfigError(
                f"start of a Kafka spout names a partition that does not exist; got partition "
                f"{max(offsets)} of topic {name!r}; expected 0 to {topic.partitions - 1}",
                setting="start",
            )


# A broker that has just started may not know all topics yet, nor the end of a log that it has just
# recovered. Each look that misses something fails the planning, which is tried again after a pause;
# this many looks take some seconds.
MISSING_LOOKS_MAX = 5

_ADVICE = (
    "restore the data, or start again under a new topology id; if losing it is acceptable, use "
    'KafkaOpaqueSpout(…, on_data_loss="record")'
)


class LossCheck:
    """Checks that the cluster still has what the next batch must read.

    It counts how often something was missing in a row. One thread at a time may use it.
    """

    def __init__(self) -> None:
        self._missing_looks = 0
        self._short_looks = 0

    def positions(self, before: Positions, look: ClusterSnapshot) -> None:
        """Check the topics and the ends of their logs against the batch *before*.

        A log that ends before the position must not be treated as one without new records: the next
        records would get offsets that were already read, and be skipped.

        Raises:
            OffsetRegression: A topic was recreated, or a log ends before its position.
            SourceDataLost: A topic no longer exists.
            InfrastructureError: Something is missing, but not for long enough yet; try again.
        """
        self.topics(before, look)
        try:
            self.ends(before, look)
        except OffsetRegression as error:
            self._short_looks += 1
            if self._short_looks < MISSING_LOOKS_MAX:
                raise InfrastructureError(f"checking again: {error}", **error.facts) from error
            raise
        self._short_looks = 0

    def topics(self, before: Positions, look: ClusterSnapshot) -> None:
        """Check that the topics are those that the batch *before* read.

        Raises:
            OffsetRegression: A topic was deleted and recreated.
            SourceDataLost: A topic was missing ``MISSING_LOOKS_MAX`` times in a row.
            InfrastructureError: A topic is missing, but not for long enough yet; try again.
        """
        missing = sorted(before.ids.keys() - look.topics.keys())
        if missing:
            self._missing_looks += 1
            if self._missing_looks < MISSING_LOOKS_MAX:
                raise InfrastructureError(
                    f"topic {missing[0]!r} is missing; checking again", topic=missing[0]
                )
            raise SourceDataLost(
                f"topic {missing[0]!r} of a Kafka spout no longer exists; expected the topic that "
                f"was read before; {_ADVICE}",
                topic=missing[0],
            )
        self._missing_looks = 0
        for name, id in before.ids.items():
            if look.topics[name].id != id:
                raise recreated(name, id, look.topics[name].id)

    @staticmethod
    def ends(before: Positions, look: ClusterSnapshot) -> None:
        """Check that no log ends before the position that *before* reached.

        Raises:
            OffsetRegression: One does.
        """
        for partition, each in before.ranges.items():
            bounds = look.bounds.get(partition)
            same = (
                bounds is not None
                and look.topics[partition.topic].id == before.ids[partition.topic]
            )
            if bounds is not None and same and each.end > bounds.end:
                raise cut_short(partition, each.end, bounds.end)

    @staticmethod
    def range(partition: KafkaPartition, start: int, bounds: Range) -> None:
        """Check that offset *start* can still be read.

        Raises:
            SourceDataLost: Its record was deleted.
            OffsetRegression: The log ends before it.
        """
        if start < bounds.start:
            raise deleted(partition, start, bounds.start)
        if start > bounds.end:
            raise cut_short(partition, start, bounds.end)


def losses(positions: Positions, look: ClusterSnapshot) -> list[Lost]:
    """Return the unread offsets after *positions* whose records were deleted.

    A topic that *look* does not show is not lost: it may appear again, and reading then continues.
    """
    gone = []
    for partition, each in positions.ranges.items():
        topic = look.topics.get(partition.topic)
        if topic is not None and topic.id != positions.ids[partition.topic]:
            gone.append(Lost(partition, each.end, None))
            continue
        bounds = look.bounds.get(partition)
        if bounds is not None and each.end < bounds.start:
            gone.append(Lost(partition, each.end, bounds.start))
    return gone


def unseen(positions: Positions, look: ClusterSnapshot) -> dict[KafkaPartition, Range]:
    """Return an empty range at the position of each partition that *look* does not show.

    The broker that answers may know less than the one that answered before. If the batch forgot the
    position, the partition would be read from its beginning when it appears again.
    """
    seen = set(look.partitions)
    return {
        partition: Range(each.end, each.end)
        for partition, each in positions.ranges.items()
        if partition not in seen
        and (
            partition.topic not in look.topics
            or look.topics[partition.topic].id == positions.ids[partition.topic]
        )
    }


def cut_short(partition: KafkaPartition, wanted: int, end: int) -> OffsetRegression:
    """Return the error for a log that ends before the next offset to read."""
    return OffsetRegression(
        f"partition {partition.number} of topic {partition.topic!r} ends at offset {end}, but the "
        f"next offset to read is {wanted}; the log was truncated, or the offset was given wrong; "
        "restore the data, or start again under a new topology id",
        topic=partition.topic,
        partition=partition.number,
        wanted=wanted,
        end=end,
    )


def deleted(partition: KafkaPartition, wanted: int, available: int) -> SourceDataLost:
    """Return the error for records that were deleted before they were read."""
    return SourceDataLost(
        f"records of partition {partition.number} of topic {partition.topic!r} were deleted "
        f"before they were read; the next offset to read is {wanted}, but the first available one "
        f"is {available}; the retention is too short for the lag of the topology; {_ADVICE}",
        topic=partition.topic,
        partition=partition.number,
        wanted=wanted,
        available=available,
    )


def recreated(topic: str, expected: str, got: str) -> OffsetRegression:
    """Return the error for a topic that was deleted and recreated."""
    return OffsetRegression(
        f"topic {topic!r} was deleted and recreated; got id {got}; expected {expected}, whose "
        f"records the next batch follows; {_ADVICE}",
        topic=topic,
    )
