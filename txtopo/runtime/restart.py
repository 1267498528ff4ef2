"""Restart: when a run that ended with an error is started again, and the driver that does so."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

from txtopo.config import growing_pause_s
from txtopo.errors import (
    ConfigError,
    EmitError,
    PoisonBatchError,
    PromiseError,
    SlotUnavailable,
    StatementFailed,
    StateUsageError,
    TooFewCores,
    TooManyDeadLetters,
    TopologyError,
    TopologyKilled,
)
from txtopo.log_records import logger_of
from txtopo.retries import LOGGER
from txtopo.runtime.listeners import ChangeRelay
from txtopo.runtime.progress import Restarting, TopologyListener
from txtopo.runtime.succession import Open, StartableDriver, Succession, as_exception
from txtopo.setting_checks import check_positive_number, check_whole_number

if TYPE_CHECKING:
    from txtopo.runtime.scheduler import Scheduler, Timer

_logger = logger_of(LOGGER)

LASTS = (
    *(PromiseError, TopologyError, ConfigError, StateUsageError, EmitError),
    *(StatementFailed, TooManyDeadLetters),
)
"""Errors that a person has to repair: the next start would end with the same error."""

PASSES = (PoisonBatchError, SlotUnavailable, TooFewCores)
"""Subclasses of the errors above that may pass: a service that a bolt calls may come back, or a
core may be free again."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Restart a run after an error that may pass: ``topology.start(…, restart=Restart())``.

    A restart is like another call of ``start`` with the same arguments: it has a new epoch, new
    copies of spout and bolts, the position after the last commit, and the same Spark session. The
    handle stays valid.

    A run is restarted after: an exception of a bolt or spout, a batch that failed
    ``Config.attempts_max`` times, an ``InfrastructureError``, ``SlotUnavailable``, a start for
    which too few cores were free (``TooFewCores``). It is never restarted after: a broken promise
    (any other ``PromiseError``, such as ``FencedError`` or ``SourceDataLost``), an error of the
    definition (``TopologyError``, any other ``ConfigError``, ``StateUsageError``, ``EmitError``),
    ``StatementFailed``, ``TooManyDeadLetters``, a stop. A run cannot be restarted without its Spark
    session.

    Attributes:
        times: Maximum number of restarts within any *within_s* seconds. The next error ends the
            run.
        within_s: Length of that period in seconds.
        backoff_s: Pause in seconds before the first restart; doubled for each earlier restart
            within *within_s*.
        backoff_max_s: The longest pause in seconds.

    Raises:
        ConfigError: A value is wrong; repair it.

    Example:
        >>> Restart(times=10, within_s=3600.0)
        Restart(times=10, within_s=3600.0, backoff_s=1.0, backoff_max_s=60.0)
    """

    times: int = 3
    within_s: float = 600.0
    backoff_s: float = 1.0
    backoff_max_s: float = 60.0

    def __post_init__(self) -> None:
        mine, more = " of a Restart", "; remove restart if the run must not be restarted"
        check_whole_number("times", self.times, of=mine, more=more)
        for name in ("within_s", "backoff_s", "backoff_max_s"):
            check_positive_number(name, getattr(self, name), of=mine)


def check_restart(restart: object) -> None:
    """Check that the argument ``restart`` is a ``Restart`` or None.

    Raises:
        ConfigError: It is not.
    """
    if restart is not None and not isinstance(restart, Restart):
        raise ConfigError(
            f"restart is of the wrong type; got {restart!r}; expected Restart(times=…, "
            "within_s=…), or None",
            setting="restart",
        )


def may_pass(error: BaseException) -> bool:
    """Return whether a run that ended with *error* may succeed when it is started again."""
    return isinstance(error, PASSES) or not isinstance(error, LASTS)


class RestartCount:
    """Counts the restarts of the last ``within_s``, and returns the pause before the next one."""

    def __init__(self, restart: Restart) -> None:
        self._restart = restart
        self._failed_s: deque[float] = deque()

    def pause_s(self, now_s: float) -> float | None:
        """Count a failure at *now_s*, and return the pause; None if the run must not restart."""
        while self._failed_s and now_s - self._failed_s[0] >= self._restart.within_s:
            self._failed_s.popleft()
        if len(self._failed_s) == self._restart.times:
            return None
        self._failed_s.append(now_s)
        first, longest = self._restart.backoff_s, self._restart.backoff_max_s
        return growing_pause_s(len(self._failed_s), first, longest)

    @property
    def restarts(self) -> int:
        """The number of restarts within ``within_s``, including the next one."""
        return len(self._failed_s)


class RestartingDriver(Succession[StartableDriver]):
    """Opens another driver after an error that may pass.

    Only ``start``, ``post``, ``on_loop`` and ``status`` may be called from any thread.

    Args:
        topology_id: Id of the topology.
        open_driver: Opens the next driver.
        restart: When to open it.
        listeners: They receive each change.
        scheduler: Time and threads of this loop.
        active: Whether spouts are active at first.
    """

    def __init__(
        self,
        topology_id: str,
        open_driver: Open,
        restart: Restart,
        listeners: Sequence[TopologyListener],
        scheduler: Scheduler,
        *,
        active: bool = True,
    ) -> None:
        super().__init__(topology_id, listeners, scheduler)
        self._open_driver = open_driver
        self._restart = restart
        self._count = RestartCount(restart)
        self._told: list[TopologyListener] = [ChangeRelay(self._listeners.tell)]
        self._active = active
        self._pause: Timer | None = None
        self._restarted = False

    @property
    def status(self) -> str:
        """The status of the current driver, or ``restarting``."""
        if self.ended.done():
            return self._end_status
        if (driver := self._driver) is None:
            return "stopping" if self._stopping else "restarting"
        # A driver that has ended may be followed by another.
        return "stopping" if driver.status in ("stopped", "failed") else driver.status

    def start(self) -> None:
        """Open the first driver, and start the loop.

        Raises:
            Exception: The driver could not be opened; nothing was started.
        """
        first = self._open_driver(self._told, self._active)
        self._scheduler.start(lambda: self._begin(first, self._ended), self._crashed)

    def stop(self) -> None:
        """Stop the current driver; between two drivers, end the run at once."""
        self._stopping = True
        if self._driver is not None:
            self._driver.post(self._driver.stop)
        elif self._pause is not None:
            self._pause.cancel()
            self._end(None)

    def set_active(self, active: bool) -> None:
        """Activate or deactivate the spouts of this driver and of later ones."""
        self._active = active
        if (driver := self._driver) is not None:
            driver.post(lambda: driver.set_active(active))

    def _ended(self, error: Exception | None) -> None:
        if self._driver is not None:
            self._end_status = self._driver.status
        self._driver = None
        if isinstance(error, TopologyKilled) and self._restarted:
            error = None  # the operator killed this run, so its end is not an error
        if error is None or self._stopping:
            self._end(error)
        else:
            self._again(error)

    def _again(self, error: BaseException) -> None:
        """Open another driver after a pause, if the error may pass and the policy allows it."""
        if not may_pass(error):
            self._end(error)
            return
        pause_s = self._count.pause_s(self._scheduler.now())
        if pause_s is None:
            times, within_s = self._restart.times, self._restart.within_s
            error.add_note(
                f"topology {self._topology_id!r} was restarted {times} times within {within_s:g} "
                "s, so the run ends"
            )
            self._end(error)
            return
        restarts = self._count.restarts
        self._listeners.tell(Restarting(self._topology_id, as_exception(error), restarts, pause_s))
        self._pause = self._scheduler.call_later(pause_s, self._open)

    def _open(self) -> None:
        self._pause, active, self._restarted = None, self._active, True

        def done(future: Future[StartableDriver]) -> None:
            error = future.exception()
            if error is None:
                self._begin(future.result(), self._ended)
                if self._active != active:
                    self.set_active(self._active)
            elif self._stopping:
                self._end(None)
            else:
                self._again(error)

        self._scheduler.submit(lambda: self._open_driver(self._told, active), done)

    def _crashed(self, error: BaseException) -> None:
        """End after an exception on the loop, which is a bug in txtopo."""
        _logger.error(
            "topology %r: the loop of restarts failed",
            self._topology_id,
            exc_info=error,
            extra={"topology": self._topology_id},
        )
        if self._driver is not None:
            self._driver.post(self._driver.stop)
        self._end(error)
