"""Directory: the topologies of an ensemble, and the nodes of each, read together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from txtopo.config import ZooKeeper
from txtopo.ensemble.memory import MemoryEnsemble, MemoryTransactionalState
from txtopo.ensemble.nodes import CURRENT, DESIRED, EPOCH
from txtopo.ensemble.plug_ins import open_plug_in
from txtopo.ensemble.store import Json, Node, TransactionalState
from txtopo.errors import (
    AuthError,
    ConfigError,
    CorruptNodeError,
    SchemaVersionError,
    TxtopoError,
)

READ = (EPOCH, CURRENT, DESIRED)
"""The nodes that are read of each topology."""


@dataclass(frozen=True, slots=True)
class TopologyNodes:
    """What an ensemble stores of a topology.

    Attributes:
        id: Id of the topology.
        nodes: The nodes of :data:`READ`; None if missing, an error if it cannot be read.
        candidates: The candidates in the election, the leader first; if an ensemble shows only the
            leader, the others are missing.
        announced: What the leader announced; None if nothing.
    """

    id: str
    nodes: dict[str, Node | TxtopoError | None]
    candidates: tuple[Json, ...]
    announced: Json

    @property
    def exists(self) -> bool:
        """Whether the topology exists, with a node that was written or a candidate."""
        return bool(self.candidates) or any(node is not None for node in self.nodes.values())


class Directory(Protocol):
    """The topologies of an ensemble."""

    def ids(self) -> list[str]:
        """Return the ids of its topologies, sorted.

        Raises:
            ConfigError: It cannot list them.
        """
        ...

    def read(self, ids: Sequence[str]) -> list[TopologyNodes]:
        """Read the nodes of topologies, in order; an unknown topology has none."""
        ...

    def open(self, topology_id: str) -> TransactionalState:
        """Open the transactional state of a topology. The caller closes it."""
        ...

    def close(self) -> None:
        """End its connections; may be called twice."""
        ...


class MemoryDirectory:
    """The topologies of a :class:`MemoryEnsemble`."""

    def __init__(self, ensemble: MemoryEnsemble) -> None:
        self._ensemble = ensemble

    def ids(self) -> list[str]:
        """Return the ids, sorted."""
        with self._ensemble.exclusive():
            self._ensemble.check_reachable()
            return sorted({path.split("/")[1] for path in self._ensemble.nodes})

    def read(self, ids: Sequence[str]) -> list[TopologyNodes]:
        """Read what is known of topologies."""
        return [read_one(id, self.open(id), self._ensemble.candidates(id)) for id in ids]

    def open(self, topology_id: str) -> TransactionalState:
        """Open one more client."""
        return MemoryTransactionalState(topology_id, self._ensemble)

    def close(self) -> None:
        """Do nothing: the ensemble belongs to its process."""


class PlugInDirectory:
    """The topologies of a plug-in ensemble, each of which has to be named."""

    def __init__(self, scheme: str, zookeeper: ZooKeeper) -> None:
        self._scheme = scheme
        self._zookeeper = zookeeper

    def ids(self) -> list[str]:
        """Refuse: the interface of plug-ins covers a single topology."""
        raise ConfigError(
            f"the ensemble {self._scheme!r} cannot list its topologies; expected the id of one, "
            "or ZooKeeper",
            setting="zookeeper.hosts",
        )

    def read(self, ids: Sequence[str]) -> list[TopologyNodes]:
        """Read what is known of topologies, one after the other."""
        found = []
        for id in ids:
            state = self.open(id)
            try:
                found.append(read_one(id, state))
            finally:
                state.close()
        return found

    def open(self, topology_id: str) -> TransactionalState:
        """Open the transactional state of a topology."""
        return open_plug_in(self._scheme, topology_id, self._zookeeper)

    def close(self) -> None:
        """Do nothing: whoever opened a state closes it."""


def read_one(
    id: str, state: TransactionalState, candidates: Sequence[Json] | None = None
) -> TopologyNodes:
    """Read what a transactional state stores of its topology."""
    nodes: dict[str, Node | TxtopoError | None] = {
        path: node_or_error(partial(state.get, path)) for path in READ
    }
    if candidates is None:
        leader = state.leader()
        candidates = () if leader is None else (leader,)
    return TopologyNodes(id, nodes, tuple(candidates), state.announced())


def node_or_error(read: Callable[[], Node | None]) -> Node | TxtopoError | None:
    """Return a node, or its error if it cannot be read."""
    try:
        return read()
    except (AuthError, CorruptNodeError, SchemaVersionError) as error:
        return error
