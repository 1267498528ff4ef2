"""The window: how many batches are in flight, and how many of them share a run."""

from __future__ import annotations

import pytest

from tests.harness.polling import LIMIT_S
from tests.harness.runs import Changes
from tests.unit.runtime.loop_world import expected, memory_state, running, stored, topology_of
from txtopo.config import JOBS
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.runtime.progress import (
    BatchCommitted,
    BatchesProcessed,
    BatchPlanned,
    ProcessingStarted,
)


@pytest.mark.parametrize("opaque", [False, True])
@pytest.mark.parametrize(
    ("max_spout_pending", "run_txids"), [(1, 1), (2, 1), (3, 1), (4, 2), (5, 2), (12, 4)]
)
def test_two_runs_of_a_third_of_the_window_are_processed_at_the_same_time(
    max_spout_pending: int, run_txids: int, *, opaque: bool
) -> None:
    state, changes = memory_state(), Changes()
    topology = topology_of(state, opaque=opaque)

    with running(topology, MemoryEnsemble(), changes, max_spout_pending=max_spout_pending) as run:
        run.process_all_available(LIMIT_S)

    assert stored(state) == (12, expected())
    flight = jobs = 0
    for change in changes.seen:
        match change:
            case BatchPlanned():
                flight += 1
            case BatchCommitted():
                flight -= 1
            case ProcessingStarted():
                jobs += 1
                assert len(change.attempts) <= run_txids
            case BatchesProcessed():
                jobs -= 1
        assert flight <= max_spout_pending
        assert jobs <= min(JOBS, max_spout_pending)
