"""Pacing: how large the next batch may be, and when it is worth planning.

A :class:`Pace` has the settings. ``min_batch_rows`` and ``max_batch_delay_s`` say when a batch is
worth planning; ``max_rows_per_second`` and ``target_commit_s`` limit its rows.

No I/O, clock, thread or random number is used here. Times come in, and equal calls give equal
answers, so the simulator can replay them.

Rules
-----
1. The driver asks one :class:`Pacer` for each batch of a topology, after each of its spouts has
   answered whether it is ready. The answer is an :class:`Allowance`, or :class:`Postponed`: ask
   again later. The driver never asks for a batch that is already planned.
2. Settings count the rows of a batch, of all spouts together. A limit is shared out to the spouts
   that are ready, and then to the partitions of each: equal shares, but none above what is unread
   there. A spout without a share is absent from the batch. Turns go by who has waited longest, so
   that no spout and no partition waits for ever. Whoever only stores a position is never held back,
   and the tuples of a clock are not rows.
3. The limits of a batch are part of its planned metadata, ``{"rows_max": {spout: …}}``, and so
   durable before its commit work begins. A replay gets the limits of the first attempt. So a
   transactional spout emits the same batch, and an opaque spout, which may cut the batch
   differently, has the same limit. Without ``max_rows_per_second`` and ``target_commit_s`` nothing
   is added.
4. A spout gets its limit as the keyword argument ``rows_max``: the coordinator part that plans
   whole batches, in ``initialize_transaction``; the emitters of a partitioned spout, in the method
   that cuts a new batch. ``rows_max`` of 0 means: emit nothing, and return the position.
5. A spout keeps a limit as closely as its source can be divided. What it takes above is paid back:
   it counts against the rate once it is known, and the batches that follow wait. It is known when
   the batch is planned, if the coordinator part has ``planned_rows``; else at the commit. A spout
   that does not take ``rows_max`` may exceed it by any number, so until the rows of its batch are
   known, it has no second batch in flight.
6. Unread rows that a spout cannot count are not counted for ``min_batch_rows``: its batches wait
   for ``max_batch_delay_s``, unless the rows of other spouts reach the minimum.

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
commits. Spouts share the model: a batch takes its time as a whole, and how the rows of several
spouts mix changes slowly, so ``each`` is that of the mix. The limit is the number of rows that fits
into the half. If the fixed part alone takes more than half of that, smaller batches would only cost
throughput, so the rows get as much time as the fixed part. Per commit the limit at most doubles,
and only after a batch that used it; or it at most halves.

Precedence
----------
The smallest limit applies: the rate's, the target's or the spout's own. A limit wins over
``min_batch_rows``: a batch is worth planning when it reaches the limit of the target, and it never
takes more than the rate allows. ``max_batch_delay_s`` wins over ``min_batch_rows``, and the rate
wins over ``max_batch_delay_s``. What a limit leaves behind a batch waits from then on again.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields
from typing import ClassVar, TypeVar

from txtopo.errors import ConfigError
from txtopo.metadata import Json
from txtopo.setting_checks import Settings, check_positive_number, check_whole_number

K = TypeVar("K", bound=Hashable)

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
    """How large batches are, and when they are worth planning; None turns a setting off.

    See ``docs/explanation/pacing.md``.

    Attributes:
        min_batch_rows: Plan a batch only when the source has this many unread rows, or
            ``max_batch_delay_s`` has passed. Set both or neither.
        max_batch_delay_s: How long rows may wait for more rows to fill a batch.
        max_rows_per_second: Maximum rows planned per second, with bursts of up to one second's
            worth; it is kept across restarts, and may be fractional.
        target_commit_s: Target time from planning a batch to its commit: batches are limited to the
            rows that can be committed in that time.
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
                "expected both or neither: one sets how many rows a batch waits for, the other "
                "how long",
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


