"""A few hundred mutated inputs from fixed seeds; ``make fuzz`` feeds as many as one likes."""

from __future__ import annotations

import pytest

from tests.faults.fuzz.__main__ import faults


@pytest.mark.integration
def test_no_input_kills_hangs_or_changes_a_reader() -> None:
    assert list(faults(range(400))) == []


@pytest.mark.integration
def test_a_process_that_dies_is_told_and_replaced() -> None:
    """A line that is no number ends the child, as a crash does."""
    found = list(faults([0, "no seed", 1]))  # type: ignore[list-item]

    assert found == ["seed no seed: the process died of 1"]
