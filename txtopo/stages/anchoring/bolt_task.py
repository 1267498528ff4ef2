"""Bolt tasks of at-least-once topologies: one task of a bolt, for as long as its slot lives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, cast

import numpy as np
import pyarrow as pa

from txtopo.acking import NONE, Column, Ids, Xors, merged
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
from txtopo.stages.anchoring.anchors import Hanging
from txtopo.stages.anchoring.links import Links, TreeInputs
from txtopo.stages.anchoring.report import Complaint, Report
from txtopo.stages.anchoring.sending import Sealed, Sending
from txtopo.stages.bolt_tasks import rows_of
from txtopo.stages.pickling import loads
from txtopo.stages.program import PlannedComponent, Program
from txtopo.tuples import TICK, Origin

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
        self._report = Report()
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

    def flush(self) -> tuple[list[Sealed], Report]:
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
        sealed, self._sealed, self._report = self._sealed, [], Report()
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
        hanging = Hanging(self._component.id, marks)
        sealed, made = self._sending.seal(stream, rows, targets if direct else None, hanging.links)
        hanging.hang(made)
        self._sealed += sealed
        self._report.counts["emitted", self._component.id] += len(rows)

    def _acked(self, answered: Sequence[Inputs], report: Report) -> Xors:
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
