"""Envelopes and manifests: the records that stages send to each other.

An *envelope* has a small header and an Arrow record batch. It holds tuples of one attempt and one
edge, from one slot to another. The tuples are in *segments*: consecutive tuples from one sending
task to one receiving task. So the receiver takes a slice for each segment, instead of sorting.

An envelope with *partial aggregates* goes to the driver, and holds those of all attempts of a run.
Its segments name the txid instead of the receiving task, and its header the first attempt. The
driver opens one envelope of each slot for a group of txids, and not one for each of them: that was
the larger part of what a slot cost it.

The record batch is an IPC message without its schema, because both sides know the schema from the
compiled. Without it, reading 100,000 words takes 3 µs instead of 9, and writing them takes 65 µs
instead of 106.

A *manifest* says what a stage sent to one address. Each stage sends exactly one to each slot of the
next level, or at the end to the driver, even if it sends no envelopes there. It is needed because
Spark runs a lost task again. An opaque emitter, or a bolt that is not deterministic, then emits
other tuples, and in a job that succeeds some slots may have read the first outcome and some the
second. A manifest names the Spark task attempt that made it and the number of envelopes that were
sent. So a task that was run again is noticed even if it sent nothing, and so is every envelope that
was lost or doubled.

What is known of the whole run (:class:`Control`) travels in the manifests to slot 0, and from the
last level to the driver.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast

import pyarrow as pa

from txtopo.collector import SeenFields
from txtopo.errors import InfrastructureError, RecomputedError, RunLostError
from txtopo.metadata import Json
from txtopo.stages.columns import nbytes_of
from txtopo.stages.compiled_topology import Chain
from txtopo.stages.pickling import loads, pack
from txtopo.state.backend import Puts

ENVELOPE = 0x45

# partitionBy pickles 21 values together, and envelopes of 60 MB killed a driver of 1 GB.
CHUNK_BYTES_MAX = 4 << 20

EVERY_TASK = -1
"""The receiving task of a segment that is for all tasks of the slot."""

_CHAINS: tuple[Chain, Chain] = ("processing", "commit")

# kind, chain, level, slot, to_slot, edge, segments, number, task_id, txid, attempt, epoch
_HEADER = struct.Struct("<BBHHHIIIqqqq")


class Segment(NamedTuple):
    """A number of consecutive tuples of an envelope, from one task to another.

    For partial aggregates, *receiver* is the txid.
    """

    sender: int
    receiver: int
    tuples: int


@dataclass(frozen=True, slots=True)
class Envelope:
    """An envelope whose header was read, but not its record batch.

    Attributes:
        producer: The producer of the envelope.
        number: Number of the envelope among all envelopes of its producer.
        to_slot: Slot of the receiving tasks.
        edge: Number of the edge.
        identity: (epoch, txid, attempt) of the attempt; of partial aggregates, of the first one.
        segments: The segments, in the order of the tuples.
        record: The whole envelope, as it travels.
        start: Position of the record batch in *record*.
    """

    producer: Producer
    number: int
    to_slot: int
    edge: int
    identity: tuple[int, int, int]
    segments: tuple[Segment, ...]
    record: bytes
    start: int

    @property
    def txid(self) -> int:
        """The txid of the envelope's batch; for partial aggregates of a group, the first txid."""
        return self.identity[1]

    @property
    def txids(self) -> set[int]:
        """The txids of an envelope with partial aggregates."""
        return {segment.receiver for segment in self.segments}

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        """Return the tuples, without copying them."""
        message = pa.py_buffer(self.record).slice(self.start)
        return pa.ipc.read_record_batch(message, schema)


def seal(
    producer: Producer,
    number: int,
    *,
    to_slot: int,
    edge: int,
    identity: tuple[int, int, int],
    segments: Sequence[Segment],
    batch: pa.RecordBatch,
) -> bytes:
    """Return an envelope as a record."""
    epoch, txid, attempt = identity
    header = _HEADER.pack(
        ENVELOPE,
        _CHAINS.index(producer.chain),
        producer.level,
        producer.slot,
        to_slot,
        edge,
        len(segments),
        number,
        producer.task_id,
        txid,
        attempt,
        epoch,
    )
    shares = array("q", [value for segment in segments for value in segment]).tobytes()
    # Arrow wants its buffers aligned to 8 bytes.
    padding = bytes(-len(header) % 8)
    return b"".join((header, padding, shares, memoryview(batch.serialize())))


