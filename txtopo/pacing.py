"""Pacing: how large the next batch may be, and when it is worth planning.

A :class:`Pace` has the settings. ``min_batch_rows`` and ``max_batch_delay_s`` say when a batch is
worth planning; ``max_rows_per_second`` and ``target_commit_s`` limit its rows.

No I/O, clock, thread or random number is used here. Times come in, and equal calls give equal
answers, so the simulator can replay them.

Rules
-----
1. The driver asks :class:`Pacer` before it plans a batch, after the spout has answered that it is
   ready. The answer is an :class:`Allowance`, or :class:`Postponed`: ask again later. The driver
   never asks for a batch that is already planned.
2. The limit of a batch is part of its planned metadata, ``{"rows_max": …}``, and so durable before
   its commit work begins. A replay gets the limit of the first attempt. So a transactional spout
   emits the same batch, and an opaque spout, which may cut the batch differently, has the same
   limit. Without ``max_rows_per_second`` and ``target_commit_s`` nothing is added.
3. The spout gets the limit as the keyword argument ``rows_max``: the coordinator part that plans
   whole batches, in ``initialize_transaction``; the emitters of a partitioned spout, in the method
   that cuts a new batch. ``rows_max`` of 0 means: emit nothing, and return the position. A spout
   that does not take the argument is refused when the topology starts.

Rate
----
``max_rows_per_second`` is a bucket that fills at that rate and holds one second's worth. A planned
batch takes its limit out. At the commit the level is corrected, as if the batch had taken only the
rows that it had: unused rows are not lost, and they never come on top of a full bucket. The level
after each batch and the time are in its metadata, so the next leader continues from there. Without
a stored level the bucket begins empty.

Target
------
``target_commit_s`` bounds the time from the planning of a batch to its commit. At most two batches
are in flight, one in its commit and one in its processing, so each has half of the target. The time
from commit to commit is modelled as ``fixed + rows * each``; both are learned from the last
commits. The limit is the number of rows that fits into the half. If the fixed part alone takes more
than half of that, smaller batches would only cost throughput, so the rows get as much time as the
fixed part. Per commit the limit at most doubles, and only after a batch that used it; or it at most
halves.

Precedence
----------
The smallest limit applies: the rate's, the target's or the spout's own. A limit wins over
``min_batch_rows``: a batch is worth planning when it reaches the limit of the target, and it never
takes more than the rate allows. ``max_batch_delay_s`` wins over ``min_batch_rows``, and the rate
wins over ``max_batch_delay_s``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import ClassVar

from txtopo.errors import ConfigError
from txtopo.metadata import Json
from txtopo.setting_checks import Settings, check_positive_number, check_whole_number

START_ROWS = 1_000
"""The first limit under a target: some milliseconds of work, doubled while batches use it."""

TARGET_ROWS_MAX = 10_000_000

TARGET_PENDING_MAX = 2

_NEWEST = 0.25
"""Weight of the newest commit: the estimate follows a change within about eight commits."""

_NEWEST_SLOPE = 0.04
"""The weight for separating the fixed part from the rest; one commit says little about that."""

_SPIKE = 4.0
"""A commit counts at most this many times its expected duration: one that hung is not a trend."""

_SPREAD = 0.1
"""The fixed part can be separated only when sizes differ by this share of their mean."""


@dataclass(frozen=True, slots=True)
class Pace(Settings):
    """How large batches are, and when they are worth planning; what is None paces nothing.

    ``docs/explanation/pacing.md`` explains it.

    Attributes:
        min_batch_rows: Plan a batch only when the source has this many unread rows, or
            ``max_batch_delay_s`` is over. The two are given together.
        max_batch_delay_s: How long rows may wait for others to fill a batch.
        max_rows_per_second: The most rows that batches are planned with, and no more than one
            second's worth at once; also over restarts. May be a fraction.
        target_commit_s: The time from the planning of a batch to its commit to aim at: batches
            are limited to the rows that can be committed in it.
    """

    holder: ClassVar[str] = "pace"
    min_batch_rows: int | None = None
    max_batch_delay_s: float | None = None
    max_rows_per_second: float | None = None
    target_commit_s: float | None = None

    def __post_init__(self) -> None:
        rows_min, delay_s, rate = (
            self.min_batch_rows,
            self.max_batch_delay_s,
            self.max_rows_per_second,
        )
        if rows_min is not None:
            check_whole_number("pace.min_batch_rows", rows_min)
        for name in ("max_batch_delay_s", "max_rows_per_second", "target_commit_s"):
            if getattr(self, name) is not None:
                check_positive_number(f"pace.{name}", getattr(self, name))
        if (rows_min is None) != (delay_s is None):
            alone, other = "min_batch_rows", "max_batch_delay_s"
            if rows_min is None:
                alone, other = other, alone
            raise ConfigError(
                f"pace.{alone} is given without {other}; got {alone}={getattr(self, alone)!r}; "
                "expected both or neither: one says how many rows a batch waits for, the other how "
                "long",
                setting=f"pace.{alone}",
            )
        if rows_min is not None and rate is not None and rows_min > max(rate, 1):
            raise ConfigError(
                "pace.min_batch_rows is above what max_rows_per_second allows at once; got "
                f"{rows_min}; expected at most {rate:g}, one second's worth; lower it, or raise "
                "the rate",
                setting="pace.min_batch_rows",
            )

    @property
    def limiting(self) -> str | None:
        """The first setting that limits the rows of a batch; None if no setting does."""
        if self.max_rows_per_second is not None:
            return "pace.max_rows_per_second"
        return None if self.target_commit_s is None else "pace.target_commit_s"

    @property
    def given(self) -> dict[str, float]:
        """The settings that pace the topology."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Allowance:
    """A batch may be planned.

    Attributes:
        rows_max: Its limit; None for no limit.
        shares: The limit of each partition; their sum is *rows_max*. Empty for a spout that plans
            whole batches.
        metadata: What is stored with the batch; None without a limit.
    """

    rows_max: int | None
    shares: tuple[int, ...] = ()
    metadata: dict[str, Json] | None = None


