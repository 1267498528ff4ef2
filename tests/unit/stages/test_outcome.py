"""What the driver is told of the handover that it does not see."""

from __future__ import annotations

from itertools import chain

import pytest

from tests.unit.stages.bolts import Recorder
from tests.unit.stages.running import RowsSpout, bolt, compile_components, run_of, shuffled, spout
from txtopo.carriers.carrier import LocalCarrier
from txtopo.errors import RunLostError
from txtopo.stages.envelopes import ENVELOPE, MANIFEST
from txtopo.stages.outcome import BatchOutcome, judge, judge_commit
from txtopo.topology.component import Component

BATCHES = [[["a"], ["b"], ["c"]], [], [["d" * 1000]]]


def processed(*bolts: Component, slots: int) -> tuple[tuple[BatchOutcome, ...], int]:
    """Return what came of a run, and how many bytes of envelopes the carrier kept of it."""
    compiled = compile_components(spout(RowsSpout(BATCHES, "word string"), 2), *bolts, slots=slots)
    carrier = LocalCarrier(slots)
    carrier.start(compiled)
    run = run_of(len(BATCHES))
    left = carrier.process(run)
    assert isinstance(left.handover, dict)
    records = chain.from_iterable(left.handover.values())
    kept = sum(len(record) for record in records if record[0] == ENVELOPE)
    return judge(compiled, run, left.records).processed, kept


@pytest.mark.parametrize("slots", [1, 2])
def test_the_cut_that_a_carrier_keeps_is_counted_by_batch_and_stream(slots: int) -> None:
    """Also what only passes through the last level, as the spout's tuples do here."""
    bolts = (
        bolt("above", Recorder("word string"), shuffled()),
        bolt("save", Recorder(), shuffled(), shuffled("above"), parallelism=3, committer=True),
    )

    outcomes, kept = processed(*bolts, slots=slots)
    first, empty, last = (outcome.kept_bytes_by_stream for outcome in outcomes)

    assert set(first) == {"spout/default", "above/default"}
    assert empty == {}
    assert last["spout/default"] > 1000
    assert sum(first.values()) + sum(last.values()) == kept
    assert all(outcome.bytes_by_stream == {} for outcome in outcomes)


def test_a_cut_that_comes_to_the_driver_is_not_counted_twice() -> None:
    outcomes, _ = processed(bolt("save", Recorder(), shuffled(), committer=True), slots=2)

    assert all(outcome.kept_bytes_by_stream == {} for outcome in outcomes)
    assert outcomes[0].bytes_by_stream["spout/default"] > 0


def test_an_envelope_of_the_other_phase_loses_the_commit_and_no_more() -> None:
    """It may be late; the attempt is replayed, and the run continues."""
    save = bolt("save", Recorder(), shuffled(), parallelism=2, committer=True)
    compiled = compile_components(spout(RowsSpout(BATCHES, "word string"), 1), save, slots=1)
    carrier = LocalCarrier(1)
    carrier.start(compiled)
    run = run_of(len(BATCHES))
    left = carrier.process(run)
    assert isinstance(left.handover, dict)
    late = next(r for r in chain.from_iterable(left.handover.values()) if r[0] == ENVELOPE)
    first = judge(compiled, run, left.records).processed[0]
    records = carrier.commit(left, first.attempt)

    with pytest.raises(RunLostError, match="envelopes that no slot of the previous level sent"):
        judge_commit(compiled, first, run.only(first.attempt), [*records, late])


def test_a_manifest_of_another_level_does_not_stand_for_the_one_that_is_missing() -> None:
    """Seed 4718: the write set of a task got lost with its manifest, and nobody missed it."""
    save = bolt("save", Recorder(), shuffled(), parallelism=2, committer=True)
    compiled = compile_components(spout(RowsSpout(BATCHES, "word string"), 1), save, slots=1)
    carrier = LocalCarrier(1)
    carrier.start(compiled)
    run = run_of(len(BATCHES))
    left = carrier.process(run)
    first = judge(compiled, run, left.records).processed[0]
    late = next(r for r in left.records if r[0] == MANIFEST)
    records = [r for r in carrier.commit(left, first.attempt) if r[0] == ENVELOPE]

    with pytest.raises(RunLostError, match=r"records of \('processing', 0\)"):
        judge_commit(compiled, first, run.only(first.attempt), [*records, late])
