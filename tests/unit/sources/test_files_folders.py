"""A folder that moved, or has another name, is never read a second time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from tests.unit.sources.driving import Planner, context, emit
from txtopo import Config, Fields
from txtopo.errors import ConfigError, TopologyChanged
from txtopo.metadata import Json
from txtopo.sources.files import planning
from txtopo.spouts import FilesTransactionalSpout

LOCAL = fs.LocalFileSystem()


def spout(paths: Path | str | Sequence[str], **options: Any) -> FilesTransactionalSpout:
    options = {"batch_files_max": 1, "partitions": 1, **options}
    return FilesTransactionalSpout(paths, Fields("line string"), "text", **options)


def write(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text(name)


def read(made: FilesTransactionalSpout, batches: list[Json]) -> list[str]:
    return [row[0] for metadata in batches for row in emit(made, metadata)]


def last_of(made: FilesTransactionalSpout, stored: Json = None) -> Json:
    planner = Planner(made, stored=stored)
    planner.all()
    return planner.metadata


def of_many(metadata: Json) -> Json:
    """Return a position without folders, as it is stored when they are many."""
    assert isinstance(metadata, dict)
    assert isinstance(metadata["cursor"], dict)
    cursor = {name: value for name, value in metadata["cursor"].items() if name != "folders"}
    return {**metadata, "cursor": cursor}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder in which ``in`` has two files."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "in", "a", "b")
    return tmp_path


@pytest.mark.parametrize(
    ("paths", "options"),
    [
        (["in", "./in", "in//", "{here}/./in", "in/../in"], {}),
        (["in", "./in", "in//", ".//in/."], {"filesystem": LOCAL}),
        (["file://{here}/in", "file://{here}/./in", "file://{here}//in"], {}),
        (["in", "./in", "/in"], {"filesystem": "file://{here}/."}),
        (["in/*", "./in/*", "in//*"], {"filesystem": LOCAL}),
        (["in", "in/a", "in/*", "in/**"], {}),
    ],
)
def test_one_folder_in_several_spellings_is_read_once(
    here: Path, paths: list[str], options: dict[str, Any]
) -> None:
    options = {n: v.format(here=here) if isinstance(v, str) else v for n, v in options.items()}
    spelled = [path.format(here=here) for path in paths]
    first = spout(spelled[0], **options)
    last = last_of(first)

    assert sorted(read(first, Planner(spout(spelled, **options)).all())) == ["a", "b"]
    for path in spelled:
        assert Planner(spout(path, **options), stored=last).all() == []


@pytest.mark.parametrize("pattern", ["*.csv", "./*.csv", "**/*.csv"])
def test_a_pattern_of_a_local_filesystem_begins_in_the_working_directory(
    here: Path, pattern: str
) -> None:
    write(here, "x.csv")
    made = spout(pattern, filesystem=LOCAL)

    assert read(made, Planner(made).all()) == ["x.csv"]


@pytest.mark.parametrize(
    "paths",
    [
        ["in", "link"],
        ["in/*", "link/*"],
        ["link/sub", "in"],
        ["in", "sub"],
        ["in/sub", "link"],
        ["in/a", "file"],
        ["file", "in"],
    ],
)
@pytest.mark.parametrize("given", [True, False])
def test_a_folder_under_two_names_is_refused(here: Path, paths: list[str], given: bool) -> None:
    write(here / "in" / "sub", "c")
    os.symlink("in", "link")
    os.symlink("in/sub", "sub")
    os.symlink("in/a", "file")
    tree = fs.SubTreeFileSystem(str(here), LOCAL)

    with pytest.raises(ConfigError, match="under two names and would read it twice; got"):
        Planner(spout(paths, filesystem=tree if given else None))


def test_files_behind_links_are_known_by_the_names_that_are_listed(here: Path) -> None:
    """As of a ConfigMap in Kubernetes, whose links lead elsewhere from time to time."""
    write(here / "in" / "..1", "c")
    os.symlink("..1", here / "in" / "..data")
    os.symlink("..data/c", here / "in" / "c")
    made = spout(["in", "in/c"])
    batches = Planner(made).all()
    assert read(made, batches) == ["a", "b", "c"]
    write(here / "in" / "..2", "c", "d")
    (here / "in" / "..data").unlink()
    os.symlink("..2", here / "in" / "..data")
    os.symlink("..data/d", here / "in" / "d")

    assert read(made, Planner(made, stored=batches[-1]).all()) == ["d"]


def test_a_link_that_is_switched_to_another_folder_goes_on(here: Path) -> None:
    """As of a release: what has the name of a file that was read was read."""
    os.symlink("in", "current")
    made = spout("current")
    last = last_of(made)
    write(here / "next", "b", "c")
    Path("current").unlink()
    os.symlink("next", "current")

    assert read(made, Planner(made, stored=last).all()) == ["c"]


OTHERS = (
    r"reads different folders than before; got '.*/new', where none of 2 files was read, e\.g\. "
    r"'.*/new/a'; expected '.*/in', which it read before; .* Config\(allow_change=\['source'\]\)"
)


@pytest.mark.parametrize("stored", ["now", "long"])
@pytest.mark.parametrize("how", ["moved", "link", "filesystem"])
def test_a_folder_under_another_path_ends_the_run(
    here: Path, how: str, stored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All its files would be read again."""
    if stored == "long":
        monkeypatch.setattr(planning, "FOLDERS_CHARACTERS_MAX", 3)
    last = last_of(spout("in"))
    options: dict[str, Any] = {}
    if how == "link":
        os.symlink("in", "new")
    else:
        os.rename("in", "new")
    if how == "filesystem":
        options["filesystem"] = LOCAL
    made = spout(str(here / "new"), **options)

    with pytest.raises(TopologyChanged, match=OTHERS) as caught:
        Planner(made, stored=last).plan()
    assert "before" in caught.value.changes[0]
    if how != "link":
        os.symlink("new", "in")
    assert Planner(spout("in"), stored=last).all() == [], "the advice helps"
    planner = Planner(made, stored=last)
    planner.coordinator = made.coordinator(Config(allow_change=True), context())
    assert read(made, planner.all()) == ["a", "b"], "it is allowed once"
    assert Planner(made, stored=planner.metadata).all() == []


