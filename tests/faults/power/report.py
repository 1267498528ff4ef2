"""The page of power: what catches each bug, and which dear tests catch nothing that others do not.

Its sections are written one by one: that of prices before a change stays until others are given.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.mutants.patches import Patch
from tests.faults.mutants.report import PAGE as MUTANTS
from tests.faults.mutants.report import tests_of
from tests.faults.power.measured import (
    Case,
    cases_for,
    function_of,
    prices_of,
    read_fixtures,
    read_lines,
)
from tests.faults.power.only_test_all import ONLY_TEST_ALL
from tests.faults.power.trials import DEAR_S, Trial
from tests.harness.report_page import DOCS, table, write_section

PAGE = DOCS / "proof" / "power.md"
START_S = 12.0
"""What a copy and the imports of pytest cost each bug."""
SHOWN_OF_A_BUG = 3

HEAD = """\
# The power of the tests

What each test function costs, and which [planted bugs](mutants.md) it catches. For each bug, all
test functions that execute a line changed by it run in a copy of the tree, without stopping at
failures. A function catches a bug if one of its cases passes without the bug and fails three times
out of three with it. Seconds are processor seconds, including children and servers, for all cases
of a function together; shared fixtures are priced separately.

A line executed at import, such as a constant, counts as executed by whatever executes a function of
its class or module. What a test finds in a cache counts for the test that filled it; code in a
wheel or in a separate environment counts for none.

