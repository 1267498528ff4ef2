"""Frames: the DataFrame plans of one batch, from the spout to the committers and aggregates.

The driver creates the plans, and Spark computes them. A DataFrame that is read more than once stays
in Spark's cache until the batch is done, so that all its readers see the same rows. A DataFrame for
a commit is cached too: it is computed in the processing phase, in parallel with other batches, and
the commit phase only writes it.

:func:`grouped` computes partial aggregates with Spark's ``groupBy``, for stores that accept
DataFrames. :func:`failure_of_plan` classifies the failure of a plan: a mistake of the user, a
``FailedException``, or lost infrastructure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from txtopo.bolts.persistent_aggregate import GLOBAL_KEY
from txtopo.carriers.spark import RECORD
from txtopo.carriers.spark_jobs import failure_of_job
from txtopo.context import FrameContext
from txtopo.errors import (
    BoltError,
    ConfigError,
    EmitError,
    FailedException,
    FieldsError,
    RunLostError,
    TxtopoError,
)
from txtopo.frames.chunks import seal_chunk
from txtopo.frames.plan import FrameAggregate, FramePlan, FrameStep, Kind
from txtopo.frames.states import FrameStateHandle, FrameWrites
from txtopo.log_records import logger_of
from txtopo.retries import LOGGER
from txtopo.stages.compiled_topology import CompiledTopology, Run
from txtopo.stages.outcome import FailedBatch
from txtopo.state.aggregates import Operator
from txtopo.tuples import Fields

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_logger = logger_of(LOGGER)


class FrameFailed(Exception):
    """A user's plan failed.

    Attributes:
        batch: The batch, the component and its error.
    """

    def __init__(self, batch: FailedBatch) -> None:
        super().__init__(batch)
        self.batch = batch


class Frames:
    """The DataFrames of one attempt. Used by one thread at a time.

    Attributes:
        waiting: The DataFrames that wait for DataFrame committers, by component id.
        aggregated: The partial aggregates that Spark computed, by component id.
    """

    def __init__(self, session: SparkSession, compiled: CompiledTopology, run: Run) -> None:
        assert isinstance(compiled.engine, FramePlan)
        (self._attempt,), (self._metadata,) = run.attempts, run.metadata
        self._session = session
        self._compiled = compiled
        self._plan: FramePlan = compiled.engine
        self._made: dict[str, DataFrame] = {}
        self._cached: list[DataFrame] = []
        self.waiting: dict[str, DataFrame] = {}
        self.aggregated: dict[str, FrameWrites] = {}

    @property
    def emits(self) -> bool:
        """Whether rows are emitted into envelopes, for bolts that are not DataFrame plans."""
        return bool(self._plan.emitting)

    def make(self) -> None:
        """Create all plans. Spark computes nothing yet.

        Raises:
            FrameFailed: User code raised, or returned a DataFrame without the declared columns.
        """
        for step in self._plan.steps:
            with self._blaming(step.id):
                frame = self._step(step)
            if step.fields is None:
                self.waiting[step.id] = self._cache(frame)
            else:
                self._made[step.id] = self._cache(frame) if step.shared else frame
        for aggregate in self._plan.aggregates:
            with self._blaming(aggregate.id):
                frames = [self._made[source] for source in aggregate.sources]
                writes = grouped(aggregate, reduce(lambda a, b: a.unionByName(b), frames))
            self._cache(writes.frame)
            self.aggregated[aggregate.id] = writes

    def records(self, slots: int) -> DataFrame:
        """Return the rows that are emitted into envelopes, as chunks for the slots."""
        # Each slot gets a row: PySpark does not call the stage of a slot without rows.
        start = self._session.range(0, slots, 1, slots)
        records = start.selectExpr("int(id) AS address", "CAST(NULL AS binary) AS payload")
        for at, id in enumerate(self._plan.emitting):
            chunks = self._made[id].mapInArrow(_chunking(at, slots), RECORD)
            records = records.unionAll(chunks)
        return records.repartitionById(slots, "address")

    @contextmanager
    def emitting(self) -> Iterator[None]:
        """Attribute a plan's failure to the emitting components, while its rows are emitted."""
        with self._blaming(" and ".join(self._plan.emitting), computing=True):
            yield

    def compute(self) -> None:
        """Compute the DataFrames that wait for the commit.

        Raises:
            FrameFailed: A user's plan failed.
        """
        aggregated = {id: each.frame for id, each in self.aggregated.items()}
        for id, frame in {**self.waiting, **aggregated}.items():
            with self._blaming(id, computing=True):
                frame.count()

    def release(self) -> None:
        """Unpersist all cached DataFrames, even if Spark has stopped. May be called twice."""
        cached, self._cached = self._cached, []
        for frame in cached:
            try:
                frame.unpersist()
            except Exception:
                attributes = {
                    "txid": self._attempt.txid,
                    "attempt": self._attempt.attempt,
                    "epoch": self._attempt.epoch,
                }
                _logger.debug("a frame was not released", exc_info=True, extra=attributes)

    def _step(self, step: FrameStep) -> DataFrame:
        prototype: Any = step.prototype.copy()
        if not step.sources:
            metadata = json.loads(json.dumps(self._metadata.of(step.id).planned))
            return _declared(step, prototype.read(self._session, self._attempt, metadata))
        compiled = self._compiled
        context = FrameContext(compiled.topology_id, step.id)
        if step.fields is None:
            context = FrameContext(compiled.topology_id, step.id, _closed)
        prototype.prepare(compiled.config, context)
        frames = [self._made[source] for source in step.sources]
        frame = reduce(lambda left, right: left.unionByName(right), frames)
        return _declared(step, prototype.transform(frame, self._attempt))

    def _cache(self, frame: DataFrame) -> DataFrame:
        frame.persist()
        self._cached.append(frame)
        return frame

    @contextmanager
    def _blaming(self, component: str, *, computing: bool = False) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            failure = failure_of_plan(error, component, computing=computing)
            if failure is None:
                raise
            where = f"{component!r} of topology {self._compiled.topology_id!r}"
            failure.add_note(f"in {where}, txid {self._attempt.txid}, processing phase")
            raise FrameFailed(FailedBatch(self._attempt, failure, component)) from error


