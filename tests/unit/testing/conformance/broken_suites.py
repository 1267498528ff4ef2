"""What notices, on each broken store and on one that is whole; run by ``test_state_backend.py``.

Pytest collects it only when it is named.
"""

from __future__ import annotations

import pytest

from tests.unit.testing.conformance import (
    broken_copies,
    broken_groups,
    broken_ledgers,
    broken_ranges,
    broken_rows,
    broken_together,
)
from tests.unit.testing.conformance.broken_store import (
    BrokenStore,
    BrokenStores,
    StoreWithoutGroups,
)
from tests.unit.testing.conformance.noticing import noticing
from txtopo.state import register_backend
from txtopo.testing.conformance import StateBackendSuite
from txtopo.testing.conformance.combining_suites import HistorySuite, PutHistorySuite
from txtopo.testing.conformance.driver import StoreFixtures
from txtopo.testing.conformance.group_suites import GroupSuite, PutGroupSuite
from txtopo.testing.conformance.pace import HISTORIES_MIN, KEYS_MIN, MANY_MIN
from txtopo.testing.conformance.value_suites import PutRefusalSuite

BROKEN = {
    name: kind
    for module in (
        *(broken_copies, broken_groups, broken_ledgers),
        *(broken_ranges, broken_rows, broken_together),
    )
    for name, kind in vars(module).items()
    if isinstance(kind, type) and issubclass(kind, BrokenStore) and kind.fails
}


class _Small(StoreFixtures):
    histories = HISTORIES_MIN  # what a very slow store gets by default
    keys_max = KEYS_MIN
    many = MANY_MIN
    store = BrokenStore

    @pytest.fixture
    def url(self, request: pytest.FixtureRequest) -> str:
        scheme = self.store.__name__.lower()
        register_backend(scheme, BrokenStores(self.store))
        return f"{scheme}:{request.node.name}"


class TestRefusesLessThanItSays(_Small, PutRefusalSuite):
    refused = frozenset({"nan"})


class TestStoreWithoutGroups(_Small, GroupSuite, PutGroupSuite, PutHistorySuite, HistorySuite):
    """It is given none."""

    store = StoreWithoutGroups


def suite_with(test: str) -> type[StoreFixtures]:
    """Return the part of the suite that has a test."""
    name = test.partition("[")[0]
    (found,) = [part for part in StateBackendSuite.__mro__ if name in vars(part)]
    assert issubclass(found, StoreFixtures)
    return found


for _name, _kind in BROKEN.items():
    _parts = (_Small, suite_with(_kind.fails))
    globals()[f"Test{_name}"] = noticing(_name, _parts, [_kind.fails], store=_kind)

# Nothing is broken here, so it passes the tests at which the others fail.
_notices = [kind.fails for kind in BROKEN.values()]
TestBrokenStore = noticing("BrokenStore", (_Small, StateBackendSuite), _notices)
