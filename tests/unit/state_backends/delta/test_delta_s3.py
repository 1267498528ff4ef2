"""States in Delta tables in an object store, where nobody locks: each commit is a conditional put.

The store is slow here, half a second a commit in mode ``table``, so histories are few; and all
tests together take over four minutes, so they are of ``make stores`` and ``make test-all``.
"""

from __future__ import annotations

import pytest

from tests.harness.servers.object_store import ObjectStore
from tests.unit.state_backends.delta.names import DeltaNames
from txtopo.errors import SchemaDrift
from txtopo.state import open_state
from txtopo.testing.conformance import AggregateStateSuite, StateBackendSuite
from txtopo.testing.conformance.driver import StateDriver

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.service("object-store")]


class InObjectStore(DeltaNames):
    """A folder of the object store for each test."""

    histories = 2
    keys_max = 5_000

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

    with pytest.raises(SchemaDrift, match="within the Delta table"):
        StateDriver(open_state(f"{address}/words{mark}{options}", table="x"))
    assert outer.puts(2, {"a": 2}).txid == 2
