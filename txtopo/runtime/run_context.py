"""RunContext: the graph, settings, carrier, scheduler etc. of a running topology.

The functions below open the states of a topology, and close what it holds when it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from txtopo.ensemble.store import Leadership
from txtopo.errors import TopologyError
from txtopo.fingerprint import StateName
from txtopo.log_records import logger_of
from txtopo.retries import LOGGER
from txtopo.state.backend import StateBackend

if TYPE_CHECKING:
    from txtopo.carriers.carrier import Carrier
    from txtopo.config import Config
    from txtopo.ensemble.store import TransactionalState
    from txtopo.metadata import BatchMetadata
    from txtopo.runtime.batch_planner import BatchPlanner
    from txtopo.runtime.plan_clock import PlanClock
    from txtopo.runtime.scheduler import Scheduler
    from txtopo.runtime.spout_planner import SpoutPlanner
    from txtopo.stages.compiled_topology import CompiledTopology
    from txtopo.state.registry import State
    from txtopo.state.together import SharedTransactions
    from txtopo.topology.graph import Graph

_logger = logger_of(LOGGER)

_NOT_CLOSED = "topology %r: %s could not be closed"


@dataclass(frozen=True, slots=True)
class RunContext:
    """A running topology and what it runs on, from its start to its end.

    Attributes:
        graph: The checked topology.
        compiled: The same topology, compiled for the stages.
        config: The settings.
        carrier: The carrier, which moves envelopes.
        transactional_state: Elects the leader and outlives it.
        planner: Calls the spouts in the driver.
        plan_clock: The clock of the planner.
        scheduler: Time, threads and blocking calls.
        prepared: The states that the start has opened and created, until a takeover takes them out.
            The one that takes them out must close them.
    """

    graph: Graph
    compiled: CompiledTopology
    config: Config
    carrier: Carrier
    transactional_state: TransactionalState
    planner: BatchPlanner
    plan_clock: PlanClock
    scheduler: Scheduler
    prepared: list[dict[StateName, StateBackend]] = field(default_factory=list)

    def take_prepared(self) -> dict[StateName, StateBackend]:
        """Take the prepared states out; later calls return none. May be called on any thread."""
        try:
            return self.prepared.pop()
        except IndexError:
            return {}


class CommittingSpout(Protocol):
    """What a commit uses of a ``BatchPlanner``."""

    @property
    def parts(self) -> Sequence[SpoutPlanner]:
        """The planner of each spout, whose emitter may take part in the commit phase."""
        ...

    def lag(self, metadata: BatchMetadata, txid: int | None = None) -> Mapping[str, int]:
        """Return how many records are behind a batch, by partition, or in a unit of lag."""
        ...

    def lost(self, metadata: BatchMetadata) -> Mapping[str, str]:
        """Return the records that the source lost before a batch could read them, by partition."""
        ...


class NoPlanner:
    """A ``CommittingSpout`` without an emitter, where nobody is to be told of a commit."""

    parts: Sequence[SpoutPlanner] = ()
    """Empty: no emitter takes part in a commit."""

    def lag(self, metadata: BatchMetadata, txid: int | None = None) -> Mapping[str, int]:
        """Return nothing: the lag is not known here."""
        return {}

    def lost(self, metadata: BatchMetadata) -> Mapping[str, str]:
        """Return nothing: what the source lost is not known here."""
        return {}


class CommitContext(Protocol):
    """The attributes of a ``RunContext`` that a commit needs.

    What commits without a coordinator, as a streaming query does, has a context of its own.
    """

    @property
    def graph(self) -> Graph:
        """The checked topology."""
        ...

    @property
    def compiled(self) -> CompiledTopology:
        """The same topology, compiled for the stages."""
        ...

    @property
    def carrier(self) -> Carrier:
        """The carrier, which moves envelopes."""
        ...

    @property
    def planner(self) -> CommittingSpout:
        """Calls the spout in the driver."""
        ...

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler, with clocks, threads and durable steps."""
        ...


