"""Ask a page over HTTP, as a client that may also send what no browser would."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

TOKEN = "a-token-of-the-tests"
LIMIT_S = 60.0


@dataclass(frozen=True)
class Reply:
    """An answer of a page."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


def ask(
    url: str,
    path: str,
    body: Any = None,
    *,
    token: str | None = None,
    method: str | None = None,
    **headers: str,
) -> Reply:
    """Send one request, with the path as it is; *headers* have ``_`` for ``-``."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if token is not None:
        sent["Authorization"] = f"Bearer {token}"
    given = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=LIMIT_S)
    try:
        connection.request(method or ("GET" if body is None else "POST"), path, given, sent)
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return Reply(answer.status, found, answer.read())
    finally:
        connection.close()


@contextmanager
def listening(url: str, path: str, **headers: str) -> Iterator[Iterator[tuple[str, Any]]]:
    """Listen to server-sent events: pairs of the event and its data, and comments as ``""``."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=LIMIT_S)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        yield _events(answer)
    finally:
        connection.close()


def connected(url: str) -> socket.socket:
    """Return a connection to a page."""
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port), LIMIT_S)


def _events(answer: http.client.HTTPResponse) -> Iterator[tuple[str, Any]]:
    name = ""
    for line in iter(answer.readline, b""):
        field, _, value = line.decode().rstrip("\n").partition(": ")
        if line.startswith(b":"):
            yield "", line.decode()
        elif field == "event":
            name = value
        elif field == "data":
            yield name, json.loads(value)
