"""Files are cut into bounded batches, and every row of them is in exactly one."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from tests.harness.chance import examples
from tests.unit.sources.driving import Emitted, Planner, context, emit
from tests.unit.sources.files import FIELDS, FORMATS, expected, numbered, spout, write
from txtopo import Config, TransactionAttempt
from txtopo.errors import ConfigError
from txtopo.spouts import FilesTransactionalSpout


@pytest.mark.parametrize(
    "limits",
    [{"batch_rows_max": 10}, {"batch_bytes_max": 150}, {"batch_files_max": 1}, {}],
    ids=str,
)
@pytest.mark.parametrize("format", FORMATS)
def test_all_batches_together_are_the_input_once(
    tmp_path: Path, format: str, limits: dict[str, int]
) -> None:
    for at in range(3):
        write(tmp_path / f"{at}.data", format, numbered(25, 100 * at))
    made = spout(tmp_path, format, partitions=3, **limits)

    batches = [emit(made, metadata, tasks=2) for metadata in Planner(made).all()]

    everything = numbered(25) + numbered(25, 100) + numbered(25, 200)
    assert sorted(row for rows in batches for row in rows) == sorted(expected(format, everything))
    assert len(batches) > 1 or not limits
    if "batch_rows_max" in limits:
        assert [len(rows) for rows in batches] == [10] * 7 + [5]


@pytest.mark.parametrize("format", FORMATS)
def test_a_batch_is_the_same_however_often_and_by_how_many_tasks_it_is_emitted(
    tmp_path: Path, format: str
) -> None:
    write(tmp_path / "a", format, numbered(40))
    made = spout(tmp_path, format, batch_rows_max=20, partitions=4)
    first, second = Planner(made).all()
    (tmp_path / "b").write_text("later")

    for metadata in (first, second):
        once = sorted(emit(made, metadata))
        assert [sorted(emit(made, metadata, tasks)) for tasks in (1, 2, 4, 9)] == [once] * 4


@pytest.mark.parametrize("format", ["csv", "json", "text"])
def test_partitions_get_shares_of_similar_size(tmp_path: Path, format: str) -> None:
    write(tmp_path / "a", format, numbered(4000))
    made = spout(tmp_path, format, partitions=4)
    (metadata,) = Planner(made).all()

    counts = []
    for task in range(4):
        emitted = Emitted(made)
        emitter = made.emitter(Config(), context(task, 4))
        emitter.emit_batch(TransactionAttempt(1), metadata, emitted.collector)
        counts.append(len(emitted.rows))
    assert sum(counts) == 4000
    assert all(800 < count < 1200 for count in counts)


def test_as_many_parquet_files_as_partitions_are_read_whole(tmp_path: Path) -> None:
    for at in range(8):
        write(tmp_path / f"{at}", "parquet", numbered(10 + at))
    made = spout(tmp_path, "parquet", partitions=4, batch_files_max=4)

    first, second = Planner(made).all()

    for metadata in (first, second):
        assert isinstance(metadata, dict)
        shares: Any = metadata["shares"]
        assert [[(each[3], each[4]) for each in share] for share in shares] == [[(0, None)]] * 4
        assert len(emit(made, metadata)) > 40


def test_fewer_parquet_files_than_partitions_are_divided_by_rows(tmp_path: Path) -> None:
    write(tmp_path / "a", "parquet", numbered(40))
    made = spout(tmp_path, "parquet", partitions=4, batch_files_max=4)
    (metadata,) = Planner(made).all()

    assert isinstance(metadata, dict)
    shares: Any = metadata["shares"]
    assert [[(each[3], each[4]) for each in share] for share in shares] == [
        [(0, 10)],
        [(10, 20)],
        [(20, 30)],
        [(30, 40)],
    ]


def test_globs_and_hidden_files(tmp_path: Path) -> None:
    for name in ("a/1.txt", "a/b/2.txt", "a/3.csv", "a/_4.txt", "a/.5.txt", "c/6.txt", "_d/7.txt"):
        write(tmp_path / name, "text", [(name, 0)])

    def found(path: str) -> list[str]:
        made = spout(f"{tmp_path}/{path}", "text")
        return sorted(row[0][:-2] for batch in Planner(made).all() for row in emit(made, batch))

    assert found("") == ["a/1.txt", "a/3.csv", "a/b/2.txt", "c/6.txt"]
    assert found("a/*.txt") == ["a/1.txt"]
    assert found("a/**/*.txt") == ["a/1.txt", "a/b/2.txt"]
    assert found("?/[0-9].txt") == ["a/1.txt", "c/6.txt"]
    assert found("[!a]/*") == ["c/6.txt"]
    assert found("a/1.txt") == ["a/1.txt"]


def test_any_filesystem_of_pyarrow_and_urls_will_do(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.csv", "csv", numbered(3))
    local = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())

    for made in (
        spout("in", filesystem=local),
        spout("in", filesystem=f"file://{tmp_path}"),
        spout(f"file://{tmp_path}/in"),
        spout(f"file://{tmp_path}/in/*.csv"),
    ):
        sent = pickle.loads(pickle.dumps(made))
        assert [emit(sent, metadata) for metadata in Planner(made).all()] == [numbered(3)]


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    for options, message in (
        ({"format": "xml"}, "unknown file format; got 'xml'; expected one of csv, json"),
        ({"batch_rows_max": 0}, "batch_rows_max is wrong; got 0"),
        ({"partitions": 0}, "partitions is wrong; got 0"),
        ({"order": "size"}, "unknown order of files; got 'size'"),
        ({"delimiter": "::"}, "delimiter is wrong; got '::'"),
        ({"filesystem": 3}, "filesystem of a files spout is of the wrong type; got 3"),
    ):
        with pytest.raises(ConfigError, match=message):
            spout(tmp_path, **options)
    with pytest.raises(ConfigError, match="a text file has exactly one field"):
        FilesTransactionalSpout(tmp_path, FIELDS, "text")
    with pytest.raises(ConfigError, match=r"input .* of the files spout does not exist"):
        Planner(spout(tmp_path / "nowhere"))


LINES = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=6))


@pytest.mark.integration
@examples(30)
@given(
    files=st.lists(st.tuples(LINES, st.booleans()), max_size=3),
    partitions=st.integers(1, 5),
    rows=st.none() | st.integers(1, 6),
    size=st.none() | st.integers(1, 30),
)
def test_no_cut_loses_or_doubles_a_line(
    tmp_path_factory: Any,
    files: list[tuple[list[str], bool]],
    partitions: int,
    rows: int | None,
    size: int | None,
) -> None:
    folder = tmp_path_factory.mktemp("lines")
    everything = []
    for at, (lines, ended) in enumerate(files):
        text = "\n".join(lines) + ("\n" if ended else "")
        (folder / str(at)).write_bytes(text.encode())
        body = text.removeprefix("\ufeff")
        everything += body.removesuffix("\n").split("\n") if body else []
    made = spout(folder, "text", partitions=partitions, batch_rows_max=rows, batch_bytes_max=size)

    batches = [[row[0] for row in emit(made, each, 2)] for each in Planner(made).all()]

    assert sorted(line for batch in batches for line in batch) == sorted(everything)
    assert all(rows is None or len(batch) <= rows for batch in batches)
