"""Plug-ins for transactional state: ensembles other than ZooKeeper, by URL scheme.

A distribution declares a factory in the entry point group ``txtopo.ensembles``, or a program calls
:func:`register_ensemble`. ``Config(zookeeper="scheme://…")`` then finds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Protocol

from txtopo.config import ZooKeeper
from txtopo.ensemble.store import TransactionalState
from txtopo.errors import ConfigError
from txtopo.servers import ConnectingFactory, Server

ENTRY_POINTS = "txtopo.ensembles"
# Like installed entry points they belong to the program, not to a run.
_registered: dict[str, EnsembleFactory] = {}


class EnsembleFactory(Protocol):
    """Opens the transactional state of a topology; called in the driver, once for each start.

    It connects; if it cannot within ``zookeeper.connect_timeout_s``, it raises
    ``CoordinatorUnavailable`` before anything is written. A leader that is silent for longer than
    ``zookeeper.session_timeout_s`` is deposed. A factory with ``servers_of`` is a
    :class:`~txtopo.servers.ConnectingFactory` as well.
    """

    def __call__(self, url: str, topology_id: str, zookeeper: ZooKeeper) -> TransactionalState:
        """Open the transactional state of a topology.

        Args:
            url: ``zookeeper.hosts``, whole.
            topology_id: Id of the topology. Those of one ensemble do not see each other.
            zookeeper: The settings of the ensemble.
        """
        ...


def register_ensemble(scheme: str, factory: EnsembleFactory) -> None:
    """Register an ensemble in this process, under a URL scheme.

    Args:
        scheme: The part of its URLs before ``://``.
        factory: ``(url, topology_id, zookeeper) -> TransactionalState``.

    Example:
        >>> from txtopo import Config
        >>> from txtopo.plugins.ensembles import MemoryTransactionalState, register_ensemble
        >>> register_ensemble("mine", lambda url, id, zookeeper: MemoryTransactionalState(id))
        >>> config = Config(zookeeper="mine://host:1234/root")
    """
    _registered[scheme.lower()] = factory


def scheme_of(hosts: str) -> str | None:
    """Return the scheme that ``ZooKeeper.hosts`` names, or None for ZooKeeper itself."""
    scheme, mark, _ = hosts.partition("://")
    return scheme.lower() if mark else None


def open_plug_in(scheme: str, topology_id: str, zookeeper: ZooKeeper) -> TransactionalState:
    """Open the transactional state of a topology in the ensemble of a scheme.

    Raises:
        ConfigError: There is no such plug-in, it cannot be imported, or it opens something else.
    """
    opened: object = _factory(scheme)(zookeeper.hosts, topology_id, zookeeper)
    if not isinstance(opened, TransactionalState):
        raise ConfigError(
            f"the ensemble {scheme!r} opens no transactional state; got {type(opened).__name__}; "
            "expected an object derived from txtopo.plugins.ensembles.TransactionalState; check "
            "its factory",
            setting="zookeeper.hosts",
        )
    return opened


def plug_in_servers(scheme: str, url: str) -> Sequence[Server]:
    """Return the servers that the factory of a scheme names; none if it names none.

    Raises:
        ConfigError: There is no such plug-in, or it cannot be imported.
    """
    factory = _factory(scheme)
    return factory.servers_of(url) if isinstance(factory, ConnectingFactory) else ()


def _factory(scheme: str) -> EnsembleFactory:
    if scheme in _registered:
        return _registered[scheme]
    points = {point.name.lower(): point for point in entry_points(group=ENTRY_POINTS)}
    if scheme not in points:
        known = ", ".join(sorted({*points, *_registered})) or "none"
        raise ConfigError(
            f"no ensemble for zookeeper='{scheme}://…'; known are {known}; expected 'embedded', "
            "'memory', 'file:progress.db', 'host:port,…/chroot', or a scheme of an installed "
            "plug-in or of register_ensemble",
            setting="zookeeper.hosts",
        )
    try:
        factory: EnsembleFactory = points[scheme].load()
    except Exception as error:
        raise ConfigError(
            f"the ensemble {scheme!r} cannot be loaded from {points[scheme].value!r}; got "
            f"{type(error).__name__}: {error}; install its distribution again, or repair it",
            setting="zookeeper.hosts",
        ) from error
    return factory
