"""Candidacy: how a driver gains the leadership, and finds out who leads after losing it.

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

from txtopo.ensemble.journal import Journal
from txtopo.errors import CoordinatorUnavailable, FencedError, InfrastructureError
from txtopo.retries import warn_of_retry
from txtopo.runtime.progress import Standby, Started, TopologyEvent
from txtopo.runtime.succession import as_exception

if TYPE_CHECKING:
    from txtopo.config import AnyConfig
    from txtopo.ensemble.store import Leadership, TransactionalState
    from txtopo.metadata import Json
    from txtopo.runtime.scheduler import Scheduler

# How long one request for the leadership waits, and so how long a stop may wait for it.
LEAD_TIMEOUT_S = 1.0


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
        wait: Called after each request for the leadership that was refused.
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
