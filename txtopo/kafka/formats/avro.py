"""Avro records of Kafka, with their schemas in a registry."""

from __future__ import annotations

import base64
import datetime
import decimal
import io
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from txtopo.errors import ConfigError, text_of
from txtopo.extras import require
from txtopo.kafka.formats.avro_nesting import why_not_read
from txtopo.kafka.formats.record_format import Part, Row
from txtopo.kafka.formats.schema_format import SchemaFormat, Setting
from txtopo.tuples import Field

if TYPE_CHECKING:
    from txtopo.kafka.formats.registry_client import ReadingContext, RegistryClient

Schema = Any
"""A schema in JSON: a name, an object, or a list for a union."""

_PRIMITIVES = {
    "boolean": "boolean",
    "int": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
    "fixed": "binary",
    "enum": "string",
}
_LOGICAL = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "timestamp",
    ("long", "timestamp-micros"): "timestamp",
    ("long", "local-timestamp-millis"): "timestamp_ntz",
    ("long", "local-timestamp-micros"): "timestamp_ntz",
    ("string", "uuid"): "string",
}
# fastavro turns them into times of day, for which there is no column type.
_NO_COLUMN = {("int", "time-millis"), ("long", "time-micros"), ("fixed", "duration")}
_NESTED = ("array", "map", "record")
# The types that JSON has, so that nested data can be written from it.
_IN_JSON = ("null", "boolean", "int", "long", "float", "double", "string", "enum")


