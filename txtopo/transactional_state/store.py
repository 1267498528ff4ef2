"""TransactionalState: what survives the coordinator.

A small tree of JSON values with versions. Everything that a step of the protocol changes is written
by one :meth:`TransactionalState.apply`, all or nothing, together with a check of the epoch node's
version: a deposed coordinator gets :class:`VersionConflict` and nothing of its step is written.
Locks elect a leader but do not protect: only the version check does.

Paths are relative to the topology and start with a slash, for instance ``/batches/7``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from txtopo.errors import TxtopoError
from txtopo.metadata import Json as Json  # others take it from here


@dataclass(frozen=True, slots=True)
class Node:
    """A value with its version, which grows by one with each write."""

    value: Json
    version: int


@dataclass(frozen=True, slots=True)
class Put:
    """Write a node, whether it exists or not."""

    path: str
    value: Json


@dataclass(frozen=True, slots=True)
class CompareAndSet:
    """Write a node if its version is *version*; ``None`` means that it must not exist."""

    path: str
    value: Json
    version: int | None


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a node, which must have no children, if it exists."""

    path: str


@dataclass(frozen=True, slots=True)
class Check:
    """Do nothing, but fail the whole step unless the node has this version."""

    path: str
    version: int


Step = Put | CompareAndSet | Delete | Check


class Leadership(ABC):
    """A place in the election of one topology's coordinator."""

    @abstractmethod
    def release(self) -> None:
        """Let the next candidate lead; harmless when lost already."""


class TransactionalState(ABC):
    """What survives the coordinator of one topology.

    Who calls it: the runtime, in the driver, one call at a time, from any thread; all calls block.
    What must be durable: all of :meth:`apply`, when it returns.
    Not guaranteed: that :meth:`close` is called.

    Raises:
        CoordinatorUnavailable: From every call: the ensemble cannot be reached; try again.
        AuthError: From every call: the credentials are refused.
        CorruptNodeError: A node cannot be read; never taken as empty.
    """

    @abstractmethod
    def get(self, path: str) -> Node | None:
        """Read a node, or None if there is none."""

    @abstractmethod
    def children(self, path: str) -> list[str]:
        """Return the names of the nodes below *path*, sorted; empty if there is no such node."""

    @abstractmethod
    def apply(self, steps: Sequence[Step]) -> None:
        """Do all steps or none.

        Raises:
            VersionConflict: A check failed; nothing was written.
            BatchMetadataTooLarge: A value does not fit; nothing was written.
            CoordinatorUnavailable: The outcome may be unknown; applying the same steps again is
                safe, since the epoch is checked and values are absolute.
        """

    @abstractmethod
    def synchronize(self) -> None:
        """See at least what every earlier leader wrote (ZooKeeper ``sync``)."""

    @abstractmethod
    def lead(
        self, candidate: Json, *, timeout_s: float, on_lost: Callable[[], None]
    ) -> Leadership | None:
        """Wait until this process leads.

        Args:
            candidate: Who asks, shown to others: host, process id.
            timeout_s: Give up after so long; call again to go on waiting.
            on_lost: Called once, from any thread, when the leadership may have been lost.

        Returns:
            The leadership, or None when the time is up.
        """

    @abstractmethod
    def leader(self) -> Json:
        """Return the candidate that leads now, or None."""

    @abstractmethod
    def close(self) -> None:
        """End the session; harmless twice."""


class VersionConflict(TxtopoError):
    """A node has another version than a step expects; nothing of the step was written.

    Its ``path`` names the node. The journal turns it into ``FencedError``, which names the
    successor.
    """
