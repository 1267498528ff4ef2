"""A transactional topology on resident slots of a cluster of two workers, one of which is lost for
good. Says on its standard output what it logs, commits and ends with.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path

from tests.harness.processes import say
from tests.harness.servers.spark_cluster import HOSTS, SparkCluster
from tests.harness.spark_session import open_test_session
from txtopo import (
    BasicBolt,
    Config,
    Fields,
    PersistentAggregate,
    Topology,
    TransactionalTopologyBuilder,
    Tuple,
)
from txtopo.carriers import choice
from txtopo.carriers.choice import SessionOffer
from txtopo.collector import BatchOutputCollector
from txtopo.config import Carrier
from txtopo.errors import SlotUnavailable
from txtopo.runtime.progress import BatchCommitted, TopologyEvent, TopologyListener
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.state import Count, open_state

BATCHES = 30
LOST_AFTER = 5
LIMIT_S = 20.0
WORK_S = 0.1
NUMBER = Fields("number long")


class Slowly(BasicBolt):
    """Passes numbers on."""

    output_fields = NUMBER

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        time.sleep(WORK_S)
        collector.emit([tuple["number"]])


def topology(folder: Path) -> Topology:
    numbers = MemoryTransactionalSpout({0: [(number,) for number in range(BATCHES)]}, NUMBER, 1)
    builder = TransactionalTopologyBuilder("lost-worker", "numbers", numbers)
    builder.set_bolt("slowly", Slowly(), 2).shuffle_grouping("numbers")
    state = open_state(f"sqlite:///{folder / 'counts.db'}", table="counts")
    counts = PersistentAggregate(state, "number", Count())
    builder.set_bolt("counts", counts).fields_grouping("slowly", "number")
    return builder.build_topology()


class Telling(TopologyListener):
    """Says what is committed, and loses a worker on the way."""

    def __init__(self, cluster: SparkCluster) -> None:
        self._cluster = cluster

    def on_change(self, change: TopologyEvent) -> None:
        if isinstance(change, BatchCommitted):
            tell("committed", txid=change.progress.txid)
            if change.progress.txid == LOST_AFTER:
                self._cluster.kill_worker(HOSTS[1])
                tell("lost")


class Warnings(logging.Handler):
    """Says what is logged."""

    def emit(self, record: logging.LogRecord) -> None:
        details = {name: vars(record).get(name) for name in ("slot", "slots", "cores", "missing_s")}
        tell("warned", text=record.getMessage(), **details)


def main(carrier: Carrier, folder: Path) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    paths = {"spark.executorEnv.PYTHONPATH": os.pathsep.join([str(Path.cwd()), *sys.path])}
    logging.getLogger("txtopo.runtime").addHandler(Warnings())
    # "auto" would choose slots on this machine only.
    choice.offer_of = lambda session: SessionOffer(classic=True, not_resident="", free=3)
    config = Config(
        carrier=carrier,
        slots=2,
        zookeeper="memory",
        max_spout_pending=3,
        batch_timeout_s=LIMIT_S,
        backoff_s=0.01,
    )
    with SparkCluster() as cluster:
        spark = open_test_session(cluster.url, paths)
        run = topology(folder).start(spark, config, listeners=[Telling(cluster)])
        error: SlotUnavailable | None = None
        try:
            if carrier == "resident":
                run.await_termination(10 * LIMIT_S)
            else:
                run.process_all_available(10 * LIMIT_S)
                run.stop()
        except SlotUnavailable as raised:
            error = raised
        details = {} if error is None else {"text": str(error), **error.facts}
        tell("ended", status=run.status, error=type(error).__name__, **details)
        spark.stop()


def tell(event: str, **details: object) -> None:
    say(event, at_s=time.monotonic(), **details)


if __name__ == "__main__":
    main("auto" if sys.argv[1] == "auto" else "resident", Path(sys.argv[2]))
