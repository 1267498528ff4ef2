"""Tasks of bolts: how a bolt, a committer too, runs on one attempt.

A bolt task runs a fresh copy of the user's object on each attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import repeat
from typing import TypeVar

import pyarrow as pa

from txtopo.attempt import TransactionAttempt
from txtopo.bolts.bolt import ArrowBolt, BasicBolt, BatchBolt
from txtopo.collector import ArrowOutputCollector, RevocableOutputCollector
from txtopo.config import AnyConfig, Config
from txtopo.context import TaskContext
from txtopo.emitted_values import BATCH_TUPLES_MAX
from txtopo.errors import RecordFailed, TxtopoError
from txtopo.metadata import Json
from txtopo.stages.columns import BATCH_BYTES_MAX, nbytes_of
from txtopo.stages.compiled_topology import PlannedEdge
from txtopo.stages.emission import Emission
from txtopo.stages.mailboxes import Arrival
from txtopo.stages.permits import Permit, no_question
from txtopo.state.columns import rows_of
from txtopo.tuples import Origin, Tuple

T = TypeVar("T")


def run_bolt(
    bolt: object,
    config: AnyConfig,
    context: TaskContext,
    attempt: TransactionAttempt,
    arrivals: Sequence[Arrival],
    emission: Emission,
    permit: Permit | None = None,
) -> Iterator[None]:
    """Run a bolt on its tuples; yield at each point where the outbox may be emptied.

    Raises:
        NotPermitted: The *permit*, which is asked before each call of the bolt, refused.
    """
    ask = no_question if permit is None else permit.ask
    ask()
    if isinstance(bolt, BasicBolt):
        bolt.prepare(config, context)
        try:
            run = _execute_basic if emission.dead_letters is None else _execute_revocably
            for tuples in _tuples(arrivals, attempt):
                run(bolt, _permitted(tuples, permit), emission)
                yield
        finally:
            # An error in cleanup must not hide an earlier one; without one, the batch is complete.
            with suppress(Exception):
                bolt.cleanup()
    elif isinstance(bolt, ArrowBolt):
        assert isinstance(config, Config)
        bolt.prepare(config, context, ArrowOutputCollector(emission.collector), attempt)
        for edge, batch in _permitted(_batches(arrivals), permit):
            bolt.execute_from(edge.source, edge.stream, batch)
            yield
        ask()
        bolt.finish_batch()
        emission.end_bolt(bolt)
    else:
        assert isinstance(bolt, BatchBolt)
        assert isinstance(config, Config)
        bolt.prepare(config, context, emission.collector, attempt)
        for tuples in _tuples(arrivals, attempt):
            _execute(bolt.execute, _permitted(tuples, permit))
            yield
        ask()
        bolt.finish_batch()
    emission.collector.close()
    yield


def _permitted(items: Iterable[T], permit: Permit | None) -> Iterable[T]:
    """Return the items, checking the permit right before each."""
    return items if permit is None else _looked(items, permit)


def _looked(items: Iterable[T], permit: Permit) -> Iterator[T]:
    for each in items:
        permit.look()
        yield each


def _execute(execute: Callable[[Tuple], None], tuples: Iterable[Tuple]) -> None:
    for each in tuples:
        execute(each)


def _execute_basic(bolt: BasicBolt, tuples: Iterable[Tuple], emission: Emission) -> None:
    execute, collector = bolt.execute, emission.collector
    for each in tuples:
        execute(each, collector)


def _execute_revocably(bolt: BasicBolt, tuples: Iterable[Tuple], emission: Emission) -> None:
    """Execute tuples; one that cannot be processed becomes a dead letter and emits nothing."""
    execute, collector, rule = bolt.execute, emission.collector, emission.dead_letters
    assert isinstance(collector, RevocableOutputCollector)
    assert rule is not None
    errors: tuple[type[Exception], ...] = (RecordFailed, *rule.errors)
    marked = collector.mark
    for each in tuples:
        mark = marked()
        try:
            execute(each, collector)
        except errors as error:
            # Any other error of txtopo is not the record's fault. The user's rule may still match
            # it: EmitError is a ValueError.
            if isinstance(error, TxtopoError) and not isinstance(error, RecordFailed):
                raise
            collector.drop(mark)
            place: dict[str, Json] = {"source": each.source_component}
            collector.set_aside(error, place | {"stream": each.source_stream}, each)
        if collector.full:
            collector.flush()


def _tuples(arrivals: Sequence[Arrival], attempt: TransactionAttempt) -> Iterator[Iterator[Tuple]]:
    """Yield the tuples of each arrival in portions, so that few Python objects exist at a time."""
    for arrival in arrivals:
        edge = arrival.edge
        origin = Origin(attempt, edge.source, edge.stream, edge.fields)
        for batch in _portions(arrival.batch):
            yield map(Tuple, rows_of(batch), repeat(origin), repeat(arrival.sender))


def _batches(arrivals: Sequence[Arrival]) -> Iterator[tuple[PlannedEdge, pa.RecordBatch]]:
    """Yield record batches of about ``BATCH_TUPLES_MAX`` tuples, each of a single stream.

    Batches of long tuples are smaller, because a column holds less than 2 GiB.
    """
    waiting: list[Arrival] = []
    tuples = nbytes = 0
    for arrival in arrivals:
        size = nbytes_of(arrival.batch)
        full = tuples + arrival.batch.num_rows > BATCH_TUPLES_MAX
        full |= nbytes + size > BATCH_BYTES_MAX
        if waiting and (full or arrival.edge is not waiting[0].edge):
            yield waiting[0].edge, _joined(waiting)
            waiting, tuples, nbytes = [], 0, 0
        if arrival.batch.num_rows > BATCH_TUPLES_MAX:
            for portion in _portions(arrival.batch):
                yield arrival.edge, portion
            continue
        waiting.append(arrival)
        tuples += arrival.batch.num_rows
        nbytes += size
    if waiting:
        yield waiting[0].edge, _joined(waiting)


def _joined(arrivals: Sequence[Arrival]) -> pa.RecordBatch:
    batches = [arrival.batch for arrival in arrivals]
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _portions(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in range(0, batch.num_rows, BATCH_TUPLES_MAX):
        yield batch.slice(start, BATCH_TUPLES_MAX)
