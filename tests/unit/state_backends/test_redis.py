"""States in Redis: both schemes pass the suites."""

from __future__ import annotations

import pytest

from state_backends.redis.backend import ROWS_AT_ONCE
from tests.harness.chance import most
from tests.harness.servers.redis import RedisServer
from tests.unit.state_backends.extent import OwnExtent
from txtopo.testing.conformance import BackingMapSuite, StateBackendSuite
from txtopo.testing.conformance.map_fixtures import OpenMap

pytestmark = pytest.mark.service("redis")


class TestRedis(OwnExtent, StateBackendSuite):
    histories = most(100, otherwise=20)
    keys_max = most(40_000, otherwise=ROWS_AT_ONCE + 1)

    @pytest.fixture
    def url(self, redis_server: RedisServer) -> str:
        return redis_server.empty()


class TestRedisMap(OwnExtent, StateBackendSuite):
    fenced = False
    atomic_reader = False
    histories = most(60, otherwise=10)
    keys_max = most(20_000, otherwise=1_000)

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
