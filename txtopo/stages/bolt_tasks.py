"""Bolt tasks: one task of a bolt on one attempt, with a fresh copy of the prototype."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any

import pyarrow as pa

from txtopo.attempt import TransactionAttempt
from txtopo.bolts.bolt import ArrowBolt, BasicBolt, BatchBolt
from txtopo.collector import BATCH_TUPLES_MAX, ArrowOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.stages.columns import BATCH_BYTES_MAX
from txtopo.stages.emission import Emission
from txtopo.stages.inbox import Arrival
from txtopo.tuples import Origin, Tuple


def run_bolt(
    bolt: object,
    config: Config,
    context: TaskContext,
    attempt: TransactionAttempt,
    arrivals: Sequence[Arrival],
    emission: Emission,
) -> Iterator[None]:
    """Run a bolt on what arrived for it; stops where the outbox may be emptied."""
    if isinstance(bolt, BasicBolt):
        bolt.prepare(config, context)
        try:
            for tuples in _tuples(arrivals, attempt):
                _execute_basic(bolt, tuples, emission)
                yield
        finally:
            # What is not released after a failure must not hide the failure.
            with suppress(Exception):
                bolt.cleanup()
    elif isinstance(bolt, ArrowBolt):
        bolt.prepare(config, context, ArrowOutputCollector(emission.collector), attempt)
        for batch in _batches(arrivals):
            bolt.execute(batch)
            yield
        bolt.finish_batch()
    else:
        assert isinstance(bolt, BatchBolt)
        bolt.prepare(config, context, emission.collector, attempt)
        for tuples in _tuples(arrivals, attempt):
            _execute(bolt.execute, tuples)
            yield
        bolt.finish_batch()
    emission.collector.close()
    yield


def _execute(execute: Callable[[Tuple], None], tuples: Iterable[Tuple]) -> None:
    for each in tuples:
        execute(each)


def _execute_basic(bolt: BasicBolt, tuples: Iterable[Tuple], emission: Emission) -> None:
    execute, collector = bolt.execute, emission.collector
    for each in tuples:
        execute(each, collector)


def _tuples(arrivals: Sequence[Arrival], attempt: TransactionAttempt) -> Iterator[Iterator[Tuple]]:
    """Yield the tuples of each arrival, in portions that keep few Python objects alive."""
    for arrival in arrivals:
        edge = arrival.edge
        origin = Origin(attempt, edge.source, edge.stream, edge.fields)
        for batch in _portions(arrival.batch):
            yield map(Tuple, rows_of(batch), repeat(origin), repeat(arrival.sender))


def rows_of(batch: pa.RecordBatch) -> Iterable[tuple[Any, ...]]:
    """Return the rows of a batch as Python values."""
    if not batch.num_columns:
        return repeat((), batch.num_rows)
    return zip(*[column.to_pylist() for column in batch.columns], strict=True)


def _batches(arrivals: Sequence[Arrival]) -> Iterator[pa.RecordBatch]:
    """Yield record batches of one stream each, of about ``BATCH_TUPLES_MAX`` tuples.

    Long tuples make smaller batches: joined, they might be more than a column holds.
    """
    waiting: list[Arrival] = []
    tuples = nbytes = 0
    for arrival in arrivals:
        size = arrival.batch.nbytes
        full = tuples + arrival.batch.num_rows > BATCH_TUPLES_MAX
        full |= nbytes + size > BATCH_BYTES_MAX
        if waiting and (full or arrival.edge is not waiting[0].edge):
            yield _joined(waiting)
            waiting, tuples, nbytes = [], 0, 0
        if arrival.batch.num_rows > BATCH_TUPLES_MAX:
            yield from _portions(arrival.batch)
            continue
        waiting.append(arrival)
        tuples += arrival.batch.num_rows
        nbytes += size
    if waiting:
        yield _joined(waiting)


def _joined(arrivals: Sequence[Arrival]) -> pa.RecordBatch:
    batches = [arrival.batch for arrival in arrivals]
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _portions(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in range(0, batch.num_rows, BATCH_TUPLES_MAX):
        yield batch.slice(start, BATCH_TUPLES_MAX)
