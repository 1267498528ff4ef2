"""A topology whose store is at another URL than before: what is told, and that it can be done."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.unit.operations.deployment import ALL, BATCHES, Deployment, both
from txtopo.errors import StoreBehindCoordinator
from txtopo.operations import rebuild
from txtopo.state import State, open_state


def stores(folder: Path, name: str) -> tuple[State, State]:
    first, second = (open_state(f"sqlite:///{folder}/{name}-{at}.db") for at in range(2))
    return first, second


@pytest.fixture
def moved(tmp_path: Path) -> Deployment:
    """Return a topology that ran to its end, and now has URLs of stores that are new."""
    deployment = Deployment(stores(tmp_path, "old"))
    deployment.run()
    deployment.states = stores(tmp_path, "new")
    return deployment


def test_a_store_that_is_new_under_a_known_id_is_told_with_its_url(
    moved: Deployment, tmp_path: Path
) -> None:
    with pytest.raises(StoreBehindCoordinator) as told:
        moved.run()

    text = str(told.value)
    assert f"state 'a.totals' holds txid 0, but ZooKeeper says that txid {BATCHES} is" in text
    assert f"the store at sqlite:///{tmp_path}/new-0.db contains nothing of this topology" in text
    assert "was the URL changed" in text
    assert "another id" in text
    assert "txtopo.operations.rebuild(topology, config).apply()" in text


def test_the_password_of_the_url_is_not_told(tmp_path: Path) -> None:
    moved = Deployment(stores(tmp_path, "old"))
    moved.run()
    first, second = (f"sqlite:///{tmp_path}/{at}.db?password=hush" for at in range(2))
    moved.states = (open_state(first), open_state(second))

    with pytest.raises(StoreBehindCoordinator, match=r"password=\*\*\*") as told:
        moved.run()
    assert "hush" not in str(told.value)


def test_the_store_where_the_state_was_is_taken_again(moved: Deployment, tmp_path: Path) -> None:
    with pytest.raises(StoreBehindCoordinator):
        moved.run()
    moved.states = stores(tmp_path, "old")

    moved.run()
    assert moved.held() == both(BATCHES, ALL)


def test_a_copy_of_the_store_with_its_ledger_is_taken(moved: Deployment, tmp_path: Path) -> None:
    with pytest.raises(StoreBehindCoordinator):
        moved.run()
    for at in range(2):
        shutil.copy(tmp_path / f"old-{at}.db", tmp_path / f"new-{at}.db")

    moved.run()
    assert moved.held() == both(BATCHES, ALL)


def test_another_id_and_table_begin_with_the_first_record(
    moved: Deployment, tmp_path: Path
) -> None:
    """The start that was refused has claimed the tables in the new store."""
    with pytest.raises(StoreBehindCoordinator):
        moved.run()
    moved.id = "again"
    first, second = (f"sqlite:///{tmp_path}/new-{at}.db" for at in range(2))
    moved.states = (open_state(first, table="again"), open_state(second, table="again"))

    moved.run()
    assert moved.held() == both(BATCHES, ALL)


def test_rebuild_begins_with_the_first_record_under_the_same_id(moved: Deployment) -> None:
    with pytest.raises(StoreBehindCoordinator):
        moved.run()

    rebuild(moved.topology(), moved.config, access=moved.access()).apply()

    moved.run()
    assert moved.held() == both(BATCHES, ALL)
