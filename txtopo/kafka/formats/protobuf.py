"""Protobuf messages of Kafka, with their schemas in a registry."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from txtopo.errors import ConfigError
from txtopo.extras import require
from txtopo.kafka.formats.record_format import Part, Row
from txtopo.kafka.formats.schema_format import SchemaFormat, Setting
from txtopo.tuples import Field

if TYPE_CHECKING:
    from txtopo.kafka.formats.registry_client import ReadingContext, RegistryClient

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_SECOND, _MICROSECOND = datetime.timedelta(seconds=1), datetime.timedelta(microseconds=1)

# Keyed by the names of the constants TYPE_… of a field's descriptor.
_SCALARS = {
    "DOUBLE": "double",
    "FLOAT": "float",
    "INT32": "int",
    "SINT32": "int",
    "SFIXED32": "int",
    "UINT32": "long",
    "FIXED32": "long",
    "INT64": "long",
    "SINT64": "long",
    "SFIXED64": "long",
    "UINT64": "decimal(20,0)",
    "FIXED64": "decimal(20,0)",
    "BOOL": "boolean",
    "STRING": "string",
    "BYTES": "binary",
    "ENUM": "string",
}
_TIMESTAMP = "google.protobuf.Timestamp"
_WRAPPERS = {
    f"google.protobuf.{name}Value": kind
    for name, kind in {
        "Double": "double",
        "Float": "float",
        "Int32": "int",
        "UInt32": "long",
        "Int64": "long",
        "UInt64": "decimal(20,0)",
        "Bool": "boolean",
        "String": "string",
        "Bytes": "binary",
    }.items()
}


class Protobuf(SchemaFormat):
    """The format of Protobuf keys or values: ``value=Protobuf(Sale, registry="http://…")``.

    The fields of the message become columns, according to the table in
    ``docs/how-to/avro-protobuf.md``. A spout reads every version of the message, by Protobuf's
    rules: fields are identified by their numbers; a field that a record lacks has the default of
    its type, or is NULL if the message tracks presence; and fields that the class lacks are
    ignored. A record of another message is refused. A sink registers the ``.proto`` file, and those
    that it imports, when it starts.

    Args:
        message: The class that ``protoc`` generated. The tasks get its descriptors, not the class,
            so only the driver needs the generated module.
        registry: URL of the registry; several, with commas, for copies of one.
        subject: The subject; None for that of the topic, ``<topic>-value`` or ``<topic>-key``.
        auto_register: Whether a sink registers the schema. If not, it writes with the latest one
            of the subject, which must have the fields of the message.
        settings: More settings of confluent-kafka's ``SchemaRegistryClient``, e.g.
            ``basic.auth.user.info``, ``ssl.ca.location``. They travel to the tasks, and are never
            shown or stored.

    Raises:
        ConfigError: An argument is wrong, or a package is missing; repair it.
    """

    module = "confluent_kafka.schema_registry.protobuf"

    def __init__(
        self,
        message: type,
        *,
        registry: str,
        subject: str | None = None,
        auto_register: bool = True,
        settings: Mapping[str, Setting] | None = None,
    ) -> None:
        require(self.module, "Protobuf")
        from google.protobuf.descriptor import Descriptor

        descriptor = getattr(message, "DESCRIPTOR", None)
        if not isinstance(message, type) or not isinstance(descriptor, Descriptor):
            raise ConfigError(
                f"message of Protobuf is wrong; got {message!r:.200}; expected a class that protoc "
                "has generated, such as Sale of sale_pb2",
                setting="message",
            )
        self._files = _files_of(descriptor.file)
        super().__init__(
            descriptor.full_name,
            [Field(each.name, column_type(each)) for each in descriptor.fields],
            registry=registry,
            subject=subject,
            auto_register=auto_register,
            settings=settings,
            identity=(descriptor.full_name, *self._files),
        )

    def check_writable(self) -> None:
        """Check nothing: each column can be written."""

    def decoder(self, client: RegistryClient, part: Part) -> Callable[[bytes, ReadingContext], Row]:
        """Return a function that decodes a record written with any version of the message."""
        from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
        from google.protobuf.json_format import MessageToDict

        from txtopo.kafka.formats.registry_client import read_schema_id

        message = self._message()
        conf = {
            **self.subject_conf(),
            "use.deprecated.format": False,
            "schema.id.deserializer": read_schema_id,
        }
        deserialize: Any = ProtobufDeserializer(message, conf, client)
        fields = message.DESCRIPTOR.fields
        plain = {each.name: _plain_of(each) for each in fields if not _is_json(each)}
        nested = [each for each in fields if _is_json(each)]
        check = self._name_check(client)

        def decode(data: bytes, reading: ReadingContext) -> Row:
            value = deserialize(data, reading)
            check(reading, part)
            row = {name: to(value) for name, to in plain.items()}
            if nested:
                parts = MessageToDict(value, preserving_proto_field_name=True)
                row |= {each.name: _json_text(each, parts) for each in nested}
            return row

        return decode

    def encoder(
        self, client: RegistryClient, topic: str, part: Part
    ) -> Callable[[Sequence[Any]], bytes]:
        """Register the schema, or compare it with the latest one; return a function that writes it.

        Raises:
            ConfigError: The registry refuses the schema, or the latest one has other fields.
        """
        from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
        from google.protobuf.message import EncodeError

        from txtopo.kafka.formats.registry_client import context_of

        message = self._message()
        if not self._auto_register:
            self._check_latest(client, self.subject(topic, part), message.DESCRIPTOR)
        conf = {
            **self.subject_conf(),
            "use.deprecated.format": False,
            "auto.register.schemas": self._auto_register,
            "use.latest.version": not self._auto_register,
        }
        serialize: Any = ProtobufSerializer(message, client, conf)
        context = context_of(topic, part)
        with suppress(EncodeError):  # it may lack required fields, but registers
            serialize(message(), context)
        setters = [_setter_of(each) for each in message.DESCRIPTOR.fields]

        def encode(values: Sequence[Any]) -> bytes:
            made = message()
            for set_value, value in zip(setters, values, strict=True):
                set_value(made, value)
            data: bytes = serialize(made, context)
            return data

        return encode

    def _message(self) -> Any:
        """Return the class of the message, which each process builds once from its descriptors."""

        def make() -> Any:
            from google.protobuf.descriptor_pool import DescriptorPool
            from google.protobuf.message_factory import GetMessageClass

            pool = DescriptorPool()
            for file in self._files:
                pool.AddSerializedFile(file)
            return GetMessageClass(pool.FindMessageTypeByName(self._name))

        return self.once(make, "message")

    def _name_check(self, client: RegistryClient) -> Callable[[ReadingContext, Part], None]:
        """Return a check that a record is of our message; deserializers accept any."""
        from txtopo.kafka.formats.registry_client import id_of

        names: dict[tuple[object, ...], str] = {}

        def check(reading: ReadingContext, part: Part) -> None:
            schema_id = reading.schema_id
            key = (id_of(schema_id), *schema_id.message_indexes)
            if key not in names:
                topic_subject = self.subject(str(reading.topic), part)
                if schema_id.id is None:
                    schema = client.get_schema_by_guid(str(schema_id.guid), "serialized")
                else:
                    schema = client.get_schema(schema_id.id, topic_subject, "serialized")
                names[key] = _name_at(schema.schema_str, schema_id.message_indexes)
            if names[key] != self._name:
                raise ValueError(f"it is a message of type {names[key]}")

        return check

    def _check_latest(self, client: RegistryClient, subject: str, ours: Any) -> None:
        """Check that the latest schema has the message at the same place, with our fields.

        Raises:
            ConfigError: It does not, or there is none.
        """
        latest = client.get_latest_version(subject, "serialized")
        what = f"the latest schema of subject {subject!r}, version {latest.version}"
        found = latest.schema
        if found.schema_type != "PROTOBUF":
            raise ConfigError(
                f"{what}, cannot be written as {self!r}; got type {found.schema_type}; expected "
                "PROTOBUF",
                subject=subject,
            )
        name, message = _message_at(_file_of(found.schema_str), _indexes_of(ours))
        if name != self._name:
            raise ConfigError(
                f"{what}, has a different message in the place of {self._name!r}; got {name!r}; "
                "generate the class from the file that is registered",
                subject=subject,
            )
        theirs = {each.number: each for each in message.field}
        for field in ours.fields:
            their = theirs.get(field.number)
            if their is None or their.type != field.type or their.label != _label(field):
                raise ConfigError(
                    f"field {field.name!r} of {self!r}, number {field.number}, cannot be written "
                    f"with {what}; got {str(their or 'no field').split()}; expected the same type; "
                    "generate the class from the file that is registered",
                    subject=subject,
                )


def column_type(field: Any) -> str:
    """Return the type of the column that a field becomes."""
    if _is_json(field):
        return "string"
    if field.message_type is not None:
        name = field.message_type.full_name
        return "timestamp" if name == _TIMESTAMP else _WRAPPERS[name]
    return _SCALARS[_kind(field)]


def _kind(field: Any) -> str:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    return str(FieldDescriptorProto.Type.Name(field.type)).removeprefix("TYPE_")


def _is_json(field: Any) -> bool:
    """Return whether a field has parts, so that it becomes JSON text in Protobuf's own form."""
    if _repeated(field):
        return True
    message = field.message_type
    return message is not None and message.full_name not in (_TIMESTAMP, *_WRAPPERS)


