"""Config: the settings of a run, frozen and checked when they are made; units are in the names."""

from __future__ import annotations

import ipaddress
import os
import re
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from types import UnionType
from typing import Any, Literal, Self, get_type_hints

from txtopo.config_sources import Known, find_settings, located
from txtopo.errors import ConfigError, nearest
from txtopo.pacing import PaceSettings

Carrier = Literal["auto", "local", "rdd", "dataframe", "resident"]
CARRIERS = ("auto", "local", "rdd", "dataframe", "resident")

LONGEST_BACKOFF = 100
"""The longest pause after failures, in multiples of the first one."""


# Between the slashes and the last @, as plug-ins may have them in their URLs.
_CREDENTIALS = re.compile(r"(?<=://).*@", re.S)


def unusable_character(text: str) -> str | None:
    """Return the first character that keeps a text from being a path or being sent, if any.

    NUL ends a text in system calls; a surrogate has no bytes in UTF-8.
    """
    return next((s for s in text if s == "\0" or "\ud800" <= s <= "\udfff"), None)


def check_text(what: str, text: str) -> None:
    """Check that a text can be a path or be sent; errors never show it: it may be a password.

    Raises:
        ConfigError: It cannot; repair it.
    """
    if unusable_character(text) is not None:
        raise ConfigError(
            f"{what} has a character that cannot be sent or be part of a path; got NUL, or half "
            "of a character (a surrogate); expected neither",
            setting=what,
        )


def check_whole_number(
    setting: str, value: object, *, at_least: int = 1, of: str = "", more: str = ""
) -> None:
    """Check that a setting is a whole number.

    Args:
        setting: Its name.
        value: What was given.
        at_least: The smallest value.
        of: What it is a setting of, for the message; by default a ``Config``.
        more: The end of the message.

    Raises:
        ConfigError: It is something else; repair it.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise ConfigError(
            f"{setting}{of} must be a whole number of at least {at_least}; got {value!r}{more}",
            setting=setting,
        )


def check_positive_number(setting: str, value: object, *, of: str = "") -> None:
    """Check that a setting is a finite number above 0; the arguments are as above.

    Raises:
        ConfigError: It is something else; repair it.
    """
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else 0
    if not 0 < number <= sys.float_info.max:  # a whole number may be larger
        raise ConfigError(
            f"{setting}{of} must be a finite number above 0; got {value!r}", setting=setting
        )


UI_TOKEN_CHARACTERS_MIN = 16


def is_loopback(host: str) -> bool:
    """Return whether a host name or address can only be reached from this machine."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def check_page(port: int | None, host: str, token: str | None) -> None:
    """Check where a page is served, and who may see it; errors never show the token.

    Raises:
        ConfigError: It would fail, or everyone could read it; repair it.
    """
    if port is not None:
        check_whole_number("ui_port", port, at_least=0, more="; 0 takes a free port")
        if port > 65535:
            raise ConfigError(
                f"ui_port is no port; got {port}; expected 0 to 65535", setting="ui_port"
            )
    check_text("ui_host", host)
    if not host or any(character.isspace() or character == "/" for character in host):
        raise ConfigError(
            f"ui_host is no host; got {host!r}; expected a name or an address, such as "
            "'127.0.0.1', or '0.0.0.0' for all interfaces",
            setting="ui_host",
        )
    if token is None:
        if not is_loopback(host):
            raise ConfigError(
                f"the page would be readable for everyone who reaches {host}; got ui_host={host!r} "
                f"without ui_token; expected ui_token with at least {UI_TOKEN_CHARACTERS_MIN} "
                "characters, or ui_host='127.0.0.1'",
                setting="ui_token",
            )
    elif len(token) < UI_TOKEN_CHARACTERS_MIN or not all("!" <= each <= "~" for each in token):
        raise ConfigError(
            f"ui_token cannot be used; got {len(token)} characters; expected at least "
            f"{UI_TOKEN_CHARACTERS_MIN}, printable ASCII without spaces; make one with: "
            'python -c "import secrets; print(secrets.token_urlsafe())"',
            setting="ui_token",
        )


def growing_pause_s(failures: int, first_s: float, longest_s: float) -> float:
    """Return the pause after *failures* failures, from 1: doubled each time, up to the longest."""
    return min(longest_s, first_s * 2.0 ** min(failures - 1, 30))