def test_one_of_two_folders_that_moved_ends_the_run(here: Path) -> None:
    write(here / "other", "c")
    last = last_of(spout(["in", "other"]))
    os.rename("in", "new")
    made = spout(["new", "other"])

    with pytest.raises(TopologyChanged, match=OTHERS):
        Planner(made, stored=last).plan()


def test_a_folder_in_the_place_of_another_is_doubted_until_it_has_files(here: Path) -> None:
    """Also by a later process, after further batches of a folder that stayed."""
    write(here / "other", "c")
    last = last_of(spout(["in", "other"]))
    (here / "new").mkdir()
    made = spout(["new", "other"])
    assert Planner(made, stored=last).all() == []
    write(here / "other", "d")
    planner = Planner(made, stored=last)
    assert read(made, planner.all()) == ["d"]
    os.rename("in/a", "new/a")
    os.rename("in/b", "new/b")

    for each in (planner, Planner(made, stored=planner.metadata)):
        with pytest.raises(TopologyChanged, match=r"got '.*/new', where none of 2 files was read"):
            each.plan()


@pytest.mark.parametrize("are_many", [True, False])
@pytest.mark.parametrize(
    ("before", "after", "new"),
    [
        (["in"], ["in", "other"], ["c"]),
        (["in"], ["in/a", "in/b", "other"], ["c"]),
        (["in/a"], ["in/b"], ["b"]),
        (["in/*"], ["in/**", "other/c"], ["c", "s"]),
        (["in/sub"], ["in"], ["a", "b"]),
        (["in", "other"], ["other"], []),
        (["in"], ["in/sub"], []),
        (["in"], ["."], ["a", "b", "c", "s"]),
    ],
)
def test_paths_may_come_and_go(
    here: Path, before: list[str], after: list[str], new: list[str], are_many: bool
) -> None:
    """The last one names the files again, and is refused if none of the names was read."""
    write(here / "other", "c")
    write(here / "in" / "sub", "s")
    last = last_of(spout(before))
    last = of_many(last) if are_many else last
    made = spout(after)
    if after == ["."]:
        new = ["c"]  # a local path without a filesystem is made absolute, so its names are the same

    batches = Planner(made, stored=last).all()

    assert sorted(read(made, batches)) == new
    if batches:
        assert Planner(made, stored=batches[-1]).all() == []


def test_files_that_were_read_may_go_while_new_ones_come(here: Path) -> None:
    last = last_of(spout("in"))
    for are_many in (True, False):
        for path in Path("in").iterdir():
            path.unlink()
        write(here / "in", f"new-{are_many}")
        made = spout("in")

        assert read(made, Planner(made, stored=of_many(last) if are_many else last).all()) == [
            f"new-{are_many}"
        ]
