"""Works on a Spark cluster end right with each carrier, whatever happens to the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from tests.services.cluster.rounds import CARRIERS, Result, Services, rounds_of, run_round
from tests.services.cluster.situations import QUICK, SITUATIONS, Situation
from tests.services.cluster.works import Flights, Messages, Words
from txtopo.config import Carrier

pytestmark = [pytest.mark.kills, pytest.mark.spark, pytest.mark.timeout(1_800)]


@pytest.mark.slow
@pytest.mark.row(18, 20)
def test_with_executors_that_come_and_go_copies_and_a_killed_worker_all_carriers_are_right() -> (
    None
):
    with Services(kafka=False) as services:
        results = done(QUICK, [(carrier, Words.name) for carrier in CARRIERS], services)

    assert any(each.lost for each in results), "nothing was under way when the worker was killed"


@pytest.fixture(scope="module")
def services() -> Iterator[Services]:
    with Services(kafka=True) as services:
        yield services


@pytest.mark.slow
@pytest.mark.service("kafka")
@pytest.mark.row(18, 20, 21)
@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: each.name)
def test_works_are_right_in_each_situation(situation: Situation, services: Services) -> None:
    works = (Flights.name, Words.name, Messages.name)
    tasks = [(carrier, work) for carrier in CARRIERS for work in works]

    for together in rounds_of(situation, tasks):
        results = done(situation, together, services)
        if situation.name == "excluded" and results[0].carrier != "resident":
            assert results[-1].excluded == 1
            assert results[-1].cores == 2, "no slot is put where Spark gives no task"
        if situation.name == "speculation":
            assert any(each.copies for each in results)


def done(
    situation: Situation, tasks: Sequence[tuple[Carrier, str]], services: Services
) -> list[Result]:
    """Do works, and return what came of them, which is right."""
    results = list(run_round(situation, tasks, services))
    assert [each for each in results if each.wrong] == []
    return results
