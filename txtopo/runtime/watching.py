"""Watching: how a run gets its watcher. The runtime does not import one; it is registered here.

The runtime reports each change to its listeners (:mod:`txtopo.runtime.progress`), and keeps no
figures. A :class:`Watcher` keeps the figures, and shows them to people: on a page, in a notebook,
on the command line. The factory of watchers is registered in :data:`WATCHERS`, and
:func:`watcher_of` makes a watcher for each run.

A watcher is made before the run opens anything. So if a watcher cannot work, for example because
its port is in use, the start fails and nothing has run. If the start fails later, the watcher is
closed. During the run it is a listener like any other: its failures are logged, and never end the
run.

A listener that a user hands to ``start``, such as a progress bar, needs none of this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from txtopo.registered import Registered

if TYPE_CHECKING:
    from types import TracebackType

    from txtopo.config import AnyConfig
    from txtopo.ensemble.memory import MemoryEnsemble
    from txtopo.metadata import Json
    from txtopo.runtime.handle import RunHandle
    from txtopo.runtime.histogram import Histogram
    from txtopo.runtime.progress import TopologyListener
    from txtopo.topology.graph import Graph

RunKind = Literal["transactional", "at-least-once"]


class Figures(Protocol):
    """The figures of one run, across its restarts: ``run.board``.

    All methods may be called from any thread. They return plain JSON values. Units are in the
    names: times (``…_at_s``) are seconds since 1970, durations (``…_s``) seconds. Unknown values
    are None.
    """

    @property
    def topology(self) -> str:
        """Id of the topology."""
        ...

    @property
    def kind(self) -> RunKind:
        """``transactional`` or ``at-least-once``."""
        ...

    @property
    def page(self) -> str | None:
        """Address of the run's own page, if it has one."""
        ...

    def summary(self) -> dict[str, Any]:
        """Return the run in one row: status, last txid, rate, lag, last failure and so on."""
        ...

    def figures(self) -> dict[str, Any]:
        """Return the summary and all other current figures."""
        ...

    def txids(self, last: int = ...) -> list[dict[str, Any]]:
        """Return the last txids with their attempts, the newest last: the timeline."""
        ...

    def failures(self, last: int = ...) -> list[dict[str, Any]]:
        """Return the last failures, the newest last."""
        ...

    def history(self) -> list[dict[str, Any]]:
        """Return one sample for each ten seconds of the last hour, the newest last."""
        ...

    def changes(self, since: int) -> dict[str, Any]:
        """Return the changes since a version: figures, txids and failures.

        Args:
            since: The ``version`` of the last answer; 0 for all.
        """
        ...

    @property
    def histograms(self) -> dict[str, Histogram]:
        """Durations of the phases, of the commit of each state, and of writes to ZooKeeper."""
        ...

    @property
    def counters(self) -> dict[str, Any]:
        """Totals since the start of the run, and other values that only metrics show."""
        ...


class WatchedRun(Protocol):
    """The properties of a run that a watcher reads besides the changes, on any thread."""

    @property
    def status(self) -> str:
        """The status in one word."""
        ...

    @property
    def pace(self) -> dict[str, Json] | None:
        """The current limits of batches; None for an at-least-once topology."""
        ...


class Watcher(Protocol):
    """Watches one run, across its restarts.

    The start of the run calls it, in the driver: ``__enter__``, :meth:`all_listeners`,
    :meth:`attach` and :meth:`begin`. Then the run begins, and ``__exit__`` is called. A simulated
    run, which has no page, calls :meth:`all_listeners` and :meth:`attach` only.
    """

    @property
    def figures(self) -> Figures:
        """The figures of the run."""
        ...

    def all_listeners(self, listeners: Sequence[TopologyListener]) -> list[TopologyListener]:
        """Return all listeners of the run, in the order in which they receive a change.

        Listeners that keep the figures come before *listeners*, which may read them. Listeners that
        end with the run come after *listeners*.
        """
        ...

    def attach(self, run: WatchedRun) -> None:
        """Give the watcher the run. Its handle exists from now on."""
        ...

    def begin(self, run: RunHandle[Any], ensemble: MemoryEnsemble | None) -> None:
        """Show the run, which starts next.

        Args:
            run: Its handle.
            ensemble: Its transactional state, if that is in memory.
        """
        ...

    def show(self, ended: Future[Any], seconds: float | None) -> None:
        """Show the run to the caller until it ends, or the time is up: ``run.watch()``.

        Args:
            ended: Done when the run has ended.
            seconds: How long to show it at most; None for no limit.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Release the watcher's resources if the start has failed."""
        ...


class WatcherFactory(Protocol):
    """Makes the watcher of a run."""

    def __call__(
        self, graph: Graph, kind: RunKind, clock: Callable[[], float], config: AnyConfig | None
    ) -> Watcher:
        """Make the watcher of a run; see :func:`watcher_of`."""
        ...


WATCHERS: Registered[WatcherFactory] = Registered("what watches runs")


def watcher_of(
    graph: Graph, kind: RunKind, clock: Callable[[], float], config: AnyConfig | None = None
) -> Watcher:
    """Return a watcher for the run that starts next.

    Args:
        graph: The topology.
        kind: Its kind.
        clock: Returns the seconds since 1970.
        config: The settings, with the port of the page; None for a run without a page.

    Raises:
        ConfigError: It cannot watch with these settings; nothing has run.
    """
    return WATCHERS.get()(graph, kind, clock, config)
