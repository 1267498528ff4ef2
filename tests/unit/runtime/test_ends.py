"""The end of a run, and rest: nobody waits for ever, and nobody is told too early."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest

from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.runs import LOCAL, Changes
from tests.unit.runtime.loop_world import (
    BATCHES,
    Total,
    expected,
    memory_state,
    running,
    stored,
    topology_of,
)
from tests.unit.runtime.ranges import ranges
from txtopo.carriers.carrier import LocalCarrier, RunOutput
from txtopo.carriers.spark_jobs import session_stopped
from txtopo.ensemble.memory import MemoryEnsemble, MemoryTransactionalState
from txtopo.errors import ConfigError
from txtopo.runtime import leader_beat
from txtopo.runtime.handle import RunHandle
from txtopo.runtime.progress import BatchesProcessed, TopologyEvent
from txtopo.runtime.scheduler import ThreadScheduler
from txtopo.runtime.start import TopologyRun, open_driver, start_topology
from txtopo.stages.compiled_topology import Run


def test_a_run_stops_while_a_commit_waits_for_zookeeper() -> None:
    """The commit has not begun, so there is none to finish."""
    state, ensemble = memory_state(), MemoryEnsemble()

    def away(change: TopologyEvent) -> None:
        if isinstance(change, BatchesProcessed):
            ensemble.reachable = False

    with running(topology_of(state), ensemble, Changes(away), max_spout_pending=1) as run:
        wait_until(lambda: not ensemble.reachable, "ZooKeeper is away")
        time.sleep(0.1)  # until the write of the cut has failed once
        run.stop(LIMIT_S)

        assert not run.is_active


def test_a_commit_that_ends_after_its_time_limit_is_not_missed() -> None:
    """Its result is gone, and its cancellation waits behind a write that cannot be made."""
    state, ensemble = memory_state(), MemoryEnsemble()
    started = STARTED_SLOW
    started.clear()

    topology = topology_of(state, Slow())
    with running(topology, ensemble, batch_timeout_s=0.15, attempts_max=50) as run:
        assert started.wait(LIMIT_S)
        ensemble.reachable = False
        time.sleep(0.6)
        ensemble.reachable = True
        run.process_all_available(LIMIT_S)

    assert stored(state) == (BATCHES, expected())


STARTED_SLOW = threading.Event()


class Slow(Total):
    """Takes longer than its time limit, once."""

    def finish_batch(self) -> None:
        if not STARTED_SLOW.is_set():
            STARTED_SLOW.set()
            time.sleep(0.5)
        super().finish_batch()


def test_a_deactivated_run_is_at_rest_only_when_the_spout_has_answered() -> None:
    state = memory_state()
    ASKED.clear()
    ANSWER.clear()

    with running(ranges(state, initialize_transaction=held), MemoryEnsemble()) as run:
        assert ASKED.wait(LIMIT_S)
        run.deactivate()
        with pytest.raises(TimeoutError):
            run.process_all_available(0.1)
        ANSWER.set()
        run.process_all_available(LIMIT_S)
        before = stored(state)
        time.sleep(0.05)

        assert stored(state) == before


ASKED, ANSWER = threading.Event(), threading.Event()


def held(txid: int, previous: Any) -> Any:
    ASKED.set()
    ANSWER.wait(LIMIT_S)
    return {"start": (txid - 1) * 3}


def test_threads_that_come_after_the_end_may_wait() -> None:
    """The system gives them the loop's identity again."""
    with running(ranges(memory_state()), MemoryEnsemble()) as run:
        run.process_all_available(LIMIT_S)
    answers: list[bool] = []

    threads = [
        threading.Thread(target=lambda: answers.append(run.await_termination(LIMIT_S)))
        for _ in range(30)
    ]
    for thread in threads:
        thread.start()
        thread.join(LIMIT_S)

    assert answers == [True] * 30


class Broken(Total):
    def finish_batch(self) -> None:
        raise ValueError("broken")


def failed() -> TopologyRun:
    """Return a run that has ended with an error of which its handle has told nothing."""
    topology, config = topology_of(memory_state(), Broken()), replace(LOCAL, attempts_max=1)
    run = start_topology(topology.graph, None, config, ensemble=MemoryEnsemble())
    wait_until(lambda: not run.is_active, "the run has ended")
    return run


