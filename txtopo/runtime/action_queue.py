"""ActionQueue: holds the actions of a term, and says which of them may be done now.

Rules
-----
1. Actions leave the queue in the order in which they entered it. After a write, no action leaves
   until the write is durable.
2. The transactional state gets one call at a time. A write waits for the end of the leader's beat,
   and a beat for the end of the write. Other actions do not wait for a beat.
3. A write that fails because of the infrastructure is repeated after a pause, until it succeeds or
   the term is over. No beat comes in between. A run that is about to end does not repeat it: what
   was not written is found in the ledgers. Any other error ends the term.
4. No I/O, clock, thread or random number is used here. Each event has one method, and equal events
   give equal answers. So a simulator can replay a failure from its seed.
5. An event that the table does not have changes nothing. So what is heard after the end of the
   term is ignored. Compare first, then mutate.

Theory of operation
-------------------
The coordinator returns actions in an order that a crash may cut anywhere. Two of them are writes
to ZooKeeper, and whatever comes after a write relies on it. All other actions only start work, so
they are done at once. A write never fails an attempt, because it records what has happened already.

Once a second the leader's beat (:mod:`txtopo.runtime.leader_beat`) uses the transactional state as
well. A beat that becomes due during a write begins right after it, before the next action.

The table, as a diagram. A test compares the two. ::

    FREE      --WRITE_TAKEN--> WRITING
    FREE      --BEAT_TAKEN--> BEATING
    WRITING   --WRITTEN--> FREE
    WRITING   --WRITE_FAILED--> PAUSING
    PAUSING   --PAUSE_ENDED--> WRITING
    BEATING   --BEAT_ENDED--> FREE
    any other --CLOSED--> OVER

The term asks for the next action until there is none, after each event. It asks again for every
action, since doing one can put others into the queue or end the term.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from txtopo.coordinator.protocol import Action, Advance, Stop, StoreBatches
from txtopo.errors import InfrastructureError

Write = StoreBatches | Advance
"""The actions that are durable before the next one starts."""


class EnsembleUse(Enum):
    """What the transactional state is used for."""

    FREE = auto()
    """For nothing."""
    WRITING = auto()
    """For a write."""
    PAUSING = auto()
    """For nothing, until a write that has failed is repeated."""
    BEATING = auto()
    """For a beat."""
    OVER = auto()
    """For nothing more: the term is over."""


class QueueEvent(Enum):
    """What changes the use of the transactional state."""

    WRITE_TAKEN = auto()
    WRITTEN = auto()
    WRITE_FAILED = auto()
    PAUSE_ENDED = auto()
    BEAT_TAKEN = auto()
    BEAT_ENDED = auto()
    CLOSED = auto()


AFTER: dict[tuple[EnsembleUse, QueueEvent], EnsembleUse] = {
    (EnsembleUse.FREE, QueueEvent.WRITE_TAKEN): EnsembleUse.WRITING,
    (EnsembleUse.FREE, QueueEvent.BEAT_TAKEN): EnsembleUse.BEATING,
    (EnsembleUse.WRITING, QueueEvent.WRITTEN): EnsembleUse.FREE,
    (EnsembleUse.WRITING, QueueEvent.WRITE_FAILED): EnsembleUse.PAUSING,
    (EnsembleUse.PAUSING, QueueEvent.PAUSE_ENDED): EnsembleUse.WRITING,
    (EnsembleUse.BEATING, QueueEvent.BEAT_ENDED): EnsembleUse.FREE,
    (EnsembleUse.FREE, QueueEvent.CLOSED): EnsembleUse.OVER,
    (EnsembleUse.WRITING, QueueEvent.CLOSED): EnsembleUse.OVER,
    (EnsembleUse.PAUSING, QueueEvent.CLOSED): EnsembleUse.OVER,
    (EnsembleUse.BEATING, QueueEvent.CLOSED): EnsembleUse.OVER,
}

WITH_WRITE = frozenset({EnsembleUse.WRITING, EnsembleUse.PAUSING})
"""The uses during which a write is not durable yet."""
DOING_ACTIONS = frozenset({EnsembleUse.FREE, EnsembleUse.BEATING})
"""The uses during which actions leave the queue."""


@dataclass(frozen=True, slots=True)
class StartBeat:
    """Run the beat of the leader."""


@dataclass(frozen=True, slots=True)
class RepeatWrite:
    """Repeat a write after the pause that follows this many failures in a row."""

    write: Write
    failures: int


@dataclass(frozen=True, slots=True)
class EndTerm:
    """End the term, with this error if there is one."""

    error: BaseException | None


class ActionQueue:
    """The queue of one term.

    Who calls it: the loop of the term. It adds the actions of the coordinator, reports how writes
    and beats end, and calls :meth:`next` after each of these until there is nothing to do.
    """

    def __init__(self) -> None:
        self._use = EnsembleUse.FREE
        self._actions: deque[Action] = deque()
        self._write: Write | None = None
        self._failures = 0
        self._beat_is_due = self._stopping = False

    @property
    def use(self) -> EnsembleUse:
        """The current use of the transactional state."""
        return self._use

    @property
    def at_rest(self) -> bool:
        """Whether no action waits, and all writes are durable. A beat does not count."""
        return not self._actions and self._use not in WITH_WRITE

    @property
    def beat_waits(self) -> bool:
        """Whether a beat is due and has not begun."""
        return self._beat_is_due

    def add(self, actions: Iterable[Action]) -> None:
        """Put the actions that follow an event of the coordinator at the end."""
        if self._use is not EnsembleUse.OVER:
            self._actions.extend(actions)

    def next(self) -> Action | StartBeat | None:
        """Remove and return the next action that may be done now; None if there is none."""
        taken = self._taken()
        check_invariants(self._use, self._actions, self._write, self._failures)
        return taken

    def _taken(self) -> Action | StartBeat | None:
        if self._use not in DOING_ACTIONS:
            return None
        # Before the actions that have waited for the same write: under load there is always one
        # more, and commands of operators would never be answered.
        if self._beat_is_due and self._moved(QueueEvent.BEAT_TAKEN):
            self._beat_is_due = False
            return StartBeat()
        if not self._actions:
            return None
        action = self._actions[0]
        if isinstance(action, StoreBatches | Advance):
            if not self._moved(QueueEvent.WRITE_TAKEN):
                return None
            self._write = action
        return self._actions.popleft()

    # ------------------------------------------------------------ writes

    def written(self) -> None:
        """Record that the write which was taken last is durable."""
        if self._moved(QueueEvent.WRITTEN):
            self._write, self._failures = None, 0

    def write_failed(
        self, error: BaseException, *, committing: bool
    ) -> RepeatWrite | EndTerm | None:
        """Return how to handle the failure of a write; None if nobody waits for the write any more.

        Args:
            error: Why it failed.
            committing: Whether a commit is under way. A run that was asked to stop finishes it, and
                therefore still needs its writes.
        """
        if self._write is None or self._use is not EnsembleUse.WRITING:
            return None
        if not isinstance(error, InfrastructureError):
            return EndTerm(error)
        # The coordinator may have decided to end already: its Stop waits behind this write.
        stop = next((each for each in self._actions if isinstance(each, Stop)), None)
        if stop is not None:
            return EndTerm(stop.error)
        if self._stopping and not committing:
            return EndTerm(None)
        self._moved(QueueEvent.WRITE_FAILED)
        self._failures += 1
        return RepeatWrite(self._write, self._failures)

    def pause_ended(self) -> Write | None:
        """Return the write that is repeated now; None if the term is over."""
        return self._write if self._moved(QueueEvent.PAUSE_ENDED) else None

    # ------------------------------------------------------------ the beat

    def beat_due(self) -> None:
        """Record that the pause after the last beat is over. A run that stops beats no more."""
        self._beat_is_due = not self._stopping and self._use is not EnsembleUse.OVER

    def beat_ended(self) -> None:
        """Record that a beat has ended, well or not."""
        self._moved(QueueEvent.BEAT_ENDED)

    # ------------------------------------------------------------ the end

    def stop(self) -> None:
        """Record that the run was asked to stop. Its last actions are added like all others."""
        self._stopping, self._beat_is_due = True, False

    def close(self) -> None:
        """Drop all actions: the term is over."""
        self._moved(QueueEvent.CLOSED)
        self._actions.clear()
        self._write, self._failures, self._beat_is_due = None, 0, False

    def _moved(self, event: QueueEvent) -> bool:
        """Change the use after an event; return False if the table does not have the event."""
        after = AFTER.get((self._use, event))
        if after is None:
            return False
        self._use = after
        return True


def check_invariants(
    use: EnsembleUse, actions: deque[Action], write: Write | None, failures: int
) -> None:
    """Check what holds after every event. A breach is a bug of ours, so these are assertions."""
    assert (write is not None) == (use in WITH_WRITE), "a write is held in its uses"
    assert failures == 0 or write is not None, "only a write fails"
    assert use is not EnsembleUse.PAUSING or failures > 0, "a pause follows a failure"
    assert use is not EnsembleUse.OVER or not actions, "what is over has nothing to do"
