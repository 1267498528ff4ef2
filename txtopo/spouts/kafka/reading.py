"""Reading: the records of ranges of offsets, in the tasks.

A consumer is told where to read, never a member of a group. A range is finished at a record with
the last offset or a later one, or at the end of the log at or behind the range's end: markers of
transactions and compaction leave gaps, so the last offset itself may never come. Nothing here waits
without limit: a broker that is dead, a topic that is gone and a log that ends before the range does
are all just silent.
"""

from __future__ import annotations

import atexit
import os
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from txtopo.errors import InfrastructureError, OffsetRegression, TxtopoError
from txtopo.kafka_connection import HEARD_MAX, Connection, Heard
from txtopo.spouts.kafka.loss import deleted
from txtopo.spouts.kafka.positions import Place, Range

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

_ERROR, _OFFSET, _PARTITION = map(methodcaller, ("error", "offset", "partition"))
POLL_S = 0.02
CONSUME_MAX = 10_000
# Connecting takes 20 to 50 ms, and Spark keeps no slot on one worker process: so each process has
# idle consumers of its own, by configuration. Keyed by the process too, for forks.
_idle: dict[tuple[object, ...], deque[_Lent]] = {}
_IDLE_MAX = 4


def read_ranges(
    connection: Connection, ranges: Mapping[Place, Range]
) -> dict[Place, list[Message]]:
    """Read the records of ranges, all partitions at once.

    Returns:
        The records by partition, in the order of their offsets.

    Raises:
        SourceDataLost: The first records of a range are deleted.
        OffsetRegression: Its last ones are not there.
        InfrastructureError: The cluster did not answer in time; try again.
    """
    wanted = {place: each for place, each in ranges.items() if each.start < each.end}
    if not wanted:
        return {}
    with _lent(connection) as lent, connection.named_errors("read", lent.heard):
        lent.meet({place.topic for place in wanted}, connection.timeout_s)
        return _Reading(connection, lent.consumer, lent.heard, wanted).all()


