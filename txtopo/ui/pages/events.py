"""Events: the changes of a topology as server-sent events, to any number of clients.

All clients of a topology are woken at the same moments, and request the same changes. So the
changes are computed and converted to JSON once. Nothing is sent to a client that does not read:
what it missed is sent together when it reads again, and it is dropped if that takes too long. So
nothing accumulates.

The pause between two events grows with the cost of an event, so that a run spends about the same
small share of a processor on its page, even on a busy machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from starlette.types import Receive, Scope, Send

from txtopo import clock
from txtopo.errors import InfrastructureError, shortened, text_of
from txtopo.metadata import Json
from txtopo.ui.pages.calls import Calls
from txtopo.ui.pages.numbers import text_of_json

PAUSE_S = 0.2
PAUSE_MAX_S = 2.0
# An event of 4 ms, every 200 ms, would take two percent of a processor.
_PAUSES = 50
COMMENT_S = 10.0
SEND_TIMEOUT_S = 30.0
CLIENTS_MAX = 500

Changes = Callable[[int], dict[str, Json]]


class Feed:
    """The changes of one topology since each version, computed once for simultaneous requests.

    Args:
        calls: Makes the calls.
        changes: Returns the changes since a version.
    """

    def __init__(self, calls: Calls, changes: Changes) -> None:
        self._calls = calls
        self._changes = changes
        self._until_s = 0.0
        self._ended = False
        self._asked: dict[int, asyncio.Task[tuple[int, bytes | None]]] = {}
        self.pause_s = PAUSE_S

    @property
    def wait_s(self) -> float:
        """How long until the answer may have changed."""
        return max(0.0, self._until_s - clock.now())

    async def since(self, version: int, *, last: bool = False) -> tuple[int, bytes | None]:
        """Return the current version, and the event with the changes; None if there are none.

        *last* is for the end, after which nothing changes.
        """
        if not self._ended and (last or not self.wait_s):
            self._asked, self._ended = {}, last
            self._until_s = clock.now() + self.pause_s
        if version not in self._asked:
            self._asked[version] = asyncio.ensure_future(self._ask(version))
        return await asyncio.shield(self._asked[version])

    async def _ask(self, version: int) -> tuple[int, bytes | None]:
        def ask() -> tuple[int, bytes | None]:
            began_s = clock.now()
            told = event_of(self._changes(version), version)
            self.pause_s = min(max(PAUSE_S, _PAUSES * (clock.now() - began_s)), PAUSE_MAX_S)
            return told

        try:
            return await self._calls.ask(ask)
        except InfrastructureError as error:
            # It recovers by itself; the client continues to listen.
            self.pause_s = PAUSE_MAX_S
            return version, _event("away", {"error": shortened(text_of(error), 500)})


def event_of(changes: dict[str, Json], version: int) -> tuple[int, bytes | None]:
    """Return the version of changes, and their event, if there are any."""
    now = changes["version"]
    assert isinstance(now, int)
    return now, None if now == version else _event("change", changes)


def _event(name: str, data: Json) -> bytes:
    # JSON on one line, in ASCII: no text of a user can end the event.
    return f"event: {name}\ndata: {text_of_json(data)}\n\n".encode()


class EventStream:
    """The answer to a request for events: it ends with the client, or with the server.

    Args:
        feed: The events to send.
        ended: Set when the server ends.
        since: The version that the client has; 0 for none.
    """

    def __init__(self, feed: Feed, ended: asyncio.Event, since: int) -> None:
        self._feed = feed
        self._ended = ended
        self._version = since

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, as ASGI says."""
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        told = asyncio.ensure_future(self._tell(send))
        gone = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait({told, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (told, gone):
                task.cancel()
            await asyncio.gather(told, gone, return_exceptions=True)

    async def _tell(self, send: Send) -> None:
        async def body(part: bytes, *, more: bool = True) -> None:
            message = {"type": "http.response.body", "body": part, "more_body": more}
            await asyncio.wait_for(send(message), SEND_TIMEOUT_S)

        await body(b": hello\n\n")
        spoken_s = clock.now()
        while not self._ended.is_set():
            self._version, event = await self._feed.since(self._version)
            if event is None and clock.now() - spoken_s >= COMMENT_S:
                event = b": here\n\n"
            if event is not None:
                await body(event)
                spoken_s = clock.now()
            with suppress(TimeoutError):
                # Until the next moment, which all clients share.
                await asyncio.wait_for(self._ended.wait(), self._feed.wait_s + 0.001)
        _, event = await self._feed.since(self._version, last=True)
        await body((event or b"") + _event("end", {}), more=False)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
