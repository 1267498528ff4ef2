"""Engine: what computes a part of a topology by itself, without tasks. Which one is registered.

The core runs tasks and moves envelopes. Components that an engine such as Spark computes as plans
have no tasks (``kind.frame``). What the engine makes of them, an :class:`EnginePart`, is opaque to
the core, which asks it only the questions below. What a carrier with an engine does at run time is
in :mod:`txtopo.runtime.engine`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from txtopo.registered import Registered

if TYPE_CHECKING:
    import pyarrow as pa

    from txtopo.topology.component import Component


class EngineRows(Protocol):
    """The rows of one attempt that the engine sent to one slot, to be emitted there."""

    def of(self, component: str) -> Iterator[pa.RecordBatch]:
        """Remove the rows of a component, and yield them in their order."""
        ...


class EnginePart(Protocol):
    """The part of a topology that an engine computes. Picklable; it is sent to every worker."""

    @property
    def emitting(self) -> tuple[str, ...]:
        """Ids of the engine's components whose rows become envelopes, for bolts with tasks."""
        ...

    def computes(self, component: str) -> bool:
        """Return whether a component is a plan of the engine."""
        ...

    def takes(self, target: str) -> bool:
        """Return whether a component reads what the engine computed, and therefore no envelopes."""
        ...

    def rows(self, records: Iterable[bytes]) -> EngineRows:
        """Return the rows in the records that came to a slot."""
        ...

    def described(self, component: str) -> str:
        """Return how the engine computes a component that it takes, in words after "runs"."""
        ...


class PlanEngine(Protocol):
    """Checks and compiles the components of an engine."""

    def check(self, components: Mapping[str, Component]) -> None:
        """Check all components of a topology, with inputs and states that are checked.

        Raises:
            TopologyError: One of them cannot work; the message says what to repair.
        """
        ...

    def part(self, components: Mapping[str, Component]) -> EnginePart:
        """Return the part of a topology that the engine computes.

        Args:
            components: All components, sources before the bolts that subscribe to them.
        """
        ...


ENGINE: Registered[PlanEngine] = Registered("an engine")


def has_engine_part(components: Mapping[str, Component]) -> bool:
    """Return whether an engine computes any of the components."""
    return any(each.kind.frame for each in components.values())


def check_engine_part(components: Mapping[str, Component]) -> None:
    """Check the components of an engine, if there are any.

    Raises:
        TopologyError: One of them cannot work; the message says what to repair.
    """
    if has_engine_part(components):
        ENGINE.get().check(components)


def engine_part(components: Mapping[str, Component]) -> EnginePart | None:
    """Return the part of a topology that an engine computes; None if there is none."""
    return ENGINE.get().part(components) if has_engine_part(components) else None
