"""ResidentCarrier: sends envelopes by ZeroMQ to slots that live as long as the topology runs.

For classic Spark. A run does not need its own Spark job: the tasks are already running, and the
driver gives them one stage after the other, as :mod:`txtopo.resident.orders` decides.
:class:`StageSlots` does that on its own loop, since the slots continue while the topology waits for
ZooKeeper or a store. :class:`ResidentCarrier` is its blocking interface.

If ``carrier="auto"`` chose this carrier and a slot is missing for too long, it ends its slots,
which frees their cores, and continues with the carrier ``rdd``. The current runs are lost, as with
a lost executor. So are cuts that wait here for a commit in tasks. Their batches are processed
again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import count

from txtopo.attempt import TransactionAttempt
from txtopo.carriers.carrier import Carrier, RunOutput
from txtopo.carriers.spark_jobs import session_stopped
from txtopo.config import Config
from txtopo.errors import RunLostError, SlotUnavailable
from txtopo.log_records import logger_of, one_line
from txtopo.resident import wire
from txtopo.resident.orders import (
    Action,
    AllFailed,
    ChainCancelled,
    ChangeCarrier,
    Event,
    GiveOrder,
    Level,
    LevelDone,
    LevelFailed,
    LevelOrdered,
    LevelOrders,
    OrderSettings,
    QueueStatus,
    RestartSlot,
    SlotAnswered,
    SlotOverdue,
    SlotQueue,
)
from txtopo.resident.slot_jobs import SlotJobRunner
from txtopo.resident.slot_runner import (
    LIMITS,
    DeadlineTimer,
    OpenSocket,
    SlotLimits,
    SlotRunner,
)
from txtopo.resident.sockets import Keys
from txtopo.resident.supervisor import (
    LifeLost,
    SlotFailed,
    SlotReady,
    SlotRecord,
    SlotSaid,
    TimePassed,
)
from txtopo.resident.transport import DriverSocket, SlotLoop
from txtopo.resident.wire import pack_order, unpack_answer
from txtopo.retries import LOGGER
from txtopo.runtime.scheduler import ThreadScheduler
from txtopo.stages.compiled_topology import Chain, CompiledTopology, Run
from txtopo.stages.permits import Permits, ask_for, no_permits
from txtopo.stages.pickling import pack
from txtopo.stages.stage_context import DRIVER, ByAddress, Record, RunLevel, by_address

Answers = list[list[Record]]
"""The records that each slot yielded for a request."""

_logger = logger_of(LOGGER)


class ResidentCarrier:
    """Moves envelopes between resident slots through the driver.

    Args:
        jobs: Run the slots' tasks.
        keys: The keys of the run.
        config: How to run.
        slots: How many slots the session has room for.
        scheduler: Its own time and threads; this carrier stops it.
        limits: How long to wait for slots.
        replacement: Makes the carrier that takes over if a slot is missing for too long.
    """

    has_engine = False

    def __init__(
        self,
        jobs: SlotJobRunner,
        keys: Keys,
        config: Config,
        slots: int,
        scheduler: ThreadScheduler,
        limits: SlotLimits = LIMITS,
        replacement: Callable[[], Carrier] | None = None,
    ) -> None:
        self.keeps_handover_in_driver = True
        self._room = slots
        self._scheduler = scheduler
        self._replacement = replacement
        changed = None if replacement is None else self._change
        self._slots = StageSlots(jobs, keys, config, scheduler, limits, changed=changed)
        self._compiled: CompiledTopology | None = None
        self._replaced: Future[Carrier] | None = None
        self._ended = False
        self._closed: Future[None] = Future()

    def default_slots(self) -> int:
        """Return how many slots there is room for."""
        return self._room

    def start(self, compiled: CompiledTopology) -> None:
        """Start the slots, without waiting for them; runs wait for them."""
        started: Future[None] = Future()

        def first() -> None:
            try:
                self._slots.start(compiled)
            except BaseException as error:  # noqa: BLE001 - the caller hears of every outcome
                started.set_exception(error)
                self._scheduler.stop()
            else:
                started.set_result(None)

        self._scheduler.start(first, self._slots.fail_all)
        started.result()
        self._compiled = compiled

    def process(self, run: Run) -> RunOutput:
        """Take a run through the levels of the processing phase."""
        if self._replaced is not None:
            return self._replaced.result().process(run)
        return RunOutput.divided(run, self._chain("processing", run, {}, run.tag))

    def commit(
        self, output: RunOutput, attempt: TransactionAttempt, permits: Permits = no_permits
    ) -> list[bytes]:
        """Take one attempt of a processed run through the levels of the commit phase."""
        # The handover of a run that the slots processed is a dict; Spark's is an RDD.
        if self._replaced is not None and not isinstance(output.handover, dict):
            return self._replaced.result().commit(output, attempt, permits)
        assert self._compiled is not None
        run, handover = output.run, output.handover_of(attempt, self._compiled.slots)
        records = self._chain(
            "commit", run.only(attempt), handover, run.commit_tag(attempt), permits
        )
        return records.get(DRIVER, [])

    def release(self, output: RunOutput) -> None:
        """Forget the handover of a processed run."""
        output.handover = None

    def cancel(self, tag: str) -> None:
        """Cancel a chain, even if it has not started yet; user code that hangs is killed."""
        self._scheduler.post(partial(self._slots.cancel, tag))
        if self._replaced is not None:
            self._replaced.add_done_callback(partial(_cancel, tag))

    def check_session(self) -> None:
        """Check that the session was not stopped while a chain is in flight."""
        if self._replaced is None:
            self._slots.check_session()
        elif self._replaced.done() and self._replaced.exception() is None:
            self._replaced.result().check_session()

    def close(self) -> None:
        """Cancel everything and wait until the slots have released their cores."""
        if self._compiled is None or self._closed.done():
            return
        self._scheduler.post(self._end)
        self._closed.result()
        if self._replaced is not None and self._replaced.exception() is None:
            self._replaced.result().close()

    # ------------------------------------------------------------ on the loop of the slots

    def _end(self) -> None:
        self._ended = True
        if self._replaced is None:
            self._slots.stop(self._all_ended)
        elif self._replaced.done():
            self._all_ended()

    def _all_ended(self) -> None:
        self._closed.set_result(None)
        self._scheduler.stop()

    def _change(self, error: SlotUnavailable) -> None:
        """End the slots, and hand over to the carrier that takes their place."""
        assert self._compiled is not None
        assert self._replacement is not None
        _logger.warning(
            "topology %r: %s; the run continues with the carrier 'rdd'",
            self._compiled.topology_id,
            error,
            extra={
                "topology": self._compiled.topology_id,
                "failures": 1,
                "cause": one_line(error),
                **error.facts,
            },
        )
        self.keeps_handover_in_driver = False
        self._replaced = Future()
        made = partial(_started, self._replacement, self._compiled)
        self._slots.stop(lambda: self._scheduler.submit(made, self._changed))

    def _changed(self, made: Future[Carrier]) -> None:
        assert self._replaced is not None
        error = made.exception()
        if error is None:
            self._replaced.set_result(made.result())
        else:
            self._replaced.set_exception(error)
        if self._ended:
            self._all_ended()

    # ------------------------------------------------------------ on threads of the topology

    def _chain(
        self,
        chain: Chain,
        run: Run,
        records: ByAddress,
        tag: str,
        permits: Permits = no_permits,
    ) -> ByAddress:
        assert self._compiled is not None
        ids = self._compiled.levels_of(chain)
        for part in self._compiled.divided_levels(chain):
            if chain == "commit":
                ask_for(itertools.chain.from_iterable(ids[level] for level in part), permits)
            levels = tuple(RunLevel(chain, run, level) for level in part)
            request = StageRequest(tag, levels, pack(levels), records)
            records = by_address(itertools.chain.from_iterable(self._answers(request)))
        return records

    def _answers(self, request: StageRequest) -> Answers:
        done: Future[Answers] = Future()
        self._scheduler.post(partial(self._slots.compute, request, done))
        if self._closed.done() and not done.done():
            # Posted after the loop's last turn, so no callback runs any more.
            raise RunLostError("the topology has ended", counted=False, cancelled=True)
        return done.result()


@dataclass(frozen=True, slots=True)
class StageRequest:
    """Levels of a chain that each slot can compute without the others.

    Attributes:
        tag: Tag of their chain.
        levels: The levels, in order.
        packed_levels: The levels, pickled for sending.
        records: The records for each slot.
    """

    tag: str
    levels: tuple[RunLevel, ...]
    packed_levels: bytes
    records: Mapping[int, Sequence[bytes]]

    @property
    def urgency(self) -> tuple[int, int, int]:
        """The sort key. Commits come first, since everything waits for them, then lower txids."""
        first = self.levels[0]
        return int(first.chain != "commit"), first.run.attempts[0].txid, first.level


class StageSlots:
    """The slots of a transactional topology, as the driver uses them. Used on the loop.

    Args:
        jobs: Run the slots' tasks.
        keys: The keys of the run.
        config: How to run.
        loop: Time and threads.
        limits: How long to wait for slots.
        open_socket: Makes the driver's socket; a simulator passes its own.
        changed: Called when a slot is missing for too long, so that another carrier takes over.
            If None, the run fails instead.
    """

    def __init__(
        self,
        jobs: SlotJobRunner,
        keys: Keys,
        config: Config,
        loop: SlotLoop,
        limits: SlotLimits = LIMITS,
        open_socket: OpenSocket = DriverSocket,
        changed: Callable[[SlotUnavailable], None] | None = None,
    ) -> None:
        self._runner = SlotRunner(
            jobs, keys, config.pause_s, config.batch_timeout_s, loop, limits, open_socket
        )
        self._jobs = jobs
        self._loop = loop
        self._limits = limits
        self._changed = changed
        self._numbers = count(1)
        self._requests: dict[Level, tuple[StageRequest, Future[Answers]]] = {}
        self._timer = DeadlineTimer(loop, partial(self._take, TimePassed()))

    @property
    def slots(self) -> Sequence[SlotRecord]:
        """The slots, by number."""
        return self._runner.slots

    @property
    def queues(self) -> Sequence[SlotQueue]:
        """The queue of each slot."""
        return self._orders.queues

    def start(self, compiled: CompiledTopology) -> None:
        """Start all slots."""
        self._orders = LevelOrders(
            OrderSettings(
                slots=compiled.slots,
                changes_carrier=self._changed is not None,
                cancel_s=self._limits.cancel_s,
                reason_s=self._limits.reason_s,
            )
        )
        self._runner.start(compiled, self)

    def compute(self, request: StageRequest, done: Future[Answers]) -> None:
        """Make all slots compute levels. *done* gets their answers, or the error."""
        level = Level(next(self._numbers), request.tag, request.urgency)
        self._requests[level] = request, done
        self._take(LevelOrdered(level))

    def cancel(self, tag: str) -> None:
        """Cancel the levels of a chain, including those that are not ordered yet."""
        self._take(ChainCancelled(tag))

    def check_session(self) -> None:
        """Check that the session was not stopped while levels are computed; from any thread.

        Raises:
            ConfigError: It was stopped; start the topology with another one.
        """
        if self._requests and self._jobs.stopped:
            raise session_stopped()

    def fail_all(self, error: BaseException) -> None:
        """Fail everything, now and from now on."""
        self._take(AllFailed(error))

    def stop(self, done: Callable[[], None]) -> None:
        """Cancel everything and end the tasks, then call *done*."""
        self.fail_all(RunLostError("the topology has ended", counted=False, cancelled=True))
        for queue in self._orders.queues:
            if queue.status is QueueStatus.ABANDONED:
                self._runner.restart(queue.slot)  # while it computes, it would not see the END
        self._runner.stop(done)

    # ------------------------------------------------------------ what slots say

    def slot_ready(self, ready: SlotReady) -> None:
        """Record that the slot can be given orders."""
        self._take(ready)

    def slot_said(self, said: SlotSaid) -> None:
        """Handle an answer of a slot; drop it if its request was cancelled."""
        order, records = unpack_answer(list(said.frames))
        self._take(SlotAnswered(said.slot, order, records))

    def slot_lost(self, lost: LifeLost) -> None:
        """Fail the order of the slot, as soon as the reason for the loss is known."""
        self._take(lost)

    def slot_failed(self, failed: SlotFailed) -> None:
        """Fail everything: another job would end in the same way."""
        self.fail_all(failed.error)

    def slot_overdue(self, slot: int, error: SlotUnavailable) -> None:
        """End everything, or change the carrier, as soon as an order waits for the slot."""
        self._take(SlotOverdue(slot, error))

    def slots_moved(self) -> None:
        """Do nothing: these slots do not communicate with each other."""

    # ------------------------------------------------------------ what slots are told

    def _take(self, event: Event) -> None:
        actions = self._orders.handle(event, self._loop.now())
        self._timer.set(self._orders.due_s)
        for action in actions:
            self._do(action)

    def _do(self, action: Action) -> None:
        match action:
            case GiveOrder(slot, order, level):
                request, _ = self._requests[level]
                records = request.records.get(slot, ())
                frames = pack_order(order, request.packed_levels, records)
                self._runner.send(slot, wire.STAGE, *frames)
            case LevelDone(level, answers):
                _, done = self._requests.pop(level)
                done.set_result([*answers])  # type: ignore[list-item]
            case LevelFailed(level, error):
                _, done = self._requests.pop(level)
                done.set_exception(error)
            case RestartSlot(slot):
                self._runner.restart(slot)
            case ChangeCarrier(error):
                assert self._changed is not None
                self._changed(error)


def _started(make: Callable[[], Carrier], compiled: CompiledTopology) -> Carrier:
    carrier = make()
    carrier.start(compiled)
    return carrier


def _cancel(tag: str, replaced: Future[Carrier]) -> None:
    if replaced.exception() is None:
        replaced.result().cancel(tag)
