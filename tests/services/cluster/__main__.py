"""Do the works on a cluster in all situations, and write the page: ``make cluster``.

Results are kept in a file beside the sources. So a campaign that was stopped continues, and what
was not right runs again. The exit status is 1 if something was not right.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from tests.conftest import missing
from tests.harness.processes import ROOT
from tests.harness.report_page import DOCS, table, write_page
from tests.services.cluster.rounds import CARRIERS, Result, Services, rounds_of, run_round
from tests.services.cluster.situations import SITUATIONS

PAGE = DOCS / "proof" / "cluster.md"
RECORD = ROOT / ".cluster.jsonl"
HEAD = """\
# On a cluster

`make cluster` runs three workloads on a private Spark standalone cluster, with a master and
one-core workers in separate processes: the first flights of the demo, workload W2 of the benchmark,
and the count of the Kafka demo, each reduced to about twenty batches. Executors are separate
processes too. After some commits something happens to the cluster while batches are in flight. At
the end each state must equal what plain Python counts, with one Kafka report per batch."""
LEGEND = """\
Each cell shows whether the states were right; the number of failed jobs; the attempts after the
first of each txid; and the longest time between two commits, in seconds, as an observer of the
store would see it. It includes starting executors and their Python, on a busy machine."""


def main() -> None:
    """Do what was not done yet, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--situation", choices=[each.name for each in SITUATIONS], action="append")
    parser.add_argument("--carrier", choices=CARRIERS, action="append")
    parser.add_argument("--work", action="append", help="flights, W2 or Kafka")
    parser.add_argument("--record", type=Path, default=RECORD, help="what ran, a line a work")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page to write")
    parser.add_argument("--from-the-start", action="store_true", help="forget what ran")
    arguments = parser.parse_args()
    if arguments.from_the_start:
        arguments.record.unlink(missing_ok=True)
    right = {key_of(each) for each in results(arguments.record) if not each.wrong}
    with Services(kafka=missing("kafka") is None) as services:
        names = arguments.work or [work.name for work in services.works]
        for situation in SITUATIONS:
            if arguments.situation and situation.name not in arguments.situation:
                continue
            tasks = [
                (carrier, name)
                for carrier in arguments.carrier or CARRIERS
                for name in names
                if (situation.name, carrier, name) not in right
            ]
            for together in filter(None, rounds_of(situation, tasks)):
                for result in run_round(situation, together, services):
                    print(f"{asdict(result)}", file=sys.stderr, flush=True)
                    with arguments.record.open("a") as file:
                        file.write(f"{json.dumps(asdict(result))}\n")
    found = results(arguments.record)
    write_page(arguments.page, page(found))
    if any(each.wrong for each in found):
        raise SystemExit(1)


def results(record: Path) -> list[Result]:
    """Return all results; of what was done twice, the last one."""
    lines = record.read_text().splitlines() if record.exists() else []
    found = [Result(**json.loads(line)) for line in lines]
    return list({key_of(each): each for each in found}.values())


def key_of(result: Result) -> tuple[str, str, str]:
    """Return what was done."""
    return result.situation, result.carrier, result.work


def page(found: Sequence[Result]) -> Iterator[str]:
    """Yield the lines of the page."""
    yield from HEAD.splitlines()
    yield ""
    wrong = [each for each in found if each.wrong]
    yield f"{len(found)} runs, {len(wrong)} not right."
    yield ""
    yield from LEGEND.splitlines()
    loads = [each.load for each in found] or [0.0]
    yield (
        f"This machine has {os.cpu_count()} cores; its load was {min(loads):g} to {max(loads):g}."
    )
    yield ""
    of = {key_of(each): each for each in found}
    works = list(dict.fromkeys(each.work for each in found))
    rows = (
        (situation.title, work, *(cell(of.get((situation.name, c, work))) for c in CARRIERS))
        for situation in SITUATIONS
        for work in works
    )
    columns = ("situation", "work", *(f"`{carrier}`" for carrier in CARRIERS))
    yield from table(columns, rows)
    yield ""
    yield from (f"* {line}" for line in notes(found))
    yield from (f"* {r.situation}, {r.carrier}, {r.work}: {r.wrong.splitlines()[0]}" for r in wrong)


def cell(result: Result | None) -> str:
    """Return a cell of the table."""
    if result is None:
        return "not run"
    right = "**wrong**" if result.wrong else "right"
    return f"{right}, {result.lost}, {result.again}, {result.stall_s:.1f}"


def notes(found: Sequence[Result]) -> Iterator[str]:
    """Yield what shows that the situations were there."""
    for carrier in CARRIERS:
        of = [each for each in found if each.carrier == carrier]
        excluded = [each.excluded for each in of if each.situation == "excluded"]
        copies = [each.copies for each in of if each.situation == "speculation"]
        if excluded:
            yield f"`{carrier}`: {max(excluded)} executors were excluded from the application"
        if copies:
            yield f"`{carrier}`: {sum(copies)} tasks were copies, started by speculation"


if __name__ == "__main__":
    main()
