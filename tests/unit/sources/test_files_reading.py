"""What is read of a file, and what is said of one that cannot be read."""

from __future__ import annotations

import gzip
import json
import os
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.sources.driving import Emitted, Planner, context, emit
from tests.unit.sources.files import FORMATS, numbered, spout, write
from txtopo import Config, Fields, TransactionAttempt
from txtopo.errors import (
    ConfigError,
    EmitError,
    InfrastructureError,
    OffsetRegression,
    SourceDataLost,
)
from txtopo.sources.files import reading
from txtopo.spouts import FilesTransactionalSpout


def test_compressed_lines_are_read_as_one_range(tmp_path: Path) -> None:
    for at in range(3):
        with gzip.open(tmp_path / f"{at}.csv.gz", "wt") as file:
            file.write("name,amount\n" + "".join(f"{w},{n}\n" for w, n in numbered(20, 100 * at)))
    for limits in ({"batch_rows_max": 5}, {"batch_bytes_max": 10}, {"batch_files_max": 1}):
        made = spout(tmp_path, partitions=2, **limits)

        assert [len(emit(made, metadata, 2)) for metadata in Planner(made).all()] == [20] * 3


def test_csv_knows_nulls_quotes_and_missing_ends(tmp_path: Path) -> None:
    text = 'name,amount\r\n"a,b",1\r\n,2\r\n"",3\r\nNA,NA'
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    made = spout(tmp_path, null_values=("", "NA"), partitions=3)
    (metadata,) = Planner(made).all()

    assert sorted(emit(made, metadata), key=str) == sorted(
        [("a,b", 1), (None, 2), ("", 3), (None, None)], key=str
    )


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_value_that_is_missing_at_the_end_of_a_file_is_null(tmp_path: Path, end: str) -> None:
    """Arrow took it for a value in quotes, since there is one in its line."""
    (tmp_path / "a.csv").write_text(f'name,amount\n"a",1\n"b",{end}')
    made = spout(tmp_path)

    assert sorted(emit(made, Planner(made).plan())) == [("a", 1), ("b", None)]


