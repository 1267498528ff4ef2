"""What a run does about the commands of operators, on an ensemble in memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.runs import Changes
from tests.unit.runtime.loop_world import (
    Total,
    expected,
    memory_state,
    running,
    stored,
    topology_of,
)
from txtopo import ZooKeeper
from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.ensemble import MemoryEnsemble, MemoryTransactionalState, Put
from txtopo.ensemble.commands import Answer, Desired
from txtopo.ensemble.nodes import COMMANDS, DESIRED, encode
from txtopo.ensemble.store import Step
from txtopo.errors import StateUsageError, TopologyKilled
from txtopo.operations.ensemble import Ensemble
from txtopo.plugins.ensembles import register_ensemble
from txtopo.runtime import leader_beat
from txtopo.runtime.handle import TopologyRun
from txtopo.runtime.progress import Leading, Restarting, Stopped
from txtopo.runtime.restart import Restart
from txtopo.runtime.scheduler import ThreadScheduler
from txtopo.runtime.start import start_topology
from txtopo.spouts import Outage

MEMORY = Config(carrier="local", zookeeper="memory")
GATES: dict[str, threading.Event] = {}


class Gate(Total):
    """Waits at txid 3 until the test opens a gate, and may fail then."""

    def __init__(self, name: str, error: Exception | None = None) -> None:
        self.name, self.error = name, error

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        super().prepare(config, context, collector, attempt)
        if attempt.txid == 3:
            GATES[f"{self.name} reached"].set()
            assert GATES[self.name].wait(LIMIT_S)
            if self.error is not None:
                raise self.error


@pytest.fixture(autouse=True)
def hears_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader looks for commands when its heart beats."""
    monkeypatch.setattr("txtopo.runtime.leader_beat.BEAT_S", 0.05)


@contextmanager
def gate(name: str) -> Iterator[threading.Event]:
    """Give a bolt that stops at txid 3 its two events, and open the gate at the end."""
    GATES.update({name: threading.Event(), f"{name} reached": threading.Event()})
    yield GATES[name]
    GATES[name].set()


def ask(ensemble: MemoryEnsemble, verb: str, wait_s: float = 0.0) -> Answer:
    with Ensemble.open(MEMORY, ensemble=ensemble) as opened:
        return opened.ask("totals", verb, wait_s=wait_s, timeout_s=LIMIT_S)


def ended(run: TopologyRun) -> Exception | None:
    wait_until(lambda: not run.is_active, "the run has ended")
    return run.exception()


def test_a_leader_that_finds_the_topology_deactivated_plans_nothing_until_it_is_activated() -> None:
    state, ensemble = memory_state(), MemoryEnsemble()
    desired = Put(DESIRED, Desired("deactivated", 1).to_json())
    MemoryTransactionalState("totals", ensemble).apply([desired])

    with running(topology_of(state), ensemble) as run:
        wait_until(lambda: run.status == "deactivated", "it leads and is deactivated")
        run.process_all_available(LIMIT_S)
        assert stored(state) == (0, 0)

        answer = ask(ensemble, "activate")
        wait_until(lambda: run.status == "running", "it is active")
        run.process_all_available(LIMIT_S)

        assert answer.status == "running"
        assert stored(state) == (12, expected())


@pytest.mark.rule("txtopo.ensemble.commands", "Rules", 3)
def test_a_run_that_is_killed_ends_without_an_error_and_no_process_may_run_it() -> None:
    state, ensemble = memory_state(), MemoryEnsemble()
    with running(topology_of(state), ensemble) as run, running(topology_of(state), ensemble) as b:
        wait_until(lambda: "running" in (run.status, b.status), "one of them leads")
        ask(ensemble, "kill")

        # Either may lead.
        assert {type(ended(each)) for each in (run, b)} == {type(None), TopologyKilled}
        assert [each.status for each in (run, b)] == ["killed", "killed"]
    with running(topology_of(state), ensemble) as again:
        error = ended(again)

    assert isinstance(error, TopologyKilled)
    assert "txtopo activate totals" in str(error)


