"""Connections: the server's connections write no access log, and end if they stay idle."""

from __future__ import annotations

from asyncio import Transport
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


class PageConnection(H11Protocol):
    """One connection of a client.

    What people view is private, and a token that somebody puts into an address by mistake would be
    in the log. uvicorn's own switch would change the loggers of another uvicorn in this process.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.access_log = False

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Begin; end the connection if no request arrives."""
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )
