"""Manifests: a lost, doubled or recomputed record is seen, wherever it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.stages.bolts import Counter, Pass
from tests.unit.stages.running import (
    RowsSpout,
    Topology,
    aggregate,
    bolt,
    gathered,
    grouped,
    run_of,
    shuffled,
    spout,
    stage_of,
)
from txtopo.errors import RecomputedError, RunLostError
from txtopo.groupings import FieldsGrouping
from txtopo.stages.compiled_topology import Run
from txtopo.stages.envelopes import ENVELOPE, MANIFEST, StageManifest
from txtopo.stages.outcome import RunOutcome, judge, judge_commit
from txtopo.stages.stage import run_stage
from txtopo.state.aggregates import Count
from txtopo.topology.bolt_kinds import BASIC_BOLT

Tamper = Callable[[int, int, list[bytes]], list[bytes]]
"""(level, receiving slot, records) -> what arrives instead; level -1 is the driver."""

SLOTS = 2
RUN = run_of(2)


def topology(committer_tasks: int = 1) -> Topology:
    """Words pass through two levels; slot 1 of the bolts gets no tuple at all from txid 2."""
    words = [[["a"], ["b"], ["c"], ["d"]], []] * 2
    by_word = grouped(FieldsGrouping(("word",)))
    return Topology(
        spout(RowsSpout(words, "word string"), 2),
        bolt("one", Pass("word string"), by_word, parallelism=2, kind=BASIC_BOLT),
        bolt("two", Counter(), shuffled("one"), gathered("spout"), parallelism=2),
        aggregate("count", "word", Count(), shuffled("one")),
        bolt("commit", Counter(), gathered("two"), parallelism=committer_tasks, committer=True),
        slots=SLOTS,
    )


def tampered(tamper: Tamper, run: Run = RUN) -> RunOutcome:
    """Run the processing phase, with records tampered with on their way."""
    compiled = topology().compiled
    arrived: dict[int, list[bytes]] = {}
    for level in range(len(compiled.processing)):
        sent: dict[int, list[bytes]] = {}
        for slot in range(SLOTS):
            records = arrived.get(slot, [])
            if level:
                records = tamper(level, slot, records)
            task_id = 10 * level + slot
            stage = stage_of(compiled, run, level, slot, task_id)
            for address, record in run_stage(stage, records):
                sent.setdefault(address, []).append(record)
        arrived = sent
    return judge(compiled, run, tamper(-1, 0, arrived[0]))


def only_at(level: int, slot: int, change: Callable[[list[bytes]], list[bytes]]) -> Tamper:
    def tamper(at_level: int, at_slot: int, records: list[bytes]) -> list[bytes]:
        return change(records) if (at_level, at_slot) == (level, slot) else records

    return tamper


def without_first(kind: int) -> Callable[[list[bytes]], list[bytes]]:
    def change(records: list[bytes]) -> list[bytes]:
        at = next(at for at, record in enumerate(records) if record[0] == kind)
        return records[:at] + records[at + 1 :]

    return change


def first_twice(kind: int) -> Callable[[list[bytes]], list[bytes]]:
    def change(records: list[bytes]) -> list[bytes]:
        return [*records, next(record for record in records if record[0] == kind)]

    return change


PLACES = [(1, 0), (1, 1), (2, 0), (2, 1), (-1, 0)]


def test_untouched_records_pass_in_any_order() -> None:
    outcome = tampered(lambda level, slot, records: records[::-1])

    assert [batch.attempt.txid for batch in outcome.processed] == [1, 2]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", [ENVELOPE, MANIFEST], ids=["envelope", "manifest"])
def test_a_lost_record_is_seen(place: tuple[int, int], kind: int) -> None:
    with pytest.raises(RunLostError, match="not those that were sent"):
        tampered(only_at(*place, without_first(kind)))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", [ENVELOPE, MANIFEST], ids=["envelope", "manifest"])
def test_a_doubled_record_is_seen(place: tuple[int, int], kind: int) -> None:
    with pytest.raises(RunLostError, match="not those that were sent"):
        tampered(only_at(*place, first_twice(kind)))


def test_an_envelope_lost_and_another_doubled_is_seen() -> None:
    def change(records: list[bytes]) -> list[bytes]:
        return first_twice(ENVELOPE)(without_first(ENVELOPE)(records))

    with pytest.raises(RunLostError, match="twice"):
        tampered(only_at(1, 0, change))


@pytest.mark.parametrize("kind", [ENVELOPE, MANIFEST], ids=["envelope", "manifest"])
def test_a_record_of_another_run_is_seen(kind: int) -> None:
    """Same topology, slots and task ids: only the run tells the two apart."""
    other, compiled = run_of(2, first=3), topology().compiled
    stage = run_stage(stage_of(compiled, other, 0), [])
    stray = next(record for address, record in stage if address == 0 and record[0] == kind)

    with pytest.raises(RunLostError, match="not those that were sent"):
        tampered(only_at(1, 0, lambda records: [stray, *without_first(kind)(records)]))


def recomputed(level: int, slot: int, seen_by: int) -> RunOutcome:
    """Compute (level, slot) twice; slot *seen_by* of the next level reads the second run of it."""
    compiled, run = topology().compiled, RUN
    arrived: dict[int, list[bytes]] = {}
    for at in range(len(compiled.processing)):
        sent: dict[int, list[bytes]] = {}
        for each in range(SLOTS):
            records = arrived.get(each, [])
            first = list(run_stage(stage_of(compiled, run, at, each, 10 * at + each), records))
            again = first
            if (at, each) == (level, slot):
                again = list(run_stage(stage_of(compiled, run, at, each, 99), records))
            for address, record in first:
                if address != seen_by:
                    sent.setdefault(address, []).append(record)
            for address, record in again:
                if address == seen_by:
                    sent.setdefault(address, []).append(record)
        arrived = sent
    return judge(compiled, run, arrived[0])


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("slot", [0, 1])
@pytest.mark.parametrize("seen_by", [0, 1])
@pytest.mark.row(20)
def test_two_runs_of_one_task_that_different_slots_saw_are_seen(
    level: int, slot: int, seen_by: int
) -> None:
    with pytest.raises(RecomputedError, match=rf"slot {slot} of processing level {level}"):
        recomputed(level, slot, seen_by)


@pytest.mark.row(20)
def test_one_slot_that_gets_manifests_of_two_runs_sees_it_itself() -> None:
    compiled = topology().compiled
    twice = [
        record
        for task_id in (1, 2)
        for address, record in run_stage(stage_of(compiled, RUN, 0, task_id=task_id), [])
        if address == 1 and record[0] == MANIFEST
    ]

    with pytest.raises(RecomputedError):
        tampered(only_at(1, 1, lambda records: twice))


def test_a_cut_that_is_computed_again_after_the_run_was_judged_is_seen() -> None:
    """An executor is lost between the two phases: Spark computes what it held again."""
    whole = topology(committer_tasks=2)
    first, again = whole.carrier.process(RUN), whole.carrier.process(RUN)
    outcome = judge(whole.compiled, RUN, first.records)
    batch, only = outcome.processed[0], RUN.only(RUN.attempts[0])

    records = whole.carrier.commit(first, batch.attempt)
    assert judge_commit(whole.compiled, batch, only, records).failure is None

    stale = whole.carrier.commit(again, batch.attempt)
    with pytest.raises(RecomputedError):
        judge_commit(whole.compiled, batch, only, stale)


def test_what_the_commit_of_one_txid_sent_does_not_stand_for_that_of_another() -> None:
    whole = topology(committer_tasks=2)
    processed = whole.carrier.process(RUN)
    first, second = judge(whole.compiled, RUN, processed.records).processed
    earlier = whole.carrier.commit(processed, first.attempt)
    records = whole.carrier.commit(processed, second.attempt)
    only = RUN.only(second.attempt)
    assert judge_commit(whole.compiled, second, only, records).failure is None

    for manifest in [record for record in records if record[0] == MANIFEST]:
        slot = StageManifest.open(manifest).producer.slot
        stale = [
            r for r in earlier if r[0] == MANIFEST and StageManifest.open(r).producer.slot == slot
        ]
        with pytest.raises(
            RunLostError, match="the records that arrived are not those that were sent"
        ):
            judge_commit(
                whole.compiled, second, only, [r for r in records if r != manifest] + stale
            )
