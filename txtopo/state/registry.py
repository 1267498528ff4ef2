"""open_state: declares a state; and how the plug-in of its URL scheme is found and opened.

A distribution declares a plug-in in the entry point group ``txtopo.state_backends``, or a program
calls :func:`register_backend`. Only the part of the scheme before ``+`` counts, so
``postgresql+psycopg`` finds ``postgresql``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable
from urllib.parse import unquote

from txtopo.errors import StoreUnavailable, TopologyError, TxtopoError, similar
from txtopo.instead import Instead
from txtopo.notebook import html_of
from txtopo.servers import ConnectingFactory, Server
from txtopo.setting_checks import unusable_character
from txtopo.state.aggregates import Aggregate
from txtopo.state.backend import (
    BackendFactory,
    StateBackend,
    StateKind,
    StateMode,
    StateTable,
    TableOrigin,
)
from txtopo.state.columns import Columns
from txtopo.state.reader import StateReader
from txtopo.tuples import Fields

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS = "txtopo.state_backends"
KINDS = ("opaque", "transactional")
MODES = ("table", "log")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9_.-]*)(?:\+[A-Za-z0-9_.-]+)?:")
# The last @ ends the password: one that was not encoded may have any other character.
_PASSWORD = re.compile(
    r"((?<=//)[^:@/]*:).*(?=@)"
    # The slashes were forgotten.
    r"|(?<=:)((?!//)[^:@?]*:).*(?=@)"
    # In the query: passwords of drivers, and the credentials of object stores.
    r"|((?<=[?&])[^=&]*(?:pass|pwd|secret|token|key|credential|signature|sas)[^=&]*=)[^&]*",
    re.I | re.S,
)
_DEFAULT_KEY = Fields("key string")
_DEFAULT_VALUE = Fields("value long")
# The plug-ins of register_backend. Like installed entry points they belong to the program, not to a
# topology or a run.
_registered: dict[str, BackendFactory] = {}


@runtime_checkable
class AnchoredFactory(Protocol):
    """A factory that rewrites the URL of a state when it is declared; optional.

    A URL may depend on this process: a relative path, or a store in memory.
    """

    def anchor(self, url: str) -> tuple[str, object]:
        """Return a URL that names the same store in any process, and an object for :class:`State`.

        The state keeps the object. A store in memory lives as long as it. Return None if nothing
        has to be kept.
        """
        ...


@runtime_checkable
class SharingFactory(Protocol):
    """A factory that says whether processes share its stores; optional, by default they do.

    Attributes:
        shared_by_processes: Whether other processes that open the same URL see the same state.
    """

    shared_by_processes: bool


@runtime_checkable
class NamingFactory(Protocol):
    """A factory whose states use more names in their store than that of their table; optional."""

    def names_taken(self, url: str, table: StateTable) -> Mapping[str, str]:
        """Return the names that a state uses, each with its use, e.g. "the view".

        Names that the store does not distinguish are returned in one spelling. Two states of one
        store that use the same name clash.
        """
        ...


@runtime_checkable
class SessionFactory(Protocol):
    """A factory whose states Spark may write; optional."""

    def session_conf_of(self, url: str) -> Mapping[str, str]:
        """Return the settings that a session needs for the state of a URL; none if it needs none.

        Raises:
            ConfigError: They cannot be made; the message says what is missing.
        """
        ...


@runtime_checkable
class CheckingFactory(Protocol):
    """A factory that refuses a state when the topology is built; optional.

    Without it, a state that its store cannot keep is refused when it is opened.
    """

    def check(self, url: str, table: StateTable) -> None:
        """Check that the store can keep a state, without connecting to it.

        Raises:
            TopologyError: It cannot; the message says what to do.
        """
        ...


@runtime_checkable
class ClientFactory(Protocol):
    """A factory that names the modules which its states import; optional.

    A start imports them before Spark starts. Without this method, a module that is missing shows
    when the first state is opened.
    """

    def client_modules_of(self, url: str, table: StateTable) -> Sequence[str]:
        """Return the modules that a state imports, such as ``psycopg``. It imports none."""
        ...


# Who writes to a state, and how it is read.
_WRITTEN = (
    "it in a committer: persistent_aggregate or store of a stream, or StateTransaction.{name}"
)
_READ = "with state.reader() as reader: reader.{name}"


@dataclass(frozen=True, slots=True, repr=False)
class State(Instead):
    """A state as a topology declares it. :func:`open_state` makes it; it connects to nothing.

    Attributes:
        url: Where the store is.
        kind: ``"opaque"`` or ``"transactional"``.
        table: Name of its table; None until the topology gives one.
        key: The key columns.
        value: The value columns; none for a state that keeps keys alone.
        aggregates: The aggregate of each value column, if a ``PersistentAggregate`` writes it.
        mode: ``"table"`` or ``"log"``.
        origin: Whether the backend makes the table (``"made"``), a user made it (``"found"``), or a
            user made it and the backend adds columns (``"extended"``).
        range_by: The column by which committers read ranges and rows expire; None for none.
        defaults: By name of a value column that is added: what existing rows get in it.
        prunable: Whether a user may delete rows.
        after_topology: Whether the table is named after the topology, so that it has another name
            under another id: ``<topology>_<state>``.
    """

    url: str
    kind: StateKind = "opaque"
    table: str | None = None
    key: Fields = _DEFAULT_KEY
    value: Fields = _DEFAULT_VALUE
    aggregates: tuple[Aggregate, ...] = ()
    mode: StateMode = "table"
    origin: TableOrigin = "made"
    range_by: str | None = None
    defaults: tuple[tuple[str, Any], ...] = field(default=(), compare=False)
    prunable: bool = field(default=False, compare=False)
    after_topology: bool = field(default=False, compare=False)
    _instead: ClassVar = {
        "put": _WRITTEN.format(name="put"),
        "update": _WRITTEN.format(name="update"),
        "delete": _WRITTEN.format(name="delete"),
        "get": _READ.format(name="get(key)"),
        "items": _READ.format(name="items()"),
        "to_pandas": _READ.format(name="to_pandas()"),
    }
    _factory: BackendFactory | None = field(default=None, compare=False)
    _anchor: object = field(default=None, compare=False)
    # The URL as the user wrote it, for messages.
    _written: str | None = field(default=None, compare=False)

    @property
    def factory(self) -> BackendFactory:
        """The factory that opens the store; finding it connects to nothing."""
        return self._factory or _find_factory(self.url)

    @property
    def shared_by_processes(self) -> bool:
        """Whether other processes, such as Spark's, that open this state see the same one."""
        factory = self.factory
        return factory.shared_by_processes if isinstance(factory, SharingFactory) else True

    @property
    def location(self) -> str:
        """The URL of the store in one spelling; states with equal locations are in one store.

        Its scheme names no client library such as ``+psycopg``, and has ``mysql`` for ``mariadb``.
        A URL without a host names a file, whose path is resolved.
        """
        scheme, _, rest = self.url.partition(":")
        name = {"mariadb": "mysql"}.get(_scheme_name(scheme), _scheme_name(scheme))
        if not rest.startswith("///"):
            return f"{name}:{rest}"
        path, mark, query = rest[3:].partition("?")
        return f"{name}:///{os.path.realpath(path)}{mark}{query}"

    def names_taken(self, table: str | None = None) -> Mapping[str, str]:
        """Return the names that the state uses in its store, each with its use.

        Args:
            table: The table name, if the state has none.
        """
        factory, layout = self.factory, self.layout(table)
        if isinstance(factory, NamingFactory):
            return factory.names_taken(self.url, layout)
        return {layout.name: "the table"}

    def session_conf(self) -> Mapping[str, str]:
        """Return the settings of a session that the state needs; for most stores none.

        Raises:
            ConfigError: They cannot be made; the message says what is missing.
        """
        factory = self.factory
        return factory.session_conf_of(self.url) if isinstance(factory, SessionFactory) else {}

    @property
    def connects_to(self) -> Sequence[Server]:
        """The servers of the store; none for files and memory, or if its factory names none."""
        factory = self.factory
        return factory.servers_of(self.url) if isinstance(factory, ConnectingFactory) else ()

    def client_modules(self, table: str | None = None) -> Sequence[str]:
        """Return the modules that the store imports, as far as its factory names them.

        Args:
            table: The table name, if the state has none.
        """
        factory = self.factory
        if not isinstance(factory, ClientFactory):
            return ()
        return factory.client_modules_of(self.url, self.layout(table))

    def check(self, table: str | None = None) -> None:
        """Check that the store can keep the state, as far as that is possible without connecting.

        Args:
            table: The table name, if the state has none.

        Raises:
            TopologyError: It cannot; repair the declaration, or use another store.
        """
        factory, layout = self.factory, self.layout(table)
        if isinstance(factory, CheckingFactory):
            factory.check(self.url, layout)

    def named(self, table: str) -> State:
        """Return this state with *table* as the name of its table, unless it has one."""
        return self if self.table is not None else replace(self, table=table)

    def beside(self, table: str) -> State:
        """Return an opaque state of the same store with another table, which its backend makes."""
        return replace(
            self,
            table=table,
            kind="opaque",
            aggregates=(),
            mode="table",
            origin="made",
            range_by=None,
            defaults=(),
            after_topology=False,
        )

    def at(self, url: str) -> State:
        """Return this state in the store of another URL.

        Raises:
            TopologyError: Unknown URL or scheme; the message lists known ones.
        """
        factory = _find_factory(url)
        anchor, written = None, url
        if isinstance(factory, AnchoredFactory):
            url, anchor = factory.anchor(url)
        return replace(self, url=url, _factory=factory, _anchor=anchor, _written=written)

    def with_columns(
        self, key: Fields, value: Fields, aggregates: tuple[Aggregate, ...] = ()
    ) -> State:
        """Return this state with these columns.

        Raises:
            TopologyError: A column cannot be in a table; rename it.
        """
        state = replace(self, key=key, value=value, aggregates=tuple(aggregates))
        if self.defaults:
            _check_defaults(dict(self.defaults), value)
        state.layout(self.shown_url)
        return state

    def ranged(self, column: str) -> State:
        """Return this state, to be read by ranges of one of its key or value columns.

        Raises:
            TopologyError: The state has no such column, or it is not a timestamp or whole number.
        """
        state = replace(self, range_by=column)
        state.layout(self.shown_url)
        return state

    def layout(self, table: str | None = None) -> StateTable:
        """Return the schema of the table; *table* is its name if the state has none."""
        name = self.table if self.table is not None else table
        if name is None:
            raise TopologyError(
                f"{self!r} has no table; expected open_state(…, table='counts') or "
                ".with_state('counts', …)",
                setting="table",
                got=repr(self),
            )
        parts = (self.key, self.value, self.aggregates, self.mode, self.origin, self.range_by)
        return StateTable(name, self.kind, *parts, self._defaults(name), self.prunable)

    def _defaults(self, table: str) -> tuple[tuple[str, Any], ...]:
        """Return the defaults as exact values; an aggregate's default is its value for no rows."""
        if self.aggregates:
            pairs = zip(self.value.names, self.aggregates, strict=False)
            return tuple((name, aggregate.initial) for name, aggregate in pairs)
        exact = []
        for name, value in self.defaults:
            fields = Fields.of([one for one in self.value if one.name == name])
            if not fields:  # until an operator sets the columns
                continue
            exact.append((name, Columns(table, "value", fields).exact([value])[0]))
        return tuple(exact)

    def open(self, table: str | None = None) -> StateBackend:
        """Open the backend; the caller closes it.

        Args:
            table: The table name, if the state has none.
        """
        return self._open_table(self.layout(table))

    def reader(self, txid: int | None = None) -> StateReader:
        """Return a reader of one snapshot, to be used in a ``with`` statement.

        Args:
            txid: Reads the state as it was after this txid. The store must keep history (Delta
                does, as far back as its ``history_txids``), and the txid must not be within a group
                that was committed together. By default reads the state as it is now.

        The reader uses the columns that the store has recorded, if it records them. So it reads
        every state, including one that a ``PersistentAggregate`` made. The table name may be
        omitted if the store holds a single state.
        """
        return StateReader(self.table, self.layout("state"), self._open_table, txid)

    @property
    def shown_url(self) -> str:
        """The URL as the user wrote it, without passwords."""
        return redacted_url(self._written or self.url)

    def _open_table(self, table: StateTable) -> StateBackend:
        return _opened(self.factory, self.url, table, redacted_url(self.url))

    def _repr_html_(self) -> str:
        return html_of(self)

    def __repr__(self) -> str:
        return f"State({self.shown_url!r}, {self.kind}, table={self.table!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Not __getstate__: up to Python 3.11.2 a frozen dataclass with slots has one of its own.
        shown = ("url", "kind", "table", "key", "value", "aggregates", "mode", "origin", "range_by")
        parts = (*shown, "defaults", "prunable", "after_topology", "_factory", "_written")
        return _unpickled, ({name: getattr(self, name) for name in parts},)


