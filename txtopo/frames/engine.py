"""FrameEngine: Spark as the engine of DataFrame plans, behind the interfaces of the core."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from txtopo.frames.checks import (
    check_frame_carrier,
    check_frame_session,
    check_frames,
    frame_session_conf,
)
from txtopo.frames.plan import FramePlan, frame_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txtopo.config import StreamCarrier
    from txtopo.frames.carriers import FrameCarrier
    from txtopo.frames.foreach_batch import ForeachBatch
    from txtopo.topology.component import Component
    from txtopo.topology.graph import Graph


class FrameEngine:
    """The engine (:class:`~txtopo.runtime.engine.RunEngine`).

    It has no state. Modules that need Spark are imported on first use.
    """

    def check(self, components: Mapping[str, Component]) -> None:
        """Check the DataFrame spout and the DataFrame bolts."""
        check_frames(components)

    def part(self, components: Mapping[str, Component]) -> FramePlan:
        """Return the DataFrame plans of a topology."""
        return frame_plan(components)

    def check_carrier(self, graph: Graph, carrier: str) -> None:
        """Check that a carrier can compute DataFrames."""
        check_frame_carrier(graph, carrier)

    def session_conf(self, graph: Graph) -> dict[str, str]:
        """Return the settings of a session that can write the DataFrames of a topology."""
        return frame_session_conf(graph)

    def check_session(self, graph: Graph, session: SparkSession) -> None:
        """Check that a session can write the DataFrames of a topology."""
        check_frame_session(graph, session)

    def carrier(self, session: SparkSession) -> FrameCarrier:
        """Return a carrier that computes DataFrames."""
        from txtopo.frames.carriers import FrameCarrier

        return FrameCarrier(session)

    def foreach_batch(
        self,
        graph: Graph,
        carrier: StreamCarrier,
        slots: int | None,
        continues: str | None,
        after_txid: int,
    ) -> ForeachBatch:
        """Return the function through which a streaming query drives a topology."""
        from txtopo.frames.foreach_batch import ForeachBatch

        return ForeachBatch(graph, carrier, slots, continues, after_txid)
