"""Plant one bug and ask all tests that execute a line of it, none stopped at the first failure.

A test function catches a bug if one of its cases passes without it and fails three times of three
with it.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.faults.mutants.patches import Patch
from tests.faults.mutants.trial import TESTS_FAILED
from tests.faults.power.measured import Case, cases_for, is_named, prices_of, read_lines, read_run
from tests.faults.power.plugin import RUNNING
from tests.faults.power.runs import ENDED, copied_tree, run_tests

DEAR_S = 1.0
"""A function that takes longer, all its cases together, has to show what it is good for."""
ROUND_S = 3.0
"""What the tests of the first round take, if a trial ends with the round that catches its bug."""
TIMES = 3
CASES_AGAIN_MAX = 3
"""How many cases of a function are asked again: one is enough to catch a bug."""
LIMIT_S, LIMIT_FACTOR = 180.0, 10.0
"""A trial may take so long, and so many times what its tests take without the bug."""
CASE_LIMIT_S = 60.0


@dataclass(slots=True)
class Trial:
    """What was found about one bug.

    Attributes:
        bug: Its name.
        asked: The test functions that ran, with the number of their cases.
        caught: Those that catch it, with the number of their cases that failed.
        unsure: Those that failed, but not three times of three.
        left: Those that were not asked, since another one has caught it, or there was no verdict.
        note: What prevented a verdict: a time limit, or that nothing could be imported.
        seconds: What the tests that were asked cost without the bug.
    """

    bug: str
    asked: dict[str, int] = field(default_factory=dict)
    caught: dict[str, int] = field(default_factory=dict)
    unsure: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    note: str = ""
    seconds: float = 0.0


def try_bug(
    patch: Patch,
    cases: Collection[Case],
    sparing: bool,
    core: int | None,
    seconds_max: float = float("inf"),
) -> Trial:
    """Plant a bug in a copy of the tree, and ask the cheap functions before the dear ones.

    Args:
        patch: The bug.
        cases: All cases that were measured.
        sparing: Whether it ends with the first round that catches it.
        core: The core to stay on.
        seconds_max: No round begins after tests that cost so much without the bug.

    Raises:
        PatchError: The patch does not apply.
    """
    trial = Trial(patch.name)
    asked = rounds(patch, cases, ROUND_S if sparing else float("inf"))
    if not asked:
        trial.note = "no test that was measured executes its lines"
    with copied_tree(patch.name) as copy:
        patch.apply(copy)
        for some in asked:
            if trial.note or (sparing and trial.caught) or trial.seconds >= seconds_max:
                trial.left += sorted({case.function for case in some})
            else:
                ask(copy, some, core, trial)
    return trial


def rounds(patch: Patch, cases: Collection[Case], seconds: float) -> list[list[Case]]:
    """Return the cases to ask about a bug, in rounds, of which each may take longer.

    Cheap functions come before dear ones. If *seconds* are finite, those that the patch names come
    first, and the round after them takes about so long.
    """
    prices, named = prices_of(cases), patch.test.split()

    def rank(function: str) -> tuple[bool, bool, float, str]:
        price = prices[function]
        return price >= DEAR_S, not is_named(function, named), price, function

    by_function: dict[str, list[Case]] = defaultdict(list)
    for case in cases_for(patch, cases):
        by_function[case.function].append(case)
    result: list[list[Case]] = []
    spent, kind = 0.0, None
    for function in sorted(by_function, key=rank):
        before = kind
        kind = rank(function)[:2] if isfinite(seconds) else rank(function)[:1]
        if kind != before or spent >= seconds:
            seconds *= 1 if kind != before else 2
            result.append([])
            spent = 0.0
        result[-1] += by_function[function]
        spent += prices[function]
    return result


def ask(copy: Path, cases: Sequence[Case], core: int | None, trial: Trial) -> None:
    """Ask some cases, and those that fail twice more; add what was found to *trial*."""
    trial.asked.update(Counter(case.function for case in cases))
    trial.seconds = round(trial.seconds + sum(case.cpu for case in cases), 2)
    failed, trial.note = failures(copy, cases, core)
    chosen = {case.id for case in few_of_each(failed)}
    steady = [case for case in cases if case.id in chosen]
    for _ in range(TIMES - 1):
        if steady:
            again, note = failures(copy, steady, core)
            steady = [case for case in steady if case.id in {each.id for each in again}]
            trial.note = trial.note or note
    functions = {case.function for case in steady}
    trial.caught.update(Counter(c.function for c in failed if c.function in functions))
    trial.unsure += sorted({case.function for case in failed} - functions)


def few_of_each(cases: Iterable[Case]) -> Iterator[Case]:
    """Yield the first cases of each function."""
    seen: Counter[str] = Counter()
    for case in cases:
        seen[case.function] += 1
        if seen[case.function] <= CASES_AGAIN_MAX:
            yield case


def failures(copy: Path, cases: Sequence[Case], core: int | None) -> tuple[list[Case], str]:
    """Run cases, and return those that failed, and what prevented a verdict on the others."""
    limit_s = LIMIT_S + LIMIT_FACTOR * sum(case.wall for case in cases)
    case_limit_s = CASE_LIMIT_S + LIMIT_FACTOR * max(case.wall for case in cases)
    arguments = ["--continue-on-collection-errors", "-o", f"timeout={case_limit_s:.0f}"]
    with TemporaryDirectory() as name:
        folder = Path(name)
        ids = [case.id for case in cases]
        status = run_tests(copy, folder, arguments, ids, core, limit_s)
        came = {case.id: case.outcome for case in read_run(folder)}
        note = ""
        if status is None:
            running = folder / RUNNING
            where = running.read_text() if running.exists() else "the imports"
            note = f"killed in {where}, {len(ids) - len(came)} cases not asked"
        elif status > TESTS_FAILED or len(came) < len(ids):
            last = (folder / ENDED).read_text().strip().rpartition("\n")[2]
            note = f"{len(ids) - len(came)} cases not asked: {last}"
    return [case for case in cases if came.get(case.id) == "failed"], note


def read_trials(path: Path) -> dict[str, Trial]:
    """Return the trials that were made, by the name of the bug."""
    return {record["bug"]: Trial(**record) for record in read_lines(path)}


def append_trial(path: Path, trial: Trial) -> None:
    """Add a trial to those that were made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(asdict(trial)) + "\n")
