"""Groups: txids that wait processed are committed in one write, and come out as if alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
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
    running,
    stored,
    topology_of,
)
from txtopo import (
    Count,
    FailedException,
    Fields,
    PersistentAggregate,
    Sum,
    TransactionalTopologyBuilder,
)
from txtopo.attempt import TransactionAttempt
from txtopo.builders.transactional import Topology
from txtopo.carriers.carrier import RunOutput
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.errors import (
    PoisonBatchError,
    StoreAheadOfCoordinator,
    StoreUnavailable,
    UnknownOutcomeError,
    ValueRefusedError,
)
from txtopo.metadata import BatchMetadata
from txtopo.plugins.stores import StateTable, Writes
from txtopo.runtime.commit_phase import CommitReport
from txtopo.runtime.jobs import BatchResult
from txtopo.runtime.progress import (
    BatchCommitted,
    BatchesProcessed,
    BatchFailed,
    Leading,
    TopologyEvent,
)
from txtopo.runtime.reporting import ProgressMeter
from txtopo.runtime.scheduler import ThreadScheduler
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.stages.compiled_topology import Run
from txtopo.stages.outcome import BatchOutcome
from txtopo.state import Ledger, State, open_state, register_backend

Bounds = tuple[int, int]


class Watched(MemoryBackend):
    """Notes the bounds of each commit; the first one waits until it may continue."""

    tried: ClassVar[list[tuple[str, Bounds]]] = []
    faults: ClassVar[dict[tuple[str, int], Callable[[], None]]] = {}
    """What happens in the n-th commit to a table, from 0, before the write."""
    after: ClassVar[dict[tuple[str, int], Callable[[], None]]] = {}
    """What happens in it after the write."""
    go_on: ClassVar[threading.Event]

    def commit(self, attempt: TransactionAttempt, writes: Writes) -> Ledger:
        name = self.table.name
        number = sum(name == table for table, _ in Watched.tried)
        Watched.tried.append((name, (attempt.first_txid, attempt.txid)))
        assert Watched.go_on.wait(LIMIT_S)
        Watched.faults.get((name, number), lambda: None)()
        ledger = super().commit(attempt, writes)
        Watched.after.get((name, number), lambda: None)()
        return ledger


@pytest.fixture(autouse=True)
def watched() -> Iterator[State]:
    store = MemoryStore()

    def opened(url: str, table: StateTable) -> Watched:
        return Watched(store, table)

    Watched.tried, Watched.faults, Watched.after = [], {}, {}
    Sorry.txid, Sorry.times = 5, 0
    Watched.go_on = threading.Event()
    register_backend("watched", opened)
    yield open_state("watched:")
    Watched.go_on.set()


def raising(error: Exception) -> Callable[[], None]:
    def fault() -> None:
        raise error

    return fault


def run_all(
    topology: Topology,
    ensemble: MemoryEnsemble | None = None,
    changes: Changes | None = None,
    **settings: Any,
) -> Changes:
    """Run to the end; the first commit continues when every batch is processed."""
    changes = changes or Changes()
    settings = {"max_spout_pending": BATCHES + 1, **settings}
    with running(topology, ensemble or MemoryEnsemble(), changes, **settings) as run:

        def all_processed() -> bool:
            told = changes.of(BatchesProcessed)
            return sum(len(each.attempts) for each in told) >= BATCHES

        wait_until(all_processed, "every batch is processed")
        Watched.go_on.set()
        run.process_all_available(LIMIT_S)
    return changes


def bounds(table: str = "totals") -> list[Bounds]:
    return [each for name, each in Watched.tried if name == table]


@pytest.mark.rule("txtopo.runtime.commit_phase", "Order", 1)
def test_txids_that_wait_are_committed_in_one_write(watched: State) -> None:
    changes = run_all(topology_of(watched))

    first = bounds()[0][1]
    assert bounds() == [(1, first), *[(t, 12) for t in range(first + 1, 13, 30)]]
    assert max(last - begin for begin, last in bounds()) >= 4
    assert stored(watched) == (12, expected())
    told = [each.progress for each in changes.of(BatchCommitted)]
    assert [each.txid for each in told] == [*range(1, 13)]
    assert all(each.group in bounds() for each in told)
    assert all(bool(each.state_s) == (each.txid == each.group[1]) for each in told)


def test_with_a_maximum_of_one_each_txid_is_committed_alone(watched: State) -> None:
    run_all(topology_of(watched), group_txids_max=1)

    assert bounds() == [(txid, txid) for txid in range(1, 13)]


class Sorry(Total):
    """Fails in one txid, as often as told."""

    txid: ClassVar[int] = 5
    times: ClassVar[int] = 0

    def finish_batch(self) -> None:
        if self.attempt.txid == Sorry.txid and Sorry.times > 0:
            Sorry.times -= 1
            raise FailedException("not yet")
        super().finish_batch()


def test_what_comes_before_a_batch_that_fails_is_committed_without_it(watched: State) -> None:
    Sorry.times = 2
    changes = run_all(topology_of(watched, Sorry()))

    assert [each.attempt.txid for each in changes.of(BatchFailed)] == [5, 5]
    assert 4 in {last for _, last in bounds()}
    assert stored(watched) == (12, expected())


def test_the_batch_that_fails_too_often_is_named_and_all_before_it_are_kept(
    watched: State,
) -> None:
    Sorry.times = 99
    with pytest.raises(PoisonBatchError, match="txid 5"):
        run_all(topology_of(watched, Sorry()), attempts_max=2)

    assert stored(watched) == (4, expected(4))


def test_a_group_whose_answer_is_lost_is_written_again_with_the_same_bounds(
    watched: State,
) -> None:
    """Others wait processed by then, and are not added."""
    Watched.faults = {("totals", 1): raising(UnknownOutcomeError("lost"))}
    changes = run_all(topology_of(watched), group_txids_max=3)

    first = bounds()[0][1]
    assert bounds()[1] == bounds()[2] == (first + 1, first + 3)
    assert len(changes.of(BatchFailed)) == 1
    assert stored(watched) == (12, expected())


@pytest.mark.rule("txtopo.coordinator.machine", "Groups", 1)
def test_a_group_that_was_cut_before_it_was_sent_is_written_again_as_it_was_sent(
    watched: State,
) -> None:
    """A committer fails at txid 9, and then a state does not answer."""
    Sorry.txid, Sorry.times = 9, 1
    Watched.faults = {("totals", 1): raising(UnknownOutcomeError("lost"))}
    run_all(topology_of(watched, Sorry(), opaque=True))

    first = bounds()[0][1]
    assert bounds()[1] == bounds()[2] == (first + 1, 8)
    assert stored(watched) == (12, expected())


class SorryInARedo(Total):
    """Fails in txid 9 when it is processed a second time."""

    def finish_batch(self) -> None:
        if (self.attempt.txid, self.attempt.attempt) == (9, 1):
            raise FailedException("not yet")
        super().finish_batch()


@pytest.mark.rule("txtopo.coordinator.machine", "Groups", 2)
def test_nothing_of_a_group_that_is_written_again_is_committed_alone(watched: State) -> None:
    """Not even what comes before the batch that fails in the redo."""
    Watched.faults = {("totals", 1): raising(UnknownOutcomeError("lost"))}
    changes = run_all(topology_of(watched, SorryInARedo(), opaque=True))

    assert 9 in [each.attempt.txid for each in changes.of(BatchFailed)]
    assert bounds()[1] == bounds()[2]
    assert stored(watched) == (12, expected())


@pytest.mark.parametrize("away", [False, True])
@pytest.mark.rule("txtopo.coordinator.machine", "Groups", 1)
@pytest.mark.rule("txtopo.state.reconciliation", "Adoption", 2)
@pytest.mark.rule("txtopo.runtime.commit_phase", "Order", 2)
def test_a_group_that_one_of_two_states_holds_is_finished_by_the_next_leader(
    watched: State, away: bool
) -> None:
    """Also with a smaller window, and smaller groups, than that of the leader before."""
    ensemble, topology = MemoryEnsemble(), two_states(watched)
    Watched.faults = {("sums", 1): raising(ValueRefusedError("no such value"))}
    with pytest.raises(ValueRefusedError):
        run_all(topology, ensemble, group_txids_max=4)
    held = bounds("counts")[1]
    assert held[1] - held[0] == 3

    Watched.tried.clear()
    Watched.faults = {("sums", 0): raising(StoreUnavailable("away"))} if away else {}
    changes = Changes()
    small = {"max_spout_pending": 2, "group_txids_max": 2}
    with running(topology, ensemble, changes, **small) as run:
        run.process_all_available(LIMIT_S)

    assert changes.of(Leading)[0].current == held[0]
    assert bounds("sums")[: 1 + away] == [held] * (1 + away)
    assert all(last - first < 2 for first, last in bounds("sums")[1 + away :])
    assert totals(watched) == (expected(), BATCHES * ROWS)


def test_a_group_that_all_states_hold_is_adopted_whole(watched: State) -> None:
    ensemble, topology = MemoryEnsemble(), topology_of(watched)
    Watched.after = {("totals", 1): raising(KeyError("the driver dies here"))}
    with pytest.raises(KeyError):
        run_all(topology, ensemble)
    first, last = bounds()[1]

    Watched.after = {}
    changes = Changes()
    with running(topology, ensemble, changes) as run:
        run.process_all_available(LIMIT_S)

    assert last > first
    assert changes.of(Leading)[0].adopted == last
    assert stored(watched) == (12, expected())


@pytest.mark.rule("txtopo.coordinator.machine", "Groups", 3)
def test_a_value_that_a_state_refuses_is_found_and_all_before_it_are_kept(
    watched: State,
) -> None:
    sums = PersistentAggregate(watched, aggregates={"sum": Sum("amount")})
    rows = [[1]] * 5 + [[2**63 - 1]] + [[1]] * 6
    spout = MemoryTransactionalSpout({0: rows}, Fields("amount long"), 1)
    builder = TransactionalTopologyBuilder("sums", "spout", spout)
    builder.set_bolt("sums", sums).global_grouping("spout")

    with pytest.raises(ValueRefusedError):
        run_all(builder.build_topology())

    with watched.named("sums").reader() as reader:
        assert reader.ledger is not None
        assert reader.ledger.txid == 5


def test_a_value_that_the_second_state_refuses_names_the_txids_that_are_written_together(
    watched: State,
) -> None:
    """The first state has them, so they cannot be committed one by one any more."""
    Watched.faults = {("sums", 1): raising(ValueRefusedError("no such value", column="sum"))}

    with pytest.raises(
        ValueRefusedError, match=r"no such value; it belongs to one of txids"
    ) as told:
        run_all(two_states(watched))

    first, last = bounds("counts")[1]
    assert f"one of txids {first} to {last}, which are written together" in str(told.value)
    assert f"rewind to txid {first - 1} " in str(told.value)
    assert told.value.facts == {"column": "sum"}


def test_a_group_that_was_shortened_is_done_again_as_it_was_written(watched: State) -> None:
    """Its answer is lost, so the state may hold what is before the batch that fails."""
    Sorry.txid, Sorry.times = 8, 1
    Watched.after = {("totals", 1): raising(StoreUnavailable("away"))}

    changes = run_all(topology_of(watched, Sorry()))

    first = bounds()[0][1]
    assert bounds()[1:3] == [(first + 1, 7)] * 2
    assert [each.attempt.txid for each in changes.failures] == [first + 1]
    assert stored(watched) == (12, expected())


class Hanging(Total):
    """Hangs in txid 8 until it is told to continue."""

    go_on: ClassVar[threading.Event]

    def finish_batch(self) -> None:
        if self.attempt.txid == 8 and not Hanging.go_on.is_set():
            assert Hanging.go_on.wait(LIMIT_S)
            raise AssertionError("its attempt was abandoned")
        super().finish_batch()


@pytest.mark.integration
def test_a_group_that_is_written_again_has_the_time_of_all_its_batches(watched: State) -> None:
    """It cannot be made smaller. With the time of one batch it might be late for ever."""
    told = [threading.Event(), threading.Event()]

    def hang_until(event: threading.Event) -> None:
        assert event.wait(LIMIT_S)

    def note(change: TopologyEvent) -> None:
        if isinstance(change, BatchFailed):
            next(event for event in told if not event.is_set()).set()

    Watched.faults = {("totals", n): partial(hang_until, told[n - 1]) for n in (1, 2)}
    changes = run_all(
        topology_of(watched), changes=Changes(note), batch_timeout_s=2.0, group_txids_max=2
    )

    first, last = bounds()[1]
    assert bounds()[1:4] == [(first, first + 1)] * 3
    errors = [str(each.error) for each in changes.failures]
    assert [error.partition(";")[0] for error in errors] == [
        f"the commit of txids {first} to {last} did not end in {limit_s} s" for limit_s in (2, 4)
    ]
    assert stored(watched) == (12, expected())


@pytest.mark.parametrize("attempts_max", [None, 1])
def test_a_batch_whose_committer_hangs_is_named_and_those_before_it_are_committed(
    watched: State, attempts_max: int | None
) -> None:
    Hanging.go_on = threading.Event()
    changes = Changes(lambda change: Hanging.go_on.set() if failed_8(change) else None)

    poison = pytest.raises(PoisonBatchError, match="batch of txid 8 failed")
    with nullcontext() if attempts_max is None else poison:
        run_all(
            topology_of(watched, Hanging()),
            changes=changes,
            batch_timeout_s=2.0,
            attempts_max=attempts_max,
        )

    (failure,) = [each for each in changes.failures if failed_8(each)]
    assert "the commit of txid 8 did not end in 2 s; check for a committer" in str(failure.error)
    txid = 12 if attempts_max is None else 7
    assert stored(watched) == (txid, expected(txid))
    assert changes.committed == [*range(1, txid + 1)]


def failed_8(change: TopologyEvent) -> bool:
    return isinstance(change, BatchFailed) and change.attempt.txid == 8


def test_a_topology_that_must_commit_one_by_one_says_so_if_a_group_is_pinned(
    watched: State,
) -> None:
    ensemble, topology = MemoryEnsemble(), two_states(watched)
    Watched.faults = {("sums", 1): raising(ValueRefusedError("no such value"))}
    with pytest.raises(ValueRefusedError):
        run_all(topology, ensemble)

    Watched.faults, Watched.groups = {}, False
    try:
        with (
            pytest.raises(StoreAheadOfCoordinator, match=r"in one write.*does not support groups"),
            running(topology, ensemble) as run,
        ):
            run.await_termination(LIMIT_S)
    finally:
        Watched.groups = True


def two_states(state: State) -> Topology:
    rows = [[amount] for amount in range(BATCHES * ROWS)]
    spout = MemoryTransactionalSpout({0: rows}, Fields("amount long"), ROWS)
    builder = TransactionalTopologyBuilder("twice", "spout", spout)
    counts = PersistentAggregate(state, aggregates={"count": Count()})
    sums = PersistentAggregate(state, aggregates={"sum": Sum("amount")})
    builder.set_bolt("counts", counts).global_grouping("spout")
    builder.set_bolt("sums", sums).global_grouping("spout")
    return builder.build_topology()


def totals(state: State) -> tuple[Any, Any]:
    found = []
    for name in ("sums", "counts"):
        with state.named(name).reader() as reader:
            ((_, value),) = reader.items()
            found.append(value)
    return found[0], found[1]


class Seconds(ThreadScheduler):
    """Has the clock of the test."""

    seconds = 0.0

    def now(self) -> float:
        return self.seconds


def test_the_rate_is_that_of_the_last_groups_however_many_txids_they_have() -> None:
    """With the last txids, it would be that of one group, whose txids come at the same time."""
    clock, meter = Seconds("rates"), ProgressMeter(0.0)
    for second in (1, 2, 3):
        group = (30 * second - 29, 30 * second)
        for txid in range(group[0], group[1] + 1):
            clock.seconds = second + txid * 1e-6
            progress = meter.committed(
                of_ten_rows(txid),
                CommitReport(),
                spouts=("spout",),
                scheduler=clock,
                commit_s=0.5,
                pending={},
                group=group,
            )

    assert progress.rows_total == 900
    assert progress.rows_per_second == pytest.approx(300, rel=0.01)


def of_ten_rows(txid: int) -> BatchResult:
    attempt = TransactionAttempt(txid)
    emitted = {"spout": {"default": 10}}
    outcome = BatchOutcome(attempt, BatchMetadata(), (), {}, emitted, {}, frozenset())
    return BatchResult(attempt, outcome, RunOutput(Run("run", (attempt,), (), None), []), 0.0)
