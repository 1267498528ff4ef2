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
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from txtopo.planning.committing import commit_in_driver
from txtopo.planning.outcome import CommitOutcome, judge_commit
from txtopo.planning.partials import merge_partials
from txtopo.planning.states import no_such_state
from txtopo.runtime.jobs import BatchResult
from txtopo.state.backend import Merges, Puts, StateBackend, Writes
from txtopo.state.outcome import commit_resolved
from txtopo.state.transaction import StateHandle

if TYPE_CHECKING:
    from txtopo.runtime.parts import Parts
    from txtopo.runtime.takeover import StateName


class BatchFailedError(Exception):
    """User code in the commit phase failed the batch; carries its error and where."""

    def __init__(self, error: Exception, component: str) -> None:
        super().__init__(str(error))
        self.error = error
        self.component = component


@dataclass(frozen=True, slots=True)
class CommitReport:
    """What a commit tells for the progress.

    Attributes:
        tuples: How many tuples each component emitted.
        lag: Records behind the batch, by partition, where the spout knows it.
    """

    tuples: Mapping[str, int]
    lag: Mapping[str, int]


class CommitPhase:
    """Commits batches of one term, one at a time; :meth:`run` blocks and is called on a worker.

    After a timeout two calls may overlap; the ledgers then refuse the older attempt.
    """

    def __init__(self, parts: Parts, backends: Mapping[StateName, StateBackend]) -> None:
        self._parts = parts
        self._backends = backends

    def run(self, result: BatchResult) -> CommitReport:
        """Commit a processed batch.

        Raises:
            BatchFailedError: User code failed it.
            InfrastructureError: Try again.
            PromiseError: The run must stop.
        """
        point = self._parts.scheduler.point
        point("P4.turn")
        attempt = result.attempt
        lag = self._tell_spout(result)
        outcome = self._run_committers(result)
        if outcome.failure is not None:
            raise BatchFailedError(outcome.failure.error, outcome.failure.component)
        for name, backend in self._backends.items():
            writes = self._writes_of(name, result, outcome)
            point(f"P6.before:{'.'.join(name)}")
            commit_resolved(backend, attempt, writes)
            point(f"P7.after:{'.'.join(name)}")
        return CommitReport(_tuples(result, outcome), lag)

    def _tell_spout(self, result: BatchResult) -> Mapping[str, int]:
        """Tell an emitter that takes part, and ask for the lag; before anything is written."""
        planner = self._parts.planner
        try:
            planner.commit(result.attempt)
            return planner.lag(result.outcome.metadata)
        except Exception as error:
            raise BatchFailedError(error, self._parts.program.spout_id) from error

    def _run_committers(self, result: BatchResult) -> CommitOutcome:
        program, carrier = self._parts.program, self._parts.carrier
        run = result.run.run.only(result.attempt)
        if program.commit_in_driver:
            return commit_in_driver(program, result.outcome, run, self._handle)
        records = carrier.commit(result.run, result.attempt)
        return judge_commit(program, result.outcome, run, records)

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
