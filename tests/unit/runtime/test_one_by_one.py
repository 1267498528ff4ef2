"""Stores that are given no groups, and topologies with one: batches are committed one by one."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from state_backends.memory import MemoryBackend, MemoryStore
from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.runs import Changes
from tests.unit.runtime.loop_world import (
    BATCHES,
    ROWS,
    Total,
    expected,
    memory_state,
    running,
    stored,
)
from tests.unit.state.backing_maps import open_comparing_map, open_map
from txtopo import (
    BasicBolt,
    BatchBolt,
    Config,
    Count,
    Fields,
    First,
    Last,
    PersistentAggregate,
    Sum,
    TransactionalTopologyBuilder,
)
from txtopo.attempt import GroupAttempt, TransactionAttempt
from txtopo.builders.transactional import Topology
from txtopo.collector import BatchOutputCollector
from txtopo.context import TaskContext
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.metadata import Json
from txtopo.plugins.spouts import (
    LastBatch,
    TransactionalCoordinator,
    TransactionalEmitter,
    TransactionalSpout,
)
from txtopo.plugins.stores import StateTable, Writes, backing_map_factory
from txtopo.runtime.progress import BatchCommitted, BatchesProcessed
from txtopo.runtime.spout_planner import SpoutPlanner
from txtopo.runtime.takeover import _no_groups
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.state import Aggregate, Ledger, State, open_state, register_backend
from txtopo.tuples import Tuple

_numbers = itertools.count()


class PlugIn(MemoryBackend):
    """A plug-in that was written before there were groups."""

    groups = False

    def commit(self, attempt: TransactionAttempt, writes: Writes) -> Ledger:
        assert not isinstance(attempt, GroupAttempt)
        return super().commit(attempt, writes)


def plug_in() -> State:
    store = MemoryStore()

    def opened(url: str, table: StateTable) -> PlugIn:
        return PlugIn(store, table)

    register_backend("plug-in", opened)
    return open_state("plug-in:")


def two_methods() -> State:
    register_backend("dict", backing_map_factory(open_map, shared_by_processes=False))
    return open_state(f"dict:one by one {next(_numbers)}")


def three_methods() -> State:
    opened = backing_map_factory(open_comparing_map, shared_by_processes=False)
    register_backend("comparing", opened)
    return open_state(f"comparing:one by one {next(_numbers)}")


class Patient(Total):
    """Commits the first batch when all batches are processed."""

    go_on: ClassVar[threading.Event]

    def finish_batch(self) -> None:
        assert Patient.go_on.wait(LIMIT_S)
        super().finish_batch()
        if self.output_fields is not None:
            self.collector.emit([self.sum])

    def prepare(self, *arguments: Any) -> None:
        super().prepare(*arguments)
        self.collector = arguments[2]


@pytest.fixture(autouse=True)
def patient() -> Iterator[None]:
    Patient.go_on = threading.Event()
    yield
    Patient.go_on.set()


COUNT: dict[str, Aggregate] = {"count": Count()}


def groups_of(
    state: State, counts: State | None = None, aggregates: dict[str, Aggregate] = COUNT
) -> set[tuple[int, int]]:
    """Run to the end, and return the groups that were committed."""
    rows = [[amount, amount / 10, -amount] for amount in range(BATCHES * ROWS)]
    fields = Fields("amount long, part double, falling long")
    spout = MemoryTransactionalSpout({0: rows}, fields, ROWS)
    builder = TransactionalTopologyBuilder("totals", "spout", spout)
    if counts is not None:
        aggregate = PersistentAggregate(counts, aggregates=aggregates)
        builder.set_bolt("counts", aggregate).global_grouping("spout")
    declarer = builder.set_bolt("total", Patient())
    declarer.global_grouping("spout").with_state("totals", state)
    return _groups(builder.build_topology())


def _groups(topology: Topology) -> set[tuple[int, int]]:
    changes = Changes()
    with running(topology, MemoryEnsemble(), changes, max_spout_pending=BATCHES + 1) as run:

        def all_processed() -> bool:
            told = changes.of(BatchesProcessed)
            return sum(len(each.attempts) for each in told) >= BATCHES

        wait_until(all_processed, "every batch is processed")
        Patient.go_on.set()
        run.process_all_available(LIMIT_S)
    return {each.progress.group for each in changes.of(BatchCommitted)}


ONE_BY_ONE = {(txid, txid) for txid in range(1, BATCHES + 1)}


@pytest.mark.parametrize("opened", [plug_in, two_methods, three_methods])
def test_a_store_that_does_not_declare_groups_is_given_none(opened: Callable[[], State]) -> None:
    state = opened()

    assert groups_of(state) == ONE_BY_ONE
    assert stored(state) == (BATCHES, expected())


@pytest.mark.parametrize(
    "scheme",
    [
        "memory",
        pytest.param("sqlite", marks=pytest.mark.integration),
        pytest.param("delta", marks=pytest.mark.integration),
    ],
)
def test_a_store_that_declares_them_is_given_some(scheme: str, tmp_path: Path) -> None:
    place = "" if scheme == "memory" else f"//{tmp_path}/states"
    state = open_state(f"{scheme}:{place}".replace("sqlite://", "sqlite:///"))

    assert max(last - first for first, last in groups_of(state)) >= 4
    assert stored(state) == (BATCHES, expected())


def test_one_such_store_makes_the_whole_topology_commit_one_by_one() -> None:
    state, counts = memory_state(), two_methods()

    assert groups_of(state, counts) == ONE_BY_ONE
    assert stored(state) == (BATCHES, expected())
    with counts.named("counts").reader() as reader:
        assert [count for _, count in reader.items()] == [BATCHES * ROWS]


def test_a_sum_of_floats_makes_the_topology_commit_one_by_one() -> None:
    """Added up in groups it would be another sum, and other groups come with each run."""
    state, sums = memory_state(), memory_state()

    assert groups_of(state, sums, {"sum": Sum("part")}) == ONE_BY_ONE
    assert groups_of(memory_state(), memory_state(), {"sum": Sum("amount")}) != ONE_BY_ONE


@pytest.mark.parametrize(("aggregate", "value"), [(First, ROWS - 1), (Last, (BATCHES - 1) * ROWS)])
def test_the_txid_decides_what_is_first_or_last_whatever_the_order_field_says(
    aggregate: type[First | Last], value: int
) -> None:
    """Here the order field falls. In one write of several txids it would decide."""
    found = memory_state()
    only: dict[str, Aggregate] = {"one": aggregate("amount", order="falling")}

    assert groups_of(memory_state(), found, only) == ONE_BY_ONE
    with found.named("counts").reader() as reader:
        assert [one for _, one in reader.items()] == [value]


def test_a_committer_with_a_transactional_state_commits_one_by_one() -> None:
    """In a redo it would read its state as it was after the last txid of the group."""
    state = open_state("memory:", "transactional")

    assert groups_of(state) == ONE_BY_ONE
    assert stored(state) == (BATCHES, expected())


class Undeclared(Patient):
    """Says nothing of what else it writes."""

    writes_nowhere_else = False


class Seen(BasicBolt):
    """Runs below the committer."""

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        pass


class Tells(Patient):
    """Emits, for a bolt below."""

    output_fields = Fields("total long")


class ReportingSpout(TransactionalSpout):
    """Has an emitter with a commit."""

    output_fields = Fields("amount long")
    kind: ClassVar[type[TransactionalEmitter]]

    def coordinator(self, config: Config, context: TaskContext) -> TransactionalCoordinator:
        return Planner()

    def emitter(self, config: Config, context: TaskContext) -> TransactionalEmitter:
        return ReportingSpout.kind()


class Planner(TransactionalCoordinator):
    def is_ready(self, txid: int, last: LastBatch) -> bool:
        return txid <= BATCHES

    def initialize_transaction(self, txid: int, previous_metadata: Json) -> Json:
        return list(range((txid - 1) * ROWS, txid * ROWS))


class Emits(TransactionalEmitter):
    def emit_batch(
        self, attempt: TransactionAttempt, metadata: Json, collector: BatchOutputCollector
    ) -> None:
        assert isinstance(metadata, list)
        for amount in metadata:
            collector.emit([amount])


class Commits(Emits):
    def commit(self, attempt: TransactionAttempt, metadata: Json) -> None:
        pass


class Reports(Commits):
    writes_nowhere_else = True


def totals_of(spout: Any, committer: BatchBolt, below: BasicBolt | None = None) -> Topology:
    builder = TransactionalTopologyBuilder("totals", "spout", spout)
    declarer = builder.set_bolt("total", committer)
    declarer.global_grouping("spout").with_state("totals", memory_state())
    if below is not None:
        builder.set_bolt("below", below).shuffle_grouping("total")
    return builder.build_topology()


def amounts() -> MemoryTransactionalSpout:
    rows = [[amount] for amount in range(BATCHES * ROWS)]
    return MemoryTransactionalSpout({0: rows}, Fields("amount long"), ROWS)


def test_a_committer_that_may_write_elsewhere_commits_one_by_one() -> None:
    """With or without a state: it may have a database of its own besides."""
    assert _groups(totals_of(amounts(), Undeclared())) == ONE_BY_ONE


def test_so_does_a_bolt_below_a_committer_that_writes_nowhere_else() -> None:
    assert _groups(totals_of(amounts(), Tells(), Seen())) == ONE_BY_ONE

    Patient.go_on.clear()
    seen = Seen()
    seen.writes_nowhere_else = True
    assert _groups(totals_of(amounts(), Tells(), seen)) != ONE_BY_ONE


@pytest.mark.parametrize("kind", [Commits, Emits, Reports])
def test_so_does_an_emitter_with_a_commit_unless_it_declares_it(
    kind: type[TransactionalEmitter],
) -> None:
    ReportingSpout.kind = kind

    alone = _groups(totals_of(ReportingSpout(), Patient())) == ONE_BY_ONE
    assert alone == (kind is Commits)


def test_a_takeover_asks_once_whether_an_emitter_may_write_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that can be made by the second time would be asked for a permit by one part alone."""
    answers = iter([True, False])
    monkeypatch.setattr(SpoutPlanner, "may_write_elsewhere", property(lambda _: next(answers)))

    with running(totals_of(amounts(), Total()), MemoryEnsemble()) as run:
        run.process_all_available(LIMIT_S)

    assert not next(answers)


def test_a_group_that_is_pinned_is_finished_by_the_program_that_wrote_it() -> None:
    why = "bolt 'total' of the commit phase does not declare writes_nowhere_else"

    error = _no_groups(15, 20, why)

    assert why in str(error)
    assert "writes_nowhere_else = True where it had that" in str(error)
    assert "rewind to txid 14" in str(error)
