"""Random programs with joins without a bound in time under the simulator, against plain Python."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.faults.simulated.fresh_seeds import fresh_seeds
from tests.unit.streams.join_programs import drawn, judged_join
from txtopo.testing.simulation.campaign import Verdict

pytestmark = pytest.mark.integration


FEW = [range(4), *(pytest.param(range(n, n + 8), marks=pytest.mark.slow) for n in range(4, 76, 8))]


@pytest.mark.parametrize("seeds", FEW, ids=str)
@pytest.mark.rule("txtopo.streams.regular_join", "Rules", 1)
def test_the_join_is_right_after_each_txid_whatever_crashes(seeds: range) -> None:
    """Every second program commits txids in groups; each attempt cuts its batches again."""
    for seed in seeds:
        assert_right(judged_join(seed))


def test_fresh_joins_are_right_whatever_crashes() -> None:
    for seed in fresh_seeds(1):
        assert_right(judged_join(seed))


def assert_right(verdict: Verdict) -> None:
    command = f"python -m tests.unit.streams --first {verdict.seed} --seeds 1"
    assert not verdict.violations, f"{command}\n{verdict.violations[:3]}"


def test_the_seeds_join_in_all_ways() -> None:
    found = Counter(drawn(seed)[0] for seed in range(40))

    assert set(found) == {"inner", "left", "right", "full"}
