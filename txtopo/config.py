"""Config and AtLeastOnceConfig: the settings of a run, frozen and checked when they are made.

A transactional topology takes a :class:`Config`, an at-least-once topology an
:class:`AtLeastOnceConfig`. Each has only the settings that its kind of topology uses. Settings that
belong together are a record: :class:`ZooKeeper`, :class:`Page` and :class:`~txtopo.pacing.Pace`.
In files, variables and errors a setting of a record has a dotted name, such as ``zookeeper.hosts``.
Units are in the names.
"""

from __future__ import annotations

import ipaddress
import math
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar, get_type_hints

from txtopo.config_sources import Known, Setting, check_known, find_settings, located
from txtopo.errors import ConfigError
from txtopo.pacing import Pace
from txtopo.setting_checks import (
    Settings,
    check_positive_number,
    check_text,
    check_type,
    check_whole_number,
)

Carrier = Literal["auto", "local", "rdd", "dataframe", "resident"]
CARRIERS = ("auto", "local", "rdd", "dataframe", "resident")
SlotCarrier = Literal["auto", "local", "resident"]
SLOT_CARRIERS = ("auto", "local", "resident")
StreamCarrier = Literal["auto", "local", "dataframe"]
STREAM_CARRIERS = ("auto", "local", "dataframe")

JOBS = 2
"""The most runs of batches, each one Spark job, that are processed at the same time: one computes
while the results of the other are fetched and committed. A third run gathers its batches."""

LONGEST_BACKOFF = 100
"""The longest pause after failures, in multiples of the first one."""

PAGE_TOKEN_CHARACTERS_MIN = 16

PROGRESS_FILE = "file:txtopo-progress.db"
"""Where the carrier ``local`` keeps the progress of topologies by default."""

_FOLDER = "./txtopo-zookeeper"

# Between the slashes and the last @, as plug-ins may have them in their URLs.
_CREDENTIALS = re.compile(r"(?<=://).*@", re.S)


@dataclass(frozen=True, slots=True, repr=False)
class ZooKeeper(Settings):
    """Where to find the ensemble that keeps the progress of topologies, and how to connect.

    Attributes:
        hosts: ``"embedded"`` (the server inside PySpark's jars, in the driver's JVM),
            ``"host:port,host:port/chroot"``, ``"file:progress.db"`` (an SQLite file on this
            machine) or ``"memory"`` (nothing survives the process). ``"scheme://…"`` names the
            ensemble of a plug-in (:mod:`txtopo.plugins.ensembles`). ``"auto"`` is
            ``"file:txtopo-progress.db"`` for the carrier ``local``, unless ``dir`` is given, and
            ``"embedded"`` for all others.
        dir: Directory of the embedded server.
        auth: ``"user:password"``; nodes are then readable by that user only. A mapping is a SASL
            login: kazoo's ``sasl_options``.
        tls: kazoo's TLS arguments (``use_ssl``, ``ca``, ``certfile``, ``keyfile`` …).
        session_timeout_s: How long a session lasts without a heartbeat. A leader that is silent for
            longer is deposed.
        connect_timeout_s: How long to try the first connection.
    """

    holder: ClassVar[str] = "zookeeper"
    hosts: str = "auto"
    dir: str = _FOLDER
    auth: str | Mapping[str, str] | None = field(default=None, repr=False)
    tls: Mapping[str, str | bool] | None = field(default=None, repr=False)
    session_timeout_s: float = 6.0
    connect_timeout_s: float = 15.0

    def __post_init__(self) -> None:
        check_type("zookeeper.hosts", self.hosts, str, "a string")
        check_type("zookeeper.dir", self.dir, str | os.PathLike, "a path")
        expected = "'user:password', a mapping or None"
        check_type("zookeeper.auth", self.auth, str | Mapping | None, expected)
        check_type("zookeeper.tls", self.tls, Mapping | None, "a mapping or None")
        check_text("zookeeper.hosts", self.hosts)
        check_text("zookeeper.dir", str(self.dir))
        if isinstance(self.auth, str):
            check_text("zookeeper.auth", self.auth)
        if not self.hosts:
            raise ConfigError(
                "zookeeper.hosts is empty; expected 'embedded', 'memory', 'file:progress.db' or "
                "'host:port,…/chroot'",
                setting="zookeeper.hosts",
            )
        check_positive_number("zookeeper.session_timeout_s", self.session_timeout_s)
        check_positive_number("zookeeper.connect_timeout_s", self.connect_timeout_s)

    def chosen(self, carrier: str) -> Self:
        """Return the settings with the ensemble that ``"auto"`` means for a carrier."""
        if self.hosts != "auto":
            return self
        in_file = carrier == "local" and self.dir == _FOLDER
        return replace(self, hosts=PROGRESS_FILE if in_file else "embedded")

    def __repr__(self) -> str:
        """Return the settings without credentials; the URL of an ensemble may have some, too."""
        shown = {each.name: getattr(self, each.name) for each in fields(self) if each.repr}
        shown["hosts"] = self.shown_hosts
        return f"ZooKeeper({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @property
    def shown_hosts(self) -> str:
        """The hosts, with ``***`` in place of credentials."""
        return _CREDENTIALS.sub("***@", self.hosts)

    @property
    def place(self) -> str:
        """The directory of an embedded ensemble, else the hosts, without credentials."""
        return str(self.dir) if self.hosts == "embedded" else self.shown_hosts


