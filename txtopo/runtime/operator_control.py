"""OperatorControl: carries out what operators want of a running topology.

Operators activate, deactivate and kill a topology through ZooKeeper, so that it lasts. The leader
reads the desired status at each beat (:mod:`txtopo.runtime.leader_beat`) and obeys it here.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from txtopo.ensemble.commands import KILLED, RUNNING, Desired, who
from txtopo.errors import TopologyKilled
from txtopo.log_records import logger_of
from txtopo.retries import LOGGER

if TYPE_CHECKING:
    from txtopo.runtime.scheduler import Scheduler, Timer

_logger = logger_of(LOGGER)


class OperatorControl:
    """Carries out what operators want of a topology: its spouts start or stop, or the run ends.

    Used on the loop only.

    Args:
        topology_id: Id of the topology.
        scheduler: Time of the loop.
        changed: Starts or stops the spouts after the desired status has changed.
        stop: Stops the run.
        wait_for_rest: Resolves a future when nothing is left to do.
        beating: Returns whether a beat is under way; None if this process does not lead.
    """

    def __init__(
        self,
        topology_id: str,
        scheduler: Scheduler,
        *,
        changed: Callable[[], None],
        stop: Callable[[], None],
        wait_for_rest: Callable[[Future[None]], None],
        beating: Callable[[], bool | None],
    ) -> None:
        self.desired = Desired()
        self._topology_id = topology_id
        self._scheduler = scheduler
        self._changed = changed
        self._stop = stop
        self._wait_for_rest = wait_for_rest
        self._beating = beating
        self._kill: Timer | None = None
        self._kill_is_due = False

    @property
    def runs(self) -> bool:
        """Whether operators want the topology to run, neither deactivated nor killed."""
        return self.desired.status == RUNNING

    @property
    def killed(self) -> bool:
        """Whether the topology was killed."""
        return self.desired.status == KILLED

    def end_error(self, error: Exception) -> Exception | None:
        """Return the error with which the run ends.

        There is none if this run knows already that it was killed. It meets that error again when
        it takes over after its session was lost.
        """
        return None if isinstance(error, TopologyKilled) and self.killed else error

    def take(self, desired: Desired) -> None:
        """Adopt the desired status, as at the beginning of a term; forget an earlier kill."""
        self.desired, self._kill_is_due = desired, False
        if self._kill is not None:
            self._kill.cancel()
            self._kill = None

    def obey(self, desired: Desired) -> None:
        """Carry out the desired status, which the beat has stored. Called after each beat."""
        if desired.same_request(self.desired):
            if self._kill_is_due:
                self._stop()
            return
        id, status, by = self._topology_id, desired.status, who(desired.by)
        text = "topology %r: will be %s, as %s requested"
        _logger.info(text, id, status, by, extra={"topology": id})
        self.take(desired)
        self._changed()
        if self.killed:
            self._kill = self._scheduler.call_later(desired.wait_s, lambda: self._end_kill(desired))
            rested: Future[None] = Future()
            rested.add_done_callback(
                lambda _: self._scheduler.post(lambda: self._end_kill(desired))
            )
            self._wait_for_rest(rested)

    def _end_kill(self, desired: Desired) -> None:
        """Stop, unless the topology was activated meanwhile, or is just being activated."""
        # Without the leadership this process cannot know whether another one has activated it. It
        # learns that at the next takeover, or when it checks who leads.
        if not desired.same_request(self.desired) or (beating := self._beating()) is None:
            return
        self._kill_is_due = beating
        if not beating:
            self._stop()
