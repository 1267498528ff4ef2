"""A driver on a cluster without workers, which counts words once an executor has come by itself."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.harness.processes import ROOT, say
from tests.harness.servers.spark_cluster import SparkCluster
from tests.harness.spark_session import open_test_session
from tests.services.cluster.rounds import SESSION
from txtopo import (
    Config,
    Count,
    Fields,
    PersistentAggregate,
    TransactionalTopologyBuilder,
    open_state,
)
from txtopo.spouts import MemoryTransactionalSpout


def main(folder: Path) -> None:
    words = [["cat"], ["dog"], ["cat"]]
    spout = MemoryTransactionalSpout({0: words}, Fields("word string"), 1)
    builder = TransactionalTopologyBuilder("words", "words", spout)
    state = open_state(f"sqlite:///{folder / 'words.db'}", table="counts")
    counts = builder.set_bolt("counts", PersistentAggregate(state, "word", Count()))
    counts.fields_grouping("words", "word")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    paths = {"spark.executorEnv.PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    with SparkCluster(workers=0) as cluster:
        spark = open_test_session(cluster.url, SESSION | paths)
        port = spark.sparkContext._jsc.sc().conf().get("spark.driver.port")
        say("started", port=port, application=spark.sparkContext.applicationId)
        config = Config(carrier="rdd", zookeeper="memory", slots=1)
        with builder.build_topology().start(spark, config) as run:
            run.process_all_available()
        with state.reader() as reader:
            say("counted", counts=dict(reader.items()))
        os.read(0, 1)
        spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
