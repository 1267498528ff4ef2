"""States in Delta tables in an object store, where nobody locks: each commit is a conditional put.

The store is slow here, half a second a commit in mode ``table``, so histories are few; and all
tests together take over four minutes, so they are of ``make stores`` and ``make test-all``.
"""

from __future__ import annotations

import decimal

import pytest

from tests.harness.servers.object_store import ObjectStore
from tests.unit.state_backends.delta.names import DeltaNames
from txtopo import Fields
from txtopo.command.program import WRONG_CALL, run
from txtopo.errors import SchemaDrift
from txtopo.state import open_state
from txtopo.testing.conformance import AggregateStateSuite, StateBackendSuite
from txtopo.testing.conformance.driver import StateDriver

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.service("object-store")]


class InObjectStore(DeltaNames):
    """A folder of the object store for each test."""

    histories = 2
    keys_max = 5_000
    deaths = 4

    @pytest.fixture
    def url(self, object_store: ObjectStore) -> str:
        return object_store.url()


class TestStateBackend(InObjectStore, StateBackendSuite):
    pass


class TestLog(InObjectStore, AggregateStateSuite):
    mode = "log"


def test_a_state_within_the_table_of_another_is_refused(object_store: ObjectStore) -> None:
    url = object_store.url()
    outer = StateDriver(open_state(url, table="words"))
    outer.puts(1, {"a": 1})
    address, mark, options = url.partition("?")

    with pytest.raises(SchemaDrift, match="inside the Delta table"):
        StateDriver(open_state(f"{address}/words{mark}{options}", table="x"))
    assert outer.puts(2, {"a": 2}).txid == 2


def test_a_state_is_read_without_its_declaration(object_store: ObjectStore) -> None:
    """The store does not list its states, but knows the columns of one that is named."""
    url = object_store.url()
    key, value = Fields("city string, n long"), Fields("price decimal(5,2)")
    prices = StateDriver(open_state(url, table="prices", key=key, value=value))
    prices.puts(1, {("Paris", 1): decimal.Decimal("1.50")})

    with open_state(url, table="prices").reader() as reader:
        assert dict(reader.items()) == {("Paris", 1): decimal.Decimal("1.50")}
        assert reader.size().rows == 1
    assert run(["state", "get", url, "--table", "prices", "Paris", "1"]) == 0
    assert run(["state", "ls", url]) == WRONG_CALL
    assert run(["state", "show", url, "--table", "nothing"]) == WRONG_CALL
