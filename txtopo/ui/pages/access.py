"""Access: who may view a page and who may send commands, checked before a request is processed.

Rules
-----
1. A page that is served on a loopback address answers only to names of that address. Otherwise a
   foreign site could make its own name resolve to 127.0.0.1, and read the page in a browser on this
   machine (DNS rebinding).
2. With a token every request needs it: as ``Authorization: Bearer``, or as the cookie that the
   login sets. The login itself, the style and script files, and the two health checks, which reveal
   nothing about the data, need no token.
3. A command always needs the token, and from a browser also an ``Origin`` that is this page.
4. The token is compared in constant time. It is never in an address, in a log or in the cookie: the
   cookie has a random text of this server. Browsers send a cookie to all ports of a host, so its
   name contains the port, and another server on this host can never receive the token.
"""

from __future__ import annotations

import hmac
import secrets
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from txtopo.config import is_loopback

COMMON_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; object-src 'none'; "
    "form-action 'self'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Not no-referrer: browsers would then send the login form with Origin: null.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_FREE = ("/login", "/healthz", "/readyz")


class PageAccess:
    """Decides who may do what.

    Args:
        host: The address at which the page is served.
        port: Its port.
        token: The token, or None.
    """

    def __init__(self, host: str, port: int, token: str | None) -> None:
        self._host = host
        self._token = token
        self._session = secrets.token_urlsafe()
        self.cookie = f"txtopo_{port}"

    @property
    def has_token(self) -> bool:
        """Whether there is a token; without one the page only reads."""
        return self._token is not None

    @property
    def session(self) -> str:
        """The value of the cookie."""
        return self._session

    def is_token(self, given: str) -> bool:
        """Return whether *given* is the token."""
        return self._token is not None and _same(given, self._token)

    def knows_host(self, host: str) -> bool:
        """Return whether a request that was sent to *host* is meant for this page."""
        if not is_loopback(self._host):
            return True
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return is_loopback(name) or name == self._host.lower()

    def may_read(self, connection: HTTPConnection) -> bool:
        """Return whether a request shows the token, or none is needed."""
        return self._token is None or self._by_header(connection) or self._by_cookie(connection)

    def may_command(self, connection: HTTPConnection) -> bool:
        """Return whether a request shows the token, and does not come from another page."""
        if self._by_header(connection):
            return self.is_own(connection, or_none=True)
        return self._by_cookie(connection) and self.is_own(connection)

    def is_own(self, connection: HTTPConnection, *, or_none: bool = False) -> bool:
        """Return whether a request is from this page; with *or_none*, or from no browser."""
        origin = connection.headers.get("origin")
        if origin is None:
            return or_none
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        # The scheme may be that of a proxy; whoever controls host and port controls the page.
        return parts.scheme in ("http", "https") and parts.netloc == connection.headers.get("host")

    def _by_header(self, connection: HTTPConnection) -> bool:
        scheme, _, given = connection.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self.is_token(given.strip())

    def _by_cookie(self, connection: HTTPConnection) -> bool:
        given = connection.cookies.get(self.cookie, "")
        return self._token is not None and _same(given, self._session)


class Guard:
    """The outermost part of the page: refuses strangers, and adds the headers of all answers.

    Args:
        app: The application that answers admitted requests.
        access: Decides who may do what.
    """

    def __init__(self, app: ASGIApp, access: PageAccess) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or answer it, as ASGI says."""
        if scope["type"] != "http":
            return
        path: str = scope["path"]
        static = path.startswith("/static/")

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(COMMON_HEADERS)
                headers["Cache-Control"] = "no-cache" if static else "no-store"
            await send(message)

        free = static or path in _FREE
        app = self._refusal(scope, free) or self._app
        await app(scope, receive, answer)

    def _refusal(self, scope: Scope, free: bool) -> ASGIApp | None:
        hosts = Headers(scope=scope).getlist("host")
        if len(hosts) != 1 or not self._access.knows_host(hosts[0]):
            return refusal(403, "this page answers only to the address at which it is served")
        if free or self._access.may_read(HTTPConnection(scope)):
            return None
        if scope["method"] == "GET" and not scope["path"].startswith(("/api/", "/metrics")):
            return RedirectResponse("/login", 303)
        return refusal(401, "the token is missing or wrong; send it as Authorization: Bearer …")


def refusal(status: int, why: str) -> JSONResponse:
    """Return the answer to a refused request."""
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return JSONResponse({"error": why}, status, headers)


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())