Written by `make power`, which resumes where it was interrupted; a part of it by `make power
ARGS="--shard 2/6"`, one bug by `make power ARGS="--only NAME"`.
"""


@dataclass(slots=True)
class Dear:
    """What is known of a function that takes over a second.

    Attributes:
        catches: The bugs that it catches.
        alone: Those that nothing else catches.
        open: Those whose lines it executes, and of which nothing is known yet that decides.
        met: How many bugs it could catch: those whose lines it executes.
    """

    catches: set[str] = field(default_factory=set)
    alone: set[str] = field(default_factory=set)
    open: set[str] = field(default_factory=set)
    met: int = 0


def judge_dear(
    patches: Iterable[Patch],
    cases: Collection[Case],
    trials: Mapping[str, Trial],
    named: Mapping[str, str],
) -> dict[str, Dear]:
    """Say of each dear function what it catches, alone or with others.

    *named* has functions that have caught a bug in ``make mutants``: no other one need show that it
    would catch it too.
    """
    dear = {name: Dear() for name, price in prices_of(cases).items() if price >= DEAR_S}
    for patch in patches:
        trial = trials.get(patch.name)
        caught = trial.caught if trial else {}
        for function in {case.function for case in cases_for(patch, cases)} & dear.keys():
            known = dear[function]
            others = {*caught, named.get(patch.name, function)} - {function}
            asked = trial is not None and not trial.note and function in trial.asked
            known.met += 1
            if function in caught:
                known.catches.add(patch.name)
                if not others:
                    known.alone.add(patch.name)
            elif not others and not asked:
                known.open.add(patch.name)
    return dear


def write_report(
    patches: Sequence[Patch], cases: Collection[Case], measured: Path, trials: Mapping[str, Trial]
) -> str:
    """Write the sections of the page, and return the first one."""
    dear = judge_dear(
        patches,
        cases,
        trials,
        {bug: function_of(test) for bug, test in tests_of(MUTANTS.read_text()).items()},
    )
    first = list(summary(patches, cases, trials))
    write_section(PAGE, "In all", first, HEAD)
    write_section(PAGE, "Prices", prices_section(cases, read_fixtures(measured)), HEAD)
    write_section(PAGE, "Tests over a second", dear_section(cases, dear), HEAD)
    write_section(PAGE, "Bugs that only make test-all catches", late_section(), HEAD)
    write_section(PAGE, "Bugs", bugs_section(patches, cases, trials), HEAD)
    return "\n".join(first)


def write_before(files: Iterable[Path]) -> None:
    """Write the prices of an earlier tree into a section of their own."""
    lines = [record for file in files for record in read_lines(file) if "cpu" in record]
    known = {x["id"]: Case(x["id"], "passed", max(x["cpu"], 0.0), 0.0) for x in lines if "id" in x}
    write_section(PAGE, "Prices before", prices_section(known.values(), {}), HEAD)


def summary(
    patches: Sequence[Patch], cases: Collection[Case], trials: Mapping[str, Trial]
) -> Iterator[str]:
    """Yield the numbers of bugs and of hours."""
    tried = [trials[patch.name] for patch in patches if patch.name in trials]
    caught = [trial for trial in tried if trial.caught]
    asked = sum(sum(case.cpu for case in cases_for(patch, cases)) for patch in patches)
    hours = (asked + START_S * len(patches)) / 3600
    by_one = sum(len(trial.caught) == 1 for trial in caught)
    cheap = {name for name, price in prices_of(cases).items() if price < DEAR_S}
    by_cheap = sum(not cheap.isdisjoint(trial.caught) for trial in caught)
    left = sum(bool(trial.left) for trial in caught)
    yield f"{len(patches)} bugs, of which {len(tried)} were tested: {len(caught)} are caught,"
    yield f"{by_cheap} by a function under a second, {by_one} by only one tested function."
    yield f"More expensive functions were skipped for {left} bugs that a cheaper one had caught."
    yield f"A complete run takes an estimated {hours:.1f} processor hours: for each bug, what the"
    yield f"cases that execute a line of it cost without it, and {START_S:.0f} seconds to start."
    yield f"{len(cases):,} cases were measured."


def prices_section(
    cases: Collection[Case], fixtures: Mapping[str, Sequence[float]]
) -> Iterator[str]:
    """Yield the prices by folder, and of fixtures."""
    functions: dict[str, set[str]] = defaultdict(set)
    seconds: Counter[str] = Counter()
    number: Counter[str] = Counter()
    for case in cases:
        folder = "/".join(case.id.partition("::")[0].split("/")[:3])
        for name in (folder, "all"):
            functions[name].add(case.function)
            seconds[name] += round(case.cpu * 1000)
            number[name] += 1
    rows = (
        (f"`{name}`", len(functions[name]), f"{number[name]:,}", f"{milliseconds / 1000:,.0f}")
        for name, milliseconds in seconds.most_common()
    )
    yield from table(("where", "functions", "cases", "seconds"), rows)
    spent = {name: sum(each) for name, each in fixtures.items()}
    shown = [name for name in sorted(spent, key=lambda name: -spent[name]) if spent[name] >= DEAR_S]
    if shown:
        yield ""
        set_ups = ((f"`{name}`", len(fixtures[name]), f"{spent[name]:.0f}") for name in shown)
        yield from table(("fixture that tests share", "set up", "seconds"), set_ups)


def dear_section(cases: Collection[Case], dear: Mapping[str, Dear]) -> Iterator[str]:
    """Yield what the dear functions are good for: first those that nothing needs."""
    prices, number = prices_of(cases), Counter(case.function for case in cases)
    yield "A function catches a bug alone if neither a trial nor `make mutants` found another that"
    yield "does. A bug is open for the functions that execute its lines until that is decided."
    yield ""

    def rank(function: str) -> tuple[bool, bool, float]:
        known = dear[function]
        return bool(known.alone), bool(known.open), -prices[function]

    rows = (
        (
            f"`{function}`",
            number[function],
            f"{prices[function]:.1f}",
            dear[function].met,
            len(dear[function].catches),
            ", ".join(f"`{bug}`" for bug in sorted(dear[function].alone)) or "–",
            len(dear[function].open),
        )
        for function in sorted(dear, key=rank)
    )
    columns = ("function", "cases", "seconds", "executes bugs", "seen to catch", "alone", "open")
    yield from table(columns, rows)


def late_section() -> Iterator[str]:
    """Yield the bugs that each commit does not catch, with the reasons."""
    if not ONLY_TEST_ALL:
        yield "None."
        return
    yield from table(("bug", "why"), ((f"`{bug}`", why) for bug, why in ONLY_TEST_ALL.items()))


def bugs_section(
    patches: Iterable[Patch], cases: Collection[Case], trials: Mapping[str, Trial]
) -> Iterator[str]:
    """Yield what catches each bug that was tried, the cheapest functions first."""
    prices = prices_of(cases)
    rows = ((f"`{p.name}`", *_verdict(trials[p.name], prices)) for p in patches if p.name in trials)
    yield from table(("bug", "asked", "catch it", "the cheapest of them", "note"), rows)


def _verdict(trial: Trial, prices: Mapping[str, float]) -> tuple[int, int, str, str]:
    cheapest = sorted(trial.caught, key=lambda name: prices.get(function_of(name), 0.0))
    shown = "<br>".join(f"`{name}`" for name in cheapest[:SHOWN_OF_A_BUG])
    notes = [trial.note] if trial.note else []
    notes += [f"{len(trial.left)} functions were not asked"] if trial.left else []
    notes += [f"fails now and then: `{name}`" for name in trial.unsure]
    return len(trial.asked), len(trial.caught), shown or "none of those asked", "; ".join(notes)
