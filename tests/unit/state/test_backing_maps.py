"""States over a backing map pass the suite of every backend, but for what two methods lack."""

from __future__ import annotations

import itertools

import pytest

from tests.harness.chance import most
from tests.unit.state.backing_maps import open_comparing_map, open_map
from tests.unit.state_backends.extent import OwnExtent
from txtopo.plugins.stores import backing_map_factory
from txtopo.state import register_backend
from txtopo.testing.conformance import StateBackendSuite

pytestmark = pytest.mark.integration
_numbers = itertools.count()


class OwnMapExtent(OwnExtent):
    histories = most(40, otherwise=10)
    keys_max = most(20_000, otherwise=1_000)


class TestTwoMethods(OwnMapExtent, StateBackendSuite):
    fenced = False
    atomic_reader = False

    @pytest.fixture
    def url(self) -> str:
        register_backend("dict", backing_map_factory(open_map, shared_by_processes=False))
        return f"dict:{next(_numbers)}"


class TestThreeMethods(OwnMapExtent, StateBackendSuite):
    atomic_reader = False

    @pytest.fixture
    def url(self) -> str:
        opened = backing_map_factory(open_comparing_map, shared_by_processes=False)
        register_backend("comparing", opened)
        return f"comparing:{next(_numbers)}"
