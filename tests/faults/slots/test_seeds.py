"""Resident slots: the seeds that find planted bugs, a few fresh ones, and what once found a bug.

``make test-all`` runs three hundred besides.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from enum import Enum

import pytest

from tests.faults.simulated.fresh_seeds import fresh_seeds
from tests.faults.simulated.named_seeds import (
    NAMED_SLOT_SEEDS,
    SLOT_SEEDS_OF_TABLES,
    NamedSeed,
    seeds_of_planted,
)
from tests.faults.slots.command import judged, run_slot_seeds
from tests.faults.slots.simulation import SlotScenario, SlotVerdict, simulate_slots
from txtopo.resident import orders, supervisor
from txtopo.testing.simulation.faults import SlotFaults

pytestmark = pytest.mark.integration
SEEDS = 300
# Each of them ends the run, so a seed passes one at the most. The tests of the supervisor have all.
LAST = {supervisor.EndRequested, supervisor.JobFailed}


class Passed(dict[tuple[Enum, type], Enum]):
    """A table that notes which of its entries were used."""

    def __init__(self, table: dict[tuple[Enum, type], Enum]) -> None:
        super().__init__(table)
        self.used: set[tuple[Enum, type]] = set()

    def __getitem__(self, key: tuple[Enum, type]) -> Enum:
        self.used.add(key)
        return super().__getitem__(key)


def test_the_seeds_break_no_promise_and_pass_every_entry_of_both_tables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So a line of the protocol that is wrong has a seed that sees it."""
    tables = []
    for machine in (supervisor, orders):
        tables.append(Passed(machine.AFTER))
        monkeypatch.setattr(machine, "AFTER", tables[-1])

    seeds = (*seeds_of_planted(of_slots=True), *SLOT_SEEDS_OF_TABLES)
    verdicts = [judged((), seed) for seed in seeds]

    judge(verdicts)
    wanted = {entry for table in tables for entry in table if entry[1] not in LAST}
    assert wanted.difference(*(table.used for table in tables)) == set()


def test_no_fresh_seed_breaks_a_promise() -> None:
    verdicts = [judged((), seed) for seed in fresh_seeds()]

    assert failed_of(verdicts) == []


@pytest.mark.slow
def test_none_of_three_hundred_seeds_breaks_a_promise() -> None:
    judge(run_slot_seeds(range(SEEDS), processes=len(os.sched_getaffinity(0))))


def judge(verdicts: Iterable[SlotVerdict]) -> None:
    """Let no seed break a promise, and the seeds together have every kind of fault and of end."""
    verdicts = list(verdicts)
    assert failed_of(verdicts) == []
    happened = sum((Counter(each.faults) for each in verdicts), Counter[str]())
    assert set(happened) == set(SlotFaults.kinds()), "the seeds test too little"
    ends = {each.ended.partition("(")[0] for each in verdicts}
    assert {"everything is done", "SlotUnavailable", "continues with another carrier"} <= ends


def failed_of(verdicts: Iterable[SlotVerdict]) -> list[str]:
    """Return the command that runs again each seed that broke a promise."""
    return [SlotScenario.drawn(each.seed).command() for each in verdicts if each.violations]


@pytest.mark.parametrize("named", NAMED_SLOT_SEEDS, ids=lambda named: named.found)
def test_a_seed_that_once_found_a_bug_finds_none(named: NamedSeed) -> None:
    scenario = SlotScenario.drawn(named.seed).without(named.without)

    assert simulate_slots(scenario).violations == (), scenario.command()
