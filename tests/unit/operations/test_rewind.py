"""States and source go back to what they were after an earlier txid."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.harness.dying import Died
from tests.unit.operations.conftest import Make
from tests.unit.operations.deployment import (
    ALL,
    BATCHES,
    POISON,
    Deployment,
    apply_with_deaths,
    both,
    die_on,
)
from txtopo.errors import PoisonBatchError, StateUsageError
from txtopo.operations import rewind, show, verify
from txtopo.state import open_state

LAST = 8 + 9


def test_the_last_txid_is_undone_and_its_records_come_again(make: Make) -> None:
    deployment = make(opaque=True)
    deployment.run()

    deaths = apply_with_deaths(
        lambda access: rewind(deployment.topology(), BATCHES - 1, deployment.config, access=access),
        deployment,
    )

    assert deaths >= 8
    assert deployment.held() == both(BATCHES, ALL - LAST)
    assert verify(deployment.topology(), deployment.config, access=deployment.access()) == []
    deployment.run()
    assert deployment.held() == both(BATCHES + 1, ALL)


@pytest.mark.parametrize("opaque", [False, True])
def test_what_was_planned_after_the_last_txid_is_planned_again(memory: Make, opaque: bool) -> None:
    """It was cut from where that one ended; the records between would be left out."""
    deployment = memory(opaque)
    with pytest.raises(PoisonBatchError):
        deployment.run(POISON)

    rewind(deployment.topology(), 1, deployment.config, access=deployment.access()).apply()

    deployment.run()
    assert deployment.held() == both(BATCHES + 1, ALL)


def test_a_rewind_is_told_before_anything_is_written(memory: Make) -> None:
    deployment = memory()
    deployment.run()
    before = dict(deployment.ensemble.nodes)

    plan = rewind(deployment.topology(), BATCHES - 1, deployment.config, access=deployment.access())

    assert "undo txid 5 in states 'a.totals', 'b.totals'" in str(plan)
    assert deployment.ensemble.nodes == before
    assert deployment.held() == both(BATCHES, ALL)


def test_a_state_without_earlier_values_is_refused_by_name(memory: Make) -> None:
    deployment = memory(kind="transactional")
    deployment.run()

    with pytest.raises(StateUsageError, match=r"'a.totals' is transactional .* 'b.totals'"):
        rewind(deployment.topology(), BATCHES - 1, deployment.config, access=deployment.access())


@pytest.mark.parametrize("txid", [BATCHES, BATCHES + 1, -1])
def test_only_committed_txids_before_the_last_can_be_gone_back_to(memory: Make, txid: int) -> None:
    deployment = memory()
    deployment.run()

    with pytest.raises(StateUsageError, match="expected one from 0 to 4"):
        rewind(deployment.topology(), txid, deployment.config, access=deployment.access())


def test_further_back_than_a_store_keeps_is_refused_with_its_reason(memory: Make) -> None:
    deployment = memory()
    deployment.run()

    with pytest.raises(StateUsageError, match="keeps txid 4 only: MemoryBackend keeps no history"):
        rewind(deployment.topology(), 2, deployment.config, access=deployment.access())


@pytest.mark.integration
def test_delta_goes_back_as_far_as_its_history(tmp_path: Path) -> None:
    first, second = (open_state(f"delta:///{tmp_path}/{at}") for at in range(2))
    deployment = Deployment((first, second), opaque=True, id="history", history=1)
    deployment.run(batches=2)
    end = show(deployment.topology(), deployment.config, access=deployment.access()).batches[2]
    deployment.run()
    with pytest.raises(StateUsageError, match="position of the source after txid 2"):
        rewind(deployment.topology(), 2, deployment.config, access=deployment.access())

    for step in ("write.after:a.totals", "before:2", None):
        access = deployment.access() if step is None else deployment.access(die_on(step))
        plan = rewind(deployment.topology(), 2, deployment.config, metadata=end, access=access)
        with pytest.raises(Died) if step is not None else nullcontext():
            plan.apply()

    assert deployment.held() == both(BATCHES, sum(range(4)))
    rewind(deployment.topology(), 0, deployment.config, access=deployment.access()).apply()
    with first.named("totals_a").reader() as reader:
        assert list(reader.items()) == []
    deployment.run()
    assert deployment.held() == both(2 * BATCHES, ALL)
