"""PlanClock: what time it is for the plan of a batch, as far as the driver's clock can be believed.

Planned time never goes back. If one batch were planned while the driver's clock is a day ahead, no
window would close by the clock for a day, all rows of the present would be late, and running values
would expire. So the wall clock, which may be set, is believed only as far as it agrees with the
steady clock, which nobody sets, and which continues while the machine sleeps.

Rules
-----
1. The wall clock is believed while it has gone as far as the steady clock since the last look at
   both, within ``JUMP_S``. So a clock that is corrected slowly is followed.
2. A clock that has jumped, ahead or back, is in doubt: time continues by the steady clock, from
   where the wall clock was believed last.
3. A clock that is back where it would be without the jump is believed again, at once.
4. A jump that has lasted for ``LASTS_S`` was a correction: the clock is believed. One that jumps
   again has to last from then on.
5. The beginning and the end of a doubt are a log record each, however often the clock is asked.
6. If the clock of a driver that begins to lead is ahead of the ensemble's, it has jumped. The
   ensemble tells its time by what it has just written. A clock that is behind is believed, since
   planned time that is too early does no harm.

===================================================  ==========================================
what the wall clock does                             the time of a plan
===================================================  ==========================================
agrees, drifts, is slewed                            the wall clock
is ahead for two seconds, or for minutes             continues by the steady clock
is set back for a moment                             continues by the steady clock
is set, and stays                                    by the steady clock for ``LASTS_S``, then the
                                                     wall clock
jumps while the machine sleeps: both clocks count    the wall clock
is ahead of ZooKeeper's when the driver first leads  continues from ZooKeeper's for ``LASTS_S``
is looked at first, and the ensemble tells no time   the wall clock: nothing says otherwise
===================================================  ==========================================
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Protocol

from txtopo.log_records import logger_of
from txtopo.retries import LOGGER

_logger = logger_of(LOGGER)

JUMP_S = 5.0
"""Clocks that are slewed differ by 0.5 ms a second, and leap seconds by one; a time that waits in
vain for five seconds does no harm."""

LASTS_S = 600.0
"""Clocks that are wrong for a moment, as those of machines that were moved or whose first answer
of a time server was bad, are right again within minutes."""


CLOCK = "(clock)"
"""Where the components of a topology are told by their ids: no id has parentheses."""


class Clocks(Protocol):
    """The clocks of a ``Scheduler``."""

    def now(self) -> float:
        """Return seconds on a clock that only goes forward."""
        ...

    def steady(self) -> float:
        """Return seconds on a clock that nobody sets, and that counts sleep."""
        ...

    def wall_clock(self) -> float:
        """Return seconds since 1970."""
        ...


@dataclass(frozen=True, slots=True)
class _Doubt:
    """A jump of the wall clock.

    Attributes:
        offset_s: How far the wall clock is from the steady clock after the jump.
        since_s: When the jump was first seen, by the steady clock.
    """

    offset_s: float
    since_s: float


class PlanClock:
    """The clocks of a ``Scheduler`` for what is planned. Any thread may ask.

    It is in doubt only as often as it is asked, which each plan does that needs the time.

    Args:
        clocks: The clocks of the process.
        topology_id: The topology, for the log.
    """

    def __init__(self, clocks: Clocks, topology_id: str) -> None:
        self._clocks, self._topology_id = clocks, topology_id
        self._offset_s: float | None = None
        self._doubt: _Doubt | None = None
        self._lock = threading.Lock()

    @property
    def ahead_s(self) -> float:
        """How far the wall clock was ahead of what was believed, at the last look; 0 without doubt.

        It is negative if the clock was behind.
        """
        doubt, believed_s = self._doubt, self._offset_s
        return 0.0 if doubt is None or believed_s is None else doubt.offset_s - believed_s

    @property
    def held_back(self) -> str | None:
        """The text that pages show for a clock in doubt; None without doubt."""
        ahead_s = self.ahead_s
        if not ahead_s:
            return None
        way = "ahead" if ahead_s > 0 else "back"
        went = f"the clock of this driver went {way} by {abs(ahead_s):.0f} s"
        return f"{went}; time continues without it"

    def compare(self, ensemble_s: float, steady_s: float) -> None:
        """Compare the wall clock with that of the ensemble, before the first plan.

        Args:
            ensemble_s: When the ensemble has written something, in seconds since 1970.
            steady_s: The steady clock before that.
        """
        at_s, wall_s = self._clocks.steady(), self._clocks.wall_clock()
        with self._lock:
            latest_s = ensemble_s - steady_s
            if self._offset_s is None and wall_s - at_s - latest_s > JUMP_S:
                self._offset_s = latest_s

    def now(self) -> float:
        """Return seconds on a clock that only goes forward."""
        return self._clocks.now()

    def wall_clock(self) -> float:
        """Return seconds since 1970, by the wall clock or, while that is in doubt, without it."""
        # In this order: a process that is frozen in between is in doubt until the next look, and
        # believes nothing wrong.
        steady_s, wall_s = self._clocks.steady(), self._clocks.wall_clock()
        with self._lock:
            return steady_s + self._believed(steady_s, wall_s - steady_s)

    def _believed(self, steady_s: float, offset_s: float) -> float:
        """Return how far the time is from the steady clock."""
        known_s, doubt = self._offset_s, self._doubt
        if known_s is None or abs(offset_s - known_s) <= JUMP_S:
            if doubt is not None:
                self._log("is back, and is trusted again", offset_s - doubt.offset_s)
            self._offset_s, self._doubt = offset_s, None
            return offset_s
        if doubt is None:
            self._log(
                "has jumped, so planned time continues without it until it is back or has stayed "
                f"there for {LASTS_S:g} s; set it right",
                offset_s - known_s,
            )
        if doubt is None or abs(offset_s - doubt.offset_s) > JUMP_S:
            self._doubt = doubt = _Doubt(offset_s, steady_s)
        if steady_s - doubt.since_s < LASTS_S:
            return known_s
        self._log("has stayed where it jumped to, and is now trusted", offset_s - known_s)
        self._offset_s, self._doubt = offset_s, None
        return offset_s

    def _log(self, what: str, by_s: float) -> None:
        text = "topology %r: the clock of this driver %s; it went %s by %.1f s"
        way = "ahead" if by_s > 0 else "back"
        arguments = self._topology_id, what, way, abs(by_s)
        _logger.warning(text, *arguments, extra={"topology": self._topology_id, "by_s": by_s})


def ahead_by(times: object) -> float:
    """Return how many seconds the wall clock is ahead of what is believed; 0 without doubt."""
    return max(0.0, times.ahead_s) if isinstance(times, PlanClock) else 0.0


def held_back_by(times: object) -> dict[str, str]:
    """Return the note for pages that a clock in doubt holds batches back; empty without doubt."""
    told = times.held_back if isinstance(times, PlanClock) else None
    return {} if told is None else {CLOCK: told}
