"""The clock of what is planned: a wall clock that jumps does not carry planned time along."""

from __future__ import annotations

import pytest

from txtopo import clock
from txtopo.runtime.plan_clock import JUMP_S, LASTS_S, PlanClock

BEGUN_S = 1_700_000_000.0
DAY_S = 86_400.0


class Clocks:
    """A wall clock and a steady one, which a test sets."""

    def __init__(self) -> None:
        self.wall_s, self.steady_s = BEGUN_S, 50.0

    def now(self) -> float:
        return self.steady_s

    def steady(self) -> float:
        return self.steady_s

    def wall_clock(self) -> float:
        return self.wall_s

    def passes(self, seconds: float, *, jump_s: float = 0.0) -> None:
        self.steady_s += seconds
        self.wall_s += seconds + jump_s


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def planned(clocks: Clocks) -> PlanClock:
    plan_clock = PlanClock(clocks, "words")
    assert plan_clock.wall_clock() == BEGUN_S
    return plan_clock


@pytest.mark.rule("txtopo.runtime.plan_clock", "Rules", 1)
def test_a_clock_that_is_slowly_corrected_is_followed(clocks: Clocks, planned: PlanClock) -> None:
    for _ in range(100):
        clocks.passes(60, jump_s=JUMP_S * 0.9)
        assert planned.wall_clock() == clocks.wall_s


@pytest.mark.parametrize("jump_s", [DAY_S, JUMP_S * 1.1, -JUMP_S * 1.1, -DAY_S])
@pytest.mark.rule("txtopo.runtime.plan_clock", "Rules", 2)
def test_a_jump_ahead_or_back_moves_no_planned_time(
    clocks: Clocks, planned: PlanClock, jump_s: float
) -> None:
    clocks.passes(1, jump_s=jump_s)
    assert planned.wall_clock() == BEGUN_S + 1
    assert planned.ahead_s == pytest.approx(jump_s)

    clocks.passes(LASTS_S - 1)
    assert planned.wall_clock() == BEGUN_S + LASTS_S


@pytest.mark.rule("txtopo.runtime.plan_clock", "Rules", 3)
def test_a_clock_that_is_back_is_believed_at_once_and_a_next_jump_is_none_that_has_lasted(
    clocks: Clocks, planned: PlanClock
) -> None:
    for _ in range(3):
        clocks.passes(1, jump_s=DAY_S)
        planned.wall_clock()
        clocks.passes(LASTS_S - 1, jump_s=2 - DAY_S)
        assert planned.wall_clock() == clocks.wall_s
        assert planned.ahead_s == 0


@pytest.mark.rule("txtopo.runtime.plan_clock", "Rules", 4)
def test_a_jump_that_lasts_was_a_correction(clocks: Clocks, planned: PlanClock) -> None:
    clocks.passes(1, jump_s=DAY_S)
    planned.wall_clock()
    clocks.passes(LASTS_S)

    assert planned.wall_clock() == clocks.wall_s == BEGUN_S + 1 + DAY_S + LASTS_S
    clocks.passes(5)
    assert planned.wall_clock() == clocks.wall_s


@pytest.mark.rule("txtopo.runtime.plan_clock", "Rules", 4)
def test_a_clock_that_jumps_again_and_again_is_not_believed(
    clocks: Clocks, planned: PlanClock
) -> None:
    for _ in range(10):
        clocks.passes(LASTS_S - 1, jump_s=3600)
        passed_s = clocks.steady_s - 50
        assert planned.wall_clock() == BEGUN_S + passed_s


@pytest.mark.rule("txtopo.runtime.plan_clock", "Rules", 5)
def test_a_doubt_is_told_when_it_begins_and_when_it_ends(
    clocks: Clocks, planned: PlanClock, caplog: pytest.LogCaptureFixture
) -> None:
    clocks.passes(1, jump_s=DAY_S)
    for _ in range(5):
        planned.wall_clock()
        clocks.passes(1)
    clocks.passes(1, jump_s=-DAY_S)
    for _ in range(5):
        planned.wall_clock()

    begun, ended = caplog.records
    assert "'words': the clock of this driver has jumped" in begun.getMessage()
    assert "ahead by 86400.0 s" in begun.getMessage()
    assert "is back, and is trusted again; it went back by" in ended.getMessage()


@pytest.mark.rule("txtopo.runtime.plan_clock", "Rules", 6)
def test_a_driver_that_begins_with_a_clock_ahead_of_the_ensembles_plans_by_that(
    clocks: Clocks, caplog: pytest.LogCaptureFixture
) -> None:
    plan_clock = PlanClock(clocks, "words")
    begun_s = clocks.steady_s
    clocks.passes(1)
    plan_clock.compare(clocks.wall_s - DAY_S, begun_s)

    clocks.passes(1)
    assert plan_clock.wall_clock() == clocks.wall_s - DAY_S + 1
    assert plan_clock.ahead_s == DAY_S - 1
    assert "'words': the clock of this driver has jumped" in caplog.text
    clocks.passes(LASTS_S)
    assert plan_clock.wall_clock() == clocks.wall_s


@pytest.mark.parametrize("ahead_s", [-DAY_S, 0, JUMP_S * 0.9])
@pytest.mark.parametrize("claim_s", [0, 2 * LASTS_S])
@pytest.mark.rule("txtopo.runtime.plan_clock", "Rules", 6)
def test_a_clock_that_is_not_ahead_is_believed_however_long_the_claim_takes(
    clocks: Clocks, ahead_s: float, claim_s: float
) -> None:
    plan_clock = PlanClock(clocks, "words")
    begun_s, written_s = clocks.steady_s, clocks.wall_s - ahead_s
    clocks.passes(claim_s)
    plan_clock.compare(written_s + claim_s, begun_s)

    assert plan_clock.wall_clock() == clocks.wall_s


@pytest.mark.rule("txtopo.runtime.plan_clock", "Rules", 6)
def test_a_driver_that_leads_again_knows_its_clock(clocks: Clocks, planned: PlanClock) -> None:
    clocks.passes(1)
    planned.compare(clocks.wall_s - DAY_S, clocks.steady_s)

    assert planned.wall_clock() == clocks.wall_s


def test_a_process_that_is_frozen_between_two_looks_believes_nothing_wrong(
    clocks: Clocks, planned: PlanClock
) -> None:
    """The wall clock is looked at second, so it seems to be ahead by the time of the freeze."""
    clocks.wall_s += 100
    assert planned.wall_clock() == BEGUN_S
    clocks.steady_s += 100
    assert planned.wall_clock() == BEGUN_S + 100
    assert planned.ahead_s == 0


def test_the_steady_clock_of_this_machine_goes_forward() -> None:
    first = clock.steady()

    assert clock.steady() >= first
