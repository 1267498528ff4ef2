"""Ensemble: the status of all topologies of an ensemble, and commands to running ones.

It needs only ZooKeeper, not the module of a topology or its stores. See
``docs/how-to/commands.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from txtopo.config import Config
from txtopo.ensemble.commands import (
    KILLED,
    Answer,
    Desired,
    ask,
    check_command,
    desired_of,
)
from txtopo.ensemble.directory import Directory, TopologyNodes
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.ensemble.nodes import (
    BATCHES,
    COMMANDS,
    CURRENT,
    DESIRED,
    EPOCH,
    PUBLISHED,
    QUARANTINE,
    check_topology_id,
    current_of,
    epoch_of,
    operation_of,
)
from txtopo.ensemble.opening import open_directory
from txtopo.ensemble.store import Node, TransactionalState
from txtopo.errors import (
    AuthError,
    ConfigError,
    CorruptNodeError,
    SchemaVersionError,
    StateUsageError,
    TxtopoError,
    similar,
)
from txtopo.metadata import Json
from txtopo.operations.folder import EmbeddedFolder

WAIT_S = 30.0
"""How long a kill lets batches in flight take, as Storm's does by default."""

ANSWER_TIMEOUT_S = 30.0
"""How long to wait for an answer. A leader looks for commands once a second."""


