"""Terms: the leadership is lost, won back, or taken by somebody else."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.harness.polling import LIMIT_S
from tests.harness.runs import Changes
from tests.unit.runtime.loop_world import expected, memory_state, running, stored, topology_of
from txtopo.ensemble.journal import Journal
from txtopo.ensemble.memory import MemoryEnsemble, MemoryTransactionalState
from txtopo.errors import FencedError
from txtopo.runtime.progress import BatchCommitted, Leading, Standby
from txtopo.spouts import Outage


def test_a_run_commits_everything_and_says_so() -> None:
    state = memory_state()

    with running(topology_of(state), MemoryEnsemble()) as run:
        run.process_all_available(LIMIT_S)

        assert stored(state) == (12, expected())
        assert run.last_progress is not None
        assert run.last_progress.txid == 12
        assert run.last_progress.rows_total == 36


def test_a_spout_that_could_not_know_where_its_batches_end_is_asked_again() -> None:
    """It said that it has nothing while batches were in flight; one of them then brought nothing.

    The pause is long, so that an answer from before would be believed if it were enough.
    """
    state = memory_state()
    topology = topology_of(state, outages=(Outage(0, txid=2), Outage(0, txid=5)))

    with running(topology, MemoryEnsemble(), poll_interval_s=0.3) as run:
        run.process_all_available(LIMIT_S)

        assert stored(state) == (14, expected())


@pytest.mark.row(16)
@pytest.mark.rule("txtopo.runtime.term", "Rules", 1)
def test_a_lost_session_without_a_successor_only_costs_an_epoch() -> None:
    """Row 16: the coordinator asks for the leadership again and continues from what is durable."""
    state, ensemble = memory_state(), MemoryEnsemble()

    def expire(change: object) -> None:
        if isinstance(change, BatchCommitted) and change.progress.txid in (3, 7):
            ensemble.expire_leader("totals")

    changes = Changes(expire)
    topology = topology_of(state)
    with running(topology, ensemble, changes, max_spout_pending=2) as run:
        run.process_all_available(LIMIT_S)

        assert stored(state) == (12, expected())
        assert [leading.epoch for leading in changes.of(Leading)] == [1, 2, 3]
        assert run.is_active


@pytest.mark.row(29, 47)
def test_a_deposed_leader_stops_with_an_error_that_names_its_successor() -> None:
    state, ensemble = memory_state(), MemoryEnsemble()

    def depose(change: object) -> None:
        if isinstance(change, BatchCommitted) and change.progress.txid == 5:
            other = MemoryTransactionalState("totals", ensemble)
            Journal(other).claim_epoch({"host": "elsewhere", "pid": 4711}, token="ensemble")

    with running(topology_of(state), ensemble, Changes(depose), max_spout_pending=1) as run:
        with pytest.raises(FencedError, match="elsewhere") as raised:
            run.await_termination(LIMIT_S)

        assert raised.value.successor == 2
        assert stored(state)[0] in (5, 6)


@pytest.mark.row(5)
def test_a_standby_takes_over_when_the_leader_stops() -> None:
    state, ensemble = memory_state(), MemoryEnsemble()
    topology = topology_of(state)
    waiting = Changes()

    with running(topology, ensemble, max_spout_pending=1) as first:
        first.process_all_available(LIMIT_S)
        with running(topology, ensemble, waiting) as second:
            first.stop(LIMIT_S)
            second.process_all_available(LIMIT_S)

            assert waiting.of(Leading)[0].epoch == 2
            assert waiting.of(Leading)[0].current == 13
    assert stored(state) == (12, expected())


def test_a_standby_says_once_that_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it asks for the leadership meanwhile."""
    monkeypatch.setattr("txtopo.runtime.candidacy.LEAD_TIMEOUT_S", 0.05)
    ensemble = MemoryEnsemble()
    topology = topology_of(memory_state())
    leader = MemoryTransactionalState("totals", ensemble)
    assert leader.lead("other", timeout_s=1, on_lost=lambda: None) is not None
    said, asked = threading.Event(), threading.Semaphore(0)
    changes = Changes(lambda change: said.set() if isinstance(change, Standby) else None)
    lead = MemoryTransactionalState.lead

    def counted(*arguments: Any, **settings: Any) -> Any:
        if said.is_set():
            asked.release()
        return lead(*arguments, **settings)

    monkeypatch.setattr(MemoryTransactionalState, "lead", counted)

    with running(topology, ensemble, changes) as run:
        assert all(asked.acquire(timeout=LIMIT_S) for _ in range(5))
        with pytest.raises(TimeoutError, match="standby"):
            run.process_all_available(timeout=0.2)

    assert len(changes.of(Standby)) == 1


def test_a_term_that_is_over_is_not_at_rest() -> None:
    """Else who waits for all that is available would be told so when a batch ends the run.

    The pause is long, so that the spout is not asked again before the test looks.
    """
    with running(topology_of(memory_state()), MemoryEnsemble(), poll_interval_s=3600.0) as run:
        run.process_all_available(LIMIT_S)
        driver: Any = run._driver
        term = driver._term
        assert term.at_rest
    assert term.over
    assert not term.at_rest
