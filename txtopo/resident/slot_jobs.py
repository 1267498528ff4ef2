"""SlotJobs: one Spark job with one task for each slot, if the session has room for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from txtopo.carriers.session import is_classic, is_stopped
from txtopo.carriers.spark_jobs import ClassicLabels, failure_of_job
from txtopo.carriers.spark_task import PackedTopology
from txtopo.clock import sleep
from txtopo.errors import ConfigError, TooFewCores
from txtopo.resident.sockets import Keys
from txtopo.runtime.scheduler import ThreadScheduler
from txtopo.stages.compiled_topology import CompiledTopology

if TYPE_CHECKING:
    from pyspark import Broadcast, SparkContext
    from pyspark.sql import SparkSession

Work = Literal["bolts", "stages"]
"""What slots do: host the bolts and spouts of an at-least-once topology, or compute stages."""
# Ten pings. Long enough for a driver that collects garbage, but short enough not to block a core
# for nothing.
SILENCE_S = 10.0


POOL = "txtopo-resident"
# Executors of a new session register one after the other.
EXECUTORS_WAIT_MS = 10_000
# Tasks of a job that was just cancelled may still run: Spark gives a worker 2 s to end, and needs
# some more seconds itself on an overloaded machine.
TASKS_WAIT_MS = 10_000
_LOOK_MS = 200


class Cores(NamedTuple):
    """Tasks that the session's executors can run at the same time."""

    all: int
    free: int


class SlotJobRunner(Protocol):
    """Runs the tasks of slots: :class:`SlotJobs`, threads in tests, or a simulation."""

    @property
    def stopped(self) -> bool:
        """Whether no task can run any more."""
        ...

    @property
    def host(self) -> str:
        """The driver's host, as tasks reach it."""
        ...

    @property
    def bind_host(self) -> str:
        """The address on which the driver listens."""
        ...

    def start(self, compiled: CompiledTopology) -> None:
        """Receive the compiled topology."""
        ...

    def run(self, slot: int, submission: int, keys: Keys, driver: str) -> None:
        """Run the task of a slot and wait for its end. Called on a separate thread.

        Raises:
            RunLostError: The task was lost; run it again.
            TxtopoError: It cannot run.
        """
        ...

    def cancel(self, slot: int, submission: int) -> None:
        """Cancel the task of a slot, even if it is only about to start."""
        ...

    def cores(self) -> Cores:
        """Return how many tasks can run at the same time. Called on a separate thread."""
        ...

    def close(self) -> None:
        """Release all resources."""
        ...


