"""Inbox and Outbox: the envelopes that a stage receives, checked, and those that it sends.

The outbox sends envelopes, and a manifest to every address. An envelope goes to the slot of its
receiving task if that task works on the next level. Otherwise it stays in its own slot, and the
levels in between pass it on. Partial aggregates go to the driver. So does the handover, if the
commit phase runs in the driver.

The inbox compares the envelopes with the manifests before any bolt runs.
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
from txtopo.stages.columns import check_size, nbytes_of
from txtopo.stages.compiled_topology import PlannedComponent, PlannedEdge, Run
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
from txtopo.stages.routing import EveryTask, OneTask, Route
from txtopo.stages.stage_context import DRIVER, ChainLevel, Record, StageContext


@dataclass(slots=True)
class _Parcel:
    """Tuples that wait to be sealed into one envelope; *attempt* is that of the first of them."""

    attempt: TransactionAttempt
    segments: list[Segment] = field(default_factory=list)
    batches: list[pa.RecordBatch] = field(default_factory=list)
    nbytes: int = 0


class Outbox:
    """Makes the envelopes and manifests that a stage sends, one attempt after the other.

    Envelopes become ready when they are large enough and when their attempt ends; those with
    partial aggregates, when the run ends. The stage function takes them with :meth:`ready`.
    """

    def __init__(self, stage: StageContext) -> None:
        self._stage = stage
        self._ready: list[Record] = []
        self._promised: dict[int, int] = {}
        self._kept: dict[tuple[int, int], int] = {}
        self._parcels: dict[tuple[int, int], _Parcel] = {}
        self._number = 0
        self._attempt = stage.run.attempts[0]

    def begin(self, attempt: TransactionAttempt) -> None:
        """Begin an attempt. The attempt before it must have ended."""
        assert not self._of_attempt()
        self._attempt = attempt

    def end(self) -> None:
        """End the attempt: seal all tuples that still wait, except partial aggregates."""
        for key in self._of_attempt():
            self._seal(key)

    def end_run(self) -> None:
        """Drop the tuples of an attempt that failed, and seal all partial aggregates."""
        for key in self._of_attempt():
            del self._parcels[key]
        for key in list(self._parcels):
            self._seal(key)

    def _of_attempt(self) -> list[tuple[int, int]]:
        edges = self._stage.compiled.edges
        return [key for key in self._parcels if edges[key[0]].chain is not None]

    @property
    def has_ready(self) -> bool:
        """Whether there are envelopes to take."""
        return bool(self._ready)

    def ready(self) -> Iterator[Record]:
        """Yield the envelopes that are ready, and count them as sent."""
        ready, self._ready = self._ready, []
        promised = self._promised
        for address, record in ready:
            promised[address] = promised.get(address, 0) + 1
            yield address, record

    def relay(self, envelope: Envelope) -> Record:
        """Return an envelope for a later level with its next address, and count it as sent."""
        edge = self._stage.compiled.edges[envelope.edge]
        address = self._stage.address_of(edge, envelope.to_slot, envelope.txid)
        self._promised[address] = self._promised.get(address, 0) + 1
        self._weigh(edge, address, envelope.txid, envelope.record)
        return address, envelope.record

    def send(self, edge: PlannedEdge, sender: int, batch: pa.RecordBatch, route: Route) -> None:
        """Send the tuples of a batch to the tasks that the router chose."""
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
        """Add tuples for one slot.

        Raises:
            EmitError: A tuple is too large to be moved.
        """
        for piece in pieces(batch, segments):
            check_size(edge.source, edge.stream, piece.batch)
            key, nbytes = (edge.index, to_slot), nbytes_of(piece.batch)
            parcel = self._parcels.setdefault(key, _Parcel(self._attempt))
            if parcel.batches and parcel.nbytes + nbytes > CHUNK_BYTES_MAX:
                self._seal(key)
                parcel = self._parcels.setdefault(key, _Parcel(self._attempt))
            parcel.segments += piece.segments
            parcel.batches.append(piece.batch)
            parcel.nbytes += nbytes

    def put_partials(self, edge: PlannedEdge, sender: int, batch: pa.RecordBatch) -> None:
        """Add partial aggregates of the attempt.

        Raises:
            EmitError: A row is too large to be moved.
        """
        self.put(
            edge,
            self._stage.slot,
            [Segment(sender, self._attempt.txid, batch.num_rows)],
            batch,
        )

    def manifests(
        self, control: Control, *, failed_txid: int | None, fault: tuple[bool, str] | None
    ) -> Iterator[Record]:
        """Yield a manifest for every address that this stage sends to.

        Args:
            control: What is known of the whole run. Only the first manifest carries it, to slot 0
                or the only slot that gets one, and from the last level to the driver.
            failed_txid: Lowest txid that is known to have failed.
            fault: Why the whole run is lost, if it is.
        """
        stage = self._stage
        control.keep(self._kept)
        tag, producer, addresses = stage.tag, stage.producer, stage.addresses
        for address in addresses:
            yield (
                address,
                StageManifest(
                    run=tag,
                    producer=producer,
                    promised=self._promised.get(address, 0),
                    failed_txid=failed_txid,
                    fault=fault,
                    control=control if address == addresses[0] else None,
                ).seal(),
            )

    def _slots(self, edge: PlannedEdge) -> int:
        return self._stage.compiled.slots_of(edge.chain or self._stage.chain)

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
            # The grouping chose many tasks for each tuple, and the copies exceed a column.
            assert rows is not None
            half = len(tasks) // 2
            self._spread(edge, sender, batch, tasks[:half], rows[:half])
            self._spread(edge, sender, batch, tasks[half:], rows[half:])
            return
        for share in shares:
            self.put(edge, share.slot, share.segments, ordered.slice(share.start, share.tuples))

    def _seal(self, key: tuple[int, int]) -> None:
        parcel, (edge_index, to_slot) = self._parcels.pop(key), key
        batches, attempt = parcel.batches, parcel.attempt
        record = seal(
            self._stage.producer,
            self._number,
            to_slot=to_slot,
            edge=edge_index,
            identity=attempt.order,
            segments=parcel.segments,
            batch=batches[0] if len(batches) == 1 else pa.concat_batches(batches),
        )
        self._number += 1
        edge = self._stage.compiled.edges[edge_index]
        address = self._stage.address_of(edge, to_slot, attempt.txid)
        self._weigh(edge, address, attempt.txid, record)
        self._ready.append((address, record))

    def _weigh(self, edge: PlannedEdge, address: int, txid: int, record: bytes) -> None:
        """Count the bytes that the carrier keeps for the commit phase; the driver sees the rest."""
        if self._stage.sends_handover and address != DRIVER:
            key = (txid, edge.index)
            self._kept[key] = self._kept.get(key, 0) + len(record)


NOWHERE = -1
"""The sender of an envelope that cannot belong to a stage."""

SenderOf = Callable[[Envelope], int]
"""Returns the slot that sent an envelope."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """Consecutive tuples from one sending task to one receiving task."""

    edge: PlannedEdge
    sender: int
    batch: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Records:
    """The envelopes and manifests among the records that a stage or the driver received."""

    envelopes: list[Envelope]
    manifests: list[StageManifest]

    @classmethod
    def read(cls, records: Iterable[bytes]) -> Records:
        """Read the headers of records. Their order does not matter."""
        read = cls([], [])
        for record in records:
            if record[0] == ENVELOPE:
                read.envelopes.append(open_envelope(record))
            else:
                read.manifests.append(StageManifest.open(record))
        return read

    def producers(self) -> set[Producer]:
        """Return the producers of all envelopes and manifests."""
        producers = {manifest.producer for manifest in self.manifests}
        return producers | {envelope.producer for envelope in self.envelopes}

    def check(
        self, run: Run, above: ChainLevel, slots: range, sender: Callable[[Envelope], int]
    ) -> None:
        """Check that these are all records that a level sent, each of them once, and no others.

        Args:
            run: The run.
            above: The level that sent them.
            slots: Slots of that level; each sends one manifest.
            sender: Returns the slot that an envelope came from, or ``NOWHERE`` if the envelope
                cannot belong here.

        Raises:
            RecomputedError: A task was computed twice; throw the run away.
            RunLostError: A record is missing, doubled or from another run; throw the run away.
        """
        one_run_each(self.producers())
        promised = {manifest.producer.slot: manifest.promised for manifest in self.manifests}
        found = sorted(manifest.producer.slot for manifest in self.manifests)
        if found != list(slots):
            raise _lost(f"manifests of slots {found}", f"one of each slot of {list(slots)}")
        identities = {each.identity for each in self.envelopes}
        foreign = [str(each) for each in identities - {attempt.order for attempt in run.attempts}]
        tag = run.tag_of(above[0])
        foreign += {manifest.run for manifest in self.manifests if manifest.run != tag}
        levels = {manifest.producer[:2] for manifest in self.manifests}
        foreign += {str(each) for each in levels - {above}}
        if foreign:
            raise _lost(
                f"records of {', '.join(sorted(foreign))}", f"records of run {tag}, {above}"
            )
        if len({(each.producer, each.number) for each in self.envelopes}) != len(self.envelopes):
            raise _lost("an envelope twice", "each once")
        arrived = Counter(sender(each) for each in self.envelopes)
        strays = arrived.keys() - promised.keys()
        if strays:
            raise _lost(f"envelopes that no slot of the previous level sent: {arrived}", "none")
        for slot, count in promised.items():
            if arrived[slot] != count:
                raise _lost(f"{arrived[slot]} envelopes of slot {slot}", f"the {count} it sent")


def _lost(got: str, expected: str) -> RunLostError:
    return RunLostError(
        f"the records that arrived are not those that were sent; got {got}; expected {expected}; "
        "was an executor or a shuffle file lost?",
        counted=False,
    )


class Inbox:
    """The checked envelopes that one stage received, by attempt and edge."""

    def __init__(self, stage: StageContext, records: Records) -> None:
        self._stage = stage
        self._by_edge: dict[tuple[int, int], list[Envelope]] = {}
        self._passing: dict[int, list[Envelope]] = {}
        for envelope in records.envelopes:
            edge = stage.compiled.edges[envelope.edge]
            if edge.chain == stage.chain and edge.level == stage.level:
                self._by_edge.setdefault((envelope.txid, envelope.edge), []).append(envelope)
            else:
                self._passing.setdefault(envelope.txid, []).append(envelope)

    def passing(self, txid: int) -> list[Envelope]:
        """Return the envelopes for later levels, and remove them."""
        return self._passing.pop(txid, [])

    def arrivals(self, txid: int, component: PlannedComponent) -> dict[int, list[Arrival]]:
        """Return the tuples for each task of a component, in canonical order, and remove them.

        The tuples of a task are sorted by sending component, stream and sending task, and then in
        the order in which they were emitted. The number of slots, the size of envelopes and the
        order of arrival do not matter.
        """
        arrivals: dict[int, list[Arrival]] = {t: [] for t in self._stage.tasks(component.tasks)}
        for index in component.inputs:
            edge = self._stage.compiled.edges[index]
            envelopes = self._by_edge.pop((txid, index), [])
            envelopes.sort(key=lambda each: (each.producer.slot, each.number))
            found = [piece for each in envelopes for piece in _cut(edge, each, list(arrivals))]
            # The sort is stable and a sending task lives in one slot, so the tuples of a sender
            # stay in the order in which they were emitted.
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


def sender_at(stage: StageContext) -> SenderOf:
    """Return a function that says which slot sent an envelope to *stage*.

    An envelope stays in the slot that made it until it is sent to the slot of its receiver. An
    envelope of the handover is in the slot of its receiver before the commit phase begins.
    """

    def sender(envelope: Envelope) -> int:
        arrived = envelope.producer.chain != stage.chain and stage.level > 0
        return stage.slot if arrived else envelope.producer.slot

    return sender


@dataclass(frozen=True, slots=True)
class Share:
    """The tuples for one slot: consecutive tuples of a batch that was sorted by slot."""

    slot: int
    start: int
    tuples: int
    segments: list[Segment]


def spread(
    tasks: npt.NDArray[np.int64], count: int, slots: int, sender: int
) -> tuple[npt.NDArray[np.int64], list[Share]]:
    """Sort tuples by slot and task, and divide them among the slots. The sort is stable.

    Args:
        tasks: Receiving task of each tuple.
        count: Number of tasks of the bolt; task i is in slot ``i mod slots``.
        slots: Number of slots.
        sender: Sending task.

    Returns:
        The order of the tuples, and a share for each slot that gets any.
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
