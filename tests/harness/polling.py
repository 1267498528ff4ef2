"""Wait until a condition holds: the only poller of the tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")

LIMIT_S = 120.0
"""The limit of a wait unless a test sets its own.

It is far above what anything takes, because the machine may be busy. Only what hangs reaches it.
"""
PAUSE_S = 0.01


class NeverHappenedError(AssertionError):
    """A condition did not hold within its time limit."""


def wait_until(
    condition: Callable[[], Value],
    what: str | Callable[[], str],
    limit_s: float = LIMIT_S,
    pause_s: float = PAUSE_S,
) -> Value:
    """Call *condition* again and again until it returns something true, and return that.

    An exception of *condition* ends the wait. So a condition can give up early, for example when
    the process that it waits for has ended.

    Args:
        condition: What is waited for.
        what: What is waited for in words, for the message; a function is called at the limit only.
        limit_s: How long to wait at most.
        pause_s: How long to sleep between two calls.

    Raises:
        NeverHappenedError: If the limit is reached.
    """
    deadline_s = time.monotonic() + limit_s
    while not (value := condition()):
        if time.monotonic() > deadline_s:
            said = what if isinstance(what, str) else what()
            raise NeverHappenedError(f"waited {limit_s:g} s in vain until {said}")
        time.sleep(pause_s)
    return value


def retry(
    action: Callable[[], Value],
    *errors: type[Exception],
    limit_s: float = LIMIT_S,
    pause_s: float = PAUSE_S,
) -> Value:
    """Call *action* again after each of these errors, and return its result.

    At the limit the last error is raised.
    """
    deadline_s = time.monotonic() + limit_s
    while True:
        try:
            return action()
        except errors:
            if time.monotonic() > deadline_s:
                raise
        time.sleep(pause_s)
