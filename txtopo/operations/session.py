"""OperatorSession: ZooKeeper and the stores of one topology, opened for one verb of an operator.

A verb holds the leadership while it reads and while it writes, so that no coordinator runs. An
election alone does not protect the stores. So a verb that writes to them also claims an epoch, as a
coordinator does: then ZooKeeper and every ledger refuse a coordinator that wakes up later.

:func:`read` collects what ZooKeeper and the stores hold, node by node. A coordinator stops at the
first node that it cannot read. An operator wants to see the rest as well, so each value that could
not be read is replaced by its error.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from txtopo import clock
from txtopo.attempt import TransactionAttempt, group_of
from txtopo.ensemble.commands import Desired, desired_of
from txtopo.ensemble.journal import Journal, JournalContents
from txtopo.ensemble.nodes import (
    BATCHES,
    CURRENT,
    DESIRED,
    EPOCH,
    EPOCH_ROOM,
    QUARANTINE,
    added_of,
    batch_of,
    corrupt,
    current_of,
    ensemble_of,
    epoch_of,
    fingerprint_of,
    metadata_from_json,
    operation_of,
    terms_of,
    txid_of,
)
from txtopo.ensemble.opening import open_transactional_state
from txtopo.ensemble.store import Node, Step, TransactionalState, this_process
from txtopo.errors import (
    ConfigError,
    CoordinatorActive,
    CorruptNodeError,
    SchemaVersionError,
    TxtopoError,
)
from txtopo.fingerprint import Fingerprint, StateName
from txtopo.metadata import BatchMetadata, Json
from txtopo.runtime.takeover import check_ends
from txtopo.state.backend import StateBackend, StateTable, Writes, held_ledger
from txtopo.state.commit import claim_state, commit_all_resolved
from txtopo.state.ledger import RELEASED, Claim, Ledger, Owner, same_owner
from txtopo.state.reconciliation import Compared, check_known
from txtopo.state.together import shared_transactions
from txtopo.state.witness import check_none_later, check_witness
from txtopo.topology.component import cutting, repeating

if TYPE_CHECKING:
    from txtopo.builders.transactional import Topology
    from txtopo.config import Config
    from txtopo.ensemble.memory import MemoryEnsemble
    from txtopo.ensemble.nodes import StoredBatch
    from txtopo.topology.graph import Graph

# Enough to see whether a live candidate is ahead in the queue. One whose process has ended on this
# machine is skipped without waiting.
LEAD_TIMEOUT_S = 0.5


class OperatorSession:
    """What a verb reads and writes; made by :func:`open_operator_session`.

    Attributes:
        graph: The topology.
        config: The settings of its runs.
        state: Its transactional state.
        backends: Its states, as ``component.state``.
        owners: The owner of each state, as its ledger has to name it.
        point: Called with the name of each durable step.
        now: Returns seconds on a clock that only goes forward.
        sleep: Waits for some seconds.
        journal: Writes to ZooKeeper, once the verb has claimed an epoch.
    """

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
        self.point, self.seed = access.point, access.seed
        self.now, self.sleep = access.now, access.sleep
        self.journal = Journal(state, config.history_txids)
        self.owners = {
            f"{component.id}.{name}": Owner(graph.id, component.id, name)
            for component in graph.components.values()
            for name in component.states
        }

    @property
    def cutting(self) -> frozenset[str]:
        """Ids of the spouts whose emitters decide where a batch ends."""
        return cutting(self.graph.spouts)

    @property
    def repeatable(self) -> tuple[str, ...]:
        """Ids of the spouts whose replays have the same tuples as the first attempt."""
        return repeating(self.graph.spouts)

    def metadata_of(self, txid: int, stored: Json) -> BatchMetadata:
        """Return stored metadata as this topology reads it."""
        spouts = [each.id for each in self.graph.spouts]
        return metadata_from_json(txid, stored).read_for(spouts)

    @property
    def beginning(self) -> BatchMetadata:
        """The position of all sources before txid 1."""
        return BatchMetadata().read_for(each.id for each in self.graph.spouts)

    def check_ends(self, batches: Mapping[int, StoredBatch], current: int, found: Compared) -> None:
        """Check that the end of each batch that states hold is known, as a takeover does.

        Raises:
            PromiseError: The end of a batch is unknown.
        """
        held = range(current, (found.adopted or found.pinned or 0) + 1)
        stored = {txid: self.metadata_of(txid, batches[txid].metadata) for txid in held}
        check_ends(self.graph.spouts, stored, current, found)

    def kind(self, name: str) -> str:
        """Return whether a state is ``"opaque"`` or ``"transactional"``."""
        owner = self.owners[name]
        return self.graph.components[owner.component].states[owner.state].kind

    def missing_undo(self, name: str) -> str | None:
        """Return why a state cannot take back the last txid that it holds; None if it can."""
        with self.backends[name].snapshot() as snapshot:
            if snapshot.ledger is not None and snapshot.ledger.is_copy:
                return f"it begins with txid {snapshot.ledger.txid}, without anything from before"
            return snapshot.missing_undo()

    @property
    def known(self) -> bool:
        """Whether ZooKeeper has nodes of the topology; false when its data was wiped."""
        return self.state.get(EPOCH) is not None or self.state.get(CURRENT) is not None

    def contents(self) -> JournalContents:
        """Read ZooKeeper; a topology without nodes starts at txid 1."""
        return self.journal.read() if self.known else JournalContents(1, {})

    def may_claim(self, name: str, ledger: Ledger) -> bool:
        """Return whether a coordinator of this ensemble may claim a state with this ledger."""
        token = ensemble_of(self.state.get(EPOCH))
        return (
            ledger.topology == self.graph.id
            and same_owner(ledger, self.owners[name])
            and (not ledger.txid or ledger.ensemble in ("", token))
        )

    def ledgers(self) -> dict[str, Ledger | None]:
        """Read the ledger of every state; None for a state that nobody has claimed.

        Raises:
            SchemaDrift: A table of a topology that ran is gone, or was changed.
            StoreUnavailable: A store cannot be reached; try again later.
        """
        known = True  # also if its nodes cannot be read
        with suppress(CorruptNodeError, SchemaVersionError):
            known = self.known
        return {
            name: held_ledger(backend) if known or self._is_stored(name, backend) else None
            for name, backend in self.backends.items()
        }

    def _is_stored(self, name: str, backend: StateBackend) -> bool:
        """Return whether a state may have a table; that of a topology that never ran need not."""
        stored = backend.stored()
        return stored is None or self.table(name).name in {table.name for table in stored}

    def table(self, name: str) -> StateTable:
        """Return the schema of a state."""
        owner = self.owners[name]
        return self.graph.components[owner.component].states[owner.state].layout()

    def sound_ledgers(self, *, every_row: bool = False) -> dict[str, Ledger | None]:
        """Read the ledger of every state, and check that its rows match the ledger.

        Args:
            every_row: Whether to also look for rows of later txids, which may read all rows.

        Raises:
            StoreDamagedError: A table or a ledger was restored alone.
            StoreUnavailable: A store cannot be reached; try again later.
        """
        found = {}
        for name, backend in self.backends.items():
            with backend.snapshot() as snapshot:
                check_witness(snapshot, self.table(name), name)
                if every_row:
                    check_none_later(snapshot, name)
                found[name] = snapshot.ledger
        return found

    @contextmanager
    def leading(self) -> Iterator[None]:
        """Lead while the ``with`` block runs, so that no coordinator does.

        Raises:
            CoordinatorActive: A coordinator leads; stop it first.
        """
        candidate = {**this_process(), "operator": True}
        leadership = self.state.lead(
            candidate, timeout_s=LEAD_TIMEOUT_S, on_lost=lambda: self.point("leadership-lost")
        )
        if leadership is None:
            raise CoordinatorActive(
                f"a coordinator of topology {self.graph.id!r} leads: {self.state.leader()}; "
                "expected none during an operation; stop that run first; if it was killed on "
                f"another machine, wait {self.config.zookeeper.session_timeout_s:g} s until its "
                "session ends",
                leader=self.state.leader(),
            )
        try:
            yield
        finally:
            leadership.release()

    def claim(
        self,
        ledgers: Mapping[str, Ledger | None],
        fingerprint: Fingerprint | None = None,
        *,
        takes_over: bool = False,
        lifts: bool = False,
        operation: Mapping[str, Json] | None = None,
    ) -> VerbClaim:
        """Claim an epoch above every known one, in ZooKeeper and then in these ledgers.

        Args:
            ledgers: The states that the verb writes to, with the ledger that was read for each.
            fingerprint: The fingerprint of the program, which must equal the stored one, and is
                stored if there is none; None keeps the stored one.
            takes_over: Claim a state even if its ledger names another owner or ensemble.
            lifts: Claim even if ZooKeeper does not have an epoch that a ledger names.
            operation: The verb that makes the topology, named in ``/current`` if that is written
                now for the first time.

        Raises:
            StoreAheadOfCoordinator: ZooKeeper does not have an epoch that a ledger names.
            ForeignStateError: Another topology owns a state.
            TopologyChanged: The fingerprint is not the stored one; nothing was written.
            StoreUnavailable: A store cannot be reached; call the verb again.
        """
        above = max((each.epoch for each in ledgers.values() if each is not None), default=0)
        if above and self.state.get(EPOCH) is None:
            above += EPOCH_ROOM
        self.point("operator.before-epoch")
        check = None if lifts else partial(check_known, self.ledgers(), self.graph.id)
        epoch = self.journal.claim_epoch(
            {**this_process(), "operator": True},
            token=f"{self.seed():016x}",
            fingerprint=fingerprint,
            above=above,
            check=check,
            operation=operation,
        )
        token = self.journal.ensemble
        self.point("operator.after-epoch")
        backends: dict[StateName, StateBackend] = {}
        claimed: dict[StateName, Ledger] = {}
        for name, ledger in ledgers.items():
            backend, owner = self.backends[name], self.owners[name]
            backend.create()
            replaces = ledger if takes_over else None
            claim = Claim(owner, epoch, token, replaces, term=self.journal.term)
            backends[owner.component, owner.state] = backend
            claimed[owner.component, owner.state] = claim_state(backend, claim, name)
            self.point(f"operator.claimed:{name}")
        shared = shared_transactions(backends, claimed)
        return VerbClaim(self, epoch, self.journal.term, shared.groups)


@contextmanager
def open_operator_session(
    topology: Topology, config: Config, access: Access
) -> Iterator[OperatorSession]:
    """Open ZooKeeper and every state of the topology, and close them at the end.

    Raises:
        CoordinatorUnavailable: ZooKeeper cannot be reached.
        ConfigError: The configuration does not name ZooKeeper.
    """
    if config.zookeeper.hosts == "memory" and access.ensemble is None:
        raise ConfigError(
            "zookeeper='memory' is lost when the process of a run ends, so there is nothing to "
            "operate on; expected the ensemble of that run in Access(ensemble=…), or a real "
            "ZooKeeper"
        )
    graph = topology.graph
    jvm: Json | object = None if access.spark is None else getattr(access.spark, "_jvm", None)
    with ExitStack() as stack:
        locate = None
        if config.zookeeper.hosts == "embedded" and jvm is None:
            # It needs py4j, which may be missing where the verbs are only imported.
            from txtopo.operations.folder import EmbeddedFolder

            folder = EmbeddedFolder(config.zookeeper.dir)
            stack.callback(folder.close)
            locate = folder.locate
        state = open_transactional_state(
            config.zookeeper, graph.id, jvm, access.ensemble, locate, create=False
        )
        stack.callback(state.close)
        backends: dict[str, StateBackend] = {}
        for component in graph.components.values():
            for name, declared in component.states.items():
                backend = declared.open()
                stack.callback(backend.close)
                backend.point = partial(_mark, access, f"{component.id}.{name}")
                backends[f"{component.id}.{name}"] = backend
        yield OperatorSession(graph, config, access, state, backends)


def _mark(access: Access, state: str, step: str) -> None:
    access.point(f"operator.{step}:{state}")


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach ZooKeeper where the ``Config`` is not enough.

    Attributes:
        spark: The session whose JVM hosts the embedded server. Without it that server is found by
            ``ZooKeeper.dir``, and hosted by a separate JVM while no run does.
        ensemble: The ensemble of the run, for ``zookeeper="memory"``.
        point: Called with the name of each durable step. Tests kill the process there.
        seed: Returns 64 random bits, for the id of the verb's term.
        now: Returns seconds on a clock that only goes forward.
        sleep: Waits for some seconds.
    """

    spark: object | None = None
    ensemble: MemoryEnsemble | None = None
    point: Callable[[str], None] = field(default=lambda name: None, repr=False)
    seed: Callable[[], int] = field(default=lambda: secrets.randbits(64), repr=False)
    now: Callable[[], float] = field(default=clock.now, repr=False)
    sleep: Callable[[float], None] = field(default=clock.sleep, repr=False)


