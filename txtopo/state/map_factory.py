"""backing_map_factory: makes a state backend of whatever opens a backing map."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from txtopo.errors import TopologyError
from txtopo.state.backend import StateTable
from txtopo.state.backing_map import BackingMap
from txtopo.state.map_backend import MapBackend
from txtopo.state.opaque_map import OpaqueMap
from txtopo.state.row_text import PAIR
from txtopo.state.transactional_map import TransactionalMap


@dataclass(frozen=True, slots=True)
class MapFactory:
    """Opens states over backing maps; :func:`backing_map_factory` makes it.

    Attributes:
        open_map: Opens the map that a URL names.
        shared_by_processes: Whether other processes that open the same URL see the same map.
    """

    open_map: Callable[[str], BackingMap]
    shared_by_processes: bool = True

    def __call__(self, url: str, table: StateTable) -> MapBackend:
        """Open a state: an :class:`OpaqueMap` or a :class:`TransactionalMap`.

        Raises:
            TopologyError: What was opened is no backing map; mend the plug-in.
        """
        backing_map: object = self.open_map(url)
        if not isinstance(backing_map, BackingMap):
            raise TopologyError(
                f"the plug-in of state {table.name!r} opened no backing map; got "
                f"{type(backing_map).__name__}; expected an object derived from BackingMap, with "
                f"{', '.join(sorted(BackingMap.__abstractmethods__))}",
                state=table.name,
            )
        if PAIR.search(table.name):
            raise TopologyError(
                f"bad name of a state's table; got {table.name!r}; a backing map is asked in JSON, "
                "which takes two surrogates in a row for one sign; rename it",
                state=table.name,
            )
        kind = OpaqueMap if table.kind == "opaque" else TransactionalMap
        return kind(backing_map, table)


def backing_map_factory(
    open_map: Callable[[str], BackingMap], *, shared_by_processes: bool = True
) -> MapFactory:
    """Return a factory of state backends over the backing maps that *open_map* opens.

    It is what an entry point of ``txtopo.state_backends`` names, and what ``register_backend``
    takes. Two methods give exactly once under one live coordinator, but no fence, and a reader may
    see half a batch; see :class:`OpaqueMap`.

    Args:
        open_map: URL -> map; often the class itself. It travels to Spark tasks with each state, so
            it is a class or function of a module, or one that cloudpickle can carry.
        shared_by_processes: Whether other processes that open the same URL see the same map.

    Raises:
        TopologyError: *open_map* cannot be called.

    Example:
        >>> class Notes(BackingMap):
        ...     def __init__(self, url: str) -> None:
        ...         self.texts: dict[str, str] = {}
        ...     def multi_get(self, keys):
        ...         return [self.texts.get(key) for key in keys]
        ...     def multi_put(self, keys, values):
        ...         self.texts.update(zip(keys, values))
        >>> register_backend("notes", backing_map_factory(Notes, shared_by_processes=False))
    """
    if not callable(open_map):
        raise TopologyError(
            f"backing_map_factory needs what opens a map; got {open_map!r:.100}; expected a class "
            "or function: (url) -> BackingMap"
        )
    return MapFactory(open_map, shared_by_processes)
