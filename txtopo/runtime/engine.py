"""Run engine: what a topology with an engine part needs of its engine at run time.

:mod:`txtopo.topology.engine` says what an engine is. The runtime opens a carrier with it, and after
that calls the engine only through this carrier (:class:`~txtopo.carriers.carrier.EngineCarrier`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from txtopo.topology.engine import ENGINE, PlanEngine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txtopo.carriers.carrier import EngineCarrier
    from txtopo.config import StreamCarrier
    from txtopo.topology.graph import Graph


class MicroBatchFunction(Protocol):
    """A function of (micro-batch, batch id), for ``foreachBatch`` of a streaming query."""

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Process and commit one micro-batch."""
        ...

    def close(self) -> None:
        """Close the stores. A later call opens them again."""
        ...


@runtime_checkable
class RunEngine(PlanEngine, Protocol):
    """Prepares the runs of topologies with an engine part."""

    def check_carrier(self, graph: Graph, carrier: str) -> None:
        """Check that a carrier has the engine.

        Raises:
            ConfigError: It has not; the message says why.
        """
        ...

    def session_conf(self, graph: Graph) -> dict[str, str]:
        """Return the settings of a session in which the engine can write to the states.

        Raises:
            ConfigError: A package is not installed; the message says how to get it.
        """
        ...

    def check_session(self, graph: Graph, session: SparkSession) -> None:
        """Check that the engine can write to the states in a session.

        Raises:
            ConfigError: It lacks a setting or a package; the message names it.
        """
        ...

    def carrier(self, session: SparkSession) -> EngineCarrier:
        """Return a carrier that has the engine."""
        ...

    def foreach_batch(
        self,
        graph: Graph,
        carrier: StreamCarrier,
        slots: int | None,
        continues: str | None,
        after_txid: int,
    ) -> MicroBatchFunction:
        """Return the function by which a streaming query drives a topology."""
        ...


def run_engine() -> RunEngine:
    """Return the engine that is registered for plans, which runs them as well."""
    engine = ENGINE.get()
    assert isinstance(engine, RunEngine)
    return engine


def check_carrier(graph: Graph, carrier: str) -> None:
    """Check that a carrier has the engine, if the topology needs it.

    Raises:
        ConfigError: It has not; the message says why.
    """
    if graph.has_engine_part:
        run_engine().check_carrier(graph, carrier)


def engine_session_conf(graph: Graph) -> dict[str, str]:
    """Return the settings that a session needs for the engine and for states that Spark writes.

    Raises:
        ConfigError: A package is not installed; the message says how to get it.
    """
    conf = run_engine().session_conf(graph) if graph.has_engine_part else {}
    for component in graph.components.values():
        for state in component.states.values():
            conf |= state.session_conf()
    return conf
