"""Plant one bug after the other and show what catches it: ``python -m tests.faults.mutants``.

The exit status is 1 if one survives, if the simulator alone catches fewer than fifteen, if a patch
does not apply, or if something fails with nothing planted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path

from tests.faults.mutants.patches import Patch, PatchError, load_patches
from tests.faults.mutants.report import (
    PAGE,
    SIMULATOR_ALONE_MIN,
    how_soon,
    page,
    seeds_of,
    summary,
    verdict_of,
    with_seeds,
)
from tests.faults.mutants.trial import SIMULATOR, Cores, Outcome, try_patch
from tests.harness.report_page import write_page

PROCESSES = 2


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit status."""
    options = parsed(arguments)
    if options.simulator:
        return find_seeds(options.seeds)
    patches = [patch for patch in load_patches() if options.only in (None, patch.name)]
    if not patches:
        print(f"no patch is named {options.only!r}; look into {Path(__file__).parent}")
        return 1
    seeds = options.seeds if any(patch.simulated for patch in patches) else 0
    outcomes = try_all([nothing(patches), *patches], seeds)
    if outcomes is None:
        return 1
    print(f"\n{summary(outcomes, options.seeds)}")
    if options.only is None:
        write_page(PAGE, page(outcomes, options.seeds))
        alone = sum(outcome.seed is not None for outcome in outcomes)
        if alone < SIMULATOR_ALONE_MIN:
            print(f"expected {SIMULATOR_ALONE_MIN} caught by the simulator alone")
            return 1
    return int(any(outcome.survived for outcome in outcomes))


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the options."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.mutants", description=__doc__)
    parser.add_argument("--only", metavar="NAME", help="plant this one; no report is written")
    parser.add_argument(
        "--simulator",
        action="store_true",
        help="plant what the simulator catches, says the page; run no test, and write its seeds",
    )
    parser.add_argument("--seeds", type=int, default=1000, help="most seeds for each (1000)")
    return parser.parse_args(arguments)


def find_seeds(seeds: int) -> int:
    """Have the simulator catch again what it has caught, and put its seeds on the page."""
    known = seeds_of(PAGE.read_text())
    patches = [replace(each, test=SIMULATOR) for each in load_patches() if each.name in known]
    outcomes = try_all([nothing(patches), *patches], seeds)
    if outcomes is None:
        return 1
    found = {each.patch.name: each.seed for each in outcomes if each.seed is not None}
    print(f"\non the page: {how_soon(known.values())}\nnow:         {how_soon(found.values())}")
    for name, seed in sorted(known.items()):
        if found.get(name) != seed:
            print(f"{name}: seed {seed} on the page, now {found.get(name, 'none')}")
    PAGE.write_text(with_seeds(PAGE.read_text(), outcomes))
    return int(found.keys() != known.keys())


def nothing(patches: Sequence[Patch]) -> Patch:
    """Return a patch that changes nothing, with the tests of all others; no test may fail."""
    tests = sorted({test for patch in patches for test in patch.test.split()} - {SIMULATOR})
    return Patch("nothing planted", "No rule is broken.", " ".join(tests) or SIMULATOR, ())


def try_all(patches: Sequence[Patch], seeds: int) -> list[Outcome] | None:
    """Try all patches, the first of which changes nothing; None if the results mean nothing."""
    outcomes, sound, cores = [], True, Cores(PROCESSES)
    with ThreadPoolExecutor(PROCESSES) as pool:
        trials = {pool.submit(try_patch, patch, seeds, cores): patch for patch in patches}
        for trial in as_completed(trials):
            patch = trials[trial]
            try:
                outcome = trial.result()
            except PatchError as error:
                print(f"ERROR {error}", flush=True)
                sound = False
                continue
            if patch is not patches[0]:
                outcomes.append(outcome)
                print(f"{patch.name:<40} {verdict_of(outcome)}  {outcome.what:.100}", flush=True)
            elif outcome.survived:
                print(f"{patch.name:<40} no seed and no test fails", flush=True)
            else:
                print(f"ERROR {patch.name}, and yet: {verdict_of(outcome)}  {outcome.what}")
                sound = False
    return outcomes if sound else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
