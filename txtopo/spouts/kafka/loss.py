"""What has gone: records that were deleted before they were read, topics deleted or made anew."""

from __future__ import annotations

from txtopo.errors import InfrastructureError, OffsetRegression, SourceDataLost
from txtopo.spouts.kafka.offsets import Look
from txtopo.spouts.kafka.positions import Lost, Place, Positions, Range

# A broker that has just started may not know all topics yet. Each look at which one is missing
# fails the planning, which is tried again after a pause; so this is some seconds.
_MISSING_LOOKS_MAX = 5
_ADVICE = (
    "bring the data back, or begin with a new topology id; where losing it is right, use "
    'KafkaOpaqueSpout(…, on_data_loss="record")'
)


class LossCheck:
    """Compares what a batch has to follow with what there is. Mutable; for one thread at a time."""

    def __init__(self) -> None:
        self._missing_looks = 0

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
            if self._missing_looks < _MISSING_LOOKS_MAX:
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
    def range(place: Place, start: int, bounds: Range) -> None:
        """Check that offset *start* can still be read.

        Raises:
            SourceDataLost: It is deleted.
            OffsetRegression: It lies beyond the log.
        """
        if start < bounds.start:
            raise deleted(place, start, bounds.start)
        if start > bounds.end:
            raise OffsetRegression(
                f"partition {place.partition} of topic {place.topic!r} ends at offset "
                f"{bounds.end}, but offset {start} is wanted next; the log was truncated, or the "
                f"offset was given wrong; {_ADVICE}",
                topic=place.topic,
                partition=place.partition,
                wanted=start,
                end=bounds.end,
            )


def losses(positions: Positions, look: Look) -> list[Lost]:
    """Return what is gone of what comes after *positions*, in topics and partitions that differ."""
    gone = []
    for place, each in positions.ranges.items():
        topic = look.topics.get(place.topic)
        if topic is None or topic.id != positions.ids[place.topic]:
            gone.append(Lost(place, each.end, None))
            continue
        bounds = look.bounds.get(place)
        if bounds is not None and each.end < bounds.start:
            gone.append(Lost(place, each.end, bounds.start))
    return gone


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
