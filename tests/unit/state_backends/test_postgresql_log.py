"""States in PostgreSQL in mode ``log``: the suite of aggregates, the view, and folds."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from state_backends.sql.postgresql import COPIED_ROWS_MIN
from tests.harness.chance import most
from tests.unit.state_backends.extent import OwnExtent
from tests.unit.state_backends.log_suite import LogSuite
from tests.unit.state_backends.log_sums_suite import LogSumsSuite
from tests.unit.state_backends.logs import summed
from tests.unit.state_backends.patience import POSTGRESQL_PATIENCE
from txtopo.errors import ValueRefusedError
from txtopo.state import State
from txtopo.testing.conformance import AggregateStateSuite
from txtopo.testing.conformance.driver import StateDriver
from txtopo.testing.conformance.pace import DEATHS_MIN

pytestmark = pytest.mark.service("postgresql")


@pytest.fixture
def url(postgresql_schema: str) -> str:
    return postgresql_schema


class TestLog(OwnExtent, AggregateStateSuite):
    mode = "log"
    deaths = DEATHS_MIN
    refused = frozenset(
        {"nul in keys", "nul in strings", "surrogates in keys", "surrogates in strings"}
    )
    histories = most(40, otherwise=10)
    many = COPIED_ROWS_MIN + 500


class TestSums(LogSumsSuite):
    pass


class TestFolds(LogSuite):
    quoted = "key, n, txid"
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    patience = POSTGRESQL_PATIENCE

    def kill(self, log: State, connection: sa.Connection) -> None:
        (process,) = connection.exec_driver_sql("SELECT pg_backend_pid()").one()
        engine = sa.create_engine(log.url)
        with engine.begin() as other:
            other.execute(sa.text(f"SELECT pg_terminate_backend({process}, 60000)"))
        engine.dispose()


def test_an_infinite_part_is_an_infinite_sum(url: str) -> None:
    """Which is not a sum beyond the range."""
    store = StateDriver(summed(url, "double"))
    store.merge(1, [("a", 1.7e308), ("b", float("inf"))])
    with pytest.raises(ValueRefusedError):
        store.merge(2, [("a", 1.7e308)])

    store.merge(2, [("a", -1.0), ("b", 1.0)])
    assert store.contents() == {"a": 1.7e308, "b": float("inf")}


def test_what_is_no_number_hides_no_other_one(url: str) -> None:
    """NaN is the largest number; the bound must see the one that comes next."""
    state = summed(url, "double")
    StateDriver(state).merge(1, [("a", 1.7e308), ("b", float("nan")), ("c", 1.0)])

    with pytest.raises(ValueRefusedError):
        StateDriver(state, epoch=2).merge(2, [("a", 1.7e308)])
