"""ZooKeeper or a store is brought back from a backup: starts and verbs notice it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import pytest

from tests.unit.operations.conftest import Make
from tests.unit.operations.deployment import ALL, BATCHES, POISON, ROWS, Deployment, both
from txtopo.ensemble.journal import put_batch
from txtopo.ensemble.memory import MemoryTransactionalState
from txtopo.ensemble.nodes import (
    EPOCH,
    batch_of,
    batch_path,
    metadata_from_json,
    metadata_to_json,
)
from txtopo.errors import (
    PoisonBatchError,
    StateUsageError,
    StoreAheadOfCoordinator,
    StoreBehindCoordinator,
    TwoHistoriesError,
)
from txtopo.metadata import Json
from txtopo.operations import Plan, forget, quarantine, rebuild, repair_node, rewind, show, verify
from txtopo.state.row_backend import Contents

MORE = BATCHES + 2


def verb(deployment: Deployment, call: Callable[..., Plan], *arguments: object) -> Plan:
    return call(
        deployment.topology(), *arguments, config=deployment.config, access=deployment.access()
    )


def kept_metadata(deployment: Deployment) -> dict[int, object]:
    return dict(show(deployment.topology(), deployment.config, access=deployment.access()).batches)


@pytest.mark.row(51)
@pytest.mark.rule("txtopo.state.reconciliation", "A past that was restored", 1)
@pytest.mark.rule("txtopo.runtime.takeover", "Order", 1)
def test_no_start_gets_past_an_ensemble_that_was_set_back(memory: Make) -> None:
    """Nothing is claimed, or one of the next starts would have the epoch of the ledgers."""
    deployment = memory(opaque=True)
    deployment.run(batches=3)
    backup = dict(deployment.ensemble.nodes)
    for batches in (4, BATCHES):
        deployment.run(batches=batches)
    held, ledgers = deployment.held(), deployment.ledgers()
    deployment.ensemble.nodes = dict(backup)

    for _ in range(4):
        with pytest.raises(StoreAheadOfCoordinator, match=r"epoch 1 is the newest.*rebuild"):
            deployment.run(batches=MORE)
    for call, arguments in ((rewind, (2,)), (quarantine, (4,))):
        with pytest.raises((StoreAheadOfCoordinator, StateUsageError)):
            verb(deployment, call, *arguments).apply()

    assert deployment.ensemble.nodes == backup
    assert (deployment.held(), deployment.ledgers()) == (held, ledgers)
    assert verify(deployment.topology(), deployment.config, access=deployment.access())


def test_rebuild_goes_on_with_what_the_states_hold_after_zookeeper_was_set_back(
    memory: Make,
) -> None:
    deployment = memory(opaque=True)
    deployment.run(batches=3)
    backup = dict(deployment.ensemble.nodes)
    deployment.run()
    metadata = {BATCHES: kept_metadata(deployment)[BATCHES]}
    deployment.ensemble.nodes = backup

    with pytest.raises(StateUsageError, match="position of the source after txid 5"):
        verb(deployment, rebuild)
    rebuild(
        deployment.topology(),
        deployment.config,
        metadata=metadata,  # type: ignore[arg-type]
        access=deployment.access(),
    ).apply()
    deployment.run(batches=MORE)

    assert deployment.held() == both(MORE, sum(range(MORE * ROWS)))
    epochs = show(deployment.topology(), deployment.config, access=deployment.access()).epoch
    assert (epochs or 0) > 2


def test_rebuild_does_not_take_the_plan_of_another_attempt_for_what_the_states_hold(
    memory: Make,
) -> None:
    """The backup has a plan of the txid, which was cut elsewhere afterwards."""
    deployment = memory(opaque=True)
    deployment.run(batches=BATCHES - 1)
    backup = dict(deployment.ensemble.nodes)
    deployment.run()
    state = MemoryTransactionalState(deployment.id, deployment.ensemble)
    batch = batch_of("", BATCHES, state.get(batch_path(BATCHES)))
    earlier = replace(batch.attempt, epoch=1, term="of the backup")
    deployment.ensemble.nodes = backup
    state.apply([put_batch(replace(batch, attempt=earlier))])

    with pytest.raises(StateUsageError, match=r"that of txid 5 is of attempt 5:0@1"):
        verb(deployment, rebuild)


def test_rebuild_does_not_take_a_given_node_of_another_attempt(memory: Make) -> None:
    """What an operator has kept may be of a replay, which an opaque spout may cut elsewhere."""
    deployment = memory(opaque=True)
    deployment.run()
    node = kept_metadata(deployment)[BATCHES]
    assert isinstance(node, dict)
    epoch, number, term = node["attempt"]
    deployment.ensemble.nodes = {}

    def rebuilt_with(value: dict[str, object]) -> None:
        metadata = {BATCHES: value}
        given = {"config": deployment.config, "metadata": metadata, "access": deployment.access()}
        rebuild(deployment.topology(), **given).apply()  # type: ignore[arg-type]

    with pytest.raises(StateUsageError, match=r"another attempt; got that of 5:1@1 .* of 5:0@1 "):
        rebuilt_with(node | {"attempt": [epoch, number + 1, term]})
    rebuilt_with(node["metadata"])
    deployment.run(batches=MORE)

    assert deployment.held() == both(MORE, sum(range(MORE * ROWS)))


def without_end(metadata: Json) -> Json:
    """Return metadata as it was before its batch was processed."""
    return metadata_to_json(metadata_from_json(BATCHES, metadata).cut_again())


def test_rebuild_wants_the_end_of_a_batch_that_the_ensemble_has_lost(memory: Make) -> None:
    """The numbers fit, and yet no start gets past it."""
    deployment = memory()
    deployment.die("write.after:b.totals", BATCHES)
    kept = kept_metadata(deployment)[BATCHES]
    state = MemoryTransactionalState(deployment.id, deployment.ensemble)
    batch = batch_of("", BATCHES, state.get(batch_path(BATCHES)))
    state.apply([put_batch(replace(batch, metadata=without_end(batch.metadata)))])
    with pytest.raises(StoreAheadOfCoordinator, match=r"where it ended; .*rebuild"):
        deployment.run(batches=MORE)

    with pytest.raises(StateUsageError, match="does not say where the batch ended"):
        verb(deployment, rebuild)
    given = {"config": deployment.config, "metadata": {BATCHES: kept}}
    rebuild(deployment.topology(), **given, access=deployment.access()).apply()  # type: ignore[arg-type]
    deployment.run(batches=MORE)

    assert deployment.held() == both(MORE, sum(range(MORE * ROWS)))


@pytest.mark.rule("txtopo.state.reconciliation", "A past that was restored", 2)
def test_a_state_that_was_restored_from_before_a_rewind_is_refused(memory: Make) -> None:
    """The rewind wrote the same txid once more, and the backup does not know it."""
    deployment = memory(opaque=True)
    deployment.run()
    backend = deployment.states[0].named("totals_a").open()
    backup = backend.load()  # type: ignore[attr-defined]
    verb(deployment, rewind, BATCHES - 1).apply()

    def restore() -> None:
        now = backend.load()  # type: ignore[attr-defined]
        assert backend.replace(now.ledger, backup.ledger, backup.rows)  # type: ignore[attr-defined]

    restore()
    for _ in range(3):
        with pytest.raises(TwoHistoriesError, match=r"'a.totals' holds txid 5 from attempt 5:0@1"):
            deployment.run()
    for call, arguments in ((rewind, (BATCHES - 1,)), (quarantine, (BATCHES + 1,))):
        with pytest.raises(TwoHistoriesError, match=r"'a.totals' holds txid 5"):
            verb(deployment, call, *arguments)
    with pytest.raises(TwoHistoriesError, match="hold txid 5 from several attempts"):
        verb(deployment, rebuild)
    backend.close()


def test_verify_tells_an_epoch_of_another_term(memory: Make) -> None:
    """The states hold what ZooKeeper knows as committed, so the numbers are equal."""
    deployment = memory(opaque=True)
    deployment.run(batches=3)
    backup = dict(deployment.ensemble.nodes)
    deployment.run(batches=3)
    deployment.ensemble.nodes = backup
    other = replace(deployment, states=memory(opaque=True).states)
    with pytest.raises(StoreBehindCoordinator):
        other.run(batches=3)  # it has claimed the epoch

    def found() -> list[str]:
        access = deployment.access()
        return [
            str(each) for each in verify(deployment.topology(), deployment.config, access=access)
        ]

    a, b = found()
    assert "'a.totals' was claimed by epoch 2 of term '" in a
    assert "'b.totals' was claimed by epoch 2 of term '" in b
    with pytest.raises(StoreAheadOfCoordinator, match=r"epoch 2 of term .* does not know"):
        deployment.run(batches=3)
    metadata = {3: kept_metadata(deployment)[3]}
    given = {"config": deployment.config, "metadata": metadata, "access": deployment.access()}
    rebuild(deployment.topology(), **given).apply()  # type: ignore[arg-type]
    assert not found()


def restore(deployment: Deployment, at: int, backup: Contents) -> None:
    """Bring back table and ledger of one state."""
    with closing(deployment.states[at].named(f"totals_{'ab'[at]}").open()) as backend:
        held = backend.load().ledger  # type: ignore[attr-defined]
        assert backend.replace(held, backup.ledger, backup.rows)  # type: ignore[attr-defined]


def contents(deployment: Deployment, at: int) -> Contents:
    """Return table and ledger of one state."""
    with closing(deployment.states[at].named(f"totals_{'ab'[at]}").open()) as backend:
        found = backend.load()  # type: ignore[attr-defined]
    assert isinstance(found, Contents)
    return found


@pytest.mark.rule("txtopo.state.reconciliation", "A past that was restored", 5)
def test_rebuild_does_not_redo_a_txid_upon_another_history(memory: Make) -> None:
    """One state is ahead of the other, as after a crash, but it stands upon a txid that is empty.

    A redo would take it back to that one, and lose the batch that the other state holds.
    """
    deployment = memory(opaque=True)
    deployment.run()
    nodes, backup = dict(deployment.ensemble.nodes), contents(deployment, 0)
    verb(deployment, rewind, BATCHES - 1).apply()
    deployment.run()
    deployment.ensemble.nodes = nodes
    restore(deployment, 0, backup)
    apart = ((BATCHES, ALL), (BATCHES + 1, ALL))
    assert deployment.held() == apart

    with pytest.raises(StoreAheadOfCoordinator):
        deployment.run()
    with pytest.raises(TwoHistoriesError, match=r"'b.totals' holds txid 6 .*'a.totals' holds txid"):
        verb(deployment, rebuild)

    assert deployment.held() == apart


@pytest.mark.rule("txtopo.state.reconciliation", "A past that was restored", 4)
def test_no_verb_takes_back_a_txid_that_stands_upon_another_history(memory: Make) -> None:
    """A state is brought back from before a rebuild, when it held the txid that is planned now."""
    deployment = memory(opaque=True)
    deployment.run(batches=1)
    metadata, first = kept_metadata(deployment), [contents(deployment, at) for at in range(2)]
    verb(deployment, rewind, 0).apply()
    deployment.run(batches=1)
    upon_nothing = contents(deployment, 0)
    for at in range(2):
        restore(deployment, at, first[at])
    rebuild(
        deployment.topology(),
        deployment.config,
        metadata={1: metadata[1]},  # type: ignore[dict-item]
        access=deployment.access(),
    ).apply()
    with pytest.raises(PoisonBatchError):
        deployment.run(poison=ROWS, batches=2)
    restore(deployment, 0, upon_nothing)

    for call, arguments in ((rewind, (1,)), (quarantine, (2,))):
        with pytest.raises(StoreBehindCoordinator, match=r"'a.totals' was claimed by epoch"):
            verb(deployment, call, *arguments)
    findings = verify(deployment.topology(), deployment.config, access=deployment.access())
    assert ["was claimed by epoch" in str(each) for each in findings] == [True]


def test_a_batch_whose_end_is_lost_is_found_and_has_a_remedy(memory: Make) -> None:
    """ZooKeeper is set back within an epoch, to the plan of a batch that has no end yet."""
    deployment = memory(opaque=True)
    deployment.die("write.after:b.totals", BATCHES)
    state = MemoryTransactionalState(deployment.id, deployment.ensemble)
    batch = batch_of("", BATCHES, state.get(batch_path(BATCHES)))
    state.apply([put_batch(replace(batch, metadata=without_end(batch.metadata)))])

    with pytest.raises(StoreAheadOfCoordinator, match="does not contain where it ended"):
        deployment.run()
    findings = verify(deployment.topology(), deployment.config, access=deployment.access())
    assert ["does not contain where it ended" in str(each) for each in findings] == [True]
    with pytest.raises(StateUsageError, match=r"metadata of txid 5 cannot be used"):
        verb(deployment, rebuild)

    verb(deployment, rewind, BATCHES - 1).apply()
    deployment.run()
    assert [total for _, total in deployment.held()] == [ALL] * 2


def rewound(deployment: Deployment) -> None:
    verb(deployment, rewind, BATCHES - 1).apply()


def rebuilt(deployment: Deployment) -> None:
    metadata = {BATCHES: kept_metadata(deployment)[BATCHES]}
    deployment.ensemble.nodes = {}
    rebuild(
        deployment.topology(),
        deployment.config,
        metadata=metadata,  # type: ignore[arg-type]
        access=deployment.access(),
    ).apply()


def repaired(deployment: Deployment) -> None:
    del deployment.ensemble.nodes[f"/{deployment.id}{EPOCH}"]
    verb(deployment, repair_node, EPOCH).apply()


def forgotten(deployment: Deployment) -> None:
    metadata = {BATCHES: kept_metadata(deployment)[BATCHES]}
    verb(deployment, forget).apply()
    rebuild(
        deployment.topology(),
        deployment.config,
        metadata=metadata,  # type: ignore[arg-type]
        access=deployment.access(),
    ).apply()


def adopted(deployment: Deployment) -> None:
    deployment.run(batches=BATCHES)


@pytest.mark.parametrize("change", [rewound, rebuilt, repaired, forgotten, adopted])
def test_a_start_after_each_verb_is_no_false_alarm(
    memory: Make, change: Callable[[Deployment], None]
) -> None:
    deployment = memory(opaque=True)
    if change is adopted:
        deployment.die("write.after:b.totals", BATCHES)
    else:
        deployment.run()

    change(deployment)
    for _ in range(2):
        deployment.run(batches=MORE)

    assert [total for _, total in deployment.held()] == [sum(range(MORE * ROWS))] * 2


def test_a_start_after_a_quarantine_is_no_false_alarm(memory: Make) -> None:
    deployment = memory(opaque=True)
    with pytest.raises(PoisonBatchError):
        deployment.run(POISON)

    verb(deployment, quarantine, 3).apply()
    for _ in range(2):
        deployment.run(POISON)

    assert [total for _, total in deployment.held()] == [ALL - 4 - 5] * 2
