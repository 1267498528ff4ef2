"""simulate: runs a topology of yours in virtual time, under every fault that txtopo knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from txtopo.builders.transactional import Topology
from txtopo.config import Config
from txtopo.errors import (
    FencedError,
    InfrastructureError,
    PoisonBatchError,
    TopologyError,
    TopologyKilled,
    TxtopoError,
)
from txtopo.streams.event_time import Watermarks
from txtopo.streams.late_rows import UnusableRows
from txtopo.testing.checkers import Evidence
from txtopo.testing.simulation.campaign import CampaignReport, Verdict, quiet, verdict
from txtopo.testing.simulation.clock import ThreadHandoff
from txtopo.testing.simulation.history import Record
from txtopo.testing.simulation.scenario import CHAOS_S, Scenario
from txtopo.testing.simulation.topologies import Oracle, Rows
from txtopo.testing.simulation.world import World

PlainFold = Callable[[Sequence[Record]], Mapping[Any, Any]]
"""A function: (all records so far, in the order of their batches) -> value by key."""


class SimulationFailed(TxtopoError, AssertionError):
    """A promise was broken; the message says which one, and how to replay it.

    Attributes:
        seed: The seed that replays it.
    """

    seed: int | None = None


def simulate(
    topology: Topology,
    oracle: Mapping[str, PlainFold],
    seeds: int = 100,
    *,
    first: int = 0,
    config: Config | None = None,
    records: Sequence[Sequence[Any]] | None = None,
    outside: Mapping[str, Callable[[], Mapping[Any, Any]]] | None = None,
    before_each: Callable[[], object] = lambda: None,
    trace: Callable[[str], None] | None = None,
) -> CampaignReport:
    """Run a topology from many seeds, each with other crashes, delays, repetitions and losses.

    Stores and ZooKeeper are simulated; the states that the topology names are not touched. Each
    version of a state is compared with the fold of the committed batches.

    Args:
        topology: The topology. Its spout must come to an end, and emit the same in each seed.
        oracle: For each state but watermarks, by table, a fold that returns what it should hold.
        seeds: How many seeds.
        first: The first seed.
        config: How it runs, except carrier and ZooKeeper; by default drawn, without pacing.
        records: All tuples of the spout's stream ``default``, in any order; none may be missing.
        outside: Functions that read what your bolts write outside the states, by name. Each needs
            an oracle too.
        before_each: Called before each seed, to empty what is outside the states.
        trace: Called with each line of the trace of a seed that fails.

    Raises:
        SimulationFailed: A promise was broken.
        TopologyError: An oracle is missing, or does not name a state.

    Example:
        >>> simulate(topology, {"counts": counts}, seeds=3).seeds
        3
    """
    outside = outside or {}
    _check(topology, oracle, outside)
    report, handoff = CampaignReport(), ThreadHandoff()
    for seed in range(first, first + seeds):
        before_each()
        judged = _run(topology, oracle, seed, config, records, outside, handoff)
        report.take(judged)
        if judged.violations:
            for line in judged.history.lines() if trace else ():
                trace(line)  # type: ignore[misc]
            what = "\n".join(f"  {each.checker}: {each.what}" for each in judged.violations[:5])
            raise SimulationFailed(
                f"seed {judged.seed} broke a promise:\n{what}\n"
                f"replay it with simulate(…, seeds=1, first={judged.seed}, trace=print)",
                seed=judged.seed,
            )
    handoff.close()
    return report


def _run(
    topology: Topology,
    oracle: Mapping[str, PlainFold],
    seed: int,
    config: Config | None,
    records: Sequence[Sequence[Any]] | None,
    outside: Mapping[str, Callable[[], Mapping[Any, Any]]],
    handoff: ThreadHandoff,
) -> Verdict:
    scenario = replace(
        Scenario.drawn(seed), min_batch_rows=None, max_rows_per_second=None, target_commit_s=None
    )
    given = scenario.config()
    if config is not None:
        given = replace(config, carrier="local", zookeeper="memory")
    world = World(seed, scenario.faults, given, scenario.coordinators, handoff)
    world.take(topology)
    with quiet():
        history = world.run(CHAOS_S)
    evidence = Evidence(
        topology_id=topology.id,
        history=history,
        oracles={name: _stepwise(fold) for name, fold in oracle.items()},
        source=None,
        leftovers=world.leftovers.found,
        expected=(FencedError, PoisonBatchError, InfrastructureError, TopologyKilled),
        records=None if records is None else [tuple(each) for each in records],
        outside={name: _as_rows(read()) for name, read in outside.items()},
    )
    return verdict(seed, world, evidence)


class _Folded(dict[Any, Any]):
    """Rows that remember the records they were folded from."""

    records: tuple[Record, ...] = ()


def _stepwise(fold: PlainFold) -> Oracle:
    """Turn a fold of all records into an oracle that adds one batch."""

    def step(rows: Rows, batch: Sequence[Record]) -> Rows:
        before = rows.records if isinstance(rows, _Folded) else ()
        records = (*before, *batch)
        folded = _Folded(_as_rows(fold(records)))
        folded.records = records
        return folded

    return step


def _as_rows(contents: Mapping[Any, Any]) -> Rows:
    return {_as_tuple(key): _as_tuple(value) for key, value in contents.items()}


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _check(
    topology: Topology, oracle: Mapping[str, PlainFold], outside: Mapping[str, object]
) -> None:
    tables, marks = set[str](), set[str]()
    for component in topology.graph.components.values():
        known = marks if isinstance(component.prototype, UnusableRows | Watermarks) else tables
        known.update(state.layout().name for state in component.states.values())
    expected = sorted({*tables, *outside})
    if sorted({*oracle} - marks) != expected:
        raise TopologyError(
            f"the oracles do not fit topology {topology.id!r}; got {sorted(oracle)}; expected one "
            f"for each of {expected}: each state by its table, and each name of outside",
            topology=topology.id,
            got=tuple(sorted(oracle)),
            expected=tuple(expected),
        )