def _unpickled(parts: Mapping[str, Any]) -> State:
    return State(**parts)


def checked_state(owner: str, state: object) -> State:
    """Return the state that a bolt was given.

    Args:
        owner: The class of the bolt, for the message.
        state: What was given.

    Raises:
        TopologyError: It is not a state.
    """
    if isinstance(state, State):
        return state
    got = f"{redacted_url(repr(state)):.200}"
    raise TopologyError(
        f"the state of {owner} is of the wrong type; got {got}; expected what open_state(url) "
        "returns",
        setting="state",
        got=got,
    )


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
    defaults: Mapping[str, Any] | None = None,
) -> State:
    """Declare a state in a store: ``sqlite:///counts.db``, ``postgresql://…``, ``memory:``.

    Delivery: exactly once with every backend. ``"opaque"`` works with every spout.
    ``"transactional"`` stores one value less in each row, but does not work with an opaque spout.

    Args:
        url: Where the store is.
        kind: ``"opaque"`` or ``"transactional"``.
        table: Name of its table; if omitted, ``with_state`` supplies it.
        key: The key columns.
        value: The value columns. With ``Fields()`` the state keeps keys alone, and the value of
            each is True: ``transaction.put(key, True)``, ``transaction.get(key, False)``.
        mode: ``"log"`` appends the partial aggregates of each txid instead of updating a row for
            each key, and folds them later; readers combine the rows. Use it for a
            ``PersistentAggregate`` that combines in SQL, where updates are expensive.
        create: If False, *table* is your own and has the bookkeeping columns (an error lists the
            missing ones). Batches change its rows. An undo restores them, even to their values
            before the first txid. Its other columns are not touched.
        add_columns: If True, *table* is your own and the bookkeeping columns are added to it.
        defaults: What rows get in value columns that are added later: ``docs/how-to/evolution.md``.

    Raises:
        TopologyError: Unknown URL, scheme, kind, mode or default; the message lists known ones.

    Example:
        >>> open_state("memory:", table="counts").kind
        'opaque'
    """
    _check_declaration(kind, mode, table)
    for part, fields in (("key", key), ("value", value)):
        if isinstance(fields, Fields) and fields.required:
            raise TopologyError(
                f"{part} column {fields.required[0]!r} of a state is required, which only fields "
                "of spouts and bolts are; leave out its !",
                setting=part,
                got=repr(fields),
            )
    # An operator that sets the columns checks their defaults then.
    given = _check_defaults(defaults, None if value is _DEFAULT_VALUE else value)
    origin: TableOrigin = "extended" if add_columns else "made" if create else "found"
    parts = (key, value, (), mode, origin, None, given, False)
    state = State(url, kind, table, *parts).at(url)
    state.layout(redacted_url(url))  # only a topology gives it a name
    return state


