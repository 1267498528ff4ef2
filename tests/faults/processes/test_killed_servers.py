"""Servers of stores are killed, stopped and frozen in the middle of commits, and come back."""

from __future__ import annotations

import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from threading import Event
from uuid import uuid4

import pytest

from tests.faults.processes.counted_flights import SPARE, CountedFlights
from tests.faults.processes.stores import SERVERS, Server, marks_of, new_url
from tests.harness.polling import LIMIT_S
from tests.harness.processes import Child
from tests.harness.servers.postgresql import PostgresServer
from tests.harness.servers.zookeeper import ZooKeeperProcess
from txtopo import Fields
from txtopo.errors import InfrastructureError
from txtopo.state import Count, Ledger, State, StateMode, open_state
from txtopo.testing.conformance.driver import StateDriver

pytestmark = [pytest.mark.kills, pytest.mark.timeout(900)]
FROZEN_S = 1.0
KILLS = 8
EARLY = (3, 6)
"""The epochs in which the kill may come before the first commit, in a claim or an undo."""


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of the test's own, since it dies."""
    with SERVERS[request.param]() as server:
        yield server


Fault = Callable[[Server, Child], None]


def kill(server: Server, child: Child) -> None:
    server.kill()
    come_back(server, child)


def crash(server: Server, child: Child) -> None:
    stop_postgresql(server, "immediate")
    come_back(server, child)


def stop(server: Server, child: Child) -> None:
    stop_postgresql(server, "fast")
    come_back(server, child)


def stop_postgresql(server: Server, mode: str) -> None:
    assert isinstance(server, PostgresServer)
    server.stop(mode)


def come_back(server: Server, child: Child) -> None:
    """Start it when a commit has met the fault: one was under way, or comes now."""
    child.resume()
    child.allow(1)
    child.wait_for("failed")
    server.start()


def freeze(server: Server, child: Child) -> None:
    server.signal(signal.SIGSTOP)
    child.resume()
    time.sleep(FROZEN_S)  # this is the fault
    server.signal(signal.SIGCONT)


INSIDE = ("rows.after:by-carrier-hour.by-carrier-hour:7", "rows.after:total.total:10")
"""Steps at which a transaction of the one state, and then of the other, is open."""


@pytest.mark.row(28, 31)
@pytest.mark.parametrize(
    ("server", "faults"),
    [
        pytest.param(store, faults, marks=[*marks_of(store), *more], id=store)
        for store, faults, *more in (
            ("postgresql", (kill, stop)),
            ("mariadb", (kill,), pytest.mark.slow),
            ("redis", (kill,)),
        )
    ],
    indirect=["server"],
)
def test_a_server_that_is_killed_in_an_open_transaction_costs_only_time(
    faults: tuple[Fault, ...],
    server: Server,
    flights_input: Path,
    zookeeper: ZooKeeperProcess,
) -> None:
    """The driver has stopped between the rows of a state and its commit."""
    steps = INSIDE[: len(faults)]
    options = [option for step in steps for option in ("--stop-at", step)]
    arguments = ["--zookeeper", f"{zookeeper.hosts}/{uuid4().hex}", *options]
    counting = CountedFlights(flights_input, new_url(server), arguments)
    counting.batch_bytes = 110_000

    with counting.watched():
        child = counting.start(held=True)
        counting.show(child)
        for fault, step in zip(faults, steps, strict=True):
            child.allow(2)  # one commit, and the next one up to the step
            assert step.startswith(child.wait_until_stopped())
            fault(server, child)
        child.finish()


FAULTS = (
    ("postgresql", (kill, freeze, crash, stop) * 3, "twelve times"),
    ("mariadb", (kill, freeze), "killed and frozen"),
    ("redis", (kill, freeze), "killed and frozen"),
)


@pytest.mark.slow
@pytest.mark.row(28, 31)
@pytest.mark.parametrize(
    ("server", "faults"),
    [
        pytest.param(store, faults, marks=marks_of(store), id=f"{store}-{name}")
        for store, faults, name in FAULTS
    ],
    indirect=["server"],
)
def test_a_server_that_goes_and_comes_back_in_the_middle_of_commits_costs_only_time(
    faults: tuple[Fault, ...],
    server: Server,
    flights_input: Path,
    zookeeper: ZooKeeperProcess,
) -> None:
    chance = Random(11)
    hosts = f"{zookeeper.hosts}/{uuid4().hex}"
    arguments = ["--zookeeper", hosts, "--pause-s", "0.05"]
    counting = CountedFlights(flights_input, new_url(server), arguments)
    counting.batch_bytes = 40_000 if len(faults) > 2 else 110_000

    with counting.watched():
        child = counting.start(held=True)
        counting.show(child)
        for fault in faults:
            child.allow(3 + SPARE)
            child.wait_for("committed", 3)
            time.sleep(chance.uniform(0.0, 0.1))
            fault(server, child)
        child.finish()


