"""States in Delta tables that Spark writes, in drivers that die."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.state_backends.delta.by_spark import SCHEME, register
from tests.unit.state_backends.delta.tables import table_of
from txtopo.state import State
from txtopo.testing.conformance.driver import StateDriver, StoreFixtures
from txtopo.testing.conformance.dying_suites import AddedCounts, Survivor

register()


# Some fifteen drivers, and each starts a Spark of its own.
@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(1_800)
@pytest.mark.service("delta-spark")
class TestBySparkElsewhere(StoreFixtures):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"{SCHEME}-elsewhere://{tmp_path}/states"

    def test_a_merge_whose_driver_dies_is_there_whole_or_not_at_all(self, counts: State) -> None:
        survivor = Survivor(self, AddedCounts(counts))

        survivor.deaths().at_each_step(0)

        with closing(StateDriver(counts, survivor.epoch + 1)) as store:
            engines = [str(each.get("engineInfo")) for each in table_of(store).history()]
        assert sum("Spark" in engine for engine in engines) >= 2, engines
