"""The crash matrix as plain data: where a process dies, at which txid, and with which states.

A second part has groups of several txids, and dies in the commit of the first group or a later one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from txtopo.state.backend import StateKind

TXIDS = (2, 3, 4)
GROUPS = (1, 2)
GROUP_TXIDS = 3
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

OF_GROUPS = (*TAKEOVER, "turn.after", *COMMIT, *READ_BACK, *AFTERWARDS)
"""Those of them that a group passes as one."""

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
        txid: The txid that is under way there; the last one of its group.
        kind: Of the spout and of the states; two states that take groups are opaque.
        states: How many there are, each in a store of its own.
        state: Which of them the point belongs to, from 0; None if to none.
        story: What has to come before.
        size: How many txids each group has.
    """

    point: str
    txid: int
    kind: StateKind
    states: int
    state: int | None = None
    story: Story = ""
    size: int = 1

    @property
    def turn(self) -> int:
        """The how manieth commit the one of the txid is."""
        return self.txid // self.size

    @property
    def committers(self) -> tuple[str, ...]:
        """The committers, each with a state; a hand-written one takes groups if it is opaque."""
        alone = self.size > 1 and self.state_kind == "transactional"
        return ("aggregates",) if alone else COMMITTERS[: self.states]

    @property
    def state_kind(self) -> StateKind:
        """The kind of the states."""
        return "opaque" if self.size > 1 and self.states > 1 else self.kind

    @property
    def checkpoint(self) -> str:
        """The name that the runtime calls the point by."""
        return self._at(self.point, self.state)

    @property
    def by_metadata(self) -> bool:
        """Whether ZooKeeper's metadata, and no count, says when the process dies.

        The plan of a txid and what the one before it brought are stored in one write, or in two.
        """
        return self.point.startswith("store-metadata.") and self.kind == "transactional"

    @property
    def crashes(self) -> list[tuple[str, int]]:
        """The points at which processes die: (name of the point, number of the passing or 0)."""
        if self.story == "adopted":
            # The first process claimed too; the one that dies is its successor.
            again = 1 if self.point == "claim.adopted" else 2
            return [("advance.before", self.turn), (self.checkpoint, again)]
        if self.story == "undone":
            return [(self._at("write.after", 0), self.turn), (self.checkpoint, 2)]
        if self.story == "retried":
            # The attempt that was given up passed here too, but for the end of its last write.
            again = not (self.point == "write.after" and self.state == self.states - 1)
            return [(self.checkpoint, self.turn + again)]
        if self.by_metadata:
            return [(self.checkpoint, 0)]
        return [(self.checkpoint, 1 if self.story else self.turn)]

    @property
    def lost_answer(self) -> tuple[str, int] | None:
        """The point before the write whose answer is lost, and the number of the passing."""
        if self.story in ("landed", "lost"):
            return self._at("write.before", self.state), self.turn
        if self.story == "retried":
            return self._at("write.before", self.states - 1), self.turn
        return None

    def __str__(self) -> str:
        of = f"txid{self.txid}" if self.size == 1 else f"group{self.turn}"
        words = [self.checkpoint, self.story, of, self.kind, f"states{self.states}"]
        return "-".join(filter(None, words))

    def _at(self, point: str, state: int | None) -> str:
        name = None if state is None else self.committers[state]
        return point if name is None else f"{point}:{name}.{name}"


def cells() -> Iterator[Cell]:
    """Yield every cell of the matrix, for one kind of store."""
    for point in POINTS:
        for txid in TXIDS:
            for kind in KINDS:
                for states in (1, 2):
                    yield from _cells(point, txid, kind, states)
    for point in OF_GROUPS:
        for group in GROUPS:
            for kind in KINDS:
                for states in (1, 2):
                    yield from _cells(point, group * GROUP_TXIDS, kind, states, GROUP_TXIDS)


def _cells(point: str, txid: int, kind: StateKind, states: int, size: int = 1) -> Iterator[Cell]:
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
            yield Cell(point, txid, kind, states, state, story, size)
