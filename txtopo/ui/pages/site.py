"""Site: the pages as HTML, the login, health and metrics, and how errors are answered."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any
from urllib.parse import parse_qs, quote

import jinja2
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.templating import Jinja2Templates

from txtopo import __version__
from txtopo.errors import (
    ConfigError,
    InfrastructureError,
    PromiseError,
    StateUsageError,
    TxtopoError,
    shortened,
    text_of,
)
from txtopo.ui.metrics import CONTENT_TYPE
from txtopo.ui.pages.access import Guard, PageAccess, refusal
from txtopo.ui.pages.api import Api, body_of
from txtopo.ui.pages.calls import Calls
from txtopo.ui.pages.sources import NotFound, PageSource
from txtopo.ui.pages.state_rows import BadKey

_CALL_S = 10.0
_CALLS_MAX = 32
_ERROR_CHARACTERS_MAX = 2_000
_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (NotFound, 404),
    (BadKey, 400),
    (StateUsageError, 404),  # the store has no such state yet
    (InfrastructureError, 503),
    (ConfigError, 503),
    (PromiseError, 409),
    (TxtopoError, 503),
)
"""The status of an answer, by the first class that fits an error."""


class Site:
    """The application that a server serves.

    Args:
        source: The data of the pages.
        access: Decides who may view the pages and send commands.

    Attributes:
        app: The application, of ASGI.
        ended: To be set when the server ends.
    """

    def __init__(self, source: PageSource, access: PageAccess) -> None:
        self.ended = asyncio.Event()
        self._source = source
        self._access = access
        self._calls = Calls(_CALLS_MAX, _CALL_S)
        self._api = Api(source, access, self._calls, self.ended)
        loader = jinja2.PackageLoader("txtopo.ui.pages", "templates")
        environment = jinja2.Environment(loader=loader, autoescape=True)
        environment.filters["segment"] = _segment
        self._templates = Jinja2Templates(env=environment)
        routes = [
            Route("/", self._first),
            Route("/topologies", self._list),
            Route("/topologies/{id}", self._topology),
            Route("/topologies/{id}/states/{name}", self._state),
            Route("/login", self._login, methods=["GET", "POST"]),
            Route("/healthz", self._health),
            Route("/readyz", self._ready),
            Route("/metrics", self._metrics),
            *self._api.routes(),
            Mount("/static", StaticFiles(packages=[("txtopo.ui.pages", "static")])),
        ]
        failed: dict[Any, Any] = {
            HTTPException: self._refused,
            TxtopoError: self._failed,
            OSError: self._failed,
            Exception: self._failed,
        }
        self.app = Guard(Starlette(routes=routes, exception_handlers=failed), access)

    def close(self) -> None:
        """Allow the threads to end."""
        self._calls.close()
        self._api.close()

    async def _first(self, request: Request) -> Response:
        found = await self._calls.ask(self._source.topologies)
        if len(found) == 1:
            return RedirectResponse(f"/topologies/{_segment(str(found[0]['topology']))}", 303)
        return self._page(request, "list.html", topologies=found)

    async def _list(self, request: Request) -> Response:
        found = await self._calls.ask(self._source.topologies)
        return self._page(request, "list.html", topologies=found)

    async def _topology(self, request: Request) -> Response:
        id = request.path_params["id"]
        figures = await self._calls.ask(partial(self._source.figures, id))
        return self._page(request, "topology.html", topology=id, figures=figures)

    async def _state(self, request: Request) -> Response:
        id, name = request.path_params["id"], request.path_params["name"]
        context: dict[str, Any] = {"topology": id, "name": name, "found": None, "error": None}
        context["key"] = request.query_params.get("key", "")
        if not context["key"] and "key" in request.query_params:
            return RedirectResponse(request.url.remove_query_params("key").path, 303)
        status = 200
        try:
            context["found"] = await self._api.state(id, request)
        except NotFound:
            raise
        except TxtopoError as error:
            status, context["error"] = status_of(error), _text(error)
        return self._page(request, "state.html", status, **context)

    async def _login(self, request: Request) -> Response:
        if request.method == "GET":
            return self._page(request, "login.html", wrong=False)
        if not self._access.is_own(request, or_none=True):
            return refusal(403, "the login does not come from this page")
        form = parse_qs((await body_of(request)).decode("utf-8", "replace"), max_num_fields=4)
        if not self._access.is_token(form.get("token", [""])[0].strip()):
            return self._page(request, "login.html", 401, wrong=True)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(
            self._access.cookie,
            self._access.session,
            httponly=True,
            samesite="strict",
            secure=request.headers.get("origin", "").startswith("https:"),
        )
        return answer

    async def _health(self, request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _ready(self, request: Request) -> Response:
        try:
            ready = await self._calls.ask(self._source.ready)
        except TxtopoError:
            ready = False
        return PlainTextResponse("ready\n" if ready else "not ready\n", 200 if ready else 503)

    async def _metrics(self, request: Request) -> Response:
        text = await self._calls.ask(self._source.metrics)
        return Response(text, media_type=CONTENT_TYPE)

    def _page(
        self, request: Request, template: str, status: int = 200, /, **context: Any
    ) -> Response:
        shared = {
            "title": self._source.title,
            "version": __version__,
            "has_token": self._access.has_token,
        }
        return self._templates.TemplateResponse(request, template, {**shared, **context}, status)

    async def _refused(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return self._error(request, error.status_code, str(error.detail), error.headers)

    async def _failed(self, request: Request, error: Exception) -> Response:
        return self._error(request, status_of(error), _text(error))

    def _error(self, request: Request, status: int, why: str, headers: Any = None) -> Response:
        if request.url.path.startswith(("/api/", "/metrics", "/static/")):
            return JSONResponse({"error": why}, status, headers)
        return self._page(request, "error.html", status, error=why)


def status_of(error: Exception) -> int:
    """Return the HTTP status for an error."""
    if isinstance(error, OSError):  # a store or an ensemble that does not raise our errors
        return 503
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def _text(error: Exception) -> str:
    if not isinstance(error, TxtopoError | OSError):
        return "the page failed; see the log of its process"
    return shortened(text_of(error), _ERROR_CHARACTERS_MAX)


def _segment(id: str) -> str:
    """Return an id as one part of an address."""
    return quote(id, safe="")
