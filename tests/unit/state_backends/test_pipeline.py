"""The rows of several states in PostgreSQL, sent in a pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import count
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from state_backends.sql.postgresql import COPIED_BYTES_MIN, COPIED_ROWS_MIN
from txtopo import Fields
from txtopo.errors import StoreUnavailable, ValueRefusedError
from txtopo.plugins.stores import Merges, Puts
from txtopo.state import Count, open_state
from txtopo.state.commit import commit_all_resolved
from txtopo.testing.conformance.driver import StateDriver, packed, partials

if TYPE_CHECKING:
    from tests.harness.servers.postgresql import PostgresServer

pytestmark = pytest.mark.service("postgresql")

LARGEST = 2**63 - 1
_numbers = count()


class Pair:
    """Two states that hold txid 2, so that nothing has to be read for the next one."""

    def __init__(self, url: str, value: str, pipelines: list[None]) -> None:
        states = [
            open_state(url, table=table).with_columns(Fields("key string"), Fields(value))
            for table in ("first", "second")
        ]
        self.pipelines = pipelines
        self.states = [StateDriver(state, component=str(state.table)) for state in states]

    def commit(self, txid: int, *writes: Puts | Merges) -> int:
        """Commit to both, and return how many pipelines there were."""
        before = len(self.pipelines)
        members = [(each.backend, one) for each, one in zip(self.states, writes, strict=True)]
        commit_all_resolved(self.states[0].attempt(txid), members)
        return len(self.pipelines) - before

    @property
    def contents(self) -> list[dict[Any, Any]]:
        return [each.contents() for each in self.states]

    def close(self) -> None:
        for each in self.states:
            each.close()


@pytest.fixture
def pipelines(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """An element for each pipeline that was opened."""
    opened: list[None] = []
    whole = psycopg.Connection.pipeline

    def pipeline(driver: psycopg.Connection) -> AbstractContextManager[psycopg.Pipeline]:
        opened.append(None)
        return whole(driver)

    monkeypatch.setattr(psycopg.Connection, "pipeline", pipeline)
    return opened


@pytest.fixture
def url(postgresql: PostgresServer) -> str:
    return postgresql.create_schema(f"pipeline{next(_numbers)}")


@pytest.fixture(params=["value long"])
def pair(request: pytest.FixtureRequest, url: str, pipelines: list[None]) -> Iterator[Pair]:
    pair = Pair(url, request.param, pipelines)
    for txid in (1, 2):
        pair.commit(txid, packed({"a": None}), packed({"a": None}))
    pair.commit(3, Puts({}), Puts({}))
    yield pair
    pair.close()


def test_rows_are_sent_in_a_pipeline_if_nothing_has_to_be_read(pair: Pair) -> None:
    assert pair.commit(4, packed({"a": 1, "b": 2}), packed({"a": 3})) == 1
    assert pair.contents == [{"a": 1, "b": 2}, {"a": 3}]
    assert pair.commit(5, packed({"a": None}), packed({"b": 4})) == 1
    # The first has a tombstone, which is removed before.
    assert pair.commit(6, packed({"b": 5}), packed({"b": 6})) == 0
    assert pair.contents == [{"b": 5}, {"a": 3, "b": 6}]


def test_many_rows_of_one_of_them_are_copied(pair: Pair) -> None:
    many = {f"k{n}": n for n in range(COPIED_ROWS_MIN)}

    assert pair.commit(4, packed(many), packed({"a": 1})) == 0
    assert pair.contents == [many, {"a": 1}]


@pytest.mark.parametrize("pair", ["value string"], indirect=True)
def test_few_long_rows_are_copied(pair: Pair) -> None:
    long = "x" * COPIED_BYTES_MIN

    pair.commit(4, packed({"a": long}), packed({"a": "short"}))
    assert pair.contents == [{"a": long}, {"a": "short"}]


@pytest.mark.parametrize("at", [0, 1])
def test_a_value_that_the_server_refuses_takes_back_both(
    url: str, pipelines: list[None], at: int
) -> None:
    """The error comes at the end of the pipeline, and names both states."""
    names = ("first", "second")
    counts = [
        open_state(url, table=name).with_columns(
            Fields("key string"), Fields("count long"), (Count(),)
        )
        for name in names
    ]
    states = [StateDriver(state, component=state.table or "") for state in counts]

    def commit(txid: int, *amounts: int) -> None:
        writes = [
            (each.backend, partials(each.state, [("a", amount)]))
            for each, amount in zip(states, amounts, strict=True)
        ]
        commit_all_resolved(states[0].attempt(txid), writes)

    for txid in (1, 2):
        commit(txid, 1, 1)
    amounts = [1, 1]
    amounts[at] = LARGEST

    with pytest.raises(ValueRefusedError, match=r"states 'first', 'second' .* out of range"):
        commit(3, *amounts)
    assert pipelines
    assert [each.contents() for each in states] == [{"a": 2}, {"a": 2}]
    commit(3, 1, 1)
    assert [each.contents() for each in states] == [{"a": 3}, {"a": 3}]
    for each in states:
        each.close()


def test_a_connection_that_is_lost_in_a_pipeline_has_written_nothing(
    pair: Pair, url: str, postgresql: PostgresServer
) -> None:
    pair.commit(4, packed({"a": 1}), packed({"a": 1}))

    def end_sessions(step: str) -> None:
        if step == "rows.before":
            pair.states[1].backend.point = lambda name: None
            with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as other:
                other.execute(
                    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                    "WHERE pid <> pg_backend_pid() AND xact_start IS NOT NULL"
                )

    pair.states[1].backend.point = end_sessions
    with pytest.raises(StoreUnavailable):
        pair.commit(5, packed({"a": 2}), packed({"a": 2}))
    assert pair.contents == [{"a": 1}, {"a": 1}]
    assert pair.commit(5, packed({"a": 3}), packed({"a": 3})) == 0
    assert pair.contents == [{"a": 3}, {"a": 3}]
