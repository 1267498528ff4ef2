"""Site: the ZooKeeper and the stores of one topology, opened for one verb.

A verb leads while it looks and while it works, so that no coordinator does. Leading elects and does
not protect, so a verb that writes to stores claims an epoch of its own, as a coordinator does: one
that wakes up later is refused by ZooKeeper and by every ledger.

What ZooKeeper and the stores say, node by node, also if some of it cannot be read.

A coordinator stops at the first thing that it cannot read. Who looks after a fault wants to see the
rest as well, so each error is kept in the place of what could not be read.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from txtopo.attempt import TransactionAttempt
from txtopo.errors import ConfigError, CoordinatorActive, TxtopoError
from txtopo.metadata import Json
from txtopo.runtime.journaling import from_json
from txtopo.state.backend import StateBackend, Writes
from txtopo.state.commit import claim_state, commit_resolved
from txtopo.state.ledger import RELEASED, Claim, Ledger, Owner, same_owner
from txtopo.topology.component import Role
from txtopo.transactional_state.journal import Journal, JournalContents
from txtopo.transactional_state.nodes import (
    BATCHES,
    CURRENT,
    EPOCH,
    EPOCH_ROOM,
    QUARANTINE,
    batch_of,
    corrupt,
    current_of,
    ensemble_of,
    epoch_of,
    operation_of,
    txid_of,
)
from txtopo.transactional_state.opening import open_transactional_state
from txtopo.transactional_state.store import Node, Step, TransactionalState, this_process

if TYPE_CHECKING:
    from txtopo.builders.transactional import Topology
    from txtopo.config import Config
    from txtopo.topology.graph import Graph
    from txtopo.transactional_state.memory import MemoryEnsemble

# A place in the queue of candidates is seen at once; a dead process of this machine is passed by.
LEAD_TIMEOUT_S = 0.5


def _unmarked(name: str) -> None:
    """Mark nothing."""


@dataclass(frozen=True, slots=True)
class Access:
    """How ZooKeeper is reached where the ``Config`` alone does not say it.

    Attributes:
        spark: The session whose JVM hosts the embedded server; ``zookeeper="embedded"`` needs it.
        ensemble: What ``zookeeper="memory"`` uses.
        point: Called at each durable step, for whoever kills processes on purpose.
    """

    spark: object | None = None
    ensemble: MemoryEnsemble | None = None
    point: Callable[[str], None] = field(default=_unmarked, repr=False)


class OperatorSession:
    """What a verb looks at and works on; made by :func:`open_site`."""

    def __init__(
        self,
        graph: Graph,
        config: Config,
        access: Access,
        state: TransactionalState,
        backends: Mapping[str, StateBackend],
    ) -> None:
        self.graph = graph
        self.config = config
        self.state = state
        self.backends = backends
        self.point = access.point
        self.journal = Journal(state, config.history_txids)
        self.owners = {
            f"{component.id}.{name}": Owner(graph.id, component.id, name)
            for component in graph.components.values()
            for name in component.states
        }

    @property
    def chained(self) -> bool:
        """Whether a batch starts where the emitters of its predecessor said that it ended."""
        return self.graph.spout.role is not Role.TRANSACTIONAL_SPOUT

    @property
    def repeatable(self) -> bool:
        """Whether a replay brings the same batch."""
        return self.graph.spout.role is not Role.OPAQUE_SPOUT

    def kind(self, name: str) -> str:
        """Return the kind of a state."""
        owner = self.owners[name]
        return self.graph.components[owner.component].states[owner.state].kind

    @property
    def known(self) -> bool:
        """Whether ZooKeeper knows the topology; its data may have been wiped."""
        return self.state.get(EPOCH) is not None or self.state.get(CURRENT) is not None

    def contents(self) -> JournalContents:
        """Read ZooKeeper; a topology that it does not know is at its beginning."""
        return self.journal.read() if self.known else JournalContents(1, {})

    def may_claim(self, name: str, ledger: Ledger) -> bool:
        """Whether a coordinator of this ensemble may claim a state as it is."""
        token = ensemble_of(self.state.get(EPOCH))
        return (
            ledger.topology == self.graph.id
            and same_owner(ledger, self.owners[name])
            and (not ledger.txid or ledger.ensemble in ("", token))
        )

    def ledgers(self) -> dict[str, Ledger | None]:
        """Read the ledger of every state.

        Raises:
            StoreUnavailable: A store cannot be reached; try again later.
        """
        found = {}
        for name, backend in self.backends.items():
            with backend.snapshot() as snapshot:
                found[name] = snapshot.ledger
        return found

    @contextmanager
    def leading(self) -> Iterator[None]:
        """Keep coordinators out.

        Raises:
            CoordinatorActive: One leads; stop it first.
        """
        candidate = {**this_process(), "operator": True}
        leadership = self.state.lead(
            candidate, timeout_s=LEAD_TIMEOUT_S, on_lost=lambda: self.point("leadership-lost")
        )
        if leadership is None:
            raise CoordinatorActive(
                f"a coordinator of topology {self.graph.id!r} leads: {self.state.leader()}; "
                "expected none while an operator works; stop that run first; if it was killed on "
                f"another machine, wait {self.config.session_timeout_s:g} s until its session ends",
                leader=self.state.leader(),
            )
        try:
            yield
        finally:
            leadership.release()

    def claim(self, ledgers: Mapping[str, Ledger | None], *, takes_over: bool = False) -> VerbClaim:
        """Claim an epoch above all that are known, in ZooKeeper and then in these ledgers.

        Args:
            ledgers: What was read of the states that the verb writes to.
            takes_over: Take them from the ensemble that they name, if it is another one.

        Raises:
            ForeignStateError: Another topology owns a state.
            StoreUnavailable: A store cannot be reached; call the verb again.
        """
        above = max((each.epoch for each in ledgers.values() if each is not None), default=0)
        if above and self.state.get(EPOCH) is None:
            above += EPOCH_ROOM
        self.point("operator.before-epoch")
        epoch = self.journal.claim_epoch(
            {**this_process(), "operator": True}, token=secrets.token_hex(8), above=above
        )
        token = self.journal.ensemble
        self.point("operator.after-epoch")
        for name, ledger in ledgers.items():
            backend = self.backends[name]
            backend.create()
            replaces = ledger if takes_over else None
            claim_state(backend, Claim(self.owners[name], epoch, token, replaces), name)
            self.point(f"operator.claimed:{name}")
        return VerbClaim(self, epoch)


@dataclass(frozen=True, slots=True)
class VerbClaim:
    """The right to write, until a later epoch is claimed.

    Attributes:
        site: What is written to.
        epoch: The epoch of the verb.
    """

    site: OperatorSession
    epoch: int

    def attempt(self, txid: int) -> TransactionAttempt:
        """Return the attempt by which the verb writes a txid."""
        return TransactionAttempt(txid, 0, self.epoch)

    def write(self, *steps: Step) -> None:
        """Write to ZooKeeper, all or nothing."""
        self.site.journal.write(steps)

    def commit(self, name: str, txid: int, writes: Writes) -> None:
        """Give a state a txid; an earlier attempt of it is undone first."""
        commit_resolved(self.site.backends[name], self.attempt(txid), writes)


def holder(ledger: Ledger) -> str:
    """Describe who holds a state, for a plan that takes it over."""
    if ledger.topology == RELEASED:
        return "nobody, since it was released"
    return f"{ledger.owner}, with epochs of ensemble {ledger.ensemble!r}"


@contextmanager
def open_site(topology: Topology, config: Config, access: Access) -> Iterator[OperatorSession]:
    """Open what a verb needs, and close it.

    Raises:
        CoordinatorUnavailable: ZooKeeper cannot be reached.
        ConfigError: The configuration does not say where ZooKeeper is.
    """
    if config.zookeeper == "memory" and access.ensemble is None:
        raise ConfigError(
            "zookeeper='memory' ends with the process of a run, so there is nothing to operate on; "
            "expected the ensemble of that run in Access(ensemble=…), or a real ZooKeeper"
        )
    graph = topology.graph
    jvm: Json | object = None if access.spark is None else getattr(access.spark, "_jvm", None)
    with ExitStack() as stack:
        state = open_transactional_state(config, graph.id, jvm, access.ensemble)
        stack.callback(state.close)
        backends: dict[str, StateBackend] = {}
        for component in graph.components.values():
            for name, declared in component.states.items():
                backend = declared.open()
                stack.callback(backend.close)
                backends[f"{component.id}.{name}"] = backend
        yield OperatorSession(graph, config, access, state, backends)


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reading:
    """What was found.

    Attributes:
        nodes: By path, the node, None for one that is missing, or why it cannot be read.
        ledgers: By state, the ledger, None for one that nobody has claimed, or the error.
    """

    nodes: dict[str, Node | TxtopoError | None]
    ledgers: dict[str, Ledger | TxtopoError | None]

    def values(self, parent: str) -> dict[int, Json]:
        """Return what the readable nodes below a path hold, by txid."""
        return {
            txid_of(path): node.value
            for path, node in self.nodes.items()
            if path.startswith(parent + "/") and isinstance(node, Node)
        }

    @property
    def current(self) -> int | None:
        """The lowest uncommitted txid; None if it is not known."""
        node = self.nodes[CURRENT]
        return current_of(node) if isinstance(node, Node) else None

    @property
    def epoch(self) -> int | None:
        """The newest epoch; None if it is not known."""
        node = self.nodes[EPOCH]
        return epoch_of(node) if isinstance(node, Node) else None

    @property
    def ensemble(self) -> str:
        """The token of the ensemble; empty if it is not known."""
        node = self.nodes[EPOCH]
        return ensemble_of(node) if isinstance(node, Node) else ""

    @property
    def operation(self) -> dict[str, Json] | None:
        """The verb that was begun and has not ended."""
        node = self.nodes[CURRENT]
        return operation_of(node) if isinstance(node, Node) else None

    @property
    def known_epoch(self) -> int:
        """The highest epoch that anything which can be read names; 0 for none."""
        epochs = [self.epoch or 0]
        epochs += [each.epoch for each in self.ledgers.values() if isinstance(each, Ledger)]
        for txid, value in self.values(BATCHES).items():
            epochs.append(batch_of("", txid, Node(value, 0)).attempt.epoch)
        return max(epochs)


def read(site: OperatorSession) -> Reading:
    """Read all nodes and ledgers.

    Raises:
        CoordinatorUnavailable: ZooKeeper cannot be reached.
    """
    nodes: dict[str, Node | TxtopoError | None] = {
        EPOCH: _or_error(partial(_epoch, site)),
        CURRENT: _or_error(partial(_current, site)),
    }
    for parent in (BATCHES, QUARANTINE):
        for name in site.state.children(parent):
            path = f"{parent}/{name}"
            nodes[path] = _or_error(partial(_batch, site, path))
    ledgers = {name: _or_error(partial(_ledger, site, name)) for name in site.backends}
    return Reading(nodes, ledgers)


def _epoch(site: OperatorSession) -> Node | None:
    node = site.state.get(EPOCH)
    if node is not None:
        epoch_of(node)
    return node


def _current(site: OperatorSession) -> Node | None:
    node = site.state.get(CURRENT)
    if node is not None:
        current_of(node)
        operation_of(node)
    return node


def _batch(site: OperatorSession, path: str) -> Node | None:
    txid, node = txid_of(path), site.state.get(path)
    if path.startswith(BATCHES):
        from_json(txid, batch_of(path, txid, node).metadata)
    elif node is None or not isinstance(node.value, dict):
        raise corrupt(path, node and node.value)
    return node


def _ledger(site: OperatorSession, name: str) -> Ledger | None:
    with site.backends[name].snapshot() as snapshot:
        return snapshot.ledger


def _or_error(read_it: Callable[[], T]) -> T | TxtopoError:
    try:
        return read_it()
    except TxtopoError as error:
        return error
