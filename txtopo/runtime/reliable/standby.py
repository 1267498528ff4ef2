"""StandbyDriver: runs an at-least-once topology while its process leads, and waits until then.

Rules
-----
1. Nothing is opened before this process leads and has claimed an epoch: no slot, no spout, no job.
2. Its place in the election is given up when its spouts and bolts are closed, not before.
3. When its session is lost, its spouts and bolts are closed at once. Then it asks who leads. If
   another process has claimed an epoch, the run ends with ``FencedError``; else it contends again.
4. What operators want of the topology is read after the claim, and holds for every process. One
   that was killed is opened by none.

The election saves work and protects nothing. A leader that is frozen, or cut off from ZooKeeper,
goes on until it learns that its session has ended, and two processes may process one message then.
None is lost: a source forgets a message when its tree is complete, whoever has processed it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Protocol

from txtopo.errors import (
    CoordinatorUnavailable,
    FencedError,
    InfrastructureError,
    TooFewCores,
    TopologyKilled,
)
from txtopo.log_records import logger_of
from txtopo.retries import LOGGER, warn_of_retry
from txtopo.runtime.driver import LEAD_TIMEOUT_S
from txtopo.runtime.leader_beat import BEAT_S, LeaderBeat, Summary
from txtopo.runtime.listeners import ChangeRelay
from txtopo.runtime.progress import Leading, Standby, Started, TopologyEvent, TopologyListener
from txtopo.runtime.run_context import close_parts
from txtopo.runtime.scheduler import Scheduler, ThreadScheduler, Timer
from txtopo.runtime.session import check_session, is_classic
from txtopo.runtime.succession import StartableDriver, Succession, as_exception
from txtopo.runtime.takeover import claim_epoch
from txtopo.runtime.workers import check_workers
from txtopo.transactional_state.commands import KILLED, RUNNING, Desired, who
from txtopo.transactional_state.journal import Journal
from txtopo.transactional_state.opening import open_transactional_state
from txtopo.transactional_state.store import this_process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txtopo.config import Config
    from txtopo.metadata import Json
    from txtopo.transactional_state.memory import MemoryEnsemble
    from txtopo.transactional_state.store import Leadership, TransactionalState

_logger = logger_of(LOGGER)

# It keeps the id from a transactional topology, whose progress would be mixed up with this one's.
# Components are not in it: nothing is stored that would have to fit them.
PARTS: dict[str, Json] = {"guarantee": "at least once"}


class TermDriver(StartableDriver, Protocol):
    """The driver of one term."""

    def stop(self, error: Exception | None = None) -> None:
        """Close spouts and bolts, and end with *error*."""
        ...


OpenTerm = Callable[[Sequence[TopologyListener], bool], TermDriver]
"""Opens the driver of a term for some listeners, active or not. It blocks."""


def open_standby(
    topology_id: str,
    config: Config,
    session: SparkSession | None,
    ensemble: MemoryEnsemble | None,
    summary: Summary,
    open_driver: OpenTerm,
    listeners: Sequence[TopologyListener],
    active: bool,
) -> StandbyDriver:
    """Return a driver that is ready to contend for the leadership.

    Args:
        topology_id: Id of the topology.
        config: Its settings.
        session: The Spark session; None for none.
        ensemble: That of ``zookeeper="memory"``.
        summary: Returns what others shall see of the run while it leads.
        open_driver: Opens the driver of a term.
        listeners: They receive each change.
        active: Whether spouts are active at first.

    Raises:
        ConfigError: A setting is wrong, or the workers lack a module; nothing was written.
        CoordinatorUnavailable: ZooKeeper cannot be reached; nothing was written.
    """
    check_session(session)
    jvm = None
    if session is not None and is_classic(session):
        jvm = session._jvm
        if config.carrier != "local":
            check_workers(session.sparkContext, ("zmq",))  # here, and not when it is needed
    return StandbyDriver(
        topology_id,
        config,
        open_transactional_state(config, topology_id, jvm, ensemble),
        open_driver,
        listeners,
        ThreadScheduler(f"txtopo-{topology_id}-leader"),
        active=active,
        summary=summary,
    )


class StandbyDriver(Succession[TermDriver]):
    """Opens a driver for each term in which this process leads.

    Only ``start``, ``post``, ``on_loop`` and ``status`` may be called from any thread.

    Args:
        topology_id: Id of the topology.
        config: Its settings.
        state: Its transactional state, which is closed at the end.
        open_driver: Opens the driver of a term.
        listeners: They receive each change.
        scheduler: Time and threads of this loop.
        active: Whether spouts are active at first.
        summary: Returns what others shall see of the run while it leads.
    """

    def __init__(
        self,
        topology_id: str,
        config: Config,
        state: TransactionalState,
        open_driver: OpenTerm,
        listeners: Sequence[TopologyListener],
        scheduler: Scheduler,
        *,
        active: bool = True,
        summary: Summary | None = None,
    ) -> None:
        super().__init__(topology_id, listeners, scheduler)
        self._config = config
        self._state = state
        self._candidate = this_process()
        self._open_driver = open_driver
        self._relay = _Relay(self._listeners.tell)
        self._active = active
        self._summary = summary
        self._journal = Journal(state)
        self._leadership: Leadership | None = None
        self._beat: LeaderBeat | None = None
        self._beating = self._kill_is_due = self._ending = False
        self._terms = self._lost_term = self._failures = 0
        self._phase = "starting"
        self._lost_error: Exception | None = None
        self._desired = Desired()
        self._kill: Timer | None = None

    @property
    def status(self) -> str:
        """The status in one word: while it leads that of the driver, unless operators want else."""
        driver = self._driver
        if self.ended.done():
            return self._end_status
        if self._ending or self._stopping:
            return "stopping"
        if driver is None or self._is_lost:
            return self._phase
        if self._desired.status != RUNNING:
            return self._desired.status
        return "stopping" if driver.status in ("stopped", "failed") else driver.status

    def start(self) -> None:
        """Start the loop."""
        self._scheduler.start(self._contend, self._crashed)

    def stop(self, error: Exception | None = None) -> None:
        """Stop the driver that runs, if one does, and then end."""
        self._stopping = True
        if (driver := self._driver) is not None:
            self._close(driver, error)
        else:
            self._leave(error)

    def set_active(self, active: bool) -> None:
        """Activate or deactivate the spouts, as far as the handle of this run decides it."""
        self._active = active
        self._set_spouts()

    # ------------------------------------------------------------ leadership

    @property
    def _is_lost(self) -> bool:
        return self._lost_term == self._terms

    def _contend(self) -> None:
        self._listeners.tell(Started(self._topology_id))
        self._seek()

    def _seek(self) -> None:
        if self._ending:
            return
        self._terms += 1
        number = self._terms

        def lead() -> Leadership | None:
            return self._state.lead(
                self._candidate,
                timeout_s=LEAD_TIMEOUT_S,
                on_lost=lambda: self.post(lambda: self._lost(number)),
            )

        self._scheduler.submit(lead, self._asked)

    def _asked(self, future: Future[Leadership | None]) -> None:
        if self._ending:
            return
        if (error := future.exception()) is not None:
            self._retry("the request for the leadership", error, self._seek)
            return
        self._leadership = None if self._is_lost else future.result()
        if self._leadership is not None:
            self._take_over()
        elif self._is_lost:
            self._seek()
        elif self._phase != "standby":
            self._scheduler.submit(self._journal.holder, self._stand_by)
        else:
            self._seek()

    def _stand_by(self, future: Future[Json]) -> None:
        """Tell the listeners who leads, if that can be read, and ask again."""
        if self._ending:
            return
        self._phase = "standby"
        holder = future.result() if future.exception() is None else None
        self._listeners.tell(Standby(self._topology_id, holder))
        self._seek()

    def _take_over(self) -> None:
        journal = self._journal = Journal(self._state)

        def done(future: Future[tuple[Desired, int]]) -> None:
            error = future.exception()
            if self._ending:
                return
            if error is None and self._is_lost:
                self._confirm()
            elif error is None:
                self._claimed(future.result()[0])
            elif isinstance(error, FencedError):
                self._contend_again(error)
            elif isinstance(error, TopologyKilled) and self._desired.status == KILLED:
                self._leave(None)  # it is this run that was killed, and lost its session meanwhile
            else:
                self._retry("the takeover", error, self._take_over_again)

        def claim() -> tuple[Desired, int]:
            id, candidate, scheduler = self._topology_id, self._candidate, self._scheduler
            return claim_epoch(id, self._state, journal, candidate, scheduler, PARTS)

        self._scheduler.submit(claim, done)

    def _contend_again(self, error: FencedError) -> None:
        """Leave the election and enter it again, because an operator claimed meanwhile."""
        leadership, self._leadership = self._leadership, None

        def released(_: Future[None] | None) -> None:
            if not self._ending:
                self._later("the claim of an epoch", error, self._seek)

        if leadership is not None:
            self._scheduler.submit(leadership.release, released)
        else:
            released(None)

    def _take_over_again(self) -> None:
        if self._is_lost:
            self._seek()
        elif not self._ending:
            self._take_over()

    def _claimed(self, desired: Desired) -> None:
        self._phase = "starting"
        self._wish(desired)
        self._beat = LeaderBeat(self._state, self._scheduler, self._journal, desired, self._summary)
        self._begin_beat(self._beat)
        self._open()

    def _open(self) -> None:
        """Open the driver of this term. What a lost session has opened too late is not started.

        The cores of a leader that has died may be free a little later than its place.
        """
        active = self._spouts_active

        def done(future: Future[TermDriver]) -> None:
            error = future.exception()
            if self._ending:
                return
            if self._is_lost:
                self._confirm()
            elif error is None:
                self._listeners.tell(Leading(self._topology_id, self._journal.epoch, None, None))
                self._failures = 0
                self._begin(future.result(), self._driver_ended)
                if self._spouts_active != active:
                    self._set_spouts()
            elif isinstance(error, TooFewCores):
                self._later("the start of the slots", error, self._open_again)
            else:
                self._retry("the start of the slots", error, self._open_again)

        self._scheduler.submit(lambda: self._open_driver([self._relay], active), done)

    def _open_again(self) -> None:
        if self._is_lost:
            self._confirm()
        elif not self._ending:
            self._open()

    def _lost(self, number: int) -> None:
        """Close what this term has opened; what it still opens is not started."""
        if self._ending or number != self._terms:
            return
        self._lost_term, self._leadership, self._beat = number, None, None
        self._phase = "leadership lost"
        if (driver := self._driver) is not None:
            epoch = self._journal.epoch
            text = f"the session of epoch {epoch} with zookeeper was lost"
            self._lost_error = CoordinatorUnavailable(text)
            self._close(driver, self._lost_error)

    def _close(self, driver: TermDriver, error: Exception | None) -> None:
        driver.post(lambda: driver.stop(error))

    def _driver_ended(self, error: Exception | None) -> None:
        self._driver = self._beat = None
        if error is None or error is not self._lost_error:
            self._leave(error)
        elif self._stopping:
            self._leave(None)
        else:
            what, epoch = "the session that holds the leadership", self._journal.epoch
            self._retry(what, error, self._confirm, epoch)

    def _confirm(self) -> None:
        """Find out whether another process has claimed an epoch since."""
        if self._ending:
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
        if isinstance(error, InfrastructureError):
            self._later(what, error, again, epoch)
        else:
            self._leave(as_exception(error))

    def _later(
        self, what: str, error: Exception, again: Callable[[], None], epoch: int | None = None
    ) -> None:
        """Try again after a pause. The pause grows until the driver of a term has begun."""
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

    # ------------------------------------------------------------ what operators ask for

    def _begin_beat(self, beat: LeaderBeat, failures: int = 0) -> None:
        if beat is not self._beat or self._stopping:
            return
        self._beating = True

        def done(future: Future[None]) -> None:
            self._beating = False
            if beat is self._beat and not self._stopping:
                self._beat_ended(beat, future.exception(), failures)

        self._scheduler.submit(beat.run, done)

    def _beat_ended(self, beat: LeaderBeat, error: BaseException | None, failures: int) -> None:
        pause_s = BEAT_S
        if isinstance(error, FencedError):
            self.stop(error)
            return
        if error is not None:
            failures += 1
            pause_s = max(BEAT_S, self._config.pause_s(failures))
            what, epoch = "the look at what operators ask for", self._journal.epoch
            id = self._topology_id
            warn_of_retry(what, error, topology=id, failures=failures, pause_s=pause_s, epoch=epoch)
        else:
            failures = 0
        self._scheduler.call_later(pause_s, lambda: self._begin_beat(beat, failures))
        self._obey(beat.desired)

    def _obey(self, desired: Desired) -> None:
        """Do what operators asked for, which is stored by now."""
        if desired.same_wish(self._desired):
            if self._kill_is_due:
                self.stop()
            return
        id, status, by = self._topology_id, desired.status, who(desired.by)
        text = "topology %r: is to be %s, as %s asked"
        _logger.info(text, id, status, by, extra={"topology": id})
        self._wish(desired)
        self._set_spouts()
        if status == KILLED:
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
        # Without a leadership another process may have activated it: the next claim tells.
        if self._ending or self._beat is None or not desired.same_wish(self._desired):
            return
        self._kill_is_due = self._beating
        if not self._beating:
            self.stop()

    @property
    def _spouts_active(self) -> bool:
        return self._active and self._desired.status == RUNNING

    def _set_spouts(self) -> None:
        if (driver := self._driver) is not None:
            active = self._spouts_active
            driver.post(lambda: driver.set_active(active))

    # ------------------------------------------------------------ the end

    def _crashed(self, error: BaseException) -> None:
        """End after an exception on the loop, which is a bug in txtopo."""
        id = self._topology_id
        _logger.error("topology %r: the loop failed", id, exc_info=error, extra={"topology": id})
        self.stop(as_exception(error))

    def _leave(self, error: Exception | None) -> None:
        """Give up the place in the election, and end. The driver has ended, or there was none."""
        if self._ending:
            return
        self._ending = True
        killed = self._desired.status == KILLED if error is None else False
        self._end_status = KILLED if killed or isinstance(error, TopologyKilled) else ""
        steps = [self._state.close]
        if self._leadership is not None:
            steps.insert(0, self._leadership.release)
        close = partial(close_parts, self._topology_id, steps)
        self._scheduler.submit(close, lambda _: self._end(error))


class _Relay(ChangeRelay):
    """Passes on the changes of a driver, except its start and end, which are those of a term."""

    def on_change(self, change: TopologyEvent) -> None:
        """Pass a change on."""
        if not isinstance(change, Started):
            super().on_change(change)
