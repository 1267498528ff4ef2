"""Spark jobs: how they are labelled and cancelled, and what the failure of a job means.

User code never raises inside a task: its exceptions are sent to the driver as data. So a job fails
for one of these reasons:

* A Python worker died, for example from a segmentation fault or because it ran out of memory. The
  batch may be the cause, so the failure counts towards ``attempts_max``.
* Python raised outside of user code: the workers have another version of Python, a module is
  missing, or an object cannot be unpickled. A retry cannot help.
* The job moves more than Spark can move: its results exceed ``spark.driver.maxResultSize``, or a
  message exceeds 2 GiB. The batch would have the same size again, so a retry cannot help.
* The session was stopped, by the program or by Spark, or its Spark Connect server was restarted.
  The session cannot run another job, so the run ends. A job that is submitted while the session is
  being stopped may not even fail: see :meth:`SparkJobs.check_session`.
* Anything else: an executor was lost, or shuffle files are missing. The batch is not the cause, so
  the failure does not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from txtopo.carriers.carrier import CancelledTags
from txtopo.carriers.session import is_stopped
from txtopo.carriers.spark_log import hide_expected_lines
from txtopo.errors import BoltError, ConfigError, DriverMemoryError, RunLostError, TxtopoError
from txtopo.stages.compiled_topology import Chain, Run
from txtopo.stages.user_errors import missing_module

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

# A commit is short and all later commits wait for it, so commits have a separate pool. Within a
# pool Spark runs the older job first, which has the lower txids.
POOLS: dict[Chain, str] = {"processing": "txtopo-processing", "commit": "txtopo-commit"}


class Labels(Protocol):
    """Labels jobs, and cancels them by label, for one kind of Spark session."""

    def put_on(self, tag: str, description: str, pool: str) -> None:
        """Label the jobs that this thread starts from now on."""
        ...

    def take_off(self, tag: str) -> None:
        """Remove the label from this thread."""
        ...

    def cancel(self, tag: str) -> None:
        """Cancel the jobs with this tag."""
        ...

    @property
    def stopped(self) -> bool:
        """Whether the session was stopped, so that it runs no job any more."""
        ...


class SparkJobs:
    """Labels the jobs that a thread starts, and cancels them from another thread.

    Spark's local properties are set on the thread that starts a job. They are cleared when the job
    has ended, so that the thread can be used for the next run.
    """

    def __init__(self, labels: Labels, topology_id: str) -> None:
        self._labels = labels
        self._topology_id = topology_id
        self._active: set[str] = set()
        self._cancelled = CancelledTags()

    @contextmanager
    def labelled(self, run: Run, chain: Chain) -> Iterator[None]:
        """Label the jobs started in the ``with`` block, and turn their failures into txtopo errors.

        Raises:
            RunLostError: A job failed or was cancelled, and no batch is known to be the cause.
            ConfigError: The session was stopped; start the topology with another one.
            TopologyError: Workers cannot import a module; repair the session.
            BoltError: Python raised any other exception in a worker.
        """
        tag = run.tag_of(chain)
        self._cancelled.check(tag)
        self._active.add(tag)
        try:
            self._labels.put_on(tag, _description(self._topology_id, run, chain), POOLS[chain])
            # A cancellation before the labels were set found no job.
            self._cancelled.check(tag)
            yield
            self._cancelled.check(tag)
        except TxtopoError:
            raise  # it already is an error of txtopo
        except Exception as error:
            self._cancelled.check(tag, error)
            if self._labels.stopped:
                raise session_stopped() from error
            raise failure_of_job(error, tag) from error
        finally:
            self._active.discard(tag)
            self._labels.take_off(tag)

    def cancel(self, tag: str) -> None:
        """Cancel the jobs with this tag, including jobs that are about to start."""
        self._cancelled.add(tag)
        self._labels.cancel(tag)

    def check_session(self) -> None:
        """Check that the session was not stopped while a job is in flight.

        Spark refuses jobs once it is being stopped. But a job that it has admitted right before may
        reach its scheduler after that was stopped. The scheduler drops it without an answer
        (``EventLoop`` of Spark 4.2), and the thread that has submitted it waits for ever.

        Raises:
            ConfigError: It was stopped; start the topology with another one.
        """
        if self._active and self._labels.stopped:
            raise session_stopped()

    def cancel_all(self) -> None:
        """Cancel all running jobs."""
        for tag in list(self._active):
            self.cancel(tag)


class ClassicLabels:
    """Labels of a ``SparkContext``."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        # A cancelled group stays cancelled as long as the context lives. A topology that is started
        # again without ZooKeeper uses the same tags again. So the id of an RDD is added to them,
        # which Spark never uses twice.
        self._start = context.emptyRDD().id()
        hide_expected_lines(context)

    def put_on(self, tag: str, description: str, pool: str) -> None:
        """Set job group, tag, description and pool of this thread."""
        self._context.setJobGroup(self._group(tag), description, interruptOnCancel=True)
        self._context.addJobTag(tag)
        self._context.setLocalProperty("spark.scheduler.pool", pool)

    def take_off(self, tag: str) -> None:
        """Clear group, tag, description and pool. A stopped context has nothing to clear."""
        java = self._context._jsc
        if java is not None:
            java.clearJobGroup()
            self._context.removeJobTag(tag)
            self._context.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]

    def cancel(self, tag: str) -> None:
        """Cancel the jobs of the group, and all jobs that are started in it later.

        Spark forgets a cancelled tag at once, so a job that another thread is about to start would
        still run. A cancelled group stays cancelled. PySpark does not have a method for this yet.
        """
        java = self._context._jsc  # None as soon as another thread has stopped the session
        if java is not None and not java.sc().isStopped():
            java.sc().cancelJobGroupAndFutureJobs(self._group(tag))

    @property
    def stopped(self) -> bool:
        """Whether the context was stopped."""
        return is_stopped(self._context)

    def _group(self, tag: str) -> str:
        return f"{tag}#{self._start}"


