"""SlotCluster: Spark and ZeroMQ as resident slots see them, in virtual time.

Jobs wait for cores. A job runs a task, and Spark may run a second one of the same job, again after
the loss of an executor or as a copy beside the first. Tasks die, freeze, hang, lose their
connection and answer late. What a task does is what
:class:`~txtopo.resident.hosts.StageHost` does, without computing anything: its answer names
the order, the life and the task, so that a checker can tell whose it was. All else that runs in a
simulation of slots is what users run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from txtopo.errors import RunLostError, TxtopoError
from txtopo.resident import wire
from txtopo.resident.slot_jobs import SILENCE_S, Cores
from txtopo.resident.sockets import Keys
from txtopo.resident.transport import PING_S, Letter
from txtopo.runtime.scheduler import Callback, Done, SerialExecutor
from txtopo.stages.compiled_topology import CompiledTopology
from txtopo.stages.pickling import loads
from txtopo.testing.simulation.clock import Event, Timeline
from txtopo.testing.simulation.faults import Chaos

# How often Spark repeats a task within a job.
TASK_FAILURES_MAX = 4
LAUNCH_S = (0.02, 0.6)
NOTICE_S = (0.01, 3.0)
KILL_S = (0.1, 2.0)
WORK_S = (0.005, 0.3)
FROZEN_S = (0.5, 20.0)
LATE_S = (0.5, 6.0)
AWAY_S = (1.0, 40.0)
COPY_S = (0.05, 3.0)


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that happened, for the checkers and for the trace.

    Attributes:
        at_s: When.
        what: What.
        slot: In which slot; -1 for none.
        submission: In which job of it.
        task: In which task of that.
        life: In which life.
        order: By which order.
        tag: For which chain.
        level: For which level of it.
        error: What it ended with.
        note: What else there is to say.
    """

    at_s: float
    what: str
    slot: int = -1
    submission: int = 0
    task: bytes = b""
    life: int = 0
    order: int = 0
    tag: str = ""
    level: int = -1
    error: BaseException | None = None
    note: object = None

    def line(self) -> str:
        """Return it as a line of a trace."""
        words = [f"{self.at_s:10.4f}  {self.what}"]
        words += [f"slot {self.slot}"] if self.slot >= 0 else []
        words += [f"job {self.submission}"] if self.submission else []
        words += [f"task {self.task.hex()[:8]}"] if self.task else []
        words += [f"life {self.life}"] if self.life else []
        words += [f"order {self.order}"] if self.order else []
        words += [f"{self.tag}/{self.level}"] if self.tag else []
        words += [repr(self.error)] if self.error is not None else []
        words += [str(self.note)] if self.note is not None else []
        return ", ".join(words)


Tell = Callable[..., None]


class VirtualLoop:
    """The loop of the slots in virtual time."""

    def __init__(self, timeline: Timeline, chaos: Chaos) -> None:
        self._timeline, self._chaos = timeline, chaos
        self.begun: SlotJob | None = None
        """The job that a lasting work has begun."""

    def now(self) -> float:
        """Return virtual seconds."""
        return self._timeline.now_s

    def post(self, callback: Callback) -> None:
        """Have *callback* called after all that was posted before."""
        self._timeline.after(0.0, callback)

    def call_later(self, delay_s: float, callback: Callback) -> Event:
        """Have *callback* called after a delay."""
        return self._timeline.after(delay_s, callback)

    def submit(self, work: Callable[[], object], done: Done) -> None:
        """Do *work* somewhat later, then call *done*."""

        def run() -> None:
            future: Future[object] = Future()
            try:
                future.set_result(work())
            except TxtopoError as error:
                future.set_exception(error)
            slow = self._chaos.happens("spark_slow")
            answer_s = self._chaos.between(*LATE_S) if slow else self._chaos.latency_s()
            self._timeline.after(answer_s, partial(done, future))

        self._timeline.after(self._chaos.latency_s(), run)

    def submit_lasting(self, work: Callable[[], object], done: Done) -> None:
        """Begin a job; call *done* when it has ended."""

        def run() -> None:
            work()
            job, self.begun = self.begun, None
            assert job is not None, "only jobs last"
            job.ended.add_done_callback(
                lambda ended: _void(self._timeline.after(0.0, partial(done, ended)))
            )

        self._timeline.after(self._chaos.latency_s(), run)

    def lasting_executor(self, name: str) -> SerialExecutor:
        """Refuse: the simulated socket needs no thread."""
        raise NotImplementedError(name)


