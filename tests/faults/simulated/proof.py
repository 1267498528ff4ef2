"""Run a hundred thousand seeds of all kinds, a part at a time: ``python -m …simulated.proof``.

Each chunk of seeds is a line of a file of results, so a run that is ended continues where it was,
and ``--page`` makes the sections of ``docs/proof/simulation.md`` of whatever is there.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from pathlib import Path
from textwrap import wrap
from typing import Any

from tests.faults.simulated.named_seeds import GROUPS
from tests.faults.slots.command import judged
from tests.harness.report_page import DOCS, with_section
from txtopo.testing.simulation.campaign import CampaignReport, pinned_processes, run_chunk

PAGE = DOCS / "proof" / "simulation.md"
CHUNKS = 500
"""Into how many chunks each part is divided, so that all parts advance together."""

SPOUTS = {
    "shape.further_spouts": "opaque,transactional",
    "shape.dead_letters": "False",
    "min_batch_rows": "None",
    "max_rows_per_second": "None",
    "target_commit_s": "None",
}

SHARED = {"sharing": "shared", "shape.committers": "balances,logs,totals"}


@dataclass(frozen=True)
class Part:
    """Some seeds of one kind.

    Attributes:
        title: The heading of its section; empty for the first section of the page.
        text: What is simulated.
        first: The first seed.
        seeds: How many there are.
        changes: Settings to change in each scenario; None for resident slots.
    """

    title: str
    text: str
    first: int
    seeds: int
    changes: Mapping[str, str] | None = field(default_factory=dict)

    @property
    def command(self) -> str:
        """The command that runs the same seeds."""
        program = "txtopo-simulate"
        if self.changes is None:
            program = "python -m tests.faults.slots.command"
        settings = [f"--set {name}={value}" for name, value in (self.changes or {}).items()]
        return " ".join([program, f"--first {self.first}", "--seeds {seeds}", *settings])


PARTS = {
    "plain": Part("", "", 0, 50_000),
    "groups": Part(
        "Groups of txids",
        "Batches of one record, many at a time, and states that accept groups, so that most txids "
        "are committed together:",
        100_000,
        25_000,
        GROUPS,
    ),
    "spouts": Part(
        "Several spouts",
        "Three spouts in each txid, the first of any kind, the others an opaque and a "
        "transactional one. Each is unreachable at times, and absent from the txids that are "
        "planned then:",
        200_000,
        10_000,
        SPOUTS,
    ),
    "shared": Part(
        "Shared transactions",
        "Three states in one database, which share its transactions (C14). One time in five, the "
        "database does not reveal its identity to a state; then this state has transactions of its "
        "own, until the next leader asks:",
        500_000,
        5_000,
        SHARED,
    ),
    "clones": Part(
        "Clones of a database",
        "Three states, one of which is in another database with the same identity. That database "
        "has a copy of the tables of the others, always one write behind. A write to a copy breaks "
        "a promise:",
        600_000,
        5_000,
        SHARED | {"sharing": "clones"},
    ),
    "slots": Part(
        "Resident slots",
        "The slots of the carrier `resident`: supervisor, orders, transport and runner are real; "
        "Spark, its tasks and the connections are simulated. S0 to S10 judged each seed twice: "
        "with stages, and with bolts of a topology without batches:",
        0,
        5_000,
        None,
    ),
}


def chunks() -> Iterator[tuple[str, int, int]]:
    """Yield (part, first seed, number of seeds); all parts advance together."""
    for chunk in range(CHUNKS):
        for name, part in PARTS.items():
            size = part.seeds // CHUNKS
            yield name, part.first + chunk * size, size


def run(chunk: tuple[str, int, int]) -> dict[str, Any]:
    """Run the seeds of a chunk and return what is kept of them."""
    name, first, seeds = chunk
    changes = PARTS[name].changes
    if changes is not None:
        report = run_chunk((first, seeds, dict(changes), ()))
    else:
        report = run_slots(first, seeds)
    found = {each.name: getattr(report, each.name) for each in fields(report)}
    return {"part": name, "first": first, **found}


def run_slots(first: int, seeds: int) -> CampaignReport:
    """Run seeds of resident slots; their txids are the levels that were done."""
    report, started_s = CampaignReport(), time.process_time()
    for seed in range(first, first + seeds):
        verdict = judged((), seed)
        report.seeds += 1
        report.txids += verdict.levels
        report.virtual_s += verdict.virtual_s
        report.faults.update(verdict.faults)
        if verdict.violations:
            report.failures[seed] = [f"{v.checker}: {v.what}" for v in verdict.violations]
    report.processor_s = time.process_time() - started_s
    return report


def results_of(path: Path) -> dict[str, CampaignReport]:
    """Add up the results of each part."""
    reports = {name: CampaignReport() for name in PARTS}
    for line in path.read_text().splitlines() if path.exists() else ():
        found = json.loads(line)
        name = found.pop("part")
        found.pop("first")
        for counted in ("faults", "groups"):
            found[counted] = Counter(found[counted])
        found["failures"] = {int(seed): each for seed, each in found["failures"].items()}
        reports[name].add(CampaignReport(**found))
    return reports


def lines_of(name: str, report: CampaignReport) -> list[str]:
    """Return the section of a part."""
    part = PARTS[name]
    glued = part.command.format(seeds=report.seeds).replace("--set ", "--set=")
    command = [each.replace("--set=", "--set ") for each in wrap(glued, 92)]
    text = report.lines()
    if name == "slots":
        hours, minutes = report.virtual_s / 3600, report.processor_s / 60
        text[1:4] = [
            f"* {report.txids:,} levels done",
            f"* {hours:,.0f} hours of virtual time in {minutes:,.1f} minutes of processor time",
        ]
    elif name == "plain":
        del text[2]
    else:
        text = text[: text.index("")]
    verdict = "No promise was broken." if not report.failures else "Promises were broken."
    shown = " \\\n        ".join(command)
    return [*wrap(part.text, 100), "", f"    {shown}", "", verdict, "", *text]


def with_results(page: str, reports: Mapping[str, CampaignReport]) -> str:
    """Return the page with the sections of all parts that have results."""
    for name, report in reports.items():
        if report.seeds and not PARTS[name].title:
            _, mark, further = page.partition("\n## ")
            lines = lines_of(name, report)
            page = HEAD + "\n".join(lines[1:]) + "\n" + mark + further
        elif report.seeds:
            page = with_section(page, PARTS[name].title, lines_of(name, report))
    return page


HEAD = """\
# Simulation

