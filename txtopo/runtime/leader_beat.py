"""LeaderBeat: the leader's housekeeping, about once a second, for both kinds of topologies.

A beat answers the commands of operators (:mod:`txtopo.ensemble.commands` has the rules) and
publishes a summary of the run. First it checks that the jobs in flight can still end. It calls the
transactional state, which takes one call at a time. So the owner of the beat decides when a due
beat begins.

Rules
-----
1. The next beat is due a pause after the end of the last one: :data:`BEAT_S`, or longer after
   failures in a row. So there is one beat at a time, and a beat that fails is repeated.
2. An operator's command is carried out only after the beat that has stored it.
3. A beat that finds another leader, or a stopped Spark session that a job waits for, ends the run.
   After :meth:`close` the outcome of a beat is ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from txtopo.ensemble.commands import CommandDesk
from txtopo.errors import ConfigError, FencedError
from txtopo.retries import warn_of_retry

if TYPE_CHECKING:
    from concurrent.futures import Future

    from txtopo.config import AnyConfig
    from txtopo.ensemble.commands import Desired
    from txtopo.ensemble.journal import Journal
    from txtopo.ensemble.store import TransactionalState
    from txtopo.metadata import Json
    from txtopo.runtime.scheduler import Scheduler

BEAT_S = 1.0
"""Time between the end of one beat and the next one. A beat costs one request to ZooKeeper, and a
second one if it publishes the summary."""

Summary = Callable[[], "Json"]


@dataclass(frozen=True, slots=True)
class BeatHooks:
    """How a beat reaches its owner, on the loop.

    Attributes:
        due: Called when the pause after a beat is over. The owner calls :meth:`LeaderBeat.begin`
            when nothing else uses the transactional state.
        ended: Called after each beat with the status that operators want for the topology.
        end: Called instead with an error that ends the run: another coordinator leads, or a job
            waits for a Spark session that was stopped.
    """

    due: Callable[[], None]
    ended: Callable[[Desired], None]
    end: Callable[[Exception], None]


class LeaderBeat:
    """The beat of one term. Used on the loop only.

    Args:
        topology_id: Id of the topology.
        config: Its settings.
        state: The transactional state.
        scheduler: Clocks, threads and durable steps.
        journal: Writes to ZooKeeper under the epoch of the term.
        desired: The status that operators wanted when the term began.
        summary: Returns the summary of the run; None if there is no summary.
        check: Raises ``ConfigError`` if the jobs in flight cannot end; None if slots look for
            themselves.
    """

    def __init__(
        self,
        topology_id: str,
        config: AnyConfig,
        state: TransactionalState,
        scheduler: Scheduler,
        journal: Journal,
        desired: Desired,
        summary: Summary | None,
        check: Callable[[], None] | None,
    ) -> None:
        self._topology_id, self._config = topology_id, config
        self._state = state
        self._scheduler = scheduler
        self._desk = CommandDesk(state, journal, desired, scheduler)
        self._summary, self._check = summary, check
        self._epoch = journal.epoch
        self._hooks: BeatHooks | None = None
        self._failures = 0
        self.beating = False
        """Whether a beat is under way."""

    def start(self, hooks: BeatHooks, *, at_once: bool) -> None:
        """Begin the first beat, at once or when it is due after a pause."""
        self._hooks = hooks
        if at_once:
            self.begin()
        else:
            self._rest(BEAT_S)

    def begin(self) -> None:
        """Begin a beat, on a thread."""
        self.beating = True
        self._scheduler.submit(self._beat, self._ended)

    def forget_failures(self) -> None:
        """Make the next pause short again, because ZooKeeper has answered another request."""
        self._failures = 0

    def close(self) -> None:
        """Schedule no further beat, and ignore the outcome of the current one."""
        self._hooks = None

    def _beat(self) -> None:
        """Check the session, answer commands, and publish the summary. Blocks.

        Raises:
            ConfigError: A job is in flight, and its session was stopped.
            InfrastructureError: ZooKeeper cannot be reached; the next beat does the rest.
            FencedError: Another coordinator has taken over.
        """
        if self._check is not None:
            self._check()  # first, since it needs no ZooKeeper
        self._desk.serve()
        if self._summary is not None and self._state.announces:
            self._state.announce(self._summary())

    def _ended(self, future: Future[None]) -> None:
        self.beating = False
        if (hooks := self._hooks) is None:
            return
        error = future.exception()
        if isinstance(error, FencedError | ConfigError):
            hooks.end(error)
            return
        pause_s = BEAT_S
        self._failures = 0 if error is None else self._failures + 1
        if error is not None:
            pause_s = max(BEAT_S, self._config.pause_s(self._failures))
            warn_of_retry(
                "the look at what operators ask for",
                error,
                topology=self._topology_id,
                failures=self._failures,
                pause_s=pause_s,
                epoch=self._epoch,
            )
        self._rest(pause_s)
        hooks.ended(self._desk.desired)

    def _rest(self, pause_s: float) -> None:
        def due() -> None:
            if self._hooks is not None:
                self._hooks.due()

        self._scheduler.call_later(pause_s, due)
