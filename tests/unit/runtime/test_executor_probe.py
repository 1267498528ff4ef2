"""What executors lack is told at the start, with what to ship."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pyspark
import pytest

from txtopo.errors import ConfigError
from txtopo.runtime.session import (
    NEEDED,
    ExecutorFinding,
    _probe,
    ask_executors,
    check_findings,
    is_remote,
)
from txtopo.spouts import DataSourceSpout, FilesTransactionalSpout
from txtopo.stages.pickling import dumps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def finding(executor: str, *missing: str) -> ExecutorFinding:
    return ExecutorFinding(
        executor, "python3", tuple((name, "ModuleNotFoundError") for name in missing)
    )


def test_what_is_missing_is_told_with_what_to_ship() -> None:
    findings = [finding("b", "pyarrow"), finding("a", "pyarrow", "confluent_kafka"), finding("c")]

    with pytest.raises(ConfigError) as told:
        check_findings(findings)
    text = str(told.value)
    assert "executors cannot import confluent_kafka, pyarrow; got, on a with python3" in text
    assert "and the like on 1 more" in text
    assert "spark.archives=environment.tar.gz#environment" in text
    assert told.value.executors == ("a", "b")


def test_executors_that_have_everything_are_fine() -> None:
    check_findings([finding("a"), finding("b")])


def test_the_probe_runs_where_there_is_no_txtopo() -> None:
    """It is pickled by value, and imports nothing but the standard library by itself."""
    pickled = dumps(_probe([*NEEDED, "no_such_client"]))
    code = (
        "import pickle, sys; probe = pickle.loads(sys.stdin.buffer.read()); "
        "[(_, _, missing)] = probe([]); print([name for name, _ in missing])"
    )

    path = pyspark.__path__[0].rpartition("/")[0]
    blocked = "import sys; sys.modules['txtopo'] = None; sys.modules['pyarrow'] = None; "
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"{blocked}sys.path.append({path!r}); {code}"],
        input=pickled,
        capture_output=True,
        check=True,
    )
    assert done.stdout.decode().strip() == "['txtopo', 'pyarrow', 'no_such_client']"


def test_workers_of_this_machine_are_not_asked() -> None:
    masters = ["local", "local[2]", "local[*]", "local-cluster[2,1,1024]", "yarn", "spark://h:7077"]

    assert [is_remote(master) for master in masters] == [False, False, False, True, True, True]


def test_a_spout_names_what_its_tasks_import() -> None:
    from tests.unit.spouts.data_sources import LinesSource

    source = DataSourceSpout(LinesSource, {})
    assert source.client_modules == ("pyspark.sql.datasource", "tests.unit.spouts.data_sources")
    assert FilesTransactionalSpout.client_modules == ()


def test_every_task_of_the_job_answers(spark: SparkSession) -> None:
    found = ask_executors(spark.sparkContext, [*NEEDED, "no_such_client"])

    assert len(found) == spark.sparkContext.defaultParallelism
    for each in found:
        assert [name for name, _ in each.missing] == ["no_such_client"]
