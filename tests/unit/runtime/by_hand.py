"""A scheduler for tests of one object on a loop."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


class ByHand:
    """A scheduler on which nothing is done before the test says so."""

    def __init__(self) -> None:
        self.works: list[tuple[Callable[[], Any], Callable[[Future[Any]], None]]] = []
        self.pauses_s: list[float] = []
        self.timers: list[Callable[[], None]] = []

    @property
    def idle(self) -> bool:
        """Whether no work and no pause has to end."""
        return not self.works and not self.timers

    def now(self) -> float:
        return 0.0

    def wall_clock(self) -> float:
        return 1_000.0

    def point(self, name: str) -> None:
        pass

    def post(self, callback: Callable[[], None]) -> None:
        callback()

    def submit(self, work: Callable[[], Any], done: Callable[[Future[Any]], None]) -> None:
        self.works.append((work, done))

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        self.pauses_s.append(delay_s)
        self.timers.append(callback)

    def work(self) -> None:
        """Do the work that was submitted last, and tell how it ended."""
        work, _ = self.works[-1]
        try:
            outcome = work()
        except Exception as error:  # noqa: BLE001 - told as a thread does
            outcome = error
        self.tell(outcome)

    def tell(self, outcome: Any) -> None:
        """Tell that the work that was submitted last ended so: with an error, or with a result."""
        _, done = self.works.pop()
        future: Future[Any] = Future()
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
        done(future)

    def pass_time(self) -> None:
        """Let the pause that is left be over."""
        self.timers.pop()()