@dataclass(frozen=True, slots=True)
class Page(Settings):
    """Where a run serves its page, and who may see it. It needs the extra ``ui``.

    Attributes:
        port: The port; 0 picks a free one. ``run.page_url`` is the address.
        host: The address at which the page is served.
        token: Anyone who has it may view the page and send commands; at least 16 characters.
            Without it, anyone on this machine may view the page, and nobody can send commands from
            it. Required unless the address is a loopback one.
    """

    holder: ClassVar[str] = "page"
    port: int = 0
    host: str = "127.0.0.1"
    token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_whole_number("page.port", self.port, at_least=0, more="; 0 takes a free port")
        if self.port > 65535:
            raise ConfigError(
                f"page.port is not a port; got {self.port}; expected 0 to 65535",
                setting="page.port",
            )
        host, token = self.host, self.token
        check_type("page.host", host, str, "a string")
        check_type("page.token", token, str | None, "a string or None")
        check_text("page.host", host)
        if not host or any(character.isspace() or character == "/" for character in host):
            raise ConfigError(
                f"page.host is not a host; got {host!r}; expected a name or an address, such as "
                "'127.0.0.1', or '0.0.0.0' for all interfaces",
                setting="page.host",
            )
        if token is None:
            if not is_loopback(host):
                raise ConfigError(
                    f"the page would be readable by anyone who can reach {host}; got "
                    f"page.host={host!r} without page.token; expected page.token with at least "
                    f"{PAGE_TOKEN_CHARACTERS_MIN} characters, or page.host='127.0.0.1'",
                    setting="page.token",
                )
        elif len(token) < PAGE_TOKEN_CHARACTERS_MIN or not all(
            "!" <= each <= "~" for each in token
        ):
            raise ConfigError(
                f"page.token cannot be used; got {len(token)} characters; expected at least "
                f"{PAGE_TOKEN_CHARACTERS_MIN}, printable ASCII without spaces; make one with: "
                'python -c "import secrets; print(secrets.token_urlsafe())"',
                setting="page.token",
            )