def test_csv_without_a_header_is_read_by_position(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a;1\nb;2\n")
    made = spout(tmp_path, header=False, delimiter=";", batch_rows_max=1)

    assert [emit(made, metadata) for metadata in Planner(made).all()] == [[("a", 1)], [("b", 2)]]


@pytest.mark.parametrize("format", FORMATS)
def test_empty_files_are_read_and_forgotten(tmp_path: Path, format: str) -> None:
    write(tmp_path / "b", format, [])
    if format != "parquet":
        (tmp_path / "a").touch()
    made = spout(tmp_path, format, batch_rows_max=3)
    planner = Planner(made)

    assert [emit(made, metadata) for metadata in planner.all()] in ([[]], [])
    assert planner.plan() is None


def test_record_batches_are_bounded(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x\n" * 120_000)
    made = spout(tmp_path, "text", partitions=1)
    (metadata,) = Planner(made).all()
    emitted = Emitted(made)
    emitter = made.emitter(Config(), context())
    emitter.emit_batch(TransactionAttempt(1), metadata, emitted.collector)

    assert sum(batch.num_rows for batch in emitted.batches) == 120_000
    assert max(batch.num_rows for batch in emitted.batches) <= 100_000


@pytest.mark.parametrize("how", ["changed", "gone", "other time"])
@pytest.mark.row(24)
def test_data_that_is_gone_or_changed_stops_the_run(tmp_path: Path, how: str) -> None:
    path = tmp_path / "a.csv"
    write(path, "csv", numbered(3))
    made = spout(tmp_path)
    metadata = Planner(made).plan()
    if how == "gone":
        path.unlink()
    elif how == "changed":
        write(path, "csv", numbered(4))
    else:
        os.utime(path, (1, 1))

    with pytest.raises(SourceDataLost, match=r"a\.csv' of a planned batch is (gone|changed)"):
        emit(made, metadata)


@pytest.mark.row(11)
@pytest.mark.parametrize(("rows", "kind"), [(2, OffsetRegression), (4, SourceDataLost)])
def test_a_file_that_is_shorter_than_it_was_went_back(
    tmp_path: Path, rows: int, kind: type[SourceDataLost]
) -> None:
    path = tmp_path / "a.csv"
    write(path, "csv", numbered(3))
    made = spout(tmp_path)
    metadata = Planner(made).plan()
    write(path, "csv", numbered(rows))

    with pytest.raises(SourceDataLost, match="is changed") as caught:
        emit(made, metadata)
    assert type(caught.value) is kind


def test_a_file_that_does_not_hold_the_fields_is_named(tmp_path: Path) -> None:
    bad = {
        "csv": "name,amount\na,b\n",
        "json": '{"name": "a", "amount": "b"}\n',
        "parquet": "no parquet",
    }
    for format, text in bad.items():
        path = tmp_path / format / "bad.file"
        path.parent.mkdir()
        path.write_text(text)
        made = spout(path.parent, format, partitions=1, batch_files_max=1)

        with pytest.raises(EmitError, match=r"cannot read .*bad\.file'.* as .*; expected Fields"):
            emit(made, Planner(made).plan())


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("name,sum\na,1\n")
    made = spout(tmp_path)

    with pytest.raises(EmitError, match="it has no column 'amount', only name, sum"):
        emit(made, Planner(made).plan())


def test_archives_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv.zip").write_bytes(b"PK")

    with pytest.raises(ConfigError, match=r"a\.csv\.zip' is an archive; .*unpack it"):
        Planner(spout(tmp_path)).plan()


@pytest.mark.row(10)
def test_a_filesystem_that_fails_is_an_infrastructure_fault(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.csv", "csv", numbered(3))
    made = spout(tmp_path / "in")
    metadata = Planner(made).plan()
    (tmp_path / "in" / "a.csv").unlink()
    (tmp_path / "in").rmdir()
    (tmp_path / "in").write_text("a file where a folder was")

    with pytest.raises((InfrastructureError, SourceDataLost)):
        emit(made, metadata)


@pytest.mark.parametrize("before", [0, 3, pytest.param(700_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("format", "good", "bad", "field"),
    [
        ("json", b'{"name":"a"}\n', b"null\n", None),
        ("json", b'{"name":"a"}\n', b'{"name":"a"}{"name":"b"}\n', None),
        ("json", b'{"name":"a"}\n', b'{"name":\n"a"}\n', None),
        ("json", b'{"name":"a"}\n', b'{"name":"\xff"}\n', "name"),
        ("json", b'{"name":"a"}\n', b'{"amount":1.5}\n', "amount"),
        ("csv", b"a,1\n", b"a,b\n", "amount"),
        ("csv", b"a,1\n", b"\xff,1\n", "name"),
        ("csv", b"a,1\n", b"a,0x10\n", "amount"),
        ("csv", b"a,1\n", b"ab,0X1f\n", "amount"),
        ("csv", b"a,1\n", b"a,1,2\n", None),
        ("csv", b"a,1\n", b'"a\nb",2\n', None),
        ("csv", b"a,1\n", b'"a\n', None),
        ("text", b"a\n", b"\xff\n", None),
    ],
)
def test_a_line_that_cannot_be_read_is_named(
    tmp_path: Path, format: str, good: bytes, bad: bytes, field: str | None, before: int
) -> None:
    """Also in a range that begins in the middle of the file."""
    check_its_name(tmp_path, format, good, bad, field, before)


def check_its_name(
    tmp_path: Path, format: str, good: bytes, bad: bytes, field: str | None, before: int
) -> None:
    (tmp_path / "a").write_bytes(b"\n" * (format == "json") + good * before + bad + good)
    options = {"header": False} if format == "csv" else {}
    made = spout(tmp_path, format, partitions=3, **options)
    line = 1 + (format == "json") + before

    with pytest.raises(EmitError, match=rf"line {line} of '.*/a' as {format}: ") as caught:
        emit(made, Planner(made).plan())
    assert caught.value.line == line
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("format", "good", "bad"),
    [
        ("json", b'{"name":"a"}\n', b"null\n"),
        ("csv", b"a,1\n", b"a,b\n"),
        ("text", b"a\n", b"\xff\n"),
    ],
)
def test_a_bad_line_behind_the_first_block_is_named(
    tmp_path: Path, format: str, good: bytes, bad: bytes
) -> None:
    field = "amount" if format == "csv" else None
    check_its_name(tmp_path, format, good, bad, field, 700_000)


@pytest.mark.parametrize("format", ["csv", "json", "parquet"])
@pytest.mark.parametrize(("kind", "text"), [("float", "1e39"), ("double", "-1e400")])
def test_a_number_beyond_its_range_is_named_and_not_infinite(
    tmp_path: Path, format: str, kind: str, text: str
) -> None:
    if format == "csv":
        (tmp_path / "a").write_text(f"x\n0.5\ninf\n{text}\n")
    elif format == "json":
        (tmp_path / "a").write_text(f'{{"x":0.5}}\n{{"x":"Infinity"}}\n{{"x":{text}}}\n')
    else:
        pq.write_table(pa.table({"x": ["0.5", "inf", text]}), tmp_path / "a")
    made = FilesTransactionalSpout(tmp_path, Fields(f"x {kind}"), format)  # type: ignore[arg-type]

    with pytest.raises(EmitError, match=r"(line (3|4)|row 2) of '.*/a'"):
        emit(made, Planner(made).plan())


def test_csv_may_have_infinity_spaces_and_texts_that_look_hexadecimal(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("name,n,x\n0x10, 5 , -Infinity\n0X1f,,INF\n")
    made = FilesTransactionalSpout(tmp_path, Fields("name string, n long, x double"), "csv")

    found = emit(made, Planner(made).plan())

    assert found == [("0x10", 5, float("-inf")), ("0X1f", None, float("inf"))]


@pytest.mark.parametrize(
    ("column", "kind", "why"),
    [
        (pa.array([1, 2]), "timestamp", "nothing says what the number counts"),
        (pa.array([1, 2], pa.int32()), "date", "nothing says what the number counts"),
        (pa.array([1, 2], pa.timestamp("ms")), "long", "nothing in common"),
        (pa.array([1, 2], pa.timestamp("us", "UTC")), "timestamp_ntz", "depends on the zone"),
        (pa.array([1, 2]), "string", "nothing in common"),
    ],
)
def test_a_column_of_parquet_with_other_values_than_its_field_is_named(
    tmp_path: Path, column: pa.Array, kind: str, why: str
) -> None:
    pq.write_table(pa.table({"x": column}), tmp_path / "a")
    made = FilesTransactionalSpout(tmp_path, Fields(f"x {kind}"), "parquet")

    with pytest.raises(
        EmitError, match=rf"field 'x' of .*/a' as parquet: .* cannot .*{why}"
    ) as caught:
        emit(made, Planner(made).plan())
    assert "dead_letters" not in str(caught.value)  # they do not help


@pytest.mark.parametrize("adjusted", [False, True])
def test_a_column_of_parquet_says_whether_its_times_are_moments(
    tmp_path: Path, adjusted: bool
) -> None:
    """As Spark writes ``TIMESTAMP_NTZ`` and ``TIMESTAMP``."""
    column = pa.array([0], pa.timestamp("us", "UTC" if adjusted else None))
    pq.write_table(pa.table({"x": column}), tmp_path / "a", store_schema=False)
    said = pq.read_schema(tmp_path / "a").field("x").type
    kind = "timestamp" if adjusted else "timestamp_ntz"
    made = FilesTransactionalSpout(tmp_path, Fields(f"x {kind}"), "parquet")

    assert (said.tz is not None) == adjusted
    assert len(emit(made, Planner(made).plan())) == 1


def test_a_mark_of_utf_8_and_blank_lines_are_passed_over_in_json(tmp_path: Path) -> None:
    text = b'\xef\xbb\xbf{"name":"a"}\r\n\r\n \n{"name":"b"}'
    (tmp_path / "a").write_bytes(text)
    made = spout(tmp_path, "json", partitions=1)

    assert emit(made, Planner(made).plan()) == [("a", None), ("b", None)]


@pytest.mark.parametrize(
    ("format", "text", "expected"),
    [
        ("text", "\ufeffa\nb", [("a",), ("b",)]),
        ("text", "\ufeff\ufeffa\n\ufeffb", [("\ufeffa",), ("\ufeffb",)]),
        ("text", "\ufeff", []),
        ("text", "\ufeff\n", [("",)]),
        ("csv", "\ufeffa,1\nb,2\n", [("a", 1), ("b", 2)]),
    ],
)
@pytest.mark.parametrize("limits", [{}, {"batch_rows_max": 1}, {"batch_bytes_max": 1}])
def test_a_mark_of_utf_8_is_no_part_of_the_first_line(
    tmp_path: Path,
    format: str,
    text: str,
    expected: list[tuple[object, ...]],
    limits: dict[str, int],
) -> None:
    (tmp_path / "a").write_text(text)
    made = spout(tmp_path, format, header=False, **limits)

    assert [row for each in Planner(made).all() for row in emit(made, each)] == expected


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_a_column_that_stands_twice_is_refused_if_it_is_read(tmp_path: Path, format: str) -> None:
    """Which of the two is meant is unknown; exports with several empty names continue."""
    names = ["name", "amount", "amount", "", ""]
    if format == "csv":
        (tmp_path / "a").write_text(f"{','.join(names)}\na,1,5,,\n")
    else:
        columns = [pa.array(["a"]), *[pa.array([n]) for n in range(4)]]
        pq.write_table(pa.Table.from_arrays(columns, names), tmp_path / "a")
    made = spout(tmp_path, format)

    message = rf"cannot read '.*/a', .* as {format}: it has column 'amount' more than once: "
    with pytest.raises(EmitError, match=message):
        emit(made, Planner(made).plan())
    other = FilesTransactionalSpout(tmp_path, Fields("name string"), format)  # type: ignore[arg-type]
    assert emit(other, Planner(other).plan()) == [("a",)]


@pytest.mark.parametrize("unit", ["ns", "us", "s"])
def test_a_time_in_parquet_that_cannot_be_held_is_named(tmp_path: Path, unit: str) -> None:
    bad = {"ns": 1, "us": 2**62, "s": 2**50}[unit]
    times = pa.array([0] * 20 + [bad], pa.int64()).cast(pa.timestamp(unit))
    pq.write_table(pa.table({"at": times}), tmp_path / "a", row_group_size=7)
    made = FilesTransactionalSpout(tmp_path, Fields("at timestamp_ntz"), "parquet", partitions=1)

    with pytest.raises(EmitError, match=r"field 'at' of row 20 of '.*/a' as parquet: "):
        emit(made, Planner(made).plan())


def test_a_header_that_is_no_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"name,am\rount\na,1\n")
    made = spout(tmp_path, "csv", partitions=1)

    with pytest.raises(EmitError, match="its header is not a line of CSV"):
        emit(made, Planner(made).plan())


def test_a_file_that_is_damaged_is_no_outage(tmp_path: Path) -> None:
    """It was tried again for ever, though a local disk had given all of its bytes."""
    path = tmp_path / "a"
    table = pa.table({"name": ["a"] * 99, "amount": list(range(99))})
    pq.write_table(table, path, compression="zstd")
    data = bytearray(path.read_bytes())
    data[4:40] = bytes(36)
    path.write_bytes(data)
    made = spout(tmp_path, "parquet", partitions=1)

    with pytest.raises(EmitError, match=r"cannot read '.*/a', rows 0 to 99 as parquet"):
        emit(made, Planner(made).plan())


def test_a_quote_that_is_open_at_the_end_of_a_file_is_no_value(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b'1,a\n2,"b\n')
    made = FilesTransactionalSpout(
        tmp_path, Fields("amount long, name string"), "csv", partitions=1, header=False
    )

    with pytest.raises(EmitError, match=r"line 2 of '.*/a' as csv: "):
        emit(made, Planner(made).plan())


# What Python takes for line ends in text, besides the newline.
ODD_ENDS = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\x1dh\x1ei"


@pytest.mark.parametrize("format", ["csv", "text"])
@pytest.mark.parametrize("value", [ODD_ENDS, "a\rb", "a\r", "\ra"])
def test_a_line_ends_at_a_newline_and_nowhere_else(tmp_path: Path, format: str, value: str) -> None:
    lines = [f'"{value}",1', "b,2"] if format == "csv" else [value, "b"]
    heading = ["name,amount"] if format == "csv" else []
    (tmp_path / "a").write_bytes("".join(f"{line}\r\n" for line in heading + lines).encode())
    made = spout(tmp_path, format)
    (metadata,) = Planner(made).all()

    assert [row[0] for row in emit(made, metadata)] == [value, "b"]


@pytest.mark.parametrize("line", ['1\r2,"x\n3,y"', '"x\r\n",1', '1,2\r3,"x'])
def test_a_quoted_value_behind_a_carriage_return_ends_with_its_line(
    tmp_path: Path, line: str
) -> None:
    (tmp_path / "a").write_bytes(f"name,amount\n{line}\n".encode())
    made = spout(tmp_path)
    (metadata,) = Planner(made).all()

    with pytest.raises(EmitError):
        emit(made, metadata)


BROKEN = b'name,amount\n"a\nb",1\n5" disk,2\n"c\r\n\n""d""\n,9\n",3\n,4\n"e",5\n"last\nline",6'
ROWS = [
    ("a\nb", 1),
    ('5" disk', 2),
    ('c\r\n\n"d"\n,9\n', 3),
    (None, 4),
    ("e", 5),
    ("last\nline", 6),
]


@pytest.mark.parametrize("block", [1, 7, 1000])
@pytest.mark.parametrize(
    "limits", [{}, {"batch_rows_max": 2}, {"batch_bytes_max": 9}, {"partitions": 3}]
)
def test_quoted_values_have_line_breaks_by_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int], block: int
) -> None:
    """A file is not divided, whatever the limits."""
    monkeypatch.setattr(reading, "BLOCK_BYTES", block)
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(BROKEN)
    made = spout(tmp_path, multiline=True, **limits)

    rows = [emit(made, metadata, 2) for metadata in Planner(made).all()]
    assert sorted(chain(*rows), key=str) == sorted(ROWS * 2, key=str)
    assert all(len(batch) % len(ROWS) == 0 for batch in rows)


@pytest.mark.parametrize("limits", [{"batch_rows_max": 2}, {"batch_bytes_max": 9}])
def test_a_plan_from_before_multiline_has_each_record_once(
    tmp_path: Path, limits: dict[str, int]
) -> None:
    """It has ranges inside of values. The error said that the option helps, so it does."""
    (tmp_path / "a").write_bytes(BROKEN)
    plans = Planner(spout(tmp_path, **limits)).all()
    made = spout(tmp_path, multiline=True, **limits)

    continued = [*plans[:2], *Planner(made, stored=plans[1]).all()]
    for batches in (plans, continued):
        assert list(chain(*(emit(made, metadata, 2) for metadata in batches))) == ROWS


def test_without_multiline_a_line_break_in_a_value_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(BROKEN)
    made = spout(tmp_path, partitions=1)

    with pytest.raises(EmitError, match=r"line 2 of '.*/a' as csv: a quoted.*multiline=True"):
        emit(made, Planner(made).plan())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('name,amount\n"a\nb",1\n"c\n",x\n', "field 'amount' of line 4 of"),
        ('name,amount\n"a\nb",1\nd,2\n"c,3\ne,4\n', "line 5 of .* no closing quotation mark"),
        ('"name\n",amount\n1,a\n', "its header has a line break in quotes"),
    ],
)
def test_a_bad_record_of_several_lines_is_named(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "a").write_text(text)
    made = spout(tmp_path, multiline=True, partitions=1)

    with pytest.raises(EmitError, match=told):
        emit(made, Planner(made).plan())


