"""The page of planted bugs: each bug, the rule that it breaks, and what has caught it."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Sequence
from statistics import median_high

from tests.faults.mutants.trial import Outcome
from tests.harness.report_page import DOCS, table

PAGE = DOCS / "proof" / "mutants.md"
SIMULATOR_ALONE_MIN = 15
"""The simulator must catch at least this many bugs without another test."""

HOW_SOON = "It found them within "

INTRODUCTION = """\
# Planted bugs

Each row is a copy of txtopo with one broken rule, and what caught it. The simulator runs first,
from seed 0, until a checker reports a violation; a test runs only if none does. For the stores and
the clients of servers, which the simulator replaces, a test runs at once, often with a real server:
only that shows the effect of a power cut or a lagging replica. C1 to C15 are the checkers in
`txtopo/testing/checkers/`: C1 counts each record, C2 compares each version of a state with the fold
of its batches, C3 follows txids, attempts and the order of durability, C4 offsets, C5 deposed
coordinators, C6 states against each other, C7 undo, C8 that everything is processed and no run ends
without a reason, such as an assertion of the coordinator, C11 operators' requests, C12 limits of
batches, C13 outside facts recorded when a batch was planned, C14 states that share a transaction,
C15 where a sequence of spouts switches. S1 to S10, in `tests/faults/slots/checkers.py`, judge the
slots of the carrier `resident`, which have their own simulation; S0 is an assertion there, S10 sums
of tuples between bolts.

Written by `make mutants`; `make mutants ARGS=--simulator` repeats the seeds, and `make mutants
ARGS="--only NAME"` one bug. The bugs are in `tests/faults/mutants/`.
"""


def verdict_of(outcome: Outcome) -> str:
    """Return a phrase for what has caught a planted bug."""
    if outcome.seed is not None:
        how = ", an assertion ended the run" if "AssertionError" in outcome.what else ""
        return f"simulator, seed {outcome.seed}: {outcome.checker}{how}"
    return f"test `{outcome.test}`" if outcome.test else "**SURVIVED**"


def seeds_of(page: str) -> dict[str, int]:
    """Return the seed that caught each bug that the simulator caught, as a page says."""
    found = re.findall(r"^\| `(.+?)` \| .+ \| simulator, seed (\d+):", page, re.MULTILINE)
    return {name: int(seed) for name, seed in found}


def tests_of(page: str) -> dict[str, str]:
    """Return the test that caught each bug that the simulator did not catch, as a page says."""
    return dict(re.findall(r"^\| `(.+?)` \| .+ \| test `(.+)` \|$", page, re.MULTILINE))


def how_soon(seeds: Collection[int]) -> str:
    """Say within how many seeds, from seed 0 on, bugs were found."""
    needed = sorted(seed + 1 for seed in seeds)
    nine_tenths = needed[math.ceil(0.9 * len(needed)) - 1]
    return (
        f"{HOW_SOON}{sum(needed) / len(needed):.0f} seeds on average: half of them "
        f"within {median_high(needed)}, nine tenths within {nine_tenths}, all within {needed[-1]}."
    )


def summary(outcomes: Sequence[Outcome], seeds: int) -> str:
    """Say how many were caught by what."""
    alone = sum(outcome.seed is not None for outcome in outcomes)
    caught = sum(not outcome.survived for outcome in outcomes)
    return (
        f"{len(outcomes)} bugs planted, {caught} caught, {alone} of them by the simulator alone "
        f"within {seeds:,} seeds."
    )


def page(outcomes: Sequence[Outcome], seeds: int) -> Iterator[str]:
    """Yield the report in Markdown."""
    yield from INTRODUCTION.splitlines()
    yield ""
    yield summary(outcomes, seeds)
    yield how_soon([outcome.seed for outcome in outcomes if outcome.seed is not None])
    yield "Without a planted bug, none of these seeds and tests fails."
    yield ""
    ordered = sorted(outcomes, key=lambda each: each.patch.name)
    rows = ((f"`{each.patch.name}`", each.patch.rule, verdict_of(each)) for each in ordered)
    yield from table(("bug", "rule that it breaks", "caught by"), rows)


def with_seeds(page: str, outcomes: Sequence[Outcome]) -> str:
    """Return the page with the seeds that have caught bugs now; the other lines stay."""
    caught = {each.patch.name: each for each in outcomes if each.seed is not None}
    lines = page.splitlines()
    for number, line in enumerate(lines):
        row = re.match(r"\| `(.+?)` \| (.+) \| simulator, ", line)
        if row and row[1] in caught:
            lines[number] = f"| `{row[1]}` | {row[2]} | {verdict_of(caught[row[1]])} |"
    text = "\n".join([*lines, ""])
    return re.sub(f"^{HOW_SOON}.*$", how_soon(seeds_of(text).values()), text, flags=re.MULTILINE)
