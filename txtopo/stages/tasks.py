"""Tasks of spouts, bolts and committers: how each of them runs on one attempt.

A spout task has one emitter for the whole run. In each partition the batch of txid t + 1 begins
where the batch of txid t ended, and the same task emits both. So one job can process several
batches, although nobody knows beforehand where each of them will end.

A bolt task runs a fresh copy of the user's object on each attempt.

A committer's task only reads its states. It collects its writes in a write set and sends it to the
driver. The driver applies the write sets of all tasks of a txid in one store transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import repeat
from typing import Any, TypeVar

import pyarrow as pa

from txtopo.attempt import TransactionAttempt
from txtopo.bolts.bolt import ArrowBolt, BasicBolt, BatchBolt
from txtopo.collector import ArrowOutputCollector, BatchOutputCollector, RevocableOutputCollector
from txtopo.config import AnyConfig, Config
from txtopo.context import Facts, TaskContext
from txtopo.emitted_values import BATCH_TUPLES_MAX
from txtopo.errors import EmitError, RecordFailed, StateUsageError, TxtopoError
from txtopo.metadata import BatchMetadata, Json, SpoutShare, json_copy, shown
from txtopo.pacing import rows_max_of
from txtopo.spouts.spout import takes_rows_max
from txtopo.stages.columns import BATCH_BYTES_MAX, nbytes_of
from txtopo.stages.emission import Channel, Emission
from txtopo.stages.envelopes import WriteSet
from txtopo.stages.mailboxes import Arrival
from txtopo.stages.permits import Permit
from txtopo.stages.program import PlannedComponent, Program
from txtopo.state.backend import Key, StateBackend, Values
from txtopo.state.columns import values_of
from txtopo.state.registry import State
from txtopo.state.transaction import StateHandle
from txtopo.topology.component import check_runs
from txtopo.tuples import Origin, Tuple

T = TypeVar("T")


class SpoutTask:
    """One task of a spout. It has one emitter for the whole run.

    Args:
        channel: Takes the emitted tuples.
        component: The spout.
        task: Index of the task.
        rows: The rows of a stream spout's batch in this slot.
    """

    def __init__(
        self,
        channel: Channel,
        component: PlannedComponent,
        task: int,
        rows: Iterable[pa.RecordBatch] = (),
    ) -> None:
        self._channel = channel
        self._rows = rows
        self._component = component
        self._task = task
        self._emitter: Any = None
        self._facts: Facts = None
        previous = channel.stage.run.previous
        cut = previous.of(component.id).cut if previous is not None else None
        # Where each partition ended last. Emitters get copies, so that none can change what another
        # one gets.
        self._last = {int(p): metadata for p, metadata in (cut or {}).items()}

    def steps(self, attempt: TransactionAttempt, metadata: BatchMetadata) -> Iterator[None]:
        """Emit this task's share of a batch; yields where the outbox may be emptied.

        If the spout takes no part in the batch, its emitter is not called.
        """
        if not metadata.takes_part(self._component.id):
            return
        self._facts = metadata.facts
        component, kind = self._component, self._component.spout_kind
        if self._emitter is None and kind.emitter_calls:
            self._emitter = self._open()
        emission = Emission(self._channel, component, txid=attempt.txid, task=self._task)
        yield from kind.emit(
            _Share(
                attempt,
                metadata.of(component.id),
                self._emitter,
                self._rows,
                component=component,
                task=self._task,
                emission=emission,
                last=self._last,
                rows_max=rows_max_of(metadata.pace),
                cuts=self._channel.control.cuts,
            )
        )
        emission.collector.close()

    def close(self) -> None:
        """Close the emitter. Errors are ignored, since its batches are complete by now."""
        if self._emitter is not None:
            with suppress(Exception):
                self._emitter.close()

    def _open(self) -> Any:
        program, component = self._channel.stage.program, self._component
        context = program.context(component, self._task, lambda: self._facts)
        emitter = component.prototype.copy().emitter(program.config, context)
        calls = component.spout_kind.emitter_calls
        check_runs("the emitter of spout", component.id, emitter, *calls)
        return emitter


@dataclass(frozen=True, slots=True)
class _Share:
    """The share of one task in a batch of its spout; see ``TaskShare`` for what a kind calls."""

    attempt: TransactionAttempt
    share: SpoutShare
    emitter: Any
    rows: Iterable[pa.RecordBatch]
    component: PlannedComponent
    task: int
    emission: Emission
    last: dict[int, Json]
    rows_max: int | list[int] | None
    cuts: dict[tuple[int, str], dict[int, Json]]

    @property
    def collector(self) -> BatchOutputCollector:
        """Takes the tuples."""
        return self.emission.collector

    @property
    def tasks(self) -> int:
        """How many tasks the spout has."""
        return self.component.tasks

    def end_part(self, part: int) -> None:
        """End a part of the batch."""
        self.emission.end_part(part, self.emission.emitted())

    def repeat_partitions(self, emit: Callable[..., None]) -> Iterator[None]:
        """Emit a batch again whose cut is known. Partitions that were not in it emit nothing."""
        cut = self.share.cut or {}
        for partition in self._partitions():
            if str(partition) in cut:
                self.last[partition] = cut[str(partition)]
                emit(self.attempt, self.collector, partition, json_copy(self.last[partition]))
                self.end_part(partition)
                yield

    def cut_partitions(
        self, emit: Callable[..., Json], *, may_be_silent: bool = False
    ) -> Iterator[None]:
        """Emit a batch of each partition, from where its previous one ended, and keep its end."""
        # Without a limit the keyword is left out: an emitter need not take rows_max.
        limits, limit = self._limits(emit), {}
        emitted = self.emission.emitted()
        for partition in self._partitions():
            last = json_copy(self.last.get(partition))
            before = emitted
            if limits is not None:
                # A limit of 0 lets a partition without a share emit nothing.
                limit = {"rows_max": limits[partition] if partition < len(limits) else 0}
            end = emit(self.attempt, self.collector, partition, last, **limit)
            emitted = self.emission.emitted()
            self._check_limit(partition, emitted - before, **limit)
            if end is not None or emitted > before or not may_be_silent:
                self._keep_end(partition, end)
            self.emission.end_part(partition, emitted)
            yield

    def _partitions(self) -> range:
        number = self.share.planned
        if type(number) is not int or number < 0:
            raise EmitError(
                f"spout {self.component.id!r} planned {number!r} partitions; expected a whole "
                "number; look at number_of_partitions of its coordinator part"
            )
        return range(self.task, number, self.component.tasks)

    def _limits(self, emit: Callable[..., Json]) -> list[int] | None:
        """Return the limits of the partitions, which an emitter gets as ``rows_max``, or None.

        Raises:
            EmitError: The batch was planned with limits, but the emitter takes none.
        """
        if not isinstance(self.rows_max, list):
            return None
        if not takes_rows_max(emit):
            raise EmitError(
                f"the batch was planned with a limit, but the emitter of {self.component.id!r} "
                f"does not take one; got {type(self.emitter).__qualname__}; expected the keyword "
                "argument rows_max; put it back until the batch is committed"
            )
        return self.rows_max

    def _check_limit(self, partition: int, emitted: int, rows_max: int | None = None) -> None:
        if rows_max is not None and emitted > rows_max:
            raise EmitError(
                f"emitter of {self.component.id!r} emitted more than its limit from partition "
                f"{partition}; got {emitted} tuples; expected at most rows_max={rows_max}; repair "
                "the emitter",
                partition=partition,
            )

    def _keep_end(self, partition: int, end: Json) -> None:
        """Keep the position where a partition ended.

        Raises:
            EmitError: The emitter returned None or a value that is not JSON; repair the emitter.
        """
        who = f"emitter of {self.component.id!r} returned"
        if end is None:
            raise EmitError(
                f"{who} no metadata for partition {partition}; got None; expected JSON for the "
                "position where the batch ended (None only if an opaque emitter emitted nothing)",
                partition=partition,
            )
        try:
            kept = self.last[partition] = json_copy(end)
        except ValueError as error:
            raise EmitError(
                f"{who} metadata of partition {partition} that is not JSON; got {shown(end)} "
                f"({error}); expected numbers, strings, lists and objects with string keys",
                partition=partition,
            ) from error
        self.cuts.setdefault((self.attempt.txid, self.component.id), {})[partition] = kept


def run_bolt(
    bolt: object,
    config: AnyConfig,
    context: TaskContext,
    attempt: TransactionAttempt,
    arrivals: Sequence[Arrival],
    emission: Emission,
    permit: Permit | None = None,
) -> Iterator[None]:
    """Run a bolt on the tuples that arrived for it; yields where the outbox may be emptied.

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
        for batch in _permitted(_batches(arrivals), permit):
            bolt.execute(batch)
            yield
        ask()
        bolt.finish_batch()
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