Limit = int | list[int] | None
"""The limit of a spout: of its batch, or of each partition; None for no limit."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """A batch may be planned.

    Attributes:
        limits: The limit of each spout that takes part; the others are absent from the batch.
    """

    limits: Mapping[str, Limit]

    @property
    def rows_max(self) -> int | None:
        """The limit of the whole batch; None for no limit."""
        limits = [_total(each) for each in self.limits.values() if each is not None]
        return sum(limits) if limits else None


@dataclass(frozen=True, slots=True)
class Postponed:
    """No batch is to be planned now, although a spout has rows.

    Attributes:
        by: The setting that holds it back; None while batches in flight will take all rows.
    """

    by: str | None


@dataclass(frozen=True, slots=True)
class Offer:
    """What is known of a spout that is ready when a batch is asked for.

    Attributes:
        last_txid: The batch after which *unread* was counted.
        unread: Unread rows by partition number, as a string; a spout that plans whole batches may
            use any name. None if the spout does not know.
        partitions: The number of partitions; 0 for a spout that plans whole batches.
        divides: Whether the spout takes a limit.
    """

    last_txid: int
    unread: Mapping[str, int] | None
    partitions: int = 0
    divides: bool = True


@dataclass(frozen=True, slots=True)
class Asked:
    """What is known when a batch is asked for.

    Attributes:
        txid: The batch.
        offers: The spouts that are ready, by id.
        pending: How many batches are in flight.
        now_s: The time by a clock that only goes forward.
        wall_s: The time in seconds since 1970.
    """

    txid: int
    offers: Mapping[str, Offer]
    pending: int
    now_s: float
    wall_s: float


@dataclass(frozen=True, slots=True)
class _InFlight:
    """A batch that is planned and not committed.

    Attributes:
        limits: The limit of each spout that takes part.
        since_s: When it was planned; None if an earlier leader planned it.
        rows: How many rows it counts as until its commit.
        uncounted: The spouts whose rows are not known.
    """

    limits: Mapping[str, Limit]
    since_s: float | None
    rows: int
    uncounted: frozenset[str]


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
        self._turns = Turns()
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
            limits = limits_of(pace)
            if txid >= current and limits is not None:
                rows = sum(map(_total, limits.values()))
                self._flight[txid] = _InFlight(limits, None, rows, frozenset(limits))
            level, at_s = pace.get("credit"), pace.get("at_s")
            if self._bucket and isinstance(level, int | float) and isinstance(at_s, int | float):
                credit = level + self._bucket.rate * max(0.0, wall_s - at_s)
        if self._bucket:
            self._bucket.begin(credit, now_s)

    def ask(self, asked: Asked) -> Allowance | Postponed:
        """Return whether the batch may be planned now, and its limits.

        The caller then tells :meth:`planned` what the spouts have planned, or :meth:`withdraw`.
        """
        # A batch that is asked for again was not planned after all.
        self._flight = {txid: each for txid, each in self._flight.items() if txid < asked.txid}
        left = {id: self._left(id, offer) for id, offer in asked.offers.items()}
        # The spout wants to store a position; or the rows went meanwhile.
        storing = [id for id, counts in left.items() if counts is not None and not sum(counts)]
        having = {id: counts for id, counts in left.items() if id not in storing}
        storing = [id for id in storing if not self._ahead(id, asked.offers[id])]
        limit, by = self._limit(asked.now_s)
        held = self._held_by(asked, having, limit, by) if having else None
        shares = {} if held else self._shares(asked, having, limit)
        if having and not shares:
            held = held or by
        if not shares and not storing:
            return self._held(held)
        if shares:
            self._note(having, shares, limit, by, asked.now_s)
        elif having:
            self._held(held)
        else:
            self.now = {"rows_max": None if limit is None else 0, "limited_by": None}
        # Without a setting that limits, nothing is stored.
        limiting = self._settings.limiting is not None
        limits: dict[str, Limit] = {}
        for id, offer in asked.offers.items():
            if id in shares or id in storing:
                share = shares.get(id, 0)
                limits[id] = self._by_partition(id, share, left[id], offer) if limiting else None
        return Allowance(limits)

    def planned(
        self, asked: Asked, allowance: Allowance, counted: Mapping[str, int | None]
    ) -> dict[str, Json] | None:
        """Note what was planned, and return what is stored with the batch; None without a limit.

        Args:
            asked: What was asked.
            allowance: The answer.
            counted: The rows of each spout that takes part; None if they are not known yet.
        """
        limits = {id: allowance.limits[id] for id in counted}
        rows = sum(_total(limits[id]) if count is None else count for id, count in counted.items())
        uncounted = frozenset(id for id, count in counted.items() if count is None)
        self._flight[asked.txid] = _InFlight(limits, asked.now_s, rows, uncounted)
        if self._settings.limiting is None:
            return None
        stored: dict[str, Json] = {
            id: [*each] if isinstance(each, list) else each for id, each in limits.items()
        }
        metadata: dict[str, Json] = {"rows_max": stored}
        if self._bucket:
            self._bucket.charge(asked.txid, rows, asked.now_s)
            metadata["credit"] = round(self._bucket.level(asked.now_s), 3)
            metadata["at_s"] = round(asked.wall_s, 3)
        return metadata

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
                the batch counts as what was planned, or as full.
            now_s: The time by a clock that only goes forward.
        """
        known = self._flight.pop(txid, None)
        if rows is None:
            rows = known.rows if known is not None else 0
        if self._bucket:
            self._bucket.settle(txid, rows)
        if self._sizer and known is not None and known.since_s is not None and rows:
            seconds = now_s - max(self._committed_s, known.since_s)
            self._sizer.committed(rows, seconds)
        self._committed_s = now_s

    def _ahead(self, spout: str, offer: Offer) -> list[Limit]:
        """Return the limits of the spout's batches in flight that *offer* has not counted."""
        return [
            each.limits[spout]
            for txid, each in self._flight.items()
            if txid > offer.last_txid and spout in each.limits
        ]

    def _left(self, spout: str, offer: Offer) -> list[int] | None:
        """Return the unread rows of each partition that no batch in flight will take."""
        if offer.unread is None:
            return None
        ahead = self._ahead(spout, offer)
        if not offer.partitions:
            taken = sum(map(_total, ahead))
            return [max(0, sum(offer.unread.values()) - taken)]
        return [
            max(0, offer.unread.get(str(at), 0) - sum(_share(each, at) for each in ahead))
            for at in range(offer.partitions)
        ]

    def _held_by(
        self,
        asked: Asked,
        having: Mapping[str, list[int] | None],
        limit: int | None,
        by: str | None,
    ) -> str | None:
        """Return the setting that holds the rows of all spouts back; None if none does."""
        if self._waiting_since_s is None:
            self._waiting_since_s = asked.now_s
        if self._sizer and asked.pending >= TARGET_PENDING_MAX:
            return "target_commit_s"
        available = sum(sum(counts) for counts in having.values() if counts is not None)
        if (wait := self._waits(available, limit, asked.now_s)) is not None:
            return wait
        return by if limit is not None and limit < 1 else None

    def _shares(
        self, asked: Asked, having: Mapping[str, list[int] | None], limit: int | None
    ) -> dict[str, int]:
        """Return the share of each spout that takes part with rows."""
        if limit is None:
            return dict.fromkeys(having, 0)
        free = [id for id in having if not self._must_wait(id, asked.offers[id])]
        most = [limit if (counts := having[id]) is None else sum(counts) for id in free]
        shares = self._turns.shared_out(limit, dict(zip(free, most, strict=True)))
        return {id: share for id, share in shares.items() if share}

    def _by_partition(self, spout: str, share: int, left: list[int] | None, offer: Offer) -> Limit:
        """Return the limit of a spout as it gets it: its share, or those of its partitions."""
        if not offer.partitions:
            return share
        unread = left if left is not None else [share] * offer.partitions
        named = {(spout, at): count for at, count in enumerate(unread)}
        return [*self._turns.shared_out(share, named).values()]

    def _note(
        self,
        having: Mapping[str, list[int] | None],
        shares: Mapping[str, int],
        limit: int | None,
        by: str | None,
        now_s: float,
    ) -> None:
        """Note what limits a batch with rows, and whether rows wait behind it."""
        known = [sum(counts) for counts in having.values() if counts is not None]
        fits = limit is None or (sum(known) <= limit and {*shares} == {*having})
        # Or else a minimum would hold for the first batch of a backlog only.
        self._waiting_since_s = None if fits else now_s
        taken = fits and len(known) == len(having)
        rows = None if limit is None else sum(shares.values())
        self.now = {"rows_max": rows, "limited_by": None if taken else by}

    def _must_wait(self, spout: str, offer: Offer) -> bool:
        """Return whether the spout may exceed its limit, and it is not known by how much it has."""
        return not offer.divides and any(spout in each.uncounted for each in self._flight.values())

    def _limit(self, now_s: float) -> tuple[int | None, str | None]:
        limits: list[tuple[int, str]] = []
        if self._bucket:
            limits.append((math.floor(self._bucket.level(now_s) + 1e-6), "max_rows_per_second"))
        if self._sizer:
            limits.append((self._sizer.rows, "target_commit_s"))
        return min(limits, default=(None, None))

    def _waits(self, available: int, limit: int | None, now_s: float) -> str | None:
        """Return the setting because of which a batch is not yet worth planning."""
        rows_min, delay_s = self._settings.min_batch_rows, self._settings.max_batch_delay_s
        if rows_min is None or delay_s is None:
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


