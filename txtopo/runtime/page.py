"""RunPage: the page of a run, which begins and ends with it.

It is the only place of the runtime that knows the pages, and imports them if a port is given.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from txtopo.config import Config
from txtopo.log_records import logger_of
from txtopo.retries import LOGGER
from txtopo.runtime.progress import Stopped, TopologyEvent, TopologyListener

if TYPE_CHECKING:
    from txtopo.runtime.board import Board
    from txtopo.runtime.handle import RunHandle
    from txtopo.topology.graph import Graph
    from txtopo.ui.pages.server import PageServer

_logger = logger_of(LOGGER)


class RunPage(TopologyListener):
    """The page of a run, or none if the configuration gives no port.

    It takes its port before anything else is opened, so that a port that is in use is an error of
    the start. As a listener it hears of the end, also of the last one of a run that is restarted,
    and then ends. A later failure of the page never ends the run.

    Args:
        config: The settings.

    Raises:
        ConfigError: The port is in use, or a package is not installed; nothing has run.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._server: PageServer | None = None
        self._listening: socket.socket | None = None
        self.url: str | None = None
        if config.ui_port is not None:
            from txtopo.ui.pages.server import check_installed, listen, url_of

            check_installed("Config(ui_port=…)")
            self._listening = listen(config.ui_host, config.ui_port)
            self.url = url_of(config.ui_host, self._listening.getsockname()[1])

    def start(self, board: Board, graph: Graph, run: RunHandle[Any]) -> None:
        """Serve the page of a run that was started."""
        if self._listening is None:
            return
        from txtopo.ui.pages.server import PageServer
        from txtopo.ui.pages.sources import RunSource

        host, token = self._config.ui_host, self._config.ui_token
        source = RunSource(board, graph, run)
        self._server = PageServer(source, host, 0, token, self._listening)
        self._server.start()
        if not run.is_active:  # it has ended meanwhile
            self._server.stop()

    def close(self) -> None:
        """End the page, or give up its port, if it has one."""
        if self._server is not None:
            self._server.stop()
        elif self._listening is not None:
            self._listening.close()

    def on_change(self, change: TopologyEvent) -> None:
        """End the page when the run has ended."""
        if isinstance(change, Stopped):
            self.close()