def _closed(name: str) -> FrameStateHandle:
    """Return a closed state, for ``prepare`` in the processing phase, which must not write."""
    return FrameStateHandle(name, None, open=False)


def _declared(step: FrameStep, frame: DataFrame) -> DataFrame:
    """Return a DataFrame with the declared columns, in their order.

    Raises:
        EmitError: It is not a DataFrame, or a column is missing or has another type.
    """
    made = "read" if not step.sources else "transform"
    columns = getattr(frame, "dtypes", None)
    if not isinstance(columns, list):
        raise EmitError(
            f"{made} of {step.id!r} did not return a DataFrame; got {type(frame).__name__}; "
            "expected the DataFrame of the batch",
            component=step.id,
        )
    if step.fields is None:
        return frame
    found = dict(columns)
    for field in step.fields:
        if field.name not in found:
            raise EmitError(
                f"{made} of {step.id!r} returned a frame without column {field.name!r}; got "
                f"{', '.join(found) or 'none'}; expected {', '.join(step.fields.names)}",
                component=step.id,
                column=field.name,
            )
        if not _same(field.type, found[field.name]):
            raise EmitError(
                f"{made} of {step.id!r} returned a frame whose column {field.name!r} does not "
                f"fit; got {found[field.name]}; expected {field.type}; cast it in the plan",
                component=step.id,
                column=field.name,
            )
    return frame.select(*(f"`{name}`" for name in step.fields.names))


def _same(declared: str, found: str) -> bool:
    try:
        (field,) = Fields(f"it {found}")
    except FieldsError:
        return False  # a type that fields cannot have, such as an array
    return field.type == declared


def _chunking(component: int, slots: int) -> Any:
    """Return a function for ``mapInArrow`` that turns the rows of a DataFrame into chunks."""

    def chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        partition = context.partitionId()
        address = pa.array([partition % slots], pa.int32())
        for number, batch in enumerate(batches):
            if batch.num_rows:
                payload = pa.array([seal_chunk(component, partition, number, batch)], pa.binary())
                yield pa.RecordBatch.from_arrays([address, payload], ["address", "payload"])

    return chunks


