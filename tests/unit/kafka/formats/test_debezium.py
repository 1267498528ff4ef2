"""Debezium's records: the rows that they become, where they are in the log, what is refused."""

from __future__ import annotations

import io
import json
import pickle
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from tests.harness.servers.schema_registry import SchemaRegistry
from tests.unit.kafka.formats.envelopes import (
    ANNE,
    CASES,
    REFUSED,
    EnvelopeCase,
    column,
    envelope,
    mysql,
    postgresql,
    with_schema,
)
from tests.unit.kafka.formats.records import a_subject
from tests.unit.kafka.test_dead_letters import Taken
from tests.unit.kafka.test_decoding import Record
from txtopo import Debezium, Fields
from txtopo.errors import ConfigError, EmitError, FieldsError
from txtopo.kafka.formats.debezium_positions import place_of
from txtopo.kafka.reading import RecordColumns

CUSTOMERS = "id long, first_name string, email string"


def data(value: object) -> bytes | None:
    return None if value is None else json.dumps(value).encode()


def read(format: Debezium, *records: Record, letters_max: int | None = None) -> Taken:
    taken = Taken(RecordColumns(("value",), value=format), letters_max)
    taken.emit(*records)
    return taken


def rows(format: Debezium, *records: Record) -> list[dict[str, Any]]:
    return [row for batch in read(format, *records).batches for row in batch.to_pylist()]


def one(declared: str, value: object, meaning: Any = None, **options: Any) -> Any:
    """Return what the value of a column becomes, with the schema of the column or without."""
    format = Debezium(f"id long, v {declared}", key="id", **options)
    payload: Any = envelope("c", postgresql(1), before=None, after={"id": 1, "v": value})
    if meaning is not None:
        payload = with_schema(payload, [column("id", "int64"), column("v", *meaning[:2])])
        payload["schema"]["fields"][1]["fields"][1] |= meaning[2] if len(meaning) > 2 else {}
    return rows(format, Record(data(payload)))[0]["v"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.about)
@pytest.mark.parametrize("schemas", [False, True])
@pytest.mark.rule("txtopo.kafka.formats.debezium", "Rules", 1)
@pytest.mark.rule("txtopo.kafka.formats.debezium", "Rules", 2)
def test_a_record_is_the_row_of_its_change(case: EnvelopeCase, schemas: bool) -> None:
    value = case.value
    if schemas and isinstance(value, dict) and "op" in value:
        columns = [column("id", "int32"), column("first_name", "string"), column("email", "string")]
        value = with_schema(value, columns)
    record = Record(data(value), name=data(case.key))

    got = rows(Debezium(CUSTOMERS, key="id", **case.options), record)

    if case.row is None:
        assert got == []
        return
    assert isinstance(case.value, dict)
    assert case.place is not None
    position, timeline = case.place
    place = {"op": case.value["op"], "position": position, "timeline": timeline}
    assert got == [case.row | place]


@pytest.mark.parametrize(
    ("value", "reason"), [each[1:] for each in REFUSED], ids=[r[0] for r in REFUSED]
)
@pytest.mark.rule("txtopo.kafka.formats.debezium", "Rules", 3)
@pytest.mark.rule("txtopo.kafka.formats.debezium", "Rules", 4)
def test_what_is_not_understood_is_refused(value: object, reason: str) -> None:
    format = Debezium(CUSTOMERS, key="id")
    with pytest.raises(EmitError) as raised:
        read(format, Record(data(value)))
    assert reason in str(raised.value)

    taken = read(format, Record(data(value)), Record(data(CASES[0].value)), letters_max=10)
    assert len(taken.letters) == 1
    assert sum(batch.num_rows for batch in taken.batches) == 1


def test_a_key_may_have_several_columns_and_other_names() -> None:
    format = Debezium("a long, op string, b date", key=["a", "b"], op="change")
    deleted = envelope("d", postgresql(1), before={"a": 1, "op": "x", "b": 365})

    [row] = rows(format, Record(data(deleted)))

    assert (row["a"], row["b"]) == (1, date(1971, 1, 1))
    assert (row["op"], row["change"]) == (None, "d")
    assert format.fields("value").names == ("a", "op", "b", "change", "position", "timeline")


