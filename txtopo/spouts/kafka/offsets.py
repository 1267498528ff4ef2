"""Offsets: which partitions there are, and from where to where they can be read now.

Positions: which records a batch has, as its metadata says, and where the first one starts.

For each topic the metadata names its id (a topic that is made again under its name gets another
one) and for each partition the range of offsets [start, end). A partition without new records has
an empty range, so that the next batch finds its position there. Offsets of records that are no
longer there, or that never had one (markers of transactions), are in the ranges like any others.

What has gone: records that were deleted before they were read, topics deleted or made anew.
"""

from __future__ import annotations

import atexit
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from txtopo.errors import (
    ConfigError,
    InfrastructureError,
    OffsetRegression,
    SchemaVersionError,
    SourceDataLost,
)
from txtopo.kafka_connection import HEARD_MAX, Connection, Heard
from txtopo.metadata import Json

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._listoffsets import OffsetSpec

Topics = str | Sequence[str] | re.Pattern[str]
"""Names of topics, or a pattern that whole names match."""

# A broker learns of a topic a little after the controller that made it, and later under load.
_LOOKS_AGAIN_MAX = 15

_LOOKS_AGAIN_S = 0.2

# One for each process and cluster, since it takes 30 ms to connect; threads may share it. Keyed by
# the process too: a client does not outlive a fork.
_clients: dict[tuple[object, ...], tuple[AdminClient, Heard]] = {}


class Topic(NamedTuple):
    """A topic that there is: its id and its number of partitions."""

    id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Look:
    """What there was at one look.

    Attributes:
        topics: The topics, by name.
        bounds: The first and the end offset of the partitions that have a leader.
    """

    topics: Mapping[str, Topic]
    bounds: Mapping[PartitionPosition, Range]

    @property
    def places(self) -> list[PartitionPosition]:
        """All partitions, also those without a leader."""
        return [
            PartitionPosition(name, partition)
            for name, topic in sorted(self.topics.items())
            for partition in range(topic.partitions)
        ]