@dataclass(frozen=True, slots=True)
class Postponed:
    """No batch is to be planned now, although the spout has rows.

    Attributes:
        by: The setting that holds it back; None while batches in flight will take all rows.
    """

    by: str | None


@dataclass(frozen=True, slots=True)
class Asked:
    """What is known when a batch is asked for.

    Attributes:
        txid: The batch.
        last_txid: The batch after which *unread* was counted.
        unread: Unread rows by partition number, as a string; a spout that plans whole batches may
            use any name. None if the spout does not know.
        partitions: The number of partitions; 0 for a spout that plans whole batches.
        pending: How many batches are in flight.
        now_s: The time by a clock that only goes forward.
        wall_s: The time in seconds since 1970.
    """

    txid: int
    last_txid: int
    unread: Mapping[str, int] | None
    partitions: int
    pending: int
    now_s: float
    wall_s: float


@dataclass(frozen=True, slots=True)
class _InFlight:
    allowance: Allowance
    since_s: float | None


class Pacer:
    """Decides on the next batch of a topology. One caller at a time.

    Attributes:
        now: The newest decision: ``{"rows_max": limit or None, "limited_by": setting or None}``.
            ``limited_by`` is the setting because of which the batch has fewer rows than there are,
            or is held back.
    """

    def __init__(self, settings: Pace) -> None:
        self.now: dict[str, Json] = {}
        self._settings = settings
        rate = settings.max_rows_per_second
        self._bucket = None if rate is None else Bucket(rate)
        target_s = settings.target_commit_s
        self._sizer = None if target_s is None else Sizer(target_s)
        self._flight: dict[int, _InFlight] = {}
        self._waiting_since_s: float | None = None
        self._committed_s = -math.inf

    def begin(
        self, stored: Mapping[int, object], current: int, now_s: float, wall_s: float
    ) -> None:
        """Continue from the pace that earlier leaders stored.

        Args:
            stored: The stored pace of each batch, by txid.
            current: The lowest txid that is not committed.
            now_s: The time by a clock that only goes forward.
            wall_s: The time in seconds since 1970.
        """
        self._flight.clear()
        credit = 0.0
        for txid, pace in sorted(stored.items()):
            if not isinstance(pace, dict):
                continue
            rows_max = rows_max_of(pace)
            if txid >= current and rows_max is not None:
                shares = rows_max if isinstance(rows_max, list) else []
                total = sum(rows_max) if isinstance(rows_max, list) else rows_max
                self._flight[txid] = _InFlight(Allowance(total, tuple(shares)), None)
            level, at_s = pace.get("credit"), pace.get("at_s")
            if self._bucket and isinstance(level, int | float) and isinstance(at_s, int | float):
                credit = level + self._bucket.rate * max(0.0, wall_s - at_s)
        if self._bucket:
            self._bucket.begin(credit, now_s)

    def ask(self, asked: Asked) -> Allowance | Postponed:
        """Return whether the batch may be planned now, and its limit."""
        # A batch that is asked for again was not planned after all.
        self._flight = {txid: each for txid, each in self._flight.items() if txid < asked.txid}
        left = self._left(asked)
        available = None if left is None else sum(left)
        if available == 0:
            if any(txid > asked.last_txid for txid in self._flight):
                return self._held(None)
            # The spout wants to store a position; or the rows went meanwhile.
            return self._allowed(asked, 0 if self._settings.limiting else None, left, None)
        if self._waiting_since_s is None and available is not None:
            self._waiting_since_s = asked.now_s
        if self._sizer and asked.pending >= TARGET_PENDING_MAX:
            return self._held("target_commit_s")
        limit, by = self._limit(asked.now_s)
        if (wait := self._waits(available, limit, asked.now_s)) is not None:
            return self._held(wait)
        if limit is not None and limit < 1:
            return self._held(by)
        if limit is None or available is None or available <= limit:
            if available is not None:
                self._waiting_since_s = None
            by = None if available is not None else by
        rows = limit if available is None else min(available, limit or available)
        return self._allowed(asked, rows if limit is not None else None, left, by)

    def withdraw(self, txid: int) -> None:
        """Take back an allowance, because the batch could not be planned."""
        self._flight.pop(txid, None)
        if self._bucket:
            self._bucket.settle(txid, 0)

    def committed(self, txid: int, rows: int | None, now_s: float) -> None:
        """Learn from a batch that was committed.

        Args:
            txid: The batch.
            rows: How many rows it had; None if they were not counted, as in Spark's plans. Then
                the batch counts as full.
            now_s: The time by a clock that only goes forward.
        """
        known = self._flight.pop(txid, None)
        if rows is None:
            rows = (known.allowance.rows_max or 0) if known is not None else 0
        if self._bucket:
            self._bucket.settle(txid, rows)
        if self._sizer and known is not None and known.since_s is not None and rows:
            seconds = now_s - max(self._committed_s, known.since_s)
            self._sizer.committed(rows, seconds)
        self._committed_s = now_s

    def _left(self, asked: Asked) -> list[int] | None:
        """Return the unread rows of each partition that no batch in flight will take."""
        if asked.unread is None:
            return None
        ahead = [
            each.allowance for at, each in self._flight.items() if asked.last_txid < at < asked.txid
        ]
        if not asked.partitions:
            taken = sum(each.rows_max or 0 for each in ahead)
            return [max(0, sum(asked.unread.values()) - taken)]
        return [
            max(0, asked.unread.get(str(at), 0) - sum(_share(each, at) for each in ahead))
            for at in range(asked.partitions)
        ]

    def _limit(self, now_s: float) -> tuple[int | None, str | None]:
        limits: list[tuple[int, str]] = []
        if self._bucket:
            limits.append((math.floor(self._bucket.level(now_s) + 1e-6), "max_rows_per_second"))
        if self._sizer:
            limits.append((self._sizer.rows, "target_commit_s"))
        return min(limits, default=(None, None))

    def _waits(self, available: int | None, limit: int | None, now_s: float) -> str | None:
        """Return the setting because of which a batch is not yet worth planning."""
        rows_min, delay_s = self._settings.min_batch_rows, self._settings.max_batch_delay_s
        if rows_min is None or delay_s is None or available is None:
            return None
        if self._sizer:
            rows_min = min(rows_min, self._sizer.rows)
        if self._waiting_since_s is not None and now_s - self._waiting_since_s >= delay_s:
            return None
        if available < rows_min:
            return "min_batch_rows"
        return "max_rows_per_second" if limit is not None and limit < rows_min else None

    def _held(self, by: str | None) -> Postponed:
        if by is not None:
            self.now = {"rows_max": 0, "limited_by": by}
        return Postponed(by)

    def _allowed(
        self, asked: Asked, rows_max: int | None, left: list[int] | None, by: str | None
    ) -> Allowance:
        self.now = {"rows_max": rows_max, "limited_by": by}
        if rows_max is None:
            allowance = Allowance(None)
        else:
            unread = left if left is not None else [rows_max] * asked.partitions
            shares = shared_out(rows_max, unread, asked.txid) if asked.partitions else []
            metadata: dict[str, Json] = {"rows_max": [*shares] if asked.partitions else rows_max}
            if self._bucket:
                self._bucket.charge(asked.txid, rows_max, asked.now_s)
                metadata["credit"] = round(self._bucket.level(asked.now_s), 3)
                metadata["at_s"] = round(asked.wall_s, 3)
            allowance = Allowance(rows_max, tuple(shares), metadata)
        self._flight[asked.txid] = _InFlight(allowance, asked.now_s)
        return allowance


