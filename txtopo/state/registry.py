"""open_state: names a state and finds its backend by URL scheme, through entry points.

A backend is a plug-in: a distribution declares it in the entry point group
``txtopo.state_backends``, or a program calls :func:`register_backend`. The part of the scheme
before ``+`` counts, so ``postgresql`` also answers for ``postgresql+psycopg``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol, runtime_checkable
from urllib.parse import unquote

from txtopo.config import unusable_sign
from txtopo.errors import TopologyError
from txtopo.state.aggregates import Aggregate
from txtopo.state.backend import (
    BackendFactory,
    StateBackend,
    StateKind,
    StateMode,
    StateTable,
    TableOrigin,
)
from txtopo.state.frames import FrameFactory
from txtopo.state.plug_in import check_factory, loaded, opened
from txtopo.state.reader import StateReader
from txtopo.tuples import Fields

ENTRY_POINTS = "txtopo.state_backends"
KINDS = ("opaque", "transactional")
MODES = ("table", "log")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9_.-]*)(?:\+[A-Za-z0-9_.-]+)?:")
# The last @ ends the password: one that was not encoded may have any other character.
_PASSWORD = re.compile(
    r"((?<=//)[^:@/]*:).*(?=@)"
    # Somebody forgot the slashes.
    r"|(?<=:)((?!//)[^:@?]*:).*(?=@)"
    # Of the query: passwords of drivers, and the credentials of object stores.
    r"|((?<=[?&])[^=&]*(?:pass|pwd|secret|token|key|credential|signature|sas)[^=&]*=)[^&]*",
    re.I | re.S,
)
_DEFAULT_KEY = Fields("key string")
_DEFAULT_VALUE = Fields("value long")
# What register_backend was told. It belongs to the program, as installed entry points do, and not
# to a topology or a run.
_registered: dict[str, BackendFactory] = {}


@runtime_checkable
class AnchoredFactory(Protocol):
    """A factory whose stores live in this process, as long as a :class:`State` holds them."""

    def anchor(self, url: str) -> tuple[str, object]:
        """Return the URL that names the store for good, and what keeps it alive."""
        ...


@runtime_checkable
class NamingFactory(Protocol):
    """A factory whose states take more names in their store than that of their table."""

    def names_taken(self, url: str, table: StateTable) -> Mapping[str, str]:
        """Return the names that a state takes, and what each is of it, e.g. "the view".

        A name is as the store tells names apart. Two states of one store that share one clash.
        """
        ...


@dataclass(frozen=True, slots=True, repr=False)
class State:
    """A state as a topology declares it; made by :func:`open_state`. Nothing is opened yet.

    Attributes:
        url: Where the store is.
        kind: ``"opaque"`` or ``"transactional"``.
        table: Name of its table; None until the topology gives one.
        key: The key columns.
        value: The value columns.
        aggregates: How each value column combines; for ``PersistentAggregate``.
        mode: ``"table"`` or ``"log"``.
        origin: Where its table comes from: ``"made"``, ``"found"`` or ``"extended"``.
    """

    url: str
    kind: StateKind = "opaque"
    table: str | None = None
    key: Fields = _DEFAULT_KEY
    value: Fields = _DEFAULT_VALUE
    aggregates: tuple[Aggregate, ...] = ()
    mode: StateMode = "table"
    origin: TableOrigin = "made"
    _factory: BackendFactory | None = field(default=None, compare=False)
    _anchor: object = field(default=None, compare=False)

    @property
    def shared_by_processes(self) -> bool:
        """Whether other processes, such as Spark's, that open this state see the same one."""
        return bool(getattr(self._opener(), "shared_by_processes", True))

    def frames_refused(self) -> str | None:
        """Return why the backend takes no DataFrames, or None if it does. Opens nothing."""
        factory = self._opener()
        if not isinstance(factory, FrameFactory):
            return (
                f"{redacted_url(self.url)} is no store that Spark writes to; use a state in Delta "
                "('delta:///folder?writer=spark'), or a BatchBolt or PersistentAggregate as the "
                "committer"
            )
        return factory.frames_refused(self.url, self.layout("state"))

    def frame_factory(self) -> FrameFactory:
        """Return the factory of a state that takes frames, which knows what Spark needs for it."""
        factory = self._opener()
        assert isinstance(factory, FrameFactory)
        return factory

    @property
    def location(self) -> str:
        """Where the store is, in one spelling: states of one location are in one store.

        The driver's name is left out; a URL without a host names a file, whose path is resolved.
        """
        scheme, _, rest = self.url.partition(":")
        name = {"mariadb": "mysql"}.get(_scheme_name(scheme), _scheme_name(scheme))
        if not rest.startswith("///"):
            return f"{name}:{rest}"
        path, mark, query = rest[3:].partition("?")
        return f"{name}:///{os.path.realpath(path)}{mark}{query}"

    def names_taken(self, table: str | None = None) -> Mapping[str, str]:
        """Return the names that the state takes in its store, and what each is of it.

        Args:
            table: Stands in for a table name that is missing.
        """
        factory, layout = self._opener(), self.layout(table)
        if isinstance(factory, NamingFactory):
            return factory.names_taken(self.url, layout)
        return {layout.name: "the table"}

    def named(self, table: str) -> State:
        """Return this state with *table* as the name of its table, unless it has one."""
        return self if self.table is not None else replace(self, table=table)

    def with_columns(
        self, key: Fields, value: Fields, aggregates: tuple[Aggregate, ...] = ()
    ) -> State:
        """Return this state with these columns.

        Raises:
            TopologyError: The columns cannot make a table; rename the one that is named.
        """
        state = replace(self, key=key, value=value, aggregates=tuple(aggregates))
        state.layout("state")
        return state

    def layout(self, table: str | None = None) -> StateTable:
        """Return what the table looks like; *table* stands in for a name that is missing."""
        name = self.table if self.table is not None else table
        if name is None:
            raise TopologyError(
                f"{self!r} has no table; expected open_state(…, table='counts') or "
                ".with_state('counts', …)"
            )
        parts = (self.key, self.value, self.aggregates, self.mode, self.origin)
        return StateTable(name, self.kind, *parts)

    def open(self, table: str | None = None) -> StateBackend:
        """Open the backend; the caller closes it.

        Args:
            table: Stands in for a table name that is missing.
        """
        return self._opened(self.layout(table))

    def reader(self, txid: int | None = None) -> StateReader:
        """Return a reader of one snapshot, to be used in a ``with`` statement.

        Args:
            txid: Reads the state as it was after this txid, where the store keeps history (Delta,
                as far back as its ``history_txids``); without it, as it is now.

        It learns the columns from the store where the store knows them, so it reads every state,
        also those that a ``PersistentAggregate`` made. The table may be left out when the store
        holds one state.
        """
        return StateReader(self.table, self.layout("state"), self._opened, txid)

    def _opened(self, table: StateTable) -> StateBackend:
        return opened(self._opener(), self.url, table, redacted_url(self.url))

    def _opener(self) -> BackendFactory:
        return self._factory or _find_factory(self.url)

    def __repr__(self) -> str:
        return f"State({redacted_url(self.url)!r}, {self.kind}, table={self.table!r})"

    def __getstate__(self) -> dict[str, Any]:
        names = ("url", "kind", "table", "key", "value", "aggregates", "mode", "origin", "_factory")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, parts: Mapping[str, Any]) -> None:
        for name, part in {**parts, "_anchor": None}.items():
            object.__setattr__(self, name, part)


