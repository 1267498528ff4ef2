"""An emitter that takes part in the commit is told each attempt, with its metadata, in the driver.

The rows of a batch are its txid, three times.
"""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from time import sleep
from typing import ClassVar

import pytest

from state_backends.memory import MemoryBackend, MemoryStore
from tests.harness.dying import RaisingScheduler
from tests.harness.polling import LIMIT_S
from tests.harness.runs import LOCAL, Changes
from tests.unit.reliable.bolts import Seen
from tests.unit.runtime.loop_world import Total, memory_state, running, stored
from txtopo import Config, FailedException, Fields, TaskContext, TransactionalTopologyBuilder
from txtopo.attempt import TransactionAttempt
from txtopo.builders.transactional import Topology
from txtopo.collector import BatchOutputCollector
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.errors import PoisonBatchError, TxtopoError, ValueRefusedError
from txtopo.metadata import Json
from txtopo.plugins.spouts import (
    LastBatch,
    OpaquePartitionedTransactionalEmitter,
    OpaquePartitionedTransactionalSpout,
    PartitionedCoordinator,
    TransactionalCoordinator,
    TransactionalEmitter,
    TransactionalSpout,
)
from txtopo.plugins.stores import Ledger, Writes
from txtopo.runtime.progress import BatchesProcessed, BatchFailed, Leading, TopologyEvent
from txtopo.runtime.start import start_topology
from txtopo.state import State, open_state, register_backend

BATCHES = 5
AMOUNTS = Fields("amount long")
Told = tuple[int, int, int, Json]
"""Epoch, txid, attempt, metadata."""


class Planner(TransactionalCoordinator):
    """Plans some batches."""

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        return txid <= BATCHES

    def initialize_transaction(self, txid: int, previous_metadata: Json) -> Json:
        return {"amount": txid}


class Telling(TransactionalSpout):
    """Notes what its emitter is told; the emitter fails the attempts that it is given."""

    output_fields = AMOUNTS

    def __init__(self, seen: Seen, fails: tuple[tuple[int, int], ...] = ()) -> None:
        self.seen, self.fails = seen, fails

    def coordinator(self, config: Config, context: TaskContext) -> TransactionalCoordinator:
        return Planner()

    def emitter(self, config: Config, context: TaskContext) -> TransactionalEmitter:
        return TellingEmitter(self, context)


class TellingEmitter(TransactionalEmitter):
    """Emits its task's share."""

    writes_nowhere_else = True

    def __init__(self, spout: Telling, context: TaskContext) -> None:
        self.spout, self.context = spout, context

    def emit_batch(
        self, attempt: TransactionAttempt, metadata: Json, collector: BatchOutputCollector
    ) -> None:
        assert isinstance(metadata, dict)
        collector.emit([metadata["amount"]])

    def commit(self, attempt: TransactionAttempt, metadata: Json) -> None:
        told = (attempt.epoch, attempt.txid, attempt.attempt, metadata)
        self.spout.seen.notes.append(told)
        self.spout.seen.notes.append((os.getpid(), self.context.task_index))
        if (attempt.txid, attempt.attempt) in self.spout.fails:
            raise FailedException("not yet")


class Cutting(OpaquePartitionedTransactionalSpout):
    """Has two partitions, and cuts each replay again."""

    output_fields = AMOUNTS

    def __init__(self, seen: Seen) -> None:
        self.seen = seen

    def coordinator(self, config: Config, context: TaskContext) -> PartitionedCoordinator:
        return TwoPartitions()

    def emitter(
        self, config: Config, context: TaskContext
    ) -> OpaquePartitionedTransactionalEmitter:
        return CuttingEmitter(self.seen)


class TwoPartitions(PartitionedCoordinator):
    """Has some batches."""

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        return txid <= BATCHES

    def number_of_partitions(self) -> int:
        return 2