def _repeated(field: Any) -> bool:
    # Protobuf 7 no longer has a label, and versions before 6 have nothing else.
    repeated = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED if repeated is None else repeated)


def _label(field: Any) -> int:
    from google.protobuf.descriptor_pb2 import DescriptorProto

    kept = DescriptorProto()
    field.containing_type.CopyToProto(kept)
    return next(int(each.label) for each in kept.field if each.number == field.number)


def _files_of(file: Any) -> tuple[bytes, ...]:
    """Return a file and its imports, each after the files that it needs."""
    found: dict[str, bytes] = {}

    def add(each: Any) -> None:
        for needed in each.dependencies:
            add(needed)
        found.setdefault(each.name, each.serialized_pb)

    add(file)
    return tuple(found.values())


def _file_of(text: str | None) -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    return FileDescriptorProto.FromString(base64.standard_b64decode(text or ""))


def _name_at(text: str | None, indexes: Sequence[int]) -> str:
    return _message_at(_file_of(text), indexes)[0]


def _message_at(file: Any, indexes: Sequence[int]) -> tuple[str, Any]:
    """Return the full name and the descriptor of the message at a place of a file."""
    names, inside = [file.package] if file.package else [], file.message_type
    message = None
    for index in indexes:
        if not 0 <= index < len(inside):
            return "", None
        message = inside[index]
        names.append(message.name)
        inside = message.nested_type
    return ".".join(names), message


