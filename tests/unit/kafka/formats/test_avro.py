"""Avro values: which columns they become, how versions are read, and what is refused."""

from __future__ import annotations

import json
import pickle
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, cast

import pytest

from tests.harness.servers.schema_registry import SchemaRegistry
from tests.unit.kafka.formats.records import a_subject, read, taken, written
from tests.unit.kafka.test_decoding import Record
from txtopo import Avro, Fields
from txtopo.errors import ConfigError, EmitError, FieldsError, ValueRefusedError
from txtopo.tuples import Field

NOWHERE = "http://127.0.0.1:1"
SALE = {
    "type": "record",
    "name": "Sale",
    "fields": [{"name": "customer", "type": "string"}, {"name": "amount", "type": "double"}],
}
COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
ITEM = {"type": "record", "name": "Item", "fields": [{"name": "label", "type": "string"}]}


def logical(kind: str, logical_type: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical_type, **more}


def record(*fields: Any, name: str = "Sale") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


MAPPED = [
    ("boolean", "boolean", True),
    ("int", "int", -(2**31)),
    ("long", "long", 2**63 - 1),
    ("float", "float", 0.5),
    ("double", "double", 0.1),
    ("string", "string", "ü\0"),
    ("bytes", "binary", b"\xff\0"),
    ({"type": "fixed", "name": "F", "size": 2}, "binary", b"ab"),
    (COLOUR, "string", "BLUE"),
    (logical("int", "date"), "date", date(2020, 2, 29)),
    (logical("long", "timestamp-millis"), "timestamp", datetime(2020, 1, 1, 0, 0, 0, 1000, UTC)),
    (logical("long", "timestamp-micros"), "timestamp", datetime(2020, 1, 1, 0, 0, 0, 1, UTC)),
    (logical("long", "local-timestamp-micros"), "timestamp_ntz", datetime(2020, 1, 1, 0, 0, 0, 1)),
    (logical("bytes", "decimal", precision=10, scale=2), "decimal(10,2)", Decimal("-1.20")),
    (
        logical("fixed", "decimal", precision=9, scale=0, name="D", size=4),
        "decimal(9,0)",
        Decimal(7),
    ),
    (
        logical("string", "uuid"),
        "string",
        "6c6b8ae3-fb8c-4cd2-8ba0-a9a1ea90b0a1",
    ),
    (logical("long", "of-my-own"), "long", 3),
    ({"type": "array", "items": "int"}, "string", "[1, 2]"),
    ({"type": "map", "values": ["null", "string"]}, "string", '{"a": null, "b": "ü"}'),
    (ITEM, "string", '{"label": "a"}'),
    (["string", "long"], "string", '"a"'),
]


@pytest.mark.parametrize(("kind", "column", "value"), MAPPED, ids=str)
def test_each_type_has_its_column_both_ways(
    schema_registry: SchemaRegistry, kind: Any, column: str, value: object
) -> None:
    """Also where it may be null."""
    required = record(
        field("v", kind), field("n", ["null", *(kind if isinstance(kind, list) else [kind])])
    )
    if isinstance(kind, dict) and "name" in kind:  # named twice is declared once
        required["fields"][1]["type"] = ["null", kind["name"]]
    of_record = Avro(required, registry=schema_registry.url, subject=a_subject())

    assert of_record.fields("value") == Fields.of([Field("v", column), Field("n", column)])
    both, null = written(of_record, value, value), written(of_record, value, None)
    assert read(of_record, both, null) == [{"v": value, "n": value}, {"v": value, "n": None}]


@pytest.mark.parametrize(
    ("kind", "column", "value"),
    [each for each in MAPPED if each[0] != ITEM and each[1] != "decimal(10,2)"],
    ids=str,
)
def test_a_schema_that_is_no_record_is_one_column(
    schema_registry: SchemaRegistry, kind: Any, column: str, value: object
) -> None:
    alone = Avro(kind, registry=schema_registry.url, subject=a_subject())

    assert alone.fields("key") == Fields.of([Field("key", column)])
    assert read(alone, written(alone, value)) == [{"value": value}]