class SlotJob:
    """A Spark job of one task."""

    def __init__(self, slot: int, submission: int) -> None:
        self.slot, self.submission = slot, submission
        self.tasks: list[SlotTaskRun] = []
        self.failures = 0
        self.ended: Future[None] = Future()

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.ended.done()


class SlotCluster:
    """Cores, jobs and tasks. It is what runs the jobs, and what opens the driver's socket.

    Args:
        timeline: Virtual time.
        chaos: What goes wrong.
        loop: The loop of the slots.
        cores: How many there are.
        repeats: Whether Spark repeats a task in its job, as it does on a cluster.
        tell: Records what happened.
    """

    host = bind_host = "driver"
    stopped = False

    def __init__(
        self,
        timeline: Timeline,
        chaos: Chaos,
        loop: VirtualLoop,
        cores: int,
        *,
        repeats: bool,
        tell: Tell,
    ) -> None:
        self.timeline, self.chaos, self.tell = timeline, chaos, tell
        self._loop = loop
        self._repeats = repeats
        self._cores: list[SlotTaskRun | None] = [None] * cores
        self._jobs: dict[tuple[int, int], SlotJob] = {}
        self._cancelled: set[tuple[int, int]] = set()
        self._waiting: deque[SlotJob] = deque()
        self._lost_cores: set[int] = set()
        self.tasks: dict[bytes, SlotTaskRun] = {}
        self.closed = False
        self.make_task: Callable[[SlotCluster, SlotJob, bytes, int], SlotTaskRun] = SlotTaskRun

    # ------------------------------------------------------------ what runs the jobs

    def start(self, compiled: CompiledTopology) -> None:
        """Receive the compiled topology."""

    def run(self, slot: int, submission: int, keys: Keys, driver: str) -> None:
        """Begin the job of a slot; the loop waits for its end."""
        job = self._loop.begun = SlotJob(slot, submission)
        self._jobs[slot, submission] = job
        self.tell("submitted", slot=slot, submission=submission)
        if (slot, submission) in self._cancelled:
            self._end(job, _cancelled())
        else:
            self._want_core(job)

    def cancel(self, slot: int, submission: int) -> None:
        """Cancel a job, also one that is about to begin."""
        self._cancelled.add((slot, submission))
        self.tell("cancelled job", slot=slot, submission=submission)
        job = self._jobs.get((slot, submission))
        if job is not None and not job.over:
            delay_s = self.chaos.between(*KILL_S) if job.tasks else 0.0
            self.timeline.after(delay_s, partial(self._end, job, _cancelled()))

    @property
    def cores_there(self) -> list[SlotTaskRun | None]:
        """The task on each core that is not lost."""
        return [core for at, core in enumerate(self._cores) if at not in self._lost_cores]

    def cores(self) -> Cores:
        """Return how many tasks can run at the same time."""
        return Cores(len(self.cores_there), self.cores_there.count(None))

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    # ------------------------------------------------------------ the driver's socket

    def open_socket(
        self,
        keys: Keys,
        host: str,
        loop: object,
        heard: Callable[[list[Letter]], None],
        unreachable: Callable[[bytes], None],
    ) -> ClusterSocket:
        """Return the driver's socket."""
        self._heard, self._unreachable = heard, unreachable
        return ClusterSocket(self)

    def send(self, identity: bytes, frames: Sequence[bytes]) -> None:
        """Send to a task; one that is not connected is told as such."""
        task = self.tasks[identity]
        if self.closed:
            return
        if frames[0] != wire.PING:
            self._tell_sent(task, frames)
        if not task.connected:
            self.timeline.after(0.0, partial(self._unreachable, identity))
            return
        task.link_down.carry(partial(task.receive, frames))

    def _tell_sent(self, task: SlotTaskRun, frames: Sequence[bytes]) -> None:
        kind = frames[0]
        if kind == wire.WELCOME:
            self.tell("welcomed", **task.names, life=loads(frames[1]))
        elif kind == wire.CUT_OFF:
            self.tell("cut off", **task.names, note=frames[1] == wire.DORMANT)
        elif kind == wire.END:
            self.tell("told to end", **task.names)
        elif kind == wire.STAGE:
            order, _ = wire.unpack_order(frames[1:])
            first = order.levels[0]
            level = {"order": order.number, "tag": first.run.tag, "level": first.level}
            self.tell("given", **task.names, **level)

    def heard(self, task: SlotTaskRun, frames: Sequence[bytes]) -> None:
        """Bring the driver what a task has said."""
        if not self.closed:
            if frames[0] == wire.HELLO:
                self.tell("hello heard", **task.names)
            elif frames[0] == wire.READY:
                self.tell("ready heard", **task.names)
            self._heard([(task.identity, *frames)])

    # ------------------------------------------------------------ cores

    def lose_core(self, *, for_good: bool) -> None:
        """Lose a core, with the task that is on it."""
        there = [at for at in range(len(self._cores)) if at not in self._lost_cores]
        if not there:
            return
        core = there[self.chaos.below(len(there))]
        self._lost_cores.add(core)
        self.tell("core lost", note=f"core {core}{' for good' if for_good else ''}")
        if (task := self._cores[core]) is not None:
            self.executor_lost(task)
        if not for_good:
            self.timeline.after(self.chaos.between(*AWAY_S), partial(self._core_back, core))

    def jobs_left(self) -> list[SlotJob]:
        """Return the jobs that have not ended."""
        return [job for job in self._jobs.values() if not job.over]

    def _core_back(self, core: int) -> None:
        self._lost_cores.discard(core)
        self.tell("core back", note=f"core {core}")
        self._place()

    def _want_core(self, job: SlotJob) -> None:
        self._waiting.append(job)
        self._place()

    def _place(self) -> None:
        for core, task in enumerate(self._cores):
            while self._waiting and self._waiting[0].over:
                self._waiting.popleft()
            if self._waiting and task is None and core not in self._lost_cores:
                self._launch(self._waiting.popleft(), core)

    def _launch(self, job: SlotJob, core: int) -> None:
        identity = self.chaos.below(1 << 96).to_bytes(12, "big") + wire.slot_frame(job.submission)
        task = self.make_task(self, job, identity, core)
        self._cores[core] = self.tasks[identity] = task
        job.tasks.append(task)
        self.timeline.after(self.chaos.between(*LAUNCH_S), task.begin)
        if self.chaos.happens("copy"):
            self.timeline.after(self.chaos.between(*COPY_S), partial(self._copy, job))

    def _copy(self, job: SlotJob) -> None:
        if not job.over and None in self._cores:
            self._want_core(job)

    # ------------------------------------------------------------ the end of tasks and jobs

    def returned(self, task: SlotTaskRun) -> None:
        """Take note that a task has returned: its job is done, and Spark stops its other tasks."""
        self.tell("returned", **task.names)
        self._free(task)
        self.timeline.after(self.chaos.latency_s(), partial(self._end, task.job, None))

    def worker_died(self, task: SlotTaskRun) -> None:
        """Have the Python worker of a task die."""
        self.tell("worker died", **task.names, order=task.order, tag=task.tag, level=task.level)
        self._died(task, counted=True)

    def executor_lost(self, task: SlotTaskRun) -> None:
        """Lose the executor of a task."""
        self.tell("executor lost", **task.names)
        self._died(task, counted=False)

    def broken(self, task: SlotTaskRun) -> None:
        """Have a job fail for good."""
        self._free(task)
        self._end(task.job, TxtopoError("a module is missing there"))

    def _died(self, task: SlotTaskRun, *, counted: bool) -> None:
        task.job.failures += 1
        self._free(task)
        again = self._repeats and task.job.failures < TASK_FAILURES_MAX
        delay_s = self.chaos.between(*NOTICE_S)
        if again:
            self.timeline.after(delay_s, partial(self._repeat, task.job))
            return
        what = "a Python worker of the job died" if counted else "the executor was lost"
        error = RunLostError(what, counted=counted, cancelled=False)
        self.timeline.after(delay_s, partial(self._end, task.job, error))

    def _repeat(self, job: SlotJob) -> None:
        if not job.over:
            self._want_core(job)

    def _free(self, task: SlotTaskRun) -> None:
        task.alive = task.connected = False
        if self._cores[task.core] is task:
            self._cores[task.core] = None
        self._place()

    def _end(self, job: SlotJob, error: Exception | None) -> None:
        if job.over:
            return
        if error is None:
            job.ended.set_result(None)
        else:
            job.ended.set_exception(error)
        self.tell("job ended", slot=job.slot, submission=job.submission, error=error)
        for task in job.tasks:
            if task.alive:
                self.tell("stopped", **task.names)
                self._free(task)
        self._place()
        if self.chaos.happens("straggler"):
            self.timeline.after(self.chaos.between(*COPY_S), partial(self._straggle, job))

    def _straggle(self, job: SlotJob) -> None:
        """Bring a task of a job that has ended, on an executor that was given up too early."""
        if not self.closed:
            identity = self.chaos.below(1 << 96).to_bytes(12, "big")
            task = self.make_task(self, job, identity + wire.slot_frame(job.submission), -1)
            self.tasks[task.identity] = task
            task.begin()


