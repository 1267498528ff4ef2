"""Clock: real time, for the scheduler of real runs and for code that is never simulated.

Only this module and the simulator import ``time``. Code that the simulator runs asks its
:class:`~txtopo.runtime.scheduler.Scheduler`, which has virtual time there.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial


def now() -> float:
    """Return seconds on a clock that only goes forward."""
    return time.monotonic()


def wall_clock() -> float:
    """Return seconds since 1970. The clock may be set back."""
    return time.time()


def steady() -> float:
    """Return seconds on a clock that nobody sets, and that continues while the machine sleeps."""
    return _asleep_too()


def sleep(seconds: float) -> None:
    """Block this thread. Never call it on a loop."""
    time.sleep(seconds)


def _counting_sleep() -> Callable[[], float]:
    # Linux does not count suspend in CLOCK_MONOTONIC, nor does time.monotonic of macOS.
    names = ["CLOCK_BOOTTIME", *(["CLOCK_MONOTONIC"] if sys.platform == "darwin" else [])]
    for name in names:
        clock_id = getattr(time, name, None)
        if clock_id is not None:
            return partial(time.clock_gettime, clock_id)
    return time.monotonic


_asleep_too = _counting_sleep()
