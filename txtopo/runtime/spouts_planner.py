"""SpoutsPlanner: plans the txids of several spouts; each of them has a ``BatchPlanner`` of its own.

Rules
-----
1. A txid is ready when any of the spouts is. The others are *absent* from it: they emit nothing,
   and their positions carry forward (:mod:`txtopo.metadata`). No spout knows of the others.
2. A spout that plans whole batches starts from its plan of the txid before, or from its newest one
   if it was absent there. A partitioned one starts from the newest cut that is known, as alone.
3. A spout whose source is out of reach while it is asked (``InfrastructureError``) is absent, and
   the others go on. That is logged once for each outage, and so is its end. It is asked again after
   a pause that grows, since an ask may last as long as the time limit of its source. Until it is
   back, nobody takes the topology for idle.
4. Any other exception fails the attempt, in the name of the spout that raised it.
5. Batches of several spouts are not paced: a limit is of one spout's rows, and nothing says how to
   share a limit of the txid out among spouts.

A source that goes away *after* its batch was planned is another case: a transactional spout must
bring that batch, so the txid waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, TypeVar

from txtopo.config import Config
from txtopo.coordinator.failures import failure_of
from txtopo.coordinator.protocol import Failed, NotReady, PlanBatch, Planned
from txtopo.errors import ConfigError, InfrastructureError
from txtopo.log_records import logger_of, one_line
from txtopo.metadata import BatchMetadata, Json, absent, part_of
from txtopo.retries import LOGGER
from txtopo.runtime.batch_planner import BatchPlanner
from txtopo.runtime.facts import FactsPlanner, Times
from txtopo.runtime.plan_clock import PlanClock
from txtopo.transactional_state.nodes import check_metadata_size

if TYPE_CHECKING:
    from txtopo.topology.graph import Graph

V = TypeVar("V")

_logger = logger_of(LOGGER)


def planner_of(
    graph: Graph, config: Config, times: PlanClock | None = None
) -> BatchPlanner | SpoutsPlanner:
    """Return what plans the batches of a topology.

    Args:
        graph: The topology.
        config: Its settings.
        times: The clocks for what is planned; None if nothing is planned.

    Raises:
        ConfigError: The topology is paced, and cannot be; or an error of a spout's.
    """
    if len(graph.spouts) > 1:
        return SpoutsPlanner(graph, config, times)
    facts = FactsPlanner(graph, times)
    return BatchPlanner(graph.id, graph.spout, config, graph.parallelism, times, facts)


class SpoutsPlanner:
    """Calls the coordinators and emitters of several spouts in the driver. All methods block.

    Args:
        graph: The topology.
        config: Its settings.
        times: The clocks; without them a spout that is out of reach is asked for each txid.

    Attributes:
        parts: The planner of each spout, in the order in which they were declared.

    Raises:
        ConfigError: The topology is paced; or an error of a spout's.
    """

    def __init__(self, graph: Graph, config: Config, times: Times | None = None) -> None:
        _check_unpaced(graph, config)
        self._topology_id, self._config, self._times = graph.id, config, times
        self.parts = tuple(
            BatchPlanner(graph.id, spout, config, graph.parallelism, times)
            for spout in graph.spouts
        )
        self._whole = {each.id for each in graph.spouts if each.role.plans_batches}
        self._outages: dict[str, _Outage] = {}
        self._outside = FactsPlanner(graph, times)

    @property
    def pace(self) -> Mapping[str, Json]:
        """Nothing: several spouts are not paced."""
        return {}

    def begin(
        self, stored: Mapping[int, BatchMetadata], current: int
    ) -> Mapping[int, BatchMetadata]:
        """Begin a term, as that of one spout; there is no pace to take over."""
        return self._outside.completed(stored, current)

    def committed(self, txid: int, rows: int) -> None:
        """Take note of a commit: there is no pace."""

    def plan(self, action: PlanBatch, pending: int = 0) -> Planned | NotReady | Failed:
        """Answer a ``PlanBatch``, with *pending* batches in flight.

        Raises:
            BatchMetadataTooLarge: The metadata of all spouts does not fit into a znode.
        """
        attempt = action.attempt
        plans: dict[str, dict[str, Json]] = {}
        for part in self.parts:
            ask = self._ask(part.spout_id, action)
            try:
                planned = self._answer(part, ask, pending)
            except Exception as error:  # noqa: BLE001 - user code; the failure names its spout
                return Failed(attempt, failure_of(error, part.spout_id))
            if planned is not None:
                plans[part.spout_id] = {"planned": planned.planned}
            else:
                last = ask.last.planned if ask.last and part.spout_id in self._whole else None
                plans[part.spout_id] = absent(last)
        if not any("planned" in plan for plan in plans.values()):
            return NotReady(attempt, held=bool(self._outages))
        facts = self._outside.planned(attempt.txid, action.before)
        taking = [part for part in self.parts if "planned" in plans[part.spout_id]]
        idle = not self._outages and all(part.time_only for part in taking)
        answer = Planned(attempt, None, spouts=plans, facts=facts, idle=idle)
        check_metadata_size(attempt.txid, answer.metadata)
        return answer

    def lag(self, metadata: BatchMetadata) -> Mapping[str, int]:
        """Return how many records are behind a batch, by ``spout/partition``, where it is known."""
        return self._told("lag", lambda part: part.lag(metadata.of(part.spout_id)))

    def lost(self, metadata: BatchMetadata) -> Mapping[str, str]:
        """Return what the sources lost before a batch could read it, by ``spout/partition``."""
        taking = metadata.takes_part
        return self._told(
            "losses",
            lambda p: p.lost(metadata.of(p.spout_id)) if taking(p.spout_id) else {},
        )

    @property
    def held_back(self) -> Mapping[str, str]:
        """What waits for its time or was set aside, in words: of each spout, and of the clock."""
        return {name: told for part in self.parts for name, told in part.held_back.items()}

    def close(self) -> None:
        """Close the coordinators and the emitters."""
        with ExitStack() as closing:
            for part in self.parts:
                closing.callback(part.close)

    def _ask(self, spout: str, action: PlanBatch) -> PlanBatch:
        """Return what one of the spouts is asked."""
        last_txid, last = action.last_txid, action.last
        if spout in self._whole and action.previous is not None:
            last_txid, last = action.attempt.txid - 1, action.previous
        last, before = (None if each is None else each.of(spout) for each in (last, action.before))
        return PlanBatch(action.attempt, last_txid, last, before)

    def _answer(self, part: BatchPlanner, ask: PlanBatch, pending: int) -> Planned | None:
        """Return what a spout plans; None if it is not ready or out of reach."""
        spout, txid, outage = part.spout_id, ask.attempt.txid, self._outages.get(part.spout_id)
        now_s = 0.0 if self._times is None else self._times.now()
        if outage is not None and now_s < outage.until_s:
            return None
        try:
            answer = part.plan(ask, pending)
        except InfrastructureError as error:
            failures = 1 if outage is None else outage.failures + 1
            until_s = now_s + self._config.pause_s(failures)
            self._outages[spout] = _Outage(failures, until_s)
            if outage is None:
                text = (
                    "topology %r: spout %r is out of reach, and absent from txid %d on until it "
                    "is back, while the others go on; got %s; look at its source"
                )
                arguments = self._topology_id, spout, txid, one_line(error)
                _logger.warning(text, *arguments, extra=self._facts(spout, txid))
            return None
        if outage is not None:
            del self._outages[spout]
            text = "topology %r: spout %r is back at txid %d, after %d asks in vain"
            asked = self._topology_id, spout, txid, outage.failures
            _logger.info(text, *asked, extra=self._facts(spout, txid))
        return answer if isinstance(answer, Planned) else None

    def _told(self, what: str, tell: Callable[[BatchPlanner], Mapping[str, V]]) -> Mapping[str, V]:
        """Return what all spouts tell that are in reach; one that cannot does not hide others."""
        told: dict[str, V] = {}
        for part in self.parts:
            if part.spout_id in self._outages:
                continue
            try:
                own = tell(part)
            except Exception:
                text = "topology %r: spout %r could not tell its %s"
                facts = self._facts(part.spout_id)
                arguments = self._topology_id, part.spout_id, what
                _logger.warning(text, *arguments, exc_info=True, extra=facts)
                continue
            told.update({part_of(part.spout_id, name): value for name, value in own.items()})
        return told

    def _facts(self, spout: str, txid: int | None = None) -> Mapping[str, object]:
        return {"topology": self._topology_id, "component": spout, "txid": txid}


@dataclass(frozen=True, slots=True)
class _Outage:
    """A spout that is out of reach: how often it was asked in vain, and when it is asked again."""

    failures: int
    until_s: float


def _check_unpaced(graph: Graph, config: Config) -> None:
    given = [name for name, value in asdict(config.pace).items() if value is not None]
    if given:
        spouts = ", ".join(repr(spout.id) for spout in graph.spouts)
        raise ConfigError(
            f"a topology with several spouts cannot be paced; got {' and '.join(given)} and the "
            f"spouts {spouts}; expected one spout, since a limit is of one spout's rows; limit the "
            "batches in the spouts themselves, or run each source in a topology of its own",
            setting=given[0],
        )
