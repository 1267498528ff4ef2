"""TopologyBuilder: puts an at-least-once topology together; ReliableTopology can be started."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from txtopo.bolts.bolt import BasicBolt
from txtopo.builders.declarer import InputDeclarer
from txtopo.builders.prototypes import snapshot
from txtopo.config import AtLeastOnceConfig
from txtopo.errors import TopologyError
from txtopo.reliable.bolt import Bolt
from txtopo.reliable.kinds import RELIABLE_BOLTS, RELIABLE_SPOUTS
from txtopo.reliable.spout import Spout
from txtopo.topology.checks import check_parallelism
from txtopo.topology.component import (
    DEFAULT_ID,
    Component,
    bolt_kind,
    check_id,
    checked_streams,
    spout_kind,
)
from txtopo.topology.graph import Graph
from txtopo.tuples import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txtopo.explanation import Explanation
    from txtopo.runtime.handle import ReliableRun
    from txtopo.runtime.progress import TopologyListener
    from txtopo.runtime.restart import Restart


@dataclass(frozen=True, slots=True)
class ReliableTopology:
    """A checked at-least-once topology.

    Attributes:
        graph: Its components and the streams between them.
    """

    graph: Graph

    @property
    def id(self) -> str:
        """Id of the topology."""
        return self.graph.id

    def start(
        self,
        spark: SparkSession | None = None,
        config: AtLeastOnceConfig | None = None,
        listeners: Sequence[TopologyListener] = (),
        *,
        active: bool = True,
        restart: Restart | None = None,
    ) -> ReliableRun:
        """Run the topology.

        Args:
            spark: The session whose tasks host spouts and bolts; by default, the active one. If
                there is none, the topology runs in this process, except with the carrier
                ``resident``, which opens a session.
            config: The settings; default ``AtLeastOnceConfig()``.
            listeners: Called with each event of the run.
            active: Whether to open spouts and bolts and to emit immediately; if False, this waits
                for ``activate()`` of the run (Storm's ``INACTIVE``).
            restart: When to restart the run after a temporary error; by default, never. Messages
                that were not acked are replayed if the source kept them; the memory of bolts is
                lost.

        Returns:
            The handle of the run.

        Raises:
            ConfigError: A setting does not fit; nothing has run.
        """
        from txtopo.reliable.start import start_reliable

        return start_reliable(
            self.graph,
            spark,
            config or AtLeastOnceConfig(),
            listeners,
            active=active,
            restart=restart,
        )

    def explain(
        self, config: AtLeastOnceConfig | None = None, spark: SparkSession | None = None
    ) -> Explanation:
        """Explain what the topology does and how it would run; it starts nothing.

        ``str()`` of the result is a page of text; ``svg()`` and ``mermaid()`` are pictures. A
        notebook shows the picture automatically.

        Args:
            config: The settings; default ``AtLeastOnceConfig()``.
            spark: The session to start it with; by default, the active one, if any.

        Raises:
            ConfigError: A setting does not fit; :meth:`start` would refuse it too.

        Example:
            ``print(topology.explain())``
        """
        from txtopo.explanation.explaining import explain_topology

        return explain_topology(self.graph, config, spark)

    def _repr_html_(self) -> str:
        return self.explain()._repr_html_()


class TopologyBuilder:
    """Builds an at-least-once topology of spouts and bolts (Storm's class of that name).

    Mistakes in a definition are found here or in :meth:`build_topology`, before anything runs. For
    exactly-once state use a :class:`~txtopo.TransactionalTopologyBuilder`.

    Args:
        id: Id of the topology, for messages and names of threads. It is required with
            ``AtLeastOnceConfig.zookeeper``, because the drivers elect a leader under it.

    Raises:
        TopologyError: An argument is wrong; the message says which and how to repair it.

    Example:
        >>> from txtopo import BasicBolt, Fields, TopologyBuilder
        >>> from txtopo.spouts import MemorySpout
        >>> class Shout(BasicBolt):
        ...     output_fields = Fields("word string")
        ...     def execute(self, tuple, collector):
        ...         collector.emit([tuple["word"].upper()])
        >>> builder = TopologyBuilder("shouting")
        >>> builder.set_spout("words", MemorySpout([["a"], ["b"]], Fields("word string")))
        >>> _ = builder.set_bolt("shout", Shout(), 2).shuffle_grouping("words")
        >>> builder.build_topology().id
        'shouting'
    """

    def __init__(self, id: str = DEFAULT_ID) -> None:
        self._id = check_id("topology", id)
        self._spouts: dict[str, Component] = {}
        self._declarers: dict[str, InputDeclarer] = {}

    def set_spout(self, id: str, spout: Spout, parallelism: int = 1) -> None:
        """Add a spout.

        Args:
            id: Id of the spout.
            spout: A prototype: each task gets a copy of it.
            parallelism: The number of its tasks.

        Raises:
            TopologyError: The id is taken, or an argument is wrong; repair it.
        """
        self._check_id("spout", id)
        kind = spout_kind(id, spout, RELIABLE_SPOUTS)
        check_parallelism(id, parallelism)
        streams = _checked_streams(id, spout)
        self._spouts[id] = Component(id, kind, spout, parallelism, streams)

    def set_bolt(self, id: str, bolt: Bolt | BasicBolt, parallelism: int = 1) -> InputDeclarer:
        """Add a bolt.

        Args:
            id: Id of the bolt.
            bolt: A prototype: each task gets a copy of it.
            parallelism: The number of its tasks.

        Returns:
            The declarer of its inputs.

        Raises:
            TopologyError: The id is taken, or an argument is wrong; repair it.
        """
        self._check_id("bolt", id)
        kind = bolt_kind(id, bolt, RELIABLE_BOLTS)
        check_parallelism(id, parallelism)
        _check_tick(id, bolt.tick_interval_s)
        streams = dict(_checked_streams(id, bolt))
        declarer = InputDeclarer(id, bolt, kind, parallelism, streams)
        self._declarers[id] = declarer
        return declarer

    def build_topology(self) -> ReliableTopology:
        """Check everything and return the topology; later changes here do not affect it.

        Raises:
            TopologyError: The topology cannot run; the message says what to repair.
        """
        if not self._spouts:
            raise TopologyError(
                f"topology {self._id!r} has no spout; expected at least one; add one with "
                "set_spout(id, spout)",
                topology=self._id,
            )
        _check_sources(self._spouts.values())
        bolts = [declarer.component() for declarer in self._declarers.values()]
        declared = [*self._spouts.values(), *bolts]
        Graph.of(self._id, declared)
        return ReliableTopology(Graph.of(self._id, [*map(snapshot, declared)]))

    def _check_id(self, what: str, id: str) -> None:
        check_id(what, id)
        if id in self._spouts or id in self._declarers:
            raise TopologyError(
                f"component id {id!r} is used twice; ids must be distinct; rename one of them",
                component=id,
            )


def _check_sources(spouts: Iterable[Component]) -> None:
    takers: dict[str, str] = {}
    for spout in spouts:
        for source in spout.traits.takes_from:
            if source in takers:
                raise TopologyError(
                    f"spouts {takers[source]!r} and {spout.id!r} read the same source, so "
                    f"each would get only a part; got {source} twice; expected one spout for it; "
                    "let several bolts subscribe to one spout, or raise its parallelism",
                    component=spout.id,
                )
            takers[source] = spout.id


def _checked_streams(id: str, component: object) -> Mapping[str, Stream]:
    streams = checked_streams(id, component)
    for name, stream in streams.items():
        if stream.fields.required:
            raise TopologyError(
                f"field {stream.fields.required[0]!r} of stream {name!r} of {id!r} is required, "
                "which topologies of TopologyBuilder do not check; leave out its !; fields of a "
                "JSON value of a KafkaSpout may be required",
                component=id,
                stream=name,
            )
    return streams


def _check_tick(id: str, interval_s: object) -> None:
    number = isinstance(interval_s, int | float) and not isinstance(interval_s, bool)
    if interval_s is not None and not (number and 0 < float(interval_s) < math.inf):  # type: ignore[arg-type]
        raise TopologyError(
            f"tick_interval_s of bolt {id!r} is wrong; got {interval_s!r}; expected a number of "
            "seconds above 0, or None",
            component=id,
        )
