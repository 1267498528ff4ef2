"""The transactional state in this process: the reference, and what the simulator runs on.

Several clients over one :class:`MemoryEnsemble` are what several coordinators over one ZooKeeper
ensemble are. Nothing survives the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from queue import Empty, SimpleQueue

from txtopo.errors import CoordinatorUnavailable, StateUsageError
from txtopo.transactional_state.nodes import decode, encode_steps
from txtopo.transactional_state.store import (
    Check,
    CompareAndSet,
    Delete,
    Json,
    Leadership,
    Node,
    Put,
    Step,
    TransactionalState,
    VersionConflict,
)

Nodes = dict[str, tuple[bytes, int]]


class MemoryEnsemble:
    """What a ZooKeeper ensemble is to its clients, with the faults of one as data.

    Attributes:
        nodes: Path to (bytes, version), as ZooKeeper holds them.
        reachable: While false, every call raises ``CoordinatorUnavailable``.
    """

    def __init__(self) -> None:
        self.nodes: Nodes = {}
        self.reachable = True
        self._faults: list[bool] = []
        self._contenders: list[Contender] = []
        self._turn: SimpleQueue[None] = SimpleQueue()
        self._turn.put(None)

    def lose_next_answer(self, *, landed: bool) -> None:
        """Make the next ``apply`` raise, after its write or instead of it."""
        self._faults.append(landed)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep other threads out; all that a client does happens in here."""
        self._turn.get()
        try:
            yield
        finally:
            self._turn.put(None)

    def check_reachable(self) -> None:
        """Raise ``CoordinatorUnavailable`` during an outage."""
        if not self.reachable:
            raise _unavailable()

    def write(self, nodes: Nodes) -> None:
        """Make *nodes* the contents, unless a fault was ordered."""
        if not self._faults:
            self.nodes = nodes
            return
        if self._faults.pop(0):
            self.nodes = nodes
        raise _unavailable()

    def contend(self, contender: Contender) -> bool:
        """Put a contender into the queue of its topology; return whether it is first."""
        if contender not in self._contenders:
            self._contenders.append(contender)
        return self.first(contender.topology_id) is contender

    def first(self, topology_id: str) -> Contender | None:
        """Return who leads a topology."""
        return next((c for c in self._contenders if c.topology_id == topology_id), None)

    def wait(self, contender: Contender, timeout_s: float) -> None:
        """Wait until a contender's turn may have come, or the time is up."""
        with suppress(Empty):
            contender.wake.get(timeout=timeout_s)

    def expire_leader(self, topology_id: str) -> None:
        """Let the session of the leader expire; a fault to be ordered."""
        with self.exclusive():
            leader = self.first(topology_id)
            if leader is not None:
                leader.released = True
                self.withdraw(leader)
        if leader is not None and leader.on_lost is not None:
            leader.on_lost()

    def withdraw(self, contender: Contender) -> None:
        """Remove a contender; the next one wakes up."""
        if contender in self._contenders:
            self._contenders.remove(contender)
        successor = self.first(contender.topology_id)
        if successor is not None:
            successor.wake.put(None)