The real coordinator, runtime, journal, ledgers and stages in virtual time, with faults drawn from a
seed. A seed determines everything: the topology, with one to three spouts, how it runs, whether its
states share transactions, the faults, and who continues when. Waiting txids are committed together
where the topology allows it. Checkers C1 to C8 and C11 to C14 judged each history; every fiftieth
seed ran twice, with identical traces (C10). `txtopo/testing/checkers/` documents what each of them
promises. The same seeds give the same verdict anywhere:

"""


def main(arguments: Sequence[str]) -> int:
    """Run what is not done yet, or make the page; return 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.simulated.proof")
    parser.add_argument("--results", type=Path, required=True, help="file of results")
    parser.add_argument("--processes", type=int, default=1, help="how many at a time")
    parser.add_argument("--page", action="store_true", help="run nothing; make the page")
    given = parser.parse_args(arguments)
    if given.page:
        PAGE.write_text(with_results(PAGE.read_text(), results_of(given.results)))
    else:
        _run_rest(given.results, given.processes)
    reports = results_of(given.results)
    for name, report in reports.items():
        print(f"{name}: {report.seeds:,} seeds, {len(report.failures)} with a violation")
        for seed, violations in sorted(report.failures.items()):
            print(f"  seed {seed}: {violations[0]}")
    return int(any(report.failures for report in reports.values()))


def rest_of(results: Path) -> list[tuple[str, int, int]]:
    """Return the chunks that have no results yet."""
    lines = results.read_text().splitlines() if results.exists() else []
    done = {(found["part"], found["first"]) for found in map(json.loads, lines)}
    return [chunk for chunk in chunks() if chunk[:2] not in done]


def _run_rest(results: Path, processes: int) -> None:
    rest = iter(rest_of(results))
    with results.open("a") as file, pinned_processes(processes) as pool:
        waiting = [pool.submit(run, chunk) for chunk in islice(rest, 2 * processes)]
        while waiting:
            file.write(json.dumps(waiting.pop(0).result()) + "\n")
            file.flush()
            waiting += [pool.submit(run, chunk) for chunk in islice(rest, 1)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
