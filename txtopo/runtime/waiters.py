"""Waiters: threads that wait until everything available is committed."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass

from txtopo.runtime.term import Term


@dataclass(slots=True)
class _Waiter:
    future: Future[None]
    answers_before: int


class Waiters:
    """Resolves futures when a term is at rest. Used on the runtime's loop only.

    What was available when the waiting began must have been seen, so the spout has to say once more
    that it has nothing.
    """

    def __init__(self) -> None:
        self._waiting: list[_Waiter] = []

    def add(self, future: Future[None], term: Term | None) -> None:
        """Take in a future; *term* is the one that runs now, if any."""
        self._waiting.append(_Waiter(future, term.not_ready_answers if term else 0))

    def begin(self) -> None:
        """Take note of a new term, which counts the spout's answers anew."""
        for waiter in self._waiting:
            waiter.answers_before = 0

    def resolve(self, term: Term | None, *, active: bool) -> None:
        """Resolve what can be; a deactivated run need only have nothing in flight."""
        if term is None or not self._waiting or not term.at_rest(active=active):
            return
        ready = [
            waiter
            for waiter in self._waiting
            if not active or term.not_ready_answers > waiter.answers_before
        ]
        self._waiting = [waiter for waiter in self._waiting if waiter not in ready]
        for waiter in ready:
            waiter.future.set_result(None)

    def end(self, error: Exception | None) -> None:
        """Resolve all: the run has ended."""
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if error is not None:
                waiter.future.set_exception(error)
            else:
                waiter.future.set_result(None)
