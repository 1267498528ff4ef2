"""The crash matrix as plain data: where a process dies, at which txid, and with which states."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from txtopo.state.backend import StateKind

TXIDS = (2, 3, 4)
KINDS: tuple[StateKind, ...] = ("transactional", "opaque")
COMMITTERS = ("balances", "aggregates")
"""One state gets puts and deletes, the second one, in a store of its own, gets partials merged."""

TAKEOVER = ("claim.before-epoch", "claim.after-epoch", "claim.claimed", "claim.adopted")
BATCH = (
    *(
        "plan.before",
        "plan.after",
        "store-metadata.before",
        "store-metadata.after",
        "process.before",
        "process.after",
    ),
    *("turn.before", "turn.after"),
)
COMMIT = ("begin.before", "begin.after", "rows.before", "rows.after", "write.before", "write.after")
READ_BACK = ("read-back.before", "read-back.after")
AFTERWARDS = ("advance.before", "advance.after", "cleanup.before", "cleanup.after")
POINTS = (*TAKEOVER, *BATCH, *COMMIT, *READ_BACK, *AFTERWARDS)
"""Every named point of the runtime, in the order in which a txid passes them."""

RETRIED = ("turn.after", "begin.after", "rows.after", "write.before", "write.after")

Story = Literal["", "adopted", "undone", "landed", "lost", "retried"]
"""What comes before the death.

``adopted`` and ``undone`` are a first crash that leaves the txid in every store, or in one of two.
``landed`` and ``lost`` are a write whose answer is lost, which landed or did not. ``retried`` is
such a write whose ledger cannot be read back either: every store holds an attempt that was given
up, and it is replayed.
"""


@dataclass(frozen=True, slots=True)
class Cell:
    """One checkpoint to die at.

    Attributes:
        point: One of :data:`POINTS`.
        txid: The txid that is under way there.
        kind: Of the spout and of the states.
        states: How many there are, each in a store of its own.
        state: Which of them the point belongs to, from 0; None if to none.
        story: What has to come before.
    """

    point: str
    txid: int
    kind: StateKind
    states: int
    state: int | None = None
    story: Story = ""

    @property
    def checkpoint(self) -> str:
        """The name that the runtime calls the point by."""
        return self._at(self.point, self.state)

    @property
    def crashes(self) -> list[tuple[str, int]]:
        """The points at which processes die: (name of the point, number of the passing)."""
        if self.story == "adopted":
            # The first process claimed too; the one that dies is its successor.
            again = 1 if self.point == "claim.adopted" else 2
            return [("advance.before", self.txid), (self.checkpoint, again)]
        if self.story == "undone":
            return [(self._at("write.after", 0), self.txid), (self.checkpoint, 2)]
        if self.story == "retried":
            # The attempt that was given up passed here too, but for the end of its last write.
            again = not (self.point == "write.after" and self.state == self.states - 1)
            return [(self.checkpoint, self.txid + again)]
        if self.point.startswith("store-metadata.") and self.kind == "transactional":
            # Each txid passes there twice: with its plan, and with what it brought.
            return [(self.checkpoint, 2 * self.txid - 1)]
        return [(self.checkpoint, 1 if self.story else self.txid)]

    @property
    def lost_answer(self) -> tuple[str, int] | None:
        """The point before the write whose answer is lost, and the number of the passing."""
        if self.story in ("landed", "lost"):
            return self._at("write.before", self.state), self.txid
        if self.story == "retried":
            return self._at("write.before", self.states - 1), self.txid
        return None

    def __str__(self) -> str:
        words = [self.checkpoint, self.story, f"txid{self.txid}", self.kind, f"states{self.states}"]
        return "-".join(filter(None, words))

    @staticmethod
    def _at(point: str, state: int | None) -> str:
        return point if state is None else f"{point}:{COMMITTERS[state]}.{COMMITTERS[state]}"


def cells() -> Iterator[Cell]:
    """Yield every cell of the matrix, for one kind of store."""
    for point in POINTS:
        for txid in TXIDS:
            for kind in KINDS:
                for states in (1, 2):
                    yield from _cells(point, txid, kind, states)


def _cells(point: str, txid: int, kind: StateKind, states: int) -> Iterator[Cell]:
    each: list[int | None] = [None]
    if point in COMMIT or point in READ_BACK or point == "claim.claimed":
        each = [*range(states)]
    stories: list[Story] = [""]
    if point in READ_BACK:
        stories = ["landed", "lost"]
    elif point in TAKEOVER:
        stories = ["adopted"]
        if states == 2 and point != "claim.adopted":
            stories += ["undone"]
    elif point in RETRIED:
        stories += ["retried"]
    for state in each:
        for story in stories:
            yield Cell(point, txid, kind, states, state, story)
