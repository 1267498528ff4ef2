"""ResidentSlots: the interface of the carrier ``resident`` for the start of a topology."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from txtopo.carriers.choice import useful_slots
from txtopo.carriers.spark import RddCarrier
from txtopo.resident.slot_jobs import SlotJobs
from txtopo.resident.sockets import Keys, check_zeromq, has_zeromq
from txtopo.runtime.scheduler import ThreadScheduler

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txtopo.carriers.carrier import Carrier
    from txtopo.config import Config


class ResidentSlots:
    """Hosts slots for transactional topologies; see :class:`~txtopo.carriers.slots.SlotHosting`."""

    client_modules = ("zmq",)

    def check(self) -> None:
        """Check that ZeroMQ is installed."""
        check_zeromq()

    def missing(self) -> str:
        """Return what is not installed, and how to get it."""
        return "" if has_zeromq() else "pyzmq is not installed (pip install 'txtopo[resident]')"

    def free_cores(self, session: SparkSession) -> int:
        """Return the number of cores of a session that no job uses."""
        return SlotJobs(session, "stages").cores().free

    def open(
        self,
        config: Config,
        session: SparkSession,
        name: str,
        slots_max: int | None,
        *,
        replaceable: bool,
    ) -> Carrier:
        """Return a carrier whose slots live in Spark tasks."""
        from txtopo.resident.carrier import ResidentCarrier  # needs ZeroMQ, unlike the rest

        jobs = SlotJobs(session, "stages")
        slots = jobs.fit(config.slots)
        return ResidentCarrier(
            jobs,
            Keys.make(),
            config,
            slots if config.slots else useful_slots(slots, slots_max),
            ThreadScheduler(f"txtopo-{name}-slots"),
            replacement=partial(RddCarrier, session) if replaceable else None,
        )
