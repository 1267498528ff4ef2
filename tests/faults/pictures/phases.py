"""Phases: the coordinator's table as a diagram, from the first phase of a txid to its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from tests.faults.pictures.drawing import COMMIT, GREY, PROCESSING, SMALL, STORED, Picture
from txtopo.coordinator.protocol import Action
from txtopo.coordinator.transactions import AFTER, STARTED, Phase

LEFT, TOP, WIDTH, HEIGHT, STEP = 250.0, 66.0, 150.0, 46.0, 84.0
LABEL, LANE = 150.0, 24.0
"""How long a line is before it turns, with its label, and from lane to lane."""

WORDS = {
    Phase.UNPLANNED: "the spout has not been asked, or was not ready",
    Phase.PLANNING: "the spout has been asked",
    Phase.PLANNED: "waits for a job",
    Phase.PROCESSING: "a job processes the batch",
    Phase.PROCESSED: "waits for its turn",
    Phase.COMMITTING: "the states are written",
    Phase.GONE: "committed",
}
"""What happens in each phase, beside its box."""

FOOT = (
    "Bold: what the coordinator does. Plain: what it is told. An arrow that goes back is",
    "a failure, a group that is cut short, or the answer of a spout that it has nothing now.",
)


@dataclass(frozen=True, slots=True)
class Move:
    """What leads from one phase to another.

    Attributes:
        start: Number of the phase, in the order of :class:`Phase`.
        end: Number of the phase after it.
        causes: The events or the action that do it.
    """

    start: int
    end: int
    causes: tuple[type, ...]

    @property
    def label(self) -> str:
        """The causes by name."""
        return ", ".join(cause.__name__ for cause in self.causes)

    @property
    def rows(self) -> range:
        """The gaps between phases that it passes."""
        return range(min(self.start, self.end), max(self.start, self.end))


def phases(table: Mapping[tuple[Phase, type], Phase] = AFTER) -> str:
    """Return the diagram of a table of transitions."""
    order = list(Phase)
    found: dict[tuple[int, int], list[type]] = {}
    for (phase, cause), target in table.items():
        found.setdefault((order.index(phase), order.index(target)), []).append(cause)
    moves = [Move(*ends, tuple(causes)) for ends, causes in found.items()]
    told = "; ".join(f"{order[m.start].name} to {order[m.end].name} by {m.label}" for m in moves)
    picture = Picture("The phases of a txid", f"What leads from phase to phase: {told}.")
    picture.text(24, 36, "The phases of a txid", size=16, bold=True)
    for at, phase in enumerate(order):
        _box(picture, at, phase)
    onward = [move for move in moves if move.end == move.start + 1]
    for move in onward:
        _onward(picture, move)
    lanes = _lanes([move for move in moves if move not in onward])
    for move, lane in lanes.items():
        _back(picture, move, lane, list(lanes))
    bottom = TOP + STEP * (len(order) - 1) + HEIGHT
    for line, words in enumerate(FOOT):
        picture.text(24, bottom + 34 + 16 * line, words, size=SMALL, opacity=0.8)
    right = LEFT + WIDTH + LABEL + LANE * (1 + max(lanes.values(), default=0))
    return picture.svg(right + 20, bottom + 68)


def _box(picture: Picture, at: int, phase: Phase) -> None:
    colour = PROCESSING if phase in STARTED else GREY
    colour = {Phase.COMMITTING: COMMIT, Phase.GONE: STORED}.get(phase, colour)
    y = TOP + STEP * at
    picture.box(LEFT, y, WIDTH, HEIGHT, colour=colour)
    picture.text(LEFT + WIDTH / 2, y + 28, phase.name, anchor="middle", bold=True)
    words = WORDS[phase].split(", ")
    for line, part in enumerate(words):
        part += "," if line < len(words) - 1 else ""
        y_line = y + 27 + 16 * line - 8 * (len(words) - 1)
        picture.text(LEFT - 14, y_line, part, size=SMALL, anchor="end", opacity=0.8)


def _onward(picture: Picture, move: Move) -> None:
    x, y = LEFT + WIDTH / 2, TOP + STEP * move.start + HEIGHT
    picture.line([(x, y), (x, y + STEP - HEIGHT)], arrow=True)
    does = move.causes[0] in get_args(Action)
    picture.text(x + 10, y + 23, move.label, size=SMALL, bold=does)


def _lanes(moves: list[Move]) -> dict[Move, int]:
    """Return how far outside each line turns: as near as those that it passes leave room."""
    lanes: dict[Move, int] = {}
    for move in sorted(moves, key=lambda move: len(move.rows)):
        taken = {lane for other, lane in lanes.items() if set(other.rows) & set(move.rows)}
        lanes[move] = next(lane for lane in range(len(moves) + 1) if lane not in taken)
    return lanes


def _back(picture: Picture, move: Move, lane: int, others: list[Move]) -> None:
    x = LEFT + WIDTH
    turn = x + LABEL + LANE * lane
    start, end = _port(move.start, move, others), _port(move.end, move, others)
    picture.line([(x, start), (turn, start), (turn, end), (x, end)], arrow=True)
    above = not any(m.start == move.start and len(m.rows) < len(move.rows) for m in others)
    picture.text(x + 12, start + (-5 if above else 13), move.label, size=SMALL)


def _port(at: int, move: Move, moves: list[Move]) -> float:
    """Return where a line leaves or enters a box: what leaves is above what enters."""
    leaving = sorted((m for m in moves if m.start == at), key=lambda m: len(m.rows))
    entering = sorted((m for m in moves if m.end == at), key=lambda m: -len(m.rows))
    ports = [*leaving, *entering]
    return TOP + STEP * at + HEIGHT * (1 + ports.index(move)) / (1 + len(ports))
