"""The coordinator's protocol: events that go in, and actions that come out.

An event of an attempt that is not current changes nothing. Actions are done in the order given. One
that writes (:class:`StoreBatches`, :class:`Advance`) is durable before the next one starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from txtopo.attempt import TransactionAttempt
from txtopo.metadata import BatchMetadata


class FailureKind(Enum):
    """The reaction to a failure."""

    COUNTED = "counted"
    """``FailedException``, a timeout, a crashed worker: pause, replay, ``attempts_max`` times."""
    INFRASTRUCTURE = "infrastructure"
    """A lost executor, store or ZooKeeper: pause and replay, without a limit."""
    FATAL = "fatal"
    """Any other exception of user code: commit the batches before, then stop with the exception."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed."""

    kind: FailureKind
    error: Exception
    component: str | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """The answer to ``PlanBatch``: a spout is ready.

    Attributes:
        attempt: The attempt.
        metadata: What is known of the batch now.
        idle: Whether no spout has any record, and the batch is there since time has passed.
    """

    attempt: TransactionAttempt
    metadata: BatchMetadata
    idle: bool = False


@dataclass(frozen=True, slots=True)
class NotReady:
    """The answer to ``PlanBatch``: no spout has anything for this txid now.

    Attributes:
        attempt: The attempt.
        held: Whether it has rows all the same, and only the pace holds them back; or may have some,
            since one of several sources is out of reach.
    """

    attempt: TransactionAttempt
    held: bool = False


@dataclass(frozen=True, slots=True)
class Processed:
    """These attempts, which are consecutive and of one run, were processed."""

    attempts: tuple[TransactionAttempt, ...]
    metadata: tuple[BatchMetadata, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """Every state has written these attempts, in one write each; from the current txid on."""

    attempts: tuple[TransactionAttempt, ...]


@dataclass(frozen=True, slots=True)
class CommitShortened:
    """The commit continues without these attempts, the last ones of its group; they wait again."""

    attempts: tuple[TransactionAttempt, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """This attempt failed, in planning, processing or commit.

    Attributes:
        attempt: The attempt.
        failure: Why.
        unsent: Whether no state was or will be asked to write anything by its commit. Otherwise a
            state may hold the group, now or later, and it is pinned.
    """

    attempt: TransactionAttempt
    failure: Failure
    unsent: bool = False


@dataclass(frozen=True, slots=True)
class RunFailed:
    """A run failed, and it is not known which of its batches did."""

    attempts: tuple[TransactionAttempt, ...]
    failure: Failure


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: ask a spout again that was not ready, and stop waiting for a slow one."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """The pause that ``Backoff`` asked for this txid is over."""

    txid: int


@dataclass(frozen=True, slots=True)
class Deactivated:
    """Plan no new batches; those in flight are committed at once (Storm ``deactivate``)."""


@dataclass(frozen=True, slots=True)
class Activated:
    """Plan new batches again."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """Finish the commit that is under way, drop all other batches, stop."""


Event = (
    Planned
    | NotReady
    | Processed
    | Committed
    | CommitShortened
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
        last_txid: The newest earlier txid whose metadata is complete; 0 for none.
        last: Metadata of *last_txid*.
        previous: Metadata of the previous txid, if that is a later one than *last_txid*: its plan
            is known, and its end is not.
    """

    attempt: TransactionAttempt
    last_txid: int
    last: BatchMetadata | None
    previous: BatchMetadata | None = None

    @property
    def before(self) -> BatchMetadata | None:
        """Metadata of the previous txid; None for the first one."""
        return self.last if self.previous is None else self.previous


@dataclass(frozen=True, slots=True)
class StoreBatches:
    """Make the metadata of these attempts durable, in one write."""

    attempts: tuple[TransactionAttempt, ...]
    metadata: tuple[BatchMetadata, ...]


@dataclass(frozen=True, slots=True)
class StartProcessing:
    """Process a run: these consecutive attempts, in one Spark job.

    Answered by ``Processed`` for the first attempts of the run and by ``Failed`` for the next one.
    Either may be missing. Or answered by ``RunFailed``.

    Attributes:
        attempts: The attempts of the run.
        metadata: Their metadata. What has a *cut* is emitted again as it was (transactional spout);
            what has none is cut again.
        previous: Metadata of the txid before the run. The first batch starts at its cut.
    """

    attempts: tuple[TransactionAttempt, ...]
    metadata: tuple[BatchMetadata, ...]
    previous: BatchMetadata | None


@dataclass(frozen=True, slots=True)
class StartCommit:
    """Run the commit phase of a group: these consecutive attempts, from the current txid on.

    Answered by ``Committed`` for all of them, or by ``Failed`` for one of them. If it is not
    pinned, ``CommitShortened`` may come first, for the last ones.

    Attributes:
        attempts: The attempts of the group.
        pinned: Whether a state may hold the group, so that it must be written with these bounds.
    """

    attempts: tuple[TransactionAttempt, ...]
    pinned: bool


@dataclass(frozen=True, slots=True)
class Advance:
    """Make durable that all txids before *current* are committed.

    Attributes:
        current: The lowest uncommitted txid.
    """

    current: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel the jobs of these attempts, which are abandoned, and forget their results."""

    attempts: tuple[TransactionAttempt, ...]


@dataclass(frozen=True, slots=True)
class Backoff:
    """Send ``Resumed`` after a pause that grows with *failures*.

    Until then nothing of *txid* or a later one is started. A later pause of the same txid takes the
    place of this one.

    Attributes:
        txid: The txid that failed.
        failures: From 1: the counted failures of this txid, or the infrastructure faults of any
            since the last commit.
    """

    txid: int
    failures: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the topology; *error* is None if the user asked for the stop."""

    error: Exception | None


Action = (
    PlanBatch | StoreBatches | StartProcessing | StartCommit | Advance | Cancel | Backoff | Stop
)
