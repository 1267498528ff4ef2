"""What the coordinator can be told. An event of an attempt that is not current changes nothing.

What the coordinator can ask for. Actions are done in the order given.

One that writes (:class:`StoreBatches`, :class:`Advance`) is durable before the next one starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from txtopo.attempt import TransactionAttempt
from txtopo.metadata import BatchMetadata, Json


class FailureKind(Enum):
    """What a failure leads to."""

    COUNTED = "counted"
    """``FailedException``, a timeout, a crashed worker: replay, at most ``attempts_max`` times."""
    INFRASTRUCTURE = "infrastructure"
    """A lost executor, store or ZooKeeper: back off and replay, as often as it takes."""
    FATAL = "fatal"
    """Any other exception of user code: commit what is before it, then stop with it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed."""

    kind: FailureKind
    error: Exception
    component: str | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """The answer to ``PlanBatch``: the spout is ready, and this is what it planned."""

    attempt: TransactionAttempt
    planned: Json


@dataclass(frozen=True, slots=True)
class NotReady:
    """The answer to ``PlanBatch``: the spout has nothing for this txid now."""

    attempt: TransactionAttempt


@dataclass(frozen=True, slots=True)
class Processed:
    """These attempts, consecutive and of one run, have passed the processing phase."""

    attempts: tuple[TransactionAttempt, ...]
    metadata: tuple[BatchMetadata, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """Every committer of this attempt has written."""

    attempt: TransactionAttempt


@dataclass(frozen=True, slots=True)
class Failed:
    """This attempt failed, in either phase, or in planning."""

    attempt: TransactionAttempt
    failure: Failure


@dataclass(frozen=True, slots=True)
class RunFailed:
    """A whole run failed without naming a batch."""

    attempts: tuple[TransactionAttempt, ...]
    failure: Failure


@dataclass(frozen=True, slots=True)
class Tick:
    """Some time has passed: ask a spout again that was not ready; do not wait for a slow one."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """The pause that ``Backoff`` asked for is over."""


@dataclass(frozen=True, slots=True)
class Deactivated:
    """Plan no new batches; what is in flight goes on (Storm ``deactivate``)."""


@dataclass(frozen=True, slots=True)
class Activated:
    """Plan new batches again."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """Finish the commit in hand, drop the rest, stop."""


Event = (
    Planned
    | NotReady
    | Processed
    | Committed
    | Failed
    | RunFailed
    | Tick
    | Resumed
    | Deactivated
    | Activated
    | StopRequested
)


@dataclass(frozen=True, slots=True)
class PlanBatch:
    """Ask the spout whether it is ready for this txid and, if so, for its metadata.

    Answered by ``Planned``, ``NotReady`` or ``Failed``. At most one is unanswered.

    Attributes:
        attempt: The attempt to plan.
        last_txid: The newest txid before it whose batch is known in full; 0 for none.
        last: Metadata of *last_txid*.
    """

    attempt: TransactionAttempt
    last_txid: int
    last: BatchMetadata | None


@dataclass(frozen=True, slots=True)
class StoreBatches:
    """Make the metadata of these attempts durable, in one write."""

    attempts: tuple[TransactionAttempt, ...]
    metadata: tuple[BatchMetadata, ...]


@dataclass(frozen=True, slots=True)
class StartProcessing:
    """Process a run: these consecutive attempts, in one Spark job.

    Answered by ``Processed`` for a leading part (maybe all, maybe none) and ``Failed`` for the one
    behind it, or by ``RunFailed``.

    Attributes:
        attempts: The attempts of the run.
        metadata: Their metadata. One with a *cut* is emitted again as it was (transactional spout);
            one without is cut anew.
        previous: Metadata of the txid before the run, whose cut the first one starts from.
    """

    attempts: tuple[TransactionAttempt, ...]
    metadata: tuple[BatchMetadata, ...]
    previous: BatchMetadata | None


@dataclass(frozen=True, slots=True)
class StartCommit:
    """Run the commit phase of this attempt. Answered by ``Committed`` or ``Failed``."""

    attempt: TransactionAttempt
    metadata: BatchMetadata


@dataclass(frozen=True, slots=True)
class Advance:
    """Make it durable that all txids before *current* are committed, and prune.

    Attributes:
        current: The lowest uncommitted txid.
        drop_before: Metadata of txids below this one is deleted, in the same write.
    """

    current: int
    drop_before: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel the jobs, and forget the results, of these attempts: they are abandoned."""

    attempts: tuple[TransactionAttempt, ...]


@dataclass(frozen=True, slots=True)
class Backoff:
    """Send ``Resumed`` after a pause that grows with *failures*.

    Attributes:
        failures: Infrastructure faults since the last commit, from 1.
    """

    failures: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the run; *error* is None when it was asked for."""

    error: Exception | None


Action = (
    PlanBatch | StoreBatches | StartProcessing | StartCommit | Advance | Cancel | Backoff | Stop
)
