"""Random programs with timers against the same programs in plain Python, whatever crashes."""

from __future__ import annotations

import pytest

from tests.unit.streams.seeds import assert_promises_kept
from tests.unit.streams.timer_programs import judged_timer_program

pytestmark = pytest.mark.integration
MORE = [pytest.param(first, marks=pytest.mark.slow) for first in range(4, 100, 12)]


@pytest.mark.parametrize("first", [0, *MORE])
@pytest.mark.rule("txtopo.streams.timers", "Rules", 2, 3, 4, 5, 6)
def test_random_programs_with_timers_are_right_whatever_crashes(first: int) -> None:
    """Every second one commits txids in groups; each attempt cuts its batches in another way."""
    for seed in range(first, first + (12 if first else 4)):
        assert_promises_kept(judged_timer_program(seed))
