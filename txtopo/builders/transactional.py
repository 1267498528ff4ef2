"""TransactionalTopologyBuilder: puts a transactional topology together; Topology can be started."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from txtopo.bolts.bolt import ArrowBolt, BasicBolt, BatchBolt, Committer, DataFrameBolt
from txtopo.bolts.dead_letters import DeadLetters
from txtopo.bolts.persistent_aggregate import PersistentAggregate
from txtopo.builders.dead_letters import (
    check_no_dead_letters,
    checked_dead_letters,
    with_dead_letters,
)
from txtopo.builders.declarer import BoltDeclarer
from txtopo.builders.prototypes import snapshot
from txtopo.config import Config, StreamCarrier
from txtopo.errors import TopologyError, TopologyWarning
from txtopo.spouts.dataframe import DataFrameTransactionalSpout
from txtopo.spouts.sequence import SequenceSpout
from txtopo.spouts.spout import (
    OpaquePartitionedTransactionalSpout,
    PartitionedTransactionalSpout,
    StreamSpout,
    TransactionalSpout,
)
from txtopo.state.registry import State
from txtopo.topology.bolt_kinds import BASIC_BOLT
from txtopo.topology.checks import check_parallelism
from txtopo.topology.component import (
    Component,
    bolt_kind,
    check_id,
    checked_streams,
    not_a_committer,
    spout_kind,
)
from txtopo.topology.graph import Graph, advice

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txtopo.explanation import Explanation
    from txtopo.runtime.engine import MicroBatchFunction
    from txtopo.runtime.progress import TopologyListener
    from txtopo.runtime.restart import Restart
    from txtopo.runtime.start import TopologyRun


@dataclass(frozen=True, slots=True)
class Topology:
    """A checked transactional topology; you may start it any number of times.

    Attributes:
        graph: Its components and the streams between them.
    """

    graph: Graph

    @property
    def id(self) -> str:
        """Id of the topology; its progress is stored under it."""
        return self.graph.id

    def start(
        self,
        spark: SparkSession | None = None,
        config: Config | None = None,
        listeners: Sequence[TopologyListener] = (),
        *,
        restart: Restart | None = None,
    ) -> TopologyRun:
        """Run the topology; it resumes after the last committed batch.

        Args:
            spark: The session; by default, the active one or a new one. The carrier ``local`` needs
                none.
            config: The settings; default ``Config()``.
            listeners: Called with each event of the run.
            restart: When to restart the run after an error that may pass; by default, never.

        Returns:
            The handle of the run.
        """
        from txtopo.runtime.start import start_topology

        return start_topology(self.graph, spark, config or Config(), listeners, restart=restart)

    def foreach_batch(
        self,
        *,
        carrier: StreamCarrier = "auto",
        slots: int | None = None,
        continues: str | None = None,
        after_txid: int = 0,
    ) -> MicroBatchFunction:
        """Return a function for ``foreachBatch`` of a Structured Streaming query.

        Delivery: a micro-batch counts exactly once in each state, whatever crashes, as long as the
        query keeps its checkpoint. That holds even if the last commit entry of the checkpoint is
        lost: the batch is then undone and repeated (opaque states), or not repeated (transactional
        states). Batches are committed one at a time, in order. Once a later start of the query has
        replaced an earlier one, the earlier one changes nothing. Each call is one attempt: an error
        ends the query.

        Limits: classic Spark only; asynchronous progress tracking is refused. The id of the query
        is part of the topology id in the ledgers, so a query with a new checkpoint is refused on
        the tables of an old one, unless it names the old one with *continues*. From then on the old
        query is refused, and so is every other query that continues it. Take *after_txid* from the
        message that refused the new query. If two drivers start the same checkpoint at the same
        moment, only Spark's checkpoint keeps them apart.

        Args:
            carrier: ``"dataframe"``, which ``"auto"`` picks, or ``"local"``: everything in the
                driver.
            slots: Tasks of a micro-batch; by default, the parallelism of the session.
            continues: Id of an earlier query with another checkpoint. This query starts after its
                last batch and takes over its tables. Pass it at each start.
            after_txid: The txid that those tables held at that point.

        Raises:
            TopologyError: The topology has no ``StreamSpout``.
            ConfigError: A setting does not fit.

        Example:
            ``query = stream.writeStream.foreachBatch(topology.foreach_batch()).start()``
        """
        from txtopo.runtime.engine import run_engine

        return run_engine().foreach_batch(self.graph, carrier, slots, continues, after_txid)

    def explain(
        self, config: Config | None = None, spark: SparkSession | None = None
    ) -> Explanation:
        """Explain what the topology does and how it would run; it starts nothing.

        ``str()`` of the result is a page of text; ``svg()`` and ``mermaid()`` are pictures. A
        notebook shows the picture automatically.

        Args:
            config: The settings; default ``Config()``.
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


Spout = (
    TransactionalSpout
    | PartitionedTransactionalSpout
    | OpaquePartitionedTransactionalSpout
    | SequenceSpout
    | StreamSpout
    | DataFrameTransactionalSpout
)

Bolt = BasicBolt | BatchBolt | ArrowBolt | DataFrameBolt | PersistentAggregate


