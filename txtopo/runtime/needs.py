"""Needs: the packages and the servers that a topology needs, and which of them are not there.

Each spout, bolt, lookup, store and ensemble says what it needs: ``client_modules`` and
``connects_to`` in :mod:`txtopo.traits`, the optional methods of a factory in
:mod:`txtopo.state.registry` and :mod:`txtopo.servers`. This file collects that. A start checks both
before Spark starts: a missing package ends it, a silent server is only told, since it may come
back. ``explain`` tells of packages, and ``txtopo doctor`` of both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class SilentServer:
    """A server that a topology needs, and of which no address answers.

    Attributes:
        name: What it is, and what needs it.
        found: What was found at each of its addresses.
    """

    name: str
    found: str


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

    Raises:
        TopologyError: ``connects_to`` of a component is no list of servers.
    """
    needs: dict[Server, list[str]] = defaultdict(list)
    zookeeper = _ensemble_of(graph, config)
    for server in () if zookeeper is None else ensemble_servers(zookeeper):
        needs[server].append("the transactional state")
    for component in graph.components.values():
        for server in _checked(component, component.traits.connects_to):
            needs[server].append(_named(component))
        for id, table in component.traits.lookups.items():
            for server in _checked(component, table.connects_to):
                needs[server].append(f"lookup {id!r}")
        for name, state in component.states.items():
            for server in _checked(component, state.connects_to):
                needs[server].append(f"state {component.id}.{name}")
    return {server: _joined(names) for server, names in needs.items()}


def warn_of_silent_servers(graph: Graph, config: AnyConfig) -> list[SilentServer]:
    """Try each server once, and warn of those that do not answer; return these.

    It takes no longer than :data:`txtopo.connecting.LIMIT_S`.
    """
    found = silent(needed_servers(graph, config))
    for each in found:
        _logger.warning(
            "topology %r: %s does not answer: %s; the start continues, and the run tries it again; "
            "start the server, or repair its address",
            graph.id,
            each.name,
            each.found,
            extra={"topology": graph.id, "cause": each.found},
        )
    return found


def silent(needed: Mapping[Server, str]) -> list[SilentServer]:
    """Try each of these servers once, and return those that do not answer."""
    return [
        SilentServer(shown_name(each.server, needed[each.server]), each.found)
        for each in silent_servers([*needed])
    ]


def shown_name(server: Server, needed_by: str) -> str:
    """Return a server with what needs it, for messages."""
    return f"{server.name} ({needed_by})"


def _ensemble_of(graph: Graph, config: AnyConfig) -> ZooKeeper | None:
    """Return the settings of the ensemble; None if the topology has none."""
    if isinstance(config, AtLeastOnceConfig):
        return config.zookeeper
    return config.zookeeper if graph.spout_kind.driven_by != "query" else None


def _checked(component: Component, servers: object) -> Sequence[Server]:
    listed = list(servers) if isinstance(servers, list | tuple) else [servers]
    found = [each for each in listed if isinstance(each, Server)]
    if isinstance(servers, list | tuple) and len(found) == len(listed):
        return found
    raise TopologyError(
        f"connects_to of {_named(component)} is wrong; got {type(servers).__name__}; expected a "
        'list of servers, such as [Server.of("the shop", "host:443", 443)]',
        component=component.id,
    )


def _named(component: Component) -> str:
    return f"{'spout' if component.kind.spout else 'bolt'} {component.id!r}"


def _joined(names: Sequence[str]) -> str:
    several = list(dict.fromkeys(names))
    more = f" and {len(several) - _NAMED_MAX} more" if len(several) > _NAMED_MAX else ""
    return f"{', '.join(several[:_NAMED_MAX])}{more}"
