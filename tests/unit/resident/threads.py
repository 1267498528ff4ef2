"""Slots in threads of this process instead of Spark tasks; all else is as it is on Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial

from tests.harness.polling import LIMIT_S
from txtopo import AtLeastOnceConfig, ReliableTopology
from txtopo.clock import wall_clock
from txtopo.errors import RunLostError
from txtopo.reliable.driver import ReliableContext, ReliableDriver
from txtopo.resident.bolt_slots import BoltSlots
from txtopo.resident.hosts import BoltHost, StageHost
from txtopo.resident.slot_jobs import Cores
from txtopo.resident.slot_runner import LIMITS, SlotLimits
from txtopo.resident.sockets import Keys
from txtopo.resident.transport import TaskSocket
from txtopo.runtime.handle import RecentProgress, ReliableRun
from txtopo.runtime.progress import Progressed, TopologyListener
from txtopo.runtime.scheduler import ThreadScheduler
from txtopo.runtime.watching import watcher_of
from txtopo.stages.compiled_topology import CompiledTopology, compile_topology
from txtopo.testing import Shared

HOST = "127.0.0.1"
# So many seconds without a ping on a busy machine mean nothing.
SILENCE_S = LIMIT_S


class ThreadJobs:
    """Runs slots on threads. A task cannot be killed here: one that is, is not heard any more."""

    host = bind_host = HOST

    def __init__(
        self,
        kind: type[BoltHost] | type[StageHost] = BoltHost,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.kind = kind
        self.now = now
        self.stopped = False
        self.hosts: list[BoltHost | StageHost] = []
        self.keys: Keys | None = None
        self.driver = ""
        self.cancelled: list[tuple[int, int]] = []
        self._ends: dict[tuple[int, int], Future[None]] = {}

    def start(self, compiled: CompiledTopology) -> None:
        self.compiled = compiled

    def run(self, slot: int, submission: int, keys: Keys, driver: str) -> None:
        self.keys, self.driver = keys, driver
        end = self._ends[slot, submission] = Future()
        self.copy(slot, submission, end)
        end.result()

    def copy(self, slot: int, submission: int, end: Future[None] | None = None) -> threading.Thread:
        """Run another task for a slot."""
        assert self.keys is not None
        link = TaskSocket(slot, submission, self.keys, self.driver, SILENCE_S, self.now)
        host = self.kind(self.compiled, link)
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

    def cores(self) -> Cores:
        return Cores(len(self.hosts), 0)

    def close(self) -> None:
        pass


class Clock(Shared):
    """The clock of tasks; it stands still unless a test moves it."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.jobs: ThreadJobs | None = None

    def __call__(self) -> float:
        return self.now_s

    def pass_silently(self) -> None:
        """Let more time pass than a task waits for a word, in the middle of its work; a ping comes
        meanwhile, which it cannot read yet."""
        assert self.jobs is not None
        (host,) = self.jobs.hosts
        self.now_s += 2 * SILENCE_S
        assert host.link.socket.poll(int(1000 * LIMIT_S))


def rotate_out(host: BoltHost) -> None:
    """Have the time of all trees of a slot be up; on its loop."""
    assert host.spouts is not None
    for _ in range(2):
        host.spouts._failed(host.spouts.trees.rotate(), timed_out=True)
    host.spouts.go_on()


class Resident:
    """A topology whose slots are threads."""

    def __init__(
        self,
        topology: ReliableTopology,
        config: AtLeastOnceConfig,
        slots: int = 1,
        listeners: Sequence[TopologyListener] = (),
        now: Callable[[], float] = time.monotonic,
        limits: SlotLimits = LIMITS,
        jobs: ThreadJobs | None = None,
    ) -> None:
        self.jobs = jobs or ThreadJobs(now=now)
        scheduler = ThreadScheduler("txtopo-test")
        compiled = compile_topology(topology.graph, config, slots)
        self.slots = BoltSlots(self.jobs, Keys.make(), config, scheduler, limits)
        recent = RecentProgress(Progressed)
        context = ReliableContext(compiled, config, self.slots, scheduler)
        self.driver = ReliableDriver(context, [recent, *listeners], active=True)
        self.driver.start()
        watcher = watcher_of(topology.graph, "at-least-once", wall_clock)
        self.run = ReliableRun(topology.id, self.driver, recent, watcher)

    def host(self, slot: int) -> BoltHost:
        """Return the newest task of a slot."""
        host = [each for each in self.jobs.hosts if each.link.slot == slot][-1]
        assert isinstance(host, BoltHost)
        return host

    def time_out(self, slot: int) -> None:
        """Have the time of all trees of a slot be up."""
        host = self.host(slot)
        host.loop.post(partial(rotate_out, host))

    def __enter__(self) -> Resident:
        return self

    def __exit__(self, *_: object) -> None:
        self.run.stop(LIMIT_S)
