"""Slot: the bolt tasks that live together, from ``prepare`` until the slot is lost or stopped."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import numpy as np

from txtopo.acking.tuple_tree import Ids, joined
from txtopo.planning.anchoring.bolt_task import BoltTask
from txtopo.planning.anchoring.envelope import open_envelope
from txtopo.planning.anchoring.report import Report
from txtopo.planning.anchoring.sending import Sealed, sent
from txtopo.planning.program import Program
from txtopo.tuples import Origin


class Outcome(NamedTuple):
    """What came of a work: send the envelopes first, then the report."""

    sealed: list[Sealed]
    report: Report


class Slot:
    """Runs the bolts of one slot. Called by a carrier, always on one thread.

    No exception of user code leaves from here: it is the *crash* of a report.

    Args:
        program: The topology.
        slot: Which slot it is.
        seed: What its ids follow from; another one for each life of each slot.
    """

    def __init__(self, program: Program, slot: int, seed: int) -> None:
        self._program = program
        self._slot = slot
        self._ids = Ids(seed)
        self._tasks: dict[tuple[str, int], BoltTask] = {}
        edges = program.edges
        self._origins = [Origin(None, edge.source, edge.stream, edge.fields) for edge in edges]

    def prepare(self) -> Report:
        """Make and prepare the tasks."""
        report = Report()
        for component in self._program.components.values():
            if component.role.spout:
                continue
            for task in range(self._slot, component.tasks, self._program.slots):
                made = BoltTask(self._program, component, task, self._slot, self._ids)
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
        """
        outcome = Outcome([], Report())
        for id in ticks:
            for task in self._of(id):
                if not _try(task, outcome.report, task.tick):
                    return outcome
        waiting = deque(records)
        elsewhere = len(waiting)
        while True:
            while waiting:
                tuples = self._receive(waiting.popleft(), outcome.report)
                if outcome.report.crash is not None:
                    return outcome
                if elsewhere:
                    outcome.report.consumed += tuples
                    elsewhere -= 1
            waiting.extend(self._flush(outcome))
            if not waiting or outcome.report.crash is not None:
                outcome.report.sent = sent(outcome.sealed)
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

    def _receive(self, record: bytes, report: Report) -> int:
        envelope = open_envelope(record)
        edge = self._program.edges[envelope.edge]
        batch, start = envelope.batch(edge.schema), 0
        for segment in envelope.segments:
            task = self._tasks[edge.target, segment.receiver]
            tuples = batch.slice(start, segment.tuples)
            links = envelope.links.slice(start, segment.tuples)
            origin = self._origins[edge.index]
            call = partial(task.execute, origin, segment.sender, tuples, links)
            if not _try(task, report, call):
                break
            start += segment.tuples
        return envelope.tuples

    def _flush(self, outcome: Outcome) -> list[bytes]:
        """Add to the outcome what the tasks have sent and said; return what is for this slot."""
        own: list[bytes] = []
        reports: list[Report] = []
        for task in self._tasks.values():
            flushed: list[tuple[list[Sealed], Report]] = []
            if not _try(task, outcome.report, partial(_flush, task, flushed)):
                return own
            sealed, report = flushed[0]
            own += [each.record for each in sealed if each.to_slot == self._slot]
            outcome.sealed.extend(each for each in sealed if each.to_slot != self._slot)
            reports.append(report)
        total = outcome.report
        total.acked = joined([total.acked, *(each.acked for each in reports)])
        total.failed = np.concatenate([total.failed, *(each.failed for each in reports)])
        total.renewed = np.concatenate([total.renewed, *(each.renewed for each in reports)])
        for report in reports:
            total.counts.update(report.counts)
            total.complaints += report.complaints
        return own

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
