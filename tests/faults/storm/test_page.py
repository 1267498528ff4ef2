"""Each statement of Storm's page on transactional topologies, with the programs of the page.

The page is Transactional-topologies.html of Storm 1.2.4. Its programs run here as they are written
there, under the default settings, with a database of their own; they die at durable steps, and are
started again. ``test_page_killed.py`` has the carriers of Spark, and processes that are killed.

The last test has the first program with SQL in the transactions of txids, which needs no rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.faults.storm.programs import (
    RECORDS,
    BatchCount,
    Database,
    Dies,
    Tables,
    UpdateGlobalCount,
    executed_count,
    expected_top_words,
    global_count,
    goes_back,
    opaque_count,
    top_words,
)
from tests.harness.dying import Died, RaisingScheduler
from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.runs import LOCAL, Changes, started
from txtopo import FailedException, Topology, TransactionalTopologyBuilder, TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.ensemble.memory import MemoryEnsemble, MemoryTransactionalState
from txtopo.errors import TxtopoError
from txtopo.metadata import Json
from txtopo.plugins.spouts import (
    LastBatch,
    TransactionalCoordinator,
    TransactionalEmitter,
    TransactionalSpout,
)
from txtopo.runtime.progress import BatchCommitted, BatchesProcessed, BatchFailed
from txtopo.runtime.scheduler import Scheduler
from txtopo.runtime.start import start_topology
from txtopo.tuples import Fields

pytestmark = pytest.mark.integration
DEATH = 15


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database.new(tmp_path)


def dies_after(txid: int) -> Dies:
    """Return what ends the work of a process right after the write of a txid."""

    def die(written: int) -> None:
        if written == txid:
            raise Died(f"after the write of txid {txid}")

    return die


def run(
    topology: Topology,
    ensemble: MemoryEnsemble,
    changes: Changes | None = None,
    config: Config = LOCAL,
) -> Changes:
    changes = changes or Changes()
    with started(topology, config, ensemble, [changes]) as running:
        running.process_all_available(LIMIT_S)
    return changes


def run_until_it_dies(
    topology: Topology,
    ensemble: MemoryEnsemble,
    scheduler: Scheduler | None = None,
    config: Config = LOCAL,
) -> None:
    running = start_topology(topology.graph, None, config, scheduler=scheduler, ensemble=ensemble)
    with pytest.raises((TxtopoError, RuntimeError), match="Died"):
        running.await_termination(LIMIT_S)


def check(database: Database, expected: dict[str, int]) -> None:
    left = {key: count for key, count in database.counts().items() if count}
    assert left == expected
    assert goes_back(database.work()) == []


Program = Callable[[Database], Topology]
PROGRAMS: dict[str, tuple[Program, dict[str, int]]] = {
    "equal txids are skipped": (global_count, {"global": RECORDS}),
    "the count before is kept": (opaque_count, {"global": RECORDS}),
    "committers with tasks": (top_words, expected_top_words()),
}
of_each_program = pytest.mark.parametrize("name", PROGRAMS)


@of_each_program
def test_a_process_that_dies_after_a_write_counts_nothing_twice(
    database: Database, name: str
) -> None:
    """Design 1 to 3: the stored txid tells whether the batch was counted, in strong order."""
    topology, expected = PROGRAMS[name]
    ensemble = MemoryEnsemble()

    run_until_it_dies(topology(replace(database, dies=dies_after(DEATH))), ensemble)
    assert 0 < sum(database.counts().values()) < sum(expected.values())
    run(topology(database), ensemble)

    check(database, expected)


STEPS = ("turn.after", "advance.before", "advance.after", "cleanup.before", "store-metadata.after")


@of_each_program
@pytest.mark.parametrize("step", STEPS)
def test_a_process_that_dies_at_a_durable_step_counts_nothing_twice(
    database: Database, name: str, step: str
) -> None:
    """Storm "replays the batch" of a failure, under the same txid."""
    topology, expected = PROGRAMS[name]
    ensemble = MemoryEnsemble()

    run_until_it_dies(topology(database), ensemble, RaisingScheduler(step, 3))
    run(topology(database), ensemble)

    check(database, expected)


class Scripted(UpdateGlobalCount):
    """Does something more before it finishes a batch."""

    before: ClassVar[Callable[[TransactionAttempt], None]]
    after: ClassVar[Callable[[TransactionAttempt], None]]

    def finish_batch(self) -> None:
        Scripted.before(self.attempt)
        super().finish_batch()
        Scripted.after(self.attempt)


@pytest.fixture(autouse=True)
def scripted() -> None:
    Scripted.before = Scripted.after = lambda attempt: None


@pytest.mark.rule("txtopo.runtime.term", "Rules", 2)
def test_batches_are_processed_side_by_side_and_committed_in_strong_order(
    database: Database,
) -> None:
    """The processing phases are parallel; "once you commit a particular transaction id for the
    first time, all prior transaction ids will never be committed again"."""
    changes, ensemble = Changes(), MemoryEnsemble()
    client = MemoryTransactionalState("global-count", ensemble)
    currents: list[tuple[int, Json]] = []

    def look(attempt: TransactionAttempt) -> None:
        if attempt.txid == 1:
            wait_until(many_are_processed, "many batches are processed")
        node = client.get("/current")
        assert node is not None
        assert isinstance(node.value, dict)
        currents.append((attempt.txid, node.value["current"]))

    def many_are_processed() -> bool:
        return sum(len(each.attempts) for each in changes.of(BatchesProcessed)) >= 20

    Scripted.before = look
    run(global_count(database, committer=Scripted(database)), ensemble, changes)

    each = range(1, RECORDS + 1)
    assert {change.progress.group for change in changes.of(BatchCommitted)} == {
        (txid, txid) for txid in each
    }
    assert currents == [(txid, txid) for txid in each]
    check(database, {"global": RECORDS})


