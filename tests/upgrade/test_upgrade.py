"""What earlier versions left in ZooKeeper and in SQLite is read, and counted on from there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.loop_world import (
    BATCHES,
    LIMIT_S,
    Changes,
    expected,
    running,
    stored,
    topology_of,
)
from tests.upgrade.stored import KINDS, LEFT_AT, TODAY, restored, versions
from txtopo.runtime.progress import BatchCommitted, Leading
from txtopo.state import StateKind, open_state

pytestmark = pytest.mark.integration


def test_there_is_something_of_todays_version() -> None:
    """Else: ``python -m tests.upgrade.stored``, in the change that gives it a new number."""
    assert TODAY in versions()


@pytest.mark.row(55)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", versions())
def test_a_run_goes_on_from_what_an_earlier_version_left(
    version: str, kind: StateKind, tmp_path: Path
) -> None:
    database = tmp_path / "states.db"
    ensemble = restored(version, kind, database)
    planned = [path for path in ensemble.nodes if "/batches/" in path]
    assert len(planned) > 1, "nothing was in flight: what is stored tests too little"
    state = open_state(f"sqlite:///{database}", kind)
    assert stored(state) == (LEFT_AT, expected(LEFT_AT))

    changes = Changes()
    with running(topology_of(state), ensemble, changes) as run:
        run.process_all_available(LIMIT_S)

    assert stored(state) == (BATCHES, expected(BATCHES))
    assert [change.epoch for change in changes.of(Leading)] == [2]
    assert [change.progress.txid for change in changes.of(BatchCommitted)] == list(
        range(LEFT_AT + 1, BATCHES + 1)
    )
