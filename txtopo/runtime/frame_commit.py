"""The commit phase of DataFrame committers: what they leave for their states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from txtopo.attempt import TransactionAttempt
from txtopo.context import FrameContext
from txtopo.errors import RunLostError
from txtopo.runtime.frame_failures import failure_of_plan
from txtopo.runtime.frames import Frames
from txtopo.stages.outcome import FailedBatch
from txtopo.stages.pickling import loads
from txtopo.stages.tasks import no_such_state
from txtopo.state.frames import FrameStateHandle, FrameWrites

if TYPE_CHECKING:
    from txtopo.runtime.parts import CommitParts
    from txtopo.runtime.takeover import StateName
    from txtopo.state.registry import State


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
    parts: CommitParts, frames: Frames, attempt: TransactionAttempt
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
    parts: CommitParts, id: str, frame: Any, attempt: TransactionAttempt
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
