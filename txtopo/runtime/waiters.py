"""Waiters: threads that wait until everything available is committed."""

from __future__ import annotations

from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol


class Resting(Protocol):
    """What can be at rest: a term, or an at-least-once run."""

    @property
    def at_rest(self) -> bool:
        """Whether nothing is in flight."""
        ...

    @property
    def asks(self) -> int:
        """Number of the last time that a spout was asked for more."""
        ...

    @property
    def dry_ask(self) -> int:
        """Number of the last time that it had nothing."""
        ...


@dataclass(slots=True)
class _Waiter:
    future: Future[None]
    asks_before: int


class Waiters:
    """Resolves futures when a term, or an at-least-once run, is at rest. Used on the loop only.

    What was available when the waiting began must have been seen, so the spout has to be asked once
    more, with nothing in flight, and say that it has nothing.
    """

    def __init__(self) -> None:
        self._waiting: list[_Waiter] = []

    @property
    def waiting(self) -> bool:
        """Whether anybody waits."""
        return bool(self._waiting)

    def add(self, future: Future[None], term: Resting | None) -> None:
        """Take in a future; *term* is the one that runs now, if any."""
        self._waiting.append(_Waiter(future, term.asks if term else 0))

    def begin(self) -> None:
        """Take note of a new term, which counts anew."""
        for waiter in self._waiting:
            waiter.asks_before = 0

    def resolve(self, term: Resting | None, *, active: bool) -> None:
        """Resolve what can be; a deactivated run need only have nothing in flight."""
        if term is None or not self._waiting or not term.at_rest:
            return
        ready = [w for w in self._waiting if not active or term.dry_ask > w.asks_before]
        self._waiting = [w for w in self._waiting if w not in ready and not w.future.done()]
        for waiter in ready:
            _set(waiter.future, None)

    def end(self, error: Exception | None) -> None:
        """Resolve all: the run has ended."""
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            _set(waiter.future, error)


def _set(future: Future[None], error: Exception | None) -> None:
    """Resolve a future, unless whoever waited has given up."""
    with suppress(InvalidStateError):
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(None)