class ConnectLabels:
    """Labels of a Spark Connect session, which has tags but neither groups nor pools.

    Not guaranteed: a job that is on its way to the server when it is cancelled may run to its end.
    Its result is then discarded.
    """

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def put_on(self, tag: str, description: str, pool: str) -> None:
        """Add the tag to the jobs that this thread starts."""
        self._session.addTag(tag)

    def take_off(self, tag: str) -> None:
        """Remove the tag."""
        self._session.removeTag(tag)

    def cancel(self, tag: str) -> None:
        """Interrupt everything with the tag."""
        self._session.interruptTag(tag)

    @property
    def stopped(self) -> bool:
        """Whether the session was stopped. A server that is only unreachable may come back."""
        return bool(self._session.is_stopped)  # type: ignore[attr-defined]  # of Connect


class NoLabels:
    """Sets no labels: jobs stay in the group of the streaming query, and stop with the query."""

    def put_on(self, tag: str, description: str, pool: str) -> None:
        """Do nothing."""

    def take_off(self, tag: str) -> None:
        """Do nothing."""

    def cancel(self, tag: str) -> None:
        """Do nothing."""

    @property
    def stopped(self) -> bool:
        """Always false, since the query ends with its session."""
        return False


def session_stopped() -> ConfigError:
    """Return the error for a session that was stopped while a topology ran on it."""
    return ConfigError(
        "the Spark session was stopped while the topology was running on it, or its Spark "
        "Connect server was restarted; committed txids stay committed; start the topology with a "
        "new session, and stop a run before its session",
        setting="spark",
    )


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

# grpc.RpcError, when a Spark Connect server does not answer.
_RPC_DETAILS = re.compile(r'^\s*details = "(.*)"$', re.M)

_TEXT_MAX = 2000

_GIST_MAX = 300


def failure_of_job(error: Exception, tag: str) -> TxtopoError:
    """Return the txtopo error for the failure of a job."""
    text = str(error)
    other = _OTHER_PYTHON.search(text)
    if other is not None:
        there, here = other.groups()
        return ConfigError(
            f"the workers have a different version of Python; got {there}; expected {here}, as in "
            "the driver; set PYSPARK_PYTHON or spark.pyspark.python to an interpreter of that "
            "version",
            got=there,
            expected=here,
        )
    large = _too_large(text, tag)
    if large is not None:
        return large
    missing = _MISSING.search(text)
    if missing is not None:
        return missing_module(missing.group(1))
    if any(part in text for part in _CRASHED):
        return RunLostError(
            f"a Python worker of the job {tag} died; got {_gist(text)}; check the executor's "
            "standard error for a crash in a native library or lack of memory",
            tag=tag,
            counted=True,
            cancelled=False,
        )
    if _TRACEBACK in text:
        return BoltError(
            f"Python failed in a worker, outside of bolts; got {_gist(text)}; can every class of "
            "the topology be unpickled there, with the same package versions as here?",
            tag=tag,
            got=text[-_TEXT_MAX:],
        )
    return RunLostError(
        f"the job {tag} failed; got {_gist(text)}; check the Spark job with this tag",
        tag=tag,
        counted=False,
        cancelled="cancelled" in text,
    )


def _too_large(text: str, tag: str) -> TxtopoError | None:
    large = _RESULTS.search(text)
    if large is not None:
        return DriverMemoryError(
            f"the results of the job {tag} are larger than Spark allows the driver to collect; "
            f"got {large[0]}; raise spark.driver.maxResultSize of the session (0 for no limit), "
            "let the spout cut smaller batches, or lower max_spout_pending: up to a third of "
            "that many share a job",
            tag=tag,
            setting="spark.driver.maxResultSize",
        )
    large = _MESSAGES.search(text)
    if large is not None:
        return BoltError(
            f"the job {tag} made a message of more than 2 GiB, which Spark cannot move; got "
            f"{large[0][:_GIST_MAX]}; no setting raises this limit; let the spout cut smaller "
            "batches, lower max_spout_pending (up to a third of that many share a job), or emit "
            "references instead of long values",
            tag=tag,
            got=text[-_TEXT_MAX:],
        )
    return None


def _gist(text: str) -> str:
    """Return the line of a long Java error that names the cause."""
    python = _PYTHON_ERROR.findall(text) if _TRACEBACK in text else []
    spark = _SPARK_ERROR.findall(text)
    remote = _RPC_DETAILS.findall(text)
    lines = python[-1:] or spark[:1] or remote[:1] or text.split("\n")[:1] or ["nothing"]
    # The text is "Job aborted due to …: Task 1 … most recent failure: …SparkException: <cause>".
    return str(lines[0]).rpartition("SparkException: ")[2].strip()[:_GIST_MAX]