def test_a_batch_that_its_committer_fails_is_replayed_under_its_txid(database: Database) -> None:
    """ "Failing a batch": that one is replayed, and none that is committed."""
    failed: list[int] = []

    def fail(attempt: TransactionAttempt) -> None:
        if attempt.txid == DEATH and attempt.attempt < 2:
            failed.append(attempt.attempt)
            raise FailedException("not now")

    Scripted.after = fail
    changes = run(global_count(database, committer=Scripted(database)), MemoryEnsemble())

    assert failed == [0, 1]
    assert {each.attempt.txid for each in changes.of(BatchFailed)} == {DEATH}
    check(database, {"global": RECORDS})


def test_a_replay_of_an_opaque_batch_with_other_records_counts_each_once(
    database: Database,
) -> None:
    """Opaque spouts: the replay may bring other records, so the count before it is the base."""
    ensemble = MemoryEnsemble()

    run_until_it_dies(opaque_count(replace(database, dies=dies_after(5)), take=4), ensemble)
    assert database.counts() == {"global": 20}
    run(opaque_count(database, take=3), ensemble)

    check(database, {"global": RECORDS})


class Finishing(BatchCount):
    """Tells when it finishes a batch."""

    finished: ClassVar[list[int]] = []

    def finish_batch(self) -> None:
        Finishing.finished.append(self.attempt.txid)
        super().finish_batch()


def test_finish_batch_of_other_bolts_waits_for_no_commit(database: Database) -> None:
    """``BatchCount`` is not a committer, so it finishes batches "as soon as they are received"."""
    Finishing.finished = []

    def wait(attempt: TransactionAttempt) -> None:
        if attempt.txid == 1:
            wait_until(lambda: max(Finishing.finished) >= 10, "later batches are finished")

    Scripted.before = wait
    topology = global_count(database, committer=Scripted(database), counter=Finishing())
    run(topology, MemoryEnsemble())

    check(database, {"global": RECORDS})


class Told(TransactionalSpout):
    """A spout of Storm's first kind, whose emitter takes part in the commit phase."""

    output_fields = Fields("word string")
    planned: ClassVar[list[tuple[int, Json]]]
    emitted: ClassVar[list[tuple[int, Json]]]
    committed: ClassVar[list[int]]
    dies: ClassVar[Dies]

    def coordinator(self, config: Config, context: TaskContext) -> TransactionalCoordinator:
        return Plans()

    def emitter(self, config: Config, context: TaskContext) -> TransactionalEmitter:
        return Emits()


