"""What a sink, an export or another program writes, a source of the same fields reads exactly."""

from __future__ import annotations

import csv
import datetime
import json
import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from tests.unit.kafka.test_decoding import Record
from tests.unit.sources.driving import Planner, emit
from txtopo import Fields, Tuple
from txtopo.command.exports import FORMATS, export
from txtopo.kafka.reading import RecordColumns
from txtopo.kafka.sink import _encoded
from txtopo.sources.delta.log import partition_value
from txtopo.sources.files.source import FormatName
from txtopo.spouts import DeltaTransactionalSpout, FilesTransactionalSpout
from txtopo.state import open_state
from txtopo.state.plain_values import json_of, text_of_value
from txtopo.streams import DeltaLookup
from txtopo.testing.conformance.driver import StateDriver, putting
from txtopo.testing.conformance.value_suites import VALUES
from txtopo.tuples import Origin

UTC = datetime.UTC
FIRST, LAST = datetime.datetime.min, datetime.datetime.max
# What has been written wrong somewhere, by type, besides what every store keeps.
HARD: Mapping[str, list[Any]] = {
    "string": ["\u2028", "a\u2029b\x85c\x0b\x0c\x1c", "\0", "null", "NaN", '{"a":1}', "\U0001f600"],
    "binary": [b"AP8=", b'"', b"\xff" * 3],
    "float": [math.nan, math.inf, -math.inf, 3.4028234663852886e38, 1.401298464324817e-45, -0.0],
    "double": [math.nan, math.inf, -math.inf, -0.0, 2.0**53 + 2],
    "decimal(38,18)": [Decimal("-0.000000000000000001"), Decimal("9007199254740993.5")],
    "date": [FIRST.date(), LAST.date(), datetime.date(1969, 12, 31), datetime.date(2263, 1, 1)],
    "timestamp": [each.replace(tzinfo=UTC) for each in (FIRST, LAST)]
    + [datetime.datetime(2262, 4, 12, tzinfo=UTC), datetime.datetime(1600, 1, 1, tzinfo=UTC)],
    "timestamp_ntz": [FIRST, LAST, datetime.datetime(2262, 4, 12)],
}
KINDS = [*dict.fromkeys([*VALUES, *HARD])]


def values_of(kind: str) -> list[Any]:
    return [*VALUES.get(kind, []), *HARD.get(kind, []), None]


def fields_of(kind: str) -> Fields:
    return Fields(f"id long, v {kind}")


def table_of(kind: str, values: Sequence[Any]) -> pa.Table:
    schema = fields_of(kind).arrow_schema()
    ids = pa.array(range(len(values)), pa.int64())
    return pa.Table.from_arrays([ids, pa.array(values, schema.field("v").type)], schema=schema)


def comparable(rows: Sequence[Sequence[Any]]) -> list[Any]:
    """Return rows in order, in which NaN equals itself and 0.0 differs from -0.0."""
    parts = [
        [(type(part).__name__, repr(part)) if isinstance(part, float) else part for part in row]
        for row in rows
    ]
    return sorted(parts, key=lambda row: cast(int, row[0]))


def rows_of(table: pa.Table) -> list[Any]:
    return comparable(list(zip(*(column.to_pylist() for column in table.columns), strict=True)))


def read(made: FilesTransactionalSpout | DeltaTransactionalSpout) -> list[Any]:
    return comparable([row for metadata in Planner(made).all() for row in emit(made, metadata)])


@pytest.mark.parametrize("kind", KINDS)
def test_a_spout_reads_what_a_sink_writes_as_json(kind: str) -> None:
    fields, table = fields_of(kind), table_of(kind, values_of(kind))
    origin = Origin(None, "rows", "default", fields)
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    written = [_encoded(Tuple(row, origin), ("id", "v")) for row in rows]
    columns = RecordColumns(("value",), value=fields)
    records = cast(Any, [Record(data, at) for at, data in enumerate(written)])

    batch = columns.batch(records, columns.fields().arrow_schema())

    assert rows_of(pa.Table.from_batches([batch])) == rows_of(table)
    for data in written:  # and any other reader of JSON takes it
        json.loads(cast(bytes, data), parse_constant=pytest.fail)


