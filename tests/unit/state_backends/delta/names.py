"""What both modes of Delta say of names and values, wherever the tables are."""

from __future__ import annotations

import pytest

from tests.harness.chance import most
from tests.unit.state_backends.extent import OwnExtent
from txtopo import Fields
from txtopo.errors import TopologyError
from txtopo.state import Count, open_state
from txtopo.testing.conformance.driver import Drive
from txtopo.testing.conformance.pace import DEATHS_MIN, Extent


class DeltaNames(OwnExtent):
    """The subject of both suites; smaller ones than the default, since each commit is a file."""

    refused = frozenset({"surrogates in keys", "surrogates in strings"})
    histories = most(4, otherwise=2)
    keys_max = most(20_000, otherwise=1_000)
    deaths = DEATHS_MIN

    @pytest.mark.parametrize("name", ['we"ird', "two words", "a,b", "x=y", "brackets()"])
    def test_names_are_quoted(self, url: str, drive: Drive, extent: Extent, name: str) -> None:
        """What Spark cannot have as a column of a Delta table is refused; the rest is quoted."""
        with pytest.raises(TopologyError, match="bad column name"):
            open_state(url, table="t", key=Fields(f"`{name}` string")).open()
        state = self.aggregated(
            url, f"table {name}", Fields("`select` string"), Fields("`50%:ü` long"), (Count(),)
        )
        store = drive(state)

        store.merge(1, [("x", 1)])
        store.merge(2, [("x", 1)])
        store.merge(2, [("x", 2)], attempt=1)

        assert store.contents() == {"x": 3}