class Plans(TransactionalCoordinator):
    def is_ready(self, txid: int, last: LastBatch) -> bool:
        return txid <= RECORDS

    def initialize_transaction(self, txid: int, previous_metadata: Json) -> Json:
        Told.planned.append((txid, previous_metadata))
        return {"record": txid}


class Emits(TransactionalEmitter):
    def emit_batch(
        self, attempt: TransactionAttempt, metadata: Json, collector: BatchOutputCollector
    ) -> None:
        Told.emitted.append((attempt.txid, metadata))
        collector.emit(["word"])

    def commit(self, attempt: TransactionAttempt, metadata: Json) -> None:
        Told.committed.append(attempt.txid)
        Told.dies(attempt.txid)


def told_count(database: Database) -> Topology:
    builder = TransactionalTopologyBuilder("told", "spout", Told())
    builder.set_bolt("partial-count", BatchCount()).shuffle_grouping("spout")
    committer: Any = UpdateGlobalCount(database)
    builder.set_bolt("sum", committer).global_grouping("partial-count")
    return builder.build_topology()


def test_an_emitter_gets_the_planned_metadata_again_and_its_commit_in_strong_order(
    database: Database,
) -> None:
    """``ITransactionalSpout``: the metadata is stored, and is that of each replay; a committer
    spout's ``commit`` is called before the committers, and for no earlier txid afterwards."""
    ensemble = MemoryEnsemble()
    Told.planned, Told.emitted, Told.committed = [], [], []
    Told.dies = dies_after(DEATH)

    run_until_it_dies(told_count(database), ensemble)
    Told.dies = lambda txid: None
    run(told_count(database), ensemble)

    again = [txid for txid in Told.committed if Told.committed.count(txid) > 1]
    assert sorted(Told.committed) == Told.committed
    assert set(again) == {DEATH}
    assert {metadata == {"record": txid} for txid, metadata in Told.emitted} == {True}
    assert all(
        before == (None if txid == 1 else {"record": txid - 1}) for txid, before in Told.planned
    )
    check(database, {"global": RECORDS})


GROUPS = replace(LOCAL, group_txids_max=3, max_spout_pending=9, poll_interval_s=20)
"""The first three commits are groups of three txids, since nine are processed together."""
DEATHS = {
    "begin.before:sum.here": (3, 3),
    "write.before:sum.here": (3, 3),
    "write.after:sum.here": (6, 3),
    "write.before:sum.there": (6, 3),
    "write.after:sum.there": (6, 6),
    "advance.before": (6, 6),
}
"""Steps of the second group, and the last txid that each state has when a process dies there."""


@pytest.mark.parametrize("step", DEATHS)
@pytest.mark.parametrize("opaque", [False, True], ids=["repeats", "opaque"])
def test_sql_in_the_transaction_of_a_txid_counts_once_wherever_a_process_dies(
    tmp_path: Path, step: str, opaque: bool
) -> None:
    """Without the rule of the page, in groups of txids, and if a replay has other records."""
    tables = Tables.new(f"sqlite:///{tmp_path}/own.db", f"sqlite:///{tmp_path}/other.db")
    ensemble, (here, there) = MemoryEnsemble(), DEATHS[step]
    before, after = (3, 2) if opaque else (2, 2)

    dying = executed_count(tables, opaque=opaque, take=before)
    run_until_it_dies(dying, ensemble, RaisingScheduler(step, 2), GROUPS)
    assert tables.held() == [(here - 2, here), (there - 2, there)]
    assert tables.total() == here * before
    run(executed_count(tables, opaque=opaque, take=after), ensemble, config=GROUPS)

    assert tables.counts() == [RECORDS] * 4
    assert tables.astray() == []
    # A group that only one of the states had is written again. Below a spout that repeats its
    # batches, what was executed stays.
    again = here != there and opaque
    assert [epoch for _, txid, epoch, _ in tables.lines() if txid <= 6] == [
        1 if txid <= (3 if again else here) else 2 for txid in range(1, 7)
    ]
