"""A spout may take its time to answer; what is planned already does not wait for it."""

from __future__ import annotations

import threading
from typing import Any

from tests.runtime.loop_world import LIMIT_S, Changes, expected, memory_state, running, stored
from tests.runtime.ranges import ranges
from txtopo.runtime.progress import BatchCommitted, Change
from txtopo.transactional_state.memory import MemoryEnsemble

# In the module, since a spout is pickled, and a function of a module goes by its name.
committed = threading.Event()
answers: list[bool] = []


def think(txid: int, previous: Any) -> Any:
    if txid == 4:
        answers.append(committed.wait(LIMIT_S))
    return {"start": (txid - 1) * 3}


def hear(change: Change) -> None:
    if isinstance(change, BatchCommitted) and change.progress.txid == 3:
        committed.set()


def test_planned_batches_are_committed_while_the_spout_thinks_about_the_next() -> None:
    state = memory_state()
    topology = ranges(state, initialize_transaction=think)

    with running(topology, MemoryEnsemble(), Changes(hear), run_txids_max=10) as run:
        run.process_all_available(2 * LIMIT_S)

    assert answers == [True]
    assert stored(state) == (12, expected())
