"""Timeline: virtual time. What is due next happens next, and takes no time at all."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol


class Owner(Protocol):
    """Whom an event belongs to."""

    def takes(self, event: Event) -> bool:
        """Return whether the event may happen now; a frozen process keeps it for later."""
        ...


@dataclass(order=True, slots=True)
class Event:
    """A call at a moment of virtual time."""

    due_s: float
    order: int
    callback: Callable[[], None] = field(compare=False)
    owner: Owner | None = field(compare=False, default=None)
    cancelled: bool = field(compare=False, default=False)

    def cancel(self) -> None:
        """Do not make the call."""
        self.cancelled = True


class Timeline:
    """All that is still to come, in order of time; what is due together keeps its order."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.events = 0
        self._heap: list[Event] = []
        self._order = 0

    def after(
        self, delay_s: float, callback: Callable[[], None], owner: Owner | None = None
    ) -> Event:
        """Have *callback* called after a delay."""
        self._order += 1
        event = Event(self.now_s + delay_s, self._order, callback, owner)
        heapq.heappush(self._heap, event)
        return event

    def put_back(self, event: Event) -> None:
        """Have a kept event happen now."""
        if not event.cancelled:
            self.after(0.0, event.callback, event.owner)

    def run(self, done: Callable[[], bool], *, until_s: float) -> bool:
        """Let time pass until *done*; return whether that came before *until_s*."""
        while not done():
            if not self._heap or self._heap[0].due_s > until_s:
                self.now_s = max(self.now_s, until_s)
                return False
            event = heapq.heappop(self._heap)
            if event.cancelled:
                continue
            self.now_s = max(self.now_s, event.due_s)
            if event.owner is None or event.owner.takes(event):
                self.events += 1
                event.callback()
        return True
