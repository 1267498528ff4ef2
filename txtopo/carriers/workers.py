"""Checks that the Python of Spark's workers can run a topology, before anything runs.

The session determines which Python that is: ``PYSPARK_PYTHON``, or else the first ``python3`` in
``PATH`` on the worker's machine. The latter lacks all packages if the driver's virtual environment
is not activated. So if the workers may have another Python than this process, one small job checks
them. It has as many tasks as there are cores, so that each executor gets some. Under Spark Connect
there is no check: any Python there needs pyarrow anyway.

Under a local master the workers run on this machine. If the user chose no Python for them, and the
one that PySpark chose cannot run the topology, they get the Python of this process.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from txtopo import extras
from txtopo.carriers.spark_jobs import failure_of_job
from txtopo.errors import ConfigError, TxtopoError
from txtopo.log_records import logger_of
from txtopo.retries import LOGGER

if TYPE_CHECKING:
    from pyspark import SparkContext

_logger = logger_of(LOGGER)

NEEDED = ("txtopo", "pyarrow")
"""Modules that every topology needs in its workers."""

# What PySpark uses if PYSPARK_PYTHON is not set (pyspark.SparkContext, 4.2).
_DEFAULT = "python3"

# It logs each failed task of the check with a long Java trace.
_NOISY = "org.apache.spark.scheduler.TaskSetManager"

Answer = tuple[str, str, tuple[tuple[str, str], ...]]


class WorkerFinding(NamedTuple):
    """The answer of a worker in one executor.

    Attributes:
        executor: Host and process of the executor.
        python: Path of the worker's interpreter.
        missing: Modules that cannot be imported there, each with the reason.
    """

    executor: str
    python: str
    missing: tuple[tuple[str, str], ...]


def check_workers(context: SparkContext, modules: Sequence[str] = ()) -> None:
    """Check that the Python of the workers can import every module that a topology needs.

    Under a local master, if the user chose no Python for the workers and theirs lacks a module,
    they get the Python of this process. This is logged at level INFO.

    Args:
        context: The Spark context.
        modules: Required modules in addition to :data:`NEEDED`.

    Raises:
        ConfigError: A worker lacks a module, has another version of Python, or cannot start; the
            message says what to set.
        RunLostError: The job of the check was lost or cancelled; start again.
    """
    remote = is_remote(context.master or "")
    try:
        if remote or not _is_this_environment(context.pythonExec):
            check_findings(ask_workers(context, (*NEEDED, *modules)), remote=remote)
    except ConfigError as error:
        if remote or "PYSPARK_PYTHON" in os.environ or context.pythonExec != _DEFAULT:
            raise
        context.pythonExec = sys.executable
        _logger.info(
            "the workers of this session use %s from now on, like this process, since %s",
            sys.executable,
            error,
        )


def is_remote(master: str) -> bool:
    """Return whether the workers of a master may be on another machine than this process."""
    return not master.startswith("local") or master.startswith("local-cluster")


def _is_this_environment(python: str) -> bool:
    """Return whether a command on this machine starts a Python of this process's environment.

    Raises:
        ConfigError: It does not start Python, or starts another version. A job would fail.
    """
    found = shutil.which(python) or python
    if all(
        os.path.realpath(part(found)) == os.path.realpath(part(sys.executable))
        for part in (os.path.dirname, os.path.abspath)  # one file may be in two environments
    ):
        return True
    code = "import sys; print('%d.%d' % sys.version_info[:2]); print(sys.prefix)"
    try:
        done = subprocess.run([found, "-c", code], capture_output=True, text=True)
        version, _, prefix = done.stdout.strip().partition("\n")
        reason = f"version {version}" if version else f"exit code {done.returncode}"
    except OSError as error:
        version, prefix, reason = "", "", os.strerror(error.errno or 0)
    if version != _VERSION:
        raise _unfit(found, reason, remote=False)
    return prefix == sys.prefix


def ask_workers(context: SparkContext, modules: Sequence[str]) -> list[WorkerFinding]:
    """Run the job that checks the workers, and return their answers.

    Raises:
        ConfigError: A worker has another version of Python, or cannot start.
        RunLostError: The job was lost or cancelled.
    """
    tasks = context.defaultParallelism
    try:
        with _quiet(context):
            asked = context.parallelize(range(tasks), tasks).mapPartitions(_question(modules))
            return [WorkerFinding(*each) for each in asked.collect()]
    except Exception as error:
        failure = failure_of_job(error, "txtopo:workers")
        reason = _reason(failure, str(error))
        if reason is None:
            raise failure from error
    # Without "from error": its text has a hundred lines of Java, and only one names the reason.
    raise _unfit(context.pythonExec, reason, remote=is_remote(context.master or ""))


def check_findings(findings: Iterable[WorkerFinding], *, remote: bool) -> None:
    """Check that no module is missing.

    Args:
        findings: The answers of the workers.
        remote: Whether they may be on other machines.

    Raises:
        ConfigError: A module is missing; the message says where, and what to do.
    """
    lacking = {each.executor: each for each in findings if each.missing}
    if not lacking:
        return
    first = lacking[min(lacking)]
    modules = sorted({name for each in lacking.values() for name, _ in each.missing})
    reasons = "; ".join(f"{name}: {reason}" for name, reason in first.missing)
    raise ConfigError(
        f"the workers cannot import {', '.join(modules)}; got, on {first.executor} with "
        f"{first.python}, {reasons}"
        + (f", and similarly on {len(lacking) - 1} more" if len(lacking) > 1 else "")
        + f"; expected the modules of the driver; {_advice(frozenset(modules), remote=remote)}",
        modules=tuple(modules),
        executors=tuple(sorted(lacking)),
    )


_VERSION = "{}.{}".format(*sys.version_info[:2])


def _advice(missing: frozenset[str] = frozenset(), *, remote: bool) -> str:
    here = f"export PYSPARK_PYTHON={sys.executable} before the session is created"
    if not remote:
        return here
    install = extras.advice(missing) or "pip"
    return (
        f"{here}, if the executors have this path; or install the driver's packages there with "
        f"{install}, or ship them: venv-pack -o environment.tar.gz, "
        "spark.archives=environment.tar.gz#environment "
        "and PYSPARK_PYTHON=./environment/bin/python (with spark-submit --archives, and "
        "PYSPARK_DRIVER_PYTHON=python as well); "
        "--py-files cannot ship wheels with compiled code"
    )


def _unfit(python: str, reason: str, *, remote: bool) -> ConfigError:
    return ConfigError(
        f"the workers cannot run this topology with {python}; got {reason}; expected Python "
        f"{_VERSION}, as in the driver; {_advice(remote=remote)}",
        setting="PYSPARK_PYTHON",
    )


# Texts of java.lang.ProcessBuilder and of PySpark's PythonWorkerFactory (Spark 4.2).
_NO_PROGRAM = re.compile(r"Cannot run program .*?error=\d+, (.*)")
_NO_DAEMON = re.compile(r"Error from python worker:\s(.*?)\sPYTHONPATH was:", re.S)


def _reason(failure: TxtopoError, text: str) -> str | None:
    """Return what is wrong with the Python of the workers; None if the failure has another cause.

    Args:
        failure: The txtopo error for the failure of the job.
        text: The text of Spark's error.
    """
    if isinstance(failure, ConfigError):
        return f"version {failure.got}"
    program = _NO_PROGRAM.search(text)
    if program is not None:
        return program[1]
    daemon = _NO_DAEMON.search(text)
    return None if daemon is None else daemon[1].strip().rpartition("\n")[2].strip()


@contextmanager
def _quiet(context: SparkContext) -> Iterator[None]:
    """Keep Spark from logging each failed task with a Java trace, in the ``with`` block only."""
    from py4j.protocol import Py4JError

    log4j: Any = context._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    try:
        context_of_loggers = log4j.LogManager.getContext(False)
        known = context_of_loggers.getConfiguration().getLoggers().get(_NOISY)
        level = None if known is None else known.getLevel()
        log4j.core.config.Configurator.setLevel(_NOISY, log4j.Level.OFF)
    except (Py4JError, TypeError):
        yield  # this Spark does not log with log4j 2
        return
    try:
        yield
    finally:
        if level is None:
            context_of_loggers.getConfiguration().removeLogger(_NOISY)
            context_of_loggers.updateLoggers()
        else:
            log4j.core.config.Configurator.setLevel(_NOISY, level)


def _question(modules: Sequence[str]) -> Callable[[Iterable[int]], Iterator[Answer]]:
    """Return the function that the tasks run; it is nested, so it is pickled without txtopo."""
    names = list(modules)

    def answer(_: Iterable[int]) -> Iterator[Answer]:
        import importlib
        import os
        import platform
        import sys

        missing = []
        for name in names:
            try:
                importlib.import_module(name)
            except Exception as error:  # noqa: BLE001 - a broken library may raise anything
                missing.append((name, f"{type(error).__name__}: {error}"))
        executor = f"{platform.node()}, process {os.getppid()}"
        yield executor, sys.executable, tuple(missing)

    return answer
