"""The suites of stores for states in Delta that Spark writes, where there is no delta-rs.

``test_without_delta_rs.py`` runs this file in a process in which deltalake cannot be imported.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from state_backends.delta.library import HAS_DELTA_RS
from tests.unit.state_backends.delta.names import DeltaNames
from txtopo.testing.conformance.ledger_suites import (
    FenceSuite,
    LedgerSuite,
    OutcomeSuite,
    RestartSuite,
    UndoSuite,
)
from txtopo.testing.conformance.writing_suites import PutsSuite

assert not HAS_DELTA_RS, "test_without_delta_rs.py runs this file"

pytestmark = [pytest.mark.service("delta-spark"), pytest.mark.usefixtures("spark")]


class TestStateBackend(
    DeltaNames, UndoSuite, OutcomeSuite, FenceSuite, RestartSuite, PutsSuite, LedgerSuite
):
    """The protocol. Each commit is a merge by Spark, as in ``test_delta_by_spark.py``.

    That file has the rest of the suite, such as values and random histories.
    """

    histories = 2
    keys_max = 1_000
    forks = False  # Spark is in this process

    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"delta://{tmp_path}/states"
