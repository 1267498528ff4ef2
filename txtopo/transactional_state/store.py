"""TransactionalState: what survives the coordinator.

A small tree of JSON values with versions. Everything that a step of the protocol changes is written
by one :meth:`TransactionalState.apply`, all or nothing, together with a check of the epoch node's
version: a deposed coordinator gets :class:`VersionConflict` and nothing of its step is written.
Locks elect a leader but do not protect: only the version check does.

Paths are relative to the topology and start with a slash, for instance ``/batches/7``.

Candidates for the leadership: which process asks, and whether it is known to be dead.

A killed coordinator leaves its place in the election to ZooKeeper's session timeout. On the machine
where it ran its successor can see at once that it is gone, and need not wait. Being wrong would
cost a change of leaders, never a wrong number: the epoch protects, not the election.
"""

from __future__ import annotations

import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

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


def this_process() -> dict[str, Json]:
    """Return this process as a candidate; add to it what people should see."""
    return {"host": socket.gethostname(), "machine": _machine(), "pid": os.getpid()}


def is_gone(candidate: Json) -> bool:
    """Whether a candidate ran on this machine and its process has ended."""
    if not isinstance(candidate, dict) or candidate.get("machine") != _machine():
        return False
    pid = candidate.get("pid")
    if not isinstance(pid, int) or isinstance(pid, bool) or pid < 1:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False  # it belongs to another user, so it lives
    return _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """Whether a process has ended but its parent has not asked how."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] in ("Z", "X")


def _machine() -> str:
    """Name this boot of this machine and its table of processes (a container has its own)."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    try:
        return f"{boot.read_text().strip()}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()
