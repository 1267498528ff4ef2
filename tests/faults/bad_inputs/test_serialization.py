"""Modules that the workers lack. ``tests/unit/builders`` has the tests of unpicklable objects."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.faults.bad_inputs.evidence import held, nothing_committed
from tests.faults.bad_inputs.numbers import bad_input
from tests.faults.bad_inputs.topologies import keeping
from tests.harness.runs import Storage, on, run_to_end
from txtopo.carriers.spark_jobs import failure_of_job
from txtopo.errors import ConfigError, TopologyError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB = (
    "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
    ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 failed\n"
    'Traceback (most recent call last):\n  File "worker.py", line 3622, in main\n'
)
OTHER_PYTHON = (
    "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in "
    "worker has different version: 3.12 than that in driver: 3.11, PySpark cannot run with "
    "different minor versions.\nPlease check environment variables PYSPARK_PYTHON and "
    "PYSPARK_DRIVER_PYTHON are correctly set.\n"
)


@bad_input(25)
def test_another_python_on_the_workers_is_named_with_both_versions() -> None:
    error = failure_of_job(RuntimeError(JOB + OTHER_PYTHON), "tag")

    assert isinstance(error, ConfigError)
    assert "got 3.12; expected 3.11, as in the driver; set PYSPARK_PYTHON" in str(error)
    assert error.facts == {"got": "3.12", "expected": "3.11"}


@bad_input(25)
@pytest.mark.parametrize("module", ["pyarrow", "numpy", "txtopo.stages"])
def test_a_package_that_txtopo_needs_on_the_workers_is_to_be_installed_there(module: str) -> None:
    """Unlike a module of the user's, it cannot be sent with --py-files."""
    text = f"ModuleNotFoundError: No module named '{module}'\n"

    error = failure_of_job(RuntimeError(JOB + text), "tag")

    assert isinstance(error, TopologyError)
    assert error.module == module
    assert f"cannot import {module!r}, which txtopo needs there; install" in str(error)
    assert "--py-files" not in str(error)


@pytest.mark.slow
@bad_input(25)
def test_spark_really_says_so_and_nothing_is_written(spark: SparkSession, tmp_path: Path) -> None:
    """The driver pretends to be older, since one machine may have one Python."""
    storage = Storage.in_sqlite(tmp_path)
    topology = keeping(storage, [["a", 1]])
    context = spark.sparkContext
    here = context.pythonVer
    context.pythonVer = "3.1"

    try:
        with (
            nothing_committed(storage),
            pytest.raises(ConfigError, match=rf"got {here} there; expected 3.1, as in the driver"),
        ):
            run_to_end(topology, storage, on("rdd"), spark)
    finally:
        context.pythonVer = here
    run_to_end(topology, storage, on("rdd"), spark)
    assert held(storage).rows == {"a": 1}
