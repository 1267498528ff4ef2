"""States in Delta tables on a local disk."""

from __future__ import annotations

import pytest

from tests.unit.state_backends.delta.names import DeltaNames
from txtopo.testing.conformance import AggregateStateSuite, StateBackendSuite

pytestmark = pytest.mark.integration


class TestStateBackend(DeltaNames, StateBackendSuite):
    pass


class TestLog(DeltaNames, AggregateStateSuite):
    mode = "log"
