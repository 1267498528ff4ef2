"""SpoutPlanner: calls one spout in the driver, above all to ask for its share of the next batch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from txtopo.attempt import TransactionAttempt
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.coordinator.protocol import NotReady, PlanBatch
from txtopo.errors import EmitError
from txtopo.log_records import logger_of
from txtopo.metadata import Json, SpoutShare, json_copy, shown
from txtopo.pacing import Limit, Offer
from txtopo.runtime.plan_clock import held_back_by
from txtopo.runtime.stamp_planner import PlanningClocks, time_of
from txtopo.spouts.spout import LastBatch, check_commit
from txtopo.stages.permits import Permit
from txtopo.stages.pickling import Prototype
from txtopo.topology.component import Component, check_runs
from txtopo.topology.elsewhere import emitter_may_write_elsewhere
from txtopo.topology.spout_kinds import KnownShare

_logger = logger_of("txtopo.spouts")

# Txids of which it is kept since when the spout was ready; far more than are ever in flight.
_READY_MAX = 1_000


@dataclass(frozen=True, slots=True)
class ReadySpout:
    """The answer of a spout that is ready.

    Attributes:
        txid: The batch.
        last: The newest batch whose metadata is known.
        offer: What it has for the batch; without rows if the topology is not paced.
        partitions: How many partitions the batch has, as the spout says.
    """

    txid: int
    last: LastBatch
    offer: Offer
    partitions: int


@dataclass(frozen=True, slots=True)
class SpoutPlan:
    """What a spout that is ready plans for a batch.

    Attributes:
        planned: Its metadata; the number of partitions of a partitioned spout.
        rows: How many rows it has; None if that is not known yet.
    """

    planned: Json
    rows: int | None


class SpoutPlanner:
    """Calls the coordinator and the emitter of a spout in the driver. All methods block.

    Each of the two is called by one thread at a time. A call waits while an earlier one has not
    returned, be it of an abandoned attempt or of an earlier term. Only ``lag``, ``lost`` and
    ``cleanup_before`` do not wait.

    The lag of a batch is what the spout says. If it says nothing, it is told how many ``seconds``
    ago the spout was first found to have more than the batch: 0 if it was found to have no more.

    Attributes:
        spout_id: Id of the spout.
        plans_batches: Whether it plans whole batches, so that its emitters do not cut them.
        time_only: Whether its batches have no records, but come since time has passed.

    Raises:
        ConfigError: An error of the spout's.
    """

    def __init__(
        self,
        topology_id: str,
        spout: Component,
        config: Config,
        parallelism: Mapping[str, int] | None = None,
        times: PlanningClocks | None = None,
    ) -> None:
        self.spout_id = spout.id
        self._topology_id = topology_id
        self._kind = kind = spout.spout_kind
        self.plans_batches = kind.plans_batches
        self.time_only = spout.traits.brings_time_only
        context = TaskContext(
            topology_id, spout.id, 0, spout.parallelism, parallelism=parallelism or {}
        )
        # A copy, so that several runs of one topology share nothing.
        prototype = Prototype[Any](spout.prototype).copy()
        self._coordinator = prototype.coordinator(config, context)
        calls = kind.coordinator_calls
        check_runs("the coordinator of spout", spout.id, self._coordinator, *calls)
        self._make_emitter: Callable[[], Any] = lambda: (
            prototype.emitter(config, context) if kind.emitter_calls else None
        )
        self._emitter: Any = None
        self._cleaned_before = 0
        self.cleanup_failures = 0
        """How often in a row the emitter could not clean up."""
        # Held across calls of user code, which may block: that is what they are for. No durable
        # step is marked while they are held.
        self._coordinator_lock, self._emitter_lock = threading.Lock(), threading.Lock()
        # When the spout was first found ready for a txid; None if it was found to have nothing.
        # Only single operations change it, since lag() has its own thread.
        self._ready_s: dict[int, float | None] = {}
        self._times = times
        self._paced, self._limited = bool(config.pace.given), config.pace.limiting is not None
        # Called here, since it opens the emitter if that is what takes the limit.
        if self._limited and not self.divides:
            text = (
                "topology %r: spout %r does not accept a limit; its batches are as large as it "
                "makes them, one is in flight at a time, and rows above the limit delay the next "
                "batches"
            )
            about = {"topology": topology_id, "component": spout.id}
            _logger.info(text, *about.values(), extra=about)

    @property
    def divides(self) -> bool:
        """Whether the spout takes the limit of a batch."""
        return self._kind.divides(self._coordinator, self._opened_emitter)

    @property
    def counts_commits(self) -> bool:
        """Whether the rows of its batches are counted when they are committed."""
        return not self._kind.frame

    def ask(self, action: PlanBatch, pending: int = 0) -> ReadySpout | NotReady:
        """Return whether the spout has a batch for a ``PlanBatch``, with *pending* in flight.

        Raises:
            EmitError: It did not tell numbers of unread rows.
        """
        txid = action.attempt.txid
        last_txid, share = self._kind.newest(self._before(action), self._complete(action))
        # Metadata is copied on its way in and out, because the spout may change the object.
        metadata = None if share is None else self._plain(self._kind.known(share))
        last = LastBatch(last_txid, metadata, pending, self._idle_s(action))
        with self._coordinator_lock:
            is_ready = self._coordinator.is_ready(txid, last)
            self._note_ready(txid, is_ready=is_ready)
            if not is_ready:
                return NotReady(action.attempt)
            partitions = self._kind.partitions(self._coordinator)
            count = partitions if type(partitions) is int else 0  # the task refuses another type
            unread = self._unread(last) if self._paced else None
            divides = not self._limited or self.divides
            return ReadySpout(txid, last, Offer(last_txid, unread, count, divides), partitions)

    def plan(self, ready: ReadySpout, limit: Limit = None) -> SpoutPlan:
        """Return the plan of a spout that is ready, with its limit.

        Raises:
            EmitError: The metadata is not JSON, or it did not tell a number of rows.
        """
        kind, txid = self._kind, ready.txid
        rows_max = limit if isinstance(limit, int) and ready.offer.divides else None
        with self._coordinator_lock:
            planned = kind.plan(self._coordinator, txid, ready.last, ready.partitions, rows_max)
            counted = self._counted(planned) if self._limited else None
        plan = SpoutPlan(self._plain(planned), counted)
        if kind.begins_again(SpoutShare(plan.planned)):
            text = "topology %r: spout %r has read its first part; txid %d is its switch: %s"
            about = {"topology": self._topology_id, "component": self.spout_id, "txid": txid}
            _logger.info(text, *about.values(), shown(plan.planned), extra=about)
        return plan

    def newest_plan(self, action: PlanBatch) -> Json:
        """Return the plan that carries forward while the spout is absent; None if none does."""
        _, share = self._before(action)
        return None if share is None else self._kind.carried(share)

    def lag(self, share: SpoutShare, txid: int | None = None) -> Mapping[str, int]:
        """Return how many records are behind a batch, by partition, or in a unit of lag.

        Args:
            share: The share of the spout in the batch.
            txid: The batch; None to leave out what only the planner knows.
        """
        lag = self._coordinator.lag(self._plain(self._kind.known(share)) or {})
        told = {str(partition): int(records) for partition, records in dict(lag).items()}
        if told or txid is None or self.time_only or self._times is None:
            return told
        try:
            ready_s = self._ready_s[txid + 1]
        except KeyError:
            return {}  # the spout was not asked for more
        return {"seconds": 0 if ready_s is None else int(max(0.0, self._times.now() - ready_s))}

    def lost(self, share: SpoutShare) -> Mapping[str, str]:
        """Return the records that the source lost before a batch could read them, by partition."""
        lost = self._coordinator.lost(self._plain(self._kind.known(share)) or {})
        return {str(partition): str(what) for partition, what in dict(lost).items()}

    @property
    def held_back(self) -> Mapping[str, str]:
        """The data that the spout, or the clock, holds back or has set aside, in words."""
        # A coordinator of a user need not be derived from ours, and then may lack the method.
        told = getattr(self._coordinator, "held_back", lambda: None)()
        found = {self.spout_id: str(told)} if told else {}
        return {**found, **held_back_by(self._times)}

    @property
    def may_write_elsewhere(self) -> bool:
        """Whether the emitter has a ``commit`` without a declaration of what it writes."""
        emitter = self._emitter
        try:
            if emitter is None:
                with self._emitter_lock:  # nobody has called it yet, so nobody hangs in it
                    emitter = self._opened_emitter()
            return emitter_may_write_elsewhere(emitter)
        except Exception:  # noqa: BLE001 - the first commit meets it, and tells its txid
            return True

    def commit(
        self,
        attempt: TransactionAttempt,
        share: SpoutShare,
        permit: Permit | None = None,
    ) -> None:
        """Call the emitter's ``commit``, if it has one.

        Args:
            attempt: The attempt.
            share: The share of the spout in its batch.
            permit: What is asked right before the call.

        Raises:
            TopologyError: It takes other arguments; repair the emitter.
            NotPermitted: The permit was refused.
        """
        if permit is not None:
            permit.ask()  # it blocks, so no lock is held
        with self._emitter_lock:
            # An emitter of a user need not be derived from ours, and then may lack the hooks.
            if commit := getattr(self._opened_emitter(), "commit", None):
                plain = self._plain(self._kind.known(share))
                if permit is not None:
                    permit.check()
                commit(attempt, plain)

    def cleanup_before(self, txid: int) -> None:
        """Call the emitter's ``cleanup_before``, if any, unless it was called for a later txid.

        Nor while the emitter hangs in its ``commit`` of a later batch: a later call covers this
        one, and the next commit would wait for it.
        """
        if not self._emitter_lock.acquire(blocking=False):
            return
        try:
            cleanup = getattr(self._opened_emitter(), "cleanup_before", None)
            if cleanup and txid > self._cleaned_before:
                self.cleanup_failures += 1
                cleanup(txid)
                self._cleaned_before, self.cleanup_failures = txid, 0
        finally:
            self._emitter_lock.release()

    def close(self) -> None:
        """Close the coordinator and the emitter."""
        with self._coordinator_lock:
            self._coordinator.close()
        with self._emitter_lock:
            if self._emitter is not None:
                self._emitter.close()

    def _note_ready(self, txid: int, *, is_ready: bool) -> None:
        if self._times is None:
            return
        if not is_ready or self._ready_s.get(txid) is None:
            self._ready_s[txid] = self._times.now() if is_ready else None
        if len(self._ready_s) > _READY_MAX:
            del self._ready_s[next(iter(self._ready_s))]

    def _before(self, action: PlanBatch) -> KnownShare:
        """Return the previous txid, whose plan is known, with the share of the spout."""
        if action.previous is None:
            return self._complete(action)
        return action.attempt.txid - 1, action.previous.of(self.spout_id)

    def _complete(self, action: PlanBatch) -> KnownShare:
        """Return the newest txid whose batch is known in full, with the share of the spout."""
        return action.last_txid, None if action.last is None else action.last.of(self.spout_id)

    def _idle_s(self, action: PlanBatch) -> float | None:
        """Return how long ago the previous txid was planned."""
        stamp = None if action.before is None else action.before.stamp
        if self._times is None or stamp is None:
            return None
        return max(0.0, self._times.wall_clock() - time_of(stamp) / 1000)

    def _unread(self, last: LastBatch) -> dict[str, int] | None:
        # A coordinator of a user need not be derived from ours, and then may lack the method.
        unread = self._plain(getattr(self._coordinator, "unread", lambda _: None)(last))
        counts = unread.values() if isinstance(unread, dict) else [None]
        if unread is not None and any(type(each) is not int or each < 0 for each in counts):
            raise EmitError(
                f"unread of spout {self.spout_id!r} did not return numbers; got {shown(unread)}; "
                "expected a mapping with a whole number of at least 0 for each partition, or None",
                component=self.spout_id,
                got=shown(unread),
            )
        return None if unread is None else unread

    def _counted(self, planned: Json) -> int | None:
        rows = self._kind.counted(self._coordinator, planned)
        if rows is not None and (type(rows) is not int or rows < 0):
            raise EmitError(
                f"planned_rows of spout {self.spout_id!r} did not return a number; got "
                f"{rows!r:.90}; expected a whole number of at least 0, or None if it is not known "
                "yet",
                component=self.spout_id,
                got=rows,
            )
        return rows

    def _plain(self, metadata: Json) -> Any:
        try:
            return json_copy(metadata)
        except ValueError as error:
            raise EmitError(
                f"the metadata of spout {self.spout_id!r} is not JSON; got {shown(metadata)} "
                f"({error}); expected numbers, strings, lists and objects with string keys",
                component=self.spout_id,
                got=shown(metadata),
            ) from error

    def _opened_emitter(self) -> Any:
        if self._emitter is None:
            emitter = self._make_emitter()
            if (commit := getattr(emitter, "commit", None)) is not None:
                check_commit(commit, type(emitter).__qualname__, 2)
            self._emitter = emitter
        return self._emitter
