from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.stages.running import run_of
from txtopo.carriers.spark_jobs import NoLabels, SparkJobs, failure_of_job
from txtopo.errors import BoltError, ConfigError, DriverMemoryError, RunLostError, TopologyError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA = "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
PYTHON = (
    JAVA + ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 failed\n"
    'Traceback (most recent call last):\n  File "worker.py", line 3622, in main\n'
)


@pytest.mark.row(21)
def test_a_worker_that_died_counts() -> None:
    text = JAVA + ": org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)."

    error = failure_of_job(RuntimeError(text), "tag")

    assert isinstance(error, RunLostError)
    assert error.facts == {"tag": "tag", "counted": True, "cancelled": False}
    assert "got Python worker exited unexpectedly (crashed).;" in str(error)


@pytest.mark.row(18)
def test_a_lost_executor_does_not_count() -> None:
    text = JAVA + (
        ": org.apache.spark.SparkException: Job aborted due to stage failure: ExecutorLostFailure "
        "(executor 1 exited, caused by one of the tasks) Reason: Command exited with code 137"
    )

    error = failure_of_job(RuntimeError(text), "tag")

    assert isinstance(error, RunLostError)
    assert error.facts["counted"] is False


def test_a_spark_connect_server_that_is_away_does_not_count_and_is_named() -> None:
    """The text is gRPC's, of which the first line says nothing."""
    text = (
        "<_InactiveRpcError of RPC that terminated with:\n\tstatus = StatusCode.UNAVAILABLE\n"
        '\tdetails = "failed to connect to all addresses; last error: ipv4:127.0.0.1:15002"\n>'
    )
    error = failure_of_job(RuntimeError(text), "tag")

    assert isinstance(error, RunLostError)
    assert error.facts["counted"] is False
    assert "got failed to connect to all addresses; last error: ipv4:127.0.0.1" in str(error)


def test_a_job_cancelled_by_somebody_else_is_told_as_cancelled() -> None:
    text = (
        JAVA + ": org.apache.spark.SparkException: [SPARK_JOB_CANCELLED] Job 3 cancelled  SQLSTATE"
    )

    error = failure_of_job(RuntimeError(text), "tag")

    assert isinstance(error, RunLostError)
    assert error.facts["cancelled"] is True


def test_a_module_that_workers_lack_is_named_with_the_way_to_send_it() -> None:
    text = PYTHON + "ModuleNotFoundError: No module named 'flights.bolts'\n"

    error = failure_of_job(RuntimeError(text), "tag")

    assert isinstance(error, TopologyError)
    assert error.facts["module"] == "flights.bolts"
    assert "--py-files" in str(error)


def test_python_that_fails_outside_of_bolts_is_not_tried_again() -> None:
    text = (
        PYTHON
        + "AttributeError: Can't get attribute 'Bolt' on module\n SQLSTATE: 38000\n\tat a.b\n"
    )

    error = failure_of_job(RuntimeError(text), "tag")

    assert isinstance(error, BoltError)
    assert "got AttributeError: Can't get attribute 'Bolt' on module;" in str(error)


@pytest.mark.parametrize(
    "text",
    [
        PYTHON + "struct.error: 'i' format requires -2147483648 <= number <= 2147483647\n",
        JAVA + "java.lang.OutOfMemoryError: Requested array size exceeds VM limit",
        JAVA + "java.lang.NegativeArraySizeException: -2094967296",
    ],
)
def test_a_message_beyond_two_gigabytes_is_not_tried_again(text: str) -> None:
    error = failure_of_job(RuntimeError(text), "tag")

    assert isinstance(error, BoltError)
    assert "made a message of more than 2 GiB" in str(error)
    assert "cut smaller batches" in str(error)


@pytest.mark.spark
@pytest.mark.parametrize("carrier", ["rdd", "dataframe"])
def test_results_beyond_what_the_driver_takes_name_the_setting(
    spark: SparkSession, carrier: str
) -> None:
    """They are as large the next time: it was tried for ever."""
    conf: Any = spark.sparkContext._jsc.sc().conf()
    right = conf.get("spark.driver.maxResultSize", "1g")
    conf.set("spark.driver.maxResultSize", "100k")
    rdd = spark.sparkContext.parallelize(range(2), 2).map(lambda _: "x" * 200_000)
    frame = spark.range(2).selectExpr("repeat(string(id), 200000)")
    collect: Any = rdd.collect if carrier == "rdd" else frame.toArrow
    try:
        with pytest.raises(Exception, match="maxResultSize") as caught:
            collect()
    finally:
        conf.set("spark.driver.maxResultSize", right)

    assert isinstance(caught.value, Exception)
    error = failure_of_job(caught.value, "tag")

    assert isinstance(error, DriverMemoryError)
    assert error.facts["setting"] == "spark.driver.maxResultSize"
    assert "(100.0 KiB); raise spark.driver.maxResultSize" in str(error)


def test_a_stopped_session_is_an_error_only_while_a_job_is_in_flight() -> None:
    """A run that has nothing to do may be stopped after its session."""

    class Stopped(NoLabels):
        stopped = True

    jobs = SparkJobs(Stopped(), "words")

    jobs.check_session()
    with (
        jobs.labelled(run_of(1), "processing"),
        pytest.raises(ConfigError, match="stopped while the topology was running on it"),
    ):
        jobs.check_session()
    jobs.check_session()