def rows_max_of(pace: object) -> int | list[int] | None:
    """Return the limit in the stored pace of a batch: one number, or one for each partition."""
    rows_max = pace.get("rows_max") if isinstance(pace, dict) else None
    counts = rows_max if isinstance(rows_max, list) else [rows_max]
    if any(type(each) is not int or each < 0 for each in counts):
        return None
    return rows_max


def shared_out(rows: int, unread: Sequence[int], turn: int) -> list[int]:
    """Return the share of each partition in a limit.

    All shares are equal, but none exceeds the partition's unread rows; the rest goes to the others.
    A remainder that cannot be divided goes to partitions in turn.

    Args:
        rows: The limit.
        unread: Unread rows of each partition.
        turn: Number of the batch, so that each partition has its turn.
    """
    shares, left = [0] * len(unread), rows
    hungry = [at for at, count in enumerate(unread) if count > 0]
    while hungry and left >= len(hungry):
        each = left // len(hungry)
        for at in hungry:
            more = min(each, unread[at] - shares[at])
            shares[at] += more
            left -= more
        hungry = [at for at in hungry if shares[at] < unread[at]]
    for step in range(min(left, len(hungry))):
        shares[hungry[(turn * left + step) % len(hungry)]] += 1
    return shares


def _share(allowance: Allowance, partition: int) -> int:
    return allowance.shares[partition] if partition < len(allowance.shares) else 0