@dataclass(frozen=True, slots=True)
class VerbClaim:
    """What a verb writes with: the epoch that it has claimed, until a later one is claimed.

    Attributes:
        session: The session of the verb.
        epoch: The claimed epoch; 0 if the verb claims none, since its steps protect themselves.
        term: Its term id.
        transactions: The claimed states of each transaction, see :mod:`txtopo.state.together`.
    """

    session: OperatorSession
    epoch: int
    term: str = ""
    transactions: Sequence[Collection[StateName]] = ()

    def attempt(self, txid: int, first_txid: int | None = None) -> TransactionAttempt:
        """Return the attempt under which the verb writes a txid, or the group that ends with it."""
        first = txid if first_txid is None else first_txid
        epoch, term, txids = self.epoch, self.term, range(first, txid + 1)
        return group_of([TransactionAttempt(each, 0, epoch, term=term) for each in txids])

    def write(self, *steps: Step) -> None:
        """Write to ZooKeeper, all or nothing."""
        self.session.journal.write(steps)

    def commit(
        self,
        attempt: TransactionAttempt,
        states: Collection[str],
        writes: Callable[[str], Writes],
    ) -> None:
        """Commit an attempt to states, and to those of one database in one transaction.

        Each store undoes an earlier attempt of its txids first.

        Args:
            attempt: The attempt.
            states: The states, all of which are claimed.
            writes: Returns the writes to a state, right before its transaction.
        """
        for transaction in self.transactions:
            names = [name for each in transaction if (name := ".".join(each)) in states]
            together = [(self.session.backends[name], writes(name)) for name in names]
            if together:
                commit_all_resolved(attempt, together)


