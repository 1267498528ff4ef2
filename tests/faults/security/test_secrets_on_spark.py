"""No command line, setting, event or output of Spark's processes has a password."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.faults.bad_inputs.topologies import summing
from tests.faults.security.ear import Ear
from tests.harness.runs import LOCAL, Storage, on, running
from tests.harness.servers.postgresql import PostgresServer

pytestmark = pytest.mark.spark


def test_a_run_on_spark_tells_no_password(
    spark: SparkSession,
    postgresql: PostgresServer,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The state is opened by the driver, and its declaration travels to the tasks."""
    ear = Ear(caplog, capfd)
    caplog.set_level("INFO", "py4j")
    storage = Storage(postgresql.create_database("spark_secret"))
    topology = summing(storage, [["a", 1], ["b", 2], ["a", 3]])
    with running(topology, storage, on("rdd", LOCAL), spark, [ear]) as run:
        run.process_all_available(120)
        ear.hear(run.last_progress, spark.sparkContext.getConf().getAll())

    assert storage.read("kept") == {"a": 4, "b": 2}
    assert ear.lines_with("pyspark")
    assert ear.lines_with(postgresql.password) == []