class CuttingEmitter(OpaquePartitionedTransactionalEmitter):
    """Ends a batch at another place with each attempt; fails the first commit of txid 2."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen

    def emit_partition_batch(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        last_metadata: Json,
    ) -> Json:
        collector.emit([attempt.txid])
        return {"end": 10 * attempt.txid + attempt.attempt}

    def commit(self, attempt: TransactionAttempt, metadata: Json) -> None:
        self.seen.notes.append((attempt.epoch, attempt.txid, attempt.attempt, metadata))
        if (attempt.txid, attempt.attempt) == (2, 0):
            raise FailedException("not yet")


def topology_of(
    spout: TransactionalSpout | OpaquePartitionedTransactionalSpout,
    state: State,
    tasks: int = 3,
    bolt: Total | None = None,
) -> Topology:
    builder = TransactionalTopologyBuilder("totals", "spout", spout, tasks)
    declarer = builder.set_bolt("total", bolt or Total()).global_grouping("spout")
    declarer.with_state("totals", state)
    return builder.build_topology()


def told(seen: Seen) -> list[Told]:
    return [note for note in seen.notes if len(note) == 4]


def planned(txid: int, attempt: int = 0, epoch: int = 1) -> Told:
    return (epoch, txid, attempt, {"amount": txid})


def test_an_emitter_is_told_each_attempt_once_in_the_driver_though_three_tasks_emitted() -> None:
    """Storm tells it in each task that emitted."""
    seen, state = Seen(), memory_state()

    with running(topology_of(Telling(seen), state), MemoryEnsemble()) as run:
        run.process_all_available(LIMIT_S)

    assert told(seen) == [planned(txid) for txid in range(1, BATCHES + 1)]
    assert {note for note in seen.notes if len(note) == 2} == {(os.getpid(), 0)}
    assert stored(state) == (BATCHES, 3 * sum(range(1, BATCHES + 1)))


class Noting(Total):
    """Notes the txid whose writes it makes."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen

    def finish_batch(self) -> None:
        self.seen.notes.append(("committer", self.attempt.txid, self.attempt.attempt))
        super().finish_batch()


@pytest.mark.rule("txtopo.runtime.commit_phase", "Order", 1)
def test_an_emitter_is_told_of_a_batch_before_the_committers_run() -> None:
    """So what it refuses never gets as far as them.

    The attempts after the refused one are abandoned with it if they were not processed yet.
    """
    seen = Seen()
    topology = topology_of(Telling(seen, fails=((2, 0),)), memory_state(), bolt=Noting(seen))

    with running(topology, MemoryEnsemble(), group_txids_max=1) as run:
        run.process_all_available(LIMIT_S)

    order = [note[:3] for note in seen.notes if len(note) > 2]
    made = [note[1:] for note in order if note[0] == "committer"]
    assert [txid for txid, _ in made] == list(range(1, BATCHES + 1))
    for txid, last in made:
        assert order.index((1, txid, last)) < order.index(("committer", txid, last))
    assert (2, 0) not in made


def test_an_emitter_that_fails_an_attempt_is_told_the_next_one() -> None:
    seen = Seen()
    topology = topology_of(Telling(seen, fails=((2, 0), (2, 1))), memory_state())

    with running(topology, MemoryEnsemble()) as run:
        run.process_all_available(LIMIT_S)

    first, rest = told(seen)[:4], told(seen)[4:]
    assert [note[1:3] for note in first] == [(1, 0), (2, 0), (2, 1), (2, 2)]
    assert [note[1] for note in rest] == [3, 4, 5]


def test_the_metadata_is_that_of_the_attempt_by_partition() -> None:
    """A replay of an opaque spout may end elsewhere."""
    seen = Seen()

    with running(topology_of(Cutting(seen), memory_state(), tasks=1), MemoryEnsemble()) as run:
        run.process_all_available(LIMIT_S)

    of_two = [note for note in told(seen) if note[1] == 2]
    assert of_two == [
        (1, 2, 0, {"0": {"end": 20}, "1": {"end": 20}}),
        (1, 2, 1, {"0": {"end": 21}, "1": {"end": 21}}),
    ]


def die_and_go_on(seen: Seen, step: str, txid: int) -> list[Leading]:
    """Run until a durable step of a txid; continue with another driver, and return what leads."""
    ensemble, state = MemoryEnsemble(), memory_state()
    topology = topology_of(Telling(seen), state)
    alone, dying = replace(LOCAL, group_txids_max=1), RaisingScheduler(step, txid)
    run = start_topology(topology.graph, None, alone, scheduler=dying, ensemble=ensemble)
    with pytest.raises(TxtopoError, match="Died"):
        run.await_termination(LIMIT_S)
    changes = Changes()
    with running(topology, ensemble, changes) as successor:
        successor.process_all_available(LIMIT_S)
    assert stored(state) == (BATCHES, 3 * sum(range(1, BATCHES + 1)))
    assert changes.of(BatchFailed) == []
    leading: list[Leading] = changes.of(Leading)
    return leading


def test_a_driver_that_dies_before_the_states_are_written_has_its_successor_tell_it_again() -> None:
    seen = Seen()

    (leading,) = die_and_go_on(seen, "write.before:total.totals", 3)

    assert leading.adopted is None
    assert told(seen) == [
        *(planned(txid) for txid in (1, 2, 3)),
        *(planned(txid, epoch=2) for txid in (3, 4, 5)),
    ]


