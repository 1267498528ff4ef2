"""Sources: what pages show, for one run in this process or for all topologies of an ensemble."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from txtopo import clock
from txtopo.config import AnyConfig, Config
from txtopo.ensemble.commands import STATUS_AFTER
from txtopo.ensemble.nodes import check_topology_id
from txtopo.errors import ConfigError, StateUsageError, TxtopoError, nearest
from txtopo.explanation.explaining import explain_topology
from txtopo.metadata import Json
from txtopo.operations.ensemble import WAIT_S, Ensemble, TopologyStatus
from txtopo.runtime.scheduler import Workers

if TYPE_CHECKING:
    from txtopo.ensemble.memory import MemoryEnsemble
    from txtopo.runtime.handle import RunHandle
    from txtopo.runtime.watching import Figures
    from txtopo.state.registry import State
    from txtopo.topology.graph import Graph

T = TypeVar("T")

# The leader writes its summary once a second.
_KEPT_S = 1.0
_KEPT_MAX = 1_000


class NotFound(TxtopoError, LookupError):
    """The page has no topology, state or figure of this name."""


class PageSource(Protocol):
    """Answers the requests of pages. All methods may block; each call has its own thread.

    Values are plain JSON, as the board returns them.

    Raises:
        NotFound: There is no such topology or state, or this source does not have it.
        InfrastructureError: There can be no answer now.
    """

    title: str
    """What the page shows, for its heading."""

    def ready(self) -> bool:
        """Return whether the run leads or stands by; or whether the ensemble can be reached."""
        ...

    def topologies(self) -> list[dict[str, Json]]:
        """Return the summary of each topology."""
        ...

    def figures(self, topology: str) -> dict[str, Json]:
        """Return the figures of a topology, or as many of them as are known."""
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
        """Return the changes after version *since*."""
        ...

    def command(self, topology: str, verb: str, wait_s: float | None) -> dict[str, Json]:
        """Do ``activate``, ``deactivate`` or ``kill``, and return the answer."""
        ...

    def metrics(self) -> bytes:
        """Return the figures in the format of Prometheus."""
        ...


def unknown(what: str, name: str, known: list[str]) -> NotFound:
    """Return the error for an unknown name."""
    return NotFound(
        f"no {what} of this name; got {name!r:.200}; {nearest(name, known[:100])}", name=name
    )


class RunSource:
    """Answers for one run in this process.

    Args:
        board: The figures of the run.
        graph: Its topology.
        run: Its handle.
        config: Names the ensemble through which commands are sent to a leader.
        ensemble: The ensemble, if it is in memory.
    """

    def __init__(
        self,
        board: Figures,
        graph: Graph,
        run: RunHandle[Any],
        config: AnyConfig = Config(),
        ensemble: MemoryEnsemble | None = None,
    ) -> None:
        self.title = graph.id
        self._board = board
        self._graph = graph
        self._run = run
        self._config = config
        self._ensemble = ensemble
        self._explaining = threading.Lock()
        self._commanding = threading.Lock()
        self._wishes = 0
        self._explained: dict[str, Json] | None = None

    def ready(self) -> bool:
        """Return whether the run leads or stands by."""
        return self._run.status in ("running", "deactivated", "standby")

    def topologies(self) -> list[dict[str, Json]]:
        """Return the summary of this run, as a list of one."""
        return [self._board.summary()]

    def figures(self, topology: str) -> dict[str, Json]:
        """Return the figures of the run."""
        self._check(topology)
        return self._board.figures()

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
        with self._explaining:
            if self._explained is None:
                explained = explain_topology(self._graph, self._config)
                self._explained = {**explained.to_json(), "svg": explained.svg(style=False)}
            return self._explained

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
        """Return the changes of the run after version *since*."""
        self._check(topology)
        return self._board.changes(since)

    def command(self, topology: str, verb: str, wait_s: float | None) -> dict[str, Json]:
        """Send the command to the leader, or to an at-least-once topology of this process only."""
        self._check(topology)
        zookeeper = self._config.zookeeper
        if zookeeper is not None:
            with Ensemble.open(Config(zookeeper=zookeeper), ensemble=self._ensemble) as ensemble:
                return _asked(ensemble, topology, verb, wait_s)
        with self._commanding:
            if verb != "deactivate":
                self._wishes += 1
            wish = self._wishes
            if verb == "activate":
                self._run.activate()
            else:
                self._run.deactivate()
        if verb == "kill":
            Workers(f"txtopo-{topology}-kill").run(lambda: self._kill(wait_s, wish))
        return {"status": STATUS_AFTER[verb], "refused": None, "at_s": clock.wall_clock()}

    def metrics(self) -> bytes:
        """Return the metrics of the run."""
        from txtopo.ui import metrics

        return metrics.text(self._board)

    def _kill(self, wait_s: float | None, wish: int) -> None:
        """Give pending work some time to end, then stop, unless another command came since."""
        # Whatever came of that wait, the run was to be killed.
        with suppress(Exception):
            self._run.process_all_available(WAIT_S if wait_s is None else wait_s)
        with self._commanding:
            wanted = wish == self._wishes
        if wanted:
            self._run.stop()

    def _check(self, topology: str) -> None:
        if topology != self._graph.id:
            raise unknown("topology", topology, [self._graph.id])


class EnsembleSource:
    """Answers for all topologies of an ensemble, with the summary that each leader writes there.

    Figures that only the process of a run has (txids, failures, the graph, rows of states) are on
    the page of that run; the answer names that page.

    Args:
        ensemble: The ensemble; the caller closes it after the server has stopped.
        title: Its name on the page.
    """

    def __init__(self, ensemble: Ensemble, title: str = "ensemble") -> None:
        self.title = title
        self._ensemble = ensemble
        self._lock = threading.Lock()
        self._kept: dict[str | None, tuple[float, Any]] = {}
        self._versions: dict[str, tuple[int, dict[str, Json]]] = {}

    def ready(self) -> bool:
        """Return whether the ensemble can be reached."""
        self.topologies()
        return True

    def topologies(self) -> list[dict[str, Json]]:
        """Return a row for each topology."""
        return self._read(None, lambda: [row_of(each) for each in self._ensemble.topologies()])

    def figures(self, topology: str) -> dict[str, Json]:
        """Return the row of a topology."""
        try:
            check_topology_id(topology)
        except ConfigError as error:
            raise NotFound(str(error), topology=topology) from error
        try:
            return self._read(topology, lambda: row_of(self._ensemble.topology(topology)))
        except StateUsageError as error:
            raise NotFound(str(error), topology=topology) from error

    def txids(self, topology: str, last: int) -> list[dict[str, Json]]:
        """Raise an error that names the page of the run, which has them."""
        raise self._elsewhere(topology)

    def failures(self, topology: str, last: int) -> list[dict[str, Json]]:
        """Raise an error that names the page of the run, which has them."""
        raise self._elsewhere(topology)

    def history(self, topology: str) -> list[dict[str, Json]]:
        """Raise an error that names the page of the run, which has it."""
        raise self._elsewhere(topology)

    def graph(self, topology: str) -> dict[str, Json]:
        """Raise an error that names the page of the run, which has it."""
        raise self._elsewhere(topology)

    def state(self, topology: str, name: str) -> State:
        """Raise an error that names the page of the run, which has it."""
        raise self._elsewhere(topology)

    def changes(self, topology: str, since: int) -> dict[str, Json]:
        """Return the row of a topology, if it has changed."""
        row = self.figures(topology)
        with self._lock:
            version, before = self._versions.get(topology, (0, {}))
            if row != before:
                version += 1
                self._versions[topology] = version, row
        told = row if not 0 < since == version else None
        return {"version": version, "figures": told, "txids": [], "failures": []}

    def command(self, topology: str, verb: str, wait_s: float | None) -> dict[str, Json]:
        """Ask the leader."""
        self.figures(topology)
        return _asked(self._ensemble, topology, verb, wait_s)

    def metrics(self) -> bytes:
        """Raise an error: each run has its own metrics."""
        raise NotFound("metrics belong to a single run; use /metrics on the page of each run")

    def _read(self, key: str | None, read: Callable[[], T]) -> T:
        """Read once for all requests within a second."""
        with self._lock:
            at_s, found = self._kept.get(key, (0.0, None))
            if found is not None and clock.now() - at_s < _KEPT_S:
                return found  # type: ignore[no-any-return]
            if len(self._kept) > _KEPT_MAX:
                self._kept.clear()
            fresh = read()
            self._kept[key] = clock.now(), fresh
            return fresh

    def _elsewhere(self, topology: str) -> NotFound:
        page = self.figures(topology).get("page")
        if page is None:
            return NotFound(
                f"only the process that runs {topology!r} has this, and it has no page now; start "
                "it with Config(page=Page())",
                topology=topology,
            )
        return NotFound(
            f"only the process that runs {topology!r} has this; its page is {page}",
            topology=topology,
        )


def row_of(status: TopologyStatus) -> dict[str, Json]:
    """Return an extended summary, as a board has it, from the ensemble's data on a topology."""
    return {
        "topology": status.id,
        "kind": "transactional",
        "epoch": status.epoch,
        "txid": status.txid,
        "rows_per_second": None,
        "lag_records": None,
        "rows_total": None,
        "last_failure": None,
        "started_at_s": None,
        "updated_at_s": None,
        "page": None,
        "process": None,
        **(status.summary or {}),
        "status": status.status,
        "leader": status.leader,
        "standbys": list(status.standbys),
        "desired": None if status.desired is None else asdict(status.desired),
        "operation": status.operation,
        "unreadable": dict(status.unreadable),
    }


def _asked(ensemble: Ensemble, topology: str, verb: str, wait_s: float | None) -> dict[str, Json]:
    return asdict(ensemble.ask(topology, verb, wait_s=WAIT_S if wait_s is None else wait_s))
