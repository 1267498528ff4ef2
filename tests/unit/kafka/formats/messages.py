"""Classes of Protobuf messages, made as protoc makes them, and tuples that formats write."""

from __future__ import annotations

from typing import Any

from google.protobuf import timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from txtopo import Fields
from txtopo.tuples import Origin, Tuple

_TYPES = dict(FieldDescriptorProto.Type.items())
_IMPORTS = (timestamp_pb2.DESCRIPTOR, wrappers_pb2.DESCRIPTOR)


def message_class(*fields: str, name: str = "shop.Sale", first: str = "", proto: str = "") -> Any:
    """Return the class of a message with fields such as ``"optional int64 amount = 2"``.

    Args:
        fields: The fields, as in a .proto file; of scalars, ``Kind`` (an enum with UNKNOWN and
            CARD), ``Item`` (a message with a string ``label``), Timestamp and wrappers.
        name: Its package and name.
        first: The name of a message that stands before it in the file.
        proto: Name of the file.
    """
    package, _, short = name.rpartition(".")
    file = FileDescriptorProto(name=proto or f"{name}.proto", package=package, syntax="proto3")
    file.dependency.extend(each.name for each in _IMPORTS)
    if first:
        file.message_type.add(name=first)
    message = file.message_type.add(name=short)
    for field in fields:
        _add(message, field, package)
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="UNKNOWN", number=0)
    kind.value.add(name="CARD", number=1)
    item = file.message_type.add(name="Item")
    item.field.add(name="label", number=1, type="TYPE_STRING", label="LABEL_OPTIONAL")
    pool = DescriptorPool()
    for each in _IMPORTS:
        pool.AddSerializedFile(each.serialized_pb)
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(name))


def _add(message: DescriptorProto, declared: str, package: str) -> None:
    *rule, kind, name, _, number = declared.split()
    field = message.field.add(name=name, number=int(number))
    field.label = FieldDescriptorProto.LABEL_OPTIONAL
    if rule == ["repeated"]:
        field.label = FieldDescriptorProto.LABEL_REPEATED
    if rule == ["optional"]:
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")
    if (scalar := _TYPES.get(f"TYPE_{kind.upper()}")) is not None:
        field.type = scalar
    else:
        field.type = _TYPES["TYPE_ENUM" if kind == "Kind" else "TYPE_MESSAGE"]
        google = kind == "Timestamp" or kind.endswith("Value")
        field.type_name = f".{'google.protobuf' if google else package}.{kind}"


def tuple_of(fields: Fields, *values: Any) -> Tuple:
    """Return a tuple with these fields."""
    return Tuple(values, Origin(None, "bolt", "default", fields))