class Avro(SchemaFormat):
    """The format of Avro keys or values: ``value=Avro(schema, registry="http://…")``.

    The fields of the record become columns, according to the table in
    ``docs/how-to/avro-protobuf.md``; a schema that is not a record becomes one column, ``value`` or
    ``key``. A spout reads every version of the schema, by Avro's rules of resolution: a field that
    a record lacks gets its default, and fields that the schema lacks are ignored. A sink registers
    the schema when it starts.

    Args:
        schema: The schema, as JSON text or as the result of ``json.loads``. It must not refer to
            other schemas of the registry; the schemas that records were written with may.
        registry: URL of the registry; several, with commas, for copies of one.
        subject: The subject; None for that of the topic, ``<topic>-value`` or ``<topic>-key``.
        auto_register: Whether a sink registers the schema. If not, it writes with the latest one
            of the subject, which must have the same fields.
        settings: More settings of confluent-kafka's ``SchemaRegistryClient``, e.g.
            ``basic.auth.user.info``, ``ssl.ca.location``. They travel to the tasks, and are never
            shown or stored.

    Raises:
        ConfigError: An argument is wrong, a field fits no column, or a package is missing.
    """

    module = "confluent_kafka.schema_registry.avro"

    def __init__(
        self,
        schema: str | Mapping[str, Any] | Sequence[Any],
        *,
        registry: str,
        subject: str | None = None,
        auto_register: bool = True,
        settings: Mapping[str, Setting] | None = None,
    ) -> None:
        require(self.module, "Avro")
        self._text, parsed = read_schema(schema)
        if flaw := why_not_read(self._text):
            raise ConfigError(
                f"an Avro schema cannot be used; got {schema!r:.200}: {flaw}; expected a schema "
                "that limits how deep a record is, and items that take bytes; otherwise one "
                "record could crash the process; decode such records from bytes in a bolt",
                setting="schema",
            )
        self._fields = fields_of(parsed)
        super().__init__(
            parsed["name"] if _is_record(parsed) else str(_type(parsed)),
            [
                Field(name, column_type(name or "value", each))
                for name, each in self._fields.items()
            ],
            registry=registry,
            subject=subject,
            auto_register=auto_register,
            settings=settings,
            identity=self._text,
        )

    def check_writable(self) -> None:
        """Check that no field has parts that JSON cannot represent."""
        for name, schema in self._fields.items():
            if _is_json(schema) and (found := _beyond_json(schema)) is not None:
                raise ConfigError(
                    f"field {name!r} of {self!r} cannot be written; got {found} inside "
                    f"{_type(schema)}; expected a type that JSON has: "
                    f"{', '.join((*_IN_JSON, *_NESTED))}; make it a separate field",
                    field=name,
                    got=found,
                )

    def decoder(self, client: RegistryClient, part: Part) -> Callable[[bytes, ReadingContext], Row]:
        """Return a function that decodes a record written with any version of the schema."""
        from confluent_kafka.schema_registry.avro import AvroDeserializer

        from txtopo.kafka.formats.registry_client import read_schema_id

        conf = {**self.subject_conf(), "schema.id.deserializer": read_schema_id}
        deserialize: Any = AvroDeserializer(client, self._text, conf=conf)
        record = "" not in self._fields
        plain = {name or part: _plain_of(each) for name, each in self._fields.items()}

        def decode(data: bytes, reading: ReadingContext) -> Row:
            value = deserialize(data, reading)
            values = value if record else {part: value}
            return {name: to(values[name]) if to else values[name] for name, to in plain.items()}

        return decode

    def encoder(
        self, client: RegistryClient, topic: str, part: Part
    ) -> Callable[[Sequence[Any]], bytes]:
        """Register the schema, or compare it with the latest one; return a function that writes it.

        Raises:
            ConfigError: The registry refuses the schema, or the latest one has other fields.
        """
        from confluent_kafka.schema_registry import Schema as RegistrySchema
        from confluent_kafka.schema_registry.avro import AvroSerializer

        from txtopo.kafka.formats.registry_client import context_of

        schema, subject = RegistrySchema(self._text, "AVRO"), self.subject(topic, part)
        if self._auto_register:
            client.register_schema_full_response(subject, schema)
        else:
            self._check_latest(client, subject)
        conf = {
            **self.subject_conf(),
            "auto.register.schemas": self._auto_register,
            "use.latest.version": not self._auto_register,
        }
        serialize: Any = AvroSerializer(client, schema, conf=conf)
        context = context_of(topic, part)
        record = "" not in self._fields
        to_avro = {name: _avro_of(name or part, each) for name, each in self._fields.items()}

        def encode(values: Sequence[Any]) -> bytes:
            pairs = zip(to_avro.items(), values, strict=True)
            written = {name: to(value) for (name, to), value in pairs}
            data: bytes = serialize(written if record else written[""], context)
            return data

        return encode

    def _check_latest(self, client: RegistryClient, subject: str) -> None:
        """Check that records of this schema can be written with the latest one.

        Raises:
            ConfigError: It does not, or there is none.
        """
        latest = client.get_latest_version(subject)
        found = latest.schema
        if found.schema_type not in (None, "AVRO") or found.references:
            raise ConfigError(
                f"subject {subject!r} cannot be written as {self!r}; got a schema of type "
                f"{found.schema_type} with {len(found.references or ())} references; expected an "
                "Avro schema without references",
                subject=subject,
            )
        defaults: set[str] = set()
        whole = read_schema(found.schema_str)[1]
        theirs = fields_of(whole, defaults)
        for name, schema in self._fields.items():
            if name not in theirs or not _takes(theirs[name], schema):
                raise ConfigError(
                    f"field {name!r} of {self!r} cannot be written with the latest schema of "
                    f"subject {subject!r}, version {latest.version}; got {theirs.get(name)!r}; "
                    f"expected {schema!r}; declare the schema as it is in the registry",
                    subject=subject,
                )
        if missing := sorted(theirs.keys() - self._fields.keys() - defaults):
            raise ConfigError(
                f"the latest schema of subject {subject!r}, version {latest.version}, has the "
                f"field {missing[0]!r} without a default; {self!r} lacks it; declare the schema "
                "as it is in the registry",
                subject=subject,
            )
        for field in whole["fields"] if _is_record(whole) else ():
            if field["name"] not in self._fields and (reason := _why_not_written(field)):
                raise ConfigError(
                    f"the latest schema of subject {subject!r}, version {latest.version}, has the "
                    f"field {field['name']!r} with a default that cannot be written: {reason}; "
                    f"got {field['default']!r}; expected a default without bytes; declare the "
                    "field as it is in the registry, and supply its value",
                    subject=subject,
                )


def _why_not_written(field: Schema) -> str | None:
    """Return why fastavro does not write the default of a field; None if it does."""
    from fastavro import parse_schema, schemaless_writer
    from fastavro.schema import SchemaParseException

    alone = {"type": "record", "name": "txtopo_default", "fields": [field]}
    try:
        schemaless_writer(io.BytesIO(), parse_schema(alone), {})
    except SchemaParseException:
        return None  # a named type occurs in it twice, spelled out in both places
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        return text_of(error)
    return None


def read_schema(schema: Any) -> tuple[str, Schema]:
    """Return a schema as JSON text, and with its named types spelled out.

    Raises:
        ConfigError: It is not a schema.
    """
    from fastavro.schema import SchemaParseException, expand_schema, parse_schema

    expected = 'expected Avro\'s JSON, such as \'{"type": "record", …}\''
    try:
        plain = not isinstance(schema, str) or schema in _IN_JSON or schema == "bytes"
        given = schema if plain else json.loads(schema)
        text = json.dumps({"type": given} if isinstance(given, str) else given)
        parse_schema(json.loads(text))  # which checks names as well
        parsed: Schema = expand_schema(json.loads(text))
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"an Avro schema is not JSON; got {schema!r:.200} ({error}); {expected}",
            got=f"{schema!r:.200}",
        ) from error
    except (SchemaParseException, ValueError, TypeError, LookupError, AttributeError) as error:
        reason = f"{type(error).__name__}: {text_of(error)}"
        raise ConfigError(
            f"an Avro schema is wrong; got {schema!r:.200} ({reason}); {expected}",
            got=f"{schema!r:.200}",
        ) from error
    return text, parsed


