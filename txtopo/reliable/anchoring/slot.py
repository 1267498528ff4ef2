"""Slot: hosts bolt tasks of an at-least-once topology, until it is lost or stopped.

A *work* is a call of :meth:`Slot.work` with all envelopes that have arrived. Bolts may be slow, so
it may take long. Its results leave in *parts*: the last one at the end, and others earlier,
whenever the flush timer is due, between two tuples or in a call of the collector. Each part is an
:class:`Outcome`, created on the thread of the bolts.

Rules
-----
1. Each part seals the emitted tuples before it computes the acks. So the acks contain the ids of
   all tuples that were anchored to the inputs by then.
2. Each tuple, ack, fail and count is in exactly one part.
3. Only the last part of a work reports that all tuples from spouts or other slots are done; earlier
   parts report at least one less. Tuples that the bolts sent to their own slot may still wait, and
   a slot that works must not seem idle.

Parts leave in order. Acks and envelopes may overtake each other on their way: an edge keeps its
tree open until the edge itself is acked. A carrier delivers all parts of a life up to some point,
and no part after it. If a part with an ack is lost, the tree times out.
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

from txtopo.bolts.bolt import BasicBolt
from txtopo.config import AtLeastOnceConfig
from txtopo.errors import FailedException
from txtopo.reliable.acking import NONE, Column, RootXors, joined, merged
from txtopo.reliable.anchoring.answers import TreeAnswers
from txtopo.reliable.anchoring.envelope import (
    Complaint,
    Links,
    SlotReport,
    TreeInputs,
    open_envelope,
)
from txtopo.reliable.anchoring.ids import Ids
from txtopo.reliable.anchoring.sending import AnchoredRows, Sealed, Sending, sent
from txtopo.reliable.anchoring.spout_task import ackers_of
from txtopo.reliable.bolt import Bolt
from txtopo.reliable.collector import (
    BasicOutputCollector,
    FlushTimer,
    Inputs,
    InputTuple,
    OutputCollector,
    input_tuples,
)
from txtopo.stages.compiled_topology import CompiledTopology, PlannedComponent
from txtopo.state.columns import rows_of
from txtopo.tuples import TICK, Origin


class Outcome(NamedTuple):
    """A part of a work: records for slots, including this one, and a report. Send the report last.

    The records are envelopes for other slots, then answers for each slot with ackers.
    """

    sealed: list[Sealed]
    report: SlotReport


class Flushed(NamedTuple):
    """What a task has done since its last flush."""

    sealed: list[Sealed]
    answers: TreeAnswers
    report: SlotReport


class Slot:
    """Runs the bolts of one slot. A carrier calls it, always on one thread.

    Exceptions of user code are not raised. They become the *crash* of a report.

    Args:
        compiled: The topology.
        slot: Number of the slot.
        seed: Seed of the ids of tuples. Each life of each slot needs its own.
        flush_timer: Determines when a part of a work is due to leave. The carrier drives it.
        leave: Called with each part except the last, on the thread of the work.
        thread: Returns the current thread. A bolt must not use the collector on another thread; no
            part leaves from there.
    """

    def __init__(
        self,
        compiled: CompiledTopology,
        slot: int,
        seed: int,
        flush_timer: FlushTimer,
        leave: Callable[[Outcome], None],
        thread: Callable[[], int],
    ) -> None:
        self._compiled = compiled
        self._slot = slot
        self._ids = Ids(seed)
        self._tasks: dict[tuple[str, int], BoltTask] = {}
        self._ackers = ackers_of(compiled)
        edges = compiled.edges
        self._flush_timer = flush_timer
        self._leave = leave
        self._thread = thread
        self._working: int | None = None
        self._outcome = Outcome([], SlotReport())
        self._answers = TreeAnswers()
        self._waiting: deque[bytes] = deque()
        # For tuples from spouts or other slots: the task that is executing some of them, the number
        # of tuples that are done, and the number that was reported as done.
        self._executing: BoltTask | None = None
        self._done = self._told = 0
        self._origins = [Origin(None, edge.source, edge.stream, edge.fields) for edge in edges]

    def prepare(self) -> SlotReport:
        """Create and prepare the bolt tasks of this slot."""
        report = SlotReport()
        for component in self._compiled.components.values():
            if component.kind.spout:
                continue
            for task in range(self._slot, component.tasks, self._compiled.slots):
                made = BoltTask(
                    self._compiled,
                    component,
                    task,
                    self._slot,
                    self._ids,
                    self._flush_timer,
                    self._leave_early,
                )
                if not _try(made, report, made.prepare):
                    return report
                self._tasks[component.id, task] = made
        return report

    def ticks(self) -> dict[str, float]:
        """Return the tick interval in seconds of each bolt that has one."""
        wanted = {id: task.tick_interval_s for (id, _), task in self._tasks.items()}
        return {id: interval_s for id, interval_s in wanted.items() if interval_s}

    def work(self, records: Iterable[bytes], ticks: Iterable[str] = ()) -> Outcome:
        """Run the bolts on envelopes, and on the tuples that they send to this slot.

        Args:
            records: The envelopes.
            ticks: Ids of bolts that get a tick first.

        Returns:
            The last part. *leave* has been called with the others.
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
        """Send a part of the results in the middle of a work. A task calls this while it executes.

        Raises:
            Exception: Another task emitted a value that does not fit; stop executing.
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
        """Return the results so far as a part, and start the next part."""
        self._flush_timer.left()
        outcome, self._outcome = self._outcome, Outcome([], SlotReport())
        outcome.report.sent = sent(outcome.sealed)
        outcome.sealed.extend(self._answers.seal(self._ackers))
        self._answers = TreeAnswers()
        outcome.report.consumed, self._told = done - self._told, done
        return outcome

    def cleanup(self) -> SlotReport:
        """Clean up the bolts that were prepared. Their errors are complaints of the report."""
        report = SlotReport()
        for task in self._tasks.values():
            failed = SlotReport()
            if not _try(task, failed, task.cleanup) and failed.crash is not None:
                report.complaints.append(failed.crash)
        return report

    @property
    def emitted(self) -> bool:
        """Whether ``prepare`` of a bolt has emitted tuples. If so, ``work`` must be called."""
        return any(task.emitted for task in self._tasks.values())

    def _receive(self, record: bytes, from_elsewhere: bool) -> int:
        envelope = open_envelope(record)
        edge = self._compiled.edges[envelope.edge]
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
        """Collect what all tasks have done, and queue envelopes for this slot."""
        outcome, flushed = self._outcome, list[Flushed]()
        for task in self._tasks.values():
            if not self._call(task, partial(_flush, task, flushed)):
                return
            sealed = flushed[-1].sealed
            self._waiting.extend(each.record for each in sealed if each.to_slot == self._slot)
            outcome.sealed.extend(each for each in sealed if each.to_slot != self._slot)
        answers = [self._answers, *(each.answers for each in flushed)]
        self._answers = TreeAnswers(
            joined([each.acked for each in answers]),
            np.concatenate([each.failed for each in answers]),
            np.concatenate([each.renewed for each in answers]),
        )
        for each in flushed:
            outcome.report.counts.update(each.report.counts)
            outcome.report.complaints += each.report.complaints

    def _call(self, task: BoltTask, call: Callable[[], None]) -> bool:
        """Call user code. The first exception becomes the crash of the outcome."""
        failed = SlotReport()
        if _try(task, failed, call):
            return True
        report = self._outcome.report
        report.crash = report.crash or failed.crash
        return False

    def _of(self, id: str) -> list[BoltTask]:
        return [task for (component, _), task in self._tasks.items() if component == id]


def _flush(task: BoltTask, flushed: list[Flushed]) -> None:
    flushed.append(task.flush())


def _try(task: BoltTask, report: SlotReport, call: Callable[[], None]) -> bool:
    """Call user code. An exception becomes the crash of the report."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - all errors of user code are data
        report.crash = task.complaint(error)
        return False
    return True