class Kind(StrEnum):
    """The kinds of topologies, as far as they use different settings."""

    TRANSACTIONAL = "a transactional topology"
    RESIDENT = "a transactional topology on carrier 'resident'"
    FOREACH_BATCH = "foreach_batch, whose batches a streaming query plans"
    AT_LEAST_ONCE = "an at-least-once topology"
    AT_LEAST_ONCE_RESIDENT = "an at-least-once topology on carrier 'resident'"
    AT_LEAST_ONCE_STANDBY = "an at-least-once topology with zookeeper"


class ChangeKind(StrEnum):
    """What a start may change of a topology that has run, see ``Config.allow_change``."""

    COMPONENTS = "components"
    """Spouts and bolts that are new, gone or of another kind; their inputs; what rows mean."""
    STATES = "states"
    """States that are new, gone or renamed, or that get another table."""
    COLUMNS = "columns"
    """The columns of a state in the same table, and their aggregates."""
    SOURCE = "source"
    """What a spout reads: the query of a query spout, the folders of a files spout."""


_STARTED = (Kind.TRANSACTIONAL, Kind.AT_LEAST_ONCE)
_BATCHES = (Kind.TRANSACTIONAL,)
_TREES = (Kind.AT_LEAST_ONCE,)
# At-least-once topologies on resident slots wait for lost slots, and ask again for new ones.
_SLOTS = (Kind.TRANSACTIONAL, Kind.AT_LEAST_ONCE_RESIDENT)
_ZOOKEEPER = (Kind.TRANSACTIONAL, Kind.AT_LEAST_ONCE_STANDBY)
_PAUSES = (*_SLOTS, Kind.AT_LEAST_ONCE_STANDBY)

