"""Damaged bookkeeping of one state keeps nobody from the others of its store; Redis has its own."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from state_backends.delta.layout import DECLARATION
from txtopo.errors import StateUsageError, TxtopoError
from txtopo.plugins.stores import BackingMap, backing_map_factory
from txtopo.state import open_state, register_backend
from txtopo.testing.conformance.driver import StateDriver


class Notes(BackingMap):
    texts: dict[str, str] = {}  # noqa: RUF012 - one map for all that open it

    def __init__(self, url: str) -> None:
        pass

    def multi_get(self, keys: list[str]) -> list[str | None]:  # type: ignore[override]
        return [self.texts.get(key) for key in keys]

    def multi_put(self, keys: list[str], values: list[str]) -> None:  # type: ignore[override]
        self.texts.update(zip(keys, values, strict=True))


def damage_sqlite(folder: Path) -> None:
    with sqlite3.connect(folder / "x.db") as database:
        database.execute("UPDATE txtopo_ledger SET declaration = '{\"key\"' WHERE state = 'b'")


def damage_delta(folder: Path) -> None:
    DeltaTable(str(folder / "b")).alter.set_table_properties(
        {DECLARATION: '{"key"'}, raise_if_not_exists=False
    )


def break_log(folder: Path) -> None:
    (folder / "b" / "_delta_log" / f"{0:020}.json").write_text('{"metaData":')


def damage_map(folder: Path) -> None:
    Notes.texts[json.dumps(["b", "head"], separators=(",", ":"))] = '{"version"'


@pytest.mark.parametrize(
    ("url", "damage"),
    [
        ("sqlite:///{}/x.db", damage_sqlite),
        ("delta://{}", damage_delta),
        ("delta://{}", break_log),
        ("neighbours:", damage_map),
    ],
)
def test_other_states_are_read_and_the_damaged_one_is_named(
    url: str, damage: Callable[[Path], None], tmp_path: Path
) -> None:
    Notes.texts.clear()
    register_backend("neighbours", backing_map_factory(Notes, shared_by_processes=False))
    url = url.format(tmp_path)
    StateDriver(open_state(url, table="b")).close()
    store = StateDriver(open_state(url, table="counts"))
    store.puts(1, {"a": 1})
    damage(tmp_path)

    with open_state(url, table="counts").reader() as reader:
        assert reader.get("a") == 1
    store.puts(2, {"a": 2})
    with pytest.raises(TxtopoError, match="'b'"), open_state(url, table="b").reader():
        pass
    with (
        pytest.raises(StateUsageError, match=r"no state was named.* holds b, counts"),
        open_state(url).reader(),
    ):
        pass