# A tuple that a bolt keeps also keeps the ids of all tuples of its portion in memory, 16 bytes per
# tuple. Smaller portions would take more time.
PORTION_TUPLES = 2_000


class BoltTask:
    """Runs one task of a bolt, and collects its tuples, acks and fails. Used on one thread.

    Args:
        compiled: The topology.
        component: The bolt.
        task: Index of the task.
        slot: The slot that it lives in.
        ids: Draws the ids of tuples.
        flush_timer: Determines when a part is due to leave in the middle of a work.
        leave: Called when a part is due. It calls ``flush`` of all tasks of the slot.
    """

    def __init__(
        self,
        compiled: CompiledTopology,
        component: PlannedComponent,
        task: int,
        slot: int,
        ids: Ids,
        flush_timer: FlushTimer,
        leave: Callable[[], None],
    ) -> None:
        self._compiled = compiled
        self._component = component
        self._task = task
        self._sending = Sending(compiled, component, task, slot, ids)
        self._flush_timer = flush_timer
        self._leave = leave
        self._collector = OutputCollector(
            component.id, component.streams, self._full, flush_timer, leave
        )
        self._basic: BasicOutputCollector | None = None
        self._sealed: list[Sealed] = []
        self._executed: list[TreeInputs] = []
        # The inputs that a basic bolt is executing, and how many of them are done between tuples.
        self._current: TreeInputs | None = None
        self._rows = 0
        self.executed = 0
        """Number of tuples that are done in this call of ``execute``."""
        self._report = SlotReport()
        self._bolt: Bolt | BasicBolt = component.prototype.copy()

    @property
    def tick_interval_s(self) -> float | None:
        """The tick interval of the bolt; None if it has no ticks."""
        return self._bolt.tick_interval_s

    @property
    def emitted(self) -> bool:
        """Whether some emitted tuples have not left yet."""
        waiting = any(emitted.rows for emitted in self._collector.emitted.values())
        return waiting or bool(self._sealed)

    def prepare(self) -> None:
        """Prepare the bolt."""
        component, config = self._component, self._compiled.config
        context = self._compiled.context(component, self._task)
        if isinstance(self._bolt, BasicBolt):
            self._basic = BasicOutputCollector(component.id, component.streams, self._collector)
            self._bolt.prepare(config, context)
        else:
            assert isinstance(config, AtLeastOnceConfig)
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
        inputs.done[0] = 1  # a tick is neither acked nor failed
        self._run(input_tuples([(self.tick_interval_s,)], TICK, 0, inputs), inputs, None)

    def flush(self) -> Flushed:
        """Seal the emitted tuples, then compute the acks.

        The order matters: an ack contains the ids of all tuples that were anchored to its input.
        The collector may call this in the middle of ``execute``. Then the current input is not
        done, unless the bolt has acked it.
        """
        for stream in self._component.streams:
            self._send(stream)
        collector, report = self._collector, self._report
        answers = TreeAnswers(
            merged(*self._acked(collector.answered, report)),
            self._roots(collector.failed),
            self._roots(collector.renewed),
        )
        report.counts["failed", self._component.id] += len(collector.failed)
        report.complaints += [self.complaint(error) for error in collector.errors]
        for listed in (collector.answered, collector.failed, collector.renewed, collector.errors):
            listed.clear()
        sealed, self._sealed, self._report = self._sealed, [], SlotReport()
        return Flushed(sealed, answers, report)

    def complaint(self, error: Exception) -> Complaint:
        """Return an error as a complaint of this task."""
        return Complaint(self._component.id, self._task, error)

    def cleanup(self) -> None:
        """Call the bolt's ``cleanup``."""
        self._bolt.cleanup()

    def _run(self, tuples: Iterable[InputTuple], inputs: TreeInputs, executed: int | None) -> None:
        """Execute tuples, after *executed* earlier ones of this work; None does not count them."""
        if self._basic is not None:
            self._current = inputs
            self._run_basic(self._basic, tuples, executed)
            self._current = None
            self._executed.append(inputs)
            return
        assert isinstance(self._bolt, Bolt)
        execute, fail, flush_timer = self._bolt.execute, self._collector.fail, self._flush_timer
        for each in tuples:
            try:
                execute(each)
            except FailedException as error:
                self._collector.report_error(error)
                fail(each)
            if flush_timer.due:
                self._leave_after(each, executed)

    def _run_basic(
        self, basic: BasicOutputCollector, tuples: Iterable[InputTuple], executed: int | None
    ) -> None:
        assert isinstance(self._bolt, BasicBolt)
        execute, fail, flush_timer = self._bolt.execute, self._collector.fail, self._flush_timer
        for each in tuples:
            basic.current = each
            try:
                execute(each, basic)
            except FailedException as error:
                self._collector.report_error(error)
                fail(each)
            if flush_timer.due:
                basic.current = None
                self._leave_after(each, executed)
        basic.current = None

    def _leave_after(self, last: InputTuple, executed: int | None) -> None:
        """Send a part of the results between two tuples."""
        self._rows = last.row + 1
        if executed is not None:
            self._count(executed + self._rows)
        self._leave()

    def _count(self, executed: int) -> None:
        self._report.counts["executed", self._component.id] += executed - self.executed
        self.executed = executed

    def _full(self, stream: str) -> None:
        """Seal the tuples of a stream, because there are enough of them or a part is due."""
        self._send(stream)
        if self._flush_timer.due:
            self._leave()

    def _send(self, stream: str) -> None:
        emitted = self._collector.emitted[stream]
        if not emitted.rows:
            return
        rows, marks, targets = emitted.rows, emitted.marks, emitted.targets
        emitted.rows, emitted.marks, emitted.targets = [], [], []
        direct = self._component.streams[stream].direct
        anchored = AnchoredRows(self._component.id, marks)
        sealed, made = self._sending.seal(stream, rows, targets if direct else None, anchored.links)
        anchored.xor_into_anchors(made)
        self._sealed += sealed
        self._report.counts["emitted", self._component.id] += len(rows)

    def _acked(self, answered: Sequence[Inputs], report: SlotReport) -> RootXors:
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
        # Merge them, because the acks of one root are usually in different parts.
        parts = [part for part in parts if len(part.roots)]
        if not parts:
            return RootXors()
        return RootXors(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def _roots(self, tuples: Sequence[InputTuple]) -> Column:
        parts = [inputs.answer(rows).roots for inputs, rows in _grouped(tuples)]
        return np.concatenate(parts) if parts else NONE


def _grouped(tuples: Sequence[InputTuple]) -> Iterator[tuple[TreeInputs, Any]]:
    for inputs, group in groupby(tuples, attrgetter("inputs")):
        yield inputs, np.fromiter((each.row for each in group), np.int64)
