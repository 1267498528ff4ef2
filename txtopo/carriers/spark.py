"""The carriers on Spark: records move as elements of RDDs, or as rows of DataFrames.

:class:`RddCarrier` is for classic Spark. A run is one job. Its first stage has one empty Spark
partition for each slot. A shuffle by address connects two levels. The records for the driver are
collected. If the committers run in tasks, the job shuffles the output of the last level once more,
into one Spark partition for the driver and one for each attempt and slot. It reads only the
driver's partition, and the handover waits in the shuffle files. A commit reads its own partitions
of that shuffle. Spark recomputes nothing for it, unless an executor was lost with its files; the
manifests then reveal this. Only the first level of a commit reads the handover. The records of
further levels are few, and pass through the driver.

:class:`DataFrameCarrier` is for Spark Connect; the carriers with an engine are derived from it. A
run is one query over the columns ``address`` and ``payload``: ``mapInArrow`` for each level, and
``repartitionById`` between two levels. Spark cannot read single partitions of a DataFrame's shuffle
again. So if the committers run in tasks, the handover is collected with the rest, waits in the
driver, and becomes the input of a separate query for the commit. Committers should therefore work
on little data: aggregate before them, or use the carrier ``rdd``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from txtopo.attempt import TransactionAttempt
from txtopo.carriers.carrier import RunOutput
from txtopo.carriers.session import is_stopped
from txtopo.carriers.spark_jobs import ClassicLabels, ConnectLabels, Labels, SparkJobs
from txtopo.carriers.spark_task import PackedTopology, run_in_task
from txtopo.stages.compiled_topology import CompiledTopology, Run
from txtopo.stages.permits import Permits, ask_for, no_permits
from txtopo.stages.stage_context import (
    DRIVER,
    ByAddress,
    HandoverAddresses,
    Record,
    RunLevel,
    by_address,
)

if TYPE_CHECKING:
    from pyspark import Broadcast, SparkContext
    from pyspark.core.rdd import RDD
    from pyspark.sql import DataFrame, SparkSession


class RddCarrier:
    """Moves records through shuffles of RDDs; see the module docstring."""

    has_engine = False
    keeps_handover_in_driver = False

    def __init__(self, session: SparkSession) -> None:
        self._context: SparkContext = session.sparkContext

    def default_slots(self) -> int:
        """Return the session's default parallelism."""
        return self._context.defaultParallelism

    def start(self, compiled: CompiledTopology) -> None:
        """Broadcast the compiled topology."""
        self._compiled = compiled
        self._packed = self._context.broadcast(PackedTopology.of(compiled))
        self._jobs = SparkJobs(ClassicLabels(self._context), compiled.topology_id)
        # Spark takes 4 ms to create it, so it is created once.
        self._empty: RDD[Record] = self._context.parallelize([], compiled.slots)

    def process(self, run: Run) -> RunOutput:
        """Run one job over all levels of the processing phase."""
        slots = self._compiled.slots
        with self._jobs.labelled(run, "processing"):
            records = self._empty
            for levels in self._compiled.divided_levels("processing"):
                if levels.start:
                    records = records.partitionBy(slots, _identity)
                for level in levels:
                    records = self._stage(records, RunLevel("processing", run, level))
            if self._compiled.commit_in_driver:
                return RunOutput(run, records.mapPartitions(_payloads).collect())
            handover = records.partitionBy(HandoverAddresses(run, slots).count, _identity)
            return RunOutput(run, self._context.runJob(handover, _payloads, [DRIVER]), handover)

    def commit(
        self, output: RunOutput, attempt: TransactionAttempt, permits: Permits = no_permits
    ) -> list[bytes]:
        """Run one job for each level of the commit phase."""
        slots, only, handover = self._compiled.slots, output.run.only(attempt), output.handover
        assert handover is not None, "the run was released"
        addresses = HandoverAddresses(output.run, slots).of(attempt.txid)
        levels = self._compiled.commit
        with self._jobs.labelled(only, "commit"):
            ask_for(levels[0], permits)
            stage = self._stage(handover, RunLevel("commit", only, 0), addresses.start)  # type: ignore[arg-type]
            records = self._context.runJob(stage, _all, addresses)
            for level in range(1, len(levels)):
                ask_for(levels[level], permits)
                spread = self._context.parallelize(records, slots).partitionBy(slots, _identity)
                records = self._stage(spread, RunLevel("commit", only, level)).collect()
        return list(_payloads(records))

    def release(self, output: RunOutput) -> None:
        """Drop the shuffle. Spark deletes its files after a garbage collection in the driver."""
        output.handover = None

    def cancel(self, tag: str) -> None:
        """Cancel the jobs of a run, including jobs that are about to start."""
        self._jobs.cancel(tag)

    def check_session(self) -> None:
        """Check that the session was not stopped while a job is in flight."""
        self._jobs.check_session()

    def close(self) -> None:
        """Cancel everything and unpersist the broadcast of the topology."""
        self._jobs.cancel_all()
        if not is_stopped(self._context):
            self._packed.unpersist()

    def _stage(self, records: RDD[Record], level: RunLevel, first: int = 0) -> RDD[Record]:
        """Add a stage; its slot 0 is the Spark partition *first*."""
        return records.mapPartitionsWithIndex(RddStage(self._packed, level, first))


class RddStage:
    """A stage, as a function for ``mapPartitionsWithIndex``."""

    def __init__(self, packed: Broadcast[PackedTopology], level: RunLevel, first: int) -> None:
        self._packed = packed
        self._level = level
        self._first = first

    def __call__(self, partition: int, records: Iterable[Record]) -> Iterator[Record]:
        """Run the stage of one slot."""
        slot = partition - self._first
        return run_in_task(self._level, self._packed.value, slot, _payloads(records))