def test_a_killed_topology_is_activated_without_a_run_and_goes_on_where_it_was() -> None:
    state, ensemble = memory_state(), MemoryEnsemble()
    with running(topology_of(state), ensemble) as run:
        wait_until(lambda: run.status == "running", "it leads")
        ask(ensemble, "kill", wait_s=LIMIT_S)
        assert ended(run) is None
    ask(ensemble, "activate")

    with running(topology_of(state), ensemble) as again:
        again.process_all_available(LIMIT_S)

        assert stored(state) == (12, expected())


def test_a_run_that_is_killed_or_finds_itself_killed_is_not_started_again() -> None:
    state, ensemble, leading = memory_state(), MemoryEnsemble(), Changes(lambda change: None)
    config = Config(carrier="local", zookeeper="memory", poll_interval_s=0.005)

    def start() -> TopologyRun:
        return start_topology(
            topology_of(state).graph, None, config, [leading], ensemble=ensemble, restart=Restart()
        )

    run = start()
    wait_until(lambda: run.status == "running", "it leads")
    ask(ensemble, "kill")
    assert ended(run) is None
    assert run.status == "killed"

    assert isinstance(ended(start()), TopologyKilled)
    assert len(leading.of(Leading)) == 1


@pytest.mark.rule("txtopo.runtime.takeover", "Order", 1)
def test_a_start_of_a_killed_topology_writes_nothing_even_if_it_may_change_it() -> None:
    """What is stored of the topology is what ran last, also for whoever revives it."""
    state, ensemble = memory_state(), MemoryEnsemble()
    with running(topology_of(state), ensemble) as run:
        run.process_all_available(LIMIT_S)
        ask(ensemble, "kill")
        assert ended(run) is None
    before = dict(ensemble.nodes)
    changed = topology_of(state, outages=(Outage(0, 1, 1),))

    with running(changed, ensemble, allow_change=True) as again:
        assert isinstance(ended(again), TopologyKilled)

    assert ensemble.nodes == before


class KilledBeforeTheClaim(ThreadScheduler):
    """Real time, in which the leader before answers a kill just before this one claims."""

    def __init__(self, ensemble: MemoryEnsemble) -> None:
        super().__init__("killed-before-the-claim")
        self._ensemble = ensemble

    def point(self, name: str) -> None:
        if name == "claim.before-epoch":
            value = encode(DESIRED, Desired("killed", 1).to_json(), "another")
            self._ensemble.nodes = {**self._ensemble.nodes, f"/totals{DESIRED}": (value, 9)}


@pytest.mark.rule("txtopo.runtime.takeover", "Order", 2)
def test_a_kill_that_is_answered_just_before_the_claim_of_another_is_obeyed() -> None:
    state, ensemble = memory_state(), MemoryEnsemble()
    scheduler = KilledBeforeTheClaim(ensemble)

    topology = topology_of(state)
    with start_topology(
        topology.graph, None, MEMORY, scheduler=scheduler, ensemble=ensemble
    ) as run:
        wait_until(lambda: run.last_progress or not run.is_active, "it has ended, or committed")

        assert isinstance(run.exception(), TopologyKilled)
    with pytest.raises(StateUsageError, match="the store holds no states"):
        stored(state)


def test_a_run_that_fails_and_is_restarted_while_it_is_killed_ends_as_killed() -> None:
    """The kill was asked of this run, so it is no error that it may not start again."""
    state, ensemble = memory_state(), MemoryEnsemble()
    topology = topology_of(state, Gate("fails", ValueError("no such word")))
    config = Config(carrier="local", zookeeper="memory", attempts_max=1)
    again = Restart(backoff_s=0.01)
    seen = Changes(lambda change: None)
    with (
        gate("fails") as opened,
        start_topology(
            topology.graph, None, config, [seen], ensemble=ensemble, restart=again
        ) as run,
    ):
        assert GATES["fails reached"].wait(LIMIT_S)
        ask(ensemble, "kill", wait_s=LIMIT_S)
        wait_until(lambda: run.status == "killed", "it is being killed")
        opened.set()

        assert ended(run) is None
        assert run.status == "killed"
    assert len(seen.of(Restarting)) == 1
    assert [each.error for each in seen.of(Stopped)] == [None]


