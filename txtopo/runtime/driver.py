"""TopologyDriver: the loop of a topology, from the request for the leadership to the end.

The driver works in terms of leadership (:mod:`txtopo.runtime.term`). It asks for the leadership,
takes over, and begins a term. The term is over when the session with ZooKeeper is lost. Then the
driver checks whether another coordinator has claimed a later epoch. If so, the driver stops with an
error that names the successor. Otherwise it asks for the leadership again.

New batches are planned while two agree: the handle of this run (``run.deactivate()``), and what
operators asked of the topology, whose status is durable and holds for every process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from functools import partial

from txtopo.coordinator.protocol import Activated, Deactivated, StopRequested
from txtopo.errors import (
    CoordinatorUnavailable,
    FencedError,
    InfrastructureError,
    TopologyKilled,
)
from txtopo.log_records import logger_of
from txtopo.metadata import Json
from txtopo.retries import LOGGER, warn_of_retry
from txtopo.runtime.commit_phase import CommitPhase
from txtopo.runtime.handle import IdleWaiters
from txtopo.runtime.leader_beat import LeaderBeat, Summary
from txtopo.runtime.listeners import Listeners
from txtopo.runtime.progress import (
    Leading,
    ProgressMeter,
    Standby,
    Started,
    Stopped,
    TopologyListener,
)
from txtopo.runtime.run_context import RunContext, close_context, close_prepared, close_spout
from txtopo.runtime.scheduler import Timer
from txtopo.runtime.takeover import Takeover, take_over
from txtopo.runtime.term import Hooks, LeaderTerm
from txtopo.transactional_state.commands import DEACTIVATED, KILLED, RUNNING, Desired, who
from txtopo.transactional_state.journal import Journal
from txtopo.transactional_state.store import Leadership

# How long one request for the leadership waits. A stop waits at most so long for its answer.
LEAD_TIMEOUT_S = 1.0

# A spout's close may hang on a dead source. It is called last, so everything else is closed then.
CLOSE_TIMEOUT_S = 10.0

_logger = logger_of(LOGGER)


class TopologyDriver:
    """Runs one topology. Only :meth:`post` and :meth:`on_loop` may be called from any thread.

    Args:
        context: The graph, settings, carrier etc. of the topology.
        candidate: Describes this process to other candidates.
        listeners: They are told of each change.
        meter: Counts commits; that of the driver before, if the run is started again.
        summary: Returns what others shall see of the run while it leads; called on a thread.
    """

    def __init__(
        self,
        context: RunContext,
        candidate: Json,
        listeners: Sequence[TopologyListener],
        meter: ProgressMeter | None = None,
        summary: Summary | None = None,
    ) -> None:
        self.ended: Future[Exception | None] = Future()
        self.status = "starting"
        self._context = context
        self._scheduler = context.scheduler
        self._candidate = candidate
        self._tell = Listeners(context.graph.id, listeners).tell
        self._meter = meter or ProgressMeter(context.scheduler.now())
        self._journal = Journal(context.transactional_state)
        self._leadership: Leadership | None = None
        self._term: LeaderTerm | None = None
        self._terms = self._lost_term = self._failures = self._began_at = 0
        self._ending = False
        self._active = True
        self._stopping = False
        self._waiters = IdleWaiters()
        self._summary = summary
        self._desired = Desired()
        self._kill: Timer | None = None
        self._kill_is_due = False

    @property
    def pace(self) -> dict[str, Json]:
        """What limits batches now; from any thread. ``docs/explanation/pacing.md`` has the keys."""
        config, term, now = self._context.config, self._term, self._context.planner.pace
        given = {name: value for name, value in asdict(config.pace).items() if value is not None}
        return {
            "limited_by": now.get("limited_by"),
            "rows_max": now.get("rows_max"),
            "settings": given,
            "window_txids": config.window_txids,
            "window_full_at_s": term.window_full_at_s if term is not None else None,
        }

    # ------------------------------------------------------------ requests of the run handle

    def start(self) -> None:
        """Start the loop."""
        self._scheduler.start(self._begin, self._crashed)

    def post(self, callback: Callable[[], None]) -> None:
        """Call *callback* on the loop, unless the loop has ended; from any thread."""
        self._scheduler.post(callback)

    def on_loop(self) -> bool:
        """Return whether the caller is on the loop; from any thread."""
        return self._scheduler.on_loop()

    def stop(self) -> None:
        """Finish the commit that is under way, drop all other batches, and end."""
        self._stopping = True
        if self._term is not None:
            self._term.handle(StopRequested())
        else:
            self._end(None)

    def set_active(self, active: bool) -> None:
        """Start or stop planning new batches, as far as the handle of this run decides it."""
        self._active = active
        self._set_planning()

    def wait_for_rest(self, future: Future[None]) -> None:
        """Resolve *future* when the spout has nothing left and all of it is committed."""
        self._waiters.add(future, self._term)
        if self.ended.done():
            self._waiters.end(self.ended.result())
        if self._term is not None:
            self._term.ask_soon()

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
        self._leadership = None if error is not None else future.result()
        if self._leadership is not None and self._lost_term != self._terms:
            self._take_over()
            return
        if self._context.prepared:
            # Who waits holds no connection to a store, and creates the states again to take over.
            self._scheduler.submit(partial(close_prepared, self._context), lambda _: None)
        if error is not None:
            self._retry("the request for the leadership", error, self._seek)
            return
        if self.status != "standby":
            self._scheduler.submit(self._journal.holder, self._stand_by)
        else:
            self._seek()

    def _stand_by(self, future: Future[Json]) -> None:
        """Tell the listeners who leads, if that can be read, and ask again."""
        if self._ending:
            return
        self.status = "standby"
        holder = future.result() if future.exception() is None else None
        self._tell(Standby(self._context.graph.id, holder))
        self._seek()

    def _take_over(self) -> None:
        id = self._context.graph.id
        text = "topology %r: takes over; claims the next epoch, and each state for it"
        _logger.info(text, id, extra={"topology": id})

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
            elif isinstance(error, TopologyKilled) and self._killed:
                self._end(None)  # it is this run that was killed, and it lost its session meanwhile
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
        """Leave the election and enter it again, because another candidate claimed meanwhile."""
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
        hooks = Hooks(self._tell, self._waiters, self._end_term, self._obey)
        state, desired = self._context.transactional_state, taken.desired
        beat = LeaderBeat(state, self._scheduler, taken.journal, desired, self._summary)
        self._term = LeaderTerm(
            self._context, taken.journal, coordinator, phase, beat, self._meter, hooks
        )
        self._began_at = coordinator.current
        self._waiters.begin()
        first, last = taken.adopted or (None, None)
        topology, current = self._context.graph.id, coordinator.current
        self._tell(Leading(topology, coordinator.epoch, current, last, first))
        self._wish(taken.desired)
        self._say_status()
        if not self._plans:
            self._term.handle(Deactivated())
        self._term.start()

    def _lost(self, number: int) -> None:
        """End the term after the session was lost, and find out whether another one leads."""
        if self._ending or number != self._terms:
            return
        self._lost_term = number
        if self._term is None:
            return  # the request or the takeover that is under way checks _lost_term when it ends
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
        """Try again after a pause. The pause grows until a term has committed a batch."""
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

    # ------------------------------------------------------------ what operators ask for

    @property
    def _plans(self) -> bool:
        return self._active and self._desired.status == RUNNING

    @property
    def _killed(self) -> bool:
        return self._desired.status == KILLED

    def _obey(self, desired: Desired) -> None:
        """Do what operators asked for, which is stored by now. Called after each beat."""
        if desired.same_wish(self._desired):
            if self._kill_is_due:
                self.stop()
            return
        id, status, by = self._context.graph.id, desired.status, who(desired.by)
        text = "topology %r: is to be %s, as %s asked"
        _logger.info(text, id, status, by, extra={"topology": id})
        self._wish(desired)
        self._set_planning()
        if self._killed:
            self._kill = self._scheduler.call_later(desired.wait_s, lambda: self._end_kill(desired))
            rested: Future[None] = Future()
            rested.add_done_callback(lambda _: self.post(lambda: self._end_kill(desired)))
            self.wait_for_rest(rested)

    def _wish(self, desired: Desired) -> None:
        self._desired, self._kill_is_due = desired, False
        if self._kill is not None:
            self._kill.cancel()
            self._kill = None

    def _end_kill(self, desired: Desired) -> None:
        """Stop, unless the topology was activated meanwhile, or is just being activated."""
        if self._ending or not desired.same_wish(self._desired):
            return
        # Without a term another process may have activated it: the next takeover tells, or the
        # check of who leads.
        self._kill_is_due = self._term is not None and self._term.beating
        if self._term is not None and not self._kill_is_due:
            self.stop()

    def _set_planning(self) -> None:
        if self._term is not None:
            self._term.handle(Activated() if self._plans else Deactivated())
            self._say_status()

    def _say_status(self) -> None:
        self.status = KILLED if self._killed else RUNNING if self._plans else DEACTIVATED

    # ------------------------------------------------------------ the end

    def _end_term(self, error: Exception | None) -> None:
        """End, and ask ZooKeeper who leads now if a store has refused this epoch."""
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
        """End after an exception on the loop, which is a bug in txtopo."""
        id = self._context.graph.id
        _logger.error("topology %r: the loop failed", id, exc_info=error, extra={"topology": id})
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
            id = self._context.graph.id
            _logger.exception("topology %r: could not close", id, extra={"topology": id})
            self._closed(error)

    def _close_spout(self, error: Exception | None) -> None:
        self._scheduler.call_later(CLOSE_TIMEOUT_S, lambda: self._closed(error))
        close = partial(close_spout, self._context.graph, self._context.planner)
        self._scheduler.submit(close, lambda _: self._closed(error))

    def _closed(self, error: Exception | None) -> None:
        if self.ended.done():
            return
        killed = self._killed if error is None else isinstance(error, TopologyKilled)
        self.status = KILLED if killed else "stopped" if error is None else "failed"
        self._tell(Stopped(self._context.graph.id, error))
        self._waiters.end(error)
        self.ended.set_result(error)
        self._scheduler.stop()