def _check_declaration(kind: object, mode: object, table: object) -> None:
    if kind not in KINDS:
        raise TopologyError(
            f"unknown kind of state; got {kind!r}; expected {' or '.join(KINDS)}",
            setting="kind",
            got=repr(kind),
            expected=KINDS,
        )
    if mode not in MODES:
        raise TopologyError(
            f"unknown mode of state; got {mode!r}; expected {' or '.join(MODES)}",
            setting="mode",
            got=repr(mode),
            expected=MODES,
        )
    if table is not None and not isinstance(table, str):
        raise TopologyError(
            f"the table of a state is of the wrong type; got {table!r}; expected its name, a "
            "string",
            setting="table",
            got=repr(table),
        )


def _check_defaults(given: object, value: Fields | None) -> tuple[tuple[str, Any], ...]:
    """Return defaults as pairs, after a check that each fits its column, if these are known."""
    defaults: object = {} if given is None else given
    if not isinstance(defaults, Mapping):
        raise TopologyError(
            f"defaults are of the wrong type; got {given!r:.200}; expected a dict of values by "
            "column, such as defaults={'refunds': 0}",
            setting="defaults",
            got=f"{given!r:.200}",
        )
    if value is None:
        return tuple(defaults.items())
    for name, default in defaults.items():
        fields = [one for one in value if one.name == name]
        if not fields:
            raise TopologyError(
                f"a default does not name a value column; got {name!r}; expected one of "
                f"{', '.join(value.names)}; the columns of a PersistentAggregate need no default",
                column=str(name),
                expected=value.names,
            )
        try:
            Columns("state", "value", Fields.of(fields)).exact([default])
        except TxtopoError as error:
            raise TopologyError(
                f"the default of column {name!r} does not fit it; got {default!r:.200}; expected a "
                f"{fields[0].type}: {error}",
                column=name,
                got=f"{default!r:.200}",
                expected=fields[0].type,
            ) from error
    return tuple(defaults.items())