def open_state(
    url: str,
    kind: StateKind = "opaque",
    table: str | None = None,
    key: Fields = _DEFAULT_KEY,
    value: Fields = _DEFAULT_VALUE,
    mode: StateMode = "table",
    *,
    create: bool = True,
    add_columns: bool = False,
) -> State:
    """Name a state in a store: ``sqlite:///counts.db``, ``postgresql://…``, ``memory:``.

    Delivery: exactly once with every backend. ``"opaque"`` is right with every spout;
    ``"transactional"`` keeps one value less a row, and a topology with an opaque spout refuses it.

    Args:
        url: Where the store is.
        kind: ``"opaque"`` or ``"transactional"``.
        table: Name of its table; ``with_state`` gives one when it is left out.
        key: The key columns.
        value: The value columns.
        mode: ``"log"`` appends the partial aggregates of each txid instead of updating a row for
            each key, and folds them later. It is for a ``PersistentAggregate`` whose aggregates
            combine in SQL, in stores where updating is dear; readers combine the rows.
        create: False: *table* is your own and has the columns for bookkeeping (an error lists
            those that it lacks). Its rows were there before the first txid: batches change them,
            an undo takes them back to what they were. Its other columns are left alone.
        add_columns: The same, and the columns for bookkeeping are added to it.

    Raises:
        TopologyError: The URL, its scheme, the kind or the mode is unknown; the message
            lists those known.

    Example:
        >>> open_state("memory:", table="counts").kind
        'opaque'
    """
    if kind not in KINDS:
        raise TopologyError(f"unknown kind of state; got {kind!r}; expected {' or '.join(KINDS)}")
    if mode not in MODES:
        raise TopologyError(f"unknown mode of state; got {mode!r}; expected {' or '.join(MODES)}")
    factory = _find_factory(url)
    anchor: object = None
    if isinstance(factory, AnchoredFactory):
        url, anchor = factory.anchor(url)
    origin: TableOrigin = "extended" if add_columns else "made" if create else "found"
    state = State(url, kind, table, key, value, (), mode, origin, factory, anchor)
    state.layout("state")
    return state


