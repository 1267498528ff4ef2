"""Needs: the packages and the servers that a topology needs, and which of them are not there.

Each spout, bolt, lookup, store and ensemble says what it needs: ``client_modules`` and
``connects_to`` in :mod:`txtopo.traits`, the optional methods of a factory in
:mod:`txtopo.state.registry` and :mod:`txtopo.servers`. This file collects that. A start checks both
before Spark starts: a missing package ends it, a silent server is only told, since it may come
back. ``explain`` tells of packages, and ``txtopo doctor`` of both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from txtopo.carriers.slots import SLOT_HOSTING
from txtopo.config import AtLeastOnceConfig
from txtopo.connecting import silent_servers
from txtopo.ensemble.opening import ensemble_modules, ensemble_servers
from txtopo.errors import TopologyError
from txtopo.extras import EXTRAS, Lack, check_lacking, lacking
from txtopo.log_records import logger_of
from txtopo.retries import LOGGER
from txtopo.servers import Server

if TYPE_CHECKING:
    from txtopo.config import AnyConfig, ZooKeeper
    from txtopo.topology.component import Component
    from txtopo.topology.graph import Graph

_logger = logger_of(LOGGER)

_NAMED_MAX = 3


def check_packages(graph: Graph, config: AnyConfig) -> None:
    """Check that each package which a topology needs can be imported.

    Raises:
        ConfigError: Some cannot; the message names all of them, and how to install them.
    """
    check_lacking(missing_packages(graph, config))


def missing_packages(graph: Graph, config: AnyConfig) -> list[Lack]:
    """Return the packages that a topology needs and that cannot be imported."""
    needs: dict[str, list[str]] = defaultdict(list)
    for component in graph.components.values():
        # A module of a user's own may be meant for executors only.
        for module in component.traits.client_modules:
            if module in EXTRAS:
                needs[module].append(_named(component))
        for name, state in component.states.items():
            for module in state.client_modules(name):
                needs[module].append(f"state {component.id}.{name}")
    zookeeper = _ensemble_of(graph, config)
    for module in () if zookeeper is None else ensemble_modules(zookeeper):
        needs[module].append("zookeeper.auth")
    if config.carrier == "resident":
        for module in SLOT_HOSTING.get().client_modules:
            needs[module].append("carrier='resident'")
    return lacking({module: _joined(names) for module, names in needs.items()})


def needed_servers(graph: Graph, config: AnyConfig) -> Mapping[Server, str]:
    """Return the servers that a topology names, each with what needs it.

    A server without an address that can be read is left out.

    Raises:
        TopologyError: A component or a plug-in names something else.
    """
    needs: dict[Server, list[str]] = defaultdict(list)
    for needed_by, servers in _servers_by_part(graph, config):
        for server in _checked(needed_by, servers):
            if server.addresses:
                needs[server].append(needed_by)
    return {server: _joined(names) for server, names in needs.items()}


def warn_of_silent_servers(graph: Graph, config: AnyConfig) -> list[str]:
    """Try each server once, and warn of those that do not answer.

    It takes no longer than :data:`txtopo.connecting.LIMIT_S`.

    Returns:
        A sentence about each server that did not answer, for later errors.
    """
    needed = needed_servers(graph, config)
    told = []
    for server, cause in silent_servers(needed).items():
        name = shown_name(server, needed[server])
        told.append(f"{name} did not answer at the start: {cause}")
        _logger.warning(
            "topology %r: %s does not answer: %s; the start continues, since it may come back; "
            "start the server, or repair its address",
            graph.id,
            name,
            cause,
            extra={"topology": graph.id, "cause": cause},
        )
    return told


def shown_name(server: Server, needed_by: str) -> str:
    """Return a server with what needs it, for messages."""
    return f"{server.name} ({needed_by})"


def _ensemble_of(graph: Graph, config: AnyConfig) -> ZooKeeper | None:
    """Return the settings of the ensemble; None if the topology has none."""
    if isinstance(config, AtLeastOnceConfig):
        return config.zookeeper
    return config.zookeeper if graph.spout_kind.driven_by != "query" else None


def _servers_by_part(graph: Graph, config: AnyConfig) -> Iterator[tuple[str, object]]:
    """Yield each part of a topology, in words, with the servers that it names."""
    zookeeper = _ensemble_of(graph, config)
    if zookeeper is not None:
        yield "the transactional state", ensemble_servers(zookeeper)
    for component in graph.components.values():
        yield _named(component), component.traits.connects_to
        for id, table in component.traits.lookups.items():
            yield f"lookup {id!r}", table.connects_to
        for name, state in component.states.items():
            yield f"state {component.id}.{name}", state.connects_to


def _checked(named_by: str, servers: object) -> Sequence[Server]:
    if isinstance(servers, list | tuple) and all(isinstance(each, Server) for each in servers):
        return servers
    raise TopologyError(
        f"the servers of {named_by} are wrong; got {type(servers).__name__}; expected a list of "
        'servers, such as [Server.of("the shop", "host:443", 443)]; look at its connects_to, or '
        "at servers_of of its plug-in",
        name=named_by,
        got=type(servers).__name__,
    )


def _named(component: Component) -> str:
    return f"{'spout' if component.kind.spout else 'bolt'} {component.id!r}"


def _joined(names: Sequence[str]) -> str:
    several = list(dict.fromkeys(names))
    more = f" and {len(several) - _NAMED_MAX} more" if len(several) > _NAMED_MAX else ""
    return f"{', '.join(several[:_NAMED_MAX])}{more}"
