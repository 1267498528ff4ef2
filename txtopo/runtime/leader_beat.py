"""LeaderBeat: what a leader does once a second beside its batches.

It answers the commands of operators (:mod:`txtopo.transactional_state.commands` has the rules) and
announces a summary of its run. The term calls it, on a thread, when it writes nothing else: a
transactional state takes one call at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from txtopo.transactional_state.commands import CommandDesk

if TYPE_CHECKING:
    from txtopo.metadata import Json
    from txtopo.runtime.scheduler import Scheduler
    from txtopo.transactional_state.commands import Desired
    from txtopo.transactional_state.journal import Journal
    from txtopo.transactional_state.store import TransactionalState

BEAT_S = 1.0
"""Time between the end of one beat and the next one. It costs one request to ZooKeeper, and one to
announce the summary."""

Summary = Callable[[], "Json"]


class LeaderBeat:
    """The beat of one term.

    Args:
        state: The transactional state.
        scheduler: Clocks and durable steps.
        journal: Writes to ZooKeeper under the epoch of the term.
        desired: What an operator wanted of the topology when the term began.
        summary: Returns the summary of the run; None if nobody makes one.
    """

    def __init__(
        self,
        state: TransactionalState,
        scheduler: Scheduler,
        journal: Journal,
        desired: Desired,
        summary: Summary | None,
    ) -> None:
        self._state = state
        self._desk = CommandDesk(state, journal, desired, scheduler)
        self._summary = summary

    @property
    def desired(self) -> Desired:
        """What an operator wants of the topology now."""
        return self._desk.desired

    def run(self) -> None:
        """Answer commands, and announce the summary. Blocks.

        Raises:
            InfrastructureError: ZooKeeper cannot be reached; the next beat does the rest.
            FencedError: Another coordinator has taken over.
        """
        self._desk.serve()
        if self._summary is not None and self._state.announces:
            self._state.announce(self._summary())
