"""Versions: the rows of a state before and after each write, and what an undo leaves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.faults.pictures.drawing import COMMIT, GREY, SMALL, STORED, Picture
from tests.faults.pictures.recorded import killed
from txtopo.state.backend import Key
from txtopo.state.ledger import Standing, standing
from txtopo.state.values import Row
from txtopo.testing.simulation.history import History, StoreWrite

STATE, TXID = "counts", 2
LEFT, TOP, WIDTH, GAP, LINE = 24.0, 100.0, 158.0, 20.0, 21.0
COLUMNS = (("key", 14.0, "start"), ("now", 72.0, "end"), ("before", 114.0, "end"))
TAG = 144.0


@dataclass(frozen=True, slots=True)
class Version:
    """The rows of a state at one instant.

    Attributes:
        title: How it came about.
        ledger: What its ledger says, or that a store transaction is under way.
        rows: The rows by key.
        stored: Whether a reader may see it.
    """

    title: str
    ledger: str
    rows: Mapping[Key, Row]
    stored: bool = True


def undo_before_redo() -> str:
    """Return the picture of a state that takes a txid twice, the second time with another batch."""
    history = killed()
    found = list(versions(history))
    words = " ".join(
        f"{attempt} has {', '.join(str(record[0]) for each in shares for record in each.records)}."
        for attempt, shares in history.emissions.items()
        if attempt.txid <= TXID
    )
    sentences = (
        f"Rows of an opaque state that counts words. {words}",
        "Each row keeps its value before the txid that wrote it, so that txid can be taken back.",
    )
    told = "; ".join(f"{each.title}: {_told(each)}" for each in found)
    picture = Picture("Undo before redo", f"{' '.join(sentences)} {told}.")
    picture.text(24, 36, "Undo before redo", size=16, bold=True)
    for line, sentence in enumerate(sentences):
        picture.text(24, 57 + 17 * line, sentence, size=SMALL, opacity=0.8)
    height = 86 + LINE * max(len(each.rows) for each in found)
    for at, version in enumerate(found):
        _drawn(picture, at, version, height)
    width = LEFT * 2 + WIDTH * len(found) + GAP * (len(found) - 1)
    foot = "Dashed: inside the store transaction that redoes the txid. No reader sees it."
    picture.text(24, TOP + height + 26, foot, size=SMALL, opacity=0.8)
    return picture.svg(width, TOP + height + 44)


def versions(history: History) -> Iterator[Version]:
    """Yield the versions of the state up to the txid, and what an undo leaves in between."""
    for write in history.writes:
        if not isinstance(write, StoreWrite) or write.table != STATE:
            continue
        before, after = write.before.ledger, write.after.ledger
        if before is None or after is None or before.writer == after.writer or after.txid > TXID:
            continue
        if standing(before, after.writer) is Standing.REDO:
            undone = {key: row.undone(TXID) for key, row in write.before.rows.items()}
            left = {key: row for key, row in undone.items() if row is not None}
            yield Version(f"undo of {before.writer}", "in the transaction", left, stored=False)
        yield Version(f"after {after.writer}", f"ledger: {after.writer}", write.after.rows)


def _told(version: Version) -> str:
    return ", ".join(f"{key[0]} {row.current[0]}" for key, row in sorted(version.rows.items()))


def _drawn(picture: Picture, at: int, version: Version, height: float) -> None:
    x, y = LEFT + (WIDTH + GAP) * at, TOP
    colour = STORED if version.stored else COMMIT
    if at:
        middle = y + height / 2
        picture.line([(x - GAP + 1, middle), (x - 1, middle)], arrow=True)
    picture.box(x, y, WIDTH, height, colour=colour, fill=0.08, dashed=not version.stored)
    picture.text(x + 14, y + 24, version.title, bold=True)
    picture.text(x + 14, y + 42, version.ledger, size=SMALL, opacity=0.8)
    head = y + 66
    for name, column, anchor in (*COLUMNS, ("txid", TAG, "end")):
        picture.text(x + column, head, name, size=10.5, anchor=anchor, opacity=0.7)
    picture.line([(x + 12, head + 6), (x + WIDTH - 12, head + 6)], colour=GREY, opacity=0.6)
    for line, (key, row) in enumerate(sorted(version.rows.items()), 1):
        before = "–" if row.previous_txid is None or row.previous is None else row.previous[0]
        cells = (key[0], row.current[0], before)
        for (_, column, anchor), cell in zip(COLUMNS, cells, strict=True):
            bold = column == COLUMNS[1][1]
            base = head + LINE * line
            picture.text(x + column, base, str(cell), anchor=anchor, bold=bold)
        picture.text(x + TAG, head + LINE * line, str(row.txid), anchor="end", opacity=0.8)
