"""Parts: what a run is made of, put together once per start.

Closing: what a run lets go of when it ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from txtopo.state.backend import StateBackend
from txtopo.transactional_state.store import Leadership

if TYPE_CHECKING:
    from txtopo.attempt import TransactionAttempt
    from txtopo.config import Config
    from txtopo.metadata import BatchMetadata
    from txtopo.runtime.batch_planner import BatchPlanner
    from txtopo.runtime.carrier import Carrier
    from txtopo.runtime.scheduler import Scheduler
    from txtopo.stages.program import Program
    from txtopo.topology.graph import Graph
    from txtopo.transactional_state.store import TransactionalState


@dataclass(frozen=True, slots=True)
class RunContext:
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


class CommittingSpout(Protocol):
    """The driver's side of a spout, as far as commits go: a ``BatchPlanner``."""

    def commit(self, attempt: TransactionAttempt) -> None:
        """Tell an emitter that takes part in the commit phase."""
        ...

    def lag(self, metadata: BatchMetadata) -> Mapping[str, int]:
        """Return the records behind a batch, by partition, where the spout knows it."""
        ...

    def lost(self, metadata: BatchMetadata) -> Mapping[str, str]:
        """Return what the source lost before a batch could read it, by partition."""
        ...


class CommitContext(Protocol):
    """What commits need of the parts, with a coordinator or without one."""

    @property
    def graph(self) -> Graph:
        """The checked topology."""
        ...

    @property
    def program(self) -> Program:
        """The same, compiled for the stages."""
        ...

    @property
    def carrier(self) -> Carrier:
        """What moves envelopes."""
        ...

    @property
    def planner(self) -> CommittingSpout:
        """The driver's side of the spout."""
        ...

    @property
    def scheduler(self) -> Scheduler:
        """Where durable steps are marked."""
        ...


if TYPE_CHECKING:
    pass

logger = logging.getLogger("txtopo")


def close_parts(
    parts: RunContext, leadership: Leadership | None, release_states: Callable[[], None] | None
) -> None:
    """Let go of everything but the spout; the place in the election first: others wait for it."""
    steps: list[Callable[[], None]] = [] if leadership is None else [leadership.release]
    if release_states is not None:
        steps.append(release_states)
    steps += [parts.transactional_state.close, parts.carrier.close]
    for step in steps:
        try:
            step()
        except Exception:
            logger.warning("topology %s: could not close", parts.graph.id, exc_info=True)


def close_spout(parts: RunContext) -> None:
    """Close the user's parts of the spout."""
    try:
        parts.planner.close()
    except BaseException:
        logger.warning("topology %s: the spout could not close", parts.graph.id, exc_info=True)


def close_backends(backends: Mapping[tuple[str, str], StateBackend]) -> None:
    """Close the states of a term or of a takeover that failed; errors are logged."""
    for name, backend in backends.items():
        try:
            backend.close()
        except Exception:
            logger.warning("could not close state %s", ".".join(name), exc_info=True)
