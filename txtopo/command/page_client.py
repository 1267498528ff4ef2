"""PageClient: gets figures that the ensemble does not have from a run's page, over REST."""

from __future__ import annotations

import json
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from txtopo.config import is_loopback
from txtopo.ensemble.store import this_process
from txtopo.errors import AuthError, InfrastructureError, StateUsageError
from txtopo.operations.ensemble import TopologyStatus

TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = 64 * 1024 * 1024


class PageClient:
    """The page of one run. It needs the token of the run, if the run has one.

    Args:
        topology: The ensemble's status of the topology; its summary has the address.
        token: The token, or None.

    Raises:
        InfrastructureError: There is no page, or none that this machine can reach.
    """

    def __init__(self, topology: TopologyStatus, token: str | None) -> None:
        summary = topology.summary or {}
        url = summary.get("page")
        if not topology.summary and topology.leader is not None:
            raise InfrastructureError(
                f"the leader of {topology.id!r} has not announced the address of its page yet; "
                "try again",
                topology=topology.id,
            )
        if not topology.summary:
            raise InfrastructureError(
                f"topology {topology.id!r} is not running, so it has no page", topology=topology.id
            )
        if not isinstance(url, str):
            raise InfrastructureError(
                f"the run of {topology.id!r} has no page; to get one, start it with --set "
                "page.port=0",
                topology=topology.id,
            )
        address = urlsplit(url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise InfrastructureError(
                f"the page of {topology.id!r} has no usable address; got {url!r}; expected "
                "http://host:port or https://host:port",
                topology=topology.id,
                path=url,
            )
        process = summary.get("process")
        host = process.get("host") if isinstance(process, dict) else None
        # Another program may have that port on this machine, and must not get the token.
        if is_loopback(address.hostname) and host != this_process()["host"]:
            raise InfrastructureError(
                f"the page of {topology.id!r} is served only to its own machine; got {url} on "
                f"{host}; run this command there, or start the topology with page.host and "
                "page.token",
                topology=topology.id,
                path=url,
            )
        self.url = url
        self._path = f"{url.rstrip('/')}/api/v1/topologies/{quote(topology.id, safe='')}"
        self._token = token
        # A proxy, or the target of a redirect, must not get the token either.
        self._opener = build_opener(ProxyHandler({}), _NoRedirects())

    def figures(self) -> dict[str, Any]:
        """Return the figures of the run.

        Raises:
            AuthError: The token is missing or wrong.
            InfrastructureError: The page cannot be reached.
        """
        return self._ask("")

    def failures(self) -> list[dict[str, Any]]:
        """Return the last failures, the newest last; raises as ``figures`` does."""
        found = self._ask("/failures").get("failures")
        return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []

    def _ask(self, what: str) -> dict[str, Any]:
        headers = {"Accept": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        request = Request(self._path + what, headers=headers)
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                value = json.loads(answer.read(ANSWER_BYTES_MAX))
        except HTTPError as error:
            raise self._refused(error) from error
        except (URLError, HTTPException, OSError, ValueError) as error:
            reason = error.reason if isinstance(error, URLError) else error
            raise InfrastructureError(
                f"the page at {self.url} does not answer; got {reason}; the run may have ended, "
                "or a firewall may block the connection",
                path=self.url,
            ) from error
        if not isinstance(value, dict):
            kind = type(value).__name__
            raise InfrastructureError(
                f"the page at {self.url} did not answer with figures; got a {kind} in JSON; "
                "expected an object; is another server running there?",
                path=self.url,
                got=kind,
            )
        return value

    def _refused(self, error: HTTPError) -> Exception:
        if error.code in (401, 403):
            given = "this one is wrong" if self._token is not None else "none was given"
            return AuthError(
                f"the page at {self.url} needs its token; {given}; expected the run's page.token, "
                "by --token or TXTOPO_PAGE_TOKEN",
                path=self.url,
            )
        if error.code == 404:
            return StateUsageError(
                f"the page at {self.url} does not have this topology; does it belong to another "
                "run?",
                path=self.url,
            )
        return InfrastructureError(
            f"the page at {self.url} cannot answer now; got {error}", path=self.url, got=error.code
        )


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *request: Any, **more: Any) -> None:
        """Follow no redirect."""
