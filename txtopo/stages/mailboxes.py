"""Outbox: what one (level, slot) of one job sends: envelopes, and a stamp to every address.

Where an envelope goes: to the slot of its receiving task if that works on the next level; else it
stays in its own slot and is passed on, until the level before its target. Partial results end in
the driver, and so does the cut when the commit phase runs there.

Inbox: what one (level, slot) was sent, checked against the stamps before anything is done.

Spreading: the tuples of a batch in the order of their slots and tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txtopo.attempt import TransactionAttempt
from txtopo.errors import RunLostError
from txtopo.stages.columns import check_size
from txtopo.stages.envelopes import (
    CHUNK_BYTES_MAX,
    ENVELOPE,
    EVERY_TASK,
    Control,
    Envelope,
    Producer,
    Segment,
    StageManifest,
    one_run_each,
    open_envelope,
    pieces,
    seal,
)
from txtopo.stages.program import Chain, PlannedComponent, PlannedEdge, Program, Run
from txtopo.stages.routing import EveryTask, OneTask, Route

DRIVER = 0


@dataclass(frozen=True, slots=True)
class StageContext:
    """Where a stage function works.

    Attributes:
        program: The topology.
        chain: The chain.
        run: The run; in the commit chain of one attempt.
        level: The level.
        slot: The slot.
        task_id: Id of the Spark task attempt.
    """

    program: Program
    chain: Chain
    run: Run
    level: int
    slot: int
    task_id: int

    @property
    def maker(self) -> Producer:
        """How this site signs what it makes."""
        return Producer(self.chain, self.level, self.slot, self.task_id)

    @property
    def last(self) -> bool:
        """Whether this is the last level of its chain."""
        return self.level == len(self.program.levels_of(self.chain)) - 1

    @property
    def leaves_cut(self) -> bool:
        """Whether the cut leaves from here for a commit phase in tasks."""
        return self.last and self.chain == "processing" and not self.program.commit_in_driver

    def tasks(self, tasks: int) -> range:
        """Return the tasks that live in this slot, of a component with so many."""
        return range(self.slot, tasks, self.program.slots_of(self.chain))


@dataclass(slots=True)
class _Parcel:
    """What will be an envelope."""

    segments: list[Segment] = field(default_factory=list)
    batches: list[pa.RecordBatch] = field(default_factory=list)
    nbytes: int = 0


class Outbox:
    """Collects what is sent, one attempt after the other.

    Envelopes become ready when they are large enough, and at the end of their attempt; the stage
    function takes them with :meth:`ready`.
    """

    def __init__(self, site: StageContext) -> None:
        self._site = site
        self._ready: list[tuple[int, bytes]] = []
        self._promised: Counter[int] = Counter()
        self._kept: Counter[tuple[int, int]] = Counter()
        self._parcels: dict[tuple[int, int], _Parcel] = {}
        self._number = 0
        self._attempt = site.run.attempts[0]

    def begin(self, attempt: TransactionAttempt) -> None:
        """Go on to an attempt; the one before has ended."""
        assert not self._parcels
        self._attempt = attempt

    def end(self) -> None:
        """Seal what is left of the attempt."""
        for key in list(self._parcels):
            self._seal(key)

    def ready(self) -> Iterator[tuple[int, bytes]]:
        """Yield (address, envelope) of what is ready, and count it as sent."""
        ready, self._ready = self._ready, []
        for address, record in ready:
            self._promised[address] += 1
            yield address, record

    def relay(self, envelope: Envelope) -> tuple[int, bytes]:
        """Return (address, envelope) of one that is only passing, and count it as sent."""
        edge = self._site.program.edges[envelope.edge]
        address = self._address(edge, envelope.to_slot, envelope.txid)
        self._promised[address] += 1
        self._weigh(edge, address, envelope.txid, envelope.record)
        return address, envelope.record

    def send(self, edge: PlannedEdge, sender: int, batch: pa.RecordBatch, route: Route) -> None:
        """Send the tuples of a batch to the tasks that were chosen for them."""
        if isinstance(route, OneTask):
            slot = route.task % self._slots(edge)
            self.put(edge, slot, [Segment(sender, route.task, batch.num_rows)], batch)
        elif isinstance(route, EveryTask):
            for slot in range(min(self._slots(edge), edge.tasks)):
                self.put(edge, slot, [Segment(sender, EVERY_TASK, batch.num_rows)], batch)
        elif len(route.tasks):
            self._spread(edge, sender, batch, route.tasks, route.rows)

    def put(
        self, edge: PlannedEdge, to_slot: int, segments: list[Segment], batch: pa.RecordBatch
    ) -> None:
        """Add tuples that go to one slot.

        Raises:
            EmitError: One of them is too large to be moved.
        """
        for piece in pieces(batch, segments):
            check_size(edge.source, edge.stream, piece.batch)
            parcel = self._parcels.setdefault((edge.index, to_slot), _Parcel())
            nbytes = piece.batch.nbytes
            if parcel.batches and parcel.nbytes + nbytes > CHUNK_BYTES_MAX:
                self._seal((edge.index, to_slot))
                parcel = self._parcels.setdefault((edge.index, to_slot), _Parcel())
            parcel.segments += piece.segments
            parcel.batches.append(piece.batch)
            parcel.nbytes += nbytes

    def stamps(
        self, control: Control, *, failed_txid: int | None, fault: tuple[bool, str] | None
    ) -> Iterator[tuple[int, bytes]]:
        """Yield (address, stamp) for every address that this site sends to."""
        site = self._site
        control.kept.update(self._kept)
        for address in self._addresses():
            carries = address == (DRIVER if site.last else 0)
            yield (
                address,
                StageManifest(
                    run=site.run.tag_of(site.chain),
                    maker=site.maker,
                    promised=self._promised[address],
                    failed_txid=failed_txid,
                    fault=fault,
                    control=control if carries else None,
                ).seal(),
            )

    def _addresses(self) -> range:
        site = self._site
        if not site.last:
            return range(site.program.slots_of(site.chain))
        if site.leaves_cut:
            return range(1 + len(site.run.attempts) * site.program.slots)
        return range(DRIVER, DRIVER + 1)

    def _slots(self, edge: PlannedEdge) -> int:
        return self._site.program.slots_of(edge.chain or self._site.chain)

    def _spread(
        self,
        edge: PlannedEdge,
        sender: int,
        batch: pa.RecordBatch,
        tasks: np.ndarray,
        rows: np.ndarray | None,
    ) -> None:
        order, shares = spread(tasks, edge.tasks, self._slots(edge), sender)
        try:
            ordered = batch.take(pa.array(order if rows is None else rows[order]))
        except pa.ArrowInvalid:
            # A grouping that picks many tasks for each tuple: the copies outgrow a column.
            assert rows is not None
            half = len(tasks) // 2
            self._spread(edge, sender, batch, tasks[:half], rows[:half])
            self._spread(edge, sender, batch, tasks[half:], rows[half:])
            return
        for share in shares:
            self.put(edge, share.slot, share.segments, ordered.slice(share.start, share.tuples))

    def _seal(self, key: tuple[int, int]) -> None:
        parcel, (edge_index, to_slot) = self._parcels.pop(key), key
        batches, attempt = parcel.batches, self._attempt
        record = seal(
            self._site.maker,
            self._number,
            to_slot=to_slot,
            edge=edge_index,
            identity=attempt.order,
            segments=parcel.segments,
            batch=batches[0] if len(batches) == 1 else pa.concat_batches(batches),
        )
        self._number += 1
        edge = self._site.program.edges[edge_index]
        address = self._address(edge, to_slot, attempt.txid)
        self._weigh(edge, address, attempt.txid, record)
        self._ready.append((address, record))

    def _weigh(self, edge: PlannedEdge, address: int, txid: int, record: bytes) -> None:
        """Count what waits with the carrier for the commit phase; the driver sees the rest."""
        if self._site.leaves_cut and address != DRIVER:
            self._kept[txid, edge.index] += len(record)

    def _address(self, edge: PlannedEdge, to_slot: int, txid: int) -> int:
        site = self._site
        if not site.last:
            next_level = edge.chain == site.chain and edge.level == site.level + 1
            return to_slot if next_level else site.slot
        if edge.chain is None or not site.leaves_cut:
            return DRIVER
        run_index = txid - site.run.attempts[0].txid
        return 1 + run_index * site.program.slots + to_slot


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
    stamps: list[StageManifest]

    @classmethod
    def read(cls, records: Iterable[bytes]) -> Records:
        """Read the headers of records, in any order."""
        read = cls([], [])
        for record in records:
            if record[0] == ENVELOPE:
                read.envelopes.append(open_envelope(record))
            else:
                read.stamps.append(StageManifest.open(record))
        return read

    def makers(self) -> set[Producer]:
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

    def __init__(self, site: StageContext, records: Records) -> None:
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


def level_above(site: StageContext) -> Level:
    """Return the level that sends to a site; what the commit phase begins with is the cut."""
    if site.level or site.chain == "processing":
        return site.chain, site.level - 1
    return "processing", len(site.program.levels_of("processing")) - 1


def sender_at(site: StageContext) -> Callable[[Envelope], int]:
    """Return the rule which slot of the level before an envelope came from.

    Envelopes stay in the slot that made them until they are sent to the slot of their receiver.
    Those of the cut have got there before the commit phase begins, and stay there.
    """

    def sender(envelope: Envelope) -> int:
        arrived = envelope.maker.chain != site.chain and site.level > 0
        return site.slot if arrived else envelope.maker.slot

    return sender


@dataclass(frozen=True, slots=True)
class Share:
    """What goes to one slot: consecutive tuples of the ordered batch."""

    slot: int
    start: int
    tuples: int
    segments: list[Segment]


def spread(
    tasks: npt.NDArray[np.int64], count: int, slots: int, sender: int
) -> tuple[npt.NDArray[np.int64], list[Share]]:
    """Sort tuples by slot and task, in their order within a task, and cut at the slots.

    Args:
        tasks: Receiving task of each tuple.
        count: How many tasks the bolt has; task i is in slot ``i mod slots``.
        slots: How many slots there are.
        sender: Sending task.

    Returns:
        The order, and what goes to each slot that gets something.
    """
    ranked = sorted(range(count), key=lambda task: (task % slots, task))
    rank = np.empty(count, dtype=np.int32)
    rank[ranked] = np.arange(count, dtype=np.int32)
    # Sorting small numbers is a radix sort: 0.4 ms for 100,000.
    ranks = rank[tasks].astype(np.int16 if count < 2**15 else np.int32)
    counts = np.bincount(ranks, minlength=count).tolist()
    shares = []
    start = at = 0
    for slot in range(min(slots, count)):
        segments = []
        while at < count and ranked[at] % slots == slot:
            if counts[at]:
                segments.append(Segment(sender, ranked[at], counts[at]))
            at += 1
        tuples = sum(segment.tuples for segment in segments)
        if tuples:
            shares.append(Share(slot, start, tuples, segments))
        start += tuples
    return np.argsort(ranks, kind="stable"), shares
