"""Records: Kafka's records as columns, with their keys and values decoded."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from txtopo.errors import ConfigError, EmitError
from txtopo.spouts.json_objects import objects
from txtopo.spouts.values import Read, first_bad, fitted_column
from txtopo.tuples import Fields

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Message

Decoder = str | Fields
"""``"bytes"``, ``"string"`` (UTF-8), or the fields of a JSON object."""
COLUMNS = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")
_TYPES = {
    "headers": "string",
    "topic": "string",
    "partition": "int",
    "offset": "long",
    "timestamp": "timestamp",
}
_DECODED = {"bytes": "binary", "string": "string"}
# Envelopes are cut smaller; larger ones only take more memory.
EMIT_ROWS_MAX = 50_000


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Which columns a record becomes. Picklable.

    Attributes:
        columns: Names of :data:`COLUMNS`, in the order in which they are emitted.
        key: ``"bytes"`` or ``"string"``.
        value: A decoder; the fields of a JSON object stand in the place of ``value``.
    """

    columns: tuple[str, ...] = COLUMNS
    key: str = "bytes"
    value: Decoder = "bytes"

    def __post_init__(self) -> None:
        unknown = [name for name in self.columns if name not in COLUMNS]
        if unknown or not self.columns or len(set(self.columns)) < len(self.columns):
            raise ConfigError(
                f"columns of a Kafka spout are wrong; got {self.columns!r}; expected some of "
                f"{', '.join(COLUMNS)}, each once"
            )
        if self.key not in _DECODED:
            raise ConfigError(f"unknown decoder of keys; got {self.key!r}; expected bytes, string")
        if not isinstance(self.value, Fields) and self.value not in _DECODED:
            raise ConfigError(
                f"unknown decoder of values; got {self.value!r}; expected 'bytes', 'string' or "
                "the Fields of a JSON object"
            )

    def fields(self) -> Fields:
        """Return the declared fields of the spout."""
        parts = []
        for name in self.columns:
            if name == "value" and isinstance(self.value, Fields):
                parts += [f"`{field.name}` {field.type}" for field in self.value]
            elif name in ("key", "value"):
                parts.append(f"{name} {_DECODED[str(getattr(self, name))]}")
            else:
                parts.append(f"{name} {_TYPES[name]}")
        return Fields(", ".join(parts))

    def batch(self, records: Sequence[Message], schema: pa.Schema) -> pa.RecordBatch:
        """Return the records as one record batch.

        Raises:
            EmitError: A key or value cannot be decoded; mend what writes it, or the decoder.
        """
        import pyarrow as pa

        arrays: list[pa.Array] = []
        for name in self.columns:
            if name == "value" and isinstance(self.value, Fields):
                arrays += self._objects(records)
            else:
                arrays.append(self._column(name, records, schema.field(name)))
        return pa.record_batch(arrays, schema=schema)

    def _column(self, name: str, records: Sequence[Message], field: pa.Field) -> pa.Array:
        import pyarrow as pa

        def read(start: int, end: int, schema: pa.Schema) -> pa.Array:
            return fitted_column(_array(name, records[start:end]), field.type)

        try:
            return read(0, len(records), pa.schema([field]))
        except (ValueError, OverflowError, pa.ArrowException) as error:
            raise _refused(name, field.type, records, read, pa.schema([field])) from error

    def _objects(self, records: Sequence[Message]) -> list[pa.Array]:
        """Return a column for each field of the JSON objects; a tombstone has only NULLs."""
        assert isinstance(self.value, Fields)
        values = [b"{}" if (data := record.value()) is None else data for record in records]
        schema = self.value.arrow_schema()

        def read(start: int, end: int, schema: pa.Schema) -> pa.Table:
            return objects(values[start:end], schema)

        try:
            table = read(0, len(values), schema)
        except ValueError as error:
            kind = f"one JSON object with {self.value!r}"
            raise _refused("value", kind, records, read, schema) from error
        return [column.combine_chunks() for column in table.columns]


def _array(name: str, records: Sequence[Message]) -> pa.Array:
    import pyarrow as pa

    if name in ("key", "value"):
        return pa.array([getattr(record, name)() for record in records], pa.binary())
    if name == "topic":
        return pa.array([record.topic() for record in records], pa.string())
    if name == "partition":
        return pa.array([record.partition() for record in records], pa.int32())
    if name == "offset":
        return pa.array([record.offset() for record in records], pa.int64())
    if name == "timestamp":
        stamps = [record.timestamp() for record in records]
        milliseconds = pa.array([ms if kind else None for kind, ms in stamps], pa.int64())
        return milliseconds.cast(pa.timestamp("ms", tz="UTC"))
    return pa.array([_headers(record) for record in records], pa.string())


def _refused(
    what: str, expected: object, records: Sequence[Message], read: Read, schema: pa.Schema
) -> EmitError:
    """Return the error that names the first record that cannot be read."""
    bad = first_bad(len(records), schema, read)
    if bad.row is None:
        return EmitError(f"the {what}s of {len(records)} records cannot be read; {bad.reason}")
    record = records[bad.row]
    topic, partition, offset = record.topic(), record.partition(), record.offset()
    got = record.timestamp()[1] if what == "timestamp" else None
    if what in ("key", "value"):
        got = getattr(record, what)()
    field = f"field {bad.field!r} of " if bad.field not in (None, what) else ""
    return EmitError(
        f"{field}the {what} of the record at offset {offset} of partition {partition} of topic "
        f"{topic!r} cannot be read; got {got!r:.100} ({bad.reason}); expected {expected}; mend "
        "what writes it, or decode bytes yourself in a bolt",
        topic=topic,
        partition=partition,
        offset=offset,
        field=bad.field,
    )


def _headers(record: Message) -> str | None:
    """Return the headers as JSON: [name, value] each; a value is text, or {"base64": …}."""
    headers = record.headers()
    return json.dumps([[h[0], _header(h[1])] for h in headers]) if headers else None


def _header(value: Any) -> object:
    if value is None or isinstance(value, str):
        return value
    try:
        return bytes(value).decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