def _payloads(records: Iterable[Record]) -> Iterator[bytes]:
    return (payload for _, payload in records)


def _all(records: Iterable[Record]) -> Iterable[Record]:
    return records


def _identity(address: int) -> int:
    return address


RECORD = "address int, payload binary"
"""The columns of records in a DataFrame."""
Batches = Iterator[pa.RecordBatch]

_SCHEMA = pa.schema([("address", pa.int32()), ("payload", pa.binary())])

# Records leave a stage in record batches of about this size. A record has up to 4 MiB.
_BATCH_BYTES = 4 << 20

# More than the cores of any cluster.
_SLOTS_MAX = 100_000


class DataFrameCarrier:
    """Moves records through queries; see the module docstring.

    Args:
        session: The session.
        labels: Labels the jobs; by default as the kind of session allows.
    """

    has_engine = False
    keeps_handover_in_driver = True

    def __init__(self, session: SparkSession, labels: Labels | None = None) -> None:
        self._session = session
        self._labels = labels
        self._connect = "connect" in type(session).__module__

    def default_slots(self) -> int:
        """Return the session's default parallelism; on Spark Connect this needs a query."""
        if self._connect:
            # Spark divides a range of numbers into that many partitions; none of them is empty.
            numbers = self._session.range(_SLOTS_MAX).selectExpr(
                "spark_partition_id() AS partition"
            )
            return numbers.distinct().count()
        return self._session.sparkContext.defaultParallelism

    def start(self, compiled: CompiledTopology) -> None:
        """Pack the topology. It is sent with every query, because Connect has no broadcasts."""
        self._compiled = compiled
        self._packed = PackedTopology.of(compiled)
        labels = self._labels
        if labels is None and self._connect:
            labels = ConnectLabels(self._session)
        elif labels is None:
            labels = ClassicLabels(self._session.sparkContext)
        self._jobs = SparkJobs(labels, compiled.topology_id)

    def process(self, run: Run) -> RunOutput:
        """Run one query over all levels of the processing phase."""
        slots = self._compiled.slots
        with self._jobs.labelled(run, "processing"):
            start = self._session.range(0, slots, 1, slots).selectExpr("int(id) as address")
            return RunOutput.divided(run, self._query(start, self._processing(run)))

    def commit(
        self, output: RunOutput, attempt: TransactionAttempt, permits: Permits = no_permits
    ) -> list[bytes]:
        """Run one query over all levels of the commit phase."""
        slots, only = self._compiled.slots, output.run.only(attempt)
        levels = [RunLevel("commit", only, level) for level in range(len(self._compiled.commit))]
        with self._jobs.labelled(only, "commit"):
            table = to_table(output.handover_of(attempt, slots))
            ask_for((id for ids in self._compiled.commit for id in ids), permits)
            start = self._session.createDataFrame(table).repartitionById(slots, "address")
            return self._query(start, levels).get(DRIVER, [])

    def release(self, output: RunOutput) -> None:
        """Drop the handover."""
        output.handover = None

    def cancel(self, tag: str) -> None:
        """Cancel the queries of a run."""
        self._jobs.cancel(tag)

    def check_session(self) -> None:
        """Check that the session was not stopped while a query is in flight."""
        self._jobs.check_session()

    def close(self) -> None:
        """Cancel everything."""
        self._jobs.cancel_all()

    def _processing(self, run: Run) -> list[RunLevel]:
        levels = range(len(self._compiled.processing))
        return [RunLevel("processing", run, level) for level in levels]

    def _query(self, frame: DataFrame, levels: Iterable[RunLevel]) -> ByAddress:
        """Run levels of a chain over a DataFrame whose Spark partitions are the slots."""
        for level in levels:
            if level.level:
                frame = frame.repartitionById(self._compiled.slots, "address")
            frame = frame.mapInArrow(_arrow_stage(self._packed, level), RECORD)
        table = frame.toArrow()
        columns = (table["address"].to_pylist(), table["payload"].to_pylist())
        return by_address(zip(*columns, strict=True))


def _arrow_stage(packed: PackedTopology, level: RunLevel) -> Callable[[Batches], Batches]:
    """Return a stage for ``mapInArrow``, which needs a plain function."""

    def stage(batches: Batches) -> Batches:
        yield from in_batches(run_in_task(level, packed, slot_here(), _arrow_payloads(batches)))

    return stage


def slot_here() -> int:
    """Return the slot of the current Spark task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return context.partitionId()


def _arrow_payloads(batches: Batches) -> Iterator[bytes]:
    """Yield the payloads. Rows without a payload only make sure that each slot has a row."""
    for batch in batches:
        if batch.num_columns > 1:
            yield from (payload for payload in batch.column(1).to_pylist() if payload is not None)


def in_batches(records: Iterable[Record]) -> Batches:
    """Yield records as record batches of a limited size."""
    addresses: list[int] = []
    payloads: list[bytes] = []
    size = 0
    for address, payload in records:
        addresses.append(address)
        payloads.append(payload)
        size += len(payload)
        if size >= _BATCH_BYTES:
            yield _batch(addresses, payloads)
            addresses, payloads, size = [], [], 0
    if addresses:
        yield _batch(addresses, payloads)


def _batch(addresses: list[int], payloads: list[bytes]) -> pa.RecordBatch:
    columns = [pa.array(addresses, pa.int32()), pa.array(payloads, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def to_table(records: ByAddress) -> pa.Table:
    """Return records as a table of several batches, since a batch holds less than 2 GiB."""
    rows = ((address, payload) for address, payloads in records.items() for payload in payloads)
    return pa.Table.from_batches(in_batches(rows), _SCHEMA)