def fields_of(schema: Schema, defaults: set[str] | None = None) -> dict[str, Schema]:
    """Return the fields of a record, or the schema itself, under no name.

    Args:
        schema: The schema.
        defaults: Receives the names of the fields that have a default.
    """
    if not _is_record(schema):
        if _type(schema) == "bytes" and not isinstance(schema, list) and "logicalType" in schema:
            raise ConfigError(
                f"a schema of {schema['logicalType']} by itself cannot be read; got {schema!r}; "
                "expected a record with it; confluent-kafka takes bytes by themselves as they are",
                got=f"{schema!r}",
            )
        return {"": schema}
    names = [each["name"] for each in schema["fields"]]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(
            f"an Avro schema has the field {doubled[0]!r} twice; got {schema!r:.200}",
            field=doubled[0],
        )
    if defaults is not None:
        defaults |= {each["name"] for each in schema["fields"] if "default" in each}
    return {each["name"]: each["type"] for each in schema["fields"]}


def column_type(name: str, schema: Schema) -> str:
    """Return the type of the column that a field becomes.

    Raises:
        ConfigError: No column type fits.
    """
    if _is_json(schema):
        return "string"
    only = _not_null(schema)[0]
    kind, logical = _type(only), only.get("logicalType") if isinstance(only, dict) else None
    if (kind, logical) in _NO_COLUMN or kind == "null":
        raise ConfigError(
            f"field {name!r} of an Avro schema does not fit any column; got {logical or kind}; "
            f"expected {', '.join(_PRIMITIVES)}, {', '.join(_NESTED)}, date, a timestamp, decimal "
            "or uuid; remove the field, or its logicalType, from the schema",
            field=name,
            got=f"{logical or kind}",
        )
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = only.get("precision"), only.get("scale", 0)
        if type(precision) is not int or type(scale) is not int or not scale <= precision <= 38:
            raise ConfigError(
                f"field {name!r} of an Avro schema does not fit any column; got a decimal of "
                f"precision {precision!r} and scale {scale!r}; expected a precision of at most 38 "
                "digits, and a scale that is not greater",
                field=name,
            )
        return f"decimal({precision},{scale})"
    return _LOGICAL.get((kind, str(logical)), _PRIMITIVES[kind])


def _is_record(schema: Schema) -> bool:
    return isinstance(schema, dict) and schema["type"] in ("record", "error")


def _type(schema: Schema) -> str:
    if isinstance(schema, list):
        return "union"
    if isinstance(schema, dict):
        return _type(schema["type"])
    return str(schema)


def _not_null(schema: Schema) -> list[Schema]:
    """Return the branches of a union that are not null, or the schema itself."""
    if not isinstance(schema, list):
        return [schema]
    return [each for each in schema if _type(each) != "null"] or ["null"]


def _nullable(schema: Schema) -> bool:
    return any(_type(each) == "null" for each in (schema if isinstance(schema, list) else [schema]))


def _is_json(schema: Schema) -> bool:
    """Return whether a field becomes JSON text: it has parts, or may be of several types."""
    branches = _not_null(schema)
    return len(branches) > 1 or _type(branches[0]) in (*_NESTED, "error")


def _is_uuid(schema: Schema) -> bool:
    only = _not_null(schema)[0]
    return isinstance(only, dict) and (_type(only), only.get("logicalType")) == ("string", "uuid")


def _beyond_json(schema: Schema) -> str | None:
    """Return a type in a schema that JSON lacks; None if there is none."""
    if isinstance(schema, list):
        return next((found for each in schema if (found := _beyond_json(each))), None)
    kind = _type(schema)
    if kind in ("record", "error"):
        return _beyond_json([each["type"] for each in schema["fields"]])
    if kind in ("array", "map"):
        return _beyond_json(schema["items" if kind == "array" else "values"])
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    if kind in _IN_JSON and logical in (None, "uuid"):
        return None
    return str(logical or kind)


def _takes(theirs: Schema, ours: Schema) -> bool:
    """Return whether a field of a schema in the registry accepts the values of ours."""
    if _is_json(theirs) or _is_json(ours):
        return bool(theirs == ours)
    same = column_type("", theirs) == column_type("", ours)
    same = same and (_is_uuid(theirs) or not _is_uuid(ours))
    return same and (_nullable(theirs) or not _nullable(ours))


