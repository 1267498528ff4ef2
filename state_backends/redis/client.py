"""The client of a Redis server, and the checks that the server guarantees enough."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from txtopo.errors import PromiseError, TopologyError, ValueRefusedError
from txtopo.extras import require
from txtopo.plugins.stores import Server, redacted_url

if TYPE_CHECKING:
    from redis import Redis

# So that a hanging server is noticed; a batch of 100,000 keys takes less than a second.
_TIMEOUT_S = 30.0
_CONNECT_TIMEOUT_S = 5.0
# The required answers to CONFIG GET, and the harm that any other answer means.
_REQUIRED: Mapping[str, tuple[tuple[str, ...], str]] = {
    "appendonly": (("yes",), "a restart would lose commits"),
    "appendfsync": (("always",), "a crash of its machine would lose the last commits"),
    "no-appendfsync-on-rewrite": (("no",), "a crash during a rewrite would lose commits"),
    "maxmemory-policy": (
        ("noeviction", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"),
        "rows would be evicted when memory is short",
    ),
}

# If a text is longer than this setting, Redis closes the connection. The default is 512 MiB and the
# minimum 1 MiB, so for shorter texts the setting is not read.
_LENGTH_SETTING = "proto-max-bulk-len"
_LENGTH_MIN = 1 << 20
_CHARACTER_BYTES_MAX = 4


def client_of(url: str) -> Redis:
    """Return a client, which connects when it is first used.

    Raises:
        ConfigError: redis-py is not installed.
        TopologyError: It cannot read the URL.
    """
    require("redis", f"{url.partition(':')[0]}://")
    from redis import Redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    try:
        client: Redis = Redis.from_url(
            url.replace("-map:", ":", 1),
            decode_responses=True,
            socket_timeout=_TIMEOUT_S,
            socket_connect_timeout=_CONNECT_TIMEOUT_S,
            # The runtime tries again, not the client: a command sent twice could be executed twice.
            retry=Retry(NoBackoff(), 0),
        )
        # This does not connect, but checks the options, which would otherwise fail with each
        # command.
        pool = client.connection_pool
        pool.connection_class(**pool.connection_kwargs)
    except (ValueError, TypeError) as error:
        raise TopologyError(
            f"cannot read the URL of a state; got {redacted_url(url)!r}; expected e.g. "
            f"'redis://:password@host:6379/0'; {type(error).__name__}",
            path=redacted_url(url),
        ) from error
    return client


def servers_of(url: str) -> tuple[Server, ...]:
    """Return the server that a URL names."""
    return (Server.of("Redis", url, 6379),)


def check_promises(client: Redis, label: str) -> None:
    """Check that the server does not lose writes that it has acknowledged.

    Raises:
        PromiseError: It may lose them; change its settings.
    """
    found: dict[str, str] = {}
    for name in _REQUIRED:
        answer: Any = client.config_get(name)
        found |= answer
    for name, (right, otherwise) in _REQUIRED.items():
        if found.get(name) not in right:
            raise PromiseError(
                f"{label} cannot guarantee exactly once: {otherwise}; got {name} "
                f"{found.get(name)!r}; expected {' or '.join(right)}; nothing was written; change "
                "redis.conf",
                store=label,
                setting=name,
                got=found.get(name),
                expected=right,
            )
    # A replica that refuses writes reports that itself, and a failover may leave one for a while.
    replication: Any = client.info("replication")
    writable: Any = client.config_get("replica-read-only")
    if replication.get("role") != "master" and writable.get("replica-read-only") == "no":
        raise PromiseError(
            f"{label} cannot guarantee exactly once: the server is a replica, which loses what is "
            f"written to it when it next copies its master; got role {replication.get('role')!r}; "
            "expected 'master'; nothing was written; name the master in the URL",
            store=label,
            got=replication.get("role"),
            expected="master",
        )


def check_lengths(client: Redis, texts: Iterable[str], label: str) -> None:
    """Check that the server accepts texts of this length; if not, it would close the connection.

    Raises:
        ValueRefusedError: A text is too long.
    """
    long = [text for text in texts if len(text) * _CHARACTER_BYTES_MAX > _LENGTH_MIN]
    if not long:
        return
    answer: Any = client.config_get(_LENGTH_SETTING)
    limit = int(answer[_LENGTH_SETTING])
    needed = max(len(text.encode()) for text in long)
    if needed > limit:
        raise ValueRefusedError(
            f"{label} cannot keep a row or key of {needed} bytes; expected at most {limit}, which "
            f"is {_LENGTH_SETTING}; nothing of its batch was written; write shorter values, or "
            "raise it in redis.conf",
            store=label,
            bytes=needed,
            limit=limit,
        )