def test_a_driver_that_dies_after_the_states_are_written_has_told_it_for_the_last_time() -> None:
    """The successor adopts the txid; no attempt at it comes again."""
    seen = Seen()

    (leading,) = die_and_go_on(seen, "write.after:total.totals", 3)

    assert leading.adopted == 3
    assert told(seen) == [
        *(planned(txid) for txid in (1, 2, 3)),
        *(planned(txid, epoch=2) for txid in (4, 5)),
    ]


def test_an_emitter_is_told_once_of_a_batch_that_leaves_its_group_and_waits_again() -> None:
    """The state refuses the first group, so each of its batches is tried alone."""
    seen, store = Seen(), MemoryStore()
    register_backend("refuses-groups", lambda url, table: RefusesGroups(store, table))
    state = open_state("refuses-groups:")

    with running(topology_of(Telling(seen), state), MemoryEnsemble()) as run:
        run.process_all_available(LIMIT_S)

    assert [note[1:3] for note in told(seen)] == [(txid, 0) for txid in range(1, BATCHES + 1)]
    assert stored(state) == (BATCHES, 3 * sum(range(1, BATCHES + 1)))
    assert RefusesGroups.refused


class RefusesGroups(MemoryBackend):
    refused: ClassVar[list[TransactionAttempt]] = []

    def commit(self, attempt: TransactionAttempt, writes: Writes) -> Ledger:
        sleep(0.05)  # meanwhile others wait for their turn
        if attempt.first_txid < attempt.txid:
            self.refused.append(attempt)
            raise ValueRefusedError("too much")
        return super().commit(attempt, writes)


class Hangs(Telling):
    """Its emitter hangs in txid 3, and waits in txid 1 until all batches are processed."""

    processed, released = threading.Event(), threading.Event()

    def emitter(self, config: Config, context: TaskContext) -> TransactionalEmitter:
        return HangingEmitter(self, context)


class HangingEmitter(TellingEmitter):
    def commit(self, attempt: TransactionAttempt, metadata: Json) -> None:
        event = {1: Hangs.processed, 3: Hangs.released}.get(attempt.txid)
        assert event is None or event.wait(LIMIT_S)


@pytest.mark.integration
def test_an_emitter_that_hangs_ends_the_run_and_what_is_before_it_is_committed() -> None:
    """It cannot be told that txid 2 is committed, but nothing waits for that."""
    state, numbers = memory_state(), {"processed": 0, "failed": 0}

    def look(change: TopologyEvent) -> None:
        if isinstance(change, BatchesProcessed):
            numbers["processed"] += len(change.attempts)
        if isinstance(change, BatchFailed):
            numbers["failed"] += 1
        if numbers["processed"] >= BATCHES:
            Hangs.processed.set()
        if numbers["failed"] == 2:
            Hangs.released.set()

    patient = {"batch_timeout_s": 2.0, "attempts_max": 2}
    with (
        running(
            topology_of(Hangs(Seen()), state), MemoryEnsemble(), Changes(look), **patient
        ) as run,
        pytest.raises(PoisonBatchError, match="batch of txid 3 failed 2 times"),
    ):
        run.process_all_available(LIMIT_S)

    assert stored(state) == (2, 3 * sum(range(1, 3)))


class AnswersLate(MemoryBackend):
    """Writes txid 3 at once, and answers after the batch has timed out."""

    given_up = threading.Event()

    def commit(self, attempt: TransactionAttempt, writes: Writes) -> Ledger:
        answer = super().commit(attempt, writes)
        assert attempt.txid != 3 or self.given_up.wait(LIMIT_S)
        return answer


def test_an_emitter_is_told_again_if_the_states_answer_too_late() -> None:
    """The states hold the txid, but the driver gives the attempt up; its successor redoes it."""
    seen, store = Seen(), MemoryStore()
    register_backend("answers-late", lambda url, table: AnswersLate(store, table))
    state = open_state("answers-late:")

    def look(change: TopologyEvent) -> None:
        if isinstance(change, BatchFailed) and change.attempt.txid == 3:
            AnswersLate.given_up.set()

    alone = {"batch_timeout_s": 0.5, "group_txids_max": 1}
    topology = topology_of(Telling(seen), state)
    with running(topology, MemoryEnsemble(), Changes(look), **alone) as run:
        run.process_all_available(LIMIT_S)

    assert [note[2] for note in told(seen) if note[1] == 3][:2] == [0, 1]
    assert stored(state) == (BATCHES, 3 * sum(range(1, BATCHES + 1)))
