"""Dead letters: records that cannot be processed, as rows that a topology keeps beside its results.

Rules
-----
1. A dead letter is made while a spout decodes a record (Kafka, files, Python Data Sources), or when
   ``execute`` of a ``BasicBolt`` raises ``RecordFailed`` or an exception that the bolt's
   declaration lists. What the bolt emitted for that tuple is dropped. No mistake but the record's
   makes one: an outage, lost data or a missing library fails the batch as always. ``map_async``
   makes one in the same way of a row that a service does not answer.
2. The rows travel on the stream ``dead_letters`` of the component, as tuples of the batch do, to a
   committer (:mod:`txtopo.bolts.dead_letters`) that writes them under the txid of the batch. So
   they are exactly once by the same means as every state, and an attempt that is dropped leaves
   none.
3. Whether a record becomes a dead letter depends on the record alone, and so does its row. Replays
   decide again, and decide the same; where a service decides, they are compared. The digest of a
   replay (:mod:`txtopo.stages.replays`) has the place and the record, not the text of the error,
   which may change with a library.
4. Each task refuses to make more than the limit of a batch, and the committer checks their sum.
5. All text is printable UTF-8 without NUL, which each store takes, and no column is longer than the
   limits below. Passwords in URLs are hidden in messages; a record is kept as it was read.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from txtopo.errors import TooManyDeadLetters, escaped, text_of
from txtopo.metadata import Json
from txtopo.state.registry import redacted_url
from txtopo.tuples import Fields, Tuple

STREAM = "dead_letters"
"""Name of the stream that has the dead letters of a component."""

FIELDS = Fields(
    "component string, error string, message string, place string, record string, "
    "encoding string, truncated boolean"
)

CONTENT = ("component", "place", "record", "encoding", "truncated")
"""The fields that follow from the record, without those that follow from the error."""

Row = tuple[str, str, str, str, str, str, bool]
"""One value for each of ``FIELDS``."""

BATCH_RECORDS_MAX = 100
"""A batch with more bad records is probably a mistake of ours, e.g. in the declared fields."""

# A hundred of them are far below the memory of a driver, and one fits into a Kafka message of 1 MB.
RECORD_BYTES_MAX = 64 * 1024

MESSAGE_CHARACTERS_MAX = 2_000

# A part of a place, such as the key of a Kafka record or the offsets of a data source.
PLACE_CHARACTERS_MAX = 1_000

# Where an object is in memory, in the text that Python gives it. A replay has it elsewhere.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


@dataclass(frozen=True, slots=True)
class DeadLetterRule:
    """When a component makes a dead letter of a record.

    Attributes:
        batch_records_max: The most dead letters of a batch.
        errors: The exceptions of a bolt that make one, beside ``RecordFailed``.
    """

    batch_records_max: int = BATCH_RECORDS_MAX
    errors: tuple[type[Exception], ...] = ()


def dead_letter(component: str, error: Exception, place: Mapping[str, Json], record: object) -> Row:
    """Return the row of a record that cannot be processed.

    Args:
        component: Id of the spout or bolt.
        error: Why it cannot be processed.
        place: Where it was read.
        record: The record: bytes as they were read, a tuple, or other values that become JSON.
    """
    text, encoding, truncated = _record(record)
    shown = {name: _bounded(part) for name, part in place.items()}
    return (
        component,
        _name(type(error)),
        _message(error),
        _json(shown),
        text,
        encoding,
        truncated,
    )


def too_many(count: int, limit: int, first: Sequence[Any]) -> TooManyDeadLetters:
    """Return the error for a batch with more dead letters than its limit."""
    named = dict(zip(FIELDS.names, first, strict=True))
    # It goes to the driver with the error, which must not be too large to be pickled.
    named["record"] = _shortened(named["record"], PLACE_CHARACTERS_MAX)
    return TooManyDeadLetters(
        f"a batch has too many dead letters; got {count} or more; expected at most {limit}; the "
        f"first is of {named['component']!r}, {named['place']}: {named['error']}: "
        f"{named['message']}; nothing of the batch is committed; fix the source, the declared "
        "fields or the bolt, or allow more with DeadLetters(…, batch_records_max=…)",
        count=count,
        batch_records_max=limit,
        first=named,
    )


def in_order(rows: Sequence[Row]) -> list[Row]:
    """Return rows in an order that depends on nothing but the rows."""
    return sorted(rows, key=_rank)


def _rank(row: Row) -> tuple[str, list[tuple[bool, int, str]], tuple[object, ...], Row]:
    """Return the sort key of a row: offsets and lines as numbers, then everything else.

    The text of the error comes last, since it may be another one in a replay.
    """
    place = json.loads(row[3]).values()
    parts = [(True, p, "") if type(p) is int else (False, 0, str(p)) for p in place]
    return row[0], parts, row[4:], row


def _name(kind: type) -> str:
    if kind.__module__ == "builtins" or kind.__module__.partition(".")[0] == "txtopo":
        return escaped(kind.__qualname__)
    return escaped(f"{kind.__module__}.{kind.__qualname__}")


def _message(error: Exception) -> str:
    # Hidden before it is cut: a cut might take the @ away by which a password is found.
    text = redacted_url(text_of(error)[: 10 * MESSAGE_CHARACTERS_MAX])
    return _shortened(escaped(text, kept="\n\t"))


def _shortened(text: str, characters_max: int = MESSAGE_CHARACTERS_MAX) -> str:
    return text if len(text) <= characters_max else f"{text[: characters_max - 1]}…"


def _record(record: object) -> tuple[str, str, bool]:
    """Return a record as text, how the text is to be read, and whether it was cut."""
    if isinstance(record, bytes):
        return _bytes(record)
    values = record
    if isinstance(record, Tuple):
        values = dict(zip(record.fields.names, record.values, strict=True))
    text = _json(_plain(values))
    if len(text.encode()) <= RECORD_BYTES_MAX:
        return text, "json", False
    parts = list(values.values()) if isinstance(values, dict) else values
    share = RECORD_BYTES_MAX // (8 * len(parts) if isinstance(parts, list | tuple) and parts else 8)
    text = _json(_plain(values, characters_max=share))
    # What is still too long has very many values; only the beginning of the JSON is kept.
    return text.encode()[:RECORD_BYTES_MAX].decode(errors="ignore"), "json", True


def _bytes(record: bytes) -> tuple[str, str, bool]:
    kept, truncated = record[:RECORD_BYTES_MAX], len(record) > RECORD_BYTES_MAX
    # The cut may be inside a character of up to four bytes.
    for end in range(len(kept), len(kept) - (4 if truncated else 1), -1):
        try:
            text = kept[:end].decode()
        except UnicodeDecodeError:
            continue
        if "\0" not in text:
            return text, "text", truncated
    return base64.b64encode(kept).decode(), "base64", truncated


def _bounded(part: Json) -> Json:
    """Return a part of a place; a long one becomes the beginning of its text."""
    if isinstance(part, str):
        return _shortened(escaped(part, kept="\n\t"), PLACE_CHARACTERS_MAX)
    if isinstance(part, list | dict):
        text = _json(part)
        return part if len(text) <= PLACE_CHARACTERS_MAX else _shortened(text, PLACE_CHARACTERS_MAX)
    return part


def _json(value: object) -> str:
    """Return JSON that is UTF-8: it shows other languages, and escapes lone surrogates."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, default=str)
    return text


def _plain(value: object, characters_max: int | None = None) -> object:
    """Return a value that JSON takes: bytes as base64, others as text; long text is cut."""
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        return {"base64": base64.b64encode(data[:characters_max]).decode()}
    if isinstance(value, str):
        return value[:characters_max]
    if isinstance(value, int):
        # Python refuses to write larger ones in digits.
        return value if value.bit_length() <= 4_096 else hex(value)[:characters_max]
    if value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {_text(name): _plain(part, characters_max) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part, characters_max) for part in value]
    if isinstance(value, set | frozenset):
        return sorted((_plain(part, characters_max) for part in value), key=repr)
    return _text(value)[:characters_max]


def _text(value: object) -> str:
    """Return an object of any class as text, which is the same in every process."""
    try:
        text = str(value)
    except Exception:  # noqa: BLE001 - a class of the user's may raise anything
        text = f"({_name(type(value))} that cannot be printed)"
    return _ADDRESS.sub("", text)
