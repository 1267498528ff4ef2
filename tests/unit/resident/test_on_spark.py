"""The carrier ``resident`` on a Spark session of two cores."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.harness.polling import LIMIT_S, wait_until
from tests.unit.reliable.bolts import WORD, Forward, rows
from tests.unit.resident.recorded import CONFIG, acked, held, judge, process_of, recorded
from txtopo import AtLeastOnceConfig, BasicBolt, ReliableTopology, TopologyBuilder, Tuple
from txtopo.collector import BatchOutputCollector
from txtopo.errors import TooFewCores
from txtopo.resident.slot_jobs import SlotJobs
from txtopo.runtime.handle import ReliableRun
from txtopo.spouts import MemorySpout
from txtopo.testing import FeederSpout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
# A first worker takes half a minute on a busy machine.
SPARK_S = 2 * LIMIT_S
# Of the two slots only the first has spouts, and an acker.
SPOUTS, BOLTS = 0, 1


@pytest.mark.parametrize(
    "slots",
    [
        pytest.param((SPOUTS,), id="spouts"),
        pytest.param((BOLTS,), id="bolts"),
        pytest.param((BOLTS, SPOUTS, BOLTS), id="one after the other", marks=pytest.mark.slow),
    ],
)
def test_nothing_is_lost_when_python_workers_are_killed(
    slots: tuple[int, ...], spark: SparkSession, tmp_path: Path
) -> None:
    kills = len(slots)
    count = 1000 * (kills + 1)
    for number in range(kills):
        held(tmp_path, number).touch()

    # What waits here until it is killed does not time out again and again meanwhile.
    config, began_s = replace(CONFIG, message_timeout_s=6), time.monotonic()
    with recorded(tmp_path, count).start(spark, config) as run:
        for number, slot in enumerate(slots):
            enough = 1000 * number + 300
            wait_until(lambda: len(acked(tmp_path)) >= enough, "enough numbers are acked", SPARK_S)  # noqa: B023
            os.kill(process_of(tmp_path, slot), signal.SIGKILL)
            wait_until(lambda: lost(run) > number, "a slot is lost", SPARK_S)  # noqa: B023
            held(tmp_path, number).unlink()
        run.process_all_available(SPARK_S)
        progress = run.last_progress

    assert progress is not None
    assert progress.slots_lost >= kills
    twice = judge(tmp_path, count)
    print(f"{twice} of {count} numbers came twice, {progress.replays} trees were replayed")
    # What was lost came again, and not everything: what waits does so once in a timeout at most.
    timeouts = (time.monotonic() - began_s) / config.message_timeout_s
    assert progress.replays <= (config.max_spout_pending or 0) * (1 + timeouts)
    if BOLTS in slots:
        assert progress.replays > 0
    else:  # the trees are lost with the spout; its source brings all of them again
        assert twice <= (config.max_spout_pending or 0) * (1 + timeouts)


def lost(run: ReliableRun) -> int:
    progress = run.last_progress
    return progress.slots_lost if progress is not None else 0


def wait_for_cores(spark: SparkSession) -> None:
    """Wait until Spark has ended the tasks of other tests."""
    jobs = SlotJobs(spark, "bolts")
    wait_until(lambda: jobs.cores().free == 2, "two cores are free")


def test_more_slots_than_free_cores_are_refused_before_anything_runs(
    spark: SparkSession, tmp_path: Path
) -> None:
    wait_for_cores(spark)
    with pytest.raises(TooFewCores, match="more slots than free cores; got slots=3 with 2 free"):
        recorded(tmp_path, 10).start(spark, AtLeastOnceConfig(carrier="resident", slots=3))

    with recorded(tmp_path, 10).start(spark, CONFIG) as run:
        run.process_all_available(SPARK_S)
        with pytest.raises(TooFewCores, match="got slots=1 with 0 free of 2 cores"):
            recorded(tmp_path, 10).start(spark, CONFIG)


def test_a_spout_that_shares_memory_with_a_test_is_refused_with_a_way_out(
    spark: SparkSession,
) -> None:
    builder = TopologyBuilder("shared")
    feeder = FeederSpout(WORD)
    builder.set_spout("words", feeder)
    builder.set_bolt("forward", Forward()).shuffle_grouping("words")

    run = builder.build_topology().start(spark, AtLeastOnceConfig(carrier="resident", slots=1))
    with pytest.raises(LookupError, match=r"use AtLeastOnceConfig\(carrier='local'\)"):
        run.await_termination(SPARK_S)


class Broken(BasicBolt):
    """Raises an exception of its own."""

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        raise BrokenError(tuple["word"])


class BrokenError(Exception):
    pass


def broken() -> ReliableTopology:
    builder = TopologyBuilder()
    builder.set_spout("words", MemorySpout(rows("a"), WORD))
    builder.set_bolt("broken", Broken()).shuffle_grouping("words")
    return builder.build_topology()


def test_an_exception_of_a_bolt_ends_the_run_and_frees_the_cores(spark: SparkSession) -> None:
    for _ in range(2):  # the second time it needs the same cores
        run = broken().start(spark, AtLeastOnceConfig(carrier="resident", slots=2))
        with pytest.raises(BrokenError, match="a"):
            run.await_termination(SPARK_S)


def test_auto_takes_the_session_that_there_is(spark: SparkSession) -> None:
    builder = TopologyBuilder("auto")
    builder.set_spout("words", MemorySpout(rows("a", "b"), WORD))
    builder.set_bolt("forward", Forward()).shuffle_grouping("words")
    tracker = spark.sparkContext.statusTracker()

    wait_for_cores(spark)
    with builder.build_topology().start(spark) as run:
        run.process_all_available(SPARK_S)
        # The tracker hears of jobs by events, some time after they have begun or ended.
        wait_until(lambda: len(tracker.getActiveJobsIds()) == 2, "two jobs run")
    wait_until(lambda: not tracker.getActiveJobsIds(), "no job runs")