def register_backend(scheme: str, factory: BackendFactory) -> None:
    """Register a state backend in this process, under a URL scheme.

    An installed plug-in needs no call: it declares an entry point in ``txtopo.state_backends``.

    Args:
        scheme: The part of its URLs before the colon.
        factory: ``(url, table) -> StateBackend``. It travels to Spark tasks with each state, so it
            is a class or function of a module, or one that cloudpickle can carry.
    """
    if not _SCHEME.fullmatch(f"{scheme}:") or "+" in scheme:
        raise TopologyError(
            f"bad URL scheme; got {scheme!r}; expected letters, digits, '-', '_'",
            scheme=str(scheme),
        )
    _check_factory(scheme, factory)
    _registered[scheme.lower()] = factory


def redacted_url(url: str) -> str:
    """Return the URL with ``***`` in place of its password and the credentials in its query."""
    return _PASSWORD.sub(lambda found: f"{found[1] or found[2] or found[3]}***", url)


def _find_factory(url: str) -> BackendFactory:
    named = isinstance(url, str) and not _WINDOWS_PATH.match(url)
    match = _SCHEME.match(url) if named else None
    if match is None:
        raise TopologyError(
            f"cannot read the URL of a state; got {redacted_url(str(url))!r}; {_url_hint(url)}",
            path=redacted_url(str(url)),
        )
    if unusable_character(unquote(url)) is not None:
        raise TopologyError(
            f"no store can be opened with this URL; got {redacted_url(url)!r}; expected one "
            "without NUL and without half of a character (a surrogate)",
            path=redacted_url(url),
        )
    scheme = _scheme_name(match.group(1))
    return _registered[scheme] if scheme in _registered else _installed(scheme)


