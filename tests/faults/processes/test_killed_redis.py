"""Redis is killed in the middle of commits, again and again."""

from __future__ import annotations

import threading

import pytest

from tests.harness.servers.redis import RedisServer
from txtopo.errors import StoreUnavailable, UnknownOutcomeError
from txtopo.state import open_state
from txtopo.testing.conformance.driver import StateDriver

pytestmark = pytest.mark.service("redis")


@pytest.mark.row(28, 31)
def test_a_server_that_is_killed_in_the_middle_of_commits_comes_back_whole() -> None:
    """Ledger and rows agree, and what was acknowledged is there."""
    with RedisServer() as server:
        state = open_state(server.url(), table="counts")
        StateDriver(state).close()
        for epoch in range(2, 8):
            store = StateDriver(state, epoch)
            held = store.ledger.txid
            assert store.contents() == fold(held)
            acknowledged = commit_until_killed(store, held, server, commits=epoch * 7)
            server.start()
            with state.reader() as reader:
                assert reader.ledger is not None
                assert reader.ledger.txid in (acknowledged, acknowledged + 1)
                assert dict(reader.items()) == fold(reader.ledger.txid)
            store.close()


def commit_until_killed(store: StateDriver, held: int, server: RedisServer, commits: int) -> int:
    """Commit, let the server be killed after so many commits, and return the last txid."""
    enough = threading.Event()

    def kill() -> None:
        enough.wait(60.0)
        server.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    txid = held
    try:
        while txid < held + 100_000:
            store.puts(txid + 1, batch(txid + 1))
            txid += 1
            if txid == held + commits:
                enough.set()
    except (StoreUnavailable, UnknownOutcomeError):
        pass
    finally:
        killer.join()
    return txid


def batch(txid: int) -> dict[str, int | None]:
    """Return what a txid writes: every key moves, one comes and one goes."""
    return {**dict.fromkeys("abcdefgh", txid), f"of {txid}": txid, f"of {txid - 1}": None}


def fold(txid: int) -> dict[str, int]:
    """Return what the state holds after a txid."""
    return {**dict.fromkeys("abcdefgh", txid), f"of {txid}": txid} if txid else {}
