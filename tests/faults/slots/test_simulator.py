"""The simulation of resident slots: what it runs, and what its checkers object to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from click.testing import CliRunner

from tests.faults.slots.checkers import SLOT_CHECKERS, SlotEvidence
from tests.faults.slots.cluster import Entry
from tests.faults.slots.command import main
from tests.faults.slots.simulation import SlotScenario, SlotVerdict, simulate_slots
from tests.harness.chance import most
from tests.unit.testing.scenarios import digests_of
from txtopo.errors import ConfigError, RunLostError
from txtopo.resident.slot_runner import LIMITS
from txtopo.testing.simulation.faults import SlotFaults

DIGEST = (
    "import hashlib; from tests.faults.slots.simulation import SlotScenario, simulate_slots; "
    "lines = [entry.line() for entry in simulate_slots(SlotScenario.drawn({seed})).history]; "
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
        changes_carrier=False,
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


History = list[Entry]
Tamper = Callable[[History], History]


def dying() -> SlotVerdict:
    """Return a history in which workers die."""
    return simulate_slots(clean(3, SlotFaults(worker_dies=0.1, disconnect=0.1)))


def objections(history: Sequence[Entry]) -> set[str]:
    scenario = clean()
    evidence = SlotEvidence(
        history=history,
        slots=scenario.slots,
        pause_s=scenario.config().pause_s,
        limits=LIMITS,
        missing_s=scenario.batch_timeout_s,
        leftovers=[],
    )
    return {each.checker for checker in SLOT_CHECKERS for each in checker.check(evidence)}


def first(history: History, what: str, **values: object) -> int:
    return next(
        at
        for at, entry in enumerate(history)
        if entry.what == what
        and all(getattr(entry, name) == value for name, value in values.items())
    )


def changed(history: History, at: int, **values: object) -> History:
    return [*history[:at], replace(history[at], **values), *history[at + 1 :]]  # type: ignore[arg-type]


def without(history: History, at: int) -> History:
    return history[:at] + history[at + 1 :]


def swapped_answers(history: History) -> History:
    at = first(history, "level done")
    answers = history[at].note
    assert isinstance(answers, list)
    return changed(history, at, note=answers[::-1])


def another_life(history: History) -> History:
    at = first(history, "slot said")
    return changed(history, at, life=history[at].life + 7)


def a_life_again(history: History) -> History:
    at = first(history, "welcomed")
    return [*history[: at + 1], history[at], *history[at + 1 :]]


def an_order_too_early(history: History) -> History:
    at = first(history, "given")
    return [*history[: at + 1], replace(history[at], order=10_000), *history[at + 1 :]]


def a_death_that_does_not_count(history: History) -> History:
    at = next(
        at
        for at, entry in enumerate(history)
        if entry.what == "level failed"
        and isinstance(entry.error, RunLostError)
        and entry.error.facts["counted"]
    )
    return [
        entry for entry in history if entry.what != "worker died" or entry.at_s > history[at].at_s
    ]


def a_job_too_early(history: History) -> History:
    at = first(history, "submitted")
    return [*history[: at + 1], replace(history[at], submission=2), *history[at + 1 :]]


def a_level_after_its_cancellation(history: History) -> History:
    at = first(history, "ordered")
    return [
        *history[: at + 1],
        Entry(0.0, "cancelled", tag=history[at].tag),
        *history[at + 1 :],
    ]


def nobody_is_ready(history: History) -> History:
    return [entry for entry in history if entry.what != "slot ready" or entry.slot != 0]


def sent_home(history: History) -> History:
    at = first(history, "welcomed", slot=0)
    copy = replace(history[at], what="cut off", task=b"copy", note=False)
    return [*history[: at + 1], copy, *history[at + 1 :]]


def closed_late(history: History) -> History:
    at = first(history, "closed")
    return changed(history, at, at_s=history[at].at_s + 100)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("checker", "tamper"),
    [
        ("S1", swapped_answers),
        ("S1", lambda history: without(history, first(history, "level done"))),
        ("S2", an_order_too_early),
        ("S3", another_life),
        ("S3", a_life_again),
        ("S4", sent_home),
        ("S5", a_job_too_early),
        ("S5", lambda history: [entry for entry in history if entry.what != "warned"]),
        ("S6", a_death_that_does_not_count),
        ("S7", a_level_after_its_cancellation),
        ("S8", nobody_is_ready),
        ("S9", closed_late),
    ],
)
def test_a_checker_objects_to_a_broken_promise(checker: str, tamper: Tamper) -> None:
    history = list(dying().history)
    if checker == "S8":  # it has to last for as long
        history = [*history[: first(history, "stop")], Entry(100.0, "healed")]

    assert objections(list(dying().history)) == set()
    assert checker in objections(tamper(history))


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