def test_a_run_that_had_failed_says_so_when_it_is_stopped_and_once() -> None:
    """Else a program that only waits and stops would end as if all was right."""
    run = failed()

    with pytest.raises(ValueError, match="broken"):
        run.stop(LIMIT_S)
    run.stop(LIMIT_S)


def test_the_end_of_a_block_raises_what_ended_its_run() -> None:
    with pytest.raises(ValueError, match="broken"), failed():
        pass


def test_the_end_of_a_block_does_not_hide_the_error_of_the_block() -> None:
    with pytest.raises(KeyError, match="mine"), failed():
        raise KeyError("mine")


@pytest.mark.parametrize("tell", ["await_termination", "process_all_available", "exception"])
def test_an_error_that_was_told_is_not_raised_again_by_a_stop(tell: str) -> None:
    run = failed()

    with contextlib.suppress(ValueError):
        getattr(run, tell)()
    run.stop(LIMIT_S)


@pytest.mark.parametrize("method", ["await_termination", "process_all_available"])
def test_a_signal_that_another_thread_gets_stops_a_run_that_the_main_thread_waits_for(
    method: str,
) -> None:
    """Only the main thread runs Python's handlers, and such a signal does not wake it."""
    state, main, heard = memory_state(), threading.get_ident(), threading.Event()
    before = signal.getsignal(signal.SIGUSR1)
    COMMITS.clear()

    def send() -> None:
        wait_until(lambda: waits_in(main, method), "the main thread waits")
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        try:
            # The handler restores the one that was there before.
            wait_until(lambda: signal.getsignal(signal.SIGUSR1) is before, "the handler has run")
            heard.set()
        finally:
            COMMITS.set()
            run.stop(LIMIT_S)

    with running(topology_of(state, Held()), MemoryEnsemble(), group_txids_max=1) as run:
        run.stop_on(signal.SIGUSR1)
        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        getattr(run, method)()
        sender.join(LIMIT_S)

    assert heard.is_set()
    assert stored(state) == (1, expected(1))


COMMITS = threading.Event()


class Held(Total):
    """Commits only when the test lets it."""

    def finish_batch(self) -> None:
        assert COMMITS.wait(LIMIT_S * 2)
        super().finish_batch()


def waits_in(thread: int, method: str) -> bool:
    """Return whether a thread has called a method of a handle and waits there."""
    frame: FrameType | None = sys._current_frames()[thread]
    if frame is None or frame.f_code is not threading.Condition.wait.__code__:
        return False
    while frame is not None and frame.f_code is not getattr(RunHandle, method).__code__:
        frame = frame.f_back
    return frame is not None


class Dropping(LocalCarrier):
    """Never answers a job, as a session that is being stopped.

    Attributes:
        in_flight: Set when a job was submitted.
        stopped: Set by the test, which stops the session.
        over: Set at the end of the test.
    """

    def __init__(self) -> None:
        super().__init__(1)
        self.in_flight, self.stopped, self.over = (threading.Event() for _ in range(3))

    def process(self, run: Run) -> RunOutput:
        self.in_flight.set()
        self.over.wait()
        raise AssertionError("nobody waits for it any more")

    def check_session(self) -> None:
        if self.in_flight.is_set() and self.stopped.is_set():
            raise session_stopped()


def test_a_run_whose_job_was_dropped_ends_when_its_session_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leader_beat, "BEAT_S", 0.02)
    carrier, scheduler = Dropping(), ThreadScheduler("txtopo-dropped")
    ensemble, config = MemoryTransactionalState("totals", MemoryEnsemble()), LOCAL
    graph = topology_of(memory_state()).graph
    driver = open_driver(graph, config, [], carrier, lambda: ensemble, scheduler, {})
    driver.start()
    assert carrier.in_flight.wait(LIMIT_S)
    assert not driver.ended.done()

    carrier.stopped.set()
    error = driver.ended.result(LIMIT_S)
    carrier.over.set()

    assert isinstance(error, ConfigError)
    assert "the Spark session was stopped while the topology was running on it" in str(error)
