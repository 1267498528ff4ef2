"""Schedule: when each txid of a recorded run was processed and committed."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.faults.pictures.drawing import (
    COMMIT,
    GREY,
    PROCESSING,
    SMALL,
    STORED,
    Picture,
)
from tests.faults.pictures.recorded import JOBS_S, WRITE_S, undisturbed
from txtopo.attempt import txids_text
from txtopo.runtime.progress import (
    BatchCommitted,
    BatchesProcessed,
    CommitStarted,
    ProcessingStarted,
)
from txtopo.testing.simulation.history import History

LEFT, TOP, ROW, BAR = 84.0, 96.0, 25.0, 17.0
WIDTH = 610.0
FRONT_TXIDS, FRONT_TOP, FRONT_ROW, FRONT_WIDTH = 5, 24.0, 36.0, 400.0
LONGEST_S = 0.3
"""How much time the width stands for, in both pictures, so that they can be compared."""


@dataclass(slots=True)
class Lines:
    """When each txid was where.

    Attributes:
        runs: First and last txid of each job, by when it started.
        processed: When each txid was processed.
        commits: When the commit of each txid started.
        groups: First and last txid of each write, and when every state had it.
    """

    runs: list[tuple[float, int, int]] = field(default_factory=list)
    processed: dict[int, float] = field(default_factory=dict)
    commits: dict[int, float] = field(default_factory=dict)
    groups: dict[tuple[int, int], float] = field(default_factory=dict)

    @classmethod
    def of(cls, history: History) -> Lines:
        """Read them out of a history without failures."""
        lines = cls()
        for at_s, _, _, change in history.trace:
            match change:
                case ProcessingStarted():
                    first, last = change.attempts[0].txid, change.attempts[-1].txid
                    lines.runs.append((at_s, first, last))
                case BatchesProcessed():
                    lines.processed.update((each.txid, at_s) for each in change.attempts)
                case CommitStarted():
                    lines.commits[change.attempt.txid] = at_s
                case BatchCommitted():
                    lines.groups[change.progress.group] = at_s
        return lines


def two_phases() -> str:
    """Return the picture of batches that are processed side by side and committed in order."""
    lines = Lines.of(undisturbed(run_txids=1, group_txids=1))
    return _drawn(
        lines,
        "The two phases",
        "Each line is a txid. Blue: a job processes it, several at a time. Orange: its commit.",
        f"A later txid may be processed first ({_overtaking(lines)}). Commits never overlap.",
    )


def batches() -> str:
    """Return the picture of the front page: the first txids of the same run, and the store."""
    lines = Lines.of(undisturbed(run_txids=1, group_txids=1))
    ends = {txid: at_s for (txid, _), at_s in lines.groups.items() if txid <= FRONT_TXIDS}
    origin = lines.runs[0][0]
    scale = FRONT_WIDTH / (max(ends.values()) - origin)
    store, bottom = LEFT + FRONT_WIDTH + 70, FRONT_TOP + FRONT_ROW * FRONT_TXIDS
    picture = Picture(
        "Batches are processed side by side, and committed one after the other",
        f"The first {FRONT_TXIDS} txids of a run: several are processed at a time, and each is "
        "committed into your store after the one before, its rows and the ledger in one write.",
    )
    for at_s, txid, _ in lines.runs:
        if txid not in ends:
            continue
        y = FRONT_TOP + FRONT_ROW * (txid - 0.5)
        start, processed, commit, end = (
            LEFT + scale * (time_s - origin)
            for time_s in (at_s, lines.processed[txid], lines.commits[txid], ends[txid])
        )
        picture.text(LEFT - 16, y + 4, f"txid {txid}", anchor="end", bold=True)
        picture.line([(processed, y), (commit, y)], colour=GREY, dashed=True)
        picture.box(start, y - 12, processed - start, 24, colour=PROCESSING, fill=0.35, round=3)
        picture.box(commit, y - 12, end - commit, 24, colour=COMMIT, fill=0.35, round=3)
        picture.line([(end + 4, y), (store - 3, y)], opacity=0.45, arrow=True)
    picture.box(store, FRONT_TOP, 120, bottom - FRONT_TOP, colour=STORED, fill=0.15)
    for line, words in enumerate(("your store", "rows + ledger,", "in one write")):
        y = (FRONT_TOP + bottom) / 2 + 18 * line - 12
        picture.text(store + 60, y, words, anchor="middle", bold=not line)
    for x, colour, words in (
        (LEFT, PROCESSING, "processed, side by side on Spark"),
        (LEFT + 270, COMMIT, "committed, in order"),
    ):
        picture.box(x, bottom + 24, 22, 14, colour=colour, fill=0.35, round=3)
        picture.text(x + 30, bottom + 36, words, size=SMALL)
    return picture.svg(store + 144, bottom + 60)


def runs_and_groups() -> str:
    """Return the picture of the same batches in runs and groups."""
    lines = Lines.of(undisturbed(run_txids=3, group_txids=9))
    return _drawn(
        lines,
        "The same in runs and groups",
        "One job processes a run of several txids: a blue box. What waits processed is committed",
        "as a group, in one write of each state: an orange box. Nothing waits for a group to fill.",
    )


def _overtaking(lines: Lines) -> str:
    """Return the first txids of which the later one was processed first."""
    late, early = next(
        (txid, earlier)
        for txid in lines.processed
        for earlier in range(1, txid)
        if lines.processed[txid] < lines.processed[earlier]
    )
    return f"{late} before {early}"


def _drawn(lines: Lines, title: str, *words: str) -> str:
    count = len(lines.commits)
    told = "; ".join(
        f"{txids_text(*group)} committed after {_ms(at_s - lines.runs[0][0])}"
        for group, at_s in lines.groups.items()
    )
    picture = Picture(title, f"{' '.join(words)} In this run: {told}.")
    picture.text(24, 36, title, size=16, bold=True)
    for line, sentence in enumerate(words):
        picture.text(24, 57 + 17 * line, sentence, size=SMALL, opacity=0.8)
    origin = lines.runs[0][0]
    bottom = TOP + ROW * count
    for txid in range(1, count + 1):
        y = _middle(txid)
        picture.text(LEFT - 12, y + 4, f"txid {txid}", size=SMALL, anchor="end")
        waits = _x(lines.processed[txid], origin), _x(lines.commits[txid], origin)
        picture.line([(waits[0], y), (waits[1], y)], colour=GREY, dashed=True)
    for at_s, first, last in lines.runs:
        until = max(lines.processed[txid] for txid in range(first, last + 1))
        _box(picture, _x(at_s, origin), _x(until, origin), first, last, PROCESSING)
    for (first, last), at_s in lines.groups.items():
        _box(picture, _x(lines.commits[first], origin), _x(at_s, origin), first, last, COMMIT)
    _scale(picture, bottom)
    end = max(lines.groups.values())
    note = f"all committed after {_ms(end - origin)}"
    picture.text(LEFT + WIDTH, _middle(1) + 4, note, size=SMALL, anchor="end", bold=True)
    return picture.svg(LEFT + WIDTH + 40, bottom + 62)


def _box(picture: Picture, start: float, end: float, first: int, last: int, colour: str) -> None:
    top, bottom = _middle(first) - BAR / 2, _middle(last) + BAR / 2
    picture.box(start, top, end - start, bottom - top, colour=colour, fill=0.35, round=3)


def _scale(picture: Picture, bottom: float) -> None:
    picture.line([(LEFT, bottom + 6), (LEFT + WIDTH, bottom + 6)], opacity=0.4)
    for at_ms in range(0, round(LONGEST_S * 1000) + 1, 50):
        x = _x(at_ms / 1000, 0.0)
        picture.line([(x, bottom + 2), (x, bottom + 10)], opacity=0.4)
        picture.text(x, bottom + 26, f"{at_ms} ms", size=SMALL, anchor="middle", opacity=0.8)
    picture.text(
        LEFT,
        bottom + 47,
        f"simulated time; a job is told to take {_ms(min(JOBS_S))} to {_ms(max(JOBS_S))}, however "
        f"many txids it has, and a write {_ms(WRITE_S)}",
        size=SMALL,
        opacity=0.8,
    )


def _middle(txid: int) -> float:
    return TOP + ROW * (txid - 0.5)


def _ms(seconds: float) -> str:
    return f"{round(seconds * 1000)} ms"


def _x(at_s: float, origin: float) -> float:
    return LEFT + WIDTH * (at_s - origin) / LONGEST_S
