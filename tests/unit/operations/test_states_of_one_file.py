"""A verb changes two states in one SQLite file together, wherever its operator dies."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.operations.deployment import (
    ALL,
    BATCHES,
    POISON,
    Deployment,
    apply_with_deaths,
    both,
)
from txtopo.errors import PoisonBatchError
from txtopo.operations import Access, Plan, quarantine, rewind
from txtopo.state import StateKind, open_state

FIRST_TWO = sum(range(4))
STEPS = 8
"""How many steps of a verb are outside the transaction of its states, at least."""
STEPS_IN_A_COMMIT = 6
"""How many steps a commit marks for each of its states."""


def outside(file: Path) -> set[tuple[int, int]]:
    """Return txid and total of each state, as somebody without txtopo reads them."""
    with sqlite3.connect(file, isolation_level=None) as reader:
        reader.execute("BEGIN")
        found = {
            (txid, reader.execute(f'SELECT sum("value") FROM "{table}"').fetchone()[0])
            for table, txid in reader.execute("SELECT state, txid FROM txtopo_ledger").fetchall()
        }
        reader.execute("COMMIT")
    reader.close()
    return found


def in_one_file(file: Path, kind: StateKind = "opaque") -> Deployment:
    first, second = (open_state(f"sqlite:///{file}", kind) for _ in range(2))
    return Deployment((first, second), opaque=kind == "opaque")


def seen_between_deaths(
    file: Path, deployment: Deployment, make: Callable[[Access], Plan]
) -> set[tuple[int, int]]:
    """Apply a plan, killed at each of its steps, and return all that somebody outside has seen."""
    seen: set[tuple[int, int]] = set()

    def looked(access: Access) -> Plan:
        now = outside(file)
        assert len(now) == 1
        seen.update(now)
        return make(access)

    assert apply_with_deaths(looked, deployment) >= STEPS + 2 * STEPS_IN_A_COMMIT
    return seen


def test_a_rewind_takes_both_states_back_at_once(tmp_path: Path) -> None:
    deployment = in_one_file(file := tmp_path / "states.db")
    deployment.run()

    seen = seen_between_deaths(
        file,
        deployment,
        lambda access: rewind(deployment.topology(), BATCHES - 1, deployment.config, access=access),
    )

    assert seen == {(BATCHES, ALL), (BATCHES, ALL - 8 - 9)}
    deployment.run()
    assert deployment.held() == both(BATCHES + 1, ALL)


@pytest.mark.parametrize("kind", ["opaque", "transactional"])
def test_both_states_pass_a_batch_that_is_taken_out_at_once(
    tmp_path: Path, kind: StateKind
) -> None:
    deployment = in_one_file(file := tmp_path / "states.db", kind)
    with pytest.raises(PoisonBatchError):
        deployment.run(POISON)

    seen = seen_between_deaths(
        file,
        deployment,
        lambda access: quarantine(deployment.topology(), 3, deployment.config, access=access),
    )

    assert seen == {(2, FIRST_TWO), (3, FIRST_TWO)}
    deployment.run(POISON)
    assert deployment.held() == both(BATCHES, ALL - 4 - 5)
