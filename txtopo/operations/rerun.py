"""Rerun: computes txids of the past again, one after the other, and commits them to nothing real.

The plan, the planned time, the versions of lookups and the pace are those that are stored. Stages
and commit phase are those of a run. Only the states are other ones, and no emitter is told of a
commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from txtopo.attempt import TransactionAttempt
from txtopo.errors import InfrastructureError, TxtopoError
from txtopo.metadata import BatchMetadata
from txtopo.operations.overlay import OverlayState
from txtopo.runtime.commit_phase import CommitPhase
from txtopo.runtime.jobs import BatchResult, judged
from txtopo.runtime.run_context import NoPlanner
from txtopo.runtime.scheduler import Scheduler, ThreadScheduler
from txtopo.stages.compiled_topology import CompiledTopology, Run, compile_topology
from txtopo.stages.outcome import BatchOutcome, FailedBatch
from txtopo.state.together import SharedTransactions

if TYPE_CHECKING:
    from txtopo.carriers.carrier import Carrier
    from txtopo.config import Config
    from txtopo.fingerprint import StateName
    from txtopo.stages.observer import Observer
    from txtopo.topology.graph import Graph


@dataclass(frozen=True, slots=True)
class RerunContext:
    """The :class:`~txtopo.runtime.run_context.CommitContext` of a rerun."""

    graph: Graph
    compiled: CompiledTopology
    carrier: Carrier
    planner: NoPlanner
    scheduler: Scheduler


@dataclass(frozen=True, slots=True)
class RerunOutcome:
    """What became of a txid.

    Attributes:
        batch: What was processed; None if that failed.
        failure: The failure of user code, or of a write; None if there is none.
    """

    batch: BatchOutcome | None
    failure: FailedBatch | None = None


class Rerun:
    """Computes txids again, in order.

    Args:
        graph: The topology.
        config: Its settings.
        carrier: Runs the stages.
        states: Take the writes, and are read as of the txid before.
        observer: Is told of the tuples of tasks in this process.
    """

    def __init__(
        self,
        graph: Graph,
        config: Config,
        carrier: Carrier,
        states: Mapping[StateName, OverlayState],
        observer: Observer | None = None,
    ) -> None:
        slots = config.slots or carrier.default_slots()
        # Tasks would open the real states.
        compiled = compile_topology(graph, config, slots, commit_in_driver=True)
        carrier.start(compiled)
        self._states, self._observer = states, observer
        scheduler = ThreadScheduler(f"txtopo-{graph.id}-rerun")
        self._context = RerunContext(graph, compiled, carrier, NoPlanner(), scheduler)
        alone = SharedTransactions(tuple((name,) for name in states))
        self._phase = CommitPhase(self._context, states, alone, observer=observer)

    @property
    def compiled(self) -> CompiledTopology:
        """The topology, compiled for the carrier."""
        return self._context.compiled

    def run(
        self,
        attempt: TransactionAttempt,
        metadata: BatchMetadata,
        previous: BatchMetadata | None,
    ) -> RerunOutcome:
        """Compute a txid again, and commit it to the states.

        Args:
            attempt: The attempt as which it runs.
            metadata: Its metadata.
            previous: That of the txid before.

        Raises:
            RunLostError: Spark failed; try again.
        """
        compiled, carrier = self.compiled, self._context.carrier
        tag = f"txtopo:{compiled.topology_id}:rerun:{attempt.txid}-{attempt.txid}:1"
        run = Run(tag, (attempt,), (replace(metadata, content=None),), previous)
        output = carrier.process(run)
        try:
            outcome = judged(compiled, run, output)
            output.records = []
            if outcome.failure is not None:
                return RerunOutcome(None, outcome.failure)
            (batch,) = outcome.processed
            for state in self._states.values():
                state.admit(attempt)
            result = BatchResult(attempt, batch, output, 0.0)
            try:
                report = self._phase.run([result], lambda count: True, pinned=True)
            except InfrastructureError:
                raise
            except Exception as error:  # noqa: BLE001 - an aggregate of the user's may raise any
                return RerunOutcome(batch, FailedBatch(attempt, error, self._blamed(error)))
            for name, end in report.expires.items():
                self._states[name].expired(attempt.txid, end)
            return RerunOutcome(batch, report.failure)
        finally:
            carrier.release(output)

    def _blamed(self, error: Exception) -> str:
        """Return the component whose write failed, and tell the observer what user code raised."""
        writing = (id for (id, _), state in self._states.items() if state.writing)
        component = next(writing, "")
        if isinstance(error, TxtopoError):
            return str(error.facts.get("component", component))
        if self._observer is not None:
            self._observer.failed(component, error)
        return component