def open_states(graph: Graph, scheduler: Scheduler) -> dict[StateName, StateBackend]:
    """Open a backend for each state of each committer, in topological order.

    The steps of their commits are marked as durable steps, with the name of the state.

    Raises:
        TopologyError: The rows of a state expire, and its store deletes nothing; use another store,
            or leave ``expire_after`` out.
    """
    backends = {}
    for component in graph.components.values():
        for name, state in component.states.items():
            backend = state.open()
            if component.traits.expires and not backend.deletes_expired:
                backend.close()
                raise _never_deleted(component.id, name, state, backend)
            backend.point = partial(_mark, scheduler, f"{component.id}.{name}")
            backends[component.id, name] = backend
    return backends


def _never_deleted(component: str, name: str, state: State, backend: StateBackend) -> TopologyError:
    return TopologyError(
        f"the rows of state {name!r} of {component!r} would expire but never be deleted; got "
        f"{state!r}, whose store cannot delete rows ({type(backend).__name__} has no expire()); "
        "expected a store that can, such as SQLite, PostgreSQL, MariaDB, Redis or Delta; use one "
        f"of them, or remove expire_after{_or_with(backend)}",
        component=component,
        state=name,
    )


def _or_with(backend: StateBackend) -> str:
    return f", or make the store delete rows: {backend.more_with}" if backend.more_with else ""


def _mark(scheduler: Scheduler, state: str, step: str) -> None:
    scheduler.point(f"{step}:{state}")


def tell_shared(topology: str, shared: SharedTransactions) -> None:
    """Log which states share a transaction, and why others of the same database do not."""
    for names in shared.groups:
        if len(names) > 1:
            states = ", ".join(map(".".join, names))
            text = "topology %r: these states share one transaction: %s"
            _logger.info(text, topology, states, extra={"topology": topology})
    for name, why in shared.apart.items():
        attributes = {"topology": topology, "component": name[0]}
        text = "topology %r: state %s has transactions of its own: %s"
        _logger.info(text, topology, ".".join(name), why, extra=attributes)


def close_context(
    context: RunContext, leadership: Leadership | None, release_states: Callable[[], None] | None
) -> None:
    """Close everything except the spout, and log errors.

    The leadership is released first, because other candidates wait for it. The carrier is closed in
    parallel, because it waits for the end of its tasks.
    """
    ended = context.scheduler.beside(context.carrier.close)
    steps: list[Callable[[], None]] = [] if leadership is None else [leadership.release]
    if release_states is not None:
        steps.append(release_states)
    steps += [partial(close_prepared, context), context.transactional_state.close, ended.result]
    close_parts(context.graph.id, steps)


def close_parts(topology: str, steps: Iterable[Callable[[], None]]) -> None:
    """Run closing steps one after the other, and log their errors."""
    for step in steps:
        try:
            step()
        except Exception:
            attributes = {"topology": topology}
            _logger.warning(_NOT_CLOSED, topology, "a part of it", exc_info=True, extra=attributes)


def close_spout(graph: Graph, planner: BatchPlanner) -> None:
    """Close the user's parts of the spout, and log errors."""
    try:
        planner.close()
    except BaseException:
        only = graph.spout.id if len(graph.spouts) == 1 else None
        attributes = {"topology": graph.id, "component": only}
        _logger.warning(_NOT_CLOSED, graph.id, "a spout", exc_info=True, extra=attributes)


def close_prepared(context: RunContext) -> None:
    """Close the prepared states, unless a takeover has taken them."""
    close_backends(context.graph.id, context.take_prepared())


def close_backends(topology: str, backends: Mapping[StateName, StateBackend]) -> None:
    """Close the states of a term, or of a takeover that failed, and log errors."""
    for name, backend in backends.items():
        try:
            backend.close()
        except Exception:
            attributes = {"topology": topology, "component": name[0]}
            _logger.warning(_NOT_CLOSED, topology, ".".join(name), exc_info=True, extra=attributes)
