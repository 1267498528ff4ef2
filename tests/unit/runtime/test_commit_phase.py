"""What an abandoned attempt may still do."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest

from tests.harness.metadata import of_one
from tests.unit.runtime.loop_world import BATCHES, ROWS, Total, memory_state
from txtopo import Config, Count, Fields, PersistentAggregate, TransactionalTopologyBuilder
from txtopo.attempt import TransactionAttempt
from txtopo.builders.transactional import Topology
from txtopo.carriers.carrier import LocalCarrier
from txtopo.ensemble.memory import MemoryTransactionalState
from txtopo.errors import RunLostError, StatementFailed, ValueRefusedError
from txtopo.fingerprint import StateName
from txtopo.plugins.stores import Ledger, StateBackend, Writes
from txtopo.runtime.batch_planner import BatchPlanner
from txtopo.runtime.commit_phase import CommitPhase
from txtopo.runtime.jobs import BatchResult
from txtopo.runtime.plan_clock import PlanClock
from txtopo.runtime.run_context import RunContext, open_states
from txtopo.runtime.scheduler import ThreadScheduler
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.stages.compiled_topology import Run, compile_topology
from txtopo.stages.outcome import judge
from txtopo.state import State
from txtopo.state.together import SharedTransactions
from txtopo.testing.conformance.driver import claim_of

EPOCH = 1


class Slow(Total):
    """Takes a second by the clock of the context."""

    now_s: ClassVar[float] = 0.0

    def finish_batch(self) -> None:
        Slow.now_s += 1
        super().finish_batch()


class Idle(Total):
    """Writes nothing, so it may have several tasks."""

    def finish_batch(self) -> None:
        pass


class SlowScheduler(ThreadScheduler):
    """Has a clock that only the committers move."""

    def now(self) -> float:
        return Slow.now_s


def context_with_two_states(state: State, bolt: Total | None = None) -> RunContext:
    rows = [[amount] for amount in range(BATCHES * ROWS)]
    spout = MemoryTransactionalSpout({0: rows}, Fields("amount long"), ROWS)
    builder = TransactionalTopologyBuilder("totals", "spout", spout)
    declarer = builder.set_bolt("total", bolt or Total()).global_grouping("spout")
    declarer.with_state("totals", state).with_state("others", state)
    return context_of(builder.build_topology())


def context_of(topology: Topology) -> RunContext:
    graph = topology.graph
    config = Config(carrier="local", zookeeper="memory")
    scheduler = ThreadScheduler(graph.id)
    return RunContext(
        graph=graph,
        compiled=compile_topology(graph, config, 1),
        config=config,
        carrier=LocalCarrier(),
        transactional_state=MemoryTransactionalState(graph.id),
        planner=BatchPlanner(graph, config),
        plan_clock=PlanClock(scheduler, graph.id),
        scheduler=scheduler,
    )


def processed(context: RunContext, txid: int = 1) -> BatchResult:
    attempt = TransactionAttempt(txid, 0, EPOCH)
    run = Run("run", (attempt,), (of_one(1, spout=context.graph.spout.id),), None)
    context.carrier.start(context.compiled)
    done = context.carrier.process(run)
    (batch,) = judge(context.compiled, run, done.records).processed
    return BatchResult(attempt, batch, done, 0.0)


def processed_group(context: RunContext) -> list[BatchResult]:
    return [processed(context, txid) for txid in (1, 2, 3)]


def apart(backends: dict[StateName, StateBackend]) -> SharedTransactions:
    return SharedTransactions(tuple((name,) for name in backends))


def claimed(context: RunContext) -> dict[StateName, StateBackend]:
    backends = open_states(context.graph, context.scheduler)
    for backend in backends.values():
        backend.claim(claim_of(context.graph.id, EPOCH))
    return backends


def test_an_attempt_that_is_abandoned_between_two_stores_leaves_the_second_alone() -> None:
    """The ledger would refuse it only once a later attempt has written there."""
    context = context_with_two_states(memory_state())
    backends, wanted = claimed(context), iter([True, False])
    phase = CommitPhase(context, backends, apart(backends))

    with pytest.raises(RunLostError, match="abandoned"):
        phase.run([processed(context)], lambda size: next(wanted), pinned=False)

    assert {name: holds(backend) for (_, name), backend in backends.items()} == {
        "totals": 1,
        "others": 0,
    }


def test_an_abandoned_attempt_calls_no_further_committer_of_its_group() -> None:
    """Perhaps its first one hung, and a later attempt has told the emitter more meanwhile."""
    context = context_with_two_states(memory_state())
    backends, begun = claimed(context), []

    def reached(index: int) -> bool:
        begun.append(index)
        return index == 0

    with pytest.raises(RunLostError, match="attempt 2:0@1 was abandoned"):
        CommitPhase(context, backends, apart(backends)).run(
            processed_group(context), lambda size: True, reached, pinned=False
        )

    assert begun == [0, 1]
    assert [holds(backend) for backend in backends.values()] == [0, 0]


@pytest.mark.parametrize(("pinned", "txids"), [(False, 2), (True, 3)])
def test_slow_committers_make_a_small_group_unless_it_is_pinned(pinned: bool, txids: int) -> None:
    context = context_with_two_states(memory_state(), Slow())
    context = replace(context, scheduler=SlowScheduler(context.graph.id))
    backends = claimed(context)

    report = CommitPhase(context, backends, apart(backends)).run(
        processed_group(context), lambda size: True, pinned=pinned, committers_s=1.5
    )

    assert len(report.committed) == txids
    assert [holds(backend) for backend in backends.values()] == [txids, txids]


@pytest.mark.parametrize(
    ("tasks", "txids", "component_s"),
    [(1, [1, 2, 3], {"slow": 3.0, "idle": 0.0, "count": 0.0}), (2, [1], {"count": 0.0})],
)
def test_the_time_of_a_slow_committer_is_told_as_its_own_if_it_runs_in_the_driver(
    tasks: int, txids: list[int], component_s: dict[str, float]
) -> None:
    rows = [[amount] for amount in range(BATCHES * ROWS)]
    spout = MemoryTransactionalSpout({0: rows}, Fields("amount long"), ROWS)
    builder = TransactionalTopologyBuilder("totals", "spout", spout)
    slow = builder.set_bolt("slow", Slow()).global_grouping("spout")
    slow.with_state("totals", memory_state())
    idle = builder.set_bolt("idle", Idle(), tasks).shuffle_grouping("spout")
    idle.with_state("totals", memory_state())
    count = PersistentAggregate(memory_state(), "amount", Count())
    builder.set_bolt("count", count).fields_grouping("spout", "amount")
    context = context_of(builder.build_topology())
    context = replace(context, scheduler=SlowScheduler(context.graph.id))
    backends = claimed(context)

    report = CommitPhase(context, backends, apart(backends)).run(
        [processed(context, txid) for txid in txids], lambda size: True, pinned=True
    )

    *others, last = [each.component_s for each in report.committed]
    assert (last, any(others)) == (component_s, False)


@pytest.mark.parametrize(
    ("refuses", "txid", "committed", "fails"),
    [
        ({2, 3}, 2, 1, 2),  # what is before the statement's batch is committed
        ({1, 2, 3}, 1, 0, 1),
        ({2, 3}, None, 1, None),  # COMMIT was refused: the first batch alone, the others wait
        ({1, 2, 3}, None, 0, 1),
    ],
)
def test_a_group_ends_before_a_statement_that_is_refused(
    refuses: set[int], txid: int | None, committed: int, fails: int | None
) -> None:
    context = context_with_two_states(memory_state())
    backends = claimed(context)
    refuse(next(iter(backends.values())), refuses, txid)

    report = CommitPhase(context, backends, apart(backends)).run(
        processed_group(context), lambda size: True, pinned=False
    )

    assert len(report.committed) == committed
    assert (report.failure and report.failure.attempt.txid) == fails
    assert [holds(backend) for backend in backends.values()] == [committed] * 2


def test_a_value_that_is_refused_lets_the_first_batch_be_committed_alone() -> None:
    context = context_with_two_states(memory_state())
    backends = claimed(context)
    refuse(next(iter(backends.values())), {2, 3}, None, ValueRefusedError)

    report = CommitPhase(context, backends, apart(backends)).run(
        processed_group(context), lambda size: True, pinned=False
    )

    assert (len(report.committed), report.failure) == (1, None)
    assert [holds(backend) for backend in backends.values()] == [1, 1]


@pytest.mark.parametrize(("at", "pinned", "held"), [(0, True, [0, 0]), (1, False, [3, 0])])
def test_a_group_that_a_state_may_hold_ends_the_run_with_its_statement(
    at: int, pinned: bool, held: list[int]
) -> None:
    context = context_with_two_states(memory_state())
    backends = claimed(context)
    refuse(list(backends.values())[at], {3}, 3)

    with pytest.raises(StatementFailed, match="belongs to one of txids 1 to 3, which are written"):
        CommitPhase(context, backends, apart(backends)).run(
            processed_group(context), lambda size: True, pinned=pinned
        )

    assert [holds(backend) for backend in backends.values()] == held


def refuse(
    backend: StateBackend,
    txids: set[int],
    told: int | None,
    kind: type[StatementFailed | ValueRefusedError] = StatementFailed,
) -> None:
    """Let a state refuse a statement or value of these txids, and say which one it was."""
    commit = backend.commit

    def refusing(attempt: TransactionAttempt, writes: Writes) -> Ledger:
        if txids & set(range(attempt.first_txid, attempt.txid + 1)):
            raise kind("refused", txid=told)
        return commit(attempt, writes)

    backend.commit = refusing  # type: ignore[method-assign]


def holds(backend: StateBackend) -> int:
    with backend.snapshot() as snapshot:
        assert snapshot.ledger is not None
        return snapshot.ledger.txid
