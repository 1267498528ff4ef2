"""RunPage: the page of a run, which begins and ends with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from txtopo.config import AnyConfig, Page
from txtopo.runtime.progress import Stopped, TopologyEvent, TopologyListener
from txtopo.ui.pages.server import PageServer, check_installed, listen
from txtopo.ui.pages.sources import RunSource

if TYPE_CHECKING:
    from txtopo.ensemble.memory import MemoryEnsemble
    from txtopo.runtime.handle import RunHandle
    from txtopo.topology.graph import Graph
    from txtopo.ui.board import Board


class RunPage(TopologyListener):
    """The page of a run.

    It takes its port before anything else is opened, so that a port in use is an error of the
    start. As a listener it learns of the end (if the run is restarted, of the last end), and then
    ends. A later failure of the page never ends the run.

    Args:
        config: The settings.
        page: Where to serve it.

    Raises:
        ConfigError: The port is in use, or a package is not installed; nothing has run.
    """

    def __init__(self, config: AnyConfig, page: Page) -> None:
        check_installed("page")
        self._config, self._page = config, page
        self._listening = listen(page)
        self._server: PageServer | None = None

    def start(
        self,
        board: Board,
        graph: Graph,
        run: RunHandle[Any],
        ensemble: MemoryEnsemble | None = None,
    ) -> None:
        """Serve the page.

        Args:
            board: The figures of the run.
            graph: Its topology.
            run: Its handle.
            ensemble: Its transactional state, if that is in memory.
        """
        source = RunSource(board, graph, run, self._config, ensemble)
        self._server = PageServer(source, self._page, listening=self._listening)
        self._server.start()
        board.page = self._server.url

    def on_change(self, change: TopologyEvent) -> None:
        """End the page when the run has ended."""
        if isinstance(change, Stopped):
            self.close()

    def close(self) -> None:
        """Release the port."""
        if self._server is not None:
            self._server.stop()
        else:
            self._listening.close()
