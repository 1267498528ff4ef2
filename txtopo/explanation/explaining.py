"""explain_topology: explains a topology with the carrier and slots that a start would choose.

Nothing is started: neither a Spark session nor a slot.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from txtopo.carriers.choice import carrier_choice, offer_of, useful_slots
from txtopo.carriers.session import active_session, check_config, check_given, check_session
from txtopo.config import AnyConfig, AtLeastOnceConfig, Config
from txtopo.explanation import CarrierChoice, Explanation
from txtopo.reliable.start import LOCAL_SLOTS, is_local
from txtopo.runtime.engine import check_carrier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txtopo.topology.graph import Graph


def explain_topology(
    graph: Graph, config: AnyConfig | None = None, spark: SparkSession | None = None
) -> Explanation:
    """Explain a topology.

    Args:
        graph: The topology.
        config: The settings; by default the same as for a start without settings.
        spark: The session that it would be started with; by default the active one, if there is
            one.

    Raises:
        ConfigError: A setting does not fit; a start would refuse it as well.
    """
    reliable = graph.spout_kind.driven_by == "ackers"
    kind: type[AnyConfig] = AtLeastOnceConfig if reliable else Config
    config = config if config is not None else kind()
    check_config(config, kind)
    check_given(spark)
    session = spark if spark is not None else _active()
    check_session(session)
    if isinstance(config, AtLeastOnceConfig):
        choice = _of_trees(config, session)
    elif graph.spout_kind.driven_by == "query":
        choice = _of_query(config, session)
    else:
        check_carrier(graph, config.carrier)
        choice = _of_batches(graph, config, session)
    return Explanation.of(graph, config, choice)


def _active() -> SparkSession | None:
    # If pyspark was not imported, there is no session, and importing it takes half a second.
    return active_session() if "pyspark.sql" in sys.modules else None


def _of_batches(graph: Graph, config: Config, session: SparkSession | None) -> CarrierChoice:
    if config.carrier == "local":
        return _local(config, 1)
    offer = offer_of(session)
    kind, why = carrier_choice(config, offer, engine=graph.has_engine_part)
    if kind == "resident":
        asked = config.carrier == "resident"
        why = "as configured: slots are Spark tasks that live as long as the run" if asked else why
        cores = "one on each free core" if asked else "one on each free core but one"
        free = offer.free - 1 if session is not None and not asked else None
        return CarrierChoice(kind, why, *_slots(config, graph.slots_max, free, cores))
    there = _parallelism(session)
    told = "the default parallelism of the session"
    return CarrierChoice(kind, why, *_slots(config, graph.slots_max, there, told))


def _of_query(config: Config, session: SparkSession | None) -> CarrierChoice:
    if config.carrier == "local":
        return _local(config, 1)
    why = "a streaming query drives the topology"
    told = "the default parallelism of the session"
    return CarrierChoice("dataframe", why, *_slots(config, None, _parallelism(session), told))


def _of_trees(config: AtLeastOnceConfig, session: SparkSession | None) -> CarrierChoice:
    carrier = config.carrier
    if carrier == "local":
        return _local(config, LOCAL_SLOTS)
    if is_local(config, session):
        chosen = _local(config, LOCAL_SLOTS)
        why = "'auto' chooses it without a Spark session; with one it would choose resident"
        return CarrierChoice(chosen.carrier, why, chosen.slots, chosen.slots_why)
    why = "as configured" if carrier == "resident" else "'auto' chooses it with a Spark session"
    return _resident(config, why)


def _local(config: AnyConfig, default: int) -> CarrierChoice:
    slots_why = f"{type(config).__name__}.slots" if config.slots else "the default without Spark"
    why = "as configured: everything runs in this process, without Spark"
    return CarrierChoice("local", why, config.slots or default, slots_why)


def _resident(config: AnyConfig, why: str) -> CarrierChoice:
    slots_why = (
        f"{type(config).__name__}.slots"
        if config.slots
        else "one on each core that is free at the start"
    )
    return CarrierChoice("resident", why, config.slots, slots_why)


def _slots(
    config: Config, slots_max: int | None, there: int | None, told: str
) -> tuple[int | None, str]:
    """Return the number of slots, None if it is not known yet, and the reason for it."""
    if config.slots is not None:
        return config.slots, "Config.slots"
    if slots_max is None:
        return there, told
    known = 1 if slots_max == 1 else None if there is None else useful_slots(there, slots_max)
    return known, f"{told}, but no more than the tasks of the largest component ({slots_max})"


def _parallelism(session: SparkSession | None) -> int | None:
    """Return the default parallelism of a session; None without a session."""
    if session is None:
        return None
    from txtopo.carriers.spark import DataFrameCarrier

    return DataFrameCarrier(session).default_slots()