def test_the_columns_of_records_and_of_changes_may_be_together() -> None:
    columns = RecordColumns(("offset", "value"), value=Debezium(CUSTOMERS, key="id"))
    names = ("offset", "id", "first_name", "email", "op", "position", "timeline")
    assert columns.fields().names == names
    assert columns.client_modules == ("confluent_kafka",)
    with pytest.raises(FieldsError, match="timestamp"):
        RecordColumns(value=Debezium("id long, timestamp date", key="id")).fields()


# Positions: their order is that of the log.


def at(source: dict[str, Any], op: str = "u") -> str:
    return place_of(source, op, [223344])[0]


@pytest.mark.parametrize("seed", range(20))
def test_positions_of_postgresql_have_the_order_of_the_log(seed: int) -> None:
    """Open transactions interleave their LSNs; the log has one after the other, by commit."""
    chance = random.Random(seed)
    lsn, commit = 100, None
    opened: list[list[int]] = []
    log: list[str] = []
    snapshot = [at(postgresql(lsn, snapshot="true"), "r")]
    for _ in range(300):
        lsn += chance.choice([1, 8, 10 ** chance.randrange(9)])
        if not opened or chance.random() < 0.1:
            opened.append([])
        if chance.random() < 0.3:
            changes = opened.pop(chance.randrange(len(opened)))
            log += [at(postgresql(each, commit)) for each in changes]
            commit = lsn
            if chance.random() < 0.3:
                # The record that closes the window of an incremental snapshot, with its rows.
                lsn += 1
                source = postgresql(lsn, commit, snapshot="incremental")
                log += [at(source, "r"), at(postgresql(lsn, commit))]
                commit = lsn = lsn + 1
        else:
            chance.choice(opened).append(lsn)

    assert snapshot + log == sorted(snapshot + log)
    assert len(set(log)) == len(log)


def test_a_change_that_was_open_during_an_incremental_snapshot_is_after_it() -> None:
    """By its LSN alone it would be before it, and be lost."""
    of_snapshot = at(postgresql(40, 30, snapshot="incremental"), "r")
    assert at(postgresql(10, 45)) > of_snapshot


def test_positions_of_mysql_have_the_order_of_the_binlog() -> None:
    ordered = [
        at(mysql("b.000009", 154, snapshot="last", server_id=0), "r"),
        at(mysql("b.000009", 154)),
        at(mysql("b.000009", 1000)),
        at(mysql("b.000009", 1000, 2)),
        at(mysql("b.000009", 1000, 10, snapshot="incremental"), "r"),
        at(mysql("b.000009", 1000, 10)),
        at(mysql("b.000010", 4)),
        at(mysql("b.1000000", 4)),
    ]
    assert ordered == sorted(set(ordered))


def test_timelines_differ_where_positions_cannot_be_compared() -> None:
    timelines = [
        place_of(source, "u", [1])[1]
        for source in (
            postgresql(1),
            postgresql(1, name="b"),
            postgresql(1, db="b"),
            mysql("a.1", 1, server_id=1),
            mysql("b.1", 1, server_id=1),
            mysql("a.1", 1, server_id=2),
        )
    ]
    assert len(set(timelines)) == len(timelines)
    snapshot = mysql("a.1", 1, server_id=0, snapshot="true")
    assert place_of(snapshot, "r", [1])[1] == timelines[3]


# Values: what a schema says, and what has to be told.

MICROS = 1529507596945104
WHEN = datetime(2018, 6, 20, 15, 13, 16, 945104, UTC)
WHEN_MS = WHEN.replace(microsecond=945000)
DECIMAL = ("bytes", "org.apache.kafka.connect.data.Decimal", {"parameters": {"scale": "2"}})
VARIABLE = ("struct", "io.debezium.data.VariableScaleDecimal")

