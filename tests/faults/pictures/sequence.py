"""Sequence: what happened to a txid, step by step, and who did it to which state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.faults.pictures.drawing import (
    BROKEN,
    COMMIT,
    GREY,
    PROCESSING,
    SMALL,
    STORED,
    Picture,
    width_of,
)
from tests.faults.pictures.recorded import deposed, killed
from txtopo.attempt import TransactionAttempt
from txtopo.errors import FencedError
from txtopo.runtime.progress import CommitStarted, Leading, Standby, Started
from txtopo.state.ledger import Ledger, Standing, standing
from txtopo.testing.checkers.evidence import current_of, epoch_of, stored_attempts
from txtopo.testing.simulation.history import History, NodesWrite, StoreWrite

TOPOLOGY, TXID, ZOOKEEPER = "words", 2, "ZooKeeper"
"""The topology, the txid that is followed, and the lane of its nodes."""
END = "its run ends"
LEFT, TOP, LANE, STEP, BOX, HEIGHT = 64.0, 128.0, 162.0, 50.0, 146.0, 38.0
DOES = {
    Standing.APPLY: ("apply {attempt}", "holds {attempt}"),
    Standing.REDO: ("undo {held}", "then write {attempt}"),
    Standing.HELD: ("has {attempt} already", "changes nothing"),
}


@dataclass(frozen=True, slots=True)
class Step:
    """Something that happened.

    Attributes:
        at_s: When.
        lane: Where: a process, a state, or ZooKeeper.
        words: What, in one line or two.
        colour: Of its box.
        source: The process that did it, if that is another lane.
        ends: Whether the lane is dead, or frozen, from here on.
    """

    at_s: float
    lane: str
    words: tuple[str, ...]
    colour: str = GREY
    source: str = ""
    ends: bool = False


def takeover() -> str:
    """Return the picture of a leader that dies between two states, and of its successor."""
    return _drawn(
        steps(killed()),
        "A leader dies between two states",
        "Attempts are written txid:attempt@epoch. The leader is killed when counts holds 2:0@1 and",
        "totals does not. The next leader claims both states, and cuts and does txid 2 again.",
    )


def fence() -> str:
    """Return the picture of a leader that hangs, is deposed, and continues."""
    return _drawn(
        steps(deposed()),
        "A deposed leader writes too late",
        "The first leader hangs just before it writes, longer than its session lasts. Another one",
        "takes over and commits txid 2. Then the first continues. The ledger refuses its write.",
    )


def steps(history: History) -> list[Step]:
    """Read out of a history what happened to the txid, from its first emission to its end."""
    found = list(_steps(history))
    words = [step.words[0] for step in found]
    first = next(at for at, each in enumerate(words) if each.startswith("emits"))
    return found[first : words.index(END) + 1 if END in words else None]


def _steps(history: History) -> Iterator[Step]:
    writes = iter(history.writes)
    committing: dict[str, TransactionAttempt] = {}
    ledgers: dict[str, Ledger | None] = {}
    for at_s, who, what, detail in history.trace:
        kind = what.partition(" ")[0]
        if what in ("KILLED", "frozen", "woken"):
            yield _met(at_s, who, what)
            if what == "woken":
                yield _refused(at_s, who, committing[who], ledgers)
        elif kind == "emitted":
            yield from _emitted(at_s, who, what, history)
        elif isinstance(detail, CommitStarted):
            committing[who] = detail.attempt
        elif isinstance(detail, Leading | Standby | Started):
            yield from _leading(at_s, who, detail)
        elif isinstance(detail, FencedError) and what == "ended":
            yield Step(at_s, who, (END, "FencedError"), BROKEN, ends=True)
        elif kind in ("stored", "nodes"):
            write = next(writes)
            if isinstance(write, StoreWrite):
                ledgers[write.table] = write.after.ledger
                yield from _written(write)
            else:
                yield from _noted(write)


def _met(at_s: float, who: str, what: str) -> Step:
    words = {"KILLED": "is killed", "frozen": "hangs", "woken": "continues"}[what]
    return Step(at_s, who, (words,), BROKEN, ends=what != "woken")


def _refused(
    at_s: float, who: str, attempt: TransactionAttempt, ledgers: dict[str, Ledger | None]
) -> Step:
    """Return how the write fails that a process had begun, as its ledger decides now."""
    ((state, ledger),) = ledgers.items()
    assert ledger is not None
    try:
        standing(ledger, attempt)
    except FencedError:
        words = (f"refuses {attempt}", f"epoch {ledger.epoch} may write")
        return Step(at_s, state, words, BROKEN, source=who)
    raise AssertionError(f"{attempt} is let into {ledger}")


def _emitted(at_s: float, who: str, what: str, history: History) -> Iterator[Step]:
    for attempt, shares in history.emissions.items():
        if what == f"emitted {attempt}" and attempt.txid == TXID:
            words = " ".join(str(record[0]) for share in shares for record in share.records)
            yield Step(at_s, who, (f"emits {attempt}", words), PROCESSING)


def _leading(at_s: float, who: str, change: Leading | Standby | Started) -> Iterator[Step]:
    if isinstance(change, Started):
        yield Step(at_s, who, ("starts",))
    elif isinstance(change, Standby):
        yield Step(at_s, who, ("stands by", "until a session ends"))
    elif change.epoch > 1:
        assert change.adopted is None, "the states differ"
        yield Step(
            at_s, who, (f"leads in epoch {change.epoch}", f"does txid {change.current} again")
        )


def _written(write: StoreWrite) -> Iterator[Step]:
    before, after = write.before.ledger, write.after.ledger
    assert after is not None
    if before is None or after.txid > TXID:
        return
    if after.writer == before.writer:
        words = (f"claimed by epoch {after.epoch}", f"holds {after.writer}")
        yield Step(write.at_s, write.table, words, STORED, source=write.writer)
    elif after.txid == TXID:
        done = DOES[standing(before, after.writer)]
        told = tuple(each.format(attempt=after.writer, held=before.writer) for each in done)
        yield Step(write.at_s, write.table, told, COMMIT, source=write.writer)


def _noted(write: NodesWrite) -> Iterator[Step]:
    words = []
    if (epoch := epoch_of(TOPOLOGY, write.after)) != epoch_of(TOPOLOGY, write.before):
        words.append(f"epoch {epoch}: {write.writer}")
    if (current := current_of(TOPOLOGY, write.after)) != current_of(TOPOLOGY, write.before):
        words.append(f"current = {current}")
    attempts = stored_attempts(TOPOLOGY, write)
    words += [f"metadata of {each}" for each in sorted(attempts) if each.txid == TXID]
    if words and current <= TXID + 1 and not any(each.txid > TXID for each in attempts):
        yield Step(write.at_s, ZOOKEEPER, (words[0],), STORED, source=write.writer)


def _drawn(found: Sequence[Step], title: str, *words: str) -> str:
    names = [step.lane for step in found]
    processes = list(dict.fromkeys(name for name in names if "." in name))
    states = sorted(set(names) - {*processes, ZOOKEEPER})
    lanes = [*processes, ZOOKEEPER, *states]
    told = "; ".join(f"{step.source or step.lane}: {' '.join(step.words)}" for step in found)
    picture = Picture(title, f"{' '.join(words)} In order: {told}.")
    picture.text(24, 36, title, size=16, bold=True)
    for line, sentence in enumerate(words):
        picture.text(24, 57 + 17 * line, sentence, size=SMALL, opacity=0.8)
    for lane in lanes:
        kind = "leader " if lane in processes else "state " if lane in states else ""
        picture.text(_x(lane, lanes), TOP - 18, f"{kind}{lane}", anchor="middle", bold=True)
        for start, end in _alive(lane, found, always=lane not in processes):
            ends = [(_x(lane, lanes), _y(start)), (_x(lane, lanes), _y(end))]
            picture.line(ends, colour=GREY, opacity=0.45, width=2)
    origin = found[0].at_s
    for row, step in enumerate(found):
        _step(picture, row, step, lanes, origin)
    width = LEFT + LANE * len(lanes) + 12
    return picture.svg(width, _y(len(found)) + 8)


def _alive(lane: str, found: Sequence[Step], *, always: bool) -> Iterator[tuple[float, float]]:
    """Yield from which row to which a lane lives."""
    start = -0.2 if always else None
    for row, step in enumerate(found):
        if step.lane == lane and not step.ends and start is None:
            start = row + 0.4
        if step.lane == lane and step.ends and start is not None:
            yield start, row + 0.4
            start = None
    if start is not None:
        yield start, len(found)


def _step(picture: Picture, row: int, step: Step, lanes: list[str], origin: float) -> None:
    x, y = _x(step.lane, lanes), _y(row)
    middle = y + HEIGHT / 2
    picture.text(12, middle + 4, f"{step.at_s - origin:.3f} s", size=10.5, opacity=0.7)
    if step.source:
        start, end = _x(step.source, lanes), x - BOX / 2
        picture.line([(start, middle), (end, middle)], colour=step.colour, opacity=1, arrow=True)
    picture.card(x - BOX / 2, y, BOX, HEIGHT)
    picture.box(x - BOX / 2, y, BOX, HEIGHT, colour=step.colour, fill=0.13)
    assert all(width_of(each, SMALL) < BOX for each in step.words), step.words
    base = middle + 4 - 7.5 * (len(step.words) - 1)
    for line, words in enumerate(step.words):
        bold = line == 0 and len(step.words) > 1
        picture.text(x, base + 15 * line, words, size=SMALL, anchor="middle", bold=bold)


def _x(lane: str, lanes: list[str]) -> float:
    return LEFT + LANE * (lanes.index(lane) + 0.5)


def _y(row: float) -> float:
    return TOP + STEP * row
