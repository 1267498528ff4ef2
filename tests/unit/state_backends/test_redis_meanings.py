"""What each error of Redis means; all that is not known to pass or to refuse lasts."""

from __future__ import annotations

import pytest

from state_backends.redis.failures import FAILURES, translated
from txtopo.errors import (
    AuthError,
    PromiseError,
    SchemaDrift,
    StoreUnavailable,
    TxtopoError,
    UnknownOutcomeError,
)

redis_errors = pytest.importorskip("redis.exceptions")

KINDS: dict[str, type[TxtopoError]] = {
    "AskError": PromiseError,
    "AuthenticationError": AuthError,
    "AuthenticationWrongNumberOfArgsError": AuthError,
    "AuthorizationError": AuthError,
    "BusyLoadingError": StoreUnavailable,
    "ClusterCrossSlotError": PromiseError,
    "ClusterDownError": StoreUnavailable,
    "ClusterError": PromiseError,
    "ConnectionError": StoreUnavailable,
    "DataError": PromiseError,
    "ExecAbortError": PromiseError,
    "ExternalAuthProviderError": StoreUnavailable,
    "InvalidResponse": PromiseError,
    "LockError": PromiseError,
    "LockNotOwnedError": PromiseError,
    "MasterDownError": StoreUnavailable,
    "MaxConnectionsError": StoreUnavailable,
    "ModuleError": PromiseError,
    "MovedError": PromiseError,
    "NoPermissionError": AuthError,
    "NoScriptError": PromiseError,
    "OutOfMemoryError": StoreUnavailable,
    "PubSubError": PromiseError,
    "ReadOnlyError": StoreUnavailable,
    "RedisError": PromiseError,
    "ResponseError": PromiseError,
    "TimeoutError": StoreUnavailable,
    "TryAgainError": StoreUnavailable,
    "WatchError": PromiseError,
}


def kinds() -> dict[str, type[Exception]]:
    return {
        name: kind
        for name, kind in vars(redis_errors).items()
        if isinstance(kind, type) and issubclass(kind, FAILURES)
    }


def test_each_error_of_the_client_has_a_row() -> None:
    assert set(kinds()) == set(KINDS)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_an_error_becomes_what_its_row_says(name: str) -> None:
    if name in ("AskError", "MovedError"):
        error = kinds()[name]("1 127.0.0.1:1")
    else:
        error = kinds()[name]("it says")

    assert type(translated(error, "state 's'")) is KINDS[name]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("OOM command not allowed", StoreUnavailable),
        ("MISCONF Redis is configured to save RDB snapshots, but", StoreUnavailable),
        ("READONLY You can't write against a read only replica.", StoreUnavailable),
        ("LOADING Redis is loading the dataset in memory", StoreUnavailable),
        ("CLUSTERDOWN The cluster is down", StoreUnavailable),
        ("NOREPLICAS Not enough good replicas to write.", StoreUnavailable),
        ("ERR max number of clients reached", StoreUnavailable),
        ("NOPERM this user has no permissions", AuthError),
        ("DENIED Redis is running in protected mode", AuthError),
        ("WRONGTYPE Operation against a key", SchemaDrift),
        ("ERR unknown command 'EXEC'", PromiseError),
        ("of next year", PromiseError),
    ],
)
def test_what_the_server_says_is_sorted_by_its_words(text: str, kind: type[TxtopoError]) -> None:
    assert type(translated(redis_errors.ResponseError(text), "state 's'")) is kind


def test_a_connection_that_is_lost_at_exec_leaves_the_outcome_open() -> None:
    error = redis_errors.ConnectionError("reset")
    refused = redis_errors.ConnectionError("[SSL] certificate verify failed")

    assert type(translated(error, "s", during_write=True)) is UnknownOutcomeError
    assert type(translated(refused, "s")) is AuthError