@dataclass(frozen=True, slots=True)
class Reading:
    """What ZooKeeper and the stores hold, with an error in place of each unreadable value.

    Attributes:
        nodes: The node of each path; None if it is missing, an error if it cannot be read.
        ledgers: The ledger of each state; None if nobody has claimed the state, an error if the
            ledger cannot be read.
    """

    nodes: dict[str, Node | TxtopoError | None]
    ledgers: dict[str, Ledger | TxtopoError | None]

    def values(self, parent: str) -> dict[int, Json]:
        """Return the values of the readable nodes below *parent*, by txid."""
        return {
            txid_of(path): node.value
            for path, node in self.nodes.items()
            if path.startswith(parent + "/") and isinstance(node, Node)
        }

    @property
    def current(self) -> int | None:
        """The lowest uncommitted txid; None if ``/current`` is missing or cannot be read."""
        node = self.nodes[CURRENT]
        return current_of(node) if isinstance(node, Node) else None

    @property
    def epoch(self) -> int | None:
        """The last claimed epoch; None if ``/epoch`` is missing or cannot be read."""
        node = self.nodes[EPOCH]
        return epoch_of(node) if isinstance(node, Node) else None

    @property
    def ensemble(self) -> str:
        """The token of the ensemble; empty if ``/epoch`` does not name one."""
        node = self.nodes[EPOCH]
        return ensemble_of(node) if isinstance(node, Node) else ""

    @property
    def desired(self) -> Desired | None:
        """The status that operators want; None if ``/desired`` cannot be read."""
        node = self.nodes[DESIRED]
        return None if isinstance(node, TxtopoError) else desired_of(node)

    @property
    def operation(self) -> dict[str, Json] | None:
        """The unfinished verb that ``/current`` names; None if there is none."""
        node = self.nodes[CURRENT]
        return operation_of(node) if isinstance(node, Node) else None

    @property
    def added(self) -> tuple[StateName, ...]:
        """The states that were added at ``current``."""
        node = self.nodes[CURRENT]
        return added_of(node) if isinstance(node, Node) else ()

    @property
    def known_epoch(self) -> int:
        """The highest epoch that a readable node or ledger names; 0 if none does."""
        epochs = [self.epoch or 0]
        epochs += [each.epoch for each in self.ledgers.values() if isinstance(each, Ledger)]
        for txid, value in self.values(BATCHES).items():
            epochs.append(batch_of("", txid, Node(value, 0)).attempt.epoch)
        return max(epochs)


