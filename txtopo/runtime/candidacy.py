"""Candidacy: how a driver gains the leadership, and finds out who leads after losing it.

Rules
-----
1. Only this file changes the step of a candidacy, as the table :data:`AFTER` allows. An event that
   the step does not expect changes nothing.
2. Nothing is claimed before the leadership is granted.
3. Each claim has a new journal. So a late write of an earlier term is refused.
4. No term begins with a claim whose session was lost, or that ends after the run has ended. What
   it has opened is dropped.
5. A process whose claim has succeeded and whose session was lost asks for the leadership again only
   after a check that no other process has claimed a later epoch. If one has, the run ends with an
   error that names the successor.

Theory of operation
-------------------
A candidacy asks for the leadership until it has it, claims an epoch, and then lets the driver begin
a term. When the session is lost, the driver closes its term, the candidacy checks who leads, and
asks again. If another process claims an epoch at the same time, the candidacy leaves the election
and enters it again at the end.

At each step the candidacy waits for one thing: an answer of ZooKeeper or of a store, the end of a
pause, or the driver. A lost session does not end a request or a claim that is under way. It makes
it void, so that the answer leads somewhere else.

The table, as a diagram. A test compares the two. ::

    NEW                  --BEGUN--> ASKING
    ASKING               --GRANTED--> CLAIMING
    ASKING               --REFUSED--> LOOKING
    ASKING               --REFUSED_AGAIN--> ASKING
    ASKING, REQUEST_VOID --FAILED--> ASK_PAUSE
    ASKING               --SESSION_LOST--> REQUEST_VOID
    REQUEST_VOID         --REFUSED, REFUSED_AGAIN--> ASKING
    LOOKING              --LOOKED--> ASKING
    ASK_PAUSE            --PAUSE_ENDED--> ASKING
    CLAIMING             --CLAIMED--> LEADING
    CLAIMING             --FENCED--> LEAVING
    CLAIMING             --FAILED--> CLAIM_PAUSE
    CLAIMING             --SESSION_LOST--> CLAIM_VOID
    CLAIM_PAUSE          --PAUSE_ENDED--> CLAIMING
    CLAIM_PAUSE          --SESSION_LOST--> ASK_PAUSE
    CLAIM_VOID           --CLAIMED--> CONFIRMING
    CLAIM_VOID           --FENCED, FAILED--> ASK_PAUSE
    LEAVING              --LEFT--> ASK_PAUSE
    LEADING              --SESSION_LOST--> LOST
    LOST                 --TERM_CLOSED--> CONFIRM_PAUSE
    LOST                 --TERM_NOT_OPENED--> CONFIRMING
    CONFIRM_PAUSE        --PAUSE_ENDED--> CONFIRMING
    CONFIRMING           --CONFIRMED--> ASKING
    CONFIRMING           --FAILED--> CONFIRM_PAUSE
    any other            --ENDED--> OVER

* After the first refusal it reads who leads, and tells the listeners. After later ones it does not.
* A failure of ZooKeeper, a store or Spark is followed by a pause. Pauses grow until a term makes
  progress. Any other failure ends the run: the driver answers it with ``ENDED``.
* The session may be lost while the driver still opens its term. Then there is nothing to close, and
  the check follows without a pause (``TERM_NOT_OPENED``).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum, auto
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


class CandidacyStep(Enum):
    """What a candidacy does or waits for."""

    NEW = auto()
    """It has not begun."""
    ASKING = auto()
    """It asks for the leadership."""
    REQUEST_VOID = auto()
    """It asks for the leadership, but its session was lost meanwhile."""
    LOOKING = auto()
    """It reads who leads, to tell the listeners."""
    ASK_PAUSE = auto()
    """It waits before it asks for the leadership again."""
    CLAIMING = auto()
    """It has the leadership, and claims an epoch and the rest that a leader needs."""
    CLAIM_VOID = auto()
    """It claims an epoch, but its session was lost meanwhile."""
    CLAIM_PAUSE = auto()
    """It has the leadership, and waits before it claims again."""
    LEAVING = auto()
    """It leaves the election, because another process has claimed an epoch meanwhile."""
    LEADING = auto()
    """The term of the driver has begun."""
    LOST = auto()
    """The session of the term was lost; the driver closes the term."""
    CONFIRMING = auto()
    """It checks whether another process has claimed a later epoch."""
    CONFIRM_PAUSE = auto()
    """It waits before it checks that."""
    OVER = auto()
    """The run is ending, so nothing is requested any more."""


class CandidacyEvent(Enum):
    """What changes the step of a candidacy."""

    BEGUN = auto()
    GRANTED = auto()
    REFUSED = auto()
    """Another process leads, which the listeners have not been told."""
    REFUSED_AGAIN = auto()
    """Another process still leads."""
    LOOKED = auto()
    CLAIMED = auto()
    FENCED = auto()
    """Another process has claimed an epoch at the same time."""
    LEFT = auto()
    CONFIRMED = auto()
    FAILED = auto()
    """A request, a claim or a check failed because of the infrastructure."""
    PAUSE_ENDED = auto()
    SESSION_LOST = auto()
    TERM_CLOSED = auto()
    TERM_NOT_OPENED = auto()
    ENDED = auto()


AFTER: dict[tuple[CandidacyStep, CandidacyEvent], CandidacyStep] = {
    (CandidacyStep.NEW, CandidacyEvent.BEGUN): CandidacyStep.ASKING,
    (CandidacyStep.ASKING, CandidacyEvent.GRANTED): CandidacyStep.CLAIMING,
    (CandidacyStep.ASKING, CandidacyEvent.REFUSED): CandidacyStep.LOOKING,
    (CandidacyStep.ASKING, CandidacyEvent.REFUSED_AGAIN): CandidacyStep.ASKING,
    (CandidacyStep.ASKING, CandidacyEvent.FAILED): CandidacyStep.ASK_PAUSE,
    (CandidacyStep.ASKING, CandidacyEvent.SESSION_LOST): CandidacyStep.REQUEST_VOID,
    (CandidacyStep.REQUEST_VOID, CandidacyEvent.REFUSED): CandidacyStep.ASKING,
    (CandidacyStep.REQUEST_VOID, CandidacyEvent.REFUSED_AGAIN): CandidacyStep.ASKING,
    (CandidacyStep.REQUEST_VOID, CandidacyEvent.FAILED): CandidacyStep.ASK_PAUSE,
    (CandidacyStep.LOOKING, CandidacyEvent.LOOKED): CandidacyStep.ASKING,
    (CandidacyStep.ASK_PAUSE, CandidacyEvent.PAUSE_ENDED): CandidacyStep.ASKING,
    (CandidacyStep.CLAIMING, CandidacyEvent.CLAIMED): CandidacyStep.LEADING,
    (CandidacyStep.CLAIMING, CandidacyEvent.FENCED): CandidacyStep.LEAVING,
    (CandidacyStep.CLAIMING, CandidacyEvent.FAILED): CandidacyStep.CLAIM_PAUSE,
    (CandidacyStep.CLAIMING, CandidacyEvent.SESSION_LOST): CandidacyStep.CLAIM_VOID,
    (CandidacyStep.CLAIM_PAUSE, CandidacyEvent.PAUSE_ENDED): CandidacyStep.CLAIMING,
    (CandidacyStep.CLAIM_PAUSE, CandidacyEvent.SESSION_LOST): CandidacyStep.ASK_PAUSE,
    (CandidacyStep.CLAIM_VOID, CandidacyEvent.CLAIMED): CandidacyStep.CONFIRMING,
    (CandidacyStep.CLAIM_VOID, CandidacyEvent.FENCED): CandidacyStep.ASK_PAUSE,
    (CandidacyStep.CLAIM_VOID, CandidacyEvent.FAILED): CandidacyStep.ASK_PAUSE,
    (CandidacyStep.LEAVING, CandidacyEvent.LEFT): CandidacyStep.ASK_PAUSE,
    (CandidacyStep.LEADING, CandidacyEvent.SESSION_LOST): CandidacyStep.LOST,
    (CandidacyStep.LOST, CandidacyEvent.TERM_CLOSED): CandidacyStep.CONFIRM_PAUSE,
    (CandidacyStep.LOST, CandidacyEvent.TERM_NOT_OPENED): CandidacyStep.CONFIRMING,
    (CandidacyStep.CONFIRM_PAUSE, CandidacyEvent.PAUSE_ENDED): CandidacyStep.CONFIRMING,
    (CandidacyStep.CONFIRMING, CandidacyEvent.CONFIRMED): CandidacyStep.ASKING,
    (CandidacyStep.CONFIRMING, CandidacyEvent.FAILED): CandidacyStep.CONFIRM_PAUSE,
    **{
        (step, CandidacyEvent.ENDED): CandidacyStep.OVER
        for step in CandidacyStep
        if step is not CandidacyStep.OVER
    },
}

WITH_PLACE = frozenset({CandidacyStep.CLAIMING, CandidacyStep.CLAIM_PAUSE, CandidacyStep.LEADING})
"""Steps with a place in the election. When the run ends, the driver gives the place up."""


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
        lost: Closes the term, because its session was lost. Then the driver tells the candidacy.
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

    Who calls it: the driver. It calls :meth:`begin` once. After ``Hooks.lost`` it calls
    :meth:`term_closed` or :meth:`term_not_opened` when its term has ended, and :meth:`end` when the
    run ends.

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
        self._step = CandidacyStep.NEW
        self._topology_id = topology_id
        self._config, self._history_txids = config, history_txids
        self._state = state
        self._candidate = candidate
        self._scheduler = scheduler
        self._hooks = hooks
        self._requests = self._failures = 0

    @property
    def step(self) -> CandidacyStep:
        """What it does or waits for."""
        return self._step

    @property
    def is_lost(self) -> bool:
        """Whether the session of the term was lost, and the driver has not closed the term yet."""
        return self._step is CandidacyStep.LOST

    @property
    def over(self) -> bool:
        """Whether the run is ending, so that nothing is requested any more."""
        return self._step is CandidacyStep.OVER

    # ------------------------------------------------------------ what the driver tells

    def begin(self) -> None:
        """Ask for the leadership for the first time."""
        self._hooks.tell(Started(self._topology_id))
        self._moved(CandidacyEvent.BEGUN)

    def term_closed(self) -> None:
        """Check who leads, after a pause: the session was lost, and the term is closed now."""
        if self._moved(CandidacyEvent.TERM_CLOSED):
            what = "the session that holds the leadership"
            self.later(what, self.lost_error(), self._pause_ended, self.journal.epoch)

    def term_not_opened(self) -> None:
        """Check who leads: the session was lost before the term ran."""
        self._moved(CandidacyEvent.TERM_NOT_OPENED)

    def end(self) -> None:
        """Request nothing any more, since the run is ending."""
        self._moved(CandidacyEvent.ENDED)

    def lost_error(self) -> CoordinatorUnavailable:
        """Return the error for the loss of this term's session."""
        text = f"the session of epoch {self.journal.epoch} with zookeeper was lost"
        return CoordinatorUnavailable(text)

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

    # ------------------------------------------------------------ the work of each step

    def _moved(self, event: CandidacyEvent) -> bool:
        """Enter the step after an event and start its work; return False if it is unexpected."""
        after = AFTER.get((self._step, event))
        if after is None:
            return False
        self._step = after
        if after not in WITH_PLACE and after is not CandidacyStep.OVER:
            self.leadership = None
        check_invariants(after, self.leadership)
        if after is CandidacyStep.ASKING:
            self._ask()
        elif after is CandidacyStep.LOOKING:
            self._scheduler.submit(self.journal.holder, self._looked)
        elif after is CandidacyStep.CLAIMING:
            self._claim()
        elif after is CandidacyStep.CONFIRMING:
            self._scheduler.submit(self.journal.confirm, self._confirmed)
        return True

    def _ask(self) -> None:
        self._requests += 1
        number = self._requests

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
        granted = None if error is not None else future.result()
        if granted is not None and self._step is CandidacyStep.ASKING:
            self.leadership = granted
            self._moved(CandidacyEvent.GRANTED)
            return
        self._hooks.wait()
        if error is not None:
            self._failed("the request for the leadership", error)
        elif self.status == "standby":
            self._moved(CandidacyEvent.REFUSED_AGAIN)
        else:
            self._moved(CandidacyEvent.REFUSED)

    def _looked(self, future: Future[Json]) -> None:
        """Report the leader to the listeners, if it can be read."""
        if self.over:
            return
        self.status = "standby"
        holder = future.result() if future.exception() is None else None
        self._hooks.tell(Standby(self._topology_id, holder))
        self._moved(CandidacyEvent.LOOKED)

    def _claim(self) -> None:
        # A late write of the previous term uses that term's journal, and is refused.
        journal = self.journal = Journal(self._state, self._history_txids)
        self._scheduler.submit(lambda: self._hooks.claim(journal), self._claimed)

    def _claimed(self, future: Future[T]) -> None:
        error = future.exception()
        if error is None and self._step is not CandidacyStep.CLAIMING:
            self._hooks.drop(future.result())
        if self.over:
            return
        if isinstance(error, FencedError):
            self._fenced(error)
        elif error is not None:
            self._failed("the takeover", error)
        elif self._moved(CandidacyEvent.CLAIMED) and self._step is CandidacyStep.LEADING:
            self.status = "starting"
            self._hooks.lead(future.result())

    def _fenced(self, error: FencedError) -> None:
        """Enter the election again, at its end, because another process claimed meanwhile."""
        place = self.leadership
        self._moved(CandidacyEvent.FENCED)

        def pause() -> None:
            self.later("the claim of an epoch", error, self._pause_ended)

        def left(_: Future[None]) -> None:
            if self._moved(CandidacyEvent.LEFT):
                pause()

        if place is not None:
            self._scheduler.submit(place.release, left)
        else:
            pause()

    def _confirmed(self, future: Future[None]) -> None:
        error = future.exception()
        if error is None:
            self._moved(CandidacyEvent.CONFIRMED)
        elif not self.over:
            self._failed("the check of who leads", error)

    def _failed(self, what: str, error: BaseException) -> None:
        if isinstance(error, InfrastructureError):
            self._moved(CandidacyEvent.FAILED)
        self.retry(what, error, self._pause_ended)

    def _pause_ended(self) -> None:
        self._moved(CandidacyEvent.PAUSE_ENDED)

    def _lost(self, number: int) -> None:
        """Note that the session of a request was lost; a later request has another session."""
        had_place = self.leadership is not None
        if number != self._requests or not self._moved(CandidacyEvent.SESSION_LOST):
            return
        if had_place:
            self.status = "leadership lost"
        if self._step is CandidacyStep.LOST:
            self._hooks.lost()


def check_invariants(step: CandidacyStep, leadership: Leadership | None) -> None:
    """Check what holds after every event. A breach is a bug of ours, so these are assertions."""
    if step is not CandidacyStep.OVER:
        assert (leadership is not None) == (step in WITH_PLACE), "who has a place in the election"
