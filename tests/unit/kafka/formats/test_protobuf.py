"""Protobuf values: which columns they become, how versions are read, and what is refused."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from tests.harness.servers.schema_registry import SchemaRegistry
from tests.unit.kafka.formats.messages import message_class
from tests.unit.kafka.formats.records import a_subject, read, taken, written
from tests.unit.kafka.formats.test_avro import NOWHERE
from txtopo import Fields, Protobuf
from txtopo.errors import ConfigError, ValueRefusedError
from txtopo.tuples import Field

SALE = ("string customer = 1", "int64 amount = 2")
MAPPED = [
    ("double", "double", 0.1),
    ("float", "float", 0.5),
    ("int32", "int", -(2**31)),
    ("sint32", "int", -1),
    ("sfixed32", "int", -1),
    ("uint32", "long", 2**32 - 1),
    ("fixed32", "long", 2**32 - 1),
    ("int64", "long", -(2**63)),
    ("sint64", "long", -1),
    ("sfixed64", "long", -1),
    ("uint64", "decimal(20,0)", Decimal(2**64 - 1)),
    ("fixed64", "decimal(20,0)", Decimal(2**64 - 1)),
    ("bool", "boolean", True),
    ("string", "string", "ü\0"),
    ("bytes", "binary", b"\xff\0"),
    ("Kind", "string", "CARD"),
    ("Timestamp", "timestamp", datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)),
    ("DoubleValue", "double", 0.0),
    ("FloatValue", "float", 0.5),
    ("Int32Value", "int", 0),
    ("UInt32Value", "long", 2**32 - 1),
    ("Int64Value", "long", 2**63 - 1),
    ("UInt64Value", "decimal(20,0)", Decimal(2**64 - 1)),
    ("BoolValue", "boolean", False),
    ("StringValue", "string", ""),
    ("BytesValue", "binary", b""),
    ("Item", "string", '{"label": "a"}'),
    ("repeated Item", "string", '[{"label": "a"}, {}]'),
    ("repeated int64", "string", '["1", "2"]'),
]


@pytest.mark.parametrize(("kind", "column", "value"), MAPPED, ids=str)
def test_each_type_has_its_column_both_ways(
    schema_registry: SchemaRegistry, kind: str, column: str, value: object
) -> None:
    message = message_class(f"{kind} v = 1", "string other = 2")
    format = Protobuf(message, registry=schema_registry.url, subject=a_subject())

    assert format.fields("value") == Fields.of([Field("v", column), Field("other", "string")])
    assert read(format, written(format, value, "x")) == [{"v": value, "other": "x"}]


def test_null_is_kept_where_the_message_can_tell(schema_registry: SchemaRegistry) -> None:
    """Elsewhere an unset field has the default of its type, and NULL cannot be written."""
    fields = ("optional int64 a = 1", "Timestamp b = 2", "Int32Value c = 3", "Item d = 4")
    format = Protobuf(
        message_class(*fields, "repeated string e = 5", "int64 f = 6"),
        registry=schema_registry.url,
        subject=a_subject(),
    )

    (row,) = read(format, written(format, None, None, None, None, None, 0))
    assert row == {"a": None, "b": None, "c": None, "d": None, "e": "[]", "f": 0}
    with pytest.raises(
        ValueRefusedError, match="field 'f' is NULL, which its message cannot express"
    ):
        written(format, None, None, None, None, None, None)


def test_other_versions_of_the_message_are_read_by_the_declared_one(
    schema_registry: SchemaRegistry,
) -> None:
    """Fields go by number: one that was renamed is read, one that is new is left out."""
    declared = Protobuf(
        message_class(*SALE, "optional string note = 3"), registry=schema_registry.url
    )
    older = Protobuf(
        message_class("string client = 1"), registry=schema_registry.url, subject=a_subject()
    )
    newer = Protobuf(
        message_class(*SALE, "repeated string tags = 9", first="Before"),
        registry=schema_registry.url,
        subject=a_subject(),
    )

    rows = read(declared, written(older, "ann"), written(newer, "bob", 7, '["x"]'))

    assert rows == [
        {"customer": "ann", "amount": 0, "note": None},
        {"customer": "bob", "amount": 7, "note": None},
    ]


def test_a_number_that_its_enum_does_not_have_is_read_as_a_number(
    schema_registry: SchemaRegistry,
) -> None:
    format = Protobuf(
        message_class("Kind kind = 1"), registry=schema_registry.url, subject=a_subject()
    )
    data = written(format, "CARD")

    assert read(format, data[:-1] + b"\x63") == [{"kind": "99"}]


def test_damaged_records_and_other_messages_make_dead_letters(
    schema_registry: SchemaRegistry,
) -> None:
    """Any bytes of another message would be read as ours, with its fields in our columns."""
    message = message_class(*SALE)
    declared = Protobuf(message, registry=schema_registry.url, subject=a_subject())
    refund = message_class(*SALE, name="shop.Refund")
    other = Protobuf(refund, registry=schema_registry.url, subject=a_subject())
    good = written(declared, "ann", 5)
    bad = [
        b"",
        b"\0",
        good[:5],
        good[:-1],
        good[1:],
        b"\0\0\0\x27\x0f" + good[5:],
        good[:5] + b"\x02\x08" + good[6:],
        good[:6] + b"\x0a\x01\xff",
        written(other, "bob", 3),
    ]

    made = taken(declared, *bad, good)

    assert [(row["customer"], row["amount"]) for row in made.rows] == [("ann", 5)]
    assert [json.loads(letter[3])["offset"] for letter in made.letters] == list(range(len(bad)))
    assert "it is a message of type shop.Refund" in made.letters[-1][2]


def test_a_time_that_no_column_has_makes_a_dead_letter(schema_registry: SchemaRegistry) -> None:
    declared = Protobuf(
        message_class("Timestamp at = 1"), registry=schema_registry.url, subject=a_subject()
    )
    good = written(declared, datetime(2020, 1, 1, tzinfo=UTC))

    made = taken(declared, good, good[:6] + b"\x0a\x0a\x08" + b"\xff" * 8 + b"\x7f")

    assert (len(made.rows), len(made.letters)) == (1, 1)


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        ("int32", 2**31, "out of range"),
        ("uint64", Decimal(-1), "out of range"),
        ("Kind", "CASH", "expected UNKNOWN, CARD"),
        ("Item", '{"lable": "a"}', "lable"),
        ("Item", "[", "Expecting"),
        ("string", "\ud800", "surrogate|utf-8"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_when_it_is_written(
    schema_registry: SchemaRegistry, kind: str, value: object, said: str
) -> None:
    format = Protobuf(
        message_class(f"{kind} v = 1"), registry=schema_registry.url, subject=a_subject()
    )

    with pytest.raises(ValueRefusedError, match=said):
        written(format, value)


@pytest.mark.parametrize("message", [object, 7, None, "Sale", json, message_class(*SALE)()])
def test_what_is_no_class_of_a_message_is_refused(message: Any) -> None:
    with pytest.raises(ConfigError, match="message of Protobuf is wrong; got"):
        Protobuf(message, registry=NOWHERE)


def test_the_latest_schema_is_used_where_none_may_be_registered(
    schema_registry: SchemaRegistry,
) -> None:
    subject = a_subject()
    message = message_class(*SALE)
    Protobuf(message, registry=schema_registry.url, subject=subject).writer("t", "value")
    newer = message_class(*SALE, "string note = 3")
    Protobuf(newer, registry=schema_registry.url, subject=subject).writer("t", "value")
    format = Protobuf(message, registry=schema_registry.url, subject=subject, auto_register=False)

    data = written(format, "ann", 5)

    assert data[:5] == b"\0" + schema_registry.subjects()[subject][1]["id"].to_bytes(4)
    assert read(format, data) == [{"customer": "ann", "amount": 5}]


@pytest.mark.parametrize(
    ("fields", "first", "said"),
    [
        (("string customer = 1",), "", "field 'amount'.* got .*no"),
        (("string customer = 1", "int32 amount = 2"), "", "field 'amount'.*TYPE_INT32"),
        (("string customer = 1", "repeated int64 amount = 2"), "", "LABEL_REPEATED"),
        (SALE, "Before", "a different message in the place of 'shop.Sale'; got 'shop.Before'"),
    ],
)
def test_a_latest_schema_without_our_fields_is_refused_before_anything_is_written(
    schema_registry: SchemaRegistry, fields: tuple[str, ...], first: str, said: str
) -> None:
    subject = a_subject()
    theirs = message_class(*fields, first=first)
    Protobuf(theirs, registry=schema_registry.url, subject=subject).writer("t", "value")
    format = Protobuf(
        message_class(*SALE), registry=schema_registry.url, subject=subject, auto_register=False
    )

    with pytest.raises(ConfigError, match=said):
        format.writer("t", "value")


def test_a_format_needs_no_generated_module_in_another_process(
    schema_registry: SchemaRegistry,
) -> None:
    """The class of this test is in no module; its descriptors travel."""
    format = Protobuf(message_class(*SALE), registry=schema_registry.url, subject=a_subject())
    other = pickle.loads(pickle.dumps(format))

    assert read(other, written(format, "ann", 5)) == [{"customer": "ann", "amount": 5}]


def test_imported_files_are_registered_as_references(schema_registry: SchemaRegistry) -> None:
    """Those of Google every registry has; a user's own have subjects with their names."""
    pytest.importorskip("google.protobuf")
    subject = a_subject()
    format = Protobuf(
        message_class("Timestamp at = 1"), registry=schema_registry.url, subject=subject
    )
    written(format, datetime(2020, 1, 1, tzinfo=UTC))

    assert schema_registry.subjects()[subject][0]["references"] == []
