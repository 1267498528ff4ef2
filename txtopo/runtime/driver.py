"""TopologyDriver: the loop of one run, from the wish to lead to the last callback.

A run is a sequence of terms (:mod:`txtopo.runtime.term`). It asks for the leadership, takes over,
and feeds the coordinator of the term. When the session with ZooKeeper is lost the term is over: the
run looks whether somebody else has claimed a later epoch. If so it stops with an error that names
the successor; else it asks for the leadership again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial

from txtopo.coordinator.protocol import Activated, Deactivated, StopRequested, Tick
from txtopo.errors import CoordinatorUnavailable, FencedError, InfrastructureError
from txtopo.metadata import Json
from txtopo.retries import warn_of_retry
from txtopo.runtime.commit_phase import CommitPhase
from txtopo.runtime.handle import IdleWaiters
from txtopo.runtime.progress import (
    Leading,
    Listeners,
    ProgressMeter,
    Standby,
    Started,
    Stopped,
    TopologyListener,
)
from txtopo.runtime.run_context import RunContext, close_context, close_spout
from txtopo.runtime.takeover import Takeover, take_over
from txtopo.runtime.term import Hooks, LeaderTerm
from txtopo.transactional_state.journal import Journal
from txtopo.transactional_state.store import Leadership

# How long one question for the leadership waits; it bounds how long a stop has to wait for it.
LEAD_TIMEOUT_S = 1.0

# A spout's close may hang on a dead source; by then everything else is closed.
CLOSE_TIMEOUT_S = 10.0

logger = logging.getLogger("txtopo")


class TopologyDriver:
    """Runs one topology. Every method but :meth:`post` is for the loop only.

    Args:
        context: What the run is made of.
        candidate: Who asks for the leadership, shown to others.
        listeners: Told of each change.
    """

    def __init__(
        self, context: RunContext, candidate: Json, listeners: Sequence[TopologyListener]
    ) -> None:
        self.ended: Future[Exception | None] = Future()
        self.status = "starting"
        self._context = context
        self._scheduler = context.scheduler
        self._candidate = candidate
        self._tell = Listeners(listeners).tell
        self._meter = ProgressMeter(context.scheduler.now())
        self._journal = Journal(context.transactional_state)
        self._leadership: Leadership | None = None
        self._term: LeaderTerm | None = None
        self._terms = self._lost_term = self._failures = self._began_at = 0
        self._ending = False
        self._active = True
        self._stopping = False
        self._waiters = IdleWaiters()

    # ------------------------------------------------------------ what the handle asks for

    def start(self) -> None:
        """Start the loop."""
        self._scheduler.start(self._begin, self._crashed)

    def post(self, callback: Callable[[], None]) -> None:
        """Have something done on the loop, unless the run has ended; from any thread."""
        self._scheduler.post(callback)

    def on_loop(self) -> bool:
        """Return whether the caller is the loop; from any thread."""
        return self._scheduler.on_loop()

    def stop(self) -> None:
        """Finish the commit in hand, drop the rest, end."""
        self._stopping = True
        if self._term is not None:
            self._term.handle(StopRequested())
        else:
            self._end(None)

    def set_active(self, active: bool) -> None:
        """Plan new batches, or do not."""
        self._active = active
        if self._term is not None:
            self._term.handle(Activated() if active else Deactivated())
            self._say_status()

    def wait_for_rest(self, future: Future[None]) -> None:
        """Resolve *future* when the spout has nothing left and all of it is committed."""
        self._waiters.add(future, self._term)
        if self.ended.done():
            self._waiters.end(self.ended.result())
        if self._term is not None:
            self._term.handle(Tick())

    # ------------------------------------------------------------ leadership

    def _begin(self) -> None:
        self._tell(Started(self._context.graph.id))
        self._seek()

    def _seek(self) -> None:
        if self._ending:
            return
        self._terms += 1
        number = self._terms

        def lead() -> Leadership | None:
            return self._context.transactional_state.lead(
                self._candidate,
                timeout_s=LEAD_TIMEOUT_S,
                on_lost=lambda: self.post(lambda: self._lost(number)),
            )

        self._scheduler.submit(lead, self._asked)

    def _asked(self, future: Future[Leadership | None]) -> None:
        if self._ending:
            return
        error = future.exception()
        if error is not None:
            self._retry("the request for the leadership", error, self._seek)
            return
        self._leadership = future.result()
        if self._leadership is not None and self._lost_term != self._terms:
            self._take_over()
            return
        if self.status != "standby":
            self._scheduler.submit(self._journal.holder, self._stand_by)
        else:
            self._seek()

    def _stand_by(self, future: Future[Json]) -> None:
        """Say who leads, if that can be read, and go on asking."""
        if self._ending:
            return
        self.status = "standby"
        holder = future.result() if future.exception() is None else None
        logger.warning(
            "txtopo %s: another leads, this one waits: %s", self._context.graph.id, holder
        )
        self._tell(Standby(self._context.graph.id, holder))
        self._seek()

    def _take_over(self) -> None:
        def done(future: Future[Takeover]) -> None:
            error = future.exception()
            wanted = not self._ending and self._lost_term != self._terms
            if error is None and not wanted:
                phase = CommitPhase(self._context, future.result().backends)
                self._scheduler.submit(phase.close, lambda _: None)
            if self._ending:
                return
            if isinstance(error, FencedError):
                self._contend_again(error)
            elif error is not None:
                self._retry("the takeover", error, self._take_over_again)
            elif wanted:
                self._begin_term(future.result())
            else:
                self._confirm()

        kept = self._context.config.history_txids
        journal = self._journal = Journal(self._context.transactional_state, kept)
        self._scheduler.submit(lambda: take_over(self._context, journal, self._candidate), done)

    def _contend_again(self, error: FencedError) -> None:
        """Somebody claimed at the same time; the place in the election was no longer ours."""
        leadership, self._leadership = self._leadership, None

        def released(_: Future[None] | None) -> None:
            if not self._ending:
                self._later("the claim of an epoch", error, self._seek)

        if leadership is not None:
            self._scheduler.submit(leadership.release, released)
        else:
            released(None)

    def _take_over_again(self) -> None:
        if self._lost_term == self._terms:
            self._seek()
        elif not self._ending:
            self._take_over()

    def _begin_term(self, taken: Takeover) -> None:
        coordinator = taken.coordinator
        phase = CommitPhase(self._context, taken.backends)
        hooks = Hooks(self._tell, self._waiters, self._end_term)
        self._term = LeaderTerm(
            self._context, taken.journal, coordinator, phase, self._meter, hooks
        )
        self._began_at = coordinator.current
        self._waiters.begin()
        self._tell(
            Leading(self._context.graph.id, coordinator.epoch, coordinator.current, taken.adopted)
        )
        self._say_status()
        if not self._active:
            self._term.handle(Deactivated())
        self._term.start()

    def _lost(self, number: int) -> None:
        """The session is gone: end the term, and find out whether somebody else leads."""
        if self._ending or number != self._terms:
            return
        self._lost_term = number
        if self._term is None:
            return  # what is under way (the question, the takeover) looks at this when it ends
        if self._term.coordinator.current > self._began_at:
            self._failures = 0
        epoch = self._term.coordinator.epoch
        self._term.close()
        self._scheduler.submit(self._term.release, lambda _: None)
        self._term = None
        self._leadership = None
        self.status = "leadership lost"
        lost = CoordinatorUnavailable(f"the session of epoch {epoch} with zookeeper was lost")
        self._retry("the session that holds the leadership", lost, self._confirm, epoch)

    def _confirm(self) -> None:
        if self._ending:
            return
        if self._stopping:
            self._end(None)
            return

        def done(future: Future[None]) -> None:
            error = future.exception()
            if error is None:
                self._seek()
            elif not self._ending:
                self._retry("the check of who leads", error, self._confirm)

        self._scheduler.submit(self._journal.confirm, done)

    def _retry(
        self,
        what: str,
        error: BaseException,
        again: Callable[[], None],
        epoch: int | None = None,
    ) -> None:
        if not isinstance(error, InfrastructureError):
            self._end(error if isinstance(error, Exception) else RuntimeError(repr(error)))
            return
        self._later(what, error, again, epoch)

    def _later(
        self, what: str, error: Exception, again: Callable[[], None], epoch: int | None = None
    ) -> None:
        """Try again after a pause that grows until a term has committed something."""
        if self._stopping:
            self._end(None)
            return
        self._failures += 1
        pause_s = self._context.config.pause_s(self._failures)
        warn_of_retry(
            what,
            error,
            topology=self._context.graph.id,
            failures=self._failures,
            pause_s=pause_s,
            epoch=epoch,
        )
        self._scheduler.call_later(pause_s, again)

    # ------------------------------------------------------------ the end

    def _say_status(self) -> None:
        self.status = "running" if self._active else "deactivated"

    def _end_term(self, error: Exception | None) -> None:
        """End the run; a store that refused us knows only the epoch, ZooKeeper who it is."""
        if not isinstance(error, FencedError) or self._ending:
            self._end(error)
            return
        if self._term is not None:
            self._term.close()

        def done(future: Future[None]) -> None:
            named = future.exception()
            self._end(named if isinstance(named, FencedError) else error)

        self._scheduler.submit(self._journal.confirm, done)

    def _crashed(self, error: BaseException) -> None:
        """A bug of ours, or an invariant that does not hold: end rather than go on or hang."""
        logger.error("txtopo %s: the loop failed", self._context.graph.id, exc_info=error)
        unusual = RuntimeError(f"the loop of topology {self._context.graph.id!r}: {error!r}")
        self._end(error if isinstance(error, Exception) else unusual)

    def _end(self, error: Exception | None) -> None:
        if self._ending:
            return
        self._ending = True
        self.status = "stopping"
        term, self._term = self._term, None
        try:
            if term is not None:
                term.close()
            release = term.release if term is not None else None
            close = partial(close_context, self._context, self._leadership, release)
            self._scheduler.submit(close, lambda _: self._close_spout(error))
        except Exception:
            logger.exception("txtopo %s: could not close", self._context.graph.id)
            self._closed(error)

    def _close_spout(self, error: Exception | None) -> None:
        self._scheduler.call_later(CLOSE_TIMEOUT_S, lambda: self._closed(error))
        self._scheduler.submit(lambda: close_spout(self._context), lambda _: self._closed(error))

    def _closed(self, error: Exception | None) -> None:
        if self.ended.done():
            return
        self.status = "failed" if error is not None else "stopped"
        self._tell(Stopped(self._context.graph.id, error))
        self._waiters.end(error)
        self.ended.set_result(error)
        self._scheduler.stop()
