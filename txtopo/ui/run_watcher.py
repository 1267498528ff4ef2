"""RunWatcher: shows a run to people through its board, and on its page if a port is set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Self

from txtopo.ui.board import Board
from txtopo.ui.notebook.runs import watch

if TYPE_CHECKING:
    from types import TracebackType

    from txtopo.config import AnyConfig
    from txtopo.ensemble.memory import MemoryEnsemble
    from txtopo.runtime.handle import RunHandle
    from txtopo.runtime.progress import TopologyListener
    from txtopo.runtime.watching import RunKind, WatchedRun
    from txtopo.topology.graph import Graph
    from txtopo.ui.pages.run_page import RunPage


class RunWatcher:
    """The watcher of a run (:class:`~txtopo.runtime.watching.Watcher`).

    Args:
        graph: The topology.
        kind: Its kind.
        clock: Returns the seconds since 1970.
        config: The settings; None for a run without a page.

    Raises:
        ConfigError: The port of the page is in use, or a package is not installed.
    """

    def __init__(
        self,
        graph: Graph,
        kind: RunKind,
        clock: Callable[[], float],
        config: AnyConfig | None = None,
    ) -> None:
        self._graph = graph
        self._board = Board(graph.id, kind, graph, clock)
        self._page: RunPage | None = None
        if config is not None and config.page is not None:
            from txtopo.ui.pages.run_page import RunPage

            self._page = RunPage(config, config.page)

    @property
    def figures(self) -> Board:
        """The board of the run."""
        return self._board

    def all_listeners(self, listeners: Sequence[TopologyListener]) -> list[TopologyListener]:
        """Return the board, then *listeners*, then the page, which ends with the run."""
        pages = [] if self._page is None else [self._page]
        return [self._board, *listeners, *pages]

    def attach(self, run: WatchedRun) -> None:
        """Connect the board to the status of the run and its pace."""
        self._board.attach(lambda: run.status, lambda: run.pace)

    def begin(self, run: RunHandle[Any], ensemble: MemoryEnsemble | None) -> None:
        """Serve the page."""
        if self._page is not None:
            self._page.start(self._board, self._graph, run, ensemble)

    def show(self, ended: Future[Any], seconds: float | None) -> None:
        """Show the run, live in a notebook, otherwise as lines."""
        watch(self._board, ended, seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None and self._page is not None:
            self._page.close()
