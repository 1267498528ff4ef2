"""Tuples that stay in their slot: carriers need not move them, and nothing else changes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.runtime.carrying import CountWords
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
from txtopo.errors import RunLostError
from txtopo.groupings import FieldsGrouping, Grouping, LocalOrShuffleGrouping
from txtopo.stages.outcome import judge
from txtopo.stages.stage import run_stage
from txtopo.state.aggregates import Sum

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = LocalOrShuffleGrouping()
WORDS = [[(f"word {n % 5}", 1) for n in range(40)] for _ in range(2)]
SLOTS = 2
RUN = run_of(2)


def topology(
    *, sources: int = 2, targets: int = 2, grouping: Grouping = LOCAL, slots: int = SLOTS
) -> Topology:
    """Words are counted by each task, and a second level gets some of them past the first."""
    return Topology(
        spout(RowsSpout(WORDS, "word string, count long"), sources),
        bolt("one", CountWords("word string, count long"), grouped(grouping), parallelism=targets),
        bolt(
            "two",
            CountWords("word string, count long"),
            grouped(FieldsGrouping(("word",)), "one"),
            shuffled("spout"),
            parallelism=2,
        ),
        aggregate("sums", "word", Sum("count"), gathered("two")),
        slots=slots,
    )


def test_all_tuples_stay_where_each_slot_has_its_own_tasks() -> None:
    assert topology().compiled.staying == {0}
    assert topology(targets=3).compiled.staying == {0}
    assert topology(sources=1, targets=1).compiled.staying == {0}
    assert topology(grouping=FieldsGrouping(("word",))).compiled.staying == set()
    assert topology(slots=1).compiled.staying == {0, 1}
    assert topology(slots=1, grouping=FieldsGrouping(("word",))).compiled.staying == {0, 1}


def test_tuples_of_a_slot_without_a_task_of_the_target_do_not_stay() -> None:
    assert topology(targets=1).compiled.staying == set()
    assert topology(sources=3, targets=2, slots=3).compiled.staying == set()


def test_levels_are_divided_where_tuples_may_leave_their_slot() -> None:
    assert topology().compiled.divided_levels("processing") == [range(2), range(2, 3)]
    assert topology(targets=1).compiled.divided_levels("processing") == [
        range(1),
        range(1, 2),
        range(2, 3),
    ]
    assert topology(slots=1).compiled.divided_levels("processing") == [range(3)]
    assert topology().compiled.divided_levels("commit") == []


@pytest.mark.parametrize("slots", [1, 2, 3])
@pytest.mark.parametrize(("sources", "targets"), [(2, 2), (2, 1), (3, 2), (1, 3)])
def test_what_stays_is_counted_as_what_is_moved(slots: int, sources: int, targets: int) -> None:
    one = topology(sources=sources, targets=targets, slots=slots)
    ran = one.run(RUN)

    assert ran.txids == [1, 2]
    for batch, commit in zip(ran.outcome.processed, ran.commits, strict=True):
        # Each word is counted on its way past the first level, and once more without it.
        expected = {word: 2 * count for word, count in Counter(dict_of(WORDS[0])).items()}
        assert dict(one.merged("sums", batch, commit)) == expected


def dict_of(rows: list[tuple[str, int]]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for word, count in rows:
        counts[word] += count
    return dict(counts)


def test_a_stage_whose_tuples_stay_sends_nothing_to_other_slots() -> None:
    compiled = topology().compiled
    sent = [list(run_stage(stage_of(compiled, RUN, 0, slot), [])) for slot in range(SLOTS)]

    assert [{address for address, _ in each} for each in sent] == [{0}, {1}]


def test_records_of_another_slot_lose_the_run() -> None:
    compiled = topology().compiled
    sent = [
        [record for _, record in run_stage(stage_of(compiled, RUN, 0, slot, slot), [])]
        for slot in range(SLOTS)
    ]

    def next_level(first: list[bytes]) -> None:
        arrived: dict[int, list[bytes]] = {}
        for level, given in ((1, [first, sent[1]]), (2, None)):
            out: dict[int, list[bytes]] = {}
            for slot in range(SLOTS):
                records = given[slot] if given is not None else arrived.get(slot, [])
                stage = stage_of(compiled, RUN, level, slot, 10 * level + slot)
                for address, record in run_stage(stage, records):
                    out.setdefault(address, []).append(record)
            arrived = out
        judge(compiled, RUN, arrived[0])

    next_level(sent[0])
    for wrong in (sent[1], [], sent[0] + sent[1], sent[0][:-1], sent[0][1:]):
        with pytest.raises(RunLostError, match="not those that were sent"):
            next_level(wrong)


@pytest.mark.spark
@pytest.mark.parametrize(("grouping", "stages"), [(LOCAL, 2), (FieldsGrouping(("word",)), 3)])
def test_spark_moves_no_tuples_that_stay(
    spark: SparkSession, grouping: Grouping, stages: int
) -> None:
    from txtopo.carriers.spark import RddCarrier

    one = topology(grouping=grouping)
    carrier = RddCarrier(spark)
    carrier.start(one.compiled)
    try:
        outcome = judge(one.compiled, RUN, carrier.process(RUN).records)
        tracker = spark.sparkContext.statusTracker()
        labels: Any = carrier._jobs._labels
        (number,) = tracker.getJobIdsForGroup(labels._group(RUN.tag_of("processing")))
        job = tracker.getJobInfo(number)
    finally:
        carrier.close()

    assert [batch.attempt.txid for batch in outcome.processed] == [1, 2]
    assert job is not None
    assert len(job.stageIds) == stages
