"""A start opens its parts side by side; what it has opened is used once, or closed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, ClassVar

import pytest

from state_backends.memory import MemoryBackend, MemoryStore
from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.runs import Changes
from tests.unit.runtime.loop_world import BATCHES, ROWS, Total, running, topology_of
from txtopo import Config, Fields, Topology, TransactionalTopologyBuilder
from txtopo.carriers.carrier import LocalCarrier
from txtopo.ensemble.commands import KILLED, Desired
from txtopo.ensemble.memory import MemoryEnsemble, MemoryTransactionalState
from txtopo.ensemble.nodes import DESIRED
from txtopo.ensemble.store import Put
from txtopo.errors import CoordinatorUnavailable, SchemaDrift, StoreUnavailable, TopologyKilled
from txtopo.plugins.stores import Claim, StateTable
from txtopo.runtime.progress import BatchCommitted, Leading
from txtopo.runtime.scheduler import ThreadScheduler
from txtopo.runtime.start import open_driver
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.stages.compiled_topology import CompiledTopology
from txtopo.state import Ledger, State, open_state, register_backend


class NotingBackend(MemoryBackend):
    """Notes what is called, and fails when it is told to."""

    calls: ClassVar[list[str]] = []
    fails: ClassVar[dict[str, Exception]] = {}

    def __init__(self, store: MemoryStore, table: StateTable) -> None:
        super().__init__(store, table)
        self._note("open")

    def connect(self) -> None:
        self._note("connect")

    def create(self) -> None:
        self._note("create")

    def claim(self, claim: Claim) -> Ledger:
        self._note("claim")
        return super().claim(claim)

    def close(self) -> None:
        self._note("close")

    def _note(self, call: str) -> None:
        self.calls.append(call)
        if call in self.fails:
            raise self.fails.pop(call)


def held() -> int:
    """Return how many states are open."""
    return NotingBackend.calls.count("open") - NotingBackend.calls.count("close")


@pytest.fixture
def state() -> Iterator[State]:
    store = MemoryStore()

    def opened(url: str, table: StateTable) -> NotingBackend:
        return NotingBackend(store, table)

    register_backend("noting", opened)
    NotingBackend.calls.clear()
    NotingBackend.fails.clear()
    yield open_state("noting:")
    assert held() == 0


def test_the_first_takeover_uses_the_states_that_the_start_has_created(state: State) -> None:
    with running(topology_of(state), MemoryEnsemble()) as run:
        run.process_all_available(LIMIT_S)

    assert NotingBackend.calls == ["open", "connect", "create", "claim", "close"]


def test_a_takeover_after_a_lost_session_opens_and_creates_them_again(state: State) -> None:
    ensemble = MemoryEnsemble()

    def expire(change: object) -> None:
        if isinstance(change, BatchCommitted) and change.progress.txid == 3:
            ensemble.expire_leader("totals")

    with running(topology_of(state), ensemble, Changes(expire), max_spout_pending=2) as run:
        run.process_all_available(LIMIT_S)

    calls = [each for each in NotingBackend.calls if each != "close"]
    assert calls == ["open", "connect", "create", "claim", "open", "create", "claim"]


def test_a_state_that_failed_a_takeover_is_closed_and_not_used_again(state: State) -> None:
    NotingBackend.fails["claim"] = StoreUnavailable("away")

    with running(topology_of(state), MemoryEnsemble()) as run:
        run.process_all_available(LIMIT_S)

    first = ["open", "connect", "create", "claim", "close"]
    assert NotingBackend.calls == [*first, "open", "create", "claim", "close"]


def test_a_standby_holds_no_state_and_creates_it_again_to_take_over(state: State) -> None:
    ensemble = MemoryEnsemble()
    with running(topology_of(state), ensemble) as leader:
        wait_until(lambda: leader.status == "running", "it leads")
        leading = Changes(lambda change: None)
        with running(topology_of(state), ensemble, leading) as standby:
            wait_until(lambda: standby.status == "standby", "it waits")
            wait_until(lambda: held() == 1, "only the leader has the state open")
            NotingBackend.calls.clear()
            NotingBackend.calls.append("open")  # by the leader
            leader.stop(LIMIT_S)
            wait_until(lambda: standby.status == "running", "it leads")

            assert any(isinstance(each, Leading) for each in leading.seen)
            assert NotingBackend.calls == ["open", "close", "open", "create", "claim"]


def test_who_finds_its_topology_killed_closes_what_it_has_opened(state: State) -> None:
    ensemble = MemoryEnsemble()
    client = MemoryTransactionalState("totals", ensemble)
    client.apply([Put(DESIRED, Desired(KILLED, 1).to_json())])

    with running(topology_of(state), ensemble) as run:
        with pytest.raises(TopologyKilled):
            run.await_termination(LIMIT_S)

        assert NotingBackend.calls == ["open", "connect", "create", "close"]


class NotedCarrier(LocalCarrier):
    """Fails to start when it is told to, and notes its end."""

    def __init__(self, error: Exception | None) -> None:
        super().__init__(1)
        self._error = error
        self.closed = False

    def start(self, compiled: CompiledTopology) -> None:
        if self._error is not None:
            raise self._error
        super().start(compiled)

    def close(self) -> None:
        self.closed = True


class RefusingSpout(MemoryTransactionalSpout):
    """Cannot be read in this process."""

    def coordinator(self, config: Config, context: Any) -> Any:
        raise OSError("the spout")


def refusing_topology(state: State) -> Topology:
    rows = [[amount] for amount in range(BATCHES * ROWS)]
    spout = RefusingSpout({0: rows}, Fields("amount long"), ROWS)
    builder = TransactionalTopologyBuilder("totals", "spout", spout)
    declarer = builder.set_bolt("total", Total())
    declarer.global_grouping("spout").with_state("totals", state)
    return builder.build_topology()


PARTS = {
    "ensemble": CoordinatorUnavailable("the ensemble"),
    "open": StoreUnavailable("the state"),
    "connect": StoreUnavailable("the connection"),
    "spout": OSError("the spout"),
    "carrier": OSError("the carrier"),
    "create": SchemaDrift("the table"),
}


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_cannot_be_opened_is_told_and_the_others_are_closed(
    state: State, part: str
) -> None:
    """No table is made unless all else is there, and no thread is left."""
    error = PARTS[part]
    carrier = NotedCarrier(error if part == "carrier" else None)
    ensembles: list[ClosingState] = []

    def open_ensemble() -> MemoryTransactionalState:
        if part == "ensemble":
            raise error
        ensembles.append(ClosingState("totals", MemoryEnsemble()))
        return ensembles[0]

    if part in ("open", "connect", "create"):
        NotingBackend.fails[part] = error
    topology = refusing_topology(state) if part == "spout" else topology_of(state)
    config = Config(carrier="local", zookeeper="memory")
    scheduler = ThreadScheduler("txtopo-starts")

    with pytest.raises(type(error), match=str(error)):
        open_driver(topology.graph, config, [], carrier, open_ensemble, scheduler, {})

    assert ("create" in NotingBackend.calls) == (part == "create")
    assert all(each.ended.done() for each in ensembles)
    assert len(ensembles) == (part != "ensemble")
    assert carrier.closed or part == "spout"
    if part == "open":
        NotingBackend.calls.append("close")  # what could not be opened needs no end
    wait_until(lambda: not threads_of("txtopo-starts"), "no thread is left")


def test_an_end_does_not_keep_the_ensemble_waiting_for_the_carrier(state: State) -> None:
    """Nor the other way round: here each waits for the other one."""
    both = threading.Barrier(2)

    class WaitingCarrier(LocalCarrier):
        def close(self) -> None:
            both.wait(LIMIT_S)

    class WaitingState(MemoryTransactionalState):
        def close(self) -> None:
            both.wait(LIMIT_S)
            super().close()

    ensemble, scheduler = MemoryEnsemble(), ThreadScheduler("txtopo-ends")
    config = Config(carrier="local", zookeeper="memory")
    driver = open_driver(
        topology_of(state).graph,
        config,
        [],
        WaitingCarrier(1),
        lambda: WaitingState("totals", ensemble),
        scheduler,
        {},
    )
    driver.start()
    driver.post(driver.stop)

    assert driver.ended.result(LIMIT_S) is None
    assert not both.broken
    wait_until(lambda: not threads_of("txtopo-ends"), "no thread is left")


class ClosingState(MemoryTransactionalState):
    """Notes that it was closed."""

    def __init__(self, topology_id: str, ensemble: MemoryEnsemble) -> None:
        super().__init__(topology_id, ensemble)
        self.ended: Future[None] = Future()

    def close(self) -> None:
        super().close()
        self.ended.set_result(None)


def threads_of(name: str) -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith(name)]
