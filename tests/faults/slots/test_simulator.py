"""The simulation of resident slots: what it runs, and what its checkers object to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from click.testing import CliRunner

from tests.faults.slots.checkers import SLOT_CHECKERS, SlotEvidence
from tests.faults.slots.cluster import SlotFact
from tests.faults.slots.command import main
from tests.faults.slots.simulation import SlotScenario, SlotVerdict, simulate_slots
from tests.harness.chance import most
from tests.unit.testing.scenarios import digests_of
from txtopo.errors import ConfigError, RunLostError
from txtopo.resident.slot_runner import LIMITS
from txtopo.testing.simulation.faults import SlotFaults

DIGEST = (
    "import hashlib; from tests.faults.slots.simulation import SlotScenario, simulate_slots; "
    "lines = [fact.line() for fact in simulate_slots(SlotScenario.drawn({seed})).facts]; "
    "print(hashlib.sha256('\\n'.join(lines).encode()).hexdigest())"
)


def clean(seed: int = 1, faults: SlotFaults | None = None) -> SlotScenario:
    return replace(
        SlotScenario.drawn(seed),
        faults=faults or SlotFaults(),
        slots=2,
        spare_cores=1,
        repeats=False,
        batches=10,
        levels=2,
        at_once=2,
        batch_timeout_s=20.0,
        lost_slot="end",
    )


def test_everything_is_done_where_nothing_goes_wrong() -> None:
    verdict = simulate_slots(clean())

    assert verdict.violations == ()
    assert verdict.faults == {}
    assert verdict.levels == 10 * 3
    assert verdict.ended == "everything is done"


# How often the kinds happen that are drawn once a second, or that end the run.
OFTEN = {"core_away": 0.1, "core_gone": 0.05, "stop": 0.1, "broken": 0.2}
# Kinds that need another one: only the job of a dead worker has stragglers, and Spark is asked only
# about a missing slot.
NEEDS = {"straggler": {"worker_dies": 0.2}, "spark_slow": {"core_gone": 0.5}}


@pytest.mark.integration
@pytest.mark.parametrize("kind", SlotFaults.kinds())
def test_each_kind_of_fault_happens_and_is_survived(kind: str) -> None:
    """Alone, so that what is not survived has a name."""
    faults = replace(SlotFaults(), **{kind: OFTEN.get(kind, 0.3)}, **NEEDS.get(kind, {}))
    happened = 0
    for seed in range(5):
        verdict = simulate_slots(clean(seed, faults))
        assert verdict.violations == (), f"seed {seed}"
        happened += verdict.faults.get(kind, 0)
        if happened and seed + 1 >= most(5, otherwise=2):
            break

    assert happened


@pytest.mark.integration
def test_a_seed_does_the_same_whatever_the_order_of_hashes() -> None:
    digests = digests_of(DIGEST.format(seed=2))

    assert len(digests) == 1


Facts = list[SlotFact]
Tamper = Callable[[Facts], Facts]


def dying() -> SlotVerdict:
    """Return a history in which workers die."""
    return simulate_slots(clean(3, SlotFaults(worker_dies=0.1, disconnect=0.1)))


def objections(facts: Sequence[SlotFact]) -> set[str]:
    scenario = clean()
    evidence = SlotEvidence(
        facts=facts,
        slots=scenario.slots,
        pause_s=scenario.config().pause_s,
        limits=LIMITS,
        missing_s=scenario.batch_timeout_s,
        leftovers=[],
    )
    return {each.checker for checker in SLOT_CHECKERS for each in checker.check(evidence)}


def first(facts: Facts, what: str, **values: object) -> int:
    return next(
        at
        for at, fact in enumerate(facts)
        if fact.what == what and all(getattr(fact, name) == value for name, value in values.items())
    )


def changed(facts: Facts, at: int, **values: object) -> Facts:
    return [*facts[:at], replace(facts[at], **values), *facts[at + 1 :]]  # type: ignore[arg-type]


def without(facts: Facts, at: int) -> Facts:
    return facts[:at] + facts[at + 1 :]


def swapped_answers(facts: Facts) -> Facts:
    at = first(facts, "level done")
    answers = facts[at].note
    assert isinstance(answers, list)
    return changed(facts, at, note=answers[::-1])


def another_life(facts: Facts) -> Facts:
    at = first(facts, "slot said")
    return changed(facts, at, life=facts[at].life + 7)


def a_life_again(facts: Facts) -> Facts:
    at = first(facts, "welcomed")
    return [*facts[: at + 1], facts[at], *facts[at + 1 :]]


def an_order_too_early(facts: Facts) -> Facts:
    at = first(facts, "given")
    return [*facts[: at + 1], replace(facts[at], order=10_000), *facts[at + 1 :]]


def a_death_that_does_not_count(facts: Facts) -> Facts:
    at = next(
        at
        for at, fact in enumerate(facts)
        if fact.what == "level failed"
        and isinstance(fact.error, RunLostError)
        and fact.error.facts["counted"]
    )
    return [fact for fact in facts if fact.what != "worker died" or fact.at_s > facts[at].at_s]


def a_job_too_early(facts: Facts) -> Facts:
    at = first(facts, "submitted")
    return [*facts[: at + 1], replace(facts[at], submission=2), *facts[at + 1 :]]


def a_level_after_its_cancellation(facts: Facts) -> Facts:
    at = first(facts, "ordered")
    return [*facts[: at + 1], SlotFact(0.0, "cancelled", tag=facts[at].tag), *facts[at + 1 :]]


def nobody_is_ready(facts: Facts) -> Facts:
    return [fact for fact in facts if fact.what != "slot ready" or fact.slot != 0]


def sent_home(facts: Facts) -> Facts:
    at = first(facts, "welcomed", slot=0)
    copy = replace(facts[at], what="cut off", task=b"copy", note=False)
    return [*facts[: at + 1], copy, *facts[at + 1 :]]


def closed_late(facts: Facts) -> Facts:
    at = first(facts, "closed")
    return changed(facts, at, at_s=facts[at].at_s + 100)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("checker", "tamper"),
    [
        ("S1", swapped_answers),
        ("S1", lambda facts: without(facts, first(facts, "level done"))),
        ("S2", an_order_too_early),
        ("S3", another_life),
        ("S3", a_life_again),
        ("S4", sent_home),
        ("S5", a_job_too_early),
        ("S5", lambda facts: [fact for fact in facts if fact.what != "warned"]),
        ("S6", a_death_that_does_not_count),
        ("S7", a_level_after_its_cancellation),
        ("S8", nobody_is_ready),
        ("S9", closed_late),
    ],
)
def test_a_checker_objects_to_a_broken_promise(checker: str, tamper: Tamper) -> None:
    facts = list(dying().facts)
    if checker == "S8":  # it has to last for as long
        facts = [*facts[: first(facts, "stop")], SlotFact(100.0, "healed")]

    assert objections(list(dying().facts)) == set()
    assert checker in objections(tamper(facts))


def test_the_command_runs_seeds_and_one_with_its_trace() -> None:
    many = CliRunner().invoke(main, ["--seeds", "2", "--without", "hang"])
    one = CliRunner().invoke(main, ["--seed", "1", "--trace"])

    assert many.exit_code == one.exit_code == 0, many.output
    assert "2 seeds" in many.output
    assert "welcomed, slot 0, job 1" in one.output


def test_a_kind_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown kind of fault; got fire"):
        SlotScenario.drawn(1).without(["fire"])
    assert CliRunner().invoke(main, ["--without", "fire"]).exit_code != 0


def test_a_command_names_a_scenario() -> None:
    words = SlotScenario.drawn(5).without(["worker_dies", "hang"]).command().split()

    kinds = [words[at + 1] for at, word in enumerate(words) if word == "--without"]
    assert SlotScenario.drawn(5).without(kinds) == SlotScenario.drawn(5).without(
        ["worker_dies", "hang"]
    )
