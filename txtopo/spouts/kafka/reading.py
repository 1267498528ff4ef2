"""Reading: the records of ranges of offsets, in the tasks.

A consumer is told where to read, never a member of a group. A range is finished at a record with
the last offset or a later one, or at the end of the log at or behind the range's end: markers of
transactions and compaction leave gaps, so the last offset itself may never come. Nothing here waits
without limit: a broker that is dead, a topic that is gone and a log that ends before the range does
are all just silent.

The next batch mostly starts where this one ends. So a consumer keeps its assignment, and what it
fetched beyond the ranges; a reading of the same partitions from there on goes on with them. All
others assign anew.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from txtopo.errors import InfrastructureError, OffsetRegression, TxtopoError
from txtopo.kafka_connection import Connection
from txtopo.spouts.kafka.consumers import Lent, lent_consumer
from txtopo.spouts.kafka.loss import deleted
from txtopo.spouts.kafka.positions import Place, Range

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, TopicPartition

_ERROR, _OFFSET, _PARTITION = map(methodcaller, ("error", "offset", "partition"))
POLL_S = 0.02
CONSUME_MAX = 10_000
# At least so many records of a partition are kept while others are read; then it is paused.
AHEAD_MIN = 10_000
# An end that was told before is not told again. So a reading that goes on, and gets nothing for
# this long though there should be something, assigns anew.
GOES_ON_IDLE_S = 0.1


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
    topics = {place.topic for place in wanted}
    with lent_consumer(connection, topics) as lent, connection.named_errors("read", lent.heard):
        return _Reading(connection, lent, wanted).all()


class _Reading:
    def __init__(self, connection: Connection, lent: Lent, wanted: Mapping[Place, Range]) -> None:
        self._connection = connection
        self._lent = lent
        self._consumer = lent.consumer
        self._heard = lent.heard
        self._wanted = wanted
        self._next = {place: each.start for place, each in wanted.items()}
        self._records: dict[Place, list[Message]] = {place: [] for place in wanted}
        self._ahead: dict[Place, list[Message]] = {}
        self._short: dict[Place, int] = {}
        topics = {place.topic for place in wanted}
        self._key = _PARTITION if len(topics) == 1 else _where
        self._goes_on = lent.stands == self._next
        # What is next to come from the consumer; behind `_next` where more was fetched.
        self._fetched = dict(self._next)
        self._paused: set[Place] = set()
        self._lost = False

    def all(self) -> dict[Place, list[Message]]:
        """Read until every range is finished."""
        self._begin()
        idle_s = 0.0
        while self._next:
            if self._goes_on and (self._lost or idle_s > GOES_ON_IDLE_S or self._waits):
                self._assign()
            left = sum(self._wanted[place].end - at for place, at in self._next.items())
            # A larger number than there is would wait out its time.
            got = self._consumer.consume(min(left, CONSUME_MAX), POLL_S)
            idle_s = 0.0 if self._take(got) else idle_s + POLL_S
            if idle_s > self._connection.timeout_s:
                raise self._silence()
        lent = self._lent
        lent.stands = {place: each.end for place, each in self._wanted.items()}
        lent.fetched, lent.ahead, lent.paused = self._fetched, self._ahead, self._paused
        return self._records

    def _begin(self) -> None:
        lent = self._lent
        ahead, lent.ahead, lent.stands = lent.ahead, {}, {}
        if not self._goes_on:
            self._assign()
            return
        self._paused = lent.paused
        for place, stretch in ahead.items():
            self._take_stretch(place, stretch)
        self._fetched = {p: max(n, self._fetched[p]) for p, n in lent.fetched.items()}

    @property
    def _waits(self) -> bool:
        """Whether a partition that is wanted was paused."""
        return bool(self._paused & self._next.keys())

    def _assign(self) -> None:
        """Have the consumer fetch anew what it has not brought yet."""
        self._goes_on, self._paused = False, set()
        places = [_at(place, offset) for place, offset in self._fetched.items()]
        self._consumer.assign(places)
        # A partition that was paused stays so when it is assigned again.
        self._consumer.resume(places)

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
            else:
                moved |= self._take_stretch(place, stretch)
        return moved

    def _take_stretch(self, place: Place, stretch: list[Message]) -> bool:
        """Take records of one partition that follow each other; none is taken twice."""
        if place not in self._wanted:
            return False
        if _OFFSET(stretch[0]) < self._fetched[place]:
            stretch = stretch[bisect_left(stretch, self._fetched[place], key=_OFFSET) :]
            if not stretch:
                return False
        end, fetched = self._wanted[place].end, _OFFSET(stretch[-1]) + 1
        cut = bisect_left(stretch, end, key=_OFFSET) if fetched > end else len(stretch)
        self._records[place] += stretch[:cut]
        self._fetched[place] = fetched
        if cut < len(stretch):
            self._keep(place, stretch[cut:])
        return self._reached(place, fetched)

    def _keep(self, place: Place, beyond: list[Message]) -> None:
        """Keep what was fetched beyond a range for the next reading, up to the size of a range."""
        kept = self._ahead.setdefault(place, [])
        kept += beyond
        start, end = self._wanted[place]
        if len(kept) > max(AHEAD_MIN, end - start) and place not in self._paused:
            self._consumer.pause([_at(place, 0)])
            self._paused.add(place)

    def _take_one(self, message: Message) -> bool:
        place = Place(str(message.topic()), int(message.partition() or 0))
        error = message.error()
        if error is None:
            return self._take_stretch(place, [message])
        return place in self._next and self._take_event(place, error, int(message.offset() or 0))

    def _take_event(self, place: Place, error: KafkaError, offset: int) -> bool:
        if error.name() == "_PARTITION_EOF":
            self._short[place] = offset
            self._fetched[place] = max(offset, self._fetched[place])
            self._reached(place, offset)
            return place not in self._next
        if error.name() == "_AUTO_OFFSET_RESET" and self._goes_on:
            self._lost = True  # it may be about what was fetched ahead: assign anew and see
            return False
        if error.name() == "_AUTO_OFFSET_RESET":
            low, high = self._consumer.get_watermark_offsets(
                _at(place, 0), timeout=self._connection.timeout_s
            )
            wanted = self._next[place]
            raise deleted(place, wanted, low) if wanted < low else self._beyond(place, high)
        self._heard.append(error)
        return False

    def _reached(self, place: Place, offset: int) -> bool:
        """Note how far a range is read; return whether that is news."""
        if place not in self._next:
            return False
        if offset >= self._wanted[place].end:
            del self._next[place]
        else:
            self._next[place] = max(offset, self._next[place])
        return True

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


def _where(message: Message) -> Any:
    return message.topic(), message.partition()


def _at(place: Place, offset: int) -> TopicPartition:
    from confluent_kafka import TopicPartition

    return TopicPartition(place.topic, place.partition, offset)