def test_a_kill_waits_for_what_is_in_flight_and_plans_nothing_new() -> None:
    state, ensemble = memory_state(), MemoryEnsemble()
    with (
        gate("waits") as opened,
        running(topology_of(state, Gate("waits")), ensemble, max_spout_pending=3) as run,
    ):
        assert GATES["waits reached"].wait(LIMIT_S)
        ask(ensemble, "kill", wait_s=LIMIT_S)
        wait_until(lambda: run.status == "killed", "it is being killed")
        assert run.is_active
        opened.set()

        assert ended(run) is None

    assert 3 <= stored(state)[0] <= 6


def test_a_kill_stops_when_the_wait_is_over() -> None:
    state, ensemble = memory_state(), MemoryEnsemble()
    with gate("hangs"), running(topology_of(state, Gate("hangs")), ensemble) as run:
        assert GATES["hangs reached"].wait(LIMIT_S)

        ask(ensemble, "kill", wait_s=0.01)
        GATES["hangs"].set()

        assert ended(run) is None
        assert run.status == "killed"


def test_a_topology_that_is_activated_during_the_wait_goes_on() -> None:
    state, ensemble = memory_state(), MemoryEnsemble()
    with gate("revives"), running(topology_of(state, Gate("revives")), ensemble) as run:
        assert GATES["revives reached"].wait(LIMIT_S)
        ask(ensemble, "kill", wait_s=LIMIT_S)
        ask(ensemble, "activate")
        wait_until(lambda: run.status == "running", "it is active again")
        GATES["revives"].set()
        run.process_all_available(LIMIT_S)

        assert stored(state) == (12, expected())
        assert run.status == "running"


def test_a_run_that_loses_its_session_while_it_is_killed_ends_without_an_error() -> None:
    """It takes over again and finds what it had answered itself."""
    state, ensemble = memory_state(), MemoryEnsemble()
    with gate("loses"), running(topology_of(state, Gate("loses")), ensemble) as run:
        assert GATES["loses reached"].wait(LIMIT_S)
        ask(ensemble, "kill", wait_s=LIMIT_S)
        wait_until(lambda: run.status == "killed", "it is being killed")
        ensemble.expire_leader("totals")

        assert ended(run) is None
        assert run.status == "killed"


def test_a_run_that_does_not_know_who_leads_when_its_wait_ends_may_have_been_revived() -> None:
    """It lost its session, and another process has answered an activate since."""
    state, ensemble = memory_state(), MemoryEnsemble()
    with gate("revived"), running(topology_of(state, Gate("revived")), ensemble) as run:
        assert GATES["revived reached"].wait(LIMIT_S)
        ask(ensemble, "kill", wait_s=2.0)
        wait_until(lambda: run.status == "killed", "it is being killed")
        ensemble.reachable = False
        ensemble.expire_leader("totals")
        time.sleep(2.2)  # the wait is over
        value = encode(DESIRED, Desired("running", 2).to_json(), "another")
        ensemble.nodes = {**ensemble.nodes, f"/totals{DESIRED}": (value, 9)}
        ensemble.reachable = True
        GATES["revived"].set()
        run.process_all_available(LIMIT_S)

        assert run.status == "running"
        assert stored(state) == (12, expected())


def test_a_run_plans_while_its_own_handle_and_the_operators_let_it() -> None:
    state, ensemble = memory_state(), MemoryEnsemble()
    with gate("both"), running(topology_of(state, Gate("both")), ensemble) as run:
        assert GATES["both reached"].wait(LIMIT_S)
        run.deactivate()
        ask(ensemble, "deactivate")
        ask(ensemble, "activate")
        assert run.status == "deactivated"
        ask(ensemble, "deactivate")
        run.activate()
        GATES["both"].set()
        run.process_all_available(LIMIT_S)
        assert run.status == "deactivated"
        ask(ensemble, "activate")
        wait_until(lambda: run.status == "running", "both let it")
        run.process_all_available(LIMIT_S)

        assert stored(state) == (12, expected())