@dataclass(slots=True)
class Bucket:
    """Hands out at most *rate* rows a second, and at most one second's worth at once.

    A rate below one row a second saves up for one row.
    """

    rate: float
    _level: float = 0.0
    _at_s: float | None = None
    _charges: dict[int, tuple[float, int, bool]] = field(default_factory=dict)

    def begin(self, level: float, now_s: float) -> None:
        """Start from a level, capped at the size of the bucket."""
        self._charges.clear()
        self._level, self._at_s = min(level, self._most), now_s

    def level(self, now_s: float) -> float:
        """Return how many rows may be handed out now; negative after a batch that took too many."""
        if self._at_s is None:
            self._at_s = now_s
        level, at_s = self._level, self._at_s
        for charged_s, rows, _ in self._charges.values():
            level, at_s = self._filled(level, charged_s - at_s) - rows, charged_s
        return self._filled(level, now_s - at_s)

    def charge(self, txid: int, rows: int, now_s: float) -> None:
        """Take rows out for a batch. A batch that is asked for again is charged once."""
        self.level(now_s)
        self._charges.pop(txid, None)
        self._charges[txid] = (now_s, rows, False)

    def settle(self, txid: int, rows: int) -> None:
        """Correct the charge of a batch to the rows that it really had."""
        if txid not in self._charges:
            return
        self._charges[txid] = (self._charges[txid][0], rows, True)
        for first, (charged_s, taken, settled) in list(self._charges.items()):
            if not settled:
                break
            assert self._at_s is not None, "charged at a time"
            self._level = self._filled(self._level, charged_s - self._at_s) - taken
            self._at_s = charged_s
            del self._charges[first]

    @property
    def _most(self) -> float:
        return max(self.rate, 1.0)

    def _filled(self, level: float, seconds: float) -> float:
        return min(self._most, level + self.rate * max(0.0, seconds))


class Sizer:
    """Learns how many rows fit into half of a target.

    Attributes:
        rows: The limit of the next batch.
    """

    def __init__(self, target_s: float) -> None:
        self.rows = START_ROWS
        self._half_s = target_s / 2
        self._fixed_s = 0.0
        self._each_s: float | None = None
        self._rows_mean = self._seconds_mean = 0.0
        self._variance = self._covariance = 0.0

    def committed(self, rows: int, seconds: float) -> None:
        """Learn from a commit.

        Args:
            rows: Rows of the batch.
            seconds: Time since the previous commit, or since its own planning if that was later.
        """
        self._learn(rows, max(seconds, 1e-6))
        assert self._each_s is not None, "just learned"
        fitting = max(self._half_s - self._fixed_s, self._fixed_s) / self._each_s
        wanted = int(min(max(fitting, 1.0), TARGET_ROWS_MAX))
        if wanted < self.rows:
            self.rows = max(wanted, self.rows // 2, 1)
        elif 2 * rows >= self.rows:
            # Only a batch that used at least half of its limit says anything about larger ones.
            self.rows = min(wanted, 2 * self.rows)

    def _learn(self, rows: int, seconds: float) -> None:
        if self._each_s is None:
            self._rows_mean, self._seconds_mean = float(rows), seconds
        else:
            seconds = min(seconds, _SPIKE * (self._fixed_s + self._each_s * rows))
            more_rows, more_s = rows - self._rows_mean, seconds - self._seconds_mean
            self._rows_mean += _NEWEST * more_rows
            self._seconds_mean += _NEWEST * more_s
            self._variance += _NEWEST_SLOPE * (more_rows**2 - self._variance)
            self._covariance += _NEWEST_SLOPE * (more_rows * more_s - self._covariance)
        if self._variance > (_SPREAD * self._rows_mean) ** 2:
            slope = max(0.0, self._covariance / self._variance)
            self._fixed_s = self._seconds_mean - slope * self._rows_mean
        # A tenth is left for the rows, or the limit would grow without end.
        self._fixed_s = min(max(self._fixed_s, 0.0), 0.9 * self._seconds_mean)
        self._each_s = (self._seconds_mean - self._fixed_s) / self._rows_mean
