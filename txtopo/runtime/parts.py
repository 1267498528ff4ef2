"""Parts: what a run is made of, put together once per start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from txtopo.config import Config
    from txtopo.planning.program import Program
    from txtopo.runtime.batch_planner import BatchPlanner
    from txtopo.runtime.carrier import Carrier
    from txtopo.runtime.scheduler import Scheduler
    from txtopo.topology.graph import Graph
    from txtopo.transactional_state.store import TransactionalState


@dataclass(frozen=True, slots=True)
class Parts:
    """What a run is made of.

    Attributes:
        graph: The checked topology.
        program: The same, compiled for the stages.
        config: The settings.
        carrier: Moves envelopes.
        transactional_state: Elects the leader and outlives it.
        planner: The driver's side of the spout.
        scheduler: Time, threads and blocking calls.
    """

    graph: Graph
    program: Program
    config: Config
    carrier: Carrier
    transactional_state: TransactionalState
    planner: BatchPlanner
    scheduler: Scheduler
