"""Campaign: many seeds on all cores, and what came of them."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue

from txtopo.testing.checkers.replay import TraceReplay
from txtopo.testing.simulation.scenario import Scenario
from txtopo.testing.simulation.simulator import Simulator, Verdict

CHUNK_SEEDS = 20
REPLAY_EVERY = 50
"""Each seed that is a multiple of this runs twice, and both traces must be equal (C10)."""


@dataclass(slots=True)
class Report:
    """What came of some seeds.

    Attributes:
        seeds: How many ran.
        txids: Batches that were committed.
        faults: How often each kind of fault happened.
        virtual_s: Virtual time of all simulations together.
        real_s: Real time that the processes took together.
        fenced: Runs that were deposed and noticed it.
        failures: What is wrong, by seed.
    """

    seeds: int = 0
    txids: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    virtual_s: float = 0.0
    real_s: float = 0.0
    fenced: int = 0
    failures: dict[int, list[str]] = field(default_factory=dict)

    def add(self, other: Report) -> None:
        """Take in what came of other seeds."""
        self.seeds += other.seeds
        self.txids += other.txids
        self.faults += other.faults
        self.virtual_s += other.virtual_s
        self.real_s += other.real_s
        self.fenced += other.fenced
        self.failures |= other.failures

    def take(self, verdict: Verdict) -> None:
        """Take in what came of one seed."""
        self.seeds += 1
        self.txids += verdict.txids
        self.faults.update(verdict.faults)
        self.virtual_s += verdict.virtual_s
        self.fenced += verdict.fenced
        if verdict.violations:
            self.failures[verdict.seed] = [f"{v.checker}: {v.what}" for v in verdict.violations]

    def lines(self) -> list[str]:
        """Return the report as Markdown."""
        speed = self.txids / self.real_s if self.real_s else 0.0
        return [
            f"* {self.seeds:,} seeds, {len(self.failures)} with a violation",
            f"* {self.txids:,} txids committed, {self.fenced:,} runs deposed",
            f"* {self.virtual_s / 3600:,.0f} hours of virtual time in {self.real_s / 60:,.1f} "
            f"minutes of real time of one core, {speed:,.0f} txids a second",
            "",
            "| fault | times |",
            "|---|---|",
            *(f"| `{kind}` | {times:,} |" for kind, times in sorted(self.faults.items())),
        ]


Changes = Callable[[Scenario], Scenario]


def run_seeds(
    first: int,
    count: int,
    *,
    processes: int = 1,
    changes: Mapping[str, str] | None = None,
    without: tuple[str, ...] = (),
    tell: Callable[[Report], None] = lambda report: None,
) -> Report:
    """Run seeds from *first* on.

    Args:
        first: The first seed.
        count: How many.
        processes: How many at a time, one a core.
        changes: Settings to change in each scenario; see ``Scenario.changed``.
        without: Kinds of faults that do not happen.
        tell: Told of the report now and then.
    """
    report = Report()
    jobs = (
        (start, min(CHUNK_SEEDS, first + count - start), dict(changes or {}), without)
        for start in range(first, first + count, CHUNK_SEEDS)
    )
    if processes == 1:
        for job in jobs:
            report.add(_chunk(job))
            tell(report)
        return report
    context = get_context("spawn")
    cores = context.SimpleQueue()
    for core in sorted(os.sched_getaffinity(0)):
        cores.put(core)
    with ProcessPoolExecutor(
        processes, mp_context=context, initializer=_pin, initargs=(cores,)
    ) as pool:
        for part in _mapped(pool, jobs, ahead=2 * processes):
            report.add(part)
            tell(report)
    return report


Job = tuple[int, int, dict[str, str], tuple[str, ...]]


def _mapped(pool: ProcessPoolExecutor, jobs: Iterator[Job], ahead: int) -> Iterator[Report]:
    """Keep a few jobs in the pool at a time, and yield what comes of them in order."""
    waiting = [pool.submit(_chunk, job) for job in islice(jobs, ahead)]
    while waiting:
        yield waiting.pop(0).result()
        waiting += [pool.submit(_chunk, job) for job in islice(jobs, 1)]


def _chunk(job: Job) -> Report:
    first, count, changes, without = job
    simulator, report = Simulator(), Report()
    started_s = time.perf_counter()
    for seed in range(first, first + count):
        scenario = Scenario.drawn(seed).changed(changes, without)
        verdict = simulator.run(scenario)
        report.take(verdict)
        if seed % REPLAY_EVERY == 0:
            again = simulator.run(scenario)
            for violation in TraceReplay().compare(verdict.history, again.history):
                report.failures.setdefault(seed, []).append(f"C10: {violation.what}")
    simulator.close()
    report.real_s = time.perf_counter() - started_s
    return report


def _pin(cores: SimpleQueue[int]) -> None:
    """Keep a process on one core: handing the baton to another core costs six times as much."""
    if not cores.empty():
        os.sched_setaffinity(0, {cores.get()})