def test_what_json_cannot_hold_is_text_in_nested_data(schema_registry: SchemaRegistry) -> None:
    nested = record(
        field("b", "bytes"),
        field("d", logical("int", "date")),
        field("m", logical("bytes", "decimal", precision=5, scale=1)),
        name="Nested",
    )
    format = Avro(record(field("v", nested)), registry=schema_registry.url, subject=a_subject())
    id = schema_registry.register(a_subject(), record(field("v", nested)))

    data = b"\0" + id.to_bytes(4) + b"\x04ab" + b"\x02" + b"\x02\x0f"

    (row,) = read(format, data)
    assert json.loads(row["v"]) == {"b": {"base64": "YWI="}, "d": "1970-01-02", "m": "1.5"}
    with pytest.raises(ConfigError, match=r"field 'v' of Avro.* got bytes inside record"):
        format.check_writable()


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("{", "is not JSON; got '{'"),
        ("", "is not JSON; got ''"),
        ('"strin"', "UnknownType"),
        ({"type": "record"}, '"name" is a required field'),
        (7, "got 7"),
        (None, "got None"),
        ("null", "got null"),
        (logical("bytes", "decimal", precision=3), "a schema of decimal by itself"),
        ('"null"', "field 'value' of an Avro schema does not fit any column; got null"),
        ([], "got null"),
        (record(field("t", logical("int", "time-millis"))), "field 't'.* got time-millis"),
        (record(field("t", ["null", logical("long", "time-micros")])), "got time-micros"),
        (record(field("d", logical("bytes", "decimal", precision=39))), "precision 39"),
        (record(field("d", logical("bytes", "decimal"))), "precision None"),
        (record(field("d", logical("bytes", "decimal", precision=3, scale=4))), "decimal scale"),
        (record(field("a", "int"), field("a", "int")), "twice|duplicate"),
        (record(field("a", "Item")), "UnknownType"),
    ],
)
def test_a_schema_that_fits_no_columns_is_refused_when_it_is_declared(
    schema: Any, said: str
) -> None:
    with pytest.raises((ConfigError, FieldsError), match=said):
        Avro(schema, registry=NOWHERE).fields("value")


def test_an_older_and_a_newer_version_are_read_by_the_declared_one(
    schema_registry: SchemaRegistry,
) -> None:
    """A field that is missing has its default, one that was renamed its alias, others are left."""
    declared = Avro(
        record(
            field("customer", "string", aliases=["client"]),
            field("amount", "double"),
            field("country", "string", default="CH"),
            field("note", ["null", "string"], default=None),
        ),
        registry=schema_registry.url,
    )
    old = record(field("client", "string"), field("amount", "long"))
    new = record(
        field("added", {"type": "array", "items": "string"}, default=[]),
        field("customer", "string"),
        field("amount", "double"),
        field("country", "string"),
    )
    older = Avro(old, registry=schema_registry.url, subject=a_subject())
    newer = Avro(new, registry=schema_registry.url, subject=a_subject())

    rows = read(declared, written(older, "ann", 5), written(newer, '["x"]', "bob", 2.5, "DE"))

    assert rows == [
        {"customer": "ann", "amount": 5.0, "country": "CH", "note": None},
        {"customer": "bob", "amount": 2.5, "country": "DE", "note": None},
    ]


MOMENT_MS = 1_700_000_000_123
MOMENT = datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)
DECIMAL = logical("bytes", "decimal", precision=5, scale=2)
UUID = "6c6b8ae3-fb8c-4cd2-8ba0-a9a1ea90b0a1"


@pytest.mark.parametrize(
    ("kind", "default", "value"),
    [
        ("bytes", "\u00ff\u0001", b"\xff\x01"),
        ({"type": "fixed", "name": "F", "size": 2}, "\u00ff\u0001", b"\xff\x01"),
        (DECIMAL, "\u0001\u00f4", Decimal("5.00")),
        (DECIMAL, "\u00ff", Decimal("-0.01")),
        (
            logical("fixed", "decimal", name="D", size=2, precision=4),
            "\u0001\u00f4",
            Decimal(500),
        ),
        (logical("int", "date"), -1, date(1969, 12, 31)),
        (logical("long", "timestamp-millis"), MOMENT_MS, MOMENT),
        (logical("long", "timestamp-micros"), MOMENT_MS * 1000, MOMENT),
        (logical("long", "local-timestamp-millis"), MOMENT_MS, MOMENT.replace(tzinfo=None)),
        (
            logical("long", "local-timestamp-micros"),
            MOMENT_MS,
            datetime(1970, 1, 20, 16, 13, 20, 123),
        ),
        (logical("string", "uuid"), UUID, UUID),
        ([logical("long", "timestamp-millis"), "null"], MOMENT_MS, MOMENT),
        (["null", logical("long", "timestamp-millis")], None, None),
        ({"type": "array", "items": "bytes"}, ["\u00ff"], '[{"base64": "/w=="}]'),
        ({"type": "map", "values": DECIMAL}, {"a": "\u0001"}, '{"a": "0.01"}'),
        (
            record(field("d", ["null", logical("int", "date")]), name="N"),
            {"d": 0},
            '{"d": "1970-01-01"}',
        ),
        ([logical("int", "date"), "string"], 0, '"1970-01-01"'),
        ([logical("int", "date"), "long"], 0, "0"),  # a long that was written looks the same
    ],
)
def test_a_default_is_a_value_of_its_type(
    schema_registry: SchemaRegistry, kind: Any, default: object, value: object
) -> None:
    older = Avro(record(field("a", "int")), registry=schema_registry.url, subject=a_subject())
    declared = Avro(record(field("v", kind, default=default)), registry=schema_registry.url)

    assert read(declared, written(older, 1)) == [{"v": value}]


