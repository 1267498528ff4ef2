"""SparkJobs: how the jobs of a carrier are named, tagged, pooled and cancelled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from txtopo.errors import RunLostError, TxtopoError
from txtopo.runtime.spark_failures import failure_of_job
from txtopo.stages.program import Chain, Run

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
