"""Simulator: runs scenarios, runs the checkers on them, and shrinks one that breaks a promise.

:func:`run_seeds` runs many seeds on all cores. :func:`shrink` looks for a smaller scenario that
breaks the same promise. A scenario is plain data, so it is reduced one setting at a time, as long
as the same checker fails. Each change also changes what is drawn later, so the rest of the run
becomes a different one. That is why every step is tried again, and why a seed alone does not
identify the result.
"""

from __future__ import annotations

import gc
import logging
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue

from txtopo.errors import FencedError, InfrastructureError, PoisonBatchError, TopologyKilled
from txtopo.runtime.progress import Leading
from txtopo.state import open_state
from txtopo.testing.checkers import (
    Commanded,
    Evidence,
    ExactCount,
    Liveness,
    OffsetChain,
    Paced,
    PlannedStamps,
    Prefix,
    Skew,
    Switched,
    Together,
    TxidDiscipline,
    Undo,
    Violation,
    Zombies,
)
from txtopo.testing.checkers.evidence import Source
from txtopo.testing.checkers.promises import TraceReplay
from txtopo.testing.simulation.clock import ThreadHandoff
from txtopo.testing.simulation.faults import Faults
from txtopo.testing.simulation.forking import Forked, begin_forked
from txtopo.testing.simulation.history import History, Record
from txtopo.testing.simulation.scenario import FORKS_SALT, Scenario
from txtopo.testing.simulation.source import SimulatedSource
from txtopo.testing.simulation.topologies import BoltBroken, build, spout_id
from txtopo.testing.simulation.world import World

