"""Records that a format decodes without a broker, and how it does."""

from __future__ import annotations

import uuid
from typing import Any, NamedTuple

from tests.unit.kafka.formats.messages import tuple_of
from tests.unit.kafka.test_dead_letters import Taken
from tests.unit.kafka.test_decoding import Record
from txtopo.kafka.formats.schema_format import SchemaFormat
from txtopo.kafka.reading import RecordColumns

TOPIC = Record(None).topic()


def written(format: SchemaFormat, *values: Any, topic: str = TOPIC, part: str = "value") -> bytes:
    """Return the bytes that a sink writes for a tuple with these values."""
    return format.writer(topic, part)(tuple_of(format.fields(part), *values))


class Decoded(NamedTuple):
    """What values became.

    Attributes:
        rows: The rows, each with its offset.
        letters: The dead letters.
    """

    rows: list[dict[str, Any]]
    letters: list[Any]


def taken(format: SchemaFormat, *data: bytes | None, dead_letters_max: int | None = 100) -> Decoded:
    """Decode values, with the offsets 0, 1, …; some may become dead letters."""
    made = Taken(RecordColumns(("offset", "value"), value=format), dead_letters_max)
    rows = made.emit(*(Record(each, at) for at, each in enumerate(data)))
    return Decoded(rows, made.letters)


def read(format: SchemaFormat, *data: bytes | None) -> list[dict[str, Any]]:
    """Decode values; one that cannot be decoded is an error."""
    rows = taken(format, *data, dead_letters_max=None).rows
    return [{name: value for name, value in row.items() if name != "offset"} for row in rows]


def a_subject() -> str:
    """Return a subject that no other test has."""
    return f"subject-{uuid.uuid4().hex[:8]}"