@pytest.mark.parametrize(
    ("wrote", "given", "kind", "value"),
    [
        ("long", MOMENT_MS, logical("long", "timestamp-millis"), MOMENT),
        ("int", 1000, logical("long", "timestamp-millis"), datetime(1970, 1, 1, 0, 0, 1, 0, UTC)),
        ("long", MOMENT_MS * 1000, logical("long", "timestamp-micros"), MOMENT),
        ("int", 366, logical("int", "date"), date(1971, 1, 2)),
        ("bytes", b"\x01\xf4", DECIMAL, Decimal("5.00")),
        ("string", UUID, logical("string", "uuid"), UUID),
        (logical("string", "uuid"), UUID, "string", UUID),
        ("string", "ÿ", "bytes", b"\xc3\xbf"),
        (
            logical("long", "timestamp-micros"),
            MOMENT,
            logical("long", "timestamp-millis"),
            MOMENT,
        ),
        (record(field("d", "int"), name="N"), '{"d": 0}', "nested date", '{"d": "1970-01-01"}'),
    ],
    ids=str,
)
def test_a_value_is_of_the_declared_logical_type_whatever_the_record_was_written_with(
    schema_registry: SchemaRegistry, wrote: Any, given: object, kind: Any, value: object
) -> None:
    if kind == "nested date":
        kind = record(field("d", logical("int", "date")), name="N")
    writer = Avro(record(field("v", wrote)), registry=schema_registry.url, subject=a_subject())
    declared = Avro(record(field("v", kind)), registry=schema_registry.url)

    assert read(declared, written(writer, given)) == [{"v": value}]


@pytest.mark.parametrize(
    ("wrote", "given", "kind"),
    [
        (logical("int", "date"), date(2020, 1, 1), "int"),
        (logical("int", "date"), date(2020, 1, 1), "string"),
        (logical("long", "timestamp-millis"), MOMENT, "long"),
        (logical("int", "date"), date(2020, 1, 1), logical("long", "timestamp-millis")),
        (DECIMAL, Decimal("5.00"), "bytes"),
        ("long", 2**62, logical("long", "timestamp-micros")),
        ("bytes", b"\x7f" * 60, DECIMAL),
    ],
    ids=str,
)
def test_a_logical_type_that_is_not_declared_makes_dead_letters(
    schema_registry: SchemaRegistry, wrote: Any, given: object, kind: Any
) -> None:
    """Nobody could tell which number it was: milliseconds or microseconds, which scale."""
    writer = Avro(record(field("v", wrote)), registry=schema_registry.url, subject=a_subject())
    declared = Avro(record(field("v", kind)), registry=schema_registry.url)

    made = taken(declared, written(writer, given))

    assert (made.rows, len(made.letters)) == ([], 1)


@pytest.mark.parametrize(
    "written_with",
    [
        record(field("customer", "string")),
        record(field("buyer", "string"), field("amount", "double")),
        record(field("customer", "string"), field("amount", "string")),
        '"string"',
    ],
    ids=["removed", "renamed", "another type", "no record"],
)
def test_a_version_that_cannot_become_the_columns_makes_dead_letters(
    schema_registry: SchemaRegistry, written_with: Any
) -> None:
    declared = Avro(SALE, registry=schema_registry.url, subject=a_subject())
    other = Avro(written_with, registry=schema_registry.url, subject=a_subject())
    values = ["a" if f.type == "string" else 1.0 for f in other.fields("value")]
    bad, good = written(other, *values), written(declared, "ann", 1.5)

    made = taken(declared, good, bad, good)

    assert [row["offset"] for row in made.rows] == [0, 2]
    (letter,) = made.letters
    assert letter[1] == "EmitError"
    assert json.loads(letter[3])["offset"] == 1
    assert "expected Avro data that fits 'Sale'" in letter[2]
    with pytest.raises(EmitError, match="the value of the record at offset 1"):
        taken(declared, good, bad, dead_letters_max=None)