def test_a_leader_that_cannot_reach_the_ensemble_answers_when_it_can() -> None:
    state, ensemble = memory_state(), MemoryEnsemble()
    with running(topology_of(state), ensemble) as run, ThreadPoolExecutor(1) as pool:
        run.process_all_available(LIMIT_S)
        ensemble.lose_next_answer(landed=True)
        asked: Future[Answer] = pool.submit(_ask_until_answered, ensemble)

        assert asked.result(LIMIT_S).status == "deactivated"
        wait_until(lambda: run.status == "deactivated", "it obeys")


def _ask_until_answered(ensemble: MemoryEnsemble) -> Answer:
    try:
        return ask(ensemble, "deactivate")
    except ConnectionError:
        return ask(ensemble, "deactivate")


def test_a_leader_announces_its_summary_and_takes_it_along() -> None:
    state, ensemble = memory_state(), MemoryEnsemble()
    client = MemoryTransactionalState("totals", ensemble)
    with running(topology_of(state), ensemble) as run:
        run.process_all_available(LIMIT_S)
        wait_until(lambda: (client.announced() or {}).get("txid") == 12, "it is announced")  # type: ignore[union-attr]
        with Ensemble.open(MEMORY, ensemble=ensemble) as opened:
            (topology,) = opened.topologies()
        assert topology.status == "running"
        assert topology.summary is not None
        assert topology.summary["rows_total"] == 36

    assert client.announced() is None


class OneAtATime(MemoryTransactionalState):
    """Notes when a call begins while another one is under way."""

    def __init__(self, topology_id: str) -> None:
        super().__init__(topology_id)
        self.under_way = threading.Lock()
        self.overlaps = self.beats = 0

    def children(self, path: str) -> list[str]:
        self.beats += path == COMMANDS
        with self.alone():
            return super().children(path)

    def apply(self, steps: Sequence[Step]) -> None:
        with self.alone():
            super().apply(steps)

    @contextmanager
    def alone(self) -> Iterator[None]:
        free = self.under_way.acquire(blocking=False)
        self.overlaps += not free
        time.sleep(0.001)  # so that others would come in between
        yield
        if free:
            self.under_way.release()


@pytest.mark.rule("txtopo.runtime.action_queue", "Rules", 2)
def test_the_transactional_state_gets_one_call_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plug-ins are promised that. Here one beat follows the other at once."""
    monkeypatch.setattr(leader_beat, "BEAT_S", 0.0)
    states: list[OneAtATime] = []

    def opened(url: str, topology_id: str, zookeeper: ZooKeeper) -> MemoryTransactionalState:
        states.append(OneAtATime(topology_id))
        return states[-1]

    register_ensemble("alone", opened)
    state = memory_state()
    with running(
        topology_of(state), MemoryEnsemble(), zookeeper="alone://here", max_spout_pending=3
    ) as run:
        run.process_all_available(LIMIT_S)
        assert stored(state) == (12, expected())

    (only,) = states
    assert only.beats > 3
    assert only.overlaps == 0


@pytest.mark.parametrize("verb", ["deactivate", "kill"])
def test_a_command_of_which_the_leader_does_not_know_whether_it_was_stored_is_obeyed(
    verb: str,
) -> None:
    """The write lands, and its answer is lost."""
    state, ensemble = memory_state(), MemoryEnsemble()
    with running(topology_of(state), ensemble) as run, ThreadPoolExecutor(1) as pool:
        run.process_all_available(LIMIT_S)
        asked = pool.submit(ask, ensemble, verb)
        wait_until(lambda: "/totals/commands/00000000000000000001" in ensemble.nodes, "it is asked")
        ensemble.lose_next_answer(landed=True)

        assert asked.result(LIMIT_S).refused is None
        wait_until(lambda: run.status in ("deactivated", "killed"), "it is obeyed")
