"""ZooKeeperDirectory: the topologies below a chroot, read with many concurrent requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from kazoo.exceptions import NoNodeError

from txtopo.ensemble.directory import READ, TopologyNodes, node_or_error
from txtopo.ensemble.nodes import NodeRecord, decode, split_chroot
from txtopo.ensemble.store import Json, Node, TransactionalState, is_gone
from txtopo.ensemble.zookeeper.access import ZooKeeperAccess
from txtopo.ensemble.zookeeper.session import ZooKeeperSession
from txtopo.ensemble.zookeeper.state import ZooKeeperTransactionalState
from txtopo.errors import TxtopoError


class ZooKeeperDirectory:
    """The topologies of a ZooKeeper ensemble. It creates nothing.

    Args:
        hosts: ``"host:port,host:port/chroot"``.
        auth: ``"user:password"``, or kazoo's ``sasl_options``.
        tls: kazoo's TLS arguments.
        session_timeout_s: Session timeout of its connections.
        connect_timeout_s: Limit for each first connection.
        locate: Called while there is no connection; returns the current ``host:port``.

    Raises:
        ConfigError: An argument is wrong.
        CoordinatorUnavailable: No connection in *connect_timeout_s*.
        AuthError: The credentials are refused.
    """

    def __init__(
        self,
        hosts: str,
        *,
        auth: str | Mapping[str, str] | None = None,
        tls: Mapping[str, str | bool] | None = None,
        session_timeout_s: float = 6.0,
        connect_timeout_s: float = 15.0,
        locate: Callable[[], str] | None = None,
    ) -> None:
        servers, self._chroot = split_chroot(hosts)
        self._hosts = f"{servers}{self._chroot}"
        self._settings: dict[str, Any] = {
            "auth": auth,
            "tls": tls,
            "session_timeout_s": session_timeout_s,
            "connect_timeout_s": connect_timeout_s,
            "locate": locate,
        }
        access = ZooKeeperAccess(auth, tls)
        access.warn_if_open(servers)
        self._session = ZooKeeperSession(
            servers, access, session_timeout_s=session_timeout_s, locate=locate
        )
        try:
            self._session.wait_connected(connect_timeout_s)
        except BaseException:
            self._session.close()
            raise

    def ids(self) -> list[str]:
        """Return the names of the nodes below the chroot, sorted."""
        chroot = self._chroot
        try:
            found = self._session.read(chroot, lambda client: client.get_children_async(chroot))
        except NoNodeError:
            return []
        return sorted(found)

    def read(self, ids: Sequence[str]) -> list[TopologyNodes]:
        """Read the nodes of topologies."""
        paths = [f"{self._chroot}/{id}" for id in ids]
        queues = self._all("get_children_async", [f"{path}/leader" for path in paths])
        places = [
            f"{path}/leader/{name}"
            for path, names in zip(paths, queues, strict=True)
            for name in _in_order(names)
        ]
        nodes = [f"{path}{node}" for path in paths for node in READ]
        asked = [*nodes, *places]
        got = dict(zip(asked, self._all("get_async", asked), strict=True))
        return [
            _topology(id, path, _in_order(names), got)
            for id, path, names in zip(ids, paths, queues, strict=True)
        ]

    def open(self, topology_id: str) -> TransactionalState:
        """Open the transactional state of a topology, with a session of its own."""
        return ZooKeeperTransactionalState(self._hosts, topology_id, **self._settings)

    def close(self) -> None:
        """End the session."""
        self._session.close()

    def _all(self, request: str, paths: Sequence[str]) -> list[Any]:
        return self._session.read_all([(path, partial(_ask, request, path)) for path in paths])


def _ask(request: str, path: str, client: Any) -> Any:
    return getattr(client, request)(path)


def _in_order(names: object) -> list[str]:
    found = names if isinstance(names, list) else []  # no such node, or no permission to read it
    return sorted(found, key=lambda name: str(name)[-10:])


def _topology(id: str, path: str, places: Sequence[str], got: Mapping[str, Any]) -> TopologyNodes:
    records = [
        record
        for place in places
        if (record := _candidate(f"{path}/leader/{place}", got)) and not is_gone(record.value)
    ]
    nodes: dict[str, Node | TxtopoError | None] = {
        node: node_or_error(partial(_node, f"{path}{node}", got)) for node in READ
    }
    candidates: tuple[Json, ...] = tuple(record.value for record in records)
    return TopologyNodes(id, nodes, candidates, records[0].announced if records else None)


def _node(path: str, got: Mapping[str, Any]) -> Node | None:
    answer = got[path]
    if answer is None:
        return None
    if isinstance(answer, Exception):
        raise answer
    data, stat = answer
    record = decode(path, data)
    return Node(record.value, stat.version) if record else None


def _candidate(path: str, got: Mapping[str, Any]) -> NodeRecord | None:
    answer = got[path]
    if answer is None or isinstance(answer, Exception):
        return None
    try:
        return decode(path, answer[0])
    except TxtopoError:
        return None  # whatever it is, it is not a coordinator of this version
