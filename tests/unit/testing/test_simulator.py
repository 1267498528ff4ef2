"""The simulator runs what users run, replays it from its seed, and makes failures small."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.harness.chance import most
from tests.unit.testing.scenarios import PLAIN, clean, digests_of
from txtopo.errors import ConfigError
from txtopo.testing.checkers import Violation
from txtopo.testing.simulation.campaign import Simulator, Verdict, shrink
from txtopo.testing.simulation.clock import Timeline
from txtopo.testing.simulation.command import main
from txtopo.testing.simulation.faults import Faults
from txtopo.testing.simulation.scenario import Scenario

DIGEST = (
    "import hashlib; from txtopo.testing.simulation.scenario import Scenario; "
    "from txtopo.testing.simulation.campaign import Simulator; "
    "lines = '\\n'.join(Simulator().run(Scenario.drawn({seed})).history.lines()); "
    "print(hashlib.sha256(lines.encode()).hexdigest())"
)


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    made = Simulator()
    yield made
    made.close()


def test_everything_is_committed_where_nothing_goes_wrong(simulator: Simulator) -> None:
    verdict = simulator.run(clean(records=8, batch_rows_max=8))

    assert verdict.violations == ()
    assert verdict.faults == {}
    assert verdict.txids > 0


@pytest.mark.parametrize("spout", ["transactional", "partitioned", "opaque"])
def test_each_kind_of_spout_is_simulated(simulator: Simulator, spout: str) -> None:
    verdict = simulator.run(clean(shape=replace(PLAIN, spout=spout)))

    assert verdict.violations == ()


@pytest.mark.integration
def test_a_seed_does_the_same_whatever_the_order_of_hashes() -> None:
    digests = digests_of(DIGEST.format(seed=14))

    assert len(digests) == 1


# How often the kinds happen that stop a whole run; the others happen at each fifth chance.
OFTEN = {
    "crash": 0.02,
    "freeze": 0.02,
    "expire": 0.02,
    "stop": 0.01,
    "pause": 0.01,
    "command": 0.02,
    "bolt_breaks": 0.1,
    "bolt_fails": 0.1,
    "zookeeper_away": 0.05,
    "store_away": 0.02,
}


# Kinds that need another one: without a failure there is no replay.
NEEDS = {"empty_replay": {"bolt_fails": 0.2}}


@pytest.mark.integration
@pytest.mark.parametrize("kind", Faults.kinds())
@pytest.mark.row(20, 25, 49, 53)
def test_each_kind_of_fault_happens_and_is_survived(simulator: Simulator, kind: str) -> None:
    """Alone, so that what is not survived has a name."""
    shape = replace(PLAIN, relay=True, committers=("balances", "logs"), parallelism=2)
    faults = replace(Faults(), **{kind: OFTEN.get(kind, 0.2)}, **NEEDS.get(kind, {}))
    happened = 0
    for seed in range(5):
        verdict = simulator.run(clean(seed, faults=faults, shape=shape, coordinators=2, slots=2))
        assert verdict.violations == (), f"seed {seed}"
        happened += verdict.faults.get(kind, 0)
        if happened and seed + 1 >= most(5, otherwise=2):
            break

    assert happened


def test_a_command_names_a_scenario() -> None:
    scenario = Scenario.drawn(5).changed({"records": "3", "shape.relay": "True"}, ["crash"])

    words = scenario.command().split()
    settings = dict(words[at + 1].split("=") for at, w in enumerate(words) if w == "--set")
    kinds = [words[at + 1] for at, w in enumerate(words) if w == "--without"]

    assert Scenario.drawn(5).changed(settings, kinds) == scenario


@pytest.mark.parametrize(
    ("settings", "without", "said"),
    [
        ({"recrods": "3"}, [], "unknown setting of a scenario; got 'recrods'"),
        ({"records": "many"}, [], "bad value of the setting 'records' of a scenario; got 'many'"),
        ({"seed": "3"}, [], "unknown setting"),
        ({}, ["fire"], "unknown kind of fault; got fire"),
    ],
)
def test_what_a_scenario_does_not_have_is_refused(
    settings: dict[str, str], without: list[str], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        Scenario.drawn(1).changed(settings, without)


class Objecting(Simulator):
    """Objects to every scenario with crashes and at least three records."""

    def run(self, scenario: Scenario) -> Verdict:
        verdict = super().run(clean(records=1))
        guilty = scenario.faults.crash > 0 and scenario.records >= 3
        return replace(verdict, violations=(Violation("C1", "as told"),) if guilty else ())


def test_shrinking_finds_the_smallest_scenario_that_still_fails() -> None:
    faults = replace(Faults(), crash=0.1, freeze=0.1, recut=0.5)
    large = clean(faults=faults, records=32, coordinators=3, partitions=3, slots=3)

    small, verdict = shrink(Objecting(), large)

    assert verdict.violations
    assert small.faults == replace(Faults(), crash=0.1)
    assert (small.records, small.coordinators, small.partitions, small.slots) == (3, 1, 1, 1)


def test_what_is_due_together_keeps_its_order() -> None:
    timeline, seen = Timeline(), []
    for name in "abc":
        timeline.after(1.0, lambda name=name: seen.append(name))  # type: ignore[misc]
    timeline.after(0.5, lambda: seen.append("first")).cancel()

    assert not timeline.run(lambda: False, until_s=2.0)
    assert seen == ["a", "b", "c"]
    assert timeline.now_s == 2.0


@pytest.mark.parametrize(("other_s", "next_"), [(2.0, True), (1.0, True), (0.5, False)])
def test_a_wait_that_ends_next_needs_no_switch(other_s: float, next_: bool) -> None:
    timeline = Timeline()
    seen: list[bool | str] = []

    def work() -> None:
        event = timeline.after(1.0, lambda: seen.append("called"))
        timeline.after(other_s, lambda: None)
        seen.append(timeline.begins_with(event))

    timeline.after(0.0, work)
    timeline.run(lambda: bool(seen), until_s=5.0)

    assert seen == [next_]
    assert timeline.now_s == (1.0 if next_ else 0.0)


def test_no_wait_ends_after_the_time_is_up() -> None:
    timeline, seen = Timeline(), []
    timeline.after(0.0, lambda: seen.append(timeline.begins_with(timeline.after(3.0, seen.clear))))

    timeline.run(lambda: False, until_s=2.0)

    assert seen == [False]
    assert timeline.now_s == 2.0


def test_the_command_runs_one_seed_and_says_how_to_run_it_again() -> None:
    done = CliRunner().invoke(main, ["--seed", "3", "--without", "crash", "--set", "records=2"])

    assert done.exit_code == 0, done.output
    assert "txtopo-simulate --seed 3" in done.output
    assert "0 violations" in done.output


def test_the_command_writes_a_report(tmp_path: Path) -> None:
    page = tmp_path / "docs" / "simulation.md"

    done = CliRunner().invoke(main, ["--seeds", "2", "--report", str(page)])

    assert done.exit_code == 0, done.output
    assert "2 seeds, 0 with a violation" in page.read_text()
    assert "txtopo-simulate --first 0 --seeds 2" in page.read_text()


def test_a_report_leaves_the_further_sections_of_its_page_as_they_are(tmp_path: Path) -> None:
    page = tmp_path / "simulation.md"
    page.write_text(
        "# Simulation\n\nsome earlier run\n\n## Groups\n\nkept\n\n## Streams\n\nas well\n"
    )

    assert CliRunner().invoke(main, ["--seeds", "1", "--report", str(page)]).exit_code == 0

    text = page.read_text()
    assert "earlier" not in text
    assert "--seeds 1" in text
    assert text.endswith("|\n\n## Groups\n\nkept\n\n## Streams\n\nas well\n")


@pytest.mark.parametrize("arguments", [["--set", "records"], ["--seed", "1", "--without", "fire"]])
def test_the_command_refuses_what_it_does_not_know(arguments: list[str]) -> None:
    done = CliRunner().invoke(main, arguments)

    assert done.exit_code != 0
    assert "expected" in done.output
