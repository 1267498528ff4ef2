"""The carrier of a rerun: this process, or Spark, which a topology with DataFrames needs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast

from txtopo.carriers.carrier import LocalCarrier
from txtopo.config import Config

if TYPE_CHECKING:
    from txtopo.carriers.carrier import Carrier
    from txtopo.stages.observer import Observer
    from txtopo.topology.graph import Graph


Place = Literal["local", "spark"]
"""Where a rerun runs: in this process, or in tasks of Spark."""


def open_carrier(
    graph: Graph,
    config: Config,
    spark: object | None,
    observer: Observer | None,
    on: Place = "local",
) -> tuple[Carrier, Config]:
    """Return a carrier that can compute a topology again, and the settings for it."""
    if not graph.has_engine_part and on == "local":
        return LocalCarrier(observer=observer), replace(config, carrier="local", slots=None)
    from txtopo.runtime.start import session_for

    session = session_for(graph, cast("Any", spark))
    if graph.has_engine_part:
        from txtopo.runtime.engine import run_engine

        return run_engine().carrier(session), replace(config, carrier="dataframe")
    from txtopo.carriers.spark import RddCarrier

    return RddCarrier(session), replace(config, carrier="rdd")
