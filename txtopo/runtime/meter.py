"""ProgressMeter: makes a Progress of each commit."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from txtopo.attempt import TransactionAttempt
from txtopo.runtime.progress import Progress

# Enough commits for a steady rate, few enough to follow a change within seconds.
RATE_COMMITS = 20


class ProgressMeter:
    """Counts what one run has committed."""

    def __init__(self, started_s: float) -> None:
        self._rows_total = 0
        self._failures: dict[int, int] = {}
        self._failed = 0
        self._commits: deque[tuple[float, int]] = deque([(started_s, 0)], maxlen=RATE_COMMITS + 1)

    def failed(self, txid: int) -> None:
        """Count a failed attempt."""
        self._failed += 1
        self._failures[txid] = self._failures.get(txid, 0) + 1

    def committed(
        self,
        attempt: TransactionAttempt,
        *,
        rows: int,
        now_s: float,
        timestamp_s: float,
        pending: Mapping[int, str],
        lag: Mapping[str, int],
        lost: Mapping[str, str],
        tuples: Mapping[str, int],
        processing_s: float,
        commit_s: float,
    ) -> Progress:
        """Count a commit and return the progress after it."""
        self._rows_total += rows
        self._commits.append((now_s, self._rows_total))
        first_s, first_rows = self._commits[0]
        seconds = now_s - first_s
        return Progress(
            attempt=attempt,
            timestamp_s=timestamp_s,
            rows=rows,
            rows_total=self._rows_total,
            rows_per_second=(self._rows_total - first_rows) / seconds if seconds > 0 else 0.0,
            attempts=1 + self._failures.pop(attempt.txid, 0),
            attempts_failed=self._failed,
            pending=pending,
            lag=lag,
            lost=lost,
            tuples=tuples,
            processing_s=processing_s,
            commit_s=commit_s,
        )