CHECKERS = (
    ExactCount(),
    Prefix(),
    TxidDiscipline(),
    OffsetChain(),
    Paced(),
    Zombies(),
    Skew(),
    Undo(),
    Liveness(),
    Commanded(),
    PlannedStamps(),
    Together(),
    Switched(),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one simulation.

    Attributes:
        seed: Its seed.
        violations: The promises that were broken.
        history: What happened.
        txids: How many batches were committed.
        faults: How often each kind of fault happened.
        virtual_s: Its length in virtual time.
        fenced: How many runs were deposed and noticed it.
        groups: How often a state took several txids in one write, how often such a write was a
            redo, and how often a takeover adopted one; and how many transactions several states
            shared.
        forked: How many topologies were forked, and judged as well.
    """

    seed: int
    violations: tuple[Violation, ...]
    history: History = field(repr=False)
    txids: int
    faults: Mapping[str, int]
    virtual_s: float
    fenced: int
    groups: Mapping[str, int]
    forked: int = 0


class Simulator:
    """Runs one scenario after the other, with the same threads."""

    def __init__(self) -> None:
        self._handoff = ThreadHandoff()

    def run(self, scenario: Scenario) -> Verdict:
        """Run a scenario and judge it, and the topology that was forked in it."""
        world, evidence = self.evidence(scenario)
        found = verdict(scenario.seed, world, evidence)
        forked = Forked.of(world)
        if forked is None or found.violations:
            return found
        return _with_fork(found, self.fork_evidence(scenario, forked, evidence))

    def evidence(self, scenario: Scenario) -> tuple[World, Evidence]:
        """Run a scenario and return what the checkers judge."""
        return self._evidence(scenario, scenario.seed)

    def fork_evidence(
        self, scenario: Scenario, forked: Forked, original: Evidence
    ) -> tuple[World, Evidence]:
        """Run the topology that was forked in a scenario, and return what the checkers judge."""
        return self._evidence(
            replace(scenario, forks=False), scenario.seed ^ FORKS_SALT, (forked, original)
        )

    def _evidence(
        self, scenario: Scenario, seed: int, fork: tuple[Forked, Evidence] | None = None
    ) -> tuple[World, Evidence]:
        world = World(
            seed, scenario.faults, scenario.config(), scenario.coordinators, self._handoff
        )
        sources = [
            SimulatedSource(
                world, scenario.partitions, scenario.records, scenario.batch_rows_max, number
            )
            for number in range(len(scenario.shape.spouts))
        ]
        world.source, world.further_sources = sources[0], sources[1:]
        state = open_state("memory:", kind=scenario.shape.kind)
        topology, oracles = build(scenario.shape, world.number, state)
        base: Sequence[Sequence[Record]] = ()
        if fork is None:
            world.take(topology, scenario.sharing)
        else:
            forked, original = fork
            base = original.batches(original.tables()[0])[: forked.txid]
            begin_forked(world, topology, scenario.sharing, forked)
        assert world.topology is not None
        if scenario.forks:
            chance = random.Random(scenario.seed ^ FORKS_SALT ^ 1)
            world.forks.begin(chance, shared=scenario.sharing == "shared")
        with quiet():
            history = world.run(scenario.chaos_s)
        return world, Evidence(
            topology_id=world.topology.id,
            history=history,
            oracles=oracles,
            source=Source(scenario.partitions, scenario.records, len(sources)),
            leftovers=world.leftovers.found,
            expected=(
                *(FencedError, PoisonBatchError, InfrastructureError, BoltBroken),
                TopologyKilled,
            ),
            repeatable=scenario.shape.repeating,
            spouts=[spout_id(number) for number in range(len(sources))],
            limited=(scenario.max_rows_per_second or scenario.target_commit_s) is not None,
            rows_per_second=None if scenario.faults.clock else scenario.max_rows_per_second,
            base=base,
        )

    def close(self) -> None:
        """End the threads."""
        self._handoff.close()


def verdict(seed: int, world: World, evidence: Evidence) -> Verdict:
    """Run all checkers on a simulation that has ended."""
    history = evidence.history
    violations = tuple(each for checker in CHECKERS for each in checker.check(evidence))
    ledgers = [contents.ledger for contents in history.stores.values()]
    return Verdict(
        seed=seed,
        violations=violations,
        history=history,
        txids=max((ledger.txid for ledger in ledgers if ledger is not None), default=0),
        faults=Counter(world.chaos.counts),
        virtual_s=world.timeline.now_s,
        fenced=sum(isinstance(ended.error, FencedError) for ended in history.endings),
        groups=_groups(evidence),
    )


def _with_fork(original: Verdict, fork: tuple[World, Evidence]) -> Verdict:
    """Return the verdict on a topology and on its fork, with what the fork did in the trace."""
    found = verdict(original.seed, *fork)
    original.history.trace += found.history.trace
    return replace(
        original,
        violations=tuple(
            Violation(each.checker, f"in the fork: {each.what}") for each in found.violations
        ),
        forked=1,
        txids=original.txids + found.txids,
        faults=Counter(original.faults) + Counter(found.faults),
        virtual_s=original.virtual_s + found.virtual_s,
    )


def _groups(evidence: Evidence) -> Counter[str]:
    """Count writes of several txids, those that are redos, adoptions, and shared transactions."""
    counts: Counter[str] = Counter()
    lasts: set[int] = set()
    for write in evidence.store_writes():
        before, after = write.before.ledger, write.after.ledger
        if after is None or (before and before.writer == after.writer):
            continue
        counts["shared"] += len(write.together) > 1 and write.together[0] == write.table
        if len(after.attempts) < 2:
            continue
        again = before is not None and before.txid == after.txid
        counts["redone" if again else "written"] += 1
        lasts.add(after.txid)
    if lasts:
        led = (change for *_, change in evidence.history.trace if isinstance(change, Leading))
        counts["adopted"] += sum(change.adopted in lasts for change in led)
    return counts


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the warnings of the runtime: each fault logs one, and the trace has all of them."""
    logger = logging.getLogger("txtopo")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


COLLECT_OBJECTS = 100_000


@contextmanager
def rare_collections() -> Iterator[None]:
    """Look for cyclic garbage rarely, and not among existing objects.

    A history is one large graph that grows until its verdict, and most other objects form no
    cycles. Searching it again and again took an eighth of the time. Objects that the caller has
    frozen, as the tests do, stay frozen.
    """
    thresholds = gc.get_threshold()
    ours = not gc.get_freeze_count()
    if ours:
        gc.collect()
        gc.freeze()
    gc.set_threshold(COLLECT_OBJECTS, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        if ours:
            gc.unfreeze()


CHUNK_SEEDS = 20

REPLAY_EVERY = 50
"""Every seed that is a multiple of this runs twice, and both traces must be equal (C10)."""


@dataclass(slots=True)
class CampaignReport:
    """The results of many seeds, added up.

    Attributes:
        seeds: How many ran.
        txids: How many batches were committed.
        faults: How often each kind of fault happened.
        virtual_s: Virtual time of all simulations together.
        processor_s: Processor time of all processes together.
        fenced: How many runs were deposed and noticed it.
        groups: How often several txids were written, redone and adopted together, and how many
            transactions several states shared.
        forked: How many topologies were forked.
        failures: The violations of each seed that has some.
    """

    seeds: int = 0
    txids: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    virtual_s: float = 0.0
    processor_s: float = 0.0
    fenced: int = 0
    groups: Counter[str] = field(default_factory=Counter)
    forked: int = 0
    failures: dict[int, list[str]] = field(default_factory=dict)

    def add(self, other: CampaignReport) -> None:
        """Add the results of other seeds."""
        self.seeds += other.seeds
        self.txids += other.txids
        self.faults += other.faults
        self.virtual_s += other.virtual_s
        self.processor_s += other.processor_s
        self.fenced += other.fenced
        self.groups += other.groups
        self.forked += other.forked
        self.failures |= other.failures

    def take(self, verdict: Verdict) -> None:
        """Add the result of one seed."""
        self.seeds += 1
        self.txids += verdict.txids
        self.faults.update(verdict.faults)
        self.virtual_s += verdict.virtual_s
        self.fenced += verdict.fenced
        self.groups.update(verdict.groups)
        self.forked += verdict.forked
        if verdict.violations:
            self.failures[verdict.seed] = [f"{v.checker}: {v.what}" for v in verdict.violations]

    def lines(self) -> list[str]:
        """Return the report as Markdown."""
        speed = self.txids / self.processor_s if self.processor_s else 0.0
        return [
            f"* {self.seeds:,} seeds, {len(self.failures)} with a violation",
            f"* {self.txids:,} txids committed, {self.fenced:,} runs deposed",
            f"* {self.groups['written']:,} writes of several txids, {self.groups['redone']:,} of "
            f"them redone, {self.groups['adopted']:,} adopted by a new leader",
            f"* {self.groups['shared']:,} transactions that several states shared",
            f"* {self.forked:,} topologies forked, each run to its end as well",
            f"* {self.virtual_s / 3600:,.0f} hours of virtual time in {self.processor_s / 60:,.1f} "
            f"minutes of processor time, {speed:,.0f} txids per processor second",
            "",
            "| fault | times |",
            "|---|---|",
            *(f"| `{kind}` | {times:,} |" for kind, times in sorted(self.faults.items())),
        ]


def run_seeds(
    first: int,
    count: int,
    *,
    processes: int = 1,
    changes: Mapping[str, str] | None = None,
    without: tuple[str, ...] = (),
    tell: Callable[[CampaignReport], None] = lambda report: None,
) -> CampaignReport:
    """Run seeds from *first* on.

    Args:
        first: The first seed.
        count: How many.
        processes: How many processes, one for each core.
        changes: Settings to change in each scenario; see ``Scenario.changed``.
        without: Kinds of faults that do not happen.
        tell: Called with the report from time to time.
    """
    report = CampaignReport()
    jobs = (
        (start, min(CHUNK_SEEDS, first + count - start), dict(changes or {}), without)
        for start in range(first, first + count, CHUNK_SEEDS)
    )
    if processes == 1:
        for job in jobs:
            report.add(run_chunk(job))
            tell(report)
        return report
    with pinned_processes(processes) as pool:
        for part in _mapped(pool, jobs, ahead=2 * processes):
            report.add(part)
            tell(report)
    return report


def pinned_processes(processes: int) -> ProcessPoolExecutor:
    """Return a pool of processes that stay on one core each."""
    context = get_context("spawn")
    cores = context.SimpleQueue()
    for core in sorted(os.sched_getaffinity(0)):
        cores.put(core)
    return ProcessPoolExecutor(processes, mp_context=context, initializer=_pin, initargs=(cores,))


Job = tuple[int, int, dict[str, str], tuple[str, ...]]
"""(first seed, how many, settings to change, kinds of faults that do not happen)."""


def _mapped(pool: ProcessPoolExecutor, jobs: Iterator[Job], ahead: int) -> Iterator[CampaignReport]:
    """Keep a few jobs in the pool, and yield their reports in order."""
    waiting = [pool.submit(run_chunk, job) for job in islice(jobs, ahead)]
    while waiting:
        yield waiting.pop(0).result()
        waiting += [pool.submit(run_chunk, job) for job in islice(jobs, 1)]


def run_chunk(job: Job) -> CampaignReport:
    """Run the seeds of one job."""
    first, count, changes, without = job
    simulator, report = Simulator(), CampaignReport()
    started_s = time.process_time()
    with rare_collections():
        for seed in range(first, first + count):
            scenario = Scenario.drawn(seed).changed(changes, without)
            verdict = simulator.run(scenario)
            report.take(verdict)
            if seed % REPLAY_EVERY == 0:
                again = simulator.run(scenario)
                for violation in TraceReplay().compare(verdict.history, again.history):
                    report.failures.setdefault(seed, []).append(f"C10: {violation.what}")
    simulator.close()
    report.processor_s = time.process_time() - started_s
    return report


def _pin(cores: SimpleQueue[int]) -> None:
    """Keep a process on one core: a handoff to a thread on another core costs six times as much."""
    if not cores.empty():
        os.sched_setaffinity(0, {cores.get()})


def shrink(simulator: Simulator, scenario: Scenario) -> tuple[Scenario, Verdict]:
    """Return the smallest scenario found that breaks the same promise, and its verdict."""
    verdict = simulator.run(scenario)
    checkers = {each.checker for each in verdict.violations}
    smaller = True
    while smaller and checkers:
        smaller = False
        for candidate in _smaller(scenario):
            tried = simulator.run(candidate)
            if checkers & {each.checker for each in tried.violations}:
                scenario, verdict, smaller = candidate, tried, True
                break
    return scenario, verdict


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Yield scenarios that are a little smaller; those that leave out most come first."""
    yield from _without_faults(scenario)
    shape = scenario.shape
    if len(shape.committers) > 1:
        for name in shape.committers:
            yield replace(scenario, shape=replace(shape, committers=(name,)))
    if shape.further_spouts:
        fewer = replace(shape, further_spouts=shape.further_spouts[:-1])
        yield replace(scenario, shape=fewer)
    if shape.dead_letters:
        yield replace(scenario, shape=replace(shape, dead_letters=False))
    if shape.relay:
        yield replace(scenario, shape=replace(shape, relay=False))
    if scenario.forks:
        yield replace(scenario, forks=False)
    if scenario.sharing != "apart":
        yield replace(scenario, sharing="apart")
    if shape.parallelism > 1:
        yield replace(scenario, shape=replace(shape, parallelism=1))
    ones = ("coordinators", "slots", "partitions", "max_spout_pending", "group_txids_max")
    for name in ones:
        if getattr(scenario, name) > 1:
            yield scenario.changed({name: "1"})
    if scenario.records > 1:
        yield replace(scenario, records=scenario.records // 2)
        yield replace(scenario, records=scenario.records - 1)
    if scenario.chaos_s > 1.0:
        yield replace(scenario, chaos_s=scenario.chaos_s / 2)


def _without_faults(scenario: Scenario) -> Iterator[Scenario]:
    kinds = [kind for kind in Faults.kinds() if getattr(scenario.faults, kind)]
    if len(kinds) > 3:
        half = len(kinds) // 2
        for some in (kinds[:half], kinds[half:]):
            yield replace(scenario, faults=scenario.faults.without(some))
    for kind in kinds:
        yield replace(scenario, faults=scenario.faults.without([kind]))
