"""MemoryTransactionalState: the transactional state in this process.

It is the reference implementation, and the simulator uses it. Several clients of one
:class:`MemoryEnsemble` are like several coordinators that use one ZooKeeper ensemble. Nothing
survives the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from threading import Event, Lock

from txtopo.ensemble.nodes import decode, encode, encode_steps
from txtopo.ensemble.store import (
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
from txtopo.errors import CoordinatorUnavailable, StateUsageError

Nodes = dict[str, tuple[bytes, int]]


class MemoryEnsemble:
    """Represents a ZooKeeper ensemble. A test can inject faults.

    Attributes:
        nodes: Bytes and version of each node, by path.
        reachable: While false, every call raises ``CoordinatorUnavailable``.
    """

    def __init__(self) -> None:
        self.nodes: Nodes = {}
        self.reachable = True
        self._faults: list[bool] = []
        self._contenders: list[Contender] = []
        self._lock = Lock()

    def lose_next_answer(self, *, landed: bool) -> None:
        """Make the next ``apply`` raise: after its write if *landed*, else without writing."""
        self._faults.append(landed)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep other threads out. Every call of a client happens inside."""
        with self._lock:
            yield

    def check_reachable(self) -> None:
        """Raise ``CoordinatorUnavailable`` during an outage."""
        if not self.reachable:
            raise _unavailable()

    def write(self, nodes: Nodes) -> None:
        """Replace the nodes, unless a fault was injected."""
        if not self._faults:
            self.nodes = nodes
            return
        if self._faults.pop(0):
            self.nodes = nodes
        raise _unavailable()

    def contend(self, contender: Contender) -> bool:
        """Add a candidate to the queue of its topology; return whether it is first."""
        if contender not in self._contenders:
            self._contenders.append(contender)
        return self.first(contender.topology_id) is contender

    def first(self, topology_id: str) -> Contender | None:
        """Return the candidate that leads a topology, or None."""
        return next((c for c in self._contenders if c.topology_id == topology_id), None)

    def candidates(self, topology_id: str) -> list[Json]:
        """Return who is in the election of a topology, the leader first."""
        return [c.candidate for c in self._contenders if c.topology_id == topology_id]

    def wait(self, contender: Contender, timeout_s: float) -> None:
        """Wait until a candidate may be the first, or the time is up."""
        contender.wake.wait(timeout_s)

    def expire_leader(self, topology_id: str) -> None:
        """Let the session of the leader expire, as a fault."""
        with self.exclusive():
            leader = self.first(topology_id)
            if leader is not None:
                leader.released = True
                self.withdraw(leader)
        if leader is not None and leader.on_lost is not None:
            leader.on_lost()

    def withdraw(self, contender: Contender) -> None:
        """Remove a candidate and wake the next one."""
        if contender in self._contenders:
            self._contenders.remove(contender)
        successor = self.first(contender.topology_id)
        if successor is not None:
            successor.wake.set()


class MemoryTransactionalState(TransactionalState):
    """One client of a :class:`MemoryEnsemble`."""

    announces = True

    def __init__(self, topology_id: str, ensemble: MemoryEnsemble | None = None) -> None:
        self.ensemble = ensemble or MemoryEnsemble()
        self._topology_id = topology_id
        self._writes = (f"memory-{number}" for number in count())
        self._contender: Contender | None = None
        self._closed = False

    def get(self, path: str) -> Node | None:
        """Return a node; None if there is none."""
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
        """Apply all steps or none."""
        records = encode_steps(steps, next(self._writes))
        with self._call():
            nodes = dict(self.ensemble.nodes)
            for step, data in zip(steps, records, strict=True):
                _do(nodes, self._full(step.path), step, data)
            self.ensemble.write(nodes)

    def synchronize(self) -> None:
        """Do nothing, except check that the ensemble answers: a client always sees all writes."""
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

    def announce(self, summary: Json) -> None:
        """Show *summary* to others while this client leads."""
        with self._call():
            first = self.ensemble.first(self._topology_id)
            if first is not None and first is self._contender:
                record = decode("/announced", encode("/announced", summary, ""))
                first.announced = record.value if record is not None else None

    def announced(self) -> Json:
        """Return the leader's last summary."""
        with self._call():
            first = self.ensemble.first(self._topology_id)
        return first.announced if first else None

    def expire(self) -> None:
        """Let the session of this client expire, as a fault."""
        contender = self._contender
        self._withdraw()
        if contender is not None and contender.on_lost is not None and not contender.released:
            contender.on_lost()

    def close(self) -> None:
        """End the session; may be called twice. Later calls raise ``CoordinatorUnavailable``."""
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
    """A candidate in the election of a topology.

    Attributes:
        topology_id: Id of the topology.
        candidate: What others see of it.
        wake: Set when it may have become the first.
        on_lost: Called when its leadership is lost; None until it leads.
        released: Whether it has given up its place, or lost it.
        announced: What it announced last.
    """

    topology_id: str
    candidate: Json
    wake: Event = field(default_factory=Event)
    on_lost: Callable[[], None] | None = None
    released: bool = False
    announced: Json = None


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
                raise StateUsageError(
                    f"node {step.path} has children and cannot be deleted", path=step.path
                )
            nodes.pop(path, None)
        case Check():
            _expect(step.path, version, step.version)


def _expect(path: str, got: int | None, expected: int | None) -> None:
    if got != expected:
        raise VersionConflict(
            f"node {path} has a different version; got {got}; expected {expected}", path=path
        )


def _unavailable() -> CoordinatorUnavailable:
    return CoordinatorUnavailable("the memory ensemble does not answer; a test ordered this fault")
