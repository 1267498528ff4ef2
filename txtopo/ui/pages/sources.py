"""Sources: what pages show, of one run in this process or of all topologies of an ensemble."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from txtopo.errors import TxtopoError, nearest
from txtopo.metadata import Json

if TYPE_CHECKING:
    from txtopo.runtime.board import Board
    from txtopo.runtime.handle import RunHandle
    from txtopo.state.registry import State
    from txtopo.topology.graph import Graph

VERBS = ("activate", "deactivate", "kill")


class NotFound(TxtopoError, LookupError):
    """The page has no topology, state or figure of this name."""


class Source(Protocol):
    """Answers what pages ask. All methods may block, and are called on threads of their own.

    Values are plain JSON, as the board makes them.

    Raises:
        NotFound: There is no such topology or state, or this source does not have it.
        InfrastructureError: It cannot be answered now.
    """

    title: str
    """What the page is of, for its heading."""

    def ready(self) -> bool:
        """Return whether the run leads or stands by, or the ensemble can be reached."""
        ...

    def topologies(self) -> list[dict[str, Json]]:
        """Return the summary of each topology."""
        ...

    def facts(self, topology: str) -> dict[str, Json]:
        """Return the facts of a topology, or as many of them as are known."""
        ...

    def txids(self, topology: str, last: int) -> list[dict[str, Json]]:
        """Return the last txids, newest last."""
        ...

    def failures(self, topology: str, last: int) -> list[dict[str, Json]]:
        """Return the last failures, newest last."""
        ...

    def history(self, topology: str) -> list[dict[str, Json]]:
        """Return the figures of the last hour."""
        ...

    def graph(self, topology: str) -> dict[str, Json]:
        """Return the components and edges, and their picture."""
        ...

    def state(self, topology: str, name: str) -> State:
        """Return a state, by ``component.name``."""
        ...

    def changes(self, topology: str, since: int) -> dict[str, Json]:
        """Return what has changed after version *since*."""
        ...

    def command(self, topology: str, verb: str, wait_s: float | None) -> dict[str, Json]:
        """Do one of :data:`VERBS`, and return the answer."""
        ...

    def metrics(self) -> str:
        """Return the figures in the format of Prometheus."""
        ...


def unknown(what: str, name: str, known: list[str]) -> NotFound:
    """Return the error of a name that is not known."""
    return NotFound(f"no {what} of this name; got {name!r:.200}; {nearest(name, known[:100])}")


class RunSource:
    """Answers for one run in this process.

    Args:
        board: The figures of the run.
        graph: Its topology.
        run: Its handle.
    """

    def __init__(self, board: Board, graph: Graph, run: RunHandle[Any]) -> None:
        self.title = graph.id
        self._board = board
        self._graph = graph
        self._run = run

    def ready(self) -> bool:
        """Return whether the run leads or stands by."""
        return self._run.status in ("running", "deactivated", "standby")

    def topologies(self) -> list[dict[str, Json]]:
        """Return the one summary."""
        return [self._board.summary()]

    def facts(self, topology: str) -> dict[str, Json]:
        """Return the facts of the run."""
        self._check(topology)
        return self._board.facts()

    def txids(self, topology: str, last: int) -> list[dict[str, Json]]:
        """Return the last txids."""
        self._check(topology)
        return self._board.txids(last)

    def failures(self, topology: str, last: int) -> list[dict[str, Json]]:
        """Return the last failures."""
        self._check(topology)
        return self._board.failures(last)

    def history(self, topology: str) -> list[dict[str, Json]]:
        """Return the figures of the last hour."""
        self._check(topology)
        return self._board.history()

    def graph(self, topology: str) -> dict[str, Json]:
        """Return the graph and its picture."""
        self._check(topology)
        raise NotFound("there is no picture of the graph")

    def state(self, topology: str, name: str) -> State:
        """Return a state of the run."""
        self._check(topology)
        states = {
            f"{component.id}.{called}": state
            for component in self._graph.components.values()
            for called, state in component.states.items()
        }
        if name not in states:
            raise unknown("state", name, list(states))
        return states[name]

    def changes(self, topology: str, since: int) -> dict[str, Json]:
        """Return what has changed."""
        self._check(topology)
        return self._board.changes(since)

    def command(self, topology: str, verb: str, wait_s: float | None) -> dict[str, Json]:
        """Do a command."""
        self._check(topology)
        raise NotImplementedError

    def metrics(self) -> str:
        """Return the metrics of the run."""
        raise NotFound("there are no metrics")

    def _check(self, topology: str) -> None:
        if topology != self._graph.id:
            raise unknown("topology", topology, [self._graph.id])