@pytest.mark.parametrize("form", FORMATS)
def test_a_spout_reads_what_a_state_is_exported_to(form: str, tmp_path: Path) -> None:
    """One state has a column of each type."""
    kinds = {f"v{at}": kind for at, kind in enumerate(KINDS)}
    value = Fields(", ".join(f"{name} {kind}" for name, kind in kinds.items()))
    state = open_state("memory://", table="all").with_columns(Fields("id long"), value)
    count = max(len(values_of(kind)) for kind in KINDS)
    columns = {name: (values_of(kind) + [None] * count)[:count] for name, kind in kinds.items()}
    if form == "csv":  # no reader of lines can tell the end of one
        columns["v0"] = [text and text.replace("\n", "") for text in columns["v0"]]
    store = StateDriver(state)
    rows = {at: {name: column[at] for name, column in columns.items()} for at in range(count)}
    store.run(1, putting(rows))
    suffix = "json" if form == "jsonl" else form
    with state.reader() as reader:
        assert export(reader, tmp_path / f"all.{suffix}", form, force=False) == count

    fields = Fields.of([*Fields("id long"), *value])
    found = read(FilesTransactionalSpout(tmp_path, fields, cast(FormatName, suffix)))

    schema = fields.arrow_schema()
    arrays = [pa.array(range(count), pa.int64())]
    arrays += [pa.array(columns[name], schema.field(name).type) for name in kinds]
    expected = pa.Table.from_arrays(arrays, schema=schema)
    assert found == rows_of(expected)
    store.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_spout_reads_what_other_programs_write(kind: str, tmp_path: Path) -> None:
    table = table_of(kind, values_of(kind))
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    rows = table.to_pylist()
    lines = [json.dumps({name: json_of(part) for name, part in row.items()}) for row in rows]
    (tmp_path / "a.json").write_text("".join(f"{line}\n" for line in lines))

    for suffix in ("parquet", "json"):
        made = FilesTransactionalSpout(f"{tmp_path}/*.{suffix}", fields_of(kind), suffix)
        assert read(made) == rows_of(table), suffix


