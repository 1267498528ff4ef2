"""TxidTimeline: the last txids of a run, and when each of their attempts passed each phase.

It is part of the :class:`~txtopo.ui.board.Board`, which holds a lock around each call.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from txtopo.attempt import TransactionAttempt
from txtopo.runtime.progress import (
    BatchesAbandoned,
    BatchesProcessed,
    BatchPlanned,
    CommitStarted,
    ProcessingStarted,
)

TXIDS_MAX = 1_000
ATTEMPTS_MAX = 20

# The coordinator's name for each phase of an attempt: after a failure, a txid is still planned, and
# waits.
_COORDINATOR_PHASE = {"failed": "PLANNED", "abandoned": "PLANNED"}


class AttemptRecord:
    """One attempt: its phase, and when it entered each phase. Times are seconds since 1970."""

    __slots__ = (
        "abandoned_with",
        "attempt",
        "committing_at_s",
        "ended_at_s",
        "failure",
        "job",
        "phase",
        "planned_at_s",
        "processed_at_s",
        "processing_at_s",
        "row",
    )

    def __init__(self, row: TxidRecord, attempt: TransactionAttempt) -> None:
        self.row = row
        self.attempt = attempt
        self.phase = "planned"
        self.planned_at_s: float | None = None
        self.processing_at_s: float | None = None
        self.processed_at_s: float | None = None
        self.committing_at_s: float | None = None
        self.ended_at_s: float | None = None
        self.job: str | None = None
        self.failure: dict[str, Any] | None = None
        self.abandoned_with: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the attempt as :meth:`~txtopo.ui.board.Board.txids` shows it."""
        return {
            "attempt": self.attempt.attempt,
            "epoch": self.attempt.epoch,
            "phase": self.phase,
            "planned_at_s": self.planned_at_s,
            "processing_at_s": self.processing_at_s,
            "processed_at_s": self.processed_at_s,
            "committing_at_s": self.committing_at_s,
            "ended_at_s": self.ended_at_s,
            "job": self.job,
            "failure": self.failure,
            "abandoned_with": self.abandoned_with,
        }


class TxidRecord:
    """One txid with its attempts; the first one and the last ones are kept."""

    __slots__ = ("attempts", "group", "plan_s", "processed_before", "rows", "txid", "version")

    def __init__(self, txid: int) -> None:
        self.txid = txid
        self.rows: int | None = None
        self.group: tuple[int, int] | None = None
        self.plan_s: float | None = None
        self.attempts: list[AttemptRecord] = []
        self.processed_before = False
        self.version = 0

    def to_json(self) -> dict[str, Any]:
        """Return the txid as :meth:`~txtopo.ui.board.Board.txids` shows it."""
        return {
            "txid": self.txid,
            "rows": self.rows,
            "plan_s": self.plan_s,
            "group": None if self.group is None else list(self.group),
            "attempts": [each.to_json() for each in self.attempts],
        }