DESCRIBED = [
    ("timestamp", MICROS, ("int64", "io.debezium.time.MicroTimestamp"), WHEN),
    (
        "timestamp_ntz",
        MICROS,
        ("int64", "io.debezium.time.MicroTimestamp"),
        WHEN.replace(tzinfo=None),
    ),
    ("timestamp", MICROS // 1000, ("int64", "io.debezium.time.Timestamp"), WHEN_MS),
    ("timestamp", MICROS * 1000, ("int64", "io.debezium.time.NanoTimestamp"), WHEN),
    ("timestamp", MICROS // 1000, ("int64", "org.apache.kafka.connect.data.Timestamp"), WHEN_MS),
    (
        "timestamp",
        "2018-06-20T15:13:16.945104Z",
        ("string", "io.debezium.time.ZonedTimestamp"),
        WHEN,
    ),
    (
        "timestamp_ntz",
        "2018-06-20T15:13:16Z",
        ("string", "io.debezium.time.IsoTimestamp"),
        datetime(2018, 6, 20, 15, 13, 16),
    ),
    ("date", 17000, ("int32", "io.debezium.time.Date"), date(2016, 7, 18)),
    ("date", -1, ("int32", "org.apache.kafka.connect.data.Date"), date(1969, 12, 31)),
    ("date", "2016-07-18Z", ("string", "io.debezium.time.IsoDate"), date(2016, 7, 18)),
    ("string", 30600500, ("int32", "io.debezium.time.Time"), "08:30:00.5"),
    ("string", 30600000001, ("int64", "io.debezium.time.MicroTime"), "08:30:00.000001"),
    ("string", -3020399000000, ("int64", "io.debezium.time.MicroTime"), "-838:59:59"),
    ("string", "a", ("string", "io.debezium.data.Enum", {"parameters": {"allowed": "a,b"}}), "a"),
    ("string", '{"a": 1}', ("string", "io.debezium.data.Json"), '{"a": 1}'),
    ("decimal(10,2)", "EtaH", DECIMAL, Decimal("12345.67")),
    ("decimal(10,2)", "/w==", DECIMAL, Decimal("-0.01")),
    ("decimal(10,3)", "AA==", DECIMAL, Decimal("0.000")),
    ("decimal(10,2)", 12.5, DECIMAL, Decimal("12.50")),
    ("decimal(10,2)", {"scale": 3, "value": "AeI="}, VARIABLE, None),
    ("decimal(10,3)", {"scale": 3, "value": "AeI="}, VARIABLE, Decimal("0.482")),
    ("decimal(10,2)", {"scale": 0, "value": "Bw=="}, VARIABLE, Decimal(7)),
    ("decimal(10,2)", "1234", ("string",), Decimal(1234)),
    ("decimal(10,2)", "NaN", ("string",), None),
    ("decimal(4,2)", "123.4", ("string",), None),
    ("decimal(20,0)", 18446744073709551615, ("int64",), Decimal(18446744073709551615)),
    ("decimal(10,2)", "1e999999999", ("string",), None),
    ("double", 0.1, ("double",), 0.1),
    ("double", "NaN", ("double",), float("nan")),
    ("float", 0.5, ("float",), 0.5),
    ("float", 1e300, ("double",), None),
    ("float", 2**24 + 1, ("int32",), None),
    ("double", 10**400, ("double",), None),
    ("double", "EtaH", DECIMAL, None),
    ("boolean", True, ("boolean",), True),
    ("boolean", 1, ("int16",), True),
    ("boolean", 2, ("int16",), None),
    ("binary", "/wA=", ("bytes",), b"\xff\0"),
    ("binary", "/wA=", ("bytes", "io.debezium.data.Bits"), b"\xff\0"),
    ("int", 7, ("int32", "io.debezium.time.Year"), 7),
    ("long", 2**63 - 1, ("int64",), 2**63 - 1),
    ("long", 2**63, ("int64",), None),
    ("long", MICROS, ("int64", "io.debezium.time.MicroTimestamp"), None),
    ("int", 30600500, ("int32", "io.debezium.time.Time"), None),
    ("string", MICROS, ("int64", "io.debezium.time.MicroTimestamp"), None),
    ("timestamp", MICROS, ("int64",), None),
    ("timestamp", 17000, ("int32", "io.debezium.time.Date"), None),
    ("timestamp", MICROS * 1000 + 1, ("int64", "io.debezium.time.NanoTimestamp"), None),
    ("timestamp", 9223372036825200000, ("int64", "io.debezium.time.MicroTimestamp"), None),
    ("timestamp_ntz", "2018-06-20T15:13:16Z", ("string", "io.debezium.time.ZonedTimestamp"), None),
    ("date", MICROS, ("int64", "io.debezium.time.MicroTimestamp"), None),
    ("string", 5, ("int32",), None),
    ("string", "EtaH", DECIMAL, None),
    ("string", "/wA=", ("bytes",), None),
    ("decimal(20,0)", MICROS, ("int64", "io.debezium.time.MicroTimestamp"), None),
    ("string", {"x": 1.0}, ("struct", "io.debezium.data.geometry.Point"), None),
    ("binary", "/wA=", ("string",), None),
    ("binary", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==", ("bytes",), None),
]


@pytest.mark.parametrize(("declared", "value", "meaning", "expected"), DESCRIBED)
@pytest.mark.rule("txtopo.kafka.formats.debezium", "Rules", 3)
def test_a_schema_says_what_a_value_means(
    declared: str, value: object, meaning: tuple[Any, ...], expected: object
) -> None:
    if expected is None:
        with pytest.raises(EmitError, match="'v'"):
            one(declared, value, meaning)
        return
    got = one(declared, value, meaning)
    assert repr(got) == repr(expected) or got == expected


@pytest.mark.parametrize(
    ("declared", "value", "options", "expected"),
    [
        ("timestamp", MICROS, {"times": "microseconds"}, WHEN),
        ("timestamp", MICROS // 1000, {"times": "milliseconds"}, WHEN_MS),
        ("timestamp", MICROS, {}, None),
        ("timestamp", "2018-06-20T17:13:16.945104+02:00", {}, WHEN),
        ("date", 17000, {}, date(2016, 7, 18)),
        ("decimal(10,2)", "EtaH", {"decimals": "precise"}, Decimal("12345.67")),
        ("decimal(10,2)", "1234", {"decimals": "string"}, Decimal(1234)),
        ("decimal(10,2)", "1234", {}, None),
        ("decimal(10,2)", 0.1, {}, Decimal("0.10")),
        ("decimal(10,2)", {"scale": 1, "value": "Bw=="}, {}, Decimal("0.70")),
        ("binary", "/wA=", {"binary": "base64"}, b"\xff\0"),
        ("binary", "_wA=", {"binary": "base64-url-safe"}, b"\xff\0"),
        ("binary", "ff00", {"binary": "hex"}, b"\xff\0"),
        ("binary", "ff00", {}, None),
        ("long", None, {}, None),
    ],
)
@pytest.mark.rule("txtopo.kafka.formats.debezium", "Rules", 3)
def test_without_a_schema_what_could_be_two_things_must_be_told(
    declared: str, value: object, options: dict[str, Any], expected: object
) -> None:
    if expected is None and value is not None:
        with pytest.raises(EmitError, match=r"told .*Debezium\("):
            one(declared, value, **options)
    else:
        assert one(declared, value, **options) == expected


def test_a_number_beyond_the_range_of_a_double_is_refused() -> None:
    written = data(envelope("c", postgresql(1), after={"id": 1, "v": 7}))
    assert written is not None
    with pytest.raises(EmitError, match="a number that a double has"):
        rows(
            Debezium("id long, v double", key="id"),
            Record(written.replace(b'"v": 7', b'"v": -1e400')),
        )


def test_a_placeholder_of_another_name_is_found() -> None:
    format = Debezium(CUSTOMERS, key="id", unavailable="absent")
    for value in ("absent", "YWJzZW50", "616273656e74"):
        with pytest.raises(EmitError, match="REPLICA IDENTITY"):
            rows(format, Record(data(envelope("u", postgresql(1), after=ANNE | {"email": value}))))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"key": "name"}, "unknown field 'name'"),
        ({"key": ()}, r"key of Debezium\(…\) is empty"),
        ({"fields": "id long, op string"}, r"op='change_op'"),
        ({"fields": "id long, position string"}, "position='change_position'"),
        ({"timeline": "op"}, "cannot be named 'op'"),
        ({"times": "seconds"}, "milliseconds, microseconds, nanoseconds"),
        ({"decimals": "double"}, "precise, string"),
        ({"binary": "bytes"}, "base64"),
        ({"server_ids": ["a"]}, "server_ids"),
        ({"settings": {"timeout": 1}}, "registry"),
        ({"registry": "nowhere"}, "registry"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], reason: str) -> None:
    given = {"fields": "id long", "key": "id"} | arguments
    with pytest.raises((ConfigError, FieldsError), match=reason):
        Debezium(given.pop("fields"), **given)


def test_a_format_travels_to_the_tasks() -> None:
    format = pickle.loads(pickle.dumps(Debezium(Fields("id long"), key="id", server_ids=[1])))
    source = mysql("b.1", 1, server_id=1)
    assert len(rows(format, Record(data(envelope("c", source, after={"id": 1}))))) == 1


# Avro: as Connect's AvroConverter writes it.

NULLABLE = {"default": None}


def nullable(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], **NULLABLE}