class Offsets:
    """Asks the cluster, in two round trips. Picklable; used in the driver and in tasks.

    The end is the *last stable offset* when only committed records are read: below it every
    transaction is over, so that a range has the same records whenever it is read.
    """

    def __init__(self, connection: Connection, topics: Topics) -> None:
        self._connection = connection
        self._names, self._pattern = _checked(topics)

    def look(self, places: Iterable[PartitionPosition] | None = None) -> Look:
        """Look at all partitions; with *places*, find the bounds of those only.

        Raises:
            InfrastructureError: The cluster cannot be reached; try again.
            AuthError: It refuses.
        """
        topics = self.topics()
        look = Look(topics, {})
        wanted = look.places if places is None else [p for p in places if p.topic in topics]
        return Look(topics, self.bounds(wanted))

    def topics(self) -> dict[str, Topic]:
        """Return the topics that there are now."""
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

    def seen_as_wanted(self, look: Look) -> bool:
        """Return whether *look* shows where a first batch starts: a pattern may match nothing."""
        return bool(look.bounds) or (self._pattern is not None and not look.topics)

    def missing(self) -> list[str]:
        """Return the topics that were named and are not there, nor soon."""
        missing = self._unseen(self.topics())
        for _ in range(_LOOKS_AGAIN_MAX):
            if not missing:
                break
            with self._asking("list the topics") as client:
                client.poll(_LOOKS_AGAIN_S)  # a pause
            missing = self._unseen(self.topics())
        return missing

    def bounds(self, places: Sequence[PartitionPosition]) -> dict[PartitionPosition, Range]:
        """Return the first offset and the end of each partition that has a leader."""
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        # Both are under way at once.
        ends: tuple[OffsetSpec, OffsetSpec] = (
            OffsetSpec.earliest(),  # type: ignore[no-untyped-call]
            OffsetSpec.latest(),  # type: ignore[no-untyped-call]
        )
        asked = [self._ask(places, what) for what in ends]
        first, end = map(self._answers, asked)
        return {p: Range(first[p], end[p]) for p in places if p in first and p in end}

    def starts(
        self, start: Start, look: Look, places: Sequence[PartitionPosition], *, first: bool
    ) -> dict[PartitionPosition, int]:
        """Return where *places*, of which no batch had any, start.

        What is added later is read from its beginning: its records came after the start. Those
        without a leader are left out then. The first batch leaves out nothing that was named, since
        it would be new when it is seen.

        Raises:
            InfrastructureError: The first batch does not see a topic, or a leader; try again.
        """
        if not first:
            return self._starts("earliest", look, places)
        if missing := self._unseen(look.topics):
            raise InfrastructureError(
                f"topic {missing[0]!r} is not there, so the first batch cannot start; try again"
            )
        starts = self._starts(start, look, places)
        if len(starts) < len(places):
            raise InfrastructureError(
                f"partition {next(p for p in places if p not in starts)} has no leader, so the "
                "first batch cannot start; try again"
            )
        return starts

    def _starts(
        self, start: Start, look: Look, places: Sequence[PartitionPosition]
    ) -> dict[PartitionPosition, int]:
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        known = [place for place in places if place in look.bounds]
        if isinstance(start, datetime):
            at = OffsetSpec.for_timestamp(int(start.timestamp() * 1000))
            found = self._answers(self._ask(known, at))
            return {p: n if n >= 0 else look.bounds[p].end for p, n in found.items()}
        if start == "latest":
            return {place: look.bounds[place].end for place in known}
        given: Mapping[str, Mapping[int, int]] = {} if isinstance(start, str) else start
        return {
            place: given.get(place.topic, {}).get(place.partition, look.bounds[place].start)
            for place in known
        }

    def _ask(
        self, places: Sequence[PartitionPosition], what: OffsetSpec
    ) -> dict[PartitionPosition, Any]:
        from confluent_kafka import IsolationLevel, TopicPartition

        if not places:
            return {}
        level = self._connection.isolation.upper()
        with self._asking("list offsets") as client:
            asked = client.list_offsets(
                {TopicPartition(*place): what for place in places},
                isolation_level=IsolationLevel[level],
                request_timeout=self._connection.timeout_s,
            )
        return {PartitionPosition(at.topic, at.partition): answer for at, answer in asked.items()}

    def _answers(self, asked: Mapping[PartitionPosition, Any]) -> dict[PartitionPosition, int]:
        """Return the offsets; a partition that is down alone is left out, all of them are not."""
        from confluent_kafka import KafkaException

        found, failed = {}, None
        for place, answer in asked.items():
            try:
                found[place] = int(answer.result().offset)
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
        return sorted(name for name in listed if self._pattern.fullmatch(name))

    @contextmanager
    def _asking(self, doing: str) -> Iterator[AdminClient]:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        key = (os.getpid(), *self._connection.key())
        if key not in _clients:
            heard: Heard = deque(maxlen=HEARD_MAX)
            _clients[key] = AdminClient(self._connection.of_client(heard)), heard
        client, heard = _clients[key]
        with self._connection.named_errors(doing, heard):
            try:
                yield client
            except KafkaException:
                client.poll(0)  # tells what was heard
                raise
        heard.clear()


@atexit.register
def _forget_clients() -> None:
    """Let go of the clients while Python still stands; their threads call into it."""
    for key in [key for key in _clients if key[0] == os.getpid()]:
        del _clients[key]


def _checked(topics: Topics) -> tuple[tuple[str, ...], re.Pattern[str] | None]:
    if isinstance(topics, re.Pattern):
        return (), topics
    names = (topics,) if isinstance(topics, str) else tuple(topics)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ConfigError(
            f"topics of a Kafka spout are wrong; got {topics!r}; expected names or re.compile(…)"
        )
    return tuple(sorted(set(names))), None


METADATA_VERSION = 1


class PartitionPosition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Range(NamedTuple):
    """Offsets from *start* up to, but not with, *end*."""

    start: int
    end: int


class Lost(NamedTuple):
    """Offsets that were gone before they could be read; *end* None: all that the topic had."""

    place: PartitionPosition
    start: int
    end: int | None


