"""States in Redis: both schemes pass the suites."""

from __future__ import annotations

import pytest

from tests.harness.servers.redis import RedisServer
from txtopo.testing.conformance import BackingMapSuite, StateBackendSuite
from txtopo.testing.conformance.map_fixtures import OpenMap

pytestmark = pytest.mark.service("redis")


class TestRedis(StateBackendSuite):
    histories = 100
    keys_max = 40_000

    @pytest.fixture
    def url(self, redis_server: RedisServer) -> str:
        return redis_server.empty()


class TestRedisMap(StateBackendSuite):
    fenced = False
    atomic_reader = False
    histories = 60
    keys_max = 20_000

    @pytest.fixture
    def url(self, redis_server: RedisServer) -> str:
        redis_server.empty()
        return redis_server.url("redis-map")


class TestTexts(BackingMapSuite):
    @pytest.fixture
    def open_map(self, redis_server: RedisServer) -> OpenMap:
        from state_backends.redis.factory import RedisMap

        redis_server.empty()
        url = redis_server.url("redis-map")
        return lambda: RedisMap(url)
