"""Where the table of a state is: a folder on a disk or in an object store."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from state_backends.delta.names import names_of
from txtopo.errors import TopologyError
from txtopo.state import hidden

_REFUSED = "%[]\\#\x7f"


@dataclass(frozen=True, slots=True)
class Location:
    """A folder with one Delta table for each state.

    Attributes:
        root: The folder: a path, or a URI that delta-rs opens.
        options: Storage options for delta-rs, from the query of the URL. Secrets belong into the
            environment, where delta-rs looks for them too.
        local: Whether it is a folder of this machine.
        history_txids: How many txids back a reader may go; ``?history_txids=`` of the URL.
        frames: Whether Spark may write frames into it; ``?writer=spark`` of the URL.
    """

    root: str
    options: dict[str, str] = field(default_factory=dict, repr=False)
    local: bool = False
    history_txids: int = 100
    frames: bool = False

    def table(self, name: str) -> str:
        """Return where the table of a state is."""
        return f"{self.root.rstrip('/')}/{names_of(name).folder}"


def location(url: str) -> Location:
    """Read the URL of a state: ``delta:///folder``, ``delta:folder`` or ``s3://bucket/folder``.

    Raises:
        TopologyError: It names no folder.
    """
    scheme, _, rest = url.partition(":")
    if scheme.lower() != "delta":
        parts = urlsplit(url)
        if not parts.netloc:
            raise _unreadable(url)
        root = parts._replace(query="", fragment="").geturl()
        return _with_options(Location(root), parts.query)
    path, _, query = rest.partition("?")
    if path.startswith("//"):
        path = path[2:]
        if not path.startswith("/"):
            raise _unreadable(url)
    folder = unquote(path)
    if not folder.strip("/"):
        raise _unreadable(url)
    if any(sign in _REFUSED or sign < " " for sign in folder):
        raise TopologyError(
            f"delta-rs cannot keep a table in this folder; got {folder!r}; expected a path without "
            "percent signs, brackets, backslashes, # and control characters; choose another folder"
        )
    return _with_options(Location(os.path.realpath(folder), local=True), query)


def absolute(url: str) -> str:
    """Return the URL with the path of a local folder made absolute: tasks may run elsewhere."""
    place = location(url)
    if not place.local:
        return url
    _, mark, query = url.partition("?")
    return f"delta://{quote(place.root)}{mark}{query}"


def _with_options(place: Location, query: str) -> Location:
    options = dict(parse_qsl(query))
    text = options.pop("history_txids", str(place.history_txids))
    if not text.isdecimal():
        raise TopologyError(
            f"bad history_txids in the URL of a state; got {text!r}; expected a whole number: how "
            "many txids back a reader may go"
        )
    writer = options.pop("writer", "")
    if writer not in ("", "spark"):
        raise TopologyError(
            f"bad writer in the URL of a state; got {writer!r}; expected 'spark', for DataFrame "
            "committers, or none"
        )
    frames = writer == "spark"
    return replace(place, options=options, history_txids=int(text), frames=frames)


def _unreadable(url: str) -> TopologyError:
    return TopologyError(
        f"cannot read the URL of a state in Delta; got {hidden(url)!r}; expected "
        "'delta:///absolute/folder', 'delta:folder' or e.g. 's3://bucket/folder'"
    )
