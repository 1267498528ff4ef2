"""Records: Kafka's records as columns, with their keys and values decoded."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from txtopo.errors import ConfigError, EmitError
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
                arrays.append(self._column(name, records))
        fitting = [a.cast(f.type) for a, f in zip(arrays, schema, strict=True)]
        return pa.record_batch(fitting, schema=schema)

    def _column(self, name: str, records: Sequence[Message]) -> pa.Array:
        import pyarrow as pa

        if name in ("key", "value"):
            array = pa.array([getattr(r, name)() for r in records], pa.binary())
            decoder = getattr(self, name)
            return array if decoder == "bytes" else self._text(name, array, records)
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

    def _text(self, name: str, array: pa.Array, records: Sequence[Message]) -> pa.Array:
        import pyarrow as pa

        try:
            return array.cast(pa.string())
        except pa.ArrowInvalid as error:
            raise _undecodable(name, "UTF-8", records, lambda data: data.decode()) from error

    def _objects(self, records: Sequence[Message]) -> list[pa.Array]:
        """Return a column for each field of the JSON objects; a tombstone has only NULLs."""
        import pyarrow as pa
        from pyarrow import json as arrow_json

        assert isinstance(self.value, Fields)
        # A newline in JSON is only space; in a string it is written \n.
        found = (record.value() for record in records)
        lines = [b"{}" if data is None else data.replace(b"\n", b" ") for data in found]
        schema = self.value.arrow_schema()
        block = b"\n".join(lines)
        try:
            table = arrow_json.read_json(
                pa.BufferReader(block),
                arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1),
                arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
            ).select(schema.names)
            if table.num_rows != len(records):
                raise ValueError(f"{len(records)} values hold {table.num_rows} objects")
        except (pa.ArrowInvalid, ValueError) as error:
            raise _undecodable(
                "value", f"JSON objects of {self.value!r}", records, _one(schema)
            ) from error
        return [column.combine_chunks() for column in table.columns]


def _one(schema: pa.Schema) -> Callable[[bytes], object]:
    """Return what raises for a value that alone cannot be read."""

    def read(data: bytes) -> object:
        import pyarrow as pa
        from pyarrow import json as arrow_json

        if not isinstance(json.loads(data), dict):
            raise ValueError("it is no JSON object")  # noqa: TRY004 - told like other bad values
        return arrow_json.read_json(
            pa.BufferReader(data.replace(b"\n", b" ")),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="ignore"
            ),
        )

    return read


def _undecodable(
    what: str, kind: str, records: Sequence[Message], decode: Callable[[bytes], object]
) -> EmitError:
    for record in records:
        data = getattr(record, what)()
        try:
            if data is not None:
                decode(data)
        except ValueError as error:
            topic, partition, offset = record.topic(), record.partition(), record.offset()
            return EmitError(
                f"the {what} of the record at offset {offset} of partition {partition} of topic "
                f"{topic!r} is no {kind}; got {data!r:.100} ({error}); mend what writes it, or "
                "decode bytes yourself in a bolt",
                topic=topic,
                partition=partition,
                offset=offset,
            )
    return EmitError(f"the {what}s of a batch are no {kind}; decode bytes yourself in a bolt")


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