@pytest.mark.parametrize("kind", KINDS)
def test_a_spout_reads_the_csv_of_the_standard_library(kind: str, tmp_path: Path) -> None:
    values = [each for each in values_of(kind) if not (isinstance(each, str) and "\n" in each)]
    table = table_of(kind, [each for each in values if each not in ("", b"", None)])
    with (tmp_path / "a.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "v"])
        for row in table.to_pylist():
            writer.writerow([row["id"], text_of_value(row["v"])])

    assert read(FilesTransactionalSpout(tmp_path, fields_of(kind), "csv")) == rows_of(table)


@pytest.mark.parametrize("how", ["spark", "ms", "ns"])
@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_times_of_parquet_are_read_in_each_unit(kind: str, how: str, tmp_path: Path) -> None:
    """Spark writes INT96, whose nanoseconds would wrap from 2262 on."""
    values = values_of(kind)
    if how == "ms":
        values = [each and each.replace(microsecond=0) for each in values]
    if how == "ns":
        values = [each for each in values if each and 1700 < each.year < 2262]
    table = table_of(kind, values)
    options: dict[str, Any] = {"use_deprecated_int96_timestamps": True} if how == "spark" else {}
    zone = "UTC" if kind == "timestamp" else None
    unit = table.schema.field("v").type if how == "spark" else pa.timestamp(how, zone)
    (tmp_path / "files").mkdir()
    written = table.set_column(1, "v", table.column("v").cast(unit))
    pq.write_table(written, tmp_path / "files" / "a.parquet", **options)

    made = FilesTransactionalSpout(tmp_path / "files", fields_of(kind), "parquet")
    assert read(made) == rows_of(table)


def test_a_table_of_delta_with_the_times_of_spark_is_read(tmp_path: Path) -> None:
    """By a spout, by a lookup, and as the table of a state that another program has optimized."""
    table = table_of("timestamp", values_of("timestamp"))
    write_deltalake(tmp_path, table)
    as_spark_writes(tmp_path)
    fields = fields_of("timestamp")

    assert read(DeltaTransactionalSpout(tmp_path, fields)) == rows_of(table)
    assert looked_up(tmp_path, fields) == rows_of(table)


def as_spark_writes(folder: Path) -> None:
    """Write the files of a table of Delta again, with times as Spark has them."""
    for file in folder.glob("*.parquet"):
        table, size = pq.read_table(file), file.stat().st_size
        pq.write_table(table, file, use_deprecated_int96_timestamps=True)
        for entry in folder.glob("_delta_log/*.json"):
            told = entry.read_bytes().replace(
                b'"size":%d' % size, b'"size":%d' % file.stat().st_size
            )
            entry.write_bytes(told)


def test_a_state_in_delta_that_another_program_has_optimized_keeps_its_times(
    tmp_path: Path,
) -> None:
    columns = Fields("id long"), Fields("v timestamp")
    state = open_state(f"delta://{tmp_path}", table="times").with_columns(*columns)
    times = dict(enumerate(values_of("timestamp")[:-1]))
    store = StateDriver(state)
    store.run(1, putting(times))
    store.close()
    as_spark_writes(tmp_path / "times")

    again = StateDriver(state, epoch=2)
    assert again.contents() == times
    again.run(2, putting({0: NOON.replace(tzinfo=UTC)}))
    assert again.contents() == times | {0: NOON.replace(tzinfo=UTC)}
    again.close()


def looked_up(folder: Path, fields: Fields) -> list[Any]:
    lookup = DeltaLookup(folder)
    version = lookup.newest(fields, None, 0)
    return rows_of(lookup.read(version, fields.select(["id"]), fields.select(["v"])))


# What delta-rs itself cannot write as a partition: a path that is too long, the sign of a decimal
# below one, and a number without an end.
NO_PARTITION = ("double", "decimal(38,4)", "decimal(18,4)", "decimal(18,18)", "decimal(5,5)")


@pytest.mark.parametrize("kind", [each for each in KINDS if each not in NO_PARTITION])
def test_the_partitions_of_a_table_of_delta_are_values(kind: str, tmp_path: Path) -> None:
    values = [each for each in values_of(kind) if each not in ("\0", b"") and each == each]
    if kind == "decimal(38,18)":
        values = values[1:]
    if kind == "binary":
        values = [each for each in values if each is None or len(each) < 30]  # a name of a folder
    table = table_of(kind, values)
    write_deltalake(tmp_path, table, partition_by=["v"])
    # Delta keeps an empty text as NULL, in each partition.
    expected = rows_of(table_of(kind, [None if each == "" else each for each in values]))

    assert read(DeltaTransactionalSpout(tmp_path, fields_of(kind))) == expected
    assert looked_up(tmp_path, fields_of(kind)) == expected


NOON = datetime.datetime(2020, 1, 2, 12, 0, 0, 500)


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        *((kind, "", None) for kind in KINDS),
        *((kind, None, None) for kind in KINDS),
        ("string", " ", " "),
        ("date", "2020-01-02", NOON.date()),
        ("timestamp", "2020-01-02 12:00:00", NOON.replace(microsecond=0, tzinfo=UTC)),
        ("timestamp", "2020-01-02 12:00:00.000500", NOON.replace(tzinfo=UTC)),
        ("timestamp", "2020-01-02T12:00:00.000500Z", NOON.replace(tzinfo=UTC)),
        ("timestamp", "9999-12-31 23:59:59.999999", LAST.replace(tzinfo=UTC)),
        ("timestamp_ntz", "2020-01-02 12:00:00.000500", NOON),
        ("timestamp_ntz", "2020-01-02T12:00:00.0005", NOON),
        ("boolean", "true", True),
        ("boolean", "false", False),
        ("decimal(9,4)", "-0.0001", Decimal("-0.0001")),
        ("double", "Infinity", math.inf),
        ("double", "1.0E300", 1e300),
        ("long", "-9007199254740993", -(2**53) - 1),
        ("binary", "\\u0000\\u00fF", b"\0\xff"),
        ("binary", "\0\x01", b"\0\x01"),
        ("binary", "\\u0141", b"\\u0141"),
    ],
)
def test_a_partition_value_is_read_in_each_form_of_the_protocol(
    kind: str, text: str | None, expected: object
) -> None:
    declared = fields_of(kind).arrow_schema().field("v").type

    found = partition_value(text, declared)

    assert found.type == declared
    assert found.as_py() == expected


@pytest.mark.parametrize(
    ("kind", "text"),
    [("long", "1.5"), ("date", "2020"), ("timestamp_ntz", "2020-01-02T12:00:00Z"), ("byte", "128")],
)
def test_a_partition_value_of_another_type_is_refused(kind: str, text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        partition_value(text, fields_of(kind).arrow_schema().field("v").type)
