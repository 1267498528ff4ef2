"""StandbyDriver: waits until its process leads, and then runs an at-least-once topology.

Rules
-----
1. Nothing is opened before this process leads and has claimed an epoch: no slot, no spout, no job.
2. It gives up its place in the election only after its spouts and bolts are closed.
3. When its session is lost, it closes its spouts and bolts at once, and then checks who leads. If
   another process has claimed an epoch, the run ends with ``FencedError``. Otherwise it contends
   again.
4. The status that operators have set is read after the claim, and applies to every process. No
   process opens a topology that was killed.

The election saves work; it does not protect anything. A leader that is frozen, or cut off from
ZooKeeper, continues until it learns that its session has ended. Until then two processes may
process the same message. No message is lost: a source forgets a message only when its tree is
complete, whichever process completed it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Protocol

from txtopo.carriers.session import check_session, is_classic
from txtopo.carriers.workers import check_workers
from txtopo.ensemble.commands import KILLED, Desired
from txtopo.ensemble.opening import open_transactional_state
from txtopo.ensemble.store import this_process
from txtopo.errors import TooFewCores, TopologyKilled
from txtopo.fingerprint import Fingerprint
from txtopo.log_records import logger_of
from txtopo.retries import LOGGER
from txtopo.runtime.candidacy import Candidacy, Hooks
from txtopo.runtime.leader_beat import BeatHooks, LeaderBeat, Summary
from txtopo.runtime.listeners import ChangeRelay
from txtopo.runtime.operator_control import OperatorControl
from txtopo.runtime.progress import Leading, Started, TopologyEvent, TopologyListener
from txtopo.runtime.run_context import close_parts
from txtopo.runtime.scheduler import Scheduler, ThreadScheduler
from txtopo.runtime.succession import StartableDriver, Succession, as_exception
from txtopo.runtime.takeover import claim_epoch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txtopo.config import AtLeastOnceConfig, ZooKeeper
    from txtopo.ensemble.memory import MemoryEnsemble
    from txtopo.ensemble.store import TransactionalState

_logger = logger_of(LOGGER)

# A transactional topology cannot start under an id with this fingerprint, so progress is not mixed
# up. It has no components: nothing is stored that would have to fit them.
FINGERPRINT = Fingerprint({}, "at least once")


class TermDriver(StartableDriver, Protocol):
    """The driver of one term."""

    def stop(self, error: Exception | None = None) -> None:
        """Close spouts and bolts, and end with *error*."""
        ...


OpenTerm = Callable[[Sequence[TopologyListener], bool], TermDriver]
"""Opens the driver of a term from its listeners and whether its spouts are active. It blocks."""


def open_standby(
    topology_id: str,
    config: AtLeastOnceConfig,
    zookeeper: ZooKeeper,
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
        zookeeper: Where its drivers elect a leader.
        session: The Spark session; None for none.
        ensemble: The ensemble for ``zookeeper="memory"``.
        summary: Returns the summary that other processes see while this one leads.
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
            # Checked now, so that the start fails rather than a takeover long afterwards.
            check_workers(session.sparkContext, ("zmq",))
    return StandbyDriver(
        topology_id,
        config,
        open_transactional_state(zookeeper, topology_id, jvm, ensemble),
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
        state: Its transactional state; this driver closes it at the end.
        open_driver: Opens the driver of a term.
        listeners: They receive each change.
        scheduler: Time and threads of this loop.
        active: Whether spouts are active at first.
        summary: Returns the summary that other processes see while this one leads.
    """

    def __init__(
        self,
        topology_id: str,
        config: AtLeastOnceConfig,
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
        self._open_driver = open_driver
        self._relay = _Relay(self._listeners.tell)
        self._active = active
        self._summary = summary
        candidate = this_process()
        self._candidacy: Candidacy[Desired] = Candidacy(
            topology_id,
            config,
            state,
            candidate,
            scheduler,
            Hooks(
                tell=self._listeners.tell,
                claim=lambda journal: claim_epoch(
                    topology_id, state, journal, candidate, scheduler, FINGERPRINT
                )[0],
                lead=self._lead,
                drop=lambda _: None,
                wait=lambda: None,
                lost=self._lost,
                fail=lambda error: self._leave(self._control.end_error(error)),
            ),
        )
        self._control = OperatorControl(
            topology_id,
            scheduler,
            changed=self._set_spouts,
            stop=self.stop,
            wait_for_rest=self.wait_for_rest,
            beating=lambda: None if self._beat is None else self._beat.beating,
        )
        self._beat: LeaderBeat | None = None
        self._lost_error: Exception | None = None

    @property
    def status(self) -> str:
        """The status in one word.

        While this process leads, it is the status that operators set, or the driver's.
        """
        driver = self._driver
        if self.ended.done():
            return self._end_status
        if self._candidacy.over or self._stopping:
            return "stopping"
        if driver is None or self._candidacy.is_lost:
            return self._candidacy.status
        if not self._control.runs:
            return self._control.desired.status
        return "stopping" if driver.status in ("stopped", "failed") else driver.status

    def start(self) -> None:
        """Start the loop."""
        self._scheduler.start(self._candidacy.begin, self._crashed)

    def stop(self, error: Exception | None = None) -> None:
        """Stop the current driver, if there is one, and then end."""
        self._stopping = True
        if self._beat is not None:
            self._beat.close()
        if (driver := self._driver) is not None:
            self._close(driver, error)
        else:
            self._leave(error)

    def set_active(self, active: bool) -> None:
        """Activate or deactivate the spouts by the handle; operators must agree to activate."""
        self._active = active
        self._set_spouts()

    # ------------------------------------------------------------ leadership

    def _lead(self, desired: Desired) -> None:
        self._control.take(desired)
        beat = self._beat = LeaderBeat(
            self._topology_id,
            self._config,
            self._state,
            self._scheduler,
            self._candidacy.journal,
            desired,
            self._summary,
            None,
        )
        # Nothing else uses the transactional state while this process leads, so beats never wait.
        hooks = BeatHooks(due=beat.begin, ended=self._control.obey, end=self.stop)
        # At once: opening the slots may take long, and operators need answers meanwhile.
        beat.start(hooks, at_once=True)
        self._open()

    def _open(self) -> None:
        """Open the driver of this term. If the session is lost meanwhile, do not start it.

        When a leader has died, its cores may become free a little later than its place in the
        election. So too few cores do not end the run.
        """
        active, candidacy = self._spouts_active, self._candidacy

        def done(future: Future[TermDriver]) -> None:
            error = future.exception()
            if candidacy.over:
                return
            if candidacy.is_lost:
                candidacy.term_not_opened()
            elif error is None:
                self._listeners.tell(
                    Leading(self._topology_id, candidacy.journal.epoch, None, None)
                )
                candidacy.forget_failures()
                self._begin(future.result(), self._driver_ended)
                if self._spouts_active != active:
                    self._set_spouts()
            elif isinstance(error, TooFewCores):
                candidacy.later("the start of the slots", error, self._open_again)
            else:
                candidacy.retry("the start of the slots", error, self._open_again)

        self._scheduler.submit(lambda: self._open_driver([self._relay], active), done)

    def _open_again(self) -> None:
        if self._candidacy.is_lost:
            self._candidacy.term_not_opened()
        elif not self._candidacy.over:
            self._open()

    def _lost(self) -> None:
        """Close the driver of this term; one that is still being opened is not started."""
        self._end_beat()
        if (driver := self._driver) is not None:
            self._lost_error = self._candidacy.lost_error()
            self._close(driver, self._lost_error)

    def _close(self, driver: TermDriver, error: Exception | None) -> None:
        driver.post(lambda: driver.stop(error))

    def _driver_ended(self, error: Exception | None) -> None:
        self._driver = None
        self._end_beat()
        if error is None or error is not self._lost_error:
            self._leave(error)
        elif self._stopping:
            self._leave(None)
        else:
            self._candidacy.term_closed()

    # ------------------------------------------------------------ what operators ask for

    def _end_beat(self) -> None:
        """End the beat of this term, so that its later answers are ignored."""
        if self._beat is not None:
            self._beat.close()
            self._beat = None

    @property
    def _spouts_active(self) -> bool:
        return self._active and self._control.runs

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
        """Give up the place in the election, and end. Called when no driver runs."""
        if self._candidacy.over:
            return
        self._candidacy.end()
        self._end_beat()
        killed = self._control.killed if error is None else False
        self._end_status = KILLED if killed or isinstance(error, TopologyKilled) else ""
        steps = [self._state.close]
        if (leadership := self._candidacy.leadership) is not None:
            steps.insert(0, leadership.release)
        close = partial(close_parts, self._topology_id, steps)
        self._scheduler.submit(close, lambda _: self._end(error))


class _Relay(ChangeRelay):
    """Passes on the changes of a driver, except its start and end, which concern only a term."""

    def on_change(self, change: TopologyEvent) -> None:
        """Pass a change on."""
        if not isinstance(change, Started):
            super().on_change(change)
