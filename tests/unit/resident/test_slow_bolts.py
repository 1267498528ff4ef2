"""Slow bolts in Spark tasks: what they say leaves while they work."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.harness.polling import LIMIT_S, wait_until
from tests.unit.resident.recorded import NUMBER, Numbers, acked, whole_lines
from txtopo import Bolt, Config, OutputCollector, TaskContext, TopologyBuilder, Tuple
from txtopo.reliable.builder import ReliableTopology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
# A first worker takes half a minute on a busy machine.
SPARK_S = 2 * LIMIT_S


class Slow(Bolt):
    """Takes so long for a number, asks for more time meanwhile, and writes down what it began. It
    waits in number ``held`` while there is a file for that."""

    output_fields = NUMBER

    def __init__(self, folder: Path, work_s: float, held: int | None = None) -> None:
        self._folder, self._work_s, self._held = folder, work_s, held

    def prepare(self, config: Config, context: TaskContext, collector: OutputCollector) -> None:
        self._collector = collector
        (self._folder / "process").write_text(str(os.getpid()))
        self._file = (self._folder / f"begun-{os.getpid()}").open("a", buffering=1)

    def execute(self, tuple: Tuple) -> None:
        number = tuple["number"]
        self._file.write(f"{number}\n")
        until_s = time.monotonic() + self._work_s
        while time.monotonic() < until_s:
            time.sleep(min(self._work_s, 0.25))
            if self._work_s > 1:
                self._collector.reset_timeout(tuple)
        while number == self._held and (self._folder / "held").exists():
            time.sleep(0.01)
        self._collector.ack(tuple)


def slow(folder: Path, count: int, bolt: Slow) -> ReliableTopology:
    builder = TopologyBuilder("slow")
    builder.set_spout("numbers", Numbers(folder, count))
    builder.set_bolt("slow", bolt).shuffle_grouping("numbers")
    return builder.build_topology()


def begun(folder: Path) -> Counter[int]:
    return Counter(int(line) for path in folder.glob("begun-*") for line in whole_lines(path))


def test_what_takes_three_timeouts_together_is_acked(spark: SparkSession, tmp_path: Path) -> None:
    """As it was: not one was acked."""
    config = Config(carrier="resident", slots=1, max_spout_pending=60, message_timeout_s=1)

    with slow(tmp_path, 100, Slow(tmp_path, 0.05)).start(spark, config) as run:
        run.process_all_available(SPARK_S)

    assert acked(tmp_path) == set(range(100))
    # A busy machine may be late once or twice; it is not given all again and again.
    assert sum(begun(tmp_path).values()) < 200


@pytest.mark.slow
def test_with_defaults_what_takes_longer_than_the_timeout_is_not_replayed(
    spark: SparkSession, tmp_path: Path
) -> None:
    """3,000 of 5 ms take 15 s, and the spout has them all at once."""
    config = Config(carrier="resident", slots=1, message_timeout_s=4)

    with slow(tmp_path, 3_000, Slow(tmp_path, 0.005)).start(spark, config) as run:
        wait_until(lambda: len(acked(tmp_path)) == 3_000, "all numbers are acked", SPARK_S)
        progress = run.last_progress

    assert progress is not None
    assert sum(begun(tmp_path).values()) < 4_000


@pytest.mark.slow
def test_a_number_that_takes_long_and_asks_for_more_time_is_begun_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    config = Config(carrier="resident", slots=1, message_timeout_s=3)

    with slow(tmp_path, 1, Slow(tmp_path, 10.0)).start(spark, config) as run:
        run.process_all_available(SPARK_S)

    assert (acked(tmp_path), begun(tmp_path)) == ({0}, {0: 1})


def test_a_worker_that_is_killed_after_its_first_acks_loses_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Numbers 13 to 39 come together: so the acks of 20 leave in the middle of a work."""
    (tmp_path / "held").touch()
    config = Config(carrier="resident", slots=1, message_timeout_s=60)

    with slow(tmp_path, 60, Slow(tmp_path, 0.06, held=30)).start(spark, config) as run:
        wait_until(lambda: len(acked(tmp_path)) >= 20, "20 numbers are acked", SPARK_S)
        early = acked(tmp_path)
        os.kill(int((tmp_path / "process").read_text()), signal.SIGKILL)
        (tmp_path / "held").unlink()
        run.process_all_available(SPARK_S)

    assert early < set(range(31))
    assert acked(tmp_path) == set(range(60))
    assert {number for number, times in begun(tmp_path).items() if times > 1}.isdisjoint(early)
