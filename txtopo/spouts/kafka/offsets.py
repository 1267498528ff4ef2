"""Offsets: which partitions there are, and from where to where they can be read now."""

from __future__ import annotations

import atexit
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from txtopo.errors import ConfigError, InfrastructureError
from txtopo.kafka_connection import HEARD_MAX, Connection, Heard
from txtopo.spouts.kafka.positions import Place, Range, Start

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
    bounds: Mapping[Place, Range]

    @property
    def places(self) -> list[Place]:
        """All partitions, also those without a leader."""
        return [
            Place(name, partition)
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

    def look(self, places: Iterable[Place] | None = None) -> Look:
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

    def bounds(self, places: Sequence[Place]) -> dict[Place, Range]:
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
        self, start: Start, look: Look, places: Sequence[Place], *, first: bool
    ) -> dict[Place, int]:
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

    def _starts(self, start: Start, look: Look, places: Sequence[Place]) -> dict[Place, int]:
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

    def _ask(self, places: Sequence[Place], what: OffsetSpec) -> dict[Place, Any]:
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
        return {Place(at.topic, at.partition): answer for at, answer in asked.items()}

    def _answers(self, asked: Mapping[Place, Any]) -> dict[Place, int]:
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