@cache
def _installed(scheme: str) -> BackendFactory:
    """Return the factory of an installed plug-in.

    This reads the metadata of every distribution (9 ms), so the result is cached. A missing plug-in
    is searched again next time, since it may have been installed meanwhile.
    """
    # It imports email, socket and zipfile, which "import txtopo" does not need.
    from importlib.metadata import entry_points

    points: dict[str, EntryPoint] = {p.name.lower(): p for p in entry_points(group=ENTRY_POINTS)}
    if scheme not in points:
        known = sorted({*points, *_registered})
        raise TopologyError(
            f"no state backend for {scheme!r}; {_scheme_hint(scheme, known)}",
            scheme=scheme,
        )
    return _loaded(points[scheme])


_EXTRAS = (
    "postgresql needs pip install 'txtopo[postgres]', mariadb and mysql 'txtopo[mysql]', redis "
    "'txtopo[redis]', delta and object stores 'txtopo[delta]'"
)
# What people write instead of a scheme, and what to write. None: a different system, although its
# name resembles a known scheme.
_MEANT: dict[str, str | None] = {
    "pg": "did you mean 'postgresql'?",
    "pgsql": "did you mean 'postgresql'?",
    "psql": "did you mean 'postgresql'?",
    "jdbc": "write the URL without 'jdbc:', as in 'postgresql://user:password@host/database'",
    "file": "write 'sqlite:///path' for a database in a file, 'delta:///path' for a folder",
    "mssql": None,
    "dbfs": None,
}
_WINDOWS_PATH = re.compile(r"[A-Za-z]:[\\/]")


def _scheme_hint(scheme: str, known: Sequence[str]) -> str:
    hint = _MEANT[scheme] if scheme in _MEANT else similar(scheme, known)
    return hint or (
        f"known are {', '.join(known) or 'none'}; {_EXTRAS}; install the plug-in that provides it, "
        "or call register_backend"
    )


