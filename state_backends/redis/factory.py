"""Opens states in Redis; ``open_backend`` is the entry point."""

from __future__ import annotations

from txtopo.state import StateBackend, StateTable


def open_backend(url: str, table: StateTable) -> StateBackend:
    """Open a state; connects when it is first used.

    Raises:
        TopologyError: redis-py is not installed, or it cannot read the URL.
    """
    from state_backends.redis.client import client_of

    client_of(url).close()  # says what is missing before anything imports redis-py
    from state_backends.redis.backend import RedisBackend

    return RedisBackend(url, table)
