"""complete_topology and TrackedTopology: run a topology on given inputs until all are processed.

They are Storm's ``Testing.completeTopology`` and ``TrackedTopology``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from txtopo.config import AtLeastOnceConfig
from txtopo.context import TaskContext
from txtopo.errors import TopologyError
from txtopo.groupings import DirectGrouping, GlobalGrouping, Grouping
from txtopo.reliable.bolt import Bolt
from txtopo.reliable.builder import ReliableTopology
from txtopo.reliable.collector import OutputCollector
from txtopo.reliable.kinds import BOLT
from txtopo.runtime.progress import TopologyListener
from txtopo.testing.cluster import SimulatedCluster
from txtopo.testing.spouts import FeederSpout, Shared
from txtopo.topology.component import Component, Subscription
from txtopo.topology.graph import Graph
from txtopo.tuples import DEFAULT_STREAM, Fields, Tuple

Rows = list[tuple[Any, ...]]


def complete_topology(
    topology: ReliableTopology,
    inputs: Mapping[str, Sequence[Sequence[Any]]],
    config: AtLeastOnceConfig | None = None,
    *,
    seed: int = 0,
) -> Completed:
    """Run a topology on given inputs in simulated time until all of them are processed.

    Args:
        topology: The topology.
        inputs: The tuples that each spout emits to its stream ``default`` instead of its own. A
            spout that is not named emits nothing.
        config: How to run.
        seed: Decides the interleaving.

    Returns:
        The values of all tuples that spouts and bolts emitted, by component, in the order of their
        arrival: ``{"words": [("a",), …], "count": …, "count/errors": …}``. A failed tuple is
        emitted again and appears twice.

    Raises:
        TopologyError: *inputs* names something that is not a spout of the topology.
        TimeoutError: They are not processed within an hour of simulated time.
        Exception: The error that user code raised.
    """
    spouts = {spout.id for spout in topology.graph.spouts}
    unknown = sorted(inputs.keys() - spouts)
    if unknown:
        raise TopologyError(
            f"inputs were passed for {unknown[0]!r}, which is not a spout; the spouts are "
            f"{sorted(spouts)}",
            component=unknown[0],
            expected=tuple(sorted(spouts)),
        )
    seen = _Seen()
    components = [
        _fed(one, inputs.get(one.id, ())) if one.kind.spout else one
        for one in topology.graph.components.values()
    ]
    components.append(_capturing(_Capture(seen), topology.graph))
    cluster = SimulatedCluster(seed)
    cluster.start(ReliableTopology(Graph.of(topology.id, components)), config)
    cluster.process_all_available()
    cluster.stop()
    streams = ((one.id, name) for one in components for name in one.streams)
    return Completed({_key(*each): seen.rows.get(_key(*each), []) for each in streams})


class TrackedTopology:
    """Runs a topology in simulated time, and waits until what its spouts emitted is processed.

    Args:
        topology: The topology.
        config: How to run.
        listeners: They get every event of the run.
        seed: Decides the interleaving.
    """

    def __init__(
        self,
        topology: ReliableTopology,
        config: AtLeastOnceConfig | None = None,
        listeners: Sequence[TopologyListener] = (),
        *,
        seed: int = 0,
    ) -> None:
        self.cluster = SimulatedCluster(seed)
        self.run = self.cluster.start(topology, config, listeners)
        self._waited = 0

    @property
    def emitted(self) -> int:
        """How many tuples the spouts have emitted."""
        return self.cluster.progress.emitted

    @property
    def in_flight(self) -> int:
        """How many tuples the slots have not consumed yet."""
        return self.cluster.progress.backlog

    def wait(self, tuples: int = 1, timeout_s: float = 3600.0) -> None:
        """Wait until the spouts have emitted *tuples* more since the last wait, all processed.

        Raises:
            TimeoutError: They have not within *timeout_s* of simulated time.
        """
        goal = self._waited + tuples
        self.cluster.run_until(lambda: self.emitted >= goal and not self.in_flight, timeout_s)
        self._waited = goal


class Completed(dict[str, Rows]):
    """The tuples of each stream, by ``"bolt"`` for the stream default, else ``"bolt/stream"``."""


class _Seen(Shared):
    def __init__(self) -> None:
        self.rows = Completed()


class _Capture(Bolt):
    """Keeps every tuple that it receives, by stream."""

    def __init__(self, seen: _Seen) -> None:
        self._seen = seen

    def prepare(
        self, config: AtLeastOnceConfig, context: TaskContext, collector: OutputCollector
    ) -> None:
        self._collector = collector

    def execute(self, tuple: Tuple) -> None:
        key = _key(tuple.source_component, tuple.source_stream)
        self._seen.rows.setdefault(key, []).append(tuple.values)  # type: ignore[arg-type]
        self._collector.ack(tuple)


class _Inputs(FeederSpout):
    """Emits given tuples, and emits failed ones again."""

    def __init__(self, fields: Fields, rows: Sequence[Sequence[Any]]) -> None:
        super().__init__(fields)
        self._rows = list(rows)
        for at, row in enumerate(self._rows):
            self.feed(row, at)

    def fail(self, message_id: Any) -> None:
        super().fail(message_id)
        self.feed(self._rows[message_id], message_id)


def _fed(spout: Component, rows: Sequence[Sequence[Any]]) -> Component:
    stream = spout.streams.get(DEFAULT_STREAM)
    if rows and stream is None:
        raise TopologyError(
            f"spout {spout.id!r} has no stream 'default' to put inputs into; got "
            f"{', '.join(map(repr, spout.streams)) or 'no streams'}",
            component=spout.id,
        )
    return replace(spout, prototype=_Inputs(stream.fields if stream else Fields(), rows))


def _capturing(capture: _Capture, graph: Graph) -> Component:
    subscriptions, tasks = [], 1
    for one in graph.components.values():
        for name, stream in one.streams.items():
            grouping: Grouping = GlobalGrouping()
            if stream.direct:
                grouping = DirectGrouping()
                tasks = max(tasks, *(c.parallelism for c in graph.components.values()))
            subscriptions.append(Subscription(one.id, name, grouping))
    return Component("capture of all", BOLT, capture, tasks, {}, tuple(subscriptions))


def _key(component: str, stream: str) -> str:
    return component if stream == DEFAULT_STREAM else f"{component}/{stream}"