ANSI = "spark.sql.ansi.enabled"


def grouped(aggregate: FrameAggregate, frame: DataFrame) -> FrameWrites:
    """Return the partial aggregates of a batch, one row for each key.

    Raises:
        ConfigError: In this session sums overflow silently.
    """
    from pyspark.sql import functions

    if str(frame.sparkSession.conf.get(ANSI)).lower() != "true":
        raise ConfigError(
            f"sums overflow silently in this session; got {ANSI}=false; expected true, Spark's "
            "default; set it where the session is built",
            setting=ANSI,
            got="false",
            expected="true",
        )
    keys = [functions.col(f"`{name}`") for name in aggregate.key]
    if not keys:
        keys = [functions.lit(GLOBAL_KEY).alias("key")]
    columns = [
        _column(kind, field, _SPARK_TYPES.get(stored, stored), aggregate.retracted).alias(name)
        for name, (kind, field, stored) in aggregate.columns.items()
    ]
    kinds = [kind for kind, _, _ in aggregate.columns.values()]
    operators: list[Operator] = ["add" if kind == "count" else kind for kind in kinds]
    return FrameWrites(frame.groupBy(*keys).agg(*columns), tuple(operators))


_SPARK_TYPES = {"long": "bigint", "short": "smallint", "byte": "tinyint"}


def _column(kind: Kind, field: str | None, stored: str, retracted: str | None) -> Column:
    from pyspark.sql import functions

    column = functions.lit(1) if field is None else functions.col(f"`{field}`")
    if retracted is not None:
        # Sum ones instead of counting, so that a retracted row subtracts one.
        if kind == "count":
            kind, column = "add", functions.when(column.isNotNull(), 1).otherwise(0)
        assert kind == "add", "minima and maxima are refused by the bolt"
        column = column.cast(stored)
        column = functions.when(functions.col(f"`{retracted}`"), -column).otherwise(column)
    if kind == "count":
        return functions.count(column).cast(stored)
    by_operator = {"add": functions.sum, "min": functions.min, "max": functions.max}
    if stored in ("float", "double"):
        # -0.0 becomes 0.0, as on the other carriers. The two are equal, so either could be the max.
        column = column.cast(stored) + functions.lit(0.0).cast(stored)
    # The stored type may be wider: the sum of whole numbers for a mean has 38 digits.
    return by_operator[kind](column.cast(stored)).cast(stored)


# SQLSTATE classes of data exceptions, failed user functions and raise_error: 22, 38, 39, P0.
_OF_THE_DATA = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] ([^\n]*?) ?SQLSTATE: (?:22|38|39|P0)\w{3}")

_FAILED = re.compile(r"^(?:txtopo\.errors\.)?FailedException: (.*)$", re.M)

_IN_A_JOB = ("Job aborted", "cancelled")

_TEXT_MAX = 2000


def failure_of_plan(error: Exception, component: str, *, computing: bool) -> Exception | None:
    """Return the error that fails the batch, or None if the infrastructure failed.

    Args:
        error: The exception that was raised in the driver.
        component: Id of the component whose plan failed.
        computing: Whether Spark was computing the plan. If not, user code was creating it.
    """
    text = str(error)
    if isinstance(error, TxtopoError):
        return None if isinstance(error, RunLostError) else error
    wish = _FAILED.search(text)
    if wish is not None:
        return FailedException(wish.group(1))
    if not computing and not any(part in text for part in _IN_A_JOB):
        return error
    found = _OF_THE_DATA.search(text)
    if found is not None:
        return BoltError(
            f"the plan of {component!r} failed on its rows; got {found.group(1)}: "
            f"{found.group(2)}; fix the plan, or filter out such rows",
            component=component,
            got=found.group(1),
        )
    meaning = failure_of_job(error, component)
    if not isinstance(meaning, BoltError):
        return None
    last = text.strip().split("\n")
    raised = next((line for line in reversed(last) if re.match(r"\w[\w.]*(Error|Exc)", line)), "")
    return BoltError(
        f"a function in the plan of {component!r} failed in a worker; got {raised or last[0]:.300}",
        component=component,
        got=text[-_TEXT_MAX:],
    )