def no_question() -> None:
    """Ask nothing."""


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


def rows_of(batch: pa.RecordBatch) -> Iterable[tuple[Any, ...]]:
    """Return the rows of a batch as Python values."""
    if not batch.num_columns:
        # zip() of no columns has no rows.
        return repeat((), batch.num_rows)
    return zip(*map(values_of, batch.columns), strict=True)


def _batches(arrivals: Sequence[Arrival]) -> Iterator[pa.RecordBatch]:
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


StateOpener = Callable[[str, str], StateHandle]
"""Returns a new handle for (component id, name of the state)."""


class TaskStates:
    """The states of one task of a committer in one attempt."""

    def __init__(self, opener: StateOpener, component: str, attempt: TransactionAttempt) -> None:
        self._opener = opener
        self._component = component
        self._attempt = attempt
        self._handles: dict[str, StateHandle] = {}

    def state(self, name: str) -> StateHandle:
        """Return the handle of a state. It is the same one in each call."""
        if name not in self._handles:
            self._handles[name] = self._opener(self._component, name)
        return self._handles[name]

    def write_sets(self, task: int) -> list[WriteSet]:
        """Return the write sets of the task, one for each state that it wrote to."""
        return [
            WriteSet(self._attempt.txid, self._component, task, name, handle.writes)
            for name, handle in self._handles.items()
            if handle.writes is not None
        ]


