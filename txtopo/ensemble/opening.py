"""Opens a topology's transactional state, or the directory of all, as the settings say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from txtopo.config import ZooKeeper
from txtopo.ensemble.directory import Directory, MemoryDirectory, PlugInDirectory
from txtopo.ensemble.memory import MemoryEnsemble, MemoryTransactionalState
from txtopo.ensemble.nodes import check_topology_id
from txtopo.ensemble.plug_ins import open_plug_in, plug_in_servers, scheme_of
from txtopo.ensemble.progress_file import FileDirectory, FileTransactionalState, is_file
from txtopo.ensemble.store import TransactionalState
from txtopo.errors import ConfigError
from txtopo.log_records import logger_of
from txtopo.servers import Server

_logger = logger_of("txtopo.ensemble")


def open_transactional_state(
    zookeeper: ZooKeeper,
    topology_id: str,
    jvm: object | None = None,
    ensemble: MemoryEnsemble | None = None,
    locate: Callable[[], str] | None = None,
    *,
    create: bool = True,
) -> TransactionalState:
    """Open the transactional state of a topology.

    Args:
        zookeeper: The settings of the ensemble.
        topology_id: Id of the topology.
        jvm: ``spark._jvm`` of a classic Spark session; ``"embedded"`` needs it, or *locate*.
        ensemble: The ensemble for ``"memory"``; by default a new one.
        locate: Returns the ``host:port`` of an embedded server that somebody else hosts.
        create: Whether a file for progress is created if it does not exist.

    Raises:
        ConfigError: The configuration is wrong.
        CoordinatorUnavailable: ZooKeeper cannot be reached.
        AuthError: ZooKeeper refuses the credentials.
    """
    check_topology_id(topology_id)
    if zookeeper.hosts == "memory":
        return MemoryTransactionalState(topology_id, ensemble or own_ensemble(topology_id))
    if zookeeper.hosts == "embedded":
        return _open_embedded(zookeeper, topology_id, jvm, locate)
    if is_file(zookeeper.hosts):
        return FileTransactionalState(zookeeper, topology_id, create=create)
    scheme = scheme_of(zookeeper.hosts)
    if scheme is not None:
        return open_plug_in(scheme, topology_id, zookeeper)
    from txtopo.ensemble.zookeeper.state import ZooKeeperTransactionalState

    return ZooKeeperTransactionalState(
        zookeeper.hosts,
        topology_id,
        auth=zookeeper.auth,
        tls=zookeeper.tls,
        session_timeout_s=zookeeper.session_timeout_s,
        connect_timeout_s=zookeeper.connect_timeout_s,
    )


def ensemble_servers(zookeeper: ZooKeeper) -> Sequence[Server]:
    """Return the servers of an ensemble; none for a memory, a file or an embedded one.

    Raises:
        ConfigError: There is no such plug-in, or it cannot be imported.
    """
    if zookeeper.hosts in ("memory", "embedded") or is_file(zookeeper.hosts):
        return ()
    scheme = scheme_of(zookeeper.hosts)
    if scheme is not None:
        return plug_in_servers(scheme, zookeeper.hosts)
    return (Server.of("ZooKeeper", zookeeper.hosts, 2181),)


def ensemble_modules(zookeeper: ZooKeeper) -> Sequence[str]:
    """Return the modules of extras that the settings of an ensemble need."""
    return ("puresasl",) if isinstance(zookeeper.auth, Mapping) else ()


def own_ensemble(topology_id: str) -> MemoryEnsemble:
    """Return a new ensemble in memory for one topology, and warn that it will not last."""
    _logger.warning(
        "zookeeper='memory': the progress of %r is lost when this process ends; "
        "the next start will refuse tables that this one leaves behind",
        topology_id,
        extra={"topology": topology_id},
    )
    return MemoryEnsemble()


def open_directory(
    zookeeper: ZooKeeper,
    ensemble: MemoryEnsemble | None = None,
    locate: Callable[[], str] | None = None,
) -> Directory:
    """Open the directory of the topologies of an ensemble.

    Args:
        zookeeper: Says where it is.
        ensemble: The ensemble for ``"memory"``.
        locate: Returns the ``host:port`` of the server, for ``"embedded"``.

    Raises:
        ConfigError: The configuration is wrong.
        CoordinatorUnavailable: ZooKeeper cannot be reached.
        AuthError: ZooKeeper refuses the credentials.
    """
    if zookeeper.hosts == "memory":
        if ensemble is None:
            raise ConfigError(
                "zookeeper='memory' is lost when the process of a run ends, so no other process "
                "can reach it; expected the hosts of a ZooKeeper, the folder of an embedded one, "
                "or 'file:progress.db'",
                setting="zookeeper.hosts",
            )
        return MemoryDirectory(ensemble)
    if is_file(zookeeper.hosts):
        return FileDirectory(zookeeper)
    scheme = scheme_of(zookeeper.hosts)
    if scheme is not None:
        return PlugInDirectory(scheme, zookeeper)
    from txtopo.ensemble.zookeeper.directory import ZooKeeperDirectory

    return ZooKeeperDirectory(
        zookeeper.hosts if locate is None else locate(),
        auth=zookeeper.auth,
        tls=zookeeper.tls,
        session_timeout_s=zookeeper.session_timeout_s,
        connect_timeout_s=zookeeper.connect_timeout_s,
        locate=locate,
    )


def _open_embedded(
    zookeeper: ZooKeeper, topology_id: str, jvm: object | None, locate: Callable[[], str] | None
) -> TransactionalState:
    from txtopo.ensemble.embedded import EmbeddedServer
    from txtopo.ensemble.zookeeper.state import ZooKeeperTransactionalState

    sasl = isinstance(zookeeper.auth, Mapping)
    if sasl or zookeeper.tls is not None:
        name = "zookeeper.auth" if sasl else "zookeeper.tls"
        raise ConfigError(
            f"{name}{' with SASL' if sasl else ''} is only for your own ZooKeeper; got it with "
            "zookeeper='embedded', which listens on the loopback interface only, without TLS and "
            "SASL; remove it, use zookeeper.auth='user:password', or set zookeeper to 'host:port'",
            setting=name,
        )
    connected = partial(
        ZooKeeperTransactionalState,
        topology_id=topology_id,
        auth=zookeeper.auth,
        session_timeout_s=zookeeper.session_timeout_s,
        connect_timeout_s=zookeeper.connect_timeout_s,
    )
    if locate is not None:
        return connected(locate(), locate=locate)
    server = EmbeddedServer(jvm, zookeeper.dir)
    hosts = server.attach()
    try:
        return connected(
            hosts,
            locate=server.locate,
            on_close=server.close,
            tidy=server.tidy,
        )
    except BaseException:
        server.close()
        raise
