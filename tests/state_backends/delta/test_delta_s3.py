"""States in Delta tables in an object store, where nobody locks: each commit is a conditional put.

The store is slow here, half a second a commit in mode ``table``, so histories are few; and all
tests together take over four minutes, so they are of ``make stores`` and ``make test-all``.
"""

from __future__ import annotations

import pytest

from tests.services.object_store import ObjectStore
from tests.state_backends.delta.names import DeltaNames
from txtopo.testing.conformance import AggregateStateSuite, StateBackendSuite

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