def open_envelope(record: bytes) -> Envelope:
    """Read the header of an envelope: a record that starts with ``ENVELOPE``."""
    (
        _,
        chain,
        level,
        slot,
        to_slot,
        edge,
        count,
        number,
        task_id,
        txid,
        attempt,
        epoch,
    ) = _HEADER.unpack_from(record)
    start = _HEADER.size + -_HEADER.size % 8
    shares = array("q", record[start : start + 24 * count])
    values = iter(shares)
    return Envelope(
        producer=Producer(_CHAINS[chain], level, slot, task_id),
        number=number,
        to_slot=to_slot,
        edge=edge,
        identity=(epoch, txid, attempt),
        segments=tuple(map(Segment._make, zip(values, values, values, strict=True))),
        record=record,
        start=start + 24 * count,
    )


def pieces(batch: pa.RecordBatch, segments: Sequence[Segment]) -> list[Piece]:
    """Divide a batch into pieces of at most ``CHUNK_BYTES_MAX`` bytes, or of a single tuple."""
    if nbytes_of(batch) <= CHUNK_BYTES_MAX or batch.num_rows <= 1:
        return [Piece(batch, tuple(segments))]
    half = batch.num_rows // 2
    left, right = _split(segments, half)
    return pieces(batch.slice(0, half), left) + pieces(batch.slice(half), right)


class Piece(NamedTuple):
    """A part of a batch, with its segments."""

    batch: pa.RecordBatch
    segments: tuple[Segment, ...]


def _split(segments: Sequence[Segment], at: int) -> tuple[list[Segment], list[Segment]]:
    left: list[Segment] = []
    right: list[Segment] = []
    for segment in segments:
        here = min(at, segment.tuples)
        at -= here
        if here:
            left.append(segment._replace(tuples=here))
        if segment.tuples > here:
            right.append(segment._replace(tuples=segment.tuples - here))
    return left, right


MANIFEST = 0x53


class Producer(NamedTuple):
    """The stage and the task attempt that made a record.

    It is a plain tuple because every manifest carries many of them.

    Attributes:
        chain: The chain of the stage.
        level: The level of the stage.
        slot: The slot of the stage.
        task_id: Id of the Spark task attempt. A task that is run again has another id.
    """

    chain: Chain
    level: int
    slot: int
    task_id: int


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """An exception of user code, as data.

    Attributes:
        txid: Txid of the batch that failed.
        level: Level of the component.
        component: Id of the component.
        task: Index of the task.
        error: The pickled exception.
        note: Says where it was raised, with the traceback.
    """

    txid: int
    level: int
    component: str
    task: int
    error: bytes
    note: str


@dataclass(frozen=True, slots=True)
class WriteSet:
    """The writes of one task of a committer to one of its states."""

    txid: int
    component: str
    task: int
    state: str
    puts: Puts