def open_in_task(program: Program, closing: ExitStack) -> StateOpener:
    """Return a function that opens states inside a task; *closing* closes their stores."""
    backends: dict[tuple[str, str], StateBackend] = {}

    def opener(component: str, name: str) -> StateHandle:
        state = _declared(component, name, program.components[component].states)
        if (component, name) not in backends:
            backend = state.open()
            closing.callback(backend.close)
            backends[component, name] = backend
        return StateHandle(name, state.layout(), backends[component, name].snapshot)

    return opener


def opener_of(
    states: Mapping[str, Mapping[str, State]],
    backends: Mapping[tuple[str, str], StateBackend],
    group: TransactionAttempt | None = None,
    written: Mapping[tuple[str, str], Sequence[Mapping[Key, Values | None]]] | None = None,
) -> StateOpener:
    """Return a function that opens states in the driver, where their backends are already open.

    Args:
        states: The states of each component, by name.
        backends: The backend of each state, by component and name.
        group: The group that is committed; by default the attempt of each transaction.
        written: The writes of the earlier txids of the group, per txid, to each state.
    """

    def opener(component: str, name: str) -> StateHandle:
        state = _declared(component, name, states[component])
        earlier = tuple((written or {}).get((component, name), ()))
        snapshot = backends[component, name].snapshot
        return StateHandle(name, state.layout(), snapshot, group, earlier)

    return opener


def _declared(component: str, name: str, states: Mapping[str, State]) -> State:
    if name not in states:
        raise no_such_state(component, name, list(states))
    return states[name]


def no_such_state(component: str, name: str, declared: list[str]) -> StateUsageError:
    """Return the error for a state that ``with_state`` has not declared."""
    return StateUsageError(
        f"bolt {component!r} has no state {name!r}; declared are "
        f"{', '.join(sorted(declared)) or 'none'}; add .with_state({name!r}, open_state(…))",
        component=component,
        state=name,
    )