def connect(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "connect.version": 1, "connect.name": name, **more}


ID = {"name": "id", "type": "long"}
VALUE = {
    "type": "record",
    "name": "Value",
    "fields": [
        ID,
        nullable(
            "price",
            connect(
                "bytes",
                "org.apache.kafka.connect.data.Decimal",
                scale=2,
                precision=64,
                logicalType="decimal",
            ),
        ),
        nullable(
            "rate",
            {
                "type": "record",
                "name": "VariableScaleDecimal",
                "namespace": "io.debezium.data",
                "connect.name": "io.debezium.data.VariableScaleDecimal",
                "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
            },
        ),
        nullable("at", connect("long", "io.debezium.time.MicroTimestamp")),
        nullable(
            "seen",
            connect(
                "long", "org.apache.kafka.connect.data.Timestamp", logicalType="timestamp-millis"
            ),
        ),
        nullable("day", connect("int", "io.debezium.time.Date")),
        nullable("hour", connect("int", "io.debezium.time.Time")),
        nullable("data", "bytes"),
    ],
}
SOURCE = {
    "type": "record",
    "name": "Source",
    "namespace": "io.debezium.connector.postgresql",
    "fields": [
        {"name": "connector", "type": "string"},
        {"name": "name", "type": "string"},
        {"name": "db", "type": "string"},
        nullable("snapshot", "string"),
        nullable("sequence", "string"),
        nullable("lsn", "long"),
    ],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "namespace": "inventory.public.customers",
    "fields": [
        nullable("before", VALUE),
        nullable("after", "Value"),
        {"name": "source", "type": SOURCE},
        {"name": "op", "type": "string"},
        nullable("ts_ms", "long"),
    ],
}
KEY = {"type": "record", "name": "Key", "fields": [ID]}
AVRO_COLUMNS = (
    "id long, price decimal(10,2), rate decimal(10,4), at timestamp_ntz, seen timestamp, "
    "day date, hour string, data binary"
)