class MemoryTransactionalState(TransactionalState):
    """One client of a :class:`MemoryEnsemble`."""

    def __init__(self, topology_id: str, ensemble: MemoryEnsemble | None = None) -> None:
        self.ensemble = ensemble or MemoryEnsemble()
        self._topology_id = topology_id
        self._writes = (f"memory-{number}" for number in count())
        self._contender: Contender | None = None
        self._closed = False

    def get(self, path: str) -> Node | None:
        """Read a node, or None if there is none."""
        with self._call():
            found = self.ensemble.nodes.get(self._full(path))
        record = found and decode(self._full(path), found[0])
        return Node(record.value, found[1]) if found and record else None

    def children(self, path: str) -> list[str]:
        """Return the names of the nodes below *path*, sorted."""
        prefix = self._full(path).rstrip("/") + "/"
        with self._call():
            below = [name[len(prefix) :] for name in self.ensemble.nodes if name.startswith(prefix)]
        return sorted({name.partition("/")[0] for name in below})

    def apply(self, steps: Sequence[Step]) -> None:
        """Do all steps or none."""
        records = encode_steps(steps, next(self._writes))
        with self._call():
            nodes = dict(self.ensemble.nodes)
            for step, data in zip(steps, records, strict=True):
                _do(nodes, self._full(step.path), step, data)
            self.ensemble.write(nodes)

    def synchronize(self) -> None:
        """See what every earlier leader wrote; here that is always so."""
        with self._call():
            pass

    def lead(
        self, candidate: Json, *, timeout_s: float, on_lost: Callable[[], None]
    ) -> Leadership | None:
        """Wait until this client leads."""
        with self._call():
            if self._contender is None or self._contender.released:
                self._contender = Contender(self._topology_id, candidate)
            contender = self._contender
            first = self.ensemble.contend(contender)
        if not first:
            self.ensemble.wait(contender, timeout_s)
            first = self.ensemble.first(self._topology_id) is contender
        if not first:
            return None
        contender.on_lost = on_lost
        return _MemoryLeadership(self.ensemble, contender)

    def leader(self) -> Json:
        """Return the candidate that leads now, or None."""
        with self._call():
            first = self.ensemble.first(self._topology_id)
        return first.candidate if first else None

    def expire(self) -> None:
        """Lose the session, as ZooKeeper's would expire; a fault to be ordered."""
        contender = self._contender
        self._withdraw()
        if contender is not None and contender.on_lost is not None and not contender.released:
            contender.on_lost()

    def close(self) -> None:
        """End the session; harmless twice. A call that is still under way must not begin one."""
        self._closed = True
        self._withdraw()

    def _withdraw(self) -> None:
        with self.ensemble.exclusive():
            if self._contender is not None:
                self.ensemble.withdraw(self._contender)
            self._contender = None

    @contextmanager
    def _call(self) -> Iterator[None]:
        with self.ensemble.exclusive():
            if self._closed:
                raise CoordinatorUnavailable("this client of the memory ensemble is closed")
            self.ensemble.check_reachable()
            yield

    def _full(self, path: str) -> str:
        return f"/{self._topology_id}{path}"


class _MemoryLeadership(Leadership):
    def __init__(self, ensemble: MemoryEnsemble, contender: Contender) -> None:
        self._ensemble = ensemble
        self._contender = contender

    def release(self) -> None:
        with self._ensemble.exclusive():
            self._contender.released = True
            self._ensemble.withdraw(self._contender)


@dataclass(eq=False, slots=True)
class Contender:
    """A place in the election of a topology."""

    topology_id: str
    candidate: Json
    wake: SimpleQueue[None] = field(default_factory=SimpleQueue)
    on_lost: Callable[[], None] | None = None
    released: bool = False


def _do(nodes: Nodes, path: str, step: Step, data: bytes) -> None:
    version = nodes[path][1] if path in nodes else None
    match step:
        case Put():
            nodes[path] = (data, 0 if version is None else version + 1)
        case CompareAndSet():
            _expect(step.path, version, step.version)
            nodes[path] = (data, 0 if version is None else version + 1)
        case Delete():
            if any(name.startswith(path + "/") for name in nodes):
                raise StateUsageError(f"node {step.path} has children and cannot be deleted")
            nodes.pop(path, None)
        case Check():
            _expect(step.path, version, step.version)


def _expect(path: str, got: int | None, expected: int | None) -> None:
    if got != expected:
        raise VersionConflict(
            f"node {path} has another version; got {got}; expected {expected}", path=path
        )


def _unavailable() -> CoordinatorUnavailable:
    return CoordinatorUnavailable("the memory ensemble does not answer; this fault was ordered")
