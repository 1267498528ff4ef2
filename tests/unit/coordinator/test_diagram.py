"""The diagram of the coordinator is its table of transitions."""

from __future__ import annotations

from tests.harness.diagrams import drawn
from txtopo.coordinator import machine
from txtopo.coordinator.transactions import AFTER


def test_the_diagram_in_the_header_is_the_table() -> None:
    diagram = drawn(AFTER)

    assert diagram in (machine.__doc__ or ""), f"put this into the header:\n{diagram}"