@dataclass(frozen=True, slots=True)
class Positions:
    """The ranges of a batch.

    Attributes:
        ids: The id of each topic.
        ranges: By partition.
        lost: What was passed over, because it was gone.
    """

    ids: Mapping[str, str] = field(default_factory=dict)
    ranges: Mapping[PartitionPosition, Range] = field(default_factory=dict)
    lost: tuple[Lost, ...] = ()

    def to_json(self) -> Json:
        """Return the metadata."""
        topics: dict[str, Json] = {}
        for name, id in self.ids.items():
            ranges: dict[str, Json] = {
                str(place.partition): list(each)
                for place, each in self.ranges.items()
                if place.topic == name
            }
            topics[name] = {"id": id, "ranges": ranges}
        whole: dict[str, Json] = {"version": METADATA_VERSION, "topics": topics}
        if self.lost:
            whole["lost"] = [[*each.place, each.start, each.end] for each in self.lost]
        return whole


def from_json(metadata: Json) -> Positions:
    """Read the metadata of a batch; None is the one before the first.

    Raises:
        SchemaVersionError: A newer txtopo wrote it.
    """
    if metadata is None:
        return Positions()
    assert isinstance(metadata, dict)
    if metadata["version"] != METADATA_VERSION:
        raise SchemaVersionError(
            f"the metadata of a Kafka batch has version {metadata['version']!r}; expected "
            f"{METADATA_VERSION}; upgrade this txtopo"
        )
    ids: dict[str, str] = {}
    ranges: dict[PartitionPosition, Range] = {}
    topics = metadata["topics"]
    assert isinstance(topics, dict)
    for name, topic in topics.items():
        assert isinstance(topic, dict)
        ids[name] = str(topic["id"])
        stored = topic["ranges"]
        assert isinstance(stored, dict)
        for partition, each in stored.items():
            start, end = _numbers(each)
            ranges[PartitionPosition(name, int(partition))] = Range(start, end)
    lost = metadata.get("lost") or []
    assert isinstance(lost, list)
    return Positions(ids, ranges, tuple(_lost(each) for each in lost))


def _lost(stored: Json) -> Lost:
    assert isinstance(stored, list)
    topic, *numbers = stored
    assert isinstance(topic, str)
    end = None if numbers[-1] is None else _numbers(numbers)[-1]
    partition, start = _numbers(numbers[:2])
    return Lost(PartitionPosition(topic, partition), start, end)


def _numbers(stored: Json) -> list[int]:
    assert isinstance(stored, list)
    numbers = [each for each in stored if isinstance(each, int)]
    assert len(numbers) == len(stored)
    return numbers


Start = Literal["earliest", "latest"] | datetime | Mapping[str, Mapping[int, int]]
"""Where the first batch starts: a word, a time, or offsets by topic and partition."""