def test_damaged_records_make_dead_letters_and_the_others_go_on(
    schema_registry: SchemaRegistry,
) -> None:
    declared = Avro(SALE, registry=schema_registry.url, subject=a_subject())
    good = written(declared, "ann", 1.5)
    bad = [
        b"",
        b"\0",
        good[:-1],
        b"\x02" + good[1:],
        good[1:],
        b"not framed at all",
        b"\x01" + b"g" * 30,
        b"\0\0\0\x27\x0f" + good[5:],
        good[:5] + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01a",
        good[:5] + b"\x02\xff" + good[9:],
    ]

    made = taken(declared, *(data for each in bad for data in (each, good)))

    assert [row["offset"] for row in made.rows] == list(range(1, 2 * len(bad), 2))
    assert {(row["customer"], row["amount"]) for row in made.rows} == {("ann", 1.5)}
    offsets = [json.loads(letter[3])["offset"] for letter in made.letters]
    assert offsets == list(range(0, 2 * len(bad), 2))


def test_a_tombstone_is_all_null(schema_registry: SchemaRegistry) -> None:
    declared = Avro(SALE, registry=schema_registry.url, subject=a_subject())

    assert read(declared, None, None) == [{"customer": None, "amount": None}] * 2


def test_a_schema_that_names_others_in_the_registry_is_read(
    schema_registry: SchemaRegistry,
) -> None:
    part, whole = a_subject(), a_subject()
    schema_registry.register(part, ITEM)
    reference = {"name": "Item", "subject": part, "version": 1}
    id = schema_registry.register(whole, record(field("item", "Item")), references=[reference])
    declared = Avro(record(field("item", ITEM)), registry=schema_registry.url)

    assert read(declared, b"\0" + id.to_bytes(4) + b"\x02a") == [{"item": '{"label": "a"}'}]


LINKED = record(field("v", "int"), field("next", ["null", "Linked"]), name="Linked")
UNREAD = [
    (LINKED, "type 'Linked' contains itself"),
    ({**LINKED, "namespace": "a.b"}, "type 'a.b.Linked' contains itself"),
    ({"type": "array", "items": {"type": "map", "values": LINKED}}, "'Linked' contains itself"),
    (
        record(field("b", record(field("a", ["null", "A"]), name="B")), name="A"),
        "type 'A' contains itself",
    ),
    ({"type": "array", "items": "null"}, "array whose items take no bytes"),
    ({"type": "array", "items": {"type": "null"}}, "array whose items take no bytes"),
    (
        {"type": "array", "items": record(field("n", record(name="E")), name="N")},
        "array whose items take no bytes",
    ),
]


@pytest.mark.parametrize(("kind", "said"), UNREAD, ids=str)
def test_a_schema_whose_data_may_be_of_any_depth_or_length_is_refused_when_it_is_declared(
    kind: Any, said: str
) -> None:
    with pytest.raises(ConfigError, match=f"cannot be used; got .*: .*{said}; expected"):
        Avro(record(field("a", "int"), field("v", kind)), registry=NOWHERE)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize(("kind", "said"), UNREAD, ids=str)
def test_records_of_such_a_schema_make_dead_letters_though_nobody_wants_that_field(
    schema_registry: SchemaRegistry, kind: Any, said: str, named: bool
) -> None:
    """So deep a record ended the process, in code in C."""
    declared = Avro(record(field("a", "int")), registry=schema_registry.url)
    schema, references = record(field("a", "int"), field("v", kind)), []
    if named:
        part = a_subject()
        schema_registry.register(part, {**schema, "name": "Part"})
        references = [{"name": "Part", "subject": part, "version": 1}]
        schema = record(field("a", "int"), field("v", "Part"))
    id = schema_registry.register(a_subject(), schema, references=references)
    framed = b"\0" + id.to_bytes(4) + b"\x02"

    made = taken(declared, framed + b"\x02\x02" * 30_000 + b"\x02\0", framed + b"\0")

    assert (made.rows, len(made.letters)) == ([], 2)
    assert said in made.letters[0][2]


def test_a_type_that_stands_twice_or_is_named_in_another_namespace_does_not_contain_itself(
    schema_registry: SchemaRegistry,
) -> None:
    twice = record(
        field("a", ITEM),
        field("b", "Item"),
        field("c", {"type": "array", "items": "Item"}),
        field("d", {"type": "array", "items": ["null", "int"]}),
        field("e", record(field("label", "int"), name="other.Sale")),
    )
    declared = Avro(twice, registry=schema_registry.url, subject=a_subject())
    item = '{"label": "a"}'
    row = {"a": item, "b": item, "c": f"[{item}]", "d": "[null, 1]", "e": '{"label": 1}'}

    assert read(declared, written(declared, *row.values())) == [row]