@dataclass(frozen=True, slots=True)
class HeldTxids:
    """What the ledgers of a topology hold together.

    Attributes:
        low: The lowest txid that a state holds; 0 for none.
        high: The highest one.
        first: The first txid of the group that ends with *high*; None if not all states that hold
            *high* hold the same group.
    """

    low: int
    high: int
    first: int | None

    @classmethod
    def of(cls, ledgers: Iterable[Ledger | None]) -> HeldTxids:
        """Return the txids that ledgers hold; a state that nobody has claimed holds none."""
        held = [each or Ledger(RELEASED, 0) for each in ledgers]
        txids = [each.txid for each in held]
        low, high = min(txids, default=0), max(txids, default=0)
        firsts = {each.writer.first_txid for each in held if each.txid == high}
        # No state may be between those that have the group and those that lack it.
        together = set(txids) <= {low, high} and len(firsts) == 1
        return cls(low, high, firsts.pop() if together else None)

    @property
    def fits(self) -> bool:
        """Whether the states differ by at most one group, as a crash leaves them."""
        return self.low == self.high or self.first == self.low + 1


def read(session: OperatorSession) -> Reading:
    """Read all nodes and ledgers.

    Raises:
        CoordinatorUnavailable: ZooKeeper cannot be reached.
    """
    nodes: dict[str, Node | TxtopoError | None] = {
        EPOCH: _or_error(partial(_epoch, session)),
        CURRENT: _or_error(partial(_current, session)),
        DESIRED: _or_error(partial(_desired, session)),
    }
    for parent in (BATCHES, QUARANTINE):
        for name in session.state.children(parent):
            path = f"{parent}/{name}"
            nodes[path] = _or_error(partial(_batch, session, path))
    ledgers = {
        name: _or_error(partial(held_ledger, backend)) for name, backend in session.backends.items()
    }
    return Reading(nodes, ledgers)


