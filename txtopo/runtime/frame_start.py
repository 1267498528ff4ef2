"""What a topology of DataFrames needs to start: a carrier and a session that fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from txtopo.errors import ConfigError
from txtopo.stages.program import frame_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txtopo.state.frames import FrameFactory
    from txtopo.topology.graph import Graph

_REASONS = {
    "local": "it has no Spark, which makes and computes the frames",
    "rdd": "it moves envelopes on RDDs, in which a plan of Spark's would end",
    "resident": "its slots keep the cores that a plan of Spark's would need",
}


def check_frame_carrier(graph: Graph, carrier: str) -> None:
    """Check that the carrier can compute the plans of a topology, if it has any.

    Raises:
        ConfigError: It cannot; the message says why.
    """
    reason = _REASONS.get(carrier)
    if graph.spout.role.frame and reason is not None:
        raise ConfigError(
            f"topology {graph.id!r} has DataFrames, which carrier {carrier!r} cannot take: "
            f"{reason}; expected carrier='dataframe' or 'auto'",
            carrier=carrier,
        )


def frame_session_conf(graph: Graph) -> dict[str, str]:
    """Return what a session has to be built with to write the frames of a topology.

    Raises:
        ConfigError: Something is not installed; the message says how to get it.
    """
    conf: dict[str, str] = {}
    for factory in _factories(graph):
        conf |= factory.session_conf()
    return conf


def check_frame_session(graph: Graph, session: SparkSession) -> None:
    """Check that a session can write the frames of a topology.

    Raises:
        ConfigError: It lacks something; the message says what.
    """
    for factory in _factories(graph):
        factory.check_session(session)


def _factories(graph: Graph) -> Iterator[FrameFactory]:
    plan = frame_plan(graph)
    if plan is not None:
        for component in graph.components.values():
            if plan.takes(component.id):
                yield from (state.frame_factory() for state in component.states.values())