def _indexes_of(descriptor: Any) -> list[int]:
    """Return the place of a message in its file."""
    above = descriptor.containing_type
    if above is None:
        return [list(descriptor.file.message_types_by_name).index(descriptor.name)]
    return [*_indexes_of(above), [each.name for each in above.nested_types].index(descriptor.name)]


def _plain_of(field: Any) -> Callable[[Any], object]:
    """Return a function that gets the value of a column from a message."""
    name, to = field.name, _value_of(field)
    if not field.has_presence:
        return lambda message: to(getattr(message, name))
    return lambda message: to(getattr(message, name)) if message.HasField(name) else None


def _value_of(field: Any) -> Callable[[Any], object]:
    if field.message_type is not None and field.message_type.full_name == _TIMESTAMP:
        return lambda time: _EPOCH + time.seconds * _SECOND + time.nanos // 1000 * _MICROSECOND
    if field.message_type is not None:
        inner = _value_of(field.message_type.fields_by_name["value"])
        return lambda wrapper: inner(wrapper.value)
    if field.enum_type is not None:
        names = {number: each.name for number, each in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number, str(number))
    if column_type(field) == "decimal(20,0)":
        return decimal.Decimal
    return lambda value: value


def _json_text(field: Any, parts: Mapping[str, Any]) -> str | None:
    if field.name in parts:
        return json.dumps(parts[field.name], ensure_ascii=False)
    if not _repeated(field):
        return None
    message = field.message_type
    return "{}" if message is not None and message.GetOptions().map_entry else "[]"


def _setter_of(field: Any) -> Callable[[Any, Any], None]:
    """Return a function that puts the value of a column into a message."""
    from google.protobuf.json_format import ParseDict

    name, to = field.name, _proto_of(field)
    optional = field.has_presence or _repeated(field)

    def set_value(message: Any, value: Any) -> None:
        if value is None:
            if not optional:
                raise ValueError(
                    f"field {name!r} is NULL, which its message cannot express; make it optional"
                )
        elif _is_json(field):
            ParseDict({name: json.loads(value)}, message)
        elif field.message_type is None:
            setattr(message, name, to(value))
        elif field.message_type.full_name == _TIMESTAMP:
            seconds, rest = divmod(value - _EPOCH, _SECOND)
            time = getattr(message, name)
            time.SetInParent()
            time.seconds, time.nanos = seconds, rest // _MICROSECOND * 1000
        else:
            wrapper = getattr(message, name)
            wrapper.SetInParent()
            wrapper.value = to(value)

    return set_value


def _proto_of(field: Any) -> Callable[[Any], object]:
    """Return a function from a column's value to a scalar of a message."""
    if field.enum_type is not None:
        numbers = {each.name: each.number for each in field.enum_type.values}

        def number_of(name: str) -> int:
            if name not in numbers:
                raise ValueError(f"field {field.name!r} is {name!r}; expected {', '.join(numbers)}")
            return int(numbers[name])

        return number_of
    if column_type(field) == "decimal(20,0)":
        return int
    return lambda value: value
