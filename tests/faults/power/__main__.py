"""What each test costs and which planted bugs it catches: ``python -m tests.faults.power``.

It measures the tests of ``make test`` once in a tree with probes, plants one bug after the other,
and writes the page. What was done is in ``build/power`` and is not done again; remove that to begin
from the start. ``measure`` alone adds a run of the tests that are given after ``--``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tests.faults.mutants.patches import FOLDER, load_patches
from tests.faults.mutants.trial import ROOT, Cores
from tests.faults.power.measured import Case, read_measured
from tests.faults.power.probes import add_probes
from tests.faults.power.report import write_before, write_report
from tests.faults.power.runs import copied_tree, run_tests
from tests.faults.power.trials import append_trial, read_trials, try_bug
from tests.harness.shards import read_shard, share

BUILD = ROOT / "build" / "power"
MEASURED = BUILD / "measured"
DONE = "done.txt"
"""The file of a measurement that has come to its end."""
TRIALS = BUILD / "trials.jsonl"


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit status."""
    options = parsed(arguments)
    if options.step == "measure" or not list(MEASURED.glob(f"*/{DONE}")):
        status = measure([*(["-m", options.marks] if options.marks else []), *options.pytest])
        if options.step == "measure":
            return status
    cases = list(read_measured(MEASURED).values())
    if options.step in ("all", "trials"):
        make_trials(options, cases)
    if options.step in ("all", "report") and options.only is None:
        print(write_report(load_patches(), cases, MEASURED, read_trials(TRIALS)))
    if options.prices:
        write_before(options.prices)
    return 0


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the options."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.power", description=__doc__)
    steps = ("all", "measure", "trials", "report")
    parser.add_argument("step", nargs="?", default="all", choices=steps, help="do this alone")
    parser.add_argument("--marks", default="not slow", help="the tests that are measured")
    parser.add_argument("--only", metavar="NAME", nargs="+", help="plant these, also if tried")
    parser.add_argument("--shard", type=read_shard, default=(1, 1), metavar="K/N", help="a part")
    parser.add_argument("--processes", type=int, default=2, help="trials at a time (2)")
    parser.add_argument(
        "--sparing",
        action="store_true",
        help="ask the cheapest tests first, and no others about a bug that they catch",
    )
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="about the most for the tests of a bug"
    )
    parser.add_argument(
        "--prices", type=Path, nargs="*", default=[], help="JSONL with prices of before"
    )
    cut = list(arguments).index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:cut])
    options.pytest = arguments[cut + 1 :]
    return options


def measure(arguments: Sequence[str]) -> int:
    """Run tests in a tree with probes; return pytest's exit status."""
    run = MEASURED / str(1 + max((int(each.name) for each in MEASURED.glob("*/")), default=0))
    with copied_tree("measured") as copy:
        add_probes(copy, load_patches(), run)
        status = run_tests(copy, run, arguments) or 0
    (run / DONE).write_text(f"{status}\n")
    return status


def make_trials(options: argparse.Namespace, cases: list[Case]) -> None:
    """Plant the bugs that were not tried yet, or those that are named."""
    patches = {patch.name: patch for patch in load_patches()}
    done = read_trials(TRIALS)
    names = list(share(list(patches), options.shard))
    names = [name for name in names if name not in done]
    if options.only is not None:
        names = options.only
        unknown = sorted(set(names) - patches.keys())
        if unknown:
            raise SystemExit(f"no bug is named {', '.join(unknown)}; look into {FOLDER}")
    cores = Cores(options.processes)

    def one(name: str) -> None:
        with cores.one() as core:
            trial = try_bug(patches[name], cases, options.sparing, core, options.seconds)
        append_trial(TRIALS, trial)
        caught = f"{len(trial.caught)} of {len(trial.asked)} functions"
        print(f"{name:<50} {caught}  {trial.note}", flush=True)

    with ThreadPoolExecutor(options.processes) as pool:
        for each in as_completed([pool.submit(one, name) for name in names]):
            each.result()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
