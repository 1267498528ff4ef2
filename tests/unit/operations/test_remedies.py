"""What the error of an unreadable record says that helps, does help."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from tests.harness.runs import LOCAL, Storage, run_to_end
from tests.unit.streams.times import without_a_table
from txtopo import Count, Fields, PersistentAggregate, Topology, TransactionalTopologyBuilder
from txtopo.errors import EmitError, RecordFailed, SourceDataLost
from txtopo.operations import Access, quarantine
from txtopo.sources.files.source import FormatName
from txtopo.spouts import DeltaTransactionalSpout, FilesTransactionalSpout
from txtopo.streams import StreamBuilder

CHANGES = ("unusable=", "dead_letters=")
FORMATS = ("csv", "json", "parquet")
CHANGED = replace(LOCAL, allow_change=True)
BAD, GOOD = [("a", "1"), ("b", "x"), ("c", "3")], [("a", "1"), ("b", "2"), ("c", "3")]
ALL = {"a": 1, "b": 1, "c": 1}


def write(path: Path, format: str, rows: list[tuple[str, str]]) -> None:
    path.parent.mkdir(exist_ok=True)
    if format == "parquet":
        pq.write_table(pa.table({"k": [k for k, _ in rows], "n": [n for _, n in rows]}), path)
    elif format == "csv":
        path.write_text("k,n\n" + "".join(f"{k},{n}\n" for k, n in rows))
    else:
        numbers = [(k, n if n.isdigit() else f'"{n}"') for k, n in rows]
        path.write_text("".join(f'{{"k":"{k}","n":{n}}}\n' for k, n in numbers))


class Files:
    """Counts the rows of files, of which the first cannot be read."""

    def __init__(self, folder: Path, format: str, **limits: Any) -> None:
        self.folder, self.format, self.limits = folder / "in", format, limits
        self.storage = Storage.in_memory()
        write(self.folder / "a", format, BAD)
        with pytest.raises(EmitError, match=r"cannot read field 'n' of (line|row)") as caught:
            self.run()
        self.said = str(caught.value)

    def topology(self, fields: str = "k string, n long", *, dead_letters: bool = False) -> Topology:
        spout = FilesTransactionalSpout(
            self.folder, Fields(fields), cast(FormatName, self.format), **self.limits
        )
        builder = TransactionalTopologyBuilder(
            "counts",
            "files",
            spout,
            dead_letters=self.storage.state("dead") if dead_letters else None,
        )
        counts = PersistentAggregate(self.storage.state("counts"), "k", Count())
        builder.set_bolt("counts", counts).fields_grouping("files", "k")
        return builder.build_topology()

    def run(self, config: Any = LOCAL, **changed: Any) -> dict[Any, Any]:
        run_to_end(self.topology(**changed), self.storage, config)
        return self.storage.read("counts")

    def take_out(self, txid: int) -> None:
        access = Access(ensemble=self.storage.ensemble)
        quarantine(self.topology(), txid, LOCAL, access=access).apply()


@pytest.mark.parametrize("format", FORMATS)
def test_other_fields_help(format: str, tmp_path: Path) -> None:
    files = Files(tmp_path, format)

    assert "; expected Fields(" in files.said
    assert "declare other fields" in files.said
    assert files.run(fields="k string") == ALL


@pytest.mark.parametrize("format", FORMATS)
def test_dead_letters_help(format: str, tmp_path: Path) -> None:
    files = Files(tmp_path, format)

    assert "dead_letters= (which needs allow_change once)" in files.said
    assert files.run(CHANGED, dead_letters=True) == {"a": 1, "c": 1}
    (dead,) = files.storage.read("dead").values()
    assert dead["message"].endswith("; write the repaired file under another name")


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("limits", [{}, {"batch_rows_max": 1}])
def test_a_file_with_another_name_helps_and_one_in_its_place_does_not(
    format: str, limits: Any, tmp_path: Path
) -> None:
    files = Files(tmp_path, format, **limits)
    assert "remove its batch with quarantine" in files.said

    files.take_out(2 if limits else 1)
    write(files.folder / "a-repaired", format, [("b", "2")] if limits else GOOD)

    assert files.run() == ALL


@pytest.mark.parametrize("format", FORMATS)
def test_who_has_repaired_a_file_in_its_place_is_told_the_way_back(
    format: str, tmp_path: Path
) -> None:
    files = Files(tmp_path, format)
    write(files.folder / "a", format, GOOD)
    with pytest.raises(SourceDataLost, match=r"quarantine, and write its rows to a file with"):
        files.run()

    files.take_out(1)
    write(files.folder / "b", format, GOOD)

    assert files.run() == ALL


def delta_of(folder: Path, storage: Storage) -> Callable[[str], Topology]:
    """Return topologies that count the rows of a table, of which one has nanoseconds."""
    good = pa.table({"k": ["a", "b"], "at": pa.array([0, 0], pa.timestamp("us", "UTC"))})
    write_deltalake(folder, good)
    (file,) = folder.glob("*.parquet")
    bad = pa.table({"k": ["a", "b"], "at": pa.array([0, 1], pa.timestamp("ns", "UTC"))})
    pq.write_table(bad, file)

    def topology(fields: str) -> Topology:
        spout = DeltaTransactionalSpout(folder, Fields(fields))
        builder = TransactionalTopologyBuilder("counts", "table", spout)
        counts = PersistentAggregate(storage.state("counts"), "k", Count())
        builder.set_bolt("counts", counts).fields_grouping("table", "k")
        return builder.build_topology()

    return topology


@pytest.mark.parametrize("remedy", ["remove the field", "quarantine"])
def test_what_the_error_of_a_delta_table_says_helps(remedy: str, tmp_path: Path) -> None:
    storage, fields = Storage.in_memory(), "k string, at timestamp"
    topology = delta_of(tmp_path, storage)
    with pytest.raises(EmitError, match=rf"^cannot read field 'at' of row 1 .*{remedy}") as caught:
        run_to_end(topology(fields), storage)
    assert (caught.value.row, caught.value.field) == (1, "at")

    if remedy == "quarantine":
        access = Access(ensemble=storage.ensemble)
        quarantine(topology(fields), 1, LOCAL, access=access).apply()
        good = pa.table({"k": ["a", "b"], "at": pa.array([0, 0], pa.timestamp("us", "UTC"))})
        write_deltalake(tmp_path, good, mode="append")
    else:
        fields = "k string"
    run_to_end(topology(fields), storage)

    assert storage.read("counts") == {"a": 1, "b": 1}


@pytest.mark.parametrize("remedy", ["unusable=", "dead_letters=", "quarantine", "max_ahead="])
def test_what_the_error_of_a_time_far_ahead_says_helps(remedy: str, tmp_path: Path) -> None:
    storage, now = Storage.in_memory(), dt.datetime.now(dt.UTC)
    lines = [f'{{"k":"a","ts":"{now + dt.timedelta(days=days)}"}}\n' for days in (0, 900)]
    (tmp_path / "a").write_text("".join(lines))

    def topology(with_: str = "") -> Topology:
        aside = storage.state("aside")
        builder = StreamBuilder("t", dead_letters=aside if with_ == "dead_letters=" else None)
        further: dict[str, Any] = {"unusable=": {"unusable": aside}}.get(with_, {})
        further |= {"max_ahead": None} if with_ == "max_ahead=" else {}
        spout = FilesTransactionalSpout(tmp_path, Fields("k string, ts timestamp"), "json")
        source = builder.source("s", spout, event_time="ts", delay="1 second", **further)
        without_a_table(builder, source)
        return builder.build_topology()

    with pytest.raises(RecordFailed, match=remedy):
        run_to_end(topology(), storage)
    if remedy == "quarantine":
        quarantine(topology(), 1, LOCAL, access=Access(ensemble=storage.ensemble)).apply()
        (tmp_path / "b").write_text(lines[0])
    run_to_end(topology(remedy), storage, CHANGED if remedy in CHANGES else LOCAL)

    if remedy in CHANGES:
        assert len(storage.read("aside")) == 1
