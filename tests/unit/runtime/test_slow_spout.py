"""A spout may take its time to answer; what is planned already does not wait for it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.runs import Changes
from tests.unit.runtime.loop_world import (
    Total,
    expected,
    memory_state,
    running,
    stored,
)
from tests.unit.runtime.ranges import ranges
from txtopo import Config, Fields, Pace, TransactionalTopologyBuilder
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.plugins.spouts import LastBatch
from txtopo.runtime.progress import BatchCommitted, ProcessingStarted, TopologyEvent
from txtopo.runtime.scheduler import Callback, ThreadScheduler, Timer
from txtopo.runtime.start import start_topology
from txtopo.spouts import MemoryTransactionalSpout

# In the module, since a spout is pickled, and a function of a module goes by its name.
committed = threading.Event()
asked, waited_for = threading.Event(), threading.Event()
looked, waits = threading.Event(), threading.Event()
commits = threading.Semaphore(0)
answers: list[bool] = []


def think(txid: int, previous: Any) -> Any:
    if txid == 4:
        answers.append(committed.wait(LIMIT_S))
    return {"start": (txid - 1) * 3}


def think_twice(txid: int, previous: Any) -> Any:
    if txid == 2:
        asked.set()
        answers.append(waited_for.wait(LIMIT_S))
    return {"start": (txid - 1) * 3}


def hear(change: TopologyEvent) -> None:
    if isinstance(change, BatchCommitted) and change.progress.txid == 3:
        committed.set()


def is_alone(last: LastBatch) -> bool:
    return last.pending == 0


def was_alone(last: LastBatch) -> bool:
    """Look for records first, and answer when the previous batch is committed."""
    return last.pending == 0 or not commits.acquire(timeout=LIMIT_S)


def count(change: TopologyEvent) -> None:
    if isinstance(change, BatchCommitted):
        commits.release()


def has_nothing(last: LastBatch) -> bool:
    looked.set()
    return not waits.wait(LIMIT_S)


def test_planned_batches_are_committed_while_the_spout_thinks_about_the_next() -> None:
    state = memory_state()
    topology = ranges(state, initialize_transaction=think)

    with running(topology, MemoryEnsemble(), Changes(hear)) as run:
        run.process_all_available(2 * LIMIT_S)

    assert answers == [True]
    assert stored(state) == (12, expected())


def test_a_spout_that_lets_records_gather_is_asked_again_after_each_commit() -> None:
    """The pause between two looks at a source does not add to how long a record waits."""
    state, changes = memory_state(), Changes()
    topology = ranges(state, is_ready=is_alone)

    with running(topology, MemoryEnsemble(), changes, poll_interval_s=3600) as run:
        run.process_all_available(LIMIT_S)

    assert stored(state) == (12, expected())
    assert [len(each.progress.pending) for each in changes.of(BatchCommitted)] == [0] * 12


def test_a_spout_that_was_asked_before_a_commit_is_asked_again_after_it() -> None:
    state = memory_state()
    topology = ranges(state, is_ready=was_alone)

    settings = {"poll_interval_s": 3600, "max_spout_pending": 3}
    with running(topology, MemoryEnsemble(), Changes(count), **settings) as run:
        run.process_all_available(LIMIT_S)

    assert stored(state) == (12, expected())


def test_a_spout_that_was_asked_before_somebody_waits_is_asked_again() -> None:
    """It may have looked before there was what they wait for."""
    topology = ranges(memory_state(), is_ready=has_nothing)

    with (
        running(topology, MemoryEnsemble(), poll_interval_s=3600) as run,
        ThreadPoolExecutor(1) as thread,
    ):
        assert looked.wait(LIMIT_S)
        waiting = thread.submit(run.process_all_available, LIMIT_S)
        driver: Any = run._driver
        wait_until(lambda: driver._waiters.waiting, "somebody waits")
        waits.set()
        waiting.result(LIMIT_S)


def test_who_waits_for_the_end_does_not_make_a_run_smaller() -> None:
    """A spout that is just being asked is not slow because somebody begins to wait."""
    state, changes = memory_state(), Changes()
    topology = ranges(state, initialize_transaction=think_twice)
    settings = {"poll_interval_s": LIMIT_S, "max_spout_pending": 9}

    with running(topology, MemoryEnsemble(), changes, **settings) as run:
        assert asked.wait(LIMIT_S)
        with pytest.raises(TimeoutError):
            run.process_all_available(0.2)
        waited_for.set()
        changes.wait_for(ProcessingStarted)

    (first, *_) = changes.of(ProcessingStarted)
    assert [each.txid for each in first.attempts] == [1, 2, 3]


class Delays(ThreadScheduler):
    """Notes after how many seconds callbacks are to be called."""

    def __init__(self) -> None:
        super().__init__("delays")
        self.seen_s: list[float] = []

    def call_later(self, delay_s: float, callback: Callback) -> Timer:
        self.seen_s.append(delay_s)
        return super().call_later(delay_s, callback)


def test_a_spout_that_stays_dry_is_asked_less_and_less_often() -> None:
    delays, state = Delays(), memory_state()
    config = Config(carrier="local", zookeeper="memory", poll_interval_s=0.08)
    run = start_topology(ranges(state).graph, None, config, scheduler=delays)
    try:
        run.process_all_available(LIMIT_S)
        wait_until(lambda: 0.064 in delays.seen_s, "pauses have doubled three times")
    finally:
        run.stop(LIMIT_S)

    pauses_s = sorted({each for each in delays.seen_s if 0 < each <= 0.08})
    assert pauses_s == [0.008, 0.016, 0.032, 0.064, 0.08]


def test_a_spout_that_its_pace_holds_back_is_asked_after_the_whole_pause() -> None:
    """Else a slow rate would be cut into batches of a row each."""
    delays, changes = Delays(), Changes()
    rows = [[amount] for amount in range(10_000)]  # more than the rate lets through
    spout = MemoryTransactionalSpout({0: rows}, Fields("amount long"), 1)
    builder = TransactionalTopologyBuilder("totals", "spout", spout)
    totals = builder.set_bolt("total", Total()).global_grouping("spout")
    totals.with_state("totals", memory_state())
    config = Config(
        carrier="local",
        zookeeper="memory",
        poll_interval_s=0.08,
        pace=Pace(max_rows_per_second=10.0),
    )
    run = start_topology(builder.build_topology().graph, None, config, [changes], scheduler=delays)
    try:
        wait_until(lambda: len(changes.of(BatchCommitted)) > 12, "batches that were held back")
        assert not [each for each in delays.seen_s if 0 < each < 0.08]
    finally:
        run.stop(LIMIT_S)