def _plain_of(schema: Schema) -> Callable[[Any], object] | None:
    """Return a function from fastavro's values to a column's; None if they are the same.

    fastavro applies the logical type of the record's schema, not of the declared one, and returns
    defaults in their JSON form.
    """
    if _is_json(schema):
        return lambda value: _json_text(_nested(schema, value))
    return _value_of(_not_null(schema)[0])


def _value_of(schema: Schema) -> Callable[[Any], object] | None:
    """Return a function that converts values of a type without parts; None if none is needed."""
    kind, logical = _type(schema), schema.get("logicalType") if isinstance(schema, dict) else None
    if kind == "string":
        return _text
    if kind in ("bytes", "fixed"):
        return _decimal(schema.get("scale", 0)) if logical == "decimal" else _bytes
    return _time(kind, str(logical)) if (kind, logical) in _LOGICAL else None


def _nested(schema: Schema, value: Any) -> Any:
    """Return nested data with the values that the declared types have."""
    branches = _not_null(schema)
    if len(branches) > 1:
        branches = [each for each in branches if _type(each) in _KINDS.get(type(value), ())]
    if value is None or len(branches) != 1:
        return value
    only = branches[0]
    kind = _type(only)
    if kind == "array":
        return [_nested(only["items"], each) for each in value]
    if kind == "map":
        return {name: _nested(only["values"], each) for name, each in value.items()}
    if kind in ("record", "error"):
        return {each["name"]: _nested(each["type"], value[each["name"]]) for each in only["fields"]}
    to = _value_of(only)
    return to(value) if to else value


# The types that a value may have if fastavro has not converted it.
_KINDS: dict[type, tuple[str, ...]] = {
    int: ("int", "long"),
    bytes: ("bytes", "fixed"),
    str: ("string", "enum", "bytes", "fixed"),
    list: ("array",),
    dict: ("map", "record", "error"),
}


def _text(value: object) -> str | None:
    return None if value is None else str(value)  # which may be a UUID


def _bytes(value: object) -> object:
    # Only a default is text: each of its characters is a byte.
    return value.encode("latin-1") if isinstance(value, str) else value


def _decimal(scale: int) -> Callable[[Any], object]:
    def to_decimal(value: object) -> object:
        value = _bytes(value)
        if not isinstance(value, bytes):
            return value
        number = int.from_bytes(value, "big", signed=True)
        return decimal.Decimal(number).scaleb(-scale, _ALL_DIGITS)

    return to_decimal


# A number with more digits than a column has; Inexact signals that digits were lost.
_ALL_DIGITS = decimal.Context(prec=100, traps=[decimal.Inexact])


def _time(kind: str, logical: str) -> Callable[[Any], object]:
    expected = datetime.date if logical == "date" else datetime.datetime
    epoch = {
        "date": datetime.date(1970, 1, 1),
        "timestamp": datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC),
        "timestamp_ntz": datetime.datetime(1970, 1, 1),
    }[_LOGICAL[kind, logical]]
    unit = datetime.timedelta(microseconds=1000 if logical.endswith("millis") else 1)
    unit = datetime.timedelta(days=1) if logical == "date" else unit

    def to_time(value: Any) -> object:
        if type(value) is int:
            return epoch + value * unit
        if value is not None and not isinstance(value, expected):
            raise ValueError(f"got a {type(value).__name__}; expected a number or {logical}")
        return value

    return to_time


def _json_text(value: object) -> str | None:
    if value is None:
        return None
    return json.dumps(value, ensure_ascii=False, default=_in_json)


def _in_json(value: object) -> object:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    return str(value)  # a decimal or a UUID


def _avro_of(name: str, schema: Schema) -> Callable[[Any], object]:
    """Return a function from a column's values to those that fastavro writes."""
    from fastavro.validation import validate

    nullable, nested = _nullable(schema), _is_json(schema)
    branches = _not_null(schema)
    symbols = branches[0]["symbols"] if _type(branches[0]) == "enum" else None
    is_uuid = _is_uuid(schema)

    def to_avro(value: Any) -> object:
        if value is None:
            if not nullable:
                raise ValueError(f"field {name!r} is NULL, but its schema does not allow null")
            return None
        if nested:
            value = json.loads(value)
            validate(value, schema, field=name, raise_errors=True, strict=True)
        elif symbols is not None and value not in symbols:
            raise ValueError(f"field {name!r} is {value!r}; expected one of {', '.join(symbols)}")
        elif is_uuid:
            value = uuid.UUID(value)
        return value

    return to_avro
