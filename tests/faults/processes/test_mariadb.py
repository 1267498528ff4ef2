"""MariaDB killed in the middle of commits: after its restart ledger and rows agree."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from time import sleep

import pytest

from tests.harness.servers.mariadb import MariaServer
from txtopo import Fields
from txtopo.errors import InfrastructureError
from txtopo.state import Count, Ledger, State, StateMode, open_state
from txtopo.testing.conformance.driver import StateDriver

pytestmark = [pytest.mark.kills, pytest.mark.service("mariadb"), pytest.mark.timeout(300)]
KILLS = 8
EARLY = (3, 6)
"""The epochs in which the kill may come before the first commit, when it claims or undoes."""
KEYS = 2_000
LIMIT_S = 120.0


@pytest.fixture
def server() -> Iterator[MariaServer]:
    """A server of the test's own, since it dies."""
    with MariaServer() as server:
        yield server


def batch(txid: int) -> list[tuple[str, int]]:
    """Return the partials of a txid: every third key, so that a half batch shows."""
    return [(f"key {at}", txid) for at in range(txid % 3, KEYS, 3)]


def folded(txid: int) -> dict[str, int]:
    counts: dict[str, int] = {}
    for one in range(1, txid + 1):
        for key, count in batch(one):
            counts[key] = counts.get(key, 0) + count
    return counts


def expected(held: Ledger) -> dict[str, int]:
    """Return what belongs to a ledger: attempts of the number 0 bring other tuples."""
    if held.attempt or not held.txid:
        return folded(held.txid)
    before = folded(held.txid - 1)
    return {**before, "key 0": before.get("key 0", 0) + 1, "odd": 1}


def commit_until_killed(state: State, epoch: int, began: Event, *, changed: bool) -> int:
    """Go on where the ledger stands, as after a restart; return the last txid that was answered.

    Sets *began* after the second one.
    """
    try:
        store = StateDriver(state, epoch)
    except InfrastructureError:
        return 0  # killed before the first commit
    txid = store.ledger.txid
    try:
        if changed and txid:
            # The last txid comes again with other tuples, and then as it was.
            store.merge(txid, [("key 0", 1), ("odd", 1)])
            store.merge(txid, batch(txid), attempt=1)
        while True:
            store.merge(txid + 1, batch(txid + 1), attempt=2)
            txid += 1
            if txid >= store.ledger.txid + 2:
                began.set()
    except InfrastructureError:
        return txid
    finally:
        store.close()


@pytest.mark.parametrize("mode", ["table", pytest.param("log", marks=pytest.mark.slow)])
@pytest.mark.row(28, 31)
def test_a_killed_server_holds_what_its_ledger_says(server: MariaServer, mode: StateMode) -> None:
    chance = random.Random(12)
    url = server.create_database("killed")
    state = open_state(url, table="counts", mode=mode).with_columns(
        Fields("key string"), Fields("count long"), (Count(),)
    )
    StateDriver(state).close()
    answered = 0
    with ThreadPoolExecutor(1) as writer:
        for epoch in range(1, KILLS + 1):
            began = Event()
            running = writer.submit(
                commit_until_killed, state, epoch, began, changed=epoch % 2 == 0
            )
            if epoch not in EARLY:
                assert began.wait(LIMIT_S)
            sleep(chance.uniform(0.0, 1.0))
            server.stop()
            answered = max(answered, running.result(LIMIT_S))
            server.start()

            with state.reader() as reader:
                contents = dict(reader.items())
                held = reader.ledger
            assert held is not None
            assert held.txid in (answered, answered + 1)
            assert contents == expected(held)
            answered = held.txid
    assert answered >= KILLS
