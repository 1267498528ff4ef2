"""Progress: the changes of a running topology, and the listeners that receive them.

Both are plain data. A transactional topology reports a progress after each commit, an at-least-once
topology one each second. :mod:`txtopo.runtime.reporting` makes the events of a term.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from txtopo.attempt import TransactionAttempt
from txtopo.metadata import Json
from txtopo.notebook import html_of
from txtopo.runtime.histogram import Histogram


@dataclass(frozen=True, slots=True)
class Progress:
    """Numbers after the commit of a batch (compare Spark ``StreamingQueryProgress``).

    Attributes:
        attempt: The attempt that was committed.
        timestamp_s: Time of the commit, in seconds since 1970.
        rows: Number of tuples that the spout emitted in this batch.
        rows_total: Number of tuples in all batches that were committed since the start.
        rows_per_second: Tuples per second over the last batches.
        failures: Number of attempts at this batch that failed since the start. The number of the
            committed attempt may be larger, because a failure of an earlier batch also gives this
            one a new attempt.
        failures_total: The same number, of all batches.
        pending: Phase of each batch in flight, by txid.
        lag: Number of records behind this batch, by partition. A source that cannot count records
            uses ``files`` and ``bytes``, ``versions``, ``keys`` or ``offsets``; any other source,
            the ``seconds`` since the spout was first found to have more than this batch, 0 if it
            has no more.
        lost: What the source lost before this batch could read it, by partition, if the spout
            continues without it.
        tuples: Number of tuples that each component emitted in this batch.
        processing_s: Time from the start of the batch's job to its end.
        commit_s: Duration of the commit phase.
        pace: What limits the next batch, if the topology is paced (``docs/explanation/pacing.md``):
            ``{"rows_max": limit or None, "limited_by": name of the setting or None}``. If
            ``limited_by`` is None, it takes all available rows.
        state_s: How long the write to each state took in the commit phase, by ``component.name``.
            States that share a transaction each have the time of the whole transaction.
        component_s: How long each component that runs in the driver took in the commit phase, by
            its id: to receive its rows, read its states, compute, and prepare its writes.
        zookeeper_s: How long each write to ZooKeeper took since the previous commit.
        driver_bytes: Number of bytes of the batch that waited in the driver for the commit.
        group: First and last txid of the batches that were committed together. The progress of the
            last one has their times ``state_s``, ``component_s`` and ``zookeeper_s``.
    """

    attempt: TransactionAttempt
    timestamp_s: float
    rows: int
    rows_total: int
    rows_per_second: float
    failures: int
    failures_total: int
    pending: Mapping[int, str] = field(default_factory=dict)
    lag: Mapping[str, int] = field(default_factory=dict)
    lost: Mapping[str, str] = field(default_factory=dict)
    tuples: Mapping[str, int] = field(default_factory=dict)
    processing_s: float = 0.0
    commit_s: float = 0.0
    pace: Mapping[str, Json] = field(default_factory=dict)
    state_s: Mapping[str, float] = field(default_factory=dict)
    zookeeper_s: Sequence[float] = ()
    driver_bytes: int = 0
    group: tuple[int, int] = (0, 0)
    component_s: Mapping[str, float] = field(default_factory=dict)

    @property
    def txid(self) -> int:
        """The txid that was committed."""
        return self.attempt.txid

    def _repr_html_(self) -> str:
        return html_of(self)


@dataclass(frozen=True, slots=True)
class Started:
    """The topology has started and requests the leadership."""

    topology_id: str


@dataclass(frozen=True, slots=True)
class Leading:
    """This coordinator leads; the states are claimed.

    Attributes:
        epoch: Its epoch.
        current: The lowest uncommitted txid; None in an at-least-once topology.
        adopted: The last txid that was adopted because the stores already held it, if any.
        adopted_first: The first txid of its group; None means a group of one txid.
    """

    topology_id: str
    epoch: int
    current: int | None
    adopted: int | None
    adopted_first: int | None = None

    @property
    def adopted_txids(self) -> range:
        """The txids that were adopted; empty for none."""
        if self.adopted is None:
            return range(0)
        first = self.adopted if self.adopted_first is None else self.adopted_first
        return range(first, self.adopted + 1)


@dataclass(frozen=True, slots=True)
class Standby:
    """Another coordinator leads; this one waits.

    Attributes:
        holder: The last claim: ``{"epoch": number, "leader": {"host": …, "pid": …}}``; None if
            there is none.
    """

    topology_id: str
    holder: Json = None


@dataclass(frozen=True, slots=True)
class BatchPlanned:
    """The spout has planned a new batch.

    Attributes:
        attempt: The first attempt at the batch.
        plan_s: How long the spout took to answer, in seconds.
    """

    attempt: TransactionAttempt
    plan_s: float


@dataclass(frozen=True, slots=True)
class ProcessingStarted:
    """A job has started for these attempts."""

    attempts: tuple[TransactionAttempt, ...]
    tag: str


@dataclass(frozen=True, slots=True)
class BatchesProcessed:
    """These attempts are processed and wait for their turn to commit."""

    attempts: tuple[TransactionAttempt, ...]


@dataclass(frozen=True, slots=True)
class CommitStarted:
    """The turn of this attempt has come; its commit phase begins."""

    attempt: TransactionAttempt


@dataclass(frozen=True, slots=True)
class BatchCommitted:
    """Every state holds the batch. Next, it is recorded in ZooKeeper."""

    progress: Progress


@dataclass(frozen=True, slots=True)
class BatchFailed:
    """An attempt failed. The batch is replayed, or the topology ends.

    Attributes:
        attempt: The attempt; if a whole run failed, its first attempt.
        kind: ``counted``, ``infrastructure`` or ``fatal``.
        error: The error.
        component: Id of the component that failed, if known.
        failures: How many attempts at this batch have failed in a row.
        pause_s: Seconds until the batch is retried; 0 for immediately; None if it is not retried.
        batches: Number of consecutive batches that failed together, because they were one run.
    """

    attempt: TransactionAttempt
    kind: str
    error: Exception
    component: str | None
    failures: int = 1
    pause_s: float | None = None
    batches: int = 1


@dataclass(frozen=True, slots=True)
class BatchesAbandoned:
    """These attempts did not fail, but are abandoned. Follows the :class:`BatchFailed`, if any.

    Attributes:
        attempts: The attempts.
        failed: The attempt whose failure caused this; None if the user stops the topology.
    """

    attempts: tuple[TransactionAttempt, ...]
    failed: TransactionAttempt | None


@dataclass(frozen=True, slots=True)
class Restarting:
    """The run ended with an error, and is restarted after a pause; see ``Restart``.

    Attributes:
        error: The error.
        restarts: Number of restarts within ``Restart.within_s``, including this one.
        pause_s: The pause, in seconds.
    """

    topology_id: str
    error: Exception
    restarts: int
    pause_s: float


@dataclass(frozen=True, slots=True)
class Stopped:
    """The topology has ended; *error* is None if the user stopped it."""

    topology_id: str
    error: Exception | None


@dataclass(frozen=True, slots=True)
class Progressed:
    """About a second has passed, or the topology has become idle or ends."""

    progress: ReliableProgress


@dataclass(frozen=True, slots=True)
class TreesFailed:
    """Tuple trees failed. The spout is informed next.

    Attributes:
        component: Id of the spout.
        task: Number of the spout's task.
        message_ids: Message ids of the trees.
        reason: ``failed`` if a bolt failed them, or ``timed out``.
    """

    component: str
    task: int
    message_ids: tuple[Any, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class SlotLost:
    """A slot was lost, with the memory of its bolts. A new one will replace it."""

    slot: int
    reason: str


@dataclass(frozen=True, slots=True)
class ErrorReported:
    """A spout or bolt reported an error. It has no other effect."""

    component: str
    task: int
    error: Exception


TopologyEvent = (
    Started
    | Progressed
    | TreesFailed
    | SlotLost
    | ErrorReported
    | Standby
    | Leading
    | BatchPlanned
    | ProcessingStarted
    | BatchesProcessed
    | CommitStarted
    | BatchCommitted
    | BatchFailed
    | BatchesAbandoned
    | Restarting
    | Stopped
)


class TopologyListener:
    """Receives one event per change (compare Spark ``StreamingQueryListener``).

    Who calls it: the runtime's loop, in the driver, one call at a time; the first call may come
    before ``start`` has returned the run. It must not block; its exceptions are logged and change
    nothing.
    """

    def on_change(self, change: TopologyEvent) -> None:
        """Called for each change."""


@dataclass(frozen=True, slots=True)
class AckerProgress:
    """Numbers of one acker; counts are since the start (Storm: the row of ``__acker`` in its UI).

    They come from the slots of the spouts, which decide how a tree ends.

    Attributes:
        number: Its number, from 0.
        slot: Its slot.
        trees: Number of pending trees that it tracks.
        completed: Number of its trees that were completely processed.
        failed: Number of its trees that a bolt failed.
        timed_out: Number of its trees that timed out.
    """

    number: int
    slot: int
    trees: int = 0
    completed: int = 0
    failed: int = 0
    timed_out: int = 0


@dataclass(frozen=True, slots=True)
class ReliableProgress:
    """Numbers of an at-least-once topology; counts are since its start.

    Attributes:
        timestamp_s: Time, in seconds since 1970.
        emitted: Number of tuples that the spouts emitted.
        acked: Number of tuple trees that were completely processed.
        failed: Number of trees that a bolt failed.
        timed_out: Number of trees that timed out.
        replays: Number of tuples that a spout emitted under a message id that had failed.
        pending: Number of trees that have not ended yet.
        backlog: Number of tuples that slots have not consumed yet.
        slots_lost: Number of times that a slot was lost.
        acked_per_second: Trees completely processed per second since the last progress.
        latency_p50_s: Median latency from emit to ack of the trees acked since the last progress;
            None if there were none.
        latency_p99_s: The same as the 99th percentile.
        executed: Number of tuples that each bolt received.
        emitted_by: Number of tuples that each component emitted.
        acked_by: Number of tuples that each bolt acked, without ticks.
        failed_by: Number of tuples that each bolt failed.
        latencies: Histogram of the times from emit to ack; None if nothing counted them.
        trees_lost: Number of trees that were pending in lost slots, by their last reports. The
            spouts are not informed; the sources deliver the messages again.
        ackers: The numbers of each acker, by its number.
    """

    timestamp_s: float
    emitted: int
    acked: int
    failed: int
    timed_out: int
    replays: int
    pending: int
    backlog: int
    slots_lost: int
    acked_per_second: float = 0.0
    latency_p50_s: float | None = None
    latency_p99_s: float | None = None
    executed: Mapping[str, int] = field(default_factory=dict)
    emitted_by: Mapping[str, int] = field(default_factory=dict)
    acked_by: Mapping[str, int] = field(default_factory=dict)
    failed_by: Mapping[str, int] = field(default_factory=dict)
    latencies: Histogram | None = None
    trees_lost: int = 0
    ackers: Sequence[AckerProgress] = ()

    def _repr_html_(self) -> str:
        return html_of(self)
