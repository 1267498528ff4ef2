"""The handle of a run: waiting, pausing, stopping, and time limits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.harness.polling import LIMIT_S
from tests.harness.runs import LOCAL, Changes, Storage, running
from tests.services.integration.bolts import Gathering, plus
from tests.services.integration.trouble import Numbers, Script, fold, held, troubled
from txtopo import Committer, Topology, TransactionalTopologyBuilder
from txtopo.errors import PoisonBatchError
from txtopo.runtime.progress import BatchFailed, TopologyEvent, TopologyListener


class Gate:
    """What bolts of this process wait at; by name, since bolts travel as pickles."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()


GATES: dict[str, Gate] = {}


@pytest.fixture
def gate(request: pytest.FixtureRequest) -> Iterator[Gate]:
    """A gate that is open at the latest when the test ends."""
    GATES[request.node.name] = Gate()
    yield GATES[request.node.name]
    GATES.pop(request.node.name).opened.set()


class WaitAtGate(Gathering):
    """Waits in one batch until the gate is opened."""

    output_fields = Numbers.output_fields

    def __init__(self, gate: str, txid: int, attempts: int = 1) -> None:
        self.gate, self.txid, self.attempts = gate, txid, attempts

    def finish_batch(self) -> None:
        if self.attempt.txid == self.txid and self.attempt.attempt < self.attempts:
            gate = GATES[self.gate]
            gate.reached.set()
            assert gate.opened.wait(LIMIT_S)
        self.collector.emit([sum(tuple[0] for tuple in self.tuples)])


class WaitAndAdd(WaitAtGate, Committer):
    """A committer that waits, then adds up."""

    def finish_batch(self) -> None:
        super().finish_batch()
        with self.context.state("totals").transaction(self.attempt) as state:
            state.update("sum", plus(sum(tuple[0] for tuple in self.tuples)))


def waiting(
    storage: Storage, gate: str, txid: int, committer_txid: int = 0, attempts: int = 1
) -> Topology:
    """Return a topology that waits in the processing phase or in the commit phase of a txid."""
    builder = TransactionalTopologyBuilder("waiting", "spout", Numbers(Script(), 6))
    builder.set_bolt("wait", WaitAtGate(gate, txid, attempts)).shuffle_grouping("spout")
    committer = builder.set_bolt("add", WaitAndAdd(gate, committer_txid)).global_grouping("wait")
    committer.with_state("totals", storage.state("totals"))
    return builder.build_topology()


def total(batches: int) -> dict[str, int]:
    return {"sum": fold(batches)["totals"]["sum"]}


def test_waiting_for_everything_has_a_time_limit(
    gate: Gate, request: pytest.FixtureRequest
) -> None:
    storage = Storage.in_memory()

    with running(waiting(storage, request.node.name, txid=3), storage) as run:
        with pytest.raises(TimeoutError, match=r"has not processed all .* in 0.2 s"):
            run.process_all_available(0.2)
        assert run.is_active
        gate.opened.set()
        run.process_all_available(LIMIT_S)

        assert storage.read("totals") == total(6)


@pytest.mark.row(54)
def test_a_stop_finishes_the_commit_in_hand_and_drops_the_rest(
    gate: Gate, request: pytest.FixtureRequest
) -> None:
    storage = Storage.in_memory()
    topology = waiting(storage, request.node.name, txid=0, committer_txid=3)

    with running(topology, storage, replace(LOCAL, group_txids_max=1)) as run:
        assert gate.reached.wait(LIMIT_S)
        with pytest.raises(TimeoutError, match="did not stop"):
            run.stop(0.1)
        gate.opened.set()
        assert run.await_termination(LIMIT_S)

    assert run.status == "stopped"
    assert run.exception() is None
    assert storage.read("totals") == total(3)
    with running(topology, storage) as again:
        again.process_all_available(LIMIT_S)
    assert storage.read("totals") == total(6)


def test_a_deactivated_run_commits_what_is_in_flight_and_plans_nothing(
    gate: Gate, request: pytest.FixtureRequest
) -> None:
    storage = Storage.in_memory()
    config = replace(LOCAL, max_spout_pending=2)
    changes = Changes()

    with running(
        waiting(storage, request.node.name, txid=2), storage, config, None, [changes]
    ) as run:
        assert gate.reached.wait(LIMIT_S)
        run.deactivate()
        gate.opened.set()
        run.process_all_available(LIMIT_S)
        assert run.status == "deactivated"
        assert changes.committed in ([1, 2], [1, 2, 3])
        run.activate()
        run.process_all_available(LIMIT_S)

        assert run.status == "running"
        assert storage.read("totals") == total(6)


@pytest.mark.row(21)
def test_a_bolt_that_hangs_is_cancelled_counted_and_replayed(
    gate: Gate, request: pytest.FixtureRequest
) -> None:
    storage = Storage.in_memory()
    config = replace(LOCAL, batch_timeout_s=0.3, max_spout_pending=3, attempts_max=50)
    changes = Changes()

    class Opens(TopologyListener):
        """Lets the batch pass once it was too late; on a busy machine others may be late too."""

        def on_change(self, change: TopologyEvent) -> None:
            if change in late(changes):
                gate.opened.set()

    topology = waiting(storage, request.node.name, txid=3, attempts=50)
    with running(topology, storage, config, None, [changes, Opens()]) as run:
        run.process_all_available(LIMIT_S)

        assert storage.read("totals") == total(6)
        assert {each.kind for each in late(changes)} == {"counted"}


def late(changes: Changes) -> list[BatchFailed]:
    """Return the failures of txid 3 that a time limit of 0.3 s is the reason of."""
    reason = "did not end in 0.3 s"
    return [e for e in changes.failures if e.attempt.txid == 3 and reason in str(e.error)]


def test_a_batch_that_always_hangs_is_a_poison_batch(
    gate: Gate, request: pytest.FixtureRequest
) -> None:
    storage = Storage.in_memory()
    config = replace(LOCAL, batch_timeout_s=0.2, attempts_max=2)
    builder = TransactionalTopologyBuilder("hangs", "spout", Numbers(Script(), 6))
    hangs = WaitAtGate(request.node.name, txid=3, attempts=99)
    builder.set_bolt("wait", hangs).shuffle_grouping("spout")
    committer = builder.set_bolt("add", WaitAndAdd(request.node.name, 0)).global_grouping("wait")
    committer.with_state("totals", storage.state("totals"))

    with running(builder.build_topology(), storage, config) as run:
        with pytest.raises(PoisonBatchError, match="TimeoutError"):
            run.process_all_available(LIMIT_S)
        assert run.status == "failed"


def test_a_run_that_has_ended_answers_at_once() -> None:
    storage = Storage.in_memory()
    with running(troubled(storage, [], 2), storage) as run:
        run.process_all_available(LIMIT_S)

    run.process_all_available(LIMIT_S)
    run.stop()
    assert run.await_termination(0)
    assert not run.is_active
    assert run.last_progress is not None
    assert [progress.txid for progress in run.recent_progress] == [1, 2]
    assert held(storage) == fold(2)