class _Reading:
    def __init__(
        self,
        connection: Connection,
        consumer: Consumer,
        heard: Heard,
        wanted: Mapping[Place, Range],
    ) -> None:
        self._connection = connection
        self._consumer = consumer
        self._wanted = wanted
        self._next = {place: each.start for place, each in wanted.items()}
        self._records: dict[Place, list[Message]] = {place: [] for place in wanted}
        self._short: dict[Place, int] = {}
        self._heard = heard
        topics = {place.topic for place in wanted}
        self._key = _PARTITION if len(topics) == 1 else _where

    def all(self) -> dict[Place, list[Message]]:
        """Read until every range is finished."""
        places = [_at(place, each.start) for place, each in self._wanted.items()]
        self._consumer.assign(places)
        # A partition that was paused stays so when it is assigned again.
        self._consumer.resume(places)
        idle_s = 0.0
        while self._next:
            left = sum(self._wanted[place].end - at for place, at in self._next.items())
            # A larger number than there is would wait out its time.
            got = self._consumer.consume(min(left, CONSUME_MAX), POLL_S)
            idle_s = 0.0 if self._take(got) else idle_s + POLL_S
            if idle_s > self._connection.timeout_s:
                raise self._silence()
        self._consumer.unassign()
        return self._records

    def _take(self, got: Sequence[Message]) -> bool:
        """Take what came; return whether it brought a range on."""
        moved = False
        # A fetch brings a stretch of one partition, which is taken in one step: calls from Python
        # for single records cost more than all the rest of the reading.
        plain = not any(map(_ERROR, got))
        for _, records in groupby(got, self._key):
            stretch = list(records)
            first = stretch[0]
            place = Place(str(first.topic()), int(first.partition() or 0))
            if not plain and any(map(_ERROR, stretch)):
                moved |= sum(map(self._take_one, stretch)) > 0
            elif place in self._next:
                end = self._wanted[place].end
                if _OFFSET(stretch[-1]) >= end:  # it was fetched beyond the range
                    del stretch[bisect_left(stretch, end, key=_OFFSET) :]
                    self._records[place] += stretch
                    self._reached(place, end)
                else:
                    self._records[place] += stretch
                    self._reached(place, _OFFSET(stretch[-1]) + 1)
                moved = True
        return moved

    def _take_one(self, message: Message) -> bool:
        place = Place(str(message.topic()), int(message.partition() or 0))
        error = message.error()
        if place not in self._next:
            return False
        offset = int(message.offset() or 0)
        if error is not None:
            return self._take_event(place, error, offset)
        if offset < self._wanted[place].end:
            self._records[place].append(message)
        self._reached(place, offset + 1)
        return True

    def _take_event(self, place: Place, error: KafkaError, offset: int) -> bool:
        if error.name() == "_PARTITION_EOF":
            self._short[place] = offset
            self._reached(place, offset)
            return place not in self._next
        if error.name() == "_AUTO_OFFSET_RESET":
            low, high = self._consumer.get_watermark_offsets(
                _at(place, 0), timeout=self._connection.timeout_s
            )
            wanted = self._next[place]
            raise deleted(place, wanted, low) if wanted < low else self._beyond(place, high)
        self._heard.append(error)
        return False

    def _reached(self, place: Place, offset: int) -> None:
        if offset >= self._wanted[place].end:
            del self._next[place]
            if self._next:
                self._consumer.pause([_at(place, 0)])
        else:
            self._next[place] = max(offset, self._next[place])

    def _silence(self) -> TxtopoError:
        for place, end in self._short.items():
            if place in self._next:
                return self._beyond(place, end)
        place, at = next(iter(self._next.items()))
        for error in self._heard:
            fault = self._connection.fault("read", error, self._heard)
            if not isinstance(fault, InfrastructureError):
                return fault
        heard = f"; last heard: {self._heard[-1].str()}" if self._heard else ""
        return InfrastructureError(
            f"Kafka {self._connection.servers} sent nothing of {place} from offset {at} for "
            f"{self._connection.timeout_s} s{heard}; is the broker down?",
            topic=place.topic,
            partition=place.partition,
        )

    def _beyond(self, place: Place, end: int) -> OffsetRegression:
        wanted = self._wanted[place]
        return OffsetRegression(
            f"partition {place.partition} of topic {place.topic!r} ends at offset {end}, but a "
            f"planned batch has the offsets {wanted.start} to {wanted.end - 1}; the log was "
            "truncated or the topic made again; bring the data back, or begin with a new topology "
            "id",
            topic=place.topic,
            partition=place.partition,
            wanted=wanted.end - 1,
            end=end,
        )


@dataclass(slots=True)
class _Lent:
    """A consumer, what it heard of, and the topics that it has met."""

    consumer: Consumer
    heard: Heard
    topics: set[str] = field(default_factory=set)

    def meet(self, topics: set[str], timeout_s: float) -> None:
        """Make the topics known to a consumer that has met others.

        A new consumer asks for the first ones at once. One that is told of a topic later waits for
        its next look at all topics, which comes once a second.
        """
        if self.topics:
            for topic in topics - self.topics:
                self.consumer.list_topics(topic, timeout=timeout_s)
        self.topics |= topics


@contextmanager
def _lent(connection: Connection) -> Iterator[_Lent]:
    """Lend a consumer of this process; one that met an error is not used again."""
    from confluent_kafka import Consumer

    idle = _idle.setdefault((os.getpid(), *connection.key()), deque())
    try:
        lent = idle.pop()
    except IndexError:
        heard: Heard = deque(maxlen=HEARD_MAX)
        lent = _Lent(Consumer(connection.of_consumer(heard)), heard)
    try:
        yield lent
    except BaseException:
        lent.consumer.close()
        raise
    if len(idle) < _IDLE_MAX:
        lent.heard.clear()
        idle.append(lent)
    else:
        lent.consumer.close()


@atexit.register
def _close_idle() -> None:
    """Close the consumers while Python still stands; their threads call into it."""
    for (process, *_), idle in _idle.items():
        while process == os.getpid() and idle:
            idle.pop().consumer.close()


def _where(message: Message) -> Any:
    return message.topic(), message.partition()


def _at(place: Place, offset: int) -> TopicPartition:
    from confluent_kafka import TopicPartition

    return TopicPartition(place.topic, place.partition, offset)