class Ensemble:
    """The topologies of an ensemble. Use it in a ``with`` block, or call :meth:`close`.

    Its methods may be called from any thread.

    Example:
        >>> with Ensemble.open(Config(zookeeper="zk1:2181")) as ensemble:
        ...     for topology in ensemble.topologies():
        ...         print(topology.id, topology.status)
        ...     ensemble.ask("payments", "deactivate")
    """

    def __init__(self, directory: Directory, close: Callable[[], None]) -> None:
        self._directory = directory
        self._close = close

    @classmethod
    def open(
        cls,
        config: Config = Config(),
        folder: str | Path | None = None,
        *,
        ensemble: MemoryEnsemble | None = None,
    ) -> Self:
        """Connect to an ensemble.

        Args:
            config: Its address and credentials.
            folder: Directory of an embedded ensemble, instead of the address in *config*. It needs
                no Spark session: while a run is alive, its server is used; otherwise one is
                started, and stopped by :meth:`close`.
            ensemble: The ensemble of runs in this process, for ``zookeeper="memory"``.

        Raises:
            ConfigError: The configuration is wrong, or the folder holds no ensemble.
            CoordinatorUnavailable: It cannot be reached within ``connect_timeout_s``.
            AuthError: The credentials are refused.
        """
        zookeeper = config.zookeeper
        if folder is not None:
            zookeeper = replace(config.zookeeper, hosts="embedded", dir=str(folder))
        with ExitStack() as stack:
            locate = None
            if zookeeper.hosts == "embedded":
                embedded = EmbeddedFolder(zookeeper.dir)
                stack.callback(embedded.close)
                locate = embedded.locate
            directory = open_directory(zookeeper, ensemble, locate)
            stack.callback(directory.close)
            return cls(directory, stack.pop_all().close)

    def topologies(self) -> list[TopologyStatus]:
        """Return the status of every topology, by id.

        Raises:
            ConfigError: A plug-in cannot list its topologies.
            CoordinatorUnavailable: The ensemble cannot be reached.
        """
        found = self._directory.read(self._directory.ids())
        return [status_of(topology) for topology in found if topology.exists]

    def topology(self, topology_id: str) -> TopologyStatus:
        """Return the status of one topology.

        Raises:
            StateUsageError: The ensemble has no such topology.
            CoordinatorUnavailable: The ensemble cannot be reached.
        """
        check_topology_id(topology_id)
        (found,) = self._directory.read([topology_id])
        if not found.exists:
            raise self._unknown(topology_id)
        return status_of(found)

    def stored(self, topology_id: str) -> dict[str, Json]:
        """Return all that the ensemble stores of a topology: the value of each node, by path.

        A node that cannot be read is returned as ``{"unreadable": why}``.

        Raises:
            StateUsageError: The ensemble has no such topology.
            CoordinatorUnavailable: The ensemble cannot be reached.
        """
        self.topology(topology_id)
        state = self._directory.open(topology_id)
        try:
            paths = [EPOCH, CURRENT, DESIRED]
            for parent in (BATCHES, COMMANDS, PUBLISHED, QUARANTINE):
                paths += [f"{parent}/{name}" for name in sorted(state.children(parent))]
            found = {path: _stored(state, path) for path in paths}
        finally:
            state.close()
        return {path: value for path, value in found.items() if value is not None}

    def ask(
        self,
        topology_id: str,
        verb: str,
        *,
        wait_s: float = WAIT_S,
        timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> Answer:
        """Send a command to the leader of a topology, and wait for its answer.

        The answer means that the status is stored; only then does it take effect. Without a leader
        this process leads, claims an epoch and stores the status itself. So a coordinator that has
        just lost its session is deposed, as in any other takeover.

        Args:
            topology_id: Id of the topology.
            verb: ``"activate"``, ``"deactivate"`` or ``"kill"``.
            wait_s: ``kill``: how many seconds batches in flight may take before the run stops.
            timeout_s: How many seconds to wait for the answer.

        Raises:
            StateUsageError: There is no such topology or verb.
            CommandUnanswered: Nobody answered in time; the command is still pending.
            CoordinatorUnavailable: The ensemble cannot be reached; the command may be pending.
        """
        check_command(verb, wait_s)
        self.topology(topology_id)
        state = self._directory.open(topology_id)
        try:
            return ask(state, topology_id, verb, wait_s=wait_s, timeout_s=timeout_s)
        finally:
            state.close()

    def close(self) -> None:
        """End the connections, and the server of a folder if it was started here."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _unknown(self, topology_id: str) -> StateUsageError:
        try:
            hint = similar(topology_id, self._directory.ids())
        except ConfigError:
            hint = ""
        expected = hint or "expected the id of one that ran there"
        return StateUsageError(
            f"the ensemble has no topology {topology_id!r}; {expected}", topology=topology_id
        )


@dataclass(frozen=True, slots=True)
class TopologyStatus:
    """The status of a topology in an ensemble.

    Attributes:
        id: Id of the topology.
        summary: What the leader wrote about its run in the last second; None without a leader, in
            its first second, and from a txtopo that writes none.
        leader: Host and process of the leader; None if nobody leads.
        standbys: The candidates that wait for the leadership, in order.
        epoch: The last claimed epoch; None if it is not known.
        current: The lowest txid that is not committed; None if it is not known.
        desired: What an operator wants of it; None if it cannot be read.
        operation: The unfinished verb of ``txtopo.operations``, or None.
        unreadable: The error of each node that cannot be read, by path.
    """

    id: str
    summary: dict[str, Json] | None
    leader: Json
    standbys: tuple[Json, ...]
    epoch: int | None
    current: int | None
    desired: Desired | None
    operation: dict[str, Json] | None
    unreadable: dict[str, str]

    @property
    def txid(self) -> int | None:
        """The last committed txid; None before the first one, or if it is not known."""
        return self.current - 1 if self.current is not None and self.current > 1 else None

    @property
    def status(self) -> str:
        """The status in one word; without a leader it is ``stopped`` or ``killed``."""
        if self.summary is not None and isinstance(status := self.summary.get("status"), str):
            return status
        if self.leader is not None:
            return "running" if self.desired is None else self.desired.status
        killed = self.desired is not None and self.desired.status == KILLED
        return KILLED if killed else "stopped"


def status_of(topology: TopologyNodes) -> TopologyStatus:
    """Return the status of a topology, which names the nodes that cannot be read."""
    values: dict[str, object] = {}
    unreadable: dict[str, str] = {}
    readers: dict[str, tuple[str, Callable[[Node | None], object]]] = {
        "epoch": (EPOCH, lambda node: epoch_of(node) if node else None),
        "current": (CURRENT, lambda node: current_of(node) if node else None),
        "operation": (CURRENT, operation_of),
        "desired": (DESIRED, desired_of),
    }
    for name, (path, reader) in readers.items():
        values[name] = None
        node = topology.nodes[path]
        try:
            values[name] = reader(_readable(node))
        except TxtopoError as error:
            unreadable[path] = str(error)
    leader, *others = topology.candidates or (None,)
    summary = topology.announced
    return TopologyStatus(
        id=topology.id,
        summary=summary if isinstance(summary, dict) else None,
        leader=leader,
        standbys=tuple(each for each in others if not _is_operator(each)),
        unreadable=unreadable,
        **values,  # type: ignore[arg-type]
    )


def _stored(state: TransactionalState, path: str) -> Json:
    """Return the value of a node; None if the node does not exist or was deleted."""
    try:
        node = state.get(path)
    except (AuthError, CorruptNodeError, SchemaVersionError) as error:
        return {"unreadable": str(error)}
    return None if node is None else node.value


def _readable(node: Node | TxtopoError | None) -> Node | None:
    if isinstance(node, TxtopoError):
        raise node
    return node


def _is_operator(candidate: Json) -> bool:
    return isinstance(candidate, dict) and candidate.get("operator") is True
