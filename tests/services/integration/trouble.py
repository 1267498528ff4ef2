"""A topology whose user code fails where and when a script says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.harness.runs import Contents, Storage
from tests.services.integration.bolts import Gathering, plus
from txtopo import (
    BasicBolt,
    Committer,
    Config,
    FailedException,
    Fields,
    Topology,
    TransactionalTopologyBuilder,
    TransactionAttempt,
    Tuple,
)
from txtopo.collector import BatchOutputCollector
from txtopo.context import TaskContext
from txtopo.metadata import Json
from txtopo.plugins.spouts import (
    LastBatch,
    TransactionalCoordinator,
    TransactionalEmitter,
    TransactionalSpout,
)

BATCH_ROWS = 7
NUMBERS = Fields("number long")


@dataclass(frozen=True, slots=True)
class Trouble:
    """A failure of user code.

    Attributes:
        method: ``component.method``.
        txid: The batch in which it fails.
        error: The class of the exception.
        attempts: How many attempts at the batch fail.
        epochs: How many coordinators meet the failure.
    """

    method: str
    txid: int
    error: type[Exception] = FailedException
    attempts: int = 1
    epochs: int = 1

    @property
    def component(self) -> str:
        """The component that raises."""
        return self.method.partition(".")[0]


# Every method of user code, in the order in which a batch comes to them.
METHODS = (
    "spout.initialize_transaction",
    "spout.emit_batch",
    "basic.execute",
    "batch.prepare",
    "batch.execute",
    "batch.finish_batch",
    "spout.commit",
    "committer.prepare",
    "committer.execute",
    "committer.transaction",
    "committer.finish_batch",
    "below.execute",
    "below.finish_batch",
)


@dataclass(frozen=True, slots=True)
class Script:
    """All failures of a topology."""

    troubles: tuple[Trouble, ...] = ()

    def reach(self, method: str, attempt: TransactionAttempt) -> None:
        """Raise if this method has to fail now."""
        for each in self.troubles:
            if each.method != method or each.txid != attempt.txid:
                continue
            if attempt.attempt < each.attempts and attempt.epoch <= each.epochs:
                raise each.error(f"trouble in {method} at txid {attempt.txid}")


class Numbers(TransactionalSpout):
    """Emits 0, 1, 2 …, seven in a batch; its emitter takes part in the commit phase."""

    output_fields = NUMBERS

    def __init__(self, script: Script, batches: int) -> None:
        self.script, self.batches = script, batches

    def coordinator(self, config: Config, context: TaskContext) -> TransactionalCoordinator:
        return NumbersCoordinator(self.script, self.batches)

    def emitter(self, config: Config, context: TaskContext) -> TransactionalEmitter:
        return NumbersEmitter(self.script, context)


class NumbersCoordinator(TransactionalCoordinator):
    """Plans the batches."""

    def __init__(self, script: Script, batches: int) -> None:
        self.script, self.batches = script, batches
        self.calls: dict[int, int] = {}

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        return txid <= self.batches

    def initialize_transaction(self, txid: int, previous_metadata: Json) -> Json:
        attempt = self.calls.get(txid, 0)
        self.calls[txid] = attempt + 1
        self.script.reach("spout.initialize_transaction", TransactionAttempt(txid, attempt, 1))
        start = 0 if previous_metadata is None else int(str(previous_metadata)) + BATCH_ROWS
        assert start == (txid - 1) * BATCH_ROWS
        return start


class NumbersEmitter(TransactionalEmitter):
    """Emits a task's share of a batch."""

    def __init__(self, script: Script, context: TaskContext) -> None:
        self.script, self.context = script, context

    def emit_batch(
        self, attempt: TransactionAttempt, metadata: Json, collector: BatchOutputCollector
    ) -> None:
        start = int(str(metadata))
        for number in range(start, start + BATCH_ROWS):
            if number % self.context.tasks == self.context.task_index:
                collector.emit([number])
        self.script.reach("spout.emit_batch", attempt)

    def commit(self, attempt: TransactionAttempt, metadata: Json) -> None:
        """Take part in the commit phase."""
        self.script.reach("spout.commit", attempt)


class Basic(BasicBolt):
    """Passes numbers on."""

    output_fields = NUMBERS

    def __init__(self, script: Script) -> None:
        self.script = script

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        collector.emit(tuple.values)
        self.script.reach("basic.execute", tuple.attempt)


class Scripted(Gathering):
    """A batch bolt that may fail in each of its methods."""

    writes_nowhere_else = True

    output_fields = NUMBERS

    def __init__(self, script: Script, name: str) -> None:
        self.script, self.name = script, name

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        super().prepare(config, context, collector, attempt)
        self.script.reach(f"{self.name}.prepare", attempt)

    def execute(self, tuple: Tuple) -> None:
        super().execute(tuple)
        self.script.reach(f"{self.name}.execute", self.attempt)

    def finish_batch(self) -> None:
        self.collector.emit([sum(tuple[0] for tuple in self.tuples)])
        self.script.reach(f"{self.name}.finish_batch", self.attempt)


class Total(Scripted, Committer):
    """Adds all numbers up, and counts the batches."""

    def finish_batch(self) -> None:
        added = sum(tuple[0] for tuple in self.tuples)
        with self.context.state("totals").transaction(self.attempt) as state:
            state.update("sum", plus(added))
            state.update("batches", plus(1))
            self.script.reach(f"{self.name}.transaction", self.attempt)
        super().finish_batch()


class Below(Scripted, Committer):
    """Adds up what the committer above it emits, in a state of its own."""

    def finish_batch(self) -> None:
        added = sum(tuple[0] for tuple in self.tuples)
        with self.context.state("below").transaction(self.attempt) as state:
            state.update("sum", plus(added))
        super().finish_batch()


def troubled(
    storage: Storage, troubles: Sequence[Trouble], batches: int, tasks: int = 1
) -> Topology:
    """Return a topology with a component for each method, each of which may fail."""
    script = Script(tuple(troubles))
    builder = TransactionalTopologyBuilder("troubled", "spout", Numbers(script, batches), tasks)
    builder.set_bolt("basic", Basic(script), tasks).shuffle_grouping("spout")
    builder.set_bolt("batch", Scripted(script, "batch"), tasks).shuffle_grouping("basic")
    # A state that another one hangs below cannot be transactional.
    totals = replace(storage, kind="opaque").state("totals")
    builder.set_bolt("committer", Total(script, "committer")).global_grouping("batch").with_state(
        "totals", totals
    )
    builder.set_bolt("below", Below(script, "below")).global_grouping("committer").with_state(
        "below", storage.state("below")
    )
    return builder.build_topology()


def fold(batches: int) -> Contents:
    """Return what the states hold after this many batches."""
    total = sum(range(batches * BATCH_ROWS))
    return {"totals": {"sum": total, "batches": batches}, "below": {"sum": total}}


def held(storage: Storage) -> Contents:
    """Return what the states hold."""
    return {table: storage.read(table) for table in fold(0)}