class Writes(ABC):
    """The writes of a coordinator to a state, txid by txid.

    The first attempt at some txids writes something else, so that its undo shows.
    """

    @abstractmethod
    def write(self, store: StateDriver, txid: int, attempt: int) -> None:
        """Write the batch of a txid."""

    @abstractmethod
    def write_other(self, store: StateDriver, txid: int) -> None:
        """Write something else for a txid, as attempt 0."""

    @abstractmethod
    def folded(self, txid: int) -> dict[str, int]:
        """Return the contents of the state after a txid."""

    @abstractmethod
    def with_other(self, before: Mapping[str, int]) -> dict[str, int]:
        """Return the contents of the state after :meth:`write_other`."""


class Merges(Writes):
    """Counts keys; each txid brings every third one, so that half a batch shows."""

    keys = 2_000

    def write(self, store: StateDriver, txid: int, attempt: int) -> None:
        store.merge(txid, self._batch(txid), attempt=attempt)

    def write_other(self, store: StateDriver, txid: int) -> None:
        store.merge(txid, [("key 0", 1), ("odd", 1)])

    def folded(self, txid: int) -> dict[str, int]:
        counts: dict[str, int] = {}
        for one in range(1, txid + 1):
            for key, count in self._batch(one):
                counts[key] = counts.get(key, 0) + count
        return counts

    def with_other(self, before: Mapping[str, int]) -> dict[str, int]:
        return {**before, "key 0": before.get("key 0", 0) + 1, "odd": 1}

    def _batch(self, txid: int) -> list[tuple[str, int]]:
        return [(f"key {at}", txid) for at in range(txid % 3, self.keys, 3)]


class Puts(Writes):
    """Puts values: with each txid every key changes, one comes and one goes."""

    def write(self, store: StateDriver, txid: int, attempt: int) -> None:
        store.puts(txid, {**self.folded(txid), f"of {txid - 1}": None}, attempt=attempt)

    def write_other(self, store: StateDriver, txid: int) -> None:
        store.puts(txid, {"a": -1, "odd": 1})

    def folded(self, txid: int) -> dict[str, int]:
        return {**dict.fromkeys("abcdefgh", txid), f"of {txid}": txid} if txid else {}

    def with_other(self, before: Mapping[str, int]) -> dict[str, int]:
        return {**before, "a": -1, "odd": 1}


def expected(writes: Writes, held: Ledger) -> dict[str, int]:
    """Return the contents that belong to a ledger; attempt 0 has written something else."""
    if held.attempt or not held.txid:
        return writes.folded(held.txid)
    return writes.with_other(writes.folded(held.txid - 1))


def commit_until_killed(
    writes: Writes, state: State, epoch: int, began: Event, *, changed: bool
) -> int:
    """Continue from the ledger, as after a restart, and return the last txid that was answered.

    Sets *began* after the second commit. If *changed*, the last txid first comes again with
    something else, and then as it was. The latter is also due if the kill came in between.
    """
    try:
        store = StateDriver(state, epoch)
    except InfrastructureError:
        return 0  # killed before the first commit
    txid = store.ledger.txid
    try:
        if changed and txid:
            writes.write_other(store, txid)
        if txid and (changed or not store.ledger.attempt):
            writes.write(store, txid, attempt=1)
        while True:
            writes.write(store, txid + 1, attempt=2)
            txid += 1
            if txid >= store.ledger.txid + 2:
                began.set()
    except InfrastructureError:
        return txid
    finally:
        store.close()


def state_of(url: str, writes: Writes, mode: StateMode) -> State:
    state = open_state(url, table="counts", mode=mode)
    if isinstance(writes, Puts):
        return state
    return state.with_columns(Fields("key string"), Fields("count long"), (Count(),))


KILLED: tuple[tuple[str, StateMode, Writes], ...] = (
    ("mariadb", "table", Merges()),
    ("mariadb", "log", Merges()),
    ("postgresql", "table", Merges()),
    ("redis", "table", Puts()),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("server", "mode", "writes"),
    [
        pytest.param(store, mode, writes, marks=marks_of(store), id=f"{store}-{mode}")
        for store, mode, writes in KILLED
    ],
    indirect=["server"],
)
@pytest.mark.row(28, 31)
def test_a_killed_server_holds_what_its_ledger_says(
    server: Server, mode: StateMode, writes: Writes
) -> None:
    """Ledger and rows agree, and what was answered is there."""
    chance = Random(12)
    state = state_of(new_url(server), writes, mode)
    StateDriver(state).close()
    answered = 0
    with ThreadPoolExecutor(1) as writer:
        for epoch in range(1, KILLS + 1):
            began = Event()
            running = writer.submit(
                commit_until_killed, writes, state, epoch, began, changed=epoch % 2 == 0
            )
            if epoch not in EARLY:
                assert began.wait(LIMIT_S)
            time.sleep(chance.uniform(0.0, 1.0))
            server.kill()
            answered = max(answered, running.result(LIMIT_S))
            server.start()

            with state.reader() as reader:
                contents = dict(reader.items())
                held = reader.ledger
            assert held is not None
            assert held.txid in (answered, answered + 1)
            assert contents == expected(writes, held)
            answered = held.txid
    assert answered >= KILLS
