"""Committers with several tasks, and emitters that take part in the commit phase."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.harness.runs import LOCAL, Storage, on, run_to_end
from tests.services.integration.bolts import WORDS, Gathering, SumByKey, plus
from tests.services.integration.topologies import DATA, ROWS, TAKE, storms_page, sums
from tests.services.integration.trouble import NUMBERS
from txtopo import (
    Committer,
    Config,
    FailedException,
    Topology,
    TransactionalTopologyBuilder,
    TransactionAttempt,
)
from txtopo.collector import BatchOutputCollector
from txtopo.config import Carrier
from txtopo.context import TaskContext
from txtopo.errors import ConflictingWritesError, DriverMemoryError
from txtopo.metadata import Json
from txtopo.plugins.spouts import (
    LastBatch,
    TransactionalCoordinator,
    TransactionalEmitter,
    TransactionalSpout,
)
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.state.backend import StateKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

on_spark = pytest.mark.parametrize(
    "carrier", [pytest.param("rdd", marks=pytest.mark.slow), "dataframe"]
)


class FlakySum(SumByKey):
    """Fails one task after it has written, in the first attempts at two txids."""

    def finish_batch(self) -> None:
        super().finish_batch()
        last = self.context.task_index == self.context.tasks - 1
        if last and self.attempt.txid in (2, 4) and self.attempt.attempt == 0:
            raise FailedException("one task of three")


class EachWritesTotal(SumByKey):
    """Every task writes the same key."""

    def finish_batch(self) -> None:
        with self.context.state("sums").transaction(self.attempt) as state:
            state.update("total", plus(len(self.tuples)))


def keyed(storage: Storage, committer: SumByKey) -> Topology:
    """Return a topology whose committer has three tasks."""
    spout = MemoryTransactionalSpout(DATA, WORDS, TAKE)
    builder = TransactionalTopologyBuilder("committers", "spout", spout, 2)
    bolt = builder.set_bolt("sums", committer, 3).fields_grouping("spout", "word")
    bolt.with_state("sums", storage.state("sums"))
    return builder.build_topology()


@pytest.mark.parametrize("kind", ["opaque", "transactional"])
def test_tasks_that_write_different_keys_are_exact_when_replayed(kind: StateKind) -> None:
    storage = Storage.in_memory(kind)

    changes = run_to_end(keyed(storage, FlakySum()), storage, replace(LOCAL, max_spout_pending=1))

    assert [each.attempt.txid for each in changes.failures] == [2, 4]
    assert storage.read("sums") == sums(ROWS)


@pytest.mark.parametrize("kind", ["opaque", pytest.param("transactional", marks=pytest.mark.slow)])
@on_spark
def test_tasks_that_write_different_keys_are_exact_on_spark(
    spark: SparkSession, carrier: Carrier, kind: StateKind, tmp_path: Path
) -> None:
    storage = Storage.in_sqlite(tmp_path, kind)

    changes = run_to_end(keyed(storage, FlakySum()), storage, on(carrier), spark)

    assert 2 in [each.attempt.txid for each in changes.failures]
    assert storage.read("sums") == sums(ROWS)


def test_a_key_that_two_tasks_write_ends_the_run() -> None:
    storage = Storage.in_memory()

    with pytest.raises(
        ConflictingWritesError, match="two tasks of bolt 'sums' wrote key"
    ) as caught:
        run_to_end(keyed(storage, EachWritesTotal()), storage)

    assert "total" in str(caught.value)
    assert storage.read("sums") == {}
    assert storage.ledger("sums").txid == 0


@on_spark
def test_a_key_that_two_tasks_write_ends_the_run_on_spark(
    spark: SparkSession, carrier: Carrier, tmp_path: Path
) -> None:
    storage = Storage.in_sqlite(tmp_path)

    with pytest.raises(ConflictingWritesError):
        run_to_end(keyed(storage, EachWritesTotal()), storage, on(carrier), spark)

    assert storage.read("sums") == {}


def test_committers_below_a_committer_share_one_commit_phase() -> None:
    storage = Storage.in_memory()

    changes = run_to_end(storms_page(storage, 2), storage)

    assert changes.committed == [1, 2, 3, 4, 5]
    assert storage.ledger("seen_by_b").writer == storage.ledger("seen_by_d").writer
    assert storage.read("seen_by_b")["finished"] == storage.read("seen_by_d")["finished"] == 5


class Notebook(TransactionalSpout):
    """A spout whose emitter writes down, in a file, what it is told in the commit phase."""

    output_fields = NUMBERS

    def __init__(self, file: Path) -> None:
        self.file = file

    def coordinator(self, config: Config, context: TaskContext) -> TransactionalCoordinator:
        return ThreeBatches()

    def emitter(self, config: Config, context: TaskContext) -> TransactionalEmitter:
        return NotebookEmitter(self.file, context)


class ThreeBatches(TransactionalCoordinator):
    """Plans three batches."""

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        return txid <= 3

    def initialize_transaction(self, txid: int, previous_metadata: Json) -> Json:
        return txid


class NotebookEmitter(TransactionalEmitter):
    """Emits its task's index; writes down what it is told."""

    def __init__(self, file: Path, context: TaskContext) -> None:
        self.file, self.context = file, context

    def emit_batch(
        self, attempt: TransactionAttempt, metadata: Json, collector: BatchOutputCollector
    ) -> None:
        collector.emit([self.context.task_index])

    def commit(self, attempt: TransactionAttempt, metadata: Json) -> None:
        """Write the txid, the attempt and the metadata down; fail once."""
        assert metadata == attempt.txid
        self.note(f"commit {attempt.txid}:{attempt.attempt}")
        if attempt.txid == 2 and attempt.attempt == 0:
            raise FailedException("not yet")

    def cleanup_before(self, txid: int) -> None:
        """Write down what is done."""
        self.note(f"before {txid}")

    def note(self, text: str) -> None:
        """Write a line."""
        with self.file.open("a") as file:
            file.write(text + "\n")


class NoteCommitter(Gathering, Committer):
    """Writes down that it commits."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def finish_batch(self) -> None:
        with self.file.open("a") as file:
            file.write(f"committer {self.attempt.txid}:{self.attempt.attempt}\n")


def test_an_emitter_commits_before_the_committers_and_is_told_what_is_done(
    tmp_path: Path,
) -> None:
    storage = Storage.in_memory()
    notes = tmp_path / "notes"
    builder = TransactionalTopologyBuilder("notebook", "spout", Notebook(notes), 2)
    builder.set_bolt("commit", NoteCommitter(notes)).global_grouping("spout")

    run_to_end(builder.build_topology(), storage, replace(LOCAL, max_spout_pending=1))

    assert notes.read_text().splitlines() == [
        *("commit 1:0", "committer 1:0", "before 2"),
        *("commit 2:0", "commit 2:1", "committer 2:1", "before 3"),
        *("commit 3:0", "committer 3:0", "before 4"),
    ]


def test_too_much_that_waits_in_the_driver_ends_the_run_and_names_the_stream() -> None:
    storage = Storage.in_memory()
    config = replace(LOCAL, driver_bytes_max=2_000)
    spout = MemoryTransactionalSpout({0: [["x" * 1000, 1]] * 10}, WORDS, 5)
    builder = TransactionalTopologyBuilder("large", "spout", spout)
    builder.set_bolt("sums", SumByKey()).global_grouping("spout").with_state(
        "sums", storage.state("sums")
    )

    with pytest.raises(DriverMemoryError, match="stream 'spout/default'") as caught:
        run_to_end(builder.build_topology(), storage, config)

    assert caught.value.facts["stream"] == "spout/default"
