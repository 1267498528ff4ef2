"""Records that a spout cannot decode become dead letters, and the others continue as before."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.harness.runs import Storage, run_to_end
from tests.unit.sources.data_sources import TableReader
from txtopo import (
    BatchBolt,
    Committer,
    DeadLetters,
    FailedException,
    Fields,
    Topology,
    TransactionalTopologyBuilder,
    open_state,
)
from txtopo.errors import EmitError, NonRepeatableBatch, SourceDataLost, TooManyDeadLetters
from txtopo.plugins.spouts import (
    TransactionalCoordinator,
    TransactionalEmitter,
    TransactionalSpout,
)
from txtopo.sources.values import row_values
from txtopo.spouts import DataSourceSpout, FilesTransactionalSpout

pytestmark = pytest.mark.integration
FIELDS = Fields("name string, amount long")


class RowsReader(TableReader):
    """Gives rows of any form."""

    def __init__(self, rows: Sequence[Any]) -> None:
        self._rows = rows

    def read(self, partition: Any) -> Iterator[Any]:
        yield from self._rows


class KeepRows(BatchBolt, Committer):
    """Keeps each row with how often it came."""

    writes_nowhere_else = True

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.state, self.attempt = context.state("rows"), attempt
        self.rows: list[str] = []

    def execute(self, tuple: Any) -> None:
        self.rows.append(json.dumps(tuple.values, default=str))

    def finish_batch(self) -> None:
        with self.state.transaction(self.attempt) as state:
            for row in self.rows:
                state.update(row, lambda before: (before or 0) + 1)


def reading(spout: Any, storage: Storage, limit: int = 100, tasks: int = 2) -> Topology:
    letters = DeadLetters(open_state(storage.url), limit)
    builder = TransactionalTopologyBuilder("reading", "spout", spout, tasks, dead_letters=letters)
    keep = builder.set_bolt("rows", KeepRows()).global_grouping("spout")
    keep.with_state("rows", storage.state("rows"))
    return builder.build_topology()


def read(spout: Any, limit: int = 100, tasks: int = 2) -> tuple[list[Any], list[dict[str, Any]]]:
    """Return the rows and the dead letters that a spout brings."""
    storage = Storage.in_memory()
    run_to_end(reading(spout, storage, limit, tasks), storage)
    rows = storage.read("rows")
    assert set(rows.values()) <= {1}
    letters = [letter for _, letter in sorted(storage.read("dead_letters").items())]
    for letter in letters:
        letter["place"] = json.loads(letter["place"])
        if "file" in letter["place"]:
            letter["place"]["file"] = Path(letter["place"]["file"]).name
    return sorted((json.loads(row) for row in rows), key=str), letters


GOOD = {"csv": b"w%d,%d", "json": b'{"name": "w%d", "amount": %d}'}
BAD = {
    "csv": [
        b"one",
        b"a,b,c",
        b"a,many",
        b'"a,1',
        b"\xff,1",
        b"a,99999999999999999999",
    ],
    "json": [
        b"{",
        b"[1]",
        b"7",
        b'{"amount": "x"}',
        b'{"amount": 1.5}',
        b'{"name": "a"} {"name": "b"}',
        b'{"name": "\xff"}',
        b"null",
    ],
}


@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize("format", ["csv", "json"])
@pytest.mark.parametrize("tasks", [1, 3])
def test_each_bad_line_is_a_dead_letter_with_its_place(
    tmp_path: Path, format: Any, rows: int, tasks: int
) -> None:
    lines = [GOOD[format] % (n, n) for n in range(200)]
    for at, bad in enumerate(BAD[format]):
        lines.insert(7 * at + at * at, bad)
    content = b"\n".join(lines) + b"\n"
    (tmp_path / "a").write_bytes(content)
    header: dict[str, Any] = {"header": False} if format == "csv" else {}
    spout = FilesTransactionalSpout(tmp_path, FIELDS, format, batch_rows_max=rows, **header)

    found, letters = read(spout, tasks=tasks)

    assert found == sorted(([f"w{n}", n] for n in range(200)), key=str)
    assert len(letters) == len(BAD[format])
    for letter in letters:
        place = letter["place"]
        bad = lines[place["line"] - 1]
        assert bad in BAD[format]
        assert content[place["byte"] :].startswith(bad + b"\n")
        assert place["file"] == "a"
        assert f"line {place['line']} of '{tmp_path}/a'" in letter["message"]
        assert letter["encoding"] == ("base64" if b"\xff" in bad else "text")
        assert letter["encoding"] == "base64" or letter["record"].encode() == bad


def test_lines_far_behind_the_beginning_are_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txtopo.sources.files.reading.COUNTED_BYTES_MAX", 20)
    lines = [f"w{n},{n}" if n % 10 else f"w{n},x" for n in range(40)]
    (tmp_path / "a").write_text("\n".join(lines))
    spout = FilesTransactionalSpout(tmp_path, FIELDS, "csv", header=False, batch_rows_max=4)

    _, letters = read(spout)

    content = "\n".join(lines)
    places = [(letter["place"].get("line"), letter["place"]["byte"]) for letter in letters]
    starts = [content.index(f"w{n},x") for n in (0, 10, 20, 30)]
    assert places == [(1, 0), *((None, start) for start in starts[1:])]


def test_lines_of_a_compressed_file_with_a_header_are_counted_from_its_beginning(
    tmp_path: Path,
) -> None:
    text = "name,amount\r\na,1\r\n\r\nb,x\r\nc,3"
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text.encode()))

    found, (letter,) = read(FilesTransactionalSpout(tmp_path, FIELDS, "csv"))

    assert found == [["a", 1], ["c", 3]]
    assert letter["place"] == {"file": "a.csv.gz", "line": 4, "byte": text.index("b,x")}
    assert letter["record"] == "b,x"


def test_a_line_of_text_that_is_not_utf_8_is_a_dead_letter(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a\n\xff\n\nb\n")

    found, (letter,) = read(FilesTransactionalSpout(tmp_path, Fields("line string"), "text"))

    assert found == [[""], ["a"], ["b"]]
    assert (letter["place"]["line"], letter["encoding"]) == (2, "base64")


def test_a_row_of_parquet_that_does_not_fit_is_a_dead_letter(tmp_path: Path) -> None:
    table = pa.table({"name": list("abcdef"), "amount": pa.array([1, 2**62, 3, 4, -(2**62), 6])})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    fields = Fields("name string, amount int")

    found, letters = read(FilesTransactionalSpout(tmp_path, fields, "parquet", batch_rows_max=4))

    assert found == [["a", 1], ["c", 3], ["d", 4], ["f", 6]]
    assert [(each["place"], json.loads(each["record"])) for each in letters] == [
        ({"file": "a.parquet", "row": 1}, {"name": "b", "amount": 2**62}),
        ({"file": "a.parquet", "row": 4}, {"name": "e", "amount": -(2**62)}),
    ]


def test_a_value_of_parquet_that_python_cannot_hold_is_told(tmp_path: Path) -> None:
    raw = pa.array([b"a", b"\xff"], pa.binary())
    names = pa.StringArray.from_buffers(2, *raw.buffers()[1:])
    times = pa.array([0, 2**62], pa.int64()).cast(pa.timestamp("us"))
    pq.write_table(pa.table({"name": names, "at": times}), tmp_path / "a.parquet")
    fields = Fields("name string, at timestamp_ntz")

    _, (letter,) = read(FilesTransactionalSpout(tmp_path, fields, "parquet"))

    assert json.loads(letter["record"]) == {"name": {"base64": "/w=="}, "at": 2**62}


def damaged(tmp_path: Path) -> FilesTransactionalSpout:
    pq.write_table(pa.table({"name": ["a"] * 1000, "amount": range(1000)}), tmp_path / "a.parquet")
    content = bytearray((tmp_path / "a.parquet").read_bytes())
    content[20:200] = bytes(180)
    (tmp_path / "a.parquet").write_bytes(content)
    return FilesTransactionalSpout(tmp_path, FIELDS, "parquet")


def other_type(tmp_path: Path) -> FilesTransactionalSpout:
    pq.write_table(pa.table({"name": [[1]], "amount": [1]}), tmp_path / "a.parquet")
    return FilesTransactionalSpout(tmp_path, FIELDS, "parquet")


def other_columns(tmp_path: Path) -> FilesTransactionalSpout:
    (tmp_path / "a.csv").write_text("name,price\na,1\n")
    return FilesTransactionalSpout(tmp_path, FIELDS, "csv")


@pytest.mark.parametrize("made", [damaged, other_type, other_columns])
def test_what_is_wrong_with_a_whole_file_fails_the_batch(tmp_path: Path, made: Any) -> None:
    with pytest.raises((EmitError, SourceDataLost), match=r"a\.(parquet|csv)"):
        read(made(tmp_path))


def test_without_dead_letters_a_bad_line_ends_the_run_as_before(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a,1\nb,x\n")
    storage = Storage.in_memory()
    spout = FilesTransactionalSpout(tmp_path, FIELDS, "csv", header=False)
    builder = TransactionalTopologyBuilder("reading", "spout", spout)
    keep = builder.set_bolt("rows", KeepRows()).global_grouping("spout")
    keep.with_state("rows", storage.state("rows"))

    with pytest.raises(EmitError, match=r"field 'amount' of line 2 of '.*/a'"):
        run_to_end(builder.build_topology(), storage)


def test_a_file_of_bad_lines_stops_at_the_limit(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("b,x\n" * 50_000)
    spout = FilesTransactionalSpout(tmp_path, FIELDS, "csv", header=False)

    with pytest.raises(TooManyDeadLetters, match=r'got 11 or more.*/a", "line": 1, "byte": 0'):
        read(spout, limit=10)


class Wavering(TransactionalSpout):
    """Brings one bad record, with another error or another record in each attempt."""

    output_fields = FIELDS

    def __init__(self, changes: str) -> None:
        self.changes = changes

    def coordinator(self, config: Any, context: Any) -> Any:
        return OneBatch()

    def emitter(self, config: Any, context: Any) -> Any:
        return WaveringEmitter(self.changes)


class OneBatch(TransactionalCoordinator):
    def is_ready(self, txid: int, last: Any) -> bool:
        return txid == 1

    def initialize_transaction(self, txid: int, previous_metadata: Any) -> Any:
        return 0


class WaveringEmitter(TransactionalEmitter):
    def __init__(self, changes: str) -> None:
        self.changes = changes

    def emit_batch(self, attempt: Any, metadata: Any, collector: Any) -> None:
        collector.emit(["a", 1])
        parts = {"error": "bad", "record": "b"}
        parts[self.changes] += str(attempt.attempt)
        collector.set_aside(EmitError(parts["error"]), {"line": 2}, parts["record"].encode())


class FailsFirst(KeepRows):
    def finish_batch(self) -> None:
        if not self.attempt.attempt:
            raise FailedException("once more")
        super().finish_batch()


def wavering(changes: str, storage: Storage) -> Topology:
    letters = open_state(storage.url)
    builder = TransactionalTopologyBuilder(
        "wavering", "spout", Wavering(changes), dead_letters=letters
    )
    keep = builder.set_bolt("rows", FailsFirst()).global_grouping("spout")
    keep.with_state("rows", storage.state("rows"))
    return builder.build_topology()


@pytest.mark.rule("txtopo.dead_letters", "Rules", 3)
def test_a_replay_with_another_bad_record_is_another_batch() -> None:
    """Dead letters are a part of the batch."""
    storage = Storage.in_memory()

    with pytest.raises(NonRepeatableBatch, match="differs from the earlier batch; got 2 tuples"):
        run_to_end(wavering("record", storage), storage)


def test_a_replay_whose_error_has_another_text_is_the_same_batch() -> None:
    """A library may have changed its words between the two attempts."""
    storage = Storage.in_memory()

    run_to_end(wavering("error", storage), storage)

    (letter,) = storage.read("dead_letters").values()
    assert letter["message"] == "bad1"


@pytest.mark.parametrize("tasks", [1, 2])
def test_rows_of_a_data_source_that_do_not_fit_are_dead_letters(tasks: int) -> None:
    rows = [("a", 1), ("b", "x"), ("c",), ("d", 2**70), ("e", 5), (6, 6), ("g", 7)]

    found, letters = read(
        DataSourceSpout(RowsReader(rows), fields=FIELDS, repeatable=True), tasks=tasks
    )

    assert found == [["a", 1], ["e", 5], ["g", 7]]
    assert [json.loads(each["record"]) for each in letters] == [
        ["b", "x"],
        ["c"],
        ["d", 2**70],
        [6, 6],
    ]
    assert [each["place"]["row"] for each in letters] == [1, 2, 3, 5]
    assert letters[0]["place"] == {"partition": 0, "row": 1, "start": {"at": 0}, "end": {"at": 1}}


def test_many_rows_of_a_data_source_keep_their_numbers() -> None:
    rows: list[Any] = [(f"w{n}", n) for n in range(25_000)]
    rows[9_999], rows[10_000], rows[24_999] = ("x",), ("y",), ("z", None, None)

    found, letters = read(DataSourceSpout(RowsReader(rows), fields=FIELDS))

    assert len(found) == 24_997
    assert [each["place"]["row"] for each in letters] == [9_999, 10_000, 24_999]


class ReusingReader(RowsReader):
    """Reads each record into one buffer, and gives it in one list."""

    def read(self, partition: Any) -> Iterator[Any]:
        row: list[Any] = [bytearray(2), 0]
        for number in range(3):
            row[0][:], row[1] = b"r%d" % number, number
            yield row
        row[0][:] = b"no"
        yield (b"bad", "x")


def test_rows_of_a_data_source_that_wait_stay_as_they_were_given() -> None:
    found, letters = read(DataSourceSpout(ReusingReader(()), fields=Fields("name binary, n long")))

    assert found == [[f"b'r{number}'", number] for number in range(3)]
    assert [each["place"]["row"] for each in letters] == [3]


def test_rows_of_a_record_batch_that_do_not_fit_are_dead_letters() -> None:
    times = pa.array([0, 2**62, 0, 0], pa.int64()).cast(pa.timestamp("us"))
    batch = pa.record_batch({"at": times, "amount": pa.array([1, 2, 2**40, 4], pa.int64())})
    fields = Fields("at timestamp_ntz, amount int")

    found, letters = read(DataSourceSpout(RowsReader([batch, (None, 7)]), fields=fields))

    assert [amount for _, amount in found] == [1, 4, 7]
    assert [(each["place"]["batch"], each["place"]["row"]) for each in letters] == [(0, 1), (0, 2)]


@pytest.mark.parametrize(
    "batch", [pa.record_batch({"name": ["a"]}), pa.record_batch({"name": ["a"], "amount": ["1"]})]
)
def test_a_reader_that_gives_other_columns_ends_the_run(batch: Any) -> None:
    with pytest.raises(EmitError, match=r"wrong columns|does not fit"):
        read(DataSourceSpout(RowsReader([batch]), fields=FIELDS))


def test_a_row_that_python_cannot_hold_is_kept_as_bytes_and_numbers() -> None:
    offsets = pa.array([0, 1], pa.int32()).buffers()[1]
    text = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"\xff")])
    columns = {
        "text": text,
        "category": pa.DictionaryArray.from_arrays(pa.array([0]), text),
        "late": pa.array([2**62], pa.timestamp("us")),
        "elsewhere": pa.array([7], pa.timestamp("us", "Mars/Base")),
    }

    found = row_values(pa.record_batch(columns), 0)

    assert found == {"text": b"\xff", "category": b"\xff", "late": 2**62, "elsewhere": 7}
