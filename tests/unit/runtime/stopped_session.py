"""A process of its own: a run whose Spark session is stopped while it runs."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.harness.polling import LIMIT_S
from tests.harness.processes import say
from tests.harness.runs import Changes
from tests.harness.spark_session import open_test_session
from txtopo import (
    BatchFailed,
    Config,
    Count,
    Fields,
    PersistentAggregate,
    TransactionalTopologyBuilder,
    open_state,
)
from txtopo.runtime.progress import BatchCommitted
from txtopo.spouts import MemoryTransactionalSpout

WORDS = 2_000


def main(folder: Path) -> None:
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


if __name__ == "__main__":
    main(Path(sys.argv[1]))