def test_only_csv_has_values_of_several_lines(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="multiline=True is for CSV; got format='json'"):
        spout(tmp_path, "json", multiline=True)


REQUIRED = Fields("name string!, amount long")


@pytest.mark.parametrize("format", ["csv", "json", "parquet"])
def test_a_record_without_a_required_field_cannot_be_read(tmp_path: Path, format: Any) -> None:
    """Another field may be NULL. A value that is missing is one that is NULL."""
    if format == "csv":
        (tmp_path / "a").write_text('name,amount\n"",1\n,2\n')
    elif format == "json":
        (tmp_path / "a").write_text('{"name": "", "amount": 1}\n{"amount": 2}\n{"name": null}\n')
    else:
        pq.write_table(pa.table({"name": ["", None], "amount": [1, 2]}), tmp_path / "a")
    made = FilesTransactionalSpout(tmp_path, REQUIRED, format, partitions=1)
    metadata = Planner(made).plan()
    letters: list[Any] = []
    emitted = Emitted(made, letters)

    with pytest.raises(EmitError, match=r"field 'name' of (line|row) . of .*NULL or missing, and"):
        emit(made, metadata)
    emitter = made.emitter(Config(), context())
    emitter.emit_batch(TransactionAttempt(1), metadata, emitted.collector)
    emitted.collector.close()

    assert emitted.rows == [("", 1)]
    assert [json.loads(letter[3])["file"] for letter in letters] == [str(tmp_path / "a")] * (
        2 if format == "json" else 1
    )
