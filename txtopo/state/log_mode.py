"""Mode ``log``: which rows are folded next, how far sums may grow, and background work.

Folds
-----
The newest segments are folded together, one tier at a time as in a log-structured merge tree:
sixteen segments of about one size become one segment of the next tier. So each row is rewritten
once per tier, and the cost of a commit does not grow with the number of txids.

Sixteen segments that share keys fold into a segment less than sixteen times as large. So a segment
with more than four times the rows of the newest ones ends their tier. With a factor of sixteen, 16
segments of 100 keys, which fold into 1,597 rows, would be folded with everything before them each
time.

Sums
----
A commit appends to a log without reading it, so it cannot see that a sum no longer fits its column.
But no key's sum is further from zero than the sum, over all batches, of the largest value in each
batch. A store has to add up the rows only when that bound reaches the limit of the column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from typing import TYPE_CHECKING, Any, Protocol

from txtopo.retries import warn_of_retry
from txtopo.state.backend import StateTable

if TYPE_CHECKING:
    import pyarrow as pa

SEGMENTS_OF_A_TIER = 16

_HIGHER_TIER = SEGMENTS_OF_A_TIER // 4
"""A segment with more than this many times the rows of the newest ones is in a higher tier."""

_SEGMENTS_MAX = 4 * SEGMENTS_OF_A_TIER
"""More than three tiers have. Needed because alternating small and large batches form no tier."""


class LogSegment(Protocol):
    """Rows of a log that were written or folded together."""

    @property
    def first_txid(self) -> int:
        """Smallest txid of the segment's rows."""
        ...

    @property
    def last_txid(self) -> int:
        """Largest txid of the segment's rows."""
        ...

    @property
    def rows(self) -> int:
        """Number of rows."""
        ...


def span_to_fold(segments: Sequence[LogSegment], txid: int) -> tuple[int, int] | None:
    """Return the first and last txid of the rows to fold now, or None.

    Args:
        segments: The segments of the log, in the order of their txids.
        txid: The ledger's txid. Its rows are not folded, so that they can be undone.
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
    """Return the newest segments to fold when varying sizes form no tiers."""
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
    """Return the smallest whole number that is too large, for each column that is an exact sum."""
    if not state.aggregates:
        return {}  # opened by a reader, without its declaration
    pairs = zip(state.value, state.aggregates, strict=True)
    return {
        field.name: _limit(field.type)
        for field, aggregate in pairs
        if aggregate.operator == "add" and is_exact(field.type)
    }


def is_exact(kind: str) -> bool:
    """Return whether sums of a type are exact, so that a sum may be too large for its column."""
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
            first_bounds: Returns bounds of the log with *rows*, cheaply. Called once, the first
                time.
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
        # A NaN is not below any limit.
        if not all(bounds[name] < limit * _MARGIN for name, limit in self._limits.items()):
            # A sum may be larger by *added* after these rows are taken back, by a redo or because
            # their transaction fails.
            bounds = {name: bound + added[name] for name, bound in exact_bounds().items()}
        self._bounds = bounds


def _limit(kind: str) -> int:
    if kind in _BITS:
        return int(2 ** _BITS[kind])
    precision, scale = (int(part) for part in kind[8:-1].split(","))
    return int(10 ** (precision - scale))


SKIPPED_MAX = 1024
"""After n failures in a row, 2^n submissions are dropped, but at most this many."""


class BackgroundTask:
    """Runs one piece of work at a time, such as a fold, in a thread while commits continue.

    Work that is submitted while other work runs is dropped; a later commit submits it again. An
    error is logged, and the next submissions are dropped, more of them after each failure in a row.
    An error never ends a run: readers see the same rows, and if the store cannot be written,
    commits fail.

    Args:
        what: The subject of the work, for the log.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._closed = Event()
        self._failures = self._skip = 0
        self._pool: ThreadPoolExecutor | None = None
        self._running: Future[None] | None = None

    def submit(self, work: Callable[[], None]) -> None:
        """Start *work*, unless other work is running or this is closed."""
        if self._closed.is_set() or (self._running is not None and not self._running.done()):
            return
        if self._skip:
            self._skip -= 1
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="txtopo-background")
        try:
            self._running = self._pool.submit(self._guarded, work)
        except RuntimeError:
            return  # closed meanwhile

    @property
    def hurries(self) -> bool:
        """Whether a caller of :meth:`close` waits for the work."""
        return self._closed.is_set()

    def pause(self, seconds: float) -> None:
        """Leave the machine to commits for a while; the work calls this between its parts."""
        self._closed.wait(seconds)

    def close(self) -> None:
        """Wait for the running work, and start no more."""
        self._closed.set()
        if self._pool is not None:
            self._pool.shutdown()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - nobody waits for it
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
