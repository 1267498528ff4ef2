"""Every reader is fed inputs that were valid before some bytes changed; one seed, one input.

What comes back is either rows that another parser finds too, or an error of ours. Where no other
parser is, reading in other ranges has to bring the same.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from tests.harness.processes import say
from tests.unit.kafka.test_decoding import Record
from tests.unit.sources.data_sources import TableReader
from tests.unit.sources.driving import Emitted, Planner, context, emit
from txtopo import Fields
from txtopo.errors import EmitError, TxtopoError
from txtopo.kafka.reading import RecordColumns
from txtopo.sources.delta.log import ChangedFile, DeltaLog
from txtopo.sources.delta.spout import DeltaEmitter
from txtopo.spouts import DataSourceSpout, FilesTransactionalSpout, QueryTransactionalSpout

FIELDS = Fields("w string, n long")
TYPED = Fields("w string, n long, at timestamp_ntz, day date, d decimal(10,2), b binary")
SIGNS = [
    *(b"{}", b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\n", b"\r", b" ", b"\0", b"null"),
    *(
        b"\xff",
        b"\xef\xbb\xbf",
        b"\xed\xa0\x80",
        rb"\ud800",
        rb"\u0000",
        b"1e9",
        b"-",
        b"0",
        b"NaN",
    ),
    *(b'"w":', b'"n":', b"true", b"\t", b"/*", b"9" * 30, b'{"w":"a"}', b'"}n{"'),
]


def mutated(chance: random.Random, data: bytes) -> bytes:
    """Change some bytes: cut, double, replace, insert what has a meaning."""
    for _ in range(chance.choice([0, 1, 1, 1, 2, 3, 6])):
        at, to = sorted(chance.randrange(len(data) + 1) for _ in range(2))
        to = min(to, at + chance.choice([0, 1, 4, 40]))
        how = chance.randrange(4)
        if how == 0:
            data = data[:at] + data[to:]
        elif how == 1:
            data = data[:to] + data[at:]
        elif how == 2:
            data = data[:at] + chance.randbytes(to - at) + data[to:]
        else:
            data = data[:at] + chance.choice(SIGNS) + data[at:]
    return data


def objects(chance: random.Random) -> list[bytes]:
    """Return JSON objects."""
    made = []
    for _ in range(chance.randrange(1, 6)):
        value: dict[str, Any] = {
            "w": chance.choice(["a", "}n{", "ü\n", "", None, '\\"}', "null"]),
            "n": chance.choice([0, 1, -5, 2**63 - 1, None]),
            "o": chance.choice([{}, {"a": [{"b": None}, 1.5]}, [], "x", None]),
        }
        names = chance.sample(sorted(value), chance.randrange(4))
        indent = chance.choice([None, None, 1])
        made.append(json.dumps({name: value[name] for name in names}, indent=indent).encode())
    return made


def kafka(chance: random.Random, folder: Path) -> None:
    values = [mutated(chance, value) for value in objects(chance)]
    if chance.randrange(4) == 0:  # cut elsewhere
        joined = b"".join(values)
        cuts = sorted(chance.randrange(len(joined) + 1) for _ in values[1:])
        ends = zip([0, *cuts], [*cuts, len(joined)], strict=True)
        values = [joined[start:end] for start, end in ends]
    columns = RecordColumns(("value",), value=FIELDS)
    schema = columns.fields().arrow_schema()

    def read(numbers: list[int]) -> list[Any]:
        records = cast(Any, [Record(values[number], number) for number in numbers])
        rows: list[Any] = columns.batch(records, schema).to_pylist()
        return rows

    every = list(range(len(values)))
    try:
        rows = read(every)
    except EmitError as error:
        bad = cast(int, error.facts["offset"])
        assert len(read(every[:bad])) == bad, "one before it was not read"
        if surely(values[bad]) is not None:
            raise AssertionError(f"{values[bad]!r} is refused") from error
        try:
            read([bad])
        except EmitError:
            return
        raise AssertionError("alone it is read") from error
    for value, row in zip(values, rows, strict=True):
        assert row == fields_of(value), (value, row)


def fields_of(data: bytes) -> dict[str, Any]:
    """Return the fields of an object, by Python's parser; raises if it is none."""
    text = re.sub(rb"\bInf\b", b"Infinity", data).decode("utf-8", "surrogateescape")
    found = json.loads(text)
    assert isinstance(found, dict), data
    assert type(found.get("w")) in (str, type(None)), data
    assert type(found.get("n")) in (int, type(None)), data
    return {"w": found.get("w"), "n": found.get("n")}


