"""Clock: real time, for the scheduler of real runs and for code that is never simulated.

Only this module and the simulator import ``time``. Code that the simulator runs asks its
:class:`~txtopo.runtime.scheduler.Scheduler`, which has virtual time there.
"""

from __future__ import annotations

import time


def now() -> float:
    """Return seconds on a clock that only goes forward."""
    return time.monotonic()


def wall_clock() -> float:
    """Return seconds since 1970. The clock may be set back."""
    return time.time()


def sleep(seconds: float) -> None:
    """Block this thread. Never call it on a loop."""
    time.sleep(seconds)