def framed(registry: SchemaRegistry, schema: Any, value: object) -> bytes:
    """Return a value as Confluent's serializer writes it, with the id of its schema."""
    id = registry.register(a_subject(), schema)
    written = io.BytesIO(b"\0" + id.to_bytes(4, "big"))
    written.seek(0, io.SEEK_END)
    fastavro.schemaless_writer(
        written, fastavro.parse_schema(json.loads(json.dumps(schema))), value
    )
    return written.getvalue()


def test_avro_says_by_its_own_schema_what_a_value_means(schema_registry: SchemaRegistry) -> None:
    format = Debezium(AVRO_COLUMNS, key="id", registry=schema_registry.url)
    source = {name: value for name, value in postgresql(7, 5).items() if value is not None}
    after = {
        "id": 1,
        "price": Decimal("-12.50"),
        "rate": {"scale": 3, "value": b"\x01\xe2"},
        "at": MICROS,
        "seen": WHEN_MS,
        "day": 17000,
        "hour": 30600500,
        "data": b"\xff",
    }
    records = [
        Record(framed(schema_registry, ENVELOPE, envelope("c", source, after=after))),
        Record(
            framed(schema_registry, ENVELOPE, envelope("d", source)),
            name=framed(schema_registry, KEY, {"id": 2}),
        ),
        Record(None, name=framed(schema_registry, KEY, {"id": 2})),
    ]

    created, deleted = rows(format, *records)

    assert (
        created.items()
        >= {
            "price": Decimal("-12.50"),
            "rate": Decimal("0.482"),
            "at": WHEN.replace(tzinfo=None),
            "seen": WHEN_MS,
            "day": date(2016, 7, 18),
            "hour": "08:30:00.5",
            "data": b"\xff",
            "position": f"{7:020d}.{7:020d}.1",
        }.items()
    )
    assert (deleted["id"], deleted["op"], deleted["price"]) == (2, "d", None)
    assert format.modules == ("confluent_kafka.schema_registry.avro",)


def test_avro_that_is_no_envelope_is_refused(schema_registry: SchemaRegistry) -> None:
    format = Debezium("id long", key="id", registry=schema_registry.url)
    for value in (
        b"{}",
        framed(schema_registry, KEY, {"id": 1}),
        framed(schema_registry, "long", 1),
    ):
        with pytest.raises(EmitError, match="cannot be read"):
            rows(format, Record(value))
