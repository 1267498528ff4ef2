"""RunPage: the page of a run, which begins and ends with it.

It is the only place of the runtime that knows the pages, and imports them if a port is given.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Self

from txtopo.config import Config
from txtopo.runtime.progress import Stopped, TopologyEvent, TopologyListener

if TYPE_CHECKING:
    from txtopo.runtime.board import Board
    from txtopo.runtime.handle import RunHandle
    from txtopo.topology.graph import Graph
    from txtopo.transactional_state.memory import MemoryEnsemble
    from txtopo.ui.pages.server import PageServer


class RunPage(TopologyListener):
    """The page of a run, or none if the configuration gives no port.

    It takes its port before anything else is opened, so that a port that is in use is an error of
    the start. The context manager gives the port up if the start fails. As a listener it hears of
    the end, of a run that is restarted of the last one, and then ends. A later failure of the page
    never ends the run.

    Args:
        config: The settings.

    Raises:
        ConfigError: The port is in use, or a package is not installed; nothing has run.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._server: PageServer | None = None
        self._listening: socket.socket | None = None
        if config.ui_port is not None:
            from txtopo.ui.pages.server import check_installed, listen

            check_installed("Config(ui_port=…)")
            self._listening = listen(config.ui_host, config.ui_port)

    def start(
        self,
        board: Board,
        graph: Graph,
        run: RunHandle[Any],
        ensemble: MemoryEnsemble | None = None,
    ) -> None:
        """Serve the page of a run.

        Args:
            board: The figures of the run.
            graph: Its topology.
            run: Its handle.
            ensemble: Its transactional state, if that is in memory.
        """
        if self._listening is None:
            return
        from txtopo.ui.pages.server import PageServer
        from txtopo.ui.pages.sources import RunSource

        source = RunSource(board, graph, run, self._config, ensemble)
        host, token = self._config.ui_host, self._config.ui_token
        self._server = PageServer(source, host, token=token, listening=self._listening)
        self._server.start()
        board.page = self._server.url

    def on_change(self, change: TopologyEvent) -> None:
        """End the page when the run has ended."""
        if isinstance(change, Stopped):
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if error is not None:
            self._close()

    def _close(self) -> None:
        if self._server is not None:
            self._server.stop()
        elif self._listening is not None:
            self._listening.close()
