"""Transaction: where one txid stands."""

from __future__ import annotations

from dataclasses import dataclass, replace

from txtopo.attempt import TransactionAttempt
from txtopo.coordinator.events import Failed
from txtopo.coordinator.phases import AFTER, Phase
from txtopo.metadata import BatchMetadata

NOTHING_KNOWN = BatchMetadata()


@dataclass(frozen=True, slots=True)
class Transaction:
    """Where one txid stands. A value: the coordinator replaces it.

    Attributes:
        attempt: Its current attempt.
        phase: Its phase.
        metadata: What is known of its batch.
        durable: Whether *metadata* is stored with this attempt.
        failures: Counted failures, over all its attempts.
        alone: It must have a job of its own.
        run: First txid of the run that processes it or did; 0 for none.
    """

    attempt: TransactionAttempt
    phase: Phase = Phase.UNPLANNED
    metadata: BatchMetadata = NOTHING_KNOWN
    durable: bool = False
    failures: int = 0
    alone: bool = False
    run: int = 0

    @property
    def txid(self) -> int:
        """Number of the batch."""
        return self.attempt.txid

    def moved(self, cause: type) -> Transaction:
        """Return it in the phase that *cause*, an event or action class, leads to."""
        return replace(self, phase=AFTER[self.phase, cause])

    def with_result(self, result: BatchMetadata) -> Transaction:
        """Return it with where its emitters ended and what they brought, maybe to be stored."""
        metadata = replace(self.metadata, cut=result.cut, content=result.content)
        return replace(self, metadata=metadata, durable=self.durable and metadata == self.metadata)

    def again(self, *, repeatable: bool) -> Transaction:
        """Return its next attempt. What was planned stays; an opaque batch is cut anew."""
        attempt = replace(self.attempt, attempt=self.attempt.attempt + 1)
        metadata = self.metadata if repeatable else replace(self.metadata, cut=None)
        # One that only waits for a job cannot fail, but is abandoned with those before it.
        phase = AFTER.get((self.phase, Failed), self.phase)
        return replace(self, attempt=attempt, phase=phase, metadata=metadata, durable=False, run=0)