class TransactionalTopologyBuilder:
    """Builds a transactional topology of spouts, bolts and committers (Storm's class of that name).

    Mistakes in a definition are found here or in :meth:`build_topology`, before anything runs.

    Args:
        id: Id of the topology. Its progress is stored under this id: a later start with the same id
            resumes where it stopped. Different topologies need different ids.
        spout_id: Id of the spout.
        spout: The spout; :meth:`set_spout` adds others.
        parallelism: The number of tasks of the spout.
        dead_letters: Where to put records that cannot be processed, while the rest of their batch
            continues: a state from ``open_state``, a committer such as a ``KafkaSink``, or
            ``DeadLetters`` with one of these. They are records that a spout cannot decode, and
            those for which a ``BasicBolt`` raises ``RecordFailed`` or an exception that
            ``dead_letters_on`` lists. Without it, such a record ends the run.

    Raises:
        TopologyError: An argument is wrong; the message says which and how to repair it.

    Example:
        >>> from txtopo import Fields, PersistentAggregate, TransactionalTopologyBuilder
        >>> from txtopo.spouts import MemoryTransactionalSpout
        >>> from txtopo.state import Count, open_state
        >>> words = MemoryTransactionalSpout({0: [["a"], ["b"]]}, Fields("word string"), 1)
        >>> builder = TransactionalTopologyBuilder("words", "spout", words)
        >>> count = PersistentAggregate(open_state("memory:"), "word", Count())
        >>> _ = builder.set_bolt("count", count).fields_grouping("spout", "word")
        >>> builder.build_topology().id
        'words'
    """

    def __init__(
        self,
        id: str,
        spout_id: str,
        spout: Spout,
        parallelism: int = 1,
        *,
        dead_letters: State | Committer | DeadLetters | None = None,
    ) -> None:
        self._id = check_id("topology", id)
        self._dead_letters = checked_dead_letters(dead_letters)
        self._spouts: dict[str, Component] = {}
        self._declarers: dict[str, BoltDeclarer] = {}
        self.set_spout(spout_id, spout, parallelism)

    def set_spout(self, id: str, spout: Spout, parallelism: int = 1) -> None:
        """Add a spout, which shares the txids of the first one.

        ``docs/how-to/several-spouts.md`` describes such topologies.

        You may mix transactional, partitioned and opaque spouts. A batch is planned when any of
        them is ready; spouts that are not ready take no part in it.

        Args:
            id: Id of the spout.
            spout: The spout.
            parallelism: The number of its tasks.

        Raises:
            TopologyError: The id is taken, or an argument is wrong; repair it.
        """
        check_id("spout", id)
        self._check_free(id)
        kind = spout_kind(id, spout)
        check_parallelism(id, parallelism)
        if kind.one_task is not None and parallelism != 1:
            raise TopologyError(
                f"{kind.text} {id!r} cannot have a parallelism of its own; got {parallelism}; "
                f"expected none: {kind.one_task}",
                component=id,
            )
        streams = checked_streams(id, spout)
        if not streams:
            raise TopologyError(
                f"spout {id!r} declares no fields; expected output_fields = Fields(…)",
                component=id,
            )
        self._spouts[id] = Component(id, kind, spout, parallelism, streams)

    def set_bolt(self, id: str, bolt: Bolt, parallelism: int = 1) -> BoltDeclarer:
        """Add a bolt, which is a committer if it is derived from ``Committer``.

        Args:
            id: Id of the bolt.
            bolt: A prototype: each task of each attempt gets a fresh copy of it.
            parallelism: The number of its tasks.

        Returns:
            A declarer for its inputs and states.

        Raises:
            TopologyError: The id is taken, or an argument is wrong; repair it.
        """
        return self._declare(id, bolt, parallelism, committer=isinstance(bolt, Committer))

    def set_committer_bolt(self, id: str, bolt: Bolt, parallelism: int = 1) -> BoltDeclarer:
        """Add a bolt that runs in the commit phase, whether or not it is a ``Committer``.

        Raises:
            TopologyError: As ``set_bolt``, and for a basic bolt, which sees no batch.
        """
        return self._declare(id, bolt, parallelism, committer=True)

    def build_topology(self) -> Topology:
        """Check everything and return the topology; later changes here do not affect it.

        Raises:
            TopologyError: The topology cannot run; the message says what to repair.
        """
        bolts = (declarer.component() for declarer in self._declarers.values())
        declared = [*self._spouts.values(), *bolts]
        if self._dead_letters is not None:
            declared = with_dead_letters(declared, self._dead_letters)
        else:
            check_no_dead_letters(declared)
        graph = Graph.of(self._id, declared)
        if any(map(_expires, declared)):
            # It needs Arrow, which no other topology does before it runs.
            from txtopo.builders.expiring_aggregates import with_expiring_aggregates

            declared = with_expiring_aggregates(declared)
        for sentence in advice(graph):
            warnings.warn(sentence, TopologyWarning, stacklevel=2)
        return Topology(Graph.of(self._id, [*map(snapshot, declared)]))

    def _declare(self, id: str, bolt: object, parallelism: int, *, committer: bool) -> BoltDeclarer:
        check_id("bolt", id)
        self._check_free(id)
        kind = bolt_kind(id, bolt)
        if committer and kind == BASIC_BOLT:
            raise not_a_committer(id, bolt)
        check_parallelism(id, parallelism)
        if isinstance(bolt, BasicBolt) and bolt.tick_interval_s is not None:
            raise TopologyError(
                f"bolt {id!r} asks for ticks; got tick_interval_s={bolt.tick_interval_s!r}; "
                "expected None, because a bolt that processes batches has no ticks; use a "
                "TopologyBuilder",
                component=id,
            )
        streams = dict(checked_streams(id, bolt))
        declarer = BoltDeclarer(id, bolt, kind, parallelism, streams, committer)
        self._declarers[id] = declarer
        return declarer

    def _check_free(self, id: str) -> None:
        if id in self._spouts or id in self._declarers:
            raise TopologyError(
                f"component id {id!r} is used twice; ids must be distinct; rename one of them",
                component=id,
            )


def _expires(component: Component) -> bool:
    """Return whether a component is an aggregate whose values expire."""
    bolt = component.prototype
    return isinstance(bolt, PersistentAggregate) and bolt.lifetime is not None