@dataclass(slots=True)
class Control:
    """What is known of a whole run, gathered from its stages.

    Attributes:
        failures: Exceptions of user code.
        cuts: Metadata of the positions where emitters ended: by (txid, spout), by partition.
        contents: Content of the parts of a batch: by (txid, spout), by partition or task.
        consumed: Producers of all records that were read.
        tuples: Number of emitted tuples, by (txid, component, stream).
        writes: Write sets of committers.
        kept: Bytes of the handover that the carrier keeps, by (txid, edge).
        seen: Which fields the first records have, by spout.
    """

    failures: list[TaskFailure] = field(default_factory=list)
    cuts: dict[tuple[int, str], dict[int, Json]] = field(default_factory=dict)
    contents: dict[tuple[int, str], dict[int, Json]] = field(default_factory=dict)
    consumed: set[Producer] = field(default_factory=set)
    tuples: dict[tuple[int, str, str], int] = field(default_factory=dict)
    writes: list[WriteSet] = field(default_factory=list)
    kept: dict[tuple[int, int], int] = field(default_factory=dict)
    seen: dict[str, SeenFields] = field(default_factory=dict)

    def __reduce__(self) -> tuple[type[Control], tuple[object, ...]]:
        """Pickle the object faster than a dataclass does by itself."""
        return Control, (
            self.failures,
            self.cuts,
            self.contents,
            self.consumed,
            self.tuples,
            self.writes,
            self.kept,
            self.seen,
        )

    def add(self, other: Control) -> None:
        """Add what another stage gathered."""
        self.failures += other.failures
        for mine, others in ((self.cuts, other.cuts), (self.contents, other.contents)):
            for txid, parts in others.items():
                mine.setdefault(txid, {}).update(parts)
        self.consumed |= other.consumed
        for key, count in other.tuples.items():
            self.tuples[key] = self.tuples.get(key, 0) + count
        self.writes += other.writes
        self.keep(other.kept)
        for spout, seen in other.seen.items():
            self.see(spout, seen)

    def keep(self, kept: Mapping[tuple[int, int], int]) -> None:
        """Add bytes that the carrier keeps."""
        for key, nbytes in kept.items():
            self.kept[key] = self.kept.get(key, 0) + nbytes

    def see(self, spout: str, seen: SeenFields) -> None:
        """Add which fields the first records of a task of a spout have."""
        known = self.seen.get(spout)
        self.seen[spout] = seen if known is None else known.add(seen)

    def count(self, txid: int, component: str, stream: str, tuples: int) -> None:
        """Count emitted tuples."""
        key = (txid, component, stream)
        self.tuples[key] = self.tuples.get(key, 0) + tuples


class StageManifest(NamedTuple):
    """What one stage sent to one address. A plain tuple, as there are many.

    Attributes:
        run: Tag of the job.
        producer: The stage.
        promised: Number of envelopes that the stage sent to this address. Envelopes that it only
            passed on count too.
        failed_txid: Lowest txid that is known to have failed; skip it and all later ones.
        fault: If the whole run is lost: (whether a task was computed twice, text of the error).
        control: What is known of the whole run, in the one manifest that carries them.
    """

    run: str
    producer: Producer
    promised: int
    failed_txid: int | None = None
    fault: tuple[bool, str] | None = None
    control: Control | None = None

    def seal(self) -> bytes:
        """Return the manifest as a record."""
        return bytes((MANIFEST,)) + pack(self)

    @staticmethod
    def open(record: bytes) -> StageManifest:
        """Read a manifest: a record that starts with ``MANIFEST``."""
        return cast("StageManifest", loads(record[1:]))


def raise_fault(manifests: Iterable[StageManifest]) -> None:
    """Raise the fault that one of the manifests carries, if there is one.

    Raises:
        RecomputedError: A task was computed twice; throw the run away.
        RunLostError: Envelopes were lost or doubled; throw the run away.
    """
    for manifest in manifests:
        if manifest.fault is not None:
            recomputed, text = manifest.fault
            raise (RecomputedError if recomputed else RunLostError)(text)


def fault_of(error: InfrastructureError) -> tuple[bool, str]:
    """Return an error in the form in which a manifest carries it."""
    return isinstance(error, RecomputedError), str(error)


def one_run_each(producers: Iterable[Producer]) -> dict[tuple[Chain, int, int], int]:
    """Check that each stage was computed by one task attempt.

    Returns:
        The task id of each (chain, level, slot).

    Raises:
        RecomputedError: Records of two task attempts of the same stage were read.
    """
    seen: dict[tuple[Chain, int, int], int] = {}
    for producer in sorted(producers):  # sorted, so that the error does not depend on their order
        task_id = seen.setdefault((producer.chain, producer.level, producer.slot), producer.task_id)
        if task_id != producer.task_id:
            raise RecomputedError(
                f"slot {producer.slot} of {producer.chain} level {producer.level} was computed "
                f"twice; got results of task attempts {task_id} and {producer.task_id}; expected "
                "one; was an executor lost?",
                level=producer.level,
                slot=producer.slot,
            )
    return seen
