"""Topology: what build_topology returns; it can be started, again and again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from txtopo.config import Config
from txtopo.topology.graph import Graph

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
