"""The DataFrame committers of an attempt: each puts frames, which the commit passes to the states.

They run in the driver, on the thread of the commit phase. A state reads as of the previous txid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from txtopo.attempt import TransactionAttempt
from txtopo.carriers.carrier import EngineOutcome
from txtopo.context import FrameContext
from txtopo.errors import RunLostError
from txtopo.fingerprint import StateName
from txtopo.frames.plan import FramePlan
from txtopo.frames.run import Frames, failure_of_plan
from txtopo.frames.states import FrameStateHandle, FrameWrites, LabelledWrites
from txtopo.stages.compiled_topology import CompiledTopology
from txtopo.stages.outcome import FailedBatch
from txtopo.stages.permits import NotPermitted, Permit, Permits, no_permits, no_question
from txtopo.stages.task_states import no_such_state
from txtopo.state.registry import State

States = Mapping[str, Mapping[str, State]]
"""The states of each component, by component id and name."""


def run_frame_committers(
    compiled: CompiledTopology,
    frames: Frames,
    attempt: TransactionAttempt,
    states: States,
    permits: Permits = no_permits,
    label: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> EngineOutcome:
    """Call ``commit`` of each DataFrame committer, in this thread.

    Args:
        compiled: The topology.
        frames: The DataFrames of the attempt.
        attempt: The attempt.
        states: The states of each component.
        permits: Returns, for each committer, the permit to check before each call.
        label: Labels the jobs that write the frames.

    Raises:
        RunLostError: Executors or the cluster failed; try again.
        NotPermitted: A permit was refused.
    """
    writes: dict[StateName, FrameWrites] = {}
    for id, each in frames.aggregated.items():
        writes[id, id] = each
    for id, frame in frames.waiting.items():
        try:
            writes |= _commit(compiled, id, frame, attempt, states[id], permits(id))
        except NotPermitted:
            raise
        except Exception as error:
            failure = failure_of_plan(error, id, computing=False)
            if failure is None or isinstance(failure, RunLostError):
                raise
            where = f"{id!r} of topology {compiled.topology_id!r}"
            failure.add_note(f"in {where}, txid {attempt.txid}, commit phase")
            return EngineOutcome(failure=FailedBatch(attempt, failure, id))
    return EngineOutcome({name: LabelledWrites(each, label) for name, each in writes.items()})


def _commit(
    compiled: CompiledTopology,
    id: str,
    frame: Any,
    attempt: TransactionAttempt,
    states: Mapping[str, State],
    permit: Permit | None,
) -> dict[StateName, FrameWrites]:
    handles: dict[str, FrameStateHandle] = {}

    def opened(name: str) -> FrameStateHandle:
        if name not in states:
            raise no_such_state(id, name, list(states))
        return handles.setdefault(name, FrameStateHandle(name, states[name].layout(), open=True))

    assert isinstance(compiled.engine, FramePlan)
    step = next(step for step in compiled.engine.steps if step.id == id)
    bolt: Any = step.prototype.copy()
    ask = no_question if permit is None else permit.ask
    ask()
    bolt.prepare(compiled.config, FrameContext(compiled.topology_id, id, opened))
    ask()
    bolt.commit(frame, attempt)
    return {(id, name): each.writes for name, each in handles.items() if each.writes is not None}
