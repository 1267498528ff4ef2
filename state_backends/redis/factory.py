"""``open_backend`` and ``open_map_backend``, the entry points of states in Redis; RedisMap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from state_backends.redis.client import check_lengths, check_promises, client_of, servers_of
from txtopo.plugins.stores import (
    BackingMap,
    Server,
    StateBackend,
    StateTable,
    backing_map_factory,
    redacted_url,
)

_CLIENT = ("redis",)


class RedisFactory:
    """Opens states in Redis."""

    def servers_of(self, url: str) -> Sequence[Server]:
        """Return the server that the URL names."""
        return servers_of(url)

    def client_modules_of(self, url: str, table: StateTable) -> Sequence[str]:
        """Return redis-py."""
        return _CLIENT

    def __call__(self, url: str, table: StateTable) -> StateBackend:
        """Open a state; connects when it is first used.

        Raises:
            ConfigError: redis-py is not installed.
            TopologyError: It cannot read the URL.
        """
        client_of(url).close()  # reports what is missing before anything imports redis-py
        from state_backends.redis.backend import RedisBackend

        return RedisBackend(url, table)

    def __reduce__(self) -> str:
        return "open_backend"


open_backend = RedisFactory()


Result = TypeVar("Result")

_PREFIX = "txtopo-map:"


class RedisMap(BackingMap):
    """A backing map in Redis: ``MGET`` and ``MSET``."""

    def __init__(self, url: str) -> None:
        self._client = client_of(url)
        self._label = redacted_url(url)
        self._checked = False

    @staticmethod
    def servers_of(url: str) -> Sequence[Server]:
        """Return the server that the URL names."""
        return servers_of(url)

    @staticmethod
    def client_modules_of(url: str, table: StateTable) -> Sequence[str]:
        """Return redis-py."""
        return _CLIENT

    def multi_get(self, keys: Sequence[str]) -> list[str | None]:
        """Read the values of the keys."""
        if not keys:
            return []
        found: Any = self._asked(lambda: self._client.mget([_PREFIX + key for key in keys]))
        return list(found)

    def multi_put(self, keys: Sequence[str], values: Sequence[str]) -> None:
        """Write the values of the keys."""
        texts = {_PREFIX + key: value for key, value in zip(keys, values, strict=True)}
        if texts:
            self._asked(lambda: check_lengths(self._client, texts.values(), self._label))
            self._asked(lambda: self._client.mset(texts))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _asked(self, ask: Callable[[], Result]) -> Result:
        from state_backends.redis.failures import FAILURES, translated

        try:
            if not self._checked:
                check_promises(self._client, self._label)
                self._checked = True
            return ask()
        except FAILURES as error:
            raise translated(error, self._label) from error


open_map_backend = backing_map_factory(RedisMap)
