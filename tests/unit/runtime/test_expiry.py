"""What has expired is deleted beside the commits, and nothing that may be needed again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from state_backends.memory import MemoryBackend, MemoryStore
from tests.harness.polling import LIMIT_S, wait_until
from tests.unit.runtime.loop_world import running
from txtopo import BatchBolt, Committer, Config, Fields, Topology, TransactionalTopologyBuilder
from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.context import TaskContext
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.errors import FencedError, StoreUnavailable
from txtopo.operations import Access, rewind
from txtopo.plugins.stores import StateTable
from txtopo.runtime import expiry
from txtopo.runtime.expiry import Expiry
from txtopo.runtime.scheduler import settled
from txtopo.spouts import OpaqueMemoryTransactionalSpout
from txtopo.state import State, open_state, register_backend
from txtopo.testing.conformance.driver import StateDriver
from txtopo.tuples import Tuple

BATCHES = 6
SAVED = Config(carrier="local", zookeeper="memory")
NAME = ("bolt", "open")


# ------------------------------------------------------------ when a bound is used


class OneThread:
    """Does blocking work at once, and calls back when it is told to."""

    def __init__(self) -> None:
        self.later: list[Callable[[], None]] = []
        self.points: list[str] = []

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        done(settled(work))

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        self.later.append(callback)

    def point(self, name: str) -> None:
        self.points.append(name)


class Lane:
    """An expiry over one state in memory, whose rows have the values 1 to 9 from txid 1 on."""

    def __init__(self) -> None:
        columns = Fields("k long"), Fields("n long")
        state = open_state("memory:", table="open").with_columns(*columns).ranged("n")
        self.store = StateDriver(state)
        self.store.puts(1, {at: at for at in range(1, 10)})
        self.store.puts(2, {})
        self.thread = OneThread()
        context: Any = SimpleNamespace(
            scheduler=self.thread, config=SAVED, graph=SimpleNamespace(id="t")
        )
        self.expiry = Expiry(context, {NAME: self.store.backend}, 1)

    def rest(self) -> None:
        """Let the pause end."""
        later, self.thread.later = self.thread.later, []
        for callback in later:
            callback()

    def left(self) -> list[int]:
        return sorted(self.store.contents())


@pytest.mark.rule("txtopo.runtime.expiry", "Rules", 1)
def test_a_bound_is_used_when_current_is_past_the_group_after_its_own() -> None:
    lane = Lane()
    lane.expiry.committed(3, 4, {NAME: 5})
    lane.expiry.advanced(5)
    assert lane.left() == list(range(1, 10))

    lane.expiry.committed(5, 6, {NAME: 7})
    lane.expiry.advanced(6)
    assert lane.left() == list(range(1, 10))
    lane.expiry.advanced(7)
    assert lane.left() == [6, 7, 8, 9]


@pytest.mark.rule("txtopo.runtime.expiry", "Rules", 2)
def test_only_what_was_written_before_the_group_after_is_deleted() -> None:
    lane = Lane()
    lane.store.puts(3, {1: 1})
    lane.store.puts(4, {2: 2})
    lane.store.puts(5, {})

    lane.expiry.committed(3, 3, {NAME: 3})
    lane.expiry.committed(4, 4, {})
    lane.expiry.advanced(5)
    assert lane.left() == [2, 4, 5, 6, 7, 8, 9]


@pytest.mark.rule("txtopo.runtime.expiry", "Rules", 4)
def test_bounds_of_several_groups_are_used_in_one_work_after_a_pause() -> None:
    lane = Lane()
    for txid in range(3, 8):
        lane.expiry.committed(txid, txid, {NAME: txid - 2} if txid % 2 else {})
        lane.expiry.advanced(txid + 1)
    assert lane.left() == list(range(2, 10))

    lane.rest()
    assert lane.left() == list(range(4, 10))
    lane.rest()
    assert lane.left() == list(range(4, 10))
    assert lane.thread.points[:3] == ["expire.before", "expire.after", "expire.before"]


@pytest.mark.rule("txtopo.runtime.expiry", "Rules", 4)
def test_after_the_end_of_a_term_nothing_is_deleted() -> None:
    lane = Lane()
    lane.expiry.committed(3, 3, {NAME: 5})
    lane.expiry.committed(4, 4, {})
    lane.expiry.close()

    lane.expiry.advanced(5)
    assert lane.left() == list(range(1, 10))


@pytest.mark.rule("txtopo.runtime.expiry", "Rules", 3, 5)
def test_who_was_deposed_deletes_nothing_and_does_not_ask_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lane = Lane()
    successor = StateDriver(lane.store.state, epoch=2)
    for txid in (3, 4, 5):
        lane.expiry.committed(txid, txid, {NAME: 5})
        lane.expiry.advanced(txid + 1)
        lane.rest()

    assert sorted(successor.contents()) == list(range(1, 10))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "not tried again by this run" in caplog.text
    assert "state 'bolt.open'" in caplog.text


# ------------------------------------------------------------ in a topology


class Countdown(BatchBolt, Committer):
    """Writes rows 1 to 6 in its first txid, and reads one in each, which is the last to need it."""

    writes_nowhere_else = True

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        self.open, self.seen = context.state("open"), context.state("seen")
        self.attempt = attempt

    def execute(self, tuple: Tuple) -> None:
        pass

    def finish_batch(self) -> None:
        with self.seen.transaction(self.attempt) as seen:
            at = 1 + len(list(seen.items()))
            with self.open.transaction(self.attempt) as rows:
                for row in range(1, BATCHES + 1) if at == 1 else ():
                    rows.put(row, row)
                found = [key for key, _ in rows.between("n", at - 1, at)]
                rows.expire(at)
            seen.put(at, found[0] if found else None)


class Noted(MemoryBackend):
    """Fails as often as it is told to when it deletes."""

    errors: ClassVar[list[Exception]] = []
    calls: ClassVar[list[tuple[int, int]]] = []

    def expire(self, up_to: Any, before_txid: int) -> int:
        Noted.calls.append((up_to, before_txid))
        if Noted.errors:
            raise Noted.errors.pop()
        return super().expire(up_to, before_txid)


@pytest.fixture(autouse=True)
def states(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, State]:
    monkeypatch.setattr(expiry, "EXPIRY_PAUSE_S", 0.0)
    store = MemoryStore()

    def opened(url: str, table: StateTable) -> Noted:
        return Noted(store, table)

    register_backend("noted", opened)
    Noted.errors, Noted.calls = [], []
    columns = Fields("k long"), Fields("n long")
    state = open_state("noted:").with_columns(*columns)
    return {"open": state.named("open").ranged("n"), "seen": state.named("seen")}


def topology_of(states: Mapping[str, State], batches: int) -> Topology:
    rows = [[at] for at in range(batches)]
    spout = OpaqueMemoryTransactionalSpout({0: rows}, Fields("amount long"), 1)
    builder = TransactionalTopologyBuilder("countdown", "spout", spout)
    declarer = builder.set_bolt("bolt", Countdown()).global_grouping("spout")
    for name, state in states.items():
        declarer.with_state(name, state)
    return builder.build_topology()


def held(state: State) -> dict[int, int]:
    with state.reader() as reader:
        return dict(reader.items())


def wait_for_deletions(states: Mapping[str, State]) -> None:
    """Wait until all is deleted that no txid needs whatever is taken back."""
    wait_until(lambda: BATCHES - 1 not in held(states["open"]), "deletions")


@pytest.mark.parametrize("group", [1, 3])
def test_what_expired_is_deleted_while_a_topology_runs(
    states: Mapping[str, State], group: int
) -> None:
    ensemble = MemoryEnsemble()
    with running(topology_of(states, BATCHES), ensemble, group_txids_max=group) as run:
        run.process_all_available(LIMIT_S)
        if group == 1:
            wait_for_deletions(states)

    assert held(states["seen"]) == {at: at for at in range(1, BATCHES + 1)}
    assert BATCHES in held(states["open"])
    assert all(up_to < before for up_to, before in Noted.calls)


@pytest.mark.rule("txtopo.runtime.commit_phase", "Order", 2)
def test_a_rewind_finds_what_the_txid_that_it_takes_back_needs(
    states: Mapping[str, State],
) -> None:
    """Its bound said that no later one does, not that it itself does not."""
    ensemble = MemoryEnsemble()
    with running(topology_of(states, BATCHES), ensemble, group_txids_max=1) as run:
        run.process_all_available(LIMIT_S)
        wait_for_deletions(states)

    topology = topology_of(states, BATCHES)
    rewind(topology, BATCHES - 1, SAVED, access=Access(ensemble=ensemble)).apply()
    assert held(states["seen"]) == {at: at for at in range(1, BATCHES)}
    with running(topology, ensemble, group_txids_max=1) as run:
        run.process_all_available(LIMIT_S)

    assert held(states["seen"]) == {at: at for at in range(1, BATCHES + 1)}


@pytest.mark.rule("txtopo.runtime.expiry", "Rules", 5)
def test_a_failure_is_logged_and_tried_again_and_fails_no_txid(
    states: Mapping[str, State], caplog: pytest.LogCaptureFixture
) -> None:
    Noted.errors = [StoreUnavailable("the store is away"), ZeroDivisionError("a bug")]
    with running(topology_of(states, BATCHES), MemoryEnsemble(), group_txids_max=1) as run:
        run.process_all_available(LIMIT_S)
        wait_for_deletions(states)

    assert held(states["seen"]) == {at: at for at in range(1, BATCHES + 1)}
    texts = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert [("a bug" in text, "store is away" in text) for text in texts] == [
        (True, False),
        (False, True),
    ]
    assert all("rows of state 'bolt.open' that have expired failed" in text for text in texts)


def test_a_broken_promise_of_an_expiry_fails_no_txid(states: Mapping[str, State]) -> None:
    Noted.errors = [FencedError("deposed")]
    with running(topology_of(states, BATCHES), MemoryEnsemble(), group_txids_max=1) as run:
        run.process_all_available(LIMIT_S)

    assert held(states["seen"]) == {at: at for at in range(1, BATCHES + 1)}
    assert len(Noted.calls) <= 1
