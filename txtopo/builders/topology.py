"""Topology: what build_topology returns; it can be started, again and again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from txtopo.config import Config
from txtopo.topology.graph import Graph

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txtopo.runtime.foreach_batch import ForeachBatch
    from txtopo.runtime.progress import TopologyListener
    from txtopo.runtime.start import TopologyRun


@dataclass(frozen=True, slots=True)
class Topology:
    """A checked topology.

    Attributes:
        graph: Its components and how they hang together.
    """

    graph: Graph

    @property
    def id(self) -> str:
        """Id of the topology; its progress is kept under it."""
        return self.graph.id

    def start(
        self,
        spark: SparkSession | None = None,
        config: Config | None = None,
        listeners: Sequence[TopologyListener] = (),
    ) -> TopologyRun:
        """Run the topology; it goes on after the last committed batch.

        Args:
            spark: The session; without one the active session is taken, else one is built. The
                carrier ``local`` needs none.
            config: How to run; default ``Config()``.
            listeners: Who is told of every change.

        Returns:
            The handle of the run.
        """
        from txtopo.runtime.start import start_topology

        return start_topology(self, spark, config or Config(), listeners)

    def foreach_batch(
        self,
        config: Config | None = None,
        *,
        continues: str | None = None,
        after_txid: int = 0,
    ) -> ForeachBatch:
        """Return what a Structured Streaming query gives its micro-batches to.

        Guarantee: a micro-batch counts exactly once in each state, whatever crashes, as long as the
        query keeps its checkpoint; also when the checkpoint's last commit entry is lost, since the
        batch is then undone and done again (opaque states) or not done again (transactional ones).
        Batches are committed one at a time, in order; a start of the query that was replaced by a
        later one changes nothing. There is one attempt a call: an error ends the query.

        Limits: classic Spark, no asynchronous progress tracking (refused). The query's id is part
        of the topology id in the ledgers, so a query with a new checkpoint is refused on the tables
        of an old one, unless *continues* says otherwise. From then on the old query is refused, and
        every other one that continues it. Take *after_txid* from the message that refused the new
        one. Two drivers that start
        one checkpoint at the same instant are kept apart by Spark's own checkpoint, not by the
        ledgers.

        Args:
            config: How to run; carrier (``"auto"``, ``"dataframe"``, or ``"local"``: all in the
                driver) and slots are used.
            continues: Id of an earlier query with another checkpoint, behind whose last batch this
                query begins; its tables are taken over. Say it at each start.
            after_txid: The txid that those tables held then.

        Raises:
            TopologyError: The topology has no ``StreamSpout``.
            ConfigError: A setting does not fit.

        Example:
            ``query = stream.writeStream.foreachBatch(topology.foreach_batch()).start()``
        """
        from txtopo.runtime.foreach_batch import ForeachBatch

        return ForeachBatch(self.graph, config or Config(), continues, after_txid)
