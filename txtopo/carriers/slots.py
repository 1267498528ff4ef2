"""SlotHosting: the interface of the carrier ``resident``, which the core does not import.

``txtopo/wings.py`` registers it. It is loaded when a start first looks at a Spark session.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from txtopo.registered import Registered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txtopo.carriers.carrier import Carrier
    from txtopo.config import Config


class SlotHosting(Protocol):
    """Hosts slots in long-lived Spark tasks."""

    @property
    def client_modules(self) -> Sequence[str]:
        """The modules that tasks in the slots import."""
        ...

    def check(self) -> None:
        """Check that this process can connect to slots.

        Raises:
            ConfigError: It cannot; the message says what to install.
        """
        ...

    def missing(self) -> str:
        """Return what is not installed, and how to get it; empty if nothing is missing."""
        ...

    def free_cores(self, session: SparkSession) -> int:
        """Return the number of cores of a session that no job uses."""
        ...

    def open(
        self,
        config: Config,
        session: SparkSession,
        name: str,
        slots_max: int | None,
        *,
        replaceable: bool,
    ) -> Carrier:
        """Return a carrier whose slots live in Spark tasks.

        Args:
            config: The settings.
            session: The session that runs the tasks.
            name: Id of the topology.
            slots_max: The maximum number of slots, unless the settings give a number.
            replaceable: Whether the run continues on Spark jobs when a slot stays lost.

        Raises:
            ConfigError: The session has too few free cores.
        """
        ...


SLOT_HOSTING: Registered[SlotHosting] = Registered("what hosts slots")
