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

Bolt tasks of at-least-once topologies: one task of a bolt, for as long as its slot lives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from txtopo.acking import NONE, Column, Ids, Xors, joined, merged
from txtopo.bolts.bolt import BasicBolt, Bolt
from txtopo.collector import (
    BasicOutputCollector,
    Inputs,
    InputTuple,
    OutputCollector,
    Pulse,
    input_tuples,
)
from txtopo.context import TaskContext
from txtopo.errors import FailedException
from txtopo.stages.anchoring.envelope import Complaint, Links, SlotReport, TreeInputs, open_envelope
from txtopo.stages.anchoring.sending import AnchoredRows, Sealed, Sending, sent
from txtopo.stages.pickling import loads
from txtopo.stages.program import PlannedComponent, Program
from txtopo.stages.tasks import rows_of
from txtopo.tuples import TICK, Origin


class Outcome(NamedTuple):
    """What came of a work, or of a part of it: send the envelopes first, then the report."""

    sealed: list[Sealed]
    report: SlotReport


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
        self._outcome = Outcome([], SlotReport())
        self._waiting: deque[bytes] = deque()
        # Tuples from elsewhere: who executes some, how many others are done with, and were told.
        self._executing: BoltTask | None = None
        self._done = self._told = 0
        self._origins = [Origin(None, edge.source, edge.stream, edge.fields) for edge in edges]

    def prepare(self) -> SlotReport:
        """Make and prepare the tasks."""
        report = SlotReport()
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
        outcome, self._outcome = self._outcome, Outcome([], SlotReport())
        outcome.report.sent = sent(outcome.sealed)
        outcome.report.consumed, self._told = done - self._told, done
        return outcome

    def cleanup(self) -> SlotReport:
        """Let the bolts that were prepared release what they opened; errors are complaints."""
        report = SlotReport()
        for task in self._tasks.values():
            failed = SlotReport()
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
            flushed: list[tuple[list[Sealed], SlotReport]] = []
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
        failed = SlotReport()
        if _try(task, failed, call):
            return True
        report = self._outcome.report
        report.crash = report.crash or failed.crash
        return False

    def _of(self, id: str) -> list[BoltTask]:
        return [task for (component, _), task in self._tasks.items() if component == id]


def _flush(task: BoltTask, flushed: list[tuple[list[Sealed], SlotReport]]) -> None:
    flushed.append(task.flush())


