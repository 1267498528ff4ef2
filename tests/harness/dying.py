"""Die at a named durable step: kill this process, or end a test's own attempt with an exception.

Or stop there and say so, so that another process is killed meanwhile. This is the one way to a kill
at a chosen moment: the step decides when it comes, and neither a clock nor chance does.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NoReturn

from tests.harness.processes import say
from txtopo.runtime.scheduler import ThreadScheduler


class Died(BaseException):
    """Stands for the death of a process in a test that continues in the same process.

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
    step: str, times: int = 1, die: Callable[[str], object] = kill_this_process
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


def stop_this_process(step: str) -> None:
    """Say that the step is reached, and stop until the parent lets this process continue."""
    say("stopped", step=step)
    os.kill(os.getpid(), signal.SIGSTOP)


class StoppingScheduler(ThreadScheduler):
    """Real time and real threads; the process stops when it reaches durable steps.

    Args:
        steps: Each is the name of a step and a number: ``write.after:total.total:3`` stops when the
            step is reached for the third time.
    """

    def __init__(self, steps: Sequence[str]) -> None:
        super().__init__("stopping")
        named = (step.rpartition(":") for step in steps)
        self._points = [dies_at(name, int(times), stop_this_process) for name, _, times in named]

    def point(self, name: str) -> None:
        for point in self._points:
            point(name)


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
