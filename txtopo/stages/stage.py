"""Stage functions: one level of a chain in one slot. Knows nothing of Spark.

Records come in, ``(address, record)`` go out; :mod:`txtopo.runtime.carrier` says what the addresses
mean. For each txid of the run in order, for each component of the level, for each of its tasks in
this slot, a fresh copy of the user's object runs on what arrived for it, also when nothing did.

No exception of user code leaves from here: it becomes data, the slot skips that txid and all later
ones, and so do the levels behind it. If what arrived is not what was sent, the run is lost, and
that too is data, since Spark would only run the task again on the same records.

Chunks: rows of a DataFrame on their way to the slot that emits them into envelopes.

A Spark partition of the frame goes to one slot as a whole, so a partition that Spark computes again
is seen either as it was or as it is, never half and half.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from contextlib import ExitStack

import pyarrow as pa

from txtopo.attempt import TransactionAttempt
from txtopo.context import TaskContext
from txtopo.errors import RecomputedError, RunLostError, StateUsageError
from txtopo.metadata import BatchMetadata
from txtopo.stages.emission import AggregateFailed, Channel, Emission
from txtopo.stages.envelopes import Control, fault_of, raise_fault
from txtopo.stages.mailboxes import Arrival, Inbox, Records, StageContext, level_above, sender_at
from txtopo.stages.pickling import loads
from txtopo.stages.program import Chain, PlannedComponent, Program, Run
from txtopo.stages.tasks import SpoutTask, StateOpener, TaskStates, open_in_task, run_bolt
from txtopo.stages.user_errors import failure_of

# Half of what Spark's arrays of bytes hold, since others may travel with it.
STAMP_BYTES_MAX = 1 << 30

Address = int

Output = Iterator[tuple[Address, bytes]]


def run_stage(
    program: Program,
    chain: Chain,
    run: Run,
    level: int,
    slot: int,
    task_id: int,
    records: Iterable[bytes],
    states: StateOpener | None = None,
    rows: Iterable[pa.RecordBatch] = (),
) -> Output:
    """Run one level of a chain in one slot.

    Args:
        program: The topology.
        chain: The chain.
        run: The run; for the commit chain ``run.only(attempt)``.
        level: The level.
        slot: The slot.
        task_id: Id of the Spark task attempt: another one for each time that the task is run.
        records: What was sent to this slot, in any order.
        states: Opens the states of committers; without it each task opens their stores itself.
        rows: At the first level of a topology with a stream spout: what comes in at this slot.

    Yields:
        (address, record).
    """
    with ExitStack() as closing:
        if states is None:
            states = open_in_task(program, closing)
        site = StageContext(program, chain, run, level, slot, task_id)
        yield from _Stage(site, states, rows).run(records)


class _Stage:
    """One call of a stage function."""

    def __init__(
        self, site: StageContext, states: StateOpener, rows: Iterable[pa.RecordBatch] = ()
    ) -> None:
        self._site = site
        self._rows = rows
        self._states = states
        self._control = Control()
        self._channel = Channel(site, self._control)
        self._spouts: dict[int, SpoutTask] = {}
        self._chunks = Chunks(())
        self._failed_txid: int | None = None

    def run(self, records: Iterable[bytes]) -> Output:
        fault = None
        try:
            inbox = self._open(records)
        except (RecomputedError, RunLostError) as error:
            fault = fault_of(error)
        else:
            yield from self._batches(inbox)
        for spout in self._spouts.values():
            spout.close()
        yield from self._stamps(fault)

    def _stamps(self, fault: tuple[bool, str] | None) -> Iterable[tuple[Address, bytes]]:
        """Return the stamps; write sets travel in them, and what cannot be moved is refused."""
        outbox, control = self._channel.outbox, self._control
        stamps = list(outbox.stamps(control, failed_txid=self._failed_txid, fault=fault))
        largest = max(len(record) for _, record in stamps)
        if largest <= STAMP_BYTES_MAX or not control.writes:
            return stamps
        write = max(control.writes, key=lambda each: len(each.puts.rows))
        error = StateUsageError(
            f"what committers write in one batch is too large to be moved to the driver; got "
            f"{largest} bytes, the most rows by bolt {write.component!r} to state "
            f"{write.state!r}; expected at most {STAMP_BYTES_MAX}; no setting raises that; let "
            "the spout cut smaller batches, or write shorter values",
            component=write.component,
            state=write.state,
            bytes=largest,
        )
        self._fail(error, write.component, write.txid, write.task)
        control.writes.clear()
        return outbox.stamps(control, failed_txid=self._failed_txid, fault=fault)

    def _open(self, records: Iterable[bytes]) -> Inbox:
        site = self._site
        if site.program.frames is not None and site.chain == "processing" and not site.level:
            self._chunks = Chunks(records)
            records = ()
        read = Records.read(records)
        raise_fault(read.stamps)
        if site.chain == "processing":
            slots = site.program.slots if site.level else 0
        else:
            # The driver has checked the stamps of the cut when it judged the run.
            judged = site.program.commit_in_driver and site.level == 0
            slots = 0 if judged else site.program.slots_of(site.chain)
        if slots:
            read.check(site.run, level_above(site), slots, sender_at(site))
        self._control.consumed |= read.makers()
        for stamp in read.stamps:
            self._fail_at(stamp.failed_txid)
            if stamp.control is not None:
                self._control.add(stamp.control)
        return Inbox(site, read)

    def _fail_at(self, txid: int | None) -> None:
        if txid is not None:
            self._failed_txid = min(txid, self._failed_txid or txid)

    def _batches(self, inbox: Inbox) -> Output:
        run, outbox = self._site.run, self._channel.outbox
        for attempt, metadata in zip(run.attempts, run.metadata, strict=True):
            if self._failed_txid is not None and attempt.txid >= self._failed_txid:
                return
            outbox.begin(attempt)
            for component in self._site.program.levels_of(self._site.chain)[self._site.level]:
                yield from self._component(component, attempt, metadata, inbox)
                if self._failed_txid == attempt.txid:
                    return
            for envelope in inbox.passing(attempt.txid):
                yield outbox.relay(envelope)
            yield from self._finish(attempt)

    def _component(
        self, id: str, attempt: TransactionAttempt, metadata: BatchMetadata, inbox: Inbox
    ) -> Output:
        component = self._site.program.components[id]
        arrivals = inbox.arrivals(attempt.txid, component)
        for task in self._site.tasks(component.tasks):
            if component.role.frame:
                steps = self._rows_of(component, attempt, task)
            elif component.role.spout:
                if task not in self._spouts:
                    self._spouts[task] = SpoutTask(self._channel, component, task, self._rows)
                spout = self._spouts[task]
                steps = spout.steps(attempt, metadata)
            else:
                steps = self._bolt(component, attempt, task, arrivals.pop(task))
            yield from self._guarded(steps, component, attempt, task)
            if self._failed_txid == attempt.txid:
                return

    def _rows_of(
        self, component: PlannedComponent, attempt: TransactionAttempt, task: int
    ) -> Iterator[None]:
        """Emit the rows of a frame that this slot got."""
        frames = self._site.program.frames
        assert frames is not None
        emission = Emission(self._channel, component, txid=attempt.txid, task=task)
        if component.id in frames.emitting:
            yield from self._chunks.steps(frames.emitting.index(component.id), emission)

    def _bolt(
        self,
        component: PlannedComponent,
        attempt: TransactionAttempt,
        task: int,
        arrivals: list[Arrival],
    ) -> Iterator[None]:
        program = self._site.program
        emission = Emission(self._channel, component, txid=attempt.txid, task=task)
        states = TaskStates(self._states, component.id, attempt)
        context = TaskContext(program.topology_id, component.id, task, component.tasks)
        if self._site.chain == "commit":
            context = TaskContext(
                program.topology_id, component.id, task, component.tasks, states.state
            )
        bolt = loads(component.prototype)
        yield from run_bolt(bolt, program.config, context, attempt, arrivals, emission)
        self._control.writes += states.write_sets(task)

    def _guarded(
        self,
        steps: Iterator[None],
        component: PlannedComponent,
        attempt: TransactionAttempt,
        task: int,
    ) -> Output:
        """Run the steps of a task; an exception of user code becomes data."""
        while True:
            try:
                next(steps)
            except StopIteration:
                return
            except BaseException as error:  # noqa: BLE001 - a bolt may even call sys.exit()
                self._fail(error, component.id, attempt.txid, task)
                return
            yield from self._channel.outbox.ready()

    def _fail(self, error: BaseException, component: str, txid: int, task: int) -> None:
        self._control.failures.append(
            failure_of(error, self._site, component, txid=txid, task=task)
        )
        self._fail_at(txid)

    def _finish(self, attempt: TransactionAttempt) -> Output:
        outbox = self._channel.outbox
        try:
            self._channel.partials.send(outbox)
        except AggregateFailed as failed:
            self._fail(failed.error, failed.component, attempt.txid, 0)
            return
        outbox.end()
        yield from outbox.ready()


CHUNK = 0x43

# What it is, number of the component, Spark partition, number of the chunk: 16 bytes, since Arrow
# warns of columns behind it that are not aligned.
_HEADER = struct.Struct("<IIII")

Key = tuple[int, int, int]


def seal_chunk(component: int, partition: int, number: int, batch: pa.RecordBatch) -> bytes:
    """Return rows of a frame as a record.

    Args:
        component: Place of the component in ``FramePlan.emitting``.
        partition: The Spark partition that the rows come from.
        number: How many chunks of that partition there were before.
        batch: The rows.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    header = _HEADER.pack(CHUNK, component, partition, number)
    rows: bytes = sink.getvalue().to_pybytes()
    return header + rows


class Chunks:
    """The chunks that one slot got, of one attempt."""

    def __init__(self, records: Iterable[bytes]) -> None:
        self._chunks: dict[Key, bytes] = {}
        for record in records:
            kind, *key = _HEADER.unpack_from(record)
            assert kind == CHUNK
            self._chunks[key[0], key[1], key[2]] = record

    def steps(self, component: int, emission: Emission) -> Iterator[None]:
        """Emit the rows of a component in their order; stops where the outbox may be emptied."""
        for key in sorted(key for key in self._chunks if key[0] == component):
            record = memoryview(self._chunks.pop(key))[_HEADER.size :]
            for batch in pa.ipc.open_stream(record):
                emission.collector.emit_batch(batch)
                yield
        emission.collector.close()
        yield
