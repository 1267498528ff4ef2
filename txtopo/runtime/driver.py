"""TopologyDriver: the loop of a topology, from the request for the leadership to the end.

The driver works in terms of leadership (:mod:`txtopo.runtime.term`). Its candidacy
(:mod:`txtopo.runtime.candidacy`) takes over, and the driver begins a term. The term is over when
the session with ZooKeeper is lost. Then the candidacy checks whether another process leads.

New batches are planned only while two things allow it: the handle of this run
(``run.deactivate()``), and the status that operators set, which is durable and holds for every
process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial

from txtopo.coordinator.protocol import Activated, Deactivated, StopRequested
from txtopo.ensemble.commands import DEACTIVATED, KILLED, RUNNING
from txtopo.ensemble.journal import Journal
from txtopo.errors import FencedError, TopologyKilled
from txtopo.log_records import logger_of
from txtopo.metadata import Json
from txtopo.retries import LOGGER
from txtopo.runtime.candidacy import Candidacy, Hooks
from txtopo.runtime.commit_permit import CommitTurns
from txtopo.runtime.commit_phase import CommitPhase
from txtopo.runtime.handle import IdleWaiters
from txtopo.runtime.leader_beat import LeaderBeat, Summary
from txtopo.runtime.listeners import Listeners
from txtopo.runtime.operator_control import OperatorControl
from txtopo.runtime.progress import Leading, Stopped, TopologyListener
from txtopo.runtime.reporting import ProgressMeter
from txtopo.runtime.run_context import (
    RunContext,
    close_backends,
    close_context,
    close_prepared,
    close_spout,
)
from txtopo.runtime.succession import as_exception
from txtopo.runtime.takeover import Takeover, take_over
from txtopo.runtime.term import LeaderTerm, TermHooks

# A spout's close may hang on a dead source, and a committer may hang too. The driver waits for them
# last, so everything else is closed by then.
CLOSE_TIMEOUT_S = 10.0

_logger = logger_of(LOGGER)


class TopologyDriver:
    """Runs one topology. Only :meth:`post` and :meth:`on_loop` may be called from any thread.

    Args:
        context: The graph, settings, carrier etc. of the topology.
        candidate: Describes this process to other candidates.
        listeners: They receive each change.
        meter: Counts commits; after a restart, the meter of the previous driver.
        summary: Returns the summary that other processes see while this one leads; called on a
            thread.
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
        self._context = context
        self._scheduler = context.scheduler
        self._candidate = candidate
        self._tell = Listeners(context.graph.id, listeners).tell
        self._meter = meter or ProgressMeter(context.scheduler.now())
        self._candidacy: Candidacy[Takeover] = Candidacy(
            context.graph.id,
            context.config,
            context.transactional_state,
            candidate,
            context.scheduler,
            Hooks(
                tell=self._tell,
                claim=self._claim,
                lead=self._begin_term,
                drop=self._drop,
                wait=self._close_prepared,
                lost=self._lost,
                fail=lambda error: self._end(self._control.end_error(error)),
            ),
            context.config.history_txids,
        )
        self._control = OperatorControl(
            context.graph.id,
            context.scheduler,
            changed=self._set_planning,
            stop=self.stop,
            wait_for_rest=self.wait_for_rest,
            beating=lambda: None if self._term is None else self._term.beating,
        )
        self._term: LeaderTerm | None = None
        self._turns = CommitTurns()
        self._began_at = 0
        self._active = True
        self._stopping = False
        self._end_status = ""
        self._waiters = IdleWaiters()
        self._summary = summary

    @property
    def status(self) -> str:
        """The status in one word; from any thread."""
        term = self._term  # read first, as the end clears it last: no status in between is shown
        if self._candidacy.over:
            return self._end_status or "stopping"
        if term is None:
            return self._candidacy.status
        status = self._control.desired.status
        return DEACTIVATED if status == RUNNING and not self._active else status

    @property
    def pace(self) -> dict[str, Json]:
        """The current limits of batches; from any thread. See ``docs/explanation/pacing.md``."""
        config, term, now = self._context.config, self._term, self._context.planner.pace
        return {
            "limited_by": now.get("limited_by"),
            "rows_max": now.get("rows_max"),
            "settings": {**config.pace.given},
            "window_txids": config.max_spout_pending,
            "window_full_at_s": term.window_full_at_s if term is not None else None,
            "held_back": dict(self._context.planner.held_back),
        }

    # ------------------------------------------------------------ requests of the run handle

    def start(self) -> None:
        """Start the loop."""
        self._scheduler.start(self._candidacy.begin, self._crashed)

    def post(self, callback: Callable[[], None]) -> None:
        """Call *callback* on the loop, unless the loop has ended; from any thread."""
        self._scheduler.post(callback)

    def on_loop(self) -> bool:
        """Return whether the caller is on the loop; from any thread."""
        return self._scheduler.on_loop()

    def stop(self) -> None:
        """Finish the current commit, drop all other batches, and end."""
        self._stopping = True
        if self._term is not None:
            self._term.handle(StopRequested())
        else:
            self._end(None)

    def set_active(self, active: bool) -> None:
        """Allow or stop the planning of new batches; operators must allow it as well."""
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

    def _claim(self, journal: Journal) -> Takeover:
        id = self._context.graph.id
        text = "topology %r: takes over; claims the next epoch, and each state for that epoch"
        _logger.info(text, id, extra={"topology": id})
        return take_over(self._context, journal, self._candidate)

    def _drop(self, taken: Takeover) -> None:
        close = partial(close_backends, self._context.graph.id, taken.backends)
        self._scheduler.submit(close, lambda _: None)

    def _close_prepared(self) -> None:
        """Close the states: a standby keeps no connection to a store, and later reopens them."""
        if self._context.prepared:
            self._scheduler.submit(partial(close_prepared, self._context), lambda _: None)

    def _begin_term(self, taken: Takeover) -> None:
        self._control.take(taken.desired)
        coordinator = taken.coordinator
        phase = CommitPhase(self._context, taken.backends, taken.shared, taken.spouts_elsewhere)
        hooks = TermHooks(self._tell, self._waiters, self._end_term, self._control.obey)
        beat = LeaderBeat(
            self._context.graph.id,
            self._context.config,
            self._context.transactional_state,
            self._scheduler,
            taken.journal,
            taken.desired,
            self._summary,
            self._context.carrier.check_session,
        )
        term = self._term = LeaderTerm(
            self._context, taken.journal, coordinator, phase, beat, self._meter, hooks, self._turns
        )
        self._began_at = coordinator.current
        self._waiters.begin()
        first, last = taken.adopted or (None, None)
        topology, current = self._context.graph.id, coordinator.current
        self._tell(Leading(topology, coordinator.epoch, current, last, first))
        if not self._plans:
            term.handle(Deactivated())
        term.start()

    def _lost(self) -> None:
        """End the term after the session was lost, and check whether another process leads."""
        term, self._term = self._term, None
        assert term is not None, "only the session of a term that has begun is lost"
        if term.coordinator.current > self._began_at:
            self._candidacy.forget_failures()
        term.close()
        self._scheduler.submit(term.release, lambda _: None)
        if self._stopping:
            self._end(None)
            return
        self._candidacy.term_closed()

    @property
    def _plans(self) -> bool:
        return self._active and self._control.runs

    def _set_planning(self) -> None:
        if self._term is not None:
            self._term.handle(Activated() if self._plans else Deactivated())

    # ------------------------------------------------------------ the end

    def _end_term(self, error: Exception | None) -> None:
        """End; if a store has refused this epoch, ask ZooKeeper first who leads now."""
        if not isinstance(error, FencedError) or self._candidacy.over:
            self._end(error)
            return
        if self._term is not None:
            self._term.close()

        def done(future: Future[None]) -> None:
            named = future.exception()
            self._end(named if isinstance(named, FencedError) else error)

        self._scheduler.submit(self._candidacy.journal.confirm, done)

    def _crashed(self, error: BaseException) -> None:
        """End after an exception on the loop, which is a bug in txtopo."""
        id = self._context.graph.id
        _logger.error("topology %r: the loop failed", id, exc_info=error, extra={"topology": id})
        self._end(as_exception(error))

    def _end(self, error: Exception | None) -> None:
        if self._candidacy.over:
            return
        self._candidacy.end()
        term, self._term = self._term, None
        try:
            if term is not None:
                term.close()
            release = term.release if term is not None else None
            close = partial(close_context, self._context, self._candidacy.leadership, release)
            self._scheduler.submit(close, lambda _: self._close_spout(error))
        except Exception:
            id = self._context.graph.id
            _logger.exception("topology %r: could not close", id, extra={"topology": id})
            self._closed(error)

    def _close_spout(self, error: Exception | None) -> None:
        self._scheduler.call_later(CLOSE_TIMEOUT_S, lambda: self._closed(error))
        close = partial(close_spout, self._context.graph, self._context.planner)
        # The next run must not overtake writes that this one's committers are still making.
        self._turns.take(lambda: self._scheduler.submit(close, lambda _: self._closed(error)))

    def _closed(self, error: Exception | None) -> None:
        if self.ended.done():
            return
        killed = self._control.killed if error is None else isinstance(error, TopologyKilled)
        self._end_status = KILLED if killed else "stopped" if error is None else "failed"
        self._tell(Stopped(self._context.graph.id, error))
        self._waiters.end(error)
        self.ended.set_result(error)
        self._scheduler.stop()
