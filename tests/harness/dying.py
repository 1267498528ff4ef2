"""Die at a named durable step: kill this process, or end a test's own attempt with an exception."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from typing import NoReturn

from txtopo.runtime.scheduler import ThreadScheduler


class Died(BaseException):
    """Stands for the death of a process in a test that goes on in the same process.

    It is no ``Exception``, so that the code under test does not handle it.
    """


def kill_this_process(step: str = "") -> NoReturn:
    """Kill this process with SIGKILL, as a crash does."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL was survived")


def raise_died(step: str) -> NoReturn:
    """Raise :class:`Died` with the name of the step."""
    raise Died(step)


def dies_at(
    step: str, times: int = 1, die: Callable[[str], NoReturn] = kill_this_process
) -> Callable[[str], None]:
    """Return a ``point`` that dies when *step* is reached for the n-th time.

    An empty *step* stands for every step.
    """
    reached: Counter[str] = Counter()

    def point(name: str) -> None:
        if step in ("", name):
            reached[step] += 1
            if reached[step] == times:
                die(name)

    return point


class DyingScheduler(ThreadScheduler):
    """Real time and real threads, until the process kills itself at a durable step.

    Args:
        step: Name of the step, such as ``write.after:total.total``.
        times: The process dies when the step is reached for the n-th time.
    """

    def __init__(self, step: str, times: int = 1) -> None:
        super().__init__("dying")
        self._point = dies_at(step, times)

    def point(self, name: str) -> None:
        self._point(name)


class RaisingScheduler(DyingScheduler):
    """The driver's work ends at a durable step; what it had done until then is done."""

    def __init__(self, step: str, times: int = 1) -> None:
        super().__init__(step)
        self._point = dies_at(step, times, raise_died)
