"""Many keys are read and made into texts part by part, and written in one transaction."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from state_backends.redis import backend as redis_backend
from state_backends.redis.backend import EXPIRY_TXIDS, RedisBackend
from tests.harness.servers.redis import RedisServer
from txtopo import Count, Fields
from txtopo.errors import ValueRefusedError
from txtopo.state import State, open_state
from txtopo.testing.conformance.driver import StateDriver, claim_of

pytestmark = pytest.mark.service("redis")


@pytest.fixture
def state(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> State:
    monkeypatch.setattr(redis_backend, "_KEYS_PER_COMMAND", 3)
    return open_state(redis_server.empty(), table="counts")


@pytest.fixture
def collecting() -> Iterator[None]:
    yield
    gc.enable()


def test_a_redo_takes_back_what_is_in_any_part(state: State) -> None:
    writer = StateDriver(state)
    letters = "abcdefghij"
    before = dict.fromkeys(letters, 1)
    writer.puts(1, before)
    writer.puts(2, dict.fromkeys(letters, 2) | {"a": None, "e": None, "new": 2})

    writer.puts(2, {"j": 3, "k": 3}, attempt=1)

    assert writer.contents() == before | {"j": 3, "k": 3}


def test_tombstones_of_any_part_are_removed(state: State) -> None:
    writer = StateDriver(state)
    writer.puts(1, dict.fromkeys("abcdefg", 1))
    writer.puts(2, dict.fromkeys("abcdef"))
    writer.puts(3, {"a": 3, "h": 3})

    with writer.backend.snapshot() as snapshot:
        assert {key: row.deleted for key, row in snapshot.items()} == {
            ("a",): False,
            ("g",): False,
            ("h",): False,
        }


def test_partials_of_each_part_are_merged(state: State) -> None:
    columns = state.with_columns(Fields("key string"), Fields("count long"), (Count(),))
    writer = StateDriver(columns)
    writer.merge(1, [(letter, 1) for letter in "abcdefg"])
    writer.merge(2, [(letter, 10) for letter in "bcdefgh"])

    assert writer.contents() == {"a": 1, "h": 10, **dict.fromkeys("bcdefg", 11)}


@pytest.mark.usefixtures("collecting")
@pytest.mark.parametrize("enabled", [True, False])
def test_a_commit_leaves_the_collector_as_it_was(state: State, enabled: bool) -> None:
    columns = state.with_columns(Fields("key string"), Fields("count long"), (Count(),))
    writer = StateDriver(columns)
    if not enabled:
        gc.disable()

    writer.merge(1, [("a", 2**63 - 1)])
    assert gc.isenabled() is enabled
    with pytest.raises(ValueRefusedError, match="a long holds") as refused:
        writer.merge(2, [(letter, 1) for letter in "abcdefg"])

    assert gc.isenabled() is enabled
    assert refused.value.__notes__ == [
        "while a batch was combined with key ('a',) of state 'counts'"
    ]


def ranged(state: State) -> StateDriver:
    """Drive a state with the rows a to e of txid 1, which expire by their value, 1."""
    store = StateDriver(state.with_columns(Fields("k string"), Fields("n long")).ranged("n"))
    store.puts(1, dict.fromkeys("abcde", 1))
    store.puts(2, {})
    return store


@pytest.mark.rule("state_backends.redis.backend", "Rules", 5)
def test_a_row_that_is_written_while_others_are_looked_for_does_not_expire(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ranged(state)
    look = RedisBackend._expired

    def slow(self: RedisBackend, up_to: Any, txid: int) -> Iterator[str]:
        found = list(look(self, up_to, txid))
        store.puts(3, {"c": 9})
        return iter(found)

    monkeypatch.setattr(RedisBackend, "_expired", slow)

    assert store.backend.expire(1, 2) == 4
    assert store.contents() == {"c": 9}


@pytest.mark.rule("state_backends.redis.backend", "Rules", 5)
def test_rows_that_have_expired_are_looked_for_once_in_many_txids(state: State) -> None:
    store = ranged(state)
    assert store.backend.expire(0, 2) == 0

    assert store.backend.expire(1, 1 + EXPIRY_TXIDS) == 0
    assert store.backend.expire(1, 2 + EXPIRY_TXIDS) == 5


@pytest.mark.rule("state_backends.redis.backend", "Rules", 6)
def test_a_claim_that_adds_a_column_writes_every_row_again(state: State) -> None:
    StateDriver(state.with_columns(Fields("k string"), Fields("n long"))).puts(1, {"a": 1, "b": 2})
    columns = Fields("k string"), Fields("n long, m long")
    backend = open_state(state.url, "opaque", "counts", *columns, defaults={"m": 7}).open()
    backend.create()

    backend.claim(replace(claim_of("topology", 2), changes_table=True))

    with backend.snapshot() as snapshot:
        rows = {key: row.current for key, row in snapshot.items()}
    backend.close()
    assert rows == {("a",): (1, 7), ("b",): (2, 7)}
