"""PageServer: serves pages on its own thread, which neither delays nor ends a run."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from txtopo.config import Page
from txtopo.errors import ConfigError
from txtopo.extras import EXTRAS, require
from txtopo.log_records import logger_of
from txtopo.runtime.scheduler import Workers

if TYPE_CHECKING:
    from txtopo.ui.pages.sources import PageSource

_logger = logger_of("txtopo.ui")
_HEADERS_BYTES_MAX = 32 * 1024
_CONNECTIONS_MAX = 1_000
_STOP_S = 2.0


def check_installed(needed_by: str) -> None:
    """Check that the packages of the extra ``ui`` can be imported.

    Raises:
        ConfigError: One cannot; install the extra.
    """
    for module, extra in EXTRAS.items():
        if extra.name == "ui":
            require(module, needed_by)


def listen(page: Page) -> socket.socket:
    """Return a listening socket; connections to it wait until a server serves them.

    Args:
        page: Names the address.

    Raises:
        ConfigError: The port is in use, or the address is not one of this machine; use another.
    """
    host, port = page.host, page.port
    listening: socket.socket | None = None
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
    except (OSError, UnicodeError) as error:
        if listening is not None:
            listening.close()
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        setting = "page.port" if taken else "page.host"
        advice = (
            "another program, perhaps another run, uses it; stop that one, use another port, or "
            "page.port=0 for a free one"
            if taken
            else "expected an address of this machine, and a port that this user may bind"
        )
        raise ConfigError(
            f"the page cannot be served at page.host={host!r}, page.port={port}; got {error}; "
            f"{advice}",
            setting=setting,
        ) from error
    return listening


class PageServer:
    """Serves the pages of a source.

    If it fails, that is logged and ends only the page. It is a context manager, which starts and
    stops it.

    Args:
        source: The data of the pages: a ``RunSource`` or an ``EnsembleSource``.
        page: Where they are served, and who may view them.
        listening: A socket of :func:`listen`, if the caller has one.

    Raises:
        ConfigError: A package is not installed, or the page cannot be served there.
    """

    def __init__(
        self,
        source: PageSource,
        page: Page = Page(),
        listening: socket.socket | None = None,
    ) -> None:
        check_installed("PageServer")
        import uvicorn

        from txtopo.ui.pages.access import PageAccess
        from txtopo.ui.pages.connections import PageConnection
        from txtopo.ui.pages.site import Site

        self._listening = listening or listen(page)
        port = self._listening.getsockname()[1]
        self.url = url_of(page.host, port)
        self._site = Site(source, PageAccess(page.host, port, page.token))
        config = uvicorn.Config(
            self._site.app,
            loop="asyncio",
            http=PageConnection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_CONNECTIONS_MAX,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=_HEADERS_BYTES_MAX,
        )
        self._server = uvicorn.Server(config)
        self._workers = Workers("txtopo-page")
        self._serving = False
        self._stopping = threading.Event()
        self._released = threading.Event()
        self._wake: Callable[[], object] = lambda: None

    def start(self) -> None:
        """Start to serve, without waiting."""
        self._serving = True
        self._workers.run(self._serve)
        _logger.info("the page is at %s", self.url)

    def stop(self) -> None:
        """End the page, and wait a moment until its port is free; may be called twice."""
        if not self._serving:
            self._listening.close()
            return
        self._stopping.set()
        with suppress(RuntimeError):  # its loop has ended
            self._wake()
        if not self._released.wait(_STOP_S):
            _logger.warning("the page at %s did not stop within %g s", self.url, _STOP_S)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _serve(self) -> None:
        try:
            asyncio.run(self._until_stopped())
        except BaseException:
            _logger.warning("the page at %s has failed", self.url, exc_info=True)
        finally:
            self._listening.close()
            self._workers.close()
            self._released.set()

    async def _until_stopped(self) -> None:
        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        self._wake = lambda: loop.call_soon_threadsafe(woken.set)
        if self._stopping.is_set():
            return
        serving = asyncio.ensure_future(self._server.serve(sockets=[self._listening]))
        waiting = asyncio.ensure_future(woken.wait())
        await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        self._server.should_exit = True
        # The port is free at once; listening clients receive the last change and the end.
        for server in getattr(self._server, "servers", ()):
            server.close()
        self._released.set()
        self._site.ended.set()
        await serving
        self._site.close()


def url_of(host: str, port: int) -> str:
    """Return the address of a page; one that others can reach, if it serves all interfaces."""
    name = host.strip("[]")
    if name in ("0.0.0.0", "::"):
        name = socket.gethostname()
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"
