"""Inbox: what one (level, slot) was sent, checked against the stamps before anything is done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from txtopo.errors import RunLostError
from txtopo.stages.envelopes import ENVELOPE, EVERY_TASK, Envelope, open_envelope
from txtopo.stages.outbox import Site
from txtopo.stages.program import Chain, PlannedComponent, PlannedEdge
from txtopo.stages.run import Run
from txtopo.stages.stamps import Maker, Stamp, one_run_each

NOWHERE = -1
Level = tuple[Chain, int]
"""A level of a chain."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """Consecutive tuples from one sending task to one receiving task."""

    edge: PlannedEdge
    sender: int
    batch: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Records:
    """Envelopes and stamps, told apart."""

    envelopes: list[Envelope]
    stamps: list[Stamp]

    @classmethod
    def read(cls, records: Iterable[bytes]) -> Records:
        """Read the headers of records, in any order."""
        read = cls([], [])
        for record in records:
            if record[0] == ENVELOPE:
                read.envelopes.append(open_envelope(record))
            else:
                read.stamps.append(Stamp.open(record))
        return read

    def makers(self) -> set[Maker]:
        """Return everyone who made one of them."""
        return {stamp.maker for stamp in self.stamps} | {each.maker for each in self.envelopes}

    def check(self, run: Run, above: Level, slots: int, sender: Callable[[Envelope], int]) -> None:
        """Check that these are all records of a run and nothing else, each once.

        Args:
            run: The run.
            above: The level that sent them.
            slots: How many slots sent a stamp.
            sender: Slot that an envelope came from; ``NOWHERE`` if it cannot belong here.

        Raises:
            RecomputedError: A task was run twice.
            RunLostError: A record was lost or doubled, or is of another run.
        """
        one_run_each(self.makers())
        promised = {stamp.maker.slot: stamp.promised for stamp in self.stamps}
        if len(self.stamps) != slots or len(promised) != slots:
            found = sorted(stamp.maker.slot for stamp in self.stamps)
            raise _lost(f"stamps of slots {found}", f"one of each slot from 0 to {slots - 1}")
        identities = {each.identity for each in self.envelopes}
        foreign = [str(each) for each in identities - {attempt.order for attempt in run.attempts}]
        tag = run.tag_of(above[0])
        foreign += {stamp.run for stamp in self.stamps if stamp.run != tag}
        foreign += {str(each) for each in {stamp.maker[:2] for stamp in self.stamps} - {above}}
        if foreign:
            raise _lost(
                f"records of {', '.join(sorted(foreign))}", f"records of run {tag}, {above}"
            )
        if len({(each.maker, each.number) for each in self.envelopes}) != len(self.envelopes):
            raise _lost("an envelope twice", "each once")
        arrived = Counter(sender(each) for each in self.envelopes)
        strays = arrived.keys() - promised.keys()
        if strays:
            raise _lost(f"envelopes that no slot of the level before sent: {arrived}", "none")
        for slot, count in promised.items():
            if arrived[slot] != count:
                raise _lost(f"{arrived[slot]} envelopes of slot {slot}", f"the {count} it sent")


def _lost(got: str, expected: str) -> RunLostError:
    return RunLostError(
        f"what arrived is not what was sent; got {got}; expected {expected}; "
        "was an executor or a shuffle file lost?",
        counted=False,
    )


class Inbox:
    """The checked envelopes of one site, by attempt and edge."""

    def __init__(self, site: Site, records: Records) -> None:
        self._site = site
        self._by_edge: dict[tuple[int, int], list[Envelope]] = {}
        self._passing: dict[int, list[Envelope]] = {}
        for envelope in records.envelopes:
            edge = site.program.edges[envelope.edge]
            if edge.chain == site.chain and edge.level == site.level:
                self._by_edge.setdefault((envelope.txid, envelope.edge), []).append(envelope)
            else:
                self._passing.setdefault(envelope.txid, []).append(envelope)

    def passing(self, txid: int) -> list[Envelope]:
        """Return the envelopes for later levels, and forget them."""
        return self._passing.pop(txid, [])

    def arrivals(self, txid: int, component: PlannedComponent) -> dict[int, list[Arrival]]:
        """Return what each task of a component gets, in canonical order, and forget it.

        The order of the tuples of a task is by sending component, stream and sending task, then
        as they were emitted: it does not depend on slots, chunks or the order of arrival.
        """
        arrivals: dict[int, list[Arrival]] = {t: [] for t in self._site.tasks(component.tasks)}
        for index in component.inputs:
            edge = self._site.program.edges[index]
            envelopes = self._by_edge.pop((txid, index), [])
            envelopes.sort(key=lambda each: (each.maker.slot, each.number))
            found = [piece for each in envelopes for piece in _cut(edge, each, list(arrivals))]
            # Stable, and a sending task lives in one slot: its tuples stay as they were emitted.
            found.sort(key=lambda piece: piece[1].sender)
            for task, arrival in found:
                arrivals[task].append(arrival)
        return arrivals


def _cut(edge: PlannedEdge, envelope: Envelope, tasks: list[int]) -> Iterator[tuple[int, Arrival]]:
    batch, start = envelope.batch(edge.schema), 0
    for segment in envelope.segments:
        arrival = Arrival(edge, segment.sender, batch.slice(start, segment.tuples))
        for task in tasks if segment.receiver == EVERY_TASK else (segment.receiver,):
            yield task, arrival
        start += segment.tuples


def level_above(site: Site) -> Level:
    """Return the level that sends to a site; what the commit phase begins with is the cut."""
    if site.level or site.chain == "processing":
        return site.chain, site.level - 1
    return "processing", len(site.program.levels_of("processing")) - 1


def sender_at(site: Site) -> Callable[[Envelope], int]:
    """Return the rule which slot of the level before an envelope came from.

    Envelopes stay in the slot that made them until they are sent to the slot of their receiver.
    Those of the cut have got there before the commit phase begins, and stay there.
    """

    def sender(envelope: Envelope) -> int:
        arrived = envelope.maker.chain != site.chain and site.level > 0
        return site.slot if arrived else envelope.maker.slot

    return sender
