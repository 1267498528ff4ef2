"""The keys of states in Redis: all of them are known, reserved and kept apart."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.servers.redis import RedisServer
from txtopo.errors import SchemaDrift, ValueRefusedError
from txtopo.state import State, StateKind, open_state
from txtopo.testing.conformance.driver import StateDriver

pytestmark = pytest.mark.service("redis")
HELD = {
    "rows": lambda client, key: client.hset(key, "f", "v"),
    "touched": lambda client, key: client.rpush(key, "v"),
    "deleted": lambda client, key: client.sadd(key, "v"),
}


@pytest.fixture
def url(redis_server: RedisServer) -> str:
    return redis_server.empty()


@pytest.fixture
def client(url: str) -> Any:
    from redis import Redis

    with Redis.from_url(url, decode_responses=True) as client:
        yield client


def state_of(url: str, table: str, kind: StateKind = "opaque") -> State:
    return open_state(url, kind, table)


@pytest.mark.parametrize("kind", ["opaque", "transactional"])
def test_every_key_has_a_name_that_is_known(url: str, client: Any, kind: StateKind) -> None:
    from state_backends.redis.backend import names_of

    driver = StateDriver(state_of(url, "a:{b}", kind))
    driver.puts(1, {"a": 1, "b": 2})
    driver.puts(2, {"a": 1, "b": None})

    types = names_of("a:{b}").types()
    found = {key: client.type(key) for key in sorted(client.keys())}
    assert found == {key: types[key] for key in found}
    assert len(found) == (5 if kind == "opaque" else 3)


@pytest.mark.parametrize("part", HELD)
def test_a_key_of_somebody_else_is_not_taken(url: str, client: Any, part: str) -> None:
    """Of the type of ours: a commit would take what is in it for rows, or for keys to undo."""
    key = f"txtopo:{{x}}:{part}"
    HELD[part](client, key)

    with pytest.raises(SchemaDrift, match=f"'{key}' already exists, a .* without a ledger"):
        StateDriver(state_of(url, "x"))
    assert client.keys() == [key]
    client.delete(key)
    assert StateDriver(state_of(url, "x")).puts(1, {"a": 1}).txid == 1


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(
    "key", ["txtopo:{x}:rows", "txtopo:{x}:touched", "txtopo:{x}:deleted", "txtopo:states"]
)
def test_a_key_of_another_type_is_refused_at_the_start(
    url: str, client: Any, key: str, known: bool
) -> None:
    if known:
        StateDriver(state_of(url, "x")).puts(1, {"a": 1})
        client.delete(key)
    client.set(key, "theirs")

    with pytest.raises(SchemaDrift, match=f"'{key}' already exists, a string; expected a"):
        StateDriver(state_of(url, "x"), 2)
    assert client.get(key) == "theirs"


@pytest.mark.parametrize(
    "names",
    [
        ("a:b", "a%3Ab"),
        ("words", "Words"),
        ("\u00e9", "e\u0301"),
        ("a}:rows", "a"),
        ("x", "x:rows"),
        ("\ud83d\ude00", "\N{GRINNING FACE}"),
    ],
)
def test_names_that_look_alike_are_told_apart(url: str, names: tuple[str, str]) -> None:
    for value, name in enumerate(names):
        StateDriver(state_of(url, name)).puts(1, {"a": value})
    for value, name in enumerate(names):
        assert StateDriver(state_of(url, name), 2).contents() == {"a": value}


@pytest.mark.parametrize("scheme", ["redis", "redis-map"])
def test_two_surrogates_are_not_the_sign_that_they_stand_for(
    redis_server: RedisServer, url: str, scheme: str
) -> None:
    """JSON reads them as one sign: the key would be another one, and the row that of it."""
    state = open_state(redis_server.url(scheme), table="x")
    driver = StateDriver(state)
    driver.puts(1, {"\N{GRINNING FACE}": 1, "\ud83d": 2, "\ude00\ud83d": 3})

    with pytest.raises(ValueRefusedError, match="two surrogates in a row"):
        driver.puts(2, {"\ud83d\ude00": 2})
    assert driver.contents() == {"\N{GRINNING FACE}": 1, "\ud83d": 2, "\ude00\ud83d": 3}