def holder(ledger: Ledger) -> str:
    """Return the owner that a ledger names, as text for a plan that takes over the state."""
    if ledger.topology == RELEASED:
        return "nobody, because it was released"
    return f"{ledger.owner}, with epochs of ensemble {ledger.ensemble!r}"


T = TypeVar("T")


def _epoch(session: OperatorSession) -> Node | None:
    node = session.state.get(EPOCH)
    if node is not None:
        epoch_of(node)
        terms_of(node)
        fingerprint_of(node)
    return node


def _current(session: OperatorSession) -> Node | None:
    node = session.state.get(CURRENT)
    if node is not None:
        current_of(node)
        operation_of(node)
        added_of(node)
    return node


def _desired(session: OperatorSession) -> Node | None:
    node = session.state.get(DESIRED)
    desired_of(node)
    return node


def _batch(session: OperatorSession, path: str) -> Node | None:
    txid, node = txid_of(path), session.state.get(path)
    if path.startswith(BATCHES):
        metadata_from_json(txid, batch_of(path, txid, node).metadata)
    elif node is None or not isinstance(node.value, dict):
        raise corrupt(path, node and node.value)
    return node


def _or_error(read: Callable[[], T]) -> T | TxtopoError:
    try:
        return read()
    except TxtopoError as error:
        return error
