"""FileSpout and MemorySpout bring everything, and again what failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.reliable.bolts import WORD, Forward, Seen
from txtopo import BasicBolt, Config, FailedException, TopologyBuilder, Tuple
from txtopo.collector import BatchOutputCollector
from txtopo.errors import ConfigError, FieldsError, SourceDataLost
from txtopo.spouts import FileSpout, MemorySpout
from txtopo.testing import SimulatedCluster


class Second(BasicBolt):
    """Fails each tuple when it comes first."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        if tuple.values in self._seen.notes:
            self._seen.notes.append(tuple.values)
            return
        self._seen.notes.append(tuple.values)
        raise FailedException("once more")


def run(spout: FileSpout | MemorySpout, seen: Seen, tasks: int) -> SimulatedCluster:
    builder = TopologyBuilder()
    builder.set_spout("lines", spout, tasks)
    assert spout.output_fields is not None
    builder.set_bolt("second", Second(seen), 2).fields_grouping("lines", spout.output_fields)
    cluster = SimulatedCluster()
    cluster.start(builder.build_topology(), Config(max_spout_pending=2))
    cluster.process_all_available()
    return cluster


@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_each_line_of_each_file_comes_again_until_it_is_acked(tasks: int, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("ä\r\n\nlast".encode())
    (tmp_path / "b.txt").write_bytes(b"x\ny\n")
    seen = Seen()

    cluster = run(FileSpout(str(tmp_path / "*.txt")), seen, tasks)

    a, b = str(tmp_path / "a.txt"), str(tmp_path / "b.txt")
    lines = [("ä", a, 1), ("", a, 2), ("last", a, 3), ("x", b, 1), ("y", b, 2)]
    assert sorted(seen.notes) == sorted(lines * 2)
    progress = cluster.progress
    assert (progress.acked, progress.failed, progress.replays) == (5, 5, 5)


def test_a_file_that_is_not_there_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(SourceDataLost, match="found no file"):
        run(FileSpout(tmp_path / "none"), Seen(), 1)


def notes(*paths: object) -> list[str]:
    """Return the lines that a spout brings first."""
    seen = Seen()
    run(FileSpout([str(path) for path in paths]), seen, 1)
    return sorted(line for line, _, _ in set(seen.notes))


def test_a_file_is_read_once_under_whatever_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("a\n")
    (tmp_path / "link.txt").symlink_to("a.txt")
    seen = Seen()

    run(FileSpout(["*.txt", "./a.txt", str(tmp_path / "a.txt")]), seen, 1)

    assert len(seen.notes) == 2  # it fails once


def test_two_stars_cross_folders_and_folders_are_no_files(tmp_path: Path) -> None:
    deep = tmp_path / "sub" / "deep"
    deep.mkdir(parents=True)
    (tmp_path / "one.txt").write_text("1\n")
    (deep / "two.txt").write_text("2\n")
    (tmp_path / "odd[1].txt").write_text("3\n")

    assert notes(tmp_path / "**" / "*.txt") == ["1", "2", "3"]
    assert notes(tmp_path / "*") == ["1", "3"]
    assert notes(tmp_path / "odd[1].txt") == ["3"]


def test_a_folder_and_a_named_file_that_is_missing_end_the_run_before_it_reads(
    tmp_path: Path,
) -> None:
    (tmp_path / "one.txt").write_text("1\n")

    with pytest.raises(ConfigError, match=r"is a folder; got .*; give '.*/\*\*/\*'"):
        notes(tmp_path)
    with pytest.raises(SourceDataLost, match=r"found no file '.*missing\.txt'"):
        notes(tmp_path / "one.txt", tmp_path / "missing.txt")


@pytest.mark.parametrize("paths", [None, 5, [], [5], b"a.txt", [b"a.txt"], {"a.txt"}])
def test_paths_that_are_none_are_refused(paths: object) -> None:
    with pytest.raises(ConfigError, match="paths of a FileSpout are wrong; got"):
        FileSpout(paths)  # type: ignore[arg-type]


@pytest.mark.parametrize("encoding", ["nonsense", 5, "hex", "utf-16", "cp037"])
def test_an_encoding_that_cannot_read_lines_is_refused(encoding: object) -> None:
    with pytest.raises(ConfigError, match="encoding of a FileSpout is wrong; got"):
        FileSpout("a.txt", encoding)  # type: ignore[arg-type]


def test_a_line_of_another_encoding_ends_the_run_and_names_itself(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"good\n\xff\n")

    with pytest.raises(FieldsError, match=r"line 2 of .*a\.txt cannot be decoded"):
        run(FileSpout(tmp_path / "a.txt"), Seen(), 1)


@pytest.mark.parametrize("tasks", [1, 3])
def test_a_memory_spout_goes_through_its_rows_and_repeats_them(tasks: int) -> None:
    builder = TopologyBuilder()
    builder.set_spout("words", MemorySpout([["a"], ["b"]], WORD, repeat=3), tasks)
    builder.set_bolt("forward", Forward()).shuffle_grouping("words")
    cluster = SimulatedCluster()
    cluster.start(builder.build_topology())

    cluster.process_all_available()

    assert cluster.progress.acked == 6


def test_a_row_that_does_not_fit_is_refused() -> None:
    with pytest.raises(FieldsError, match="expected a list of 1 values: word"):
        MemorySpout([["a", 1]], WORD)


# What Python takes for line ends in text, besides the newline.
ODD_ENDS = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\x1dh\x1ei"


def test_a_line_ends_at_a_newline_and_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "odd.txt").write_bytes(f"{ODD_ENDS}\n\r\r\nb{ODD_ENDS}".encode())

    assert notes(tmp_path / "odd.txt") == ["\r", ODD_ENDS, f"b{ODD_ENDS}"]