def test_a_schema_that_the_headers_name_is_read(schema_registry: SchemaRegistry) -> None:
    """Producers may put the GUID of the schema there, and nothing before the data."""
    subject = a_subject()
    declared = Avro(SALE, registry=schema_registry.url, subject=subject)
    data = written(declared, "ann", 1.5)[5:]
    guid = uuid.UUID(schema_registry.subjects()[subject][0]["guid"])
    named, unknown = (Named(data, header=b"\x01" + each.bytes) for each in (guid, uuid.uuid4()))
    reader = declared.reader("value")

    assert reader.read(cast(Any, named)) == {"customer": "ann", "amount": 1.5}
    with pytest.raises(ValueError, match="does not have it"):
        reader.read(cast(Any, unknown))


@dataclass(frozen=True)
class Named(Record):
    """A record with the id of its schema in the headers."""

    header: bytes = b""

    def headers(self) -> Any:
        return [("__value_schema_id", self.header)]


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        ("string", None, "field 'v' is NULL, but its schema does not allow null"),
        ("boolean", None, "field 'v' is NULL"),
        (COLOUR, "GREEN", "expected one of RED, BLUE"),
        ({"type": "array", "items": "boolean"}, '["no"]', "boolean"),
        ({"type": "array", "items": "int"}, "[1", "delimiter|Expecting"),
        (ITEM, '{"lable": "a"}', "label|Item"),
        (logical("bytes", "decimal", precision=4, scale=1), Decimal("12345.6"), "precision|digits"),
        ({"type": "fixed", "name": "F", "size": 2}, b"abc", "size|abc"),
        (logical("string", "uuid"), "no-uuid", "UUID|uuid"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_when_it_is_written(
    schema_registry: SchemaRegistry, kind: Any, value: object, said: str
) -> None:
    """Some of these fastavro writes as something else: it takes any text for true."""
    format = Avro(record(field("v", kind)), registry=schema_registry.url, subject=a_subject())

    with pytest.raises(ValueRefusedError, match=said) as caught:
        written(format, value)
    assert "nothing of its batch was written" in str(caught.value)


def test_the_latest_schema_is_used_where_none_may_be_registered(
    schema_registry: SchemaRegistry,
) -> None:
    """Its fields that have a default may be missing here."""
    subject = a_subject()
    latest = record(*SALE["fields"], field("note", ["null", "string"], default=None))
    schema_registry.register(subject, SALE)
    id = schema_registry.register(subject, latest)
    format = Avro(SALE, registry=schema_registry.url, subject=subject, auto_register=False)

    data = written(format, "ann", 1.5)

    assert data[:5] == b"\0" + id.to_bytes(4)
    assert read(Avro(latest, registry=schema_registry.url), data) == [
        {"customer": "ann", "amount": 1.5, "note": None}
    ]
    assert len(schema_registry.subjects()[subject]) == 2


@pytest.mark.parametrize(
    ("latest", "said"),
    [
        (None, "does not have it"),
        (record(field("customer", "string")), "field 'amount' .* version 1; got None"),
        (record(field("customer", "string"), field("amount", "float")), "got 'float'"),
        (record(*SALE["fields"], field("country", "string")), "'country' without a default"),
        (
            record(*SALE["fields"], field("note", "bytes", default="a")),
            "field 'note' with a default that cannot be written: .*; got 'a'",
        ),
        (
            record(*SALE["fields"], field("note", DECIMAL, default="a")),
            "field 'note' with a default that cannot be written: .*; got 'a'",
        ),
    ],
    ids=["none", "removed", "another type", "added", "bytes", "decimal"],
)
def test_a_latest_schema_with_other_fields_is_refused_before_anything_is_written(
    schema_registry: SchemaRegistry, latest: Any, said: str
) -> None:
    subject = a_subject()
    if latest is not None:
        schema_registry.register(subject, latest)
    format = Avro(SALE, registry=schema_registry.url, subject=subject, auto_register=False)

    with pytest.raises(ConfigError, match=said):
        format.writer("words", "value")


def test_a_format_is_the_same_in_another_process(schema_registry: SchemaRegistry) -> None:
    format = Avro(SALE, registry=schema_registry.url)
    other = pickle.loads(pickle.dumps(format))

    assert read(other, written(format, "ann", 1.5)) == [{"customer": "ann", "amount": 1.5}]
