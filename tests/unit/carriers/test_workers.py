"""What the workers' Python lacks is told at the start, with what to set or to ship."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

import txtopo
from txtopo.carriers.workers import (
    _NOISY,
    NEEDED,
    WorkerFinding,
    _question,
    _quiet,
    _reason,
    ask_workers,
    check_findings,
    check_workers,
    is_remote,
)
from txtopo.errors import ConfigError, RunLostError, TopologyError
from txtopo.spouts import DataSourceSpout, FilesTransactionalSpout
from txtopo.stages.pickling import dumps

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


def finding(executor: str, *missing: str) -> WorkerFinding:
    return WorkerFinding(
        executor, "python3", tuple((name, "ModuleNotFoundError") for name in missing)
    )


def test_what_is_missing_is_told_with_what_to_ship() -> None:
    findings = [finding("b", "pyarrow"), finding("a", "pyarrow", "confluent_kafka"), finding("c")]

    with pytest.raises(ConfigError) as told:
        check_findings(findings, remote=True)
    text = str(told.value)
    assert "the workers cannot import confluent_kafka, pyarrow; got, on a with python3" in text
    assert "and similarly on 1 more" in text
    assert "spark.archives=environment.tar.gz#environment" in text
    assert told.value.executors == ("a", "b")


def test_executors_that_have_everything_are_fine() -> None:
    check_findings([finding("a"), finding("b")], remote=True)


@pytest.mark.integration
def test_the_question_runs_where_there_is_no_txtopo() -> None:
    """It is pickled by value, and imports nothing but the standard library by itself."""
    pickled = dumps(_question([*NEEDED, "no_such_client"]))
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


def test_workers_of_local_masters_are_on_this_machine() -> None:
    masters = ["local", "local[2]", "local[*]", "local-cluster[2,1,1024]", "yarn", "spark://h:7077"]

    assert [is_remote(master) for master in masters] == [False, False, False, True, True, True]


def test_a_spout_names_what_its_tasks_import() -> None:
    from tests.unit.sources.data_sources import LinesSource

    source = DataSourceSpout(LinesSource, {})
    assert source.client_modules == ("pyspark.sql.datasource", "tests.unit.sources.data_sources")
    assert FilesTransactionalSpout.client_modules == ()


def test_every_task_of_the_job_answers(spark: SparkSession) -> None:
    found = ask_workers(spark.sparkContext, [*NEEDED, "no_such_client"])

    assert len(found) == spark.sparkContext.defaultParallelism
    for each in found:
        assert [name for name, _ in each.missing] == ["no_such_client"]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a virtual environment of this version of Python, without any package."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False)
    return folder / "bin" / "python3"


@pytest.fixture
def context(spark: SparkSession) -> Iterator[SparkContext]:
    """Yield a context whose Python a test may change."""
    before = spark.sparkContext.pythonExec
    yield spark.sparkContext
    spark.sparkContext.pythonExec = before


def test_a_python_of_another_environment_is_refused_before_anything_runs(
    context: SparkContext, bare: Path
) -> None:
    context.pythonExec = str(bare)

    with pytest.raises(ConfigError, match="the workers cannot import pyarrow") as told:
        check_workers(context)
    assert str(bare) in str(told.value)
    assert f"export PYSPARK_PYTHON={sys.executable}" in str(told.value)
    assert "venv-pack" not in str(told.value), "the workers are on this machine"
    assert context.pythonExec == str(bare), "what the user named is kept"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 3.4; echo /elsewhere", "version 3.4"),
        ("exit 3", "exit code 3"),
        (None, "No such file or directory"),
    ],
)
def test_a_python_that_cannot_run_the_topology_is_refused_without_a_job(
    context: SparkContext, tmp_path: Path, script: str | None, reason: str
) -> None:
    """A job that fails would log pages of Java."""
    python = tmp_path / "python"
    if script is not None:
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
    context.pythonExec = str(python)
    jobs = context.statusTracker().getJobIdsForGroup(None)

    with pytest.raises(ConfigError, match=f"got {reason}; expected Python 3"):
        check_workers(context)
    assert context.statusTracker().getJobIdsForGroup(None) == jobs


def test_this_environment_is_not_asked_by_whatever_path_it_is_found(
    context: SparkContext, tmp_path: Path
) -> None:
    """As with the shims of pyenv: a script elsewhere, which starts this very environment."""
    shim = tmp_path / "python"
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    shim.chmod(0o755)
    jobs = context.statusTracker().getJobIdsForGroup(None)

    for python in (sys.executable, str(shim)):
        context.pythonExec = python
        check_workers(context, ["no_such_client"])
    assert context.statusTracker().getJobIdsForGroup(None) == jobs


def test_what_spark_says_of_a_python_that_cannot_start_becomes_the_reason(
    context: SparkContext,
) -> None:
    context.pythonExec = "/nowhere/python"

    with pytest.raises(ConfigError, match="got No such file or directory; expected") as told:
        ask_workers(context, NEEDED)
    assert told.value.__cause__ is None, "a hundred lines of Java"


def test_the_reason_is_the_last_line_of_a_daemon_that_ended() -> None:
    text = (
        "org.apache.spark.SparkException: \nError from python worker:\n  Traceback (most recent "
        "call last):\n    import x\n  ModuleNotFoundError: No module named 'importlib.resources'\n"
        "PYTHONPATH was:\n  /x\norg.apache.spark.SparkException: EOFException occurred while"
    )

    assert _reason(TopologyError(), text) == (
        "ModuleNotFoundError: No module named 'importlib.resources'"
    )
    assert _reason(RunLostError("", tag="", counted=False, cancelled=True), "Cancelled") is None


@pytest.mark.parametrize("level", ["WARN", None])
def test_the_log_of_spark_is_as_it_was_after_the_question(
    context: SparkContext, level: str | None
) -> None:
    log4j = context._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    loggers = log4j.LogManager.getContext(False).getConfiguration()
    if level is not None:
        log4j.core.config.Configurator.setLevel(_NOISY, log4j.Level.toLevel(level))

    with _quiet(context):
        quiet = loggers.getLoggers().get(_NOISY).getLevel().toString()
    found = loggers.getLoggers().get(_NOISY)

    loggers.removeLogger(_NOISY)
    assert (quiet, found and found.getLevel().toString()) == ("OFF", level)


@pytest.mark.slow
@pytest.mark.spark
def test_a_local_session_of_an_environment_that_is_not_activated_runs(
    bare: Path, tmp_path: Path
) -> None:
    """The user's own session, whose workers would have the first python3 of PATH."""
    environment = {**os.environ, "PATH": f"{bare.parent}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("PYSPARK_PYTHON", None)

    done = subprocess.run(
        [sys.executable, "-c", NOT_ACTIVATED],
        env={**environment, "PYTHONPATH": str(Path(txtopo.__file__).parents[1])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["python3", sys.executable, "pyarrow"]
    assert "\tat org.apache" not in done.stderr
    assert f"the workers of this session use {sys.executable} from now on" in done.stderr


NOT_ACTIVATED = """
import logging, sys
from pyspark.sql import SparkSession
from txtopo.carriers.workers import check_workers

logging.basicConfig(level=logging.INFO)
context = SparkSession.builder.master("local[1]").getOrCreate().sparkContext
print(context.pythonExec)
check_workers(context)
print(context.pythonExec)
print(context.parallelize([0], 1).map(lambda _: __import__("pyarrow").__name__).collect()[0])
"""
