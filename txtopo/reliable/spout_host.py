"""SpoutHost: the spout tasks of one slot, with its ackers.

A slot hosts the spout tasks with *number among all spout tasks mod slots = slot*, as long as it
lives. Its spouts, the list of their pending trees and the ackers in this slot are created together
and lost together. With ``AtLeastOnceConfig(ackers=None)`` the acker of a tree is in the slot of its
spout. Then a tree begins and ends with calls inside one process, and only answers of bolts in other
slots travel. Otherwise the acker may be in another slot with spouts. Then the spout's slot reports
to it which trees have begun, and it reports back how they have ended
(:mod:`txtopo.reliable.anchoring.answers`).

Rules
-----
1. A spout that blocks does not delay bolts or other spouts.
2. A task emits only under a *grant* of the driver: in one turn per grant, and at most as many
   tuples as the grant allows.
3. A grant is valid until the next one arrives. A turn without a tuple does not use it up. An idle
   slot sends the driver nothing.
4. A tree is pending until its spout's ``ack`` or ``fail`` has been called.
5. A task is *dry* since the grant of its last turn if the last ``next_tuple`` of that turn emitted
   nothing, and the spout has said since the grant that it has no more. A turn that only calls
   ``ack`` and ``fail``, without asking for tuples, ends this: the spout may have something to emit
   again.
6. Timeouts follow the slot's own clock.
7. Only the slot of the spout ends a tree. If an acker reports the end of a tree that is not
   pending, the report is ignored.

Each spout task has its own thread, on which it has one *turn* after the other. Everything else
happens on the thread of the host, the *loop*. ``ack`` and ``fail`` are called at any time. A task
that emitted nothing gets its next turn after a pause. A task that has reached its limit of pending
trees gets it when trees have ended. When a turn ends, its trees are begun first, then its envelopes
are sent, and then the changes are reported.

The carrier runs the host. In this process it runs on the loop of the driver. On Spark it runs on
the thread of the Spark task, between two works of the bolts and whenever a part of a work leaves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol

import numpy as np

from txtopo.config import AtLeastOnceConfig
from txtopo.reliable.acking import NONE, Acker, Column, Ended, EndedTrees, PendingTrees, RootXors
from txtopo.reliable.anchoring.answers import BegunTrees, TreeAnswers, TreeEnds, open_told
from txtopo.reliable.anchoring.envelope import (
    Complaint,
    FailedTrees,
    SlotReport,
    SpoutGrant,
    SpoutReport,
)
from txtopo.reliable.anchoring.sending import Sealed, sent
from txtopo.reliable.anchoring.spout_task import (
    EndedMessages,
    ReliableSpoutTask,
    Turn,
    TurnLimits,
    ackers_of,
    spout_tasks,
)
from txtopo.runtime.scheduler import Callback, SerialExecutor, Timer
from txtopo.stages.compiled_topology import CompiledTopology, PlannedComponent

# Without a limit, a spout that never replays would fill the memory.
_FAILED_IDS_MAX = 100_000


class HostLoop(Protocol):
    """Time, timers and threads of the loop on which a host runs."""

    def now(self) -> float:
        """Return the seconds of a monotonic clock."""
        ...

    def call_later(self, delay_s: float, callback: Callback) -> Timer:
        """Call *callback* on the loop after a delay."""
        ...

    def serial_executor(self, name: str) -> SerialExecutor:
        """Return a new thread that runs calls in order."""
        ...

    def seed(self) -> int:
        """Return a random number of 64 bits."""
        ...


class SpoutHost:
    """Hosts the spouts and the ackers of one slot for as long as it lives. Used on the loop.

    Args:
        compiled: The topology.
        slot: Number of the slot.
        loop: Time and threads.
        send: Called with records for slots, including this one: envelopes, and news of trees.
        changed: Called when :meth:`take` has something to report.
    """

    def __init__(
        self,
        compiled: CompiledTopology,
        slot: int,
        loop: HostLoop,
        send: Callable[[list[Sealed]], None],
        changed: Callback,
    ) -> None:
        config = compiled.config
        assert isinstance(config, AtLeastOnceConfig)
        self._compiled, self._slot, self._loop = compiled, slot, loop
        self._send, self._changed = send, changed
        self._pending_max = config.max_spout_pending
        self._timeout_s = config.message_timeout_s
        self._pause_max_s = config.poll_interval_s
        self._grant = SpoutGrant(0, 0, active=False)
        self._report, self._spouts = SlotReport(), SpoutReport()
        self._told = True
        self._standing: tuple[int, int, int, bool] | None = None
        self._runners: list[SpoutRunner] = []
        self._closed = False
        self.trees = PendingTrees(0)
        """The pending trees of the slot's spouts."""
        self._ackers = ackers_of(compiled)
        self.ackers = {number: Acker() for number in self._ackers.in_slot(slot)}
        """The ackers in this slot, by number."""
        self._pending_by: Counter[int] = Counter()

    def open(self) -> None:
        """Create the spout tasks of the slot, and open them."""
        mine = spout_tasks(self._compiled)[self._slot :: self._compiled.slots]
        self.trees = PendingTrees(len(mine))
        for component, task in mine:
            try:
                self._runners.append(self._runner(component, task))
            except Exception as error:  # noqa: BLE001 - user code that cannot be unpickled here
                self._fail((component.id, task), error)
                return
        for runner in self._runners:
            runner.open(self.go_on)
        if self._runners:
            self._loop.call_later(self._timeout_s, self._rotate)

    def grant(self, grant: SpoutGrant) -> None:
        """Let the spouts emit under a grant, until the next one arrives."""
        self._grant = grant
        self.go_on()
        if not grant.active and not self._active:
            self._tell()

    def hear(self, record: bytes) -> None:
        """Process a record of a slot about trees. Call :meth:`go_on` after the last record."""
        told = open_told(record)
        if isinstance(told, TreeEnds):
            self._end(told)
        elif isinstance(told, BegunTrees):
            self._follow(told.begun)
        else:
            self._answer(told)

    def lose_ackers(self) -> None:
        """Replace the ackers by empty ones, for tests and simulations."""
        self.ackers = {number: Acker() for number in self.ackers}

    def go_on(self) -> None:
        """Give each spout task that has something to do its next turn."""
        if self._closed:
            return
        for owner, runner in enumerate(self._runners):
            limit = self._pending_max
            trees = None if limit is None else max(0, limit - int(self.trees.by_owner[owner]))
            runner.wake(self._grant, trees)

    def take(self) -> SlotReport | None:
        """Return a report of the changes since the last call; None if nothing has changed."""
        if self._told:
            return None
        report, spouts = self._report, self._spouts
        self._report, self._spouts, self._told = SlotReport(), SpoutReport(), True
        self._standing = self._stands()
        spouts.granted = self._grant.number
        spouts.used, spouts.dry, spouts.pending, spouts.active = self._standing
        spouts.pending_by = +self._pending_by
        report.spouts = spouts
        return report

    def close(self, closed: Callback) -> None:
        """Close the spouts when their turns have ended, then call *closed*.

        Their exceptions are reported as complaints.
        """
        waiting = 1 + len(self._runners)
        self._closed = True

        def done(complaint: Complaint | None = None) -> None:
            nonlocal waiting
            if complaint is not None:
                self._report.complaints.append(complaint)
                self._told = False
            waiting -= 1
            if not waiting:
                closed()

        for runner in self._runners:
            runner.close(done)
        done()

    def die(self) -> None:
        """Drop the tasks. Results of turns that still run are ignored."""
        self._closed = True
        for runner in self._runners:
            runner.die()

    @property
    def _active(self) -> bool:
        return any(each.active for each in self._runners)

    def _stands(self) -> tuple[int, int, int, bool]:
        """Return (used, dry, pending, active) of the next report."""
        used = max((each.used for each in self._runners), default=0)
        dry = min((each.dry for each in self._runners), default=0)
        pending = len(self.trees) + sum(each.untold for each in self._runners)
        return used, dry, pending, self._active

    def _runner(self, component: PlannedComponent, task: int) -> SpoutRunner:
        loop = self._loop
        made = ReliableSpoutTask(
            self._compiled, component, task, self._slot, loop.seed(), now=loop.now
        )
        owner = len(self._runners)
        return SpoutRunner(
            made,
            loop,
            self._pause_max_s,
            self.go_on,
            partial(self._turned, owner),
            partial(self._fail, made.name),
        )

    def _turned(self, owner: int, turn: Turn) -> None:
        report, spouts = self._report, self._spouts
        report.counts.update(turn.counts)
        report.complaints += turn.complaints
        if turn.messages:
            spouts.replays += self._runners[owner].begun(turn.messages)
            self.trees.begin(owner, turn.begun.roots, turn.messages, self._loop.now())
            self._pending_by.update(self._by_acker(turn.begun.roots))
            self._begin(turn.begun)
        if turn.emitted:
            tuples = sent(turn.sealed)
            spouts.emitted += turn.emitted
            spouts.sent.update(tuples)
            report.sent.update(tuples)
            self._send(turn.sealed)
        if turn.emitted or turn.complaints or self._stands() != self._standing:
            self._tell()
        self.go_on()

    def _begin(self, begun: RootXors) -> None:
        """Have the ackers follow trees of this slot."""
        if self._ackers.wanted is None:
            self._follow(begun)
        else:
            self._send(list(BegunTrees(begun).seal(self._ackers)))

    def _follow(self, begun: RootXors) -> None:
        """Have the ackers of this slot follow trees."""
        ends = []
        for acker, mine in self._followed(begun.roots):
            ends.append(acker.init(RootXors(begun.roots[mine], begun.values[mine])))
        self._tell_ends(ends)

    def _answer(self, told: TreeAnswers) -> None:
        """Pass answers of bolts to the ackers of this slot."""
        ends = []
        for acker, mine in self._followed(told.acked.roots):
            ends.append(acker.ack(RootXors(told.acked.roots[mine], told.acked.values[mine])))
        for acker, mine in self._followed(told.failed):
            ends.append(acker.fail(told.failed[mine]))
        for acker, mine in self._followed(told.renewed):
            acker.reset(told.renewed[mine])
        self._tell_ends(ends, told.renewed)

    def _followed(self, roots: Column) -> Iterator[tuple[Acker, Any]]:
        """Yield each acker of this slot that follows some of these trees, with their positions."""
        if not len(roots):
            return
        if len(self.ackers) == 1:
            yield next(iter(self.ackers.values())), slice(None)
            return
        numbers = self._ackers.of(roots)
        for number, acker in self.ackers.items():
            mine = np.flatnonzero(numbers == number)
            if len(mine):
                yield acker, mine

    def _tell_ends(self, ends: Sequence[Ended], renewed: Column = NONE) -> None:
        """Report the ended trees of this slot's ackers to the slots of their spouts."""
        told = TreeEnds(
            np.concatenate([each.completed for each in ends] or [NONE]),
            np.concatenate([each.failed for each in ends] or [NONE]),
            renewed,
        )
        if self._ackers.wanted is None:
            self._end(told)
        else:
            self._send(list(told.seal(self._ackers)))

    def _end(self, ends: TreeEnds) -> None:
        """End trees of this slot's spouts, or give them a new timeout."""
        if len(ends.completed):
            completed = self.trees.end(ends.completed)
            spouts = self._spouts
            took = (self._loop.now() - completed.started_s).astype(np.float32)
            spouts.latencies_s = np.concatenate((spouts.latencies_s, took))
            self._count("completed", completed)
            for owner, message in zip(completed.owners.tolist(), completed.messages, strict=True):
                self._runners[owner].ends.acked.append(message)
        if len(ends.failed):
            self._failed(self.trees.end(ends.failed), timed_out=False)
        if len(ends.renewed):
            self.trees.renew(ends.renewed)

    def _failed(self, trees: EndedTrees, *, timed_out: bool) -> None:
        self._count("timed out" if timed_out else "failed", trees)
        by_owner: dict[int, list[Any]] = {}
        for owner, message in zip(trees.owners.tolist(), trees.messages, strict=True):
            by_owner.setdefault(owner, []).append(message)
        for owner, messages in by_owner.items():
            runner = self._runners[owner]
            runner.failed(messages)
            self._spouts.failed.append(FailedTrees(*runner.name, messages, timed_out))

    def _count(self, how: str, trees: EndedTrees) -> None:
        for acker, ended in self._by_acker(trees.roots).items():
            self._pending_by[acker] -= ended
            self._spouts.ends[how, acker] += ended

    def _by_acker(self, roots: Column) -> dict[int, int]:
        """Return how many of the trees each acker follows."""
        if self._ackers.wanted is None:
            return {self._slot: len(roots)} if len(roots) else {}
        numbers, counts = np.unique(self._ackers.of(roots), return_counts=True)
        return dict(zip(numbers.tolist(), counts.tolist(), strict=True))

    def _rotate(self) -> None:
        if not self._closed:
            for acker in self.ackers.values():
                acker.rotate()
            self._failed(self.trees.rotate(), timed_out=True)
            self._loop.call_later(self._timeout_s, self._rotate)
            self.go_on()

    def _fail(self, name: tuple[str, int], error: BaseException) -> None:
        raised = error if isinstance(error, Exception) else RuntimeError(repr(error))
        self._report.crash = self._report.crash or Complaint(*name, raised)
        self._tell()

    def _tell(self) -> None:
        self._told = False
        self._changed()


