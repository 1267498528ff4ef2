"""SpoutAsks: asks the spout for the next batch, and decides when to ask it again.

A spout without rows is asked again after a pause. The pause is short at first, and doubles while
the spout stays dry. The spout is asked at once if its last answer may be out of date: it may have
looked before a caller began to wait, or before a commit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from txtopo.coordinator import Coordinator
from txtopo.coordinator.failures import failure_of
from txtopo.coordinator.protocol import Event, Failed, NotReady, PlanBatch, Planned, Tick
from txtopo.coordinator.transactions import Phase
from txtopo.runtime.run_context import RunContext

if TYPE_CHECKING:
    from concurrent.futures import Future

    from txtopo.runtime.scheduler import Timer

FIRST_POLL_SHARE = 0.1
"""The first pause after a spout has become dry, as a share of ``poll_interval_s``."""
DOUBLINGS_MAX = 10
"""Enough doublings to make that share longer than the whole interval."""


class SpoutAsks:
    """Asks the spout in one term. Used on the loop only.

    Args:
        context: The graph, settings, planner etc. of the topology.
        coordinator: The coordinator of the term.
        tell: Gives the term an event.
    """

    def __init__(
        self, context: RunContext, coordinator: Coordinator, tell: Callable[[Event], None]
    ) -> None:
        self._context, self._scheduler = context, context.scheduler
        self._coordinator = coordinator
        self._tell = tell
        self.number = 0
        """How often the spout was asked for a batch."""
        self.dry = 0
        """The number of the last ask that the spout answered with ``NotReady`` while nothing was in
        flight. With batches in flight it may answer so only because it does not know yet where they
        end."""
        self._asked_s = 0.0
        self._again = self._gathers = False
        self._poll: Timer | None = None
        self._dry_in_a_row = 0

    @property
    def is_asking(self) -> bool:
        """Whether the spout has been asked for a batch and has not answered."""
        return self._coordinator.unplanned.phase is Phase.PLANNING

    @property
    def since_s(self) -> float:
        """Seconds since the spout was asked last."""
        return self._scheduler.now() - self._asked_s

    def ask(self, action: PlanBatch) -> None:
        """Ask the spout for a batch, on a thread: ``Planned``, ``NotReady`` or ``Failed``."""
        self.number += 1
        number = self.number
        in_flight = tuple(each.metadata for each in self._coordinator.transactions)
        pending = len(in_flight)
        self._again = False
        self._asked_s = self._scheduler.now()
        # A run of batches must not wait for a slow spout: the tick lets it start without more.
        slow = self._tick_later(self._context.config.poll_interval_s)

        def done(future: Future[Event]) -> None:
            slow.cancel()
            if (error := future.exception()) is not None:
                spout = self._context.compiled.only_spout
                self._tell(Failed(action.attempt, failure_of(error, spout)))
                return
            event = future.result()
            dry = isinstance(event, NotReady)
            held = isinstance(event, NotReady) and event.held
            idle = isinstance(event, Planned) and event.idle
            # A spout that is held back has rows, so it is not dry, and asking again is no use.
            self.dry = number if (dry or idle) and not (pending or held) else self.dry
            self._gathers = dry and pending > 0
            again = self._again and dry and not held  # read first: the event may reset it
            self._tell(event)
            if again:
                self.soon()

        def plan() -> Event:
            self._scheduler.point("plan.before")
            event = self._context.planner.plan(action, in_flight)
            self._scheduler.point("plan.after")
            return event

        self._scheduler.submit(plan, done)

    def soon(self) -> None:
        """Ask again now, or when the current ask is answered with ``NotReady``."""
        if self.is_asking:
            self._again = True
        else:
            self._tell(Tick())

    def committed(self) -> None:
        """Ask again after a commit, if the spout may have looked before it."""
        if self._gathers or self.is_asking:
            self.soon()

    def answered(self, event: Event) -> None:
        """Schedule the next ask after the coordinator has handled a spout's answer."""
        if isinstance(event, NotReady):
            self._poll_later(held=event.held)
        if isinstance(event, Planned):
            self._dry_in_a_row = 0

    def _poll_later(self, *, held: bool) -> None:
        """Ask the spout again after a pause. A new timer replaces the previous one.

        If the pace holds rows back, the pause is the longest one from the start. Otherwise a slow
        rate would be cut into tiny batches.
        """
        if self._poll is not None:
            self._poll.cancel()
        longest_s = self._context.config.poll_interval_s
        share = 1.0 if held else FIRST_POLL_SHARE * 2**self._dry_in_a_row
        pause_s = longest_s * min(1.0, share)
        self._poll = self._tick_later(pause_s)
        self._dry_in_a_row = min(self._dry_in_a_row + 1, DOUBLINGS_MAX)

    def _tick_later(self, pause_s: float) -> Timer:
        return self._scheduler.call_later(pause_s, lambda: self._tell(Tick()))
