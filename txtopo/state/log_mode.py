"""Which part of a log is folded next: pure, for every store that keeps states in mode ``log``.

The newest segments are folded together, a tier at a time as in a log-structured merge tree: sixteen
of about one size become one of the next. So a row is rewritten once a tier, and what a commit costs
does not grow with the number of txids.

Sixteen segments that share keys become less than sixteen times one of them. So what ends a tier is
a segment a quarter of that size: else 16 of 100 keys, which make 1,597, would be folded with all
that lies before them, again and again.

How far the sums of a log may grow: a log does not read what it adds to.

No key's sum is further from zero than the sum, over all batches, of the largest value in each. Only
when that bound reaches the limit of the column does a store have to add up the rows themselves.

Work that a store does for itself beside the commits: folds, and the end of old files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

from txtopo.retries import warn_of_retry
from txtopo.state.backend import StateTable

if TYPE_CHECKING:
    import pyarrow as pa

SEGMENTS_OF_A_TIER = 16

_HIGHER_TIER = SEGMENTS_OF_A_TIER // 4
"""A segment with more than so many times the rows of the newest ones is of a higher tier."""

_SEGMENTS_MAX = 4 * SEGMENTS_OF_A_TIER
"""More than three tiers have. Batches that are small and large in turn would never be a tier."""


class LogSegment(Protocol):
    """Rows of a log that were written, or folded, together."""

    @property
    def first_txid(self) -> int:
        """Smallest txid of its rows."""
        ...

    @property
    def last_txid(self) -> int:
        """Largest txid of its rows."""
        ...

    @property
    def rows(self) -> int:
        """How many it has."""
        ...


def span_to_fold(segments: Sequence[LogSegment], txid: int) -> tuple[int, int] | None:
    """Return the first and last txid to be folded now, or None.

    Args:
        segments: The segments of the log, in the order of their txids.
        txid: The ledger's txid, which stays as it is, so that it can be undone.
    """
    older = [each for each in reversed(segments) if each.last_txid < txid]
    newest: list[LogSegment] = []
    for segment in older:
        # A segment of a higher tier ends the tier of the newest ones.
        if newest and segment.rows > _HIGHER_TIER * max(each.rows for each in newest):
            break
        newest.append(segment)
    if len(newest) < SEGMENTS_OF_A_TIER:
        if len(older) <= _SEGMENTS_MAX:
            return None
        newest = _whatever_is_newest(older)
    return min(each.first_txid for each in newest), newest[0].last_txid


def _whatever_is_newest(older: Sequence[LogSegment]) -> list[LogSegment]:
    """Return some segments where sizes that change all the time make no tiers."""
    newest = list(older[:SEGMENTS_OF_A_TIER])
    for segment in older[SEGMENTS_OF_A_TIER:]:
        if segment.rows > _HIGHER_TIER * sum(each.rows for each in newest):
            break
        newest.append(segment)
    return newest


# Bounds are floats, whereas limits have up to 38 digits.
_MARGIN = 0.99

_BITS = {"byte": 7, "short": 15, "int": 31, "long": 63}


def limited_sums(state: StateTable) -> dict[str, int]:
    """Return the first whole number that is too large, by the value columns that are exact sums."""
    if not state.aggregates:
        return {}  # it is opened by a reader, who knows nothing of them
    pairs = zip(state.value, state.aggregates, strict=True)
    return {
        field.name: _limit(field.type)
        for field, aggregate in pairs
        if aggregate.operator == "add" and is_exact(field.type)
    }


def is_exact(kind: str) -> bool:
    """Whether a sum of a type may be too large for it, and is not rounded instead."""
    return kind in _BITS or kind.startswith("decimal")


def largest(column: pa.ChunkedArray) -> float:
    """Return the largest distance from zero of the values of a column."""
    import pyarrow.compute as pc

    found: dict[str, Any] = pc.min_max(column).as_py()
    return max((abs(float(value)) for value in found.values() if value is not None), default=0.0)


class SumBounds:
    """Bounds of the sums of a state: how far from zero the sum of any key may be.

    Args:
        limits: By value column, the first sum that does not fit.
    """

    def __init__(self, limits: Mapping[str, float]) -> None:
        self._limits = limits
        self._bounds: dict[str, float] | None = None

    def check(
        self,
        rows: pa.Table,
        first_bounds: Callable[[], dict[str, float]],
        exact_bounds: Callable[[], dict[str, float]],
    ) -> None:
        """Check that the sums fit with the rows of one more txid.

        Args:
            rows: The rows that are added.
            first_bounds: Returns bounds of the log with *rows*, cheaply. Called once, at first.
            exact_bounds: Adds up the log with *rows* and returns the largest sums. Raises if one
                does not fit. Called when the bounds reach a limit.
        """
        if not self._limits or not rows.num_rows:
            return
        added = {name: largest(rows.column(name)) for name in self._limits}
        if self._bounds is None:
            bounds = first_bounds()
        else:
            bounds = {name: bound + added[name] for name, bound in self._bounds.items()}
        # A NaN is below no limit.
        if not all(bounds[name] < limit * _MARGIN for name, limit in self._limits.items()):
            # A sum may be larger by *added* once these rows are taken back, by a redo or because
            # their transaction fails.
            bounds = {name: bound + added[name] for name, bound in exact_bounds().items()}
        self._bounds = bounds


def _limit(kind: str) -> int:
    if kind in _BITS:
        return int(2 ** _BITS[kind])
    precision, scale = (int(part) for part in kind[8:-1].split(","))
    return int(10 ** (precision - scale))


SKIPPED_MAX = 1024
"""After n failures in a row the next 2^n submissions are dropped, and at most so many."""


class BackgroundTask:
    """One thread for one piece of work at a time; what comes meanwhile is dropped.

    What fails is logged and dropped as well: readers see the same, and a later commit asks again,
    the later the more often it has failed in a row. It ends no run, whatever it failed for: the
    commits are the judges of a store that refuses to be written.

    Args:
        what: What is tidied, for the log.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._closed = False
        self._failures = self._skip = 0
        self._pool: ThreadPoolExecutor | None = None
        self._running: Future[None] | None = None

    def submit(self, work: Callable[[], None]) -> None:
        """Begin with *work*, unless something is under way or the lane is closed."""
        if self._closed or (self._running is not None and not self._running.done()):
            return
        if self._skip:
            self._skip -= 1
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="txtopo-lane")
        try:
            self._running = self._pool.submit(self._guarded, work)
        except RuntimeError:
            return  # it was closed meanwhile

    def close(self) -> None:
        """Wait for what is under way, and take no more."""
        self._closed = True
        if self._pool is not None:
            self._pool.shutdown()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - nobody waits for it, and all of it may fail
            self._failures += 1
            self._skip = min(2**self._failures, SKIPPED_MAX)
            warn_of_retry(
                f"to tidy {self._what}, of which readers see the same,",
                error,
                topology=None,
                failures=self._failures,
            )
        else:
            self._failures = 0
