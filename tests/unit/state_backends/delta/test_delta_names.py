"""The folders and files of states in Delta: all of them are known, reserved and kept apart."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from state_backends.delta.layout import LOG, names_of
from txtopo import Fields
from txtopo.errors import SchemaDrift, TopologyError
from txtopo.state import Count, State, StateMode, open_state
from txtopo.testing.conformance.driver import StateDriver

pytestmark = pytest.mark.integration
KEY, VALUE = Fields("key string"), Fields("value long")
# Delta's own: entries of a log and checkpoints; files of rows, in folders of partitions.
OF_DELTA = re.compile(r"\d{20}\.(json|crc|checkpoint\.parquet)|_last_checkpoint|part-.*\.parquet")
COMMITS = 110
"""More than lie between two checkpoints, and more than one fold needs."""


def state_of(folder: Path, table: str, mode: StateMode = "table") -> State:
    state = open_state(f"delta://{folder}", table=table, mode=mode, key=KEY, value=VALUE)
    return state.with_columns(KEY, VALUE, (Count(),)) if mode == "log" else state


@pytest.mark.parametrize("mode", ["table", "log"])
def test_everything_in_the_folder_has_a_name_that_is_known(tmp_path: Path, mode: StateMode) -> None:
    driver = StateDriver(state_of(tmp_path, "a b", mode))
    for txid in range(1, COMMITS if mode == "log" else 12):
        driver.merge(txid, [("a", 1)]) if mode == "log" else driver.puts(txid, {"a": txid})
    driver.backend.close()

    names = names_of("a b")
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    assert {path for path in found if not OF_DELTA.fullmatch(Path(path).name)} == {
        names.folder,
        names.log,
        names.checksums,
    }


@pytest.mark.parametrize("inside", ["x", "_x", "x/deeper"])
def test_a_state_within_the_table_of_another_is_refused(tmp_path: Path, inside: str) -> None:
    """A VACUUM of the outer one removes whatever it does not know."""
    outer = StateDriver(state_of(tmp_path, "words"))
    outer.puts(1, {"a": 1})
    folder = (tmp_path / "words" / inside).parent

    with pytest.raises(SchemaDrift, match=f"inside the Delta table '{tmp_path}/words'"):
        StateDriver(state_of(folder, Path(inside).name))
    assert outer.puts(2, {"a": 2}).txid == 2


def test_a_state_around_the_table_of_another_is_refused(tmp_path: Path) -> None:
    inner = StateDriver(state_of(tmp_path / "words", "x"))
    inner.puts(1, {"a": 1})

    with pytest.raises(SchemaDrift, match="its folder is in use"):
        StateDriver(state_of(tmp_path, "words"))
    assert inner.puts(2, {"a": 2}).txid == 2


def test_the_name_of_a_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match="keeps the log of a table"):
        state_of(tmp_path, LOG).open()


@pytest.mark.parametrize("names", [("words", "Words"), ("WORDS", "words")])
def test_names_that_differ_in_case_are_told_apart_or_refused(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    """A link stands for a file system that takes the two for one."""
    first, second = (state_of(tmp_path, name) for name in names)
    StateDriver(first).puts(1, {"a": 1})
    apart = not (tmp_path / names[1]).exists()
    if apart:
        StateDriver(second).puts(1, {"a": 2})
        assert StateDriver(first, 2).contents() == {"a": 1}
        (tmp_path / "more").mkdir()
        StateDriver(state_of(tmp_path / "more", names[0])).puts(1, {"a": 1})
        (tmp_path / "more" / names[1]).symlink_to(names[0])

    folder = tmp_path / "more" if apart else tmp_path
    with pytest.raises(SchemaDrift, match=f"clashes with state '{names[0]}'"):
        StateDriver(state_of(folder, names[1]))
    # The one that was there continues.
    assert StateDriver(state_of(folder, names[0]), 2).contents() == {"a": 1}


@pytest.mark.parametrize(
    "names", [("a b", "a-20b"), ("\u00e9", "e\u0301"), ("a-b", "a%2Db"), ("a.b", "a_b")]
)
def test_other_names_that_look_alike_are_told_apart(tmp_path: Path, names: tuple[str, str]) -> None:
    for value, name in enumerate(names):
        StateDriver(state_of(tmp_path, name)).puts(1, {"a": value})
    for value, name in enumerate(names):
        assert StateDriver(state_of(tmp_path, name), 2).contents() == {"a": value}
