"""Outages of ZooKeeper and of a store: the run backs off, continues, and nothing counts twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest

from state_backends.memory import MemoryBackend, MemoryStore
from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.runs import Changes
from tests.unit.runtime.loop_world import (
    Total,
    expected,
    memory_state,
    running,
    stored,
    topology_of,
)
from txtopo import FailedException
from txtopo.attempt import TransactionAttempt
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.errors import PoisonBatchError, StoreUnavailable, UnknownOutcomeError
from txtopo.plugins.stores import Snapshot, StateTable
from txtopo.runtime.progress import BatchCommitted, BatchFailed
from txtopo.state import Ledger, State, open_state, register_backend
from txtopo.state.backend import Writes
from txtopo.tuples import Tuple


class FlakyBackend(MemoryBackend):
    """Fails the commits that its script names, before or after they landed."""

    script: dict[int, list[str]]
    read_backs: int

    def commit(self, attempt: TransactionAttempt, writes: Writes) -> Ledger:
        faults = FlakyBackend.script.get(attempt.txid, [])
        fault = faults.pop(0) if faults else None
        if fault == "before":
            raise StoreUnavailable("the store is away; try again")
        if fault == "lost":
            raise UnknownOutcomeError("the connection was lost; read the ledger")
        ledger = super().commit(attempt, writes)
        if fault == "landed":
            raise UnknownOutcomeError("the connection was lost; read the ledger")
        return ledger

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        FlakyBackend.read_backs += 1
        return super().snapshot()


@pytest.fixture
def flaky() -> Iterator[State]:
    store = MemoryStore()

    def opened(url: str, table: StateTable) -> FlakyBackend:
        return FlakyBackend(store, table)

    FlakyBackend.script, FlakyBackend.read_backs = {}, 0
    register_backend("flaky", opened)
    yield open_state("flaky:")
    FlakyBackend.script = {}


@pytest.mark.parametrize("fault", ["before", "lost", "landed"])
@pytest.mark.row(28, 37)
def test_a_store_that_fails_is_tried_again_and_nothing_counts_twice(
    flaky: State, fault: str
) -> None:
    FlakyBackend.script = {2: [fault], 5: [fault, fault], 12: [fault]}
    changes = Changes()

    with running(topology_of(flaky), MemoryEnsemble(), changes, group_txids_max=1) as run:
        run.process_all_available(LIMIT_S)

    assert stored(flaky) == (12, expected())
    failed = [change.kind for change in changes.of(BatchFailed)]
    assert failed == ([] if fault == "landed" else ["infrastructure"] * 4)


@pytest.mark.row(28)
def test_faults_of_a_store_never_end_the_run(flaky: State) -> None:
    """They say nothing about the batch, so they do not count towards attempts_max."""
    FlakyBackend.script = {3: ["before"] * 9}

    with running(topology_of(flaky), MemoryEnsemble(), attempts_max=2, backoff_s=0.001) as run:
        run.process_all_available(LIMIT_S)

    assert stored(flaky) == (12, expected())


@pytest.mark.row(45)
@pytest.mark.rule("txtopo.runtime.action_queue", "Rules", 1, 3)
def test_nothing_is_committed_while_zookeeper_cannot_say_so() -> None:
    """Row 45: txid 4 is in the store, and 5 waits until ZooKeeper holds that."""
    state, ensemble = memory_state(), MemoryEnsemble()
    changes = Changes(
        lambda change: (
            setattr(ensemble, "reachable", False)
            if isinstance(change, BatchCommitted) and change.progress.txid == 3
            else None
        )
    )

    with running(topology_of(state), ensemble, changes, max_spout_pending=1) as run:
        wait_until(lambda: not ensemble.reachable, "ZooKeeper is away")
        with pytest.raises(TimeoutError):
            run.process_all_available(timeout=0.2)
        assert stored(state)[0] in (3, 4)
        ensemble.reachable = True
        run.process_all_available(LIMIT_S)

    assert stored(state) == (12, expected())


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.row(14, 15)
def test_a_write_to_zookeeper_whose_answer_is_lost_is_made_again(landed: bool) -> None:
    state, ensemble = memory_state(), MemoryEnsemble()
    changes = Changes(
        lambda change: (
            ensemble.lose_next_answer(landed=landed) if isinstance(change, BatchCommitted) else None
        )
    )

    with running(topology_of(state), ensemble, changes) as run:
        run.process_all_available(LIMIT_S)

    assert stored(state) == (12, expected())


class Poisoned(Total):
    """Fails the batch that holds the amount 13, always."""

    def execute(self, tuple: Tuple) -> None:
        if tuple["amount"] == 13:
            raise FailedException("13 brings bad luck")
        super().execute(tuple)


@pytest.mark.row(19)
def test_a_poison_batch_stops_the_run_and_a_later_start_goes_on_there() -> None:
    state, ensemble = memory_state(), MemoryEnsemble()

    with running(topology_of(state, Poisoned()), ensemble, attempts_max=3) as run:
        with pytest.raises(PoisonBatchError, match="13 brings bad luck") as raised:
            run.await_termination(LIMIT_S)
        assert raised.value.txid == 5
        assert raised.value.component == "total"
        assert stored(state) == (4, expected(4))

    with running(topology_of(state), ensemble) as run:
        run.process_all_available(LIMIT_S)

    assert stored(state) == (12, expected())
