"""Envelopes: sealing, opening, chunks."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.chance import examples
from tests.unit.stages.bolts import ArrowPass, Recorder
from tests.unit.stages.running import (
    RowsSpout,
    Topology,
    bolt,
    gathered,
    recording,
    run_of,
    shuffled,
    spout,
)
from txtopo.stages.envelopes import CHUNK_BYTES_MAX, Producer, Segment, open_envelope, pieces, seal
from txtopo.topology.bolt_kinds import ARROW_BOLT

BATCH = pa.record_batch([pa.array(["a", "b", None]), pa.array([1, 2, 3])], names=["w", "n"])


def test_an_envelope_is_opened_as_it_was_sealed() -> None:
    producer = Producer("commit", 3, 49, 2**40)
    segments = (Segment(0, -1, 1), Segment(7, 50, 2))

    record = seal(
        producer, 9, to_slot=4, edge=5, identity=(6, 7, 8), segments=segments, batch=BATCH
    )
    envelope = open_envelope(record)

    assert envelope.producer == producer
    assert (envelope.number, envelope.to_slot, envelope.edge, envelope.txid) == (9, 4, 5, 7)
    assert (envelope.identity, envelope.segments) == ((6, 7, 8), segments)
    assert envelope.batch(BATCH.schema).equals(BATCH)


def test_a_large_batch_is_cut_into_chunks_that_keep_tuples_and_segments() -> None:
    words = pa.record_batch([pa.array([str(n).zfill(10_000) for n in range(1_000)])], names=["w"])
    segments = [Segment(0, 0, 250), Segment(0, 1, 700), Segment(1, 1, 50)]

    cut = pieces(words, segments)

    assert len(cut) > 2
    assert all(piece.batch.nbytes <= CHUNK_BYTES_MAX for piece in cut)
    assert all(sum(s.tuples for s in piece.segments) == piece.batch.num_rows for piece in cut)
    joined = pa.concat_batches([piece.batch for piece in cut])
    assert joined.equals(words)
    totals: dict[tuple[int, int], int] = {}
    for piece in cut:
        for sender, receiver, tuples in piece.segments:
            totals[sender, receiver] = totals.get((sender, receiver), 0) + tuples
    assert totals == {(s.sender, s.receiver): s.tuples for s in segments}


def test_a_tuple_larger_than_a_chunk_travels_alone() -> None:
    big = pa.record_batch([pa.array(["x" * (CHUNK_BYTES_MAX + 1), "y"])], names=["w"])

    cut = pieces(big, [Segment(0, 0, 2)])

    assert [piece.batch.num_rows for piece in cut] == [1, 1]


def test_no_record_of_a_large_batch_is_much_larger_than_a_chunk() -> None:
    rows = [[str(n).zfill(20_000)] for n in range(600)]
    topology = Topology(
        spout(RowsSpout([rows], "word string")),
        bolt("pass", ArrowPass("word string"), shuffled(), parallelism=2, kind=ARROW_BOLT),
        bolt("record", Recorder(), gathered("pass"), committer=True),
    )
    run = run_of(1)

    with recording() as recorded:
        topology.run(run)
        seen = sorted(row[-1] for row in recorded)
    processed = topology.carrier.process(run)
    sizes = [len(record) for record in processed.records]

    assert seen == sorted(row[0] for row in rows)
    assert len(sizes) > 3
    assert max(sizes) < CHUNK_BYTES_MAX + 10_000


@examples(10)
@given(st.integers(0, 30), st.integers(1, 3))
def test_tuples_of_streams_without_fields_are_counted(tuples: int, slots: int) -> None:
    topology = Topology(
        spout(RowsSpout([[[]] * tuples], ""), 2),
        bolt("record", Recorder(), shuffled(), parallelism=3),
        slots=slots,
    )

    with recording() as recorded:
        topology.run(run_of(1))

        assert len(recorded) == tuples
