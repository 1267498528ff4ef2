"""The carrier of a rerun: this process, or Spark for a topology with DataFrames."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from txtopo.carriers.carrier import LocalCarrier
from txtopo.config import Config

if TYPE_CHECKING:
    from txtopo.carriers.carrier import Carrier
    from txtopo.stages.observer import Observer
    from txtopo.topology.graph import Graph


def open_carrier(
    graph: Graph, config: Config, spark: object | None, observer: Observer | None
) -> tuple[Carrier, Config]:
    """Return a carrier that can compute a topology again, and the settings for it."""
    if not graph.has_engine_part:
        return LocalCarrier(observer=observer), replace(config, carrier="local", slots=None)
    from txtopo.runtime.engine import run_engine
    from txtopo.runtime.start import session_for

    return run_engine().carrier(session_for(graph, cast("Any", spark))), replace(
        config, carrier="dataframe"
    )
