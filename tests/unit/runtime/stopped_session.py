"""A process of its own: runs whose Spark session is stopped, at work and before a restart.

All are in one process, since a JVM takes ten seconds of a processor.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.processes import say
from tests.harness.runs import Changes
from tests.harness.spark_session import open_test_session
from txtopo import (
    BasicBolt,
    BatchFailed,
    Config,
    Count,
    Fields,
    PersistentAggregate,
    Restart,
    Restarting,
    TransactionalTopologyBuilder,
    Tuple,
    open_state,
)
from txtopo.collector import BatchOutputCollector
from txtopo.runtime.handle import TopologyRun
from txtopo.runtime.progress import BatchCommitted, TopologyEvent
from txtopo.spouts import MemoryTransactionalSpout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORDS = 2_000


class Failing(BasicBolt):
    """Raises an exception that may pass."""

    output_fields = Fields("word string")

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        raise ConnectionError("the service is away")


def stop_at_work(folder: Path) -> None:
    """Stop the session after the first commit."""
    spark, changes = open_test_session("local[2]"), Changes()
    run = count_words("ended", folder, spark, changes)
    changes.wait_for(BatchCommitted)

    spark.stop()
    say_end(run, changes)


def stop_with_a_dropped_job(folder: Path) -> None:
    """Stop the session after a job was submitted that Spark will never answer.

    Spark's scheduler drops the jobs that reach it after its end. In nature few do, since Spark
    refuses jobs soon before. Here the scheduler ends first, at a moment at which no job is in
    flight: the loop is held by its listener, and there is one batch at a time.
    """
    spark = open_test_session("local[2]")
    java = spark.sparkContext._jsc
    assert java is not None
    scheduler = java.sc().dagScheduler()
    before: list[int] = []

    def drop_jobs(change: TopologyEvent) -> None:
        if isinstance(change, BatchCommitted):
            scheduler.eventProcessLoop().stop()
            before.append(scheduler.numTotalJobs())

    changes = Changes(drop_jobs)
    run = count_words("dropped", folder, spark, changes, max_spout_pending=1)
    wait_until(lambda: before and scheduler.numTotalJobs() > before[0], "a job was dropped")

    spark.stop()
    say_end(run, changes)


def count_words(
    name: str, folder: Path, spark: SparkSession, changes: Changes, **settings: Any
) -> TopologyRun:
    """Start a run that has work for long."""
    spout = MemoryTransactionalSpout({0: [["a"]] * WORDS}, Fields("word string"), 1)
    builder = TransactionalTopologyBuilder(name, "spout", spout)
    state = open_state(f"sqlite:///{folder / name}.db")
    count = PersistentAggregate(state, "word", Count())
    builder.set_bolt("count", count).fields_grouping("spout", "word")
    config = Config(carrier="rdd", zookeeper="memory", **settings)
    return builder.build_topology().start(spark, config, [changes])


def say_end(run: TopologyRun, changes: Changes) -> None:
    """Wait until a run has ended, and say how."""
    try:
        run.await_termination(LIMIT_S)
    except Exception as error:  # noqa: BLE001 - the test judges it
        say(run.id, error=repr(error), failures=len(changes.of(BatchFailed)))


def stop_before_the_restart() -> None:
    """Stop the session in the pause before the first restart."""
    spark = open_test_session("local[2]")
    spout = MemoryTransactionalSpout({0: [["a"]]}, Fields("word string"), 1)
    builder = TransactionalTopologyBuilder("lost", "spout", spout)
    builder.set_bolt("failing", Failing()).shuffle_grouping("spout")
    changes = Changes(lambda change: spark.stop() if isinstance(change, Restarting) else None)
    config = Config(carrier="rdd", zookeeper="memory")

    restart = Restart(backoff_s=0.01)
    run = builder.build_topology().start(spark, config, [changes], restart=restart)
    try:
        run.await_termination(LIMIT_S)
    except Exception as error:  # noqa: BLE001 - the test judges it
        say("restarted", error=repr(error), restarts=len(changes.of(Restarting)))


if __name__ == "__main__":
    stop_at_work(Path(sys.argv[1]))
    stop_with_a_dropped_job(Path(sys.argv[1]))
    stop_before_the_restart()
