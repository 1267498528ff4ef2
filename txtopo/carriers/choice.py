"""The carrier of a topology: which one ``Config(carrier="auto")`` chooses, and why.

Slots keep their cores as long as the run lives; no other Spark job gets them. So ``auto`` chooses
``resident`` only for a session that txtopo has opened for the run, on this machine, and leaves one
core to other jobs. On two cores that costs nothing: the driver needs one of them itself.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from txtopo.carriers.session import is_classic, is_own
from txtopo.carriers.slots import SLOT_HOSTING
from txtopo.config import Carrier, Config
from txtopo.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class SessionOffer:
    """What a session offers, as far as the choice depends on it.

    Attributes:
        classic: Whether it is a session of classic Spark.
        not_resident: Why ``auto`` must not choose resident slots; empty if it may.
        free: How many cores are free.
    """

    classic: bool
    not_resident: str
    free: int


def offer_of(session: SparkSession | None) -> SessionOffer:
    """Return what a session offers; without one, what the session of a start would offer."""
    if session is None:
        opened = "a session of spark-submit is not opened by txtopo"
        return SessionOffer(
            True, opened if "PYSPARK_GATEWAY_PORT" in os.environ else "", os.cpu_count() or 1
        )
    if not is_classic(session):
        return SessionOffer(False, "Spark Connect cannot host slots", 0)
    context, why = session.sparkContext, ""
    if not is_own(session):
        why = "the session was passed in, and other jobs may need its cores"
    elif not str(context.master).startswith("local"):
        why = "the session is that of a cluster"
    elif context.pythonExec != sys.executable:
        why = "workers have a different Python"
    return SessionOffer(True, why, SLOT_HOSTING.get().free_cores(session) if not why else 0)


def carrier_choice(config: Config, offer: SessionOffer, *, engine: bool) -> tuple[Carrier, str]:
    """Return which carrier with Spark a topology gets, and why.

    Args:
        config: The settings.
        offer: What the session offers.
        engine: Whether the topology has a part that an engine computes, which is of DataFrames.

    Raises:
        ConfigError: The session cannot run the configured carrier.
    """
    _check_rdd(config, classic=offer.classic)
    if config.carrier != "auto":
        return config.carrier, "as configured"
    if engine:
        return "dataframe", "'auto' chooses it for DataFrames"
    if not offer.classic:
        return "dataframe", "'auto' chooses it on Spark Connect"
    wanted = config.slots or 1
    why = offer.not_resident or SLOT_HOSTING.get().missing()
    if not why and wanted >= offer.free:
        why = f"slots would keep {wanted} of {offer.free} free cores, and leave none to other jobs"
    if why:
        return "rdd", f"'auto' chooses it on classic Spark; not 'resident': {why}"
    return "resident", "'auto' chooses it on a session of txtopo's own with free cores"


def with_carrier(
    config: Config, session: SparkSession, *, engine: bool, slots_max: int | None = None
) -> Config:
    """Return the settings with the chosen carrier, so that each restart uses the same one.

    Raises:
        ConfigError: The session cannot run the configured carrier.
    """
    if config.carrier != "auto":
        _check_rdd(config, classic=is_classic(session))
        return config
    offer = offer_of(session)
    carrier, _ = carrier_choice(config, offer, engine=engine)
    if carrier != "resident":
        return replace(config, carrier=carrier)
    slots = config.slots or useful_slots(offer.free - 1, slots_max)
    return replace(config, carrier="resident", slots=slots)


def useful_slots(slots: int, slots_max: int | None) -> int:
    """Return how many of *slots* slots have a task; *slots_max* is the graph's limit."""
    return slots if slots_max is None else min(slots, slots_max)


def _check_rdd(config: Config, *, classic: bool) -> None:
    if config.carrier == "rdd" and not classic:
        raise ConfigError(
            "carrier 'rdd' needs classic Spark; got a Spark Connect session, which has no RDDs; "
            "use carrier='dataframe' or 'auto'"
        )