class TxidTimeline:
    """The last :data:`TXIDS_MAX` txids, and the attempts that are in flight."""

    def __init__(self) -> None:
        self._rows: dict[int, TxidRecord] = {}
        # Separate from the rows, since more txids may be in flight than rows are kept.
        self._open: dict[int, AttemptRecord] = {}
        self.version = 0
        self.replayed_txids = self.run_txids = 0

    def rows(self, last: int) -> list[TxidRecord]:
        """Return the newest rows, the newest last."""
        rows = sorted(self._rows.values(), key=lambda row: row.txid)
        return rows[max(0, len(rows) - last) :]

    def phases(self) -> dict[str, int]:
        """Return how many txids in flight are in each phase, by the coordinator's names."""
        found = Counter(each.phase for each in self._open.values())
        phases: Counter[str] = Counter()
        for phase, count in found.items():
            phases[_COORDINATOR_PHASE.get(phase, phase.upper())] += count
        return dict(phases)

    def planned(self, change: BatchPlanned, now_s: float) -> None:
        """Record a new txid."""
        record = self._record(change.attempt)
        record.planned_at_s = now_s
        record.row.plan_s = change.plan_s

    def processing(self, change: ProcessingStarted, now_s: float) -> None:
        """Record that a job has started."""
        self.run_txids = len(change.attempts)
        for attempt in change.attempts:
            record = self._record(attempt)
            record.phase, record.job, record.processing_at_s = "processing", change.tag, now_s
            self.replayed_txids += record.row.processed_before
            record.row.processed_before = True

    def processed(self, change: BatchesProcessed, now_s: float) -> None:
        """Record that attempts wait for their turn."""
        for attempt in change.attempts:
            record = self._record(attempt)
            record.phase, record.processed_at_s = "processed", now_s

    def committing(self, change: CommitStarted, now_s: float) -> None:
        """Record that a commit has begun."""
        record = self._record(change.attempt)
        record.phase, record.committing_at_s = "committing", now_s

    def committed(
        self, attempt: TransactionAttempt, rows: int, group: tuple[int, int], now_s: float
    ) -> tuple[float | None, float | None]:
        """Record a commit; return how long its plan took and how long it waited for its turn."""
        record = self._record(attempt)
        record.phase, record.ended_at_s = "committed", now_s
        record.row.rows, record.row.group = rows, _several(group)
        self._open.pop(attempt.txid, None)
        ready_s, begun_s = record.processed_at_s, record.committing_at_s
        if ready_s is None or begun_s is None:
            return record.row.plan_s, None
        return record.row.plan_s, max(0.0, begun_s - ready_s)  # the clock may be set back

    def failed(
        self,
        first: TransactionAttempt,
        batches: int,
        failure: dict[str, Any],
        now_s: float,
        *,
        again: bool,
    ) -> None:
        """Record that consecutive attempts, *first* and those after it, failed together."""
        self._record(first)
        for txid in range(first.txid, first.txid + batches):
            if record := self._open.get(txid):
                record.failure = failure
                self._end(record, "failed", now_s)
                if not again:
                    del self._open[txid]

    def abandoned(self, change: BatchesAbandoned, now_s: float) -> None:
        """Record attempts that a failure dropped. They are repeated if the failed attempt is."""
        failed = None if change.failed is None else change.failed.txid
        again = failed in self._open
        for attempt in change.attempts:
            record = self._record(attempt)
            record.abandoned_with = failed
            self._end(record, "abandoned", now_s)
            if not again:
                del self._open[attempt.txid]

    def end_term(self, adopted: range, now_s: float) -> None:
        """Record that nothing is in flight any longer: a term has begun or ended.

        Args:
            adopted: The txids whose commit had reached every state.
            now_s: The time.
        """
        for record in self._open.values():
            if record.attempt.txid in adopted:
                record.row.group = _several((adopted[0], adopted[-1]))
                self._end(record, "committed", now_s)
            elif record.ended_at_s is None:
                self._end(record, "abandoned", now_s)
        self._open.clear()

    def _end(self, record: AttemptRecord, phase: str, now_s: float) -> None:
        record.phase, record.ended_at_s, record.row.version = phase, now_s, self.version

    def _record(self, attempt: TransactionAttempt) -> AttemptRecord:
        """Return the record of an attempt, creating it if needed, and mark its row as changed."""
        record = self._open.get(attempt.txid)
        # Usually the same object; comparing two objects is slower.
        if record is None or (record.attempt is not attempt and record.attempt != attempt):
            row = self._row(attempt.txid) if record is None else record.row
            record = self._open[attempt.txid] = AttemptRecord(row, attempt)
            row.attempts.append(record)
            if len(row.attempts) > ATTEMPTS_MAX:
                del row.attempts[1]
        record.row.version = self.version
        return record

    def _row(self, txid: int) -> TxidRecord:
        row = self._rows.get(txid)
        if row is None:
            row = self._rows[txid] = TxidRecord(txid)
            if len(self._rows) > TXIDS_MAX:
                del self._rows[next(iter(self._rows))]
        return row


def _several(group: tuple[int, int]) -> tuple[int, int] | None:
    """Return first and last txid of a group commit; None for a commit of one txid."""
    return group if group[0] < group[1] else None