def register_backend(scheme: str, factory: BackendFactory) -> None:
    """Make a state backend known in this process, under a URL scheme.

    An installed plug-in needs no call: it declares an entry point in ``txtopo.state_backends``.

    Args:
        scheme: What stands before the colon of its URLs.
        factory: ``(url, table) -> StateBackend``. It travels to Spark tasks with each state, so it
            is a class or function of a module, or one that cloudpickle can carry.
    """
    if not _SCHEME.fullmatch(f"{scheme}:") or "+" in scheme:
        raise TopologyError(f"bad URL scheme; got {scheme!r}; expected letters, digits, '-', '_'")
    check_factory(scheme, factory)
    _registered[scheme.lower()] = factory


def redacted_url(url: str) -> str:
    """Return the URL without its password, nor what its query has of credentials."""
    return _PASSWORD.sub(lambda found: f"{found[1] or found[2] or found[3]}***", url)


def _find_factory(url: str) -> BackendFactory:
    match = _SCHEME.match(url) if isinstance(url, str) else None
    if match is None:
        raise TopologyError(
            f"cannot read the URL of a state; got {redacted_url(str(url))!r}; "
            "expected e.g. 'sqlite:///counts.db'"
        )
    if unusable_sign(unquote(url)) is not None:
        raise TopologyError(
            f"no store can be opened by this URL; got {redacted_url(url)!r}; expected one with "
            "neither NUL nor half of a sign (a surrogate) in it"
        )
    scheme = _scheme_name(match.group(1))
    return _registered[scheme] if scheme in _registered else _installed(scheme)


@cache
def _installed(scheme: str) -> BackendFactory:
    """Return what an installed plug-in declares.

    That reads the metadata of every distribution (9 ms), so it is kept; a plug-in that is missing
    is looked for again the next time, since it may have been installed meanwhile.
    """
    points: dict[str, EntryPoint] = {p.name: p for p in entry_points(group=ENTRY_POINTS)}
    if scheme not in points:
        known = ", ".join(sorted({*points, *_registered})) or "none"
        raise TopologyError(
            f"no state backend for {scheme!r}; known are {known}; "
            "install the plug-in that brings it, or call register_backend",
            scheme=scheme,
        )
    return loaded(points[scheme])


def _scheme_name(scheme: str) -> str:
    """Return what a backend is found by: the scheme in lower case without its driver."""
    name = scheme.partition("+")[0].lower()
    return {"postgres": "postgresql"}.get(name, name)
