"""CommitPhase: what happens when the turn of a txid has come.

Order
-----
1. An emitter that takes part in the commit phase is told (Storm's committer spouts).
2. The committers and all that hangs below them run, in the driver or in tasks. They read the states
   as of the txid before; what they write is collected.
3. Each state gets everything that was written to it in one store transaction: ledger, undo of an
   earlier attempt, data. A state that nobody wrote to gets the txid all the same, so that an
   earlier attempt's writes are undone by an empty batch too.

A crash in step 3 leaves some states one txid ahead of others; the next leader finds that in their
ledgers.

The commit phase of DataFrame committers: what they leave for their states.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from txtopo.attempt import TransactionAttempt
from txtopo.context import FrameContext
from txtopo.errors import RunLostError
from txtopo.runtime.frames import Frames, failure_of_plan
from txtopo.runtime.jobs import BatchResult
from txtopo.runtime.run_context import close_backends
from txtopo.stages.emission import merge_partials
from txtopo.stages.outcome import CommitOutcome, FailedBatch, commit_in_driver, judge_commit
from txtopo.stages.pickling import loads
from txtopo.stages.tasks import no_such_state
from txtopo.state.backend import Merges, Puts, StateBackend, Writes
from txtopo.state.commit import commit_resolved
from txtopo.state.frames import FrameStateHandle, FrameWrites
from txtopo.state.transaction import StateHandle

if TYPE_CHECKING:
    from txtopo.runtime.carrier import FrameCarrier
    from txtopo.runtime.run_context import CommitContext
    from txtopo.runtime.takeover import StateName
    from txtopo.state.registry import State

logger = logging.getLogger("txtopo")


@dataclass(frozen=True, slots=True)
class CommitReport:
    """What came of a commit phase.

    Attributes:
        failure: What user code raised; then nothing was written.
        tuples: How many tuples each component emitted.
        lag: Records behind the batch, by partition, where the spout knows it.
        lost: What the source lost before the batch could read it, by partition.
    """

    failure: FailedBatch | None
    tuples: Mapping[str, int] = field(default_factory=dict)
    lag: Mapping[str, int] = field(default_factory=dict)
    lost: Mapping[str, str] = field(default_factory=dict)


class CommitPhase:
    """Commits batches of one term, one at a time; :meth:`run` blocks and is called on a worker.

    After a timeout two calls may overlap; the ledgers then refuse the older attempt.
    """

    def __init__(self, parts: CommitContext, backends: Mapping[StateName, StateBackend]) -> None:
        self._parts = parts
        self._backends = backends

    def run(self, result: BatchResult, wanted: Callable[[], bool]) -> CommitReport:
        """Commit a processed batch.

        Args:
            result: The batch.
            wanted: Whether the attempt is still the current one; asked before each write.

        Raises:
            InfrastructureError: Try again.
            PromiseError: The run must stop.
        """
        self._parts.scheduler.point("turn.after")
        attempt = result.attempt
        try:
            self._parts.planner.commit(attempt)
        except Exception as error:  # noqa: BLE001 - the spout's code; told with its txid
            return CommitReport(FailedBatch(attempt, error, self._parts.program.spout_id))
        outcome = self._run_committers(result)
        if outcome.failure is not None:
            return CommitReport(outcome.failure)
        frames = self._run_frame_committers(result)
        if frames.failure is not None:
            return CommitReport(frames.failure)
        for name, backend in self._backends.items():
            writes = frames.writes.get(name) or self._writes_of(name, result, outcome)
            if not wanted():
                raise RunLostError(f"attempt {attempt} was abandoned during its commit phase")
            backend.point("begin.before")
            with self._labelled(result, writes):
                commit_resolved(backend, attempt, writes)
            backend.point("write.after")
        return CommitReport(None, _tuples(result, outcome), *self._behind_and_lost(result))

    def close(self) -> None:
        """Close the states of the term."""
        close_backends(self._backends)

    def _behind_and_lost(self, result: BatchResult) -> tuple[Mapping[str, int], Mapping[str, str]]:
        """Ask the spout; what it only shows must not fail a batch that is written."""
        planner, metadata = self._parts.planner, result.outcome.metadata
        try:
            lost = planner.lost(metadata)
            for partition, what in lost.items():
                logger.warning("txid %d: lost of %s: %s", result.attempt.txid, partition, what)
            return planner.lag(metadata), lost
        except Exception:
            logger.warning("the spout could not tell its lag", exc_info=True)
            return {}, {}

    def _run_committers(self, result: BatchResult) -> CommitOutcome:
        program, carrier = self._parts.program, self._parts.carrier
        run = result.run.run.only(result.attempt)
        if program.commit_in_driver:
            return commit_in_driver(program, result.outcome, run, self._handle)
        records = carrier.commit(result.run, result.attempt)
        return judge_commit(program, result.outcome, run, records)

    def _run_frame_committers(self, result: BatchResult) -> FrameOutcome:
        frames = result.run.frames
        if frames is None or not (frames.kept or frames.aggregated):
            return FrameOutcome()
        carrier = cast("FrameCarrier", self._parts.carrier)
        with carrier.committing(result.run, result.attempt):
            return run_frame_committers(self._parts, frames, result.attempt)

    def _labelled(
        self, result: BatchResult, writes: Writes | FrameWrites
    ) -> AbstractContextManager[None]:
        """Let Spark's jobs be cancelled that write a frame."""
        if not isinstance(writes, FrameWrites):
            return nullcontext()
        carrier = cast("FrameCarrier", self._parts.carrier)
        return carrier.committing(result.run, result.attempt)

    def _handle(self, component: str, name: str) -> StateHandle:
        backend = self._backends.get((component, name))
        if backend is None:
            declared = [state for owner, state in self._backends if owner == component]
            raise no_such_state(component, name, declared)
        state = self._parts.graph.components[component].states[name]
        return StateHandle(name, state.layout(), backend.snapshot)

    def _writes_of(self, name: StateName, result: BatchResult, outcome: CommitOutcome) -> Writes:
        component, _ = name
        if component in self._parts.program.aggregations:
            records = [
                *result.outcome.partials.get(component, ()),
                *outcome.partials.get(component, ()),
            ]
            return Merges(merge_partials(self._parts.program, component, records))
        return outcome.writes.get(name, Puts({}))


