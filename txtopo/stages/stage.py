"""run_stage: runs one stage: one level of a run of txids, in one slot. Knows nothing about Spark.

It reads the records that were sent to the slot and yields the records that it sends, each with an
address (:mod:`txtopo.stages.stage_context`). It goes through the txids of the run in order. For
each of them it runs every task that the level has in this slot, on the tuples that arrived for it.
A task also runs if no tuple arrived. Each task has a fresh copy of the user's object.

Exceptions of user code are not raised. They are sent on as data; the slot then skips that txid and
all later ones, and so do the levels below. If the records that arrived are not those that were
sent, the run is lost. That is sent on as data too, because Spark would only run a failed task again
on the same records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, nullcontext

import pyarrow as pa

from txtopo.attempt import TransactionAttempt
from txtopo.context import Stamp, never, no_states
from txtopo.errors import RecomputedError, RunLostError, StateUsageError
from txtopo.metadata import BatchMetadata
from txtopo.stages.bolt_tasks import run_bolt
from txtopo.stages.compiled_topology import PlannedComponent
from txtopo.stages.component_times import ComponentTimes
from txtopo.stages.emission import Channel, Emission
from txtopo.stages.envelopes import Control, WriteSet, fault_of, raise_fault
from txtopo.stages.mailboxes import Arrival, Inbox, Records, sender_at
from txtopo.stages.observer import Observer
from txtopo.stages.partials import AggregateFailed
from txtopo.stages.permits import NotPermitted, Permits, no_permits
from txtopo.stages.spout_tasks import SpoutTask
from txtopo.stages.stage_context import Record, StageContext
from txtopo.stages.task_states import StateOpener, TaskStates, open_in_task
from txtopo.stages.user_errors import failure_of
from txtopo.topology.engine import EngineRows

# Spark moves arrays of bytes of up to 2 GiB. A manifest gets half of that, because other records
# may be in the same array.
MANIFEST_BYTES_MAX = 1 << 30


def run_stage(
    stage: StageContext,
    records: Iterable[bytes],
    states: StateOpener | None = None,
    rows: Iterable[pa.RecordBatch] = (),
    writes: list[WriteSet] | None = None,
    permits: Permits = no_permits,
    times: ComponentTimes | None = None,
    observer: Observer | None = None,
    abandoned: Callable[[], bool] = never,
) -> Iterator[Record]:
    """Run one level of a run in one slot.

    Args:
        stage: The level, the slot and the task attempt that runs it.
        records: The records that were sent to this slot, in any order.
        states: Opens the states of committers. Without it each task opens their stores itself.
        rows: The rows of a micro-batch in this slot, at the first level of a stream spout's
            topology.
        writes: Takes the write sets of committers, in the driver, where they need not be sent.
        permits: Returns what each bolt of a commit phase in this process asks before each call.
        times: Takes how long each component of such a commit phase took.
        observer: Is told of the tuples of the tasks, and of what user code raises.
        abandoned: Returns whether nobody wants the run any more; asked by bolts that wait.

    Yields:
        The records that the stage sends, each with its address.

    Raises:
        NotPermitted: A permit was refused.
    """
    with ExitStack() as closing:
        if states is None:
            states = open_in_task(stage.compiled, closing)
        one = _Stage(stage, states, rows, writes, permits, times, observer, abandoned)
        yield from one.run(records)


class _Stage:
    """One call of :func:`run_stage`."""

    def __init__(
        self,
        stage: StageContext,
        states: StateOpener,
        rows: Iterable[pa.RecordBatch],
        writes: list[WriteSet] | None,
        permits: Permits,
        times: ComponentTimes | None,
        observer: Observer | None,
        abandoned: Callable[[], bool],
    ) -> None:
        self._abandoned = abandoned
        self._stage, self._permits, self._times = stage, permits, times
        self._observer = observer
        self._rows = rows
        self._states = states
        self._control = Control()
        self._writes = self._control.writes if writes is None else writes
        self._channel = Channel(stage, self._control, observer)
        self._spouts: dict[tuple[str, int], SpoutTask] = {}
        self._engine_rows: EngineRows | None = None
        self._failed_txid: int | None = None

    def run(self, records: Iterable[bytes]) -> Iterator[Record]:
        fault = None
        try:
            inbox = self._open(records)
        except (RecomputedError, RunLostError) as error:
            fault = fault_of(error)
        else:
            yield from self._batches(inbox)
            self._channel.outbox.end_run()
            yield from self._channel.outbox.ready()
        for spout in self._spouts.values():
            spout.close()
        yield from self._manifests(fault)

    def _manifests(self, fault: tuple[bool, str] | None) -> Iterable[Record]:
        """Return the manifests of this stage. Write sets that are too large fail their txid."""
        outbox, control = self._channel.outbox, self._control
        manifests = list(outbox.manifests(control, failed_txid=self._failed_txid, fault=fault))
        largest = max(len(record) for _, record in manifests)
        if largest <= MANIFEST_BYTES_MAX or not control.writes:
            return manifests
        write = max(control.writes, key=lambda each: len(each.puts.rows))
        error = StateUsageError(
            "the writes of committers in one batch are too large to be moved to the driver; got "
            f"{largest} bytes, most of them by bolt {write.component!r} to state {write.state!r}; "
            f"expected at most {MANIFEST_BYTES_MAX}; no setting raises this limit; let the spout "
            "cut smaller batches, or write shorter values",
            component=write.component,
            state=write.state,
            bytes=largest,
        )
        self._fail(error, write.component, write.txid, write.task)
        control.writes.clear()
        return outbox.manifests(control, failed_txid=self._failed_txid, fault=fault)

    def _open(self, records: Iterable[bytes]) -> Inbox:
        stage = self._stage
        engine = stage.compiled.engine
        if engine is not None and stage.chain == "processing" and not stage.level:
            self._engine_rows = engine.rows(records)
            records = ()
        read = Records.read(records)
        raise_fault(read.manifests)
        # The driver checked the manifests of the handover when it judged the run.
        judged = stage.chain == "commit" and stage.compiled.commit_in_driver and not stage.level
        begins = stage.chain == "processing" and not stage.level
        if not (begins or judged):
            read.check(stage.run, stage.above, stage.senders, sender_at(stage))
        self._control.consumed |= read.producers()
        for manifest in read.manifests:
            self._fail_at(manifest.failed_txid)
            if manifest.control is not None:
                self._control.add(manifest.control)
        return Inbox(stage, read)

    def _fail_at(self, txid: int | None) -> None:
        if txid is not None:
            self._failed_txid = min(txid, self._failed_txid or txid)

    def _batches(self, inbox: Inbox) -> Iterator[Record]:
        run, outbox = self._stage.run, self._channel.outbox
        for attempt, metadata in zip(run.attempts, run.metadata, strict=True):
            if self._failed_txid is not None and attempt.txid >= self._failed_txid:
                return
            outbox.begin(attempt)
            for component in self._stage.compiled.levels_of(self._stage.chain)[self._stage.level]:
                with nullcontext() if self._times is None else self._times.of(component):
                    yield from self._component(component, attempt, metadata, inbox)
                if self._failed_txid == attempt.txid:
                    return
            for envelope in inbox.passing(attempt.txid):
                yield outbox.relay(envelope)
            yield from self._finish(attempt)

    def _component(
        self, id: str, attempt: TransactionAttempt, metadata: BatchMetadata, inbox: Inbox
    ) -> Iterator[Record]:
        component = self._stage.compiled.components[id]
        arrivals = inbox.arrivals(attempt.txid, component)
        for task in self._stage.tasks(component.tasks):
            if self._engine_rows is not None:  # then the whole level is of the engine
                steps = self._rows_of(component, attempt, task)
            elif component.kind.spout:
                if (id, task) not in self._spouts:
                    self._spouts[id, task] = SpoutTask(self._channel, component, task, self._rows)
                steps = self._spouts[id, task].steps(attempt, metadata)
            else:
                steps = self._bolt(component, attempt, task, arrivals.pop(task), metadata.stamp)
            yield from self._guarded(steps, component, attempt, task)
            if self._failed_txid == attempt.txid:
                return

    def _rows_of(
        self, component: PlannedComponent, attempt: TransactionAttempt, task: int
    ) -> Iterator[None]:
        """Emit the rows of a component of the engine that came to this slot."""
        engine = self._stage.compiled.engine
        assert engine is not None
        assert self._engine_rows is not None
        emission = Emission(self._channel, component, txid=attempt.txid, task=task)
        if component.id in engine.emitting:
            for batch in self._engine_rows.of(component.id):
                emission.collector.emit_batch(batch)
                yield
            emission.collector.close()
            yield

    def _bolt(
        self,
        component: PlannedComponent,
        attempt: TransactionAttempt,
        task: int,
        arrivals: list[Arrival],
        stamp: Stamp,
    ) -> Iterator[None]:
        compiled = self._stage.compiled
        if self._observer is not None:
            self._observer.received(component.id, arrivals)
        emission = Emission(self._channel, component, txid=attempt.txid, task=task)
        states = TaskStates(self._states, component.id, attempt)
        opens = states.state if self._stage.chain == "commit" else no_states
        context = compiled.context(component, task, lambda: stamp, opens, self._abandoned)
        bolt = component.prototype.copy()
        permit = self._permits(component.id)
        yield from run_bolt(bolt, compiled.config, context, attempt, arrivals, emission, permit)
        self._writes += states.write_sets(task)

    def _guarded(
        self,
        steps: Iterator[None],
        component: PlannedComponent,
        attempt: TransactionAttempt,
        task: int,
    ) -> Iterator[Record]:
        """Run the steps of a task. An exception of user code fails the txid and is not raised."""
        while True:
            try:
                next(steps)
            except StopIteration:
                return
            except NotPermitted:
                raise
            except BaseException as error:  # noqa: BLE001 - a bolt may even call sys.exit()
                self._fail(error, component.id, attempt.txid, task)
                return
            if self._channel.outbox.has_ready:
                yield from self._channel.outbox.ready()

    def _fail(self, error: BaseException, component: str, txid: int, task: int) -> None:
        if self._observer is not None:
            self._observer.failed(component, error)
        self._control.failures.append(
            failure_of(error, self._stage, component, txid=txid, task=task)
        )
        self._fail_at(txid)

    def _finish(self, attempt: TransactionAttempt) -> Iterator[Record]:
        outbox = self._channel.outbox
        try:
            self._channel.partials.send(outbox)
        except AggregateFailed as failed:
            self._fail(failed.error, failed.component, attempt.txid, 0)
            return
        outbox.end()
        yield from outbox.ready()