def limits_of(pace: object) -> dict[str, Limit] | None:
    """Return the limit of each spout in the stored pace of a batch; None if it has another form."""
    limits = pace.get("rows_max") if isinstance(pace, dict) else None
    if not isinstance(limits, dict):
        return None
    for limit in limits.values():
        counts = limit if isinstance(limit, list) else [limit]
        if any(type(each) is not int or each < 0 for each in counts):
            return None
    return limits


def _total(limit: Limit) -> int:
    return sum(limit) if isinstance(limit, list) else limit or 0


class Turns:
    """Shares out limits, and remembers who has had a remainder: nobody waits forever for a row."""

    def __init__(self) -> None:
        self._given = 0
        self._had: dict[Hashable, int] = {}

    def shared_out(self, rows: int, unread: Mapping[K, int]) -> dict[K, int]:
        """Return the share of each partition, or of each spout, in a limit.

        All shares are equal, but none exceeds the unread rows there; the rest goes to the others. A
        remainder that cannot be divided goes to those that have waited longest for one. They are
        told apart by their names: who has rows changes from batch to batch, and so do the txids at
        which a spout takes part.

        Args:
            rows: The limit.
            unread: Unread rows of each.
        """
        shares, left = dict.fromkeys(unread, 0), rows
        hungry = [each for each, count in unread.items() if count > 0]
        while hungry and left >= len(hungry):
            more = left // len(hungry)
            for each in hungry:
                taken = min(more, unread[each] - shares[each])
                shares[each] += taken
                left -= taken
            hungry = [each for each in hungry if shares[each] < unread[each]]
        hungry.sort(key=lambda each: self._had.get(each, 0))
        for each in hungry[:left]:
            self._given += 1
            self._had[each] = self._given
            shares[each] += 1
        return shares


def _share(limit: Limit, partition: int) -> int:
    return limit[partition] if isinstance(limit, list) and partition < len(limit) else 0


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
