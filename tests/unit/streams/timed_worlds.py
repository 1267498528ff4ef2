"""Programs over sources with event time under the simulator; every attempt cuts them again."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from tests.unit.streams.times import EVENT, at
from tests.unit.streams.worlds import Held, RecuttingEmitter, memory_state, replay_of
from txtopo import Config, StreamBuilder
from txtopo.context import TaskContext
from txtopo.errors import FencedError, InfrastructureError, PoisonBatchError, TopologyKilled
from txtopo.spouts import OpaqueMemoryTransactionalSpout
from txtopo.spouts.spout import OpaquePartitionedTransactionalEmitter
from txtopo.state import State
from txtopo.streams import DataStream
from txtopo.testing.checkers import Evidence
from txtopo.testing.simulation.campaign import Verdict, quiet, verdict
from txtopo.testing.simulation.clock import ThreadHandoff
from txtopo.testing.simulation.scenario import CHAOS_S, Scenario
from txtopo.testing.simulation.topologies import Oracle, Rows
from txtopo.testing.simulation.world import World

Program = Callable[[Mapping[str, DataStream], Callable[..., Any]], object]
"""Takes the streams of the sources and a function that opens a state by name."""

Tables = Mapping[str, Mapping[Any, Any]]

Fold = Callable[[Sequence[Mapping[str, Sequence[Any]]]], Tables]
"""Takes the batches, each with the rows of every source, and returns what each table holds."""


def stream_of(
    count: int, seed: int, source: str, *, keys: int = 4, spread: float = 6
) -> list[list[Any]]:
    """Return rows whose times continue, but are out of order by up to *spread* minutes."""
    chance, rows = Random(f"{seed}/{source}"), []
    for number in range(count):
        key = None if chance.random() < 0.04 else f"k{chance.randrange(keys)}"
        time = at(number + round(chance.uniform(-spread, 0)))
        rows.append([f"{source}{number:03}", key, number, time])
    return rows


class RecuttingSource(OpaqueMemoryTransactionalSpout):
    """Cuts each attempt at a batch in its own way."""

    def __init__(self, rows: Sequence[Sequence[Any]], take: int) -> None:
        super().__init__({number: list(rows[number::2]) for number in range(2)}, EVENT, take)

    def emitter(
        self, config: Config, context: TaskContext
    ) -> OpaquePartitionedTransactionalEmitter:
        return RecuttingEmitter(self._partitions, self._take)


def simulated(
    program: Program,
    fold: Fold,
    sources: Mapping[str, Sequence[Sequence[Any]]],
    seed: int,
    *,
    delay: datetime.timedelta,
    config: Config | None = None,
    tasks: int = 2,
    marks: State | None = None,
    state: Callable[..., Any] = memory_state,
    **declared: Any,
) -> Verdict:
    """Run a program under the faults of a seed, and judge its tables by a fold in plain Python.

    The ids of the rows of a source begin with its name. A source has up to *tasks* tasks; the rows
    of a batch come to the fold as they come to a committer if there is one. What else is declared
    of event time goes to each source.
    """
    builder, streams = StreamBuilder("timed", marks=marks), {}
    for name, rows in sources.items():
        spout = RecuttingSource(rows, 1 + seed % 5)
        streams[name] = builder.source(
            name, spout, 1 + seed % tasks, event_time="ts", delay=delay, max_ahead=None, **declared
        )
    program(streams, state)
    topology = builder.build_topology()
    scenario = replace(
        Scenario.drawn(seed), min_batch_rows=None, max_rows_per_second=None, target_commit_s=None
    )
    handoff = ThreadHandoff()
    given = scenario.config() if config is None else config
    world = World(seed, scenario.faults, given, scenario.coordinators, handoff)
    world.take(topology)
    with quiet():
        history = world.run(CHAOS_S)
    names = list(sources)
    evidence = Evidence(
        topology_id=topology.id,
        history=history,
        oracles={table: oracle_of(fold, table, names) for table in fold([])},
        source=None,
        leftovers=world.leftovers.found,
        expected=(FencedError, PoisonBatchError, InfrastructureError, TopologyKilled),
        records=[tuple(row) for rows in sources.values() for row in rows],
        spouts=names if len(names) > 1 else (),
    )
    judged = verdict(seed, world, evidence)
    handoff.close()
    return judged


def oracle_of(fold: Fold, table: str, sources: Sequence[str]) -> Oracle:
    """Return the oracle of a table."""

    def step(rows: Rows, batch: Sequence[Any]) -> Rows:
        batches = (*(rows.batches if isinstance(rows, Held) else ()), tuple(batch))
        divided = [
            {name: [row for row in each if row[0].startswith(name)] for name in sources}
            for each in batches
        ]
        held = Held(fold(divided)[table])
        held.batches = batches
        return held

    return step


def assert_right(
    program: Program,
    fold: Fold,
    sources: Callable[[int], Mapping[str, Sequence[Sequence[Any]]]],
    seeds: range,
    *,
    delay: datetime.timedelta,
    **more: Any,
) -> None:
    """Check a program under the faults of some seeds."""
    for seed in seeds:
        judged = simulated(program, fold, sources(seed), seed, delay=delay, **more)
        assert not judged.violations, f"{replay_of(seed)}: {judged.violations[:3]}"
