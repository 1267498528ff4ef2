"""Slots in threads of this process instead of Spark tasks; all else is as it is on Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from txtopo import Config, ReliableTopology
from txtopo.errors import RunLostError
from txtopo.planning.program import Program, compile_program
from txtopo.runtime.progress import TopologyListener
from txtopo.runtime.reliable.driver import ReliableDriver, ReliableParts
from txtopo.runtime.reliable.handle import ReliableRun
from txtopo.runtime.reliable.progress import Progressed
from txtopo.runtime.resident.slot_host import SlotHost
from txtopo.runtime.resident.slots import ResidentSlots
from txtopo.runtime.resident.sockets import Keys
from txtopo.runtime.resident.stage_host import StageHost
from txtopo.runtime.run_handle import RecentProgress
from txtopo.runtime.scheduler import ThreadScheduler

HOST = "127.0.0.1"
LIMIT_S = 60.0


class ThreadJobs:
    """Runs slots on threads. A task cannot be killed here: one that is, is not heard any more."""

    host = bind_host = HOST

    def __init__(self, silence_s: float, kind: type[SlotHost] | type[StageHost] = SlotHost) -> None:
        self.silence_s = silence_s
        self.kind = kind
        self.stopped = False
        self.hosts: list[SlotHost | StageHost] = []
        self.keys: Keys | None = None
        self.driver = ""
        self.cancelled: list[tuple[int, int]] = []
        self._ends: dict[tuple[int, int], Future[None]] = {}

    def start(self, program: Program) -> None:
        self.program = program

    def run(self, slot: int, submission: int, keys: Keys, driver: str) -> None:
        self.keys, self.driver = keys, driver
        end = self._ends[slot, submission] = Future()
        self.copy(slot, submission, end)
        end.result()

    def copy(self, slot: int, submission: int, end: Future[None] | None = None) -> threading.Thread:
        """Run another task for a slot."""
        assert self.keys is not None
        host = self.kind(
            self.program, slot, submission, self.keys, self.driver, self.silence_s, time.monotonic
        )
        self.hosts.append(host)

        def work() -> None:
            host.run()
            if end is not None and not end.done():
                end.set_result(None)

        task = threading.Thread(target=work, daemon=True)
        task.start()
        return task

    def kill(self, slot: int, submission: int, error: Exception) -> None:
        """End the job of a slot."""
        self._ends[slot, submission].set_exception(error)

    def cancel(self, slot: int, submission: int) -> None:
        self.cancelled.append((slot, submission))
        if issubclass(self.kind, StageHost) and not self._ends[slot, submission].done():
            self.kill(slot, submission, RunLostError("cancelled", counted=False, cancelled=True))

    def close(self) -> None:
        pass


class Resident:
    """A topology whose slots are threads."""

    def __init__(
        self,
        topology: ReliableTopology,
        config: Config,
        slots: int = 1,
        silence_s: float = 30.0,
        listeners: Sequence[TopologyListener] = (),
    ) -> None:
        self.jobs = ThreadJobs(silence_s)
        scheduler = ThreadScheduler("txtopo-test")
        program = compile_program(topology.graph, config, slots)
        self.slots = ResidentSlots(self.jobs, Keys.make(), config, scheduler)
        recent = RecentProgress(Progressed)
        parts = ReliableParts(program, config, self.slots, scheduler)
        self.driver = ReliableDriver(parts, [recent, *listeners], active=True)
        self.driver.start()
        self.run = ReliableRun(topology.id, self.driver, recent)

    def __enter__(self) -> Resident:
        return self

    def __exit__(self, *_: object) -> None:
        self.run.stop(LIMIT_S)


def wait_until(done: Callable[[], bool]) -> None:
    """Wait until something is so."""
    deadline_s = time.monotonic() + LIMIT_S
    while not done():
        assert time.monotonic() < deadline_s, "it has not happened"
        time.sleep(0.01)
