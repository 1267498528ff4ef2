"""Outbox: what one (level, slot) of one job sends: envelopes, and a stamp to every address.

Where an envelope goes: to the slot of its receiving task if that works on the next level; else it
stays in its own slot and is passed on, until the level before its target. Partial results end in
the driver, and so does the cut when the commit phase runs there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from txtopo.attempt import TransactionAttempt
from txtopo.stages.columns import check_size
from txtopo.stages.envelopes import (
    CHUNK_BYTES_MAX,
    EVERY_TASK,
    Envelope,
    Segment,
    pieces,
    seal,
)
from txtopo.stages.program import Chain, PlannedEdge, Program
from txtopo.stages.routing import EveryTask, OneTask, Route
from txtopo.stages.run import Run
from txtopo.stages.spreading import spread
from txtopo.stages.stamps import Control, Maker, Stamp

DRIVER = 0


@dataclass(frozen=True, slots=True)
class Site:
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
    def maker(self) -> Maker:
        """How this site signs what it makes."""
        return Maker(self.chain, self.level, self.slot, self.task_id)

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

    def __init__(self, site: Site) -> None:
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
                Stamp(
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
