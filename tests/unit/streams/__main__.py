"""Random programs of the stream API in virtual time: ``python -m tests.unit.streams --seeds 2000``.

With ``--report`` the result becomes a section of a page, the last one; the others stay as they are.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from tests.harness.report_page import write_section
from tests.unit.streams.call_programs import judged_call_program
from tests.unit.streams.captured_programs import judged_log
from tests.unit.streams.changing_programs import judged_changing_program
from tests.unit.streams.expiring_programs import judged_expiring_program
from tests.unit.streams.join_programs import judged_join
from tests.unit.streams.row_window_programs import judged_row_windows
from tests.unit.streams.seeds import judged_program, judged_timed_program
from tests.unit.streams.timed_programs import random_timed_program, sources_of
from tests.unit.streams.timer_programs import judged_timer_program
from tests.unit.streams.worlds import TIMED, RecuttingSpout, timed_topology
from txtopo.bolts.bolt import Committer
from txtopo.sources.clock import ClockTransactionalSpout
from txtopo.streams.event_time import Watermarks

JUDGES = (
    judged_program,
    judged_timed_program,
    judged_log,
    judged_join,
    judged_row_windows,
    judged_timer_program,
    judged_expiring_program,
    judged_call_program,
    judged_changing_program,
)
"""The families of random programs."""

TITLE = "Programs of streams"
TEXT = """\
Programs assembled at random from operators on streams, with rows that may be late, equal or without
a value; each attempt divides its batches differently. Each version of each table is compared with
the same program in plain Python (`tests/unit/streams/plain.py`), which keeps all rows and has no
stores, tasks or attempts. With every second seed, txids are committed in groups:
"""


@dataclass
class Found:
    """What some seeds found.

    Attributes:
        seeds: How many seeds there were; each has a program of each family.
        txids: How many txids were committed.
        groups: How many writes had several txids, and what became of them.
        parts: How many programs with event time have a part of each kind.
        broken: What was wrong, by seed.
    """

    seeds: int = 0
    txids: int = 0
    groups: Counter[str] = field(default_factory=Counter)
    parts: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)

    def take(self, other: Found) -> None:
        """Add what other seeds found."""
        self.seeds += other.seeds
        self.txids += other.txids
        self.groups += other.groups
        self.parts += other.parts
        self.broken += other.broken

    def lines(self) -> list[str]:
        """Return the report."""
        verdict = "No promise was broken." if not self.broken else "Promises were broken."
        written, again, adopted = (self.groups[kind] for kind in ("written", "redone", "adopted"))
        return [
            verdict,
            "",
            f"* {len(JUDGES) * self.seeds:,} programs of {len(JUDGES)} families, "
            f"{len(self.broken)} with a violation",
            f"* {self.txids:,} txids committed",
            f"* {written:,} writes of several txids, {again:,} of them redone, {adopted:,} "
            "adopted by a new leader",
            "",
            "| what programs with event time have | programs |",
            "|---|---|",
            *(f"| {name} | {count:,} |" for name, count in sorted(self.parts.items())),
        ]


def main() -> int:
    """Run seeds, every second one with groups of txids; return 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.unit.streams", description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="first seed of many")
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds")
    parser.add_argument("--processes", type=int, default=1, help="how many at a time")
    parser.add_argument("--report", type=Path, help="a page; the result becomes a section of it")
    given = parser.parse_args()
    found = Found()
    # Processes that are forked have the modules of this one, whatever is edited meanwhile.
    with get_context("fork").Pool(given.processes, ignore_interrupt) as pool:
        seeds = range(given.first, given.first + given.seeds)
        try:
            for each in pool.imap(of_seed, seeds, chunksize=5):
                found.take(each)
                print(f"\r{found.seeds:,} seeds", end="", file=sys.stderr)
        except KeyboardInterrupt:
            print("\ninterrupted; this is the report of the seeds so far", file=sys.stderr)
    print("", file=sys.stderr)
    print("\n".join([*found.lines(), *sorted(found.broken)]))
    if given.report is not None:
        command = f"python -m tests.unit.streams --first {given.first} --seeds {found.seeds}"
        write_section(given.report, TITLE, section(command, found), "# Simulation\n")
    return int(bool(found.broken))


def ignore_interrupt() -> None:
    """Leave an interrupt to the process that reports."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def of_seed(seed: int) -> Found:
    """Run the programs of a seed."""
    found = Found(seeds=1, parts=parts_of(seed))
    for judge in JUDGES:
        judged = judge(seed)
        found.txids += judged.txids
        found.groups.update(judged.groups)
        if judged.violations:
            first = judged.violations[0]
            found.broken.append(f"seed {seed}: {first.checker}: {first.what:.500}")
    return found


def parts_of(seed: int) -> Counter[str]:
    """Return what the program with event time of a seed has."""
    spouts = {id: RecuttingSpout([], 1, fields=TIMED) for id in sources_of(seed)}
    graph = timed_topology(random_timed_program(seed), spouts).graph
    bolts = [each.prototype for each in graph.components.values()]
    parts = {f"`{type(bolt).__name__}`" for bolt in bolts if isinstance(bolt, Committer)}
    if any(isinstance(each, ClockTransactionalSpout) for each in bolts):
        parts.add("a clock")
    elif any(isinstance(each, Watermarks) and each.needs_planned_time for each in bolts):
        parts.add("a source that may be idle")
    if graph.lookups:
        parts.add("a lookup")
    return Counter(parts)


def section(command: str, found: Found) -> list[str]:
    """Return the lines of the section of a page that shows the result."""
    return [*TEXT.splitlines(), "", f"    {command}", "", *found.lines()]


if __name__ == "__main__":
    sys.exit(main())
