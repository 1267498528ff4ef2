"""ResidentCarrier: envelopes by ZeroMQ to slots that live as long as the run, for classic Spark.

A run costs no Spark job: the tasks are there, and the driver hands them stage after stage, as
:mod:`txtopo.runtime.resident.stages` says. Here is the blocking face of that loop, which is another
one than the topology's: the slots go on while the topology waits for ZooKeeper or a store.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial

from txtopo.attempt import TransactionAttempt
from txtopo.config import Config
from txtopo.errors import RunLostError
from txtopo.runtime.carrier import RunOutput
from txtopo.runtime.resident.jobs import Jobs
from txtopo.runtime.resident.sockets import Keys
from txtopo.runtime.resident.stage_slots import Level, StageSlots
from txtopo.runtime.resident.stages import Record
from txtopo.runtime.scheduler import ThreadScheduler
from txtopo.stages.program import Chain, Program, Run
from txtopo.stages.stage_context import DRIVER, ByAddress, by_address


class ResidentCarrier:
    """Moves envelopes between resident slots by way of the driver.

    Args:
        jobs: Run the slots' tasks.
        keys: The keys of the run.
        config: How to run.
        slots: How many slots the session has room for.
        scheduler: Time and threads of its own: this carrier stops it.
    """

    carries_frames = False
    keeps_cut_in_driver = True

    def __init__(
        self, jobs: Jobs, keys: Keys, config: Config, slots: int, scheduler: ThreadScheduler
    ) -> None:
        self._room = slots
        self._scheduler = scheduler
        self._slots = StageSlots(jobs, keys, config, scheduler)
        self._program: Program | None = None
        self._closed: Future[None] = Future()

    def default_slots(self) -> int:
        """Return how many slots there is room for."""
        return self._room

    def start(self, program: Program) -> None:
        """Begin to bring the slots to life; runs wait for them."""
        started: Future[None] = Future()

        def first() -> None:
            try:
                self._slots.start(program)
            except BaseException as error:  # noqa: BLE001 - the caller hears of every outcome
                started.set_exception(error)
                self._scheduler.stop()
            else:
                started.set_result(None)

        self._scheduler.start(first, self._slots.fail_all)
        started.result()
        self._program = program

    def process(self, run: Run) -> RunOutput:
        """Take a run through the levels of the processing phase."""
        return RunOutput.divided(run, self._chain("processing", run, {}, run.tag))

    def commit(self, output: RunOutput, attempt: TransactionAttempt) -> list[bytes]:
        """Take one attempt of a processed run through the levels of the commit phase."""
        assert self._program is not None
        run, cut = output.run, output.cut_of(attempt, self._program.slots)
        records = self._chain("commit", run.only(attempt), cut, run.commit_tag(attempt))
        return records.get(DRIVER, [])

    def release(self, output: RunOutput) -> None:
        """Forget the cut of a processed run."""
        output.cut = None

    def cancel(self, tag: str) -> None:
        """Cancel a chain, also one that is about to start; user code that hangs is killed."""
        self._scheduler.post(partial(self._slots.cancel, tag))

    def close(self) -> None:
        """Cancel everything and wait until the slots have given their cores back."""
        if self._program is None or self._closed.done():
            return
        self._scheduler.post(partial(self._slots.stop, self._end))
        self._closed.result()

    def _end(self) -> None:
        self._closed.set_result(None)
        self._scheduler.stop()

    def _chain(self, chain: Chain, run: Run, records: ByAddress, tag: str) -> ByAddress:
        assert self._program is not None
        for number in range(len(self._program.levels_of(chain))):
            level = Level(tag, chain, run, number, Future())
            records = by_address(itertools.chain.from_iterable(self._answers(level, records)))
        return records

    def _answers(self, level: Level, records: Mapping[int, list[bytes]]) -> list[list[Record]]:
        self._scheduler.post(partial(self._slots.compute, level, records))
        if self._closed.done() and not level.done.done():
            # Posted after the loop's last turn: nobody hears it any more.
            raise RunLostError("the topology has ended", counted=False, cancelled=True)
        return level.done.result()
