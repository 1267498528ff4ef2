"""BatchPlanner: plans the batches of a topology, with a ``SpoutPlanner`` for each of its spouts.

Rules
-----
1. A txid is ready when any of the spouts is ready. The others are *absent* from it: they emit
   nothing, and their positions carry forward (:mod:`txtopo.metadata`). Spouts do not know of each
   other.
2. A spout that plans whole batches starts from its plan of the previous txid, or from its newest
   plan if it was absent there. A partitioned spout starts from the newest known cut.
3. A spout whose source is out of reach when it is asked (``InfrastructureError``) is absent, and
   the others continue. The beginning and the end of each outage are logged once. The spout is asked
   again after pauses that grow, since one ask may last as long as the time limit of its source.
   During an outage the topology does not count as idle. The only spout of a topology fails the
   attempt instead, and the coordinator tries again.
4. Any other exception fails the attempt; the failure names the spout that raised it.
5. A spout is told how many batches with records of its own are in flight. One that waits until
   these are committed so does not wait for another spout, which may never pause.
6. All spouts are asked before any of them plans: the limit of a batch is shared out among those
   that are ready (:mod:`txtopo.pacing`). One that is ready and has no share is absent.

If a source goes away *after* its batch was planned, the txid waits for it: a transactional spout
must emit that batch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from txtopo.config import Config
from txtopo.coordinator.failures import failure_of
from txtopo.coordinator.protocol import Failed, NotReady, PlanBatch, Planned
from txtopo.ensemble.nodes import check_metadata_size
from txtopo.errors import InfrastructureError
from txtopo.log_records import logger_of, one_line
from txtopo.metadata import BatchMetadata, Json, SpoutShare
from txtopo.pacing import Allowance, Asked, Pacer, Postponed
from txtopo.retries import LOGGER
from txtopo.runtime.spout_planner import ReadySpout, SpoutPlan, SpoutPlanner
from txtopo.runtime.stamp_planner import PlanningClocks, StampPlanner

if TYPE_CHECKING:
    from txtopo.topology.graph import Graph

V = TypeVar("V")

_logger = logger_of(LOGGER)


class BatchPlanner:
    """Calls the coordinators and emitters of the spouts in the driver. All methods block.

    One batch is planned at a time. ``plan`` waits until an earlier call has returned, even one for
    an abandoned attempt or an earlier term.

    Args:
        graph: The topology.
        config: Its settings.
        times: The clocks for planning; None if nothing is planned.

    Attributes:
        parts: The planner of each spout, in the order in which they were declared.

    Raises:
        ConfigError: A spout raised it.
    """

    def __init__(self, graph: Graph, config: Config, times: PlanningClocks | None = None) -> None:
        self._topology_id, self._config, self._times = graph.id, config, times
        self._stamp_planner = StampPlanner(graph, times)
        self.parts = tuple(
            SpoutPlanner(graph.id, spout, config, graph.parallelism, times)
            for spout in graph.spouts
        )
        self._outages: dict[str, _Outage] = {}
        self._pacer = Pacer(config.pace)
        self._paced = bool(config.pace.given) and times is not None
        self._pacer_lock = threading.Lock()
        # Kept across calls of user code, like the locks of a SpoutPlanner.
        self._lock = threading.Lock()

    @property
    def pace(self) -> Mapping[str, Json]:
        """The limits of the next batch; empty without a pace."""
        return self._pacer.now

    def begin(
        self, stored: Mapping[int, BatchMetadata], current: int
    ) -> Mapping[int, BatchMetadata]:
        """Begin a term, and resume the pace that earlier leaders have stored.

        Returns:
            The stored metadata, with complete stamps of uncommitted batches.

        Raises:
            InfrastructureError: A table of a lookup is out of reach; try again.
        """
        if self._paced and self._times is not None:
            known = {txid: each.pace for txid, each in stored.items()}
            with self._pacer_lock:
                self._pacer.begin(known, current, self._times.now(), self._times.wall_clock())
        return self._stamp_planner.completed(stored, current)

    def committed(self, txid: int, tuples: Mapping[str, Mapping[str, int]]) -> None:
        """Learn from a commit how large the next batches should be. It does not block.

        Args:
            txid: The batch.
            tuples: How many tuples each component emitted, by stream.
        """
        if self._paced and self._times is not None:
            # What a clock emits is not a row: no limit holds it back, so it must not use one up.
            having = [part for part in self.parts if not part.time_only]
            rows = sum(sum(tuples.get(part.spout_id, {}).values()) for part in having)
            counted = all(part.counts_commits for part in self.parts)
            with self._pacer_lock:
                self._pacer.committed(txid, rows if counted else None, self._times.now())

    def plan(
        self, action: PlanBatch, in_flight: Sequence[BatchMetadata] = ()
    ) -> Planned | NotReady | Failed:
        """Answer a ``PlanBatch``, with these batches in flight.

        Raises:
            BatchMetadataTooLarge: The metadata does not fit into a znode.
            TxtopoError: An error of a lookup.
        """
        with self._lock:
            return self._planned(action, in_flight)

    def _planned(
        self, action: PlanBatch, in_flight: Sequence[BatchMetadata]
    ) -> Planned | NotReady | Failed:
        attempt, held, ready = action.attempt, False, dict[str, ReadySpout]()
        for part in self.parts:
            pending = sum(each.takes_part(part.spout_id) for each in in_flight)
            try:
                answer = self._reached(part, action, partial(part.ask, action, pending))
            except Exception as error:  # noqa: BLE001 - user code; the failure names its spout
                return Failed(attempt, failure_of(error, part.spout_id))
            if isinstance(answer, ReadySpout):
                ready[part.spout_id] = answer
            else:
                held = held or answer.held
        if not ready:
            return NotReady(attempt, held=held)
        asked, allowance = self._allowed(attempt.txid, ready, len(in_flight))
        if isinstance(allowance, Postponed):
            return NotReady(attempt, held=held or allowance.by is not None)
        try:
            return self._plan_allowed(action, ready, asked, allowance)
        except BaseException:
            self._withdraw(attempt.txid)
            raise

    def lag(self, metadata: BatchMetadata, txid: int | None = None) -> Mapping[str, int]:
        """Return how many records are behind a batch, by partition, or in a unit of lag.

        With several spouts the name of a partition is ``spout/partition``.

        Args:
            metadata: The metadata of the batch.
            txid: The batch; None to leave out what only the planner knows.
        """
        return self._told("lag", lambda part: part.lag(metadata.of(part.spout_id), txid))

    def lost(self, metadata: BatchMetadata) -> Mapping[str, str]:
        """Return the records that sources lost before a batch could read them, by partition."""
        taking = metadata.takes_part
        return self._told(
            "losses",
            lambda p: p.lost(metadata.of(p.spout_id)) if taking(p.spout_id) else {},
        )

    @property
    def held_back(self) -> Mapping[str, str]:
        """The data that each spout, or the clock, holds back or has set aside, in words.

        That of a spout out of reach is held back, too.
        """
        told = {name: told for part in self.parts for name, told in part.held_back.items()}
        return told | {
            spout: f"out of reach; got {each.cause}" for spout, each in [*self._outages.items()]
        }

    def close(self) -> None:
        """Close the coordinators and the emitters."""
        with ExitStack() as closing:
            for part in self.parts:
                closing.callback(part.close)

    def _allowed(
        self, txid: int, ready: Mapping[str, ReadySpout], pending: int
    ) -> tuple[Asked | None, Allowance | Postponed]:
        """Ask the pacer for the limits of a batch; without a pace whoever is ready takes part."""
        if not self._paced or self._times is None:
            return None, Allowance(dict.fromkeys(ready))
        now_s, wall_s = self._times.now(), self._times.wall_clock()
        offers = {id: each.offer for id, each in ready.items()}
        asked = Asked(txid, offers, pending, now_s, wall_s)
        with self._pacer_lock:
            return asked, self._pacer.ask(asked)

    def _plan_allowed(
        self,
        action: PlanBatch,
        ready: Mapping[str, ReadySpout],
        asked: Asked | None,
        allowance: Allowance,
    ) -> Planned | NotReady | Failed:
        attempt, taking, held = action.attempt, list[SpoutPlanner](), False
        shares, counted = dict[str, SpoutShare](), dict[str, int | None]()
        for part in self.parts:
            id, plan = part.spout_id, None
            if id in allowance.limits:
                call = partial(part.plan, ready[id], allowance.limits[id])
                try:
                    plan = self._reached(part, action, call)
                except Exception as error:  # noqa: BLE001 - user code; the failure names its spout
                    self._withdraw(attempt.txid)
                    return Failed(attempt, failure_of(error, id))
            if isinstance(plan, SpoutPlan):
                taking.append(part)
                shares[id], counted[id] = SpoutShare(plan.planned), plan.rows
            else:
                held = held or plan is not None
                shares[id] = SpoutShare(part.newest_plan(action), absent=True)
        if not taking:
            self._withdraw(attempt.txid)
            return NotReady(attempt, held=held)
        stamp = self._stamp_planner.planned(attempt.txid, action.before)
        pace = None
        if asked is not None:
            with self._pacer_lock:
                pace = self._pacer.planned(asked, allowance, counted)
        metadata = BatchMetadata(shares, pace=pace, stamp=stamp)
        check_metadata_size(attempt.txid, metadata)
        # A spout that is held back has rows.
        waits = self._outages or ready.keys() - allowance.limits.keys()
        idle = not waits and all(part.time_only for part in taking)
        return Planned(attempt, metadata, idle=idle)

    def _withdraw(self, txid: int) -> None:
        with self._pacer_lock:
            self._pacer.withdraw(txid)

    def _reached(
        self, part: SpoutPlanner, action: PlanBatch, call: Callable[[], V | NotReady]
    ) -> V | NotReady:
        """Call a spout. One out of reach may have records, so it is not idle.

        Raises:
            InfrastructureError: The only spout is out of reach.
        """
        if len(self.parts) == 1:
            return call()
        spout, txid, outage = part.spout_id, action.attempt.txid, self._outages.get(part.spout_id)
        now_s = 0.0 if self._times is None else self._times.now()
        if outage is not None and now_s < outage.until_s:
            return NotReady(action.attempt, held=True)
        try:
            answer = call()
        except InfrastructureError as error:
            failures = 1 if outage is None else outage.failures + 1
            until_s = now_s + self._config.pause_s(failures)
            cause = one_line(error)
            self._outages[spout] = _Outage(failures, until_s, cause)
            if outage is None:
                text = (
                    "topology %r: spout %r is unreachable; batches from txid %d on do without it "
                    "until it is back, while the others continue; got %s; check its source"
                )
                arguments = self._topology_id, spout, txid, cause
                _logger.warning(text, *arguments, extra=self._log_attributes(spout, txid))
            return NotReady(action.attempt, held=True)
        # One that is ready has still to plan.
        if outage is not None and not isinstance(answer, ReadySpout):
            del self._outages[spout]
            text = "topology %r: spout %r is back at txid %d, after %d failed requests"
            asked = self._topology_id, spout, txid, outage.failures
            _logger.info(text, *asked, extra=self._log_attributes(spout, txid))
        return answer

    def _told(self, what: str, tell: Callable[[SpoutPlanner], Mapping[str, V]]) -> Mapping[str, V]:
        """Collect a report from all spouts in reach, leaving out those that fail to give one."""
        if len(self.parts) == 1:
            return tell(self.parts[0])
        told: dict[str, V] = {}
        for part in self.parts:
            if part.spout_id in self._outages:
                continue
            try:
                own = tell(part)
            except Exception:
                text = "topology %r: spout %r could not report its %s"
                attributes = self._log_attributes(part.spout_id)
                arguments = self._topology_id, part.spout_id, what
                _logger.warning(text, *arguments, exc_info=True, extra=attributes)
                continue
            told.update({f"{part.spout_id}/{name}": value for name, value in own.items()})
        return told

    def _log_attributes(self, spout: str, txid: int | None = None) -> Mapping[str, object]:
        return {"topology": self._topology_id, "component": spout, "txid": txid}


@dataclass(frozen=True, slots=True)
class _Outage:
    """A spout out of reach: how many asks in a row failed, when it is asked again, and why."""

    failures: int
    until_s: float
    cause: str
