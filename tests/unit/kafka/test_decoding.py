"""What the values of records become: each is one object, or it is named; no value kills."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, cast

import pyarrow as pa
import pytest

from txtopo import Fields
from txtopo.errors import EmitError
from txtopo.kafka.reading import RecordColumns
from txtopo.state.plain_values import json_of
from txtopo.tuples import Field


@dataclass(frozen=True)
class Record:
    """A record as the client gives it."""

    data: bytes | None
    at: int = 0
    stamp: tuple[int, int] = (1, 0)
    name: bytes | None = None

    def value(self) -> bytes | None:
        return self.data

    def key(self) -> bytes | None:
        return self.name

    def topic(self) -> str:
        return "words"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return self.stamp

    def headers(self) -> None:
        return None


def comparable(rows: list[Any]) -> list[Any]:
    """Return rows in which NaN equals itself."""
    return [tuple("NaN" if value != value else (value,) for value in row) for row in rows]


def at(year: int, microsecond: int = 0) -> datetime:
    return datetime(year, 1, 1, 0, 0, 0, microsecond, UTC)


def read(fields: str, *values: bytes | None) -> list[Any]:
    return read_as(Fields(fields), *values)


def read_as(fields: Fields, *values: bytes | None) -> list[Any]:
    columns = RecordColumns(("value",), value=fields)
    records = cast(Any, [Record(data, at) for at, data in enumerate(values, 40)])
    batch = columns.batch(records, columns.fields().arrow_schema())
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


@pytest.mark.parametrize(
    ("kind", "written", "expected"),
    [
        ("string", b'"a"', "a"),
        ("string", b"null", None),
        ("string", rb'"\u00fc\n\u0000"', "ü\n\0"),
        ("string", b'"}null{"', "}null{"),
        ("string", rb'"\"}{\""', '"}{"'),
        ("binary", b'"AP8="', b"\0\xff"),
        ("binary", b'""', b""),
        ("long", b"9223372036854775807", 2**63 - 1),
        ("long", b"-0", 0),
        ("byte", b"-128", -128),
        ("float", b"16777217", 16777216.0),
        ("double", b"1", 1.0),
        ("double", b"-Infinity", float("-inf")),
        ("boolean", b"true", True),
        ("decimal(10,2)", b"1.2", pa.scalar("1.20").cast(pa.decimal128(10, 2)).as_py()),
        ("decimal(10,2)", b'"1.2"', pa.scalar("1.20").cast(pa.decimal128(10, 2)).as_py()),
        ("double", b'"NaN"', math.nan),
        ("double", b'"Infinity"', math.inf),
        ("float", b' "-Infinity"', -math.inf),
        ("double", b"NaN", math.nan),
        ("string", b'"NaN"', "NaN"),
        ("float", b"3.4028235e38", 3.4028234663852886e38),
        ("decimal(38,0)", b"1" * 38, Decimal("1" * 38)),
        ("long", b"-9007199254740993", -(2**53) - 1),
        ("date", b'"1970-01-04"', datetime(1970, 1, 4).date()),
        ("date", b'"0001-01-01"', datetime.min.date()),
        ("date", b'"9999-12-31"', datetime.max.date()),
        ("timestamp", b'"2020-01-01T02:00:00.123456000+02:00"', at(2020, 123_456)),
        ("timestamp", b'"2020-01-01T00:00"', at(2020)),
        ("timestamp", b'"2020-01-01"', at(2020)),
        ("timestamp", b'"2020-01-01 00:00:00.000001"', at(2020, 1)),
        ("timestamp", b'"9999-01-01T00:00:00.999999Z"', at(9999, 999_999)),
        (
            "timestamp_ntz",
            b'"2020-01-01T00:00:00.123456000"',
            datetime(2020, 1, 1, 0, 0, 0, 123_456),
        ),
        ("timestamp", b'"2020-01-01T00:00:00.5Z"', datetime(2020, 1, 1, 0, 0, 0, 500_000, UTC)),
        ("timestamp_ntz", b'"2020-01-01"', datetime(2020, 1, 1)),
    ],
)
@pytest.mark.parametrize("around", [b'{"v":%s}', b'{"more":[{"v":{}},null], "v" : %s }'])
def test_a_value_of_json_becomes_the_declared_type(
    kind: str, written: bytes, expected: object, around: bytes
) -> None:
    found = read(f"v {kind}", b"{}", around.replace(b"%s", written))

    assert comparable(found) == comparable([(None,), (expected,)])


@pytest.mark.parametrize("name", ["v", "n\u00e4me", "a b", "(x", 'q"q'])
def test_texts_that_stand_for_numbers_are_found_by_the_name_of_their_field(name: str) -> None:
    """Not in a text, or in another field, that looks like one."""
    kind = Field(name, "double")
    fields = Fields.of([kind, Field("w", "string")])
    rows = [(math.nan, f'"{name}":"NaN",'), (1.5, "NaN"), (math.inf, None), (-math.inf, "\\")]
    written = [
        json.dumps(
            {"w": w, name: json_of(v), "o": {name: "NaN"}}, ensure_ascii=at % 2 == 0
        ).encode()
        for at, (v, w) in enumerate(rows)
    ]

    assert comparable(read_as(fields, *written)) == comparable(rows)


def test_space_may_stand_around_and_between_values() -> None:
    values = [
        b' {"v":1}\n',
        b'{\r\n\t"v":\r\n2}\r\n',
        b'{"v":\r3}',
        b'\t{"o":{"a":{} } ,"v":4}',
        None,
    ]

    assert read("v long", *values) == [(1,), (2,), (3,), (4,), (None,)]


@pytest.mark.parametrize("first", [0, 1, 5_000])
@pytest.mark.parametrize(
    "bad",
    [
        b"null",
        b" null ",
        b"{}null",
        b"{}null{}",
        b"{} null\t{}",
        b'{"o":{}}null{"o":{}}',
        b"{}\0{}",
        b"",
        b"\n",
        b"7",
        b"[1]",
        b"[]{}",
        b'{"v":1}{"v":2}',
        b'{"v":1} {"v":2}',
        b'{"v":1},{"v":2}',
        b'{"v":1}\n{"v":2}',
        b'{"v":1',
        b',"w":2}',
        b'{"v":1}}',
        b'{"v":"x"}',
        b'{"v":1.0}',
        b'{"v":1e3}',
        b'{"v":9223372036854775808}',
        b'{"v":{}}',
        b'{"v":[1]}',
        b'{"v":1,"v":2}',
        b'{"w":"a\nb"}',
        b'{"w":"a\tb"}',
        b'{"w":"}x\n{"}',
        rb'{"w":"\ud800"}',
        b'{"w":"\xff"}',
        b"\xff",
        b'\xef\xbb\xbf{"v":1}',
    ],
)
def test_a_value_that_is_not_one_fitting_object_is_named(bad: bytes, first: int) -> None:
    """Also as the first of its range, where a null killed the process."""
    values = [b'{"v":1,"w":"}n"}'] * first + [bad, b"{}"]

    with pytest.raises(EmitError, match="of partition 3 of topic 'words' cannot be read") as caught:
        read("v long, w string", *values)
    facts = caught.value.facts
    assert (facts["topic"], facts["partition"], facts["offset"]) == ("words", 3, 40 + first)


@pytest.mark.parametrize(
    "values",
    [
        [b'{"v":1}{"v":2}', b""],
        [b"", b'{"v":1}{"v":2}'],
        [b'{"v":1', b',"w":"a"}'],
        [b'{"v":1,"o":[{}', b'{}]}{"v":2}'],
        [b'{"v":1,"w":"', b'"}{"v":2}'],
        [b'{"v":1}{"v":2}\0}', b'{"v":3}'],
        [b"{}{}null{", b'"v":1}'],
    ],
)
def test_objects_are_never_given_to_another_record(values: list[bytes]) -> None:
    """As many objects as records: the count alone does not tell."""
    with pytest.raises(EmitError, match=r"offset 4[01] of partition 3"):
        read("v long, w string", *values)


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        ("string", b'"\xff"'),
        ("string", b'"\xed\xa0\x80"'),
        ("timestamp", b'"2020-01-01T00:00:00.123456789"'),
        ("timestamp", b'"0000-12-31"'),
        ("timestamp_ntz", b'"0000-01-01"'),
        ("timestamp", b'"2020-01-01T00:00:00.1234560001"'),
        ("timestamp", b"1577836800"),
        ("timestamp_ntz", b'"2020-01-01T00:00:00+02:00"'),
        ("timestamp_ntz", b'"2020-01-01T00:00:00Z"'),
        ("date", b"2020"),
        ("date", b'"0000-01-01"'),
        ("date", b'"2020-02-30"'),
        ("date", b'"2020-01-01T00:00:00"'),
        ("binary", b'"abc"'),
        ("binary", b'"\xff"'),
        ("binary", b"7"),
        ("float", b"1e39"),
        ("float", b"9" * 400),
        ("double", b"9" * 309),
        ("double", b"-%s.5" % (b"1" * 310)),
        ("double", b'"nan"'),
        ("long", b'"NaN"'),
        ("decimal(9,2)", b'"NaN"'),
        ("decimal(9,2)", b"1.005"),
    ],
)
def test_a_value_that_nobody_could_hold_is_named_with_its_field(kind: str, written: bytes) -> None:
    """It passed, and a store or a bolt failed without knowing where it came from."""
    with pytest.raises(EmitError, match="field 'v' of the value of the record at offset 41") as bad:
        read(f"w string, v {kind}", b'{"v":null}', b'{"v":%s}' % written)
    assert bad.value.field == "v"


@pytest.mark.parametrize("milliseconds", [2**62, 253_402_300_800_000, -62_135_596_800_001])
def test_a_time_of_a_record_that_nobody_could_hold_is_named(milliseconds: int) -> None:
    columns = RecordColumns(("offset", "timestamp"))
    records = cast(Any, [Record(b"", 7), Record(b"", 8, (1, milliseconds))])

    with pytest.raises(EmitError, match=rf"timestamp of the record at offset 8 .*{milliseconds}"):
        columns.batch(records, columns.fields().arrow_schema())


@pytest.mark.parametrize("name", ["key", "value"])
def test_text_that_is_no_utf_8_is_named(name: str) -> None:
    columns = RecordColumns((name,), "string", "string")
    records = cast(Any, [Record(b"a", 7, name=b"b"), Record(b"\xff", 8, name=b"\xff")])

    with pytest.raises(EmitError, match=f"the {name} of the record at offset 8 of partition 3"):
        columns.batch(records, columns.fields().arrow_schema())
