"""Txids that were written together are finished, taken back or skipped together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.operations.conftest import Make
from tests.unit.operations.deployment import (
    ALL,
    BATCHES,
    Deployment,
    apply_with_deaths,
    both,
)
from txtopo.attempt import GroupAttempt, TransactionAttempt
from txtopo.ensemble.journal import put_batch
from txtopo.ensemble.memory import MemoryEnsemble, MemoryTransactionalState
from txtopo.ensemble.nodes import CURRENT, batch_of, batch_path
from txtopo.errors import PoisonBatchError, StateUsageError, StoreAheadOfCoordinator
from txtopo.operations import Finding, Overview, quarantine, rebuild, repair_node, rewind
from txtopo.operations import show as show_of
from txtopo.operations import verify as verify_of
from txtopo.operations.session import HeldTxids
from txtopo.plugins.stores import Puts
from txtopo.state import Ledger, open_state

GROUP = 3
"""So there are two groups: txids 1 to 3, and txids 4 and 5."""
FIRST_THREE = sum(range(6))


def show(deployment: Deployment) -> Overview:
    return show_of(deployment.topology(), deployment.config, access=deployment.access())


def verify(deployment: Deployment) -> list[Finding]:
    return verify_of(deployment.topology(), deployment.config, access=deployment.access())


def apart(deployment: Deployment) -> Deployment:
    """Let the driver die when the first state alone has the second group."""
    deployment.die("write.after:a.totals", 2)
    assert deployment.held() == ((5, ALL), (3, FIRST_THREE))
    assert deployment.ledgers()[0].writer.first_txid == 4
    return deployment


def written(deployment: Deployment) -> Deployment:
    """Let the driver die when both states have the second group, and ZooKeeper does not know."""
    deployment.die("write.after:b.totals", 2)
    assert deployment.held() == both(5, ALL)
    assert show(deployment).current == 4
    return deployment


def write(deployment: Deployment, name: str, attempt: TransactionAttempt) -> None:
    """Write an attempt to a state, as a coordinator of the last epoch did that has died since."""
    backend = deployment.states["ab".index(name)].named(f"totals_{name}").open()
    backend.commit(attempt, Puts({("total",): (1_000,)}))


# ------------------------------------------------------------ rebuild


@pytest.mark.parametrize("opaque", [False, True])
def test_zookeeper_is_rebuilt_from_states_that_are_one_group_apart(
    memory: Make, opaque: bool
) -> None:
    deployment = apart(memory(opaque, group=GROUP))
    kept = show(deployment).batches
    deployment.ensemble = MemoryEnsemble()
    given = {txid: kept[txid] for txid in ((3,) if opaque else (3, 4, 5))}
    for missing in given:
        less = {txid: each for txid, each in given.items() if txid != missing}
        with pytest.raises(StateUsageError, match=f"position of the source after txid {missing}"):
            rebuild(
                deployment.topology(),
                deployment.config,
                metadata=less,
                access=deployment.access(),
            )

    deaths = apply_with_deaths(
        lambda access: rebuild(
            deployment.topology(), deployment.config, metadata=given, access=access
        ),
        deployment,
    )

    assert deaths >= 5
    assert show(deployment).current == 4
    assert verify(deployment) == []
    deployment.run()
    assert deployment.held() == both(BATCHES, ALL)
    assert [each.writer.first_txid for each in deployment.ledgers()] == [4, 4]


def test_states_that_are_further_apart_than_one_group_are_refused(memory: Make) -> None:
    deployment = apart(memory(group=GROUP))
    epoch, term = show(deployment).epoch or 0, deployment.ledgers()[1].term
    write(deployment, "b", TransactionAttempt(4, 0, epoch, term=term))

    with pytest.raises(StateUsageError, match="too far apart"):
        rebuild(deployment.topology(), deployment.config, access=deployment.access())
    (finding,) = verify(deployment)
    assert finding.where == "b.totals"
    assert "call rebuild" in finding.remedy


@pytest.mark.parametrize(
    ("ledgers", "held"),
    [
        ([], HeldTxids(0, 0, None)),
        ([None, Ledger("t", 1)], HeldTxids(0, 0, 0)),
        ([Ledger("t", 1, 3, 1, 0, attempts=(0, 0)), None], HeldTxids(0, 3, 2)),
        ([Ledger("t", 1, 3, 1, 0, attempts=(0, 0)), Ledger("t", 1, 1)], HeldTxids(1, 3, 2)),
        (
            [
                Ledger("t", 1, 3, 1, 0, attempts=(0, 0)),
                Ledger("t", 1, 2),
                Ledger("t", 1, 1),
            ],
            HeldTxids(1, 3, None),
        ),
        (
            [Ledger("t", 1, 3, 1, 0, attempts=(0, 0)), Ledger("t", 1, 3)],
            HeldTxids(3, 3, None),
        ),
    ],
)
def test_states_fit_if_some_hold_one_group_more(
    ledgers: list[Ledger | None], held: HeldTxids
) -> None:
    assert HeldTxids.of(ledgers) == held
    assert held.fits == (held.low == held.high or held.first == held.low + 1)


# ------------------------------------------------------------ repair_node


def repaired_current(deployment: Deployment) -> int | None:
    """Lose ``/current``, put it back from the ledgers, and return it."""
    del deployment.ensemble.nodes[f"/{deployment.id}{CURRENT}"]
    apply_with_deaths(
        lambda access: repair_node(
            deployment.topology(), CURRENT, deployment.config, access=access
        ),
        deployment,
    )
    assert verify(deployment) == []
    current = show(deployment).current
    deployment.run()
    assert deployment.held() == both(BATCHES, ALL)
    return current


def test_current_is_put_back_before_a_group_that_one_state_lacks(memory: Make) -> None:
    assert repaired_current(apart(memory(group=GROUP))) == 4


def test_current_is_put_back_after_a_group_that_every_state_has(memory: Make) -> None:
    """Whether it is committed, or a start would adopt it."""
    assert repaired_current(written(memory(group=GROUP))) == 6
    done = memory(group=GROUP)
    done.run()
    assert repaired_current(done) == 6


def test_current_is_put_back_before_a_group_whose_attempts_are_not_the_stored_ones(
    memory: Make,
) -> None:
    deployment = written(memory(opaque=True, group=GROUP))
    state = MemoryTransactionalState(deployment.id, deployment.ensemble)
    node = state.get(batch_path(4))
    assert node is not None
    batch = batch_of(batch_path(4), 4, node)
    state.apply([put_batch(replace(batch, attempt=replace(batch.attempt, attempt=7)))])

    assert repaired_current(deployment) == 4


def test_current_is_not_guessed_if_a_replay_of_a_group_had_begun_and_its_metadata_is_lost(
    memory: Make,
) -> None:
    """Where the group ended that the states hold is not known, and it cannot be done again."""
    deployment = written(memory(opaque=True, group=GROUP))
    epoch, term = show(deployment).epoch or 0, deployment.ledgers()[0].term
    for name in "ab":
        write(deployment, name, GroupAttempt(5, 7, epoch, (0,), term=term))
    for path in (batch_path(4), CURRENT):
        del deployment.ensemble.nodes[f"/{deployment.id}{path}"]

    with pytest.raises(StateUsageError, match="metadata of txids 4 to 5 is not complete"):
        repair_node(deployment.topology(), CURRENT, deployment.config, access=deployment.access())


def test_current_is_put_back_after_a_rebuild(memory: Make) -> None:
    deployment = memory(group=GROUP)
    deployment.run()
    kept = show(deployment).batches[5]
    deployment.ensemble = MemoryEnsemble()
    rebuild(
        deployment.topology(),
        deployment.config,
        metadata={5: kept},
        access=deployment.access(),
    ).apply()

    assert repaired_current(deployment) == 6


def test_current_is_never_put_back_within_a_group(memory: Make) -> None:
    deployment = written(memory(group=GROUP))
    del deployment.ensemble.nodes[f"/{deployment.id}{CURRENT}"]

    def repair(current: int) -> str:
        return str(
            repair_node(
                deployment.topology(),
                CURRENT,
                deployment.config,
                value={"current": current},
                access=deployment.access(),
            )
        )

    with pytest.raises(StateUsageError, match="hold txid 5 to 5, since 4 as a group"):
        repair(5)
    assert "to 4" in repair(4)
    assert "to 6" in repair(6)


@pytest.mark.parametrize("txid", [4, 5])
def test_metadata_within_a_group_that_is_cut_again_is_put_back(memory: Make, txid: int) -> None:
    deployment = apart(memory(opaque=True, group=GROUP))
    deployment.ensemble.nodes[f"/{deployment.id}{batch_path(txid)}"] = (b"{", 3)

    repair_node(
        deployment.topology(), batch_path(txid), deployment.config, access=deployment.access()
    ).apply()

    assert verify(deployment) == []
    deployment.run()
    assert deployment.held() == both(BATCHES, ALL)


# ------------------------------------------------------------ rewind


def test_the_last_group_is_undone_whole_and_its_records_come_again(anywhere: Make) -> None:
    """ZooKeeper still knows where the source stood before the group."""
    deployment = anywhere(opaque=True, group=GROUP)
    deployment.run()
    with pytest.raises(
        StateUsageError, match=r"txids 4 to 5 are written together.* expected one from 0 to 3"
    ):
        rewind(deployment.topology(), 4, deployment.config, access=deployment.access())

    deaths = apply_with_deaths(
        lambda access: rewind(deployment.topology(), 3, deployment.config, access=access),
        deployment,
    )

    assert deaths >= 8
    assert deployment.held() == both(5, FIRST_THREE)
    assert verify(deployment) == []
    deployment.run()
    assert deployment.held() == both(7, ALL)


@pytest.mark.parametrize("opaque", [False, True])
def test_a_group_that_one_state_lacks_is_taken_back(memory: Make, opaque: bool) -> None:
    deployment = apart(memory(opaque, group=GROUP))

    plan = rewind(deployment.topology(), 3, deployment.config, access=deployment.access())
    assert "undo txids 4 to 5 in states 'a.totals', 'b.totals'" in str(plan)
    deaths = apply_with_deaths(
        lambda access: rewind(deployment.topology(), 3, deployment.config, access=access),
        deployment,
    )

    assert deaths >= 8
    assert deployment.held() == both(5, FIRST_THREE)
    assert (show(deployment).current, verify(deployment)) == (6, [])
    deployment.run()
    assert deployment.held() == both(7, ALL)


def test_a_state_that_has_lost_a_txid_is_not_taken_for_one_that_lacks_a_group(
    memory: Make,
) -> None:
    """Its last txid was committed; without it the others must not continue."""
    deployment = memory(opaque=True)
    deployment.run()
    store = deployment.states[1]._anchor
    table, contents = store.tables["totals_b"]  # type: ignore[attr-defined]
    ledger = contents.ledger.written_by(TransactionAttempt(4, 0, 1))
    store.tables["totals_b"] = (table, type(contents)(ledger, contents.rows))  # type: ignore[attr-defined]

    with pytest.raises(StateUsageError, match=r"'b\.totals' holds txid 4, not 5"):
        rewind(deployment.topology(), 4, deployment.config, access=deployment.access())


# ------------------------------------------------------------ quarantine


def test_a_batch_of_a_group_that_a_state_holds_is_taken_back_before_it_is_taken_out(
    make: Make,
) -> None:
    """The first state has the group, and no committer takes the batch any more."""
    poison = 9
    deployment = apart(make(group=GROUP))
    with pytest.raises(PoisonBatchError) as failed:
        deployment.run(poison)
    assert failed.value.txid == 5
    assert "it continues at txid 4" in str(failed.value)
    for txid in (4, 5):
        with pytest.raises(StateUsageError, match=r"holds txids 4 to 5, .* rewind with txid 3"):
            quarantine(deployment.topology(), txid, deployment.config, access=deployment.access())

    rewind(deployment.topology(), 3, deployment.config, access=deployment.access()).apply()
    deployment.group = 1
    with pytest.raises(PoisonBatchError) as again:
        deployment.run(poison)
    assert again.value.txid == 7
    quarantine(deployment.topology(), 7, deployment.config, access=deployment.access()).apply()

    deployment.run(poison)
    assert deployment.held() == both(7, ALL - 8 - 9)


def test_what_waits_behind_the_current_txid_is_committed_first(memory: Make) -> None:
    deployment = memory()
    with pytest.raises(PoisonBatchError):
        deployment.run(5)

    with pytest.raises(StateUsageError, match="until it has committed txids 3 to 4, then call"):
        quarantine(deployment.topology(), 5, deployment.config, access=deployment.access())


# ------------------------------------------------------------ show and verify


def test_the_group_of_a_state_is_shown(memory: Make) -> None:
    deployment = apart(memory(group=GROUP))

    text = str(show(deployment))

    assert "state        'a.totals': txid 5 of 4-5:" in text
    assert ", written together with txid 4, epoch" in text
    assert verify(deployment) == []


def test_a_group_that_the_topology_cannot_write_again_is_found_and_can_be_taken_back(
    memory: Make,
) -> None:
    """Committers with several tasks commit one by one."""
    deployment = apart(memory(group=GROUP))
    deployment.tasks = 2

    (finding,) = [each for each in verify(deployment) if each.where == CURRENT]
    assert "'a' has several tasks in the commit phase" in finding.problem
    with pytest.raises(StoreAheadOfCoordinator, match=r"operations\.rewind to txid 3"):
        deployment.run()

    rewind(deployment.topology(), 3, deployment.config, access=deployment.access()).apply()
    assert [each for each in verify(deployment) if each.where == CURRENT] == []
    deployment.tasks = 1
    deployment.run()
    assert deployment.held() == both(7, ALL)


@pytest.mark.integration
def test_delta_goes_back_to_ends_of_groups_only(tmp_path: Path) -> None:
    states = [open_state(f"delta:///{tmp_path}/{at}") for at in range(2)]
    deployment = Deployment((states[0], states[1]), opaque=True, id="groups", group=GROUP)
    deployment.run(batches=3)
    end = show(deployment).batches[3]
    deployment.run(batches=8)
    assert [each.writer.first_txid for each in deployment.ledgers()] == [7, 7]

    with pytest.raises(
        StateUsageError, match=r"to txid 5; .*written together, as a group; expected txid 3 or 6"
    ):
        rewind(
            deployment.topology(), 5, deployment.config, metadata=end, access=deployment.access()
        )
    deaths = apply_with_deaths(
        lambda access: rewind(
            deployment.topology(), 3, deployment.config, metadata=end, access=access
        ),
        deployment,
    )

    assert deaths >= 8
    assert deployment.held() == both(8, FIRST_THREE)
    assert verify(deployment) == []
    deployment.run(batches=8)
    assert deployment.held() == both(13, sum(range(16)))
