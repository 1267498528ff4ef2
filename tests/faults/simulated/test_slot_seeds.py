"""Resident slots: three hundred seeds, and every seed that once found a bug."""

from __future__ import annotations

import os
from collections import Counter
from enum import Enum

import pytest

from tests.faults.simulated.named_seeds import NAMED_SLOT_SEEDS, NamedSeed
from txtopo.runtime.resident import orders, supervisor
from txtopo.testing.simulation.faults import SlotFaults
from txtopo.testing.simulation.slot_command import run_slot_seeds
from txtopo.testing.simulation.slots import SlotScenario, simulate_slots

pytestmark = pytest.mark.integration
SEEDS = 300
# Each of them ends the run, so a seed passes one at the most. The tests of the supervisor have all.
LAST = {supervisor.EndRequested, supervisor.JobFailed}


def test_no_seed_breaks_a_promise() -> None:
    verdicts = run_slot_seeds(range(SEEDS), processes=len(os.sched_getaffinity(0)))

    failed = [SlotScenario.drawn(each.seed).command() for each in verdicts if each.violations]
    assert not failed, "\n".join(failed)
    happened = sum((Counter(each.faults) for each in verdicts), Counter[str]())
    assert set(happened) == set(SlotFaults.kinds()), "the seeds test too little"
    ends = {each.ended.partition("(")[0] for each in verdicts}
    assert {"everything is done", "SlotUnavailable", "goes on with another carrier"} <= ends


class Passed(dict[tuple[Enum, type], Enum]):
    """A table that notes which of its entries were used."""

    def __init__(self, table: dict[tuple[Enum, type], Enum]) -> None:
        super().__init__(table)
        self.used: set[tuple[Enum, type]] = set()

    def __getitem__(self, key: tuple[Enum, type]) -> Enum:
        self.used.add(key)
        return super().__getitem__(key)


def test_the_seeds_pass_every_entry_of_both_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a line of the protocol that is wrong has a seed that sees it."""
    tables = []
    for machine in (supervisor, orders):
        tables.append(Passed(machine.AFTER))
        monkeypatch.setattr(machine, "AFTER", tables[-1])
    wanted = {entry for table in tables for entry in table if entry[1] not in LAST}
    left, seed = set(wanted), 0
    while left and seed < SEEDS:
        simulate_slots(SlotScenario.drawn(seed))
        left = wanted.difference(*(table.used for table in tables))
        seed += 1

    assert left == set()


@pytest.mark.parametrize("named", NAMED_SLOT_SEEDS, ids=lambda named: named.found)
def test_a_seed_that_once_found_a_bug_finds_none(named: NamedSeed) -> None:
    scenario = SlotScenario.drawn(named.seed).without(named.without)

    assert simulate_slots(scenario).violations == (), scenario.command()
