"""A process of its own: runs whose Spark session is stopped, one at work and one to be restarted.

Both are in one process, since a JVM takes ten seconds of a processor.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.harness.polling import LIMIT_S
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
from txtopo.runtime.progress import BatchCommitted
from txtopo.spouts import MemoryTransactionalSpout

WORDS = 2_000


class Failing(BasicBolt):
    """Raises an exception that may pass."""

    output_fields = Fields("word string")

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        raise ConnectionError("the service is away")


def stop_at_work(folder: Path) -> None:
    """Stop the session after the first commit."""
    spark = open_test_session("local[2]")
    spout = MemoryTransactionalSpout({0: [["a"]] * WORDS}, Fields("word string"), 1)
    builder = TransactionalTopologyBuilder("stopped", "spout", spout)
    state = open_state(f"sqlite:///{folder / 'words.db'}")
    count = PersistentAggregate(state, "word", Count())
    builder.set_bolt("count", count).fields_grouping("spout", "word")
    changes = Changes()
    config = Config(carrier="rdd", zookeeper="memory")
    run = builder.build_topology().start(spark, config, [changes])
    changes.wait_for(BatchCommitted)

    spark.stop()
    try:
        run.await_termination(LIMIT_S)
    except Exception as error:  # noqa: BLE001 - the test judges it
        say("ended", error=repr(error), failures=len(changes.of(BatchFailed)))


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
    stop_before_the_restart()
