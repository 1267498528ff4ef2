"""A process of its own: a run that is to be started again, whose Spark session is stopped."""

from __future__ import annotations

from tests.harness.polling import LIMIT_S
from tests.harness.processes import say
from tests.harness.runs import Changes
from tests.harness.spark_session import open_test_session
from txtopo import (
    BasicBolt,
    Config,
    Fields,
    Restart,
    Restarting,
    TransactionalTopologyBuilder,
    Tuple,
)
from txtopo.collector import BatchOutputCollector
from txtopo.spouts import MemoryTransactionalSpout


class Failing(BasicBolt):
    """Raises an exception that may pass."""

    output_fields = Fields("word string")

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        raise ConnectionError("the service is away")


def main() -> None:
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
        say("ended", error=repr(error), restarts=len(changes.of(Restarting)))


if __name__ == "__main__":
    main()
