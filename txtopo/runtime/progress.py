"""Progress and listeners: one event per change, for bars, metrics, logs and pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from txtopo.attempt import TransactionAttempt
from txtopo.metadata import Json
from txtopo.runtime.reliable.progress import ErrorReported, Progressed, SlotLost, TreesFailed


@dataclass(frozen=True, slots=True)
class Progress:
    """What is known after the commit of a batch (compare Spark ``StreamingQueryProgress``).

    Attributes:
        attempt: The attempt that was committed.
        timestamp_s: When, in seconds since 1970.
        rows: Tuples that the spout emitted in this batch.
        rows_total: Tuples that the spout emitted in all batches committed by this run.
        rows_per_second: Tuples per second over the last batches.
        attempts: Attempts that this batch needed in this run, 1 if nothing failed.
        attempts_failed: Attempts that failed in this run, of all batches.
        pending: Phase of each batch in flight, by txid.
        lag: Records behind this batch, by partition, where the spout knows it.
        lost: What the source lost before this batch could read it, by partition, where the spout
            goes on without it.
        tuples: Tuples that each component emitted in this batch.
        processing_s: Time from the start of the batch's job to its end.
        commit_s: Time that the commit phase took.
    """

    attempt: TransactionAttempt
    timestamp_s: float
    rows: int
    rows_total: int
    rows_per_second: float
    attempts: int
    attempts_failed: int
    pending: Mapping[int, str] = field(default_factory=dict)
    lag: Mapping[str, int] = field(default_factory=dict)
    lost: Mapping[str, str] = field(default_factory=dict)
    tuples: Mapping[str, int] = field(default_factory=dict)
    processing_s: float = 0.0
    commit_s: float = 0.0

    @property
    def txid(self) -> int:
        """The txid that was committed."""
        return self.attempt.txid


@dataclass(frozen=True, slots=True)
class Started:
    """The run has started and asks for the leadership."""

    topology_id: str


@dataclass(frozen=True, slots=True)
class Leading:
    """This coordinator leads; the states are claimed.

    Attributes:
        epoch: Its epoch.
        current: The lowest uncommitted txid.
        adopted: The txid that the stores held already and that was adopted, if any.
    """

    topology_id: str
    epoch: int
    current: int
    adopted: int | None


@dataclass(frozen=True, slots=True)
class Standby:
    """Another coordinator leads; this one waits.

    Attributes:
        holder: Who claimed last: ``{"epoch": number, "leader": {"host": …, "pid": …}}``; None if
            nobody has yet.
    """

    topology_id: str
    holder: Json = None


@dataclass(frozen=True, slots=True)
class ProcessingStarted:
    """A job has started for these attempts."""

    attempts: tuple[TransactionAttempt, ...]
    tag: str


@dataclass(frozen=True, slots=True)
class BatchesProcessed:
    """These attempts wait for their turn to commit."""

    attempts: tuple[TransactionAttempt, ...]


@dataclass(frozen=True, slots=True)
class BatchCommitted:
    """Every state holds the batch; ZooKeeper is told next."""

    progress: Progress


@dataclass(frozen=True, slots=True)
class BatchFailed:
    """An attempt failed and will be replayed, or ends the run.

    Attributes:
        attempt: The first attempt that is replayed.
        kind: ``counted``, ``infrastructure`` or ``fatal``.
        error: What happened.
        component: Where, if known.
    """

    attempt: TransactionAttempt
    kind: str
    error: Exception
    component: str | None


@dataclass(frozen=True, slots=True)
class Stopped:
    """The run has ended; *error* is None when it was asked to."""

    topology_id: str
    error: Exception | None


Change = (
    Started
    | Progressed
    | TreesFailed
    | SlotLost
    | ErrorReported
    | Standby
    | Leading
    | ProcessingStarted
    | BatchesProcessed
    | BatchCommitted
    | BatchFailed
    | Stopped
)


class TopologyListener:
    """Gets one event per change (compare Spark ``StreamingQueryListener``).

    Who calls it: the runtime's loop, in the driver, one call at a time. It must not block; an
    exception that it raises is logged and changes nothing.
    """

    def on_change(self, change: Change) -> None:
        """Take note of a change."""
