"""A model of all that surrounds a coordinator: a source, an executor, a store, and bad luck.

The source is the numbers below ``RECORDS``; a batch is a range of them. Whatever happens, the store
must hold each record once, in txid order. All chance comes from one seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from tests.harness.metadata import CUTTING, of_one, with_cut
from txtopo.attempt import TransactionAttempt, group_of
from txtopo.coordinator import Coordinator, CoordinatorSettings
from txtopo.coordinator.protocol import (
    Action,
    Activated,
    Advance,
    Backoff,
    Cancel,
    CommitShortened,
    Committed,
    Deactivated,
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
    Stop,
    StopRequested,
    StoreBatches,
    Tick,
)
from txtopo.errors import FailedException
from txtopo.metadata import BatchMetadata

RECORDS = 12
FAILURES = [
    *[Failure(FailureKind.COUNTED, FailedException("no"))] * 4,
    *[Failure(FailureKind.INFRASTRUCTURE, ConnectionError("gone"))] * 4,
    Failure(FailureKind.FATAL, ValueError("bug")),
]
Work = PlanBatch | StartProcessing | StartCommit
Range = tuple[int, int]


@dataclass
class Store:
    """What an atomic store does with a commit: the ledger decides."""

    ledger: tuple[int, int, int] = (0, 0, 0)
    ranges: list[Range] = field(default_factory=list)
    group: int = 0
    """The number of batches that were written last, in one write."""

    def write(
        self, attempt: TransactionAttempt, batches: Sequence[Range], *, repeatable: bool
    ) -> None:
        held = len(self.ranges)
        if attempt.order < self.ledger or attempt.txid < held:
            return
        assert attempt.first_txid <= held + 1, "commits leave no gap"
        if attempt.first_txid <= held:
            bounds = (held - self.group + 1, held)
            assert bounds == (attempt.first_txid, attempt.txid), "a redo has the same bounds"
            before = self.ranges[-self.group :]
            assert not repeatable or before == batches, "a replay brings the same batches"
            del self.ranges[-self.group :]
        for batch in batches:
            begin = self.ranges[-1][1] if self.ranges else 0
            assert batch[0] == begin, f"a batch of {attempt} starts at {batch[0]}, not at {begin}"
            self.ranges.append(batch)
        self.ledger, self.group = attempt.order, len(batches)


class World:
    """Runs coordinators, one after the other, on one store and one transactional state."""

    def __init__(self, settings: CoordinatorSettings, seed: int) -> None:
        self.settings = settings
        self.random = Random(seed)
        self.store = Store()
        self.stored: dict[int, BatchMetadata] = {}
        self.owners: dict[int, TransactionAttempt] = {}
        self.current = 1
        self.epoch = 0
        self.healthy = False
        self.restart()

    def restart(self) -> None:
        """Continue as after a kill: what is durable is left, and work that nobody waits for."""
        self.epoch += 1
        self.work: list[Work] = []
        self.late: list[Event] = []
        self.batches: dict[TransactionAttempt, Range] = {}
        self.pauses: list[int] = []
        held = len(self.store.ranges)
        self.coordinator = Coordinator(
            self.settings,
            epoch=self.epoch,
            current=self.current,
            stored=self.stored,
            pinned=held if held >= self.current else None,
        )
        self.perform(self.coordinator.start())

    def tell(self, event: Event) -> None:
        if isinstance(event, Planned | NotReady | Processed | Committed | Failed | RunFailed):
            self.late.append(event)
        self.perform(self.coordinator.handle(event))

    def perform(self, actions: list[Action]) -> None:
        epoch = self.epoch
        for action in actions:
            if not self.healthy and self.random.random() < 0.01:
                self.restart()
            if self.epoch != epoch:
                return
            self.do(action)

    def do(self, action: Action) -> None:
        match action:
            case StoreBatches(attempts, metadata):
                assert list(attempts) == sorted(attempts), "what is left of a crash is a prefix"
                for attempt, batch in zip(attempts, metadata, strict=True):
                    self.stored[attempt.txid], self.owners[attempt.txid] = batch, attempt
            case Advance(current):
                assert self.current < current <= self.current + self.settings.group_txids_max
                assert len(self.store.ranges) >= self.current, "advanced before the store wrote"
                self.current = current
                self.stored = {t: m for t, m in self.stored.items() if t >= current - 1}
                assert current - 1 in self.stored
            case PlanBatch() | StartProcessing() | StartCommit():
                self.work.append(action)
            case Cancel(attempts):
                self.work = [w for w in self.work if not self.cancelled(w, set(attempts))]
            case Backoff(txid):
                self.pauses = [*(each for each in self.pauses if each != txid), txid]
            case Stop():
                self.restart()

    def cancelled(self, work: Work, attempts: set[TransactionAttempt]) -> bool:
        """A cancelled commit may still write, and late answers may still come."""
        if isinstance(work, PlanBatch):
            return False
        if not attempts & set(work.attempts):
            return False
        if isinstance(work, StartCommit) and self.random.random() < 0.5:
            self.write(work.attempts)
        return True

    def step(self) -> None:
        """Let one thing happen, good or bad."""
        luck = self.random.random()
        if luck < 0.01:
            self.restart()
        elif luck < 0.02:
            self.tell(StopRequested())
        elif luck < 0.05:
            self.tell(Activated() if self.random.random() < 0.7 else Deactivated())
        elif luck < 0.2 and self.late:
            self.tell(self.random.choice(self.late))
        elif luck < 0.3 or not self.work:
            self.wait()
        else:
            self.answer(self.work.pop(self.random.randrange(len(self.work))))

    def wait(self) -> None:
        """Time passes."""
        if self.pauses and (self.healthy or self.random.random() < 0.7):
            self.tell(Resumed(self.pauses.pop(self.random.randrange(len(self.pauses)))))
        else:
            self.tell(Tick())

    def heal(self) -> None:
        """Let everything go well until all is committed."""
        self.healthy = True
        self.tell(Activated())
        for _ in range(500):
            done = bool(self.store.ranges) and self.store.ranges[-1][1] == RECORDS
            if done and not self.coordinator.transactions and not self.work:
                return
            if self.work:
                self.answer(self.work.pop(0))
            else:
                self.wait()
        raise AssertionError(f"stuck: {self.coordinator.transactions}")

    def answer(self, work: Work) -> None:
        bad = not self.healthy and self.random.random() < 0.25
        failure = self.random.choice(FAILURES)
        match work:
            case PlanBatch(attempt):
                self.tell(Failed(attempt, failure) if bad else self.plan(work))
            case StartCommit():
                self.commit(work, failure if bad else None)
            case StartProcessing():
                self.process(work, failure if bad else None)

    def plan(self, work: PlanBatch) -> Event:
        begin = 0 if work.last is None else self.end_of(work.last)
        if begin >= RECORDS or (not self.healthy and self.random.random() < 0.2):
            return NotReady(work.attempt)
        if self.settings.cutting_spouts:
            return Planned(work.attempt, of_one(1))
        assert work.last_txid == work.attempt.txid - 1
        return Planned(work.attempt, of_one([begin, self.somewhere(begin)]))

    def process(self, work: StartProcessing, failure: Failure | None) -> None:
        """Tell that a leading part is processed, and what came of the rest."""
        count = len(work.attempts)
        if failure and self.random.random() < 0.5:
            self.tell(RunFailed(work.attempts, failure))
            return
        good = self.random.randrange(count) if failure else count
        done = self.cut(work)[:good]
        if done:
            self.tell(Processed(work.attempts[:good], tuple(done)))
        if failure:
            self.tell(Failed(work.attempts[good], failure))

    def commit(self, work: StartCommit, failure: Failure | None) -> None:
        """Commit a group, or a leading part, or fail before or after the write."""
        attempts = work.attempts
        if failure and not work.pinned and self.random.random() < 0.3:
            self.fail_a_batch(attempts, failure)
        elif failure:
            if self.random.random() < 0.5:
                self.write(attempts)
            failed = self.random.choice(attempts) if work.pinned else attempts[0]
            self.tell(Failed(failed, failure, unsent=work.pinned and self.random.random() < 0.5))
        else:
            if not (work.pinned or self.healthy) and self.random.random() < 0.3:
                attempts = attempts[: 1 + self.random.randrange(len(attempts))]
            self.write(attempts)
            self.shorten(work.attempts[len(attempts) :])
            self.tell(Committed(attempts))

    def fail_a_batch(self, attempts: tuple[TransactionAttempt, ...], failure: Failure) -> None:
        """The user's code fails in one batch of a group; those before it are committed."""
        good = self.random.randrange(len(attempts))
        if good:
            self.write(attempts[:good])
        self.shorten(attempts[max(good, 1) :])
        self.tell(Failed(attempts[good], failure, unsent=True))
        if good:
            self.tell(Committed(attempts[:good]))

    def shorten(self, attempts: tuple[TransactionAttempt, ...]) -> None:
        if attempts:
            self.perform(self.coordinator.handle(CommitShortened(attempts)))

    def cut(self, work: StartProcessing) -> list[BatchMetadata]:
        position = 0 if work.previous is None else self.end_of(work.previous)
        done = []
        for attempt, metadata in zip(work.attempts, work.metadata, strict=True):
            if self.settings.cutting_spouts:
                known = metadata.is_cut(CUTTING)
                end = self.end_of(metadata) if known else self.somewhere(position)
                metadata = with_cut(metadata, {"0": end})
            self.batches[attempt] = (position, self.end_of(metadata))
            position = self.end_of(metadata)
            done.append(metadata)
        return done

    def write(self, attempts: tuple[TransactionAttempt, ...]) -> None:
        for attempt in attempts:
            assert self.owners[attempt.txid] == attempt, "stored before commit work"
        batches = [self.batches[attempt] for attempt in attempts]
        self.store.write(group_of(attempts), batches, repeatable=self.settings.repeatable)

    def end_of(self, metadata: BatchMetadata) -> int:
        share = metadata.of("spout")
        if self.settings.cutting_spouts:
            assert share.cut is not None
            position = share.cut["0"]
        else:
            assert isinstance(share.planned, list)
            position = share.planned[1]
        assert isinstance(position, int)
        return position

    def somewhere(self, begin: int) -> int:
        return min(RECORDS, begin + self.random.randrange(3))
