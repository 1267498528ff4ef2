"""SlotRunner: carries out the actions of the slot supervisor, for stages and for bolts.

It submits and cancels jobs, exchanges messages with tasks, runs the timers, and writes the log. All
decisions are made in :mod:`txtopo.resident.supervisor`. The content of the messages is up to the
:class:`SlotUser`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from txtopo.carriers.spark_jobs import session_stopped
from txtopo.errors import RunLostError, SlotUnavailable
from txtopo.log_records import logger_of
from txtopo.resident import wire
from txtopo.resident.orders import CANCEL_S, REASON_S
from txtopo.resident.slot_jobs import Cores, SlotJobRunner
from txtopo.resident.sockets import Keys
from txtopo.resident.supervisor import (
    SILENT_S,
    STOP_S,
    Action,
    CancelJob,
    Close,
    ConnectionLost,
    CutOffTask,
    EndRequested,
    EndTask,
    Event,
    JobFailed,
    JobLost,
    JobRetried,
    LifeLost,
    PingTasks,
    RestartRequested,
    SlotFailed,
    SlotMissing,
    SlotReady,
    SlotRecord,
    SlotSaid,
    SlotsMoved,
    SlotStatus,
    SlotSupervisor,
    SubmitJob,
    SupervisorSettings,
    TaskGreeted,
    TaskReady,
    TaskSaid,
    TimePassed,
    WelcomeTask,
)
from txtopo.resident.transport import DriverSocket, Letter, SlotLoop
from txtopo.retries import LOGGER, warn_of_retry
from txtopo.runtime.scheduler import Callback, Timer
from txtopo.stages.compiled_topology import CompiledTopology
from txtopo.stages.pickling import pack

_logger = logger_of(LOGGER)


@dataclass(frozen=True, slots=True)
class SlotLimits:
    """How long to wait for slots. The constant of each default explains its limit.

    Attributes:
        silent_s: Until the job of a task without a connection is cancelled.
        stop_s: Until the jobs of tasks that do not end are cancelled.
        cancel_s: Until a slot that still works on cancelled work is started again.
        reason_s: Until a run that was lost with a connection fails for that reason.
    """

    silent_s: float = SILENT_S
    stop_s: float = STOP_S
    cancel_s: float = CANCEL_S
    reason_s: float = REASON_S


LIMITS = SlotLimits()
# Why a missing slot cannot work, by its status, for the log; {} is the number of the submission.
_STANDS = {
    SlotStatus.PAUSED: "its Spark job {} has ended, and the next one follows",
    SlotStatus.STARTING: "its Spark job {} waits for a core",
    SlotStatus.PREPARING: "the task of its Spark job {} is preparing",
    SlotStatus.SILENT: "the connection to the task of its Spark job {} was lost",
    SlotStatus.CANCELLED: "its Spark job {} was cancelled, but has not ended",
}


class SlotSocket(Protocol):
    """The driver's end of the connections to tasks: a
    :class:`~txtopo.resident.transport.DriverSocket`."""

    pinged: frozenset[bytes]

    @property
    def port(self) -> int:
        """The port on which the driver listens."""
        ...

    def open(self) -> None:
        """Start sending and receiving."""
        ...

    def send(self, identity: bytes, *frames: bytes) -> None:
        """Send to a task without waiting."""
        ...

    def close(self, closed: Callback) -> None:
        """Close, then call *closed*."""
        ...


OpenSocket = Callable[
    [Keys, str, SlotLoop, Callable[[list[Letter]], None], Callable[[bytes], None]], SlotSocket
]
"""Makes a socket from: keys, host, loop, callback for messages, callback for lost connections."""


class SlotUser(Protocol):
    """The side that gives work to the slots: the stages, or the bolts of a topology.

    All methods are called on the loop. After ``stop`` the calls only deliver the last messages of
    the tasks.
    """

    def slot_ready(self, ready: SlotReady) -> None:
        """Called when a life can take work."""
        ...

    def slot_said(self, said: SlotSaid) -> None:
        """Called with each message about work from the life that has the slot."""
        ...

    def slot_lost(self, lost: LifeLost) -> None:
        """Called when a life has ended, or the next one could not begin."""
        ...

    def slot_failed(self, failed: SlotFailed) -> None:
        """Called when a slot is lost for good: no other job follows."""
        ...

    def slot_overdue(self, slot: int, error: SlotUnavailable) -> None:
        """Called when a slot has been missing for *missing_s*."""
        ...

    def slots_moved(self) -> None:
        """Called when a slot has a new life, or has lost one."""
        ...


class DeadlineTimer:
    """One timer for the next deadline of a machine without a clock. Used on the loop."""

    def __init__(self, loop: SlotLoop, ring: Callback) -> None:
        self._loop, self._ring = loop, ring
        self._due_s: float | None = None
        self._timer: Timer | None = None

    def set(self, due_s: float) -> None:
        """Ring at *due_s*, instead of at the earlier deadline."""
        if due_s == self._due_s:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._due_s, self._timer = due_s, None
        if due_s < float("inf"):
            delay_s = max(0.0, due_s - self._loop.now())
            self._timer = self._loop.call_later(delay_s, self._rung)

    def _rung(self) -> None:
        self._due_s = self._timer = None
        self._ring()


class SlotRunner:
    """All slots of one run. Used on the loop.

    Args:
        jobs: Run the slots' tasks.
        keys: The keys of the run.
        pause_s: Returns the pause after this number of fruitless jobs in a row, from 1.
        missing_s: How long a slot may have no task.
        loop: Time and threads.
        limits: How long to wait for slots.
        open_socket: Makes the driver's socket; a simulator passes its own.
    """

    def __init__(
        self,
        jobs: SlotJobRunner,
        keys: Keys,
        pause_s: Callable[[int], float],
        missing_s: float,
        loop: SlotLoop,
        limits: SlotLimits = LIMITS,
        open_socket: OpenSocket = DriverSocket,
    ) -> None:
        self._jobs = jobs
        self._keys = keys
        self._pause_s, self._missing_s = pause_s, missing_s
        self._loop = loop
        self._limits = limits
        self._open_socket = open_socket
        self._timer = DeadlineTimer(loop, partial(self._take, TimePassed()))
        self._events: deque[Event] = deque()
        self._handling = False
        self._cores: Cores | None = None
        self._done: Callable[[], None] = _nothing
        self.slots: Sequence[SlotRecord] = ()
        """The slots, by number."""

    def start(self, compiled: CompiledTopology, user: SlotUser) -> None:
        """Listen, and submit a job for each slot."""
        self._user = user
        self._topology_id = compiled.topology_id
        self._jobs.start(compiled)
        self._socket = self._open_socket(
            self._keys, self._jobs.bind_host, self._loop, self._heard, self._unreachable
        )
        self._socket.open()
        self._supervisor = SlotSupervisor(
            SupervisorSettings(
                slots=compiled.slots,
                pause_s=self._pause_s,
                missing_s=self._missing_s,
                silent_s=self._limits.silent_s,
                stop_s=self._limits.stop_s,
            )
        )
        self.slots = self._supervisor.slots
        self._do_all(self._supervisor.start(self._loop.now()))

    def send(self, slot: int, kind: bytes, *frames: bytes) -> None:
        """Send to the task that owns a slot, if there is one."""
        owner = self.slots[slot].owner
        if owner is not None:
            self._socket.send(owner, kind, *frames)

    def restart(self, slot: int) -> None:
        """Cancel the job of a slot that still works on cancelled work.

        Another job follows, unless the run ends.
        """
        self._take(RestartRequested(slot))

    def stop(self, done: Callable[[], None]) -> None:
        """Tell the tasks to end; cancel the jobs of those that do not; then call *done*."""
        if not self.slots:
            done()  # the slots were never started
            return
        self._done = done
        self._take(EndRequested())

    # ------------------------------------------------------------ events

    def _take(self, event: Event) -> None:
        """Handle an event after the actions of all earlier events are done.

        An action can cause the next event before it returns: its user may restart a slot.
        """
        self._events.append(event)
        if self._handling:
            return
        self._handling = True
        try:
            while self._events:
                self._do_all(self._supervisor.handle(self._events.popleft(), self._loop.now()))
        finally:
            self._handling = False

    def _heard(self, letters: list[Letter]) -> None:
        for identity, kind, slot_frame, *frames in letters:
            slot, submission = wire.slot_of(slot_frame), wire.submission_of(identity)
            if kind == wire.HELLO:
                self._take(TaskGreeted(slot, identity, submission, frames[0].decode()))
            elif kind == wire.READY:
                self._take(TaskReady(slot, identity, submission))
            else:
                # NEWS is only about spouts; it does not show that the task survives its work.
                leaves, works = kind == wire.BYE, kind != wire.NEWS
                self._take(TaskSaid(slot, identity, submission, tuple(frames), leaves, works))

    def _unreachable(self, identity: bytes) -> None:
        self._take(ConnectionLost(identity))

    def _job_ended(self, slot: int, submission: int, future: Future[None]) -> None:
        error = future.exception()
        # The error of the job does not name this cause, and no other job can follow.
        if not self._supervisor.stopping and self._jobs.stopped:
            error = session_stopped()
        if isinstance(error, RunLostError):
            self._take(JobLost(slot, submission, error))
        elif isinstance(error, Exception):
            self._take(JobFailed(slot, submission, error))
        else:
            # The task returned: it was told to do so, or had lost its connection.
            ended = RunLostError("its task ended", counted=False, cancelled=False)
            self._take(JobLost(slot, submission, ended))

    # ------------------------------------------------------------ actions

    def _do_all(self, actions: list[Action]) -> None:
        self._timer.set(self._supervisor.due_s)
        for action in actions:
            self._do(action)

    def _do(self, action: Action) -> None:
        match action:
            case SubmitJob(slot, submission):
                driver = f"tcp://{self._jobs.host}:{self._socket.port}"
                run = partial(self._jobs.run, slot, submission, self._keys, driver)
                self._loop.submit_lasting(run, partial(self._job_ended, slot, submission))
            case CancelJob(slot, submission):
                # Its outcome is ignored: a cancellation shows when the job ends.
                self._loop.submit(partial(self._jobs.cancel, slot, submission), _ignore)
            case WelcomeTask(identity, life):
                self._socket.send(identity, wire.WELCOME, pack(life))
            case CutOffTask(identity, dormant):
                how = wire.DORMANT if dormant else wire.RETURN
                self._socket.send(identity, wire.CUT_OFF, how)
            case EndTask(identity):
                self._socket.send(identity, wire.END)
            case PingTasks(identities):
                self._socket.pinged = identities
            case JobRetried():
                warn_of_retry(
                    f"slot {action.slot}",
                    action.error,
                    topology=self._topology_id,
                    failures=action.failures,
                    pause_s=action.pause_s,
                )
            case SlotMissing():
                self._miss(action)
            case Close():
                self._socket.close(self._done)
                self._jobs.close()  # last, since it may fail if Spark is gone
            case _:
                self._tell(action)

    def _tell(self, action: SlotReady | SlotSaid | LifeLost | SlotFailed | SlotsMoved) -> None:
        match action:
            case SlotReady():
                self._user.slot_ready(action)
            case SlotSaid():
                self._user.slot_said(action)
            case LifeLost():
                self._user.slot_lost(action)
            case SlotFailed():
                self._user.slot_failed(action)
            case SlotsMoved():
                self._user.slots_moved()

    def _miss(self, missing: SlotMissing) -> None:
        """Warn that a slot is missing, with the number of cores.

        Spark is asked for the cores on another thread, since Spark may be what hangs. The first
        warning waits for its answer. An overdue slot is reported at once, with the last answer. If
        the session was stopped, the job may have been dropped: see ``SparkJobs.check_session``.
        """
        if missing.overdue:
            self._warn(missing)
            self._user.slot_overdue(missing.slot, self._unavailable(missing))

        def look() -> Cores | None:
            return None if self._jobs.stopped else self._jobs.cores()

        def told(future: Future[Cores | None]) -> None:
            if future.exception() is None:
                cores = future.result()
                if cores is None:
                    error = session_stopped()
                    self._take(JobFailed(missing.slot, missing.submission, error))
                    return
                self._cores = cores
            if not missing.overdue and self.slots[missing.slot].missing_since_s is not None:
                self._warn(missing)

        self._loop.submit(look, told)

    def _warn(self, missing: SlotMissing) -> None:
        text = self._missing_text(missing)
        attributes = {
            "topology": self._topology_id,
            "failures": self.slots[missing.slot].fruitless_jobs,
            "cause": text,
            **self._facts(missing),
        }
        _logger.warning("topology %r: %s", self._topology_id, text, extra=attributes)

    def _unavailable(self, missing: SlotMissing) -> SlotUnavailable:
        text = f"{self._missing_text(missing)}, or raise batch_timeout_s"
        return SlotUnavailable(text, **self._facts(missing))

    def _missing_text(self, missing: SlotMissing) -> str:
        known = "got an unknown number of cores"
        if self._cores is not None:
            known = f"got {self._cores.all} cores, {self._cores.free} of them free"
        stands = _STANDS[self.slots[missing.slot].status].format(missing.submission)
        return (
            f"slot {missing.slot} has had no working task for {missing.missing_s:.3g} s; "
            f"{stands}; {known}; expected {len(self.slots)}, one for each slot; check for a lost "
            "worker or executor; start another one, or use fewer slots with Config(slots=…)"
        )

    def _facts(self, missing: SlotMissing) -> dict[str, object]:
        return {
            "slot": missing.slot,
            "slots": len(self.slots),
            "submission": missing.submission,
            "cores": None if self._cores is None else self._cores.all,
            "missing_s": missing.missing_s,
            "limit_s": self._missing_s,
        }


def _ignore(_: Future[None]) -> None:
    """Ignore the outcome of a cancellation: the end of the job shows it."""


def _nothing() -> None:
    """Do nothing: ``stop`` has not been called."""