def surely(data: bytes) -> dict[str, Any] | None:
    """Return the fields of an object that nobody could refuse."""

    def pairs(given: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len({name for name, _ in given}) == len(given)
        return dict(given)

    try:
        found = json.loads(data.decode(), object_pairs_hook=pairs)
        json.dumps(found, ensure_ascii=False).encode()
        fields = fields_of(data)
    except (ValueError, AssertionError):
        return None
    number = fields["n"]
    odd = re.search(rb"[0-9][eE]|NaN|Inf", data) or data.startswith(b"\xef")
    return None if odd or (number is not None and abs(number) >= 2**63) else fields


def lines(chance: random.Random, folder: Path) -> None:
    format = chance.choice(["json", "csv", "text"])
    text = (
        b"\n".join(objects(chance))
        if format != "csv"
        else b'n,w\n1,a\n,"b"\n3,"c,"\n4,\xc3\xbc\n' * 3
    )
    data = mutated(chance, text)
    path = folder / "in" / ("a.gz" if chance.randrange(5) == 0 else "a")
    path.parent.mkdir(exist_ok=True)
    for old in path.parent.iterdir():
        old.unlink()
    path.write_bytes(mutated(chance, gzip.compress(data)) if path.suffix else data)
    fields = Fields("line string") if format == "text" else FIELDS
    outcomes: list[Any] = []
    for partitions in (1, 3):
        made = FilesTransactionalSpout(
            path.parent, fields, cast(Any, format), partitions=partitions
        )
        try:
            outcomes.append([row for each in Planner(made).all() for row in emit(made, each)])
        except TxtopoError as error:
            outcomes.append([type(error).__name__])
    assert outcomes[0] == outcomes[1], outcomes
    if path.suffix or outcomes[0] in (["EmitError"], ["SourceDataLost"]):
        return
    if format == "text":
        body = data.removeprefix(b"\xef\xbb\xbf").decode()
        split = body.removesuffix("\n").split("\n") if body else []
        assert outcomes[0] == [(line.rstrip("\r"),) for line in split]
    if format == "json":
        found = [
            line for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n") if line.strip(b" \t\r")
        ]
        assert outcomes[0] == [tuple(fields_of(line).values()) for line in found]


def table(chance: random.Random) -> pa.Table:
    """Return columns of which some are other than Python could hold."""
    rows = chance.randrange(1, 30)

    def numbers(kind: Any, bits: int) -> pa.Array:
        found = [chance.randrange(-(2**bits), 2**bits) if chance.randrange(9) else None] * rows
        return pa.array(found, kind)

    texts = pa.array([mutated(chance, b"abc") for _ in range(rows)], pa.binary())
    days = numbers(pa.int32(), chance.choice([15, 31])).cast(pa.date32())
    unit = chance.choice(["us", "ns", "ms", "s"])
    bits = 40 if unit == "s" else chance.choice([40, 55, 63])  # Parquet has no seconds
    times = numbers(pa.int64(), bits).cast(pa.timestamp(unit))
    plain = pa.StringArray.from_buffers(rows, *texts.buffers()[1:])
    amounts = numbers(pa.int32(), 20).cast(pa.decimal128(12, 0)).cast(pa.decimal128(14, 2))
    long = numbers(pa.int64(), 63)
    columns = [plain, long, times, days, amounts, texts]
    return pa.table(columns, names=list(TYPED.names))


def parquet_bytes(chance: random.Random, path: Path) -> None:
    rows = table(chance)
    codec = chance.choice(["none", "snappy", "zstd", "gzip"])
    pq.write_table(rows, path, compression=codec, row_group_size=7, data_page_version="1.0")
    if chance.randrange(2):
        path.write_bytes(mutated(chance, path.read_bytes()))


def parquet(chance: random.Random, folder: Path) -> None:
    path = folder / "tables" / "a"
    path.parent.mkdir(exist_ok=True)
    parquet_bytes(chance, path)
    made = FilesTransactionalSpout(path.parent, TYPED, "parquet", partitions=2)
    for each in Planner(made).all():
        emit(made, each)


def delta(chance: random.Random, folder: Path) -> None:
    parquet_bytes(chance, folder / "b")
    there = {name: mutated(chance, b"2020").decode(errors="replace") for name in ("day", "n")}
    file = ChangedFile("b", 1, there if chance.randrange(2) else {})
    made = DeltaEmitter(DeltaLog(str(folder)), TYPED, None, context())
    for batch in made._read(0, file):
        batch.to_pylist()


def query(chance: random.Random, folder: Path) -> None:
    path = folder / "a.db"
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE words (id INTEGER, w, n, at, day, d, b)")
        for id in range(chance.randrange(1, 5)):
            odd = [None, 1, 2**62, 1.5, b"\xff", "x", "2020-01-01", "2020-01-01 00:00:00.5", "1e99"]
            values = [chance.choice(odd) for _ in range(6)]
            connection.execute("INSERT INTO words VALUES (?, ?, ?, ?, ?, ?, ?)", (id, *values))
    connection.close()
    names = chance.sample(list(TYPED), chance.randrange(1, 3))
    fields = Fields("id long, " + ", ".join(f"{field.name} {field.type}" for field in names))
    made = QueryTransactionalSpout(
        f"sqlite:///{path}", "words", key="id", fields=fields, settle_s=0
    )
    for each in Planner(made).all():
        emit(made, each)


def data_source(chance: random.Random, folder: Path) -> None:
    made = DataSourceSpout(TableReader(table(chance)), fields=TYPED)
    emitted = Emitted(made)
    emitter = made.emitter(cast(Any, None), context())
    emitter.emit_batch(cast(Any, None), {"start": {"at": 0}, "end": {"at": 1}}, emitted.collector)


READERS: list[Callable[[random.Random, Path], None]] = [
    kafka,
    kafka,
    lines,
    lines,
    parquet,
    delta,
    query,
    data_source,
]


def feed(seed: int, folder: Path) -> None:
    """Feed one reader one input.

    Raises:
        Exception: It returned something wrong, or raised what is no error of ours.
    """
    with suppress(TxtopoError):
        READERS[seed % len(READERS)](random.Random(seed), folder)


def main() -> None:
    """Feed the seeds that come in; say what became of each."""
    with tempfile.TemporaryDirectory() as folder:
        for line in sys.stdin:
            seed = int(line)
            try:
                feed(seed, Path(folder))
                say("right")
            except Exception as error:  # noqa: BLE001 - told to the parent
                name = READERS[seed % len(READERS)].__name__
                told = f"{name}: {type(error).__name__}: {error}"
                say("wrong", what=" ".join(told.split())[:2000])


if __name__ == "__main__":
    main()