def is_loopback(host: str) -> bool:
    """Return whether a host name or address can only be reached from this machine."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def growing_pause_s(failures: int, first_s: float, longest_s: float) -> float:
    """Return the pause after *failures* failures, from 1: doubled each time, up to the longest."""
    return min(longest_s, first_s * 2.0 ** min(failures - 1, 30))


class ChangeKind(StrEnum):
    """What a start may change in a topology that has run; see ``Config.allow_change``."""

    COMPONENTS = "components"
    """Spouts and bolts that are new, gone or of another kind; their inputs; what rows mean."""
    STATES = "states"
    """States that are new, gone or renamed, or that get another table."""
    COLUMNS = "columns"
    """The columns of a state in the same table, and their aggregates."""
    SOURCE = "source"
    """What a spout reads: the query of a query spout, the folders of a files spout."""


RECORDS: Mapping[str, type[ZooKeeper] | type[Pace] | type[Page]] = {
    each.holder: each for each in (ZooKeeper, Pace, Page)
}
"""The records of settings, by the setting that holds them."""

_Held = TypeVar("_Held")


class _TakesHosts(Protocol[_Held]):
    """For type checkers: a field that holds a record, and may be given hosts instead."""

    def __get__(self, config: object, kind: object) -> _Held: ...
    def __set__(self, config: object, value: _Held | str) -> None: ...


@dataclass(frozen=True, slots=True)
class _CommonConfig(Settings):
    """What the settings of both kinds of topologies have in common."""

    carrier: Carrier = "auto"
    slots: int | None = None
    max_spout_pending: int | None = None
    poll_interval_s: float = 0.05
    backoff_s: float = 0.1
    page: Page | None = None

    def __post_init__(self) -> None:
        if self.slots is not None:
            check_whole_number("slots", self.slots)
        for each in fields(self):
            if each.name.endswith("_s"):
                check_positive_number(each.name, getattr(self, each.name))
        check_type("page", self.page, Page | None, "a Page(…) or None")

    @classmethod
    def elsewhere(cls, name: str) -> str:
        """Return the hint that the other kind of topology has a setting; empty if it has not."""
        for kind in (Config, AtLeastOnceConfig):
            names = {*known_settings(kind), *(each.name for each in fields(kind))}
            if kind is not cls and name in names:
                return f"it is a setting of {kind.__name__}"
        return ""

    def shown(self) -> dict[str, Any]:
        """Return all settings by their names in files, with ``***`` in place of credentials."""
        shown: dict[str, Any] = {}
        for each in fields(self):
            value, record = getattr(self, each.name), RECORDS.get(each.name)
            if record is None:
                shown[each.name] = value
                continue
            for one in fields(record):
                inner = None if value is None else getattr(value, one.name)
                secret = not one.repr and inner is not None
                shown[record.called(one.name)] = "***" if secret else inner
            if isinstance(value, ZooKeeper):
                shown["zookeeper.hosts"] = value.shown_hosts
        return shown

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> Self:
        """Return the settings of code, the environment and a file; the first that gives one holds.

        Variables are ``TXTOPO_<SETTING>``, such as ``TXTOPO_SLOTS=4`` or ``TXTOPO_PAGE_PORT=0``; an
        empty one counts as not set. The file is TOML; records are tables there. Both are shared by
        all topologies: settings of the other kind of topology are left out. A record that code
        gives holds as a whole.

        Args:
            path: The file; by default the one that ``TXTOPO_CONFIG`` names, else ``txtopo.toml``
                in the current folder, if there is one.
            environment: The variables; by default those of this process.
            settings: As of the class itself.

        Raises:
            ConfigError: A setting or variable of our prefix is unknown, a value is wrong (the
                message says where it came from), or the file cannot be read.

        Example:
            >>> Config.load(environment={"TXTOPO_SLOTS": "4"}).slots
            4
        """
        own = known_settings(cls)
        given = _dotted(settings)
        whole = {name: given.pop(name) for name in RECORDS if name in given}
        for name, value in given.items():
            if not isinstance(value, Setting):
                check_known(name, own, "code", cls.elsewhere(name))
        found = find_settings(known_settings(), path, environment, given)
        values: dict[str, Any] = {}
        tables: dict[str, dict[str, Any]] = {}
        for name, setting in found.items():
            outer, _, inner = name.partition(".")
            if name not in own or outer in whole:
                continue
            if inner:
                tables.setdefault(outer, {})[inner] = setting.value
            else:
                values[name] = setting.value
        try:
            values |= {name: RECORDS[name](**table) for name, table in tables.items()}
            return cls(**values, **whole)
        except ConfigError as error:
            raise located(error, found) from error

    def pause_s(self, failures: int) -> float:
        """Return the pause after *failures* failures of one kind, from 1."""
        return growing_pause_s(failures, self.backoff_s, LONGEST_BACKOFF * self.backoff_s)

    def _hold(self, zookeeper: object) -> None:
        """Hold the record ``ZooKeeper``, also if hosts were given as text, with its ensemble."""
        if isinstance(zookeeper, str):
            zookeeper = ZooKeeper(zookeeper)
        if isinstance(zookeeper, ZooKeeper):
            object.__setattr__(self, "zookeeper", zookeeper.chosen(self.carrier))


@dataclass(frozen=True, slots=True)
class Config(_CommonConfig):
    """The settings of a transactional topology. No setting changes what is committed.

    ``docs/reference/settings.md`` lists them.

    Attributes:
        carrier: How tuples move between stages: ``"local"`` (in this process, without Spark),
            ``"rdd"``, ``"dataframe"`` (one txid per job), ``"resident"`` (long-lived Spark tasks
            instead of jobs, which occupy their cores; classic Spark, no DataFrames). ``"auto"``
            picks ``dataframe`` on Spark Connect and for topologies of DataFrames, ``resident`` if
            the start opens the session and leaves cores free, otherwise ``rdd``
            (``docs/how-to/run.md``).
        slots: Spark partitions that host the tasks; default: the session's parallelism. With the
            carrier ``resident``: long-lived tasks; default: one per free core. By default, no more
            than the largest component has tasks.
        max_spout_pending: Maximum batches in flight. A Spark job processes up to a third of them
            together, rounded up; two jobs run at the same time, while batches gather for the next.
        poll_interval_s: Longest pause before a spout that was not ready is polled again. The first
            pause is a tenth of it, and each further one twice as long.
        backoff_s: Pause after the first failure of a batch, or the first infrastructure fault;
            doubled each time, up to 100 times this value.
        page: Where the run serves its page. None, the default: no page.
        zookeeper: Where the progress of the topology is kept; a string is short for
            ``ZooKeeper(hosts)``.
        pace: How large batches are, and when they are worth planning; by default, there is no
            pacing.
        group_txids_max: Maximum number of waiting batches that are committed together: each state
            takes them in one write. Nothing waits for a group to fill. With 1, each batch is
            committed alone. ``docs/explanation/group-commit.md`` describes which topologies use
            groups.
        attempts_max: The topology stops after this many counted failures of one batch; None for no
            limit, as in Storm: the batch is retried after pauses until it succeeds.
        batch_timeout_s: Time limit of a batch; a job of n batches has n times as much. Also, how
            long a resident slot may have no task while work waits for it, for example because a
            worker was lost and its core does not come back. After that, a run that asked for
            ``resident`` ends with ``SlotUnavailable``; a run for which ``"auto"`` chose it ends its
            slots and continues with the carrier ``rdd``, on the remaining cores. A warning is
            logged after half of that time.
        driver_bytes_max: Maximum bytes of processed envelopes that wait in the driver for their
            commit.
        history_txids: How many committed txids before the last group keep their metadata in
            ZooKeeper. An operator can replay them (``txtopo replay``), and rewind to them without
            supplying the position of the source.
        allow_change: What may differ from the topology that ran under this id; meant for one start.
            A set of ``"components"``, ``"states"``, ``"columns"`` and ``"source"``, such as
            ``{"states", "columns"}``; True allows all of them. See ``docs/how-to/evolution.md``.
        check_replays: Compare the tuples of a replay of a transactional spout, and the answers of
            ``map_async`` below it, with those of the first processed attempt, and end the run with
            ``NonRepeatableBatch`` if they differ. If False, nothing is compared, not even with what
            an earlier start had stored.
    """

    max_spout_pending: int = 30
    zookeeper: _TakesHosts[ZooKeeper] = ZooKeeper()  # type: ignore[assignment]
    pace: Pace = Pace()
    group_txids_max: int = 30
    attempts_max: int | None = 5
    batch_timeout_s: float = 120.0
    driver_bytes_max: int = 1 << 30
    history_txids: int = 1_000
    allow_change: bool | Collection[str] = False
    check_replays: bool = True

    def __post_init__(self) -> None:
        _check_one_of("carrier", self.carrier, CARRIERS)
        _CommonConfig.__post_init__(self)
        self._hold(self.zookeeper)
        check_type("zookeeper", self.zookeeper, ZooKeeper, "a ZooKeeper(…), or its hosts")
        check_type("pace", self.pace, Pace, "a Pace(…)")
        for name in ("max_spout_pending", "group_txids_max", "driver_bytes_max"):
            check_whole_number(name, getattr(self, name))
        if self.attempts_max is not None:
            more = "; expected that, or None for no limit"
            check_whole_number("attempts_max", self.attempts_max, more=more)
        check_whole_number("history_txids", self.history_txids, at_least=0)
        self._check_changes()
        check_type("check_replays", self.check_replays, bool, "True or False")
        delay_s = self.pace.max_batch_delay_s
        if delay_s is not None and delay_s < self.poll_interval_s:
            raise ConfigError(
                f"pace.max_batch_delay_s is below poll_interval_s; got {delay_s!r}; expected at "
                f"least {self.poll_interval_s!r}, since a spout is not asked more often; raise it, "
                "or lower poll_interval_s",
                setting="pace.max_batch_delay_s",
            )

    @property
    def run_txids(self) -> int:
        """The maximum batches of a run, a third of the window, for each job and for the next run.

        If the runs of the jobs filled the window, each commit would free one txid, and the next run
        would be one batch.
        """
        return math.ceil(self.max_spout_pending / (JOBS + 1))

    def may_change(self, *changes: ChangeKind) -> bool:
        """Return whether ``allow_change`` covers all of these changes."""
        if isinstance(self.allow_change, bool):
            return self.allow_change or not changes
        return set(changes) <= set(self.allow_change)

    def _check_changes(self) -> None:
        given, known = self.allow_change, [each.value for each in ChangeKind]
        if isinstance(given, bool):
            return
        names = [] if isinstance(given, str) or not isinstance(given, Collection) else list(given)
        if not names or not set(names) <= set(known):
            raise ConfigError(
                f"allow_change cannot be used; got {given!r:.200}; expected True, False, or a "
                f"collection of {', '.join(map(repr, known))}, such as {{'states', 'columns'}}",
                setting="allow_change",
            )
        object.__setattr__(self, "allow_change", tuple(each for each in known if each in names))


@dataclass(frozen=True, slots=True)
class AtLeastOnceConfig(_CommonConfig):
    """The settings of an at-least-once topology. ``docs/reference/settings.md`` lists them.

    Attributes:
        carrier: Where spouts and bolts run: ``"local"`` (in this process, without Spark) or
            ``"resident"`` (in Spark tasks, which keep their cores). ``"auto"`` picks ``resident``
            if a session is passed or active, otherwise ``local``.
        slots: Tasks that host spouts and bolts; default: one per free core, and two with the
            carrier ``local``.
        max_spout_pending: Maximum pending trees of each spout task; by default, no limit.
        poll_interval_s: Longest pause before a spout that had nothing to emit is polled again. The
            first pause is a tenth of it, and each further one twice as long.
        backoff_s: Pause after the first failure of a slot or of the ensemble; doubled each time, up
            to 100 times this value.
        page: Where the run serves its page. None, the default: no page.
        zookeeper: Where the drivers of the topology elect a leader, so that the others stand by; a
            string is short for ``ZooKeeper(hosts)``. None, the default: there is only one driver.
        message_timeout_s: A tuple tree that is still incomplete after one to two times this long
            fails.
        ackers: The number of ackers, spread over the slots with spouts; a hash of the root assigns
            each tree to one of them (Storm ``topology.acker.executors``). None: each slot with
            spouts has an acker for their trees, so only the acks are sent to other slots. 0: trees
            are not tracked, and a spout's tuple is acked as soon as it is emitted.
        slot_timeout_s: How long a resident slot may have no task, for example because a worker was
            lost and its core does not come back. A warning is logged after half of that time, after
            all of it, and then again once per that time. The topology waits.
    """

    carrier: SlotCarrier = "auto"
    zookeeper: _TakesHosts[ZooKeeper | None] = None  # type: ignore[assignment]
    message_timeout_s: float = 30.0
    ackers: int | None = None
    slot_timeout_s: float = 120.0

    def __post_init__(self) -> None:
        if self.carrier in CARRIERS and self.carrier not in SLOT_CARRIERS:
            raise ConfigError(
                f"carrier {self.carrier!r} cannot run an at-least-once topology, whose bolts "
                "outlive a Spark job; use carrier='resident' on Spark, or 'local'",
                setting="carrier",
            )
        _check_one_of("carrier", self.carrier, SLOT_CARRIERS)
        _CommonConfig.__post_init__(self)
        self._hold(self.zookeeper)
        expected = "a ZooKeeper(…), its hosts, or None"
        check_type("zookeeper", self.zookeeper, ZooKeeper | None, expected)
        if self.max_spout_pending is not None:
            check_whole_number("max_spout_pending", self.max_spout_pending)
        if self.ackers is not None:
            more = "; 0 tracks no trees (at most once); None runs an acker in each slot with spouts"
            check_whole_number("ackers", self.ackers, at_least=0, more=more)


AnyConfig = Config | AtLeastOnceConfig
"""The settings of a topology of either kind."""


def for_tasks(config: AnyConfig) -> AnyConfig:
    """Return settings as tasks get them: without credentials, and without the page."""
    held = config.zookeeper
    zookeeper = None if held is None else replace(held, auth=None, tls=None)
    return replace(config, page=None, zookeeper=zookeeper)  # type: ignore[arg-type]


def known_settings(*kinds: type[_CommonConfig]) -> dict[str, Known]:
    """Return what is known of each setting of some kinds of topologies, by default of all."""
    known: dict[str, Known] = {}
    for kind in kinds or (Config, AtLeastOnceConfig):
        for each in fields(kind):
            record = RECORDS.get(each.name)
            if record is None:
                hints = get_type_hints(kind)
                known[each.name] = Known(hints[each.name], secret=not each.repr)
                continue
            hints = get_type_hints(record)
            for one in fields(record):
                known[record.called(one.name)] = Known(hints[one.name], secret=not one.repr)
    return known


def _dotted(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of code, those of records by their dotted names."""
    dotted: dict[str, Any] = {}
    for name, value in settings.items():
        record = RECORDS.get(name)
        if record is not None and isinstance(value, record):
            dotted |= {value.called(each.name): getattr(value, each.name) for each in fields(value)}
        elif name == "zookeeper" and isinstance(value, str):
            dotted["zookeeper.hosts"] = value
        else:
            dotted[name] = value
    return dotted


def _check_one_of(setting: str, value: object, known: Collection[str]) -> None:
    if value not in known:
        raise ConfigError(
            f"unknown {setting}; got {value!r}; expected one of {', '.join(known)}",
            setting=setting,
        )
