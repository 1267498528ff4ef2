"""How a driver gains the leadership, finds out who leads after losing it, and obeys operators.

A candidacy asks for the leadership until it has it, and claims an epoch. When the session is lost,
the driver closes its term, and the candidacy checks whether another process has claimed a later
epoch. If so, the run ends with an error that names the successor. Otherwise the candidacy asks for
the leadership again. After a failure of ZooKeeper, a store or Spark it tries again after a pause.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from txtopo.ensemble.commands import KILLED, RUNNING, Desired, who
from txtopo.ensemble.journal import Journal
from txtopo.errors import CoordinatorUnavailable, FencedError, InfrastructureError, TopologyKilled
from txtopo.log_records import logger_of
from txtopo.retries import LOGGER, warn_of_retry
from txtopo.runtime.progress import Standby, Started, TopologyEvent
from txtopo.runtime.succession import as_exception

if TYPE_CHECKING:
    from txtopo.config import AnyConfig
    from txtopo.ensemble.store import Leadership, TransactionalState
    from txtopo.metadata import Json
    from txtopo.runtime.scheduler import Scheduler, Timer

# How long one request for the leadership waits, and so how long a stop may wait for it.
LEAD_TIMEOUT_S = 1.0

_logger = logger_of(LOGGER)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Hooks(Generic[T]):
    """How a candidacy reaches its driver. All but *claim* are called on the loop.

    Attributes:
        tell: Reports a change to the listeners.
        claim: Claims an epoch and the rest that a leader needs, with a new journal. Called on a
            thread.
        lead: Begins a term with the result of *claim*.
        drop: Closes the result of a *claim* that came too late: the session was lost, or the run
            has ended.
        wait: Called after each request for the leadership that was not granted.
        lost: Closes the term, because its session was lost.
        fail: Ends the run with an error.
    """

    tell: Callable[[TopologyEvent], None]
    claim: Callable[[Journal], T]
    lead: Callable[[T], None]
    drop: Callable[[T], None]
    wait: Callable[[], None]
    lost: Callable[[], None]
    fail: Callable[[Exception], None]


class Candidacy(Generic[T]):
    """A process's candidacy for the leadership of one topology. Used on the loop only.

    Args:
        topology_id: Id of the topology.
        config: Its settings.
        state: Its transactional state.
        candidate: Describes this process to other candidates.
        scheduler: Time and threads of the loop.
        hooks: How to reach the driver.
        history_txids: How many committed txids the journal keeps for operators.
    """

    def __init__(
        self,
        topology_id: str,
        config: AnyConfig,
        state: TransactionalState,
        candidate: Json,
        scheduler: Scheduler,
        hooks: Hooks[T],
        history_txids: int = 0,
    ) -> None:
        self.status = "starting"
        """``starting``, ``standby``, or ``leadership lost``."""
        self.journal = Journal(state, history_txids)
        """The journal of this term."""
        self.leadership: Leadership | None = None
        """The place in the election; None without one, or after its session was lost."""
        self.over = False
        """Whether the run is ending, so that nothing is requested any more."""
        self._topology_id = topology_id
        self._config, self._history_txids = config, history_txids
        self._state = state
        self._candidate = candidate
        self._scheduler = scheduler
        self._hooks = hooks
        self._terms = self._lost_term = self._failures = 0

    @property
    def is_lost(self) -> bool:
        """Whether the session of the current term was lost."""
        return self._lost_term == self._terms

    def begin(self) -> None:
        """Ask for the leadership for the first time."""
        self._hooks.tell(Started(self._topology_id))
        self._seek()

    def confirm(self) -> None:
        """Check whether another process has claimed a later epoch; if not, contend again."""
        if self.over:
            return

        def done(future: Future[None]) -> None:
            error = future.exception()
            if error is None:
                self._seek()
            elif not self.over:
                self.retry("the check of who leads", error, self.confirm)

        self._scheduler.submit(self.journal.confirm, done)

    def lost_error(self) -> CoordinatorUnavailable:
        """Return the error for the loss of this term's session."""
        text = f"the session of epoch {self.journal.epoch} with zookeeper was lost"
        return CoordinatorUnavailable(text)

    def confirm_later(self, lost: Exception) -> None:
        """Confirm after a pause, since the session was lost."""
        what = "the session that holds the leadership"
        self.later(what, lost, self.confirm, self.journal.epoch)

    def retry(
        self,
        what: str,
        error: BaseException,
        again: Callable[[], None],
    ) -> None:
        """Call *again* after a pause if the infrastructure failed; otherwise end the run."""
        if isinstance(error, InfrastructureError):
            self.later(what, error, again)
        else:
            self._hooks.fail(as_exception(error))

    def later(
        self, what: str, error: Exception, again: Callable[[], None], epoch: int | None = None
    ) -> None:
        """Call *again* after a pause. Pauses grow until ``forget_failures`` is called."""
        self._failures += 1
        pause_s = self._config.pause_s(self._failures)
        warn_of_retry(
            what,
            error,
            topology=self._topology_id,
            failures=self._failures,
            pause_s=pause_s,
            epoch=epoch,
        )
        self._scheduler.call_later(pause_s, again)

    def forget_failures(self) -> None:
        """Make the next pause short again, because a term made progress."""
        self._failures = 0

    def _seek(self) -> None:
        if self.over:
            return
        self._terms += 1
        number = self._terms

        def lead() -> Leadership | None:
            return self._state.lead(
                self._candidate,
                timeout_s=LEAD_TIMEOUT_S,
                on_lost=lambda: self._scheduler.post(lambda: self._lost(number)),
            )

        self._scheduler.submit(lead, self._asked)

    def _asked(self, future: Future[Leadership | None]) -> None:
        if self.over:
            return
        error = future.exception()
        self.leadership = None if error is not None or self.is_lost else future.result()
        if self.leadership is not None:
            self._take_over()
            return
        self._hooks.wait()
        if error is not None:
            self.retry("the request for the leadership", error, self._seek)
        elif self.status != "standby" and not self.is_lost:
            self._scheduler.submit(self.journal.holder, self._stand_by)
        else:
            self._seek()

    def _stand_by(self, future: Future[Json]) -> None:
        """Report the leader to the listeners, if it can be read, and ask again."""
        if self.over:
            return
        self.status = "standby"
        holder = future.result() if future.exception() is None else None
        self._hooks.tell(Standby(self._topology_id, holder))
        self._seek()

    def _take_over(self) -> None:
        # A late write of the previous term uses that term's journal, and is refused.
        journal = self.journal = Journal(self._state, self._history_txids)

        def done(future: Future[T]) -> None:
            error = future.exception()
            if error is None and (self.over or self.is_lost):
                self._hooks.drop(future.result())
            if self.over:
                return
            if isinstance(error, FencedError):
                self._contend_again(error)
            elif error is not None:
                self.retry("the takeover", error, self._take_over_again)
            elif self.is_lost:
                self.confirm()
            else:
                self.status = "starting"
                self._hooks.lead(future.result())

        self._scheduler.submit(lambda: self._hooks.claim(journal), done)

    def _contend_again(self, error: FencedError) -> None:
        """Leave the election and enter it again, because another process claimed meanwhile."""
        leadership, self.leadership = self.leadership, None

        def released(_: Future[None] | None) -> None:
            if not self.over:
                self.later("the claim of an epoch", error, self._seek)

        if leadership is not None:
            self._scheduler.submit(leadership.release, released)
        else:
            released(None)

    def _take_over_again(self) -> None:
        if self.is_lost:
            self._seek()
        elif not self.over:
            self._take_over()

    def _lost(self, number: int) -> None:
        if self.over or number != self._terms:
            return
        self._lost_term, self.leadership = number, None
        self._hooks.lost()


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
        """Whether operators want the topology to run: it is neither deactivated nor killed."""
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
        """Take over the desired status, as at the begin of a term; forget an earlier kill."""
        self.desired, self._kill_is_due = desired, False
        if self._kill is not None:
            self._kill.cancel()
            self._kill = None

    def obey(self, desired: Desired) -> None:
        """Carry out the desired status, which the beat has stored. Called after each beat."""
        if desired.same_wish(self.desired):
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
        if not desired.same_wish(self.desired) or (beating := self._beating()) is None:
            return
        self._kill_is_due = beating
        if not beating:
            self._stop()
