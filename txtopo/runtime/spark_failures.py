"""What the failure of a Spark job means: a crashed worker, lost infrastructure, or a mistake.

User code never raises inside a task: its exceptions come back as data. So a job that fails, fails
for one of these reasons:

* a Python worker died (segmentation fault, killed for its memory). This may be the batch's doing,
  so it counts towards ``attempts_max``;
* Python raised outside of user code: the workers have another Python, a module is missing there, or
  an object cannot be unpickled. Trying again cannot help;
* what a job brings is larger than Spark moves: results than ``spark.driver.maxResultSize``, which
  Spark counts for a whole job, or a message than 2 GiB. A batch of a known size is not smaller the
  next time, so trying again cannot help;
* anything else: an executor was lost, shuffle files are gone, Spark was stopped. It says nothing
  about the batch and does not count.
"""

from __future__ import annotations

import re

from txtopo.errors import BoltError, ConfigError, DriverMemoryError, RunLostError, TxtopoError
from txtopo.stages.user_errors import missing_module

# Texts of org.apache.spark.api.python.BasePythonRunner and PythonWorkerFactory (Spark 4.2).
_CRASHED = ("Python worker exited unexpectedly", "Python worker process terminated")
# TaskSetManager.canFetchMoreResults (Spark 4.2).
_RESULTS = re.compile(
    r"Total size of serialized results .*? bigger than \S*maxResultSize \([^)]*\)"
)
# Arrays of bytes have 31 bits, in PySpark's framing, in the JVM and in Arrow's columns there.
_MESSAGES = re.compile(
    r"'i' format requires -2147483648.*"
    r"|Requested array size exceeds VM limit"
    r"|NegativeArraySizeException.*"
    r"|Cannot grow BufferHolder.*"
    r"|OversizedAllocationException.*"
)
_TRACEBACK = "Traceback (most recent call last)"
_MISSING = re.compile(r"No module named '?([\w.]+)'?")
# pyspark.worker_util.check_python_version (Spark 4.2).
_OTHER_PYTHON = re.compile(
    r"Python in worker has different version: (\d+\.\d+) than that in driver: (\d+\.\d+)"
)
_PYTHON_ERROR = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt)\b.*$", re.M)
_SPARK_ERROR = re.compile(r"SparkException: (?!Exception thrown in awaitResult)(.*)")
_TEXT_MAX = 2000
_GIST_MAX = 300


def failure_of_job(error: Exception, tag: str) -> TxtopoError:
    """Return what the failure of a job means, as an error of txtopo's own."""
    text = str(error)
    other = _OTHER_PYTHON.search(text)
    if other is not None:
        there, here = other.groups()
        return ConfigError(
            f"the workers run another Python; got {there} there; expected {here}, as in the "
            "driver; set PYSPARK_PYTHON or spark.pyspark.python to an interpreter of that version",
            there=there,
            here=here,
        )
    large = _too_large(text, tag)
    if large is not None:
        return large
    missing = _MISSING.search(text)
    if missing is not None:
        return missing_module(missing.group(1))
    if any(sign in text for sign in _CRASHED):
        return RunLostError(
            f"a python worker of the job {tag} died; got {_gist(text)}; look at the executor's "
            "standard error for a crash in a native library or a lack of memory",
            tag=tag,
            counted=True,
            cancelled=False,
        )
    if _TRACEBACK in text:
        return BoltError(
            f"python failed in a worker, outside of bolts; got {_gist(text)}; does every class of "
            "the topology unpickle there, under the same versions as here?",
            tag=tag,
            text=text[-_TEXT_MAX:],
        )
    return RunLostError(
        f"the job {tag} failed; got {_gist(text)}; look at the Spark job with this tag",
        tag=tag,
        counted=False,
        cancelled="cancelled" in text,
    )


def _too_large(text: str, tag: str) -> TxtopoError | None:
    large = _RESULTS.search(text)
    if large is not None:
        return DriverMemoryError(
            f"the results of the job {tag} are larger than Spark lets the driver take; got "
            f"{large[0]}; raise spark.driver.maxResultSize of the session (0 for no limit), let "
            "the spout cut smaller batches, or lower run_txids_max, which share a job",
            tag=tag,
            setting="spark.driver.maxResultSize",
        )
    large = _MESSAGES.search(text)
    if large is not None:
        return BoltError(
            f"the job {tag} made a message of more than 2 GiB, which Spark cannot move; got "
            f"{large[0][:_GIST_MAX]}; no setting raises that; let the spout cut smaller batches, "
            "lower run_txids_max, which share a job, or emit where a long value lies",
            tag=tag,
            text=text[-_TEXT_MAX:],
        )
    return None


def _gist(text: str) -> str:
    """Return the line that says what happened, out of a page of Java."""
    python = _PYTHON_ERROR.findall(text) if _TRACEBACK in text else []
    spark = _SPARK_ERROR.findall(text)
    lines = python[-1:] or spark[:1] or text.splitlines()[:1] or ["nothing"]
    # Spark says "Job aborted due to …: Task 1 … most recent failure: …SparkException: what it was".
    return str(lines[0]).rpartition("SparkException: ")[2].strip()[:_GIST_MAX]
