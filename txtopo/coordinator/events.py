"""What the coordinator can be told. An event of an attempt that is not current changes nothing."""

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
