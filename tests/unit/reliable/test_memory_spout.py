"""The memory spout of an at-least-once topology keeps its rows, and checks what it is given."""

from __future__ import annotations

from typing import Any

import pytest

from txtopo import Fields
from txtopo.errors import TopologyError
from txtopo.spouts import MemorySpout

NUMBER = Fields("number long")


def test_rows_of_a_generator_are_kept() -> None:
    """They were looked at once and gone."""
    assert MemorySpout(([number] for number in (1, 2)), NUMBER)._rows == [(1,), (2,)]


@pytest.mark.parametrize("repeat", [0, -1, 2.5, "2", True])
def test_another_number_of_repetitions_is_refused(repeat: Any) -> None:
    with pytest.raises(TopologyError, match="repeat of a MemorySpout is wrong; got"):
        MemorySpout([[1]], NUMBER, repeat)