def _tuples(result: BatchResult, outcome: CommitOutcome) -> dict[str, int]:
    totals: dict[str, int] = {}
    for tuples in (result.outcome.tuples, outcome.tuples):
        for component, streams in tuples.items():
            totals[component] = totals.get(component, 0) + sum(streams.values())
    return totals


@dataclass(frozen=True, slots=True)
class FrameOutcome:
    """What came of the DataFrame committers of a batch.

    Attributes:
        writes: What is written to which state; one that got nothing is missing.
        failure: What user code raised; then nothing may be written.
    """

    writes: Mapping[StateName, FrameWrites] = field(default_factory=dict)
    failure: FailedBatch | None = None


def run_frame_committers(
    parts: CommitContext, frames: Frames, attempt: TransactionAttempt
) -> FrameOutcome:
    """Call ``commit`` of each DataFrame committer, in this thread.

    Raises:
        RunLostError: The machines failed; try again.
    """
    writes: dict[StateName, FrameWrites] = {}
    for id, each in frames.aggregated.items():
        writes[id, id] = each
    for id, frame in frames.kept.items():
        try:
            writes |= _commit(parts, id, frame, attempt)
        except Exception as error:
            failure = failure_of_plan(error, id, computing=False)
            if failure is None or isinstance(failure, RunLostError):
                raise
            where = f"{id!r} of topology {parts.graph.id!r}"
            failure.add_note(f"in {where}, txid {attempt.txid}, commit phase")
            return FrameOutcome(failure=FailedBatch(attempt, failure, id))
    return FrameOutcome(writes)


def _commit(
    parts: CommitContext, id: str, frame: Any, attempt: TransactionAttempt
) -> dict[StateName, FrameWrites]:
    states = parts.graph.components[id].states
    handles: dict[str, FrameStateHandle] = {}

    def opened(name: str) -> FrameStateHandle:
        if name not in states:
            raise no_such_state(id, name, list(states))
        state: State = states[name]
        return handles.setdefault(name, FrameStateHandle(name, state.layout(), open=True))

    assert parts.program.frames is not None
    step = next(step for step in parts.program.frames.steps if step.id == id)
    bolt: Any = loads(step.prototype)
    bolt.prepare(parts.program.config, FrameContext(parts.graph.id, id, opened))
    bolt.commit(frame, attempt)
    return {(id, name): each.writes for name, each in handles.items() if each.writes is not None}
