"""explain_topology: explains a topology with the carrier and slots that a start would take.

Nothing is started: neither a Spark session nor a slot.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from txtopo.carriers.choice import carrier_choice, facts_of, useful_slots
from txtopo.carriers.session import active_session, check_given, check_session
from txtopo.config import Config, Kind
from txtopo.explanation import CarrierChoice, Explanation
from txtopo.reliable.start import LOCAL_SLOTS, checked_carrier, kinds_of
from txtopo.runtime.engine import check_carrier
from txtopo.runtime.start import check_config
from txtopo.topology.component import Role

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txtopo.topology.graph import Graph


def explain_topology(
    graph: Graph, config: Config | None = None, spark: SparkSession | None = None
) -> Explanation:
    """Explain a topology.

    Args:
        graph: The topology.
        config: The settings; default ``Config()``.
        spark: The session that it would be started with; by default the active one, if there is
            one.

    Raises:
        ConfigError: A setting does not fit; a start would refuse it as well.
    """
    config = config if config is not None else Config()
    check_config(config)
    check_given(spark)
    session = spark if spark is not None else _active()
    check_session(session)
    if graph.spout.role is Role.SPOUT:
        choice = _of_trees(graph, config, session)
    elif graph.spout.role is Role.STREAM_SPOUT:
        config.check_used(graph.id, Kind.FOREACH_BATCH)
        choice = _of_query(config, session)
    else:
        resident = (Kind.RESIDENT,) if config.carrier == "resident" else ()
        config.check_used(graph.id, Kind.TRANSACTIONAL, *resident)
        check_carrier(graph, config.carrier)
        choice = _of_batches(graph, config, session)
    return Explanation.of(graph, config, choice)


def _active() -> SparkSession | None:
    # Whoever has a session has imported pyspark, which takes half a second.
    return active_session() if "pyspark.sql" in sys.modules else None


def _of_batches(graph: Graph, config: Config, session: SparkSession | None) -> CarrierChoice:
    if config.carrier == "local":
        return _local(config, 1)
    facts = facts_of(session)
    kind, why = carrier_choice(config, facts, frames=graph.has_engine_part)
    if kind == "resident":
        asked = config.carrier == "resident"
        why = "asked for: slots are Spark tasks that live as long as the run" if asked else why
        cores = "one on each free core" if asked else "one on each free core but one"
        free = facts.free - 1 if session is not None and not asked else None
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


def _of_trees(graph: Graph, config: Config, session: SparkSession | None) -> CarrierChoice:
    carrier = checked_carrier(config)
    local = carrier == "local" or (carrier == "auto" and session is None)
    config.check_used(graph.id, *kinds_of(config, local=local))
    if carrier == "local":
        return _local(config, LOCAL_SLOTS)
    if local:
        chosen = _local(config, LOCAL_SLOTS)
        why = "'auto' takes it, since there is no Spark session; with one it would be resident"
        return CarrierChoice(chosen.carrier, why, chosen.slots, chosen.slots_why)
    why = "asked for" if carrier == "resident" else "'auto' takes it, since there is a session"
    return _resident(config, why)


def _local(config: Config, default: int) -> CarrierChoice:
    slots_why = "Config.slots" if config.slots else "the default without Spark"
    why = "asked for: everything runs in this process, without Spark"
    return CarrierChoice("local", why, config.slots or default, slots_why)


def _resident(config: Config, why: str) -> CarrierChoice:
    slots_why = "Config.slots" if config.slots else "one on each core that is free at the start"
    return CarrierChoice("resident", why, config.slots, slots_why)


def _slots(
    config: Config, slots_max: int | None, there: int | None, told: str
) -> tuple[int | None, str]:
    """Return the number of slots, if it is known by now, and where it comes from."""
    if config.slots is not None:
        return config.slots, "Config.slots"
    if slots_max is None:
        return there, told
    known = 1 if slots_max == 1 else None if there is None else useful_slots(there, slots_max)
    return known, f"{told}, but no more than the tasks of a component, which are {slots_max}"


def _parallelism(session: SparkSession | None) -> int | None:
    """Return the default parallelism of a session; None if the session is not there yet."""
    if session is None:
        return None
    from txtopo.carriers.spark import DataFrameCarrier

    return DataFrameCarrier(session).default_slots()
