"""``txtopo-simulate``: the command line of ``campaign``, to run, replay and shrink seeds."""

from __future__ import annotations

from pathlib import Path

import click

from txtopo.errors import ConfigError
from txtopo.testing.simulation.campaign import CampaignReport, Simulator, Verdict, run_seeds, shrink
from txtopo.testing.simulation.scenario import Scenario

SHOWN_FAILURES_MAX = 10


@click.command()
@click.option("--seed", type=int, help="Run only this seed and print its trace if it fails.")
@click.option("--first", type=int, default=0, show_default=True, help="The first seed.")
@click.option("--seeds", type=int, default=300, show_default=True, help="The number of seeds.")
@click.option(
    "--processes", type=int, default=1, show_default=True, help="The number of seeds at a time."
)
@click.option("--without", multiple=True, metavar="KIND", help="Omit a kind of fault.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Change a setting.")
@click.option("--trace", is_flag=True, help="Print every event of the seed.")
@click.option("--shrink", "smaller", is_flag=True, help="Search for a smaller scenario that fails.")
@click.option("--report", type=click.Path(path_type=Path), help="Write the report to this file.")
def main(
    seed: int | None,
    first: int,
    seeds: int,
    processes: int,
    without: tuple[str, ...],
    settings: tuple[str, ...],
    *,
    trace: bool,
    smaller: bool,
    report: Path | None,
) -> None:
    """Run txtopo in virtual time, with faults drawn from seeds.

    The exit status is 1 if a promise was broken.
    """
    changes = dict(_split(each) for each in settings)
    try:
        if seed is not None:
            _one(Scenario.drawn(seed).changed(changes, without), trace=trace, smaller=smaller)
            return
        Scenario.drawn(first).changed(changes, without)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    done = run_seeds(
        first, seeds, processes=processes, changes=changes, without=without, tell=_progress
    )
    click.echo("", err=True)
    options = [f"--without {kind}" for kind in without] + [f"--set {each}" for each in settings]
    command = " ".join([f"txtopo-simulate --first {first} --seeds {seeds}", *options])
    text = "\n".join(done.lines())
    click.echo(text)
    if report is not None:
        report.parent.mkdir(parents=True, exist_ok=True)
        report.write_text(_page(command, text, done) + _further_sections(report))
    for failed, violations in sorted(done.failures.items())[:SHOWN_FAILURES_MAX]:
        click.echo(f"\nseed {failed}: {Scenario.drawn(failed).changed(changes, without).command()}")
        for violation in violations[:3]:
            click.echo(f"  {violation}")
    if done.failures:
        raise SystemExit(1)


def _one(scenario: Scenario, *, trace: bool, smaller: bool) -> None:
    simulator = Simulator()
    if smaller:
        scenario, verdict = shrink(simulator, scenario)
    else:
        verdict = simulator.run(scenario)
    simulator.close()
    if trace or verdict.violations:
        for line in verdict.history.lines():
            click.echo(line)
    _say(scenario, verdict)
    if verdict.violations:
        raise SystemExit(1)


def _say(scenario: Scenario, verdict: Verdict) -> None:
    click.echo(
        f"{verdict.txids} txids, {sum(verdict.faults.values())} faults, "
        f"{verdict.virtual_s:.0f} s of virtual time, {len(verdict.violations)} violations"
    )
    for violation in verdict.violations:
        click.echo(f"{violation.checker}: {violation.what}")
    click.echo(scenario.command())


def _split(text: str) -> tuple[str, str]:
    name, mark, value = text.partition("=")
    if not mark:
        raise click.BadParameter(f"got {text!r}; expected NAME=VALUE", param_hint="--set")
    return name, value


def _progress(report: CampaignReport) -> None:
    click.echo(
        f"\r{report.seeds:,} seeds, {report.txids:,} txids, {len(report.failures)} failed",
        nl=False,
        err=True,
    )


def _further_sections(page: Path) -> str:
    """Return the sections of a page that are of other runs, which stay as they are."""
    held = page.read_text() if page.exists() else ""
    _, mark, sections = held.partition("\n## ")
    return mark + sections


def _page(command: str, text: str, done: CampaignReport) -> str:
    verdict = "No promise was broken." if not done.failures else "Promises were broken."
    return (
        "# Simulation\n\n"
        "The real coordinator, runtime, journal, ledgers and stages in virtual time, with faults\n"
        "drawn from a seed; checkers C1 to C8 and C10 to C14 judged each history. Txids that wait\n"
        "are committed together where the topology that was drawn allows it, and states share\n"
        "transactions. The same seeds give the same verdict anywhere:\n\n"
        f"    {command}\n\n{verdict}\n\n{text}\n"
    )


if __name__ == "__main__":
    main()
