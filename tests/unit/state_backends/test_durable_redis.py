"""What a Redis server must be before a state is kept there: a power cut or a failover shows it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness.servers.redis import RedisServer
from txtopo.errors import FencedError, PromiseError
from txtopo.plugins.stores import Puts
from txtopo.state import State, open_state
from txtopo.testing.conformance.driver import StateDriver

pytestmark = pytest.mark.service("redis")


@pytest.fixture(params=["redis", "redis-map"])
def state(request: pytest.FixtureRequest, redis_server: RedisServer) -> State:
    redis_server.empty()
    return open_state(redis_server.url(request.param), table="counts")


@pytest.fixture
def raw(redis_server: RedisServer) -> Iterator[Any]:
    from redis import Redis

    with Redis.from_url(redis_server.url(), decode_responses=True) as client:
        yield client


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("appendonly", "no"),
        ("appendfsync", "everysec"),
        ("appendfsync", "no"),
        ("no-appendfsync-on-rewrite", "yes"),
    ],
)
def test_a_server_that_may_lose_a_commit_is_refused(
    state: State, raw: Any, name: str, wrong: str
) -> None:
    right = raw.config_get(name)[name]
    raw.config_set(name, wrong)
    try:
        with pytest.raises(PromiseError, match=f"got {name} '{wrong}'; expected '?{right}"):
            StateDriver(state).puts(1, {"a": 1})
    finally:
        raw.config_set(name, right)
    assert StateDriver(state).puts(1, {"a": 1}).txid == 1


def test_a_replica_that_takes_writes_is_refused(redis_server: RedisServer) -> None:
    """What is written to it is gone when it next copies its master."""
    with RedisServer(replica_read_only="no") as replica:
        url = replica.url()
        StateDriver(open_state(url, table="counts")).puts(1, {"a": 1})
        from redis import Redis

        with Redis.from_url(url, decode_responses=True) as client:
            client.config_set("masterauth", redis_server.password)
            client.replicaof("127.0.0.1", redis_server.port)
            for scheme in ("redis", "redis-map"):
                state = open_state(replica.url(scheme), table="counts")
                with pytest.raises(PromiseError, match=r"is a replica, .* got role 'slave'"):
                    StateDriver(state).puts(1, {"a": 1})
            client.replicaof("NO", "ONE")
        assert StateDriver(open_state(replica.url(), table="more")).puts(1, {"a": 1}).txid == 1


@pytest.mark.rule("state_backends.redis.backend", "Rules", 1)
def test_a_claim_between_a_commits_reading_and_its_write_refuses_it(
    redis_server: RedisServer,
) -> None:
    """That is the watch on the ledger; with one coordinator nothing is missing without it."""
    state = open_state(redis_server.empty(), table="counts")
    zombie = StateDriver(state, epoch=1)
    claimed = threading.Event()

    def overtaken(step: str) -> None:
        if step == "write.before" and not claimed.is_set():
            claimed.set()
            StateDriver(state, epoch=2)

    zombie.backend.point = overtaken
    with pytest.raises(FencedError, match="epoch 2"):
        zombie.backend.commit(zombie.attempt(1), Puts({("a",): (1,)}))
    assert StateDriver(state, epoch=3).contents() == {}