def checked_start(start: Start) -> Start:
    """Return *start*, if it is one.

    Raises:
        ConfigError: It is none.
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
        raise ConfigError(f"start of a Kafka spout is wrong; got {start!r}; {expected}")
    return start


# A broker that has just started may not know all topics yet, nor the end of a log that it has just
# recovered. Each look at which something is missing fails the planning, which is tried again after
# a pause; so this is some seconds.
MISSING_LOOKS_MAX = 5

_ADVICE = (
    "bring the data back, or begin with a new topology id; where losing it is right, use "
    'KafkaOpaqueSpout(…, on_data_loss="record")'
)


class LossCheck:
    """Compares what a batch has to follow with what there is. Mutable; for one thread at a time."""

    def __init__(self) -> None:
        self._missing_looks = 0
        self._short_looks = 0

    def positions(self, before: Positions, look: Look) -> None:
        """Check all that a batch has to follow, whether or not there is anything behind it.

        A log that ends before the position is not just one without new records: what is written
        next takes offsets that were read already, and would be passed over.

        Raises:
            SourceDataLost: As :meth:`topics`, or the log ends too early.
            InfrastructureError: Something is missing for now.
        """
        self.topics(before, look)
        try:
            self.ends(before, look)
        except OffsetRegression as error:
            self._short_looks += 1
            if self._short_looks < MISSING_LOOKS_MAX:
                raise InfrastructureError(f"looking again: {error}") from error
            raise
        self._short_looks = 0

    def topics(self, before: Positions, look: Look) -> None:
        """Check that the topics are those that were read before.

        Raises:
            OffsetRegression: One was made anew.
            SourceDataLost: One is gone for good.
            InfrastructureError: One is missing for now.
        """
        missing = sorted(before.ids.keys() - look.topics.keys())
        if missing:
            self._missing_looks += 1
            if self._missing_looks < MISSING_LOOKS_MAX:
                raise InfrastructureError(f"topic {missing[0]!r} is not there; looking again")
            raise SourceDataLost(
                f"topic {missing[0]!r} of a Kafka spout is gone; expected the topic that was read "
                f"before; {_ADVICE}",
                topic=missing[0],
            )
        self._missing_looks = 0
        for name, id in before.ids.items():
            if look.topics[name].id != id:
                raise made_anew(name, id, look.topics[name].id)

    @staticmethod
    def ends(before: Positions, look: Look) -> None:
        """Check that no log ends before its position.

        Raises:
            OffsetRegression: One does.
        """
        for place, each in before.ranges.items():
            bounds = look.bounds.get(place)
            same = bounds is not None and look.topics[place.topic].id == before.ids[place.topic]
            if bounds is not None and same and each.end > bounds.end:
                raise cut_short(place, each.end, bounds.end)

    @staticmethod
    def range(place: PartitionPosition, start: int, bounds: Range) -> None:
        """Check that offset *start* can still be read.

        Raises:
            SourceDataLost: It is deleted.
            OffsetRegression: It lies beyond the log.
        """
        if start < bounds.start:
            raise deleted(place, start, bounds.start)
        if start > bounds.end:
            raise cut_short(place, start, bounds.end)


def losses(positions: Positions, look: Look) -> list[Lost]:
    """Return what is gone of what comes after *positions*, in topics and partitions that differ.

    A topic that is not seen now is none of them: it may be seen again, and then goes on.
    """
    gone = []
    for place, each in positions.ranges.items():
        topic = look.topics.get(place.topic)
        if topic is not None and topic.id != positions.ids[place.topic]:
            gone.append(Lost(place, each.end, None))
            continue
        bounds = look.bounds.get(place)
        if bounds is not None and each.end < bounds.start:
            gone.append(Lost(place, each.end, bounds.start))
    return gone


def unseen(positions: Positions, look: Look) -> dict[PartitionPosition, Range]:
    """Return an empty range at the end of each partition that *look* does not show.

    One broker of a cluster may know of less than another did before. A position that were
    forgotten then would be the beginning when the partition is seen again.
    """
    seen = set(look.places)
    return {
        place: Range(each.end, each.end)
        for place, each in positions.ranges.items()
        if place not in seen
        and (
            place.topic not in look.topics
            or look.topics[place.topic].id == positions.ids[place.topic]
        )
    }


def cut_short(place: PartitionPosition, wanted: int, end: int) -> OffsetRegression:
    """Return the error for a log that ends before what is wanted next."""
    return OffsetRegression(
        f"partition {place.partition} of topic {place.topic!r} ends at offset {end}, but offset "
        f"{wanted} is wanted next; the log was truncated, or the offset was given wrong; bring the "
        "data back, or begin with a new topology id",
        topic=place.topic,
        partition=place.partition,
        wanted=wanted,
        end=end,
    )


def deleted(place: PartitionPosition, wanted: int, available: int) -> SourceDataLost:
    """Return the error for records that were deleted before they were read."""
    return SourceDataLost(
        f"records of partition {place.partition} of topic {place.topic!r} were deleted before they "
        f"were read; wanted is offset {wanted}; the first that is there is {available}; "
        f"retention is too short for how far the topology was behind; {_ADVICE}",
        topic=place.topic,
        partition=place.partition,
        wanted=wanted,
        available=available,
    )


def made_anew(topic: str, expected: str, got: str) -> OffsetRegression:
    """Return the error for a topic that was deleted and made again."""
    return OffsetRegression(
        f"topic {topic!r} was deleted and made again; got id {got}; expected {expected}, whose "
        f"records the next batch follows; {_ADVICE}",
        topic=topic,
    )
