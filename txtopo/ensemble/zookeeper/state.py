"""ZooKeeperTransactionalState: writes to ZooKeeper, and resolves unanswered writes.

One ``apply`` is one ``multi``. If the connection is lost before the answer, the nodes that it would
have written are read. If one of them carries the id of the write, the write was done. Otherwise it
is sent once more, which is safe because it is conditional on the epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any

from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)

from txtopo.ensemble.nodes import check_topology_id, decode, encode_steps, split_chroot
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
from txtopo.ensemble.zookeeper.access import ZooKeeperAccess
from txtopo.ensemble.zookeeper.election import Election
from txtopo.ensemble.zookeeper.session import OutcomeUnknown, ZooKeeperSession
from txtopo.errors import CoordinatorUnavailable, StateUsageError

WRITES_MAX = 2
"""How often a write is sent if its answer is lost with the connection."""


class ZooKeeperTransactionalState(TransactionalState):
    """The transactional state of one topology below ``<chroot>/<topology id>``.

    The ``on_lost`` of a leader is called from kazoo's thread when its session has expired; it must
    not block. It is not called while only the connection is down (SUSPENDED): calls wait for the
    connection then, at most for the session timeout.

    Args:
        hosts: ``"host:port,host:port/chroot"``. The chroot is created; by default ``/txtopo``.
        topology_id: Id of the topology.
        auth: ``"user:password"``, or kazoo's ``sasl_options``.
        tls: kazoo's TLS arguments.
        session_timeout_s: A leader that is silent for longer is deposed. A server allows 2 to 20 of
            its ticks; for any other value it silently uses the nearest limit.
        connect_timeout_s: Limit for the first connection.
        locate: Called while there is no connection; returns the current ``host:port``.
        on_close: Called once after the session has ended.
        tidy: Called after each write and each request for the leadership.

    Raises:
        ConfigError: An argument is wrong.
        CoordinatorUnavailable: No connection in *connect_timeout_s*; nothing was written.
        AuthError: The credentials are refused.
    """

    announces = True

    def __init__(
        self,
        hosts: str,
        topology_id: str,
        *,
        auth: str | Mapping[str, str] | None = None,
        tls: Mapping[str, str | bool] | None = None,
        session_timeout_s: float = 6.0,
        connect_timeout_s: float = 15.0,
        locate: Callable[[], str] | None = None,
        on_close: Callable[[], None] | None = None,
        tidy: Callable[[], None] | None = None,
    ) -> None:
        servers, chroot = split_chroot(hosts)
        self._root = f"{chroot}/{check_topology_id(topology_id)}"
        access = ZooKeeperAccess(auth, tls)
        access.warn_if_open(servers)
        self._on_close = [on_close] if on_close else []
        self._tidy = tidy or _nothing
        self._session = ZooKeeperSession(
            servers, access, session_timeout_s=session_timeout_s, locate=locate
        )
        self._election = Election(self._session, f"{self._root}/leader")
        self._writes = (f"{self._session.id}-{number}" for number in count())
        self._who: Json = None
        # Nodes that are known to exist; saves a request to choose between create and set.
        self._known: set[str] = set()
        try:
            self._session.wait_connected(connect_timeout_s)
            self._session.ensure(self._root)
        except BaseException:
            self._session.close()
            raise

    def get(self, path: str) -> Node | None:
        """Return a node; None if there is none."""
        full = self._root + path
        try:
            data, stat = self._session.read(full, lambda client: client.get_async(full))
        except NoNodeError:
            self._known.discard(path)
            return None
        record = decode(full, data)
        self._known.add(path)
        return Node(record.value, stat.version) if record else None

    def children(self, path: str) -> list[str]:
        """Return the names of the nodes below *path*, sorted."""
        full = self._root + path
        try:
            return sorted(self._session.read(full, lambda client: client.get_children_async(full)))
        except NoNodeError:
            return []

    def apply(self, steps: Sequence[Step]) -> None:
        """Apply all steps or none."""
        write = next(self._writes)
        records = encode_steps(steps, write)
        for sent in range(WRITES_MAX):
            try:
                self._write(steps, records)
            except (OutcomeUnknown, VersionConflict) as error:
                if sent == 0 and isinstance(error, VersionConflict):
                    raise
                if not self._landed(steps, write):
                    if isinstance(error, VersionConflict):
                        raise
                    continue
            self._remember(steps)
            self._tidy()
            return
        raise CoordinatorUnavailable(
            f"the connection to zookeeper was lost {WRITES_MAX} times while writing to "
            f"{self._root}; the step may or may not have been done; try again",
            path=self._root,
        )

    def written_s(self, path: str) -> float | None:
        """Return the time of the server that led when a node was written last."""
        full = self._root + path
        stat = self._session.read(full, lambda client: client.exists_async(full))
        return None if stat is None else stat.mtime / 1000

    @property
    def session_s(self) -> float | None:
        """The negotiated session timeout, which may be shorter than requested."""
        return self._session.negotiated_s

    def synchronize(self) -> None:
        """Make sure that later reads see every write so far."""
        self._session.read(self._root, lambda client: client.sync_async(self._root))

    def lead(
        self, candidate: Json, *, timeout_s: float, on_lost: Callable[[], None]
    ) -> Leadership | None:
        """Wait until this process leads. Time to reconnect is not counted in *timeout_s*."""
        self._tidy()
        self._who = candidate
        return self._election.lead(candidate, timeout_s=timeout_s, on_lost=on_lost)

    def leader(self) -> Json:
        """Return the candidate that leads now, or None."""
        return self._election.leader()

    def announce(self, summary: Json) -> None:
        """Write *summary* into this client's node in the election, where others can read it."""
        self._election.announce(self._who, summary)

    def announced(self) -> Json:
        """Return the leader's last summary."""
        return self._election.announced()

    def close(self) -> None:
        """End the session; may be called twice."""
        self._session.close()
        if self._on_close:
            self._on_close.pop()()

    def _write(self, steps: Sequence[Step], records: Sequence[bytes]) -> None:
        """Send the steps as one multi; repeat it after a wrong guess about which nodes exist."""
        for _ in range(2 * len(steps) + 1):
            operations = [
                (step, operation)
                for step, data in zip(steps, records, strict=True)
                if (operation := self._operation(step, data)) is not None
            ]
            results = self._session.ask(self._root, partial(_multi, operations))
            failed = _first_failure(results)
            if failed is None:
                return
            at, error = failed
            self._learn(operations[at][0], error)
        raise CoordinatorUnavailable(
            f"nodes below {self._root} were created and deleted in the meantime; does another "
            "program write there?",
            path=self._root,
        )

    def _operation(self, step: Step, data: bytes) -> _Operation | None:
        full = self._root + step.path
        match step:
            case Put():
                if step.path in self._known:
                    return lambda multi: multi.set_data(full, data)
                return lambda multi: multi.create(full, data)
            case CompareAndSet(version=None):
                return lambda multi: multi.create(full, data)
            case CompareAndSet(version=version):
                return lambda multi: multi.set_data(full, data, version)
            case Check(version=version):
                return lambda multi: multi.check(full, version)
            case Delete():
                if step.path in self._known or self._exists(full):
                    return lambda multi: multi.delete(full)
                return None

    def _learn(self, step: Step, error: KazooException) -> None:
        """Correct what is known about a node, or raise the error that the failure means."""
        if isinstance(error, NotEmptyError):
            raise StateUsageError(
                f"node {step.path} has children and cannot be deleted", path=step.path
            ) from error
        creates = step.path not in self._known and isinstance(step, Put)
        creates |= isinstance(step, CompareAndSet) and step.version is None
        if isinstance(error, NoNodeError) and creates:
            self._session.ensure((self._root + step.path).rpartition("/")[0])
        elif isinstance(error, NoNodeError) and isinstance(step, Put | Delete):
            self._known.discard(step.path)
        elif isinstance(error, NodeExistsError) and isinstance(step, Put):
            self._known.add(step.path)
        elif isinstance(error, NoNodeError | NodeExistsError | BadVersionError):
            raise VersionConflict(
                f"node {self._root}{step.path} has another version; expected by {step}; "
                f"got {type(error).__name__}",
                path=step.path,
            ) from error
        else:
            named = self._session.named(self._root + step.path, error)
            raise named from (error if named is not error else None)

    def _landed(self, steps: Sequence[Step], write: str) -> bool:
        """Return whether a node carries the id of the write, and was not overwritten since."""
        self.synchronize()
        return any(
            self._written_by(self._root + step.path) == write
            for step in steps
            if isinstance(step, Put | CompareAndSet)
        )

    def _written_by(self, full: str) -> str | None:
        try:
            data, _ = self._session.read(full, lambda client: client.get_async(full))
        except NoNodeError:
            return None
        record = decode(full, data)
        return record.write if record else None

    def _remember(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if isinstance(step, Put | CompareAndSet):
                self._known.add(step.path)
            elif isinstance(step, Delete):
                self._known.discard(step.path)

    def _exists(self, full: str) -> bool:
        found = self._session.read(full, lambda client: client.exists_async(full))
        return found is not None


def _nothing() -> None:
    """Do nothing: other servers delete their own old files."""


_Operation = Callable[[Any], None]


def _multi(operations: Sequence[tuple[Step, _Operation]], client: Any) -> Any:
    multi = client.transaction()
    for _, operation in operations:
        operation(multi)
    return multi.commit_async()


def _first_failure(results: Sequence[object]) -> tuple[int, KazooException] | None:
    """Return the operation that failed; the others report that they were rolled back."""
    for at, result in enumerate(results):
        if isinstance(result, KazooException) and not isinstance(
            result, RolledBackError | RuntimeInconsistency
        ):
            return at, result
    return None