def _url_hint(url: object) -> str:
    """Return a hint for a URL without a scheme: how to write it."""
    if not isinstance(url, str | os.PathLike):
        return "expected e.g. 'sqlite:///counts.db'"
    path = os.fspath(url)
    if not isinstance(path, str) or not path or path.strip() != path or "://" in path:
        return "expected e.g. 'sqlite:///counts.db', without spaces around it or in its scheme"
    if path == "memory":
        return "write 'memory:'"
    plain = redacted_url(path.replace("\\", "/"))
    return (
        f"a path is not a URL; write {f'sqlite:///{plain}'!r} for a database in this file, or "
        f"{f'delta:{plain}'!r} for Delta tables in this folder"
    )


def _scheme_name(scheme: str) -> str:
    """Return the name that finds a backend: the scheme in lower case, without its driver."""
    name = scheme.partition("+")[0].lower()
    return {"postgres": "postgresql"}.get(name, name)


def _loaded(point: EntryPoint) -> BackendFactory:
    """Return the factory that an installed distribution declares.

    Raises:
        TopologyError: It cannot be imported, or is not a factory; repair the distribution.
    """
    try:
        factory: BackendFactory = point.load()
    except Exception as error:
        raise TopologyError(
            f"the state plug-in {point.name!r} cannot be loaded from {point.value!r}; got "
            f"{type(error).__name__}: {error}; install its distribution again, or repair it",
            scheme=point.name,
        ) from error
    _check_factory(point.name, factory)
    return factory


def _check_factory(scheme: str, factory: object) -> None:
    """Check that a factory can be called; raise ``TopologyError`` if not."""
    if not callable(factory):
        raise TopologyError(
            f"the state plug-in {scheme!r} is not a factory; got {factory!r:.100}; expected a "
            "class or function: (url, table) -> StateBackend",
            scheme=scheme,
        )


def _opened(factory: BackendFactory, url: str, table: StateTable, shown: str) -> StateBackend:
    """Open a backend.

    Args:
        factory: The factory of the plug-in.
        url: The URL of the store.
        table: The schema of the state.
        shown: The URL without its password, for messages.

    Raises:
        TopologyError: The plug-in raised or returned no backend; repair it.
        StoreUnavailable: The plug-in could not connect; try again.
    """
    try:
        backend: object = factory(url, table)
    except TxtopoError:
        raise
    except Exception as error:  # noqa: BLE001 - raised again as an error of txtopo
        text = f"{type(error).__name__}: {str(error).replace(url, shown)}"
        # If the error repeats the URL, its traceback would show the password.
        cause = None if url in str(error) else error
        if isinstance(error, ConnectionError | TimeoutError):
            raise StoreUnavailable(
                f"cannot open state {table.name!r} in {shown}: {text}; nothing was written",
                state=table.name,
                path=shown,
            ) from cause
        raise TopologyError(
            f"the plug-in of state {table.name!r} in {shown} cannot be opened; got {text}; "
            "expected a StateBackend; check what creates it",
            state=table.name,
        ) from cause
    if not isinstance(backend, StateBackend):
        raise TopologyError(
            f"the plug-in of state {table.name!r} in {shown} did not return a backend; got "
            f"{type(backend).__name__}; expected an object derived from StateBackend; "
            f"{_lacking(backend)}",
            state=table.name,
        )
    if table.mode not in backend.modes:
        raise TopologyError(
            f"{shown} cannot keep a state in mode {table.mode!r}, as state {table.name!r} "
            f"declares; expected mode={' or '.join(repr(mode) for mode in sorted(backend.modes))}",
            state=table.name,
        )
    if table.origin != "made" and not backend.existing_tables:
        raise TopologyError(
            f"{shown} cannot keep a state in your own table; got create=False or add_columns=True "
            f"for state {table.name!r}; expected create=True; only SQL databases support that",
            state=table.name,
        )
    return backend


def _lacking(backend: object) -> str:
    names = sorted(StateBackend.__abstractmethods__)
    lacks = [name for name in names if not callable(getattr(backend, name, None))]
    if lacks:
        return f"it lacks {', '.join(lacks)}"
    return "it has the methods but is not derived from it"