class ClusterSocket:
    """The driver's end of the connections to tasks."""

    port = 1

    def __init__(self, cluster: SlotCluster) -> None:
        self._cluster = cluster
        self.pinged: frozenset[bytes] = frozenset()

    def open(self) -> None:
        """Begin to ping."""
        self._cluster.timeline.after(PING_S, self._ping)

    def send(self, identity: bytes, *frames: bytes) -> None:
        """Send to a task; nobody waits."""
        self._cluster.send(identity, frames)

    def close(self, closed: Callback) -> None:
        """Close the connections, then call *closed*."""
        self._cluster.closed = True
        self._cluster.timeline.after(0.0, closed)

    def _ping(self) -> None:
        if not self._cluster.closed:
            for identity in sorted(self.pinged):
                self.send(identity, wire.PING)
            self._cluster.timeline.after(PING_S, self._ping)


class SlotTaskRun:
    """A task of a slot's job, as the driver sees it."""

    def __init__(self, cluster: SlotCluster, job: SlotJob, identity: bytes, core: int) -> None:
        self.cluster, self.chaos = cluster, cluster.chaos
        self.job, self.identity, self.core = job, identity, core
        self.alive = self.connected = True
        self.names = {"slot": job.slot, "submission": job.submission, "task": identity}
        self.life = 0
        self.order, self.tag, self.level = 0, "", -1
        self.busy = False
        self._inbox: deque[Sequence[bytes]] = deque()
        self._heard_s = 0.0
        self._up = Link(cluster)
        self.link_down = Link(cluster)

    @property
    def endpoint(self) -> bytes:
        """Where other slots send to it; nowhere."""
        return b""

    def begin(self) -> None:
        """Say hello."""
        if not self.alive:
            return
        if self.chaos.happens("stillborn"):
            self.cluster.worker_died(self)
        elif self.chaos.happens("broken"):
            self.cluster.broken(self)
        else:
            self._heard_s = self.cluster.timeline.now_s
            self.say(wire.HELLO, self.endpoint)
            self._watch()

    def receive(self, frames: Sequence[bytes]) -> None:
        """Take a message of the driver; it waits while the task works."""
        if self.alive and self.connected:
            self._inbox.append(frames)
            self.turn()

    def turn(self) -> None:
        """Do what the messages say that have come, until one of them is work."""
        while self.alive and not self.busy and self._inbox:
            self._heard_s = self.cluster.timeline.now_s
            kind, *frames = self._inbox.popleft()
            self.obey(kind, frames)

    def obey(self, kind: bytes, frames: list[bytes]) -> None:
        """Do what a message of the driver says."""
        if kind == wire.WELCOME:
            self._welcomed(loads(frames[0]))
        elif kind == wire.STAGE:
            self._work(wire.unpack_order(frames)[0])
        elif kind == wire.END or (kind == wire.CUT_OFF and frames[0] == wire.RETURN):
            self.cluster.returned(self)

    def _welcomed(self, life: int) -> None:
        if self.chaos.happens("unready"):
            self.cluster.worker_died(self)
            return
        self.life = life
        self.say(wire.READY)

    def _work(self, order: wire.StageOrder) -> None:
        chaos = self.chaos
        first = order.levels[0]
        self.order, self.tag, self.level = order.number, first.run.tag, first.level
        self.busy = True
        if chaos.happens("disconnect"):
            self.cluster.tell("disconnected", **self.names)
            self.connected = False
        if chaos.happens("worker_dies"):
            self.later(chaos.between(*WORK_S), partial(self.cluster.worker_died, self))
        elif chaos.happens("executor_lost"):
            self.later(chaos.between(*WORK_S), partial(self.cluster.executor_lost, self))
        elif chaos.happens("hang"):
            self.cluster.tell("hangs", **self.names, order=self.order)
        else:
            frozen = chaos.happens("freeze")
            self.later(chaos.between(*(FROZEN_S if frozen else WORK_S)), self._worked)

    def _worked(self) -> None:
        answer = (self.tag, self.level, self.job.slot, self.order, self.life, self.identity)
        record = (0, repr(answer).encode())
        self.busy, order, self.order = False, self.order, 0
        self.say(wire.ANSWER, *wire.pack_answer(order, [record]))
        self.turn()

    def say(self, kind: bytes, *frames: bytes) -> None:
        """Send to the driver, or end where that cannot be reached."""
        if not self.connected:
            self.cluster.returned(self)  # what it has to say is lost, so it ends
            return
        said = (kind, wire.slot_frame(self.job.slot), *frames)
        self._up.carry(partial(self.cluster.heard, self, said))

    def _watch(self) -> None:
        """End by itself after a silence of the driver, unless it works just then."""
        if self.alive:
            silent_s = self.cluster.timeline.now_s - self._heard_s
            if silent_s >= SILENCE_S and not self.busy and not self._inbox:
                self.cluster.returned(self)
            else:
                self.cluster.timeline.after(PING_S, self._watch)

    def later(self, delay_s: float, callback: Callback) -> None:
        """Do something after a delay, if it lives then."""
        self.cluster.timeline.after(delay_s, lambda: callback() if self.alive else None)


class Link:
    """One direction of a connection: messages arrive in order; one may arrive once more."""

    def __init__(self, cluster: SlotCluster) -> None:
        self._timeline, self._chaos = cluster.timeline, cluster.chaos
        self._last_s = 0.0
        # Times that are equal but for rounding must not change the order.
        self._waiting: deque[Callback] = deque()

    def carry(self, arrive: Callback) -> None:
        """Bring a message; what is on its way arrives, even if its sender is gone."""
        delay_s = self._chaos.latency_s()
        if self._chaos.happens("message_late"):
            delay_s += self._chaos.between(*LATE_S)
        self._last_s = max(self._last_s, self._timeline.now_s + delay_s)
        self._waiting.append(arrive)
        self._timeline.after(self._last_s - self._timeline.now_s, self._arrive)
        if self._chaos.happens("message_doubled"):
            again_s = self._last_s - self._timeline.now_s + self._chaos.between(0.0, 1.0)
            self._timeline.after(again_s, arrive)

    def _arrive(self) -> None:
        self._waiting.popleft()()


def _cancelled() -> RunLostError:
    return RunLostError("the job was cancelled", counted=False, cancelled=True)


def _void(_: object) -> None:
    """Take a value that nobody needs."""
