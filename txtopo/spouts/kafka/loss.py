"""What has gone: records that were deleted before they were read, topics deleted or made anew."""

from __future__ import annotations

from txtopo.errors import InfrastructureError, OffsetRegression, SourceDataLost
from txtopo.spouts.kafka.offsets import Look
from txtopo.spouts.kafka.positions import Lost, Place, Positions, Range

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
    def range(place: Place, start: int, bounds: Range) -> None:
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


def unseen(positions: Positions, look: Look) -> dict[Place, Range]:
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


def cut_short(place: Place, wanted: int, end: int) -> OffsetRegression:
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


def deleted(place: Place, wanted: int, available: int) -> SourceDataLost:
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
