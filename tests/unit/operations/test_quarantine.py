"""A batch that cannot pass is taken out of the order."""

from __future__ import annotations

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
from txtopo.attempt import TransactionAttempt
from txtopo.errors import OperationUnfinished, PoisonBatchError, StateUsageError
from txtopo.operations import Plan, quarantine, show, verify
from txtopo.plugins.stores import Puts
from txtopo.state import StateKind

LEFT = ALL - 4 - 5


def poisoned(deployment: Deployment) -> Deployment:
    with pytest.raises(PoisonBatchError, match=r"operations\.quarantine"):
        deployment.run(POISON)
    assert deployment.held() == both(2, sum(range(4)))
    return deployment


@pytest.mark.row(19)
def test_the_order_goes_on_without_the_batch_wherever_the_operator_was_killed(make: Make) -> None:
    taken_out(poisoned(make(opaque=True)))


def test_so_it_does_with_states_that_take_nothing_back(memory: Make) -> None:
    """They hold the txid from the operator who died, and nothing else may pass for that."""
    taken_out(poisoned(memory(kind="transactional")))


def taken_out(deployment: Deployment) -> None:
    before = show(deployment.topology(), deployment.config, access=deployment.access()).batches[3]

    deaths = apply_with_deaths(
        lambda access: quarantine(
            deployment.topology(), 3, deployment.config, reason="bad", access=access
        ),
        deployment,
    )

    assert deaths >= 8
    assert deployment.held() == both(3, sum(range(4)))
    seen = show(deployment.topology(), deployment.config, access=deployment.access())
    assert isinstance(before, dict)
    assert seen.quarantined == {3: {**before, "reason": "bad"}}
    assert verify(deployment.topology(), deployment.config, access=deployment.access()) == []
    deployment.run(POISON)
    assert deployment.held() == both(BATCHES, LEFT)


@pytest.mark.parametrize("at", ["after:0", "write.after:a.totals", "before:2"])
def test_no_coordinator_begins_before_the_verb_has_ended(memory: Make, at: str) -> None:
    deployment = poisoned(memory())
    with pytest.raises(Died):
        quarantine(
            deployment.topology(), 3, deployment.config, access=deployment.access(die_on(at))
        ).apply()

    with pytest.raises(OperationUnfinished, match="quarantine"):
        deployment.run()


def test_other_verbs_wait_for_the_one_that_was_begun(memory: Make) -> None:
    deployment = poisoned(memory())
    plan = quarantine(
        deployment.topology(), 3, deployment.config, access=deployment.access(die_on("after:0"))
    )
    with pytest.raises(Died, match="after:0"):
        plan.apply()

    with pytest.raises(OperationUnfinished, match="same arguments again"):
        quarantine(
            deployment.topology(), 3, deployment.config, reason="x", access=deployment.access()
        )
    findings = verify(deployment.topology(), deployment.config, access=deployment.access())
    assert any("quarantine was begun" in each.problem for each in findings)


@pytest.mark.parametrize("txid", [2, 4])
def test_only_the_batch_whose_turn_it_is_can_be_taken_out(memory: Make, txid: int) -> None:
    deployment = poisoned(memory())

    with pytest.raises(StateUsageError, match="expected 3, the lowest uncommitted"):
        quarantine(deployment.topology(), txid, deployment.config, access=deployment.access())


@pytest.mark.parametrize("kind", ["opaque", "transactional"])
def test_what_a_state_has_of_the_batch_already_is_taken_back_or_it_is_refused(
    memory: Make, kind: StateKind
) -> None:
    """A crash in the commit phase left the batch in one state of two."""
    deployment = poisoned(memory(kind=kind))
    seen = show(deployment.topology(), deployment.config, access=deployment.access())
    backend = deployment.states[0].named("totals_a").open()
    writes = Puts({("total",): (1_000,)})
    term = deployment.ledgers()[0].term
    backend.commit(TransactionAttempt(3, 7, seen.epoch or 0, term=term), writes)
    assert deployment.held() == ((3, 1_000), (2, sum(range(4))))

    def plan() -> Plan:
        return quarantine(deployment.topology(), 3, deployment.config, access=deployment.access())

    if kind == "transactional":
        with pytest.raises(StateUsageError, match=r"'a\.totals' already holds txid 3"):
            plan()
        return
    plan().apply()
    assert deployment.held() == both(3, sum(range(4)))


def test_nothing_is_done_before_the_plan_is_applied(memory: Make) -> None:
    deployment = poisoned(memory())
    before = dict(deployment.ensemble.nodes)

    plan = quarantine(deployment.topology(), 3, deployment.config, access=deployment.access())

    assert deployment.ensemble.nodes == before
    assert deployment.held() == both(2, sum(range(4)))
    assert "commit txid 3 to states 'a.totals', 'b.totals' as an empty batch" in str(plan)


@pytest.mark.parametrize("end", [None, {"spouts": {"spout": {"planned": 1}}}, {"spouts": {}}, [3]])
def test_where_an_opaque_batch_ends_that_never_passed_is_not_guessed(
    memory: Make, end: object
) -> None:
    deployment = poisoned(memory(opaque=True))
    path = next(p for p in deployment.ensemble.nodes if p.endswith(f"/batches/{3:020d}"))
    del deployment.ensemble.nodes[path]  # as if it had never been processed

    with pytest.raises(StateUsageError, match=r"unknown where txid 3 ends|cannot be used"):
        quarantine(
            deployment.topology(),
            3,
            deployment.config,
            end=end,  # type: ignore[arg-type]
            access=deployment.access(),
        )


def test_an_end_that_is_given_is_where_the_next_batch_starts(memory: Make) -> None:
    """The poison alone is skipped: 4 was in the batch with it and comes in the next one."""
    deployment = poisoned(memory(opaque=True))
    end = {"spouts": {"spout": {"planned": 1, "cut": {"0": [5, 1]}}}}

    plan = quarantine(
        deployment.topology(),
        3,
        deployment.config,
        end=end,  # type: ignore[arg-type]
        access=deployment.access(),
    )
    plan.apply()

    deployment.run(POISON)
    assert deployment.held() == both(BATCHES, LEFT)
