"""States in mode ``log``, their folds, and questions to their databases, for the tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from state_backends.sql.backend import SqlBackend
from state_backends.sql.log import LogDialect, LogFolder
from txtopo import Fields
from txtopo.state import Count, State, Sum, open_state
from txtopo.state.log_mode import BackgroundTask
from txtopo.testing.conformance.driver import StateDriver

KEY = Fields("key string")


def counted(url: str) -> State:
    state = open_state(url, table="log", mode="log")
    return state.with_columns(KEY, Fields("n long"), (Count(),))


def summed(url: str, kind: str) -> State:
    state = open_state(url, table="log", mode="log")
    return state.with_columns(KEY, Fields(f"total {kind}"), (Sum("x"),))


def dialect_of(store: StateDriver) -> LogDialect:
    assert isinstance(store.backend, SqlBackend)
    assert isinstance(store.backend._dialect, LogDialect)
    return store.backend._dialect


def folder_of(store: StateDriver) -> LogFolder:
    return dialect_of(store).folder


def fold_under_way(task: BackgroundTask) -> None:
    """Wait for the fold that the last commits began; the next commit may begin one.

    On a busy machine a fold may have lost against the commits. Then the task lets some pass by.
    """
    assert task._running is not None
    task._running.result()
    task._skip = 0


@contextmanager
def folding(log: State, first: int, last: int) -> Iterator[sa.Connection]:
    """Fold as the backend does, all but the end of the transaction."""
    backend = log.open()
    assert isinstance(backend, SqlBackend)
    assert isinstance(backend._dialect, LogDialect)
    folder = backend._dialect.folder
    try:
        with backend._engine.connect() as connection:
            folder.prepare(connection)
            folder.begin(connection)
            connection.info["left"] = folder.replace(connection, first, last)
            yield connection
            assert not connection.in_transaction()
    finally:
        backend.close()


def fold(log: State, first: int, last: int) -> int:
    """Fold as the backend does; return how many rows are left."""
    with folding(log, first, last) as connection:
        connection.commit()
        left: int = connection.info["left"]
    return left


def asked(log: State, question: str) -> list[tuple[Any, ...]]:
    engine = sa.create_engine(log.url)
    with engine.connect() as connection:
        found = connection.execute(sa.text(question)).all()
    engine.dispose()
    return [tuple(row) for row in found]
