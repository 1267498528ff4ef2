"""What the schema of a record says of its columns: a Connect schema in JSON, or one of Avro.

Avro's schemas come from Connect's: ``connect.name`` has the semantic type, and fastavro has already
turned logical types into decimals and times when the values arrive here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from txtopo.extras import require
from txtopo.kafka.formats.debezium_values import ColumnMeaning
from txtopo.kafka.formats.record_format import Part, Row
from txtopo.kafka.formats.schema_format import SchemaFormat, Setting
from txtopo.tuples import Field

if TYPE_CHECKING:
    from txtopo.kafka.formats.registry_client import ReadingContext, RegistryClient

Meanings = Mapping[str, ColumnMeaning]


class WrittenPart(NamedTuple):
    """What was written into the key or value of a record.

    Attributes:
        value: The object.
        meanings: Returns what the schema says of the fields of a part of the object, such as
            ``after``; None is the object itself.
    """

    value: dict[str, Any]
    meanings: Callable[[str | None], Meanings]


def connect_meanings(schema: Any, part: str | None) -> Meanings:
    """Return what a Connect schema in JSON says of fields; nothing if there is none."""
    fields = _connect_fields(schema)
    if part is not None:
        fields = _connect_fields(next((f for f in fields if f.get("field") == part), None))
    return {
        str(each.get("field")): ColumnMeaning(
            _text(each.get("type")), _text(each.get("name")), _scale(each.get("parameters"))
        )
        for each in fields
    }


def _connect_fields(schema: Any) -> list[dict[str, Any]]:
    fields = schema.get("fields") if isinstance(schema, dict) else None
    return [each for each in fields or () if isinstance(each, dict)]


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _scale(parameters: object) -> int | None:
    text = parameters.get("scale") if isinstance(parameters, dict) else None
    try:
        return None if text is None else int(text)
    except (ValueError, TypeError):
        return None


class SelfDescribed(SchemaFormat):
    """Avro records as they were written, with what their own schemas say; one column.

    Args:
        registry: URL of the registry.
        settings: More settings of ``SchemaRegistryClient``.
    """

    module = "confluent_kafka.schema_registry.avro"

    def __init__(self, registry: str, settings: Mapping[str, Setting] | None) -> None:
        require(self.module, "Debezium with a registry")
        super().__init__(
            "records of Debezium",
            [Field("", "binary")],
            registry=registry,
            subject=None,
            auto_register=False,
            settings=settings,
            identity="self-described",
        )

    def check_writable(self) -> None:
        """Never called: a sink does not take this format."""
        raise NotImplementedError

    def encoder(self, client: RegistryClient, topic: str, part: Part) -> Any:
        """Never called: a sink does not take this format."""
        raise NotImplementedError

    def decoder(self, client: RegistryClient, part: Part) -> Callable[[bytes, ReadingContext], Row]:
        """Return a function that decodes a record by the schema that it was written with."""
        from confluent_kafka.schema_registry.avro import AvroDeserializer

        from txtopo.kafka.formats.avro import read_schema
        from txtopo.kafka.formats.registry_client import id_of, read_schema_id

        conf = {**self.subject_conf(), "schema.id.deserializer": read_schema_id}
        deserialize: Any = AvroDeserializer(client, None, conf=conf)
        known: dict[object, Any] = {}

        def decode(data: bytes, reading: ReadingContext) -> Row:
            value = deserialize(data, reading)
            if not isinstance(value, dict):
                raise ValueError("it is not an Avro record")  # noqa: TRY004
            id = id_of(reading.schema_id)
            if id not in known:
                asked = (
                    client.get_schema(id)
                    if isinstance(id, int)
                    else client.get_schema_by_guid(str(id))
                )
                known[id] = read_schema(asked.schema_str)[1]
            whole = known[id]
            return {"": WrittenPart(value, lambda part: avro_meanings(whole, part))}

        return decode


def avro_meanings(schema: Any, part: str | None) -> Meanings:
    """Return what an Avro schema, with its named types spelled out, says of fields."""
    fields = _avro_fields(schema)
    if part is not None:
        fields = _avro_fields(next((f["type"] for f in fields if f["name"] == part), None))
    return {each["name"]: _avro_meaning(_not_null(each["type"])) for each in fields}


def _avro_fields(schema: Any) -> list[dict[str, Any]]:
    schema = _not_null(schema)
    fields: list[dict[str, Any]] = schema.get("fields") or [] if isinstance(schema, dict) else []
    return fields


def _not_null(schema: Any) -> Any:
    if not isinstance(schema, list):
        return schema
    return next((each for each in schema if each != "null"), "null")


def _avro_meaning(schema: Any) -> ColumnMeaning:
    if not isinstance(schema, dict):
        return ColumnMeaning(str(schema))
    kind = schema["type"] if isinstance(schema["type"], str) else "struct"
    return ColumnMeaning(kind, _text(schema.get("connect.name")), schema.get("scale"))
