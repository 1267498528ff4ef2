"""The two random programs of a seed under the simulator, and the command that runs a seed again."""

from __future__ import annotations

from tests.unit.streams.programs import random_program
from tests.unit.streams.timed_programs import random_timed_program, sources_of
from tests.unit.streams.worlds import (
    BEGINNING,
    GROUPS,
    sales,
    simulated,
    simulated_timed,
    timed_sales,
)
from txtopo import Config
from txtopo.testing.simulation.campaign import Verdict

ROWS, TIMED_ROWS = 20, 16


def judged_program(seed: int) -> Verdict:
    """Run the random program of a seed under the faults of that seed, and judge it."""
    return simulated(random_program(seed), seed, sales(ROWS), config_of(seed))


def judged_timed_program(seed: int) -> Verdict:
    """Run the random program with event time of a seed under its faults, and judge it."""
    rows = {id: timed_sales(TIMED_ROWS, seed, id[0], BEGINNING) for id in sources_of(seed)}
    return simulated_timed(random_timed_program(seed), seed, rows, config_of(seed))


def config_of(seed: int) -> Config | None:
    """Return the settings of a seed: every second one commits txids in groups."""
    return GROUPS if seed % 2 else None


def assert_promises_kept(verdict: Verdict) -> None:
    """Fail with the command that runs the seed again, if a promise was broken."""
    command = f"python -m tests.unit.streams --first {verdict.seed} --seeds 1"
    assert not verdict.violations, f"{command}\n{verdict.violations[:3]}"
