"""What earlier versions left in ZooKeeper and in a store is read, and the run goes on from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.polling import LIMIT_S
from tests.harness.runs import Changes
from tests.services.upgrade.stored import KINDS, LEFT_AT, TODAY, restored, store_name, versions
from tests.services.upgrade.stores import DeltaStore, RedisStore, SqliteStore, Store
from tests.unit.runtime.loop_world import BATCHES, expected, running, stored, topology_of
from txtopo.plugins.stores import LEDGER_SCHEMA
from txtopo.runtime.progress import BatchCommitted, Leading
from txtopo.state import StateKind, open_state

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def marked(version: str) -> object:
    needs = [pytest.mark.service("redis")] if store_name(version) == "redis" else []
    return pytest.param(version, marks=needs)


@pytest.fixture
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(version: str, request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if store_name(version) == "redis":
        return RedisStore(request.getfixturevalue("redis_server"))
    return DeltaStore(tmp_path) if store_name(version) == "delta" else SqliteStore(tmp_path)


def test_there_is_something_of_todays_versions() -> None:
    """Else: ``python -m tests.services.upgrade.stored``, in the change that adds a version."""
    assert set(TODAY) <= set(versions())


@pytest.mark.row(55)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", [marked(version) for version in versions()], indirect=True)
def test_a_run_goes_on_from_what_an_earlier_version_left(
    version: str, kind: StateKind, store: Store, tmp_path: Path
) -> None:
    ensemble = restored(version, kind, store, tmp_path / "unpacked")
    planned = [path for path in ensemble.nodes if "/batches/" in path]
    assert len(planned) > 1, "no batch was in flight, so the archive tests too little"
    state = open_state(store.url, kind)
    assert stored(state) == (LEFT_AT, expected(LEFT_AT))

    changes = Changes()
    with running(topology_of(state), ensemble, changes) as run:
        run.process_all_available(LIMIT_S)

    assert stored(state) == (BATCHES, expected(BATCHES))
    with state.reader() as reader:
        held = reader.ledger
    assert held is not None
    assert (held.schema, held.component, held.state) == (LEDGER_SCHEMA, "total", "totals")
    assert held.ensemble
    assert held.txid == held.first_txid + len(held.attempts) - 1 == BATCHES
    assert held.attempts[-1] == held.attempt
    assert [change.epoch for change in changes.of(Leading)] == [2]
    assert [change.progress.txid for change in changes.of(BatchCommitted)] == list(
        range(LEFT_AT + 1, BATCHES + 1)
    )
