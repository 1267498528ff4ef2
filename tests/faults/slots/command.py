"""Runs seeds of resident slots, or replays one with its trace.

``python -m tests.faults.slots.command``
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context

import click

from tests.faults.slots.bolts import simulate_bolt_slots
from tests.faults.slots.simulation import SlotScenario, SlotVerdict, simulate_slots
from txtopo.errors import ConfigError

SHOWN_FAILURES_MAX = 10


@click.command()
@click.option("--seed", type=int, help="Run this seed alone and print its trace if it fails.")
@click.option("--first", type=int, default=0, show_default=True, help="The first seed.")
@click.option("--seeds", type=int, default=300, show_default=True, help="The number of seeds.")
@click.option(
    "--processes", type=int, default=1, show_default=True, help="The number of seeds at a time."
)
@click.option("--without", multiple=True, metavar="KIND", help="Omit a kind of fault.")
@click.option("--trace", is_flag=True, help="Print every event of the seed.")
def main(
    seed: int | None,
    first: int,
    seeds: int,
    processes: int,
    without: tuple[str, ...],
    *,
    trace: bool,
) -> None:
    """Run the slots of the carrier resident in virtual time, with faults drawn from a seed.

    Exit status 1 if a promise was broken.
    """
    try:
        SlotScenario.drawn(0).without(without)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    if seed is not None:
        verdicts = [judged(without, seed)]
    else:
        verdicts = run_slot_seeds(range(first, first + seeds), processes, without)
    faults: Counter[str] = Counter()
    failed = [verdict for verdict in verdicts if verdict.violations]
    for verdict in verdicts:
        faults.update(verdict.faults)
    if seed is not None and (trace or failed):
        for entry in verdicts[0].history:
            click.echo(entry.line())
    levels = sum(verdict.levels for verdict in verdicts)
    hours = sum(verdict.virtual_s for verdict in verdicts) / 3600
    click.echo(
        f"{len(verdicts):,} seeds, {levels:,} levels done, {sum(faults.values()):,} faults, "
        f"{hours:,.1f} h of virtual time, {len(failed)} with a violation"
    )
    for kind, times in sorted(faults.items()):
        click.echo(f"  {kind}: {times:,}")
    for verdict in failed[:SHOWN_FAILURES_MAX]:
        click.echo(f"\n{SlotScenario.drawn(verdict.seed).without(without).command()}")
        for violation in verdict.violations[:3]:
            click.echo(f"  {violation.checker}: {violation.what}")
    if failed:
        raise SystemExit(1)


def judged(without: tuple[str, ...], seed: int) -> SlotVerdict:
    """Run one seed, with stages and with bolts in the slots."""
    scenario = SlotScenario.drawn(seed).without(without)
    verdict = simulate_slots(scenario)
    found = (*verdict.violations, *simulate_bolt_slots(scenario))
    return replace(verdict, violations=found)


def run_slot_seeds(
    seeds: range, processes: int = 1, without: tuple[str, ...] = ()
) -> list[SlotVerdict]:
    """Run seeds; their traces are not kept."""
    run = partial(_light, without)
    if processes == 1:
        return [run(seed) for seed in seeds]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        return list(pool.map(run, seeds, chunksize=20))


def _light(without: tuple[str, ...], seed: int) -> SlotVerdict:
    return judged(without, seed).light()


if __name__ == "__main__":
    main()