USED_BY: Mapping[str, tuple[Kind, ...]] = {
    "carrier": tuple(Kind),
    "zookeeper": _STARTED,
    "zookeeper_dir": _ZOOKEEPER,
    "zookeeper_digest": _ZOOKEEPER,
    "zookeeper_sasl": _ZOOKEEPER,
    "zookeeper_tls": _ZOOKEEPER,
    "session_timeout_s": _ZOOKEEPER,
    "connect_timeout_s": _ZOOKEEPER,
    "max_spout_pending": _STARTED,
    "slots": tuple(Kind),
    "run_txids_max": _BATCHES,
    "jobs_max": _BATCHES,
    "group_txids_max": _BATCHES,
    "attempts_max": _BATCHES,
    "batch_timeout_s": _SLOTS,
    "poll_interval_s": _STARTED,
    "backoff_s": _PAUSES,
    "driver_bytes_max": _BATCHES,
    "history_txids": _BATCHES,
    "allow_change": _BATCHES,
    "message_timeout_s": _TREES,
    "ackers": _TREES,
    "check_replays": _BATCHES,
    "min_batch_rows": _BATCHES,
    "max_batch_delay_s": _BATCHES,
    "max_rows_per_second": _BATCHES,
    "target_commit_s": _BATCHES,
    "ui_port": _STARTED,
    "ui_host": _STARTED,
    "ui_token": _STARTED,
}
"""Which kinds of topologies use each setting. Others refuse it.

``docs/reference/settings.md`` shows it.
"""


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of a run. No setting changes what is committed.

    A topology refuses settings that its kind does not use, if they are given, also if they equal
    their default: a setting without effect is a mistake. ``docs/reference/settings.md`` lists them.

    Attributes:
        carrier: How tuples move between stages: ``"local"`` (in this process, without Spark),
            ``"rdd"``, ``"dataframe"`` (one txid a job), ``"resident"`` (long-lived Spark tasks
            instead of jobs, which keep their cores; classic Spark, no DataFrames). ``"auto"`` takes
            ``dataframe`` on Spark Connect and for topologies of DataFrames, ``resident`` if the
            start opens the session and cores are left, else ``rdd`` (``docs/how-to/run.md``).
            At-least-once topologies take ``"local"`` or ``"resident"``; ``"auto"`` takes
            ``resident`` if a session is given or active, else ``local``.
        zookeeper: ``"embedded"`` (the server inside PySpark's jars, in the driver's JVM),
            ``"memory"`` (nothing survives the process) or ``"host:port,host:port/chroot"``.
            ``"scheme://…"`` names another ensemble, of a plug-in (:mod:`txtopo.plugins.ensembles`).
            An at-least-once topology uses one only if you name it: then further drivers stand by.
        zookeeper_dir: Directory of the embedded server.
        zookeeper_digest: ``"user:password"``; nodes are then readable by that user only.
        zookeeper_sasl: kazoo's ``sasl_options``.
        zookeeper_tls: kazoo's TLS arguments (``use_ssl``, ``ca``, ``certfile``, ``keyfile`` …).
        session_timeout_s: ZooKeeper session; a leader that is silent for longer is deposed.
        connect_timeout_s: How long to try the first connection to ZooKeeper.
        max_spout_pending: Batches in flight; default ``run_txids_max * (jobs_max + 1)``. In an
            at-least-once topology: pending trees of each spout task; by default any number.
        slots: Spark partitions that host the tasks; default: the session's parallelism. On the
            carrier ``resident``: tasks that live long; default: one on each free core. By default
            no more than the largest component has tasks.
        run_txids_max: Maximum batches that one Spark job processes together.
        jobs_max: Maximum Spark jobs that process at the same time.
        group_txids_max: Maximum batches that are committed together, if they wait for their turn:
            each state takes them in one write. Nothing waits for a group to fill. With 1 each
            batch is committed alone. ``docs/explanation/group-commit.md`` says which topologies
            take groups.
        attempts_max: The topology stops after this many counted failures of one batch; None for no
            limit, as in Storm: it pauses and tries again until the batch succeeds.
        batch_timeout_s: Time limit of a batch; a job of n batches has n times as much. It is also
            how long a resident slot may have no task while work waits for it, as after the loss of
            a worker whose core does not come back. Then a run that asked for ``resident`` ends with
            ``SlotUnavailable``; one for which ``"auto"`` chose it ends its slots and continues with
            the carrier ``rdd``, on the cores that are left. A warning comes after half of that
            time, also in at-least-once topologies, which wait longer.
        poll_interval_s: Longest pause before a spout that was not ready is asked again. The first
            pause is a tenth of it, and each further one is twice as long.
        backoff_s: Pause after the first failure of a batch, or the first infrastructure fault;
            doubled each time, up to a hundred times this.
        message_timeout_s: At-least-once topologies: a tree of tuples that is not complete fails
            between one and two of these after it was emitted.
        ackers: At-least-once topologies: the number of ackers, which are spread over the slots with
            spouts and share the trees by a hash of the root (Storm ``topology.acker.executors``).
            None: each slot with spouts has an acker for their trees, so that nothing but the acks
            travels. 0: no tree is tracked, and a spout's tuple is acked when it is emitted.
        driver_bytes_max: Maximum bytes of processed envelopes that wait in the driver for their
            commit.
        history_txids: The number of committed txids before the last group of them whose metadata
            stays in ZooKeeper; an operator can rewind to those without giving the position of the
            source. Of a group only that of its last txid stays.
        allow_change: What may differ from the topology that ran under this id; meant for one start.
            Names of ``"components"``, ``"states"``, ``"columns"`` and ``"source"``, such as
            ``{"states", "columns"}``; True allows all of them. See ``docs/how-to/evolution.md``.
        check_replays: Compare the tuples of a replay of a transactional spout with those of the
            first processed attempt, and end the run with ``NonRepeatableBatch`` if they differ. If
            False, nothing is compared, not even with what an earlier start had stored.
        min_batch_rows: Plan a batch only when the source has this many unread rows, or
            ``max_batch_delay_s`` is over. The two are given together.
        max_batch_delay_s: How long rows may wait for others to fill a batch.
        max_rows_per_second: The most rows that batches are planned with, and no more than one
            second's worth at once; also over restarts. May be a fraction.
        target_commit_s: The time from the planning of a batch to its commit to aim at: batches
            are limited to the rows that can be committed in it. See
            ``docs/explanation/pacing.md`` for these four.
        ui_port: Port of the run's page; 0 takes a free one. None, the default: there is no page.
            ``run.page_url`` has its address. The extra ``ui`` brings what it needs.
        ui_host: The address at which the page is served.
        ui_token: Who has it may see the page and give commands; at least 16 characters. Without
            it, everyone on this machine may see the page, and nobody can give commands by it.
            Needed on another address than a loopback one.
        given: The names of the settings that were given. ``dataclasses.replace`` gives all of them,
            so then those that differ from their default.
    """

    carrier: Carrier = "auto"
    zookeeper: str = "embedded"
    zookeeper_dir: str = "./txtopo-zookeeper"
    zookeeper_digest: str | None = field(default=None, repr=False)
    zookeeper_sasl: Mapping[str, str] | None = field(default=None, repr=False)
    zookeeper_tls: Mapping[str, str | bool] | None = field(default=None, repr=False)
    session_timeout_s: float = 6.0
    connect_timeout_s: float = 15.0
    max_spout_pending: int | None = None
    slots: int | None = None
    run_txids_max: int = 10
    jobs_max: int = 2
    group_txids_max: int = 30
    attempts_max: int | None = 5
    batch_timeout_s: float = 120.0
    poll_interval_s: float = 0.05
    backoff_s: float = 0.1
    driver_bytes_max: int = 1 << 30
    history_txids: int = 1
    allow_change: bool | Collection[str] = False
    message_timeout_s: float = 30.0
    ackers: int | None = None
    check_replays: bool = True
    min_batch_rows: int | None = None
    max_batch_delay_s: float | None = None
    max_rows_per_second: float | None = None
    target_commit_s: float | None = None
    ui_port: int | None = None
    ui_host: str = "127.0.0.1"
    ui_token: str | None = field(default=None, repr=False)
    given: frozenset[str] = field(init=False, repr=False, compare=False)

    def __new__(cls, *values: object, **settings: object) -> Config:
        """Note what is given; refuse unknown settings with a hint, before ``__init__`` would."""
        defaults = {each.name: each.default for each in fields(cls) if each.init}
        known = list(defaults)
        for name in settings:
            if name not in known:
                raise ConfigError(f"unknown setting {name!r}; {nearest(name, known)}", setting=name)
        given = {**dict(zip(known, values, strict=False)), **settings}
        if len(given) == len(known):
            given = {name: value for name, value in given.items() if value != defaults[name]}
        config = object.__new__(cls)
        object.__setattr__(config, "given", frozenset(given))
        return config

    def __post_init__(self) -> None:
        if self.carrier not in CARRIERS:
            raise ConfigError(
                f"unknown carrier; got {self.carrier!r}; expected one of {', '.join(CARRIERS)}",
                setting="carrier",
            )
        self._check_numbers()
        self._check_type("zookeeper", str, "a string")
        self._check_type("zookeeper_dir", str | os.PathLike, "a path")
        self._check_type("zookeeper_digest", str | None, "'user:password' or None")
        self._check_type("zookeeper_sasl", Mapping | None, "a mapping or None")
        self._check_type("zookeeper_tls", Mapping | None, "a mapping or None")
        self._check_changes()
        self._check_type("check_replays", bool, "True or False")
        self._check_type("ui_host", str, "a string")
        self._check_type("ui_token", str | None, "a string or None")
        check_page(self.ui_port, self.ui_host, self.ui_token)
        for name in ("zookeeper", "zookeeper_dir", "zookeeper_digest"):
            check_text(name, str(getattr(self, name)))
        if not self.zookeeper:
            raise ConfigError(
                "zookeeper is empty; expected 'embedded', 'memory' or 'host:port,…/chroot'",
                setting="zookeeper",
            )

    def __repr__(self) -> str:
        """Return the settings without credentials; the URL of an ensemble may have some, too."""
        shown = self.shown()
        names = [each.name for each in fields(self) if each.repr]
        return f"Config({', '.join(f'{name}={shown[name]!r}' for name in names)})"

    def shown(self) -> dict[str, Any]:
        """Return all settings, with ``***`` in place of credentials."""
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.init}
        secrets = [each.name for each in fields(self) if not each.repr and each.init]
        hidden = {name: "***" for name in secrets if values[name] is not None}
        return {**values, **hidden, "zookeeper": _CREDENTIALS.sub("***@", self.zookeeper)}

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> Self:
        """Return the settings of code, the environment and a file; the first that gives one holds.

        Variables are ``TXTOPO_<SETTING>``, such as ``TXTOPO_SLOTS=4``; an empty one counts as not
        set. The file is TOML, with the settings at its top level. A setting of file or environment
        may be of no use to a topology, since both are shared; only *settings* count as given.

        Args:
            path: The file; by default the one that ``TXTOPO_CONFIG`` names, else ``txtopo.toml``
                in the current folder, if there is one.
            environment: The variables; by default those of this process.
            settings: As of ``Config(…)``.

        Raises:
            ConfigError: A setting or variable of our prefix is unknown, a value is wrong (the
                message says where it came from), or the file cannot be read.

        Example:
            >>> Config.load(environment={"TXTOPO_SLOTS": "4"}).slots
            4
        """
        found = find_settings(known_settings(), path, environment, settings)
        values: dict[str, Any] = {name: setting.value for name, setting in found.items()}
        try:
            config = cls(**values)
        except ConfigError as error:
            raise located(error, found) from error
        object.__setattr__(config, "given", frozenset(settings))
        return config

    @property
    def window_txids(self) -> int:
        """The maximum number of batches in flight."""
        if self.max_spout_pending is not None:
            return self.max_spout_pending
        return self.run_txids_max * (self.jobs_max + 1)

    @property
    def names_zookeeper(self) -> bool:
        """Whether ``zookeeper`` was given in code, or is another one than by default."""
        return "zookeeper" in self.given or self.zookeeper != "embedded"

    @property
    def pace(self) -> PaceSettings:
        """The settings that pace a topology."""
        return PaceSettings(
            self.min_batch_rows,
            self.max_batch_delay_s,
            self.max_rows_per_second,
            self.target_commit_s,
        )

    def check_used(self, topology_id: str, *kinds: Kind) -> None:
        """Check that a topology uses all settings that are given.

        Args:
            topology_id: Id of the topology.
            kinds: The kinds that it is of.

        Raises:
            ConfigError: It ignores one; leave it out.
        """
        ignored = [
            f"{name} (only for {', '.join(USED_BY[name])})"
            for name in sorted(self.given)
            if not set(kinds) & set(USED_BY[name])
        ]
        if ignored:
            raise ConfigError(
                f"topology {topology_id!r} is {kinds[-1]}, and does not use all settings; got "
                f"{', '.join(ignored)}; leave them out, or make a Config for each kind of topology",
                setting=ignored[0].partition(" ")[0],
            )

    def may_change(self, *changes: ChangeKind) -> bool:
        """Return whether all of these changes are allowed."""
        if isinstance(self.allow_change, bool):
            return self.allow_change or not changes
        return set(changes) <= set(self.allow_change)

    def pause_s(self, failures: int) -> float:
        """Return the pause after *failures* failures of one kind, from 1."""
        return growing_pause_s(failures, self.backoff_s, LONGEST_BACKOFF * self.backoff_s)

    def _check_numbers(self) -> None:
        for name in ("run_txids_max", "jobs_max", "group_txids_max", "driver_bytes_max"):
            check_whole_number(name, getattr(self, name))
        for name in ("max_spout_pending", "slots"):
            if getattr(self, name) is not None:
                check_whole_number(name, getattr(self, name))
        if self.attempts_max is not None:
            more = "; expected that, or None for no limit"
            check_whole_number("attempts_max", self.attempts_max, more=more)
        if self.ackers is not None:
            more = "; 0 tracks no trees: at most once; None is an acker in each slot with spouts"
            check_whole_number("ackers", self.ackers, at_least=0, more=more)
        check_whole_number("history_txids", self.history_txids, at_least=0)
        for each in fields(self):
            if each.name.endswith("_s") and (each.default is not None or self._has(each.name)):
                check_positive_number(each.name, getattr(self, each.name))
        self._check_pace()

    def _has(self, name: str) -> bool:
        return getattr(self, name) is not None

    def _check_pace(self) -> None:
        rows_min, delay_s, rate = (
            self.min_batch_rows,
            self.max_batch_delay_s,
            self.max_rows_per_second,
        )
        if rows_min is not None:
            check_whole_number("min_batch_rows", rows_min)
        if rate is not None:
            check_positive_number("max_rows_per_second", rate)
        if (rows_min is None) != (delay_s is None):
            alone, other = "min_batch_rows", "max_batch_delay_s"
            if rows_min is None:
                alone, other = other, alone
            raise ConfigError(
                f"{alone} is given without {other}; got {alone}={getattr(self, alone)!r}; expected "
                "both or neither: one says how many rows a batch waits for, the other how long",
                setting=alone,
            )
        if delay_s is not None and delay_s < self.poll_interval_s:
            raise ConfigError(
                f"max_batch_delay_s is below poll_interval_s; got {delay_s!r}; expected at least "
                f"{self.poll_interval_s!r}, since a spout is not asked more often; raise it, or "
                "lower poll_interval_s",
                setting="max_batch_delay_s",
            )
        if rows_min is not None and rate is not None and rows_min > max(rate, 1):
            raise ConfigError(
                f"min_batch_rows is above what max_rows_per_second allows at once; got {rows_min}; "
                f"expected at most {rate:g}, one second's worth; lower it, or raise the rate",
                setting="min_batch_rows",
            )

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

    def _check_type(self, name: str, kind: type | UnionType, expected: str) -> None:
        value = getattr(self, name)
        if not isinstance(value, kind):
            # Never the value: it may be a password.
            raise ConfigError(
                f"{name} is of the wrong type; got {type(value).__name__}; expected {expected}",
                setting=name,
            )


def known_settings() -> dict[str, Known]:
    """Return the type of each setting, and whether its value is a secret."""
    kinds = get_type_hints(Config)
    return {
        each.name: Known(kinds[each.name], secret=not each.repr)
        for each in fields(Config)
        if each.init
    }
