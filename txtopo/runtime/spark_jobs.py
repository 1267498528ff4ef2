"""SparkJobs: how the jobs of a carrier are named, tagged, pooled and cancelled.

What the failure of a Spark job means: a crashed worker, lost infrastructure, or a mistake.

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
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from txtopo.errors import BoltError, ConfigError, DriverMemoryError, RunLostError, TxtopoError
from txtopo.stages.program import Chain, Run
from txtopo.stages.user_errors import missing_module

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

# A commit is short and holds up everything behind it, so it has a pool of its own. Within a pool
# Spark serves the older job first, which is the one with the lower txids.
POOLS: dict[Chain, str] = {"processing": "txtopo-processing", "commit": "txtopo-commit"}

# Cancelled tags are remembered for jobs that were about to start; an abandoned run is never started
# again, so old ones can go.
_CANCELLED_MAX = 1000


class Labels(Protocol):
    """What a kind of Spark calls tagging and cancelling."""

    def put_on(self, tag: str, description: str, pool: str) -> None:
        """Label the jobs that this thread starts from now on."""
        ...

    def take_off(self, tag: str) -> None:
        """Label them no more."""
        ...

    def cancel(self, tag: str) -> None:
        """Cancel the jobs with this tag."""
        ...


class SparkJobs:
    """Labels the jobs that one thread starts, and cancels them from another.

    Used on plain threads of the runtime: Spark's local properties are set on the thread that starts
    the job and cleared again, so a thread can be used for the next run.
    """

    def __init__(self, labels: Labels, topology_id: str) -> None:
        self._labels = labels
        self._topology_id = topology_id
        self._active: set[str] = set()
        self._cancelled: dict[str, None] = {}

    @contextmanager
    def labelled(self, run: Run, chain: Chain) -> Iterator[None]:
        """Label the jobs started inside, and raise what became of them in txtopo's words.

        Raises:
            RunLostError: A job failed or was cancelled without naming a batch.
            TopologyError: Workers cannot import a module; mend the session.
            BoltError: Anything else that Python raised in a worker.
        """
        tag = run.tag_of(chain)
        self._refuse_cancelled(tag)
        self._active.add(tag)
        try:
            self._labels.put_on(tag, _description(self._topology_id, run, chain), POOLS[chain])
            # A cancellation that came before the tag was active has found no job.
            self._refuse_cancelled(tag)
            yield
            self._refuse_cancelled(tag)
        except TxtopoError:
            raise  # it says already what became of it
        except Exception as error:
            self._refuse_cancelled(tag, error)
            raise failure_of_job(error, tag) from error
        finally:
            self._active.discard(tag)
            self._labels.take_off(tag)

    def cancel(self, tag: str) -> None:
        """Cancel the jobs with this tag, also those that are about to start."""
        self._cancelled[tag] = None
        while len(self._cancelled) > _CANCELLED_MAX:
            del self._cancelled[next(iter(self._cancelled))]
        self._labels.cancel(tag)

    def cancel_all(self) -> None:
        """Cancel every job that runs."""
        for tag in list(self._active):
            self.cancel(tag)

    def _refuse_cancelled(self, tag: str, cause: Exception | None = None) -> None:
        if tag in self._cancelled:
            raise RunLostError(
                f"the job {tag} was cancelled", tag=tag, counted=False, cancelled=True
            ) from cause


class ClassicLabels:
    """Labels of a ``SparkContext``."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        # A cancelled group stays cancelled for as long as the context lives, and tags come again
        # when a topology is started again without a ZooKeeper. Ids of RDDs never do.
        self._start = context.emptyRDD().id()

    def put_on(self, tag: str, description: str, pool: str) -> None:
        """Set job group, tag, description and pool of this thread."""
        self._context.setJobGroup(self._group(tag), description, interruptOnCancel=True)
        self._context.addJobTag(tag)
        self._context.setLocalProperty("spark.scheduler.pool", pool)

    def take_off(self, tag: str) -> None:
        """Clear them; a context that was stopped meanwhile has nothing to clear."""
        java = self._context._jsc
        if java is not None:
            java.clearJobGroup()
            self._context.removeJobTag(tag)
            self._context.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]

    def cancel(self, tag: str) -> None:
        """Cancel the group and what will ever start in it.

        By group, not by tag, since Spark forgets a cancelled tag at once: a job that another thread
        is about to start would run. The method has no Python face yet.
        """
        java = self._context._jsc
        if java is not None:
            java.sc().cancelJobGroupAndFutureJobs(self._group(tag))

    def _group(self, tag: str) -> str:
        return f"{tag}#{self._start}"


class ConnectLabels:
    """Labels of a Spark Connect session, which has tags but neither groups nor pools.

    Not guaranteed: that a job is stopped which is on its way to the server while it is cancelled.
    It then runs to its end, and its result is thrown away.
    """

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def put_on(self, tag: str, description: str, pool: str) -> None:
        """Add the tag to what this thread starts."""
        self._session.addTag(tag)

    def take_off(self, tag: str) -> None:
        """Remove it."""
        self._session.removeTag(tag)

    def cancel(self, tag: str) -> None:
        """Interrupt everything with the tag."""
        self._session.interruptTag(tag)


class NoLabels:
    """Leaves the jobs of a streaming query in its own group: who stops the query stops them."""

    def put_on(self, tag: str, description: str, pool: str) -> None:
        """Do nothing."""

    def take_off(self, tag: str) -> None:
        """Do nothing."""

    def cancel(self, tag: str) -> None:
        """Do nothing."""


def _description(topology_id: str, run: Run, chain: Chain) -> str:
    first, last = run.attempts[0].txid, run.attempts[-1].txid
    txids = f"txid {first}" if first == last else f"txids {first} to {last}"
    return f"{topology_id}: {chain} of {txids}"


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
