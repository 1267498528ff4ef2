"""Positions: which records a batch has, as its metadata says, and where the first one starts.

For each topic the metadata names its id (a topic that is made again under its name gets another
one) and for each partition the range of offsets [start, end). A partition without new records has
an empty range, so that the next batch finds its position there. Offsets of records that are no
longer there, or that never had one (markers of transactions), are in the ranges like any others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple

from txtopo.errors import ConfigError, SchemaVersionError
from txtopo.metadata import Json

METADATA_VERSION = 1


class Place(NamedTuple):
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

    place: Place
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
    ranges: Mapping[Place, Range] = field(default_factory=dict)
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
    ranges: dict[Place, Range] = {}
    topics = metadata["topics"]
    assert isinstance(topics, dict)
    for name, topic in topics.items():
        assert isinstance(topic, dict)
        ids[name] = str(topic["id"])
        stored = topic["ranges"]
        assert isinstance(stored, dict)
        for partition, each in stored.items():
            start, end = _numbers(each)
            ranges[Place(name, int(partition))] = Range(start, end)
    lost = metadata.get("lost") or []
    assert isinstance(lost, list)
    return Positions(ids, ranges, tuple(_lost(each) for each in lost))


def _lost(stored: Json) -> Lost:
    assert isinstance(stored, list)
    topic, *numbers = stored
    assert isinstance(topic, str)
    end = None if numbers[-1] is None else _numbers(numbers)[-1]
    partition, start = _numbers(numbers[:2])
    return Lost(Place(topic, partition), start, end)


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