def _try(task: BoltTask, report: SlotReport, call: Callable[[], None]) -> bool:
    """Make a call of user code; what it raises becomes the report's crash."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - all errors of user code are data
        report.crash = task.complaint(error)
        return False
    return True


# A tuple that a bolt keeps holds on to the ids of those that it came with, 16 bytes each: so these
# are not too many. Fewer would cost time for each portion.
PORTION_TUPLES = 2_000


class BoltTask:
    """Runs one task of a bolt and collects what follows from it. Used on one thread.

    Args:
        program: The topology.
        component: The bolt.
        task: Which of its tasks.
        slot: The slot that it lives in.
        ids: Draws the ids of tuples.
        pulse: When things are due to leave in the middle of a work.
        leave: Called when they are; it calls ``flush`` of all tasks of the slot.
    """

    def __init__(
        self,
        program: Program,
        component: PlannedComponent,
        task: int,
        slot: int,
        ids: Ids,
        pulse: Pulse,
        leave: Callable[[], None],
    ) -> None:
        self._program = program
        self._component = component
        self._task = task
        self._sending = Sending(program, component, task, slot, ids)
        self._pulse = pulse
        self._leave = leave
        self._collector = OutputCollector(component.id, component.streams, self._full, pulse, leave)
        self._basic: BasicOutputCollector | None = None
        self._sealed: list[Sealed] = []
        self._executed: list[TreeInputs] = []
        # What a basic bolt executes, and how many of it are done with between two tuples.
        self._current: TreeInputs | None = None
        self._rows = 0
        self.executed = 0
        """How many tuples of this call of ``execute`` are done with."""
        self._report = SlotReport()
        self._bolt: Bolt | BasicBolt = loads(component.prototype)

    @property
    def tick_interval_s(self) -> float | None:
        """How often the bolt wants a tick."""
        return self._bolt.tick_interval_s

    @property
    def emitted(self) -> bool:
        """Whether something was emitted that is not sealed yet."""
        return any(emitted.rows for emitted in self._collector.emitted.values())

    def prepare(self) -> None:
        """Prepare the bolt."""
        component, config = self._component, self._program.config
        context = TaskContext(self._program.topology_id, component.id, self._task, component.tasks)
        if isinstance(self._bolt, BasicBolt):
            self._basic = BasicOutputCollector(component.id, component.streams, self._collector)
            self._bolt.prepare(config, context)
        else:
            self._bolt.prepare(config, context, self._collector)

    def execute(self, origin: Origin, sender: int, batch: pa.RecordBatch, links: Links) -> None:
        """Give the bolt consecutive tuples of one sender."""
        self.executed = 0
        for start in range(0, batch.num_rows, PORTION_TUPLES):
            portion = batch.slice(start, PORTION_TUPLES)
            tuples = portion.num_rows
            inputs = TreeInputs(links.slice(start, tuples), tuples)
            self._run(input_tuples(rows_of(portion), origin, sender, inputs), inputs, start)
            self._count(start + tuples)

    def tick(self) -> None:
        """Give the bolt a tick."""
        inputs = TreeInputs(Links(), 1)
        if self._basic is not None:
            inputs.done[0] = 1  # it is no input that is acked
        self._run(input_tuples([(self.tick_interval_s,)], TICK, 0, inputs), inputs, None)
        inputs.done[0] = 1

    def flush(self) -> tuple[list[Sealed], SlotReport]:
        """Seal what was emitted, then answer for what was acked: in this order, since an ack holds
        the ids of all that was anchored to its input.

        It may be called in the middle of ``execute``, by the collector: the input that is executed
        then is not done with, unless its bolt has acked it.
        """
        for stream in self._component.streams:
            self._send(stream)
        collector, report = self._collector, self._report
        report.acked = merged(*self._acked(collector.answered, report))
        report.failed, report.renewed = (
            self._roots(collector.failed),
            self._roots(collector.renewed),
        )
        report.counts["failed", self._component.id] += len(collector.failed)
        report.complaints += [self.complaint(error) for error in collector.errors]
        for listed in (collector.answered, collector.failed, collector.renewed, collector.errors):
            listed.clear()
        sealed, self._sealed, self._report = self._sealed, [], SlotReport()
        return sealed, report

    def complaint(self, error: Exception) -> Complaint:
        """Return an error with where it happened."""
        return Complaint(self._component.id, self._task, error)

    def cleanup(self) -> None:
        """Let the bolt release what it opened."""
        self._bolt.cleanup()

    def _run(self, tuples: Iterable[InputTuple], inputs: TreeInputs, executed: int | None) -> None:
        """Execute tuples, before which so many were; None if they are not counted."""
        if self._basic is not None:
            self._current = inputs
            self._run_basic(self._basic, tuples, executed)
            self._current = None
            self._executed.append(inputs)
            return
        assert isinstance(self._bolt, Bolt)
        execute, fail, pulse = self._bolt.execute, self._collector.fail, self._pulse
        for each in tuples:
            try:
                execute(each)
            except FailedException as error:
                self._collector.report_error(error)
                fail(each)
            if pulse.due:
                self._leave_after(each, executed)

    def _run_basic(
        self, basic: BasicOutputCollector, tuples: Iterable[InputTuple], executed: int | None
    ) -> None:
        assert isinstance(self._bolt, BasicBolt)
        execute, fail, pulse = self._bolt.execute, self._collector.fail, self._pulse
        for each in tuples:
            basic.current = each
            try:
                execute(each, basic)
            except FailedException as error:
                self._collector.report_error(error)
                fail(each)
            if pulse.due:
                basic.current = None
                self._leave_after(each, executed)
        basic.current = None

    def _leave_after(self, last: InputTuple, executed: int | None) -> None:
        """Have leave what there is, between two tuples."""
        self._rows = last.row + 1
        if executed is not None:
            self._count(executed + self._rows)
        self._leave()

    def _count(self, executed: int) -> None:
        self._report.counts["executed", self._component.id] += executed - self.executed
        self.executed = executed

    def _full(self, stream: str) -> None:
        """Seal a stream of which enough was emitted, or of which something is due to leave."""
        self._send(stream)
        if self._pulse.due:
            self._leave()

    def _send(self, stream: str) -> None:
        emitted = self._collector.emitted[stream]
        if not emitted.rows:
            return
        rows, marks, targets = emitted.rows, emitted.marks, emitted.targets
        emitted.rows, emitted.marks, emitted.targets = [], [], []
        direct = self._component.streams[stream].direct
        hanging = AnchoredRows(self._component.id, marks)
        sealed, made = self._sending.seal(stream, rows, targets if direct else None, hanging.links)
        hanging.hang(made)
        self._sealed += sealed
        self._report.counts["emitted", self._component.id] += len(rows)

    def _acked(self, answered: Sequence[Inputs], report: SlotReport) -> Xors:
        told = [(inputs, inputs.take_acked()) for inputs in cast("list[TreeInputs]", answered)]
        told += [(inputs, inputs.rest(len(inputs.done))) for inputs in self._executed]
        self._executed.clear()
        if self._current is not None:
            assert self._basic is not None
            executing = cast("InputTuple | None", self._basic.current)
            rows = self._rows if executing is None else executing.row
            told.append((self._current, self._current.rest(rows)))
        report.counts["acked", self._component.id] += sum(len(rows) for _, rows in told)
        parts = [inputs.answer(rows) for inputs, rows in told]
        # Not merged part by part: those of one root mostly stand side by side in other parts.
        parts = [part for part in parts if len(part.roots)]
        if not parts:
            return Xors()
        return Xors(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def _roots(self, tuples: Sequence[InputTuple]) -> Column:
        parts = [inputs.answer(rows).roots for inputs, rows in _grouped(tuples)]
        return np.concatenate(parts) if parts else NONE


def _grouped(tuples: Sequence[InputTuple]) -> Iterator[tuple[TreeInputs, Any]]:
    for inputs, group in groupby(tuples, attrgetter("inputs")):
        yield inputs, np.fromiter((each.row for each in group), np.int64)
