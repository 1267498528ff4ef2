"""REST under /api/v1: the data of a source as JSON, commands, and the events of a topology."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from txtopo.ensemble.commands import STATUS_AFTER
from txtopo.ui.pages.access import PageAccess
from txtopo.ui.pages.calls import Calls
from txtopo.ui.pages.events import CLIENTS_MAX, EventStream, Feed
from txtopo.ui.pages.numbers import ExactJson
from txtopo.ui.pages.sources import PageSource
from txtopo.ui.pages.state_rows import ROWS_MAX, STATE_ROWS_S, look_up

BODY_BYTES_MAX = 16 * 1024
BODY_S = 10.0
WAIT_S_MAX = 600.0
_LAST_MAX = 1_000


class Api:
    """The REST endpoints.

    Args:
        source: The data.
        access: Decides who may send commands.
        calls: Makes the blocking calls.
        ended: Set when the server ends.
    """

    def __init__(
        self, source: PageSource, access: PageAccess, calls: Calls, ended: asyncio.Event
    ) -> None:
        self._source = source
        self._access = access
        self._calls = calls
        self._lookups = Calls(4, STATE_ROWS_S)
        self._ended = ended
        self._feeds: dict[str, Feed] = {}
        self._clients = 0

    def routes(self) -> list[Route]:
        """Return the routes."""
        one = "/api/v1/topologies/{id}"
        return [
            Route("/api/v1/topologies", self._topologies),
            Route(one, self._figures),
            Route(f"{one}/txids", self._txids),
            Route(f"{one}/failures", self._failures),
            Route(f"{one}/history", self._history),
            Route(f"{one}/graph", self._graph),
            Route(f"{one}/states/{{name}}", self._state),
            Route(f"{one}/events", self._events),
            Route(f"{one}/commands", self._command, methods=["POST"]),
        ]

    def close(self) -> None:
        """Let the threads of the API end."""
        self._lookups.close()

    async def state(self, topology: str, request: Request) -> dict[str, Any]:
        """Return the rows of a state that a request asks for, or one key."""
        query = request.query_params
        limit = whole_number(request, "limit", ROWS_MAX, 1, ROWS_MAX)
        name, key = request.path_params["name"], query.get("key")

        def look() -> dict[str, Any]:
            return look_up(self._source.state(topology, name), name, key, limit)

        return await self._lookups.ask(look)

    async def _topologies(self, request: Request) -> Response:
        return _json({"topologies": await self._calls.ask(self._source.topologies)})

    async def _figures(self, request: Request) -> Response:
        return _json(await self._asked(request, self._source.figures))

    async def _txids(self, request: Request) -> Response:
        last = whole_number(request, "last", _LAST_MAX, 1, _LAST_MAX)
        return _json({"txids": await self._asked(request, self._source.txids, last)})

    async def _failures(self, request: Request) -> Response:
        last = whole_number(request, "last", 100, 1, _LAST_MAX)
        return _json({"failures": await self._asked(request, self._source.failures, last)})

    async def _history(self, request: Request) -> Response:
        return _json({"history": await self._asked(request, self._source.history)})

    async def _graph(self, request: Request) -> Response:
        return _json(await self._asked(request, self._source.graph))

    async def _state(self, request: Request) -> Response:
        return _json(await self.state(request.path_params["id"], request))

    async def _events(self, request: Request) -> ASGIApp:
        id = request.path_params["id"]
        since = whole_number(request, "since", 0, 0, 2**63)
        await self._asked(request, self._source.figures)  # 404 before the stream begins
        if self._clients >= CLIENTS_MAX:
            raise HTTPException(503, f"{CLIENTS_MAX} clients are already listening; close some")
        feed = self._feeds.setdefault(id, Feed(self._calls, partial(self._source.changes, id)))
        return self._counted(EventStream(feed, self._ended, since), id)

    def _counted(self, stream: EventStream, id: str) -> ASGIApp:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            self._clients += 1
            try:
                await stream(scope, receive, send)
            finally:
                self._clients -= 1
                if not self._clients:
                    self._feeds.clear()

        return app

    async def _command(self, request: Request) -> Response:
        if not self._access.has_token:
            raise HTTPException(
                403, "commands need a token; start the page with page.token, and send that token"
            )
        if not self._access.may_command(request):
            raise HTTPException(403, "the command does not come from this page, or lacks the token")
        verb, wait_s = _command_of(await body_of(request))
        id, command = request.path_params["id"], self._source.command
        call = partial(command, id, verb, wait_s)
        return _json(await self._calls.ask(call, timeout_s=(wait_s or 0.0) + 60.0))

    async def _asked(self, request: Request, call: Callable[..., Any], *more: Any) -> Any:
        return await self._calls.ask(partial(call, request.path_params["id"], *more))


def whole_number(request: Request, name: str, default: int, least: int, most: int) -> int:
    """Return a number from a request's query; larger ones are reduced to *most*.

    Raises:
        HTTPException: 400: it is not a whole number of at least *least*.
    """
    given = request.query_params.get(name)
    if given is None:
        return default
    if not (given.isascii() and given.isdigit()) or len(given) > 19 or int(given) < least:
        raise HTTPException(
            400, f"{name} is not a whole number of at least {least}; got {given!r:.100}"
        )
    return min(int(given), most)


async def body_of(request: Request) -> bytes:
    """Return the body of a request, if it is short and arrives soon.

    Raises:
        HTTPException: 413: it is too long; 408: it does not arrive in time.
    """
    parts, size = [], 0
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                size += len(part)
                if size > BODY_BYTES_MAX:
                    raise HTTPException(413, f"the body has more than {BODY_BYTES_MAX} bytes")
                parts.append(part)
    except TimeoutError as error:
        raise HTTPException(408, f"the body did not arrive within {BODY_S:g} s") from error
    return b"".join(parts)


def _command_of(body: bytes) -> tuple[str, float | None]:
    expected = 'expected {"verb": "deactivate"}, or "activate" or "kill", and perhaps "wait_s"'
    try:
        given = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"the body is not JSON; {expected}") from error
    # A list, since the given value may not be hashable.
    if not isinstance(given, dict) or given.get("verb") not in [*STATUS_AFTER]:
        raise HTTPException(400, f"the command is unknown; got {given!r:.200}; {expected}")
    if unknown := sorted(set(given) - {"verb", "wait_s"}):
        raise HTTPException(400, f"unknown members; got {unknown!r:.200}; {expected}")
    wait_s = given.get("wait_s")
    number = isinstance(wait_s, int | float) and not isinstance(wait_s, bool)
    if wait_s is not None and not (number and 0 <= wait_s <= WAIT_S_MAX):
        raise HTTPException(
            400, f"wait_s is wrong; got {wait_s!r:.100}; expected 0 to {WAIT_S_MAX:g} seconds"
        )
    return given["verb"], None if wait_s is None else float(wait_s)


def _json(value: Any) -> ExactJson:
    return ExactJson(value)