class SlotJobs:
    """Runs the jobs of slots on classic Spark.

    Args:
        session: The session.
        work: What the slots do.

    Raises:
        ConfigError: The session is of Spark Connect.
    """

    def __init__(self, session: SparkSession, work: Work) -> None:
        if not is_classic(session):
            raise ConfigError(
                "carrier 'resident' needs classic Spark; got a Spark Connect session, which cannot "
                "run a function for the lifetime of a topology, and whose driver cannot be "
                "reached; use carrier='local', or a classic session",
                setting="carrier",
            )
        self._work = work
        self._context: SparkContext = session.sparkContext
        self._labels = ClassicLabels(self._context)

    @property
    def stopped(self) -> bool:
        """Whether the session was stopped."""
        return is_stopped(self._context)

    @property
    def host(self) -> str:
        """The driver's host, as executors reach it."""
        return self._setting("spark.driver.host", "127.0.0.1")

    @property
    def bind_host(self) -> str:
        """The address on which the driver listens."""
        return self._setting("spark.driver.bindAddress", self.host)

    def fit(self, wanted: int | None) -> int:
        """Return how many slots there will be.

        Args:
            wanted: The number that the user has set; None for one on each free core.

        Raises:
            TooFewCores: Fewer cores are free; a slot occupies its core as long as the run lives.
        """
        cores = self.cores()
        if wanted is not None and self._grows():
            return wanted
        waited_ms = 0
        while cores.free < (wanted or 1) and waited_ms < self._patience_ms(cores, wanted or 1):
            sleep(_LOOK_MS / 1000)
            waited_ms += _LOOK_MS
            cores = self.cores()
        if cores.free < (wanted or 1):
            raise TooFewCores(
                f"there are more slots than free cores; got slots={wanted or 1} with {cores.free} "
                f"free of {cores.all} cores; each slot of carrier 'resident' occupies a core for "
                "as long as the topology runs; use fewer with Config(slots=…), give the session "
                "more cores, or stop other work on it",
                slots=wanted,
                free=cores.free,
                cores=cores.all,
            )
        return wanted or cores.free

    def start(self, compiled: CompiledTopology) -> None:
        """Broadcast the compiled topology."""
        self._topology_id = compiled.topology_id
        self._packed = self._context.broadcast(PackedTopology.of(compiled))

    def run(self, slot: int, submission: int, keys: Keys, driver: str) -> None:
        """Run the job of a slot and wait for its end.

        Raises:
            TxtopoError: The reason for its failure; see :mod:`txtopo.carriers.spark_jobs`.
        """
        tag = self._tag(slot, submission)
        try:
            self._labels.put_on(tag, f"{self._topology_id}: slot {slot}", POOL)
            task = SlotTask(self._packed, slot, submission, keys, driver, self._work)
            self._context.parallelize([], 1).mapPartitionsWithIndex(task).collect()
        except Exception as error:
            raise failure_of_job(error, tag) from error
        finally:
            self._labels.take_off(tag)

    def cancel(self, slot: int, submission: int) -> None:
        """Cancel the job of a slot, even if it is only about to start."""
        self._labels.cancel(self._tag(slot, submission))

    def close(self) -> None:
        """Remove the topology from the executors."""
        if not self.stopped:
            self._packed.unpersist()

    def _tag(self, slot: int, submission: int) -> str:
        return f"txtopo:{self._topology_id}:slot-{slot}:{submission}"

    def _patience_ms(self, cores: Cores, wanted: int) -> int:
        if cores.all >= wanted:
            return TASKS_WAIT_MS
        local = self._context._jsc.sc().isLocal()
        return 0 if local else EXECUTORS_WAIT_MS

    def cores(self) -> Cores:
        """Return how many tasks the executors can run at the same time.

        Executors that Spark has excluded (``spark.excludeOnFailure.enabled``) get no more tasks.
        """
        scala = self._context._jsc.sc()
        listed = scala.statusStore().executorList(True)
        executors = [listed.apply(at) for at in range(listed.size())]
        tasks = {each.id(): each.maxTasks() for each in executors if not each.isExcluded()}
        # The status store has this too, but up to ten seconds late.
        running = scala.taskScheduler().runningTasksByExecutors()
        busy = sum(running.apply(id) for id in tasks if running.contains(id))
        return Cores(sum(tasks.values()), sum(tasks.values()) - busy)

    def _grows(self) -> bool:
        return self._setting("spark.dynamicAllocation.enabled", "false").lower() == "true"

    def _setting(self, name: str, default: str) -> str:
        # SparkContext.getConf() would fetch all settings one by one, which takes 30 ms.
        return str(self._context._jsc.sc().conf().get(name, default))


@dataclass(frozen=True, slots=True)
class SlotTask:
    """One slot as a function of (Spark partition, records).

    Attributes:
        packed: The topology.
        slot: Number of the slot.
        submission: Number of the slot's job.
        keys: The keys of the run.
        driver: Where the driver listens.
        work: What the slot does.
        silence_s: The task ends itself after this many seconds without a message from the driver.
    """

    packed: Broadcast[PackedTopology]
    slot: int
    submission: int
    keys: Keys
    driver: str
    work: Work
    silence_s: float = SILENCE_S

    def __call__(self, partition: int, records: Iterable[object]) -> Iterator[object]:
        """Host the slot. The empty input is read to its end too, since PySpark does not reuse a
        worker whose task left input unread."""
        # Imported here: the driver pickles the class by name, so only workers need ZeroMQ.
        from txtopo.resident.hosts import BoltHost, StageHost
        from txtopo.resident.transport import TaskSocket

        deque(records, maxlen=0)
        compiled = self.packed.value.unpack()
        now = ThreadScheduler("slot").now
        link = TaskSocket(self.slot, self.submission, self.keys, self.driver, self.silence_s, now)
        host = BoltHost if self.work == "bolts" else StageHost
        host(compiled, link).run()
        return iter(())
