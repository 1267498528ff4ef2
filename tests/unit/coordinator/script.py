"""A scripted runtime: it does what the coordinator asks and keeps what is durable.

The spout's answer is the next of ``answers``, else ``s``: ready with this metadata, or not ready
when it is None. What is started is answered by the test.
"""

from __future__ import annotations

from dataclasses import replace

from tests.harness.metadata import CUTTING, of_one, with_cut
from txtopo.attempt import TransactionAttempt
from txtopo.coordinator import (
    Coordinator,
    CoordinatorSettings,
    Phase,
    Transaction,
)
from txtopo.coordinator.protocol import (
    Action,
    Advance,
    Committed,
    Event,
    Failed,
    Failure,
    FailureKind,
    NotReady,
    PlanBatch,
    Planned,
    Processed,
    Resumed,
    RunFailed,
    StartCommit,
    StartProcessing,
    StoreBatches,
    Tick,
)
from txtopo.errors import FailedException
from txtopo.metadata import BatchMetadata, Json

COUNTED = Failure(FailureKind.COUNTED, FailedException("no"), "bolt")
INFRASTRUCTURE = Failure(FailureKind.INFRASTRUCTURE, ConnectionError("gone"))
FATAL = Failure(FailureKind.FATAL, ValueError("bug"), "bolt")

# Storm's checks: four pending, each batch a job of its own.
STORM = CoordinatorSettings(window_txids=4, run_txids_max=1, jobs_max=4, attempts_max=99)
OPAQUE = replace(STORM, repeatable=False, cutting_spouts=CUTTING, jobs_max=1, run_txids_max=1)


def ends_of(attempts: tuple[TransactionAttempt, ...]) -> tuple[int, int]:
    return attempts[0].txid, attempts[-1].txid


class Script:
    """Does what a coordinator asks, and notes it.

    ``B1 10`` is a batch, ``C1`` a commit, ``C1-3`` that of a group.
    """

    def __init__(self, settings: CoordinatorSettings, s: Json = None) -> None:
        self.settings = settings
        self.s = s
        self.answers: list[Json] = []
        self.stored: dict[int, BatchMetadata] = {}
        self.stored_attempts: dict[int, TransactionAttempt] = {}
        self.durable_current = 1
        self.writes = 0
        self.epoch = 0
        self.restart()

    def restart(self, pinned: int | None = None) -> list[str]:
        """Start the next coordinator on what is durable, and on what the states hold."""
        self.epoch += 1
        self.coordinator = Coordinator(
            self.settings,
            epoch=self.epoch,
            current=self.durable_current,
            stored=self.stored,
            pinned=pinned,
        )
        self.starts: list[StartProcessing] = []
        return self._perform(self.coordinator.start())

    def tell(self, *events: Event) -> list[str]:
        """Give events, do what is asked, and return what was asked."""
        return [line for event in events for line in self._perform(self.coordinator.handle(event))]

    def tick(self) -> list[str]:
        return self.tell(Tick())

    def ack(self, txid: int, cut: dict[str, Json] | None = None) -> list[str]:
        """Acknowledge the phase that a txid is in."""
        transaction = self.transaction(txid)
        if transaction.phase is Phase.COMMITTING:
            group = [t for t in self.coordinator.transactions if t.phase is Phase.COMMITTING]
            return self.tell(Committed(tuple(each.attempt for each in group)))
        metadata = with_cut(transaction.metadata, cut)
        return self.tell(Processed((transaction.attempt,), (metadata,)))

    def fail(self, txid: int, failure: Failure = COUNTED) -> list[str]:
        """Fail a txid; after a counted failure, let its pause pass."""
        return self._after_its_pause(txid, Failed(self.attempt(txid), failure))

    def fail_run(self, *txids: int, failure: Failure = COUNTED) -> list[str]:
        """Fail a run; after a counted failure, let its pause pass."""
        attempts = tuple(self.attempt(txid) for txid in txids)
        return self._after_its_pause(txids[0], RunFailed(attempts, failure))

    def _after_its_pause(self, txid: int, event: Failed | RunFailed) -> list[str]:
        lines = self.tell(event)
        if event.failure.kind is FailureKind.COUNTED and "Backoff" in lines:
            lines.remove("Backoff")
            lines += self.tell(Resumed(txid))
        return lines

    def commit(self, txid: int, cut: dict[str, Json] | None = None) -> list[str]:
        """Take a txid through both phases."""
        return [*self.ack(txid, cut), *self.ack(txid)]

    def transaction(self, txid: int) -> Transaction:
        return next(t for t in self.coordinator.transactions if t.txid == txid)

    def attempt(self, txid: int) -> TransactionAttempt:
        return self.transaction(txid).attempt

    def phases(self) -> dict[int, Phase]:
        return {t.txid: t.phase for t in self.coordinator.transactions}

    def _perform(self, actions: list[Action]) -> list[str]:
        lines = []
        for action in actions:
            lines += self._do(action)
        return lines

    def _do(self, action: Action) -> list[str]:
        match action:
            case PlanBatch(attempt):
                return self.tell(self._answer(attempt))
            case StoreBatches(attempts, metadata):
                self.writes += 1
                txids = [attempt.txid for attempt in attempts]
                self.stored.update(zip(txids, metadata, strict=True))
                self.stored_attempts.update(zip(txids, attempts, strict=True))
                return []
            case Advance(current):
                self.writes += 1
                self.durable_current = current
                for txid in [txid for txid in self.stored if txid < current - 1]:
                    del self.stored[txid]
                return []
            case StartProcessing():
                self.starts.append(action)
                pairs = zip(action.attempts, action.metadata, strict=True)
                return [" ".join(f"B{a.txid} {m.of('spout').planned}" for a, m in pairs)]
            case StartCommit(attempts):
                return [f"C{'-'.join(str(txid) for txid in sorted({*ends_of(attempts)}))}"]
            case other:
                return [type(other).__name__]

    def _answer(self, attempt: TransactionAttempt) -> Event:
        planned = self.answers.pop(0) if self.answers else self.s
        return NotReady(attempt) if planned is None else Planned(attempt, of_one(planned))
