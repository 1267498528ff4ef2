"""Slot: the bolt tasks that live together, from ``prepare`` until the slot is lost or stopped.

A work is all that has come, and it may take long: bolts may be slow. So what came of it leaves in
*parts*: whenever the pulse says that something is due, between two tuples or in a call of the
collector, and at the end. Each part is an :class:`Outcome` of its own, made in the bolts' thread.

1. Whatever leaves is sealed before it is answered for, so a part's acks hold the ids of all that
   was anchored to the inputs by then. Acks and envelopes may overlap in any order on their way: an
   edge that was made keeps its tree open until it is acked itself.
2. Each tuple, ack, fail and count is in one part. Parts leave in order.
3. A part says how many tuples from elsewhere are done with, but for one, which the last part says:
   what they sent to this slot itself may still wait, and a slot that works is not at rest.
4. A part that is lost is lost with its life: its carrier hands on all parts of a life up to some
   point, and none after it. So a tree of which an ack was in a lost part times out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import numpy as np

from txtopo.acking import Ids, joined
from txtopo.collector import Pulse
from txtopo.stages.anchoring.bolt_task import BoltTask
from txtopo.stages.anchoring.envelope import open_envelope
from txtopo.stages.anchoring.report import Report
from txtopo.stages.anchoring.sending import Sealed, sent
from txtopo.stages.program import Program
from txtopo.tuples import Origin


class Outcome(NamedTuple):
    """What came of a work, or of a part of it: send the envelopes first, then the report."""

    sealed: list[Sealed]
    report: Report


class Slot:
    """Runs the bolts of one slot. Called by a carrier, always on one thread.

    No exception of user code leaves from here: it is the *crash* of a report.

    Args:
        program: The topology.
        slot: Which slot it is.
        seed: What its ids follow from; another one for each life of each slot.
        pulse: When a part of a work is due to leave; its ``beat`` is the carrier's affair.
        leave: Called with each part but the last, in the thread of the work.
        thread: Says which thread this is. What is due does not leave from another one: its bolt
            has broken the rules, but should not break more than that.
    """

    def __init__(
        self,
        program: Program,
        slot: int,
        seed: int,
        pulse: Pulse,
        leave: Callable[[Outcome], None],
        thread: Callable[[], int],
    ) -> None:
        self._program = program
        self._slot = slot
        self._ids = Ids(seed)
        self._tasks: dict[tuple[str, int], BoltTask] = {}
        edges = program.edges
        self._pulse = pulse
        self._leave = leave
        self._thread = thread
        self._working: int | None = None
        self._outcome = Outcome([], Report())
        self._waiting: deque[bytes] = deque()
        # Tuples from elsewhere: who executes some, how many others are done with, and were told.
        self._executing: BoltTask | None = None
        self._done = self._told = 0
        self._origins = [Origin(None, edge.source, edge.stream, edge.fields) for edge in edges]

    def prepare(self) -> Report:
        """Make and prepare the tasks."""
        report = Report()
        for component in self._program.components.values():
            if component.role.spout:
                continue
            for task in range(self._slot, component.tasks, self._program.slots):
                made = BoltTask(
                    self._program,
                    component,
                    task,
                    self._slot,
                    self._ids,
                    self._pulse,
                    self._leave_early,
                )
                if not _try(made, report, made.prepare):
                    return report
                self._tasks[component.id, task] = made
        return report

    def ticks(self) -> dict[str, float]:
        """Return the bolts that want ticks, with their intervals in seconds."""
        wanted = {id: task.tick_interval_s for (id, _), task in self._tasks.items()}
        return {id: interval_s for id, interval_s in wanted.items() if interval_s}

    def work(self, records: Iterable[bytes], ticks: Iterable[str] = ()) -> Outcome:
        """Run the bolts on envelopes, and on what they send to this slot themselves.

        Args:
            records: The envelopes.
            ticks: Bolts that are given a tick first.

        Returns:
            The last part; the others have left.
        """
        self._waiting.extend(records)
        self._done = self._told = 0
        self._working = self._thread()
        try:
            self._run(len(self._waiting), ticks)
        finally:
            self._working = None
        self._waiting.clear()
        return self._part(self._done)

    def _run(self, elsewhere: int, ticks: Iterable[str]) -> None:
        for id in ticks:
            for task in self._of(id):
                if not self._call(task, task.tick):
                    return
        while True:
            while self._waiting:
                tuples = self._receive(self._waiting.popleft(), elsewhere > 0)
                if self._outcome.report.crash is not None:
                    return
                if elsewhere:
                    self._done += tuples
                    elsewhere -= 1
            self._flush()
            if not self._waiting or self._outcome.report.crash is not None:
                return

    def _leave_early(self) -> None:
        """Have a part leave in the middle of a work. Called by a task, inside a call of it.

        Raises:
            Exception: What another task emitted does not fit; the call is over.
        """
        if self._working != self._thread():
            return
        self._flush()
        crash = self._outcome.report.crash
        if crash is not None:
            raise crash.error
        executing = 0 if self._executing is None else self._executing.executed
        self._leave(self._part(max(self._told, self._done + executing - 1)))

    def _part(self, done: int) -> Outcome:
        """Return what there is, and begin anew."""
        self._pulse.left()
        outcome, self._outcome = self._outcome, Outcome([], Report())
        outcome.report.sent = sent(outcome.sealed)
        outcome.report.consumed, self._told = done - self._told, done
        return outcome

    def cleanup(self) -> Report:
        """Let the bolts that were prepared release what they opened; errors are complaints."""
        report = Report()
        for task in self._tasks.values():
            failed = Report()
            if not _try(task, failed, task.cleanup) and failed.crash is not None:
                report.complaints.append(failed.crash)
        return report

    @property
    def emitted(self) -> bool:
        """Whether ``prepare`` of a bolt has emitted: then a work is due, also one on nothing."""
        return any(task.emitted for task in self._tasks.values())

    def _receive(self, record: bytes, from_elsewhere: bool) -> int:
        envelope = open_envelope(record)
        edge = self._program.edges[envelope.edge]
        batch, start, before = envelope.batch(edge.schema), 0, self._done
        for segment in envelope.segments:
            task = self._tasks[edge.target, segment.receiver]
            tuples = batch.slice(start, segment.tuples)
            links = envelope.links.slice(start, segment.tuples)
            origin = self._origins[edge.index]
            if from_elsewhere:
                self._executing, self._done = task, before + start
            if not self._call(task, partial(task.execute, origin, segment.sender, tuples, links)):
                break
            start += segment.tuples
        self._executing, self._done = None, before
        return envelope.tuples

    def _flush(self) -> None:
        """Add to the outcome what the tasks have sent and said, and to what waits what is for this
        slot."""
        outcome, reports = self._outcome, []
        for task in self._tasks.values():
            flushed: list[tuple[list[Sealed], Report]] = []
            if not self._call(task, partial(_flush, task, flushed)):
                return
            sealed, report = flushed[0]
            self._waiting.extend(each.record for each in sealed if each.to_slot == self._slot)
            outcome.sealed.extend(each for each in sealed if each.to_slot != self._slot)
            reports.append(report)
        total = outcome.report
        total.acked = joined([total.acked, *(each.acked for each in reports)])
        total.failed = np.concatenate([total.failed, *(each.failed for each in reports)])
        total.renewed = np.concatenate([total.renewed, *(each.renewed for each in reports)])
        for report in reports:
            total.counts.update(report.counts)
            total.complaints += report.complaints

    def _call(self, task: BoltTask, call: Callable[[], None]) -> bool:
        """Make a call of user code for the outcome, in which the first crash stays."""
        failed = Report()
        if _try(task, failed, call):
            return True
        report = self._outcome.report
        report.crash = report.crash or failed.crash
        return False

    def _of(self, id: str) -> list[BoltTask]:
        return [task for (component, _), task in self._tasks.items() if component == id]


def _flush(task: BoltTask, flushed: list[tuple[list[Sealed], Report]]) -> None:
    flushed.append(task.flush())


def _try(task: BoltTask, report: Report, call: Callable[[], None]) -> bool:
    """Make a call of user code; what it raises becomes the report's crash."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - all errors of user code are data
        report.crash = task.complaint(error)
        return False
    return True
