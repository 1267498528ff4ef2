"""TransactionalState: the interface of the store that survives the coordinator.

It is a small tree of JSON values with versions. Everything that one step of the protocol changes is
written by one :meth:`TransactionalState.apply`, all or nothing, together with a check of the
version of the epoch node. The write of a deposed coordinator raises :class:`VersionConflict` and
changes nothing. An election picks a leader but does not protect the data; only the version check
does.

Paths are relative to the topology and start with a slash, for instance ``/batches/7``.

A candidate for the leadership names its process (:func:`this_process`). The place of a killed
coordinator in the election stays until ZooKeeper's session timeout. A successor on the same machine
can see at once that the process has ended (:func:`is_gone`) and does not wait. A mistake there
would change the leader and nothing else, since the epoch protects the data.
"""

from __future__ import annotations

import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from txtopo.errors import TxtopoError
from txtopo.metadata import Json as Json  # importers of this module use it


class TransactionalState(ABC):
    """The nodes of one topology, and the election of its coordinator.

    The runtime calls it in the driver, one call at a time, from any thread; only
    :meth:`synchronize` and :meth:`get` may be called during another call. All calls block. When
    :meth:`apply` returns, all of its steps are durable. :meth:`close` may never be called.

    Not required: that a leader is the only one (writes check the epoch), and that a read shows what
    another client has just written, unless :meth:`synchronize` was called in between.

    Proof: subclass :class:`txtopo.testing.conformance.TransactionalStateSuite`.

    Raises:
        CoordinatorUnavailable: From every call: the ensemble cannot be reached; try again.
        AuthError: From every call: the credentials are refused.
        CorruptNodeError: A node cannot be read. It is never treated as empty.
    """

    @abstractmethod
    def get(self, path: str) -> Node | None:
        """Return a node; None if there is none."""

    @abstractmethod
    def children(self, path: str) -> list[str]:
        """Return the names of the nodes below *path*, sorted; empty if there is no such node."""

    @abstractmethod
    def apply(self, steps: Sequence[Step]) -> None:
        """Apply all steps or none.

        Raises:
            VersionConflict: A check failed; nothing was written.
            BatchMetadataTooLarge: The steps do not fit into one request; nothing was written.
            CoordinatorUnavailable: The steps may have been applied or not. Applying them again is
                safe: the epoch is checked, and values do not depend on earlier ones.
        """

    @abstractmethod
    def synchronize(self) -> None:
        """Make sure that later reads see every write so far (ZooKeeper's ``sync``)."""

    @abstractmethod
    def lead(
        self, candidate: Json, *, timeout_s: float, on_lost: Callable[[], None]
    ) -> Leadership | None:
        """Wait until this process leads.

        Args:
            candidate: What other candidates see of this process: host, process id.
            timeout_s: How long to wait. A later call continues to wait in the same place.
            on_lost: Called once, from any thread, when the leadership may have been lost.

        Returns:
            The leadership, or None if another candidate still leads after *timeout_s*.
        """

    @abstractmethod
    def leader(self) -> Json:
        """Return the candidate that leads now, or None."""

    @abstractmethod
    def close(self) -> None:
        """End the session; may be called twice."""

    @property
    def session_s(self) -> float | None:
        """How long after an answer to this client no other candidate can take its place.

        A leader whose bolts write to their own databases asks again when a third of it has passed.
        None if unknown: then it asks again after a second.
        """
        return None

    def written_s(self, path: str) -> float | None:
        """Return when a node was last written, in seconds since 1970 by the ensemble's clock.

        A new leader whose own clock is ahead of it first plans by that clock. None if unknown,
        which is the default: then the clock of the leader is trusted.
        """
        return None

    announces: ClassVar[bool] = False
    """Whether the next two methods work; without them nobody sees a summary of the run."""

    def announce(self, summary: Json) -> None:  # noqa: B027 - by default nobody sees it
        """Show *summary* to others as long as this client leads; it replaces the previous one.

        It need not be durable. If this client does not lead, nothing changes.
        """

    def announced(self) -> Json:
        """Return the leader's last summary; None if it announced none, or nobody leads."""
        return None


class Leadership(ABC):
    """The leadership of one topology, until it is released or lost."""

    @abstractmethod
    def release(self) -> None:
        """Let the next candidate lead; does nothing if the leadership was lost."""


@dataclass(frozen=True, slots=True)
class Node:
    """A value with its version. Each write increases the version by one."""

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
    """Change nothing, but refuse the whole write unless the node has this version."""

    path: str
    version: int


Step = Put | CompareAndSet | Delete | Check


class VersionConflict(TxtopoError):
    """A node has another version than a step expects; nothing was written.

    The journal turns it into ``FencedError``, which names the successor.

    Attributes:
        path: Path of the node.
    """

    path: str


def this_process() -> dict[str, Json]:
    """Return what identifies this process as a candidate."""
    return {"host": socket.gethostname(), "machine": _machine(), "pid": os.getpid()}


def is_gone(candidate: Json) -> bool:
    """Return whether a candidate ran on this machine and its process has ended."""
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
        return False  # it belongs to another user, so it exists
    return _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """Return whether a process has ended and its parent has not waited for it."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] in ("Z", "X")


def _machine() -> str:
    """Return an id of this boot of this machine and of its process ids, which a container has."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    try:
        return f"{boot.read_text().strip()}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()
