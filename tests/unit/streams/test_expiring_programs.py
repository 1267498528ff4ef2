"""Random programs with expire_after against plain Python, whatever crashes."""

from __future__ import annotations

import pytest

from tests.unit.streams.expiring_programs import judged_expiring_program
from tests.unit.streams.seeds import assert_promises_kept


def slow(seed: int) -> object:
    """Return a parameter of ``make test-all``."""
    return pytest.param(seed, marks=pytest.mark.slow)


@pytest.mark.integration
@pytest.mark.parametrize("first", [0, *(slow(first) for first in range(4, 100, 4))])
def test_values_expire_as_in_plain_python_whatever_crashes(first: int) -> None:
    """Every second program commits txids in groups."""
    for seed in range(first, first + 4):
        assert_promises_kept(judged_expiring_program(seed))
