"""A verb and a coordinator are never at work at the same time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.harness.polling import LIMIT_S
from tests.unit.operations.conftest import Make
from tests.unit.operations.deployment import ALL, BATCHES, Deployment, both
from txtopo.attempt import TransactionAttempt
from txtopo.ensemble import Journal, MemoryTransactionalState
from txtopo.ensemble.nodes import CURRENT
from txtopo.errors import (
    ConfigError,
    CoordinatorActive,
    FencedError,
    ForeignEnsembleError,
    StateUsageError,
    StoreDamagedError,
)
from txtopo.operations import Access, forget, quarantine, rebuild, repair_node, rewind, show, verify
from txtopo.plugins.stores import Puts
from txtopo.testing.conformance.driver import claim_of

Call = Callable[[Deployment], object]
VERBS: dict[str, Call] = {
    "forget": lambda p: forget(p.topology(), p.config, access=p.access()),
    "quarantine": lambda p: quarantine(p.topology(), 6, p.config, access=p.access()),
    "rebuild": lambda p: rebuild(p.topology(), p.config, access=p.access()),
    "repair_node": lambda p: repair_node(p.topology(), CURRENT, p.config, access=p.access()),
    "rewind": lambda p: rewind(p.topology(), 4, p.config, access=p.access()),
    "verify": lambda p: verify(p.topology(), p.config, access=p.access()),
}


@pytest.mark.integration
def test_every_verb_but_show_refuses_while_a_coordinator_leads(memory: Make) -> None:
    deployment = memory()
    with deployment.running(deployment.topology()) as run:
        run.process_all_available(LIMIT_S)

        for call in VERBS.values():
            with pytest.raises(CoordinatorActive, match="stop that run first") as caught:
                call(deployment)
            assert caught.value.leader
        seen = show(deployment.topology(), deployment.config, access=deployment.access())
        assert seen.leader is not None
        assert seen.lag == {"0": 0}
        assert f"current      {BATCHES + 1}" in str(seen)


def test_a_coordinator_that_wakes_up_later_changes_nothing(memory: Make) -> None:
    deployment = memory()
    deployment.run(batches=3)
    client = MemoryTransactionalState(deployment.id, deployment.ensemble)
    sleeper = Journal(client)
    epoch = sleeper.claim_epoch("sleeper", token="ensemble")
    sleeper.load()
    backend = deployment.states[0].named("totals_a").open()
    backend.claim(
        claim_of(deployment.id, epoch, component="a", state="totals", ensemble=sleeper.ensemble)
    )

    rewind(deployment.topology(), 2, deployment.config, access=deployment.access()).apply()

    with pytest.raises(FencedError):
        sleeper.advance(5)
    with pytest.raises(FencedError):
        backend.commit(TransactionAttempt(4, 0, epoch), Puts({}))


def test_a_plan_is_not_applied_to_what_has_changed_since(memory: Make) -> None:
    deployment = memory()
    deployment.run(batches=3)
    plan = forget(deployment.topology(), deployment.config, access=deployment.access())
    deployment.run()
    before = dict(deployment.ensemble.nodes)

    with pytest.raises(StateUsageError, match="have changed since the plan was made"):
        plan.apply()
    assert deployment.ensemble.nodes == before
    assert deployment.held() == both(BATCHES, ALL)


def test_a_coordinator_of_a_zookeeper_that_was_wiped_never_meets_its_own_version_again(
    memory: Make,
) -> None:
    """A node that was made again begins at version 0, and its epoch left no trace in a ledger."""
    deployment = memory()
    deployment.run(batches=3)
    kept = show(deployment.topology(), deployment.config, access=deployment.access()).batches
    sleeper = Journal(MemoryTransactionalState(deployment.id, deployment.ensemble))
    epoch = sleeper.claim_epoch("sleeper", token="ensemble")
    deployment.ensemble.nodes = {}

    rebuild(
        deployment.topology(), deployment.config, metadata={3: kept[3]}, access=deployment.access()
    ).apply()

    for _ in range(3):
        with pytest.raises(FencedError):
            sleeper.advance(9)
        Journal(MemoryTransactionalState(deployment.id, deployment.ensemble)).claim_epoch(
            "next", token="ensemble"
        )
    with pytest.raises(ForeignEnsembleError):
        deployment.states[0].named("totals_a").open().claim(
            claim_of(deployment.id, epoch, component="a", state="totals", ensemble=sleeper.ensemble)
        )


def test_rows_beyond_the_ledger_are_found(memory: Make) -> None:
    deployment = memory()
    deployment.run(batches=3)
    _, store = deployment.states[0].url, deployment.states[0]._anchor
    table, contents = store.tables["totals_a"]  # type: ignore[attr-defined]
    (row,) = contents.rows.values()
    rows = {**contents.rows, ("of another",): type(row)(9, row.current)}
    store.tables["totals_a"] = (table, type(contents)(contents.ledger, rows))  # type: ignore[attr-defined]

    (finding,) = verify(deployment.topology(), deployment.config, access=deployment.access())

    assert finding.where == "a.totals"
    assert "1 rows are of later txids than its ledger, which holds 3" in finding.problem
    assert (
        verify(deployment.topology(), deployment.config, rows=False, access=deployment.access())
        == []
    )


def test_a_table_that_was_restored_alone_is_found_by_verify_and_no_verb_counts_on_it(
    memory: Make,
) -> None:
    """Its ledger says what its rows do not hold; to give it up is left."""
    deployment = memory()
    deployment.run(batches=2)
    store = deployment.states[0]._anchor
    _, before = store.tables["totals_a"]  # type: ignore[attr-defined]
    deployment.run(batches=4)
    table, contents = store.tables["totals_a"]  # type: ignore[attr-defined]
    store.tables["totals_a"] = (table, replace(before, ledger=contents.ledger))  # type: ignore[attr-defined]
    known = deployment.topology(), deployment.config
    access = deployment.access()

    (finding,) = verify(*known, rows=False, access=access)
    assert finding.where == "a.totals"
    assert "is of txid 2; expected one of txid 4" in finding.problem
    with pytest.raises(StoreDamagedError, match=r"'a\.totals' do not match its ledger"):
        deployment.run()
    verbs: tuple[Callable[[], object], ...] = (
        lambda: rebuild(*known, access=access),
        lambda: rewind(known[0], 3, known[1], access=access),
        lambda: quarantine(known[0], 5, known[1], reason="test", access=access),
    )
    for verb in verbs:
        with pytest.raises(StoreDamagedError):
            verb()
    forget(*known, access=access).apply()


def test_a_zookeeper_in_memory_has_to_be_handed_over(memory: Make) -> None:
    deployment = memory()

    with pytest.raises(ConfigError, match="ensemble"):
        show(deployment.topology(), deployment.config, access=Access())