# A spout that emitted nothing gets its next turn after this pause, which is Storm's. The pause then
# doubles each time, up to poll_interval_s, so an idle topology costs almost nothing.
PAUSE_S = 0.001

# A spout that may not emit is called at this interval, so that its source does not consider it
# dead.
TEND_S = 1.0


class SpoutRunner:
    """Gives one spout task its turns, one at a time, all on one thread. Used on the loop.

    Args:
        task: The task.
        loop: Time and threads.
        pause_max_s: Longest pause after a turn in which the spout emitted nothing.
        ring: Called when a pause has ended.
        made: Called with the result of each turn.
        fail: Called with an exception of the spout.
    """

    def __init__(
        self,
        task: ReliableSpoutTask,
        loop: HostLoop,
        pause_max_s: float,
        ring: Callback,
        made: Callable[[Turn], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self.name = task.name
        self.ends = EndedMessages()
        """Message ids whose ``ack`` or ``fail`` has not been called yet."""
        self.used = 0
        """Number of the grant of the last turn in which it emitted."""
        self.dry = 0
        """Number of the grant under which it had nothing more to emit at the end of its last turn;
        0 if it may have something."""
        self.active = False
        """Whether it is active, or is being activated or deactivated."""
        self._task = task
        self._loop = loop
        self._executor: SerialExecutor = loop.serial_executor("-".join(map(str, task.name)))
        self._pause_max_s = pause_max_s
        self._ring = ring
        self._made = made
        self._fail = fail
        self._pause_s = PAUSE_S
        self._timer: Timer | None = None
        self._tend_timer: Timer | None = None
        self._tends = False
        self._telling = 0
        self._active = self._dead = False
        self._busy = True
        self._failed_ids: dict[Any, None] = {}

    @property
    def untold(self) -> int:
        """Number of ended trees whose ``ack`` or ``fail`` call has not returned yet."""
        return self._telling + len(self.ends.acked) + len(self.ends.failed)

    def open(self, opened: Callback) -> None:
        """Open the spout, then call *opened*."""

        def done(future: Future[None]) -> None:
            self._busy = False
            if self._heard(future):
                opened()

        self._executor.submit(self._task.open, done)

    def wake(self, grant: SpoutGrant, trees: int | None) -> None:
        """Start a turn if there is something to do.

        Args:
            grant: The valid grant.
            trees: How many more trees may be pending; None for any number.
        """
        if self._busy or self._dead:
            return
        tuples = grant.tuples if grant.active and grant.number > self.used else 0
        limits = TurnLimits(trees=trees, tuples=tuples, settles=self.dry != grant.number)
        wants = bool(limits) and self._timer is None
        if not (self.ends or wants or self._tends or grant.active != self._active):
            if not limits and self._tend_timer is None and self._task.tends:
                self._tend_timer = self._loop.call_later(TEND_S, self._tend)
            return
        self._tends = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._busy, self._active, self.active = True, grant.active, True
        ends, self.ends = self.ends, EndedMessages()
        self._telling = len(ends.acked) + len(ends.failed)
        work = partial(self._task.turn, ends, active=grant.active, limits=limits)
        self._executor.submit(work, partial(self._turned, grant.number if limits else 0))

    def begun(self, messages: Sequence[Any]) -> int:
        """Return how many new trees are replays: an earlier tree of the message id failed."""
        failed, replays = self._failed_ids, 0
        if failed:
            for message in messages:
                if _hashable(message) and message in failed:
                    del failed[message]
                    replays += 1
        return replays

    def failed(self, messages: Sequence[Any]) -> None:
        """Call the spout's ``fail`` for trees in its next turn."""
        self.ends.failed += messages
        for message in messages:
            if _hashable(message) and len(self._failed_ids) < _FAILED_IDS_MAX:
                self._failed_ids[message] = None

    def die(self) -> None:
        """Drop the task. Results of a turn that still runs are ignored."""
        self._dead = True
        for timer in (self._timer, self._tend_timer):
            if timer is not None:
                timer.cancel()
        self._executor.close()

    def close(self, closed: Callable[[Complaint | None], None]) -> None:
        """Close the spout when its current turn has ended, then call *closed* with its error."""

        def done(future: Future[None]) -> None:
            error = future.exception()
            if error is None:
                closed(None)
            else:
                raised = error if isinstance(error, Exception) else RuntimeError(repr(error))
                closed(Complaint(*self.name, raised))

        self._executor.submit(self._task.close, done)
        self.die()

    def _turned(self, asked: int, future: Future[Turn]) -> None:
        told, self._telling = self._telling, 0
        self._busy, self.active = False, self._active
        if not self._heard(future):
            return
        turn = future.result()
        if asked:
            self.dry = asked if turn.dry else 0
        elif told:
            self.dry = 0
        if turn.emitted:
            self.used = max(self.used, asked)
            self._pause_s = PAUSE_S
        elif turn.idle:
            self._timer = self._loop.call_later(self._pause_s, self._rung)
            self._pause_s = min(2 * self._pause_s, self._pause_max_s)
        self._made(turn)

    def _tend(self) -> None:
        self._tend_timer, self._tends = None, True
        self._ring()

    def _rung(self) -> None:
        self._timer = None
        self._ring()

    def _heard(self, future: Future[None] | Future[Turn]) -> bool:
        if self._dead:
            return False
        error = future.exception()
        if error is not None:
            self._dead = True  # it ends the topology; until then the spout is not called again
            self._fail(error)
        return error is None


def _hashable(message: Any) -> bool:
    try:
        hash(message)
    except TypeError:
        return False
    return True
